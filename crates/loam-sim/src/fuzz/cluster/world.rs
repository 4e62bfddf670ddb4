//! The run: interprets a script, event by event, with the checkers after each.

use super::machine::{Machine, Sabotage};
use super::script::Script;
use crate::engine::Queue;
use crate::fuzz::dice::Dice;
use crate::fuzz::sim::{self, Failure, FailureKind};
use loam_core::global::{EpochId, NodeMessage};
use loam_core::ids::{NodeId, PageId, Version};
use loam_core::units::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// Once faults have ceased everybody agrees and is answered within this.
const AGREE_WITHIN: Duration = Duration::from_millis(10_000);
/// All that was ever written is read again within this.
const READ_WITHIN: Duration = Duration::from_millis(30_000);
/// If messages about the cluster are under way just then, we look again so much later.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// More than any run needs: somebody goes in circles.
const EVENTS_MAX: u64 = 2_000_000;
/// Events between two looks at all that lies in memory.
const FULL_CHECK_EVENTS: u64 = 256;
/// Every so many seeds one is looked at after every event.
const THOROUGH_SEEDS: u64 = 64;

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Act(usize),
    Message(NodeId, NodeId, NodeMessage, Option<u64>),
    DiskRead(NodeId, PageId),
    Timer(NodeId),
    Thread(NodeId, usize),
    /// The first looks whether the second lives.
    Look(NodeId, NodeId),
    Kill(NodeId),
    Resume(NodeId),
    /// The network is whole again, if it did not fall apart anew.
    Heal(u64),
    Gone(NodeId),
    Phase(u32),
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// What happened, a line each; empty unless it was asked for.
    pub log: String,
    /// Events.
    pub events: u64,
    /// Accesses of programs that were answered, and checked.
    pub accesses: u64,
    /// Faults answered, in the order of `Origin`.
    pub answered: [u64; 4],
    /// Putpages.
    pub puts: u64,
    /// Nodes that joined, the first ones included; were killed; left in order.
    pub joined: u64,
    /// See `joined`.
    pub died: u64,
    /// See `joined`.
    pub left: u64,
    /// Epochs, of the nodes that saw most of them.
    pub epochs: u64,
    /// Copies whose directory was checked to be exact.
    pub exact: u64,
}

impl Outcome {
    /// Adds another's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.events, other.events),
            (&mut self.accesses, other.accesses),
            (&mut self.puts, other.puts),
            (&mut self.joined, other.joined),
            (&mut self.died, other.died),
            (&mut self.left, other.left),
            (&mut self.epochs, other.epochs),
            (&mut self.exact, other.exact),
        ];
        sums.into_iter().for_each(|(sum, n)| *sum += n);
        self.answered.iter_mut().zip(other.answered).for_each(|(sum, n)| *sum += n);
    }
}

/// Runs a script.
pub fn run(script: &Script, log: bool, sabotage: Sabotage) -> Outcome {
    drop(sim::take_log());
    World::new(script, log, sabotage).run()
}

