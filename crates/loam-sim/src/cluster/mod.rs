//! A cluster of machines that share their memory: each runs the live policy's node (`loam_core::global::GlobalNode`) and perhaps a program.
//!
//! ```text
//! program ──reference──► GlobalNode ──effects──► processor (what the operation costs) ──► link out ═► link in ──► GlobalNode of another
//!    ▲   it waits             ▲                         └──► disk, file server
//!    └──── arrived ───────────┘
//! ```
//!
//! - **Processor.** Messages are served at once, one after the other; a program that runs meanwhile is delayed by as much. That is how nodes
//!   interfere.
//! - **Links.** Each node has one in each direction; a page is on both for as long as its bytes take at 155 Mb/s, and waits for those before it.
//!   The switch between them has no limit.
//! - **A frame** that was emptied by a putpage is free when the controller has sent it; the fault that it was emptied for waits for
//!   that, as in the paper's tables 3 and 4, where an access costs as much more.
//! - **Without global memory** ([`ClusterConfig::global`] is false) none of its costs are charged.
//!
//! A run is a function of the configuration and the programs. Between two events a program runs through its references without one.

mod costs;
mod disk;
mod effects;
mod message;
mod program;
mod seat;
#[cfg(test)]
mod tests;
mod today;

pub use costs::Costs;
pub use message::PAGE_BYTES;
pub(crate) use message::cluster_bytes;
pub use program::{Program, Recording, Replay, Step, Walk, WalkConfig};
pub use seat::{EpochCosts, EpochStep, NodeReport};

use crate::engine::Queue;
use disk::Disk;
use effects::Cause;
use loam_core::global::placement;
use loam_core::global::{Ages, GlobalNode, NodeConfig, NodeMessage};
use loam_core::ids::{NodeId, PageId, SpaceId};
use loam_core::units::{Duration, Instant};
use seat::{Ramp, Running, Seat};
use std::collections::BTreeSet;

/// Longer than anything that is under way in a network that loses nothing.
const FAULT_WAIT: Duration = Duration::from_millis(60_000);
/// Simulated time in which anything must have ended.
const TIME_MAX: Instant = Instant(1_000_000 * 1_000_000_000);

/// A cluster, before anything happens.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// What things cost.
    pub costs: Costs,
    /// Is there global memory at all?
    pub global: bool,
    /// Where evicted pages go: a name of `loam_core::global::placement`.
    pub placement: &'static str,
    /// Page frames of each node; they are numbered from 0.
    pub frames: Vec<u32>,
    /// All else of a node's policy.
    pub node: NodeConfig,
    /// The file server has memory for everything that was read from it once.
    pub file_server_caches: bool,
    /// Of all chances.
    pub seed: u64,
}

impl ClusterConfig {
    /// The paper's machines, with so many frames each.
    pub fn paper(frames: Vec<u32>) -> Self {
        Self {
            costs: Costs::paper(),
            global: true,
            placement: "gms",
            frames,
            node: paper_node(),
            file_server_caches: false,
            seed: 1,
        }
    }
}

/// "Once a minute, we flush the TLB of all entries" (section 4.2): so well the ages of a node's own pages are known.
const SAMPLE: Duration = Duration::from_millis(60_000);

fn paper_node() -> NodeConfig {
    let usual = NodeConfig::new(0);
    NodeConfig { fault_wait: FAULT_WAIT, ages: Ages { sample: SAMPLE, ..usual.ages }, ..usual }
}

#[derive(Debug)]
enum Event {
    /// The node's program goes on.
    Resume(usize),
    /// The first byte of a page's message is at the link of its receiver.
    Head(usize, usize, Box<NodeMessage>),
    Deliver(usize, usize, Box<NodeMessage>),
    DiskDone(usize, PageId),
    Timer(usize),
    Frames(usize, u32),
    /// The node's frames change from now on, one in each step, to so many.
    Ramp(usize, u32, Duration),
    RampStep(usize),
    Stop,
}

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    queue: Queue<Event>,
    seats: Vec<Seat>,
    file_server: Disk,
    served_files: BTreeSet<PageId>,
    now: Instant,
    running: usize,
}

fn id(node: usize) -> NodeId {
    NodeId(node as u64 + 1)
}

impl Cluster {
    /// All nodes know each other.
    ///
    /// # Panics
    /// If there is no placement of that name.
    pub fn new(config: ClusterConfig) -> Self {
        let now = Instant(1);
        let seats = config.frames.iter().enumerate().map(|(n, &frames)| {
            let seed = config.seed.wrapping_mul(1_000_003).wrapping_add(n as u64);
            let policy = placement::by_name(config.placement, seed).expect("a placement's name");
            let node = GlobalNode::new(now, id(n), NodeConfig { frames, ..config.node }, policy);
            Seat::new(node, Disk::new(config.costs.disk))
        });
        let seats: Vec<Seat> = seats.collect();
        let file_server = Disk::new(config.costs.file_server);
        let mut cluster = Self {
            config,
            queue: Queue::new(),
            seats,
            file_server,
            served_files: BTreeSet::new(),
            now,
            running: 0,
        };
        if cluster.config.global {
            let all: Vec<NodeId> = (0..cluster.seats.len()).map(id).collect();
            for n in 0..cluster.seats.len() {
                cluster.seats[n].node.handle_members(now, all.iter().copied());
                cluster.drain(n, now, Cause::Other);
            }
        }
        cluster
    }

