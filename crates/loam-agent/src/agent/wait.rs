//! How the loop waits: for the next event, asleep or by looking for what is about to come.

use super::Agent;
use super::events::Look;
use loam_core::borrower::SpaceKey;
use loam_core::units::{BasePages, Duration, Instant};
use loam_hand::{Command, state};
use rustix::time::Timespec;
use std::sync::atomic::Ordering::SeqCst;

/// How long a fault's answer is polled for before the loop blocks: waking from a block costs more than a small fetch
/// takes (DESIGN.md, section 3).
const SPIN_NS: u64 = 60_000;
/// How long the next fault is polled for after such an answer.
const LINGER_NS: u64 = 20_000;
/// Looks for an answer between two looks at everything else that may go on meanwhile.
const ANSWER_LOOKS: u32 = 4;
/// Looks for the next fault between two turns of the loop: some five microseconds.
const FAULT_LOOKS: u32 = 12;
/// Faults that are served one after the other before the loop turns: some hundred microseconds.
const BURST_FAULTS: u32 = 4;
/// A gap this long between two turns of the loop is our own stall.
const STALL: Duration = Duration::from_millis(500);
/// The machine's cores are let go to sleep this long after the last fault.
const IDLE_NS: u64 = 50_000_000;
/// The loop turns at least this often.
const LOOK_MAX: Duration = Duration::from_millis(100);
pub(super) const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Agent<'_> {
    /// Polls for the answers that faults wait for, for as long as that is cheaper than to block and be woken. Other threads of the
    /// process that faulted are looked after meanwhile: their faults go out while the first one's answer is on its way.
    pub(super) fn poll_for_answers(&mut self, key: SpaceKey) {
        if !self.answers.begins() {
            return;
        }
        let mut began = self.now();
        let waited = self.borrower.waiting() > BasePages(0);
        if waited && self.wakes_a_lender_here() {
            // The kernel likes to wake it where it was asked from. It would wait for our polls to end, though another core is idle. (Sleeping for its
            // answer takes 20 us longer.)
            rustix::thread::sched_yield();
        }
        // The thread's own core may sleep meanwhile, though ours does not.
        self.guard_latency(waited, began);
        let received = self.report.bytes.received;
        let mut looks = 0_u32;
        while self.borrower.waiting() > BasePages(0) {
            self.look_for_answers();
            if self.borrower.fetches_in_flight() == 0 {
                break; // the disk or the hand: they ring
            }
            looks += 1;
            if !looks.is_multiple_of(ANSWER_LOOKS) {
                continue;
            }
            let now = self.now();
            if (now - began).0 > SPIN_NS {
                if self.report.bytes.received > received {
                    self.answers.hit();
                } else {
                    self.answers.miss();
                }
                return;
            }
            // Not the rest of the page yet: the processor is wanted for what the thread waits for.
            self.store_piece();
            // Time well spent, which says nothing of the lender.
            began = began + (self.now() - now);
            self.read_events(key);
        }
        if waited {
            self.answers.hit();
        }
        self.lingers_until = self.next_faults.begins().then(|| self.now() + Duration(LINGER_NS));
    }

    /// Looks for the next fault of whoever faulted last, and serves it, without a turn of the loop in between. All others wait meanwhile, so it goes on for a few
    /// faults only, and not where another process may have faulted.
    pub(super) fn serve_next_faults(&mut self) {
        let most = if self.processes.len() == 1 { BURST_FAULTS } else { 1 };
        for _ in 0..most {
            let Some(key) = self.faulted.filter(|_| self.lingers()) else { return };
            if !(0..FAULT_LOOKS).any(|_| self.read_events(key) == Look::Events) {
                return;
            }
            self.lingers_until = None;
            self.next_faults.hit();
            self.poll_for_answers(key);
        }
    }

    /// Whether to look for the next fault without blocking: many a thread faults again as soon as it goes on.
    pub(super) fn lingers(&mut self) -> bool {
        let Some(until) = self.lingers_until else { return false };
        let lasts = self.now() < until;
        if !lasts {
            self.next_faults.miss();
            self.lingers_until = None;
        }
        lasts
    }

    /// How long the loop may block: not at all, or until something comes, the alarm at the latest.
    pub(super) fn prepare_to_wait(&mut self) -> Option<Timespec> {
        let now = self.now();
        let awaited = self.borrower.waits_for_something();
        self.guard_latency(awaited, now);
        if self.retry {
            return Some(AT_ONCE);
        }
        for process in self.processes.values() {
            if let Some(hand) = &process.hand {
                hand.shared.control().agent_sleeps.store(1, SeqCst);
                // What was finished before the flag was seen rings no bell.
                let done = |c: &Command| c.state.load(SeqCst) == state::DONE;
                let unseen = hand
                    .ring
                    .iter()
                    .enumerate()
                    .any(|(i, p)| p.is_some_and(|p| p.batch.is_some()) && done(hand.command(i)));
                if unseen {
                    return Some(AT_ONCE);
                }
            }
        }
        let due = [
            self.borrower.poll_timeout(),
            Some(self.watch.due()),
            self.lenders_due(now),
            self.ending_due(now),
            self.pauses.due(),
            self.hands_due(),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now + LOOK_MAX);
        match self.alarm.ring_by(now, due) {
            Ok(()) => None,
            Err(errno) => {
                self.end(format!("timerfd_settime failed ({errno})"));
                Some(AT_ONCE)
            }
        }
    }

    /// The loop wakes at least every [`super::watch::INTERVAL_MAX`]; a longer gap means that we were stopped (Ctrl-Z) or starved, and
    /// then nobody else is to blame for silence.
    pub(super) fn forgive_after_stall(&mut self, now: Instant) {
        if now - self.turned_at > STALL {
            for conn in self.lenders.iter_mut().filter_map(|l| l.conn.as_mut()) {
                conn.forgive();
            }
        }
        self.turned_at = now;
    }

    pub(super) fn after_wait(&self) {
        for process in self.processes.values() {
            if let Some(hand) = &process.hand {
                hand.shared.control().agent_sleeps.store(0, SeqCst);
            }
        }
    }

    /// Holds the machine's cores awake while faults are in flight, where we may: waking a halted core is most of a
    /// small fault (DESIGN.md, section 3). Let go when idle.
    fn guard_latency(&mut self, awaited: bool, now: Instant) {
        if awaited && self.latency_guard.is_none() && self.watch.may_hold_cores {
            match rustix::fs::open(
                "/dev/cpu_dma_latency",
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            ) {
                Ok(fd) if rustix::io::write(&fd, &0_i32.to_ne_bytes()).is_ok() => {
                    self.latency_guard = Some(fd)
                }
                _ => self.watch.may_hold_cores = false,
            }
        } else if !awaited && self.latency_guard.is_some() && now.0 > self.busy_at_ns + IDLE_NS {
            self.latency_guard = None;
        }
    }
}
