//! Looks whether every page's newest contents are where the page table says, and every frame is one page's.

use super::super::pages::Place;
use super::Machine;

impl Machine<'_> {
    pub(super) fn watch(&self) {
        let mut held = vec![0; self.nodes.len()];
        let mut leaving = vec![0; self.nodes.len()];
        for (number, page) in self.pages.iter().enumerate() {
            let number = number as u32;
            match page.place {
                Place::Disk => assert_eq!(self.stored(number), page.version, "page {number} on its disk"),
                Place::Memory(node) => held[node] += 1,
                Place::Leaving(node) => leaving[node] += 1,
                Place::Ring { writer, place } => {
                    let staged = self.glass.as_ref().and_then(|glass| glass.get(writer, place));
                    let staged = staged.unwrap_or_else(|| panic!("page {number} is not on the ring"));
                    assert_eq!(
                        (staged.page, staged.version),
                        (number, page.version),
                        "page {number} on the ring"
                    );
                }
                // What is on its way is looked at when it comes.
                Place::Copying | Place::Coming => {}
            }
            // A node that has a frame for a page that is coming.
            if let Some(node) = page.wanted
                && self.nodes[node].wants != Some(number)
            {
                held[node] += 1;
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            assert_eq!(leaving[at], node.leaving, "node {at}: pages that leave");
            assert_eq!(held[at] + leaving[at] + node.free, self.config.frames, "node {at}: frames");
        }
    }

    /// Nothing is on its way any more.
    pub(super) fn watch_settled(&self) {
        for (number, page) in self.pages.iter().enumerate() {
            assert!(
                matches!(page.place, Place::Disk | Place::Memory(_)),
                "page {number} is {:?} when all is quiet",
                page.place
            );
            assert!(page.wanted.is_none() && page.waiters.is_empty(), "somebody waits for page {number}");
        }
        for io in &self.ios {
            assert!(io.arm.is_none(), "a disk is at work when all is quiet");
            assert_eq!(
                io.controller.room(),
                self.config.controller_pages,
                "all is written when all is quiet"
            );
        }
        if let Some(glass) = &self.glass {
            assert!(glass.is_empty(), "the ring is empty when all is quiet");
        }
    }
}
