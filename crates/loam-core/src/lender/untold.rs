//! What the disk has and its borrowers have not been told yet: in the order in which it became so, and found by page, since a page that is put anew or
//! dropped is not told any more.

use super::cache::{STORED_PAGES_MAX, Stored};
use crate::ids::{SpaceId, Version};
use alloc::collections::BTreeMap;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// In their order.
    pages: BTreeMap<u64, (SpaceId, u64, Version)>,
    /// Where each is among them.
    at: BTreeMap<(SpaceId, u64), u64>,
    next: u64,
}

impl Untold {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many there are.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The disk has this version of a page. If it is to be told already, in its place.
    pub(super) fn push(&mut self, space: SpaceId, index: u64, version: Version) {
        let at = *self.at.entry((space, index)).or_insert(self.next);
        self.next += u64::from(at == self.next);
        self.pages.insert(at, (space, index, version));
    }

    /// The next to be told: the first, and those of the same space that follow.
    pub(super) fn pop(&mut self) -> Option<Stored> {
        let &(space, ..) = self.pages.first_key_value()?.1;
        let mut stored = Stored { space, pages: alloc::vec::Vec::new() };
        while stored.pages.len() < STORED_PAGES_MAX
            && let Some(first) = self.pages.first_entry().filter(|first| first.get().0 == space)
        {
            let (_, index, version) = first.remove();
            assert!(self.at.remove(&(space, index)).is_some(), "what is to be told is found by its page");
            stored.pages.push((index, version));
        }
        Some(stored)
    }

    /// What was to be told of a page is so no longer.
    pub(super) fn remove(&mut self, space: SpaceId, index: u64) {
        if let Some(at) = self.at.remove(&(space, index)) {
            assert!(self.pages.remove(&at).is_some(), "what is found by its page is to be told");
        }
    }

    /// Nobody hears what was to be told of a space.
    pub(super) fn remove_space(&mut self, space: SpaceId) {
        let theirs = (space, 0)..=(space, u64::MAX);
        while let Some((&(_, index), _)) = self.at.range(theirs.clone()).next() {
            self.remove(space, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Op {
        Push(u64, u64, u32),
        Remove(u64, u64),
        RemoveSpace(u64),
        Pop,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op =
            (0..12_u8, 0..3_u64, 0..20_u64, 1..5_u32).prop_map(|(kind, space, index, version)| match kind {
                0..=6 => Op::Push(space, index, version),
                7..=9 => Op::Remove(space, index),
                10 => Op::Pop,
                _ => Op::RemoveSpace(space),
            });
        proptest::collection::vec(op, 0..200)
    }

    /// The first of a list and those of its space that follow, as many as are told together.
    fn first_of(list: &mut Vec<(SpaceId, u64, Version)>) -> Option<Stored> {
        let space = list.first()?.0;
        let many = list.iter().take(STORED_PAGES_MAX).take_while(|page| page.0 == space).count();
        let pages = list.drain(..many).map(|(_, index, version)| (index, version)).collect();
        Some(Stored { space, pages })
    }

    proptest! {
        /// As a list that is searched from end to end.
        #[test]
        fn it_is_a_list(ops in ops()) {
            let (mut untold, mut list) = (Untold::default(), Vec::new());
            for op in ops {
                match op {
                    Op::Push(space, index, version) => {
                        let page = (SpaceId(space), index, Version(version));
                        untold.push(page.0, page.1, page.2);
                        match list.iter_mut().find(|known: &&mut (SpaceId, u64, Version)| (known.0, known.1) == (page.0, page.1)) {
                            Some(known) => *known = page,
                            None => list.push(page),
                        }
                    }
                    Op::Remove(space, index) => {
                        untold.remove(SpaceId(space), index);
                        list.retain(|page| (page.0, page.1) != (SpaceId(space), index));
                    }
                    Op::RemoveSpace(space) => {
                        untold.remove_space(SpaceId(space));
                        list.retain(|page| page.0 != SpaceId(space));
                    }
                    Op::Pop => prop_assert_eq!(untold.pop(), first_of(&mut list)),
                }
                prop_assert_eq!(untold.is_empty(), list.is_empty());
            }
            while let Some(stored) = untold.pop() {
                prop_assert_eq!(Some(stored), first_of(&mut list));
            }
            prop_assert!(list.is_empty() && untold.at.is_empty());
        }
    }
}
