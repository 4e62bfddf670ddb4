//! The state of each slot of the slab.
//!
//! A slot moves `free → reserved → stored → (limbo) → free`: reserved while the driver writes its contents,
//! limbo while a read that began before it was freed may still be copying it. A free slot is *warm* if it still has
//! memory behind it, *cold* if not. Warm slots above a small stock are handed to the driver to give their memory back
//! (`releasing`), then they are cold.
//!
//! The table has a limit on what may be stored, which may be below the count of its slots and below what is stored now. Free
//! slots above it are not given out, and those of them that are warm are released. Below it some may be *pledged*: no room but for the borrower that has
//! reserved them ([`super::reservation`]). What is reserved is kept even if the limit is lower.

use super::ages::Moment;
use super::runs::{RunSet, Slot, SlotRun};
use super::types::Standing;
use crate::ids::{ContentHash, Version};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Warm slots that are kept for the next puts while anything is stored: this many (4 MiB; few in tests, to get past them), …
const WARM_PAGES_MIN: u64 = if cfg!(test) { 4 } else { 1024 };
/// … or this part of what is stored. A borrower whose pages change drops as many as it puts: memory that went back to the system in
/// between would have to be had anew, which costs several times what storing a page does.
const WARM_SHARE: u64 = 8;
/// Releasing begins at so many times what is kept, and goes on down to it.
const WARM_SLACK: u64 = 2;
/// Slots released in one step (4 MiB), so that the driver's system call stays short.
const RELEASE_PAGES_MAX: u32 = if cfg!(test) { 3 } else { 1024 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Reserved,
    Stored,
    Limbo,
    Releasing,
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    hash: ContentHash,
    version: Version,
    used: Moment,
    /// The round of recalls in which it was last asked to be taken home; 0: in none.
    asked: u32,
    state: State,
    standing: Standing,
    /// It stays, whatever the limit.
    pinned: bool,
}

const EMPTY: Meta = Meta {
    hash: ContentHash(0),
    version: Version(0),
    used: Moment(0),
    asked: 0,
    state: State::Free,
    standing: Standing::Kept,
    pinned: false,
};
// The hash asks for 16 bytes at a time: what it does not use of the second 16 costs nothing.
const _: () = assert!(size_of::<Meta>() == 32);

/// Proof that a read of slots is under way: none that it may have seen is reused before it ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "give it back with `read_end`, or no slot is ever reused"]
pub struct ReadTicket(u64);

#[derive(Debug)]
pub(super) struct SlotTable {
    /// Grows to the highest slot ever used.
    meta: Vec<Meta>,
    warm: RunSet,
    cold: RunSet,
    /// Freed slots with the newest ticket that was out at the time; tickets never go down.
    limbo: VecDeque<(u64, SlotRun)>,
    readers: BTreeSet<u64>,
    ticket_last: u64,
    reserved_pages: u64,
    stored_pages: u64,
    limbo_pages: u64,
    releasing_pages: u64,
    /// Warm slots are being released until they are as few as are kept.
    shrinks: bool,
    capacity_pages: u64,
    limit_pages: u64,
    /// Reserved by borrowers, used or not.
    kept_pages: u64,
    /// What of that nobody uses.
    pledged_pages: u64,
    /// Less is reserved than was: see [`super::Lender::gave_room`].
    pub(super) gave_room: bool,
}

impl SlotTable {
    pub(super) fn new(capacity_pages: u32) -> Self {
        assert!(capacity_pages > 0, "a lender with no room");
        let mut cold = RunSet::default();
        cold.insert(SlotRun { first: Slot(0), pages: capacity_pages });
        Self {
            meta: Vec::new(),
            warm: RunSet::default(),
            cold,
            limbo: VecDeque::new(),
            readers: BTreeSet::new(),
            ticket_last: 0,
            reserved_pages: 0,
            stored_pages: 0,
            limbo_pages: 0,
            releasing_pages: 0,
            shrinks: false,
            capacity_pages: u64::from(capacity_pages),
            limit_pages: u64::from(capacity_pages),
            kept_pages: 0,
            pledged_pages: 0,
            gave_room: false,
        }
    }

