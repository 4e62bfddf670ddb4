//! How long ago pages were last put or fetched.
//!
//! Each slot carries the moment in units of [`AGE_UNIT`], in four bytes that its record had free; here is how many pages have
//! each moment, so that "the oldest n" and a summary of ages cost no look at the pages. An entry takes some tens of bytes and
//! there are at most as many as units have passed: after a day without rest less than 4 MB.

use crate::units::{Duration, Instant};
use alloc::collections::BTreeMap;

/// Ages are told apart to this much (2^30 ns, a little more than a second).
pub const AGE_UNIT: Duration = Duration(1 << UNIT_BITS);
const UNIT_BITS: u32 = 30;

/// Buckets of an age histogram: see [`AgeHistogram`].
pub const AGE_BUCKETS: usize = 32;

/// Base pages by age: bucket 0 has those younger than one [`AGE_UNIT`], bucket `k` those of 2^(k-1) to 2^k units.
pub type AgeHistogram = [u64; AGE_BUCKETS];

/// A moment in whole units since the lender's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub u32);

impl Moment {
    pub(super) fn of(now: Instant) -> Self {
        Self(u32::try_from(now.0 >> UNIT_BITS).expect("a lender does not run for a hundred years"))
    }
}

/// Pages by the moment of their last use.
#[derive(Debug, Default)]
pub(super) struct Ages {
    counts: BTreeMap<Moment, u64>,
    pages: u64,
}

impl Ages {
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn add(&mut self, used: Moment) {
        *self.counts.entry(used).or_insert(0) += 1;
        self.pages += 1;
    }

    pub(super) fn remove(&mut self, used: Moment) {
        let count = self.counts.get_mut(&used).expect("a page's moment was counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&used);
        }
        self.pages -= 1;
    }

    /// The moment up to which the oldest `pages` were used, and how many of those used just then are among them.
    /// All there are if there are fewer.
    pub(super) fn oldest(&self, pages: u64) -> (Moment, u64) {
        assert!(pages > 0 && self.pages > 0, "the oldest of nothing");
        let mut left = pages;
        let mut last = (Moment(0), 0);
        for (&moment, &count) in &self.counts {
            last = (moment, count.min(left));
            left = left.saturating_sub(count);
            if left == 0 {
                break;
            }
        }
        last
    }

    /// Ages and how many pages have each, oldest first.
    pub(super) fn iter(&self, now: Instant) -> impl Iterator<Item = (Duration, u64)> {
        self.counts.iter().map(move |(moment, &count)| {
            let units = Moment::of(now).0.saturating_sub(moment.0);
            (Duration(u64::from(units) << UNIT_BITS), count)
        })
    }

    /// Adds the pages to a histogram.
    pub(super) fn add_to(&self, now: Instant, histogram: &mut AgeHistogram) {
        let now = Moment::of(now);
        for (&moment, &count) in &self.counts {
            let units = now.0.saturating_sub(moment.0);
            let bucket = (u32::BITS - units.leading_zeros()) as usize;
            histogram[bucket.min(AGE_BUCKETS - 1)] += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(counts: &[(u32, u64)]) -> Ages {
        let mut ages = Ages::default();
        for &(moment, count) in counts {
            (0..count).for_each(|_| ages.add(Moment(moment)));
        }
        ages
    }

    #[test]
    fn the_oldest_are_found_by_count() {
        let ages = ages(&[(3, 5), (7, 4), (8, 1)]);
        assert_eq!(ages.oldest(1), (Moment(3), 1));
        assert_eq!(ages.oldest(5), (Moment(3), 5));
        assert_eq!(ages.oldest(6), (Moment(7), 1));
        assert_eq!(ages.oldest(100), (Moment(8), 1), "all of them");
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let ages = ages(&[(0, 1), (90, 2), (98, 3), (99, 4), (100, 5), (101, 6)]);
        let mut histogram = [0; AGE_BUCKETS];
        // What was used "later" than now is as young as can be: clocks of threads differ a little.
        ages.add_to(Instant(100 << UNIT_BITS), &mut histogram);
        assert_eq!(&histogram[..8], &[11, 4, 3, 0, 2, 0, 0, 1]);
        assert_eq!(histogram.iter().sum::<u64>(), ages.pages());
    }
}
