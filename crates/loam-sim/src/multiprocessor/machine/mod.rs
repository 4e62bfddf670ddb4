//! The event loop: processors, page table, controllers, ring.
//!
//! A processor goes through its touches for as long as nothing else happens before the next one begins, so what it finds is always what is there at that
//! moment. Whatever has begun is ended: a page that leaves during a touch is missed by the next one.

mod disks;
mod faults;
mod medium;
mod processor;
mod staging;
mod swaps;
mod watch;

use super::account::{Account, Outcome, Part};
use super::board::Board;
use super::caches::Caches;
use super::config::{Config, PAGE_BYTES, Staging};
use super::controller::{Controller, Job, Request};
use super::disk::Disk;
use super::pages::Page;
use super::tlb::Tlb;
use crate::engine::Queue;
use crate::workload::parallel::{ParallelProgram, Touch};
use loam_core::replacement::Lru;
use loam_core::staging::RingWrite;
use loam_core::units::{Duration, Instant};
use staging::{Copy, Glass};

/// What happens.
#[derive(Debug)]
enum Event {
    /// A processor goes on.
    Run(usize),
    /// The request for a page has come to its disk's controller, and was understood.
    Read { page: u32 },
    /// The arm has read a page that was waited for.
    ReadDone { page: u32 },
    /// It has read a page ahead; so many more follow in this sweep, which began when the controller had counted so far.
    ReadAhead { page: u32, left: u32, began: u64 },
    /// It has written what it was at.
    Written { disk: usize },
    /// A page is in the memory of the node that wanted it.
    Arrived { page: u32, version: u32, dirty: bool },
    /// A page that leaves has come to its controller; `promised`: after an OK.
    Offered { page: u32, version: u32, swap: u32, promised: bool },
    /// The controller's NACK has come to the node.
    Refused { page: u32, swap: u32 },
    /// Its OK has.
    Ok(Request),
    /// Its ACK has.
    Acked { page: u32, swap: u32 },
    /// A slot that was kept for a page is not needed any more.
    Released { disk: usize },
    /// A page that was refused was taken back.
    Withdrawn(Request),
    /// A page that leaves is in its node's interface of the ring.
    Inserted { page: u32, writer: usize, place: usize },
    /// The disk's interface has heard of it.
    Told { writer: usize, place: usize, id: u64 },
    /// A page that is wanted begins to pass the node that wants it.
    Snooped { page: u32, version: u32, rest: Duration },
    /// The disk's interface has heard that somebody has taken a page.
    Cancelled { disk: usize, writer: usize, place: usize, id: u64 },
    /// Pages were copied from the ring to their disk's controller.
    Copied { disk: usize, write: RingWrite, copies: Vec<Copy> },
    /// A place of a channel may be written again.
    PlaceFree { writer: usize, place: usize, id: u64 },
}

/// What a processor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The time goes there.
    Waiting(Part),
    Barrier,
}

#[derive(Debug)]
struct Processor {
    touches: Vec<Touch>,
    next: usize,
    state: State,
    tlb: Tlb,
    /// Interrupts that it has still to serve.
    interrupts: u64,
    /// Its write buffer is empty from then on.
    writes_done: Instant,
    account: Account,
}

#[derive(Debug)]
struct Node {
    free: u32,
    /// Pages on their way out.
    leaving: u32,
    order: Lru,
    /// Its processor's fault waits for a frame for this page.
    wants: Option<u32>,
}

#[derive(Debug)]
struct Io {
    controller: Controller,
    disk: Disk,
    arm: Option<Job>,
}

/// See the module.
struct Machine<'a> {
    config: Config,
    program: &'a mut dyn ParallelProgram,
    queue: Queue<Event>,
    board: Board,
    read_overhead: Duration,
    /// What a line takes longer that another cache has written.
    third_hop: Duration,
    barrier: Duration,
    caches: Caches,
    pages: Vec<Page>,
    /// Which contents each page has on its disk.
    platter: Vec<u32>,
    nodes: Vec<Node>,
    processors: Vec<Processor>,
    ios: Vec<Io>,
    glass: Option<Glass>,
    phase: usize,
    at_barrier: usize,
    ended: Option<Instant>,
    outcome: Outcome,
}

/// Runs a program on a machine from its first phase to the end of its last one. All its pages are on disk at the beginning.
///
/// # Panics
/// If the machine cannot be as the configuration says, if the program is divided among another number of processors, or if an invariant is hurt:
/// contents that are not the newest ones, time that is accounted for twice or not at all, a machine that stands still.
pub fn run(config: &Config, program: &mut dyn ParallelProgram) -> Outcome {
    Machine::new(config, program).run()
}

