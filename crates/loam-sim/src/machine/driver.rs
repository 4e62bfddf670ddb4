//! The driver: replays references, and carries out what the `Borrower` wants.

use super::Config;
use super::lender::Store;
use super::outcome::{Outcome, StageFigures};
use super::path::{AtStage, Message, Path, Step};
use super::prepared::Prepared;
use super::touches::Touches;
use crate::engine::Queue;
use crate::model::Model;
use crate::trace::GRAIN_BYTES;
use loam_core::borrower::{
    BUFFERS_MIN, BaseRange, BaseState, BatchId, Borrower, BorrowerConfig, CopyIndex, Effect, FetchPlanner,
    InstallOutcome, InstallSource, LenderIndex, NoPrefetch, PageFate, PutAnswer, Replacement, Source,
    SpaceKey,
};
use loam_core::ids::{ContentHash, Version};
use loam_core::units::{BasePages, Duration, Instant};

const SPACE: SpaceKey = SpaceKey(1);
/// A page is not wholly here, or the subpage wanted after its fault is not known yet.
const WATCHED: u8 = 1;

/// A page, as the driver sees it beyond what is present of it.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// The fault that brought it last, and the subpage in which it fell.
    fault: u32,
    subpage: u32,
    /// Units that are here.
    present: u32,
    /// Units that are on their way, beyond the first subpage.
    coming: u32,
    /// The first other subpage has been touched since, or nobody wants to know.
    next_seen: bool,
}

/// A getpage, as the policy wants it.
#[derive(Clone, Copy, Debug)]
struct Get {
    lender: LenderIndex,
    copy: CopyIndex,
    version: Version,
    message: u32,
}

