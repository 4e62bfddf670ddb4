//! What each slot holds, and where each page is.
//!
//! A page may have several slots: the one that is durable, and newer versions on their way. They are chained, the newest first.
//! A slot that is let go while the kernel may still write it is *doomed* and becomes free when its write is over.

use loam_core::ids::{PageId, SpaceId, Version};
use std::collections::{BTreeMap, VecDeque, btree_map};

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// The kernel has it.
    Writing,
    /// Written, and not yet synced.
    Written,
    /// Survives the loss of power.
    Durable,
    /// Nobody wants it any more, but it is on its way.
    Doomed,
    /// The disk failed there: not used again before the store is opened anew.
    Retired,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    page: PageId,
    version: Version,
    /// The slot of the next older version.
    older: u32,
    state: State,
}

#[derive(Debug)]
struct Space {
    /// The sequence of its first page: see `layout::Table`.
    since: u64,
    /// The newest slot of each page.
    pages: BTreeMap<u64, u32>,
    /// Slots of all of them.
    slots: u32,
}

/// Where a version of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Slot(u32),
    /// Its write is not over.
    Writing,
    Missing,
}

#[derive(Debug)]
pub(super) struct Records {
    slots: Vec<Record>,
    spaces: BTreeMap<SpaceId, Space>,
    /// Spaces that have a slot.
    active: u32,
    retired: u32,
    /// Pages of spaces that have gone: their slots, all durable, are still to be freed.
    gone: VecDeque<btree_map::IntoIter<u64, u32>>,
}

impl Records {
    pub(super) fn new(slots: u32) -> Self {
        let none = Record {
            page: PageId { space: SpaceId(0), index: 0 },
            version: Version(0),
            older: NONE,
            state: State::Free,
        };
        let slots = vec![none; slots as usize];
        Self { slots, spaces: BTreeMap::new(), active: 0, retired: 0, gone: VecDeque::new() }
    }

    pub(super) fn state(&self, slot: u32) -> State {
        self.slots[slot as usize].state
    }

    /// Whether the slot holds this version of this page (so it was not given to another since).
    pub(super) fn holds(&self, slot: u32, page: PageId, version: Version) -> bool {
        let record = &self.slots[slot as usize];
        let held = matches!(record.state, State::Writing | State::Written | State::Durable);
        held && record.page == page && record.version == version
    }

    pub(super) fn retired(&self) -> u32 {
        self.retired
    }

    /// Spaces with a page.
    pub(super) fn active_spaces(&self) -> u32 {
        self.active
    }

    /// Slots of a space.
    pub(super) fn slots_of(&self, space: SpaceId) -> u32 {
        self.spaces.get(&space).map_or(0, |space| space.slots)
    }

    pub(super) fn knows(&self, page: PageId) -> bool {
        self.spaces.get(&page.space).is_some_and(|space| space.pages.contains_key(&page.index))
    }

    /// Pages of all spaces.
    pub(super) fn pages(&self) -> u64 {
        self.spaces.values().map(|space| space.pages.len() as u64).sum()
    }

    pub(super) fn has_space(&self, space: SpaceId) -> bool {
        self.spaces.contains_key(&space)
    }

    pub(super) fn add_space(&mut self, space: SpaceId, since: u64) {
        let new = Space { since, pages: BTreeMap::new(), slots: 0 };
        assert!(self.spaces.insert(space, new).is_none(), "a space was added twice");
    }

    /// Every space and its first sequence, in order.
    pub(super) fn spaces(&self) -> impl ExactSizeIterator<Item = (SpaceId, u64)> {
        self.spaces.iter().map(|(&id, space)| (id, space.since))
    }

    /// A free slot gets a page, as its newest version.
    pub(super) fn put(&mut self, slot: u32, page: PageId, version: Version, state: State) {
        assert!(matches!(state, State::Writing | State::Durable));
        let space = self.spaces.get_mut(&page.space).expect("a page of a space that is not known");
        let older = space.pages.insert(page.index, slot).unwrap_or(NONE);
        self.active += u32::from(space.slots == 0);
        space.slots += 1;
        let record = &mut self.slots[slot as usize];
        assert!(record.state == State::Free, "a slot in use was given out again");
        *record = Record { page, version, older, state };
    }

    /// The newest of this version that can be read.
    pub(super) fn find(&self, page: PageId, version: Version) -> Found {
        let mut found = Found::Missing;
        for slot in self.chain(page) {
            let record = &self.slots[slot as usize];
            if record.version == version {
                match record.state {
                    State::Written | State::Durable => return Found::Slot(slot),
                    _ => found = Found::Writing,
                }
            }
        }
        found
    }

    fn chain(&self, page: PageId) -> impl Iterator<Item = u32> {
        let newest = self.spaces.get(&page.space).and_then(|space| space.pages.get(&page.index)).copied();
        std::iter::successors(newest, |&slot| Some(self.slots[slot as usize].older).filter(|&s| s != NONE))
    }

