//! Giving memory back because the lender's own machine wants it: gms-1995's "returns to idle" in the other direction.
//!
//! ```text
//! handle_limit ─► above the limit: drop the oldest of what the disk has, then of what is spare,
//!                   │                a few extents a step ─► poll_effect: Release, in long runs
//!                   └── still above: recall the oldest of the rest ─► poll_effect: Recall ─► the borrower drops them
//! ```
//!
//! *Spare* pages are on their borrower's disk too: dropping one costs a read from there. Others exist only here. They are
//! never dropped, but *recalled*: their borrower is asked to take them home within [`RECALL_TIME`], and drops each once it is
//! safe elsewhere. What is not taken home stays, over the limit, and is asked for again after a pause. No round begins with pages that
//! are still being fetched for the last. What waits for this lender's disk is written first, held pages too, and dropped then; it is recalled
//! only if the disk is full or fails. What is pinned ([`super::reservation`]) takes no part in any of this.
//!
//! Memory is released once the oldest pages are all gone: by then their slots have merged into long runs, which cost
//! the system a third of what single pages do.

use super::ages::Moment;
use super::types::Standing;
use super::{Lender, REAP_EXTENTS, Tenancy};
use crate::ids::{SpaceId, Version};
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// How long a borrower may go without taking home any of what it was asked for, before it counts as unable to.
pub const RECALL_TIME: Duration = Duration::from_millis(1_000);
/// Pause before pages that were not taken home are asked for again.
const RECALL_PAUSE: Duration = Duration::from_millis(5_000);
/// Pages that are asked for and not yet taken home, at most (16 MiB): the borrower's faults wait behind these.
const RECALLED_MAX: u64 = if cfg!(test) { 8 } else { 4096 };
/// Pages of one [`super::Effect::Recall`].
pub const RECALL_PAGES_MAX: usize = if cfg!(test) { 4 } else { 1024 };

/// Later than any page was used.
const ANY: Moment = Moment(u32::MAX);

/// Pages that a borrower is asked to take home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Whose.
    pub space: SpaceId,
    /// Which, oldest extents first within what one look finds; at most [`RECALL_PAGES_MAX`].
    pub pages: Vec<(u64, Version)>,
}

/// A walk over the extents of some borrowers, for their oldest pages.
#[derive(Debug)]
struct Sweep {
    /// Pages used before this are taken, …
    cutoff: Moment,
    /// … and so many of those used just then.
    at_cutoff: u64,
    /// Of pages that are this.
    standing: Standing,
    borrowers: Vec<(Tenancy, SpaceId)>,
    /// The extent of the last of them to look at next.
    next_extent: u64,
}

impl Sweep {
    fn takes(&mut self, used: Moment) -> bool {
        if used == self.cutoff && self.at_cutoff > 0 {
            self.at_cutoff -= 1;
            return true;
        }
        used < self.cutoff
    }
}

/// What is being done to get below the limit.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Rest,
    Dropping(Sweep),
    Recalling(Sweep),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shrink {
    phase: Phase,
    /// The round of recalls that counts; 0: none.
    round: u32,
    round_last: u32,
    /// Pages asked for in this round that are still here.
    asked_pages: u64,
    /// One of them has been taken home since `gives_up_at` was set.
    progress: bool,
    gives_up_at: Option<Instant>,
    again_at: Option<Instant>,
    /// Borrowers did not take home what they were asked for.
    pub(super) in_vain: bool,
    pub(super) dropped_pages: u64,
    pub(super) recalled_pages: u64,
}

impl Shrink {
    /// A page that was asked for in round `asked` (0: in none) has gone.
    pub(super) fn page_gone(&mut self, asked: u32) {
        if asked == 0 {
            return;
        }
        self.recalled_pages += 1;
        if asked == self.round {
            assert!(self.asked_pages > 0, "more pages were taken home than asked for");
            self.asked_pages -= 1;
            (self.progress, self.in_vain) = (true, false);
        }
    }

    /// A page that was asked for in round `asked` is dropped: it was written, or became spare, since.
    fn need_not_come(&mut self, asked: u32) {
        if asked != 0 && asked == self.round {
            self.asked_pages -= 1;
        }
    }

    /// Nothing is above the limit.
    pub(super) fn rest(&mut self) {
        self.phase = Phase::Rest;
        self.in_vain = false;
        self.forget_round();
    }

    /// What was asked for so far does not count any more.
    fn forget_round(&mut self) {
        (self.round, self.asked_pages) = (0, 0);
        (self.gives_up_at, self.again_at) = (None, None);
    }
}

impl Lender {
    /// Steps towards the limit, a bounded number of them.
    pub(super) fn shrink(&mut self, now: Instant) {
        if self.slots.excess_pages() == 0 {
            self.shrink.rest();
            return;
        }
        self.look_at_round(now);
        match core::mem::take(&mut self.shrink.phase) {
            Phase::Rest => self.shrink.phase = self.next_phase(now),
            Phase::Dropping(sweep) => self.drop_oldest(sweep),
            Phase::Recalling(sweep) => self.recall_oldest(now, sweep),
        }
    }

