//! Which slots hold the pages of one extent.
//!
//! A sorted list, not an array of 256: a borrower that stores one page in each extent must not cost the lender a kilobyte
//! for it. Pages mostly come in ascending order, so an insert is mostly a push.

use super::runs::Slot;
use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(super) struct Extent {
    pages: Vec<(u8, Slot)>,
}

impl Extent {
    fn find(&self, offset: u8) -> Result<usize, usize> {
        match self.pages.last() {
            Some(last) if last.0 < offset => Err(self.pages.len()),
            // A full extent (or one filled from its start): the page is where its offset says.
            _ => match self.pages.get(offset as usize) {
                Some(page) if page.0 == offset => Ok(offset as usize),
                _ => self.pages.binary_search_by_key(&offset, |page| page.0),
            },
        }
    }

    pub(super) fn get(&self, offset: u8) -> Option<Slot> {
        self.find(offset).ok().map(|at| self.pages[at].1)
    }

    pub(super) fn insert(&mut self, offset: u8, slot: Slot) {
        match self.find(offset) {
            Ok(_) => panic!("offset {offset} is stored twice"),
            Err(at) => self.pages.insert(at, (offset, slot)),
        }
    }

    pub(super) fn remove(&mut self, offset: u8) -> Option<Slot> {
        self.find(offset).ok().map(|at| self.pages.remove(at).1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Removes the pages for which `leaves` says so.
    pub(super) fn remove_where(&mut self, mut leaves: impl FnMut(Slot) -> bool) {
        self.pages.retain(|page| !leaves(page.1));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, Slot)> {
        self.pages.iter().copied()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.pages.iter().map(|page| page.1)
    }
}
