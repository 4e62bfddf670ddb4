//! Processes that come and go.

use super::moves::Moves;
use super::process::{Hand, Process};
use super::start::random_number;
use super::{Agent, Token};
use crate::procfs;
use crate::uffd::Uffd;
use loam_core::borrower::{BaseRange, SpaceKey};
use loam_core::units::{BasePages, Duration, Instant};
use rustix::fd::AsFd;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

/// Between two looks at processes that are to give pages away.
const HANDS_INTERVAL: Duration = Duration::from_millis(2);
/// And at one that stands still, of which nobody waits for anything.
const STANDING_INTERVAL: Duration = Duration::from_millis(50);
/// So long it may be open what a hand had begun that has ended: a process is on its way out of its memory, or a child on its way to another parent.
const DOUBT_MAX: Duration = Duration::from_millis(100);

impl Agent<'_> {
    pub(super) fn new_key(&mut self) -> SpaceKey {
        let key = SpaceKey(self.next_key);
        self.next_key += 1;
        key
    }

    /// Adds a process and listens to its faults.
    pub(super) fn add_process(&mut self, process: Process) {
        let key = process.key;
        if let Err(errno) = self.poll_on(process.uffd.as_fd(), Token::Faults(key), false) {
            self.end(format!(
                "cannot listen to a program's faults ({errno}): raise the limit of open files (ulimit -n)"
            ));
        }
        self.report.processes += 1;
        self.processes.insert(key, process);
    }

    /// A process forked: the child is served from now on; its hand, if it gets one, comes by itself.
    pub(super) fn forked(&mut self, parent: SpaceKey, uffd: Uffd) {
        if let Some(hand) = self.processes.get_mut(&parent).and_then(|p| p.hand.as_mut()) {
            hand.cancel_populates();
        }
        let now = self.now();
        let child = self.new_key();
        self.borrower.handle_forked(now, parent, child);
        let inherited_pages = self.book_copy(parent);
        let from = &self.processes[&parent];
        let process = Process {
            key: child,
            uffd,
            hand: None,
            since: now,
            family: from.family,
            pid: None,
            events: VecDeque::new(),
            probe: from.probe,
            knock: random_number(),
            window: BaseRange::new(0, 0),
            token: 0,
            region: from.region,
            released: from.released.clone(),
            letting_go: Vec::new(),
            moves: Moves::default(),
            outlives_its_hand: false,
            in_doubt_since: None,
            keeps_from_children: from.keeps_from_children,
            adoption_unsure: false,
            waited_in_vain: false,
            statm: None,
            pagemap: None,
            before: from.before,
            looked_at_pages: from.looked_at_pages,
            inherited_pages,
            resident_pages: 0,
            part: 0,
        };
        self.add_process(process);
    }

    /// A process has ended or has left its memory by exec.
    pub(super) fn process_gone(&mut self, key: SpaceKey) {
        self.deal_with_last_changes(key);
        let Some(mut process) = self.processes.remove(&key) else { return };
        self.report.regions.ended(&process);
        let batches = process.hand.as_mut().map_or_else(Vec::new, Hand::take_batches);
        let now = self.now();
        self.borrower.handle_space_gone(now, key);
        for (_, batch) in batches {
            self.cancel_batch(batch);
        }
        self.calls.retain(|call| call.space != key);
        self.drain();
        self.direct_gone(process);
    }

    /// A hand has ended, and its process with it, mostly; or a process has executed another program. What it had may be somebody's all the same, whose faults are served until
    /// nobody is left: a child that was made by `vfork` has not executed its own program yet.
    pub(super) fn hand_gone(&mut self, key: SpaceKey) {
        let settled = self.settle_halfway(key);
        let now = self.now();
        let Some(process) = self.processes.get_mut(&key) else { return };
        if settled {
            process.in_doubt_since = None;
        } else if now < *process.in_doubt_since.get_or_insert(now) + DOUBT_MAX {
            return; // the socket tells it again
        }
        self.left_to_others(key);
    }

    /// The same, and nobody will know more of what it had begun.
    pub(super) fn hand_gone_for_good(&mut self, key: SpaceKey) {
        let settled = self.settle_halfway(key);
        let now = self.now();
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.in_doubt_since = if settled { None } else { process.in_doubt_since.or(Some(now)) };
        self.left_to_others(key);
    }

    /// Takes what is known of what it had begun, and serves on whoever has its memory.
    fn left_to_others(&mut self, key: SpaceKey) {
        let process = &self.processes[&key];
        if process.uffd.is_dead(process.probe << 12) {
            self.process_gone(key);
            return;
        }
        // First, or another eviction would be ordered here as soon as one is taken out of the books, and nobody would know of it any more.
        let now = self.now();
        self.borrower.handle_stands_still(now, key, true);
        self.drain();
        self.deal_with_last_changes(key);
        self.take_last(key);
        self.borrower.handle_rest(now, key, false);
        self.drain();
        if let Some(process) = self.processes.get_mut(&key) {
            assert!(!process.is_to_give(), "nothing begins where nobody carries it out");
            self.report.regions.ended(process); // its figures go with the hand
            (process.hand, process.pid, process.statm, process.pagemap) = (None, None, None, None);
            process.outlives_its_hand = true;
        }
        self.calls.retain(|call| call.space != key);
    }

    /// A process that cannot be served any more is ended, and nobody else with it. What is left to do is done when its hand hangs up.
    pub(super) fn end_process(&mut self, key: SpaceKey, why: &str) {
        let Some(pid) = self.processes.get(&key).and_then(Process::living) else { return };
        self.report.warn(&format!("process {} is ended: {why}", pid.as_raw_nonzero()));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }

    /// The living process with this id that was served under another address space before.
    pub(super) fn space_of(&self, pid: Pid) -> Option<SpaceKey> {
        self.processes.values().find(|p| p.pid == Some(pid)).map(|p| p.key)
    }

    /// A process whose own threads have ended one by one, without one that ends them all (`exit_group`), lives on by its hand, and whoever waits
    /// for it waits for ever: such a hand is to end.
    pub(super) fn look_for_left_hands(&mut self) {
        for process in self.processes.values_mut() {
            let (Some(pid), Some(hand), Some(statm)) = (process.pid, &mut process.hand, &process.statm)
            else {
                continue;
            };
            // The hand is there, and one of the two threads. That the other, the first one, has left its memory is known without a look at each
            // process that lives.
            if hand.shared.control().hand_tid.load(SeqCst) != 0
                && statm.resident_pages().is_ok_and(|pages| pages == 0)
                && let Ok(stat) = procfs::stat(pid)
                && stat.is_zombie
                && stat.threads == 2
            {
                hand.leave(stat.wait_status);
            }
        }
    }

    /// Processes without a hand leave no trace when they end: ask for them.
    pub(super) fn look_for_ended(&mut self) {
        self.take_ended(|process| process.hand.is_none());
    }

    /// When to look next whether a process has ended, or stands still, that is to give pages away, if somebody waits for such pages. A hand hangs up only when the kernel has taken
    /// all of the process's memory apart, which for some gigabytes takes tenths of a second. The same for those that have no hand any more, or one that stands still.
    pub(super) fn hands_due(&self) -> Option<Instant> {
        let awaits = self.processes.len() > 1 && self.borrower.waiting() > BasePages(0);
        let has = |may: &dyn Fn(&Process) -> bool| self.processes.values().any(may);
        let is_due = |p: &Process| {
            p.outlives_its_hand || awaits && p.is_to_give() || p.may_wait_for_itself(|| self.now())
        };
        let interval = if has(&is_due) {
            HANDS_INTERVAL
        } else if has(&Process::stands_still) {
            STANDING_INTERVAL
        } else {
            return None;
        };
        Some(self.hands_looked_at + interval)
    }

    /// Looks, if it is time. (A process that executes another program has left its memory, too, and is dealt with when the new one joins.)
    pub(super) fn look_at_hands(&mut self, now: Instant) {
        if self.hands_due().is_some_and(|due| due <= now) {
            self.hands_looked_at = now;
            self.take_ended(|p| p.outlives_its_hand || p.is_to_give() && p.living().is_none());
            self.look_for_standing_hands(now);
        }
    }

    /// A process that was stopped gives nothing until it goes on, and the others do not wait for that: what its hand has not begun is taken back.
    fn look_for_standing_hands(&mut self, now: Instant) {
        let looked = self
            .processes
            .iter_mut()
            .filter_map(|(&key, process)| Some((key, process.hand.as_mut()?.look_whether_it_stands(now)?)));
        let changed: Vec<(SpaceKey, bool)> = looked.collect();
        for (key, stands_still) in changed {
            tracing::debug!(?key, stands_still, "hand");
            self.borrower.handle_stands_still(now, key, stands_still);
            let hand = self.processes.get_mut(&key).and_then(|process| process.hand.as_mut());
            let taken_back = hand.filter(|_| stands_still).map(|hand| hand.cancel_evictions().1);
            taken_back.into_iter().flatten().for_each(|batch| self.cancel_batch(batch));
            self.drain();
        }
    }

    fn take_ended(&mut self, may_have: impl Fn(&Process) -> bool) {
        let is_over = |p: &&Process| may_have(p) && p.uffd.is_dead(p.probe << 12);
        let ended: Vec<SpaceKey> = self.processes.values().filter(is_over).map(|p| p.key).collect();
        for key in ended {
            self.process_gone(key);
        }
    }
}