    /// Its write is over, and not yet synced.
    pub(super) fn written(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize].state;
        match *state {
            State::Writing => *state = State::Written,
            State::Doomed => {}
            other => panic!("slot {slot} was written and is {other:?}"),
        }
    }

    /// It was synced: older versions of its page may go.
    pub(super) fn durable(&mut self, slot: u32, freed: &mut Vec<u32>) {
        let record = &mut self.slots[slot as usize];
        match record.state {
            State::Doomed => return self.free(slot, freed),
            State::Written => record.state = State::Durable,
            other => panic!("slot {slot} was synced and is {other:?}"),
        }
        let mut older = std::mem::replace(&mut record.older, NONE);
        while older != NONE {
            older = self.let_go(older, freed);
        }
    }

    /// Its write failed: the next older version is the page's newest again.
    pub(super) fn failed(&mut self, slot: u32, retire: bool, freed: &mut Vec<u32>) {
        let Record { page, state, .. } = self.slots[slot as usize];
        match state {
            State::Doomed => {}
            State::Writing | State::Written => {
                self.unlink(slot, page);
                self.count_off(page.space);
            }
            other => panic!("slot {slot} failed and is {other:?}"),
        }
        if retire {
            self.slots[slot as usize].state = State::Retired;
            self.retired += 1;
        } else {
            self.free(slot, freed);
        }
    }

    /// A slot that cannot be read, at recovery.
    pub(super) fn retire(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize].state;
        assert!(*state == State::Free);
        *state = State::Retired;
        self.retired += 1;
    }

    /// Lets a version of a page and all older ones go. Answers whether there were any.
    pub(super) fn forget(&mut self, page: PageId, version: Version, freed: &mut Vec<u32>) -> bool {
        let old: Vec<u32> =
            self.chain(page).filter(|&slot| self.slots[slot as usize].version <= version).collect();
        for &slot in &old {
            self.unlink(slot, page);
            self.let_go(slot, freed);
        }
        !old.is_empty()
    }

    /// Lets everything of a space go, and forgets the space. Answers whether it was known. Slots that are durable are freed by
    /// [`free_gone`](Self::free_gone), as a space may have millions; `under_way` has those that are not.
    pub(super) fn forget_space(
        &mut self,
        space: SpaceId,
        under_way: impl Iterator<Item = u32>,
        freed: &mut Vec<u32>,
    ) -> bool {
        if !self.has_space(space) {
            return false;
        }
        for slot in under_way {
            let Record { page, state, .. } = self.slots[slot as usize];
            if page.space == space && matches!(state, State::Writing | State::Written) {
                self.forget(page, Version(u32::MAX), freed);
            }
        }
        let known = self.spaces.remove(&space).expect("it was there above");
        assert!(known.slots as usize == known.pages.len(), "a durable page has one slot");
        self.active -= u32::from(known.slots > 0);
        self.gone.push_back(known.pages.into_iter());
        true
    }

    /// Frees up to so many slots of spaces that have gone.
    pub(super) fn free_gone(&mut self, slots_max: usize, freed: &mut Vec<u32>) {
        for _ in 0..slots_max {
            let Some(pages) = self.gone.front_mut() else { return };
            let Some((_, slot)) = pages.next() else {
                self.gone.pop_front();
                continue;
            };
            let Record { older, state, .. } = self.slots[slot as usize];
            assert!(
                state == State::Durable && older == NONE,
                "slot {slot} of a space that has gone is {state:?}"
            );
            self.free(slot, freed);
        }
    }

    /// Slots of spaces that have gone are still to be freed.
    pub(super) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    fn unlink(&mut self, slot: u32, page: PageId) {
        let older = self.slots[slot as usize].older;
        let pages = &mut self.spaces.get_mut(&page.space).expect("a page of no space").pages;
        let newest = pages[&page.index];
        if newest == slot {
            match older {
                NONE => drop(pages.remove(&page.index)),
                _ => drop(pages.insert(page.index, older)),
            }
            return;
        }
        let mut newer = newest;
        while self.slots[newer as usize].older != slot {
            newer = self.slots[newer as usize].older;
            assert!(newer != NONE, "slot {slot} is not in its page's chain");
        }
        self.slots[newer as usize].older = older;
    }

    /// A slot that is in no chain any more. Answers the older one.
    fn let_go(&mut self, slot: u32, freed: &mut Vec<u32>) -> u32 {
        let Record { page, older, state, .. } = self.slots[slot as usize];
        self.count_off(page.space);
        match state {
            State::Durable => self.free(slot, freed),
            State::Writing | State::Written => self.slots[slot as usize].state = State::Doomed,
            other => panic!("slot {slot} was let go and is {other:?}"),
        }
        older
    }

    fn count_off(&mut self, space: SpaceId) {
        let space = self.spaces.get_mut(&space).expect("a page of no space");
        space.slots -= 1;
        self.active -= u32::from(space.slots == 0);
    }

    fn free(&mut self, slot: u32, freed: &mut Vec<u32>) {
        self.slots[slot as usize].state = State::Free;
        freed.push(slot);
    }

    /// Panics unless everything agrees with everything. Answers how many slots are free.
    #[cfg(test)]
    pub(super) fn check(&self) -> u32 {
        let mut held = 0;
        for (&id, space) in &self.spaces {
            let mut slots = 0;
            for &index in space.pages.keys() {
                let page = PageId { space: id, index };
                for slot in self.chain(page) {
                    let record = &self.slots[slot as usize];
                    assert!(matches!(record.state, State::Writing | State::Written | State::Durable));
                    assert!(record.page == page, "a slot in another page's chain");
                    slots += 1;
                    assert!(slots <= self.slots.len() as u32, "a chain without end");
                }
            }
            assert_eq!(slots, space.slots);
            held += slots;
        }
        assert_eq!(self.active as usize, self.spaces.values().filter(|space| space.slots > 0).count());
        let count = |state| self.slots.iter().filter(|record| record.state == state).count() as u32;
        assert_eq!(count(State::Retired), self.retired);
        let free = count(State::Free);
        let gone: usize = self.gone.iter().map(ExactSizeIterator::len).sum();
        let all = held + free + self.retired + count(State::Doomed) + gone as u32;
        assert_eq!(all, self.slots.len() as u32);
        free
    }
}
