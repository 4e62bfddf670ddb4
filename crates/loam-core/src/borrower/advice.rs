//! What a program says of its memory before it uses it, or when it has used it (DESIGN.md, section 7).
//!
//! ```text
//! will need ─────► what is away of it is fetched, behind everything that a thread waits for, as long as there are frames
//! will not need ─► what is here of it leaves first, before the replacement policy is asked, and though frames are free
//! sequential ────► a reader is run ahead of at once, and what it has passed leaves before what the policy says ([`super::sequential`])
//! random ────────► nothing is fetched beside the base page that is touched
//! priority ──────► what is low leaves before all else, what is high stays as long as there is enough else ([`super::ranks`])
//! ```
//!
//! The first two are said once and done; the others hold for their addresses until something else is said ([`super::marks`]). Advice changes when pages move and never what they contain. It is carried out in pieces, with the fetch plans ([`Borrower::handle_plans`]).

use super::budgets::{BudgetId, Budgeted};
use super::marks::{Mark, Pattern, Priority};
use super::ranks::Ranked;
use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, PageRef};
use crate::page_size::PageSize;
use crate::units::Instant;
use alloc::vec::Vec;

/// Advice that is not carried out yet; more makes the oldest be forgotten.
const ADVISED_MAX: usize = 64;
/// Pages at a time that wait to leave.
const GIVEN_MAX: usize = 1024;
/// Fetches under way while more begins for what will be needed: a fault's page waits behind them at the lender.
const FETCHES_MAX: usize = 64;
/// Pages of each rank that stay though another rank is to go first: this part of the budget, and a few pages, but never more than a quarter of it.
const LEAST_SHARE: u64 = 64;
const LEAST_PAGES: u64 = 4;
/// Pages that are looked at together, when what they are worth has changed.
const RANKED_AT_ONCE: usize = 32;
/// One range that will be needed brings one in so many pages of the budget at most: the rest is needed now.
const NEED_SHARE: u64 = 2;

/// What is said of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be used soon.
    WillNeed,
    /// It will not be used for a while; its contents stay.
    WillNotNeed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Advised {
    key: SpaceKey,
    advice: Advice,
    /// What is left of it.
    range: BaseRange,
}

/// Why a page leaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    /// It was said not to be needed; its size then.
    Given(PageSize),
    /// A reader in order has passed it; its size then.
    Passed(PageSize),
    /// It was made the process's own for this; its size then.
    MadeOwn(PageSize),
    /// More of its range is here than that has room for.
    Budgeted(Budgeted),
    /// Frames are wanted, and by what is said of priorities it is its turn.
    Ranked(Ranked),
    /// Frames are wanted, and the policy has chosen it.
    Policy,
}

impl Why {
    /// Because of what the program has said of this very page, and not for its turn.
    pub(super) fn is_advice(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Passed(_))
    }
}

impl Borrower {
    /// The program says something of a range. Of what it will need as much is brought as half of the budget holds.
    pub fn handle_advice(&mut self, now: Instant, key: SpaceKey, range: BaseRange, advice: Advice) {
        self.waits_clock(now);
        let end = match advice {
            Advice::WillNeed => range.end.min(range.start.saturating_add(self.limit / NEED_SHARE)),
            Advice::WillNotNeed => range.end,
        };
        if !self.spaces.contains_key(&key) || range.start >= end {
            return;
        }
        // What was said last holds, but for pages that are on their way already. Advice may be carried out before what was said earlier and
        // has to wait, so nothing of that may be left.
        let cut = |of: Advised| {
            let is_over = of.advice != advice && of.key == key;
            let hole = if is_over { range } else { BaseRange::new(0, 0) };
            of.range.without(hole).map(move |range| Advised { range, ..of })
        };
        self.advised = core::mem::take(&mut self.advised).into_iter().flat_map(cut).collect();
        if advice == Advice::WillNeed {
            let is_in = |page: PageRef| page.space == key && range.contains(page.first);
            self.given.retain(|&(page, _)| !is_in(page));
            self.readers.retain(|page| !is_in(page));
        }
        self.advised.push_back(Advised { key, advice, range: BaseRange::new(range.start, end) });
        while self.advised.len() > ADVISED_MAX {
            self.advised.pop_front();
        }
        self.advance(now);
    }

