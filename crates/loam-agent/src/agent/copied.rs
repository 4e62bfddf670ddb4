//! What forks have copied.
//!
//! Pages that a child shares with its parent are counted once. When either writes one, the kernel gives it a frame of its own and
//! tells nobody: only the shares in `smaps_rollup` show it. The kernel walks the page tables for that, which takes a large process
//! a tenth of a second, so a thread of its own reads it. Meanwhile nobody can change the process's mappings, the hand neither, and behind one that waits for that all
//! faults of the process wait. So where everybody who writes is heard of (`protect.rs`) it is read twice more, for what was written before that was so, and then no longer.

use crate::procfs;
use rustix::process::Pid;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between looks, at least; and this many times what a look takes.
const REST_MIN: Duration = Duration::from_millis(5);
const REST_SHARE: u32 = 4;

/// So often nothing has been found that was not heard of: nothing will be.
const LOOKS_IN_VAIN: u32 = 2;
/// Up to this part of all is nothing: pages come and go while the kernel looks at them.
const NOTHING_SHARE: u64 = 64;

/// A question: who, and how many base pages they are taken to have. And whether everybody who writes is heard of, since how many forks.
struct Question {
    pids: Vec<Pid>,
    counted: u64,
    guarded: Option<u64>,
}

/// What all of them held, and what had been counted before that was read.
#[derive(Clone, Copy, Debug)]
struct Answer {
    held: u64,
    counted: u64,
    guarded: Option<u64>,
}

/// See the module's documentation. The thread starts with the first question and ends with this.
#[derive(Debug, Default)]
pub(super) struct Copied {
    ask: Option<SyncSender<Question>>,
    answer: Arc<Mutex<Option<Answer>>>,
    pages: u64,
    /// Of what was counted, what was counted before.
    twice: u64,
    /// Since so many forks everybody who writes is heard of, and so many looks have found nothing.
    settled: (Option<u64>, u32),
}

impl Copied {
    /// Base pages that `pids` had beyond `counted`, as far as known; asks for a newer figure. `guarded`: what [`loam_core::borrower::Borrower::guarded`] says.
    pub(super) fn pages(&mut self, pids: Vec<Pid>, counted: u64, guarded: Option<u64>) -> u64 {
        if self.settled.0 != guarded {
            self.settled = (guarded, 0);
        }
        if guarded.is_some() && self.settled.1 >= LOOKS_IN_VAIN {
            return 0;
        }
        let ask = self.ask.get_or_insert_with(|| {
            let (ask, questions) = sync_channel::<Question>(0);
            let answer = Arc::clone(&self.answer);
            // Without a thread the figure stays 0: then what is copied is not counted, and nothing else is lost.
            let _ = std::thread::Builder::new().name("loam-copied".into()).spawn(move || {
                for question in questions {
                    let began = Instant::now();
                    let held: u64 =
                        question.pids.iter().filter_map(|&pid| procfs::held_pages(pid).ok()).sum();
                    *answer.lock().expect("neither side panics with it") =
                        Some(Answer { held, counted: question.counted, guarded: question.guarded });
                    std::thread::sleep((began.elapsed() * REST_SHARE).max(REST_MIN));
                }
            });
            ask
        });
        match ask.try_send(Question { pids, counted, guarded }) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
        if let Some(answer) = self.answer.try_lock().ok().and_then(|mut answer| answer.take()) {
            // What has come while it was read is counted by now, and was not copied.
            self.pages = answer.held.saturating_sub(answer.counted.max(counted));
            self.twice = answer.counted.saturating_sub(answer.held);
            let is_vain = answer.guarded == guarded && self.pages <= counted / NOTHING_SHARE;
            self.settled.1 = if is_vain { self.settled.1 + 1 } else { 0 };
        }
        self.pages
    }

    /// Base pages that `pids`, which had `counted` each by itself, share, as far as known: what two have is counted once more than it is there. Asks for a newer figure.
    pub(super) fn twice(&mut self, pids: Vec<Pid>, counted: u64) -> u64 {
        self.pages(pids, counted, None);
        self.twice.min(counted)
    }

    /// Nothing is shared any more.
    pub(super) fn none(&mut self) {
        (self.pages, self.twice) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: u64 = 1 << 40;

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
    fn where_everybody_who_writes_is_heard_of_it_is_looked_twice() {
        let mut copied = Copied::default();
        look(&mut copied, None, 2 * LOOKS_IN_VAIN);
        look(&mut copied, Some(1), LOOKS_IN_VAIN);
        // Who asks would need another thread.
        copied.ask = None;
        assert_eq!((pages(&mut copied, Some(1)), copied.ask.is_none()), (0, true));
        look(&mut copied, Some(2), 1); // another child
        assert!(copied.ask.is_some());
    }
}
