//! One process of the tree, as the agent holds it: its userfaultfd, the memory shared with its hand, and the commands
//! that are posted there.

use super::evictions::MADV_POPULATE_WRITE;
use super::moves::Moves;
use super::released::Released;
use super::standing::{Progress, Standing};
use crate::delays;
use crate::packets;
use crate::procfs::{Pagemap, Statm, StatmFigures};
use crate::shared::Shared;
use crate::uffd::{Event, Uffd};
use loam_core::borrower::{BaseRange, BatchId, SpaceKey};
use loam_core::units::{Duration, Instant};
use loam_hand::{COMMAND_SPANS, Command, RING_COMMANDS, kind, state};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Pid;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Who has had no hand for so long gets none, as it seems.
const JOINS_MAX: Duration = Duration::from_millis(200);
const MADV_DONTFORK: u32 = 10;
const MADV_DOFORK: u32 = 11;

/// A hand that steps aside is back in milliseconds; so long at most it is looked whether somebody waits for it meanwhile.
const ASIDE_MAX: Duration = Duration::from_millis(1_000);

/// A command for the hand: `(address, pages, extra)` spans.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub kind: u32,
    pub spans: Vec<(u64, u32, u32)>,
    pub batch: Option<BatchId>,
}

impl Order {
    /// Both are advice of which nobody hears again, and one command has room for it.
    fn takes(&self, next: &Self) -> bool {
        let is_advice = |order: &Self| order.kind == kind::ADVISE && order.batch.is_none();
        is_advice(self) && is_advice(next) && self.spans.len() + next.spans.len() <= COMMAND_SPANS
    }
}

/// A command in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub batch: Option<BatchId>,
    /// Which command it was, to know when the hand has passed it.
    sequence: u32,
    pub cancelled: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Process {
    pub key: SpaceKey,
    pub uffd: Uffd,
    /// Without a hand nothing can be taken from it, but its faults are served.
    pub hand: Option<Hand>,
    /// When it was heard of.
    pub since: Instant,
    /// The first of those of which it was forked, itself if it was not.
    pub family: SpaceKey,
    /// Known from the hand's hello.
    pub pid: Option<Pid>,
    /// Read and not yet dealt with, in order.
    pub events: VecDeque<Event>,
    /// Base page of the probe page.
    pub probe: u64,
    /// What a forked child finds there, by which it is known when it comes; 0: it has come.
    pub knock: u64,
    pub window: BaseRange,
    /// What it is in the table of a direct region; 0: nothing, or not yet.
    pub token: u32,
    pub moves: Moves,
    /// Its region, where there are such: nothing else of it is adopted. A direct one is not adopted either.
    pub region: Option<BaseRange>,
    /// Its hand has ended. It has not, or its memory is another's, too: a child that was made by `vfork` has not executed its program yet.
    pub outlives_its_hand: bool,
    /// Its hand has ended in the middle of an eviction, and nobody could say yet what became of the pages.
    pub in_doubt_since: Option<Instant>,
    /// Some of its memory is not its children's, or may not be ([`loam_hand::call::KEEPS`] and [`loam_hand::call::RELEASE`]).
    pub keeps_from_children: bool,
    /// Ranges that the program keeps for itself.
    pub released: Released,
    /// And those that it is about to keep: they are brought home, and neither adopted nor hidden from children meanwhile.
    pub letting_go: Vec<BaseRange>,
    /// A mapping is registered, and the policy was not told: nobody can say whether all of it is, or whether a child of which we have not heard inherited that.
    pub adoption_unsure: bool,
    /// A fork of it has waited to be adopted for nothing; the next ones need not wait, until it could be looked at again.
    pub waited_in_vain: bool,
    pub statm: Option<Statm>,
    pub pagemap: Option<Pagemap>,
    /// What the program had when it came and we did not start it: not what it borrows for. A child has its parent's. Its `file_pages` are those of files alone.
    pub before: StatmFigures,
    /// Unadopted resident pages when its mappings were looked at last.
    pub looked_at_pages: u64,
    /// Base pages that its parent had and nobody had adopted when it was forked: they may be shared still, which nobody tells.
    pub inherited_pages: u64,
    /// What it had when all were looked at last.
    pub resident_pages: u64,
    /// The part of the program that ran at its last fault.
    pub part: u32,
}

impl Process {
    /// Its id, if that is known and it has not ended yet.
    pub(super) fn living(&self) -> Option<Pid> {
        let pid = self.pid?;
        let pages = match &self.statm {
            Some(statm) => statm.resident_pages(),
            None => Statm::open(pid).and_then(|statm| statm.resident_pages()),
        };
        pages.is_ok_and(|pages| pages > 0).then_some(pid)
    }

