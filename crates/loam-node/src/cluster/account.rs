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
    pub(super) fn new(limit: BasePages) -> Self {
        let told = Told { taken: Taken::default(), limit };
        Self { told, seen: Taken::default(), processors: Processors::default() }
    }

    /// Pages that were replaced since it was asked last.
    pub(super) fn replaced(&mut self, stats: &LenderStats) -> u64 {
        let replaced = self.seen.replaced_until(stats);
        self.seen = Taken::of(stats);
        replaced
    }

    /// Old pages are gone that the weights of this epoch count on (section 3.2).
    pub(super) fn is_inaccurate(&self, limit: BasePages) -> bool {
        limit.0 < self.told.limit.0 - self.told.limit.0 / INACCURATE_PART
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
        let limit = stats.limit.base_pages();
        // What came, in place of free frames and old pages, and what its own machine took back since the last summary.
        summary.replaced = count(self.told.taken.replaced_until(&stats));
        summary.consumed = count(self.told.limit.0.saturating_sub(limit.0));
        self.told = Told { taken: Taken::of(&stats), limit };
        summary.cpu_busy_permille = self.processors.busy_permille();
        summary
    }
}
