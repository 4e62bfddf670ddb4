//! Drives the borrower with a kernel's references.

mod effects;

use super::{Config, Outcome, Sizing, Turn};
use crate::engine::{Queue, Resource};
use crate::workload::kernels::{Event as KernelEvent, Recording};
use loam_core::borrower::{
    Arrival, BUFFERS_MIN, BaseRange, BatchId, Borrower, BorrowerConfig, CopyIndex, FaultKind, LenderIndex,
    NoPrefetch, PageFate, Prefetcher, PutAnswer, Source, SpaceKey, StridePrefetcher, fetch_planner,
};
use loam_core::ids::{ContentHash, Version};
use loam_core::page_size::{Aapc, Adaptive, PageSize};
use loam_core::replacement;
use loam_core::units::{BasePages, Bytes, Duration, EXTENT_BASE_PAGES, Instant};

const SPACE: SpaceKey = SpaceKey(0);
const LENDER: LenderIndex = LenderIndex(0);
/// For sizing by chance, which needs no other seed: runs are compared.
const SEED: u64 = 2012;
/// Page buffers of the agent: this part of local memory.
const BUFFERS_SHARE: u64 = 50;

/// Fewest base pages that are local, however many buffers there are: an extent.
pub const LOCAL_LEAST: u64 = EXTENT_BASE_PAGES as u64;

/// What will happen.
#[derive(Debug)]
enum Event {
    /// A message is at the agent, which has yet to take it in; then it has.
    Came(Vec<(CopyIndex, Version)>),
    TakenIn(Vec<(CopyIndex, Version)>),
    Evicted(BatchId),
    Stored(CopyIndex, Version),
}

struct Driver<'a> {
    config: &'a Config,
    borrower: Borrower,
    queue: Queue<Event>,
    now: Instant,
    /// To the borrower, and away from it.
    link: Resource,
    uplink: Resource,
    agent: Resource,
    /// A bit for each base page.
    present: Vec<u64>,
    /// What each base page holds: the number of the write. 0 is zeros.
    contents: Vec<u64>,
    written: u64,
    buffers: Vec<u64>,
    /// What the lender has, by copy. Of two versions only the newer one can still be asked for.
    stored: Vec<Option<(Version, u64)>>,
    arrived: u64,
    /// Getpages that have not been sent, by message.
    gets: Vec<(u32, CopyIndex, Version)>,
    /// The turn of a part that is under way, and what there was when it began.
    turn: Turn,
    began: (Instant, Counts),
    /// When the iteration began.
    iteration_at: Instant,
    /// What the program computes in each turn, where turns are cut into periods; the turn's number; and where the period ends.
    turn_exec_ns: Vec<u64>,
    turns: usize,
    period_ends_ns: u64,
    out: Outcome,
}

/// What a turn's figures are differences of.
#[derive(Clone, Copy, Default)]
struct Counts {
    exec_ns: u64,
    faults: u64,
    fetched: u64,
}

/// Replays a recording.
///
/// # Panics
/// If the recording has other base pages than Loam's, a name is unknown, or the borrower hands out wrong contents.
pub fn run(config: &Config, recording: &Recording) -> Outcome {
    assert_eq!(recording.base_page(), Bytes(4096), "pages of several sizes are made of base pages");
    let turn_exec_ns = if config.periods > 1 { turn_exec_ns(recording) } else { Vec::new() };
    replay_turns(config, u64::from(recording.base_pages()), recording.events(), turn_exec_ns)
}

/// Replays the references of whatever touches base pages below `base_pages`; it begins with a part's mark. Its parts are not cut into periods.
///
/// # Panics
/// If there are to be periods, a name is unknown, or the borrower hands out wrong contents.
pub fn replay(config: &Config, base_pages: u64, events: impl Iterator<Item = KernelEvent>) -> Outcome {
    assert!(config.periods <= 1, "how long a part computes is known of recordings only");
    replay_turns(config, base_pages, events, Vec::new())
}

fn replay_turns(
    config: &Config,
    base_pages: u64,
    events: impl Iterator<Item = KernelEvent>,
    turn_exec_ns: Vec<u64>,
) -> Outcome {
    let mut driver = Driver::new(config, base_pages);
    driver.turn_exec_ns = turn_exec_ns;
    for event in events {
        match event {
            KernelEvent::Part(next) => {
                if !driver.next_turn(next) {
                    break;
                }
            }
            KernelEvent::Reference { page, cpu_ns, write, fresh } => {
                let setting_up = driver.turn.part == 0;
                if setting_up && config.set_up_once && !fresh {
                    continue;
                }
                driver.now = driver.now + Duration(u64::from(cpu_ns));
                driver.out.exec_ns += u64::from(cpu_ns);
                driver.out.references += 1;
                if driver.out.exec_ns >= driver.period_ends_ns {
                    driver.next_period();
                }
                let waited = driver.touch(u64::from(page), write || setting_up && config.set_up_once);
                if waited && driver.is_overdue() {
                    driver.out.stopped = true;
                    break;
                }
            }
        }
    }
    driver.finish()
}

