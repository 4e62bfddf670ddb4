//! What is seen of a page that has left is not told before it cannot come back from a buffer.
//!
//! Where many new pages come at once they leave on trial, milliseconds later; those that are in use are back from their buffers a moment after that, and stay. Told when they left first,
//! nothing of them would have been wanted, and pages would become as small as can be at the begin of each sweep across and of each bucket sort: just where large ones fit and pay. A page that has
//! been away for that moment has not left: what was left out of it stays left out, and of what it is filled with nothing is said yet.

use super::Borrower;
use super::holes::{Hole, Stay};
use super::table::{BaseState, SpaceKey};
use crate::page_size::{Place, Probed};
use crate::units::Instant;

/// So many pages are in doubt for longer than until the next ones have left: what is told of one more is told then.
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
            let near = near_of(hole, base);
            self.doubts.push_back(Doubt { key, near, of: Of::Hole(base) });
        }
    }

    /// A page has left that came as zeros, one of them written by now at `near`: what that would say.
    pub(super) fn doubt_zeros(&mut self, key: SpaceKey, near: u64, probe: Probed) {
        self.doubts.push_back(Doubt { key, near, of: Of::Zeros(probe) });
    }

    /// A page comes of which this base page was left out the last time: it still is if the page is back from a buffer.
    pub(super) fn hole_is_back(&mut self, key: SpaceKey, fault: u64, base: u64) {
        let Some(hole) = self.holes.get_mut(key, base).filter(|hole| hole.page == Stay::Away) else { return };
        let near = near_of(hole, base);
        if self.is_buffered(key, near) || self.is_buffered(key, fault) {
            self.holes.get_mut(key, base).expect("it was there").page = Stay::Second;
        } else {
            self.hole_has_left(self.waits_changed_at, key, base);
        }
    }

    /// Tells what can be told by now.
    pub(super) fn settle_doubts(&mut self, now: Instant) {
        let too_many = self.doubts.len().saturating_sub(DOUBTS_MAX);
        for _ in 0..self.doubts.len().min(LOOKS.max(too_many)) {
            let doubt = self.doubts.pop_front().expect("there are so many");
            let Doubt { key, near, of } = doubt;
            let state = self.entry(key, near).state;
            let may_come_back = match state {
                BaseState::Leaving => true,
                BaseState::Away => self.is_buffered(key, near),
                _ => false,
            };
            if may_come_back && self.doubts.len() < DOUBTS_MAX {
                self.doubts.push_back(doubt);
                continue;
            }
            match of {
                Of::Zeros(probe) if state == BaseState::Away => self.sizer.probed(now, &probe),
                // It is back, or gone.
                Of::Zeros(_) => {}
                Of::Hole(base) => {
                    let Some(hole) = self.holes.get_mut(key, base).filter(|hole| hole.page == Stay::Away)
                    else {
                        continue;
                    };
                    let first = hole.first;
                    if state == BaseState::Away {
                        self.hole_has_left(now, key, base);
                    } else {
                        // It is back in pages of another size.
                        self.holes.take(key, first);
                    }
                }
            }
        }
    }

    /// The page of which this base page was left out is away for good: was it wanted?
    pub(super) fn hole_has_left(&mut self, now: Instant, key: SpaceKey, base: u64) {
        let first = self.holes.get_mut(key, base).expect("the caller has found it").first;
        let (base, Hole { size, part, reach, touched, .. }) =
            self.holes.take(key, first).expect("it is there");
        let place = Place { space: key, base };
        self.sizer.probed(now, &Probed { place, part, size, reach, wanted: touched });
    }

    fn is_buffered(&self, key: SpaceKey, base: u64) -> bool {
        self.entry(key, base).copy.is_some_and(|copy| self.copies.get(copy).buffer().is_some())
    }
}

/// A base page of the page of which `base` was left out: not that one.
fn near_of(hole: &Hole, base: u64) -> u64 {
    if hole.first == base { base + 1 } else { hole.first }
}
