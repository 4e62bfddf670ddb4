//! Userfaultfd events of one process, in the order in which they were read.

use super::pause::is_want;
use super::process::Process;
use super::{Agent, Token};
use crate::delays;
use crate::uffd::{Event, RawMsg};
use loam_core::borrower::{BaseRange, BaseState, SpaceKey};
use loam_core::units::BASE_PAGE_BYTES;
use loam_hand::part_number;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Events of one read.
const EVENTS: usize = 64;
/// The hand gives the gate back within microseconds, unless it has no core: after so many misses in a row it gets ours.
const GATE_MISSES_MAX: u32 = 64;

/// What a look for events has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The hand has the gate: nothing was read.
    GateTaken,
    Nothing,
    Events,
}

/// What events are read into, kept from one look to the next: most looks find nothing, and clearing 2 KiB takes as long as a tenth of one.
#[derive(Debug)]
pub(super) struct Reading {
    raw: Box<[RawMsg; EVENTS]>,
    fresh: Vec<Event>,
}

impl Reading {
    pub(super) fn new() -> Self {
        Self { raw: Box::new([[0; size_of::<RawMsg>()]; EVENTS]), fresh: Vec::with_capacity(EVENTS) }
    }
}

/// What stands in a probe page.
#[repr(align(4096))]
struct ProbePage([u8; BASE_PAGE_BYTES]);

impl ProbePage {
    fn new(knock: u64) -> Self {
        let mut page = Self([0; BASE_PAGE_BYTES]);
        page.0[..size_of::<u64>()].copy_from_slice(&knock.to_ne_bytes());
        page
    }
}

