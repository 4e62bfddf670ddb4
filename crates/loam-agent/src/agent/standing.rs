//! Hands that stand still: the kernel stops one with its process, and while that writes a core, though it blocks every signal.

use loam_core::units::{Duration, Instant};

/// A hand that has evictions to do and passes no command for so long is not waited for. (One takes a millisecond; but the program may hold its mappings, or have
/// all processors.)
const STANDS_MAX: Duration = Duration::from_millis(200);

/// What is known of one hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Commands that it had passed when it was seen not to go on, and since when; while it has evictions to do.
    since: Option<(u32, Instant)>,
    /// Nobody waits for it.
    stands_still: bool,
}

/// How far a hand is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Commands that were posted to it, and that it has passed.
    pub(super) posted: u32,
    pub(super) passed: u32,
    /// Evictions are posted, queued, or not wholly taken in.
    pub(super) evicts: bool,
}

impl Standing {
    pub(super) fn stands_still(&self) -> bool {
        self.stands_still
    }

    /// Whether it stands still, if that has changed. One that has passed everything that was posted has nothing to pass: it is no fault of its own if that has not been
    /// taken in, and it would never be seen to go on.
    pub(super) fn look(&mut self, now: Instant, hand: Progress) -> Option<bool> {
        let has_passed_all = hand.passed == hand.posted;
        let goes_on = has_passed_all || self.since.is_none_or(|(before, _)| before != hand.passed);
        if self.stands_still {
            self.stands_still = !goes_on;
            return goes_on.then_some(false);
        }
        if goes_on || !hand.evicts {
            self.since = (hand.evicts && !has_passed_all).then_some((hand.passed, now));
            return None;
        }
        let since = self.since.map_or(now, |(_, since)| since);
        self.stands_still = now - since >= STANDS_MAX;
        self.stands_still.then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn hand(posted: u32, passed: u32, evicts: bool) -> Progress {
        Progress { posted, passed, evicts }
    }

    #[test]
    fn who_passes_nothing_for_long_stands_still_until_it_passes_something() {
        let mut standing = Standing::default();
        assert_eq!(standing.look(at(0), hand(3, 1, true)), None);
        assert_eq!(standing.look(at(150), hand(3, 1, true)), None);
        // One command more, and the time begins anew.
        assert_eq!(standing.look(at(190), hand(4, 2, true)), None);
        assert_eq!(standing.look(at(380), hand(4, 2, true)), None);
        assert_eq!(standing.look(at(390), hand(4, 2, true)), Some(true));
        assert!(standing.stands_still());
        // What it had not begun is taken back: it is to pass it all the same.
        assert_eq!(standing.look(at(900), hand(4, 2, false)), None);
        assert!(standing.stands_still());
        assert_eq!(standing.look(at(950), hand(4, 4, false)), Some(false));
        assert!(!standing.stands_still());
    }

    #[test]
    fn who_has_passed_all_does_not_stand_still() {
        let mut standing = Standing::default();
        // Nobody has looked at what it has done: we were stopped ourselves.
        assert_eq!(standing.look(at(0), hand(3, 3, true)), None);
        assert_eq!(standing.look(at(10_000), hand(3, 3, true)), None);
        assert_eq!(standing.look(at(20_000), hand(3, 3, true)), None);
        assert!(!standing.stands_still());
        // The time of what comes then begins when it is seen.
        assert_eq!(standing.look(at(30_000), hand(4, 3, true)), None);
        assert_eq!(standing.look(at(30_100), hand(4, 3, true)), None);
        assert_eq!(standing.look(at(30_200), hand(4, 3, true)), Some(true));
        // It has nothing left to pass, so it goes on.
        assert_eq!(standing.look(at(30_300), hand(4, 4, true)), Some(false));
        assert_eq!(standing.look(at(40_000), hand(4, 4, true)), None);
    }

    #[test]
    fn who_has_nothing_to_evict_is_not_waited_for() {
        let mut standing = Standing::default();
        for ms in [0, 300, 600, 900] {
            assert_eq!(standing.look(at(ms), hand(2, 1, false)), None);
        }
        assert_eq!(standing.look(at(1_000), hand(2, 1, true)), None, "since then only");
        assert_eq!(standing.look(at(1_200), hand(2, 1, true)), Some(true));
    }

    #[test]
    fn counts_go_around() {
        let mut standing = Standing::default();
        assert_eq!(standing.look(at(0), hand(0, u32::MAX, true)), None);
        assert_eq!(standing.look(at(200), hand(0, u32::MAX, true)), Some(true));
        assert_eq!(standing.look(at(201), hand(0, 0, true)), Some(false));
    }
}
