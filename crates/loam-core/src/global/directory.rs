//! The global-cache directory (gms-1995, section 4.1), this node's part of it: where pages are cached.
//!
//! It has the entries of shared pages that the POD gives to this node, and of all private pages that this node owns ("for non-shared pages,
//! the GCD entry is always stored on the node that is using the page"). A private page's entry stays when nobody holds the page: it is the
//! owner's table, and knows the version.

use super::frames::Kind;
use crate::ids::{NodeId, PageId, Version};
use crate::replacement::Numbering;
use alloc::vec::Vec;

/// One page's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// This node owns the page; the entry is its table's.
    pub private: bool,
    /// The newest contents, of a private page.
    pub version: Version,
    /// Who has it, in the order in which they got it.
    pub holders: Vec<(NodeId, Kind)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Directory {
    numbers: Numbering<PageId>,
    entries: Vec<Entry>,
}

impl Directory {
    /// How many pages have an entry.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Has none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A page's entry.
    pub fn get(&self, page: PageId) -> Option<&Entry> {
        self.numbers.get(page).map(|number| &self.entries[number as usize])
    }

    /// A page's entry; an empty one is made if there is none.
    pub fn entry(&mut self, page: PageId) -> &mut Entry {
        let before = self.numbers.len();
        let number = self.numbers.number(page);
        if number as usize >= self.entries.len() {
            self.entries.resize_with((number as usize + 1).next_power_of_two().max(64), Entry::default);
        }
        let entry = &mut self.entries[number as usize];
        if self.numbers.len() > before {
            *entry = Entry::default();
        }
        entry
    }

    /// `node` has the page now; it may have had it for others before. What is in its own use does not become a global page: it leaves first.
    pub fn add(&mut self, page: PageId, node: NodeId, kind: Kind) {
        let entry = self.entry(page);
        match entry.holders.iter_mut().find(|(holder, _)| *holder == node) {
            Some(holder) if kind == Kind::Local => holder.1 = kind,
            Some(_) => {}
            None => entry.holders.push((node, kind)),
        }
    }

    /// `node` has the page no longer. Says who has it now, if exactly one node does and it is in that one's own use.
    pub fn remove(&mut self, page: PageId, node: NodeId) -> Option<NodeId> {
        let number = self.numbers.get(page)?;
        let entry = &mut self.entries[number as usize];
        let before = entry.holders.len();
        entry.holders.retain(|&(holder, _)| holder != node);
        match entry.holders[..] {
            [(last, Kind::Local)] if before > 1 => Some(last),
            _ => None,
        }
    }

    /// Forgets a page whose entry is another node's from now on.
    pub fn take(&mut self, page: PageId) -> Option<Entry> {
        let number = self.numbers.get(page)?;
        self.numbers.remove(page);
        Some(core::mem::take(&mut self.entries[number as usize]))
    }

    /// All pages that have an entry, in the order of their numbers.
    pub fn pages(&self) -> Vec<PageId> {
        let keys = (0..self.numbers.bound()).map(|number| self.numbers.key(number));
        // The key of a number that is free may have another number now.
        let current =
            |(number, page): (u32, PageId)| (self.numbers.get(page) == Some(number)).then_some(page);
        (0..).zip(keys).filter_map(current).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SpaceId;

    #[test]
    fn the_last_of_several_is_named() {
        let mut directory = Directory::default();
        let page = PageId { space: SpaceId(1), index: 2 };
        directory.add(page, NodeId(1), Kind::Local);
        directory.add(page, NodeId(1), Kind::Global);
        directory.add(page, NodeId(2), Kind::Global);
        assert_eq!(
            directory.get(page).unwrap().holders,
            [(NodeId(1), Kind::Local), (NodeId(2), Kind::Global)]
        );
        assert_eq!(directory.remove(page, NodeId(3)), None, "nothing has changed");
        assert_eq!(directory.remove(page, NodeId(2)), Some(NodeId(1)));
        assert_eq!(directory.remove(page, NodeId(1)), None);
        assert_eq!(directory.pages(), [page]);
        assert_eq!(directory.take(page), Some(Entry::default()));
        assert!(directory.is_empty() && directory.pages().is_empty());
    }
}
