//! Packets to and from the agent: one structure of `loam-hand` each, over an `AF_UNIX` `SOCK_SEQPACKET` socket, with
//! descriptors as ancillary data.

use core::mem::MaybeUninit;

use loam_hand::{Call, CallReply, Hello, LAYOUT_VERSION, Ready, Welcome, role};

use crate::room::Room;
use crate::sys::{self, Errno, Fd, Result};

/// Longest path of a UNIX socket, with its closing zero.
pub(crate) const PATH_BYTES_MAX: usize = 108;
/// Descriptors that one packet of the agent may carry.
pub(crate) const FDS_MAX: usize = 4;
/// The agent answers at once; on an overloaded machine it may take its time. Past this it counts as hung.
const ANSWER_TIMEOUT_S: u64 = 10;

const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_CLOEXEC: usize = 0o2000000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const SO_PEERCRED: usize = 17;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const MSG_CTRUNC: u32 = 0x08;
const MSG_TRUNC: u32 = 0x20;

/// A structure that travels as its bytes.
///
/// # Safety
/// `repr(C)`, integers only, no padding, every bit pattern valid.
pub(crate) unsafe trait Packet: Default {}
// SAFETY: u32 and u64 fields in an order that leaves no padding (sizes asserted below).
unsafe impl Packet for Hello {}
// SAFETY: as above.
unsafe impl Packet for Welcome {}
// SAFETY: as above.
unsafe impl Packet for Ready {}
// SAFETY: as above.
unsafe impl Packet for Call {}
// SAFETY: as above.
unsafe impl Packet for CallReply {}

const _: () = assert!(size_of::<Hello>() == 56 && size_of::<Call>() == 32 && size_of::<Welcome>() == 72);
const _: () = assert!(size_of::<Ready>() == 8 && size_of::<CallReply>() == 8);

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; PATH_BYTES_MAX],
}

const ADDRESS_BYTES: usize = size_of::<Address>();

impl Address {
    /// `path` after so many zeros.
    fn of(zeros: usize, path: &[u8]) -> Self {
        let mut address = Self { family: AF_UNIX, path: [0; PATH_BYTES_MAX] };
        address.path[zeros..zeros + path.len()].copy_from_slice(path);
        address
    }
}

#[repr(C)]
struct Slice {
    address: usize,
    bytes: usize,
}

#[repr(C)]
struct Header {
    name: usize,
    name_bytes: u32,
    slices: *mut Slice,
    slices_count: usize,
    control: *mut Control,
    control_bytes: usize,
    flags: u32,
}

/// Ancillary data with at most [`FDS_MAX`] descriptors.
#[repr(C)]
struct Control {
    bytes: usize,
    level: i32,
    kind: i32,
    fds: [Fd; FDS_MAX],
}
const CONTROL_HEADER_BYTES: usize = 16;

/// Repeats a call that a signal (a stop and continue, for one) interrupted.
fn uninterrupted(mut attempt: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match attempt() {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}

fn set_timeout(socket: Fd, option: usize, seconds: u64) -> Result<()> {
    let time = [seconds, 0];
    let arguments =
        [socket as usize, SOL_SOCKET as usize, option, &raw const time as usize, size_of_val(&time), 0];
    // SAFETY: the kernel reads the two words of `time`.
    unsafe { sys::call(sys::SETSOCKOPT, arguments) }.map(drop)
}

/// Connects to the agent's socket. Its number is above 2, so that it never takes the place of a standard stream that the program
/// was started without. Both directions time out.
///
/// In a sandbox the path may be hidden: then by the abstract name that the agent has, too, which goes as far as its network namespace does. Anybody may take such a name that nobody has, so the
/// other side has to be this user or root, and not one that this user namespace does not know.
pub(crate) fn connect(path: &[u8]) -> Result<Fd> {
    assert!(path.len() < PATH_BYTES_MAX, "the socket's path was checked when it was read");
    match connect_to(&Address::of(0, path), ADDRESS_BYTES) {
        Err(errno @ (Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES)) => {
            let abstract_bytes = size_of::<u16>() + 1 + path.len();
            let socket = match connect_to(&Address::of(1, path), abstract_bytes) {
                // Ours to mend, unlike whatever another user does with such a name.
                Err(want @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS)) => Err(want),
                Err(_) => Err(errno),
                reached => reached,
            }?;
            if is_trusted(socket) {
                return Ok(socket);
            }
            sys::close(socket);
            Err(errno)
        }
        answer => answer,
    }
}

/// All users that a user namespace does not know look like this one there, ourselves among them.
const NOBODY: u32 = 65_534;

/// Who listens at the other end is this user or root.
fn is_trusted(socket: Fd) -> bool {
    // Process, user, group.
    let mut credentials = [u32::MAX; 3];
    let mut bytes = size_of_val(&credentials) as u32;
    let arguments = [
        socket as usize,
        SOL_SOCKET as usize,
        SO_PEERCRED,
        credentials.as_mut_ptr() as usize,
        &raw mut bytes as usize,
        0,
    ];
    // SAFETY: the kernel writes at most `bytes` bytes to the credentials, and how many to `bytes`.
    let answer = unsafe { sys::call(sys::GETSOCKOPT, arguments) };
    let user = credentials[1];
    answer.is_ok() && (user == 0 || user == sys::geteuid() && user != NOBODY)
}

