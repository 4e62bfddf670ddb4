//! How a run begins: what it needs is checked and made, its lenders are found, the program is started, and the loop is entered.

use super::alarm::Alarm;
use super::disk::Disk;
use super::effects::Held;
use super::program::Program;
use super::protect::PutOff;
use super::report::Report;
use super::throttle::Throttle;
use super::token::Door;
use super::watch::Watch;
use super::{Agent, Token, away, cluster, direct, join, lenders, pause, reserve, strangers};
use crate::config::{Durability, Lenders, PageChoice, RunConfig};
use crate::control::{self, Folder};
use crate::launch::{self, LaunchError};
use crate::pool::Pool;
use crate::slices;
use crate::slots::SlotFile;
use crate::uffd;
use crate::{AgentError, RunOutcome};
use loam_core::borrower::{
    BUFFERS_MIN, Borrower, BorrowerConfig, LenderIndex, NoPrefetch, Prefetcher, SpaceKey, StridePrefetcher,
    TokenOrdered, fetch_planner, lender_choice,
};
use loam_core::ids::SpaceId;
use loam_core::page_size::{Aapc, Adaptive, PageSize};
use loam_core::polling::Polling;
use loam_core::units::{BasePages, Bytes, Duration, EXTENT_BASE_PAGES, Instant};
use rustix::event::epoll;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

/// Smallest budget that a run works with: one eviction under way, one page per lender, and the programs' own libraries.
pub(crate) const LOCAL_BYTES_MIN: u64 = 32 << 20;
/// Part of `--local` that page buffers may take.
const BUFFERS_SHARE: u64 = 50;
/// No more page buffers than this (64 MiB).
const BUFFERS_MAX: u64 = 16 * 1024;
/// Bytes that the prefetcher is ahead at most.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// A getpage is asked of the disk too after this.
const HEDGE_AFTER: Duration = Duration::from_millis(200);

/// Runs the program to its end.
pub(crate) fn run(config: &RunConfig) -> Result<RunOutcome, AgentError> {
    let path = launch::check_program(&config.program).map_err(setup)?;
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
        return Err(setup(format_args!(
            "--local {} is too small: Loam needs at least 32M here, give --local 32M or more",
            config.local
        )));
    }
    let buffers = (config.local.base_pages().0 / BUFFERS_SHARE).clamp(u64::from(BUFFERS_MIN), BUFFERS_MAX);
    let disk = open_disk(config)?;
    let borrower = new_borrower(config, buffers, disk.is_some(), random_space().0)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("epoll_create"))?;
    let device = uffd::open_device().ok();
    let fork_events = join::check_userfaultfd(device.as_ref().map(AsFd::as_fd))?;
    let space = random_space();
    let name = config.program.to_string_lossy().into_owned();
    let mut report = Report::new(config);
    for note in disk.iter().flat_map(|disk| disk.file.notes()) {
        report.warn(&note);
    }
    let Found { lenders, past, membership } = find_lenders(config, space, &name, &mut report)?;
    if lenders.is_empty() && disk.is_none() && config.disk_dir.as_os_str().is_empty() {
        return Err(setup(
            "no lender can be reached, and this user has no folder for pages: start `loam lend SIZE`, or give --disk DIR",
        ));
    }
    let mut waiting = reserve::Waiting(lenders);
    let promised = config
        .reserve
        .map(|bytes| reserve::reserve(&mut waiting.0, bytes, config.durability.replicas()))
        .transpose()
        .map_err(AgentError::Setup)?;
    let direct = direct_memory(config)?;
    let folder = Folder::make(control::path()).map_err(setup)?;
    let (listener, socket_path) = join::listen(&folder).map_err(setup)?;
    // Without it, shims that do not see the folder are left without us, or are ended.
    let abstract_listener = join::listen_abstract(&socket_path)
        .inspect_err(|errno| {
            report.warn(&format!("what runs in a sandbox that hides {} is not served: its abstract name cannot be had ({errno})", socket_path.display()));
        })
        .ok();
    report.listen(&folder);
    // Whatever can be refused comes before the program: it would be left without us.
    let alarm = Alarm::new().map_err(refused("timerfd_create"))?;
    let pool = Pool::new(buffers as usize).map_err(setup)?;
    let zeros = Pool::new(EXTENT_BASE_PAGES).map_err(setup)?;
    let away = away::Away::new().map_err(refused("eventfd"))?;
    let program = begin(&socket_path).map_err(setup)?;
    // Each process takes several descriptors here. Not before the program has been started: it keeps the limit that it would have.
    loam_wire::allow_many_files();

    let mut agent = Agent {
        config,
        started: std::time::Instant::now(),
        epoll,
        alarm,
        listener,
        abstract_listener,
        socket_path,
        device,
        fork_events,
        borrower,
        disk,
        pool,
        zeros,
        lenders: Vec::new(),
        past,
        away,
        membership,
        promised,
        space,
        name,
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
        progress: Default::default(),
        throttle: Throttle::new(config.local.base_pages().0),
        program,
        program_ended: false,
        alone_since: None,
        fatal: None,
        report,
        busy_at_ns: 0,
        turned_at: Instant(0),
        answers: Polling::default(),
        next_faults: Polling::default(),
        lingers_until: None,
        hands_looked_at: Instant(0),
        pieces_turn: SpaceKey(0),
        faulted: None,
        reading: super::events::Reading::new(),
        gate_misses: 0,
        latency_guard: None,
    };
    if let Err(errno) = agent.listen() {
        agent.end(format!("epoll: {errno}"));
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
    /// Hears from now on of all that is there before lenders and processes are.
    fn listen(&self) -> Result<(), Errno> {
        self.poll_on(self.alarm.fd(), Token::Alarm, false)?;
        self.poll_on(self.listener.as_fd(), Token::Listener(Door::Path), false)?;
        self.poll_on(self.away.fd(), Token::Away, false)?;
        self.poll_on(self.program.signal_fd(), Token::Signals, false)?;
        let others = [
            (self.abstract_listener.as_ref().map(AsFd::as_fd), Token::Listener(Door::AbstractName)),
            (self.report.control_fd(), Token::Control),
            (self.program.end_fd(), Token::Signals),
            (self.disk.as_ref().map(|disk| disk.file.event_fd()), Token::Disk),
            (self.membership.as_ref().map(|membership| membership.fd()), Token::Cluster),
        ];
        for (fd, token) in others {
            fd.map_or(Ok(()), |fd| self.poll_on(fd, token, false))?;
        }
        Ok(())
    }
}

