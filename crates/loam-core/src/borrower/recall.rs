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

use super::Borrower;
use super::copies::{CopyIndex, LenderIndex, Stored};
use super::faults::Fetch;
use crate::ids::Version;
use crate::units::{BasePages, Instant};
use alloc::vec::Vec;

use super::Effect;

/// Pages that are on their way home at a time: a fault's page waits behind them at the lender.
const HOMING_MAX: u64 = 64;

impl Borrower {
    /// A lender asks to have pages taken home; `room` is what it has left. Each of them that it really holds is dropped there, without haste,
    /// when it is safe elsewhere. Without pages it only tells of its room.
    pub fn handle_recall(
        &mut self,
        now: Instant,
        lender: LenderIndex,
        room: BasePages,
        pages: impl Iterator<Item = (CopyIndex, Version)>,
    ) {
        self.waits_clock(now);
        self.handle_lender_room(lender, room);
        for (i, version) in pages {
            self.lenders[usize::from(lender.0)].wants_back = true;
            let Some(c) = self.copies.find_mut(i) else { continue };
            let held = c.version == version && c.lender == lender && c.at_lender == Stored::Yes;
            // What nobody refers to any more is dropped anyway.
            if held && c.refs > 0 && !c.recalled {
                c.recalled = true;
                self.recalls.push_back((i, version));
            }
        }
        self.advance(now);
    }

    /// Pages that lenders want back and that are not taken home yet.
    pub fn recalls_waiting(&self) -> usize {
        self.recalls.len()
    }

    /// Takes a few more pages home.
    pub(super) fn take_home(&mut self) {
        while let Some(&(i, version)) = self.recalls.front() {
            let wanted = self.copies.find_mut(i).is_some_and(|c| {
                c.version == version && c.recalled && c.at_lender == Stored::Yes && c.refs > 0
            });
            if wanted && self.needs_fetch(i) && self.homing >= HOMING_MAX.min(self.buffers_for_eviction()) {
                return;
            }
            self.recalls.pop_front();
            if wanted {
                self.take_home_one(i);
            }
        }
    }

    fn needs_fetch(&self, i: CopyIndex) -> bool {
        let c = self.copies.get(i);
        c.buffer().is_none() && !c.busy() && c.disk != Stored::Yes
    }

    /// The next step of one copy that its lender wants back.
    pub(super) fn take_home_one(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if !c.recalled || c.at_lender != Stored::Yes || c.refs == 0 {
            return;
        }
        let (version, lender) = (c.version, c.lender);
        if c.fetching {
            // It is on its way for a fault: the answer goes on from there.
            let fetch = self.fetches.get_mut(&i).expect("it is being fetched");
            if !core::mem::replace(&mut fetch.recall, true) {
                self.homing += 1;
            }
        } else if c.disk == Stored::Yes {
            self.give_back(i);
        } else if c.disk == Stored::Sending {
            // Once that is done; see `handle_written`.
        } else if c.buffer().is_some() {
            self.move_out(i);
        } else {
            let (targets, at_lender, recall) = (Vec::new(), true, true);
            let fetch = Fetch { version, targets, at_lender, at_disk: None, marker: false, recall };
            self.homing += 1;
            self.copies.get_mut(i).fetching = true;
            assert!(self.fetches.insert(i, fetch).is_none(), "a copy is fetched once at a time");
            self.effects.push_back(Effect::Get { lender, copy: i, version, message: 0 });
        }
    }

    /// What its lender wanted back has come. If no buffer was free for it, its turn comes again.
    pub(super) fn homed(&mut self, i: CopyIndex, version: Version) {
        if self.needs_fetch(i) {
            self.recalls.push_back((i, version));
        } else {
            self.take_home_one(i);
        }
    }

    /// Sends a copy that is in a buffer to another lender, or to the disk if none has room.
    pub(super) fn move_out(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        assert!(c.recalled && c.at_lender == Stored::Yes && !c.busy(), "copy {} is not to be moved", i.0);
        let buffer = c.buffer().expect("only what is in a buffer can be sent");
        let (version, hash, old) = (c.version, c.hash, c.lender);
        // The buffer is read until the answer has come.
        self.unmark_reusable(i);
        self.stores_in_flight += 1;
        let n = self.lenders.len();
        let others = (0..n).map(|step| (self.lender_turn + step) % n);
        let to = others.into_iter().find(|&l| l != usize::from(old.0) && self.has_room(l));
        let Some(to) = to else {
            self.copies.get_mut(i).disk = Stored::Sending;
            self.effects.push_back(Effect::WriteDisk { copy: i, buffer });
            return;
        };
        self.lenders[to].room -= 1;
        let lender = LenderIndex(to as u8);
        let c = self.copies.get_mut(i);
        c.old = Some(old);
        c.lender = lender;
        c.at_lender = Stored::Sending;
        self.effects.push_back(Effect::Put { lender, copy: i, version, hash, buffer });
    }

    /// The lender that wants it back may forget it: it is safe elsewhere.
    pub(super) fn give_back(&mut self, i: CopyIndex) {
        let c = self.copies.get_mut(i);
        assert!(c.at_lender == Stored::Yes && c.disk == Stored::Yes, "copy {} is nowhere else", i.0);
        (c.at_lender, c.recalled) = (Stored::No, false);
        let (lender, version) = (c.lender, c.version);
        self.lenders[usize::from(lender.0)].held -= 1;
        self.effects.push_back(Effect::Drop { lender, copy: i, version });
    }

    /// Another lender has taken it: the old one may forget it.
    pub(super) fn moved(&mut self, i: CopyIndex) {
        let c = self.copies.get_mut(i);
        let Some(lender) = c.old.take() else { return };
        c.recalled = false;
        let version = c.version;
        self.lenders[usize::from(lender.0)].held -= 1;
        self.effects.push_back(Effect::Drop { lender, copy: i, version });
    }

    /// The new lender has not taken it, or is lost: the old one has it as before. False: it was not on its way from one to another.
    pub(super) fn stays(&mut self, i: CopyIndex) -> bool {
        let c = self.copies.get_mut(i);
        let Some(lender) = c.old.take() else { return false };
        c.lender = lender;
        c.at_lender = Stored::Yes;
        true
    }

    /// A lender is lost that wanted these back: they are on their way to another, from a buffer.
    pub(super) fn forget_old(&mut self, lender: LenderIndex) {
        let theirs: Vec<CopyIndex> =
            self.copies.iter_live().filter(|(_, c)| c.old == Some(lender)).map(|(i, _)| i).collect();
        for i in theirs {
            let c = self.copies.get_mut(i);
            (c.old, c.recalled) = (None, false);
            self.lenders[usize::from(lender.0)].held -= 1;
        }
    }
}
