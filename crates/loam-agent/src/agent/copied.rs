//! What forks have copied.
//!
//! Pages that a child shares with its parent are counted once. When either writes one, the kernel gives it a frame of its own and
//! tells nobody: only the shares in `smaps_rollup` show it. The kernel walks the page tables for that, which takes a large process
//! a tenth of a second, so a thread of its own reads it. Meanwhile nobody can change the process's mappings, the hand neither, and behind one that waits for that all
//! faults of the process wait. So where everybody who writes is heard of (`protect.rs`) it is read twice more, for what was written before that was so, and then no longer.

use super::slow_look::SlowLook;
use crate::procfs::{self, HeldPages};
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// Where nothing has changed it is not looked again for so long.
const CALM: Duration = Duration::from_secs(2);
/// Between looks: this many times what a look takes.
const REST_SHARE: u32 = 4;

/// So often nothing has been found that was not heard of: nothing will be.
const LOOKS_IN_VAIN: u32 = 2;
/// Up to this part of all is nothing: pages come and go while the kernel looks at them.
const NOTHING_SHARE: u64 = 64;

/// What processes are taken to have, in base pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// What two are known to share counts once.
    pub pages: u64,
    /// And that is so much.
    pub shared: u64,
}

/// A question: who, and what they are taken to have. And whether everybody who writes is heard of, since how many forks.
#[derive(Debug)]
struct Question {
    pids: Vec<Pid>,
    counted: Counted,
    guarded: Option<u64>,
    time: u64,
}

/// What all of them held, and what of the rest others did; and what had been counted before that was read.
#[derive(Clone, Copy, Debug)]
struct Answer {
    held: u64,
    of_others: u64,
    counted: Counted,
    guarded: Option<u64>,
    time: u64,
}

/// Whoever does not show his shares has all by himself; nothing, if he has ended.
fn all_of(pid: Pid) -> HeldPages {
    let held = procfs::Statm::open(pid).and_then(|statm| statm.resident_pages()).unwrap_or(0);
    HeldPages { held, of_others: 0 }
}

fn look(question: Question) -> Answer {
    let Question { pids, counted, guarded, time } = question;
    let (mut held, mut of_others) = (0, 0);
    for pid in pids {
        let has = procfs::held_pages(pid).unwrap_or_else(|_| all_of(pid));
        held += has.held;
        of_others += has.of_others;
    }
    Answer { held, of_others, counted, guarded, time }
}

/// What was counted once more than it is there.
#[derive(Clone, Copy, Debug)]
struct Twice {
    pages: u64,
    /// What all held when that was found.
    held: u64,
    /// And that was then.
    time: u64,
}