/// A space that nobody else has. (0 is for tools, which store nothing.)
pub(super) fn random_space() -> SpaceId {
    SpaceId(random_number())
}

/// A number that nobody guesses, and not 0.
pub(super) fn random_number() -> u64 {
    let mut bytes = [0_u8; 8];
    // Eight bytes are never refused once the machine has started.
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(bytes.len()), "the kernel has no random bytes");
    u64::from_ne_bytes(bytes).max(1)
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

/// What is wrong with what a run needs.
fn setup(error: impl Display) -> AgentError {
    AgentError::Setup(error.to_string())
}

/// A call that the kernel refused, and should not have.
fn refused(what: &str) -> impl Fn(Errno) -> AgentError {
    move |errno| AgentError::Setup(format!("{what} failed ({errno}): see `loam doctor`"))
}

/// The borrower of the run, as the user has configured it.
fn new_borrower(config: &RunConfig, buffers: u64, disk: bool, seed: u64) -> Result<Borrower, AgentError> {
    let ahead_max = Bytes(AHEAD_BYTES_MAX.min(config.local.0 / 16));
    let prefetcher: Box<dyn Prefetcher> = if config.prefetch {
        Box::new(StridePrefetcher::new(ahead_max.base_pages()))
    } else {
        Box::new(NoPrefetch)
    };
    let core = BorrowerConfig {
        page: config.page.first().base_pages(),
        buffers: buffers as u32,
        disk,
        replicas: config.durability.replicas(),
        staged: config.durability == Durability::Staged,
        hedge_after: HEDGE_AFTER,
        rescue: true,
    };
    let mut borrower = Borrower::new(core, Box::new(TokenOrdered::default()), prefetcher);
    size_pages(&mut borrower, config.page, seed);
    let choice = lender_choice(&config.placement, seed)
        .ok_or_else(|| setup(format_args!("there is no placement '{}'", config.placement)))?;
    borrower.place_pages(choice);
    let planner = fetch_planner(&config.fetch_plan)
        .ok_or_else(|| setup(format_args!("there is no fetch plan '{}'", config.fetch_plan)))?;
    borrower.plan_fetches(config.subpage.base_pages(), planner);
    borrower.plan_in_pieces();
    borrower.limit_lending(config.lend_max.map_or(BasePages(u64::MAX), Bytes::base_pages));
    borrower.guard_from_scans(config.guard_scans);
    borrower.handle_limit(Instant(0), config.local.base_pages());
    Ok(borrower)
}

/// The slot file, where pages are safe when it has them.
fn open_disk(config: &RunConfig) -> Result<Option<Disk>, AgentError> {
    match config.durability {
        Durability::Disk => {
            let initial = config.local.base_pages().0.min(64 << 8);
            let file = SlotFile::create(&config.disk_dir, initial).map_err(setup)?;
            Ok(Some(Disk::new(file)))
        }
        // Opened when there are pages that too few lenders take.
        Durability::None | Durability::Staged | Durability::Replicas(_) => Ok(None),
    }
}

/// Who lends, and how we hear of more of them.
struct Found {
    lenders: Vec<lenders::Lender>,
    past: lenders::Past,
    membership: Option<cluster::Membership>,
}

fn find_lenders(
    config: &RunConfig,
    space: SpaceId,
    name: &str,
    report: &mut Report,
) -> Result<Found, AgentError> {
    let (mut past, durability) = (lenders::Past::default(), config.durability);
    match &config.lenders {
        Lenders::Fixed(targets) => {
            let lenders = lenders::connect_all(targets, durability, space, name, &mut past, report)?;
            Ok(Found { lenders, past, membership: None })
        }
        Lenders::Cluster(socket, credentials) => {
            let reserves = config.reserve.is_some();
            let (membership, lenders, warnings) =
                cluster::Membership::start(socket, credentials.clone(), durability, reserves, space, name)?;
            warnings.iter().for_each(|line| report.warn(line));
            Ok(Found { lenders, past, membership: Some(membership) })
        }
    }
}

/// The region's memory, where it is to be direct.
fn direct_memory(config: &RunConfig) -> Result<Option<direct::Direct>, AgentError> {
    let Some((memory, region)) = config.direct.clone().zip(config.region) else { return Ok(None) };
    let pool = crate::direct::Pool::new(memory, region.size).map_err(setup)?;
    Ok(Some(direct::Direct::new(pool)))
}
