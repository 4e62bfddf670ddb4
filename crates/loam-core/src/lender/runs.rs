//! Slots, runs of slots, and an ordered set of them.

use alloc::collections::BTreeMap;

/// Runs looked at for one that is long enough before a shorter one is taken: bounds the search.
const FIT_TRIES: usize = 8;

/// A place for one base page in the lender's slab; its bytes start at `slot × 4 KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Neighbouring slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRun {
    /// The first slot.
    pub first: Slot,
    /// How many; never 0.
    pub pages: u32,
}

impl SlotRun {
    /// The slots of the run, in order.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (self.first.0..self.first.0 + self.pages).map(Slot)
    }
}

/// A set of slots, kept as maximal runs.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    runs: BTreeMap<u32, u32>,
    pages: u64,
}

impl RunSet {
    /// Slots in the set.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Adds slots that are not in the set.
    pub(super) fn insert(&mut self, run: SlotRun) {
        assert!(run.pages > 0, "an empty run");
        let (mut first, mut len) = (run.first.0, run.pages);
        if let Some((&before, &before_len)) = self.runs.range(..=first).next_back() {
            let end = before.checked_add(before_len).expect("runs end inside the slab");
            assert!(end <= first, "slot {first} is free twice");
            if end == first {
                self.runs.remove(&before);
                first = before;
                len += before_len;
            }
        }
        let end = first.checked_add(len).expect("runs end inside the slab");
        if let Some((&after, &after_len)) = self.runs.range(first..).next() {
            assert!(end <= after, "slot {after} is free twice");
            if end == after {
                self.runs.remove(&after);
                len += after_len;
            }
        }
        assert!(self.runs.insert(first, len).is_none());
        self.pages += u64::from(run.pages);
    }

    /// Takes at most `pages` neighbours from the low end, all of them if a run close by is long enough.
    pub(super) fn take(&mut self, pages: u32) -> Option<SlotRun> {
        assert!(pages > 0);
        let fits = self.runs.iter().take(FIT_TRIES).find(|(_, len)| **len >= pages);
        let (&first, &len) = fits.or_else(|| self.runs.iter().next())?;
        self.runs.remove(&first);
        let taken = len.min(pages);
        if taken < len {
            self.runs.insert(first + taken, len - taken);
        }
        self.pages -= u64::from(taken);
        Some(SlotRun { first: Slot(first), pages: taken })
    }

    /// Takes at most `pages` neighbours from the high end.
    pub(super) fn take_last(&mut self, pages: u32) -> Option<SlotRun> {
        assert!(pages > 0);
        let (&first, &len) = self.runs.iter().next_back()?;
        self.runs.remove(&first);
        let taken = len.min(pages);
        if taken < len {
            self.runs.insert(first, len - taken);
        }
        self.pages -= u64::from(taken);
        Some(SlotRun { first: Slot(first + len - taken), pages: taken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, pages: u32) -> SlotRun {
        SlotRun { first: Slot(first), pages }
    }

    #[test]
    fn neighbours_merge_on_both_sides() {
        let mut set = RunSet::default();
        set.insert(run(0, 2));
        set.insert(run(4, 2));
        set.insert(run(2, 2));
        assert_eq!(set.pages(), 6);
        assert_eq!(set.take(6), Some(run(0, 6)));
        assert_eq!(set.take(1), None);
    }

    #[test]
    fn a_long_enough_run_is_preferred_to_a_lower_one() {
        let mut set = RunSet::default();
        set.insert(run(0, 1));
        set.insert(run(10, 8));
        assert_eq!(set.take(4), Some(run(10, 4)));
        assert_eq!(set.take(5), Some(run(0, 1)));
        assert_eq!(set.take_last(3), Some(run(15, 3)));
        assert_eq!(set.pages(), 1);
    }

    #[test]
    #[should_panic(expected = "free twice")]
    fn freeing_twice_is_caught() {
        let mut set = RunSet::default();
        set.insert(run(3, 4));
        set.insert(run(5, 1));
    }
}
