//! Whether pages leave in turn, or what is here is kept and what has come of late leaves.
//!
//! A loop over a little more than fits finds nothing here if pages leave in turn: each one leaves just before it is wanted again. Who keeps some of them, whichever, finds those each
//! time, and fetches the rest only. But with any other use of memory that is the worse way, and without access bits nothing that is seen of one way tells what the other would do.
//! So they are compared: for three turns one half of memory has the one way and the other half the other, and the one with which less comes in has all of it. (Qureshi, Jaleel, Patt, Steely, Emer,
//! "Adaptive insertion policies for high performance caching", ISCA 2007, sections 3 and 4: its bimodal insertion and its set dueling. There a few sets of a cache are compared all the time; pages have no sets, are
//! of any size, and may be few, so the halves are what an address hashes to, and they are compared now and then.)

use super::super::PageRef;

/// Of less memory, or fewer pages, nothing is compared: its halves are no halves. And of more pages: all of them are gone through when they change their way.
const FRAMES_MIN: u64 = 4096;
const PAGES_MIN: usize = 64;
const PAGES_MAX: usize = 1 << 20;
/// Each half has this part of what comes in at least.
const HALF_SHARE: u64 = 4;
/// Pages of a MiB are in the same half: they may be one page next.
const TOGETHER_LOG2: u32 = 8;
/// Turns of which most had left within a turn, before the first comparison; before the next one when keeping was no better; and twice as many each time that it is not.
const WAIT_FIRST: u32 = 2;
const WAIT_LEAST: u32 = 8;
const WAIT_MOST: u32 = 64;
/// Most are so many eighths: in a loop over twice what fits, and more, little is to be won.
const RETURNED_EIGHTHS: u64 = 5;
/// A comparison takes so many turns,
const COMPARED_TURNS: u64 = 3;
/// or one, where so many sixteenths of what comes in with pages in turn come in with pages kept.
const LOST: u64 = 24;
/// Pages are kept if no more than so many sixteenths come in (of loops 8 to 10 do, and as many as otherwise until a loop comes to what was kept); and go on to be kept with no more
/// than this.
const KEPT: u64 = 13;
const STILL_KEPT: u64 = 14;
/// While pages are kept, the other way is tried after so many turns, and twice as many each time that it is no better.
const RETRY_FIRST: u32 = 16;
const RETRY_MOST: u32 = 64;
/// So many kept pages have not come back, and less than half as many have: what is kept is not in use. Of so many in all, half are forgotten.
const IDLE_SAMPLES: u32 = 8;
const SAMPLES_MAX: u32 = 32;

/// How pages leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The ones that came first, of those on trial or of the proven ones.
    InTurn = 0,
    /// The ones that came of late: what is here is kept.
    Kept = 1,
}

impl Way {
    pub(super) fn other(self) -> Self {
        match self {
            Way::InTurn => Way::Kept,
            Way::Kept => Way::InTurn,
        }
    }
}

/// One half of memory, by what its addresses hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Half(usize);

/// In a comparison, what leaves in turn.
const TURNING: Half = Half(0);
/// And what is kept.
const KEEPING: Half = Half(1);

/// Pages are to go the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) to: Way,
    /// Those of this half, else all.
    pub(super) of: Option<Half>,
}

