//! In which order pages leave.

use super::table::SpaceKey;
use alloc::collections::{BTreeMap, VecDeque};

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

/// Part of the pages that the proven may be at most: the others are on trial for at least the rest.
const PROVEN_NUMERATOR: usize = 3;
const PROVEN_DENOMINATOR: usize = 4;
/// Pages that left are remembered for as many departures as there are pages, but for this many.
const REMEMBERED_MIN: usize = 64;

/// FIFO with a second chance, which the victim buffer gives: a page that is touched while it waits there is rescued and comes
/// in again at the end (DESIGN.md, section 3, "Local replacement": there are no access bits to read).
///
/// That alone takes a page that is in use all the time away once in each turn of the queue. The one thing that a page without
/// access bits shows is how soon it is wanted again after it has left. So there are two queues: a page begins *on trial*, and one
/// that comes back before as many others have left as there are is *proven* and queues with its like, which move on only as others
/// prove themselves (2Q's idea, and the kernel's refault distance). A scan stays on trial and takes nothing from the proven.
#[derive(Debug, Default)]
pub struct SecondChanceFifo {
    trial: VecDeque<PageRef>,
    proven: VecDeque<PageRef>,
    /// Departures so far.
    clock: u64,
    /// When a page left that has not come back, and in what order they did.
    left_at: BTreeMap<PageRef, u64>,
    left: VecDeque<(PageRef, u64)>,
    /// Where the last victim was taken from.
    from_proven: bool,
}

impl SecondChanceFifo {
    fn len(&self) -> usize {
        self.trial.len() + self.proven.len()
    }

    /// It has left: its return will be judged by when.
    fn remember(&mut self, page: PageRef) {
        self.clock += 1;
        self.left_at.insert(page, self.clock);
        self.left.push_back((page, self.clock));
        while self.left.len() > self.len().max(REMEMBERED_MIN) {
            let (page, at) = self.left.pop_front().expect("it is not empty");
            if self.left_at.get(&page) == Some(&at) {
                self.left_at.remove(&page);
            }
        }
    }
}

impl Replacement for SecondChanceFifo {
    fn inserted(&mut self, page: PageRef) {
        if self.left_at.remove(&page).is_some() {
            self.proven.push_back(page);
        } else {
            self.trial.push_back(page);
        }
    }

    fn victim(&mut self) -> Option<PageRef> {
        let too_many = self.proven.len() * PROVEN_DENOMINATOR > self.len() * PROVEN_NUMERATOR;
        self.from_proven = too_many || self.trial.is_empty();
        let queue = if self.from_proven { &mut self.proven } else { &mut self.trial };
        let page = queue.pop_front()?;
        self.remember(page);
        Some(page)
    }

    fn put_back(&mut self, page: PageRef) {
        self.left_at.remove(&page);
        let queue = if self.from_proven { &mut self.proven } else { &mut self.trial };
        queue.push_front(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn page(first: u64) -> PageRef {
        PageRef { space: SpaceKey(1), first }
    }

    /// Faults of a program that touches these pages with so many frames.
    fn faults(frames: usize, touches: impl Iterator<Item = u64>) -> usize {
        let (mut fifo, mut here, mut faults) = (SecondChanceFifo::default(), BTreeSet::new(), 0);
        for first in touches {
            if !here.insert(first) {
                continue;
            }
            faults += 1;
            if here.len() > frames {
                here.remove(&fifo.victim().expect("pages are here").first);
            }
            fifo.inserted(page(first));
        }
        faults
    }

    #[test]
    fn first_in_first_out_and_a_rescued_page_is_last() {
        let mut fifo = SecondChanceFifo::default();
        for n in 0..3 {
            fifo.inserted(page(n));
        }
        assert_eq!(fifo.victim(), Some(page(0)));
        fifo.inserted(page(0)); // touched in the victim buffer
        assert_eq!(fifo.victim(), Some(page(1)));
        fifo.put_back(page(1));
        assert_eq!([fifo.victim(), fifo.victim()], [Some(page(1)), Some(page(2))]);
        assert_eq!([fifo.victim(), fifo.victim()], [Some(page(0)), None]);
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_in_use() {
        // Half of the frames' worth is touched again and again, beside a scan that never returns.
        let touches = (0..40_000_u64).flat_map(|n| [n * 7 % 50, 1_000 + n]);
        let faults = faults(100, touches);
        assert!(faults < 40_000 + 4_000, "{} faults on 50 pages in use", faults - 40_000);
    }

    #[test]
    fn what_is_in_use_may_change() {
        let touches = (0..30_000_u64).map(|n| n / 10_000 * 1_000 + n * 7 % 90);
        assert!(faults(100, touches) < 600);
    }

    proptest! {
        /// Each page is given out as often as it was put in, and what is remembered stays within its bound.
        #[test]
        fn pages_come_out_as_they_went_in(ops in proptest::collection::vec(0u64..60, 1..600)) {
            let mut fifo = SecondChanceFifo::default();
            let mut here: BTreeSet<u64> = BTreeSet::new();
            for op in ops {
                if op < 40 {
                    if here.insert(op) {
                        fifo.inserted(page(op));
                    }
                } else if let Some(victim) = fifo.victim() {
                    if op < 50 {
                        fifo.put_back(victim);
                        prop_assert_eq!(fifo.victim(), Some(victim));
                    }
                    prop_assert!(here.remove(&victim.first));
                } else {
                    prop_assert!(here.is_empty());
                }
                prop_assert_eq!(fifo.len(), here.len());
                prop_assert!(fifo.left.len() <= fifo.len().max(REMEMBERED_MIN));
                prop_assert!(fifo.left_at.len() <= fifo.left.len());
            }
            let mut rest = Vec::new();
            while let Some(victim) = fifo.victim() {
                rest.push(victim.first);
            }
            rest.sort_unstable();
            prop_assert_eq!(rest, here.into_iter().collect::<Vec<_>>());
        }
    }
}
