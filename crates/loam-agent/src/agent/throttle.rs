//! When whoever allocates waits: while the tree has more than it may, and what it has cannot leave as fast as more comes.
//!
//! What is adopted comes by the agent, page by page, and waits for room there. What is not adopted yet does not, and a program that maps some megabytes and fills them, again and again, is always
//! some megabytes ahead. So its threads wait where they allocate (the shim's `throttle`), as the kernel has a task free memory
//! before it gets more.
//!
//! Not for ever: where nothing leaves (pages that are locked, or shared, or a disk that stands still) the program goes on, over its budget, and is told so ([`super::watch`]).

use super::Agent;
use loam_core::units::{Duration, Instant};
use std::sync::atomic::Ordering::Relaxed;

/// Base pages above the budget at which it begins, at least, and as a part of `--local`. Until the agent looks the next time twice as much comes.
const SLACK_PAGES_MIN: u64 = 512;
const SLACK_SHARE: u64 = 64;
/// So many base pages fewer are worth going on waiting for.
const PROGRESS_PAGES: u64 = 64;
/// If there is no such progress for so long it ends, and does not begin again for a while: twice as long each time.
const STUCK: Duration = Duration::from_millis(1_000);
/// The same where all that can leave has left: what is new may be adopted yet.
const STUCK_WITHOUT: Duration = Duration::from_millis(100);
const PAUSE_MIN: Duration = Duration::from_millis(2_000);
const PAUSE_MAX: Duration = Duration::from_millis(64_000);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Throttle {
    slack_pages: u64,
    /// Since when, and the least that the tree has been over its budget since, and when that was.
    on: Option<On>,
    not_before: Instant,
    pause: Duration,
    /// How long it was on while somebody waited, in all.
    pub waited: Duration,
}

#[derive(Clone, Copy, Debug)]
struct On {
    since: Instant,
    least: u64,
    least_at: Instant,
    /// When it began.
    waits: Waits,
}

/// How the tree stands to its budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Base pages that it is over it.
    pub over: u64,
    /// The policy has pages that are to leave.
    pub can_leave: bool,
}

/// What threads have waited for so far.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// To allocate: how often.
    allocating: u64,
    /// For pages and frames: how long at least one of them did.
    others: Duration,
}

impl Throttle {
    pub(super) fn new(local_pages: u64) -> Self {
        Self {
            slack_pages: (local_pages / SLACK_SHARE).max(SLACK_PAGES_MIN),
            on: None,
            not_before: Instant(0),
            pause: PAUSE_MIN,
            waited: Duration(0),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    fn begin(&mut self, now: Instant, over: u64, waits: Waits) {
        self.on = Some(On { since: now, least: over, least_at: now, waits });
    }

    fn judge(&mut self, now: Instant, standing: Standing, waits: Waits) {
        let over = standing.over;
        let Some(on) = &mut self.on else {
            if over > self.slack_pages && now >= self.not_before {
                self.begin(now, over, waits);
            }
            return;
        };
        if over + PROGRESS_PAGES <= on.least {
            (on.least, on.least_at) = (over, now);
        }
        let is_stuck = now - on.least_at >= if standing.can_leave { STUCK } else { STUCK_WITHOUT };
        if over > self.slack_pages / 4 && !is_stuck {
            return;
        }
        if waits.allocating != on.waits.allocating {
            // Each moment counts once: as waiting for what is graver, if anybody does.
            let others = waits.others.0.saturating_sub(on.waits.others.0);
            self.waited.0 += (now - on.since).0.saturating_sub(others);
        }
        self.on = None;
        if is_stuck {
            self.not_before = now + self.pause;
            self.pause = Duration((self.pause.0 * 2).min(PAUSE_MAX.0));
        } else {
            self.pause = PAUSE_MIN;
        }
    }
}

impl Agent<'_> {
    /// The tree's memory is about to be looked at for the first time. That takes milliseconds for each process, in which all of them could fill what they like.
    pub(super) fn throttle_first(&mut self, now: Instant) {
        self.judge(|throttle, waits| throttle.begin(now, u64::MAX, waits));
    }

    /// The tree stands so to its budget.
    pub(super) fn throttle(&mut self, now: Instant, standing: Standing) {
        if self.throttle.is_on() || standing.over > 0 {
            self.judge(|throttle, waits| throttle.judge(now, standing, waits));
        }
    }

    fn judge(&mut self, judge: impl FnOnce(&mut Throttle, Waits)) {
        if self.config.region.is_some() || self.direct.is_some() {
            return; // only that is borrowed, the rest never leaves
        }
        let was_on = self.throttle.is_on();
        let hands = || self.processes.values().filter_map(|process| process.hand.as_ref());
        let allocating = hands().map(|hand| u64::from(hand.shared.control().throttled.load(Relaxed))).sum();
        let stats = self.borrower.stats();
        let others = Duration(stats.first_wait.0 + stats.queued_wait.0 + stats.joined_wait.0);
        judge(&mut self.throttle, Waits { allocating, others });
        let is_on = self.throttle.is_on();
        if is_on || was_on {
            // Those that have joined meanwhile, too.
            hands().for_each(|hand| hand.throttle(is_on));
        }
        if is_on != was_on {
            tracing::debug!(is_on, "throttle");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    /// At a time in ms: so many base pages over the budget, and that threads have waited so often to allocate.
    fn judge(throttle: &mut Throttle, at: u64, over: u64, allocating: u64) -> bool {
        let waits = Waits { allocating, others: Duration::from_millis(at / 4) };
        throttle.judge(ms(at), Standing { over, can_leave: true }, waits);
        throttle.is_on()
    }

    #[test]
    fn it_begins_above_the_slack_and_ends_when_nearly_all_has_left() {
        let mut throttle = Throttle::new(64 << 8);
        let t = &mut throttle;
        assert_eq!([judge(t, 0, 512, 0), judge(t, 4, 513, 0)], [false, true]);
        assert_eq!([judge(t, 8, 129, 3), judge(t, 12, 128, 3)], [true, false]);
        assert_eq!(t.waited, Duration::from_millis(6), "a quarter of it somebody waited for a page");
        assert_eq!([judge(t, 16, 513, 3), judge(t, 20, 0, 3)], [true, false]);
        assert_eq!(t.waited, Duration::from_millis(6), "nobody has waited");
    }

    #[test]
    fn where_nothing_leaves_the_program_goes_on_and_ever_longer() {
        for (can_leave, waits_ms) in [(true, 1_000), (false, 100)] {
            let mut throttle = Throttle::new(64 << 8);
            let mut began = Vec::new();
            for at in 0..400_000 {
                let was_on = throttle.is_on();
                throttle.judge(ms(at), Standing { over: 5_000 + at % 50, can_leave }, Waits::default());
                if throttle.is_on() && !was_on {
                    began.push(at);
                }
                let since = began.last().map_or(0, |began| at - began);
                assert!(!throttle.is_on() || since < waits_ms, "it waits for ever");
            }
            let pauses: Vec<u64> = began.windows(2).map(|pair| pair[1] - pair[0] - waits_ms).collect();
            assert_eq!(pauses[..7], [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000]);
        }
    }

    #[test]
    fn a_slow_disk_is_waited_for_as_long_as_it_writes() {
        let mut throttle = Throttle::new(64 << 8);
        for at in 0..100 {
            assert!(judge(&mut throttle, at * 900, 10_000 - at * 64, 1));
        }
    }
}
