//! The two queues of pages, on trial and proven, by what they count for.

use super::super::PageRef;
use crate::borrower::SpaceKey;
use crate::page_size::PageSize;
use crate::units::BasePages;
use alloc::collections::{BTreeMap, VecDeque};

/// On trial there is room for so many times what is ahead: it comes to its use when all streams have asked for more once or twice, and what has been used stands there as well.
const AHEAD_TIMES: u64 = 3;
/// But for this part of the frames at most.
const AHEAD_SHARE_MOST: u64 = 2;
/// Proven pages that one search for a victim passes over at most.
const PASSED_MAX: usize = 64;

/// A [`PageRef`] and its page's size, in as many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    first: u64,
    space: SpaceKey,
    pub(super) size: PageSize,
}

impl Queued {
    pub(super) fn new(page: PageRef, size: PageSize) -> Self {
        Self { first: page.first, space: page.space, size }
    }

    pub(super) fn page(self) -> PageRef {
        PageRef { space: self.space, first: self.first }
    }
}

/// A page that has come back soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proven {
    pub(super) queued: Queued,
    pub(super) level: u8,
    /// Turns that it has left.
    turns: u8,
}

impl Proven {
    pub(super) fn new(queued: Queued, level: u8) -> Self {
        Self { queued, level, turns: (1 << level) - 1 }
    }

    /// It is the next one to leave.
    pub(super) fn last_turn(queued: Queued, level: u8) -> Self {
        Self { queued, level, turns: 0 }
    }
}

/// Entries in the queues that count for nothing, by page: it has left otherwise ([`removed`](crate::replacement::Replacement::removed)), and perhaps come back. They are the
/// first ones of the page.
#[derive(Debug, Default)]
pub(super) struct Voids {
    of: BTreeMap<PageRef, u32>,
    count: usize,
}

impl Voids {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, page: PageRef) {
        *self.of.entry(page).or_default() += 1;
        self.count += 1;
    }

    /// An entry that was just taken out was void.
    pub(super) fn take(&mut self, page: PageRef) -> bool {
        let Some(count) = self.of.get_mut(&page) else { return false };
        *count -= 1;
        if *count == 0 {
            self.of.remove(&page);
        }
        self.count -= 1;
        true
    }
}

/// Two queues. Frames are base pages of all entries, the void ones' too.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) trial: VecDeque<Queued>,
    pub(super) proven: VecDeque<Proven>,
    trial_frames: u64,
    proven_frames: u64,
}

impl Queues {
    pub(super) fn len(&self) -> usize {
        self.trial.len() + self.proven.len()
    }

    pub(super) fn frames(&self) -> u64 {
        self.trial_frames + self.proven_frames
    }

    /// Whether the next one to leave is a proven one, so that this part of the frames is on trial, and enough for what is ahead of streams.
    pub(super) fn gives_proven(&self, trial_share: u64, ahead: BasePages) -> bool {
        let for_ahead = (AHEAD_TIMES * ahead.0).min(self.frames() / AHEAD_SHARE_MOST);
        let few_on_trial = self.trial_frames * trial_share < self.frames() || self.trial_frames < for_ahead;
        self.trial.is_empty() || few_on_trial && !self.proven.is_empty()
    }

    pub(super) fn push_trial(&mut self, queued: Queued) {
        self.trial_frames += queued.size.base_pages();
        self.trial.push_back(queued);
    }

    pub(super) fn push_proven(&mut self, proven: Proven) {
        self.proven_frames += proven.queued.size.base_pages();
        self.proven.push_back(proven);
    }

    /// The next one on trial is this again.
    pub(super) fn restore_trial(&mut self, queued: Queued) {
        self.trial_frames += queued.size.base_pages();
        self.trial.push_front(queued);
    }

    /// The next proven one is this again.
    pub(super) fn restore_proven(&mut self, proven: Proven) {
        self.proven_frames += proven.queued.size.base_pages();
        self.proven.push_front(proven);
    }

    /// The next one on trial, unless its entry is void.
    pub(super) fn take_trial(&mut self, voids: &mut Voids) -> Option<Queued> {
        let queued = self.trial.pop_front()?;
        self.trial_frames -= queued.size.base_pages();
        (!voids.take(queued.page())).then_some(queued)
    }

    /// The next proven page without a turn left, unless a void entry comes before it; those that are passed over have one turn less.
    pub(super) fn take_proven(&mut self, voids: &mut Voids, passed: &mut usize) -> Option<Proven> {
        loop {
            let mut proven = self.proven.pop_front()?;
            let frames = proven.queued.size.base_pages();
            if voids.take(proven.queued.page()) {
                self.proven_frames -= frames;
                return None;
            }
            if proven.turns == 0 || *passed == PASSED_MAX {
                self.proven_frames -= frames;
                return Some(proven);
            }
            *passed += 1;
            proven.turns -= 1;
            self.proven.push_back(proven);
        }
    }

    /// Takes all void entries out, and of the others those of pages that are not there.
    pub(super) fn sweep(&mut self, voids: &mut Voids, is_there: &mut dyn FnMut(PageRef) -> bool) {
        let mut keeps = |queued: &Queued, frames: &mut u64| {
            let keeps = !voids.take(queued.page()) && is_there(queued.page());
            *frames -= if keeps { 0 } else { queued.size.base_pages() };
            keeps
        };
        let Self { trial, proven, trial_frames, proven_frames } = self;
        trial.retain(|queued| keeps(queued, trial_frames));
        proven.retain(|proven| keeps(&proven.queued, proven_frames));
    }
}
