//! A lender wants memory back that holds the only copies of pages: they are taken home.
//!
//! ```text
//! handle_recall ─► in a buffer already, or: Get into one ─► Put at another lender with room ─► stored ─► Drop at the old one
//!                                                            └── nobody has room: WriteDisk ─► written ─►┘
//! ```
//!
//! The old lender keeps its copy until the new one is safe, so at no moment is there none; whatever fails on the way, the record
//! names the old lender again, which then has to do without the memory. Faults come first: few pages are under way at a time, and
//! only in buffers that evictions do not need.
//!
//! From the first time that a lender wants memory back, what leaves and no lender takes goes to the slot file too: else the pages that have
//! come home that way would fill the budget one by one as they are written.

use super::copies::{CopyIndex, LenderIndex, Stored};
use super::faults::Fetch;
use super::{Borrower, Effect};
use crate::ids::{Urgency, Version};
use crate::page_size::PageSize;
use crate::units::{BasePages, Instant};
use alloc::vec::Vec;

/// Pages that are on their way home at a time: a fault's page waits behind them at the lender.
const HOMING_MAX: u64 = 64;
/// Pages that move to one lender before the next is chosen.
const MOVES_TOGETHER: u32 = 64;

impl Borrower {
    /// A lender asks to have pages taken home; `room` is what it has left. Each of them that it really holds is dropped there, without haste,
    /// when it is safe elsewhere. Without pages it only tells of its room, on its disk too (nwcache-1999, section 3.1: OK).
    pub fn handle_recall(
        &mut self,
        now: Instant,
        lender: LenderIndex,
        room: BasePages,
        pages: impl Iterator<Item = (CopyIndex, Version)>,
    ) {
        self.waits_clock(now);
        self.handle_lender_room(lender, room);
        let mut pages = pages.peekable();
        if pages.peek().is_none() {
            self.lenders[usize::from(lender.0)].ring_full = false;
        }
        for (i, version) in pages {
            self.writes_late = true;
            if !self.knows_of(lender, i, version) {
                self.effects.push_back(Effect::Drop { lender, copy: i, version });
                continue;
            }
            self.drop_spare(i, lender);
            self.lead(i, lender);
            let c = self.copies.get(i);
            let held = c.lender == lender && c.at_lender == Stored::Yes;
            // What nobody refers to any more is dropped anyway.
            if held && c.refs > 0 && !c.recalled {
                self.copies.get_mut(i).recalled = true;
                self.lenders[usize::from(lender.0)].wanted_back += 1;
                self.recalls.push_back((i, version));
            }
        }
        self.advance(now);
    }

    /// Pages that lenders want back and whose turn to be taken home has not come.
    pub fn recalls_waiting(&self) -> usize {
        self.recalls.len()
    }

    /// Takes a few more pages home.
    pub(super) fn take_home(&mut self) {
        while let Some(&(i, version)) = self.recalls.front() {
            let wanted =
                self.copies.find_mut(i).is_some_and(|c| c.version == version && c.recalled && c.refs > 0);
            if wanted && self.needs_fetch(i) && self.homing >= HOMING_MAX.min(self.buffers_for_eviction()) {
                return;
            }
            self.recalls.pop_front();
            if wanted {
                self.take_home_one(i);
            }
        }
    }

    pub(super) fn needs_fetch(&self, i: CopyIndex) -> bool {
        let c = self.copies.get(i);
        c.buffer().is_none() && !c.busy() && c.disk != Stored::Yes
    }

    /// The next step of one copy that its lender wants back.
    fn take_home_one(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        assert!(c.recalled, "copy {} is not wanted back", i.0);
        if c.at_lender != Stored::Yes {
            return; // it is on its way to another
        }
        let (version, lender) = (c.version, c.lender);
        if c.fetching {
            // It is on its way for a fault: the answer goes on from there.
            let fetch = self.fetches.get_mut(&i).expect("it is being fetched");
            if !core::mem::replace(&mut fetch.recall, true) {
                self.homing += 1;
            }
        } else if c.disk == Stored::Yes {
            self.drop_at_lender(i, version);
        } else if c.stores_at_lenders() > 0 {
            // Once the mirrors have answered; see `mirror_answered`.
        } else if c.disk == Stored::Sending {
            // Once that is done; see `written_home`.
        } else if c.buffer().is_some() {
            self.move_out(i);
        } else {
            self.fetch_home(i, version, lender);
        }
    }

    /// Asks for a copy that goes on elsewhere when it has come.
    pub(super) fn fetch_home(&mut self, i: CopyIndex, version: Version, lender: LenderIndex) {
        let (targets, at_lender, recall, urgency) = (Vec::new(), Some(lender), true, Urgency::Behind);
        let (size, at_disk, marker) = (PageSize::SMALLEST, None, false);
        let number = self.number_behind(lender);
        let fetch = Fetch { version, targets, size, at_lender, at_disk, marker, recall, urgency, number };
        self.homing += 1;
        self.copies.get_mut(i).fetching = true;
        assert!(self.fetches.insert(i, fetch).is_none(), "a copy is fetched once at a time");
        self.effects.push_back(Effect::Get { lender, copy: i, version, message: 0, urgency });
    }

