//! What is seen of a page that has left is not told before it cannot come back from a buffer.
//!
//! Where many new pages come at once they leave on trial, milliseconds later; those that are in use are back from their buffers a moment after that, and stay. Told when they left first,
//! nothing of them would have been wanted, and pages would become as small as can be at the begin of each sweep across and of each bucket sort: just where large ones fit and pay. A page that has
//! been away for that moment has not left: what was left out of it stays left out, and of what it is filled with nothing is said yet.

use super::Borrower;
use super::holes::Stay;
use super::table::{BaseState, Entry, SpaceKey};
use crate::page_size::{PageSize, Probed};
use crate::units::Instant;

/// At most so many pages are in doubt after others have left: of one more it is told as if it could not come back.
const DOUBTS_MAX: usize = 4096;
/// So many are looked at when pages have left.
const LOOKS: usize = 32;

/// A page that has left, of which something is to be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    key: SpaceKey,
    /// One of its base pages that had contents.
    near: u64,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    /// The base page that was left out of it.
    Hole(u64),
    /// What became of its zeros.
    Zeros(Probed),
}

impl Borrower {
    /// A page has left of which this base page was left out, and nobody has waited for it so far.
    pub(super) fn doubt_hole(&mut self, key: SpaceKey, base: u64) {
        let hole = self.holes.get_mut(key, base).expect("the caller has found it");
        let was = core::mem::replace(&mut hole.page, Stay::Away);
        if was != Stay::Away {
            let near = hole.fault;
            self.doubts.push_back(Doubt { key, near, of: Of::Hole(base) });
        }
    }

    /// A page has left that came as zeros, one of them written by now at `near`: what that would say.
    pub(super) fn doubt_zeros(&mut self, key: SpaceKey, near: u64, probe: Probed) {
        self.doubts.push_back(Doubt { key, near, of: Of::Zeros(probe) });
    }

    /// A page of this size comes of which this base page was left out the last time. Is it still? It is if the page is here, or the same page is back from a buffer.
    pub(super) fn is_still_left_out(&mut self, key: SpaceKey, fault: u64, size: PageSize, base: u64) -> bool {
        let hole = *self.holes.get(key, base).expect("the caller has found it");
        if hole.page != Stay::Away {
            return true;
        }
        if !self.may_come_back(key, hole.fault) && !self.may_come_back(key, fault) {
            self.hole_has_left(self.waits_changed_at, key, base);
            return false;
        }
        if hole.size != size {
            self.holes.remove(key, base);
            return false;
        }
        let turned_over = self.sizer.turned_over();
        let hole = self.holes.get_mut(key, base).expect("it was there");
        hole.page = Stay::Second;
        if fault == base {
            hole.touch(turned_over);
        }
        true
    }

    /// Tells what can be told by now.
    pub(super) fn settle_doubts(&mut self, now: Instant) {
        let too_many = self.doubts.len().saturating_sub(DOUBTS_MAX);
        for _ in 0..self.doubts.len().min(LOOKS.max(too_many)) {
            let doubt = self.doubts.pop_front().expect("there are so many");
            let Doubt { key, near, of } = doubt;
            if self.may_come_back(key, near) && self.doubts.len() < DOUBTS_MAX {
                self.doubts.push_back(doubt);
                continue;
            }
            // Else it is back, or gone.
            let is_away = matches!(self.entry(key, near).state, BaseState::Away | BaseState::Leaving);
            match of {
                Of::Zeros(probe) if is_away => self.sizer.probed(now, &probe),
                Of::Zeros(_) => {}
                Of::Hole(base) if self.holes.get(key, base).is_none_or(|hole| hole.page != Stay::Away) => {}
                Of::Hole(base) if is_away => self.hole_has_left(now, key, base),
                Of::Hole(base) => {
                    self.holes.remove(key, base);
                }
            }
        }
    }

    /// The page of which this base page was left out is away for good: was it wanted?
    pub(super) fn hole_has_left(&mut self, now: Instant, key: SpaceKey, base: u64) {
        let hole = self.holes.remove(key, base).expect("the caller has found it");
        self.sizer.probed(now, &hole.probed(key, base));
    }

    /// What has left, or is about to, is still in a buffer.
    fn may_come_back(&self, key: SpaceKey, base: u64) -> bool {
        let entry = self.entry(key, base);
        match entry.state {
            BaseState::Leaving => true,
            BaseState::Away => self.is_buffered(entry),
            _ => false,
        }
    }

    /// Its contents are in a buffer.
    pub(super) fn is_buffered(&self, entry: Entry) -> bool {
        entry.copy.is_some_and(|copy| self.copies.get(copy).buffer().is_some())
    }
}