impl Change {
    /// Whether pages of this half move.
    pub(super) fn concerns(self, half: Half) -> bool {
        self.of.is_none_or(|of| of == half)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    InTurn,
    /// Whether to keep pages is being found out.
    TryKept,
    Kept,
    /// Whether to let them leave in turn again is.
    TryInTurn,
}

/// See the module's documentation. A turn is as many base pages as there are frames.
#[derive(Debug)]
pub(super) struct Loops {
    phase: Phase,
    /// Base pages of each half that have come in during this turn or this comparison; and before, where what is longer ago counts less.
    arrived: [u64; 2],
    before: [u64; 2],
    /// Of this turn: what had left within a turn.
    returned: u64,
    /// Turns of this phase; of pages that leave in turn, those of which most had left within a turn.
    turns: u32,
    wait: u32,
    retry: u32,
    /// Kept pages that were taken away to see, and did not come back; and those that did.
    idle: u32,
    used: u32,
    /// Frames of each way at the begin of a comparison.
    begun_with: [u64; 2],
    /// With less nothing is compared: pages, and frames.
    least: (usize, u64),
    /// So many neighbouring base pages, as a power of two, are in the same half.
    together_log2: u32,
}

impl Default for Loops {
    fn default() -> Self {
        Self {
            phase: Phase::InTurn,
            arrived: [0; 2],
            before: [0; 2],
            returned: 0,
            turns: 0,
            wait: WAIT_FIRST,
            retry: RETRY_FIRST,
            idle: 0,
            used: 0,
            begun_with: [0; 2],
            least: (PAGES_MIN, FRAMES_MIN),
            together_log2: TOGETHER_LOG2,
        }
    }
}

impl Loops {
    /// Next to no memory is compared, too.
    pub(super) fn of_little_memory() -> Self {
        Self { least: (4, 4), together_log2: 1, ..Self::default() }
    }

    /// The half that a page is in.
    pub(super) fn half(&self, page: PageRef) -> Half {
        let place = (page.first >> self.together_log2) ^ (u64::from(page.space.0) << 40);
        Half((place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63) as usize)
    }

    /// Pages leave in turn, and nothing is compared.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        Self { wait: u32::MAX, ..Self::default() }
    }

    /// There has been a comparison.
    #[cfg(test)]
    pub(super) fn has_compared(&self) -> bool {
        self.wait != WAIT_FIRST || self.phase != Phase::InTurn
    }

    /// The way of a page that comes in.
    pub(super) fn way_of(&self, page: PageRef) -> Way {
        match self.phase {
            Phase::InTurn => Way::InTurn,
            Phase::Kept => Way::Kept,
            Phase::TryKept | Phase::TryInTurn if self.half(page) == TURNING => Way::InTurn,
            Phase::TryKept | Phase::TryInTurn => Way::Kept,
        }
    }

    /// The way of the page that leaves next, of so many frames of each. In a comparison each has the part with which it began.
    pub(super) fn next(&self, in_turn: u64, kept: u64) -> Way {
        let [first, second] = self.begun_with.map(u128::from);
        match (in_turn, kept) {
            (0, _) => Way::Kept,
            (_, 0) => Way::InTurn,
            (in_turn, kept) if u128::from(kept) * first > second * u128::from(in_turn) => Way::Kept,
            _ => Way::InTurn,
        }
    }

    /// Pages have moved, as a [`Change`] said: so many frames has each way now.
    pub(super) fn begin(&mut self, in_turn: u64, kept: u64) {
        self.begun_with = [in_turn, kept];
    }

    /// A kept page that was taken away to see has come back within a turn, or has not.
    pub(super) fn sampled(&mut self, came_back: bool) {
        *(if came_back { &mut self.used } else { &mut self.idle }) += 1;
        if self.used + self.idle >= SAMPLES_MAX {
            (self.idle, self.used) = (self.idle / 2, self.used / 2);
        }
    }

