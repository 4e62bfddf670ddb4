//! What the program does for all its pages: how long it runs in its own code.

use super::Agent;
use crate::procfs;
use loam_core::borrower::SpaceKey;
use loam_core::units::{Duration, Instant};
use rustix::process::Pid;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// With more processes than this nobody looks: it would take too long.
const PROCESSES_MAX: usize = 256;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    due: Instant,
    /// What each process had run when it was looked at last.
    ran: HashMap<SpaceKey, Duration>,
    /// All of them together, those that have ended among them.
    total: Duration,
}

impl Agent<'_> {
    /// Looks, where memory is adopted, when it is time.
    pub(super) fn look_at_progress(&mut self, now: Instant) {
        if now < self.progress.due || !self.watch.is_pressed() {
            return;
        }
        self.progress.due = now + INTERVAL;
        if self.processes.len() > PROCESSES_MAX {
            self.borrower.handle_progress(now, None);
            return;
        }
        let Progress { ran, total, .. } = &mut self.progress;
        let mut fresh = HashMap::with_capacity(self.processes.len());
        for (&key, process) in &self.processes {
            let hand = process.hand.as_ref().map(|hand| hand.shared.control().hand_tid.load(Relaxed));
            let hand = hand.and_then(|tid| Pid::from_raw(tid.cast_signed()));
            let Some(has_run) = process.pid.and_then(|pid| procfs::ran(pid, hand).ok()) else { continue };
            // Of one that is new, what it ran before belongs to nobody: it may be long.
            let before = ran.get(&key).copied().unwrap_or(has_run);
            total.0 += has_run.0.saturating_sub(before.0);
            fresh.insert(key, has_run);
        }
        let of_each: Vec<(SpaceKey, Duration)> = fresh.iter().map(|(&key, &ran)| (key, ran)).collect();
        *ran = fresh;
        let had_token = self.borrower.token_holder();
        self.borrower.handle_progress(now, Some((*total, &of_each)));
        let has_token = self.borrower.token_holder();
        if has_token != had_token {
            let pid = has_token.and_then(|key| self.processes.get(&key)?.pid);
            tracing::debug!(?pid, "its pages leave last");
        }
    }
}