    /// The program says how it goes through a range, until it says otherwise. False: so much was said of other ranges that there is no
    /// room to remember this, and nothing has changed.
    pub fn handle_pattern(&mut self, key: SpaceKey, range: BaseRange, pattern: Pattern) -> bool {
        let Some(space) = self.spaces.get_mut(&key) else { return true };
        if pattern == Pattern::Random {
            self.size_least = PageSize::SMALLEST;
        }
        space.marks.change(range, |mark| Mark { pattern, ..mark })
    }

    /// The program says which memory is to keep its place when there is not room for all, until it says otherwise. False: as of
    /// [`Self::handle_pattern`].
    pub fn handle_priority(&mut self, key: SpaceKey, range: BaseRange, priority: Priority) -> bool {
        let Some(space) = self.spaces.get_mut(&key) else { return true };
        let differs = space.marks.parts(range, |mark| mark.priority != priority);
        let done = space.marks.change(range, |mark| Mark { priority, ..mark });
        for part in differs.into_iter().filter(|_| done) {
            self.ranking.add(key, part);
        }
        done
    }

    /// What was said of a range holds no longer, of its pattern, its priority and its terms: the memory was freed.
    pub fn handle_forgotten(&mut self, key: SpaceKey, range: BaseRange) {
        self.unmark(key, range);
    }

    pub(super) fn mark(&self, key: SpaceKey, base: u64) -> Mark {
        self.spaces.get(&key).map_or_else(Mark::default, |space| space.marks.at(base))
    }

    /// Has a page that has become local stand where its rank is: with the policy, or before or behind it.
    pub(super) fn line_up(&mut self, page: PageRef, size: PageSize) {
        let mark = self.mark(page.space, page.first);
        self.budget(page, size, mark.budget);
        match mark.priority {
            Priority::Normal => {
                self.ranks.remove(page); // it may stand there from before its mapping was removed
                self.replacement.inserted_sized(page, size);
            }
            priority => {
                let frames = self.spaces.get(&page.space).map_or(0, |s| s.table.own_in(page.first, size));
                self.ranks.insert(page, frames, priority);
            }
        }
    }

    /// Has a page stand with its range's budget, or with none.
    fn budget(&mut self, page: PageRef, size: PageSize, budget: Option<BudgetId>) {
        match budget {
            Some(id) => {
                let frames = self.spaces.get(&page.space).map_or(0, |s| s.table.own_in(page.first, size));
                self.budgets.insert(page, frames, id);
            }
            None => self.budgets.remove(page), // it may stand there from before its mapping was removed
        }
    }

    /// Pages of the range may have gone.
    pub(super) fn tidy_ranks(&mut self, key: SpaceKey, range: BaseRange) {
        let Self { ranks, budgets, spaces, .. } = self;
        if ranks.is_empty() && budgets.is_empty() {
            return;
        }
        // The first page may begin before it.
        let range = BaseRange::new(PageSize::LARGEST.first(range.start), range.end);
        let table = spaces.get(&key).map(|space| &space.table);
        let is_gone = |first| table.is_none_or(|table| table.queued(first).is_none());
        ranks.forget(key, range, is_gone);
        budgets.forget(key, range, is_gone);
    }