    /// From now on things cost this much.
    pub(crate) fn set_costs(&mut self, costs: Costs) {
        for seat in &mut self.seats {
            seat.disk = Disk::new(costs.disk);
        }
        self.file_server = Disk::new(costs.file_server);
        self.config.costs = costs;
    }

    /// `program` begins on a node.
    ///
    /// # Panics
    /// If one runs there.
    pub fn start(&mut self, node: usize, mut program: Box<dyn Program>) {
        let seat = &mut self.seats[node];
        assert!(seat.running.as_ref().is_none_or(|running| running.ended.is_some()), "a program runs there");
        let mut next = Step::none();
        assert!(program.next_step(&mut next), "a program has something to do");
        seat.running = Some(Running::new(program, next, self.now));
        self.running += 1;
        let at = self.now + Duration(next.cpu_ns);
        self.queue.push(at, Event::Resume(node));
    }

    /// The machine gives other frames from then on.
    pub fn frames_at(&mut self, at: Instant, node: usize, frames: u32) {
        self.queue.push(at, Event::Frames(node, frames));
    }

    /// The node's programs take frames into their own use from then on, or leave them, one in each `step`, until `frames` are left.
    pub fn ramp_at(&mut self, at: Instant, node: usize, frames: u32, step: Duration) {
        self.queue.push(at, Event::Ramp(node, frames, step));
    }

    /// What is simulated now.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Goes on for `span`.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        self.queue.push(end, Event::Stop);
        while self.step() {}
        self.now = end;
    }

    /// Goes on until the program of a node has ended.
    ///
    /// # Panics
    /// If that takes more than eleven days of simulated time.
    pub fn run_until_end(&mut self, node: usize) {
        while self.seats[node].running.as_ref().is_some_and(|running| running.ended.is_none()) {
            assert!(self.step(), "a program waits for ever");
            assert!(self.now < TIME_MAX, "this never ends");
        }
    }

    /// What came of a node.
    pub fn report(&self, node: usize) -> NodeReport {
        self.seats[node].report(self.now)
    }

    /// Bytes that were sent, by all nodes.
    pub fn bytes_sent(&self) -> u64 {
        self.seats.iter().map(|seat| seat.bytes_sent).sum()
    }

    /// A node's policy, to look at.
    pub fn node(&self, node: usize) -> &GlobalNode {
        &self.seats[node].node
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.seats.len()
    }

    /// The next event. False: it was the end of a run.
    fn step(&mut self) -> bool {
        let Some((now, event)) = self.queue.pop() else { return false };
        self.now = now;
        match event {
            Event::Resume(n) => self.resume(n, now),
            Event::Head(from, to, message) => {
                let on_link = self.config.costs.on_link(message::bytes(&message));
                let at = self.seats[to].link_in.serve(now, on_link);
                self.queue.push(at, Event::Deliver(from, to, message));
            }
            Event::Deliver(from, to, message) => self.deliver(from, to, *message, now),
            Event::DiskDone(n, page) => {
                self.seats[n].node.handle_disk_read(now, page);
                self.drain(n, now, Cause::Other);
            }
            Event::Timer(n) => {
                self.seats[n].timer = None;
                self.seats[n].node.handle_timeout(now);
                self.drain(n, now, Cause::Other);
            }
            Event::Frames(n, frames) => {
                self.seats[n].node.handle_frames(now, frames);
                self.drain(n, now, Cause::Other);
            }
            Event::Ramp(n, frames, step) => {
                let ramp = Ramp { frames, step };
                if self.seats[n].ramp.replace(ramp).is_none() {
                    self.queue.push(now + step, Event::RampStep(n));
                }
            }
            Event::RampStep(n) => self.ramp(n, now),
            Event::Stop => return false,
        }
        true
    }

    fn ramp(&mut self, n: usize, now: Instant) {
        let seat = &mut self.seats[n];
        let Some(Ramp { frames, step }) = seat.ramp else { return };
        let have = seat.node.frames().capacity();
        if have == frames {
            seat.ramp = None;
            return;
        }
        seat.node.handle_frames(now, if have < frames { have + 1 } else { have - 1 });
        self.queue.push(now + step, Event::RampStep(n));
        self.drain(n, now, Cause::Other);
    }

    /// The program of a node goes on at `at`, up to the next event, or until it has to wait.
    fn resume(&mut self, n: usize, mut at: Instant) {
        let seat = &mut self.seats[n];
        let Some(running) = seat.running.as_mut() else { return };
        let stolen = std::mem::take(&mut running.stolen);
        if stolen.0 > 0 {
            return self.queue.push(at + stolen, Event::Resume(n));
        }
        loop {
            if running.next.mark {
                running.marked(at, seat.node.stats());
            }
            let access = running.next.access;
            if !seat.node.handle_access(at, access) {
                running.waiting = Some((access.page, at));
                return self.drain(n, at, Cause::Access(access.shared));
            }
            running.references += 1;
            if !running.program.next_step(&mut running.next) {
                running.ended = Some(at);
                self.running -= 1;
                return;
            }
            at = at + Duration(running.next.cpu_ns);
            if self.queue.next_at().is_some_and(|other| other <= at) {
                return self.queue.push(at, Event::Resume(n));
            }
        }
    }

    /// A space of a node's own pages.
    pub fn space(node: usize) -> SpaceId {
        SpaceId(node as u64 + 1)
    }
}