    /// Its hand has evictions to do.
    pub(super) fn is_to_give(&self) -> bool {
        self.hand.as_ref().is_some_and(Hand::evicts)
    }

    /// No change of mappings is unread or under way: what was read of them just before is of the same time as what is known.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_unread_changes() && !self.uffd.is_changing(self.probe << 12)
    }

    /// Its memory may be adopted.
    pub(super) fn may_be_adopted(&self) -> bool {
        // What were adopted while mappings change may or may not be a child's, too. And until the hand says who it is, its own stack looks like the program's, and is not yet marked as the shim's:
        // were that adopted, the hand would wait for a page that it has to make room for.
        self.is_settled()
            && self.hand.as_ref().is_none_or(|hand| hand.shared.control().hand_tid.load(SeqCst) != 0)
    }

    /// Its hand has evictions to do, and may have stepped aside.
    pub(super) fn may_wait_for_itself(&self, now: impl Fn() -> Instant) -> bool {
        let until = |hand: &Hand| Some(hand.may_be_away_until).filter(|until| *until > Instant(0));
        self.hand.as_ref().is_some_and(|hand| until(hand).is_some_and(|until| until > now()) && hand.evicts())
    }

    /// Nobody waits for its hand.
    pub(super) fn stands_still(&self) -> bool {
        self.hand.as_ref().is_some_and(Hand::stands_still)
    }

    /// It has no hand, and seems to get none any more: it was made past libc, or its hand has ended. One that is just joining takes milliseconds, mostly.
    pub(super) fn stays_without_hand(&self, now: Instant) -> bool {
        self.hand.is_none() && now >= self.since + JOINS_MAX
    }

    /// Changes of mappings have been read and not been dealt with: nothing may be installed by what was known before.
    pub(super) fn has_unread_changes(&self) -> bool {
        self.events.iter().any(|e| !matches!(e, Event::Fault { .. }))
    }
}

/// The agent's end of a hand.
#[derive(Debug)]
pub(super) struct Hand {
    pub shared: Shared,
    pub socket: OwnedFd,
    posted: u32,
    pub ring: [Option<Posted>; RING_COMMANDS],
    pub waiting: VecDeque<Order>,
    /// Forks under way where the kernel does not report them.
    pub forks: u32,
    /// Where it was told to hide something, and not to show it since.
    hidden: Released,
    /// It was told to end.
    leaves: bool,
    /// It was told to step aside.
    may_be_away_until: Instant,
    standing: Standing,
    /// It was told that huge pages are not for its process.
    has_small_pages: bool,
}

impl Hand {
    pub(super) fn new(shared: Shared, socket: OwnedFd) -> Self {
        let (ring, waiting) = ([None; RING_COMMANDS], VecDeque::new());
        Self {
            shared,
            socket,
            posted: 0,
            ring,
            waiting,
            forks: 0,
            hidden: Released::default(),
            leaves: false,
            may_be_away_until: Instant(0),
            standing: Standing::default(),
            has_small_pages: false,
        }
    }

    pub(super) fn command(&self, slot: usize) -> &Command {
        &self.shared.control().commands[slot]
    }

    /// Queues an order and posts what fits into the ring.
    pub(super) fn order(&mut self, order: Order) {
        match self.waiting.back_mut() {
            // Pieces of one advice come one by one, and the ring has room for few commands.
            Some(last) if last.takes(&order) => last.spans.extend(order.spans),
            _ => self.waiting.push_back(order),
        }
        self.pump();
    }

    /// Posts waiting orders while the ring has room.
    pub(super) fn pump(&mut self) {
        while !self.waiting.is_empty() && self.ring[self.posted as usize % RING_COMMANDS].is_none() {
            let order = self.waiting.pop_front().expect("looked at above");
            self.post(&order);
        }
    }

    fn post(&mut self, order: &Order) {
        let slot = self.posted as usize % RING_COMMANDS;
        let control = self.shared.control();
        let command = &control.commands[slot];
        assert!(order.spans.len() <= COMMAND_SPANS, "an order has too many spans");
        for (span, &(address, pages, extra)) in command.spans.iter().zip(&order.spans) {
            span.address.store(address, Relaxed);
            span.pages.store(pages, Relaxed);
            span.extra.store(extra, Relaxed);
        }
        for result in &command.results {
            result.store(loam_hand::result::NONE, Relaxed);
        }
        command.kind.store(order.kind, Relaxed);
        command.spans_count.store(order.spans.len() as u32, Relaxed);
        command.epoch.store(control.epoch.load(Relaxed), Relaxed);
        command.state.store(state::POSTED, SeqCst);
        self.ring[slot] = Some(Posted { batch: order.batch, sequence: self.posted, cancelled: false });
        self.posted = self.posted.wrapping_add(1);
        delays::maybe(24);
        control.posted.store(self.posted, SeqCst);
        delays::maybe(24);
        if control.hand_sleeps.load(SeqCst) != 0 {
            packets::ring(self.socket.as_fd());
        }
    }

