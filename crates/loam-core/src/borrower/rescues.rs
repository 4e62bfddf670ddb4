//! What is brought with a page that a fault finds in a victim buffer, and whether it is wanted.
//!
//! A fault whose base page is in a buffer needs no lender: what left with it, and is still in buffers, can come with it, or stay. Coming costs a copy now and another when it leaves again; staying, a fault if it
//! is wanted. Which is dearer depends on the program (see [`PageSizer::rescue_size`](crate::page_size::PageSizer::rescue_size)). It is seen by watching, of some that are rescued, another base page that stays in
//! its buffer: a thread waits for it while what was rescued is here, or not.

use super::Borrower;
use super::ages::Ages;
use super::holes::{Hole, Stay};
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use crate::page_size::{PageSize, Place, Probed, Seen};
use crate::units::BasePages;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// So many are watched at a time, at most.
const WATCHED_MAX: usize = 1024;

/// A base page that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    base: u64,
    /// How many base pages had left when that began.
    left_before: BasePages,
    /// What is asked of it.
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// It stays in a buffer. In which part of the program that was, the size that pages have there, and how far memory had been turned over.
    Rescue { part: u8, size: PageSize, came_at: BasePages },
    /// It was left out when its page was fetched, which has left since, and is back in part.
    Hole(Hole),
}

/// For each base page that has been rescued, and is here, at most one other that is watched.
#[derive(Debug, Default)]
pub(super) struct Rescues {
    by_fault: BTreeMap<(SpaceKey, u64), Watched>,
    /// The fault's base page, for each that is watched.
    faults: BTreeMap<(SpaceKey, u64), u64>,
    /// By the fault's base page.
    ages: Ages,
}

/// Whether a base page is watched for this fault, and has been since so many base pages had left.
fn is_watched(by_fault: &BTreeMap<(SpaceKey, u64), Watched>, fault: (SpaceKey, u64), at: BasePages) -> bool {
    by_fault.get(&fault).is_some_and(|watched| watched.left_before == at)
}

impl Rescues {
    /// `base` stays, and is watched.
    pub(super) fn has(&self, key: SpaceKey, base: u64) -> bool {
        self.faults.contains_key(&(key, base))
    }

    /// False, and nothing changes, if there are enough, or either is known already.
    fn insert(&mut self, key: SpaceKey, fault: u64, watched: Watched) -> bool {
        let fits = self.faults.len() < WATCHED_MAX
            && !self.has(key, watched.base)
            && !self.by_fault.contains_key(&(key, fault));
        if fits {
            self.by_fault.insert((key, fault), watched);
            self.faults.insert((key, watched.base), fault);
            let is_there = |key, fault, at| is_watched(&self.by_fault, (key, fault), at);
            self.ages.begin((key, fault, watched.left_before), WATCHED_MAX, is_there);
        }
        fits
    }

    /// A thread waits for `base`, or it is not watched any more: the fault, and what was kept of it.
    fn take(&mut self, key: SpaceKey, base: u64) -> Option<(u64, Watched)> {
        let fault = self.faults.remove(&(key, base))?;
        let watched = self.by_fault.remove(&(key, fault)).expect("they come and go together");
        Some((fault, watched))
    }

    /// One that has been watched since so many base pages had left, or fewer: whose it is, and the base page. Once each, the oldest first.
    fn next_aged(&mut self, left_before: BasePages) -> Option<(SpaceKey, u64)> {
        let is_there = |key, fault, at| is_watched(&self.by_fault, (key, fault), at);
        self.ages.next(left_before, is_there).map(|at| (at.0, self.by_fault[&at].base))
    }

    /// What is watched for faults in this range.
    fn of_faults(&self, key: SpaceKey, range: BaseRange) -> impl Iterator<Item = (u64, u64)> {
        let all = self.by_fault.range((key, range.start)..(key, range.end));
        all.map(|(&(_, fault), watched)| (fault, watched.base))
    }

    /// How many are watched in this range.
    pub(super) fn watched_in(&self, key: SpaceKey, range: BaseRange) -> u64 {
        self.faults.range((key, range.start)..(key, range.end)).count() as u64
    }

    /// Nothing is known of this range any more.
    fn forget(&mut self, key: SpaceKey, range: BaseRange) {
        let watched = self.faults.range((key, range.start)..(key, range.end)).map(|(&(_, base), _)| base);
        let watched: Vec<u64> = watched.chain(self.of_faults(key, range).map(|(_, base)| base)).collect();
        for base in watched {
            self.take(key, base);
        }
    }
}

