//! In which order pages leave.

use super::table::SpaceKey;
use alloc::collections::VecDeque;

/// A page: its address space and its first base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRef {
    /// The address space.
    pub space: SpaceKey,
    /// The page's first base page.
    pub first: u64,
}

/// A replacement policy. It is told when a page comes, and asked which leaves next.
pub trait Replacement: core::fmt::Debug + Send {
    /// `page` has become local. It is not in the policy now.
    fn inserted(&mut self, page: PageRef);
    /// The page to leave next; it is out of the policy then.
    fn victim(&mut self) -> Option<PageRef>;
    /// Puts back a victim that was not needed, so that it is the next one again.
    fn put_back(&mut self, page: PageRef);
}

/// FIFO. The second chance is the victim buffer's: a page that is touched while it waits there is rescued and
/// comes in again at the end (DESIGN.md, section 3, "Local replacement": there are no access bits to read).
#[derive(Debug, Default)]
pub struct SecondChanceFifo {
    queue: VecDeque<PageRef>,
}

impl Replacement for SecondChanceFifo {
    fn inserted(&mut self, page: PageRef) {
        self.queue.push_back(page);
    }
    fn victim(&mut self) -> Option<PageRef> {
        self.queue.pop_front()
    }
    fn put_back(&mut self, page: PageRef) {
        self.queue.push_front(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_and_a_rescued_page_is_last() {
        let page = |first| PageRef { space: SpaceKey(1), first };
        let mut fifo = SecondChanceFifo::default();
        for n in 0..3 {
            fifo.inserted(page(n));
        }
        assert_eq!(fifo.victim(), Some(page(0)));
        fifo.inserted(page(0)); // touched in the victim buffer
        assert_eq!(fifo.victim(), Some(page(1)));
        fifo.put_back(page(1));
        assert_eq!(
            [fifo.victim(), fifo.victim(), fifo.victim()],
            [Some(page(1)), Some(page(2)), Some(page(0))]
        );
        assert_eq!(fifo.victim(), None);
    }
}
