//! Bringing all of a range home, before something that must not fault there: memory that is given back for good, a fork of which the kernel says nothing.
//!
//! It may be many gigabytes, and whoever waits for them looks again whenever something has happened. So each look goes on where the last one ended.

use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, Effect, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// So many base pages are on their way at a time.
const ASKED_MAX: usize = 1024;

/// A range on its way home, of a space that gives nothing away meanwhile ([`Borrower::handle_evictable`]).
#[derive(Debug)]
pub struct Homecoming {
    range: BaseRange,
    /// All before this was home or on its way when it was looked at.
    next: u64,
    /// The furthest that this has been.
    furthest: u64,
    /// What was on its way, in order, from the first that may still be.
    asked: VecDeque<u64>,
}

impl Homecoming {
    /// Nothing of it has been asked for.
    pub fn new(range: BaseRange) -> Self {
        Self { range, next: range.start, furthest: range.start, asked: VecDeque::new() }
    }

    /// What is brought home.
    pub fn range(&self) -> BaseRange {
        self.range
    }
}

impl Borrower {
    /// Asks for some more of what is away, budget or not (see [`Self::handle_wanted`]). True: it may be asked for more at once, if all of that is there when
    /// the effects are carried out. (What cannot be put in its place now would be asked for without end.)
    pub fn bring_home(&mut self, now: Instant, key: SpaceKey, home: &mut Homecoming) -> bool {
        self.pass_what_is_home(key, home);
        let room = ASKED_MAX - home.asked.len();
        let away = self.away_in(key, BaseRange::new(home.next, home.range.end), room);
        let mut is_refused = false;
        for &base in &away {
            if self.state(key, base) == BaseState::Lost {
                self.effects.push_back(Effect::Lost { space: key, base }); // where it goes it would be zeros
            }
            self.handle_wanted(now, key, base);
            // There may be no buffer for it now. It is the next one again, and all behind it.
            is_refused |= self.state(key, base) == BaseState::Away;
            if !is_refused {
                home.asked.push_back(base);
                home.next = base + 1;
            }
        }
        if !is_refused && away.len() < room {
            home.next = home.range.end;
        }
        let goes_on = home.next > home.furthest;
        home.furthest = home.furthest.max(home.next);
        goes_on
    }

    /// Nothing of it is away, nor lost. (All of it is looked at when all that was asked for has come, and not before.)
    pub fn is_home_again(&self, key: SpaceKey, home: &mut Homecoming) -> bool {
        self.pass_what_is_home(key, home);
        if !home.asked.is_empty() || home.next < home.range.end {
            return false;
        }
        // Something may have moved to where it had been looked at.
        let first = self.away_in(key, home.range, 1).first().copied();
        home.next = first.unwrap_or(home.next);
        first.is_none()
    }

    fn pass_what_is_home(&self, key: SpaceKey, home: &mut Homecoming) {
        while let Some(&base) = home.asked.front() {
            match self.state(key, base) {
                BaseState::Away => {
                    // It could not be put in its place, and perhaps others could not: all is asked for again from there on.
                    home.next = base;
                    home.asked.clear();
                }
                BaseState::Fetching | BaseState::Leaving => break,
                BaseState::Empty | BaseState::Local | BaseState::Lost => {
                    home.asked.pop_front();
                }
            }
        }
    }

    /// The first base pages of `range` that have contents away or on their way, `most` of them.
    fn away_in(&self, key: SpaceKey, range: BaseRange, most: usize) -> Vec<u64> {
        let (mut away, mut rest) = (Vec::new(), range);
        let Some(space) = self.spaces.get(&key) else { return away };
        while away.len() < most
            && let Some(base) = space.table.next_away(rest)
        {
            away.push(base);
            rest.start = base + 1;
        }
        away
    }
}