impl<'a> Driver<'a> {
    fn new(config: &'a Config, base_pages: u64) -> Self {
        let buffers = (config.local.0 / BUFFERS_SHARE).max(u64::from(BUFFERS_MIN));
        let (least, start) = match config.sizing {
            Sizing::Fixed(size) => (size, size),
            Sizing::Aapc { basic, start, .. } => (basic, start),
            Sizing::Auto { least, start, .. } => (least, start),
        };
        let core = BorrowerConfig {
            page: BasePages(start.base_pages()),
            buffers: buffers as u32,
            disk: false,
            replicas: 1,
            staged: false,
            hedge_after: Duration(0),
            rescue: config.rescue,
        };
        let prefetcher: Box<dyn Prefetcher> = match config.prefetch {
            Some(most) => Box::new(StridePrefetcher::new(most)),
            None => Box::new(NoPrefetch),
        };
        let order = replacement::by_name(config.replacement).expect("a replacement policy");
        let mut borrower = Borrower::new(core, order, prefetcher);
        match config.sizing {
            Sizing::Fixed(_) => {}
            Sizing::Aapc { basic, start, most } => {
                borrower.size_pages(Box::new(Aapc::new(basic, start, most)), basic)
            }
            Sizing::Auto { least, start, most } => {
                borrower.size_pages(Box::new(Adaptive::new(least, start, most, SEED)), least)
            }
        }
        let planner = fetch_planner(config.fetch_plan).expect("a fetch plan");
        borrower.plan_fetches(BasePages(PageSize::SMALLEST.base_pages()), planner);
        borrower.handle_space_added(SPACE, true);
        let taken = if config.buffers_are_local { buffers } else { 0 };
        borrower.handle_limit(Instant(0), BasePages(config.local.0.saturating_sub(taken).max(LOCAL_LEAST)));
        borrower.handle_lender_joined(BasePages(4 * base_pages + 1024));
        // From an extent's beginning, as a mapping of the kernel's would be.
        let range = BaseRange::new(0, base_pages.next_multiple_of(EXTENT_BASE_PAGES as u64));
        borrower.handle_adopted(Instant(0), SPACE, range, &[]);
        assert!(least <= start, "no page is smaller than the least");
        Self {
            config,
            borrower,
            queue: Queue::default(),
            now: Instant(0),
            link: Resource::default(),
            uplink: Resource::default(),
            agent: Resource::default(),
            present: vec![0; range.end.div_ceil(64) as usize],
            contents: vec![0; range.end as usize],
            written: 0,
            buffers: vec![0; buffers as usize],
            stored: Vec::new(),
            arrived: 0,
            gets: Vec::new(),
            turn: Turn::default(),
            began: (Instant(0), Counts::default()),
            iteration_at: Instant(0),
            turn_exec_ns: Vec::new(),
            turns: 0,
            period_ends_ns: u64::MAX,
            out: Outcome::default(),
        }
    }

    /// The last event has been replayed.
    fn finish(mut self) -> Outcome {
        self.end_turn();
        self.out.wall_ns = self.now.0;
        self.out.faults = self.counts().faults;
        self.out
    }

    fn counts(&self) -> Counts {
        // Faults that have waited for a lender.
        let faults = self.borrower.stats().answered[FaultKind::Remote as usize];
        Counts { exec_ns: self.out.exec_ns, faults, fetched: self.out.fetched }
    }

    /// A part begins. False: there have been iterations enough.
    fn next_turn(&mut self, part: u32) -> bool {
        self.end_turn();
        let first = part == 1;
        let iteration = self.turn.iteration + u32::from(first);
        if first && iteration > self.config.iterations_max {
            return false;
        }
        if first {
            self.iteration_at = self.now;
        }
        self.turn = Turn { iteration, part, ..Turn::default() };
        if self.config.parts {
            self.borrower.handle_part(self.now, part);
            self.take_changes();
        }
        self.period_ends_ns = self.period_end();
        self.turns += 1;
        true
    }

    /// Of the turn that begins, or goes on.
    fn period_end(&self) -> u64 {
        let whole = self.turn_exec_ns.get(self.turns).copied().filter(|_| self.turn.iteration > 0);
        whole.map_or(u64::MAX, |ns| self.out.exec_ns + (ns / u64::from(self.config.periods)).max(1))
    }

    /// The part goes on; its working set is counted anew.
    fn next_period(&mut self) {
        self.borrower.handle_part(self.now, self.turn.part);
        self.take_changes();
        let whole = self.turn_exec_ns[self.turns - 1];
        self.period_ends_ns += (whole / u64::from(self.config.periods)).max(1);
    }

