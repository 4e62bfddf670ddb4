//! What a program says of its memory before it uses it, or when it has used it (DESIGN.md, section 7).
//!
//! ```text
//! will need ─────► what is away of it is fetched, behind everything that a thread waits for, as long as there are frames
//! will not need ─► what is here of it leaves first, before the replacement policy is asked, and though frames are free
//! ```
//!
//! Advice changes when pages move and never what they contain. It is carried out in pieces, with the fetch plans ([`Borrower::handle_plans`]).

use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, PageRef};
use crate::page_size::PageSize;
use crate::units::Instant;

/// Advice that is not carried out yet; more makes the oldest be forgotten.
const ADVISED_MAX: usize = 64;
/// Pages at a time that wait to leave.
const GIVEN_MAX: usize = 1024;
/// Fetches under way while more begins for what will be needed: a fault's page waits behind them at the lender.
const FETCHES_MAX: usize = 64;
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
        // What was said last holds, but for pages that are on their way already.
        let is_over =
            |of: &Advised| of.key == key && range.start <= of.range.start && of.range.end <= range.end;
        self.advised.retain(|of| of.advice == advice || !is_over(of));
        if advice == Advice::WillNeed {
            self.given.retain(|(page, _)| page.space != key || !range.contains(page.first));
        }
        if self.advised.len() >= ADVISED_MAX {
            self.advised.pop_front();
        }
        self.advised.push_back(Advised { key, advice, range: BaseRange::new(range.start, end) });
        self.advance(now);
    }

    /// Some advice can be followed further now.
    pub(super) fn has_advice(&self) -> bool {
        self.advised.front().is_some_and(|next| match next.advice {
            // Without frames, and none that will come, it is given up.
            Advice::WillNeed => {
                self.fetches.len() < FETCHES_MAX && (self.has_room_ahead() || !self.frames_will_come())
            }
            Advice::WillNotNeed => self.given.len() < GIVEN_MAX,
        })
    }

    /// One page more makes nobody wait for a frame.
    fn has_room_ahead(&self) -> bool {
        self.frames + 2 * self.sizer.largest().base_pages() <= self.limit
    }

    /// Follows the oldest advice a little further; returns about how many base pages were looked at.
    pub(super) fn follow_advice(&mut self) -> u64 {
        let mut next = self.advised.pop_front().expect("the caller has looked");
        let Advised { key, advice, range } = next;
        let found = self.spaces.get(&key).and_then(|space| space.table.next_used(range));
        let Some(part) = found else { return 1 };
        let goes_on_at = match advice {
            Advice::WillNeed => self.need(key, part),
            Advice::WillNotNeed => self.give(key, part, range.end),
        };
        next.range.start = goes_on_at.min(range.end);
        assert!(next.range.start > part.start, "advice is followed further each time");
        if !next.range.is_empty() {
            self.advised.push_front(next);
        }
        next.range.start - part.start
    }

    /// Brings what is away of `part`, which is in one extent, as far as may be now; returns where to go on, or the end of all if it is given up.
    fn need(&mut self, key: SpaceKey, part: BaseRange) -> u64 {
        if !self.has_room_ahead() {
            return u64::MAX;
        }
        let mut base = part.start;
        while base < part.end && self.has_room_ahead() && self.fetches.len() < FETCHES_MAX {
            let size = self.size_at(key, base);
            let page = self.page_range(key, base, size).intersect(part);
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
        for first in part.start..part.end {
            let size = self.spaces[&key].table.queued(first);
            if let Some(size) = size.filter(|size| first + size.base_pages() <= end) {
                self.given.push_back((PageRef { space: key, first }, size));
            }
        }
        part.end
    }

    /// What was said not to be needed of a space cannot leave: it is pinned or shared, and who needs a frame must not wait for it.
    pub(super) fn keep_given(&mut self, key: SpaceKey) {
        self.given.retain(|(page, _)| page.space != key);
        self.advised.retain(|of| of.key != key || of.advice != Advice::WillNotNeed);
    }

    /// The page to leave next: what was said not to be needed, else, if frames are wanted, what the policy says. With the former its size.
    pub(super) fn next_victim(&mut self, wanted: bool) -> Option<(PageRef, Option<PageSize>)> {
        while let Some((page, size)) = self.given.pop_front() {
            // It may have left and come back in another size, or be gone, since.
            if self.spaces.get(&page.space).is_some_and(|space| space.table.queued(page.first) == Some(size))
            {
                return Some((page, Some(size)));
            }
        }
        let page = if wanted { self.replacement.victim() } else { None };
        page.map(|page| (page, None))
    }

    /// Directly after [`Self::next_victim`]: it is to be the next one again.
    pub(super) fn put_back_victim(&mut self, page: PageRef, given: Option<PageSize>) {
        match given {
            Some(size) => self.given.push_front((page, size)),
            None => self.replacement.put_back(page),
        }
    }

    /// It leaves, or stands in the policy's order no longer. The policy does not know of that if it has not been asked.
    pub(super) fn victim_goes(&mut self, page: PageRef, given: Option<PageSize>) {
        if given.is_some() {
            self.replacement.removed(page);
        }
    }

    /// Advice that is not carried out yet, for tests and simulations: how many pages wait to leave, and ranges.
    pub fn advice_left(&self) -> (usize, usize) {
        (self.given.len(), self.advised.len())
    }
}
