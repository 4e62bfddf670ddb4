//! Budgets of ranges: of the memory that one is said of no more stays here than it has room for ([`super::Terms::local`]).
//!
//! Its pages stand with the replacement policy as all others do, or where their priority has them, since the budget of all holds for them, too. They
//! stand here besides, oldest first. When more of them are here than the budget has room for, the oldest leave until an eighth of it is free, though
//! there is room otherwise; where they stand besides they are not asked for. What is in use comes back from the victim buffer, and is the youngest
//! then (a second chance).

use super::lines::{Lines, Standing};
use super::table::{BaseRange, SpaceKey};
use crate::page_size::PageSize;
use crate::replacement::PageRef;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// Budgets of an address space.
pub(super) const BUDGETS_MAX: usize = 64;
/// Pages that a budget has room for at least: all that one instruction touches, and as many again for other threads.
const PAGES_LEAST: u64 = 8;
/// When it is full, so many parts less one stay: what leaves at a time should be worth a command.
const PARTS: u64 = 8;

/// Names a budget. None is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BudgetId(NonZeroU64);

impl BudgetId {
    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Self {
        Self(NonZeroU64::new(number).expect("from 1 on"))
    }
}

/// A page that leaves as its budget is full.
pub(super) type Budgeted = Standing<(SpaceKey, BudgetId)>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    lines: Lines<(SpaceKey, BudgetId)>,
    /// What each has room for.
    mosts: BTreeMap<(SpaceKey, BudgetId), u64>,
    /// Those that were full, until enough has left.
    over: BTreeSet<(SpaceKey, BudgetId)>,
    ids: u64,
}

impl Budgets {
    /// A budget of `most` base pages, or of what it needs at least with pages of this size.
    pub(super) fn begin(&mut self, key: SpaceKey, most: u64, page: PageSize) -> BudgetId {
        self.ids += 1;
        let id = BudgetId(NonZeroU64::new(self.ids).expect("from 1 on"));
        self.mosts.insert((key, id), most.max(PAGES_LEAST * page.base_pages()));
        id
    }

    /// Of the budgets of a space only these are said of anything.
    pub(super) fn keep(&mut self, key: SpaceKey, live: &BTreeSet<BudgetId>) {
        let ended: Vec<BudgetId> =
            self.of_space(key).map(|of| of.0).filter(|id| !live.contains(id)).collect();
        for id in ended {
            self.mosts.remove(&(key, id));
            self.lines.drop_line((key, id));
            self.over.remove(&(key, id));
        }
    }

    /// A child has budgets of its own, as large as its parent's.
    pub(super) fn fork(&mut self, parent: SpaceKey, child: SpaceKey) {
        let of: Vec<(BudgetId, u64)> = self.of_space(parent).collect();
        self.mosts.extend(of.into_iter().map(|(id, most)| ((child, id), most)));
    }

    fn of_space(&self, key: SpaceKey) -> impl Iterator<Item = (BudgetId, u64)> {
        let all = self.mosts.range((key, BudgetId(NonZeroU64::MIN))..=(key, BudgetId(NonZeroU64::MAX)));
        all.map(|(&(_, id), &most)| (id, most))
    }

    /// A space has gone.
    pub(super) fn forget_space(&mut self, key: SpaceKey) {
        self.keep(key, &BTreeSet::new());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.mosts.len()
    }

    /// No page stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Pages have to leave.
    pub(super) fn is_any_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Pages of this one have to leave.
    pub(super) fn is_over(&self, key: SpaceKey, id: BudgetId) -> bool {
        self.over.contains(&(key, id))
    }

    /// Base pages that it has room for in all, and those that it counts.
    pub(super) fn room(&self, key: SpaceKey, id: BudgetId) -> (u64, u64) {
        self.mosts.get(&(key, id)).map_or((0, 0), |&most| (most, self.lines.frames((key, id))))
    }

    /// The largest page that it has room for as often as it needs.
    pub(super) fn page_most(&self, key: SpaceKey, id: BudgetId) -> PageSize {
        let pages = (self.room(key, id).0 / PAGES_LEAST).max(1);
        PageSize::from_log2(pages.ilog2().min(u32::from(PageSize::LARGEST.log2())) as u8)
    }

    /// The budget that a page counts for.
    pub(super) fn of(&self, page: PageRef) -> Option<BudgetId> {
        self.lines.of(page).map(|line| line.1)
    }

    /// The frames that a page counts for, if it stands here.
    pub(super) fn frames_of(&self, page: PageRef) -> Option<u64> {
        self.lines.frames_of(page)
    }

    /// What a page that stands here counts for has changed.
    pub(super) fn recount(&mut self, page: PageRef, recount: impl FnOnce(u64) -> u64) {
        let line = self.lines.recount(page, recount);
        self.settle(line);
    }

    /// A page has come, `frames` base pages of it: it is the youngest.
    pub(super) fn insert(&mut self, page: PageRef, frames: u64, id: BudgetId) {
        self.remove(page);
        let line = (page.space, id);
        assert!(self.mosts.contains_key(&line), "what is said of memory has a line");
        self.lines.insert(page, frames, line);
        self.settle(Some(line));
    }

    /// It leaves, or is of no budget from now on.
    pub(super) fn remove(&mut self, page: PageRef) {
        let line = self.lines.remove(page);
        self.settle(line);
    }

    /// Pages of `range` that are gone, as their mappings are, need not be taken first.
    pub(super) fn forget(&mut self, key: SpaceKey, range: BaseRange, is_gone: impl Fn(u64) -> bool) {
        for page in self.lines.gone(key, range, is_gone) {
            self.remove(page);
        }
    }