    /// Pages are being dropped: the memory of what is gone is released when all of them are. (Others may be enough meanwhile, that their borrower drops, or
    /// the limit is higher again: then nothing more is dropped, and nobody need come for a step.)
    pub(super) fn drops(&self) -> bool {
        matches!(self.shrink.phase, Phase::Dropping(_)) && self.slots.excess_pages() > 0
    }

    /// When [`Self::shrink`] has something to do.
    pub(super) fn shrink_due(&self) -> Option<Instant> {
        if self.slots.excess_pages() == 0 {
            return None;
        }
        let at_once = match self.shrink.phase {
            Phase::Dropping(_) => true,
            Phase::Recalling(_) => {
                let most = self.asked_pages_max();
                self.recalls.is_empty() && most - self.shrink.asked_pages.min(most) >= most.div_ceil(2)
            }
            Phase::Rest => {
                let may_recall = self.shrink.again_at.is_none() && self.may_recall();
                let holds = self.cache.as_ref().is_some_and(|cache| cache.ring.pages_held() > 0);
                self.droppable().is_some() || may_recall || holds
            }
        };
        if at_once {
            return Some(Instant(0));
        }
        [self.shrink.gives_up_at, self.shrink.again_at].into_iter().flatten().min()
    }

    /// Pages that may be asked for at a time.
    fn asked_pages_max(&self) -> u64 {
        RECALLED_MAX.min(self.slots.excess_pages())
    }

    /// Pages above the limit that nothing is being done about: nobody may be asked for them, or was in vain.
    pub(super) fn kept_pages(&self) -> u64 {
        let will_drain = self.has(Standing::Staged) && !self.recalls_staged();
        let vain = self.shrink.in_vain
            || (self.droppable().is_none()
                && !will_drain
                && !self.borrowers.values().any(super::Borrower::can_be_asked));
        if vain { self.slots.excess_pages() } else { 0 }
    }

    fn has(&self, standing: Standing) -> bool {
        self.ages[standing as usize].pages() > 0
    }

    /// The kind of pages that is dropped next.
    fn droppable(&self) -> Option<Standing> {
        [Standing::OnDisk, Standing::Spare].into_iter().find(|standing| self.has(*standing))
    }

    /// What waits for the disk will not be there soon.
    fn recalls_staged(&self) -> bool {
        self.cache.as_ref().is_some_and(super::Cache::is_stuck)
    }

    /// The kind of pages that is recalled next.
    fn recallable(&self) -> Option<Standing> {
        let staged = || (self.has(Standing::Staged) && self.recalls_staged()).then_some(Standing::Staged);
        if self.has(Standing::Recallable) { Some(Standing::Recallable) } else { staged() }
    }

    fn may_recall(&self) -> bool {
        self.shrink.asked_pages == 0
            && self.recallable().is_some()
            && self.borrowers.values().any(super::Borrower::can_be_asked)
    }

    /// Whether what was asked for is being taken home.
    fn look_at_round(&mut self, now: Instant) {
        if self.shrink.gives_up_at.is_some_and(|at| at <= now) {
            let progress = core::mem::take(&mut self.shrink.progress);
            self.shrink.gives_up_at = None;
            if progress && self.shrink.asked_pages > 0 {
                self.shrink.gives_up_at = Some(now + RECALL_TIME);
            } else if self.shrink.asked_pages > 0 {
                self.shrink.in_vain = true;
                self.shrink.again_at = Some(now + RECALL_PAUSE);
                if let Phase::Recalling(_) = self.shrink.phase {
                    self.shrink.phase = Phase::Rest;
                }
            }
        }
        if self.shrink.again_at.is_some_and(|at| at <= now) {
            self.shrink.forget_round();
        }
    }

    fn next_phase(&mut self, now: Instant) -> Phase {
        let excess = self.slots.excess_pages();
        if let Some(cache) = &mut self.cache {
            cache.ring.press(excess);
        }
        let sweep = |standing: Standing, borrowers: Vec<_>| {
            let (cutoff, at_cutoff) = self.ages[standing as usize].oldest(excess);
            Sweep { cutoff, at_cutoff, standing, borrowers, next_extent: 0 }
        };
        let chosen = |may: fn(&super::Borrower) -> bool| {
            self.borrowers
                .iter()
                .filter(|(_, b)| b.has_unpinned() && may(b))
                .map(|(s, b)| (b.tenancy, *s))
                .collect()
        };
        if let Some(standing) = self.droppable() {
            return Phase::Dropping(sweep(standing, chosen(|b| b.terms.may_drop())));
        }
        let recallable = self.recallable().filter(|_| self.shrink.again_at.is_none() && self.may_recall());
        let Some(standing) = recallable else { return Phase::Rest };
        let sweep = sweep(standing, chosen(super::Borrower::can_be_asked));
        // 0 stands for never.
        self.shrink.round_last = self.shrink.round_last.wrapping_add(1).max(1);
        self.shrink.round = self.shrink.round_last;
        self.shrink.progress = false;
        self.shrink.gives_up_at = Some(now + RECALL_TIME);
        Phase::Recalling(sweep)
    }