impl<'a> Machine<'a> {
    fn new(config: &Config, program: &'a mut dyn ParallelProgram) -> Self {
        config.check();
        assert_eq!(program.processors(), config.nodes, "a processor a node");
        let count = program.shared_bytes().div_ceil(PAGE_BYTES) as usize;
        let blocks = config.layout().blocks(count as u64);
        let board = Board::new(config);
        let processor = || Processor {
            touches: Vec::new(),
            next: 0,
            state: State::Running,
            tlb: Tlb::new(config.tlb_entries, count),
            interrupts: 0,
            writes_done: Instant(0),
            account: Account::default(),
        };
        let node = || Node { free: config.frames, leaving: 0, order: Lru::default(), wants: None };
        let io = || Io {
            controller: Controller::new(config.controller_pages, config.layout(), config.first),
            disk: Disk::new(config.disk, blocks),
            arm: None,
        };
        let farthest = (0..config.nodes).map(|node| board.message_alone(node, 0)).max().unwrap_or_default();
        Self {
            config: config.clone(),
            queue: Queue::new(),
            read_overhead: Board::read_overhead(config),
            third_hop: board.mean_message(),
            // All tell node 0, which tells all.
            barrier: Duration(2 * (farthest.0 + config.memory_latency.0)),
            board,
            caches: Caches::new(config, count),
            pages: vec![Page::on_disk(); count],
            platter: vec![0; count],
            nodes: (0..config.nodes).map(|_| node()).collect(),
            processors: (0..config.nodes).map(|_| processor()).collect(),
            ios: (0..config.disks).map(|_| io()).collect(),
            glass: (config.staging != Staging::None).then(|| Glass::new(config)),
            phase: 0,
            at_barrier: 0,
            ended: None,
            outcome: Outcome::default(),
            program,
        }
    }

    fn run(mut self) -> Outcome {
        self.begin_phase(Instant(0));
        while self.ended.is_none() {
            let (now, event) = self.queue.pop().expect("a machine that is not done never stands still");
            self.handle(now, event);
            if self.config.watched {
                self.watch();
            }
        }
        self.settle();
        self.conclude()
    }

    /// What is on its way when the program has ended comes to its end, so that nothing is lost there, either.
    fn settle(&mut self) {
        while let Some((now, event)) = self.queue.pop() {
            self.handle(now, event);
            if self.config.watched {
                self.watch();
            }
        }
        self.watch();
        self.watch_settled();
    }

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Run(processor) => self.go_on(processor, now),
            Event::Read { page } => self.read(page, now),
            Event::ReadDone { page } => self.read_done(page, now),
            Event::ReadAhead { page, left, began } => self.read_ahead(page, left, began, now),
            Event::Written { disk } => self.written(disk, now),
            Event::Arrived { page, version, dirty } => self.arrived(page, version, dirty, now),
            Event::Offered { page, version, swap, promised } => {
                self.offered(page, version, swap, promised, now);
            }
            Event::Refused { page, swap } => self.refused(page, swap, now),
            Event::Ok(request) => self.called_back(request, now),
            Event::Acked { page, swap } => self.acked(page, swap, now),
            Event::Released { disk } => {
                self.ios[disk].controller.release();
                self.room_came(disk, now);
            }
            Event::Withdrawn(request) => self.withdrawn(request),
            Event::Inserted { page, writer, place } => self.inserted(page, writer, place, now),
            Event::Told { writer, place, id } => self.told(writer, place, id, now),
            Event::Snooped { page, version, rest } => self.snooped(page, version, rest, now),
            Event::Cancelled { disk, writer, place, id } => self.cancelled(disk, writer, place, id, now),
            Event::Copied { disk, write, copies } => self.copied(disk, write, &copies, now),
            Event::PlaceFree { writer, place, id } => self.place_free(writer, place, id, now),
        }
    }

    fn disk_of(&self, page: u32) -> usize {
        self.config.layout().place(page).disk
    }

    /// The node with the disk that has a page.
    fn io_node(&self, page: u32) -> usize {
        self.config.node_of(self.disk_of(page))
    }

    fn conclude(self) -> Outcome {
        let run = self.ended.expect("it has ended") - Instant(0);
        let processors: Vec<Account> = self.processors.iter().map(|processor| processor.account).collect();
        for account in &processors {
            assert_eq!(account.total(), run, "the parts are the whole");
        }
        Outcome { run, processors, waited: self.board.waited(), ..self.outcome }
    }

    /// Disk or controller have a page's contents.
    fn stored(&self, page: u32) -> u32 {
        let here = self.ios[self.disk_of(page)].controller.find(page);
        here.unwrap_or(self.platter[page as usize])
    }
}
