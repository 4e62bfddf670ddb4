//! Which slots are free, and which of them lie side by side.
//!
//! Slots are kept in groups of 32, a bit each, and groups are chained by the length of their longest free run. So the run that
//! fits best is found in a few steps however large the store is, at 12 bytes for 32 slots. A run never crosses a group:
//! a whole one is the largest operation, and begins where the disk's blocks of 4 KiB do (32 strides are a multiple of them).

use super::layout::GROUP_SLOTS;

const NONE: u32 = u32::MAX;

/// Slots side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotRun {
    pub(super) first: u32,
    pub(super) slots: u32,
}

impl SlotRun {
    pub(super) fn each(self) -> std::ops::Range<u32> {
        self.first..self.first + self.slots
    }

    fn mask(self) -> u32 {
        (u32::MAX >> (GROUP_SLOTS - self.slots)) << (self.first % GROUP_SLOTS)
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// A bit for each free slot.
    free: u32,
    previous: u32,
    next: u32,
}

#[derive(Debug)]
pub(super) struct FreeSlots {
    groups: Vec<Group>,
    /// By the longest run: the first group of a chain.
    heads: [u32; GROUP_SLOTS as usize + 1],
    free: u32,
}

fn longest_run(mut bits: u32) -> u32 {
    let mut length = 0;
    while bits != 0 {
        bits &= bits << 1;
        length += 1;
    }
    length
}

/// Where in `bits` the shortest run of `slots` or more begins.
fn best_start(bits: u32, slots: u32) -> u32 {
    let (mut best, mut best_length) = (NONE, u32::MAX);
    let mut at = 0;
    while at < GROUP_SLOTS {
        at += (bits >> at).trailing_zeros().min(GROUP_SLOTS - at);
        if at == GROUP_SLOTS {
            break;
        }
        let length = (bits >> at).trailing_ones();
        if length >= slots && length < best_length {
            (best, best_length) = (at, length);
        }
        at += length;
    }
    best
}

impl FreeSlots {
    /// `slots` slots, of which those are free that `is_free` says.
    pub(super) fn new(slots: u32, is_free: impl Fn(u32) -> bool) -> Self {
        let groups = slots.div_ceil(GROUP_SLOTS);
        let empty = Group { free: 0, previous: NONE, next: NONE };
        let mut this =
            Self { groups: vec![empty; groups as usize], heads: [NONE; GROUP_SLOTS as usize + 1], free: 0 };
        // From the end, so that the chains begin with the first: a fresh store is filled in order.
        for group in (0..groups).rev() {
            let first = group * GROUP_SLOTS;
            let all = first..(first + GROUP_SLOTS).min(slots);
            let bits =
                all.filter(|&slot| is_free(slot)).fold(0, |bits, slot| bits | 1 << (slot % GROUP_SLOTS));
            this.free += u32::count_ones(bits);
            this.groups[group as usize].free = bits;
            this.link(group);
        }
        this
    }

    /// How many are free.
    pub(super) fn count(&self) -> u32 {
        self.free
    }

    /// Takes a run of `slots` (1 to 32), or else the longest that there is; none if all slots are in use.
    pub(super) fn take(&mut self, slots: u32) -> Option<SlotRun> {
        assert!((1..=GROUP_SLOTS).contains(&slots), "a run of {slots} slots");
        let there = |length: &u32| self.heads[*length as usize] != NONE;
        // The shortest that is long enough, so that long ones stay whole.
        let length = (slots..=GROUP_SLOTS).find(there).or_else(|| (1..slots).rev().find(there))?;
        let group = self.heads[length as usize];
        let slots = slots.min(length);
        let start = best_start(self.groups[group as usize].free, slots);
        assert!(start != NONE, "a group in the wrong chain");
        let run = SlotRun { first: group * GROUP_SLOTS + start, slots };
        self.change(run, |bits, mask| {
            assert!(bits & mask == mask, "a slot in use was taken");
            bits & !mask
        });
        self.free -= slots;
        Some(run)
    }

