//! On what terms a range of memory is paged, where that is not as the process has it: how large its pages are, by which plan they come, and how
//! much of it may be here ([`Terms`]).
//!
//! ```text
//! page size ──► what a fault brings in place of what is found or configured, zeros too; no page lies across the edge of such a range
//! plan ───────► in which order the subpages of a page come that a fault in the range brings
//! local ──────► of the range at most so much stays: its oldest pages leave, and whoever outruns that waits (`super::budgets`)
//! ```

use super::ahead::AHEAD_SHARE;
use super::budgets::BUDGETS_MAX;
use super::fetch_plan::{FETCH_PLANS, FetchPlan, FetchPlanner, fetch_planner};
use super::marks::{Mark, Pattern};
use super::table::{BaseRange, SpaceKey};
use super::{BUFFERS_LEAST_PAGES, Borrower};
use crate::page_size::PageSize;
use crate::units::{BasePages, Instant};
use alloc::boxed::Box;

/// What a program wants of a range; None: as of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The size of its pages.
    pub page: Option<PageSize>,
    /// The fetch plan of its faults.
    pub plan: Option<FetchPlan>,
    /// At most so much of it is here: a budget of its own below that of all, which holds as well. At least eight pages of its size, or of the smallest
    /// where none is given.
    pub local: Option<BasePages>,
}

/// Terms that cannot be remembered, beside those of other ranges. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// Different things are said of too many ranges.
    Ranges,
    /// There are too many budgets.
    Budgets,
}

/// Planners of ranges, by [`FetchPlan::number`]; each is made when it is first wanted. What `learned` learns in one range it knows in all of them.
pub(super) type Planners = [Option<Box<dyn FetchPlanner>>; FETCH_PLANS.len()];

impl Borrower {
    /// A range is paged on these terms from now on, and on no others that were said of it. What is here already stays in the pages that it came in.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn handle_terms(&mut self, key: SpaceKey, range: BaseRange, terms: Terms) -> Result<(), TooMany> {
        let Some(space) = self.spaces.get_mut(&key).filter(|_| !range.is_empty()) else { return Ok(()) };
        // A page needs buffers to leave by.
        let buffered = self.config.buffers / BUFFERS_LEAST_PAGES;
        let page = terms.page.map(|page| page.min(PageSize::from_log2(buffered.ilog2().min(8) as u8)));
        let mut live = space.marks.budgets_outside(range);
        if terms.local.is_some() && live.len() >= BUDGETS_MAX {
            return Err(TooMany::Budgets);
        }
        let least = page.unwrap_or(PageSize::SMALLEST);
        let budget = terms.local.map(|local| self.budgets.begin(key, local.0, least));
        let changes = space.marks.parts(range, |mark| mark.budget != budget);
        let done = space.marks.change(range, |mark| Mark { page, plan: terms.plan, budget, ..mark });
        if done {
            live.extend(budget);
            for part in changes {
                self.ranking.add(key, part);
            }
            if let Some(plan) = terms.plan {
                let planner = &mut self.planners[plan.number()];
                planner
                    .get_or_insert_with(|| fetch_planner(plan.name()).expect("it has its name from there"));
            }
            if page.is_some() || budget.is_some() {
                self.size_least = PageSize::SMALLEST; // pages at the edges are small
            }
        } else {
            live = space.marks.budgets_outside(BaseRange::new(0, 0));
        }
        self.budgets.keep(key, &live);
        self.own_largest = self.spaces.values().filter_map(|space| space.marks.page_largest()).max();
        if done { Ok(()) } else { Err(TooMany::Ranges) }
    }

    /// The size of the page that comes at `base`, where that is said, or follows from what is.
    pub(super) fn told_size(mark: Mark) -> Option<PageSize> {
        mark.page.or((mark.pattern == Pattern::Random).then_some(PageSize::SMALLEST))
    }

    /// The largest page around `base`, up to `size`, that lies in memory of one kind, and for which its budget has room.
    pub(super) fn fitted(&self, key: SpaceKey, base: u64, size: PageSize) -> PageSize {
        let Some(space) = self.spaces.get(&key).filter(|space| !space.marks.is_empty()) else { return size };
        let budget = space.marks.at(base).budget;
        let mut size = budget.map_or(size, |id| size.min(self.budgets.page_most(key, id)));
        let page = |size: PageSize| {
            let first = size.first(base);
            BaseRange::new(first, first + size.base_pages())
        };
        while size > PageSize::SMALLEST && !space.marks.is_alike(page(size)) {
            size = size.halved();
        }
        size
    }

    /// Who sizes pages has not chosen this one.
    pub(super) fn is_size_told(&self, key: SpaceKey, base: u64, size: PageSize) -> bool {
        Self::told_size(self.mark(key, base)).is_some()
            || self.fitted(key, base, size.doubled()) < size.doubled()
    }

    /// The largest size that pages have now, in base pages: what memory is held ready for.
    pub(super) fn page_largest(&self) -> u64 {
        self.own_largest.map_or(self.sizer.largest(), |own| own.max(self.sizer.largest())).base_pages()
    }

    /// Who plans fetches at `base`.
    pub(super) fn planner_at(&mut self, key: SpaceKey, base: u64) -> &mut dyn FetchPlanner {
        let plan = self.mark(key, base).plan;
        let own = plan.and_then(|plan| self.planners[plan.number()].as_mut());
        own.unwrap_or(&mut self.fetch_planner).as_mut()
    }

    /// Pages of the range around `base` have to leave, and will: who touches more of it waits for that, and does not take the frames of others
    /// meanwhile.
    pub(super) fn outruns_budget(&self, key: SpaceKey, base: u64) -> bool {
        self.budgets.is_any_over()
            && self.mark(key, base).budget.is_some_and(|id| self.budgets.is_over(key, id))
            && self.frames_will_come()
    }

    /// Who waits at `base` waits for its range's pages to leave.
    pub(super) fn hold_fault(&mut self, key: SpaceKey, base: u64) {
        if let Some(wait) = self.waits.get_mut(&(key, base)).filter(|wait| !wait.queued) {
            self.waiters.end(*wait);
            wait.stand();
            self.waiters.begin(*wait);
            self.outrun.push_back((key, base));
        }
    }

    /// Serves those whose range has room again, or whose range has nothing more to give.
    pub(super) fn serve_held(&mut self, now: Instant) {
        for _ in 0..self.outrun.len() {
            let Some((key, base)) = self.outrun.pop_front() else { break };
            let Some(wait) = self.waits.get_mut(&(key, base)).filter(|wait| wait.queued) else { continue };
            self.waiters.end(*wait);
            wait.queued = false;
            self.waiters.begin(*wait);
            self.serve(key, base);
            self.evict(now);
        }
    }

    /// So many base pages at most are worth fetching ahead in memory of such a mark for what its range may have here. (Less than a page: none is, for it would push out
    /// what is in use.)
    pub(super) fn budget_ahead(&self, key: SpaceKey, mark: Mark) -> u64 {
        mark.budget.map_or(u64::MAX, |id| self.budgets.room(key, id).0 / AHEAD_SHARE)
    }

    /// The budget of the range around `base` has room for so many base pages more, with all that is on its way.
    pub(super) fn has_budget_for(&self, key: SpaceKey, base: u64, pages: u64) -> bool {
        let Some(id) = self.mark(key, base).budget else { return true };
        let targets = self.fetches.values().flat_map(|fetch| &fetch.targets);
        let coming = targets.filter(|&&(space, at)| space == key && self.mark(key, at).budget == Some(id));
        let (most, here) = self.budgets.room(key, id);
        here + coming.count() as u64 + pages <= most
    }
}
