//! SHARDS: the curve from some of the pages.

use super::{Curve, StackDistances};
use crate::replay::{Stream, StreamBuilder};
use crate::trace::{Source, TraceError};
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
    let mut sampler = Sampler::new(sample);
    stream.pages().for_each(|page| sampler.push(page));
    sampler.finish(stream.references())
}

/// The same of a trace, and how many pages it has, while it is read: what is kept goes with the number of pages, not of references.
///
/// # Errors
/// The trace's own.
///
/// # Panics
/// As [`sampled`], or if a page is not a whole number of grains.
pub fn sampled_of_trace(
    trace: &mut dyn Source,
    page_bytes: u64,
    sample: Sample,
) -> Result<(Curve, u32), TraceError> {
    let (mut sampler, mut builder) = (Sampler::new(sample), StreamBuilder::default());
    let mut runs = Vec::new();
    while trace.next_runs(&mut runs)? {
        builder.push_runs(&runs, page_bytes);
        runs.clear();
        builder.take_pages(|page| sampler.push(page));
    }
    let rest = builder.finish();
    rest.pages().for_each(|page| sampler.push(page));
    Ok((sampler.finish(rest.references()), rest.distinct()))
}

/// Takes the pages of a stream one after the other, repeats folded.
struct Sampler {
    threshold: u64,
    pages_max: usize,
    distances: StackDistances,
    /// The sampled pages by hash, where they must make room for each other.
    by_hash: BTreeSet<(u64, u32)>,
    first_uses: f64,
    hits: BTreeMap<u64, f64>,
    sampled: u64,
    pushed: u64,
}

impl Sampler {
    fn new(sample: Sample) -> Self {
        let (threshold, pages_max) = match sample {
            Sample::Rate(rate) => {
                assert!(rate > 0.0 && rate <= 1.0, "a rate is above 0 and up to 1");
                (((rate * HASHES as f64) as u64).max(1), usize::MAX)
            }
            Sample::Pages(pages) => {
                assert!(pages > 0, "a sample has pages");
                (HASHES, pages)
            }
        };
        Self {
            threshold,
            pages_max,
            distances: StackDistances::default(),
            by_hash: BTreeSet::new(),
            first_uses: 0.0,
            hits: BTreeMap::new(),
            sampled: 0,
            pushed: 0,
        }
    }

    fn push(&mut self, page: u32) {
        self.pushed += 1;
        let hash = hash(page);
        if hash >= self.threshold {
            return;
        }
        self.sampled += 1;
        let scale = HASHES as f64 / self.threshold as f64;
        match self.distances.reference(page) {
            Some(distance) => *self.hits.entry((distance as f64 * scale) as u64).or_insert(0.0) += scale,
            None => {
                self.first_uses += scale;
                if self.pages_max < usize::MAX {
                    self.by_hash.insert((hash, page));
                }
            }
        }
        while self.by_hash.len() > self.pages_max {
            self.threshold = self.by_hash.last().expect("it has pages").0;
            while let Some(&(_, page)) = self.by_hash.last().filter(|&&(hash, _)| hash >= self.threshold) {
                self.distances.forget(page);
                self.by_hash.pop_last();
            }
        }
    }

    /// The curve, of so many references with those that were folded.
    fn finish(mut self, references: u64) -> Curve {
        *self.hits.entry(0).or_insert(0.0) += (references - self.pushed) as f64;
        Curve::new(references, self.sampled, self.first_uses, self.hits.into_iter())
    }
}

/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: the finalizer that Java's SplittableRandom uses.
fn hash(page: u32) -> u64 {
    let mut z = (u64::from(page) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ z >> 31) >> 32
}
