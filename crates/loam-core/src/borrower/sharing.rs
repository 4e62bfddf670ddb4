//! Pages that could not be taken away, and frames that forked relatives share.
//!
//! After a fork parent and child have the same frames, and the kernel gives none of them away: to it a page is shared until the process that has it
//! has written there once, also when the other side has gone, or has a copy by now. Most children soon run another program or end, so
//! at first such pages are only put aside. But one that stays (redis saving in the background, a pool of workers) would keep what was here at the
//! fork here for good, and have the little that is left of local memory for all that it does. So sharing that lasts is broken when a page's turn
//! comes: it is made the process's own, which may take a frame, and leaves directly.

use super::evict::BATCH_PAGES_MIN;
use super::table::{BaseState, Entry, SpaceKey};
use super::{Borrower, Effect, Space};
use crate::page_size::PageSize;
use crate::replacement::PageRef;
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// How long pages that could not be taken are left alone, at first; twice as long each time that still none could.
const PARKED_MIN: Duration = Duration::from_millis(500);
const PARKED_MAX: Duration = Duration::from_millis(16_000);
/// Pause after sharing was broken on purpose, for the hand to have done it.
const POPULATE_PAUSE: Duration = Duration::from_millis(1);

/// The first pause.
pub(super) const fn parked_first() -> Duration {
    PARKED_MIN
}

impl Space {
    /// A page that is shared is to be made its own when its turn to leave comes.
    fn breaks_sharing(&self) -> bool {
        self.forked && (self.relatives.is_empty() || self.sharing_lasts)
    }
}

impl Borrower {
    /// Pages that could not be taken stay out of the order for a while; or they are made the process's own, if that may help, and tried again.
    pub(super) fn keep_busy(&mut self, now: Instant, key: SpaceKey, busy: &[(u64, PageSize)]) {
        for &(first, size) in busy {
            let space = self.spaces.get_mut(&key).expect("checked by the caller");
            // What is its own already is pinned.
            if space.breaks_sharing() && space.made_own.insert(first) {
                self.make_own(key, first, size);
                self.evict_pause_until = Some(now + POPULATE_PAUSE);
                self.enqueue_page(key, first, size);
                continue;
            }
            space.made_own.remove(&first);
            space.parked.push((first, size));
            if self.parked_until.is_none() {
                self.parked_until = Some(now + self.parked_for);
                self.parked_for = Duration((self.parked_for.0 * 2).min(PARKED_MAX.0));
            }
        }
    }

    /// These pages have left.
    pub(super) fn note_taken(&mut self, key: SpaceKey, pages: impl Iterator<Item = u64>) {
        let space = self.spaces.get_mut(&key).expect("checked by the caller");
        if !space.made_own.is_empty() {
            pages.for_each(|first| {
                space.made_own.remove(&first);
            });
        }
    }

    /// What was parked long enough is tried again. Whoever still has relatives then has some that stay.
    pub(super) fn unpark_in_time(&mut self, now: Instant) {
        if self.parked_until.is_none_or(|until| now < until) {
            return;
        }
        self.parked_until = None;
        let keys: Vec<SpaceKey> = self.spaces.keys().copied().collect();
        for key in keys {
            let space = self.spaces.get_mut(&key).expect("just listed");
            space.sharing_lasts |= !space.parked.is_empty() && !space.relatives.is_empty();
            self.unpark(key);
        }
    }

    /// Nothing can be taken, but forked relatives share frames: makes some of them the process's own, to be
    /// taken then. One relative after the other: what one of them has may be pinned. Returns false: nothing has begun.
    pub(super) fn break_sharing(&mut self, now: Instant) -> bool {
        let shares = |s: &Space| s.gives() && s.forked && !s.parked.is_empty();
        let sharing = || self.spaces.iter().filter(|(_, s)| shares(s)).map(|(&key, _)| key);
        let after = sharing().find(|&key| Some(key) > self.sharing_turn);
        let Some(key) = after.or_else(|| sharing().next()) else { return false };
        self.sharing_turn = Some(key);
        let space = self.spaces.get_mut(&key).expect("found above");
        let n = space.parked.len().min(BATCH_PAGES_MIN as usize);
        let some: Vec<(u64, PageSize)> = space.parked.drain(..n).collect();
        for (first, size) in some {
            self.make_own(key, first, size);
            self.enqueue_page(key, first, size);
        }
        self.evict_pause_until = Some(now + POPULATE_PAUSE);
        false
    }

    /// Has the local base pages of a page made the process's own. (Those alone: the hand would bring the rest home, over the budget.)
    pub(super) fn make_own(&mut self, key: SpaceKey, first: u64, size: PageSize) {
        for base in first..first + size.base_pages() {
            if self.entry(key, base).state != BaseState::Local {
                continue;
            }
            self.count_own(key, base);
            if let Some(Effect::Populate { space, base: from, pages }) = self.effects.back_mut()
                && *space == key
                && *from + u64::from(*pages) == base
            {
                *pages += 1;
            } else {
                self.effects.push_back(Effect::Populate { space: key, base, pages: 1 });
            }
        }
    }

    /// A base page gets a frame of its own: one that counted with a relative counts here; else a relative's does that counted here.
    fn count_own(&mut self, key: SpaceKey, base: u64) {
        let shares = |s: &Self, key: SpaceKey| {
            let entry = s.entry(key, base);
            entry.shared && entry.state == BaseState::Local
        };
        let relatives = self.spaces[&key].relatives.iter().copied();
        let counts = core::iter::once(key).chain(relatives).find(|&key| shares(self, key));
        if let Some(key) = counts {
            let entry = self.entry(key, base);
            self.set_entry(key, base, Entry { shared: false, ..entry });
        }
    }

    /// Lets pages that could not be taken be tried again.
    pub(super) fn unpark(&mut self, key: SpaceKey) {
        let Some(space) = self.spaces.get_mut(&key) else { return };
        for (first, size) in core::mem::take(&mut space.parked) {
            self.enqueue_page(key, first, size);
        }
    }

    fn enqueue_page(&mut self, key: SpaceKey, first: u64, size: PageSize) {
        let page = first..first + size.base_pages();
        let space = &self.spaces[&key];
        if let Some(base) = page.into_iter().find(|&b| space.table.get(b).state == BaseState::Local) {
            self.replacement.kept(PageRef { space: key, first });
            self.enqueue(key, base, size);
        }
    }
}
