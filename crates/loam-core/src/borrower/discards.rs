//! Discards that may still be under way.
//!
//! The event of a discard (`MADV_DONTNEED`) is read *before* the kernel drops the pages: by microseconds, or for as long as the discarding thread is kept from
//! a core. What comes in between goes with the rest, and nobody says so.

use super::table::{BaseRange, SpaceKey};
use crate::units::{Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Discards are remembered for this long.
const LASTS: Duration = Duration::from_millis(60_000);
/// And so many of them at most, the newest.
const COUNT_MAX: usize = 4096;
/// One that follows another within this time and goes on where it ended is the same.
const JOINS: Duration = Duration::from_millis(1_000);

/// Which ranges were discarded a short time ago, and when last.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// By first base page; they do not overlap.
    ranges: BTreeMap<(SpaceKey, u64), (u64, Instant)>,
}

impl Discards {
    pub(super) fn note(&mut self, now: Instant, key: SpaceKey, range: BaseRange) {
        if range.is_empty() {
            return;
        }
        self.cut(key, range);
        if self.ranges.len() + 2 > COUNT_MAX {
            self.forget_old(now);
        }
        let last = self.ranges.range_mut((key, 0)..(key, range.start)).next_back();
        if let Some((_, (end, at))) = last
            && *end == range.start
            && *at + JOINS >= now
        {
            (*end, *at) = (range.end, now);
        } else {
            self.ranges.insert((key, range.start), (range.end, now));
        }
    }

    /// A discard of a part of `range` may be under way.
    pub(super) fn touch(&self, now: Instant, key: SpaceKey, range: BaseRange) -> bool {
        // They do not overlap: the last that begins before the end also ends last. Older ones before it count as well.
        let before = self.ranges.range((key, 0)..(key, range.end)).rev();
        before.take_while(|(_, (end, _))| *end > range.start).any(|(_, (_, at))| *at + LASTS >= now)
    }

    /// What was known of `range` is so no longer.
    fn cut(&mut self, key: SpaceKey, range: BaseRange) {
        let overlapping = self.ranges.range((key, 0)..(key, range.end)).rev();
        let hit: Vec<(u64, (u64, Instant))> = overlapping
            .take_while(|(_, (end, _))| *end > range.start)
            .map(|(&(_, start), &what)| (start, what))
            .collect();
        for (start, (end, at)) in hit {
            self.ranges.remove(&(key, start));
            if start < range.start {
                self.ranges.insert((key, start), (range.start, at));
            }
            if end > range.end {
                self.ranges.insert((key, range.end), (end, at));
            }
        }
    }

    /// Forgets what is over, and the older half of the rest if that is not enough.
    fn forget_old(&mut self, now: Instant) {
        self.ranges.retain(|_, (_, at)| *at + LASTS >= now);
        if self.ranges.len() > COUNT_MAX / 2 {
            let mut times: Vec<Instant> = self.ranges.values().map(|(_, at)| *at).collect();
            times.sort_unstable();
            let newer_than = times[times.len() - COUNT_MAX / 2 - 1];
            self.ranges.retain(|_, (_, at)| *at > newer_than);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: SpaceKey = SpaceKey(1);

    fn one(base: u64) -> BaseRange {
        BaseRange::new(base, base + 1)
    }

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn the_newest_are_remembered_when_there_are_many() {
        let mut discards = Discards::default();
        for n in 0..10 * COUNT_MAX as u64 {
            discards.note(Instant(n), KEY, one(2 * n));
            assert!(discards.ranges.len() <= COUNT_MAX);
            assert!(discards.touch(Instant(n), KEY, one(2 * n)));
            assert!(discards.touch(Instant(n), KEY, one(2 * n.saturating_sub(1000))));
            assert!(!discards.touch(Instant(n), KEY, one(2 * n + 1)));
        }
        assert!(!discards.touch(Instant(0), KEY, one(0)), "the oldest went");
    }

    #[test]
    fn another_space_has_its_own() {
        let mut discards = Discards::default();
        discards.note(at(0), KEY, BaseRange::new(10, 20));
        assert!(!discards.touch(at(0), SpaceKey(2), one(15)));
        discards.note(at(0), SpaceKey(2), BaseRange::new(20, 30));
        assert!(!discards.touch(at(0), KEY, one(20)));
    }

    proptest! {
        /// Against the time of the last discard of each base page.
        #[test]
        fn each_base_page_knows_its_last_discard(
            discards in prop::collection::vec((0..30_u64, 0..40_u64, 1..12_u64), 1..60),
            looked in prop::collection::vec((0..50_u64, 1..12_u64), 1..40),
        ) {
            let (mut list, mut last) = (Discards::default(), [None; 64]);
            let mut now = 0;
            for (later, start, pages) in discards {
                now += later;
                list.note(at(now), KEY, BaseRange::new(start, start + pages));
                last[start as usize..(start + pages) as usize].fill(Some(now));
            }
            for (start, pages) in looked {
                let known = last[start as usize..(start + pages) as usize].iter().flatten();
                let is_recent = known.clone().any(|at| at + 60 >= now);
                // What joins another one is as young as the last of them.
                let might = known.clone().any(|at| at + 70 >= now);
                let found = list.touch(at(now), KEY, BaseRange::new(start, start + pages));
                prop_assert!(found || !is_recent);
                prop_assert!(!found || might);
            }
        }
    }
}
