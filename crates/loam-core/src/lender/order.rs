//! The order in which spare pages are replaced: the one that was not used for longest is the first (gms-1995, section 3.1: a node that is sent
//! a page "discards its oldest").
//!
//! A list through the slots, so that a use and a replacement cost the same however many pages there are. Each slot also names its page: 32 bytes for 4096.

use super::Tenancy;
use super::runs::Slot;
use crate::draw::Draw;
use crate::ids::SpaceId;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;
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
    oldest: u32,
    youngest: u32,
    pages: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self { links: Vec::new(), oldest: NONE, youngest: NONE, pages: 0 }
    }
}

impl Order {
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// A page that was used just now.
    pub(super) fn add(&mut self, slot: Slot, page: Page) {
        let at = slot.0 as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, UNLINKED);
        }
        self.links[at].page = page;
        self.link(slot.0);
        self.pages += 1;
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.unlink(slot.0);
        self.links[slot.0 as usize] = UNLINKED;
        self.pages -= 1;
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
    pub(super) fn touch(&mut self, slot: Slot) {
        if self.youngest != slot.0 {
            self.unlink(slot.0);
            self.link(slot.0);
        }
    }

    /// The page that was not used for longest.
    pub(super) fn oldest(&self) -> Option<(Slot, Page)> {
        let link = self.links.get(self.oldest as usize)?;
        Some((Slot(self.oldest), link.page))
    }

    fn link(&mut self, slot: u32) {
        let before = core::mem::replace(&mut self.youngest, slot);
        let link = &mut self.links[slot as usize];
        (link.older, link.younger) = (before, NONE);
        match self.links.get_mut(before as usize) {
            Some(link) => link.younger = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Link { older, younger, .. } = self.links[slot as usize];
        match self.links.get_mut(older as usize) {
            Some(link) => link.younger = younger,
            None => {
                assert_eq!(self.oldest, slot, "slot {slot} is in no order");
                self.oldest = younger;
            }
        }
        match self.links.get_mut(younger as usize) {
            Some(link) => link.older = older,
            None => {
                assert_eq!(self.youngest, slot, "slot {slot} is in no order");
                self.youngest = older;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn is_a_list(ops in prop::collection::vec((0..12_u32, 0..3_u8), 1..200)) {
            let page = |slot: u32| Page { space: SpaceId(7), tenancy: Tenancy(u64::from(slot) + 1), index: 3 };
            let (mut order, mut model) = (Order::default(), Vec::<u32>::new());
            for (slot, op) in ops {
                let at = model.iter().position(|&other| other == slot);
                match (op, at) {
                    (0, None) => {
                        order.add(Slot(slot), page(slot));
                        model.push(slot);
                    }
                    (1, Some(at)) => {
                        order.touch(Slot(slot));
                        model.remove(at);
                        model.push(slot);
                    }
                    (2, Some(at)) => {
                        order.remove(Slot(slot));
                        model.remove(at);
                    }
                    _ => {}
                }
                let oldest = model.first().map(|&s| (Slot(s), page(s)));
                prop_assert_eq!(order.oldest(), oldest);
                prop_assert_eq!(order.pages(), model.len() as u64);
            }
            let mut draw = Draw::new(1);
            for slot in 0..12 {
                let of = page(slot).tenancy;
                let found = order.some_of(of, &mut draw);
                prop_assert!(found.is_none_or(|found| found == (Slot(slot), page(slot)) && model.contains(&slot)));
            }
            // The whole order, not only its head.
            for slot in model {
                prop_assert_eq!(order.oldest().map(|oldest| oldest.0), Some(Slot(slot)));
                order.remove(Slot(slot));
            }
            prop_assert_eq!(order.oldest(), None);
        }
    }
}
