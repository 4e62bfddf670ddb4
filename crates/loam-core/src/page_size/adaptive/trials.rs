//! Whether small pages would do better, by how much of the time the program runs.
//!
//! What pages are worth is found for each place by itself, from what is seen there. Where that is wrong for all of memory together, nothing seen there says so: a program
//! that works on a little more than fits may then do next to nothing, and for ever. What it does for all that can be measured: the time that it runs, in its own code. So a program that hardly runs at all
//! gets the smallest pages everywhere for a moment, and keeps them if it runs so much more that it is no chance; from time to time the other way around.

use crate::units::{BasePages, Duration, Instant};
use alloc::collections::VecDeque;

/// The program hardly runs: this share of one processor at most, over a window. (With one of 3 s a sort that takes 9 s began a trial before its last part, which runs more anyway, kept the small pages and took 15.)
const SLOW: f64 = 0.05;
const WINDOW: Duration = Duration::from_millis(8_000);
/// And all of it is the doing of pages: so much of a turn of local memory has left by then.
const TURN_SHARE: u64 = 4;
/// From a change until what was here before it has left, mostly, and it counts.
const SETTLES: Duration = Duration::from_millis(1_000);
/// For so long the other sizes are tried.
const TRIAL: Duration = Duration::from_millis(1_500);
/// Or less, if the program runs no more than before by then.
const TRIAL_LEAST: Duration = Duration::from_millis(500);
/// They are kept if the program runs so many times as much,
const GAIN: f64 = 1.5;
/// and for so long at least: the kernel's count of it goes by ticks.
const RAN_MIN: Duration = Duration::from_millis(60);
/// Where it runs so much, its pages are not what holds it up: what is found for each place holds again.
const QUICK: f64 = 0.3;
/// Between two trials; and twice as much each time that nothing comes of one.
const PAUSE_LEAST: Duration = Duration::from_millis(10_000);
const PAUSE_MOST: Duration = Duration::from_millis(120_000);

/// What a report has brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// Small pages are kept: what the program ran before, and runs with them, as shares of a processor.
    Kept { was: f64, is: f64 },
    /// They are given up, after they were kept.
    Over { was: f64, is: f64 },
}

/// The program, as it was reported.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    ran: Duration,
    /// Base pages that have left so far.
    left: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Trials {
    small: bool,
    tries: bool,
    /// What the program ran before this trial.
    before: f64,
    samples: VecDeque<Sample>,
    settled: Instant,
    due: Instant,
    pause: Duration,
    /// Base pages that have left so far.
    left: u64,
}

impl Trials {
    /// So many base pages leave.
    pub(super) fn left(&mut self, pages: BasePages) {
        self.left += pages.0;
    }

    /// Pages are as small as can be, everywhere.
    pub(super) fn are_small(&self) -> bool {
        self.small
    }

    /// By now the program has run for so long. `limit`: base pages of local memory.
    pub(super) fn progressed(&mut self, now: Instant, ran: Duration, limit: u64) -> Option<Turn> {
        if now < self.settled {
            return None;
        }
        self.samples.push_back(Sample { at: now, ran, left: self.left });
        while self.samples.len() > 2 && now - self.samples[1].at >= WINDOW {
            self.samples.pop_front();
        }
        let first = self.samples[0];
        let (span, ran) = (now - first.at, ran.0.saturating_sub(first.ran.0));
        if span == Duration::ZERO {
            return None;
        }
        let runs = ran as f64 / span.0 as f64;
        match (self.tries, self.small) {
            (false, false) => {
                let is_slow = span >= WINDOW && runs <= SLOW && self.left - first.left >= limit / TURN_SHARE;
                if is_slow && now >= self.due {
                    self.begin(now, runs);
                }
                None
            }
            (true, true) if span >= TRIAL => {
                let better = runs >= self.before * GAIN && ran >= RAN_MIN.0;
                self.end(now, !better);
                better.then_some(Turn::Kept { was: self.before, is: runs })
            }
            (true, true) if span >= TRIAL_LEAST && runs < self.before => {
                self.end(now, true);
                None
            }
            (false, true) => {
                if span >= TRIAL && runs >= QUICK {
                    let was = self.before;
                    self.begin(now, runs);
                    self.end(now, false);
                    return Some(Turn::Over { was, is: runs });
                }
                if span >= WINDOW && now >= self.due {
                    self.begin(now, runs);
                }
                None
            }
            (true, false) if span >= TRIAL => {
                let better = runs >= self.before && ran >= RAN_MIN.0;
                self.end(now, !better);
                better.then_some(Turn::Over { was: self.before, is: runs })
            }
            _ => None,
        }
    }