    /// Whether whoever allocates in this process is to wait.
    pub(super) fn throttle(&self, waits: bool) {
        let control = self.shared.control();
        let waited = control.throttle.swap(u32::from(waits), SeqCst) != 0;
        if waits && !waited && control.hand_sleeps.load(SeqCst) != 0 {
            packets::ring(self.socket.as_fd());
        }
    }

    /// Takes back every eviction that has not begun; those that wait are dropped from the queue. True: no eviction
    /// runs any more (finished ones may still have to be looked at).
    pub(super) fn cancel_evictions(&mut self) -> (bool, Vec<BatchId>) {
        let mut dropped = Vec::new();
        self.waiting.retain(|order| match order.batch {
            Some(batch) => {
                dropped.push(batch);
                false
            }
            None => true,
        });
        let control = self.shared.control();
        let mut at_rest = true;
        for (slot, entry) in self.ring.iter_mut().enumerate() {
            let Some(posted) = entry else { continue };
            let Some(batch) = posted.batch else { continue };
            let command = &control.commands[slot];
            match command.state.compare_exchange(state::POSTED, state::CANCELLED, SeqCst, SeqCst) {
                Ok(_) => {
                    posted.cancelled = true;
                    posted.batch = None;
                    dropped.push(batch);
                }
                Err(state::RUNNING) => at_rest = false,
                Err(_) => {}
            }
        }
        (at_rest, dropped)
    }

    /// Takes back what was to be made the process's own and has not begun: it was for pages that a new child shares now, and would copy them.
    pub(super) fn cancel_populates(&mut self) {
        for order in &mut self.waiting {
            order.spans.retain(|span| span.2 != MADV_POPULATE_WRITE);
        }
        self.waiting.retain(|order| order.kind != kind::ADVISE || !order.spans.is_empty());
        let control = self.shared.control();
        for (slot, entry) in self.ring.iter_mut().enumerate() {
            let Some(posted) = entry else { continue };
            let command = &control.commands[slot];
            let spans = &command.spans[..command.spans_count.load(Relaxed) as usize];
            if posted.batch.is_none()
                && command.kind.load(Relaxed) == kind::ADVISE
                && spans.iter().all(|span| span.extra.load(Relaxed) == MADV_POPULATE_WRITE)
                && command.state.compare_exchange(state::POSTED, state::CANCELLED, SeqCst, SeqCst).is_ok()
            {
                posted.cancelled = true;
            }
        }
    }

    /// Frees ring slots whose command is over; evictions that are done are answered with their slot, to be looked
    /// at before the slot is freed by [`Self::free`].
    pub(super) fn done(&mut self) -> Option<(usize, BatchId)> {
        let finished = self.shared.control().finished.load(SeqCst);
        for slot in 0..RING_COMMANDS {
            let Some(posted) = self.ring[slot] else { continue };
            let passed = finished.wrapping_sub(posted.sequence) as i32 > 0;
            let is_done = self.command(slot).state.load(SeqCst) == state::DONE;
            match posted.batch {
                Some(batch) if is_done => return Some((slot, batch)),
                None if passed && (is_done || posted.cancelled) => self.free(slot),
                _ => {}
            }
        }
        None
    }

    /// The command in `slot` is dealt with.
    pub(super) fn free(&mut self, slot: usize) {
        let passed = {
            let control = self.shared.control();
            let sequence = self.ring[slot].expect("a posted command").sequence;
            control.finished.load(SeqCst).wrapping_sub(sequence) as i32 > 0
        };
        if passed {
            self.command(slot).state.store(state::FREE, SeqCst);
            self.ring[slot] = None;
        } else if let Some(posted) = &mut self.ring[slot] {
            // The window is still being emptied; `done` frees the slot when the hand has passed it.
            posted.batch = None;
        }
    }

