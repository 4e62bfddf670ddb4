//! Pages that could not be taken away, and frames that forked relatives share.
//!
//! After a fork parent and child have the same frames, and the kernel gives none of them away. To it a page stays shared until the process that has
//! it writes there once, even if the other side has ended, or has a copy by now. Most children soon run another program or end, so at first
//! such pages are only put aside. But one child that stays (redis saving in the background) would keep all that was here at
//! the fork here for good, and leave both sides the little that is left of local memory for their work. So after a while a page that two
//! share and whose turn it is to leave is made its process's own, which may take a frame, and is the next to leave. That frees nothing: the other side has the
//! frame of both still. So what it has of those pages leaves behind them, and not in its own turn, which comes when all of the one side has left: who waits for a
//! frame would wait for as long.
//!
//! What more than two share stays (a pool of workers that read the same): each of them would fetch it for itself, into a frame of its own.

use super::copies::CopyIndex;
use super::evict::BATCH_PAGES_MIN;
use super::table::{BaseState, SpaceKey};
use super::{Borrower, Effect, Space};
use crate::page_size::PageSize;
use crate::replacement::PageRef;
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// How long pages that could not be taken are left alone, at first; twice as long each time that still none could.
const PARKED_MIN: Duration = Duration::from_millis(500);
const PARKED_MAX: Duration = Duration::from_millis(16_000);
/// A child that lives so long stays.
const STAYS_AFTER: Duration = PARKED_MIN;
/// The same of one of which nobody tells whether it lives: all that has left comes home for the next fork, and who has forked may do so again soon. (Less than the first two
/// times that what was put aside stays so.)
const UNSEEN_AFTER: Duration = Duration::from_millis(1_400);
/// So many relatives are asked for contents that are to leave: with more it would cost more than a page is worth.
const RELATIVES_ASKED: usize = 8;
/// Pause after sharing was broken on purpose, for the hand to have done it.
const POPULATE_PAUSE: Duration = Duration::from_millis(1);

/// The first pause.
pub(super) const fn parked_first() -> Duration {
    PARKED_MIN
}

impl Borrower {
    /// Is what a process shares of a page made its own when its turn to leave comes? Not what it shares with one whose pages cannot be taken: its frames would stay.
    fn breaks_sharing(&self, now: Instant, key: SpaceKey, (first, size): (u64, PageSize)) -> bool {
        let space = &self.spaces[&key];
        let stays = now - space.forked_at >= STAYS_AFTER;
        match space.relatives[..] {
            [] => space.forked && (!space.forked_unseen || now - space.forked_at >= UNSEEN_AFTER),
            [one] => self.spaces[&one].gives() && stays,
            _ => {
                let mut bases = first..first + size.base_pages();
                let is_of_two =
                    |base| self.entry(key, base).state == BaseState::Local && self.may_be_made_own(key, base);
                stays && bases.any(is_of_two) && self.knows_holders(key)
            }
        }
    }

    /// Of what more than two share, and of what it is not known who does, nothing is made a process's own.
    fn may_be_made_own(&self, key: SpaceKey, base: u64) -> bool {
        if self.spaces[&key].relatives.len() < 2 {
            return true;
        }
        let mut others = self.holders(key, base);
        let gives = others.next().is_none_or(|one| self.spaces[&one].gives());
        gives && others.next().is_none() && !self.may_be_held(key, base)
    }

    /// A page could not be taken: it stays out of the order for a while, or is made the process's own if that may help, and tried again. (It does
    /// not where the mapping has denied it, or where it has been tried.) True: it stays.
    pub(super) fn could_not_leave(
        &mut self,
        now: Instant,
        key: SpaceKey,
        (first, size): (u64, PageSize),
        denied: bool,
    ) -> bool {
        let is_pinned = self.spaces[&key].found_pinned.contains_key(&first);
        let breaks = !denied && !is_pinned && self.breaks_sharing(now, key, (first, size));
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        if breaks && space.tried.insert(first) {
            self.note_other_side(key, first, size);
            self.make_own(key, first, size, false);
            self.evict_pause_until = Some(now + POPULATE_PAUSE);
            return false;
        }
        let was_made_own = space.tried.remove(&first) || is_pinned;
        if denied || !self.set_aside_pinned(now, key, (first, size), was_made_own) {
            self.set_aside(now, key, (first, size));
        }
        true
    }

