//! Pages of which the program has said what they are worth ([`Priority`]), outside of the replacement policy: two queues, one before the policy
//! and one behind it.
//!
//! ```text
//! leaves first ──► low, as long as it has more than its least share
//!                  the policy's choice; each sixteenth time the oldest of high
//! leaves last ───► high, also when the policy has no more than the least share
//! ```
//!
//! The least share is what lets a program go on whose memory of one kind is larger than the budget: a page that has just come stays long enough
//! to be used, and the page that the same instruction needs beside it, too. That one in sixteen is of high memory lets what is not used any
//! more go one day; what is in use comes back at once, from the victim buffer, and is the youngest then (a second chance).

use super::lines::{Lines, Standing};
use super::marks::Priority;
use super::table::{BaseRange, SpaceKey};
use crate::replacement::PageRef;

/// Of so many pages that leave by the policy and of high memory, one is of high memory.
const HIGH_ONE_IN: u32 = 16;

/// A page that leaves.
pub(super) type Ranked = Standing<Priority>;

/// See the module's documentation. As in a policy, a page whose mapping was removed may stay until it is taken.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// Of low and of high pages.
    lines: Lines<Priority>,
    /// Turns of the policy since a page of high memory has left.
    passed: u32,
}

impl Ranks {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lines.len()
    }

    /// Where a page stands: [`Priority::Normal`] is the policy.
    pub(super) fn of(&self, page: PageRef) -> Priority {
        self.lines.of(page).unwrap_or(Priority::Normal)
    }

    /// No page stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The frames that a page counts for, if it stands here.
    pub(super) fn frames_of(&self, page: PageRef) -> Option<u64> {
        self.lines.frames_of(page)
    }

    /// The sums over all low and all high pages.
    #[cfg(test)]
    pub(super) fn sums(&self) -> (u64, u64) {
        (self.lines.frames(Priority::Low), self.lines.frames(Priority::High))
    }

    /// What a page that stands here counts for has changed.
    pub(super) fn recount(&mut self, page: PageRef, recount: impl FnOnce(u64) -> u64) {
        self.lines.recount(page, recount);
    }

    /// A page of low or high memory has come, `frames` base pages of it: it is the youngest, also if it stands there already.
    pub(super) fn insert(&mut self, page: PageRef, frames: u64, priority: Priority) {
        assert_ne!(priority, Priority::Normal, "what is of no rank is the policy's");
        self.lines.insert(page, frames, priority);
    }

    /// It leaves, or stands with the policy from now on. False: it was not here.
    pub(super) fn remove(&mut self, page: PageRef) -> bool {
        self.lines.remove(page).is_some()
    }

    /// Pages of `range` that are gone, as their mappings are, need not be taken first.
    pub(super) fn forget(&mut self, key: SpaceKey, range: BaseRange, is_gone: impl Fn(u64) -> bool) {
        for page in self.lines.gone(key, range, is_gone) {
            self.remove(page);
        }
    }

    /// The page to leave next, where it is not the policy's turn. `frames` base pages are here, of all; of each kind `least` stay.
    pub(super) fn take(&mut self, frames: u64, least: u64) -> Option<Ranked> {
        if self.is_empty() {
            return None;
        }
        let (low, high) = (self.lines.frames(Priority::Low), self.lines.frames(Priority::High));
        if low > least {
            return self.take_of(Priority::Low);
        }
        // Low memory within its own share is no share of normal memory's.
        let normal = frames.saturating_sub(high + low);
        if self.lines.has_pages(Priority::High) {
            self.passed += 1;
            if normal <= least || self.passed >= HIGH_ONE_IN {
                return self.take_of(Priority::High);
            }
        }
        None
    }

    /// As [`Self::take`], where the policy has none.
    pub(super) fn take_any(&mut self) -> Option<Ranked> {
        self.take_of(Priority::Low).or_else(|| self.take_of(Priority::High))
    }

    fn take_of(&mut self, priority: Priority) -> Option<Ranked> {
        let taken = self.lines.take(priority)?;
        if priority == Priority::High {
            self.passed = 0;
        }
        Some(taken)
    }

    /// Directly after it was taken: it is to be the next one again.
    pub(super) fn put_back(&mut self, ranked: Ranked) {
        self.lines.restore(ranked);
        if ranked.line == Priority::High {
            self.passed = HIGH_ONE_IN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn page(first: u64) -> PageRef {
        PageRef { space: SpaceKey(1), first }
    }

    proptest! {
        /// Against three lists: low leaves first while it has more than its share, high when its turn has come, and each is in order.
        #[test]
        fn low_leaves_first(ops in proptest::collection::vec((0..6_u8, 0u64..40), 1..300), least in 0u64..6) {
            let mut ranks = Ranks::default();
            let (mut low, mut high): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let (mut normal, mut passed) = (40_u64, 0);
            for (op, n) in ops {
                let here = |list: &mut Vec<u64>| { let before = list.len(); list.retain(|&x| x != n); before > list.len() };
                match op {
                    0 | 1 => {
                        let _ = (here(&mut low), here(&mut high));
                        let (list, priority) = if op == 0 { (&mut low, Priority::Low) } else { (&mut high, Priority::High) };
                        list.push(n);
                        ranks.insert(page(n), 1, priority);
                    }
                    2 => prop_assert_eq!(ranks.remove(page(n)), here(&mut low) | here(&mut high)),
                    3 if n.is_multiple_of(2) => normal = n,
                    3 => {
                        low.retain(|&x| x >= n || x % 3 > 0);
                        high.retain(|&x| x >= n || x % 3 > 0);
                        ranks.forget(SpaceKey(1), BaseRange::new(0, n), |first| first % 3 == 0);
                        ranks.forget(SpaceKey(2), BaseRange::new(0, n), |_| true);
                    }
                    _ => {
                        let frames = normal + (low.len() + high.len()) as u64;
                        let taken = ranks.take(frames, least);
                        let expected = if low.len() as u64 > least {
                            Some(low.remove(0))
                        } else if high.is_empty() {
                            None
                        } else {
                            passed += 1;
                            let turn = normal <= least || passed >= 16;
                            turn.then(|| { passed = 0; high.remove(0) })
                        };
                        prop_assert_eq!(taken.map(|of| of.page.first), expected);
                        if let Some(of) = taken.filter(|_| op == 5) {
                            ranks.put_back(of);
                            if of.line == Priority::Low { low.insert(0, of.page.first) } else { high.insert(0, of.page.first); passed = 16; }
                            let frames = normal + (low.len() + high.len()) as u64;
                            if low.len() as u64 <= least || of.line == Priority::Low {
                                prop_assert_eq!(ranks.take(frames, least), Some(of), "it is the next one");
                                if of.line == Priority::Low { low.remove(0); } else { high.remove(0); passed = 0; }
                            }
                        }
                    }
                }
                prop_assert_eq!(ranks.len(), low.len() + high.len());
                prop_assert_eq!(ranks.sums(), (low.len() as u64, high.len() as u64));
            }
            let rest: Vec<u64> = core::iter::from_fn(|| ranks.take_any()).map(|of| of.page.first).collect();
            prop_assert_eq!(rest, low.into_iter().chain(high).collect::<Vec<_>>());
        }
    }
}
