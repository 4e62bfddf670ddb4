//! Drives the borrower with a kernel's references.

use super::{Config, Outcome, PartTimes, Sizing};
use crate::engine::{Queue, Resource};
use crate::workload::kernels::{Event as KernelEvent, Recording};
use loam_core::borrower::{
    Arrival, BUFFERS_MIN, BaseRange, BatchId, Borrower, BorrowerConfig, CopyIndex, Effect, FaultKind,
    InstallOutcome, InstallSource, LenderIndex, NoPrefetch, PageFate, Prefetcher, PutAnswer, Source,
    SpaceKey, StridePrefetcher, fetch_planner,
};
use loam_core::ids::{ContentHash, Version};
use loam_core::page_size::{Aapc, Adaptive, PageSize};
use loam_core::replacement;
use loam_core::units::{BasePages, Bytes, Duration, EXTENT_BASE_PAGES, Instant};
use std::collections::BTreeMap;

const SPACE: SpaceKey = SpaceKey(0);
const LENDER: LenderIndex = LenderIndex(0);
/// For sizing by chance, which needs no other seed: runs are compared.
const SEED: u64 = 2012;
/// Page buffers of the agent: this part of local memory.
const BUFFERS_SHARE: u64 = 50;

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
    link: Resource,
    agent: Resource,
    present: Vec<bool>,
    /// What each base page holds, and has held last at the lender; 0 is zeros.
    contents: Vec<u128>,
    written: u128,
    buffers: Vec<u128>,
    stored: BTreeMap<(CopyIndex, Version), u128>,
    arrived: u128,
    /// Getpages that have not been sent, by message.
    gets: Vec<(u32, CopyIndex, Version)>,
    out: Outcome,
}

