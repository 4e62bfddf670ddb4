//! Readers of memory that the program has said it goes through in order: what lies behind one leaves before all that the policy would choose.
//!
//! A reader is seen where it faults, or touches what was fetched ahead; what it has passed since the last time is behind it. It stays while there
//! is room for all.

use super::table::SpaceKey;
use super::{Borrower, PageRef, Pattern};
use crate::page_size::PageSize;
use alloc::collections::VecDeque;

/// Readers at a time; of more the one that was seen least recently is forgotten.
const READERS_MAX: usize = 32;
/// Base pages that a reader passes from one sight to the next, at most: several times what is fetched ahead. One farther on is another reader.
const STEP_MAX: u64 = 4096;
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
    /// A reader is at `at`: where it was, or `at` if it is a new one.
    fn seen(&mut self, key: SpaceKey, at: u64) -> u64 {
        let is_near = |reader: &Reader| reader.key == key && reader.at <= at && at - reader.at <= STEP_MAX;
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
        let was = self.readers.seen(key, at);
        let Some(space) = self.spaces.get(&key) else { return };
        for first in was..at {
            let Some(size) = space.table.queued(first) else { continue };
            if first + size.base_pages() <= at && space.marks.at(first).pattern == Pattern::Sequential {
                self.readers.passed(PageRef { space: key, first }, size);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_told_apart_and_bounded() {
        let (mut readers, key) = (Readers::default(), SpaceKey(1));
        assert_eq!(readers.seen(key, 100), 100, "a new one");
        assert_eq!(readers.seen(key, 50_000), 50_000, "another");
        assert_eq!(readers.seen(key, 130), 100);
        assert_eq!(readers.seen(key, 50_016), 50_000);
        assert_eq!(readers.seen(SpaceKey(2), 140), 140, "of another space");
        assert_eq!(readers.seen(key, 120), 120, "behind the first: a third");
        assert_eq!(readers.seen(key, 150), 130, "the nearest");
        assert_eq!(readers.seen(key, 151 + STEP_MAX), 151 + STEP_MAX, "too far");
        for n in 0..100 {
            readers.seen(key, 1 << 40 | n << 20);
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
