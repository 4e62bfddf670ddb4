//! A disk controller and its cache (section 3.1).
//!
//! A page that is swapped out gets a slot and an ACK, or a NACK, which is remembered in a FIFO queue; when a slot becomes free the first of
//! these gets an OK, with the slot kept for it. Slots of pages that were read are given to writes ("writes are given preference over prefetches in the cache").
//! The arm does what came first, be it a read or a page to write (unless it is told to prefer one kind); pages that came one after the other and are consecutive are written at once.

#[cfg(test)]
mod tests;

use super::config::First;
use super::disk::Layout;
use std::collections::VecDeque;

/// A page's contents in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The page.
    pub page: u32,
    /// Which contents.
    pub version: u32,
    /// When it came, in the controller's own count.
    order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    /// Kept for a page that was promised a slot.
    Reserved,
    /// As on the disk when it was read or written.
    Clean(Held),
    Dirty(Held),
    Writing(Held),
}

/// A page that a node wants written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The page.
    pub page: u32,
    /// The page's own number of the swap-out.
    pub swap: u32,
    /// The node.
    pub node: usize,
}

/// The controller's answer to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the cache.
    Ack,
    /// There is no room; an OK will come.
    Nack,
}

/// What the arm does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Writes consecutive pages; [`Controller::written`] ends it.
    Write(Vec<Held>),
    /// Reads a page that somebody waits for.
    Read(u32),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Controller {
    slots: Vec<Slot>,
    refused: VecDeque<Request>,
    reads: VecDeque<(u64, u32)>,
    layout: Layout,
    first: First,
    clock: u64,
}

impl Controller {
    /// An empty cache of so many pages.
    ///
    /// # Panics
    /// If it has no room at all.
    pub fn new(pages: usize, layout: Layout, first: First) -> Self {
        assert!(pages > 0, "a cache of no pages");
        Self {
            slots: vec![Slot::Empty; pages],
            refused: VecDeque::new(),
            reads: VecDeque::new(),
            layout,
            first,
            clock: 0,
        }
    }

