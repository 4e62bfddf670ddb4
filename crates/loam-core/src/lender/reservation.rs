//! Memory that is set aside for one borrower (regions-2010, section III.B: it is reserved before it is used, and then nobody else's; DESIGN.md,
//! section 7).
//!
//! A reservation is a number of base pages, not a place: pages come and go in any slot, are found by their names, and a slab of slots has no
//! contiguous room to promise. (Where places matter, for memory that programs map, the ledger is [`crate::region::Spans`].) What is promised:
//!
//! - a borrower that stores fewer pages here than it has reserved is not refused, whatever others put and however low the limit falls (but for a moment,
//!   while reads keep freed slots back or memory is being given back; then it is told, [`super::Effect::Room`]);
//! - what it puts within its reservation is *pinned*: neither dropped nor recalled for the limit's sake, nor replaced by other pages, until it
//!   drops them or is gone;
//! - no page is promised twice: what is stored, what is on its way, and what is reserved and not used are together within the limit, but for spare
//!   copies, which leave for it.
//!
//! ```text
//!            pinned     placing     unused
//!   of one  ├──────────┼───────────┼────────────┤      reserved
//!   of all   stored     in slots    pledged: no room for anybody else
//! ```
//!
//! Which pages are pinned is settled when they are put. Lowering a reservation frees what is unused of it at once; pages that are pinned stay so.

use super::{Borrower, Lender, SlotTable};
use crate::ids::SpaceId;
use crate::units::{BasePages, Bytes};

/// One borrower's reservation, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// What it was promised.
    pub(super) reserved: u64,
    /// Stored within it; after it was lowered, perhaps more than it.
    pub(super) pinned: u64,
    /// In slots that are being written; whether they will be pinned is not settled.
    placing: u64,
}

impl Share {
    /// What it may still put whatever others do, beside what is being written.
    pub(super) fn unused(self) -> u64 {
        self.reserved.saturating_sub(self.pinned + self.placing)
    }

    /// What nobody else can have as long as it has this.
    fn kept(self) -> u64 {
        self.reserved.max(self.pinned)
    }
}

/// There is no room for such a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch {
    /// The most that it could be now, what it is already included.
    pub most: BasePages,
}

impl Lender {
    /// At most `pages` may be reserved, by all borrowers together. (None, until this is called.)
    pub fn with_reservable(mut self, pages: BasePages) -> Self {
        self.reservable = BasePages(pages.0.min(self.capacity.0));
        self
    }

    /// What may be reserved by all together.
    pub fn reservable(&self) -> BasePages {
        self.reservable
    }

    /// What is reserved by all together.
    pub fn reserved(&self) -> BasePages {
        BasePages(self.slots.kept_pages())
    }

    /// What a borrower has reserved.
    ///
    /// # Panics
    /// Without a connection.
    pub fn reservation(&self, space: SpaceId) -> BasePages {
        BasePages(self.borrowers.get(&space).expect("its connection is open").share.reserved)
    }

    /// The most that a borrower could have reserved now, what it has already included. `None`: one that comes new.
    ///
    /// # Panics
    /// If it is named and has no connection.
    pub fn reservation_max(&self, space: Option<SpaceId>) -> BasePages {
        let named = |space: SpaceId| self.borrowers.get(&space).expect("its connection is open").share;
        let own = space.map_or(Share::default(), named);
        let below_reservable = (self.reservable.0 + own.kept()).saturating_sub(self.slots.kept_pages());
        // Spare copies leave for it. The only copies of others' pages do not.
        let firm = self.firm_pages();
        let below_limit =
            own.pinned + own.placing + own.unused() + self.slots.limit_pages().saturating_sub(firm);
        BasePages(below_reservable.min(below_limit).max(own.reserved))
    }

