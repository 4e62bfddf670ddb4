//! Where pages that are here have to be looked at, since what they are worth has changed: for a program may say it of any range in one call, and
//! the pages move to their places a few at a time.

use super::table::{BaseRange, SpaceKey};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Ranges of a space at a time; of more the two that are nearest to each other become one, with what lies between them.
const RANGES_MAX: usize = 16;

/// Disjoint ranges of each space. Spaces take turns, and so do the ranges of each: a program that speaks of one again and again does not keep the others
/// from being looked at.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    spaces: BTreeMap<SpaceKey, VecDeque<BaseRange>>,
    turn: Option<SpaceKey>,
}

impl Ranking {
    pub(super) fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// `base` will be looked at.
    pub(super) fn has(&self, key: SpaceKey, base: u64) -> bool {
        self.spaces.get(&key).is_some_and(|ranges| ranges.iter().any(|range| range.contains(base)))
    }

    /// `range` is to be looked at. What of it is due already keeps its turn.
    pub(super) fn add(&mut self, key: SpaceKey, range: BaseRange) {
        let mut new: Vec<BaseRange> = [range].into_iter().filter(|range| !range.is_empty()).collect();
        for due in self.spaces.get(&key).into_iter().flatten() {
            new = new.into_iter().flat_map(|part| part.without(*due)).collect();
        }
        if new.is_empty() {
            return;
        }
        let ranges = self.spaces.entry(key).or_default();
        for part in new {
            ranges.push_back(part);
            if ranges.len() > RANGES_MAX {
                join_nearest(ranges);
            }
        }
    }

    /// The next one; what is left of it is to be added again.
    pub(super) fn next(&mut self) -> Option<(SpaceKey, BaseRange)> {
        let after = |turn: SpaceKey| self.spaces.range(turn..).map(|(&key, _)| key).find(|&key| key > turn);
        let first = || self.spaces.first_key_value().map(|(&key, _)| key);
        let key = self.turn.and_then(after).or_else(first)?;
        self.turn = Some(key);
        let ranges = self.spaces.get_mut(&key).expect("just found");
        let range = ranges.pop_front().expect("no space without ranges is kept");
        if ranges.is_empty() {
            self.spaces.remove(&key);
        }
        Some((key, range))
    }

    /// A space has gone.
    pub(super) fn forget(&mut self, key: SpaceKey) {
        self.spaces.remove(&key);
    }
}

/// Makes one of the two that are nearest to each other.
fn join_nearest(ranges: &mut VecDeque<BaseRange>) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|&i| ranges[i].start);
    let gap = |pair: &&[usize]| ranges[pair[1]].start - ranges[pair[0]].end;
    let pair = order.windows(2).min_by_key(gap).expect("there are several");
    let (low, high) = (pair[0], pair[1]);
    let joined = BaseRange::new(ranges[low].start, ranges[high].end);
    // In the place of the one whose turn comes first.
    ranges[low.min(high)] = joined;
    ranges.remove(low.max(high));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn who_speaks_again_and_again_holds_nobody_up() {
        let (mut ranking, far) = (Ranking::default(), BaseRange::new(500, 540));
        ranking.add(SpaceKey(1), BaseRange::new(0, 100));
        ranking.add(SpaceKey(1), far);
        ranking.add(SpaceKey(2), BaseRange::new(0, 10));
        let mut seen = Vec::new();
        for _ in 0..100 {
            // Ten of it are looked at, and all of it is said again.
            let (key, range) = ranking.next().expect("there is always something");
            ranking.add(key, BaseRange::new((range.start + 10).min(range.end), range.end));
            ranking.add(SpaceKey(1), BaseRange::new(0, 100));
            seen.push((key, range.start));
        }
        assert!(seen.contains(&(SpaceKey(2), 0)) && seen.contains(&(SpaceKey(1), 530)), "{seen:?}");
        assert!(seen.contains(&(SpaceKey(1), 90)), "{seen:?}");
        ranking.forget(SpaceKey(1));
        assert!(ranking.is_empty() && !ranking.has(SpaceKey(1), 0));
    }

    proptest! {
        /// All that was added is looked at, and ranges are disjoint and few.
        #[test]
        fn nothing_is_left_out(ops in proptest::collection::vec((0_u32..3, 0_u64..3000, 0_u64..60, any::<bool>()), 1..150)) {
            let mut ranking = Ranking::default();
            let mut due: BTreeSet<(u32, u64)> = BTreeSet::new();
            for (space, start, len, adds) in ops {
                if adds {
                    ranking.add(SpaceKey(space), BaseRange::new(start, start + len));
                    due.extend((start..start + len).map(|base| (space, base)));
                } else if let Some((key, range)) = ranking.next() {
                    let at = (range.start + 1 + len).min(range.end);
                    due.retain(|&(space, base)| space != key.0 || !(range.start..at).contains(&base));
                    ranking.add(key, BaseRange::new(at, range.end));
                }
                for &(space, base) in &due {
                    prop_assert!(ranking.has(SpaceKey(space), base), "{} of {} is forgotten", base, space);
                }
                for ranges in ranking.spaces.values() {
                    prop_assert!((1..=RANGES_MAX).contains(&ranges.len()));
                    let all: u64 = ranges.iter().map(|range| range.len()).sum();
                    let set: BTreeSet<u64> = ranges.iter().flat_map(|range| range.start..range.end).collect();
                    prop_assert_eq!(all, set.len() as u64, "disjoint");
                }
            }
            prop_assert_eq!(ranking.is_empty(), ranking.spaces.is_empty());
        }
    }
}
