//! Room for regions beside what runs store: together never more than the node lends.

use crate::shared::Shared;
use loam_core::lender::Lender;
use loam_core::units::BasePages;
use std::sync::Arc;
use std::time::Duration;

/// How long spare copies may take to go before a region is refused.
pub(super) const ROOM_TIME: Duration = Duration::from_secs(2);
/// How often that is looked at.
pub(super) const ROOM_LOOK: Duration = Duration::from_millis(5);

/// Where regions get room.
pub(super) trait Room {
    /// So many base pages are a region's from now on, as soon as [`Self::has_come`]. Until [`Self::settle`] they are not yet taken from the
    /// machine.
    ///
    /// # Errors
    /// Why there can be no such room, for people; nothing has changed.
    fn take(&self, pages: BasePages) -> Result<(), String>;
    /// Whether what was taken is free by now. It takes [`ROOM_TIME`] at most, or does not come.
    fn has_come(&self) -> bool;
    /// Why what was taken has not come.
    fn refusal(&self, pages: BasePages) -> String;
    /// So many of them are taken from the machine now.
    fn settle(&self, pages: BasePages);
    /// So many that were settled are free again.
    fn give(&self, pages: BasePages);
    /// So many that were taken and not settled are free again.
    fn give_up(&self, pages: BasePages);
    /// The node ends: nothing long is to be begun, or gone on with.
    fn ends(&self) -> bool;
    /// What could be taken now.
    fn free(&self) -> BasePages;
}

/// What there is of it, under the lock of the lender whose limit it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// All that the node lends.
    capacity: u64,
    /// What the machine can spare, for runs and regions together (`watch`).
    governed: u64,
    /// What regions have.
    regions: u64,
    /// What of that is not yet taken from the machine.
    unsettled: u64,
    /// Regions have given room back, and those whom runs' pages were refused do not know.
    given: bool,
}

impl Shares {
    pub(crate) fn new(capacity: BasePages) -> Self {
        Self { capacity: capacity.0, governed: capacity.0, regions: 0, unsettled: 0, given: false }
    }

    /// What is left for pages of runs; `None`: less than nothing.
    fn rest(self) -> Option<u64> {
        self.capacity.min(self.governed).checked_sub(self.regions)
    }

    /// The machine has been looked at: so much may runs and regions have as far as it is concerned. Answers how much runs may have; regions keep
    /// what they have, whatever the machine needs.
    pub(crate) fn govern(&mut self, limit: BasePages) -> BasePages {
        self.governed = limit.0;
        BasePages(self.rest().unwrap_or(0))
    }

    /// What regions have, and what of that is taken from the machine: pinned.
    pub(crate) fn of_regions(self) -> (BasePages, BasePages) {
        (BasePages(self.regions), BasePages(self.regions - self.unsettled))
    }

    /// Whether regions have given room back since this was last asked.
    pub(crate) fn take_given(&mut self) -> bool {
        std::mem::take(&mut self.given)
    }
}

impl Room for Arc<Shared> {
    fn take(&self, pages: BasePages) -> Result<(), String> {
        // What can never be must not cost runs their copies.
        if self.take_if_possible(pages) { Ok(()) } else { Err(self.no_room(pages)) }
    }

    fn has_come(&self) -> bool {
        let (stored, rest) = self.stored_and_rest();
        let has_come = rest.is_some_and(|rest| stored <= rest);
        if !has_come {
            // Spare copies are on their way out.
            self.tell_keeper();
        }
        has_come
    }

    fn refusal(&self, pages: BasePages) -> String {
        self.no_room(pages)
    }

    fn settle(&self, pages: BasePages) {
        self.change_shares(|shares| shares.unsettled -= pages.0);
    }

    fn give(&self, pages: BasePages) {
        self.change_shares(|shares| shares.regions -= pages.0);
    }

    fn give_up(&self, pages: BasePages) {
        self.change_shares(|shares| {
            shares.regions -= pages.0;
            shares.unsettled -= pages.0;
        });
    }

    fn ends(&self) -> bool {
        self.stopping()
    }

    fn free(&self) -> BasePages {
        let (stored, rest) = self.stored_and_rest();
        BasePages(rest.unwrap_or(0).saturating_sub(stored))
    }
}

impl Shared {
    /// Takes it, if it is not more than there is beside what has to stay: the only copies of pages. (Their borrowers might take them home, but not for
    /// a region.) False: nothing has changed.
    fn take_if_possible(&self, pages: BasePages) -> bool {
        let mut possible = false;
        self.change_shares_with(|lender, shares| {
            let stays = lender.firm_pages();
            let taken = Shares {
                regions: shares.regions.saturating_add(pages.0),
                unsettled: shares.unsettled.saturating_add(pages.0),
                ..*shares
            };
            possible = taken.rest().is_some_and(|rest| stays <= rest);
            if possible {
                *shares = taken;
            }
        });
        possible
    }

    fn no_room(&self, pages: BasePages) -> String {
        let stored = BasePages(self.stored_and_rest().0).bytes();
        format!(
            "{} are not free: runs keep {stored} here, and this machine keeps some for itself (`loam status --lender` tells); ask \
             for less, or lend more",
            pages.bytes()
        )
    }

    /// Base pages that runs store or have reserved, and that they may.
    fn stored_and_rest(&self) -> (u64, Option<u64>) {
        let stored = self.lender().committed_pages();
        (stored, self.shares().rest())
    }

    fn change_shares(&self, change: impl FnOnce(&mut Shares)) {
        self.change_shares_with(|_, shares| change(shares));
    }

    /// Changes what regions have, and with it the lender's limit.
    fn change_shares_with(&self, change: impl FnOnce(&Lender, &mut Shares)) {
        let mut lender = self.lender();
        let mut shares = self.shares();
        change(&lender, &mut shares);
        let (rest, before) = (BasePages(shares.rest().unwrap_or(0)), lender.limit());
        if before != rest {
            lender.handle_limit(rest);
        }
        let grown = rest > before;
        shares.given |= grown;
        drop(shares);
        self.tell_of(&lender);
        if grown {
            self.tell_keeper();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(capacity: u64, governed: u64, regions: u64) -> Shares {
        Shares { governed, regions, ..Shares::new(BasePages(capacity)) }
    }

    #[test]
    fn runs_have_what_regions_and_the_machine_leave() {
        assert_eq!(shares(10, 10, 4).rest(), Some(6));
        assert_eq!(shares(10, 7, 4).rest(), Some(3));
        assert_eq!(shares(10, 3, 4).rest(), None, "regions stay, though the machine wants more back");
        assert_eq!(shares(10, 10, 4).govern(BasePages(3)), BasePages(0));
        let unsettled = Shares { unsettled: 3, ..shares(10, 10, 4) };
        assert_eq!(unsettled.of_regions(), (BasePages(4), BasePages(1)));
    }
}