    fn end_turn(&mut self) {
        let (now, counts) = (self.now, self.counts());
        let (since, before) = core::mem::replace(&mut self.began, (now, counts));
        self.turn.wall_ns = (now - since).0;
        self.turn.exec_ns = counts.exec_ns - before.exec_ns;
        self.turn.faults = counts.faults - before.faults;
        self.turn.fetched = counts.fetched - before.fetched;
        if self.turn.wall_ns > 0 {
            self.out.turns.push(self.turn);
        }
    }

    /// The iteration has taken longer than anybody wants to know.
    fn is_overdue(&self) -> bool {
        let limit = self.config.stop_after.filter(|_| self.turn.iteration > 0);
        limit.is_some_and(|limit| (self.now - self.iteration_at).0 > limit.0)
    }

    fn is_present(&self, base: u64) -> bool {
        self.present[(base / 64) as usize] >> (base % 64) & 1 == 1
    }

    fn set_present(&mut self, base: u64, present: bool) {
        let (word, bit) = (&mut self.present[(base / 64) as usize], 1 << (base % 64));
        *word = if present { *word | bit } else { *word & !bit };
    }

    /// The program touches a base page. True: it had to wait.
    fn touch(&mut self, base: u64, write: bool) -> bool {
        // What has happened while the program computed, at its own time.
        let now = self.now;
        while let Some(at) = self.queue.next_at().filter(|&at| at <= now) {
            self.now = at;
            self.next_event();
        }
        self.now = now;
        let waits = !self.is_present(base);
        if waits {
            self.borrower.handle_fault(self.now, SPACE, base);
            self.drain();
            while !self.is_present(base) {
                self.wait();
            }
        }
        if write {
            self.written += 1;
            self.contents[base as usize] = self.written;
        }
        waits
    }

    /// The program waits for whatever happens next.
    fn wait(&mut self) {
        let due = self.borrower.poll_timeout();
        match (self.queue.next_at(), due) {
            (Some(at), due) if due.is_none_or(|due| at <= due) => {
                self.now = self.now.max(at);
                self.next_event();
            }
            (_, Some(due)) => {
                self.now = self.now.max(due);
                self.borrower.handle_timeout(self.now);
                self.drain();
            }
            _ => panic!("a fault is never answered"),
        }
    }

    fn next_event(&mut self) {
        let (at, event) = self.queue.pop().expect("looked at by the caller");
        match event {
            Event::Came(pages) => {
                let takes = self.config.path.message_ns + self.config.path.install_ns * pages.len() as u64;
                let done = self.agent.serve(at, Duration(takes));
                self.queue.push(done, Event::TakenIn(pages));
            }
            Event::TakenIn(pages) => {
                for (copy, version) in pages {
                    let stored = self.stored[copy.0 as usize].expect("a lender has what it is asked for");
                    assert_eq!(stored.0, version, "a lender has the version that it is asked for");
                    self.arrived = stored.1;
                    self.out.fetched += 1;
                    let (hash, source) = (hash_of(self.arrived), Source::Lender(LENDER));
                    let arrival = self.borrower.handle_arrival(at, copy, version, hash, source, 0);
                    assert_eq!(arrival, Arrival::Taken, "what was asked for is wanted");
                    self.drain();
                }
            }
            Event::Evicted(batch) => {
                let pages = self.borrower.batch_pages(batch).1.to_vec();
                for (index, base) in pages.into_iter().enumerate() {
                    let contents = self.contents[base as usize];
                    self.set_present(base, false);
                    let hash = (contents > 0).then_some(hash_of(contents));
                    if let Some(buffer) = self.borrower.handle_fate(batch, index, PageFate::Moved(hash)) {
                        self.buffers[buffer.0 as usize] = contents;
                    }
                }
                self.borrower.handle_batch_done(at, batch);
                self.drain();
            }
            Event::Stored(copy, version) => {
                self.borrower.handle_put_answer(at, LENDER, copy, version, PutAnswer::Stored);
                self.drain();
            }
        }
    }

    fn drain(&mut self) {
        while let Some(effect) = self.borrower.poll_effect() {
            self.carry_out(effect);
        }
        self.send_gets();
        self.take_changes();
        while self.borrower.poll_latency().is_some() {}
    }

    fn take_changes(&mut self) {
        while let Some(change) = self.borrower.poll_size_change() {
            self.out.changes.push(change);
        }
    }
}

/// Stands for a hash of such contents: contents that differ have hashes that differ.
fn hash_of(contents: u64) -> ContentHash {
    ContentHash(u128::from(contents))
}

/// What the program computes in each turn of a part, in order.
fn turn_exec_ns(recording: &Recording) -> Vec<u64> {
    let mut turns = Vec::new();
    for event in recording.events() {
        match event {
            KernelEvent::Part(_) => turns.push(0),
            KernelEvent::Reference { cpu_ns, .. } => {
                *turns.last_mut().expect("a run begins with a mark") += u64::from(cpu_ns);
            }
        }
    }
    turns
}