    /// Gives slots of one group back.
    pub(super) fn release(&mut self, run: SlotRun) {
        assert!(run.slots > 0 && run.first % GROUP_SLOTS + run.slots <= GROUP_SLOTS, "{run:?}");
        self.change(run, |bits, mask| {
            assert!(bits & mask == 0, "a free slot was given back");
            bits | mask
        });
        self.free += run.slots;
    }

    fn change(&mut self, run: SlotRun, change: impl Fn(u32, u32) -> u32) {
        let group = run.first / GROUP_SLOTS;
        self.unlink(group);
        let bits = &mut self.groups[group as usize].free;
        *bits = change(*bits, run.mask());
        self.link(group);
    }

    fn link(&mut self, group: u32) {
        let head = &mut self.heads[longest_run(self.groups[group as usize].free) as usize];
        let next = std::mem::replace(head, group);
        self.groups[group as usize].previous = NONE;
        self.groups[group as usize].next = next;
        if next != NONE {
            self.groups[next as usize].previous = group;
        }
    }

    fn unlink(&mut self, group: u32) {
        let Group { free, previous, next } = self.groups[group as usize];
        match previous {
            NONE => {
                let head = &mut self.heads[longest_run(free) as usize];
                assert!(*head == group, "a chain begins elsewhere");
                *head = next;
            }
            _ => self.groups[previous as usize].next = next,
        }
        if next != NONE {
            self.groups[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn as_a_set_of_free_slots(
            slots in 1_u32..200,
            steps in proptest::collection::vec((any::<bool>(), 1_u32..=GROUP_SLOTS, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut free = FreeSlots::new(slots, |slot| slot % 7 != 3);
            let mut model: BTreeSet<u32> = (0..slots).filter(|slot| slot % 7 != 3).collect();
            let mut taken: Vec<u32> = (0..slots).filter(|slot| slot % 7 == 3).collect();
            for (take, length, which) in steps {
                if take {
                    // The longest run inside a group that the model has.
                    let mut longest = 0;
                    let mut run = 0;
                    for slot in 0..slots {
                        run = if slot % GROUP_SLOTS == 0 { 0 } else { run };
                        run = if model.contains(&slot) { run + 1 } else { 0 };
                        longest = longest.max(run);
                    }
                    match free.take(length) {
                        None => prop_assert_eq!(longest, 0),
                        Some(run) => {
                            prop_assert_eq!(run.slots, length.min(longest));
                            for slot in run.each() {
                                prop_assert!(model.remove(&slot), "slot {} was not free", slot);
                                taken.push(slot);
                            }
                        }
                    }
                } else if !taken.is_empty() {
                    let slot = taken.swap_remove(which.index(taken.len()));
                    free.release(SlotRun { first: slot, slots: 1 });
                    model.insert(slot);
                }
                prop_assert_eq!(free.count() as usize, model.len());
            }
        }
    }

    #[test]
    fn a_fresh_store_is_filled_in_order_and_long_runs_stay_whole() {
        let mut free = FreeSlots::new(96, |_| true);
        assert_eq!(free.take(32), Some(SlotRun { first: 0, slots: 32 }));
        assert_eq!(free.take(5), Some(SlotRun { first: 32, slots: 5 }));
        assert_eq!(
            free.take(4),
            Some(SlotRun { first: 37, slots: 4 }),
            "the broken group, not the whole one"
        );
        free.release(SlotRun { first: 32, slots: 5 });
        assert_eq!(free.take(5), Some(SlotRun { first: 32, slots: 5 }), "the hole that fits");
        assert_eq!(free.take(32), Some(SlotRun { first: 64, slots: 32 }));
        assert_eq!(free.take(32), Some(SlotRun { first: 41, slots: 23 }), "the longest that is left");
        assert_eq!((free.take(1), free.count()), (None, 0));
    }

    #[test]
    #[should_panic(expected = "a free slot was given back")]
    fn a_slot_is_given_back_once() {
        FreeSlots::new(4, |_| true).release(SlotRun { first: 0, slots: 1 });
    }
}