fn is_nearly(before: u64, now: u64) -> bool {
    before.abs_diff(now) <= now / NOTHING_SHARE
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Copied {
    look: SlowLook<Question, Answer>,
    pages: u64,
    /// None: nobody has looked yet.
    twice: Option<Twice>,
    /// Base pages that were counted when that was asked of which the last answer came, and when it came; none: somebody has forked meanwhile, or has ended.
    answered: Option<(u64, Instant)>,
    /// Raised when a child has come of whose memory nobody has told, and when nothing is shared any more: what was asked before says nothing of that.
    time: u64,
    /// What was asked before this is of others.
    forgotten: u64,
    /// Since so many forks everybody who writes is heard of, and so many looks have found nothing.
    settled: (Option<u64>, u32),
}

impl Copied {
    /// Base pages that `pids` had beyond `counted`, as far as known; asks for a newer figure. `guarded`: what [`loam_core::borrower::Borrower::guarded`] says.
    pub(super) fn pages(&mut self, pids: Vec<Pid>, counted: Counted, guarded: Option<u64>) -> u64 {
        if self.settled.0 != guarded {
            self.settled = (guarded, 0);
        }
        if guarded.is_some() && self.settled.1 >= LOOKS_IN_VAIN {
            return 0;
        }
        // Without an answer the figure stays 0: then what is copied is not counted.
        let time = self.time;
        self.look.ask(Question { pids, counted, guarded, time }, "loam-copied", REST_SHARE, look);
        if let Some(answer) = self.look.take() {
            tracing::trace!(?answer, ?counted, "shared by forks");
            self.book(answer, counted, guarded);
        }
        self.pages
    }

    fn book(&mut self, answer: Answer, counted: Counted, guarded: Option<u64>) {
        if answer.time < self.forgotten {
            return;
        }
        // What has come while it was read is counted by now, and was not copied.
        self.pages = answer.held.saturating_sub(answer.counted.pages.max(counted.pages));
        // (Not by what all held: they may have got much while that was read.)
        let twice = answer.of_others.saturating_sub(answer.counted.shared);
        self.twice = Some(Twice { pages: twice, held: answer.held, time: answer.time });
        let shared_since = answer.counted.shared.abs_diff(counted.shared);
        let is_exact = answer.time == self.time && shared_since <= counted.pages / NOTHING_SHARE;
        self.answered = is_exact.then(|| (answer.counted.pages, Instant::now()));
        let is_vain = answer.guarded == guarded && self.pages <= counted.pages / NOTHING_SHARE;
        self.settled.1 = if is_vain { self.settled.1 + 1 } else { 0 };
    }

    /// Base pages that `pids`, which had `counted` each by itself, share, as far as known: what two have is counted once more than it is there. Asks for a newer figure.
    pub(super) fn twice(&mut self, pids: Vec<Pid>, counted: u64) -> u64 {
        self.pages(pids, Counted { pages: counted, shared: 0 }, None);
        self.twice.map_or(0, |twice| twice.pages.min(counted))
    }

    /// As [`Self::pages`], where the kernel shares what nobody tells of. `is_all_heard`: of the rest everybody who writes is heard of, so only what has come or gone says that there may be
    /// something new.
    pub(super) fn pages_or_again(&mut self, pids: Vec<Pid>, counted: Counted, is_all_heard: bool) -> u64 {
        let is_calm =
            self.answered.is_some_and(|(before, at)| is_nearly(before, counted.pages) && at.elapsed() < CALM);
        if is_all_heard && is_calm { self.pages } else { self.pages(pids, counted, None) }
    }

    /// What was counted once more than it is there, of what [`Self::pages_or_again`] asked for last, and what may be at most, by the base pages that are counted now: something may have come while it was read, or
    /// since. None: there is no answer yet.
    pub(super) fn counted_again(&self, counted: u64) -> Option<(u64, u64)> {
        self.twice.map(|twice| {
            let most = if twice.time == self.time { counted.saturating_sub(twice.held) } else { counted };
            (twice.pages, twice.pages.max(most))
        })
    }

    /// There is a child that shares with its parent what nobody has told of.
    pub(super) fn child_came(&mut self) {
        self.time += 1;
        self.answered = None;
    }

    /// Nothing is shared any more.
    pub(super) fn none(&mut self) {
        (self.pages, self.twice, self.answered) = (0, None, None);
        self.time += 1;
        self.forgotten = self.time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: Counted = Counted { pages: 1 << 40, shared: 0 };

    fn pages(copied: &mut Copied, guarded: Option<u64>) -> u64 {
        copied.pages(vec![rustix::process::getpid()], COUNTED, guarded)
    }

    /// Asks until so many looks have found nothing: it is counted to hold far more than it does.
    fn look(copied: &mut Copied, guarded: Option<u64>, looks: u32) {
        let began = Instant::now();
        while copied.settled != (guarded, looks) {
            assert!(began.elapsed() < Duration::from_secs(20), "{copied:?}");
            assert_eq!(pages(copied, guarded), 0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_comes_while_it_is_looked_at_was_not_copied_and_hides_nothing_that_counts_twice() {
        let counted = |pages, shared| Counted { pages, shared };
        let booked = |held, of_others, before, now| {
            let mut copied = Copied::default();
            copied.book(Answer { held, of_others, counted: before, guarded: None, time: 0 }, now, None);
            let again = copied.counted_again(now.pages).expect("there is an answer");
            (copied.pages, again, copied.answered.is_some())
        };
        // A process, its child, and a third that shares 1,000 pages of the first by our knowledge: the child has as many of which nobody was told.
        let (before, shared) = (counted(10_000, 1_000), 2_000);
        assert_eq!(booked(9_000, shared, before, before), (0, (1_000, 1_000), true));
        assert_eq!(
            booked(14_000, shared, before, counted(15_000, 1_000)),
            (0, (1_000, 1_000), true),
            "they grew"
        );
        assert_eq!(
            booked(9_000, shared, before, counted(10_000, 2_000)),
            (0, (1_000, 1_000), false),
            "a fork"
        );
        assert_eq!(
            booked(9_000, shared, before, counted(15_000, 1_000)),
            (0, (1_000, 6_000), true),
            "or may be"
        );
        // All of it copied, and what was shared by our knowledge, too.
        assert_eq!(booked(11_000, 0, before, before), (1_000, (0, 0), true));
    }

    #[test]
    fn what_was_asked_before_a_child_came_says_nothing_of_it() {
        let counted = Counted { pages: 10_000, shared: 0 };
        let answer = Answer { held: 10_000, of_others: 0, counted, guarded: None, time: 0 };
        let mut copied = Copied::default();
        copied.child_came();
        copied.book(answer, counted, None);
        assert_eq!(copied.counted_again(10_000), Some((0, 10_000)), "any of it may be its parent's");
        assert!(copied.answered.is_none(), "and is asked again");
        copied.book(Answer { time: 1, ..answer }, counted, None);
        assert_eq!((copied.counted_again(10_000), copied.answered.is_some()), (Some((0, 0)), true));
        copied.none();
        copied.book(Answer { of_others: 5_000, time: 1, ..answer }, counted, None);
        assert_eq!(copied.counted_again(10_000), None, "all that was meant has gone");
    }

    #[test]
    fn where_everybody_who_writes_is_heard_of_it_is_looked_twice() {
        let mut copied = Copied::default();
        look(&mut copied, None, 2 * LOOKS_IN_VAIN);
        look(&mut copied, Some(1), LOOKS_IN_VAIN);
        // Who asks would need another thread.
        copied.look.forget_thread();
        assert_eq!((pages(&mut copied, Some(1)), !copied.look.has_thread()), (0, true));
        look(&mut copied, Some(2), 1); // another child
        assert!(copied.look.has_thread());
    }
}
