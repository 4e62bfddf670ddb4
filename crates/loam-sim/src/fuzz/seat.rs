//! A borrower's machine: its agent's state, and the small tools that the agent's parts share. The parts follow the live agent's files:
//! [`super::effects`], [`super::events`], [`super::evictions`], [`super::lenders`], [`super::disk`].

use super::disk::Disk;
use super::effects::{Guard, Run};
use super::kernel::{Process, Waits};
use super::lenders::Conn;
use super::script::{Settings, Work};
use super::sim::{Event, FailureKind, SeatEvent, Sim};
use super::sizes::AnySize;
use super::token::AnyToken;
use loam_core::borrower::{
    BaseRange, Borrower, BorrowerConfig, CopyIndex, Homecoming, NoPrefetch, Prefetcher, SpaceKey,
    StridePrefetcher, fetch_planner, lender_choice,
};
use loam_core::ids::Version;
use loam_core::page_size::PageSize;
use loam_core::units::{BasePages, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How soon somebody who was woken runs.
pub(crate) const WAKE: Duration = Duration::from_micros(3);

/// A thread that asked for a range to be given back.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub process: u32,
    pub thread: usize,
    pub home: Homecoming,
}

pub(crate) struct Seat {
    pub index: usize,
    pub life: u32,
    pub borrower: Borrower,
    pub buffers: Vec<u64>,
    pub processes: BTreeMap<u32, Process>,
    pub key_next: u32,
    pub conns: Vec<Conn>,
    pub disk: Disk,
    pub held: Option<Run>,
    /// The pages of the frame that is being taken in.
    pub payload: Vec<u64>,
    pub calls: Vec<WaitingCall>,
    pub refuse_installs: u64,
    pub stalled_until: Instant,
    pub retry: bool,
    /// Calls about protected pages that the kernel has put off, in order.
    pub put_off: BTreeMap<SpaceKey, VecDeque<(u64, u32, Guard)>>,
    /// A try is on its way.
    pub retry_comes: bool,
    pub plans_come: bool,
    pub timeout_at: Option<Instant>,
    pub looks: bool,
    /// Why the run was ended.
    pub ended: Option<String>,
    /// How often more each page may be sent.
    pub may_send: BTreeMap<CopyIndex, (Version, i64)>,
    /// Copies of which a fault has taken what a lender had, until they are mended.
    pub harmed: BTreeMap<CopyIndex, Version>,
    /// Lenders that have been joined, by their machines.
    pub met: BTreeSet<usize>,
}

impl Seat {
    pub(crate) fn new(index: usize, life: u32, s: &Settings) -> Self {
        let config = BorrowerConfig {
            page: BasePages(s.page),
            buffers: s.buffers,
            disk: s.disk,
            replicas: s.replicas,
            staged: s.cache.as_ref().is_some_and(|cache| cache.staged),
            hedge_after: Duration::from_micros(s.hedge_us),
            rescue: s.rescue,
        };
        let prefetcher: Box<dyn Prefetcher> = if s.ahead > 0 {
            Box::new(StridePrefetcher::new(BasePages(u64::from(s.ahead) * s.page)))
        } else {
            Box::new(NoPrefetch)
        };
        let seed = (index as u64) << 32 | u64::from(life) << 8 | s.skew;
        let mut borrower = Borrower::new(config, Box::new(AnyToken::new(seed)), prefetcher);
        let planner = fetch_planner(s.fetch_plan).expect("it has that name");
        borrower.plan_fetches(BasePages(s.subpage), planner);
        if s.any_size {
            let most = PageSize::new(BasePages(s.page)).expect("a page's size");
            borrower.size_pages(Box::new(AnySize::new(most, seed)), PageSize::SMALLEST);
        }
        borrower.plan_in_pieces();
        // Each life draws anew.
        let choice = lender_choice(s.place, (index as u64) << 32 | u64::from(life));
        borrower.place_pages(choice.expect("it has that name"));
        borrower.limit_lending(BasePages(s.share));
        borrower.guard_from_scans(s.guard);
        borrower.handle_limit(Instant(0), BasePages(s.limit));
        let mut processes = BTreeMap::new();
        processes.insert(1, Process::new(SpaceKey(1), s));
        borrower.handle_space_added(SpaceKey(1), true);
        Self {
            index,
            life,
            borrower,
            buffers: vec![0; s.buffers as usize],
            processes,
            key_next: 2,
            conns: Vec::new(),
            disk: Disk::default(),
            held: None,
            payload: Vec::new(),
            calls: Vec::new(),
            refuse_installs: 0,
            stalled_until: Instant(0),
            retry: false,
            put_off: BTreeMap::new(),
            retry_comes: false,
            plans_come: false,
            timeout_at: None,
            looks: false,
            ended: None,
            may_send: BTreeMap::new(),
            harmed: BTreeMap::new(),
            met: BTreeSet::new(),
        }
    }

    pub(crate) fn event(&self, event: SeatEvent) -> Event {
        Event::Seat { seat: self.index, life: self.life, event }
    }

    pub(crate) fn after(&self, delay: Duration, event: SeatEvent, sim: &mut Sim) {
        let event = self.event(event);
        sim.after(delay, event);
    }

    /// The run cannot go on; what it has is dropped by the caller of the event.
    pub(crate) fn end(&mut self, why: String, sim: &mut Sim) {
        sim.log(|| format!("borrower {}: ends its program: {why}", self.index));
        self.ended.get_or_insert(why);
    }