    /// A page of so many base pages has come in, to so many pages of so many frames, and has left within a turn if it `returned`.
    pub(super) fn arrived(
        &mut self,
        page: PageRef,
        base_pages: u64,
        (pages, frames): (usize, u64),
        returned: bool,
    ) -> Option<Change> {
        self.arrived[self.half(page).0] += base_pages;
        self.returned += if returned { base_pages } else { 0 };
        let fits = frames >= self.least.1 && (self.least.0..=PAGES_MAX).contains(&pages);
        let sum: u64 = self.arrived.iter().sum();
        match self.phase {
            Phase::InTurn if sum >= frames => {
                let returned = self.returned * 8 >= sum * RETURNED_EIGHTHS;
                self.end_turn(returned);
                let compares = fits && returned && self.turns >= self.wait && self.halves_are_alike();
                compares.then(|| self.enter(Phase::TryKept, Way::Kept, Some(KEEPING)))
            }
            Phase::TryKept if self.is_over(sum, frames) => {
                if self.kept_take_at_most(KEPT) {
                    self.retry = RETRY_FIRST;
                    return Some(self.enter(Phase::Kept, Way::Kept, None));
                }
                self.wait = (2 * self.wait).clamp(WAIT_LEAST, WAIT_MOST);
                Some(self.enter(Phase::InTurn, Way::InTurn, None))
            }
            Phase::Kept if self.idle >= IDLE_SAMPLES && self.idle > 2 * self.used => {
                self.wait = (2 * self.wait).min(WAIT_MOST);
                Some(self.enter(Phase::InTurn, Way::InTurn, None))
            }
            Phase::Kept if sum >= frames => {
                self.end_turn(true);
                let compares = fits && self.turns >= self.retry && self.halves_are_alike();
                compares.then(|| self.enter(Phase::TryInTurn, Way::InTurn, Some(TURNING)))
            }
            Phase::TryInTurn if self.is_over(sum, frames) => {
                if self.kept_take_at_most(STILL_KEPT) {
                    self.retry = (2 * self.retry).min(RETRY_MOST);
                    return Some(self.enter(Phase::Kept, Way::Kept, None));
                }
                self.wait = WAIT_LEAST;
                Some(self.enter(Phase::InTurn, Way::InTurn, None))
            }
            _ => None,
        }
    }

    fn is_over(&self, arrived: u64, frames: u64) -> bool {
        arrived >= COMPARED_TURNS * frames || arrived >= frames && !self.kept_take_at_most(LOST)
    }

    /// Beside what comes in where pages leave in turn, no more than so many sixteenths do where they are kept. What came in of the two halves before says how they
    /// compare otherwise.
    fn kept_take_at_most(&self, sixteenths: u64) -> bool {
        let ([turning, keeping], [turned, kept]) =
            (self.arrived.map(u128::from), self.before.map(u128::from));
        16 * keeping * turned <= turning * kept * u128::from(sixteenths)
    }

    fn halves_are_alike(&self) -> bool {
        let sum: u64 = self.before.iter().sum();
        self.before.iter().all(|&half| half * HALF_SHARE >= sum)
    }

    fn end_turn(&mut self, counts: bool) {
        self.turns = self.turns.saturating_add(u32::from(counts));
        self.before = [0, 1].map(|half| self.before[half] / 2 + self.arrived[half]);
        self.arrived = [0; 2];
        self.returned = 0;
    }