/// See the module.
pub(super) struct Machine<'a> {
    config: &'a Config,
    model: &'a Model,
    trace: &'a Prepared,
    borrower: Borrower,
    stores: Vec<Store>,
    path: Path,
    queue: Queue<AtStage>,
    now: Instant,
    /// When something happens next, so that the replay looks at one number.
    next_at: u64,
    touches: Touches,

    units: u64,
    unit_shift: u32,
    page_shift: u32,
    words: usize,
    /// A bit a unit: it is here; it was written since it came.
    present: Vec<u64>,
    dirty: Vec<u64>,
    flags: Vec<u8>,
    pages: Vec<Page>,
    /// What each unit's contents are: those that the program wrote last.
    contents: Vec<ContentHash>,
    buffers: Vec<ContentHash>,
    written: u128,
    /// Getpages that have not been sent yet.
    gets: Vec<Get>,
    arrived: ContentHash,
    /// The program waits, for data of this page.
    waits_for: Option<usize>,
    rests_under_way: u32,
    accounted: Instant,
    emulated_last: usize,
    out: Outcome,
    /// References before the current run; kept here only while something slow looks at it.
    references: u64,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        config: &'a Config,
        trace: &'a Prepared,
        replacement: Box<dyn Replacement>,
        planner: Box<dyn FetchPlanner>,
    ) -> Self {
        let units = trace.page_bytes() / config.unit_bytes;
        let all = trace.pages() * units;
        let mut borrower = Borrower::new(
            BorrowerConfig {
                page: BasePages(units),
                buffers: BUFFERS_MIN,
                disk: false,
                replicas: 1,
                staged: false,
                hedge_after: Duration(0),
                rescue: false,
            },
            replacement,
            Box::new(NoPrefetch),
        );
        borrower.plan_fetches(BasePages(config.subpage_bytes / config.unit_bytes), planner);
        borrower.handle_space_added(SPACE, true);
        let local = config.local_pages.unwrap_or(2 * trace.pages() + super::LOCAL_PAGES_MIN);
        borrower.handle_limit(Instant(0), BasePages(local * units));
        let lenders = config.model.lenders;
        let mut stores: Vec<Store> = (0..lenders).map(|_| Store::new(BasePages(2 * all + 1024))).collect();
        let mut contents = vec![ContentHash(0); all as usize];
        let mut written = 0;
        for _ in 0..lenders {
            borrower.handle_lender_joined(BasePages(2 * all + 1024));
        }
        // A warm global cache (section 4.1). Pages go round the lenders.
        for page in 0..trace.pages() {
            let lender = LenderIndex((page % u64::from(lenders)) as u8);
            let range = BaseRange::new(page * units, (page + 1) * units);
            borrower.handle_seeded(SPACE, range, lender, |base, copy, version| {
                written += 1;
                contents[base as usize] = ContentHash(written);
                let stored = stores[usize::from(lender.0)].put(copy.0, version, ContentHash(written));
                assert!(stored, "there is room for the seeds");
                ContentHash(written)
            });
        }
        let words = (units as usize).div_ceil(64);
        let n = trace.pages() as usize;
        let mut machine = Self {
            config,
            model: &config.model,
            trace,
            borrower,
            stores,
            path: Path::new(&config.model),
            queue: Queue::default(),
            now: Instant(0),
            next_at: u64::MAX,
            touches: Touches::new(),
            units,
            unit_shift: (config.unit_bytes / GRAIN_BYTES).trailing_zeros(),
            page_shift: (trace.page_bytes() / GRAIN_BYTES).trailing_zeros(),
            words,
            present: vec![0; n * words],
            dirty: vec![0; n * words],
            flags: vec![WATCHED; n],
            pages: vec![Page::default(); n],
            contents,
            buffers: vec![ContentHash(0); BUFFERS_MIN as usize],
            written,
            gets: Vec::new(),
            arrived: ContentHash(0),
            waits_for: None,
            rests_under_way: 0,
            accounted: Instant(0),
            emulated_last: usize::MAX,
            out: Outcome::default(),
            references: 0,
        };
        machine.out.pages = trace.pages();
        machine.out.local_pages = config.local_pages.unwrap_or(trace.pages());
        machine.drain();
        machine
    }

    /// Replays the whole trace.
    pub(super) fn replay(&mut self) {
        let trace = self.trace;
        let (page_shift, unit_shift) = (self.page_shift, self.unit_shift);
        let mask = (1_u32 << page_shift) - 1;
        let reference_ns = self.model.reference_ns;
        let mut references = 0;
        let mut now = 0_u64;
        for run in trace.pieces.iter().flatten() {
            if now >= self.next_at {
                self.now = Instant(now);
                self.run_events();
                now = self.now.0;
            }
            let page = (run.grain >> page_shift) as usize;
            let unit = ((run.grain & mask) >> unit_shift) as usize;
            let (word, bit) = (page * self.words + unit / 64, 1_u64 << (unit % 64));
            if self.present[word] & bit == 0 || self.flags[page] != 0 {
                self.now = Instant(now);
                self.references = references;
                self.access_slowly(page, unit, run.references(), run.writes());
                now = self.now.0;
            }
            if let Some(used) = self.touches.touch(page as u32) {
                self.borrower.handle_touched(SPACE, u64::from(used) * self.units);
            }
            if run.writes() {
                self.dirty[word] |= bit;
            }
            references += u64::from(run.references());
            now += u64::from(run.references()) * reference_ns;
        }
        self.now = Instant(now);
        self.references = references;
    }

    /// An access to a page that is not wholly here, or of which we want to know more.
    fn access_slowly(&mut self, page: usize, unit: usize, references: u32, writes: bool) {
        let subpage = (unit as u64 * self.config.unit_bytes / self.config.subpage_bytes) as u32;
        let p = &mut self.pages[page];
        if p.present + p.coming > 0 && !p.next_seen && p.subpage != subpage {
            p.next_seen = true;
            *self.out.distances.entry(subpage as i32 - p.subpage as i32).or_insert(0) += 1;
        }
        let (word, bit) = (page * self.words + unit / 64, 1_u64 << (unit % 64));
        if self.present[word] & bit == 0 {
            self.fault(page, unit, subpage);
        } else if let Some(emulation) = &self.model.emulation
            && u64::from(self.pages[page].present) < self.units
        {
            // A run's references to one grain: the last of a run that writes is taken for its store.
            let (stores, loads) = (u64::from(writes), u64::from(references) - u64::from(writes));
            let slow = self.emulated_last != page;
            self.emulated_last = page;
            let mut ns = loads * emulation.fast_load_ns + stores * emulation.fast_store_ns;
            if slow {
                ns += if loads > 0 {
                    emulation.slow_load_ns - emulation.fast_load_ns
                } else {
                    emulation.slow_store_ns - emulation.fast_store_ns
                };
            }
            let more = ns.saturating_sub(u64::from(references) * self.model.reference_ns);
            self.out.emulation_ns += more;
            self.now = self.now + Duration(more);
        }
        let p = &self.pages[page];
        if p.next_seen && u64::from(p.present) == self.units {
            self.flags[page] &= !WATCHED;
        }
    }

    /// The program waits until `unit` of `page` is here.
    fn fault(&mut self, page: usize, unit: usize, subpage: u32) {
        let is_first = self.pages[page].present + self.pages[page].coming == 0;
        if is_first {
            let fault = self.out.faults as u32;
            let next_seen = !self.config.details || self.config.subpage_bytes == self.trace.page_bytes();
            self.pages[page] = Page { fault, subpage, next_seen, ..Page::default() };
            self.out.faults += 1;
            if self.config.details {
                self.out.waits_ns.push(0);
                self.out.fault_at.push(self.references);
            }
        } else {
            self.out.part_faults += 1;
        }
        self.account(self.now);
        for used in self.touches.take() {
            self.borrower.handle_touched(SPACE, u64::from(used) * self.units);
        }
        let began = self.now;
        self.waits_for = Some(page);
        let base = page as u64 * self.units + unit as u64;
        let joins = self.borrower.state(SPACE, base) == BaseState::Fetching;
        self.borrower.handle_fault(self.now, SPACE, base);
        self.drain();
        let (word, bit) = (page * self.words + unit / 64, 1_u64 << (unit % 64));
        while self.present[word] & bit == 0 {
            let due = [self.queue.next_at(), self.borrower.poll_timeout()].into_iter().flatten().min();
            let at = due.expect("a fault is answered: something is under way");
            self.account(at);
            self.now = self.now.max(at);
            if self.queue.next_at() == Some(at) {
                self.next_event();
            } else {
                self.borrower.handle_timeout(self.now);
                self.drain();
            }
        }
        self.account(self.now);
        self.waits_for = None;
        let waited = (self.now - began).0;
        *(if joins { &mut self.out.page_wait_ns } else { &mut self.out.sp_latency_ns }) += waited;
        if self.config.details {
            self.out.waits_ns[self.pages[page].fault as usize] += waited;
            if is_first {
                self.out.first_waits_ns.push(waited);
            }
        }
        self.note_coming(page);
        // What else has come to the processor meanwhile is dealt with first.
        let free_at = self.path.processor_free_at(self.model);
        if free_at > self.now {
            self.out.interrupt_ns += (free_at - self.now).0;
            self.now = free_at;
            self.accounted = free_at;
        }
    }

    /// The program has what it waited for; what else of the page is on its way is its rest.
    fn note_coming(&mut self, page: usize) {
        let first = page as u64 * self.units;
        let fetching = |&base: &u64| self.borrower.state(SPACE, base) == BaseState::Fetching;
        let coming = (first..first + self.units).filter(fetching).count() as u32;
        self.rests_under_way += u32::from(coming > 0);
        self.rests_under_way -= u32::from(self.pages[page].coming > 0);
        self.pages[page].coming = coming;
    }

    /// Everything that has happened by now.
    fn run_events(&mut self) {
        while self.queue.next_at().is_some_and(|at| at <= self.now) {
            self.next_event();
        }
        self.look_ahead();
    }

    fn look_ahead(&mut self) {
        self.next_at = self.queue.next_at().map_or(u64::MAX, |at| at.0);
    }

    /// Time since the last look goes to what overlapped in it.
    fn account(&mut self, until: Instant) {
        let span = (until - self.accounted).0;
        self.accounted = self.accounted.max(until);
        let own = self.waits_for.is_some_and(|page| self.pages[page].coming > 0);
        if self.rests_under_way > u32::from(own) {
            let overlap = if self.waits_for.is_some() {
                &mut self.out.io_overlap_ns
            } else {
                &mut self.out.run_overlap_ns
            };
            *overlap += span;
        }
    }

    fn next_event(&mut self) {
        let (at, event) = self.queue.pop().expect("the caller looked");
        if self.waits_for.is_none() {
            self.account(at);
        }
        match self.path.step(self.model, &mut self.queue, at, event) {
            Step::Goes => {}
            // Who waits loses nothing by it.
            Step::Takes(time) if self.waits_for.is_none() => {
                self.out.interrupt_ns += time.0;
                self.now = self.now + time;
                self.accounted = self.accounted + time; // in which the program does not run
            }
            Step::Takes(_) => {}
            Step::Arrived(message) => self.arrived(at, message),
        }
        self.look_ahead();
    }

    fn arrived(&mut self, at: Instant, message: Message) {
        let at = at.max(self.now);
        for (copy, version) in message.copies {
            let stored = self.stores[usize::from(message.lender.0)].get(copy.0, version);
            let hash = stored.expect("a lender keeps what it was given");
            self.arrived = hash;
            self.borrower.handle_arrival(at, copy, version, hash, Source::Lender(message.lender), 0);
            self.drain();
        }
    }

    /// Carries out what the policy wants.
    fn drain(&mut self) {
        let now = self.now;
        while let Some(effect) = self.borrower.poll_effect() {
            match effect {
                Effect::Get { lender, copy, version, message, .. } => {
                    self.gets.push(Get { lender, copy, version, message });
                }
                Effect::Install { base, pages, source, .. } => {
                    self.install(base, pages, source);
                    self.borrower.handle_installed(now, SPACE, base, pages, InstallOutcome::Done);
                }
                Effect::Evict(batch) => self.evict(batch),
                Effect::Put { lender, copy, version, hash, buffer, .. } => {
                    assert_eq!(self.buffers[buffer.0 as usize], hash, "what is sent is what left");
                    let stored = self.stores[usize::from(lender.0)].put(copy.0, version, hash);
                    assert!(stored, "a simulated lender has room");
                    self.borrower.handle_put_answer(now, lender, copy, version, PutAnswer::Stored);
                }
                Effect::Drop { lender, copy, version } => {
                    self.stores[usize::from(lender.0)].drop_page(copy.0, version);
                }
                Effect::Hold { buffer, .. } => self.buffers[buffer.0 as usize] = self.arrived,
                // The model says in which order messages travel.
                // No simulated program forks.
                Effect::Wake { .. }
                | Effect::Populate { .. }
                | Effect::Protect { .. }
                | Effect::LookForOwn { .. }
                | Effect::Unprotect { .. } => {}
                Effect::Hurry { .. } => {}
                Effect::ReadDisk { .. } | Effect::WriteDisk { .. } | Effect::Spare { .. } => {
                    unreachable!("there is no slot file here")
                }
                Effect::Lost { base, .. } => panic!("unit {base} is lost, and nothing was to fail"),
            }
        }
        self.send_gets();
    }

    /// Getpages of one fault go out together, a message of the plan each.
    fn send_gets(&mut self) {
        let gets = std::mem::take(&mut self.gets);
        let last = gets.last().map_or(0, |get| get.message);
        let at = self.now + Duration(self.model.request_ns);
        let mut rest = &gets[..];
        while let Some(&Get { lender, message, .. }) = rest.first() {
            let n = rest.iter().take_while(|get| (get.lender, get.message) == (lender, message)).count();
            let copies: Vec<_> = rest[..n].iter().map(|get| (get.copy, get.version)).collect();
            // Copies lie side by side where they were made together, as slots of a disk do.
            let first = copies.iter().map(|copy| u64::from(copy.0.0)).min().expect("it is not empty");
            let unattended = self.config.pipelined_unattended && message > 0 && message < last;
            let bytes = n as u64 * self.config.unit_bytes;
            let message = Message { lender, copies, bytes, first, units: n as u64, unattended };
            self.path.send(&mut self.queue, at, message);
            rest = &rest[n..];
        }
        self.gets = gets;
        self.gets.clear();
        self.look_ahead();
    }

    fn install(&mut self, base: u64, pages: u32, source: InstallSource) {
        for base in base..base + u64::from(pages) {
            let contents = match source {
                InstallSource::Zero => ContentHash(0),
                InstallSource::Buffer(buffer) => self.buffers[buffer.0 as usize],
                InstallSource::Arrived(_) => self.arrived,
            };
            assert_eq!(
                contents, self.contents[base as usize],
                "unit {base}: not what the program wrote last"
            );
            let (page, unit) = ((base / self.units) as usize, (base % self.units) as usize);
            let word = page * self.words + unit / 64;
            assert_eq!(self.present[word] >> (unit % 64) & 1, 0, "unit {base} came twice");
            self.present[word] |= 1 << (unit % 64);
            let p = &mut self.pages[page];
            p.present += 1;
            if p.coming > 0 {
                p.coming -= 1;
                self.rests_under_way -= u32::from(p.coming == 0);
            }
        }
    }

    /// The hand: takes a batch's units away, at once.
    fn evict(&mut self, batch: BatchId) {
        let (_, pages) = self.borrower.batch_pages(batch);
        let bases = pages.to_vec();
        for (index, base) in bases.into_iter().enumerate() {
            let (page, unit) = ((base / self.units) as usize, (base % self.units) as usize);
            let (word, bit) = (page * self.words + unit / 64, 1_u64 << (unit % 64));
            assert!(self.present[word] & bit != 0, "what is local is here");
            self.present[word] &= !bit;
            if self.dirty[word] & bit != 0 {
                self.dirty[word] &= !bit;
                self.written += 1;
                self.contents[base as usize] = ContentHash(self.written);
            }
            let p = &mut self.pages[page];
            p.present -= 1;
            if p.present == 0 {
                self.out.evicted += 1;
            }
            self.flags[page] |= WATCHED;
            let hash = self.contents[base as usize];
            let fate = PageFate::Moved((hash.0 != 0).then_some(hash));
            if let Some(buffer) = self.borrower.handle_fate(batch, index, fate) {
                self.buffers[buffer.0 as usize] = hash;
            }
        }
        self.borrower.handle_batch_done(self.now, batch);
    }

    /// The program has ended.
    pub(super) fn finish(mut self) -> Outcome {
        self.account(self.now);
        self.out.references = self.trace.references();
        self.out.exec_ns = self.out.references * self.model.reference_ns;
        self.out.bytes_in = self.path.bytes;
        self.out.messages = self.path.sent;
        let names = self.model.stages.iter().map(|s| s.name.clone());
        self.out.stages = names
            .zip(self.path.figures())
            .map(|(name, (busy, waited))| StageFigures { name, busy_ns: busy.0, waited_ns: waited.0 })
            .collect();
        assert_eq!(self.out.total_ns(), self.now.0, "each nanosecond belongs to one part");
        let stats = self.borrower.stats();
        assert_eq!(
            (stats.first_wait.0 + stats.queued_wait.0, stats.joined_wait.0),
            (self.out.sp_latency_ns, self.out.page_wait_ns),
            "the policy's own clock agrees"
        );
        let held: u64 = (0..self.stores.len()).map(|i| self.borrower.held_by(LenderIndex(i as u8)).0).sum();
        assert_eq!(
            held,
            self.stores.iter().map(Store::pages).sum::<u64>(),
            "who holds what is no guess here"
        );
        self.out
    }
}