impl Borrower {
    /// A fault there is answered from a buffer, and sizes are found there.
    fn is_rescue(&self, key: SpaceKey, base: u64, size: PageSize) -> bool {
        let entry @ Entry { state, .. } = self.entry(key, base);
        let is_prefetched = |copy| self.copies.get(copy).prefetched;
        state == BaseState::Away
            && self.is_buffered(entry)
            && !entry.copy.is_some_and(is_prefetched)
            && !self.is_size_told(key, base, size)
    }

    /// The size of what a fault brings where pages have `size`: of a rescue, as much as it is worth.
    pub(super) fn rescue_size_at(&mut self, key: SpaceKey, base: u64, size: PageSize) -> PageSize {
        if size > PageSize::SMALLEST && self.is_rescue(key, base, size) {
            self.sizer.rescue_size(Place { space: key, base }, size)
        } else {
            size
        }
    }

    /// A fault brings a page of `size` from a buffer. Answered with another base page that is not to be brought: one that was left out when its page was fetched, or one that is watched from now
    /// on. It may lie outside of what comes. `None` in place of that: it is no rescue.
    pub(super) fn note_rescue(&mut self, key: SpaceKey, base: u64, size: PageSize) -> Option<Option<u64>> {
        let whole = self.size_at(key, base).max(size);
        if !self.is_rescue(key, base, whole) {
            return None;
        }
        self.note_coming(key, size.first(base), size);
        let watched = self.sizer.rescued(Place { space: key, base }, size, whole);
        let left_out = self.holes.of_page(key, whole.first(base));
        let is_out = left_out.is_some_and(|hole| match size < whole {
            true => self.hole_goes_on(key, base, hole),
            false => self.is_still_left_out(key, base, size, hole) && hole != base,
        });
        if is_out {
            return Some(left_out);
        }
        Some(watched.filter(|&watched| self.watch(key, base, whole, watched)))
    }

    /// The page of which this base page was left out is back in part, with `fault`. (It has not left before that part does: see `doubts.rs`.) False: it is not left out any more.
    fn hole_goes_on(&mut self, key: SpaceKey, fault: u64, base: u64) -> bool {
        let mut hole = *self.holes.get(key, base).expect("the caller has found it");
        if hole.page != Stay::Away {
            return base != fault;
        }
        self.holes.remove(key, base);
        if base == fault || self.waits.contains_key(&(key, base)) {
            hole.touch(self.sizer.turned_over());
            self.sizer.probed(self.waits_changed_at, &hole.probed(key, base));
            return false;
        }
        // What has come without being touched says nothing.
        self.entry(key, base).state == BaseState::Away
            && self.rescues.insert(key, fault, Watched { base, left_before: self.left, of: Of::Hole(hole) })
    }

    /// A base page of the page of this size around `fault` stays in its buffer, and is watched, if it is there.
    fn watch(&mut self, key: SpaceKey, fault: u64, size: PageSize, base: u64) -> bool {
        assert!(
            base != fault && size.first(base) == size.first(fault),
            "another base page of the page is watched"
        );
        let entry = self.entry(key, base);
        let stays = entry.state == BaseState::Away
            && self.is_buffered(entry)
            && !self.waits.contains_key(&(key, base));
        let of = Of::Rescue { part: self.sizer.part(), size, came_at: self.sizer.turned_over() };
        stays
            && !self.holes.has(key, base)
            && self.rescues.insert(key, fault, Watched { base, left_before: self.left, of })
    }

    /// A thread waits at `base`, which may be watched.
    pub(super) fn touch_watched(&mut self, key: SpaceKey, base: u64) {
        if let Some((fault, watched)) = self.rescues.take(key, base) {
            self.tell_watched(key, fault, watched, true);
        }
    }

    /// Base pages in this range are leaving.
    pub(super) fn rescued_leave(&mut self, key: SpaceKey, range: BaseRange) {
        // Others in it may be a smaller page's by now, and stay.
        let leaves = |fault| self.entry(key, fault).state == BaseState::Leaving;
        let of_faults = self.rescues.of_faults(key, range).filter(|&(fault, _)| leaves(fault));
        let watched: Vec<u64> = of_faults.map(|(_, base)| base).collect();
        watched.into_iter().for_each(|base| self.watched_in_vain(key, base));
        // What is wanted later than after a turn of local memory is as good as not wanted.
        while let Some(left_before) = self.left.0.checked_sub(self.limit)
            && let Some((key, base)) = self.rescues.next_aged(BasePages(left_before))
        {
            self.watched_in_vain(key, base);
        }
    }

    /// Nobody has waited for it.
    fn watched_in_vain(&mut self, key: SpaceKey, base: u64) {
        let (fault, watched) = self.rescues.take(key, base).expect("the caller has found it");
        // What has come without being touched says nothing.
        if self.entry(key, base).state == BaseState::Away {
            self.tell_watched(key, fault, watched, false);
        }
    }

