//! Room for regions beside what runs store: together never more than the node lends.

use crate::shared::Shared;
use loam_core::units::BasePages;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long spare copies may take to go before a region is refused.
const ROOM_TIME: Duration = Duration::from_secs(2);
/// How often that is looked at.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// Where regions get room.
pub(super) trait Room {
    /// So many base pages are a region's from now on. Until [`Self::settle`] they are not yet taken from the machine.
    ///
    /// # Errors
    /// Why there is no room, for people; nothing has changed.
    fn take(&self, pages: BasePages) -> Result<(), String>;
    /// They are taken from the machine now.
    fn settle(&self, pages: BasePages);
    /// They are free again.
    fn give(&self, pages: BasePages);
    /// What could be taken now.
    fn free(&self) -> BasePages;
}

/// What there is of it, under the lock of the lender whose limit it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// All that the node lends.
    capacity: u64,
    /// What the machine can spare, beside what is taken already (`watch`).
    governed: u64,
    /// What regions have.
    regions: u64,
    /// What of that the machine does not know yet.
    unsettled: u64,
}

impl Shares {
    pub(crate) fn new(capacity: BasePages) -> Self {
        Self { capacity: capacity.0, governed: capacity.0, regions: 0, unsettled: 0 }
    }

    /// What is left for pages of runs; `None`: less than nothing.
    fn rest(self) -> Option<u64> {
        let offered = self.capacity.checked_sub(self.regions)?;
        Some(offered.min(self.governed.checked_sub(self.unsettled)?))
    }

    /// The machine has been looked at: so much may pages of runs have as far as it is concerned. Answers how much they may have.
    pub(crate) fn govern(&mut self, limit: BasePages) -> BasePages {
        self.governed = limit.0;
        BasePages(self.rest().unwrap_or(0))
    }
}

impl Room for Arc<Shared> {
    fn take(&self, pages: BasePages) -> Result<(), String> {
        let begun = Instant::now();
        let with = |shares: Shares| Shares {
            regions: shares.regions + pages.0,
            unsettled: shares.unsettled + pages.0,
            ..shares
        };
        // What can never be must not cost runs their copies.
        let possible = with(*self.shares()).rest().is_some();
        if possible {
            self.change_shares(|shares| *shares = with(*shares));
            loop {
                let (stored, rest) = self.stored_and_rest();
                if rest.is_some_and(|rest| stored <= rest) {
                    return Ok(());
                }
                if begun.elapsed() >= ROOM_TIME || self.stopping() {
                    break;
                }
                // Spare copies are on their way out.
                self.tell_keeper();
                std::thread::sleep(ROOM_LOOK);
            }
            self.give_back(pages, true);
        }
        let stored = BasePages(self.stored_and_rest().0).bytes();
        Err(format!(
            "{} are not free: runs keep {stored} here, and this machine keeps some for itself (`loam status --lender` tells); ask \
             for less, or lend more",
            pages.bytes()
        ))
    }

    fn settle(&self, pages: BasePages) {
        // The next look at the machine finds it gone; until then it is taken off what the last one has found.
        self.change_shares(|shares| {
            shares.unsettled -= pages.0;
            shares.governed = shares.governed.saturating_sub(pages.0);
        });
    }

    fn give(&self, pages: BasePages) {
        self.give_back(pages, false);
    }

    fn free(&self) -> BasePages {
        let (stored, rest) = self.stored_and_rest();
        BasePages(rest.unwrap_or(0).saturating_sub(stored))
    }
}

impl Shared {
    fn give_back(&self, pages: BasePages, unsettled: bool) {
        self.change_shares(|shares| {
            shares.regions -= pages.0;
            if unsettled {
                shares.unsettled -= pages.0;
            } else {
                // As the next look at the machine will find.
                shares.governed = shares.governed.saturating_add(pages.0).min(shares.capacity);
            }
        });
    }

    /// Base pages that runs store, and that they may.
    fn stored_and_rest(&self) -> (u64, Option<u64>) {
        let stored = self.lender().stats().pages;
        (stored, self.shares().rest())
    }

    /// Changes what regions have, and with it the lender's limit.
    fn change_shares(&self, change: impl FnOnce(&mut Shares)) {
        let mut lender = self.lender();
        let mut shares = self.shares();
        change(&mut shares);
        let rest = BasePages(shares.rest().unwrap_or(0));
        if lender.limit() != rest {
            lender.handle_limit(rest);
        }
        drop(shares);
        self.tell_of(&lender);
    }
}