    fn free_slots(&self) -> u64 {
        self.warm.pages() + self.cold.pages()
    }

    /// The limit as it works: what is reserved was promised.
    pub(super) fn limit_in_force(&self) -> u64 {
        self.limit_pages.max(self.kept_pages)
    }

    /// What the machine's limit leaves room for, whoever has it: free memory above that is wanted elsewhere, though it may have to be had again for
    /// those who have reserved it.
    fn below_limit(&self) -> u64 {
        self.limit_pages.saturating_sub(self.stored_pages + self.reserved_pages)
    }

    /// Slots that may be reserved now by one to whom nothing is pledged.
    pub(super) fn free_pages(&self) -> u64 {
        self.free_pages_of(0)
    }

    /// The same for one to whom `own` are pledged: at least these, if there are slots.
    pub(super) fn free_pages_of(&self, own: u64) -> u64 {
        self.may_take(self.free_slots(), own)
    }

    /// The same once the reads that are under way have ended, and memory that is being given back is.
    pub(super) fn coming_pages_of(&self, own: u64) -> u64 {
        self.may_take(self.free_slots() + self.limbo_pages + self.releasing_pages, own)
    }

    /// What one to whom `own` are pledged may take of `slots` that are free: its own in any case; beyond that, what is pledged to others stays free for
    /// them, however much room the limit leaves (slots may be in limbo).
    fn may_take(&self, slots: u64, own: u64) -> u64 {
        assert!(own <= self.pledged_pages, "a pledge that nobody counted");
        let below_limit = self.limit_in_force().saturating_sub(self.committed_pages() - own);
        slots.saturating_sub(self.pledged_pages - own).min(below_limit).max(slots.min(own))
    }

    /// Stored, being written, or pledged.
    pub(super) fn committed_pages(&self) -> u64 {
        self.stored_pages + self.reserved_pages + self.pledged_pages
    }

    /// What a borrower keeps, used or not, and what of that is unused, was `before` and is `now`.
    pub(super) fn pledge(&mut self, before: (u64, u64), now: (u64, u64)) {
        self.gave_room |= now.0 < before.0;
        self.kept_pages = self.kept_pages - before.0 + now.0;
        self.pledged_pages = self.pledged_pages - before.1 + now.1;
        assert!(self.kept_pages <= self.capacity_pages, "more is reserved than there is");
    }

    /// Reserved by borrowers, used or not.
    pub(super) fn kept_pages(&self) -> u64 {
        self.kept_pages
    }

    /// What of that nobody uses.
    #[cfg(test)]
    pub(super) fn pledged_pages(&self) -> u64 {
        self.pledged_pages
    }

    /// At most so many pages may be stored from now on.
    pub(super) fn set_limit(&mut self, pages: u64) {
        assert!(pages <= self.capacity_pages, "a limit above the capacity");
        self.limit_pages = pages;
    }

    pub(super) fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    /// Pages stored above the limit, or where others have reserved. None of them is pinned.
    pub(super) fn excess_pages(&self) -> u64 {
        (self.stored_pages + self.pledged_pages).saturating_sub(self.limit_in_force())
    }

    pub(super) fn stored_pages(&self) -> u64 {
        self.stored_pages
    }

    /// Version and hash of what a stored slot holds.
    pub(super) fn stored(&self, slot: Slot) -> (Version, ContentHash) {
        let meta = &self.meta[slot.0 as usize];
        assert_eq!(meta.state, State::Stored, "slot {} is read", slot.0);
        (meta.version, meta.hash)
    }

    /// When a stored slot was last used.
    pub(super) fn used(&self, slot: Slot) -> Moment {
        self.meta[slot.0 as usize].used
    }