fn connect_to(address: &Address, address_bytes: usize) -> Result<Fd> {
    let low = sys::socket(AF_UNIX as usize, SOCK_SEQPACKET | SOCK_CLOEXEC)?;
    let socket = if low > 2 {
        low
    } else {
        let high = sys::duplicate_from(low, 3);
        sys::close(low);
        high?
    };
    let connected = set_timeout(socket, SO_RCVTIMEO, ANSWER_TIMEOUT_S)
        .and_then(|()| set_timeout(socket, SO_SNDTIMEO, ANSWER_TIMEOUT_S))
        .and_then(|()| {
            let arguments = [socket as usize, &raw const *address as usize, address_bytes, 0, 0, 0];
            // SAFETY: the kernel reads the address, which lives.
            uninterrupted(|| unsafe { sys::call(sys::CONNECT, arguments) })
        });
    match connected {
        Ok(_) => Ok(socket),
        Err(errno) => {
            sys::close(socket);
            Err(errno)
        }
    }
}

/// From here on a receive waits as long as it takes.
pub(crate) fn wait_without_limit(socket: Fd) -> Result<()> {
    set_timeout(socket, SO_RCVTIMEO, 0)
}

/// Sends a packet, with a descriptor if there is one to pass.
pub(crate) fn send<T: Packet>(socket: Fd, packet: &T, passed: Option<Fd>) -> Result<()> {
    let mut slice = Slice { address: &raw const *packet as usize, bytes: size_of::<T>() };
    let mut control = Control {
        bytes: CONTROL_HEADER_BYTES + size_of::<Fd>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        fds: [passed.unwrap_or(-1), -1, -1, -1],
    };
    let control_bytes = if passed.is_some() { size_of::<Control>() } else { 0 };
    let header = Header {
        name: 0,
        name_bytes: 0,
        slices: &raw mut slice,
        slices_count: 1,
        control: &raw mut control,
        control_bytes,
        flags: 0,
    };
    let arguments = [socket as usize, &raw const header as usize, MSG_NOSIGNAL, 0, 0, 0];
    // SAFETY: header, slice, control and packet live through the call; `Packet` has no padding to leak.
    let sent = uninterrupted(|| unsafe { sys::call(sys::SENDMSG, arguments) })?;
    if sent == size_of::<T>() { Ok(()) } else { Err(Errno::EPROTO) }
}

/// Receives a packet and the descriptors that came with it (close-on-exec). EPIPE: the agent has hung up.
pub(crate) fn receive<T: Packet>(socket: Fd) -> Result<(T, [Option<Fd>; FDS_MAX])> {
    receive_if(socket, |_, is_whole| is_whole)
}

/// The first answer. Of an agent of another version it may have another size; then it is good for its version alone, with which it begins in all of them, and the rest is zeros.
pub(crate) fn receive_welcome(socket: Fd) -> Result<(Welcome, [Option<Fd>; FDS_MAX])> {
    let mut came_whole = false;
    let (welcome, fds) = receive_if(socket, |welcome: &Welcome, is_whole| {
        came_whole = is_whole;
        is_whole || welcome.layout_version != 0 && welcome.layout_version != LAYOUT_VERSION
    })?;
    let of_another = Welcome { layout_version: welcome.layout_version, ..Welcome::default() };
    Ok((if came_whole { welcome } else { of_another }, fds))
}

fn receive_if<T: Packet>(
    socket: Fd,
    is_good: impl FnOnce(&T, bool) -> bool,
) -> Result<(T, [Option<Fd>; FDS_MAX])> {
    let mut packet = MaybeUninit::new(T::default());
    let mut slice = Slice { address: packet.as_mut_ptr() as usize, bytes: size_of::<T>() };
    let mut control = Control { bytes: 0, level: 0, kind: 0, fds: [-1; FDS_MAX] };
    let mut header = Header {
        name: 0,
        name_bytes: 0,
        slices: &raw mut slice,
        slices_count: 1,
        control: &raw mut control,
        control_bytes: size_of::<Control>(),
        flags: 0,
    };
    let arguments = [socket as usize, &raw mut header as usize, MSG_CMSG_CLOEXEC, 0, 0, 0];
    // SAFETY: the kernel writes at most the sizes that the header names, into memory that lives.
    let received = uninterrupted(|| unsafe { sys::call(sys::RECVMSG, arguments) })?;
    let mut fds = [None; FDS_MAX];
    if header.control_bytes > CONTROL_HEADER_BYTES
        && (control.level, control.kind) == (SOL_SOCKET, SCM_RIGHTS)
    {
        let count = control.bytes.saturating_sub(CONTROL_HEADER_BYTES) / size_of::<Fd>();
        for (slot, fd) in fds.iter_mut().zip(control.fds).take(count) {
            *slot = Some(fd);
        }
    }
    // SAFETY: initialised above, and every bit pattern is valid for a `Packet`.
    let packet = unsafe { packet.assume_init() };
    let is_whole = received == size_of::<T>() && header.flags & (MSG_CTRUNC | MSG_TRUNC) == 0;
    if received > 0 && is_good(&packet, is_whole) {
        return Ok((packet, fds));
    }
    fds.into_iter().flatten().for_each(sys::close);
    Err(if received == 0 { Errno::EPIPE } else { Errno::EPROTO })
}

