//! SIEVE: a FIFO queue with a hand that stays where it is.

use super::Order;
use super::links::{Links, List, NONE};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    NotHeld,
    Unvisited,
    Visited,
}

/// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1).
///
/// The hand goes from the oldest page to the newest and begins again. A visited page that it passes loses its mark but keeps its
/// place, so the hand sifts: what is new and unvisited leaves quickly, what was visited stays behind the hand.
#[derive(Debug)]
pub struct Sieve {
    marks: Vec<Mark>,
    links: Links,
    list: List,
    /// Where the hand goes on; nowhere: at the oldest page.
    hand: u32,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { marks: Vec::new(), links: Links::default(), list: List::default(), hand: NONE }
    }
}

impl Order for Sieve {
    fn len(&self) -> usize {
        self.list.len
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        self.marks.get(page as usize).is_some_and(|&mark| mark != Mark::NotHeld)
    }

    #[inline]
    fn inserted(&mut self, page: u32) {
        let mark = core::mem::replace(super::cell(&mut self.marks, page), Mark::Unvisited);
        assert!(mark == Mark::NotHeld, "page {page} is inserted twice");
        self.links.push_first(&mut self.list, page);
    }

    #[inline]
    fn touched(&mut self, page: u32) {
        debug_assert!(self.holds(page));
        self.marks[page as usize] = Mark::Visited;
    }

    #[inline]
    fn victim(&mut self) -> Option<u32> {
        if self.list.len == 0 {
            return None;
        }
        let mut at = self.hand;
        loop {
            if at == NONE {
                at = self.list.last;
            }
            let mark = &mut self.marks[at as usize];
            if *mark == Mark::Unvisited {
                *mark = Mark::NotHeld;
                break;
            }
            *mark = Mark::Unvisited;
            at = self.links.newer(at);
        }
        self.hand = self.links.newer(at);
        self.links.remove(&mut self.list, at);
        Some(at)
    }

    fn put_back(&mut self, page: u32) {
        let mark = core::mem::replace(super::cell(&mut self.marks, page), Mark::Unvisited);
        assert!(mark == Mark::NotHeld, "page {page} is not the last victim");
        match self.hand {
            NONE => self.links.push_first(&mut self.list, page),
            newer => self.links.insert_older(&mut self.list, newer, page),
        }
        self.hand = page;
    }
}
