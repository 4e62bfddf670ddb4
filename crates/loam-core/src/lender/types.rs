//! What a lender says to its driver, and what it is told.

use super::cache::{Drain, Forget, Stored};
use super::replace::Gone;
use super::runs::{Slot, SlotRun};
use super::shrink::Recall;
use crate::ids::{ContentHash, SpaceId};
use crate::staging::RingFigures;
use crate::units::Bytes;

/// What may become of a borrower's pages when their memory is wanted back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// It has each of them elsewhere too: they may be dropped, and give way to others' when there is no room.
    Spare,
    /// They may exist only here; it takes home those that it is asked for.
    Recallable,
    /// They may exist only here, and it cannot be asked.
    Kept,
    /// As [`Self::Recallable`], and each put says what becomes of the page ([`crate::ids::PutClass`]).
    Staging,
}

/// What may become of one page when its memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// This lender's disk has it, too: what is here saves a read from there.
    OnDisk,
    /// Its borrower can have it from elsewhere.
    Spare,
    /// Perhaps the only copy, or one of two that wait for another lender's disk: its borrower can be asked to take it home.
    Recallable,
    /// Perhaps the only copy, and its borrower cannot be asked.
    Kept,
    /// In the ring: it waits for this lender's disk.
    Staged,
}

pub(super) const STANDINGS: usize = 5;

impl Standing {
    /// The list of those that give way to others, if it is in one: the first list gives way first.
    pub(super) fn list(self) -> Option<usize> {
        match self {
            Self::OnDisk => Some(0),
            Self::Spare => Some(1),
            Self::Recallable | Self::Kept | Self::Staged => None,
        }
    }
}

impl Terms {
    /// What a page under these terms is if nothing else was said of it.
    pub(super) fn standing(self) -> Standing {
        match self {
            Self::Spare => Standing::Spare,
            Self::Recallable | Self::Staging => Standing::Recallable,
            Self::Kept => Standing::Kept,
        }
    }

    /// Some of its pages may be dropped.
    pub(super) fn may_drop(self) -> bool {
        matches!(self, Self::Spare | Self::Staging)
    }
}

/// What a lookup came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory.
    Here(Slot, ContentHash),
    /// Only on this lender's disk: the driver reads it there.
    OnDisk,
    /// That version is not here.
    Missing,
}

impl Found {
    /// Where in memory it is.
    pub fn here(self) -> Option<(Slot, ContentHash)> {
        match self {
            Self::Here(slot, hash) => Some((slot, hash)),
            Self::OnDisk | Self::Missing => None,
        }
    }
}

/// What the driver shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give the memory of these slots back to the system, then call [`super::Lender::released`].
    Release(SlotRun),
    /// Ask a borrower to take pages home, on any of its connections. It answers by dropping them.
    Recall(Recall),
    /// Tell a borrower, on any of its connections, that these pages are gone.
    Gone(Gone),
    /// Tell a borrower, on any of its connections, that these pages are safe on the disk, then call [`super::Lender::told_stored`].
    Stored(Stored),
    /// Tell a borrower that was refused, on any of its connections, that there is room again.
    Room(SpaceId),
}

/// What the driver of the disk store shall do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEffect {
    /// Write pages to the disk store, sync them, then call [`super::Lender::handle_drained`]. Slots are as safe to read as those of
    /// [`super::Lender::get`]: take a ticket before the lock is let go.
    Drain(Drain),
    /// The disk store need not have these any more. Comes before a newer [`Self::Drain`] of the same page, and after the older one has ended.
    Forget(Forget),
    /// The disk store need not have anything of this space any more.
    ForgetSpace(SpaceId),
}

/// What became of a [`Drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The pages are on the disk, and synced.
    Stored,
    /// The disk has no room for more of this borrower's pages.
    NoRoom,
    /// It failed: the disk is left alone for a while.
    Failed,
}

/// Why a connection cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// The lender already has as many borrowers as it may have.
    TooManyBorrowers,
    /// The space is known, under other terms: two that believe they are the same borrower are not.
    OtherTerms,
}

/// Counts since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LenderStats {
    /// Room in all.
    pub capacity: Bytes,
    /// What of it may be used now; what is reserved always may.
    pub limit: Bytes,
    /// What borrowers have reserved, used or not.
    pub reserved: Bytes,
    /// What all of them together may have reserved.
    pub reservable: Bytes,
    /// Room that can be used at once.
    pub free: Bytes,
    /// Base pages stored.
    pub pages: u64,
    /// Base pages asked for.
    pub gets: u64,
    /// Base pages stored, ever.
    pub puts: u64,
    /// Base pages asked for that were not there.
    pub misses: u64,
    /// Base pages that others took the place of, ever.
    pub replaced: u64,
    /// Base pages dropped for the limit's sake, ever.
    pub dropped: u64,
    /// Base pages that went home after they had been recalled, ever.
    pub recalled: u64,
    /// Base pages above the limit that are not taken home by those who were asked, or could not be asked.
    pub kept: u64,
    /// Borrowers with a connection or inside their grace.
    pub borrowers: u64,
    /// Base pages that the disk store has.
    pub on_disk: u64,
    /// Base pages that had to be read from the disk store, ever.
    pub disk_gets: u64,
    /// Base pages that the disk store can have in all.
    pub disk_capacity: u64,
    /// The write cache.
    pub ring: RingFigures,
}

/// One borrower as `loam status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowerStats<'a> {
    /// Who.
    pub space: SpaceId,
    /// The name that it gave.
    pub name: &'a str,
    /// Base pages held for it in memory.
    pub pages: u64,
    /// Base pages that the disk store has of it.
    pub on_disk: u64,
    /// Its open connections; 0 inside the grace.
    pub connections: u32,
    /// What may become of its pages.
    pub terms: Terms,
    /// Base pages that it has reserved.
    pub reserved: u64,
}