    /// A stored slot is used now. Answers when it was used before, if that is another moment.
    pub(super) fn touch(&mut self, slot: Slot, now: Moment) -> Option<Moment> {
        let used = &mut self.meta[slot.0 as usize].used;
        // Threads take the time before they take the lock: it may seem to run backwards by a little.
        (*used < now).then(|| core::mem::replace(used, now))
    }

    /// What may become of a stored slot.
    pub(super) fn standing(&self, slot: Slot) -> Standing {
        self.meta[slot.0 as usize].standing
    }

    /// It stays, whatever the limit.
    pub(super) fn is_pinned(&self, slot: Slot) -> bool {
        self.meta[slot.0 as usize].pinned
    }

    pub(super) fn set_standing(&mut self, slot: Slot, standing: Standing) {
        let meta = &mut self.meta[slot.0 as usize];
        assert_eq!(meta.state, State::Stored, "slot {} becomes {standing:?}", slot.0);
        meta.standing = standing;
    }

    /// The round of recalls in which a stored slot was last asked for.
    pub(super) fn asked(&self, slot: Slot) -> u32 {
        self.meta[slot.0 as usize].asked
    }

    pub(super) fn ask(&mut self, slot: Slot, round: u32) {
        let meta = &mut self.meta[slot.0 as usize];
        assert_eq!(meta.state, State::Stored, "slot {} is recalled", slot.0);
        meta.asked = round;
    }

    /// Takes at most `pages` neighbouring free slots, warm ones first, for one to whom `own` are pledged.
    pub(super) fn reserve(&mut self, pages: u32, own: u64) -> Option<SlotRun> {
        let pages = self.free_pages_of(own).min(pages.into()) as u32;
        if pages == 0 {
            return None;
        }
        let run = self.warm.take(pages).or_else(|| self.cold.take(pages))?;
        let end = (run.first.0 + run.pages) as usize;
        if self.meta.len() < end {
            self.meta.resize(end, EMPTY);
        }
        self.change(run, State::Free, State::Reserved);
        self.reserved_pages += u64::from(run.pages);
        Some(run)
    }

    /// The contents of a reserved slot are written.
    pub(super) fn store(
        &mut self,
        slot: Slot,
        version: Version,
        hash: ContentHash,
        used: Moment,
        standing: Standing,
        pinned: bool,
    ) {
        let meta = &mut self.meta[slot.0 as usize];
        assert_eq!(meta.state, State::Reserved, "slot {} is stored", slot.0);
        *meta = Meta { hash, version, used, asked: 0, state: State::Stored, standing, pinned };
        self.reserved_pages -= 1;
        self.stored_pages += 1;
    }

    /// A reserved slot is not wanted after all. Nobody can have read it.
    pub(super) fn abort(&mut self, slot: Slot) {
        let run = SlotRun { first: slot, pages: 1 };
        self.change(run, State::Reserved, State::Free);
        self.reserved_pages -= 1;
        self.warm.insert(run);
    }

    /// Frees a stored slot, now or once the reads that are under way have ended.
    pub(super) fn free(&mut self, slot: Slot) {
        let run = SlotRun { first: slot, pages: 1 };
        self.stored_pages -= 1;
        if self.readers.is_empty() {
            self.change(run, State::Stored, State::Free);
            self.warm.insert(run);
            return;
        }
        self.change(run, State::Stored, State::Limbo);
        self.limbo_pages += 1;
        match self.limbo.back_mut() {
            Some((ticket, last)) if *ticket == self.ticket_last && last.first.0 + last.pages == slot.0 => {
                last.pages += 1;
            }
            _ => self.limbo.push_back((self.ticket_last, run)),
        }
    }