    /// The other sizes are tried.
    fn begin(&mut self, now: Instant, runs: f64) {
        (self.tries, self.small, self.before) = (true, !self.small, runs);
        self.changed(now);
    }

    /// The trial is over; `back`: it has shown nothing.
    fn end(&mut self, now: Instant, back: bool) {
        self.tries = false;
        if back {
            self.small = !self.small;
            self.changed(now);
            self.pause = Duration((self.pause.0 * 2).min(PAUSE_MOST.0));
        } else {
            self.pause = PAUSE_LEAST;
        }
        self.pause = self.pause.max(PAUSE_LEAST);
        self.due = now + self.pause;
    }

    fn changed(&mut self, now: Instant) {
        self.samples.clear();
        self.settled = now + SETTLES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const REPORT: Duration = Duration::from_millis(250);
    const LIMIT: u64 = 1000;

    /// Reports to `trials` for so long what a program runs with found and with small pages, in hundredths of a processor. What it was told of, and the seconds with small pages.
    fn run(
        trials: &mut Trials,
        from: &mut (Instant, Duration),
        seconds: u64,
        hundredths: (u64, u64),
        left: u64,
    ) -> (Vec<Turn>, f64) {
        let (mut turns, mut small) = (Vec::new(), 0);
        for _ in 0..seconds * 4 {
            let share = if trials.are_small() { hundredths.1 } else { hundredths.0 };
            small += u64::from(trials.are_small());
            from.0 = from.0 + REPORT;
            from.1 = Duration(from.1.0 + REPORT.0 * share / 100);
            trials.left(BasePages(left));
            turns.extend(trials.progressed(from.0, from.1, LIMIT));
        }
        (turns, small as f64 / 4.0)
    }

    fn start() -> (Trials, (Instant, Duration)) {
        (Trials::default(), (Instant(0), Duration::ZERO))
    }

    #[test]
    fn a_program_that_hardly_runs_gets_small_pages_and_keeps_them_if_they_help() {
        let (mut trials, mut from) = start();
        let (turns, small) = run(&mut trials, &mut from, 40, (2, 11), 100);
        assert!(matches!(turns[..], [Turn::Kept { .. }]), "{turns:?}");
        // Eight seconds pass before; and twice it looks whether found ones would do by now.
        assert!((26.0..32.5).contains(&small), "{small} s of 40");
        // Found pages do as well from now on.
        let (turns, small) = run(&mut trials, &mut from, 80, (11, 11), 100);
        assert!(matches!(turns[..], [Turn::Over { .. }]), "{turns:?}");
        assert!(small < 45.0, "{small} s of 80");
    }

    #[test]
    fn what_does_not_help_is_tried_ever_less() {
        let (mut trials, mut from) = start();
        for helps in [2, 1, 0] {
            let (turns, small) = run(&mut trials, &mut from, 1000, (2, helps), 100);
            assert_eq!(turns, []);
            assert!((1.0..30.0).contains(&small), "{small} s of 1000");
        }
    }

    #[test]
    fn a_program_that_runs_or_waits_for_something_else_is_left_alone() {
        let (mut trials, mut from) = start();
        assert_eq!(run(&mut trials, &mut from, 100, (6, 90), 100), (Vec::new(), 0.0), "it runs");
        let (mut trials, mut from) = start();
        assert_eq!(run(&mut trials, &mut from, 100, (0, 90), 5), (Vec::new(), 0.0), "hardly anything leaves");
    }

    #[test]
    fn found_pages_are_back_as_soon_as_it_runs() {
        let (mut trials, mut from) = start();
        run(&mut trials, &mut from, 16, (2, 11), 100);
        assert!(trials.are_small());
        let (turns, small) = run(&mut trials, &mut from, 20, (60, 60), 100);
        let [Turn::Over { was, is }] = turns[..] else { panic!("{turns:?}") };
        assert!(was < 0.03 && is >= QUICK && small < 6.0, "{turns:?}, {small} s");
    }
}