    /// A thread, or the hand, that waits for a page is woken; whoever's fault was not read yet takes it back.
    pub(crate) fn wake(&mut self, key: SpaceKey, base: u64, pages: u64, sim: &mut Sim) {
        let (index, life) = (self.index, self.life);
        let Some(process) = self.processes.get_mut(&key.0).filter(|p| !p.ended) else { return };
        let range = BaseRange::new(base, base + pages);
        process.faults.retain(|fault| !range.contains(fault.base));
        for (n, thread) in process.threads.iter_mut().enumerate() {
            if matches!(thread.waits, Waits::Page(at) if range.contains(at)) {
                thread.waits = Waits::Nothing;
                thread.scheduled = true;
                let event = SeatEvent::Thread { process: key.0, thread: n };
                let delay = sim.dice.delay(WAKE);
                sim.after(delay, Event::Seat { seat: index, life, event });
            }
        }
        if let Some(hand) = &mut process.hand
            && hand.waits_for.is_some_and(|at| range.contains(at))
        {
            hand.waits_for = None;
            self.start_hand(key, sim);
        }
    }

    /// Has the hand look at its ring.
    pub(crate) fn start_hand(&mut self, key: SpaceKey, sim: &mut Sim) {
        let (index, life) = (self.index, self.life);
        let Some(process) = self.processes.get_mut(&key.0) else { return };
        let Some(hand) = &mut process.hand else { return };
        if !hand.scheduled && hand.waits_for.is_none() {
            hand.scheduled = true;
            let at = (sim.now + sim.hand_dice.delay(WAKE)).max(hand.stalled_until);
            let event = SeatEvent::Hand { process: key.0 };
            sim.queue.push(at, Event::Seat { seat: index, life, event });
        }
    }

    /// Has the agent read a descriptor.
    pub(crate) fn ring_agent(&mut self, key: SpaceKey, sim: &mut Sim) {
        let stalled = self.stalled_until;
        let (index, life) = (self.index, self.life);
        let Some(process) = self.processes.get_mut(&key.0) else { return };
        if !process.reading && process.known {
            process.reading = true;
            let at = (sim.now + sim.dice.delay(WAKE)).max(stalled);
            let event = SeatEvent::Read { process: key.0 };
            sim.queue.push(at, Event::Seat { seat: index, life, event });
        }
    }

    /// Has a timeout of the policy come when it wants one.
    pub(crate) fn set_timeout(&mut self, sim: &mut Sim) {
        let Some(due) = self.borrower.poll_timeout() else { return };
        // What is overdue waits for something else, as for a buffer: the live loop comes back at its next turn.
        let at = if due > sim.now { due } else { sim.now + Duration::from_millis(1) };
        if self.timeout_at.is_none_or(|t| t > at || t < sim.now) {
            self.timeout_at = Some(at);
            sim.queue.push(at, self.event(SeatEvent::Timeout));
        }
    }

    /// No page of it was ever really lost: ending a program for one is wrong. Answers whether it was lost.
    pub(crate) fn is_really_lost(&self, key: SpaceKey, base: u64, sim: &Sim) -> bool {
        let Some(process) = self.processes.get(&key.0) else { return true };
        let harmed = !sim.harmed_on_disk.is_empty() || (!sim.settings.disk && sim.lenders_harmed());
        if process.is_changing() {
            return harmed; // the address may mean another page already
        }
        let Some(at) = process.index_of(base) else { return false };
        let page = &process.pages[at];
        if sim.settings.cache.is_some() {
            return !self.has_page(page, sim) || page.also.is_some();
        }
        sim.is_harmed(page.truth) || (page.also.is_some() && harmed)
    }

    /// Pages that must not be lost whatever lender is: a buffer, or a good disk, has them.
    pub(crate) fn covered(&self, sim: &Sim) -> Vec<(SpaceKey, u64, u64)> {
        let mut covered = Vec::new();
        for process in self.processes.values().filter(|p| p.known && !p.ended && !p.is_changing()) {
            for (i, page) in process.pages.iter().enumerate().filter(|(_, p)| p.present.is_none()) {
                let base = process.base_of(i);
                let Some(copy) = self.borrower.copy_of(process.key, base) else { continue };
                let buffer = copy.buffer.is_some_and(|b| page.may_read(self.buffers[b.0 as usize]));
                let disk = copy.on_disk && self.disk.has(copy.index, page.truth);
                let elsewhere = || self.is_at_lender((copy.index, copy.version), None, sim);
                if buffer || disk || (sim.settings.cache.is_some() && elsewhere()) {
                    covered.push((process.key, base, page.truth));
                }
            }
        }
        covered
    }

    /// None of them was given up.
    pub(crate) fn check_covered(&self, covered: &[(SpaceKey, u64, u64)], sim: &mut Sim) {
        for &(key, base, value) in covered {
            if self.borrower.state(key, base) == loam_core::borrower::BaseState::Lost {
                sim.fail(FailureKind::WrongBytes, || {
                    format!("borrower {}: page {base} of {key:?} (value {value}) is called lost, but a buffer, the disk or a lender has it", self.index)
                });
            }
        }
    }
}

impl Seat {
    /// Every process reads all that it has.
    pub(crate) fn read_all(&mut self, sim: &mut Sim) {
        let living: Vec<(u32, u64)> = self
            .processes
            .values()
            .filter(|p| p.known && !p.ended)
            .map(|p| (p.key.0, p.pages.len() as u64))
            .collect();
        for (n, (_, count)) in living.into_iter().enumerate() {
            let all = Work::Touch { page: 0, count, stride: 1, write: false, zero: false };
            self.give_work(n as u64, 0, all, sim);
        }
    }
}