    pub(super) fn read_begin(&mut self) -> ReadTicket {
        self.ticket_last += 1;
        assert!(self.readers.insert(self.ticket_last));
        ReadTicket(self.ticket_last)
    }

    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub(super) fn read_end(&mut self, ticket: ReadTicket) {
        assert!(self.readers.remove(&ticket.0), "ticket {} is not out", ticket.0);
        let oldest = self.readers.first().copied().unwrap_or(u64::MAX);
        while let Some(&(ticket, run)) = self.limbo.front() {
            if ticket >= oldest {
                break;
            }
            self.limbo.pop_front();
            self.limbo_pages -= u64::from(run.pages);
            self.change(run, State::Limbo, State::Free);
            self.warm.insert(run);
        }
    }

    /// Warm slots that stay warm.
    fn keep(&self) -> u64 {
        let kept = match self.stored_pages {
            0 => 0,
            stored => WARM_PAGES_MIN.max(stored / WARM_SHARE),
        };
        kept.min(self.below_limit())
    }

    pub(super) fn release_wanted(&self) -> bool {
        let slack = if self.shrinks { 1 } else { WARM_SLACK };
        // Memory above the limit is wanted elsewhere now.
        self.warm.pages() > (self.keep() * slack).min(self.below_limit())
    }

    /// The next run whose memory the driver shall give back; nobody uses it until `released`.
    pub(super) fn release(&mut self) -> Option<SlotRun> {
        self.shrinks = self.release_wanted();
        if !self.shrinks {
            return None;
        }
        let over = self.warm.pages() - self.keep();
        let run = self.warm.take_last(over.min(RELEASE_PAGES_MAX.into()) as u32)?;
        self.change(run, State::Free, State::Releasing);
        self.releasing_pages += u64::from(run.pages);
        Some(run)
    }

    pub(super) fn released(&mut self, run: SlotRun) {
        self.change(run, State::Releasing, State::Free);
        self.releasing_pages -= u64::from(run.pages);
        self.cold.insert(run);
        self.check();
    }

    fn change(&mut self, run: SlotRun, from: State, to: State) {
        for slot in run.slots() {
            let meta = &mut self.meta[slot.0 as usize];
            assert_eq!(meta.state, from, "slot {} becomes {to:?}", slot.0);
            meta.state = to;
        }
    }

    /// Every slot is in exactly one state.
    pub(super) fn check(&self) {
        let counted = self.free_slots()
            + self.reserved_pages
            + self.stored_pages
            + self.limbo_pages
            + self.releasing_pages;
        assert_eq!(counted, self.capacity_pages, "a slot is lost or counted twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(table: &mut SlotTable) -> Slot {
        let slot = table.reserve(1, 0).expect("there is room").first;
        table.store(slot, Version(1), ContentHash(1), Moment(0), Standing::Kept, false);
        slot
    }

    #[test]
    fn a_borrower_that_drops_as_many_as_it_puts_has_no_memory_given_back() {
        let mut table = SlotTable::new(1000);
        let mut stored: VecDeque<Slot> = (0..800).map(|_| store(&mut table)).collect();
        for _ in 0..50 {
            // An eighth and more at a time, before the puts that take their place.
            for slot in stored.drain(..150) {
                table.free(slot);
            }
            assert_eq!(table.release(), None);
            stored.extend((0..150).map(|_| store(&mut table)));
            assert_eq!(table.release(), None);
        }
        assert_eq!(table.cold.pages(), 200, "the memory of before was used again");
        // One that shrinks gives back down to what is kept, and not a page at a time.
        for slot in stored.drain(..601) {
            table.free(slot);
        }
        while let Some(run) = table.release() {
            table.released(run);
        }
        assert_eq!(table.warm.pages(), 199 / WARM_SHARE, "down to what is kept, and no further");
        for slot in stored.drain(..) {
            table.free(slot);
        }
        while let Some(run) = table.release() {
            table.released(run);
        }
        assert_eq!((table.warm.pages(), table.cold.pages()), (0, 1000), "nothing is kept for nobody");
    }
}
