//! What a program has said of ranges of its memory for as long as it does not say otherwise: how it goes through them, what they are
//! worth to it, and on what terms they are paged ([`Pattern`], [`Priority`], [`super::Terms`]; DESIGN.md, section 7).
//!
//! Marks belong to addresses, as those of madvise(2) do. A move takes them along, a forked child has its parent's; what is unmapped or
//! discarded has none any more: whoever gets the addresses next, from an allocator, has asked for nothing.

use super::budgets::BudgetId;
use super::fetch_plan::FetchPlan;
use super::table::BaseRange;
use crate::page_size::PageSize;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How a program goes through a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Nothing is said: the faults tell.
    #[default]
    Unknown,
    /// From lower to higher addresses, each once.
    Sequential,
    /// In no order.
    Random,
}

/// What keeps its place when there is not room for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Leaves before all else.
    Low,
    /// As all memory of which nothing is said.
    #[default]
    Normal,
    /// Stays as long as there is enough else.
    High,
}

/// All that is said of one base page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub pattern: Pattern,
    pub priority: Priority,
    /// Pages are so large here, and come by this plan; and this budget holds for what is here of them. None: as of the process.
    pub page: Option<PageSize>,
    pub plan: Option<FetchPlan>,
    pub budget: Option<BudgetId>,
}

impl Mark {
    /// Its pages stand elsewhere than with the policy, or in more places.
    pub(super) fn is_placed(&self) -> bool {
        self.priority != Priority::Normal || self.budget.is_some()
    }

    /// No page lies in memory of two kinds.
    pub(super) fn bounds(&self) -> (Option<PageSize>, Option<BudgetId>) {
        (self.page, self.budget)
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    mark: Mark,
}

/// The marks of an address space: runs of base pages that are marked alike, and no run where nothing is said. At most so many.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    runs: BTreeMap<u64, Run>,
    most: usize,
}

/// Runs of an address space, unless told otherwise.
const RUNS_MAX: usize = 4096;

impl Default for Marks {
    fn default() -> Self {
        Self::with_most(RUNS_MAX)
    }
}

impl Marks {
    fn with_most(most: usize) -> Self {
        assert!(most > 0, "room for one run");
        Self { runs: BTreeMap::new(), most }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.runs.len()
    }

    /// What is said of a base page.
    pub(super) fn at(&self, base: u64) -> Mark {
        let run = self.runs.range(..=base).next_back();
        run.filter(|(_, run)| base < run.end).map_or_else(Mark::default, |(_, run)| run.mark)
    }

    /// Something is said of some of `range`.
    pub(super) fn any_in(&self, range: BaseRange) -> bool {
        let last = self.runs.range(..range.end).next_back();
        last.is_some_and(|(_, run)| run.end > range.start) && !range.is_empty()
    }

