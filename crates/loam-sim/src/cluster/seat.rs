//! One machine of a cluster, and what is counted of it.

use super::disk::Disk;
use super::program::{Program, Step};
use crate::engine::Resource;
use loam_core::global::{GlobalNode, Message, NodeMessage, NodeStats, PageMessage};
use loam_core::ids::PageId;
use loam_core::units::{Duration, Instant};

/// The parts of an epoch (table 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochStep {
    /// The initiator asks everybody.
    Request,
    /// Everybody looks at its pages, and answers.
    Gather,
    /// The initiator tells everybody.
    Distribute,
    /// Everybody asks once an epoch whether its POD is the newest; epochs that end early.
    Other,
}

fn step_of(message: &Message) -> EpochStep {
    match message {
        Message::EpochRequest { .. } => EpochStep::Request,
        Message::Summary { .. } => EpochStep::Gather,
        Message::EpochBegins(_) => EpochStep::Distribute,
        Message::EpochEnds { .. } | Message::Pod(_) | Message::PodRequest { .. } => EpochStep::Other,
    }
}

/// What epochs cost a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpochCosts {
    cpu_ns: [u64; 4],
    bytes: [u64; 4],
}

impl EpochCosts {
    pub(super) fn charge(&mut self, message: &Message, cost: Duration) {
        self.cpu_ns[step_of(message) as usize] += cost.0;
    }

    pub(super) fn gather(&mut self, cost: Duration) {
        self.cpu_ns[EpochStep::Gather as usize] += cost.0;
    }

    /// Processor time.
    pub fn cpu_ns(&self, step: EpochStep) -> u64 {
        self.cpu_ns[step as usize]
    }

    /// Bytes that it sent.
    pub fn bytes(&self, step: EpochStep) -> u64 {
        self.bytes[step as usize]
    }

    /// Processor time of all.
    pub fn all_cpu_ns(&self) -> u64 {
        self.cpu_ns.iter().sum()
    }

    /// All bytes.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// A program on its node.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) program: Box<dyn Program>,
    pub(super) next: Step,
    /// For which page it waits, since when.
    pub(super) waiting: Option<(PageId, Instant)>,
    /// Time that messages took from it, which it has not made up for yet.
    pub(super) stolen: Duration,
    pub(super) references: u64,
    pub(super) faults: u64,
    pub(super) fault_wait: Duration,
    pub(super) ended: Option<Instant>,
    began: Instant,
    /// What was counted before time was measured.
    before: (u64, u64, Duration, NodeStats),
}

impl Running {
    pub(super) fn new(program: Box<dyn Program>, next: Step, now: Instant) -> Self {
        Self {
            program,
            next,
            waiting: None,
            stolen: Duration(0),
            references: 0,
            faults: 0,
            fault_wait: Duration(0),
            ended: None,
            began: now,
            before: (0, 0, Duration(0), NodeStats::default()),
        }
    }

    /// Time is measured from here on.
    pub(super) fn marked(&mut self, now: Instant, stats: NodeStats) {
        self.began = Instant(now.0 - self.next.cpu_ns.min(now.0));
        self.before = (self.references, self.faults, self.fault_wait, stats);
    }

    pub(super) fn is_waiting_for(&self, page: PageId) -> bool {
        self.waiting.is_some_and(|(waited, _)| waited == page)
    }
}

/// What came of a node and its program.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeReport {
    /// The program's time, from its mark to its end or to now.
    pub elapsed: Duration,
    /// References in that time.
    pub references: u64,
    /// Of these, to pages that were not there.
    pub faults: u64,
    /// What it waited for them.
    pub fault_wait: Duration,
    /// The node's counts in that time.
    pub stats: NodeStats,
    /// Its processor's time for messages and faults, since the start.
    pub service: Duration,
    /// Getpages that it answered and putpages that came, since the start.
    pub transfers: u64,
    /// Bytes that it sent.
    pub bytes_sent: u64,
    /// Messages about pages that have none in them, which it sent: how many, how many bytes.
    pub directory: (u64, u64),
    /// What epochs cost it.
    pub epochs: EpochCosts,
    /// Reads of its disk, and how many of them were sequential.
    pub disk_reads: (u64, u64),
}

