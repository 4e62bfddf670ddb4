//! Miss-ratio curves: how many references miss under LRU, for every size of memory at once.
//!
//! Exact from stack distances (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
//! 1970): LRU with c frames hits exactly the references whose page is among the c used last. Sampled from the stack distances of some of
//! the pages (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015).

mod curve;
mod distance;
mod shards;
#[cfg(test)]
mod tests;

pub use curve::{Curve, Step};
pub use distance::StackDistances;
pub use shards::{Sample, sampled, sampled_of_trace};

use crate::replay::Stream;

/// The curve of every reference.
pub fn exact(stream: &Stream) -> Curve {
    let mut distances = StackDistances::default();
    let (mut first_uses, mut counts) = (0_u64, vec![0_u64; stream.distinct() as usize + 1]);
    for page in stream.pages() {
        match distances.reference(page) {
            None => first_uses += 1,
            Some(distance) => counts[distance as usize] += 1,
        }
    }
    // Repeats, which the stream folds, are hits in one frame.
    counts[0] += stream.references() - stream.pages().len() as u64;
    let hits = counts.iter().enumerate().map(|(distance, &count)| (distance as u64, count as f64));
    Curve::new(stream.references(), stream.pages().len() as u64, first_uses as f64, hits)
}
