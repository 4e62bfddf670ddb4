//! The agent: one event loop in one thread, which owns everything and never waits for anything but events.
//!
//! Nothing here takes a lock. The thread that reads userfaultfd events also carries out what the policy decides, but every
//! step of it is bounded: hand, disk and lenders answer later, as events. So the traps of DESIGN.md,
//! section 3 (a reader that waits for the hand, which waits for the reader) cannot spring.

mod alarm;
mod away;
mod background;
mod calls;
mod changes;
mod cluster;
mod copied;
mod direct;
mod disk;
mod effects;
mod events;
mod evictions;
mod join;
mod lenders;
mod pause;
mod process;
mod program;
mod protect;
mod recorder;
mod region;
mod released;
mod report;
mod reserve;
mod strangers;
mod watch;

use crate::config::{Durability, Lenders, PageChoice, RunConfig};
use crate::conn::Conn;
use crate::control::{self, Folder};
use crate::launch::{self, LaunchError};
use crate::pool::Pool;
use crate::slices;
use crate::slots::SlotFile;
use crate::uffd::{self, Uffd};
use crate::{AgentError, RunOutcome};
use alarm::Alarm;
use disk::Disk;
use effects::Held;
use join::Peer;
use loam_core::borrower::{
    BUFFERS_MIN, Borrower, BorrowerConfig, LenderIndex, NoPrefetch, Prefetcher, SecondChanceFifo, SpaceKey,
    StridePrefetcher, fetch_planner, lender_choice,
};
use loam_core::ids::SpaceId;
use loam_core::page_size::{Aapc, Adaptive, PageSize};
use loam_core::polling::Polling;
use loam_core::units::{BasePages, Bytes, Duration, EXTENT_BASE_PAGES, Instant};
use process::Process;
use program::{Program, Status};
use protect::PutOff;
use report::Report;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::Pid;
use rustix::time::Timespec;
use std::collections::BTreeMap;
use std::path::Path;
use watch::Watch;

/// What an epoll event is about: kind in the high byte, number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Listener,
    Control,
    Signals,
    Disk,
    Lender(u8),
    Faults(SpaceKey),
    Hand(SpaceKey),
    Peer(u32),
    Alarm,
    Cluster,
    Away,
    Stranger(u32),
}

impl Token {
    const fn data(self) -> u64 {
        let (kind, n) = match self {
            Self::Listener => (0_u64, 0_u32),
            Self::Control => (1, 0),
            Self::Signals => (2, 0),
            Self::Disk => (3, 0),
            Self::Lender(n) => (4, n as u32),
            Self::Faults(key) => (5, key.0),
            Self::Hand(key) => (6, key.0),
            Self::Peer(n) => (7, n),
            Self::Alarm => (8, 0),
            Self::Cluster => (9, 0),
            Self::Away => (10, 0),
            Self::Stranger(n) => (11, n),
        };
        kind << 56 | n as u64
    }

    fn from_data(data: u64) -> Self {
        let n = data as u32;
        match data >> 56 {
            0 => Self::Listener,
            1 => Self::Control,
            2 => Self::Signals,
            3 => Self::Disk,
            4 => Self::Lender(n as u8),
            5 => Self::Faults(SpaceKey(n)),
            6 => Self::Hand(SpaceKey(n)),
            7 => Self::Peer(n),
            8 => Self::Alarm,
            9 => Self::Cluster,
            10 => Self::Away,
            _ => Self::Stranger(n),
        }
    }
}

/// Smallest budget that a run works with: one eviction under way, one page per lender, and the programs' own libraries.
pub(crate) const LOCAL_BYTES_MIN: u64 = 32 << 20;
/// Part of `--local` that page buffers may take.
const BUFFERS_SHARE: u64 = 50;
/// No more page buffers than this (64 MiB).
const BUFFERS_MAX: u64 = 16 * 1024;
/// Bytes that the prefetcher is ahead at most.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// How long a fault's answer is polled for before the loop blocks: waking from a block costs more than a small fetch
/// takes (DESIGN.md, section 3).
const SPIN_NS: u64 = 60_000;
/// How long the next fault is polled for after such an answer.
const LINGER_NS: u64 = 20_000;
/// A gap this long between two turns of the loop is our own stall.
const STALL: Duration = Duration::from_millis(500);
/// The machine's cores are let go to sleep this long after the last fault.
const IDLE_NS: u64 = 50_000_000;
/// The loop turns at least this often.
const LOOK_MAX: Duration = Duration::from_millis(100);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// A program that was there before us has been told where to join: what it has not done within this time it will not do.
const JOIN_MAX: Duration = Duration::from_millis(10_000);
/// A getpage is asked of the disk too after this.
const HEDGE_AFTER: Duration = Duration::from_millis(200);