    /// Slots that a page to write could have now.
    pub fn room(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Empty | Slot::Clean(_))).count()
    }

    /// A page is swapped out to the disk.
    pub fn offer(&mut self, request: Request, version: u32) -> Answer {
        if self.overwrite(request.page, version) {
            return Answer::Ack;
        }
        if self.reserve() {
            self.fill(request.page, version);
            return Answer::Ack;
        }
        self.refused.push_back(request);
        Answer::Nack
    }

    /// Keeps a slot: an empty one, else that of the clean page that has been here longest. False: there is none.
    pub fn reserve(&mut self) -> bool {
        let slot = self.slot_to_use();
        if let Some(slot) = slot {
            self.slots[slot] = Slot::Reserved;
        }
        slot.is_some()
    }

    fn slot_to_use(&self) -> Option<usize> {
        let key = |at: &usize| match self.slots[*at] {
            Slot::Empty => Some(0),
            Slot::Clean(held) => Some(held.order),
            _ => None,
        };
        (0..self.slots.len()).filter(|at| key(at).is_some()).min_by_key(|at| key(at))
    }

    /// The first that was refused may send its page again: a slot is kept for it.
    pub fn grant(&mut self) -> Option<Request> {
        if self.refused.is_empty() || !self.reserve() {
            return None;
        }
        self.refused.pop_front()
    }

    /// Somebody who was refused does not want to send any more. False: there is no such one, since an OK is on its way.
    pub fn withdraw(&mut self, request: Request) -> bool {
        let at = self.refused.iter().position(|of| *of == request);
        at.and_then(|at| self.refused.remove(at)).is_some()
    }

    /// A slot that was kept is not needed.
    ///
    /// # Panics
    /// If none is kept.
    pub fn release(&mut self) {
        let slot = self.slots.iter_mut().find(|slot| **slot == Slot::Reserved).expect("a slot was kept");
        *slot = Slot::Empty;
    }

    /// A page comes for which a slot was kept.
    ///
    /// # Panics
    /// If none was.
    pub fn fill(&mut self, page: u32, version: u32) {
        if self.overwrite(page, version) {
            return self.release();
        }
        for slot in &mut self.slots {
            if matches!(slot, Slot::Clean(held) if held.page == page) {
                *slot = Slot::Empty;
            }
        }
        self.clock += 1;
        let held = Held { page, version, order: self.clock };
        let slot = self.slots.iter_mut().find(|slot| **slot == Slot::Reserved).expect("a slot was kept");
        *slot = Slot::Dirty(held);
    }

    /// A page that waits here to be written gets new contents.
    fn overwrite(&mut self, page: u32, version: u32) -> bool {
        let of_page = |slot: &&mut Slot| matches!(slot, Slot::Dirty(held) if held.page == page);
        let Some(Slot::Dirty(held)) = self.slots.iter_mut().find(of_page) else { return false };
        assert!(version >= held.version, "page {page}: version {version} comes after {}", held.version);
        held.version = version;
        true
    }

    /// The newest contents that are here.
    pub fn find(&self, page: u32) -> Option<u32> {
        let here = self.slots.iter().filter_map(|slot| match slot {
            Slot::Dirty(held) | Slot::Writing(held) | Slot::Clean(held) if held.page == page => {
                Some(held.version)
            }
            _ => None,
        });
        here.max()
    }

    /// Somebody waits for a page that is not here.
    pub fn read(&mut self, page: u32) {
        self.clock += 1;
        self.reads.push_back((self.clock, page));
    }

    /// Nobody has to read a page for those any more that wait for it. False: nobody waited.
    pub fn take_read(&mut self, page: u32) -> bool {
        let at = self.reads.iter().position(|&(_, of)| of == page);
        at.and_then(|at| self.reads.remove(at)).is_some()
    }

    /// What the arm does next. It does one thing at a time.
    ///
    /// # Panics
    /// If it is still writing.
    pub fn next_job(&mut self) -> Option<Job> {
        assert!(!self.slots.iter().any(|slot| matches!(slot, Slot::Writing(_))), "one thing at a time");
        let mut dirty: Vec<Held> = self
            .slots
            .iter()
            .filter_map(|slot| if let Slot::Dirty(held) = slot { Some(*held) } else { None })
            .collect();
        dirty.sort_by_key(|held| held.order);
        let oldest = dirty.first().map(|held| held.order);
        let reads_first = |order: u64| match self.first {
            First::WhatCame => oldest.is_none_or(|oldest| order < oldest),
            First::Reads => true,
            First::Writes => oldest.is_none(),
        };
        if let Some(&(order, page)) = self.reads.front()
            && reads_first(order)
        {
            self.reads.pop_front();
            return Some(Job::Read(page));
        }
        oldest?;
        let follows = |pair: &[Held]| {
            pair[1].page == pair[0].page + 1 && self.layout.next_on_disk(pair[0].page) == pair[1].page
        };
        let run = 1 + dirty.windows(2).take_while(|pair| follows(pair)).count();
        dirty.truncate(run);
        for slot in &mut self.slots {
            if let Slot::Dirty(held) = *slot
                && dirty.contains(&held)
            {
                *slot = Slot::Writing(held);
            }
        }
        Some(Job::Write(dirty))
    }

    /// The write has ended; its pages stay as clean ones, unless newer contents have come.
    pub fn written(&mut self) {
        for at in 0..self.slots.len() {
            if let Slot::Writing(held) = self.slots[at] {
                let newer = |slot: &Slot| matches!(slot, Slot::Dirty(other) if other.page == held.page);
                let is_newer = self.slots.iter().any(newer);
                self.slots[at] = if is_newer { Slot::Empty } else { Slot::Clean(held) };
            }
        }
    }

    /// A page was read ahead; it is kept if there is a slot that no page to write has, and no page of the same sweep.
    pub fn read_ahead(&mut self, page: u32, version: u32, sweep_began: u64) -> bool {
        if self.find(page).is_some() {
            return true;
        }
        let Some(at) = self.slot_to_use() else { return false };
        if matches!(self.slots[at], Slot::Clean(held) if held.order > sweep_began) {
            return false;
        }
        self.clock += 1;
        self.slots[at] = Slot::Clean(Held { page, version, order: self.clock });
        true
    }

    /// The controller's own count of what came, to tell a sweep's pages from older ones.
    pub fn clock(&self) -> u64 {
        self.clock
    }
}
