//! Shims that join: the handshake of `loam-hand`, on sockets that never make us wait.

use super::moves::Moves;
use super::pause::is_want;
use super::process::{Hand, Process};
use super::released::Released;
use super::token::Door;
use super::{Agent, Token};
use crate::AgentError;
use crate::control::{self, ControlError, Folder};
use crate::delays;
use crate::packets::{self, Received};
use crate::procfs::{self, Mapping, Pagemap, Statm, StatmFigures};
use crate::shared::Shared;
use crate::stderr;
use crate::uffd::{Uffd, Watch};
use linux_raw_sys::general::{
    UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP,
    UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_THREAD_ID,
};
use loam_core::borrower::{BaseRange, SpaceKey};
use loam_hand::{Call, Hello, LAYOUT_VERSION, Ready, TRANSFER_BYTES, Welcome, role, status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, UCred};
use rustix::process::{Pid, getuid};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

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
    Welcomed { shared: Box<Shared>, role: u32, token: u32 },
    /// It has a call to make.
    Calls,
}

impl Peer {
    /// Who it is.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

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

/// The socket that shims connect to. Anybody may connect, only processes of the tree are served: a program may run as
/// another user than the agent.
pub(super) fn listen(folder: &Folder) -> Result<(OwnedFd, PathBuf), ControlError> {
    folder.remove_stale();
    folder.listen(&format!("agent-{}.sock", std::process::id()), SocketType::SEQPACKET, 0o666)
}

/// And the one that they find where they do not see that.
pub(super) fn listen_abstract(path: &Path) -> Result<OwnedFd, Errno> {
    control::listen_abstract(path, SocketType::SEQPACKET)
}

/// What a shim calls an error of the kernel's. There are no others than these.
fn errno_of(number: u32) -> Errno {
    let known = i32::try_from(number).ok().filter(|number| (1..4096).contains(number));
    known.map_or(Errno::BADMSG, Errno::from_raw_os_error)
}

/// What of a range is in none of these, which are in order and do not overlap.
fn holes_in(range: BaseRange, mapped: &[BaseRange]) -> Vec<BaseRange> {
    let (mut at, mut holes) = (range.start, Vec::new());
    let first = mapped.partition_point(|part| part.end <= range.start);
    for part in mapped[first..].iter().take_while(|part| part.start < range.end) {
        let part = part.intersect(range);
        holes.push(BaseRange::new(at, part.start));
        at = part.end;
    }
    holes.push(BaseRange::new(at, range.end));
    holes.retain(|hole| !hole.is_empty());
    holes
}

/// Where the window of a shim is. What it says is not to be trusted: addresses may have no end, or be none of a page's.
fn window_of(hello: &Hello) -> Option<BaseRange> {
    let end = hello.window_address.checked_add(hello.window_bytes)?;
    let aligned =
        [hello.window_address, hello.window_bytes, hello.probe_address].iter().all(|n| n % 4096 == 0);
    let sane = aligned && hello.window_bytes > 0 && hello.probe_address <= u64::MAX - 2 * 4096;
    sane.then(|| BaseRange::new(hello.window_address >> 12, end >> 12))
}

impl Agent<'_> {
    pub(super) fn accept(&mut self, door: Door) {
        let token = Token::Listener(door);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while self.peers.len() < PEERS_MAX {
            if !self.has_room() {
                // Half-way it could not wait any more.
                self.pause_accepting(token, Some(Errno::MFILE));
                return;
            }
            let listener = match door {
                Door::Path => &self.listener,
                Door::AbstractName => self.abstract_listener.as_ref().expect("it was listened to"),
            };
            match rustix::net::accept_with(listener, flags) {
                Ok(socket) => self.take_in(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    self.pause_accepting(token, is_want(errno).then_some(errno));
                    return;
                }
            }
        }
        self.pause_accepting(token, None);
    }