/// See the module's documentation.
struct Agent<'a> {
    config: &'a RunConfig,
    started: std::time::Instant,
    epoll: OwnedFd,
    alarm: Alarm,
    listener: OwnedFd,
    socket_path: std::path::PathBuf,
    device: Option<OwnedFd>,
    fork_events: bool,

    borrower: Borrower,
    pool: Pool,
    /// An extent of zeros, to install from.
    zeros: Pool,
    /// By their index; one that is lost leaves its place to the next that joins.
    lenders: Vec<lenders::Lender>,
    /// Those whose place was taken, and those that were never reached.
    past: lenders::Past,
    /// Lenders that may come back with what their disks have.
    away: away::Away,
    /// Where lenders come from, unless they are fixed.
    membership: Option<cluster::Membership>,
    /// What lenders have promised to keep for this run.
    promised: Option<reserve::Promised>,
    space: SpaceId,
    name: String,
    disk: Option<Disk>,
    /// One could not be opened when it was needed.
    slot_file_refused: bool,
    processes: BTreeMap<SpaceKey, Process>,
    /// The region's memory, where it is direct.
    direct: Option<direct::Direct>,
    next_key: u32,
    peers: BTreeMap<u32, Peer>,
    next_peer: u32,
    strangers: strangers::Strangers,
    calls: Vec<calls::WaitingCall>,
    pauses: pause::Pauses,
    /// The page frame that is being taken in: its payload, while its arrivals are dealt with.
    payload: *const u8,
    held: Held,
    /// An install met a change under way: ask again once events have been read.
    retry: bool,
    put_off: PutOff,
    /// The fetch plan is `full`: who waits for a page waits for all of it.
    fetches_full: bool,

    program: Program,
    program_ended: bool,
    /// Why the run has to be ended.
    fatal: Option<String>,
    watch: Watch,
    report: Report,
    /// When something last happened.
    busy_at_ns: u64,
    turned_at: Instant,
    /// Whether polling for answers pays (not on a slow network, nor where a lender needs this very core), and for the next fault.
    answers: Polling,
    next_faults: Polling,
    /// Until when the next fault is polled for, if it is.
    lingers_until: Option<Instant>,
    /// The process whose finished evictions were looked at last.
    pieces_turn: SpaceKey,
    /// The process whose thread has faulted last.
    faulted: Option<SpaceKey>,
    /// Times in a row that the gate was taken when we came to read events.
    gate_misses: u32,
    latency_guard: Option<OwnedFd>,
}

/// A space that nobody else has.
fn random_space() -> SpaceId {
    let mut bytes = [0_u8; 8];
    // Eight bytes are never refused once the machine has started.
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(bytes.len()), "the kernel has no random bytes");
    // 0 is for tools, which store nothing.
    SpaceId(u64::from_ne_bytes(bytes).max(1))
}

/// Has the borrower size pages as the user chose.
fn size_pages(borrower: &mut Borrower, choice: PageChoice, seed: u64) {
    let size = |size: Bytes| PageSize::new(size.base_pages()).expect("the caller has checked the size");
    let (least, most) = (PageSize::SMALLEST, PageSize::LARGEST);
    match choice {
        PageChoice::Fixed(_) => {} // as the borrower's configuration has it
        PageChoice::Auto(start) => {
            borrower.size_pages(Box::new(Adaptive::new(least, size(start), most, seed)), least)
        }
        PageChoice::Aapc(start) => borrower.size_pages(Box::new(Aapc::new(least, size(start), most)), least),
    }
}

/// Runs the program to its end.
pub(crate) fn run(config: &RunConfig) -> Result<RunOutcome, AgentError> {
    let path = launch::check_program(&config.program).map_err(|e| AgentError::Setup(e.to_string()))?;
    serve(config, |socket| Program::start(&path, config, socket))
}

/// Serves a program that runs already, to its end.
pub(crate) fn attach(
    config: &RunConfig,
    pid: Pid,
    ready: impl FnOnce(&Path),
) -> Result<RunOutcome, AgentError> {
    serve(config, |socket| {
        let program = Program::attach(pid)?;
        ready(socket);
        Ok(program)
    })
}