    /// Nothing is said of anything.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The parts of `range` of which this is so, in order.
    pub(super) fn parts(&self, range: BaseRange, is_so: impl Fn(Mark) -> bool) -> Vec<BaseRange> {
        let (mut parts, mut at): (Vec<BaseRange>, u64) = (Vec::new(), range.start);
        let mut push = |start: u64, end: u64, of: Mark| {
            if start < end && is_so(of) {
                match parts.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => parts.push(BaseRange::new(start, end)),
                }
            }
        };
        for (start, Run { end, mark }) in self.touched(range) {
            let (start, end) = (start.clamp(range.start, range.end), end.clamp(range.start, range.end));
            push(at, start, Mark::default());
            push(start, end, mark);
            at = at.max(end);
        }
        push(at, range.end, Mark::default());
        parts
    }

    /// Pages of all of `range` are of one kind ([`Mark::bounds`]).
    pub(super) fn is_alike(&self, range: BaseRange) -> bool {
        let bounds = self.at(range.start).bounds();
        let mut at = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (&start, run) in before.into_iter().chain(self.runs.range(range.start..range.end)) {
            if run.end <= range.start {
                continue;
            }
            if run.mark.bounds() != bounds || (start > at && bounds != (None, None)) {
                return false;
            }
            at = run.end;
        }
        at >= range.end || bounds == (None, None)
    }

    /// Budgets that are said of anything outside of `range`.
    pub(super) fn budgets_outside(&self, range: BaseRange) -> BTreeSet<BudgetId> {
        let is_outside = |start: u64, run: &Run| start < range.start || run.end > range.end;
        self.runs
            .iter()
            .filter(|&(&start, run)| is_outside(start, run))
            .filter_map(|(_, run)| run.mark.budget)
            .collect()
    }

    /// The largest page size that is said of anything.
    pub(super) fn page_largest(&self) -> Option<PageSize> {
        self.runs.values().filter_map(|run| run.mark.page).max()
    }

    /// Changes what is said of each base page of `range`. False: that would be too many runs, and nothing has changed.
    #[must_use]
    pub(super) fn change(&mut self, range: BaseRange, change: impl Fn(Mark) -> Mark) -> bool {
        let touched = self.touched(range);
        let pieces = changed(&touched, range, change);
        if self.runs.len() - touched.len() + pieces.len() > self.most {
            return false;
        }
        self.replace(&touched, &pieces);
        true
    }

    /// Nothing is said of `range` any more. Where that would cut a run in two and there are too many, the shorter one is forgotten, too: returned.
    pub(super) fn clear(&mut self, range: BaseRange) -> Option<BaseRange> {
        let touched = self.touched(range);
        let mut pieces = changed(&touched, range, |_| Mark::default());
        let mut forgotten = None;
        if self.runs.len() - touched.len() + pieces.len() > self.most {
            let shortest = (0..pieces.len()).min_by_key(|&i| pieces[i].1.end - pieces[i].0);
            let (start, run) = pieces.remove(shortest.expect("there are more than before"));
            forgotten = Some(BaseRange::new(start, run.end));
        }
        self.replace(&touched, &pieces);
        forgotten
    }

    /// What is said of `from` holds from `to` on instead. Returns what was forgotten besides, as of [`Self::clear`].
    pub(super) fn move_to(&mut self, from: BaseRange, to: u64) -> [Option<BaseRange>; 2] {
        let moved: Vec<(u64, Run)> = self.touched(from);
        let forgotten = [from, BaseRange::new(to, to + from.len())].map(|range| self.clear(range));
        for (start, Run { end, mark }) in moved {
            let part = BaseRange::new(start, end).intersect(from);
            let start = to + (part.start - from.start);
            // Of too many the last are forgotten: it is advice.
            let _ = self.change(BaseRange::new(start, start + part.len()), |_| mark);
        }
        forgotten
    }

    /// Runs that overlap `range` or end or begin where it does.
    fn touched(&self, range: BaseRange) -> Vec<(u64, Run)> {
        let before = self.runs.range(..range.start).next_back().filter(|(_, run)| run.end >= range.start);
        let first = before.map_or(range.start, |(&start, _)| start);
        self.runs.range(first..=range.end).map(|(&start, &run)| (start, run)).collect()
    }

    fn replace(&mut self, touched: &[(u64, Run)], pieces: &[(u64, Run)]) {
        for (start, _) in touched {
            self.runs.remove(start);
        }
        self.runs.extend(pieces.iter().copied());
        assert!(self.runs.len() <= self.most, "marks are bounded");
    }
}

