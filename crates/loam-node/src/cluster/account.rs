//! What this node tells the initiator of its pages, and what it has told.

use super::cpu::Processors;
use crate::shared::Shared;
use loam_core::global::AgeSummary;
use loam_core::lender::{LenderStats, Terms};
use loam_core::units::BasePages;

/// Less by this part of what its machine lends, and a node's summary is wrong enough for another epoch.
const INACCURATE_PART: u64 = 4;

/// What has been taken from others, up to some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    replaced: u64,
    pages: u64,
}

impl Taken {
    fn of(stats: &LenderStats) -> Self {
        Self { replaced: stats.replaced, pages: stats.pages }
    }

    /// Old pages that have given way since, and free frames that were filled beyond those that getpages left: a swap replaces nothing.
    fn replaced_until(self, now: &LenderStats) -> u64 {
        now.replaced - self.replaced + now.pages.saturating_sub(self.pages)
    }
}

/// What a summary of ages was made of.
#[derive(Clone, Copy, Debug)]
struct Told {
    taken: Taken,
    /// As it worked: not below what is reserved.
    limit: BasePages,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Account {
    /// What the last summary said.
    told: Told,
    /// Pages of others that the coordinator knows of.
    seen: Taken,
    processors: Processors,
}

impl Account {
    /// Nothing has been told yet; so much is lent.
    pub(super) fn new(stats: &LenderStats) -> Self {
        let told = Told { taken: Taken::default(), limit: stats.limit.base_pages() };
        Self { told, seen: Taken::default(), processors: Processors::default() }
    }

    /// Pages that were replaced since it was asked last.
    pub(super) fn replaced(&mut self, stats: &LenderStats) -> u64 {
        let replaced = self.seen.replaced_until(stats);
        self.seen = Taken::of(stats);
        replaced
    }

    /// Old pages are gone that the weights of this epoch count on (section 3.2).
    pub(super) fn is_inaccurate(&self, stats: &LenderStats) -> bool {
        stats.limit.base_pages().0 < self.told.limit.0 - self.told.limit.0 / INACCURATE_PART
    }

    /// Free frames, and the pages that others may take the place of, by age. Only copies stay whatever their age: as good as in use.
    pub(super) fn summary(&mut self, shared: &Shared) -> AgeSummary {
        let count = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let mut summary = AgeSummary::default();
        let lender = shared.lender();
        let stats = lender.stats();
        let mut in_use = stats.pages + shared.local_pages();
        for (age, pages) in lender.ages(Terms::Spare, shared.now()) {
            summary.add(age, count(pages));
            in_use -= pages;
        }
        drop(lender);
        summary.add_free(count(stats.free.base_pages().0));
        summary.add_in_use(count(in_use));
        let (replaced, consumed) = self.tell(&stats);
        (summary.replaced, summary.consumed) = (count(replaced), count(consumed));
        summary.cpu_busy_permille = self.processors.busy_permille();
        summary
    }

    /// What came, in place of free frames and old pages, and what its own machine took back since the last summary.
    fn tell(&mut self, stats: &LenderStats) -> (u64, u64) {
        let limit = stats.limit.base_pages();
        let before = std::mem::replace(&mut self.told, Told { taken: Taken::of(stats), limit });
        (before.taken.replaced_until(stats), before.limit.0.saturating_sub(limit.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::ids::SpaceId;
    use loam_core::lender::Lender;
    use loam_core::units::Duration;

    #[test]
    fn a_limit_below_what_is_reserved_is_told_once() {
        let mut lender =
            Lender::new(BasePages(100), Duration::from_millis(1), 1).with_reservable(BasePages(50));
        lender.connection_opened(SpaceId(1), "test", Terms::Spare).unwrap();
        lender.reserve_memory(SpaceId(1), BasePages(50)).unwrap();
        let mut account = Account::new(&lender.stats());
        lender.handle_limit(BasePages(76));
        assert!(!account.is_inaccurate(&lender.stats()), "a quarter, and no more");
        lender.handle_limit(BasePages(10));
        assert!(account.is_inaccurate(&lender.stats()));
        assert_eq!(account.tell(&lender.stats()), (0, 50), "the rest is promised");
        assert!(!account.is_inaccurate(&lender.stats()), "another epoch would say the same");
        assert_eq!(account.tell(&lender.stats()), (0, 0));
        lender.drop_all(SpaceId(1));
        assert!(account.is_inaccurate(&lender.stats()));
    }
}
