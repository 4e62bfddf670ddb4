//! S3-FIFO: three FIFO queues: small, main, ghost.

use super::links::{Links, List};
use super::{Frames, Order};
use alloc::vec::Vec;

/// The small queue's part of the frames is one in so many (the paper's 10%).
const SMALL_SHARE: usize = 10;
/// Touches are counted up to this (two bits).
const TOUCHES_MAX: u8 = 3;
/// A page of the small queue with more touches than this goes to the main queue.
const TOUCHES_TO_STAY: u8 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queue {
    #[default]
    Nowhere,
    Small,
    Main,
    /// It left from the small queue: only its name is kept.
    Ghost,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    queue: Queue,
    touches: u8,
}

/// S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1).
///
/// A page begins in the small queue, a tenth of the frames. At that queue's end it goes on to the main queue if it was touched more
/// than once, else it leaves and is remembered as a ghost; a ghost that comes back goes to the main queue at once. The main queue is a
/// CLOCK with a counter of two bits. There are as many ghosts as the main queue has frames.
#[derive(Debug, Default)]
pub struct S3Fifo {
    states: Vec<State>,
    links: Links,
    small: List,
    main: List,
    ghosts: List,
    frames: Frames,
    /// A victim that was put back.
    next: Option<u32>,
}

impl S3Fifo {
    fn put(&mut self, page: u32, queue: Queue) {
        *super::cell(&mut self.states, page) = State { queue, touches: 0 };
        match queue {
            Queue::Small => self.links.push_first(&mut self.small, page),
            Queue::Main => self.links.push_first(&mut self.main, page),
            Queue::Ghost => self.links.push_first(&mut self.ghosts, page),
            Queue::Nowhere => {}
        }
    }

    /// The small queue's victim: none if all of its pages went on to the main queue.
    fn leave_small(&mut self, ghosts_max: usize) -> Option<u32> {
        while let Some(page) = self.links.pop_last(&mut self.small) {
            if self.states[page as usize].touches > TOUCHES_TO_STAY {
                self.put(page, Queue::Main);
                continue;
            }
            self.put(page, Queue::Ghost);
            while self.ghosts.len > ghosts_max {
                let gone = self.links.pop_last(&mut self.ghosts).expect("there are ghosts");
                self.put(gone, Queue::Nowhere);
            }
            return Some(page);
        }
        None
    }

    fn leave_main(&mut self) -> Option<u32> {
        while let Some(page) = self.links.pop_last(&mut self.main) {
            let touches = self.states[page as usize].touches;
            if touches == 0 {
                self.put(page, Queue::Nowhere);
                return Some(page);
            }
            self.put(page, Queue::Main);
            self.states[page as usize].touches = touches - 1;
        }
        None
    }
}

impl Order for S3Fifo {
    const TOUCHES_IN_A_ROW: u32 = TOUCHES_MAX as u32;

    fn len(&self) -> usize {
        self.small.len + self.main.len
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        let state = self.states.get(page as usize);
        state.is_some_and(|state| matches!(state.queue, Queue::Small | Queue::Main))
    }

    fn knows(&self, page: u32) -> bool {
        self.states.get(page as usize).is_some_and(|state| state.queue != Queue::Nowhere)
    }

    #[inline]
    fn inserted(&mut self, page: u32) {
        self.frames.inserted();
        match super::cell(&mut self.states, page).queue {
            Queue::Nowhere => self.put(page, Queue::Small),
            Queue::Ghost => {
                self.links.remove(&mut self.ghosts, page);
                self.put(page, Queue::Main);
            }
            Queue::Small | Queue::Main => panic!("page {page} is inserted twice"),
        }
    }

    #[inline]
    fn touched(&mut self, page: u32) {
        debug_assert!(self.holds(page));
        let touches = &mut self.states[page as usize].touches;
        *touches = (*touches + 1).min(TOUCHES_MAX);
    }

    #[inline]
    fn victim(&mut self) -> Option<u32> {
        let frames = self.frames.full_with(self.len());
        let small_max = (frames / SMALL_SHARE).max(1);
        let ghosts_max = frames.saturating_sub(small_max);
        if let Some(page) = self.next.take().filter(|&page| self.small.last == page)
            && self.states[page as usize].touches == 0
        {
            return self.leave_small(ghosts_max);
        }
        let mut small_first = self.small.len >= small_max;
        while self.len() > 0 {
            let victim = if small_first { self.leave_small(ghosts_max) } else { self.leave_main() };
            if victim.is_some() {
                return victim;
            }
            // That queue is empty now; all of the small one may have gone on to the main one.
            small_first = !small_first;
        }
        None
    }

    fn put_back(&mut self, page: u32) {
        assert!(!self.holds(page), "page {page} is not the last victim");
        if super::cell(&mut self.states, page).queue == Queue::Ghost {
            self.links.remove(&mut self.ghosts, page);
        }
        // A page of the main queue comes back here too: this queue's end is the one that `next` can speak of.
        self.states[page as usize] = State { queue: Queue::Small, touches: 0 };
        self.links.push_last(&mut self.small, page);
        self.next = Some(page);
    }
}