    fn enter(&mut self, phase: Phase, to: Way, of: Option<Half>) -> Change {
        self.phase = phase;
        self.arrived = [0; 2];
        if of.is_none() {
            self.before = [0; 2];
        }
        (self.returned, self.turns, self.idle, self.used) = (0, 0, 0, 0);
        Change { to, of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrower::SpaceKey;
    use alloc::{vec, vec::Vec};

    const FRAMES: u64 = 8192;
    const MEMORY: (usize, u64) = (1_000, FRAMES);

    fn page(half: usize) -> PageRef {
        let of = |first| PageRef { space: SpaceKey(1), first };
        (0..)
            .map(|n| of(n << 8))
            .find(|&page| Loops::default().half(page).0 == half)
            .expect("both halves have pages")
    }

    /// So many base pages come into each half, some at a time.
    fn come(loops: &mut Loops, [turning, keeping]: [u64; 2], returned: bool) -> Vec<Change> {
        let come = |loops: &mut Loops, half, count| loops.arrived(page(half), count, MEMORY, returned);
        (0..64).flat_map(|_| [come(loops, 0, turning / 64), come(loops, 1, keeping / 64)]).flatten().collect()
    }

    fn turns(loops: &mut Loops, turns: u32) -> Vec<Change> {
        (0..turns).flat_map(|_| come(loops, [FRAMES / 2; 2], true)).collect()
    }

    #[test]
    fn halves_are_halves() {
        let loops = Loops::default();
        let ones = (0..10_000)
            .filter(|n| loops.half(PageRef { space: SpaceKey(3), first: n << 8 }) == KEEPING)
            .count();
        assert!((4_800..5_200).contains(&ones), "{ones}");
    }

    #[test]
    fn what_takes_less_is_kept_and_what_does_not_waits_longer_each_time() {
        let mut loops = Loops::default();
        assert_eq!(turns(&mut loops, 1), []);
        let (tries, keeps) =
            (Change { to: Way::Kept, of: Some(KEEPING) }, Change { to: Way::Kept, of: None });
        let back = Change { to: Way::InTurn, of: None };
        assert_eq!(turns(&mut loops, 1), [tries]);
        assert_eq!((loops.way_of(page(0)), loops.way_of(page(1))), (Way::InTurn, Way::Kept));
        // The same in both halves: nothing is won.
        assert_eq!(turns(&mut loops, 3), [back]);
        assert_eq!((turns(&mut loops, WAIT_LEAST - 1), turns(&mut loops, 1)), (vec![], vec![tries]));
        // Half as much again is lost after one turn.
        assert_eq!(come(&mut loops, [FRAMES * 3 / 8, FRAMES * 5 / 8], true), [back]);
        assert_eq!((turns(&mut loops, 2 * WAIT_LEAST - 1), turns(&mut loops, 1)), (vec![], vec![tries]));
        assert_eq!(come(&mut loops, [FRAMES * 2, FRAMES], true), [keeps]);
        assert_eq!((loops.way_of(page(0)), loops.way_of(page(1))), (Way::Kept, Way::Kept));
    }

    #[test]
    fn nothing_is_compared_where_nothing_comes_back_or_memory_is_small() {
        let mut loops = Loops::default();
        assert!((0..100).all(|_| come(&mut loops, [FRAMES / 2; 2], false).is_empty()));
        for memory in [(1_000, FRAMES_MIN - 1), (PAGES_MIN - 1, FRAMES), (PAGES_MAX + 1, 1 << 30)] {
            let mut loops = Loops::default();
            let mut comes = |n: usize| loops.arrived(page(n % 2), memory.1 / 10, memory, true);
            assert!((0..1_000).all(|n| comes(n).is_none()));
        }
        // A half that is next to nothing says nothing.
        let mut loops = Loops::default();
        assert!((0..100).all(|_| come(&mut loops, [FRAMES / 8, FRAMES * 7 / 8], true).is_empty()));
    }

    fn keeping() -> Loops {
        let mut loops = Loops::default();
        turns(&mut loops, WAIT_FIRST);
        assert_eq!(come(&mut loops, [FRAMES * 2, FRAMES], true), [Change { to: Way::Kept, of: None }]);
        loops
    }

    #[test]
    fn what_is_kept_and_not_used_is_kept_no_more() {
        let mut loops = keeping();
        (0..8 * SAMPLES_MAX).for_each(|n| loops.sampled(n % 3 > 0));
        assert_eq!(turns(&mut loops, 1), []);
        (0..SAMPLES_MAX).for_each(|_| loops.sampled(false));
        assert_eq!(turns(&mut loops, 1), [Change { to: Way::InTurn, of: None }]);
        assert_eq!(loops.wait, 2 * WAIT_FIRST);
    }

    #[test]
    fn the_other_way_is_tried_from_time_to_time() {
        let mut loops = keeping();
        let tries = Change { to: Way::InTurn, of: Some(TURNING) };
        assert_eq!((turns(&mut loops, RETRY_FIRST - 1), turns(&mut loops, 1)), (vec![], vec![tries]));
        assert_eq!(come(&mut loops, [FRAMES * 2, FRAMES], true), [Change { to: Way::Kept, of: None }]);
        assert_eq!((turns(&mut loops, 2 * RETRY_FIRST - 1), turns(&mut loops, 1)), (vec![], vec![tries]));
        assert_eq!(turns(&mut loops, 3), [Change { to: Way::InTurn, of: None }]);
    }

    #[test]
    fn each_way_has_the_part_with_which_it_began() {
        let mut loops = Loops::default();
        loops.begin(3_000, 1_000);
        assert_eq!(
            [loops.next(299, 101), loops.next(300, 100), loops.next(301, 99)],
            [Way::Kept, Way::InTurn, Way::InTurn]
        );
        assert_eq!([loops.next(0, 1), loops.next(1, 0)], [Way::Kept, Way::InTurn]);
    }
}
