//! How much of what leaves comes back before local memory has been turned over once more by what is wanted.
//!
//! What nobody wanted turns it over, too, and so much the faster that hardly anything comes back in time; but it need not be there. So it does not
//! count: what comes back within one turn of wanted base pages would have stayed if nothing else had come.

use super::super::{Left, PageSize, Place};
use super::evidence::Back;
use crate::borrower::SpaceKey;
use crate::draw::Draw;
use crate::units::BasePages;
use alloc::collections::{BTreeMap, VecDeque};

/// Samples of one turn of memory.
const SAMPLES: u64 = 512;
/// Weight of the newest sample.
const NEWEST: f64 = 1.0 / 128.0;
/// The clock goes by such parts of a base page.
const FINE: u64 = 256;
/// What leaves is watched for this part of a turn at least, on the mean: more is not told by so few samples.
const WATCHED_LEAST: f64 = 0.125;

/// Watches a sample of the base pages that leave.
#[derive(Debug)]
pub(super) struct Returns {
    /// Base pages that may be local.
    limit: u64,
    /// Wanted base pages that have left so far, in parts of one.
    clock: u64,
    watched: BTreeMap<(SpaceKey, u64), u64>,
    order: VecDeque<((SpaceKey, u64), u64)>,
    /// The share of samples that came back from a lender or the disk, and from a victim buffer.
    fetched: f64,
    rescued: f64,
    /// How long it takes, in turns, until what has left comes back or a turn is over.
    watched_for: f64,
}

impl Default for Returns {
    fn default() -> Self {
        let (watched, order) = (BTreeMap::new(), VecDeque::new());
        Self { limit: 0, clock: 0, watched, order, fetched: 0.0, rescued: 0.0, watched_for: 1.0 }
    }
}

impl Returns {
    pub(super) fn limited(&mut self, limit: BasePages) {
        self.limit = limit.0;
    }

    /// Base pages that may be local.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Wanted base pages that have left so far.
    pub(super) fn clock(&self) -> u64 {
        self.clock / FINE
    }

    /// What comes back within one turn, where a base page that is fetched counts so much and one that is rescued so much.
    ///
    /// The rate is how often a frame is wanted back: for what has left it, then for what leaves in place of that when it has come, and so on. (More than once where what leaves comes back soon. The most likely
    /// rate of what happens at any time with the same chance, by the samples: those that came back, of the time that all were watched.)
    pub(super) fn back(&self, fetch: f64, rescue: f64) -> Back {
        let share = self.fetched * fetch + self.rescued * rescue;
        Back { share, rate: share / self.watched_for.max(WATCHED_LEAST) }
    }

    /// While so many wanted base pages leave, this part of a turn passes, and one at most.
    pub(super) fn turns(&self, pages: BasePages) -> f64 {
        (pages.0 as f64 / self.limit.max(1) as f64).min(1.0)
    }

    /// Eighths of turns so far.
    pub(super) fn eighths(&self) -> u64 {
        self.clock() * 8 / self.limit.max(1)
    }

    /// A page leaves, of which `wanted` is the share that is believed to have been wanted.
    pub(super) fn left(&mut self, page: &Left, wanted: f64, draw: &mut Draw) {
        let wanted = (page.pages.0 as f64 * FINE as f64 * wanted) as u64;
        self.clock += wanted;
        let turn = self.limit * FINE;
        while let Some(&(at, left)) = self.order.front() {
            if self.clock - left < turn && self.order.len() <= 2 * SAMPLES as usize {
                break;
            }
            self.order.pop_front();
            if self.watched.get(&at) == Some(&left) {
                self.watched.remove(&at);
                self.see(0.0, false, left);
            }
        }
        if draw.below((turn / SAMPLES).max(1)) < wanted {
            let at = (page.first.space, page.first.base + draw.below(page.size.base_pages()));
            self.watched.insert(at, self.clock);
            self.order.push_back((at, self.clock));
        }
    }

    /// A page comes, of which `wanted` is the share that is expected to be wanted; from a victim buffer, or from elsewhere.
    pub(super) fn brought(&mut self, fault: Place, size: PageSize, wanted: f64, rescued: bool) {
        let first = size.first(fault.base);
        let (space, n) = (fault.space, size.base_pages());
        let came: Option<(SpaceKey, u64)> =
            self.watched.range((space, first)..(space, first + n)).next().map(|(&at, _)| at);
        if let Some(at) = came {
            let left = self.watched.remove(&at).expect("it was found");
            // The page has come back, and with it what nobody asks for.
            self.see(if at.1 == fault.base { 1.0 } else { wanted }, rescued, left);
        }
    }