    /// Has pages that are here already stand where their new rank is, a few pages further; returns how many were looked at.
    fn rank(&mut self, key: SpaceKey, range: BaseRange) -> u64 {
        let Some(table) = self.spaces.get(&key).map(|space| &space.table) else { return 1 };
        let Some(part) = table.next_used(range) else { return 1 };
        let pages: Vec<(u64, PageSize)> = table.queued_in(part).take(RANKED_AT_ONCE).collect();
        let looked_at = pages.len() as u64;
        let goes_on_at = match pages.last() {
            Some((last, _)) if pages.len() == RANKED_AT_ONCE => last + 1,
            _ => part.end,
        };
        for (first, size) in pages {
            let page = PageRef { space: key, first };
            let mark = self.mark(key, first);
            if mark.budget != self.budgets.of(page) {
                self.budget(page, size, mark.budget);
            }
            if mark.priority != self.ranks.of(page) {
                if !self.ranks.remove(page) {
                    self.replacement.removed(page);
                }
                self.line_up(page, size);
            }
        }
        self.ranking.add(key, BaseRange::new(goes_on_at, range.end));
        looked_at.max(1)
    }

    /// Some advice can be followed further now.
    pub(super) fn has_advice(&self) -> bool {
        !self.ranking.is_empty() || self.next_advice().is_some()
    }

    /// The oldest advice that can be followed now: what has to wait holds back its own kind alone.
    fn next_advice(&self) -> Option<usize> {
        if self.advised.is_empty() {
            return None;
        }
        // Without frames, and none that will come, it is given up.
        let needs = self.fetches.len() < FETCHES_MAX && (self.has_room_ahead() || !self.frames_will_come());
        let gives = self.given.len() < GIVEN_MAX;
        self.advised.iter().position(|next| match next.advice {
            Advice::WillNeed => needs,
            Advice::WillNotNeed => gives,
        })
    }

    /// One page more makes nobody wait for a frame.
    fn has_room_ahead(&self) -> bool {
        self.frames + 2 * self.page_largest() <= self.limit
    }

    /// Follows the oldest advice that can be a little further, or, in turn with that, has pages stand where they belong; returns about how many base pages were
    /// looked at.
    pub(super) fn follow_advice(&mut self) -> u64 {
        let next = self.next_advice();
        self.ranks_turn = !self.ranks_turn;
        if (self.ranks_turn || next.is_none())
            && let Some((key, range)) = self.ranking.next()
        {
            return self.rank(key, range);
        }
        let at = next.expect("the caller has looked");
        let Advised { key, advice, range } = self.advised[at];
        let found = self.spaces.get(&key).and_then(|space| space.table.next_used(range));
        let Some(part) = found else {
            self.advised.remove(at);
            return 1;
        };
        let goes_on_at = match advice {
            Advice::WillNeed => self.need(key, part),
            Advice::WillNotNeed => self.give(key, part, range.end),
        };
        let start = goes_on_at.min(range.end);
        assert!(start > part.start, "advice is followed further each time");
        self.advised[at].range.start = start;
        if start == range.end {
            self.advised.remove(at);
        }
        start - part.start
    }

    /// Brings what is away of `part`, which is in one extent, as far as may be now; returns where to go on, or the end of all if it is given up.
    fn need(&mut self, key: SpaceKey, part: BaseRange) -> u64 {
        if !self.has_room_ahead() {
            return u64::MAX;
        }
        let mut base = part.start;
        while base < part.end && self.has_room_ahead() && self.fetches.len() < FETCHES_MAX {
            let size = self.size_at(key, base);
            if !self.has_budget_for(key, base, size.base_pages()) {
                return u64::MAX;
            }
            let page = self.page_range(key, base, size).intersect(part);
            self.alone.forget(key, page); // it comes: whether it was wanted is not seen
            for b in page.start.max(base)..page.end {
                if self.fetches.len() >= FETCHES_MAX {
                    // (Never at the first one: there was room for a fetch.)
                    return b;
                }
                if self.entry(key, b).state == BaseState::Away {
                    self.bring(key, b, size);
                    self.stats.advised_in += u64::from(self.entry(key, b).state != BaseState::Away);
                }
            }
            base = page.end.max(base + 1);
        }
        base
    }

    /// Has the pages of `part`, which is in one extent, leave that end before `end`; returns where to go on.
    fn give(&mut self, key: SpaceKey, part: BaseRange, end: u64) -> u64 {
        let Self { spaces, given, .. } = self;
        let whole =
            spaces[&key].table.queued_in(part).filter(|(first, size)| first + size.base_pages() <= end);
        given.extend(whole.map(|(first, size)| (PageRef { space: key, first }, size)));
        part.end
    }

