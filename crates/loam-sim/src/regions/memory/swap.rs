//! Local page frames with remote memory behind them: LRU, by the live policy's order of uses.

use loam_core::replacement::{Lru, Order};

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// What a touch of a page did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paged {
    /// It had been out, and came back.
    pub fetched: bool,
    /// A dirty page left for it.
    pub sent: bool,
}

/// Local frames.
#[derive(Debug)]
pub struct Swap {
    frames: usize,
    order: Lru,
    /// By page: it was written to since it came.
    dirty: Vec<bool>,
    /// By page: it has contents. What has none is not fetched.
    known: Vec<bool>,
    /// The page touched last: again and again the same one, mostly.
    last: u64,
}

impl Swap {
    /// So many empty frames.
    ///
    /// # Panics
    /// Without frames.
    pub fn new(frames: usize) -> Self {
        assert!(frames > 0, "a program needs a page frame");
        Self { frames, order: Lru::default(), dirty: Vec::new(), known: Vec::new(), last: u64::MAX }
    }

    /// A page is read or written.
    ///
    /// # Panics
    /// If there are more pages than can be numbered.
    pub fn touch(&mut self, page: u64, write: bool) -> Paged {
        let at = page as usize;
        if page == self.last {
            self.dirty[at] |= write;
            return Paged::default();
        }
        self.last = page;
        let number = u32::try_from(page).expect("pages have 32-bit numbers");
        if at >= self.dirty.len() {
            let pages = (at + 1).next_power_of_two();
            self.dirty.resize(pages, false);
            self.known.resize(pages, false);
        }
        if self.order.holds(number) {
            self.order.touched(number);
            self.dirty[at] |= write;
            return Paged::default();
        }
        let mut sent = false;
        if self.order.len() >= self.frames {
            let victim = self.order.victim().expect("frames are full of pages") as usize;
            sent = std::mem::take(&mut self.dirty[victim]);
        }
        self.order.inserted(number);
        assert!(self.order.len() <= self.frames, "a frame holds one page");
        self.dirty[at] = write;
        Paged { fetched: std::mem::replace(&mut self.known[at], true), sent }
    }

    /// A line of the page, which the cache has, is written to.
    pub fn written(&mut self, page: u64) {
        // If the page is out, this says nothing: the bit is set anew when it comes.
        if let Some(dirty) = self.dirty.get_mut(page as usize) {
            *dirty = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Frames are an LRU list of pages; a page that never was anywhere is not fetched.
        #[test]
        fn frames_are_a_list(
            frames in 1usize..6,
            steps in proptest::collection::vec((0u64..12, any::<bool>()), 0..300)
        ) {
            let mut swap = Swap::new(frames);
            let (mut list, mut known): (Vec<(u64, bool)>, Vec<u64>) = (Vec::new(), Vec::new());
            for (page, write) in steps {
                let paged = swap.touch(page, write);
                let was = list.iter().position(|of| of.0 == page).map(|at| list.remove(at));
                list.insert(0, (page, write || was.is_some_and(|of| of.1)));
                let left = if list.len() > frames { list.pop() } else { None };
                prop_assert_eq!(paged.fetched, was.is_none() && known.contains(&page));
                prop_assert_eq!(paged.sent, left.is_some_and(|of| of.1));
                known.push(page);
            }
        }
    }
}