    /// A borrower's reservation is `pages` from now on, in place of what it was. Asking again for the same changes nothing.
    ///
    /// # Errors
    /// [`TooMuch`]; nothing has changed.
    ///
    /// # Panics
    /// Without a connection.
    pub fn reserve_memory(&mut self, space: SpaceId, pages: BasePages) -> Result<(), TooMuch> {
        let most = self.reservation_max(Some(space));
        if pages > most {
            return Err(TooMuch { most });
        }
        if self.slots.excess_pages() == 0 {
            // What leaves for it is a round of its own.
            self.shrink.rest();
        }
        self.change_share(space, |share| share.reserved = pages.0);
        Ok(())
    }

    /// What a borrower may put whatever others do.
    pub(super) fn own_room(&self, space: SpaceId) -> u64 {
        self.borrowers[&space].share.unused()
    }

    /// Something is pledged to it, and there are slots for that.
    pub(super) fn may_use_pledge(&self, borrower: &Borrower) -> bool {
        let own = borrower.share.unused();
        own > 0 && self.slots.free_pages_of(own) > 0
    }

    /// One of those who were refused what was pledged to them can be told that there is room: reads kept it back.
    fn can_be_told(&self, space: SpaceId) -> bool {
        self.borrowers.get(&space).is_none_or(|b| b.share.unused() == 0 || self.may_use_pledge(b))
    }

    pub(super) fn has_refused_to_tell(&self) -> bool {
        self.refused.iter().any(|&space| self.can_be_told(space))
    }

    /// The next of them, who hears it from now on. Whoever has gone meanwhile, or has used what was pledged, does not.
    pub(super) fn poll_refused(&mut self) -> Option<SpaceId> {
        while let Some(space) = self.refused.iter().copied().find(|&space| self.can_be_told(space)) {
            self.refused.remove(&space);
            if self.borrowers.get(&space).is_some_and(|b| b.connections > 0 && b.share.unused() > 0) {
                return Some(space);
            }
        }
        None
    }

    /// Less is reserved than was, and those who were refused have not been told ([`Self::told_room`]). Not while there is no room, or more of it comes.
    pub fn gave_room(&self) -> bool {
        self.slots.gave_room && self.leaving.is_empty() && self.free() > Bytes(0)
    }

    /// Those who were refused have been told of the room that there is.
    pub fn told_room(&mut self) {
        self.slots.gave_room = false;
    }

    /// Slots for a borrower's pages were taken from the table.
    pub(super) fn placing(&mut self, space: SpaceId, pages: u64) {
        self.change_share(space, |share| share.placing += pages);
    }

    /// One of these is not used after all.
    pub(super) fn not_placed(&mut self, space: SpaceId) {
        self.change_share(space, Share::settle);
    }

    /// One of these is stored; whether it is pinned.
    pub(super) fn placed(&mut self, space: SpaceId) -> bool {
        let mut pinned = false;
        self.change_share(space, |share| {
            share.settle();
            pinned = share.pinned < share.reserved;
            share.pinned += u64::from(pinned);
        });
        pinned
    }

    /// A pinned page of a borrower has gone.
    pub(super) fn unpinned(&mut self, space: SpaceId) {
        self.change_share(space, |share| {
            assert!(share.pinned > 0, "a pinned page that nobody counted");
            share.pinned -= 1;
        });
    }

    /// A borrower goes on with nothing: neither pages nor a reservation.
    pub(super) fn share_ends(&mut self, space: SpaceId) {
        self.change_share(space, |share| (share.reserved, share.pinned) = (0, 0));
    }

    fn change_share(&mut self, space: SpaceId, change: impl FnOnce(&mut Share)) {
        let share = &mut self.borrowers.get_mut(&space).expect("its connection is open").share;
        share.change(&mut self.slots, change);
    }
}

impl Share {
    /// Changes it, and with it what the table keeps for those who have reserved.
    pub(super) fn change(&mut self, slots: &mut SlotTable, change: impl FnOnce(&mut Self)) {
        let before = *self;
        change(self);
        slots.pledge((before.kept(), before.unused()), (self.kept(), self.unused()));
    }

    fn settle(&mut self) {
        assert!(self.placing > 0, "a slot that nobody has reserved");
        self.placing -= 1;
    }
}