    fn take_in(&mut self, socket: OwnedFd) {
        match control::peer(socket.as_fd()) {
            Some(credentials) if self.may_join(credentials) => {
                self.take_in_as_peer(socket, credentials.pid, None);
            }
            _ => self.hear_stranger(socket),
        }
    }

    /// `hello`: what it has said already.
    pub(super) fn take_in_as_peer(&mut self, socket: OwnedFd, pid: Pid, hello: Option<Hello>) {
        let number = self.next_peer;
        if self.poll_on(socket.as_fd(), Token::Peer(number), false).is_ok() {
            self.next_peer = self.next_peer.wrapping_add(1);
            let peer = Peer { socket, pid, stage: Stage::New };
            match hello {
                Some(hello) => self.greet(number, peer, hello),
                None => drop(self.peers.insert(number, peer)),
            }
        }
    }

    /// The child that finds this number when it knocks, and has not come yet.
    pub(super) fn knocked(&self, knock: u64) -> Option<SpaceKey> {
        self.processes
            .values()
            .find(|process| knock != 0 && process.knock == knock)
            .map(|process| process.key)
    }

    /// It belongs to the tree. Of a program that was there before us a child whose parent has ended descends from nobody that we know: then it
    /// has joined already (or will say who it is, [`Self::answer_stranger`]); or, where the kernel tells nothing of forks, it is this user's, as the program is.
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
            Stage::New => match packets::receive_hello(peer.socket.as_fd()) {
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
                Received::Packet(request, _) => self.take_call(peer.pid, peer.socket, request),
                Received::Nothing => {
                    self.peers.insert(number, peer);
                }
                Received::Closed => {}
            },
        }
    }

    fn greet(&mut self, number: u32, mut peer: Peer, hello: Hello) {
        if hello.layout_version != LAYOUT_VERSION {
            // It says it itself. (Not that it is to end: older ones look at that first, and would say nothing.)
            let welcome =
                Welcome { layout_version: LAYOUT_VERSION, status: status::GO_ON, ..Welcome::default() };
            let _ = packets::send(peer.socket.as_fd(), &welcome, &[]);
            return;
        }
        if hello.role == role::CALL {
            peer.stage = Stage::Calls;
            self.peers.insert(number, peer);
            return;
        }
        let direct = self.direct.as_mut().map(|direct| direct.pool.plan());
        let token = direct.map_or(0, |plan| plan.token);
        let mut welcome = Welcome {
            layout_version: LAYOUT_VERSION,
            fork_events: u32::from(self.fork_events),
            window_bytes: TRANSFER_BYTES as u64,
            status: status::GO_ON,
            reserved: 0,
            region: self.config.region.map(|r| r.plan(self.config.local, direct)).unwrap_or_default(),
        };
        let shared = match Shared::create() {
            Ok(shared) => shared,
            Err(error) => {
                stderr::tell(error);
                welcome.status = status::EXIT;
                let _ = packets::send(peer.socket.as_fd(), &welcome, &[]);
                return;
            }
        };
        let mut fds = vec![shared.memfd()];
        // A child has inherited what its parent has mapped.
        let starts = hello.role == role::STARTED;
        fds.extend(self.direct.iter().filter(|_| starts).flat_map(|direct| direct.pool.files()));
        fds.extend(self.device.as_ref().map(AsFd::as_fd));
        if packets::send(peer.socket.as_fd(), &welcome, &fds).is_ok() {
            peer.stage = Stage::Welcomed { shared: Box::new(shared), role: hello.role, token };
            self.peers.insert(number, peer);
        }
    }

    /// A complete hello: the process is under Loam from here on.
    fn seat(&mut self, peer: Peer, hello: Hello, uffd: Option<OwnedFd>) {
        let Stage::Welcomed { shared, role, token } = peer.stage else { unreachable!("the caller looked") };
        let answer = match window_of(&hello) {
            None => Err((peer.socket, "its shim names addresses that cannot be".to_owned())),
            Some(window) if role == role::FORKED && self.fork_events => {
                self.seat_child(peer.pid, hello.knock, *shared, peer.socket, window)
            }
            Some(window) => self.seat_new(peer.pid, *shared, peer.socket, window, &hello, uffd),
        };
        match answer {
            Ok(()) => self.set_token(peer.pid, token),
            // It was ended just then, and is nobody's concern.
            Err(_) if !procfs::has_memory(peer.pid) => tracing::debug!(?peer.pid, "ended as it joined"),
            Err((socket, why)) => {
                stderr::tell(format_args!("process {} cannot be served: {why}", peer.pid.as_raw_nonzero()));
                let _ = packets::send(socket.as_fd(), &Ready { status: status::EXIT, reserved: 0 }, &[]);
            }
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
            let errno = errno_of(hello.userfaultfd_errno);
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
        // While it waits for our answer, or what it takes by then would count as what it had.
        let before = self.before(pid, hello.role);
        if packets::send(socket.as_fd(), &Ready { status: status::GO_ON, reserved: 0 }, &[]).is_err() {
            return Ok(()); // it has died
        }
        delays::maybe(2);
        // The same process before its exec, if we have not heard of its end yet.
        if let Some(old) = self.space_of(pid) {
            self.hand_gone_for_good(old);
        }
        let key = self.new_key();
        self.borrower.handle_space_added(key, true);
        if hello.role == role::FORKED {
            let now = self.now();
            self.borrower.handle_forked_unseen(now, key);
        }
        let process = Process {
            key,
            uffd,
            hand: None,
            since: self.now(),
            family: key,
            pid: Some(pid),
            events: VecDeque::new(),
            probe: hello.probe_address >> 12,
            knock: 0,
            window,
            token: 0,
            region: self.region_at(hello.region_address),
            released: Released::default(),
            letting_go: Vec::new(),
            outlives_its_hand: false,
            in_doubt_since: None,
            keeps_from_children: false,
            moves: Moves::default(),
            adoption_unsure: false,
            waited_in_vain: false,
            statm: None,
            pagemap: None,
            before,
            looked_at_pages: 0,
            inherited_pages: 0,
            resident_pages: 0,
            part: 0,
        };
        self.add_process(process);
        self.give_hand(key, pid, shared, socket, window);
        Ok(())
    }

    /// What a process that joins has here and does not borrow for: all, if it was there before us. What it forks has its copy of the same.
    fn before(&self, pid: Pid, role: u32) -> StatmFigures {
        if !self.program.is_attached() {
            StatmFigures::default()
        } else if role == role::FORKED {
            self.processes.values().next().map_or_else(StatmFigures::default, |relative| relative.before)
        } else {
            let figures = Statm::open(pid).and_then(|statm| {
                let figures = statm.read()?;
                Ok(StatmFigures { file_pages: statm.files(figures.file_pages).mapped, ..figures })
            });
            figures.unwrap_or_default()
        }
    }

    /// The region of a process that has it at `address`. One that says nonsense has none, and borrows nothing. Direct memory is
    /// not to be paged.
    fn region_at(&self, address: u64) -> Option<BaseRange> {
        if self.direct.is_some() {
            return None;
        }
        let bytes = self.config.region?.size.0;
        let sane = address > 0 && address.is_multiple_of(4096) && address < 1 << 56;
        sane.then(|| BaseRange::new(address >> 12, (address + bytes) >> 12))
    }

    /// A forked child whose userfaultfd came with the fork event, and which has knocked at the probe page.
    fn seat_child(
        &mut self,
        pid: Pid,
        knock: u64,
        shared: Shared,
        socket: OwnedFd,
        window: BaseRange,
    ) -> Result<(), (OwnedFd, String)> {
        let Some(key) = self.knocked(knock) else {
            return Err((socket, "it forked, and the kernel did not report it".into()));
        };
        // One that had its number before, if we have not heard of its end yet.
        if let Some(old) = self.space_of(pid) {
            self.hand_gone_for_good(old);
        }
        let Some(process) = self.processes.get_mut(&key) else {
            return Err((socket, "it has ended".into()));
        };
        (process.pid, process.knock) = (Some(pid), 0);
        if let Err(error) = process.uffd.register(window.start << 12..window.end << 12, Watch::WriteProtect) {
            return Err((socket, error.to_string()));
        }
        // While it waits for our answer, or what it maps by then would count as what it has.
        let is_known = self.forget_what_it_has_not(key, pid);
        let ready = Ready { status: status::GO_ON, reserved: 0 };
        if packets::send(socket.as_fd(), &ready, &[self.processes[&key].uffd.as_fd()]).is_ok() {
            delays::maybe(2);
            self.give_hand(key, pid, shared, socket, window);
            if is_known {
                self.borrower.handle_hand(key);
            }
        }
        self.drain();
        Ok(())
    }

    /// Not all that its parent's record has is there: not what the parent keeps from its children, nor what another thread of the parent took away just before the fork and
    /// has not told of yet. In this one, other memory may be at its place soon, or is: that is registered nowhere yet. False: nobody can say what it has, and so nothing may be taken from it.
    fn forget_what_it_has_not(&mut self, key: SpaceKey, pid: Pid) -> bool {
        let Some(process) = self.processes.get_mut(&key) else { return false };
        let has: Vec<BaseRange> = if process.keeps_from_children || process.released.iter().next().is_some() {
            let Ok(details) = procfs::flags(pid) else { return false };
            process.released.keep(details.iter().map(|of| of.mapping.pages()));
            details.iter().filter(|of| of.is_registered()).map(|of| of.mapping.pages()).collect()
        } else {
            let Ok(mappings) = procfs::mappings(pid) else { return false };
            mappings.iter().map(Mapping::pages).collect()
        };
        let now = self.now();
        for range in self.borrower.ranges(key) {
            for gone in holes_in(range, &has) {
                tracing::debug!(?key, ?gone, "not the child's");
                self.borrower.handle_unmapped(now, key, gone);
            }
        }
        true
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
        let inherits = process.inherited_pages > 0;
        self.tell_limits(key);
        self.watch.joined(pid, inherits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_is_a_hole() {
        let range = |(start, end): (u64, u64)| BaseRange::new(start, end);
        let holes = |mapped: &[(u64, u64)]| {
            let mapped: Vec<BaseRange> = mapped.iter().copied().map(range).collect();
            holes_in(range((10, 20)), &mapped)
        };
        assert_eq!(holes(&[]), [range((10, 20))]);
        assert_eq!(
            holes(&[(0, 5), (8, 12), (12, 13), (15, 16), (30, 40)]),
            [range((13, 15)), range((16, 20))]
        );
        assert_eq!(holes(&[(0, 15), (15, 25)]), []);
        assert_eq!(holes(&[(12, 20)]), [range((10, 12))]);
    }

    #[test]
    fn an_error_that_cannot_be_is_another() {
        assert_eq!(errno_of(1), Errno::PERM);
        for wrong in [0, 4096, u32::MAX] {
            assert_eq!(errno_of(wrong), Errno::BADMSG);
        }
    }

    #[test]
    fn a_window_that_cannot_be_is_not_believed() {
        let hello = Hello {
            window_address: 0x7000_0000,
            window_bytes: 1 << 20,
            probe_address: 0x6000_0000,
            ..Hello::default()
        };
        assert_eq!(window_of(&hello), Some(BaseRange::new(0x7_0000, 0x7_0100)));
        let wrong = [
            Hello { window_bytes: 0, ..hello },
            Hello { window_bytes: 4095, ..hello },
            Hello { window_address: 0x7000_0800, ..hello },
            Hello { window_address: u64::MAX - 4095, window_bytes: 4096, ..hello },
            Hello { probe_address: 0x6000_0001, ..hello },
            Hello { probe_address: u64::MAX - 4095, ..hello },
        ];
        for hello in wrong {
            assert_eq!(window_of(&hello), None, "{hello:?}");
        }
    }
}
