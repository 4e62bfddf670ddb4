//! For tests: whether all of the books agree.

use super::{Blocks, NONE, State};

impl Blocks<'_> {
    /// Proves that lists, trees and counts say the same of every page. It visits everything.
    #[allow(dead_code, reason = "for tests/blocks.rs, which has this file as a module")]
    pub(crate) fn audit(&self) {
        let (mut at, mut page) = (self.first(), 0);
        let (mut used, mut dirty, mut giving_back, mut before) = (0, 0, 0, State::Unused);
        while at != NONE {
            let node = self.nodes[at];
            assert!(node.start == page && node.pages > 0, "blocks cover the region");
            match node.state {
                State::Unused => panic!("an unused record is no block"),
                State::Used => {
                    assert_eq!(self.used_at(node.start), Some(at), "it is found");
                    used += node.pages;
                }
                State::GivingBack => giving_back += 1,
                free => {
                    assert_ne!(before, free, "free neighbours of one kind are one");
                    let tree = if free == State::Clean { &self.clean } else { &self.dirty };
                    let best = tree.best(&self.nodes, node.pages).expect("it is in its tree");
                    assert_eq!(self.nodes[best].pages, node.pages, "no smaller one fits");
                    dirty += if free == State::Dirty { node.pages } else { 0 };
                }
            }
            before = node.state;
            page += node.pages;
            assert!(node.next == NONE || self.nodes[node.next].previous == at, "the line has two directions");
            at = node.next;
        }
        assert_eq!(page, self.pages, "blocks cover the region");
        assert_eq!((used, dirty, giving_back), (self.used_pages, self.dirty_pages, self.giving_back));
        let (mut aged, mut at, mut freed_at) = (0, self.oldest, 0);
        while at != NONE {
            assert!(self.nodes[at].freed_at >= freed_at, "in the order in which they were freed");
            (freed_at, aged, at) =
                (self.nodes[at].freed_at, aged + self.nodes[at].pages, self.nodes[at].newer);
        }
        assert_eq!(aged, self.dirty_pages, "the ages are of all dirty blocks");
    }
}