    /// The page to leave next, if a budget is full.
    pub(super) fn take(&mut self) -> Option<Budgeted> {
        loop {
            let &line = self.over.first()?;
            let Some(taken) = self.lines.take(line) else {
                self.over.remove(&line);
                continue;
            };
            self.settle(Some(line));
            return Some(taken);
        }
    }

    /// Directly after it was taken: it is to leave all the same.
    pub(super) fn put_back(&mut self, of: Budgeted) {
        self.lines.restore(of);
        self.over.insert(of.line);
    }

    /// Whether pages have to leave, once what is here has changed.
    fn settle(&mut self, line: Option<(SpaceKey, BudgetId)>) {
        let Some(line) = line else { return };
        let (most, frames) = (self.mosts[&line], self.lines.frames(line));
        if frames > most {
            self.over.insert(line);
        } else if frames <= most - most / PARTS {
            self.over.remove(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: SpaceKey = SpaceKey(1);

    fn page(first: u64) -> PageRef {
        PageRef { space: KEY, first }
    }

    #[test]
    fn the_room_is_enough_for_pages_to_go_on_with() {
        let mut budgets = Budgets::default();
        let small = budgets.begin(KEY, 1, PageSize::SMALLEST);
        let large = budgets.begin(KEY, 1, PageSize::LARGEST);
        let middle = budgets.begin(KEY, 100, PageSize::SMALLEST);
        assert_eq!([small, large, middle].map(|id| budgets.room(KEY, id).0), [8, 2048, 100]);
        let pages = [small, large, middle].map(|id| budgets.page_most(KEY, id).base_pages());
        assert_eq!(pages, [1, 256, 8]);
    }

    #[test]
    fn a_child_has_its_own_and_what_is_said_of_nothing_goes() {
        let (mut budgets, child) = (Budgets::default(), SpaceKey(2));
        let [a, b] = [16, 24].map(|most| budgets.begin(KEY, most, PageSize::SMALLEST));
        budgets.insert(page(1), 17, a);
        budgets.insert(page(2), 1, b);
        budgets.fork(KEY, child);
        assert_eq!((budgets.room(child, a), budgets.room(child, b)), ((16, 0), (24, 0)));
        assert!(budgets.is_over(KEY, a) && !budgets.is_over(child, a));
        budgets.keep(KEY, &[b].into());
        assert!(!budgets.is_any_over() && budgets.of(page(1)).is_none() && budgets.of(page(2)) == Some(b));
        assert_eq!(budgets.room(child, a).0, 16);
        budgets.forget_space(child);
        assert_eq!((budgets.room(child, a).0, budgets.room(KEY, b).0), (0, 24));
    }

    proptest! {
        /// Against two lists: who has more than may be gives its oldest until an eighth is free, and nobody else does.
        #[test]
        fn the_oldest_leave_until_an_eighth_is_free(
            ops in proptest::collection::vec((0..6_u8, 0_u64..60, 1_u64..9), 1..300), mosts: [u8; 2],
        ) {
            let mut budgets = Budgets::default();
            let mosts = mosts.map(|most| u64::from(most % 64).max(8));
            let ids = mosts.map(|most| budgets.begin(KEY, most, PageSize::SMALLEST));
            let (mut lists, mut over): ([Vec<(u64, u64)>; 2], _) = ([Vec::new(), Vec::new()], [false; 2]);
            for (op, n, frames) in ops {
                let which = usize::from(op == 1);
                let list = |lists: &[Vec<(u64, u64)>; 2]| lists.iter().position(|list| list.iter().any(|of| of.0 == n));
                match op {
                    0 | 1 => {
                        lists.iter_mut().for_each(|list| list.retain(|of| of.0 != n));
                        settle(&lists, &mut over, mosts); // (it may have been full before)
                        lists[which].push((n, frames));
                        budgets.insert(page(n), frames, ids[which]);
                    }
                    2 => {
                        lists.iter_mut().for_each(|list| list.retain(|of| of.0 != n));
                        budgets.remove(page(n));
                    }
                    3 => if let Some(which) = list(&lists) {
                        lists[which].iter_mut().filter(|of| of.0 == n).for_each(|of| of.1 = frames);
                        budgets.recount(page(n), |_| frames);
                    },
                    4 => {
                        lists.iter_mut().for_each(|list| list.retain(|of| of.0 >= n || of.0 % 3 > 0));
                        budgets.forget(KEY, BaseRange::new(0, n), |first| first % 3 == 0);
                    }
                    _ => {
                        let which = over.iter().position(|&over| over);
                        let expected = which.map(|which| lists[which].remove(0).0);
                        let taken = budgets.take();
                        prop_assert_eq!(taken.map(|of| of.page.first), expected);
                        if let Some(of) = taken.filter(|_| n % 2 == 0) {
                            budgets.put_back(of);
                            lists[which.expect("it was taken")].insert(0, (of.page.first, of.frames));
                            over[which.expect("it was taken")] = true;
                        }
                    }
                }
                settle(&lists, &mut over, mosts);
                for which in 0..2 {
                    prop_assert_eq!(budgets.is_over(KEY, ids[which]), over[which], "{} of {:?}", which, lists);
                    let frames: u64 = lists[which].iter().map(|of| of.1).sum();
                    prop_assert_eq!(budgets.room(KEY, ids[which]), (mosts[which], frames));
                }
                prop_assert_eq!(budgets.is_any_over(), over.contains(&true));
            }
        }
    }

    fn settle(lists: &[Vec<(u64, u64)>; 2], over: &mut [bool; 2], mosts: [u64; 2]) {
        for which in 0..2 {
            let frames: u64 = lists[which].iter().map(|of| of.1).sum();
            over[which] = frames > mosts[which] || over[which] && frames > mosts[which] - mosts[which] / 8;
        }
    }
}
