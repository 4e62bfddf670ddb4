//! Ages of a node's pages, as a histogram small enough to send each epoch (gms-1995, section 3.2: "every node sends a summary of the ages
//! of its local and global pages").
//!
//! Buckets are logarithmic, four to a doubling, so an age is known to within a quarter whatever its size. Pages in active use are one number:
//! how young they are makes no difference, nobody should replace them. What others may replace is
//! - free frames, which count as older than any page,
//! - pages held for others, whatever their age: nobody here uses them,
//! - the node's own pages that were not used for some seconds.

use crate::units::Duration;

/// Bucket 0 is what is in use; then four buckets to a doubling over 15 doublings, from 32 ms on; then what is older than 17 minutes; then
/// free frames, which are older than any page.
pub const AGE_BUCKETS: usize = 63;

const YOUNG: Duration = Duration::from_millis(32);
const PER_DOUBLING: u64 = 4;
const DOUBLINGS: u32 = 15;
const OLDEST: usize = AGE_BUCKETS - 2;
/// The bucket of free frames.
pub(super) const FREE: usize = AGE_BUCKETS - 1;
const _: () = assert!(OLDEST == 1 + PER_DOUBLING as usize * DOUBLINGS as usize);

/// The bucket of an age.
fn bucket(age: Duration) -> usize {
    let quarters = (age.0 / (YOUNG.0 / PER_DOUBLING)).max(PER_DOUBLING);
    let doubling = quarters.ilog2() - PER_DOUBLING.ilog2();
    if doubling >= DOUBLINGS {
        return OLDEST;
    }
    1 + (doubling as u64 * PER_DOUBLING + (quarters >> doubling) - PER_DOUBLING) as usize
}

/// The least age of a bucket's pages.
pub(super) fn age_min(bucket: usize) -> Duration {
    match bucket {
        0 => Duration(0),
        FREE => Duration(u64::MAX),
        _ => {
            let (doubling, quarter) =
                ((bucket as u64 - 1) / PER_DOUBLING, (bucket as u64 - 1) % PER_DOUBLING);
            Duration(((PER_DOUBLING + quarter) * (YOUNG.0 / PER_DOUBLING)) << doubling)
        }
    }
}

/// How many pages of which age a node has, and what happened to it in the last epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgeSummary {
    counts: [u32; AGE_BUCKETS],
    /// Global pages that left for others' pages since the epoch began: pages replaced by putpages that came, and pages of this node that
    /// were discarded because they were older than MinAge.
    pub replaced: u32,
    /// Old pages and free frames that the node itself took into use since the epoch began (section 3.2, footnote: "the age distribution on
    /// a node changes when its global pages are consumed due to an increase in its local cache size").
    pub consumed: u32,
    /// How busy its processors are, in thousandths.
    pub cpu_busy_permille: u16,
}

impl Default for AgeSummary {
    fn default() -> Self {
        Self { counts: [0; AGE_BUCKETS], replaced: 0, consumed: 0, cpu_busy_permille: 0 }
    }
}

impl AgeSummary {
    /// From what came over the wire.
    pub fn from_counts(counts: [u32; AGE_BUCKETS]) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Pages by bucket.
    pub fn counts(&self) -> &[u32; AGE_BUCKETS] {
        &self.counts
    }

    /// Counts `pages` that are in use by the node itself.
    pub fn add_in_use(&mut self, pages: u32) {
        self.counts[0] = self.counts[0].saturating_add(pages);
    }

    /// Counts `pages` of this age that others may replace.
    pub fn add(&mut self, age: Duration, pages: u32) {
        let count = &mut self.counts[bucket(age)];
        *count = count.saturating_add(pages);
    }

    /// Counts `frames` that nothing is in.
    pub fn add_free(&mut self, frames: u32) {
        self.counts[FREE] = self.counts[FREE].saturating_add(frames);
    }

    /// Free frames.
    pub fn free(&self) -> u32 {
        self.counts[FREE]
    }

    /// Pages and free frames.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Free frames, and pages that others may replace.
    pub fn idle(&self) -> u64 {
        self.total() - u64::from(self.counts[0])
    }

    /// Of these, what is in buckets that begin at this age or above.
    pub fn older(&self, age: Duration) -> u64 {
        let from = (1..AGE_BUCKETS).find(|&bucket| age_min(bucket) >= age).unwrap_or(AGE_BUCKETS);
        self.counts[from..].iter().map(|&count| u64::from(count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_begin_where_they_say() {
        for at in 1..=OLDEST {
            assert_eq!(bucket(age_min(at)), at);
            if at > 1 {
                assert_eq!(bucket(Duration(age_min(at).0 - 1)), at - 1);
            }
        }
        assert_eq!((age_min(1), bucket(Duration(0))), (YOUNG, 1));
        assert_eq!(age_min(OLDEST), Duration::from_millis(32 << DOUBLINGS));
    }

    #[test]
    fn free_frames_are_older_than_any_page() {
        let mut ages = AgeSummary::default();
        ages.add(Duration(u64::MAX - 1), 3);
        ages.add_free(4);
        ages.add_in_use(5);
        assert_eq!(
            (ages.older(Duration(u64::MAX)), ages.older(Duration(0)), ages.idle(), ages.total()),
            (4, 7, 7, 12)
        );
    }

    proptest! {
        #[test]
        fn an_age_is_known_within_a_quarter(ns in 32_000_000u64..32_000_000 << DOUBLINGS) {
            let from = age_min(bucket(Duration(ns))).0;
            prop_assert!(from <= ns && ns < from + from / 4 + 1);
        }
    }
}
