//! A processor's translation buffer: fully associative, the entry that was not used for longest is replaced.

/// See the module.
#[derive(Clone, Debug)]
pub struct Tlb {
    /// When each page's entry was used last; 0: it has none.
    used: Vec<u64>,
    entries: Vec<u32>,
    size: usize,
    clock: u64,
}

impl Tlb {
    /// An empty one, for pages below `pages`.
    ///
    /// # Panics
    /// If it has no entries.
    pub fn new(size: usize, pages: usize) -> Self {
        assert!(size > 0, "a TLB has an entry");
        Self { used: vec![0; pages], entries: Vec::with_capacity(size), size, clock: 0 }
    }

    /// Looks a page up, which then has an entry. False: it had none.
    pub fn look_up(&mut self, page: u32) -> bool {
        self.clock += 1;
        let hit = self.used[page as usize] > 0;
        self.used[page as usize] = self.clock;
        if !hit {
            if self.entries.len() == self.size {
                let oldest = (0..self.size).min_by_key(|&at| self.used[self.entries[at] as usize]);
                let oldest = oldest.expect("it has entries");
                self.used[self.entries[oldest] as usize] = 0;
                self.entries[oldest] = page;
            } else {
                self.entries.push(page);
            }
        }
        hit
    }

    /// Forgets a page. True: it had an entry.
    pub fn forget(&mut self, page: u32) -> bool {
        let had = std::mem::take(&mut self.used[page as usize]) > 0;
        if had {
            let at = self.entries.iter().position(|&entry| entry == page).expect("it has an entry");
            self.entries.swap_remove(at);
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It hits as a list does in which what is used goes to the front.
        #[test]
        fn hits_are_those_of_a_list(steps in proptest::collection::vec((0u32..12, 0u8..8), 0..200)) {
            let mut tlb = Tlb::new(4, 12);
            let mut model: Vec<u32> = Vec::new();
            for (page, what) in steps {
                let at = model.iter().position(|&entry| entry == page);
                at.map(|at| model.remove(at));
                if what == 0 {
                    prop_assert_eq!(tlb.forget(page), at.is_some());
                } else {
                    prop_assert_eq!(tlb.look_up(page), at.is_some());
                    model.insert(0, page);
                    model.truncate(4);
                }
            }
        }
    }
}
