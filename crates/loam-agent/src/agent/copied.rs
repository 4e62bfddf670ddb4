//! What forks have copied.
//!
//! Pages that a child shares with its parent are counted once. When either writes one, the kernel gives it a frame of its own and
//! tells nobody: only the shares in `smaps_rollup` show it. The kernel walks the page tables for that, which takes a large process
//! a tenth of a second, so a thread of its own reads it.

use crate::procfs;
use rustix::process::Pid;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between looks, at least; and this many times what a look takes.
const REST_MIN: Duration = Duration::from_millis(5);
const REST_SHARE: u32 = 4;

/// A question: who, and how many base pages they are taken to have.
struct Question {
    pids: Vec<Pid>,
    counted: u64,
}

/// What all of them held, and what had been counted before that was read.
#[derive(Clone, Copy, Debug)]
struct Answer {
    held: u64,
    counted: u64,
}

/// See the module's documentation. The thread starts with the first question and ends with this.
#[derive(Debug, Default)]
pub(super) struct Copied {
    ask: Option<SyncSender<Question>>,
    answer: Arc<Mutex<Option<Answer>>>,
    pages: u64,
}

impl Copied {
    /// Base pages that `pids` had beyond `counted`, as far as known; asks for a newer figure.
    pub(super) fn pages(&mut self, pids: Vec<Pid>, counted: u64) -> u64 {
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
                        Some(Answer { held, counted: question.counted });
                    std::thread::sleep((began.elapsed() * REST_SHARE).max(REST_MIN));
                }
            });
            ask
        });
        match ask.try_send(Question { pids, counted }) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
        if let Some(answer) = self.answer.try_lock().ok().and_then(|mut answer| answer.take()) {
            // What has come while it was read is counted by now, and was not copied.
            self.pages = answer.held.saturating_sub(answer.counted.max(counted));
        }
        self.pages
    }

    /// Nothing is shared any more.
    pub(super) fn none(&mut self) {
        self.pages = 0;
    }
}
