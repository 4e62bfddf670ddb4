//! One channel of the ring, and the queues through its pages.

use super::figures::RingFigures;
use super::ring::RingSlot;
use crate::ids::PageId;
use alloc::vec;
use alloc::vec::Vec;

/// Whose pages: in the paper one channel for each node, live one for each borrower at a lender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u64);

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not in the ring.
    Out,
    /// In the queue of its disk, since this tick.
    Waiting(u64),
    /// In its channel's list of held pages.
    Held,
    /// Part of this write.
    UnderWay(u64),
}

/// What the ring knows of one slot: 48 bytes for a page of 4096.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) page: PageId,
    pub(super) channel: Channel,
    pub(super) state: State,
    before: u32,
    behind: u32,
}

impl Entry {
    pub(super) const fn new(page: PageId, channel: Channel, state: State) -> Self {
        Self { page, channel, state, before: NONE, behind: NONE }
    }
}

/// A FIFO list through the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    pages: u64,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, pages: 0 };

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn first(&self) -> Option<RingSlot> {
        (self.pages > 0).then_some(RingSlot(self.first))
    }

    pub(super) fn push(&mut self, entries: &mut [Entry], slot: RingSlot) {
        let before = core::mem::replace(&mut self.last, slot.0);
        let entry = &mut entries[slot.0 as usize];
        (entry.before, entry.behind) = (before, NONE);
        match entries.get_mut(before as usize) {
            Some(entry) => entry.behind = slot.0,
            None => self.first = slot.0,
        }
        self.pages += 1;
    }

    pub(super) fn remove(&mut self, entries: &mut [Entry], slot: RingSlot) {
        let Entry { before, behind, .. } = entries[slot.0 as usize];
        match entries.get_mut(before as usize) {
            Some(entry) => entry.behind = behind,
            None => {
                assert_eq!(self.first, slot.0, "slot {} is in another queue", slot.0);
                self.first = behind;
            }
        }
        match entries.get_mut(behind as usize) {
            Some(entry) => entry.before = before,
            None => {
                assert_eq!(self.last, slot.0, "slot {} is in another queue", slot.0);
                self.last = before;
            }
        }
        self.pages -= 1;
    }
}

/// What one channel holds.
#[derive(Debug)]
pub(super) struct Pages {
    /// By disk: what the FIFO of that disk's interface has of this channel.
    pub(super) waiting: Vec<Queue>,
    pub(super) held: Queue,
    pub(super) figures: RingFigures,
    /// A page was refused, and room was not told since.
    pub(super) refused: bool,
    /// Room was short: what waits since an earlier tick lingers no longer.
    pub(super) hurried_before: u64,
    /// Nothing of it is to be written any more.
    pub(super) closed: bool,
}

impl Pages {
    pub(super) fn new(disks: usize) -> Self {
        Self {
            waiting: vec![Queue::EMPTY; disks],
            held: Queue::EMPTY,
            figures: RingFigures::default(),
            refused: false,
            hurried_before: 0,
            closed: false,
        }
    }

    /// Pages that take room on the channel.
    pub(super) fn load(&self) -> u64 {
        self.figures.load()
    }
}