/// A bell rings: waits for the agent's next doorbell byte. EPIPE: the agent has died.
pub(crate) fn wait_for_bell(socket: Fd) -> Result<()> {
    let mut bytes = [0_u8; 64];
    let arguments = [socket as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: at most `bytes.len()` bytes are written to `bytes`.
    let received = uninterrupted(|| unsafe { sys::call(sys::RECVFROM, arguments) })?;
    if received == 0 { Err(Errno::EPIPE) } else { Ok(()) }
}

/// Rings the agent's bell. A full socket is as good as a ring: the agent has bells to hear.
pub(crate) fn ring(socket: Fd) -> Result<()> {
    let byte = [1_u8];
    let arguments = [socket as usize, byte.as_ptr() as usize, 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0];
    // SAFETY: one byte is read from `byte`.
    match uninterrupted(|| unsafe { sys::call(sys::SENDTO, arguments) }) {
        Ok(_) | Err(Errno::EAGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// True once the agent has hung up.
pub(crate) fn hung_up(socket: Fd) -> bool {
    const POLLERR_POLLHUP: u16 = 0x08 | 0x10;
    #[repr(C)]
    struct Polled {
        fd: Fd,
        events: u16,
        answer: u16,
    }
    let mut polled = Polled { fd: socket, events: 0, answer: 0 };
    // SAFETY: one structure is read and written, and it lives; the time to wait is 0.
    let answer = unsafe { sys::call(sys::POLL, [&raw mut polled as usize, 1, 0, 0, 0, 0]) };
    matches!(answer, Ok(1)) && polled.answer & POLLERR_POLLHUP != 0
}

/// How long a call may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// [`ANSWER_TIMEOUT_S`].
    Limited,
    /// As long as the agent lives: it may have gigabytes to bring home.
    WhileTheAgentLives,
}

/// One request on a connection of its own, from any thread. Leaves nothing open.
pub(crate) fn call_agent(path: &[u8], request: &Call, patience: Patience) -> Result<()> {
    call_agent_for_fd(path, request, patience)?.into_iter().for_each(sys::close);
    Ok(())
}

/// As [`call_agent`], with the descriptor that came with the answer, if one did.
pub(crate) fn call_agent_for_fd(path: &[u8], request: &Call, patience: Patience) -> Result<Option<Fd>> {
    let socket = match connect(path) {
        Err(Errno::EMFILE) => {
            let _room = Room::new();
            connect(path)
        }
        answer => answer,
    }?;
    let hello =
        Hello { layout_version: LAYOUT_VERSION, role: role::CALL, pid: sys::getpid(), ..Hello::default() };
    let reply = send(socket, &hello, None)
        .and_then(|()| send(socket, request, None))
        .and_then(|()| match patience {
            Patience::Limited => Ok(()),
            Patience::WhileTheAgentLives => wait_without_limit(socket),
        })
        .and_then(|()| receive::<CallReply>(socket));
    sys::close(socket);
    let (reply, [first, more @ ..]) = reply?;
    more.into_iter().flatten().for_each(sys::close);
    if reply.status == 0 {
        return Ok(first);
    }
    first.into_iter().for_each(sys::close);
    Err(Errno(reply.status.min(4095) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    const LISTEN: &str = r"
import os, socket, sys
if sys.argv[1] != '0': os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind('\0' + sys.argv[2])
listener.listen()
os.write(1, b'1')
os.read(0, 1)";

    /// As the user `uid`; 0: as who runs the test.
    fn reach_one_of(uid: u32) -> Result<()> {
        let path = format!("/nowhere/loam-{uid}/agent-{}.sock", std::process::id());
        let mut other = Command::new("python3");
        other.args(["-c", LISTEN, &uid.to_string(), &path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut other = other.process_group(0).spawn().unwrap();
        other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let reached = connect(path.as_bytes()).map(sys::close);
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        reached
    }

    #[test]
    fn an_abstract_name_is_taken_from_this_user_alone_or_root() {
        assert_eq!(reach_one_of(0), Ok(()));
        if sys::geteuid() != 0 {
            println!("passed over: only root can be another user");
            return;
        }
        assert_eq!(reach_one_of(65_534), Err(Errno::ENOENT));
        assert_eq!(connect(b"/nowhere/loam/agent-1.sock"), Err(Errno::ENOENT), "nobody is there");
    }
}