    /// These base pages of a page that was set aside were asked for in vain. What else comes to it may leave meanwhile, and they are not asked for with that. (Each
    /// base page that came home beside 63 shared ones had the kernel refuse those once more: 36 refusals for each page that left, and little else was done.)
    pub(super) fn leave_alone(&mut self, key: SpaceKey, bases: impl Iterator<Item = u64>) {
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        bases.for_each(|base| space.table.set_stuck(base, true));
    }

    /// It stays out of the order for a while.
    pub(super) fn set_aside(&mut self, now: Instant, key: SpaceKey, (first, size): (u64, PageSize)) {
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        space.parked.push((first, size));
        if self.parked_until.is_none() {
            self.parked_until = Some(now + self.parked_for);
            self.parked_for = Duration((self.parked_for.0 * 2).min(PARKED_MAX.0));
        }
    }

    /// These pages have left, or could not be seen: they may be made the process's own again.
    pub(super) fn forget_tried(&mut self, key: SpaceKey, pages: impl Iterator<Item = u64>) {
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        if !space.tried.is_empty() {
            pages.for_each(|first| {
                space.tried.remove(&first);
            });
        }
    }

    /// There are new relatives: what they share will be parked, and what was parked before is not to make that longer.
    pub(super) fn park_anew(&mut self, now: Instant) {
        self.parked_for = PARKED_MIN;
        self.parked_until = self.parked_until.map(|until| until.min(now + PARKED_MIN));
    }

    /// What was parked long enough is tried again.
    pub(super) fn unpark_in_time(&mut self, now: Instant) {
        if self.parked_until.is_some_and(|until| until <= now) {
            self.parked_until = None;
            let keys: Vec<SpaceKey> = self.spaces.keys().copied().collect();
            keys.into_iter().for_each(|key| self.unpark(key));
        }
    }

    /// Nothing can be taken, but forked relatives share frames: makes some of them the process's own, to be
    /// taken then. One relative after the other: what one of them has may be pinned. True: something can be taken now.
    pub(super) fn break_sharing(&mut self, now: Instant) -> bool {
        let granted = |(_, s): &(&SpaceKey, &Space)| s.gives() && !s.granted.is_empty();
        let granted: Vec<SpaceKey> = self.spaces.iter().filter(granted).map(|(&key, _)| key).collect();
        let mut has_some = false;
        for key in granted {
            has_some |= self.unpark_granted(key);
        }
        if has_some {
            return true;
        }
        let shares = |s: &Space| s.gives() && s.forked && !s.parked.is_empty();
        let sharing = || self.spaces.iter().filter(|(_, s)| shares(s)).map(|(&key, _)| key);
        let after = sharing().find(|&key| Some(key) > self.sharing_turn);
        let Some(key) = after.or_else(|| sharing().next()) else { return false };
        self.sharing_turn = Some(key);
        let space = self.spaces.get_mut(&key).expect("found above");
        // A batch of base pages: each takes a frame until it has left, and there are none.
        let sizes = space.parked.iter().scan(0, |sum, (_, size)| {
            let before = *sum;
            *sum += size.base_pages();
            Some(before)
        });
        let n = sizes.take_while(|&before| before < BATCH_PAGES_MIN).count();
        let some: Vec<(u64, PageSize)> = space.parked.drain(..n).collect();
        for (first, size) in some {
            self.make_own(key, first, size, true);
        }
        self.evict_pause_until = Some(now + POPULATE_PAUSE);
        false
    }

    /// Has the local base pages of a page made the process's own (those alone: the hand would bring the rest home, over the budget), to leave next. `all`: those too that more
    /// than two share.
    pub(super) fn make_own(&mut self, key: SpaceKey, first: u64, size: PageSize, all: bool) {
        self.ask_again(key, first, size);
        for base in first..first + size.base_pages() {
            if self.entry(key, base).state != BaseState::Local || !all && !self.may_be_made_own(key, base) {
                continue;
            }
            self.count_own_frame(key, base);
            if let Some(Effect::Populate { space, base: from, pages }) = self.effects.back_mut()
                && *space == key
                && *from + u64::from(*pages) == base
            {
                *pages += 1;
            } else {
                self.effects.push_back(Effect::Populate { space: key, base, pages: 1 });
            }
        }
        let page = PageRef { space: key, first };
        // What counts for a budget of its own leaves by that one's order.
        if self.enqueue_page(key, first, size) && self.budgets.of(page).is_none() {
            self.made_own.push_back((page, size));
        }
    }

