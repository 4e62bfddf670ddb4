//! Replacement policies alone, at full speed: misses of a reference stream.
//!
//! There is no time here, no network and no batch: a miss takes a frame, and when none is free the policy names a victim first. That is
//! what the public simulator libCacheSim counts too (objects of one size), and the counts of FIFO, LRU, CLOCK, SIEVE and Belady's optimum
//! equal its own to the last unit: `bench/replay/compare.py`. The policies are those of `loam-core`, in the form in which they run live,
//! but driven by number instead of by page.

mod belady;
mod stream;
#[cfg(test)]
mod tests;
mod zipf;

pub use belady::belady;
pub use stream::{Stream, StreamBuilder};
pub use zipf::Zipf;

use loam_core::replacement::{Arc, Clock, Fifo, Lru, Order, S3Fifo, SecondChanceFifo, Sieve, Unnumbered};

/// Names that [`misses`] knows: those of `loam-core`, and the optimum, which needs to know the future.
pub const POLICIES: [&str; 8] =
    ["lru", "fifo", "second-chance", "clock", "s3-fifo", "sieve", "arc", "belady"];

/// Misses of `stream` under the policy of this name with so many page frames; none if there is no such policy.
///
/// # Panics
/// Without frames.
pub fn misses(policy: &str, stream: &Stream, frames: usize) -> Option<u64> {
    Some(match policy {
        "lru" => replay::<Lru>(stream, frames),
        "fifo" => replay::<Fifo>(stream, frames),
        "second-chance" => replay::<Unnumbered<SecondChanceFifo>>(stream, frames),
        "clock" => replay::<Clock>(stream, frames),
        "s3-fifo" => replay::<S3Fifo>(stream, frames),
        "sieve" => replay::<Sieve>(stream, frames),
        "arc" => replay::<Arc>(stream, frames),
        "belady" => belady(stream, frames),
        _ => return None,
    })
}

/// Misses of `stream` under the policy `O` with so many page frames.
///
/// # Panics
/// Without frames.
pub fn replay<O: Order>(stream: &Stream, frames: usize) -> u64 {
    assert!(frames > 0, "a replay needs at least one page frame");
    let (mut order, mut misses) = (O::default(), 0);
    for &entry in stream.entries() {
        let page = stream::page(entry);
        if order.holds(page) {
            order.touched(page);
        } else {
            misses += 1;
            if order.len() >= frames {
                order.victim().expect("frames are full of pages");
            }
            order.inserted(page);
        }
        for _ in 0..stream::repeats(entry).min(O::TOUCHES_IN_A_ROW) {
            order.touched(page);
        }
    }
    misses
}
