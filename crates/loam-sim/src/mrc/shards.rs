//! SHARDS: the curve from some of the pages.

use super::{Curve, StackDistances};
use crate::replay::Stream;
use std::collections::{BTreeMap, BTreeSet};

/// Which pages are in the sample (SHARDS, section 3): those whose hash is below a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// This part of the pages, above 0 and up to 1: the threshold stays (section 3.1).
    Rate(f64),
    /// So many pages at most: the threshold goes down as pages come (section 3.2).
    Pages(usize),
}

/// Hashes are below this.
const HASHES: u64 = 1 << 32;

/// The curve that a sample of the pages shows. A distance among the sampled pages, and a count, stand for as many times more as the part
/// of the pages is smaller. Misses are set against all references (the paper's adjustment, section 4.3: what the sample has too few or
/// too many of are references to the most used pages, which hit).
///
/// # Panics
/// If the rate is not above 0 and up to 1, or there are no pages to sample.
pub fn sampled(stream: &Stream, sample: Sample) -> Curve {
    let (mut threshold, pages_max) = match sample {
        Sample::Rate(rate) => {
            assert!(rate > 0.0 && rate <= 1.0, "a rate is above 0 and up to 1");
            (((rate * HASHES as f64) as u64).max(1), usize::MAX)
        }
        Sample::Pages(pages) => {
            assert!(pages > 0, "a sample has pages");
            (HASHES, pages)
        }
    };
    let mut distances = StackDistances::default();
    // The sampled pages by hash, where they must make room for each other.
    let mut by_hash = BTreeSet::new();
    let (mut first_uses, mut hits, mut count) = (0.0, BTreeMap::new(), 0);
    for page in stream.pages() {
        let hash = hash(page);
        if hash >= threshold {
            continue;
        }
        count += 1;
        let scale = HASHES as f64 / threshold as f64;
        match distances.reference(page) {
            Some(distance) => *hits.entry((distance as f64 * scale) as u64).or_insert(0.0) += scale,
            None => {
                first_uses += scale;
                if pages_max < usize::MAX {
                    by_hash.insert((hash, page));
                }
            }
        }
        while by_hash.len() > pages_max {
            threshold = by_hash.last().expect("it has pages").0;
            while let Some(&(_, page)) = by_hash.last().filter(|&&(hash, _)| hash >= threshold) {
                distances.forget(page);
                by_hash.pop_last();
            }
        }
    }
    *hits.entry(0).or_insert(0.0) += (stream.references() - stream.pages().len() as u64) as f64;
    Curve::new(stream.references(), count, first_uses, hits.into_iter())
}

/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: the finalizer that Java's SplittableRandom uses.
fn hash(page: u32) -> u64 {
    let mut z = (u64::from(page) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ z >> 31) >> 32
}