/// Replays a recording.
///
/// # Panics
/// If the recording has other base pages than Loam's, a name is unknown, or the borrower hands out wrong contents.
pub fn run(config: &Config, recording: &Recording) -> Outcome {
    assert_eq!(recording.base_page(), Bytes(4096), "pages of several sizes are made of base pages");
    let mut driver = Driver::new(config, u64::from(recording.base_pages()));
    let (mut part, mut began) = (0, Instant(0));
    let mut exec_began = 0;
    let mut faults_began = 0;
    let close = |driver: &mut Driver<'_>, part: u32, began: Instant, exec_began: u64, faults_began: u64| {
        let (now, exec, faults) = (driver.now, driver.out.exec_ns, driver.faults());
        let times: &mut PartTimes = driver.out.parts.entry(part).or_default();
        times.wall_ns += (now - began).0;
        times.exec_ns += exec - exec_began;
        times.faults += faults - faults_began;
    };
    for event in recording.events() {
        match event {
            KernelEvent::Part(next) => {
                close(&mut driver, part, began, exec_began, faults_began);
                (part, began) = (next, driver.now);
                (exec_began, faults_began) = (driver.out.exec_ns, driver.faults());
                if config.parts {
                    driver.borrower.handle_part(driver.now, next);
                }
            }
            KernelEvent::Reference { page, cpu_ns, write, .. } => {
                driver.now = driver.now + Duration(u64::from(cpu_ns));
                driver.out.exec_ns += u64::from(cpu_ns);
                driver.touch(u64::from(page), write);
            }
        }
    }
    close(&mut driver, part, began, exec_began, faults_began);
    driver.out.wall_ns = driver.now.0;
    driver.out.faults = driver.faults();
    driver.out
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
            hedge_after: Duration(0),
            rescue: true,
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
        borrower.handle_limit(Instant(0), config.local);
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
            agent: Resource::default(),
            present: vec![false; range.end as usize],
            contents: vec![0; range.end as usize],
            written: 0,
            buffers: vec![0; buffers as usize],
            stored: BTreeMap::new(),
            arrived: 0,
            gets: Vec::new(),
            out: Outcome::default(),
        }
    }

    /// Faults that have waited for a lender.
    fn faults(&self) -> u64 {
        self.borrower.stats().answered[FaultKind::Remote as usize]
    }

    fn touch(&mut self, base: u64, write: bool) {
        // What has happened while the program computed, at its own time.
        let now = self.now;
        while let Some(at) = self.queue.next_at().filter(|&at| at <= now) {
            self.now = at;
            self.next_event();
        }
        self.now = now;
        if !self.present[base as usize] {
            self.borrower.handle_fault(self.now, SPACE, base);
            self.drain();
            while !self.present[base as usize] {
                self.wait();
            }
        }
        if write {
            self.written += 1;
            self.contents[base as usize] = self.written;
        }
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
                    self.arrived = self.stored[&(copy, version)];
                    self.out.fetched += 1;
                    let (hash, source) = (ContentHash(self.arrived), Source::Lender(LENDER));
                    let arrival = self.borrower.handle_arrival(at, copy, version, hash, source, 0);
                    assert_eq!(arrival, Arrival::Taken, "what was asked for is wanted");
                    self.drain();
                }
            }
            Event::Evicted(batch) => {
                let pages = self.borrower.batch_pages(batch).1.to_vec();
                for (index, base) in pages.into_iter().enumerate() {
                    let contents = self.contents[base as usize];
                    self.present[base as usize] = false;
                    let hash = (contents > 0).then_some(ContentHash(contents));
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
        while let Some(change) = self.borrower.poll_size_change() {
            self.out.changes.push(change);
        }
        while self.borrower.poll_latency().is_some() {}
    }

    fn carry_out(&mut self, effect: Effect) {
        let path = self.config.path;
        match effect {
            Effect::Install { space, base, pages, source } => {
                for base in base..base + u64::from(pages) {
                    let contents = match source {
                        InstallSource::Zero => 0,
                        InstallSource::Buffer(buffer) => self.buffers[buffer.0 as usize],
                        InstallSource::Arrived(_) => self.arrived,
                    };
                    assert_eq!(contents, self.contents[base as usize], "wrong contents at base page {base}");
                    self.present[base as usize] = true;
                }
                self.borrower.handle_installed(self.now, space, base, pages, InstallOutcome::Done);
            }
            Effect::Get { copy, version, message, .. } => self.gets.push((message, copy, version)),
            Effect::Hold { buffer, .. } => self.buffers[buffer.0 as usize] = self.arrived,
            Effect::Evict(batch) => {
                let pages = self.borrower.batch_pages(batch).1.len() as u64;
                let done = self.agent.serve(self.now, Duration(path.message_ns + path.evict_ns * pages));
                self.queue.push(done, Event::Evicted(batch));
            }
            Effect::Put { copy, version, buffer, .. } => {
                self.out.put += 1;
                self.stored.insert((copy, version), self.buffers[buffer.0 as usize]);
                let takes = Duration(4096 * path.ps_per_byte / 1000);
                let sent =
                    if path.puts_share_link { self.link.serve(self.now, takes) } else { self.now + takes };
                self.queue.push(sent + Duration(path.latency_ns), Event::Stored(copy, version));
            }
            Effect::Drop { copy, version, .. } => {
                self.stored.remove(&(copy, version));
            }
            // What is hurried is on the link already.
            Effect::Wake { .. } | Effect::Hurry { .. } => {}
            other => panic!("nothing asks for this here: {other:?}"),
        }
    }

    fn send_gets(&mut self) {
        let path = self.config.path;
        for message in core::mem::take(&mut self.gets).chunk_by(|a, b| a.0 == b.0) {
            let bytes = path.message_bytes + 4096 * message.len() as u64;
            let ready = self.now + Duration(path.latency_ns);
            let there = self.link.serve(ready, Duration(bytes * path.ps_per_byte / 1000));
            let pages = message.iter().map(|&(_, copy, version)| (copy, version)).collect();
            self.queue.push(there, Event::Came(pages));
        }
    }
}
