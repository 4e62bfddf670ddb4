//! Shims that join: the handshake of `loam-hand`, on sockets that never make us wait.

use super::process::{Hand, Process};
use super::{Agent, Token};
use crate::AgentError;
use crate::packets::{self, Received};
use crate::procfs::{Pagemap, Statm};
use crate::shared::Shared;
use crate::uffd::{Uffd, Watch};
use linux_raw_sys::general::{
    UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP,
    UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_THREAD_ID,
};
use loam_core::borrower::{Advice, BaseRange, Pattern, Priority, SpaceKey};
use loam_hand::{Call, CallReply, Hello, LAYOUT_VERSION, Ready, TRANSFER_BYTES, Welcome, call, role, status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::{Pid, getuid};
use std::collections::VecDeque;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

/// Connections in handshake or call at a time; more wait in the listener's queue or are refused.
const PEERS_MAX: usize = 4096;

/// A connection that is not a hand's yet.
pub(super) struct Peer {
    socket: OwnedFd,
    pid: Pid,
    stage: Stage,
}

enum Stage {
    /// Connected.
    New,
    /// Welcomed; its complete hello comes next.
    Welcomed { shared: Box<Shared>, role: u32 },
    /// It has a call to make.
    Calls,
}

impl Peer {
    /// Who it is.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

/// A call that is answered later.
pub(super) struct WaitingCall {
    pub space: SpaceKey,
    socket: OwnedFd,
    waits: Waits,
}

/// What for.
enum Waits {
    /// Nothing of the range is away any more; `what` asks for that.
    Home { range: BaseRange, what: u32 },
    /// Changes of mappings have been dealt with that were read before the advice came: the memory that it speaks of came after them, and
    /// they would take the advice with them.
    Changes(Call),
}

/// Where the kernel does not report forks, adopted mappings are kept from children, where they would read zeros: a child made behind
/// libc's back then meets no mapping at all. Around a fork by libc, with everything at home, they are opened.
pub(super) const MADV_DONTFORK: u32 = 10;
const MADV_DOFORK: u32 = 11;

fn features(fork_events: bool) -> u64 {
    let always = UFFD_FEATURE_EVENT_REMAP
        | UFFD_FEATURE_EVENT_REMOVE
        | UFFD_FEATURE_EVENT_UNMAP
        | UFFD_FEATURE_THREAD_ID
        | UFFD_FEATURE_PAGEFAULT_FLAG_WP
        | UFFD_FEATURE_MOVE;
    u64::from(if fork_events { always | UFFD_FEATURE_EVENT_FORK } else { always })
}

/// Tries what a shim will need, before the program starts; true: forks are reported.
pub(super) fn check_userfaultfd(device: Option<BorrowedFd<'_>>) -> Result<bool, AgentError> {
    let make = || match device {
        Some(device) => Uffd::from_device(device),
        None => Uffd::from_syscall(),
    };
    let setup = |e: crate::uffd::UffdError| AgentError::Setup(e.to_string());
    if make().map_err(setup)?.api(features(true)).is_ok() {
        return Ok(true);
    }
    make().map_err(setup)?.api(features(false)).map_err(|_| {
        AgentError::Setup(
            "this kernel has no UFFDIO_MOVE: Loam needs Linux 6.8 or newer, see `loam doctor`".into(),
        )
    })?;
    Ok(false)
}

/// The socket that shims connect to. Anybody may connect, only processes of the tree are answered: a program may run as
/// another user than the agent.
pub(super) fn listen() -> Result<(OwnedFd, PathBuf), AgentError> {
    let dir = crate::control_dir();
    let fail = |what: &str, why: String| {
        AgentError::Setup(format!("{what} {} failed ({why}): check its owner and free space", dir.display()))
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(&dir)
        .map_err(|e| fail("creating", e.to_string()))?;
    remove_stale(&dir);
    let path = dir.join(format!("agent-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(|e| fail("a socket in", e.to_string()))?;
    let address = SocketAddrUnix::new(&path).map_err(|e| fail("a socket in", e.to_string()))?;
    rustix::net::bind(&listener, &address).map_err(|e| fail("a socket in", e.to_string()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
        .map_err(|e| fail("permissions in", e.to_string()))?;
    rustix::net::listen(&listener, 1024).map_err(|e| fail("a socket in", e.to_string()))?;
    Ok((listener, path))
}

/// Removes the sockets of runs that were killed.
fn remove_stale(dir: &std::path::Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(stem) = name.to_str().and_then(|n| n.strip_suffix(".sock")) else { continue };
        let number = stem.strip_prefix("agent-").or_else(|| stem.strip_prefix("run-"));
        let Some(pid) = number.and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else { continue };
        if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The base pages that a program says something of: those that the range touches, or only whole ones.
fn pages_of(request: &Call, whole: bool) -> BaseRange {
    let end = request.address.saturating_add(request.bytes);
    let (start, end) = match whole {
        false => (request.address >> 12, end.div_ceil(4096)),
        true => (request.address.div_ceil(4096), end >> 12),
    };
    // Nothing is no page, wherever it is.
    BaseRange::new(start, if request.bytes == 0 { start } else { end.max(start) })
}

/// What says something of memory, and asks for nothing.
fn is_advice(what: u32) -> bool {
    (call::WILL_NEED..=call::FORGET).contains(&what)
}

fn reply(socket: &OwnedFd, status: u32) {
    let _ = packets::send(socket.as_fd(), &CallReply { status, reserved: 0 }, &[]);
}

impl Agent<'_> {
    pub(super) fn accept(&mut self) {
        while self.peers.len() < PEERS_MAX {
            let Ok(socket) =
                rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            else {
                return;
            };
            let Ok(credentials) = rustix::net::sockopt::socket_peercred(&socket) else { continue };
            let number = self.next_peer;
            if !self.may_join(credentials)
                || self.poll_on(socket.as_fd(), Token::Peer(number), false).is_err()
            {
                continue;
            }
            self.next_peer = self.next_peer.wrapping_add(1);
            self.peers.insert(number, Peer { socket, pid: credentials.pid, stage: Stage::New });
        }
    }

    /// It belongs to the tree. Of a program that was there before us a child whose parent has ended descends from nobody that we know: then the
    /// kernel has told us of it; or, where it tells nothing of forks, it is this user's, as the program is.
    fn may_join(&self, who: UCred) -> bool {
        let known = || match self.fork_events {
            true => self.space_of(who.pid).is_some(),
            false => who.uid == getuid(),
        };
        self.program.is_inside(who.pid) || self.program.is_attached() && known()
    }

    pub(super) fn take_peer(&mut self, number: u32) {
        let Some(peer) = self.peers.remove(&number) else { return };
        match peer.stage {
            Stage::New => match packets::receive::<Hello>(peer.socket.as_fd()) {
                Received::Packet(hello, _) => self.greet(number, peer, hello),
                Received::Nothing => {
                    self.peers.insert(number, peer);
                }
                Received::Closed => {}
            },
            Stage::Welcomed { .. } => match packets::receive::<Hello>(peer.socket.as_fd()) {
                Received::Packet(hello, uffd) => self.seat(peer, hello, uffd),
                Received::Nothing => {
                    self.peers.insert(number, peer);
                }
                Received::Closed => {}
            },
            Stage::Calls => match packets::receive::<Call>(peer.socket.as_fd()) {
                Received::Packet(request, _) => self.take_call(peer, request),
                Received::Nothing => {
                    self.peers.insert(number, peer);
                }
                Received::Closed => {}
            },
        }
    }

    fn greet(&mut self, number: u32, mut peer: Peer, hello: Hello) {
        let mut welcome = Welcome {
            layout_version: LAYOUT_VERSION,
            fork_events: u32::from(self.fork_events),
            window_bytes: TRANSFER_BYTES as u64,
            status: status::GO_ON,
            reserved: 0,
            region: self.config.region.map(|r| r.plan(self.config.local)).unwrap_or_default(),
        };
        if hello.role == role::CALL {
            peer.stage = Stage::Calls;
            self.peers.insert(number, peer);
            return;
        }
        let shared = match Shared::create() {
            Ok(shared) => shared,
            Err(error) => {
                eprintln!("loam: {error}");
                welcome.status = status::EXIT;
                let _ = packets::send(peer.socket.as_fd(), &welcome, &[]);
                return;
            }
        };
        let mut fds = vec![shared.memfd()];
        fds.extend(self.device.as_ref().map(AsFd::as_fd));
        if packets::send(peer.socket.as_fd(), &welcome, &fds).is_ok() {
            peer.stage = Stage::Welcomed { shared: Box::new(shared), role: hello.role };
            self.peers.insert(number, peer);
        }
    }

    /// A complete hello: the process is under Loam from here on.
    fn seat(&mut self, peer: Peer, hello: Hello, uffd: Option<OwnedFd>) {
        let Stage::Welcomed { shared, role } = peer.stage else { unreachable!("the caller looked") };
        // What it says is not to be trusted: addresses may have no end.
        let end = hello.window_address.checked_add(hello.window_bytes);
        let answer = match end.filter(|_| hello.probe_address <= u64::MAX - 4096) {
            None => Err((peer.socket, "its shim names addresses that cannot be".to_owned())),
            Some(end) => {
                let window = BaseRange::new(hello.window_address >> 12, end >> 12);
                if role == role::FORKED && self.fork_events {
                    self.seat_child(peer.pid, *shared, peer.socket, window)
                } else {
                    self.seat_new(peer.pid, *shared, peer.socket, window, &hello, uffd)
                }
            }
        };
        if let Err((socket, why)) = answer {
            eprintln!("loam: process {} cannot be served: {why}", peer.pid.as_raw_nonzero());
            let _ = packets::send(socket.as_fd(), &Ready { status: status::EXIT, reserved: 0 }, &[]);
        }
    }

    fn seat_new(
        &mut self,
        pid: Pid,
        shared: Shared,
        socket: OwnedFd,
        window: BaseRange,
        hello: &Hello,
        uffd: Option<OwnedFd>,
    ) -> Result<(), (OwnedFd, String)> {
        let Some(uffd) = uffd else {
            let errno = rustix::io::Errno::from_raw_os_error(hello.userfaultfd_errno as i32);
            return Err((socket, format!("it got no userfaultfd ({errno}): see `loam doctor`")));
        };
        let registered = Uffd::from_fd(uffd).and_then(|uffd| {
            uffd.api(features(self.fork_events))?;
            uffd.register(window.start << 12..window.end << 12, Watch::WriteProtect)?;
            uffd.register(hello.probe_address..hello.probe_address + 4096, Watch::Missing)?;
            Ok(uffd)
        });
        let uffd = match registered {
            Ok(uffd) => uffd,
            Err(error) => return Err((socket, error.to_string())),
        };
        if packets::send(socket.as_fd(), &Ready { status: status::GO_ON, reserved: 0 }, &[]).is_err() {
            return Ok(()); // it has died
        }
        // The same process before its exec, if we have not heard of its end yet.
        if let Some(old) = self.space_of(pid) {
            self.process_gone(old);
        }
        let key = self.new_key();
        self.borrower.handle_space_added(key, true);
        let process = Process {
            key,
            uffd,
            hand: None,
            pid: Some(pid),
            events: VecDeque::new(),
            probe: hello.probe_address >> 12,
            window,
            region: self.region_at(hello.region_address),
            released: Vec::new(),
            adoption_unsure: false,
            statm: None,
            pagemap: None,
            before_pages: self.before_pages(pid, hello.role),
            looked_at_pages: 0,
            part: 0,
        };
        self.add_process(process);
        self.give_hand(key, pid, shared, socket, window);
        Ok(())
    }

    /// What a process that joins has here and does not borrow for: all, if it was there before us. What it forks has its copy of the same.
    fn before_pages(&self, pid: Pid, role: u32) -> u64 {
        if !self.program.is_attached() {
            0
        } else if role == role::FORKED {
            self.processes.values().next().map_or(0, |relative| relative.before_pages)
        } else {
            Statm::open(pid).and_then(|statm| statm.resident_pages()).unwrap_or(0)
        }
    }

    /// The region of a process that has it at `address`. One that says nonsense has none, and borrows nothing.
    fn region_at(&self, address: u64) -> Option<BaseRange> {
        let bytes = self.config.region?.size.0;
        let sane = address > 0 && address.is_multiple_of(4096) && address < 1 << 56;
        sane.then(|| BaseRange::new(address >> 12, (address + bytes) >> 12))
    }

    /// A forked child whose userfaultfd came with the fork event, and whose thread knocked at the probe page.
    fn seat_child(
        &mut self,
        pid: Pid,
        shared: Shared,
        socket: OwnedFd,
        window: BaseRange,
    ) -> Result<(), (OwnedFd, String)> {
        let Some(key) = self.space_of(pid) else {
            return Err((socket, "it forked, and the kernel did not report it".into()));
        };
        let process = &self.processes[&key];
        if let Err(error) = process.uffd.register(window.start << 12..window.end << 12, Watch::WriteProtect) {
            return Err((socket, error.to_string()));
        }
        let ready = Ready { status: status::GO_ON, reserved: 0 };
        if packets::send(socket.as_fd(), &ready, &[process.uffd.as_fd()]).is_ok() {
            self.give_hand(key, pid, shared, socket, window);
            self.borrower.handle_hand(key);
            self.drain();
        }
        Ok(())
    }

    fn give_hand(&mut self, key: SpaceKey, pid: Pid, shared: Shared, socket: OwnedFd, window: BaseRange) {
        if let Err(errno) = self.poll_on(socket.as_fd(), Token::Hand(key), false) {
            self.end(format!("cannot listen to a hand ({errno}): raise the limit of open files (ulimit -n)"));
        }
        let process = self.processes.get_mut(&key).expect("just added");
        process.hand = Some(Hand::new(shared, socket));
        process.window = window;
        process.statm = Statm::open(pid).ok();
        process.pagemap = Pagemap::open(pid).ok();
        self.watch.joined(pid);
    }

    /// A program says something of its memory. False: so much was said of other memory that this cannot be remembered.
    fn take_advice(&mut self, space: SpaceKey, request: &Call) -> bool {
        let now = self.now();
        // What leaves on advice is only what was named whole: the rest of its page may be needed.
        let range = pages_of(request, request.what == call::WILL_NOT_NEED);
        let borrower = &mut self.borrower;
        let is_heard = match request.what {
            call::WILL_NEED => {
                borrower.handle_advice(now, space, range, Advice::WillNeed);
                true
            }
            call::WILL_NOT_NEED => {
                borrower.handle_advice(now, space, range, Advice::WillNotNeed);
                true
            }
            call::SEQUENTIAL => borrower.handle_pattern(space, range, Pattern::Sequential),
            call::RANDOM => borrower.handle_pattern(space, range, Pattern::Random),
            call::NORMAL => borrower.handle_pattern(space, range, Pattern::Unknown),
            call::LOW => borrower.handle_priority(space, range, Priority::Low),
            call::MIDDLE => borrower.handle_priority(space, range, Priority::Normal),
            call::HIGH => borrower.handle_priority(space, range, Priority::High),
            _ => {
                borrower.handle_forgotten(space, range);
                true
            }
        };
        self.drain();
        is_heard
    }

    fn take_call(&mut self, peer: Peer, request: Call) {
        let answer = |socket: &OwnedFd| reply(socket, 0);
        let Some(space) = self.space_of(peer.pid) else {
            // Whoever has something to say is told that nobody has heard it; there is nothing to bring home for the others.
            let unheard = is_advice(request.what).then(|| Errno::SRCH.raw_os_error().unsigned_abs());
            reply(&peer.socket, unheard.unwrap_or(0));
            return;
        };
        let now = self.now();
        match request.what {
            call::RELEASE | call::FORK_PREPARE => {
                let range = if request.what == call::RELEASE {
                    let end = request.address.saturating_add(request.bytes).div_ceil(4096);
                    BaseRange::new(request.address >> 12, end.max(request.address >> 12))
                } else {
                    BaseRange::new(0, 1 << 51)
                };
                self.borrower.handle_evictable(now, space, false);
                self.drain();
                if request.what == call::FORK_PREPARE {
                    self.allow_fork(space, true);
                } else {
                    self.show(space, range);
                }
                let waits = Waits::Home { range, what: request.what };
                self.calls.push(WaitingCall { space, socket: peer.socket, waits });
                self.answer_calls();
            }
            call::FORK_DONE => {
                if self.allow_fork(space, false) {
                    self.borrower.handle_evictable(now, space, true);
                    self.drain();
                }
                answer(&peer.socket);
            }
            what if is_advice(what) => {
                let waiting = WaitingCall { space, socket: peer.socket, waits: Waits::Changes(request) };
                // Behind what was said before it and waits, too.
                let is_behind =
                    self.calls.iter().any(|of| of.space == space && matches!(of.waits, Waits::Changes(_)));
                if is_behind || !self.try_answer(&waiting) {
                    self.calls.push(waiting);
                }
            }
            _ => {}
        }
    }

    /// Brings home what waiting calls need, and answers those that have what they wait for.
    pub(super) fn answer_calls(&mut self) {
        let mut waiting = std::mem::take(&mut self.calls);
        waiting.retain(|waiting| !self.try_answer(waiting));
        waiting.append(&mut self.calls);
        self.calls = waiting;
    }

    fn try_answer(&mut self, waiting: &WaitingCall) -> bool {
        let Some(process) = self.processes.get(&waiting.space) else { return true };
        let (range, what) = match &waiting.waits {
            Waits::Home { range, what } => (*range, *what),
            Waits::Changes(_) if process.has_unread_changes() => return false,
            Waits::Changes(request) => {
                let full = Errno::NOSPC.raw_os_error().unsigned_abs();
                let status = if self.take_advice(waiting.space, request) { 0 } else { full };
                reply(&waiting.socket, status);
                return true;
            }
        };
        if !self.put_hand_to_rest(waiting.space) {
            return false;
        }
        self.let_go_on(waiting.space); // nothing begins: the call made the space unevictable
        let away = self.borrower.away_in(waiting.space, range);
        let now = self.now();
        for &base in away.iter().take(1024) {
            self.borrower.handle_wanted(now, waiting.space, base);
        }
        self.drain();
        if !self.borrower.away_in(waiting.space, range).is_empty() {
            return false;
        }
        if !self.fork_events && !self.is_hand_idle(waiting.space) {
            return false; // see `show`
        }
        if what == call::RELEASE {
            self.release(waiting.space, range);
            // Another of its threads may be about to fork: then nothing leaves until that is over.
            let hand = self.processes.get(&waiting.space).and_then(|process| process.hand.as_ref());
            if hand.is_none_or(|hand| hand.forks == 0) {
                let now = self.now();
                self.borrower.handle_evictable(now, waiting.space, true);
            }
        }
        self.drain();
        reply(&waiting.socket, 0);
        true
    }

    /// Where forks are not reported, adopted memory is hidden from children but for the time of a fork that told us of itself
    /// and has everything at home. True: no such fork is under way any more.
    fn allow_fork(&mut self, key: SpaceKey, begins: bool) -> bool {
        let ranges = self.borrower.ranges(key);
        let Some(hand) = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) else { return true };
        hand.forks = if begins { hand.forks + 1 } else { hand.forks.saturating_sub(1) };
        let none = hand.forks == 0;
        if begins {
            self.show(key, BaseRange::new(0, u64::MAX));
        } else if none {
            hand.advise(&ranges, MADV_DONTFORK);
        }
        none
    }

    /// Ends the hiding of adopted memory in `range`, once the hand has done it.
    fn show(&mut self, key: SpaceKey, range: BaseRange) {
        let hidden = |r: BaseRange| Some(r.intersect(range)).filter(|r| !r.is_empty());
        let ranges: Vec<BaseRange> = self.borrower.ranges(key).into_iter().filter_map(hidden).collect();
        let hand = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut());
        if let Some(hand) = hand.filter(|_| !self.fork_events) {
            hand.advise(&ranges, MADV_DOFORK);
        }
    }

    fn is_hand_idle(&mut self, key: SpaceKey) -> bool {
        self.take_finished(key, usize::MAX);
        self.processes.get(&key).and_then(|p| p.hand.as_ref()).is_none_or(super::process::Hand::is_idle)
    }

    /// Everything of the range is at home: lets it go, for good.
    fn release(&mut self, key: SpaceKey, range: BaseRange) {
        let now = self.now();
        let adopted: Vec<BaseRange> = self.borrower.ranges(key);
        let process = self.processes.get_mut(&key).expect("the caller looked");
        for part in adopted.into_iter().map(|r| r.intersect(range)).filter(|r| !r.is_empty()) {
            // A page that was never touched reads as zeros from now on, as it should.
            let _ = process.uffd.unregister(part.start << 12..part.end << 12);
            self.borrower.handle_unmapped(now, key, part);
        }
        process.released.push(range);
    }
}
