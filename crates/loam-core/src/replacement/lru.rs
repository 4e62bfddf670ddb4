//! LRU: the page that was not used for longest leaves first.

use super::Order;
use alloc::vec::Vec;

/// Log entries for each page held, at least: more make compaction rarer, fewer keep the log in the cache.
const ENTRIES_PER_PAGE: usize = 8;
const ENTRIES_MIN: usize = 4096;
/// Position 0 of the log is never used, so 0 says that a page is not held.
const NOT_HELD: u32 = 0;

/// Least recently used (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal
/// 9(2), 1970).
///
/// No list: a *log* of uses. A use appends the page to the log and notes the position; an entry counts only if it is its page's last.
/// The oldest entry that counts is the victim. A full log is rewritten without the entries that do not count. A linked list would
/// read and write five scattered places for each use, each found through the one before; the log appends to one place and writes
/// another, and nothing waits for them.
#[derive(Debug, Default)]
pub struct Lru {
    /// Position of each page's last use in the log.
    last: Vec<u32>,
    log: Vec<u32>,
    /// The log's used part.
    head: usize,
    tail: usize,
    held: usize,
}

impl Lru {
    fn append(&mut self, page: u32) {
        if self.tail == self.log.len() {
            self.compact();
        }
        self.log[self.tail] = page;
        // The log is bounded in `compact`.
        self.last[page as usize] = self.tail as u32;
        self.tail += 1;
    }

    /// Rewrites the log from its beginning with the entries that count, with room for at least seven times as many more.
    #[cold]
    fn compact(&mut self) {
        let mut kept = 1;
        for at in self.head..self.tail {
            // No branch: whether an entry counts is not to be predicted. What is written for one that does not is overwritten.
            let page = self.log[at];
            let last = &mut self.last[page as usize];
            let counts = *last == at as u32;
            *last = if counts { kept as u32 } else { *last };
            self.log[kept] = page;
            kept += usize::from(counts);
        }
        let entries = (kept * ENTRIES_PER_PAGE).max(ENTRIES_MIN).next_power_of_two();
        assert!(u32::try_from(entries).is_ok(), "more pages than LRU can number");
        if entries > self.log.len() {
            self.log.resize(entries, 0);
        }
        (self.head, self.tail) = (1, kept);
    }
}

impl Order for Lru {
    const TOUCHES_IN_A_ROW: u32 = 0;

    fn len(&self) -> usize {
        self.held
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        self.last.get(page as usize).is_some_and(|&last| last != NOT_HELD)
    }

    #[inline]
    fn inserted(&mut self, page: u32) {
        let last = super::cell(&mut self.last, page);
        assert!(*last == NOT_HELD, "page {page} is inserted twice");
        self.held += 1;
        self.append(page);
    }

    #[inline]
    fn touched(&mut self, page: u32) {
        debug_assert!(self.holds(page));
        self.append(page);
    }

    #[inline]
    fn victim(&mut self) -> Option<u32> {
        while self.head < self.tail {
            let page = self.log[self.head];
            let last = &mut self.last[page as usize];
            self.head += 1;
            if *last as usize == self.head - 1 {
                *last = NOT_HELD;
                self.held -= 1;
                return Some(page);
            }
        }
        None
    }

    fn put_back(&mut self, page: u32) {
        assert!(self.head > 1 && !self.holds(page), "page {page} is not the last victim");
        self.head -= 1;
        self.log[self.head] = page;
        *super::cell(&mut self.last, page) = self.head as u32;
        self.held += 1;
    }
}
