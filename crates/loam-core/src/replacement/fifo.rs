//! FIFO: the page that came first leaves first.

use super::Order;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// First in, first out. Touches change nothing.
#[derive(Debug, Default)]
pub struct Fifo {
    held: Vec<bool>,
    queue: VecDeque<u32>,
}

impl Order for Fifo {
    const TOUCHES_IN_A_ROW: u32 = 0;

    fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        self.held.get(page as usize).is_some_and(|&held| held)
    }

    #[inline]
    fn inserted(&mut self, page: u32) {
        let held = core::mem::replace(super::cell(&mut self.held, page), true);
        assert!(!held, "page {page} is inserted twice");
        self.queue.push_back(page);
    }

    #[inline]
    fn touched(&mut self, _: u32) {}

    #[inline]
    fn victim(&mut self) -> Option<u32> {
        let page = self.queue.pop_front()?;
        self.held[page as usize] = false;
        Some(page)
    }

    fn put_back(&mut self, page: u32) {
        let held = core::mem::replace(super::cell(&mut self.held, page), true);
        assert!(!held, "page {page} is not the last victim");
        self.queue.push_front(page);
    }
}