/// `begin` gets the program to join at the socket that it is given.
fn serve(
    config: &RunConfig,
    begin: impl FnOnce(&Path) -> Result<Program, LaunchError>,
) -> Result<RunOutcome, AgentError> {
    if config.local.0 < LOCAL_BYTES_MIN {
        return Err(AgentError::Setup(format!(
            "--local {} is too small: Loam needs at least 32M here, give --local 32M or more",
            config.local
        )));
    }
    let page = config.page.first().base_pages();
    let buffers = (config.local.base_pages().0 / BUFFERS_SHARE).clamp(u64::from(BUFFERS_MIN), BUFFERS_MAX);
    let disk = match config.durability {
        Durability::Disk => {
            let initial = config.local.base_pages().0.min(64 << 8);
            let file =
                SlotFile::create(&config.disk_dir, initial).map_err(|e| AgentError::Setup(e.to_string()))?;
            Some(Disk::new(file))
        }
        // Opened when there are pages that too few lenders take.
        Durability::None | Durability::Staged | Durability::Replicas(_) => None,
    };
    let ahead_max = Bytes(AHEAD_BYTES_MAX.min(config.local.0 / 16));
    let prefetcher: Box<dyn Prefetcher> = if config.prefetch {
        Box::new(StridePrefetcher::new(ahead_max.base_pages()))
    } else {
        Box::new(NoPrefetch)
    };
    let core = BorrowerConfig {
        page,
        buffers: buffers as u32,
        disk: disk.is_some(),
        replicas: config.durability.replicas(),
        staged: config.durability == Durability::Staged,
        hedge_after: HEDGE_AFTER,
        rescue: true,
    };
    let mut borrower = Borrower::new(core, Box::new(SecondChanceFifo::default()), prefetcher);
    let seed = random_space().0;
    size_pages(&mut borrower, config.page, seed);
    let Some(choice) = lender_choice(&config.placement, seed) else {
        return Err(AgentError::Setup(format!("there is no placement '{}'", config.placement)));
    };
    borrower.place_pages(choice);
    let Some(planner) = fetch_planner(&config.fetch_plan) else {
        return Err(AgentError::Setup(format!("there is no fetch plan '{}'", config.fetch_plan)));
    };
    borrower.plan_fetches(config.subpage.base_pages(), planner);
    borrower.plan_in_pieces();
    borrower.limit_lending(config.lend_max.map_or(BasePages(u64::MAX), Bytes::base_pages));
    borrower.guard_from_scans(config.guard_scans);
    borrower.handle_limit(Instant(0), config.local.base_pages());
    let setup = |what: &str| {
        let what = what.to_owned();
        move |errno: rustix::io::Errno| {
            AgentError::Setup(format!("{what} failed ({errno}): see `loam doctor`"))
        }
    };
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setup("epoll_create"))?;
    let device = uffd::open_device().ok();
    let fork_events = join::check_userfaultfd(device.as_ref().map(AsFd::as_fd))?;
    let space = random_space();
    let name = config.program.to_string_lossy().into_owned();
    let mut report = Report::new(config);
    for note in disk.iter().flat_map(|disk| disk.file.notes()) {
        report.warn(&note);
    }
    let (mut past, mut membership) = (lenders::Past::default(), None);
    let lenders = match &config.lenders {
        Lenders::Fixed(targets) => {
            lenders::connect_all(targets, config.durability, space, &name, &mut past, &mut report)?
        }
        Lenders::Cluster(socket, credentials) => {
            let (joined, lenders, warnings) = cluster::Membership::start(
                socket,
                credentials.clone(),
                config.durability,
                config.reserve.is_some(),
                space,
                &name,
            )?;
            warnings.iter().for_each(|line| report.warn(line));
            membership = Some(joined);
            lenders
        }
    };
    if lenders.is_empty() && disk.is_none() && config.disk_dir.as_os_str().is_empty() {
        return Err(AgentError::Setup(
            "no lender can be reached, and this user has no folder for pages: start `loam lend SIZE`, or give --disk DIR"
                .into(),
        ));
    }
    let mut waiting = reserve::Waiting(lenders);
    let promised = config
        .reserve
        .map(|bytes| reserve::reserve(&mut waiting.0, bytes, config.durability.replicas()))
        .transpose()
        .map_err(AgentError::Setup)?;
    let pool = config.direct.clone().zip(config.region);
    let pool = pool.map(|(memory, region)| crate::direct::Pool::new(memory, region.size)).transpose();
    let direct = pool.map_err(|e| AgentError::Setup(e.to_string()))?.map(direct::Direct::new);
    let folder = Folder::make(control::path()).map_err(|e| AgentError::Setup(e.to_string()))?;
    let (listener, socket_path) = join::listen(&folder).map_err(|e| AgentError::Setup(e.to_string()))?;
    report.listen(&folder);
    let program = begin(&socket_path).map_err(|e| AgentError::Setup(e.to_string()))?;
    // Each process takes several descriptors here. Not before the program has been started: it keeps the limit that it would have.
    loam_wire::allow_many_files();

    let pool_error = |e: crate::pool::PoolError| AgentError::Setup(e.to_string());
    let mut agent = Agent {
        config,
        started: std::time::Instant::now(),
        epoll,
        alarm: Alarm::new().map_err(setup("timerfd_create"))?,
        listener,
        socket_path,
        device,
        fork_events,
        borrower,
        pool: Pool::new(buffers as usize).map_err(pool_error)?,
        zeros: Pool::new(EXTENT_BASE_PAGES).map_err(pool_error)?,
        lenders: Vec::new(),
        past,
        away: away::Away::new().map_err(setup("eventfd"))?,
        membership,
        promised,
        space,
        name,
        disk,
        slot_file_refused: false,
        processes: BTreeMap::new(),
        direct,
        next_key: 1,
        peers: BTreeMap::new(),
        next_peer: 0,
        strangers: strangers::Strangers::default(),
        calls: Vec::new(),
        pauses: pause::Pauses::default(),
        payload: std::ptr::null(),
        held: Held::default(),
        retry: false,
        put_off: PutOff::default(),
        fetches_full: config.fetch_plan == "full",
        watch: Watch::new(config.local.base_pages(), buffers),
        program,
        program_ended: false,
        fatal: None,
        report,
        busy_at_ns: 0,
        turned_at: Instant(0),
        answers: Polling::default(),
        next_faults: Polling::default(),
        lingers_until: None,
        pieces_turn: SpaceKey(0),
        faulted: None,
        gate_misses: 0,
        latency_guard: None,
    };
    agent.poll_on(agent.alarm.fd(), Token::Alarm, false).map_err(setup("epoll"))?;
    agent.poll_on(agent.listener.as_fd(), Token::Listener, false).map_err(setup("epoll"))?;
    agent.poll_on(agent.away.fd(), Token::Away, false).map_err(setup("epoll"))?;
    if let Some(control) = agent.report.control_fd() {
        agent.poll_on(control, Token::Control, false).map_err(setup("epoll"))?;
    }
    agent.poll_on(agent.program.signal_fd(), Token::Signals, false).map_err(setup("epoll"))?;
    if let Some(end) = agent.program.end_fd() {
        agent.poll_on(end, Token::Signals, false).map_err(setup("epoll"))?;
    }
    if let Some(disk) = &agent.disk {
        agent.poll_on(disk.file.event_fd(), Token::Disk, false).map_err(setup("epoll"))?;
    }
    if let Some(membership) = &agent.membership {
        agent.poll_on(membership.fd(), Token::Cluster, false).map_err(setup("epoll"))?;
    }
    for lender in waiting.take() {
        agent.add_lender(lender);
    }
    for n in 0..agent.lenders.len() {
        // What came while they were asked for a reservation.
        agent.take_frames(LenderIndex(n as u8));
    }
    if agent.membership.is_some() {
        agent.tell_weights(Instant(0));
    }
    // Not before the program has been started: it keeps the slices that it would have.
    slices::ask_for_short_slices();
    agent.serve();
    agent.finish()
}