    /// A page is about to be made a process's own: what a relative has of the same frames is to leave after it.
    fn note_other_side(&mut self, key: SpaceKey, first: u64, size: PageSize) {
        for base in first..first + size.base_pages() {
            if !self.may_be_made_own(key, base) {
                continue;
            }
            let other = match self.spaces[&key].relatives[..] {
                [one] => Some(one),
                _ => self.holders(key, base).next(),
            };
            let Some(other) = other else { continue };
            let (ours, theirs) = (self.entry(key, base), self.entry(other, base));
            let in_common = match (ours.protected, theirs.protected) {
                (false, false) => ours.shared || theirs.shared, // or it was, of what nobody protects
                (ours, theirs) => ours && theirs,
            };
            if !in_common || theirs.state != BaseState::Local {
                continue;
            }
            let around = self.spaces[&other].table.queued_around(base, PageSize::SMALLEST);
            let (first, size) = around.unwrap_or((first, size));
            let page = (PageRef { space: other, first }, size);
            if self.other_side.back() != Some(&page) {
                self.other_side.push_back(page);
            }
        }
    }

    /// All that was made a process's own is leaving: now the other side of it. True: there is some, and it takes the hand a moment.
    pub(super) fn make_other_side_own(&mut self, now: Instant) -> bool {
        if !self.made_own.is_empty() || self.other_side.is_empty() {
            return false;
        }
        for (PageRef { space: key, first }, size) in core::mem::take(&mut self.other_side) {
            let leaves = self.spaces.get(&key).is_some_and(Space::gives)
                && self.breaks_sharing(now, key, (first, size));
            if leaves && self.spaces.get_mut(&key).expect("just seen").tried.insert(first) {
                self.make_own(key, first, size, false);
            }
        }
        self.evict_pause_until = Some(now + POPULATE_PAUSE);
        true
    }

    /// What relatives shared leaves each of them by itself, with the same contents: a reference more to the copy that the first of them has left, if it is `same`.
    pub(super) fn copy_of_relative(
        &mut self,
        key: SpaceKey,
        base: u64,
        same: impl Fn(&Self, CopyIndex) -> bool,
    ) -> Option<CopyIndex> {
        let relatives = self.spaces[&key].relatives.iter().take(RELATIVES_ASKED);
        let mut copies = relatives.filter_map(|&other| self.entry(other, base).copy);
        let copy = copies.find(|&copy| same(self, copy))?;
        self.copies.get_mut(copy).refs += 1;
        self.stats.clean += 1;
        Some(copy)
    }

    /// Lets pages that could not be taken be tried again.
    pub(super) fn unpark(&mut self, key: SpaceKey) {
        let Some(space) = self.spaces.get_mut(&key) else { return };
        (space.granted, space.granted_pages, space.denied) = (Vec::new(), 0, 0);
        if !space.parked.is_empty() {
            space.table.forget_stuck();
        }
        for (first, size) in core::mem::take(&mut space.parked) {
            self.enqueue_page(key, first, size);
        }
    }

    /// What could not be taken of a page is asked for again.
    pub(super) fn ask_again(&mut self, key: SpaceKey, first: u64, size: PageSize) {
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        (first..first + size.base_pages()).for_each(|base| space.table.set_stuck(base, false));
    }

    /// False: nothing of it is here.
    pub(super) fn enqueue_page(&mut self, key: SpaceKey, first: u64, size: PageSize) -> bool {
        let page = first..first + size.base_pages();
        let space = &self.spaces[&key];
        let Some(base) = page.into_iter().find(|&b| space.table.get(b).state == BaseState::Local) else {
            return false;
        };
        self.replacement.kept(PageRef { space: key, first });
        self.enqueue(key, base, size);
        true
    }
}