    /// A fetch of what its lender wanted back, or of what too few lenders have, has been answered. If it has not come, or no buffer was free
    /// for it, its turn comes again.
    pub(super) fn goes_on_home(&mut self, i: CopyIndex, version: Version) {
        // What nobody refers to any more is dropped when it is settled.
        if !self.copies.find_mut(i).is_some_and(|c| c.version == version && c.refs > 0) {
            return;
        }
        if !self.copies.get(i).recalled {
            self.goes_on_mending(i);
        } else if self.needs_fetch(i) {
            self.recalls.push_back((i, version));
        } else {
            self.take_home_one(i);
        }
    }

    /// A copy has gone from who wants it back, or has to stay there. False: nobody wants it back.
    pub(super) fn unmark_recalled(&mut self, i: CopyIndex) -> bool {
        let c = self.copies.get_mut(i);
        let wanted = core::mem::take(&mut c.recalled);
        let lender = c.old.unwrap_or(c.lender);
        self.lenders[usize::from(lender.0)].wanted_back -= u64::from(wanted);
        wanted
    }

    /// Sends a copy that is in a buffer to another lender, or to the disk if none has room.
    fn move_out(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        assert!(c.recalled && c.at_lender == Stored::Yes && !c.busy(), "copy {} is not to be moved", i.0);
        let old = c.lender;
        let Some(lender) = self.next_move(i, old) else {
            self.write_late(i);
            return;
        };
        // The buffer is read until the answer has come.
        self.unmark_reusable(i);
        let c = self.copies.get_mut(i);
        c.old = Some(old);
        c.offers = self.choice.offers(!self.config.disk);
        self.put(i, lender);
    }

    /// Where the next page goes that `old` wants back.
    fn next_move(&mut self, i: CopyIndex, old: LenderIndex) -> Option<LenderIndex> {
        let c = self.copies.get(i);
        let goes_on = |&(lender, left): &(LenderIndex, u32)| {
            left > 0 && lender != old && !c.is_at(lender) && self.lenders[usize::from(lender.0)].has_room()
        };
        self.moves_to = match self.moves_to.filter(goes_on) {
            Some((lender, left)) => Some((lender, left - 1)),
            None => {
                let has: Vec<LenderIndex> = c.places().map(|place| place.lender).collect();
                let lender = self.next_lender_with_room(|lender| lender != old && !has.contains(&lender));
                lender.map(|lender| (lender, MOVES_TOGETHER - 1))
            }
        };
        self.moves_to.map(|(lender, _)| lender)
    }

    /// Writes a copy that is in a buffer to the slot file.
    pub(super) fn write_late(&mut self, i: CopyIndex) {
        self.unmark_reusable(i);
        let c = self.copies.get_mut(i);
        assert_eq!(c.disk, Stored::No, "copy {} is on the disk already", i.0);
        c.disk = Stored::Sending;
        let buffer = c.buffer().expect("only what is in a buffer can be written");
        self.stores_in_flight += 1;
        self.effects.push_back(Effect::WriteDisk { copy: i, buffer });
    }

    /// A copy has been written, or could not be: if its lender wants it back, it may have it now, or has to keep it.
    pub(super) fn written_home(&mut self, i: CopyIndex, written: bool) {
        let c = self.copies.get(i);
        if !c.recalled || c.at_lender != Stored::Yes {
            return;
        }
        if !written {
            // The lender asks again after a while. The others that wait would fare no better.
            self.unmark_recalled(i);
            for (i, version) in core::mem::take(&mut self.recalls) {
                if self.copies.find_mut(i).is_some_and(|c| c.version == version && c.old.is_none()) {
                    self.unmark_recalled(i);
                    self.needs_mending(i); // if too few have it, that was to be seen to when it had moved
                }
            }
        } else if !c.fetching {
            self.drop_at_lender(i, c.version);
        }
    }

    /// If another lender has taken it, the old one may forget it.
    pub(super) fn moved(&mut self, i: CopyIndex) {
        if self.copies.get(i).old.is_none() {
            return;
        }
        self.unmark_recalled(i);
        let c = self.copies.get_mut(i);
        let lender = c.old.take().expect("looked at above");
        c.drained = false;
        let version = c.version;
        self.forget_at(lender, i, version);
        self.note_home(i);
        self.needs_mending(i);
    }

    /// The new lender has not taken it, or is lost: the old one has it as before, and still wants it back. False: it was not on its way from one to another.
    pub(super) fn stays(&mut self, i: CopyIndex) -> bool {
        let c = self.copies.get_mut(i);
        let Some(lender) = c.old.take() else { return false };
        assert!(c.recalled && c.at_lender == Stored::Sending, "copy {} was not on its way", i.0);
        c.lender = lender;
        c.at_lender = Stored::Yes;
        let version = c.version;
        self.lent -= 1;
        // In front of those that must be fetched: it has a buffer.
        self.recalls.push_front((i, version));
        true
    }

    /// A lender is lost that wanted these back: they are on their way to another, from a buffer.
    pub(super) fn forget_old(&mut self, lender: LenderIndex) {
        let theirs: Vec<CopyIndex> =
            self.copies.iter_live().filter(|(_, c)| c.old == Some(lender)).map(|(i, _)| i).collect();
        for i in theirs {
            self.unmark_recalled(i);
            let c = self.copies.get_mut(i);
            (c.old, c.drained) = (None, false);
            self.lenders[usize::from(lender.0)].held -= 1;
            self.lent -= 1;
        }
    }
}