    /// What was said not to be needed of a space cannot leave: it is pinned or shared, and who needs a frame must not wait for it.
    pub(super) fn keep_given(&mut self, key: SpaceKey) {
        self.given.retain(|(page, _)| page.space != key);
        self.advised.retain(|of| of.key != key || of.advice != Advice::WillNotNeed);
    }

    /// The page to leave next: what was said not to be needed, else what its range has no room for, else, if frames are wanted, what readers in order have passed, and then what the policy says,
    /// as far as the program has said nothing of what is worth more.
    pub(super) fn next_victim(&mut self, wanted: bool) -> Option<(PageRef, Why)> {
        let is_there = |s: &Self, page: PageRef, size: PageSize| {
            // It may have left and come back in another size, or be gone, since.
            s.spaces.get(&page.space).is_some_and(|space| space.table.queued(page.first) == Some(size))
        };
        while let Some((page, size)) = self.given.pop_front() {
            if is_there(self, page, size) {
                return Some((page, Why::Given(size)));
            }
        }
        while let Some(of) = self.budgets.take() {
            // It may stand there from before its mapping was removed, or what was said of it was said anew.
            let size = self.spaces.get(&of.page.space).and_then(|space| space.table.queued(of.page.first));
            if size.is_some() && self.mark(of.page.space, of.page.first).budget == Some(of.line.1) {
                return Some((of.page, Why::Budgeted(of)));
            }
        }
        while wanted && let Some((page, size)) = self.readers.next() {
            let is_read = self.mark(page.space, page.first).pattern == Pattern::Sequential;
            // Another one may have come since, behind it.
            if is_there(self, page, size) && is_read && !self.readers.is_ahead(page, self.reader_step()) {
                return Some((page, Why::Passed(size)));
            }
        }
        if !wanted {
            return None;
        }
        while let Some((page, size)) = self.made_own.pop_front() {
            if is_there(self, page, size) {
                return Some((page, Why::MadeOwn(size)));
            }
        }
        let largest = LEAST_PAGES * self.page_largest();
        let least = (self.limit / LEAST_SHARE).max(largest).min(self.limit / 4);
        if let Some(ranked) = self.ranks.take(self.frames - self.leaving, least) {
            return Some((ranked.page, Why::Ranked(ranked)));
        }
        while let Some(page) = self.replacement.victim() {
            // What stands elsewhere by now is here from before its mapping was removed.
            if self.ranks.of(page) == Priority::Normal {
                return Some((page, Why::Policy));
            }
        }
        self.ranks.take_any().map(|ranked| (ranked.page, Why::Ranked(ranked)))
    }

    /// Directly after [`Self::next_victim`]: it is to be the next one again.
    pub(super) fn put_back_victim(&mut self, page: PageRef, why: Why) {
        match why {
            Why::Given(size) => self.given.push_front((page, size)),
            Why::Passed(size) => self.readers.put_back(page, size),
            Why::MadeOwn(size) => self.made_own.push_front((page, size)),
            Why::Budgeted(of) => self.budgets.put_back(of),
            Why::Ranked(ranked) => self.ranks.put_back(ranked),
            Why::Policy => self.replacement.put_back(page),
        }
    }

    /// It leaves, or stands in the order no longer. Who has not been asked does not know of that.
    pub(super) fn victim_goes(&mut self, page: PageRef, why: Why) {
        self.budgets.remove(page);
        let is_asked = matches!(why, Why::Ranked(_) | Why::Policy);
        if !is_asked && !self.ranks.remove(page) {
            self.replacement.removed(page);
        }
    }

    /// Advice that is not carried out yet, for tests and simulations: how many pages wait to leave, and ranges.
    pub fn advice_left(&self) -> (usize, usize) {
        (self.given.len(), self.advised.len())
    }
}
