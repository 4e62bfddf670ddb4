//! The agent: one event loop in one thread, which owns everything and never waits for anything but events.
//!
//! Nothing here takes a lock. The thread that reads userfaultfd events also carries out what the policy decides, but every
//! step of it is bounded: hand, disk and lenders answer later, as events. So the traps of DESIGN.md,
//! section 3 (a reader that waits for the hand, which waits for the reader) cannot spring.

mod adopt;
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
mod halfway;
mod hiding;
mod join;
mod lenders;
mod moves;
mod over;
mod pause;
mod process;
mod program;
mod progress;
mod protect;
mod recorder;
mod region;
mod released;
mod report;
mod reserve;
mod segments;
mod slow_look;
mod standing;
mod start;
mod strangers;
mod throttle;
mod token;
mod wait;
mod watch;

pub(crate) use start::{attach, run};

use crate::config::RunConfig;
use crate::conn::Conn;
use crate::pool::Pool;
use crate::uffd::Uffd;
use crate::{AgentError, RunOutcome};
use alarm::Alarm;
use disk::Disk;
use effects::Held;
use join::Peer;
use loam_core::borrower::{Borrower, LenderIndex, SpaceKey};
use loam_core::ids::SpaceId;
use loam_core::polling::Polling;
use loam_core::units::{BasePages, Bytes, Instant};
use process::Process;
use program::{Program, Status};
use protect::PutOff;
use report::Report;
use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::process::Pid;
use std::collections::BTreeMap;
use throttle::Throttle;
use token::Token;
use wait::AT_ONCE;
use watch::Watch;

/// See the module's documentation.
struct Agent<'a> {
    config: &'a RunConfig,
    started: std::time::Instant,
    epoll: OwnedFd,
    alarm: Alarm,
    /// Where shims connect: at the path, and by an abstract name.
    listener: OwnedFd,
    abstract_listener: Option<OwnedFd>,
    socket_path: std::path::PathBuf,
    device: Option<OwnedFd>,
    fork_events: bool,

    borrower: Borrower,
    /// Before the buffers, as what is dropped first: it waits for what the kernel still does with them.
    disk: Option<Disk>,
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
    /// Since when no process has been here, though the program has ended.
    alone_since: Option<Instant>,
    /// Why the run has to be ended.
    fatal: Option<String>,
    watch: Watch,
    progress: progress::Progress,
    throttle: Throttle,
    report: Report,
    /// When something last happened.
    busy_at_ns: u64,
    turned_at: Instant,
    /// Whether polling for answers pays (not on a slow network, nor where a lender needs this very core), and for the next fault.
    answers: Polling,
    next_faults: Polling,
    /// Until when the next fault is polled for, if it is.
    lingers_until: Option<Instant>,
    /// When processes that are to give pages away were looked at last.
    hands_looked_at: Instant,
    /// The process whose finished evictions were looked at last.
    pieces_turn: SpaceKey,
    /// The process whose thread has faulted last.
    faulted: Option<SpaceKey>,
    reading: events::Reading,
    /// Times in a row that the gate was taken when we came to read events.
    gate_misses: u32,
    latency_guard: Option<OwnedFd>,
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
            if !works {
                self.serve_next_faults();
            }
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
            self.look_at_progress(now);
            self.look_at_hands(now);
            self.end_pauses(now);
            self.look_at_ending();
            self.answer_calls();
            self.flush();
            self.report_tick(now);
        }
    }

    fn dispatch(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Listener(door) => self.accept(door),
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
                self.serve_next_faults();
            }
            Token::Hand(key) => self.take_hand(key),
            Token::Peer(n) => self.take_peer(n),
            Token::Alarm => self.alarm.rang(),
            Token::Cluster => self.take_news(),
            Token::Away => self.take_returned(),
            Token::Stranger(n) => self.answer_stranger(n),
        }
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
        self.end_watch();
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
        Bytes(free_bytes).base_pages()
    }

    fn uffd_of(&self, key: SpaceKey) -> Option<&Uffd> {
        self.processes.get(&key).map(|p| &p.uffd)
    }

    fn conn(&mut self, lender: LenderIndex) -> Option<&mut Conn> {
        self.lenders[usize::from(lender.0)].conn.as_mut()
    }
}