    /// The next extent of a sweep, if there is one; borrowers that have ended meanwhile are passed over.
    fn sweep_extent(&self, sweep: &mut Sweep) -> Option<(SpaceId, (Tenancy, u64))> {
        while let Some(&(tenancy, space)) = sweep.borrowers.last() {
            let lives = self.borrowers.get(&space).is_some_and(|b| b.tenancy == tenancy);
            let range = (tenancy, sweep.next_extent)..=(tenancy, u64::MAX);
            match self.extents.range(range).next().filter(|_| lives) {
                Some((&key, _)) => {
                    sweep.next_extent = key.1 + 1;
                    return Some((space, key));
                }
                None => {
                    sweep.borrowers.pop();
                    sweep.next_extent = 0;
                }
            }
        }
        None
    }

    fn drop_oldest(&mut self, mut sweep: Sweep) {
        for _ in 0..REAP_EXTENTS {
            // All of them have gone, or were used meanwhile: then the next look finds others.
            let Some((space, key)) = self.sweep_extent(&mut sweep) else { return };
            let standing = sweep.standing;
            let (slots, ages, order) = (&mut self.slots, &mut self.ages[standing as usize], &mut self.order);
            let shrink = &mut self.shrink;
            let extent = self.extents.get_mut(&key).expect("it was just seen");
            let mut gone = 0;
            extent.remove_where(|slot| {
                let used = slots.used(slot);
                let leaves = slots.standing(slot) == standing && !slots.is_pinned(slot) && sweep.takes(used);
                if leaves {
                    ages.remove(used);
                    order.remove(standing, slot);
                    shrink.need_not_come(slots.asked(slot));
                    slots.free(slot);
                    gone += 1;
                }
                leaves
            });
            if extent.is_empty() {
                self.extents.remove(&key);
            }
            let borrower = self.borrowers.get_mut(&space).expect("it was just seen");
            borrower.pages -= gone;
            self.shrink.dropped_pages += gone;
            self.gone_if_done(space);
            if self.slots.excess_pages() == 0 {
                return;
            }
        }
        self.shrink.phase = Phase::Dropping(sweep);
    }

    /// A sweep found nothing: the oldest pages are those of borrowers that are away. Then whatever others have must do.
    fn recall_none(&mut self, now: Instant, sweep: &Sweep) {
        if sweep.cutoff == ANY {
            self.shrink.again_at = Some(now + RECALL_PAUSE);
            return;
        }
        let askable = self.borrowers.iter().filter(|(_, b)| b.can_be_asked());
        let borrowers = askable.map(|(space, b)| (b.tenancy, *space)).collect();
        let all = Sweep { cutoff: ANY, at_cutoff: 0, standing: sweep.standing, borrowers, next_extent: 0 };
        self.shrink.phase = Phase::Recalling(all);
    }

    fn recall_oldest(&mut self, now: Instant, mut sweep: Sweep) {
        for _ in 0..REAP_EXTENTS {
            let most = self.asked_pages_max();
            if self.shrink.asked_pages >= most || !self.recalls.is_empty() {
                self.shrink.phase = Phase::Recalling(sweep);
                return;
            }
            let Some((space, key)) = self.sweep_extent(&mut sweep) else {
                // What is under way may be enough; if it is not, another round begins when it has come to its end.
                if self.shrink.asked_pages == 0 {
                    self.recall_none(now, &sweep);
                }
                return;
            };
            let extent = &self.extents[&key];
            let mut pages = Vec::new();
            for (offset, slot) in extent.iter() {
                let left = most - self.shrink.asked_pages;
                let fresh = self.slots.asked(slot) != self.shrink.round
                    && self.slots.standing(slot) == sweep.standing
                    && !self.slots.is_pinned(slot);
                if left == 0 || !fresh || !sweep.takes(self.slots.used(slot)) {
                    continue;
                }
                if pages.len() == RECALL_PAGES_MAX {
                    self.recalls.push_back(Recall { space, pages: core::mem::take(&mut pages) });
                }
                self.slots.ask(slot, self.shrink.round);
                self.shrink.asked_pages += 1;
                pages.push((super::join(key.1, offset), self.slots.stored(slot).0));
            }
            if self.shrink.asked_pages >= most {
                // The rest of this extent's turn comes when some of them are home.
                sweep.next_extent = key.1;
            }
            if !pages.is_empty() {
                self.recalls.push_back(Recall { space, pages });
                self.shrink.gives_up_at.get_or_insert(now + RECALL_TIME);
            }
        }
        self.shrink.phase = Phase::Recalling(sweep);
    }
}