impl Agent<'_> {
    /// There is something to read.
    pub(super) fn take_events(&mut self, key: SpaceKey) {
        if self.read_events(key) != Look::GateTaken {
            self.gate_misses = 0;
            return;
        }
        // Epoll tells again; until then the hand is asked for the gate.
        if let Some(hand) = self.processes.get(&key).and_then(|p| p.hand.as_ref()) {
            hand.shared.control().agent_wants_gate.store(1, SeqCst);
        }
        self.gate_misses += 1;
        if self.gate_misses.is_multiple_of(GATE_MISSES_MAX) {
            rustix::thread::sched_yield();
        }
    }

    /// Reads what there is, if anything, and deals with it.
    pub(super) fn read_events(&mut self, key: SpaceKey) -> Look {
        let Some(process) = self.processes.get_mut(&key) else { return Look::Nothing };
        if process.moves.waits() && self.pauses.has(Token::Faults(key)) {
            return Look::Nothing;
        }
        // The gate: no page is taken while we read, and what was posted before an event that changes mappings is void
        // (the crate `loam-hand` says why).
        let control = process.hand.as_ref().map(|hand| hand.shared.control());
        if control.is_some_and(|c| !c.gate.try_lock()) {
            return Look::GateTaken;
        }
        let Reading { raw, fresh } = &mut self.reading;
        let result = process.uffd.read_events(&mut raw[..], fresh);
        let mut is_broken = false;
        let window = process.window;
        let changes = |e: &Event| match e {
            Event::Fault { .. } => false,
            Event::Remove { start, .. } | Event::Unmap { start, .. } => !window.contains(start >> 12),
            Event::Fork { .. } | Event::Remap { .. } => true,
        };
        if let Some(control) = control {
            if fresh.iter().any(changes) {
                control.epoch.fetch_add(1, SeqCst);
            }
            control.agent_wants_gate.store(0, SeqCst);
            is_broken = !control.gate.give_back();
        }
        let look = if fresh.is_empty() { Look::Nothing } else { Look::Events };
        process.events.extend(fresh.drain(..));
        match result {
            Ok(_) => {}
            // A fork that needs a descriptor here.
            Err(error) if is_want(error.errno) => self.pause_events(key, error.errno),
            Err(error) => {
                self.end(format!("{error}"));
                return look;
            }
        }
        if is_broken {
            self.end_process(key, "it has written over the memory that it shares with its agent");
        }
        self.deal_with_events(key);
        look
    }

    /// Deals with read events, as far as the hand lets us: changes of mappings in their order, then faults.
    ///
    /// Changes come first because whoever made one went on as soon as we had read it: a page that is installed by what we
    /// knew before could stand where the program already counts on zeros, or on nothing. A fault only says that
    /// a thread waits at an address; it may always be answered by what holds now.
    pub(super) fn deal_with_events(&mut self, key: SpaceKey) {
        loop {
            match self.next_change(key) {
                Some(at) => {
                    if !self.put_hand_to_rest(key) {
                        return;
                    }
                    let process = self.processes.get_mut(&key).expect("it has a change");
                    let event = process.events.remove(at).expect("its place was just found");
                    delays::maybe(4);
                    self.change(key, event);
                    delays::maybe(4);
                    self.let_go_on(key);
                }
                None => {
                    let Some(process) = self.processes.get_mut(&key) else { return };
                    if process.has_unread_changes() {
                        break; // not yet
                    }
                    let Some(Event::Fault { address, writes, tid }) = process.events.pop_front() else {
                        break;
                    };
                    self.fault(key, address >> 12, writes, tid);
                }
            }
        }
        self.drain();
        self.flush();
    }

    /// Of a process that has ended: its changes waited for its hand, which comes to rest no other way now. One that forked and ended at
    /// once (a daemon starting) has left a child in there.
    pub(super) fn deal_with_last_changes(&mut self, key: SpaceKey) {
        if !self.processes.get(&key).is_some_and(Process::has_unread_changes) {
            return;
        }
        let now = self.now();
        self.borrower.handle_rest(now, key, true);
        self.drain();
        self.take_last(key);
        while self.processes.get(&key).is_some_and(Process::has_unread_changes) {
            let next = self.next_change(key);
            let process = self.processes.get_mut(&key).expect("looked at above");
            // In its turn, if its time has not come: no word is to come of whom there is no more.
            match process.events.remove(next.unwrap_or(0)) {
                None | Some(Event::Fault { .. }) => {}
                Some(event) => self.change(key, event),
            }
            self.drain();
        }
    }

    fn fault(&mut self, key: SpaceKey, base: u64, writes: bool, tid: u32) {
        let process = self.processes.get_mut(&key).expect("the caller has it");
        if base == process.probe {
            // A forked child knocks. Whose descriptor this is we know when it comes and says the number that it finds here.
            let page = ProbePage::new(process.knock);
            let _ = process.uffd.copy(base << 12, page.0.as_ptr(), BASE_PAGE_BYTES, false);
            return;
        }
        let part = process.hand.as_ref().map_or(0, |h| h.shared.control().part.load(Relaxed));
        let begins = std::mem::replace(&mut process.part, part) != part;
        let by_hand = process.hand.as_ref().is_some_and(|h| h.shared.control().hand_tid.load(SeqCst) == tid);
        let now = self.now();
        if begins {
            self.borrower.handle_part(now, part_number(part));
        }
        if writes {
            self.borrower.handle_write(now, key, base, by_hand);
            return;
        }
        // It waits in an advice of ours, and evictions wait behind it: it cannot wait for a frame, nor for the batch that is to take this very page
        // (which was discarded, and is not there).
        let is_to_leave = by_hand && self.borrower.state(key, base) == BaseState::Leaving;
        if is_to_leave {
            self.put_hand_to_rest(key);
        }
        self.borrower.handle_fault(now, key, base);
        if by_hand {
            self.borrower.handle_wanted(now, key, base);
        }
        if is_to_leave {
            self.let_go_on(key);
        }
    }

    /// The hand of this process may work again.
    pub(super) fn let_go_on(&mut self, key: SpaceKey) {
        let now = self.now();
        self.borrower.handle_rest(now, key, false);
        self.drain();
        self.retry = true; // installs were held back meanwhile
    }

    /// True when no eviction of this process runs or waits, and none begins until [`Self::let_go_on`]; finished ones have been
    /// taken in.
    pub(super) fn put_hand_to_rest(&mut self, key: SpaceKey) -> bool {
        let now = self.now();
        self.borrower.handle_rest(now, key, true);
        self.drain(); // what was decided before is on its way to the hand, and can be taken back there
        let Some(hand) = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) else { return true };
        if !hand.evicts() {
            return true;
        }
        let (at_rest, dropped) = hand.cancel_evictions();
        for batch in dropped {
            self.cancel_batch(batch);
        }
        self.take_finished(key, usize::MAX);
        self.drain();
        // The last one may have been finished since it was looked at: then it was taken in just now, and rings no more.
        at_rest || self.processes.get(&key).and_then(|p| p.hand.as_ref()).is_none_or(|hand| !hand.evicts())
    }

    fn change(&mut self, key: SpaceKey, event: Event) {
        tracing::debug!(?key, ?event, "change");
        let now = self.now();
        let process = self.processes.get(&key).expect("the caller has it");
        let own =
            |p: &Process, range: BaseRange| !range.intersect(p.window).is_empty() || range.contains(p.probe);
        match event {
            Event::Fault { .. } => unreachable!("faults are dealt with by the caller"),
            Event::Remove { start, end } => {
                let range = BaseRange::new(start >> 12, end >> 12);
                if !own(process, range) {
                    self.borrower.handle_removed(now, key, range);
                }
            }
            Event::Unmap { start, end } => {
                self.unmapped(key, BaseRange::new(start >> 12, end >> 12));
            }
            Event::Remap { from, to, bytes } => {
                let from = BaseRange::new(from >> 12, (from + bytes) >> 12);
                self.borrower.handle_remapped(now, key, from, to >> 12);
                let process = self.processes.get_mut(&key).expect("still there");
                process.moves.left(from);
                // What was let go there has gone, of which the kernel tells nobody.
                process.released.remove(BaseRange::new(to >> 12, (to + bytes) >> 12));
            }
            Event::Fork { uffd } => self.forked(key, uffd),
        }
    }
}