/// `touched` with `range` changed, in order, what is alike in one piece.
fn changed(touched: &[(u64, Run)], range: BaseRange, change: impl Fn(Mark) -> Mark) -> Vec<(u64, Run)> {
    let mut pieces: Vec<(u64, Run)> = Vec::with_capacity(touched.len() + 2);
    let mut push = |start: u64, end: u64, mark: Mark| {
        if start >= end || mark == Mark::default() {
            return;
        }
        match pieces.last_mut() {
            Some((_, last)) if last.end == start && last.mark == mark => last.end = end,
            _ => pieces.push((start, Run { end, mark })),
        }
    };
    let mut at = range.start;
    for &(start, Run { end, mark }) in touched {
        push(start, end.min(range.start), mark);
        let inside = (start.clamp(range.start, range.end), end.clamp(range.start, range.end));
        push(at, inside.0, change(Mark::default()));
        push(inside.0, inside.1, change(mark));
        at = at.max(inside.1);
        push(start.max(range.end), end, mark);
    }
    push(at, range.end, change(Mark::default()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: usize = 200;

    fn mark(n: u8) -> Mark {
        let pattern = [Pattern::Unknown, Pattern::Sequential, Pattern::Random][usize::from(n % 3)];
        let priority = [Priority::Normal, Priority::Low, Priority::High][usize::from(n / 3 % 3)];
        Mark { pattern, priority, ..Mark::default() }
    }

    fn terms(n: u8) -> Mark {
        let page = [None, Some(PageSize::from_log2(4)), Some(PageSize::SMALLEST)][usize::from(n % 3)];
        let plan = FetchPlan::named("lazy").filter(|_| n.is_multiple_of(2));
        let budget = (n > 2).then(|| BudgetId::numbered(u64::from(n)));
        Mark { page, plan, budget, ..Mark::default() }
    }

    fn runs_of(model: &[Mark]) -> usize {
        let begins = |i: usize| model[i] != Mark::default() && (i == 0 || model[i - 1] != model[i]);
        (0..model.len()).filter(|&i| begins(i)).count()
    }

    #[derive(Clone, Debug)]
    enum Op {
        Pattern(usize, usize, u8),
        Priority(usize, usize, u8),
        Terms(usize, usize, u8),
        Clear(usize, usize),
        Move(usize, usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let span = || (0..PAGES, 0..60_usize);
        prop_oneof![
            4 => (span(), 0..3_u8).prop_map(|((at, len), n)| Op::Pattern(at, len, n)),
            4 => (span(), 0..3_u8).prop_map(|((at, len), n)| Op::Priority(at, len, n * 3)),
            4 => (span(), 0..5_u8).prop_map(|((at, len), n)| Op::Terms(at, len, n)),
            1 => span().prop_map(|(at, len)| Op::Clear(at, len)),
            1 => (span(), 0..PAGES).prop_map(|((at, len), to)| Op::Move(at, len, to)),
        ]
    }

    fn range(at: usize, len: usize) -> BaseRange {
        BaseRange::new(at as u64, (at + len).min(PAGES) as u64)
    }

    fn indices(range: BaseRange) -> core::ops::Range<usize> {
        range.start as usize..range.end as usize
    }

    proptest! {
        /// Runs say what a list with one mark a page says, are as few as can be, and never more than may be.
        #[test]
        fn marks_are_a_list_of_one_a_page(ops in proptest::collection::vec(op(), 1..80), few: bool) {
            let mut marks = Marks::with_most(if few { 8 } else { PAGES });
            let mut model = [Mark::default(); PAGES];
            for op in ops {
                let mut then = model;
                let done = match op {
                    Op::Pattern(at, len, n) => {
                        then[indices(range(at, len))].iter_mut().for_each(|m| m.pattern = mark(n).pattern);
                        marks.change(range(at, len), |m| Mark { pattern: mark(n).pattern, ..m })
                    }
                    Op::Priority(at, len, n) => {
                        then[indices(range(at, len))].iter_mut().for_each(|m| m.priority = mark(n).priority);
                        marks.change(range(at, len), |m| Mark { priority: mark(n).priority, ..m })
                    }
                    Op::Terms(at, len, n) => {
                        let Mark { page, plan, budget, .. } = terms(n);
                        let change = |m| Mark { page, plan, budget, ..m };
                        then[indices(range(at, len))].iter_mut().for_each(|m| *m = change(*m));
                        marks.change(range(at, len), change)
                    }
                    Op::Clear(at, len) => {
                        then[indices(range(at, len))].fill(Mark::default());
                        let _ = marks.clear(range(at, len));
                        true
                    }
                    Op::Move(at, len, to) => {
                        let from = range(at, len.min(PAGES - to));
                        let moved: Vec<Mark> = then[indices(from)].to_vec();
                        then[indices(from)].fill(Mark::default());
                        then[to..to + moved.len()].copy_from_slice(&moved);
                        let _ = marks.move_to(from, to as u64);
                        true
                    }
                };
                if few {
                    // Refused when it would be too many, and only then; of a cut or a move some may be forgotten.
                    prop_assert!(marks.len() <= 8);
                    prop_assert!(done == (runs_of(&then) <= 8) || !matches!(op, Op::Pattern(..) | Op::Priority(..) | Op::Terms(..)));
                    let forgot = runs_of(&then) > 8 || matches!(op, Op::Move(..));
                    for i in 0..PAGES {
                        let is = marks.at(i as u64);
                        let right = if done { then[i] } else { model[i] };
                        prop_assert!(is == right || (forgot && done && is == Mark::default()), "{is:?} at {i}");
                        then[i] = is;
                    }
                } else {
                    prop_assert!(done);
                }
                model = then;
                prop_assert_eq!(marks.len(), runs_of(&model));
                for (i, of) in model.iter().enumerate() {
                    prop_assert_eq!(marks.at(i as u64), *of, "at {}", i);
                }
                for priority in [Priority::Low, Priority::Normal, Priority::High] {
                    let others = marks.parts(range(20, 100), |mark| mark.priority != priority);
                    let listed: Vec<u64> = others.iter().flat_map(|part| part.start..part.end).collect();
                    let right = |i: &u64| model[*i as usize].priority != priority;
                    prop_assert_eq!(listed, (20..120).filter(right).collect::<Vec<_>>());
                    prop_assert!(others.windows(2).all(|two| two[0].end < two[1].start), "as few as can be");
                }
                let said = |range: BaseRange| model[indices(range)].iter().any(|of| *of != Mark::default());
                for (at, len) in [(0, 1), (10, 30), (100, 5), (150, 0)] {
                    prop_assert_eq!(marks.any_in(range(at, len)), said(range(at, len)));
                }
                for (at, len) in [(0, 1), (16, 16), (32, 64), (7, 90)] {
                    let alike = model[indices(range(at, len))].iter().all(|of| of.bounds() == model[at].bounds());
                    prop_assert_eq!(marks.is_alike(range(at, len)), alike, "{} {}", at, len);
                }
                let all = || model.iter().copied().enumerate();
                prop_assert_eq!(marks.page_largest(), all().filter_map(|(_, of)| of.page).max());
                // Budgets of runs that are not wholly inside.
                let outside = marks.budgets_outside(range(50, 80));
                let right: BTreeSet<BudgetId> =
                    all().filter(|(i, _)| !(50..130).contains(i)).filter_map(|(_, of)| of.budget).collect();
                prop_assert!(right.is_subset(&outside));
                prop_assert!(outside.iter().all(|id| model.iter().any(|of| of.budget == Some(*id))));
            }
        }
    }
}
