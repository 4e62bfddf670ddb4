//! The order in which pages that need not be here are replaced: the one that was not used for longest is the first (gms-1995, section 3.1: a node that
//! is sent a page "discards its oldest"). There are two such lists ([`Standing::list`]): what this lender's disk has goes before what only its borrower can have from
//! elsewhere.
//!
//! A list through the slots, so that a use and a replacement cost the same however many pages there are. Each slot also names its page: 32 bytes for 4096.

use super::Tenancy;
use super::runs::Slot;
use super::types::Standing;
use crate::draw::Draw;
use crate::ids::SpaceId;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;
const LISTS: usize = 2;
/// Slots looked at for a page of one borrower.
const DRAWS_MAX: u32 = 16;

/// Which page a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) space: SpaceId,
    pub(super) tenancy: Tenancy,
    pub(super) index: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    page: Page,
    older: u32,
    younger: u32,
}

const UNLINKED: Link =
    Link { page: Page { space: SpaceId(0), tenancy: Tenancy(0), index: 0 }, older: NONE, younger: NONE };

/// See the module.
#[derive(Debug)]
pub(super) struct Order {
    /// Grows to the highest slot that ever held a spare page.
    links: Vec<Link>,
    lists: [Ends; LISTS],
    pages: [u64; LISTS],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    youngest: u32,
}

impl Default for Order {
    fn default() -> Self {
        Self { links: Vec::new(), lists: [Ends { oldest: NONE, youngest: NONE }; LISTS], pages: [0; LISTS] }
    }
}

impl Order {
    /// In all lists.
    pub(super) fn pages(&self) -> u64 {
        self.pages.iter().sum()
    }

    /// In the list that pages of this standing are in.
    pub(super) fn pages_of(&self, standing: Standing) -> u64 {
        standing.list().map_or(0, |list| self.pages[list])
    }

    /// A page that was used just now. One that does not give way is passed over, here and below.
    pub(super) fn add(&mut self, standing: Standing, slot: Slot, page: Page) {
        let Some(list) = standing.list() else { return };
        let at = slot.0 as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, UNLINKED);
        }
        self.links[at].page = page;
        self.link(list, slot.0);
        self.pages[list] += 1;
    }

    pub(super) fn remove(&mut self, standing: Standing, slot: Slot) {
        let Some(list) = standing.list() else { return };
        self.unlink(list, slot.0);
        self.links[slot.0 as usize] = UNLINKED;
        self.pages[list] -= 1;
    }

    /// Some page of this tenancy, whichever chance finds in a few tries.
    pub(super) fn some_of(&self, tenancy: Tenancy, draw: &mut Draw) -> Option<(Slot, Page)> {
        if self.links.is_empty() {
            return None;
        }
        (0..DRAWS_MAX).find_map(|_| {
            let slot = draw.below(self.links.len() as u64);
            let page = self.links[slot as usize].page;
            (page.tenancy == tenancy).then_some((Slot(slot as u32), page))
        })
    }

    /// It is used now.
    pub(super) fn touch(&mut self, standing: Standing, slot: Slot) {
        let Some(list) = standing.list() else { return };
        if self.lists[list].youngest != slot.0 {
            self.unlink(list, slot.0);
            self.link(list, slot.0);
        }
    }

    /// The page that was not used for longest, of the first list that has any.
    pub(super) fn oldest(&self) -> Option<(Slot, Page)> {
        let list = self.lists.iter().find(|list| list.oldest != NONE)?;
        Some((Slot(list.oldest), self.links[list.oldest as usize].page))
    }

    fn link(&mut self, list: usize, slot: u32) {
        let before = core::mem::replace(&mut self.lists[list].youngest, slot);
        let link = &mut self.links[slot as usize];
        (link.older, link.younger) = (before, NONE);
        match self.links.get_mut(before as usize) {
            Some(link) => link.younger = slot,
            None => self.lists[list].oldest = slot,
        }
    }

    fn unlink(&mut self, list: usize, slot: u32) {
        let ends = &mut self.lists[list];
        let Link { older, younger, .. } = self.links[slot as usize];
        match self.links.get_mut(older as usize) {
            Some(link) => link.younger = younger,
            None => {
                assert_eq!(ends.oldest, slot, "slot {slot} is in no order");
                ends.oldest = younger;
            }
        }
        match self.links.get_mut(younger as usize) {
            Some(link) => link.older = older,
            None => {
                assert_eq!(ends.youngest, slot, "slot {slot} is in no order");
                ends.youngest = older;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against two plain lists, of which the first goes first.
        #[test]
        fn is_two_lists(ops in prop::collection::vec((0..12_u32, 0..4_u8), 1..200)) {
            let page = |slot: u32| Page { space: SpaceId(7), tenancy: Tenancy(u64::from(slot) + 1), index: 3 };
            let (mut order, mut model) = (Order::default(), [Vec::<u32>::new(), Vec::new()]);
            let standings = [Standing::OnDisk, Standing::Spare];
            for (slot, op) in ops {
                let of = (0..2).find_map(|of| Some((of, model[of].iter().position(|&other| other == slot)?)));
                match (op, of) {
                    (0 | 1, None) => {
                        order.add(standings[usize::from(op)], Slot(slot), page(slot));
                        model[usize::from(op)].push(slot);
                    }
                    (2, Some((of, at))) => {
                        order.touch(standings[of], Slot(slot));
                        model[of].remove(at);
                        model[of].push(slot);
                    }
                    (3, Some((of, at))) => {
                        order.remove(standings[of], Slot(slot));
                        model[of].remove(at);
                    }
                    _ => order.touch(Standing::Kept, Slot(slot)),
                }
                let oldest = model[0].first().or(model[1].first()).map(|&s| (Slot(s), page(s)));
                prop_assert_eq!(order.oldest(), oldest);
                prop_assert_eq!(order.pages(), model.iter().flatten().count() as u64);
            }
            let mut draw = Draw::new(1);
            for slot in 0..12 {
                let of = page(slot).tenancy;
                let found = order.some_of(of, &mut draw);
                let in_one = model.iter().flatten().any(|other| *other == slot);
                prop_assert!(found.is_none_or(|found| found == (Slot(slot), page(slot)) && in_one));
            }
            // The whole order, not only its head.
            for (of, slots) in model.into_iter().enumerate() {
                for slot in slots {
                    prop_assert_eq!(order.oldest().map(|oldest| oldest.0), Some(Slot(slot)));
                    order.remove(standings[of], Slot(slot));
                }
            }
            prop_assert_eq!(order.oldest(), None);
        }
    }
}