pub(super) struct World<'a> {
    pub script: &'a Script,
    pub queue: Queue<Event>,
    pub now: Instant,
    pub dice: Dice,
    pub logs: bool,
    pub sabotage: Sabotage,
    /// The living, those that are stopped included.
    pub machines: BTreeMap<NodeId, Machine>,
    pub ever: BTreeSet<NodeId>,
    /// On which side of the network each is, and how often it fell apart.
    pub sides: BTreeMap<NodeId, u8>,
    pub parts: u64,
    /// The version of each file.
    pub files: Vec<u64>,
    /// What the program of each private page wrote last.
    pub truth: BTreeMap<PageId, u64>,
    /// What each version of a private page holds; version 0 holds 0.
    pub history: BTreeMap<(PageId, Version), u64>,
    pub values: u64,
    /// Pages of which a copy may be that no directory knows, for a message was lost or overtaken.
    pub disturbed: BTreeSet<PageId>,
    /// When each node last told a page's directory that the page has left it.
    pub left: BTreeMap<(NodeId, PageId), Instant>,
    /// Who asks for summaries next is killed so long afterwards.
    pub trap: Option<Duration>,
    /// Messages about the cluster that are under way.
    pub under_way: u64,
    pub quiet: bool,
    /// When somebody last did not hear of an epoch that began.
    pub epoch_missed: Option<Instant>,
    /// The epoch when all had agreed.
    pub epoch_before: Option<EpochId>,
    pub outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(script: &'a Script, logs: bool, sabotage: Sabotage) -> Self {
        Self {
            script,
            queue: Queue::new(),
            now: Instant(0),
            dice: Dice::new(script.seed, 102),
            logs,
            sabotage,
            machines: BTreeMap::new(),
            ever: BTreeSet::new(),
            sides: BTreeMap::new(),
            parts: 0,
            files: vec![1; script.settings.files as usize],
            truth: BTreeMap::new(),
            history: BTreeMap::new(),
            values: 0,
            disturbed: BTreeSet::new(),
            left: BTreeMap::new(),
            trap: None,
            under_way: 0,
            quiet: false,
            epoch_missed: None,
            epoch_before: None,
            outcome: Outcome::default(),
        }
    }

    fn run(mut self) -> Outcome {
        self.log(|| format!("seed {}: {:?}", self.script.seed, self.script.settings));
        for (at, &frames) in self.script.settings.frames.iter().enumerate() {
            self.join(frames, self.script.settings.busy >> at & 1 == 1);
        }
        for (i, action) in self.script.actions.iter().enumerate() {
            self.queue.push(action.at, Event::Act(i));
        }
        self.queue.push(self.script.quiet_at, Event::Phase(0));
        let thorough = self.logs || self.script.seed.is_multiple_of(THOROUGH_SEEDS);
        while self.outcome.failure.is_none()
            && let Some((now, event)) = self.queue.pop()
        {
            self.now = now;
            self.outcome.events += 1;
            if matches!(event, Event::Phase(3)) {
                break;
            }
            self.handle(event);
            if thorough || self.outcome.events.is_multiple_of(FULL_CHECK_EVENTS) {
                self.check_all();
            }
            if self.outcome.events > EVENTS_MAX {
                self.fail(FailureKind::Liveness, || "the run goes in circles".into());
            }
        }
        for machine in std::mem::take(&mut self.machines).into_values() {
            self.book(&machine);
        }
        self.outcome.log = sim::take_log();
        self.outcome
    }

    pub(super) fn book(&mut self, machine: &Machine) {
        let stats = machine.node.stats();
        let origins = [stats.own, stats.global, stats.duplicate, stats.disk];
        self.outcome.answered.iter_mut().zip(origins).for_each(|(sum, n)| *sum += n);
        self.outcome.puts += stats.puts;
        self.outcome.epochs = self.outcome.epochs.max(machine.node.coordinator().epoch().id.number);
    }

    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Act(i) if !self.quiet => self.act(self.script.actions[i].act),
            Event::Kill(id) if !self.quiet => self.kill(Some(id)),
            Event::Heal(parts) if parts == self.parts && !self.quiet => {
                self.sides.values_mut().for_each(|side| *side = 0);
                self.notice_all(false);
            }
            Event::Act(_) | Event::Kill(_) | Event::Heal(_) => {}
            Event::Message(from, to, message, contents) => self.deliver(from, to, message, contents),
            Event::Resume(id) => self.resume(id),
            Event::Gone(id) => self.gone(id),
            Event::Phase(phase) => self.phase(phase),
            Event::DiskRead(id, _) | Event::Timer(id) | Event::Thread(id, _) | Event::Look(id, _) => {
                let Some(machine) = self.machines.get_mut(&id) else { return };
                if machine.stopped {
                    return machine.inbox.push(event);
                }
                match event {
                    Event::DiskRead(_, page) => self.disk_read(id, page),
                    Event::Timer(_) => self.timer(id),
                    Event::Thread(_, thread) => self.thread(id, thread),
                    Event::Look(_, subject) => self.look(id, subject),
                    _ => unreachable!("the others are dealt with above"),
                }
            }
        }
    }

    fn phase(&mut self, phase: u32) {
        match phase {
            0 => {
                self.calm();
                self.after(AGREE_WITHIN, Event::Phase(1));
            }
            // An epoch that is beginning just now is no disagreement.
            _ if self.under_way > 0 => self.after(LOOK_AGAIN, Event::Phase(phase)),
            1 => {
                self.check_rest();
                let all: Vec<NodeId> = self.machines.keys().copied().collect();
                all.into_iter().for_each(|id| self.read_all(id));
                self.epoch_before = self.machines.values().next().map(|m| m.node.coordinator().epoch().id);
                self.after(READ_WITHIN, Event::Phase(2));
            }
            _ => {
                self.check_rest();
                self.check_epoch();
                self.after(Duration(0), Event::Phase(3));
            }
        }
    }

    /// Nothing is done to anybody any more: all looks.
    fn check_rest(&mut self) {
        self.check_all();
        self.check_answered();
        self.check_nothing_is_left();
        self.check_views();
        if !self.script.settings.faults {
            self.check_directories();
        }
    }

    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    pub(super) fn log(&self, line: impl FnOnce() -> String) {
        if self.logs {
            sim::log_line(self.now, &line());
        }
    }

    pub(super) fn fail(&mut self, kind: FailureKind, what: impl FnOnce() -> String) {
        if self.outcome.failure.is_none() {
            let what = what();
            self.log(|| format!("FAILED: {what}"));
            self.outcome.failure = Some(Failure { kind, at: self.now, what });
        }
    }
}
