//! Pages of one connection that only the disk has, and that are not answered yet.
//!
//! Some are being read: what has been read is in memory until the borrower takes it, so they are few. The others stand here, what threads wait for first, and cost
//! little. So a disk that is slow keeps nobody from reading on: the borrower may want to know whether the lender is there.

use crate::behind::{Asked, take_named};
use crate::limits::{BEHIND_FRAME_PAGES, READING_PAGES_MAX, TO_READ_PAGES_MAX};
use loam_core::ids::Urgency;
use loam_wire::PageRef;
use loam_wire::limits::REQUEST_PAGES_MAX;
use std::collections::VecDeque;

const _: () = assert!(BEHIND_FRAME_PAGES <= REQUEST_PAGES_MAX);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct DiskReads {
    /// Pages that are being read.
    reading: usize,
    urgent: VecDeque<Asked>,
    behind: VecDeque<Asked>,
}

impl DiskReads {
    /// Another request fits, whatever of it is on the disk.
    pub(crate) fn has_room(&self) -> bool {
        self.urgent.len() + self.behind.len() + REQUEST_PAGES_MAX <= TO_READ_PAGES_MAX
    }

    /// One more, behind those of its urgency.
    pub(crate) fn push(&mut self, asked: Asked, urgency: Urgency) {
        assert!(
            self.urgent.len() + self.behind.len() < TO_READ_PAGES_MAX,
            "requests are taken only while there is room"
        );
        match urgency {
            Urgency::Waited => self.urgent.push_back(asked),
            Urgency::Behind => self.behind.push_back(asked),
        }
    }

    /// Threads wait by now for what is named here; `into` is for the list.
    pub(crate) fn hurry(&mut self, named: &[PageRef], into: &mut Vec<Asked>) {
        take_named(&mut self.behind, named, into);
        self.urgent.extend(into.drain(..));
    }

    /// Takes out what is to be read next, if it may be read now: it is being read from here on.
    pub(crate) fn next(&mut self) -> Option<(Asked, Urgency)> {
        if self.reading >= READING_PAGES_MAX {
            return None;
        }
        let urgent = self.urgent.pop_front().map(|asked| (asked, Urgency::Waited));
        let next = urgent.or_else(|| self.behind.pop_front().map(|asked| (asked, Urgency::Behind)))?;
        self.reading += 1;
        Some(next)
    }

    /// So many that were being read are answered.
    pub(crate) fn answered(&mut self, pages: usize) {
        assert!(pages <= self.reading, "an answer is of what was read");
        self.reading -= pages;
    }

    /// Nobody wants what is not being read any more.
    pub(crate) fn forget(&mut self) {
        (self.urgent, self.behind) = Default::default();
    }

    /// Gives memory back if nothing stands here.
    pub(crate) fn shrink(&mut self) {
        for pages in [&mut self.urgent, &mut self.behind] {
            if pages.is_empty() {
                pages.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::ids::Version;

    fn asked(index: u64) -> Asked {
        Asked { request: 1, page: PageRef::new(index, Version(1)) }
    }

    #[test]
    fn as_many_as_may_be_are_read_at_a_time_and_what_is_waited_for_first() {
        let mut reads = DiskReads::default();
        let (most, behind) = (READING_PAGES_MAX as u64, 2 * READING_PAGES_MAX as u64);
        (0..behind).for_each(|index| reads.push(asked(index), Urgency::Behind));
        reads.push(asked(behind), Urgency::Waited);
        let mut named = Vec::new();
        reads.hurry(&[asked(behind - 1).page, asked(behind + 7).page], &mut named);
        assert!(named.is_empty());
        let mut taken = Vec::new();
        while let Some((asked, urgency)) = reads.next() {
            taken.push((asked.page.index(), urgency));
        }
        assert_eq!(taken.len(), READING_PAGES_MAX);
        assert_eq!(taken[..2], [(behind, Urgency::Waited), (behind - 1, Urgency::Waited)]);
        assert!(taken[2..].iter().zip(0..).all(|(took, index)| *took == (index, Urgency::Behind)));
        reads.answered(1);
        assert_eq!(reads.next().map(|(asked, _)| asked.page.index()), Some(most - 2));
        assert!(reads.next().is_none());
        reads.forget();
        reads.answered(READING_PAGES_MAX);
        assert!(reads.next().is_none());
    }

    #[test]
    fn there_is_room_for_a_whole_request_or_none() {
        let mut reads = DiskReads::default();
        let mut index = 0;
        while reads.has_room() {
            for _ in 0..REQUEST_PAGES_MAX {
                reads.push(asked(index), Urgency::Waited);
                index += 1;
            }
        }
        assert_eq!(index, TO_READ_PAGES_MAX as u64);
    }
}