    /// The range is no longer what it was.
    pub(super) fn forget_rescues(&mut self, key: SpaceKey, range: BaseRange) {
        self.rescues.forget(key, range);
    }

    fn tell_watched(&mut self, space: SpaceKey, fault: u64, watched: Watched, wanted: bool) {
        let (base, turned_over) = (watched.base, self.sizer.turned_over());
        match watched.of {
            Of::Hole(mut hole) => {
                if wanted {
                    hole.touch(turned_over);
                }
                self.sizer.probed(self.waits_changed_at, &hole.probed(space, base));
            }
            Of::Rescue { part, size, came_at } => {
                let reach = PageSize::from_log2((u64::BITS - (base ^ fault).leading_zeros()) as u8);
                let after = if wanted { turned_over.0.saturating_sub(came_at.0) } else { 0 };
                let (place, after, seen) = (Place { space, base }, BasePages(after), Seen::Rescued);
                self.sizer.watched(&Probed { place, part, size, reach, wanted, after, seen });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Watch {
            fault: u64,
            base: u64,
        },
        Take(u64),
        Faults {
            start: u64,
            pages: u64,
        },
        /// More base pages have left, and it is asked for what has been watched since so many before that.
        Age {
            more: u64,
            ago: u64,
        },
        Forget {
            start: u64,
            pages: u64,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0_u64..64, 0_u64..64).prop_map(|(fault, base)| Op::Watch { fault, base }),
            2 => (0_u64..64).prop_map(Op::Take),
            2 => (0_u64..64, 0_u64..16).prop_map(|(start, pages)| Op::Faults { start, pages }),
            2 => (0_u64..4, 0_u64..8).prop_map(|(more, ago)| Op::Age { more, ago }),
            1 => (0_u64..64, 0_u64..16).prop_map(|(start, pages)| Op::Forget { start, pages }),
        ];
        prop::collection::vec(op, 0..80)
    }

    proptest! {
        /// Against a list of faults and what is watched of each.
        #[test]
        fn it_is_a_list_of_pairs(ops in ops()) {
            let key = SpaceKey(1);
            let (mut rescues, mut list) = (Rescues::default(), Vec::<(u64, Watched)>::new());
            let (mut left, mut young) = (0, VecDeque::new());
            for op in ops {
                match op {
                    Op::Watch { fault, base } => {
                        let (part, size, came_at) = (0, PageSize::LARGEST, BasePages(0));
                        let of = Of::Rescue { part, size, came_at };
                        let watched = Watched { base, left_before: BasePages(left), of };
                        let fits = list.iter().all(|&(f, of)| f != fault && of.base != base);
                        prop_assert_eq!(rescues.insert(key, fault, watched), fits);
                        if fits {
                            list.push((fault, watched));
                            young.push_back((fault, left));
                        }
                    }
                    Op::Take(base) => {
                        let index = list.iter().position(|&(_, watched)| watched.base == base);
                        prop_assert_eq!(rescues.take(key, base), index.map(|index| list.remove(index)));
                    }
                    Op::Faults { start, pages } => {
                        let range = BaseRange::new(start, start + pages);
                        let of = list.iter().filter(|&&(fault, _)| range.contains(fault));
                        let mut expected: Vec<_> = of.map(|&(fault, watched)| (fault, watched.base)).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(rescues.of_faults(key, range).collect::<Vec<_>>(), expected);
                    }
                    Op::Age { more, ago } => {
                        left += more;
                        let Some(before) = left.checked_sub(ago) else { continue };
                        let (mut aged, mut expected) = (Vec::new(), Vec::new());
                        while let Some((_, base)) = rescues.next_aged(BasePages(before)) {
                            aged.push(base);
                        }
                        while let Some(&(fault, at)) = young.front().filter(|&&(_, at)| at <= before) {
                            young.pop_front();
                            let same = |&&(f, of): &&(u64, Watched)| f == fault && of.left_before.0 == at;
                            expected.extend(list.iter().find(same).map(|&(_, watched)| watched.base));
                        }
                        prop_assert_eq!(aged, expected);
                    }
                    Op::Forget { start, pages } => {
                        let range = BaseRange::new(start, start + pages);
                        rescues.forget(key, range);
                        list.retain(|&(f, of)| !range.contains(f) && !range.contains(of.base));
                    }
                }
                for base in 0..64 {
                    prop_assert_eq!(rescues.has(key, base), list.iter().any(|&(_, of)| of.base == base));
                }
                prop_assert_eq!(rescues.by_fault.len(), rescues.faults.len());
                let middle = list.iter().filter(|(_, of)| (16..48).contains(&of.base)).count();
                prop_assert_eq!(rescues.watched_in(key, BaseRange::new(16, 48)), middle as u64);
            }
            prop_assert!(!rescues.has(SpaceKey(0), 0));
        }
    }
}
