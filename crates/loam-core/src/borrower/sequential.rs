//! Readers of memory that the program has said it goes through in order: what lies behind one leaves before all that the policy would choose.
//!
//! A reader is seen where it faults, or touches what was fetched ahead; what it has passed since the last time is behind it. It stays while there
//! is room for all.

use super::ahead::{AHEAD_SHARE, ZERO_AHEAD};
use super::table::{BaseRange, SpaceKey};
use super::{Borrower, PageRef, Pattern};
use crate::page_size::PageSize;
use alloc::collections::VecDeque;

/// Readers at a time; of more the one that was seen least recently is forgotten.
const READERS_MAX: usize = 32;
/// A reader passes at most so many times as much as is fetched ahead from one sight to the next. One farther on is another reader.
const STEP_WINDOWS: u64 = 2;
/// Pages that wait behind readers for room to be wanted; of more the oldest stay in the policy's order.
const BEHIND_MAX: usize = 8192;

#[derive(Clone, Copy, Debug)]
struct Reader {
    key: SpaceKey,
    /// The first base page that it has not passed.
    at: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// The one that was seen last is the last.
    readers: VecDeque<Reader>,
    /// What they have passed, oldest first. Some may have left otherwise.
    behind: VecDeque<(PageRef, PageSize)>,
}

impl Readers {
    /// A reader is at `at`: where it was, no farther back than `step`, or `at` if it is a new one.
    fn seen(&mut self, key: SpaceKey, at: u64, step: u64) -> u64 {
        let is_near = |reader: &Reader| reader.key == key && reader.at <= at && at - reader.at <= step;
        let near = (0..self.readers.len()).filter(|&i| is_near(&self.readers[i]));
        let was = match near.max_by_key(|&i| self.readers[i].at) {
            Some(index) => self.readers.remove(index).expect("just found").at,
            None => at,
        };
        if self.readers.len() >= READERS_MAX {
            self.readers.pop_front();
        }
        self.readers.push_back(Reader { key, at });
        was
    }

    /// A reader is about to come to this page, within `step`.
    pub(super) fn is_ahead(&self, page: PageRef, step: u64) -> bool {
        let reaches = |reader: &Reader| reader.at <= page.first && page.first - reader.at < step;
        self.readers.iter().any(|reader| reader.key == page.space && reaches(reader))
    }

    fn passed(&mut self, page: PageRef, size: PageSize) {
        if self.behind.len() >= BEHIND_MAX {
            self.behind.pop_front();
        }
        self.behind.push_back((page, size));
    }

    /// Pages for which this is not so are not behind a reader any more.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(PageRef) -> bool) {
        self.behind.retain(|&(page, _)| stays(page));
    }

    pub(super) fn next(&mut self) -> Option<(PageRef, PageSize)> {
        self.behind.pop_front()
    }

    /// Directly after [`Self::next`].
    pub(super) fn put_back(&mut self, page: PageRef, size: PageSize) {
        self.behind.push_front((page, size));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.behind.len()
    }
}

impl Borrower {
    /// A thread touches `base` of a range that is gone through in order: the whole pages that it has passed are behind it.
    pub(super) fn read_on(&mut self, key: SpaceKey, base: u64) {
        let at = self.size_at(key, base).first(base);
        let step = self.reader_step();
        let mut left = BaseRange::new(self.readers.seen(key, at, step), at);
        let Self { spaces, readers, .. } = self;
        let Some(space) = spaces.get(&key) else { return };
        while !left.is_empty()
            && let Some(part) = space.table.next_used(left)
        {
            for (first, size) in space.table.queued_in(part) {
                let page = PageRef { space: key, first };
                let is_behind = first + size.base_pages() <= at && !readers.is_ahead(page, step);
                if is_behind && space.marks.at(first).pattern == Pattern::Sequential {
                    readers.passed(page, size);
                }
            }
            left = BaseRange::new(part.end, at);
        }
    }

    /// Base pages from one sight of a reader to the next, at most: what a stream has ahead at most, in fresh memory too, and as much again.
    pub(super) fn reader_step(&self) -> u64 {
        let window = self.prefetcher.window_max().0.min(self.limit / AHEAD_SHARE);
        STEP_WINDOWS * window.max(ZERO_AHEAD).max(self.page_largest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 4096;

    #[test]
    fn readers_are_told_apart_and_bounded() {
        let (mut readers, key) = (Readers::default(), SpaceKey(1));
        assert_eq!(readers.seen(key, 100, STEP), 100, "a new one");
        assert_eq!(readers.seen(key, 50_000, STEP), 50_000, "another");
        assert_eq!(readers.seen(key, 130, STEP), 100);
        assert_eq!(readers.seen(key, 50_016, STEP), 50_000);
        assert_eq!(readers.seen(SpaceKey(2), 140, STEP), 140, "of another space");
        assert_eq!(readers.seen(key, 120, STEP), 120, "behind the first: a third");
        assert_eq!(readers.seen(key, 150, STEP), 130, "the nearest");
        let is_ahead = |first| readers.is_ahead(PageRef { space: key, first }, STEP);
        assert!(!is_ahead(119) && is_ahead(120) && is_ahead(149), "of the third");
        assert!(is_ahead(149 + STEP) && !is_ahead(150 + STEP), "and of the first");
        assert_eq!(readers.seen(key, 151 + STEP, STEP), 151 + STEP, "too far");
        for n in 0..100 {
            readers.seen(key, 1 << 40 | n << 20, STEP);
        }
        assert_eq!(readers.readers.len(), READERS_MAX);
        for first in 0..3 * BEHIND_MAX as u64 {
            readers.passed(PageRef { space: key, first }, PageSize::SMALLEST);
        }
        assert_eq!(readers.len(), BEHIND_MAX);
        assert_eq!(
            readers.next().map(|(page, _)| page.first),
            Some(2 * BEHIND_MAX as u64),
            "the oldest are forgotten"
        );
    }
}