impl Agent<'_> {
    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    fn poll_on(&self, fd: BorrowedFd<'_>, token: Token, write: bool) -> Result<(), rustix::io::Errno> {
        let flags =
            if write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        self.listen_to(fd, token, flags)
    }

    fn listen_to(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        flags: epoll::EventFlags,
    ) -> Result<(), rustix::io::Errno> {
        let data = epoll::EventData::new_u64(token.data());
        match epoll::add(&self.epoll, fd, data, flags) {
            Err(rustix::io::Errno::EXIST) => epoll::modify(&self.epoll, fd, data, flags),
            result => result,
        }
    }

    /// The loop, until the program and every process that needs us has ended.
    fn serve(&mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut works = false;
        while !self.is_over() {
            works |= self.has_more_to_do() || self.lenders_hold();
            let timeout = if works || self.lingers() { Some(AT_ONCE) } else { self.prepare_to_wait() };
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => self.end(format!("epoll_wait failed ({errno})")),
            }
            self.after_wait();
            let now = self.now();
            self.forgive_after_stall(now);
            if !events.is_empty() {
                self.busy_at_ns = now.0;
            }
            for event in &events {
                self.dispatch(Token::from_data(event.data.u64()), event.flags);
            }
            self.take_held();
            works = self.work();
            if std::mem::take(&mut self.retry) {
                self.guard_again();
                let now = self.now();
                self.borrower.handle_retry(now);
                self.drain();
            }
            let now = self.now();
            if self.borrower.poll_timeout().is_some_and(|t| t <= now) {
                self.borrower.handle_timeout(now);
                self.drain();
            }
            self.watch_tick(now);
            self.end_pauses(now);
            self.look_at_ending();
            self.answer_calls();
            self.flush();
            self.report_tick(now);
        }
    }

    fn dispatch(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Listener => self.accept(),
            Token::Control => self.answer_control(),
            Token::Signals => self.take_signals(),
            Token::Disk => self.take_disk(),
            Token::Lender(n) => self.take_lender(LenderIndex(n), flags.contains(epoll::EventFlags::OUT)),
            Token::Faults(key) => {
                self.faulted = Some(key);
                if self.lingers_until.take().is_some() {
                    self.next_faults.hit();
                }
                self.take_events(key);
                self.poll_for_answers(key);
            }
            Token::Hand(key) => self.take_hand(key),
            Token::Peer(n) => self.take_peer(n),
            Token::Alarm => self.alarm.rang(),
            Token::Cluster => self.take_news(),
            Token::Away => self.take_returned(),
            Token::Stranger(n) => self.answer_stranger(n),
        }
    }

    /// Polls for the answers that faults wait for, for as long as that is cheaper than to block and be woken. Other threads of the
    /// process that faulted are looked after meanwhile: their faults go out while the first one's answer is on its way.
    fn poll_for_answers(&mut self, key: SpaceKey) {
        if !self.answers.begins() {
            return;
        }
        let mut began = self.now();
        let waited = self.borrower.waiting() > BasePages(0);
        // The thread's own core may sleep meanwhile, though ours does not.
        self.guard_latency(waited, began);
        let received = self.report.bytes.received;
        while self.borrower.waiting() > BasePages(0) {
            self.look_for_answers();
            if self.borrower.fetches_in_flight() == 0 {
                break; // the disk or the hand: they ring
            }
            let now = self.now();
            if (now - began).0 > SPIN_NS {
                if self.report.bytes.received > received {
                    self.answers.hit();
                } else {
                    self.answers.miss();
                }
                return;
            }
            // Not the rest of the page yet: the processor is wanted for what the thread waits for.
            self.store_piece();
            // Time well spent, which says nothing of the lender.
            began = began + (self.now() - now);
            self.read_events(key);
        }
        if waited {
            self.answers.hit();
        }
        self.lingers_until = self.next_faults.begins().then(|| self.now() + Duration(LINGER_NS));
    }

    /// Whether to look for the next fault without blocking: many a thread faults again as soon as it goes on.
    fn lingers(&mut self) -> bool {
        let Some(until) = self.lingers_until else { return false };
        let lasts = self.now() < until;
        if !lasts {
            self.next_faults.miss();
            self.lingers_until = None;
        }
        lasts
    }

    /// How long the loop may block: not at all, or until something comes, the alarm at the latest.
    fn prepare_to_wait(&mut self) -> Option<Timespec> {
        let now = self.now();
        let awaited = self.borrower.waits_for_something();
        self.guard_latency(awaited, now);
        if self.retry {
            return Some(AT_ONCE);
        }
        for process in self.processes.values() {
            if let Some(hand) = &process.hand {
                hand.shared.control().agent_sleeps.store(1, std::sync::atomic::Ordering::SeqCst);
                // What was finished before the flag was seen rings no bell.
                let done = |c: &loam_hand::Command| {
                    c.state.load(std::sync::atomic::Ordering::SeqCst) == loam_hand::state::DONE
                };
                let unseen = hand
                    .ring
                    .iter()
                    .enumerate()
                    .any(|(i, p)| p.is_some_and(|p| p.batch.is_some()) && done(hand.command(i)));
                if unseen {
                    return Some(AT_ONCE);
                }
            }
        }
        let due = [
            self.borrower.poll_timeout(),
            Some(self.watch.due()),
            self.lenders_due(now),
            self.ending_due(now),
            self.pauses.due(),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now + LOOK_MAX);
        match self.alarm.ring_by(now, due) {
            Ok(()) => None,
            Err(errno) => {
                self.end(format!("timerfd_settime failed ({errno})"));
                Some(AT_ONCE)
            }
        }
    }

    /// The loop wakes at least every [`watch::INTERVAL_MAX`]; a longer gap means that we were stopped (Ctrl-Z) or starved, and
    /// then nobody else is to blame for silence.
    fn forgive_after_stall(&mut self, now: Instant) {
        if now - self.turned_at > STALL {
            for conn in self.lenders.iter_mut().filter_map(|l| l.conn.as_mut()) {
                conn.forgive();
            }
        }
        self.turned_at = now;
    }

    fn after_wait(&self) {
        for process in self.processes.values() {
            if let Some(hand) = &process.hand {
                hand.shared.control().agent_sleeps.store(0, std::sync::atomic::Ordering::SeqCst);
            }
        }
    }

    /// Holds the machine's cores awake while faults are in flight, where we may: waking a halted core is most of a
    /// small fault (DESIGN.md, section 3). Let go when idle.
    fn guard_latency(&mut self, awaited: bool, now: Instant) {
        if awaited && self.latency_guard.is_none() && self.watch.may_hold_cores {
            match rustix::fs::open(
                "/dev/cpu_dma_latency",
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            ) {
                Ok(fd) if rustix::io::write(&fd, &0_i32.to_ne_bytes()).is_ok() => {
                    self.latency_guard = Some(fd)
                }
                _ => self.watch.may_hold_cores = false,
            }
        } else if !awaited && self.latency_guard.is_some() && now.0 > self.busy_at_ns + IDLE_NS {
            self.latency_guard = None;
        }
    }

    fn is_over(&self) -> bool {
        let alone = self.processes.is_empty() && self.peers.is_empty();
        self.fatal.is_some() || alone && (self.program_ended || self.is_left())
    }

    /// The program was there before us and does without us: it has not come in time, could not join, or executes another one by now.
    fn is_left(&self) -> bool {
        self.program.is_attached() && (self.next_peer > 0 || self.now() > Instant(0) + JOIN_MAX)
    }

    /// The run cannot go on without handing out wrong bytes, or at all.
    fn end(&mut self, why: String) {
        self.fatal.get_or_insert(why);
    }

    /// Ends what is left and sums up.
    fn finish(mut self) -> Result<RunOutcome, AgentError> {
        if let Some(why) = self.fatal.take() {
            // The tree first: none of it may run on without its pager.
            self.kill_tree();
            let _ = std::fs::remove_file(&self.socket_path);
            return Err(AgentError::Ended(why));
        }
        let _ = std::fs::remove_file(&self.socket_path);
        for lender in &mut self.lenders {
            if let Some(conn) = &mut lender.conn {
                conn.bye(&self.pool);
            }
        }
        self.tell_if_was_over();
        let status = self.program.status().unwrap_or(Status { code: None, signal: None });
        let summary = self.summary(Some(status));
        let recording = self.take_recording();
        self.report.end();
        Ok(RunOutcome { code: status.code, signal: status.signal, summary, recording })
    }

    fn kill_tree(&mut self) {
        for _ in 0..200 {
            let tree = self.tree();
            for pid in &tree {
                let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
            }
            // The userfaultfds stay open until everybody has gone, so nobody reads zeros meanwhile.
            self.program.reap();
            if tree.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// The processes of the program, which may not run on without us. What one that was there before us starts besides is none of our business;
    /// those that it has forked are no descendants of its own any more when their parents have ended.
    fn tree(&self) -> Vec<Pid> {
        if !self.program.is_attached() {
            return self.program.tree();
        }
        self.processes.values().filter_map(Process::living).collect()
    }

    fn take_signals(&mut self) {
        self.program.take_signals();
        self.program_ended = self.program.status().is_some();
    }

    fn lender_room(free_bytes: u64) -> BasePages {
        loam_core::units::Bytes(free_bytes).base_pages()
    }

    fn uffd_of(&self, key: SpaceKey) -> Option<&Uffd> {
        self.processes.get(&key).map(|p| &p.uffd)
    }

    fn conn(&mut self, lender: LenderIndex) -> Option<&mut Conn> {
        self.lenders[usize::from(lender.0)].conn.as_mut()
    }
}
