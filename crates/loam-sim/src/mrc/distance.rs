//! Stack distances: how many other pages were used since a page's last use.

/// Times whose marks are counted together in the tree: 8 words.
const BLOCK: u32 = 512;
const BLOCK_WORDS: usize = BLOCK as usize / 64;
const TIMES_MIN: u32 = 4 * BLOCK;
/// Up to so many times back marks are counted one word after the other, which is quicker than the tree.
const NEAR: u32 = 2 * BLOCK;
/// Not used yet.
const NEVER: u32 = u32::MAX;

/// Pages in order of their last use, as marks on a time line: a page's distance is the number of marks after its own.
///
/// Marks are bits, and a Fenwick tree (Software: Practice and Experience 24(3), 1994) counts them by blocks. When the line is full its
/// marks are moved together, so memory goes with the number of pages, not of references.
#[derive(Debug, Default)]
pub struct StackDistances {
    /// When each page was used last.
    last: Vec<u32>,
    /// Which page was used when.
    page_at: Vec<u32>,
    marks: Vec<u64>,
    /// Marks by blocks, as a Fenwick tree from index 1.
    tree: Vec<u32>,
    now: u32,
    pages: u32,
}

impl StackDistances {
    /// `page` is used: its distance, if it was used before. 0: nothing else was since.
    pub fn reference(&mut self, page: u32) -> Option<u64> {
        if self.last.len() <= page as usize {
            self.last.resize((page as usize + 1).next_power_of_two(), NEVER);
        }
        if self.now as usize == self.page_at.len() {
            self.make_room();
        }
        let last = self.last[page as usize];
        let distance = (last != NEVER).then(|| {
            let after = self.marks_after(last);
            self.unmark(last);
            u64::from(after)
        });
        self.pages += u32::from(distance.is_none());
        self.mark(self.now, page);
        self.now += 1;
        distance
    }

    /// Takes a page out, as if it had never been used.
    pub fn forget(&mut self, page: u32) {
        let last = self.last.get_mut(page as usize).map_or(NEVER, |last| std::mem::replace(last, NEVER));
        if last != NEVER {
            self.unmark(last);
            self.pages -= 1;
        }
    }

    fn mark(&mut self, time: u32, page: u32) {
        self.last[page as usize] = time;
        self.page_at[time as usize] = page;
        self.marks[time as usize / 64] |= 1 << (time % 64);
        let mut node = (time / BLOCK) as usize + 1;
        while node < self.tree.len() {
            self.tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    fn unmark(&mut self, time: u32) {
        self.marks[time as usize / 64] &= !(1 << (time % 64));
        let mut node = (time / BLOCK) as usize + 1;
        while node < self.tree.len() {
            self.tree[node] -= 1;
            node += node & node.wrapping_neg();
        }
    }

    fn marks_after(&self, time: u32) -> u32 {
        let word = time as usize / 64;
        if self.now - time <= NEAR {
            let own = (self.marks[word] >> (time % 64) >> 1).count_ones();
            let end = (self.now as usize).div_ceil(64);
            return own + self.marks[word + 1..end.max(word + 1)].iter().map(|w| w.count_ones()).sum::<u32>();
        }
        let block = word / BLOCK_WORDS;
        let own = self.marks[word] & (u64::MAX >> (63 - time % 64));
        let whole = &self.marks[block * BLOCK_WORDS..word];
        let mut until = own.count_ones() + whole.iter().map(|w| w.count_ones()).sum::<u32>();
        let mut node = block;
        while node > 0 {
            until += self.tree[node];
            node &= node - 1;
        }
        self.pages - until
    }

    /// Moves the marks together, and makes the line so long that it is a quarter full at most.
    #[cold]
    fn make_room(&mut self) {
        let mut kept = 0;
        for time in 0..self.now {
            if self.marks[time as usize / 64] & 1 << (time % 64) != 0 {
                let page = self.page_at[time as usize];
                self.page_at[kept as usize] = page;
                self.last[page as usize] = kept;
                kept += 1;
            }
        }
        assert!(kept == self.pages, "a page has one mark");
        let times = self.pages.checked_mul(4).and_then(u32::checked_next_power_of_two);
        let times = times.expect("fewer than 2^30 pages").max(TIMES_MIN);
        self.page_at.resize(times.max(self.page_at.len() as u32) as usize, 0);
        self.marks = vec![0; self.page_at.len() / 64];
        self.tree = vec![0; self.page_at.len() / BLOCK as usize + 1];
        for time in 0..kept {
            self.mark(time, self.page_at[time as usize]);
        }
        self.now = kept;
    }
}