    /// Everything that was ordered is done.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.ring.iter().all(Option::is_none)
    }

    /// Evictions are posted or queued.
    pub(super) fn evicts(&self) -> bool {
        self.ring.iter().flatten().any(|p| p.batch.is_some())
            || self.waiting.iter().any(|o| o.batch.is_some())
    }

    /// Nobody waits for it.
    pub(super) fn stands_still(&self) -> bool {
        self.standing.stands_still()
    }

    /// Whether it stands still, if that has changed.
    pub(super) fn look_whether_it_stands(&mut self, now: Instant) -> Option<bool> {
        let passed = self.shared.control().finished.load(SeqCst);
        let progress = Progress { posted: self.posted, passed, evicts: self.evicts() };
        self.standing.look(now, progress)
    }

    /// It began the command in `slot`, and has not said that it is done.
    pub(super) fn was_at(&self, slot: usize) -> bool {
        self.command(slot).state.load(SeqCst) == state::RUNNING
    }

    /// The eviction that it has begun, with its slot.
    pub(super) fn running(&self) -> Option<(usize, BatchId)> {
        let mut batches =
            self.ring.iter().enumerate().filter_map(|(slot, p)| Some((slot, p.as_ref()?.batch?)));
        batches.find(|&(slot, _)| self.was_at(slot))
    }

    /// Takes every eviction that is posted or queued out of the books, with its slot if it has one: for a process that is gone.
    pub(super) fn take_batches(&mut self) -> Vec<(Option<usize>, BatchId)> {
        let posted = self.ring.iter_mut().enumerate();
        let posted = posted.filter_map(|(slot, p)| Some((Some(slot), p.as_mut()?.batch.take()?)));
        let mut batches: Vec<_> = posted.collect();
        batches.extend(self.waiting.drain(..).filter_map(|order| Some((None, order.batch?))));
        batches
    }

    /// Has the hand end, and the process with it: its own threads have ended, and as `wait_status` says the first of them.
    pub(super) fn leave(&mut self, wait_status: u32) {
        if !std::mem::replace(&mut self.leaves, true) {
            self.order(Order { kind: kind::EXIT, spans: vec![(0, 0, wait_status)], batch: None });
        }
    }

    /// Has it make way for another one of the same process, who begins where it ends. Nothing more is known of that here: meanwhile it stands still, as that of a process that is stopped; but this one
    /// runs, and may wait for a page.
    pub(super) fn step_aside(&mut self, now: Instant, socket: u32) {
        self.may_be_away_until = now + ASIDE_MAX;
        self.order(Order { kind: kind::STEP_ASIDE, spans: vec![(0, 0, socket)], batch: None });
    }

    /// Has all of the process's memory be made of base pages from now on.
    pub(super) fn turn_off_huge_pages(&mut self) {
        if !std::mem::replace(&mut self.has_small_pages, true) {
            self.order(Order { kind: kind::NO_HUGE_PAGES, spans: Vec::new(), batch: None });
        }
    }

    /// Keeps ranges from children.
    pub(super) fn hide(&mut self, ranges: &[BaseRange]) {
        tracing::debug!(?ranges, "hide");
        ranges.iter().for_each(|range| self.hidden.add(*range));
        self.advise(ranges, MADV_DONTFORK);
    }

    /// Has children find them.
    pub(super) fn show(&mut self, ranges: &[BaseRange]) {
        tracing::debug!(?ranges, "show");
        ranges.iter().for_each(|range| self.hidden.remove(*range));
        self.advise(ranges, MADV_DOFORK);
    }

    /// Something may be hidden that is in the range now, if it has not been moved there.
    pub(super) fn may_hide(&self, range: BaseRange) -> bool {
        self.hidden.iter().any(|of| !of.intersect(range).is_empty())
    }

    /// Asks for advice on ranges, in as many commands as it takes.
    pub(super) fn advise(&mut self, ranges: &[BaseRange], advice: u32) {
        for chunk in ranges.chunks(COMMAND_SPANS) {
            let spans = chunk.iter().map(|r| (r.start << 12, r.len() as u32, advice)).collect();
            self.order(Order { kind: kind::ADVISE, spans, batch: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(kind: u32, spans: usize, batch: Option<BatchId>) -> Order {
        Order { kind, spans: vec![(4096, 1, 0); spans], batch }
    }

    #[test]
    fn advice_joins_advice_that_has_room_and_nothing_else() {
        let advice = |spans| order(kind::ADVISE, spans, None);
        assert!(advice(1).takes(&advice(COMMAND_SPANS - 1)));
        assert!(!advice(1).takes(&advice(COMMAND_SPANS)));
        let evict = order(kind::EVICT, 1, Some(BatchId(7)));
        assert!(!evict.takes(&advice(1)) && !advice(1).takes(&evict));
        assert!(!order(kind::ADVISE, 1, Some(BatchId(7))).takes(&advice(1)), "somebody waits for it");
        assert!(!order(kind::EXIT, 1, None).takes(&advice(1)));
    }
}