/// Frames come or go, one in each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    /// So many there are in the end.
    pub(super) frames: u32,
    pub(super) step: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) node: GlobalNode,
    pub(super) processor: Resource,
    pub(super) link_out: Resource,
    pub(super) link_in: Resource,
    pub(super) disk: Disk,
    pub(super) running: Option<Running>,
    pub(super) timer: Option<Instant>,
    pub(super) ramp: Option<Ramp>,
    pub(super) bytes_sent: u64,
    pub(super) epoch: EpochCosts,
    transfers: u64,
    directory: (u64, u64),
}

impl Seat {
    pub(super) fn new(node: GlobalNode, disk: Disk) -> Self {
        Self {
            node,
            processor: Resource::default(),
            link_out: Resource::default(),
            link_in: Resource::default(),
            disk,
            running: None,
            timer: None,
            ramp: None,
            bytes_sent: 0,
            epoch: EpochCosts::default(),
            transfers: 0,
            directory: (0, 0),
        }
    }

    /// The processor does something for the system; who runs is delayed.
    pub(super) fn work(&mut self, now: Instant, takes: Duration) {
        if takes.0 == 0 {
            return;
        }
        self.processor.serve(now, takes);
        if let Some(running) = self.running.as_mut().filter(|r| r.waiting.is_none() && r.ended.is_none()) {
            running.stolen = Duration(running.stolen.0 + takes.0);
        }
    }

    pub(super) fn waits_for_shared(&self, page: PageId) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.is_waiting_for(page) && running.next.access.shared)
    }

    /// Of a page that was just sent: one that stayed is shared.
    pub(super) fn is_shared(&self, page: PageId) -> bool {
        self.node.frames().get(page).is_some_and(|frame| frame.shared)
    }

    pub(super) fn sent(&mut self, message: &NodeMessage, bytes: u64) {
        self.bytes_sent += bytes;
        match message {
            NodeMessage::Cluster(message) => {
                self.epoch.bytes[step_of(message) as usize] += bytes;
            }
            NodeMessage::Page(PageMessage::Data { .. }) => self.transfers += 1,
            NodeMessage::Page(PageMessage::Put { .. }) => {}
            NodeMessage::Page(_) => {
                self.directory.0 += 1;
                self.directory.1 += bytes;
            }
        }
    }

    pub(super) fn received(&mut self, message: &NodeMessage, cost: Duration) {
        match message {
            NodeMessage::Page(PageMessage::Put { .. }) => self.transfers += 1,
            NodeMessage::Cluster(message) => {
                // What the initiator receives belongs to what it tells; what others receive, to their answer.
                let step = match message {
                    Message::Summary { .. } => EpochStep::Distribute,
                    Message::EpochRequest { .. } | Message::EpochBegins(_) => EpochStep::Gather,
                    _ => EpochStep::Other,
                };
                self.epoch.cpu_ns[step as usize] += cost.0;
            }
            NodeMessage::Page(_) => {}
        }
    }

    pub(super) fn report(&self, now: Instant) -> NodeReport {
        let stats = self.node.stats();
        let mut report = NodeReport {
            service: self.processor.busy(),
            transfers: self.transfers,
            bytes_sent: self.bytes_sent,
            directory: self.directory,
            epochs: self.epoch,
            disk_reads: (self.disk.reads, self.disk.sequential),
            stats,
            ..NodeReport::default()
        };
        if let Some(running) = &self.running {
            let (references, faults, wait, before) = running.before;
            report.elapsed = running.ended.unwrap_or(now) - running.began;
            report.references = running.references - references;
            report.faults = running.faults - faults;
            report.fault_wait = Duration(running.fault_wait.0 - wait.0);
            report.stats = since(stats, before);
        }
        report
    }
}

fn since(now: NodeStats, before: NodeStats) -> NodeStats {
    NodeStats {
        own: now.own - before.own,
        global: now.global - before.global,
        duplicate: now.duplicate - before.duplicate,
        disk: now.disk - before.disk,
        puts: now.puts - before.puts,
        held: now.held - before.held,
        refused: now.refused - before.refused,
        discards: now.discards - before.discards,
        writes: now.writes - before.writes,
    }
}