    /// Of what left then so much has come back, or will not be waited for any more.
    fn see(&mut self, returned: f64, rescued: bool, left: u64) {
        let turns = (self.clock - left) as f64 / (self.limit * FINE).max(1) as f64;
        self.watched_for += (turns.min(1.0) - self.watched_for) * NEWEST;
        let (from_buffer, from_afar) = if rescued { (returned, 0.0) } else { (0.0, returned) };
        self.fetched += (from_afar - self.fetched) * NEWEST;
        self.rescued += (from_buffer - self.rescued) * NEWEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const LIMIT: u64 = 4_096;

    /// What is seen when base pages are touched in this order, and leave in the order in which they came.
    fn returns_of(touches: impl Iterator<Item = u64>) -> Returns {
        returns_from(touches, |_| false)
    }

    /// The same where some of them come back from victim buffers.
    fn returns_from(touches: impl Iterator<Item = u64>, rescued: impl Fn(u64) -> bool) -> Returns {
        let (mut returns, mut draw) = (Returns::default(), Draw::new(1));
        returns.limited(BasePages(LIMIT));
        let (mut local, mut order) = (BTreeSet::new(), VecDeque::new());
        let (size, at) = (PageSize::SMALLEST, |base| Place { space: SpaceKey(1), base });
        for base in touches {
            if !local.insert(base) {
                continue;
            }
            order.push_back(base);
            if order.len() as u64 > LIMIT {
                let leaves = order.pop_front().expect("there are many");
                local.remove(&leaves);
                let page = Left {
                    first: at(leaves),
                    part: 0,
                    size,
                    pages: BasePages(1),
                    came_with: size,
                    together: size,
                };
                returns.left(&page, 1.0, &mut draw);
            }
            returns.brought(at(base), size, 1.0, rescued(base));
        }
        returns
    }

    /// Where all of `pages` are as likely to be the next, a turn of memory, LIMIT faults, takes LIMIT / (1 - LIMIT / pages) touches: each page has LIMIT / (pages - LIMIT) of them.
    #[test]
    fn a_frame_is_wanted_back_more_than_once_in_a_turn() {
        for (pages, rate) in [(LIMIT * 5 / 4, 4.0), (LIMIT * 3 / 2, 2.0), (LIMIT * 2, 1.0), (LIMIT * 5, 0.25)]
        {
            let mut draw = Draw::new(pages);
            let returns = returns_of((0..40 * pages).map(|_| draw.below(pages)));
            let seen = returns.back(1.0, 0.0).rate;
            assert!((rate * 0.75..rate * 1.3).contains(&seen), "{pages}: {seen}, not {rate}");
        }
    }

    #[test]
    fn a_sweep_wants_nothing_back() {
        let returns = returns_of((0..12 * LIMIT).map(|touch| touch % (3 * LIMIT)));
        assert_eq!((returns.back(1.0, 0.0).share, returns.back(1.0, 0.0).rate), (0.0, 0.0));
        // Over a little more than fits, each page is wanted back a quarter of a turn after it has left.
        let returns = returns_of((0..40 * LIMIT).map(|touch| touch % (LIMIT * 5 / 4)));
        assert!((3.0..5.0).contains(&returns.back(1.0, 0.0).rate), "{}", returns.back(1.0, 0.0).rate);
    }

    #[test]
    fn what_is_rescued_counts_by_itself() {
        let mut draw = Draw::new(1);
        let (pages, is_rescued) = (LIMIT * 5 / 4, |base: u64| base.is_multiple_of(4));
        let returns = returns_from((0..40 * pages).map(|_| draw.below(pages)), is_rescued);
        let (all, fetched, rescued) =
            (returns.back(1.0, 1.0), returns.back(1.0, 0.0), returns.back(0.0, 1.0));
        assert!((0.6..0.9).contains(&(fetched.share / all.share)), "three quarters: {fetched:?} {all:?}");
        assert!((0.1..0.4).contains(&(rescued.share / all.share)), "a quarter: {rescued:?} {all:?}");
        assert!((3.0..5.2).contains(&all.rate), "as often as if all were fetched: {all:?}");
    }
}
