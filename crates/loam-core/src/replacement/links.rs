//! Doubly linked lists in an array: a page is in one list at most, and its number is its place.

use alloc::vec::Vec;

/// No page.
pub(crate) const NONE: u32 = u32::MAX;

/// One list. The newest page stands first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    newer: u32,
    older: u32,
}

/// The neighbours of each page.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

impl Links {
    /// The page that came into the list after this one.
    pub(crate) fn newer(&self, page: u32) -> u32 {
        self.0[page as usize].newer
    }

    /// The page that came into the list before this one.
    pub(crate) fn older(&self, page: u32) -> u32 {
        self.0[page as usize].older
    }

    pub(crate) fn push_first(&mut self, list: &mut List, page: u32) {
        *super::cell(&mut self.0, page) = Link { newer: NONE, older: list.first };
        match list.first {
            NONE => list.last = page,
            first => self.0[first as usize].newer = page,
        }
        list.first = page;
        list.len += 1;
    }

    pub(crate) fn push_last(&mut self, list: &mut List, page: u32) {
        *super::cell(&mut self.0, page) = Link { newer: list.last, older: NONE };
        match list.last {
            NONE => list.first = page,
            last => self.0[last as usize].older = page,
        }
        list.last = page;
        list.len += 1;
    }

    /// Puts `page` before `newer` in age: it becomes the older neighbour of a page of the list.
    pub(crate) fn insert_older(&mut self, list: &mut List, newer: u32, page: u32) {
        let older = self.0[newer as usize].older;
        if older == NONE {
            return self.push_last(list, page);
        }
        *super::cell(&mut self.0, page) = Link { newer, older };
        self.0[newer as usize].older = page;
        self.0[older as usize].newer = page;
        list.len += 1;
    }

    pub(crate) fn remove(&mut self, list: &mut List, page: u32) {
        assert!(list.len > 0, "a page is taken out of an empty list");
        let Link { newer, older } = self.0[page as usize];
        match newer {
            NONE => list.first = older,
            newer => self.0[newer as usize].older = older,
        }
        match older {
            NONE => list.last = newer,
            older => self.0[older as usize].newer = newer,
        }
        list.len -= 1;
    }

    pub(crate) fn pop_last(&mut self, list: &mut List) -> Option<u32> {
        let page = list.last;
        if page == NONE {
            return None;
        }
        self.remove(list, page);
        Some(page)
    }
}
