//! CLOCK: FIFO that passes over pages touched since it last came by.

use super::Order;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    NotHeld,
    /// Not touched since the hand came by, or since it was inserted.
    Untouched,
    Touched,
}

/// CLOCK with one bit (Corbató, "A paging experiment with the Multics system", MIT Project MAC, 1968).
///
/// The ring of frames and its hand are a queue whose front is the frame under the hand: a page that the hand passes over goes to the
/// back, and so does a page that comes, as it takes the frame that the hand just left. A page comes untouched.
#[derive(Debug, Default)]
pub struct Clock {
    marks: Vec<Mark>,
    queue: VecDeque<u32>,
}

impl Order for Clock {
    fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        self.marks.get(page as usize).is_some_and(|&mark| mark != Mark::NotHeld)
    }

    #[inline]
    fn inserted(&mut self, page: u32) {
        let mark = core::mem::replace(super::cell(&mut self.marks, page), Mark::Untouched);
        assert!(mark == Mark::NotHeld, "page {page} is inserted twice");
        self.queue.push_back(page);
    }

    #[inline]
    fn touched(&mut self, page: u32) {
        debug_assert!(self.holds(page));
        self.marks[page as usize] = Mark::Touched;
    }

    #[inline]
    fn victim(&mut self) -> Option<u32> {
        loop {
            let page = self.queue.pop_front()?;
            let mark = &mut self.marks[page as usize];
            if *mark == Mark::Touched {
                *mark = Mark::Untouched;
                self.queue.push_back(page);
            } else {
                *mark = Mark::NotHeld;
                return Some(page);
            }
        }
    }

    fn put_back(&mut self, page: u32) {
        let mark = core::mem::replace(super::cell(&mut self.marks, page), Mark::Untouched);
        assert!(mark == Mark::NotHeld, "page {page} is not the last victim");
        self.queue.push_front(page);
    }
}
