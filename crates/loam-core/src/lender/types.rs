//! What a lender says to its driver, and what it is told.

use super::replace::Gone;
use super::runs::SlotRun;
use super::shrink::Recall;
use crate::ids::SpaceId;
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
    /// What of it may be used now.
    pub limit: Bytes,
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
}

/// One borrower as `loam status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowerStats<'a> {
    /// Who.
    pub space: SpaceId,
    /// The name that it gave.
    pub name: &'a str,
    /// Base pages held for it.
    pub pages: u64,
    /// Its open connections; 0 inside the grace.
    pub connections: u32,
    /// What may become of its pages.
    pub terms: Terms,
}
