//! ARC: recency against frequency, the share of each learned from what was wanted again too late.

use super::links::{Links, List};
use super::{Frames, Order};
use alloc::vec::Vec;

/// Where a page is, in the paper's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    /// Held, used once lately.
    T1,
    /// Held, used at least twice lately.
    T2,
    /// Left from T1, remembered.
    B1,
    /// Left from T2, remembered.
    B2,
}

/// Adaptive replacement cache (Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4).
///
/// The paper chooses the victim when it knows which page comes. Here the victim may be asked for earlier (the live agent evicts ahead,
/// in batches), so `p` moves when the page comes and holds from the next victim on, and the clause of REPLACE that asks whether the page
/// was in B2 is not there. The lists are trimmed when the page comes, to the paper's bounds.
#[derive(Debug, Default)]
pub struct Arc {
    places: Vec<Place>,
    links: Links,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
    frames: Frames,
    /// Target for the length of T1.
    p: usize,
    /// A victim that was put back.
    next: Option<Place>,
}

impl Arc {
    fn list(&mut self, place: Place) -> (&mut Links, &mut List) {
        let list = match place {
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
            Place::Nowhere => panic!("nowhere is no list"),
        };
        (&mut self.links, list)
    }

    fn add(&mut self, page: u32, place: Place) {
        *super::cell(&mut self.places, page) = place;
        let (links, list) = self.list(place);
        links.push_first(list, page);
    }

    fn take(&mut self, page: u32) {
        let (links, list) = self.list(self.places[page as usize]);
        links.remove(list, page);
        self.places[page as usize] = Place::Nowhere;
    }

    fn forget_last(&mut self, place: Place) {
        let (links, list) = self.list(place);
        let page = links.pop_last(list).expect("a list that is too long is not empty");
        self.places[page as usize] = Place::Nowhere;
    }

    /// Cases IV A and B of the paper: L1 has at most c pages, L1 and L2 together at most 2c.
    fn trim(&mut self) {
        let c = self.frames.count;
        while self.t1.len + self.b1.len > c && self.b1.len > 0 {
            self.forget_last(Place::B1);
        }
        while self.len() + self.b1.len + self.b2.len > 2 * c && self.b2.len > 0 {
            self.forget_last(Place::B2);
        }
    }
}

impl Order for Arc {
    fn len(&self) -> usize {
        self.t1.len + self.t2.len
    }

    #[inline]
    fn holds(&self, page: u32) -> bool {
        self.places.get(page as usize).is_some_and(|place| matches!(place, Place::T1 | Place::T2))
    }

    fn knows(&self, page: u32) -> bool {
        self.places.get(page as usize).is_some_and(|&place| place != Place::Nowhere)
    }

    fn inserted(&mut self, page: u32) {
        self.frames.inserted();
        match *super::cell(&mut self.places, page) {
            Place::Nowhere => self.add(page, Place::T1),
            Place::B1 => {
                // Case II: T1 was too short.
                self.p = (self.p + (self.b2.len / self.b1.len).max(1)).min(self.frames.count);
                self.take(page);
                self.add(page, Place::T2);
            }
            Place::B2 => {
                // Case III: T2 was too short.
                self.p = self.p.saturating_sub((self.b1.len / self.b2.len).max(1));
                self.take(page);
                self.add(page, Place::T2);
            }
            Place::T1 | Place::T2 => panic!("page {page} is inserted twice"),
        }
        self.trim();
    }

    #[inline]
    fn touched(&mut self, page: u32) {
        debug_assert!(self.holds(page));
        if self.places[page as usize] == Place::T2 && self.t2.first == page {
            return;
        }
        self.take(page);
        self.add(page, Place::T2);
    }

    fn victim(&mut self) -> Option<u32> {
        self.frames.full_with(self.len());
        let recent = match self.next.take() {
            Some(place) => place == Place::T1 && self.t1.len > 0,
            None => self.t1.len > self.p,
        };
        let place = if (recent || self.t2.len == 0) && self.t1.len > 0 { Place::T1 } else { Place::T2 };
        let (links, list) = self.list(place);
        let page = links.pop_last(list)?;
        self.add(page, if place == Place::T1 { Place::B1 } else { Place::B2 });
        Some(page)
    }

    fn put_back(&mut self, page: u32) {
        assert!(!self.holds(page), "page {page} is not the last victim");
        let place = match *super::cell(&mut self.places, page) {
            Place::B2 => Place::T2,
            _ => Place::T1,
        };
        if self.knows(page) {
            self.take(page);
        }
        self.places[page as usize] = place;
        let (links, list) = self.list(place);
        links.push_last(list, page);
        self.next = Some(place);
    }
}
