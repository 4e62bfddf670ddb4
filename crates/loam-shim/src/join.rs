//! Joining the agent: the handshake of a started program and of a forked child.

use loam_hand::{
    BASE_PAGE_BYTES, Control, Hello, LAYOUT_VERSION, Ready, SHARED_BYTES, TRANSFER_BYTES, Welcome, role,
    status,
};

use crate::connect::{self, FDS_MAX};
use crate::message::{self, Piece};
use crate::process::Place;
use crate::sys::map::{self, map, map_guarded, unmap};
use crate::sys::{self, Errno, Fd, Result};
use crate::{hand, process, region, userfault};

/// A limit on what the agent may ask for.
const WINDOW_BYTES_MAX: u64 = 64 << 20;

/// Why the process joins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Started,
    Forked,
}

impl Reason {
    fn role(self) -> u32 {
        match self {
            Reason::Started => role::STARTED,
            Reason::Forked => role::FORKED,
        }
    }
}

/// Joins the agent, or ends the program with a line, or (a started program whose agent has gone, or an agent that
/// wishes it so) returns with the process not under Loam. Signals must be blocked.
pub(crate) fn join(reason: Reason) {
    process::set_under_loam(false);
    let path = process::path();
    let socket = match connect::connect(path.bytes()) {
        Ok(socket) => socket,
        // Nobody is there any more: a program that starts now has nothing to lose.
        Err(Errno::ENOENT | Errno::ECONNREFUSED) if reason == Reason::Started => return,
        Err(errno) => message::exit_errno(b"cannot reach the agent (loam run)", errno),
    };
    let joined = shake_hands(socket, reason);
    sys::close(socket);
    match joined {
        Ok(under_loam) => process::set_under_loam(under_loam),
        Err(Failure { what, errno }) => message::exit_errno(what, errno),
    }
}

struct Failure {
    what: &'static [u8],
    errno: Errno,
}

fn failed(what: &'static [u8]) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure { what, errno }
}

const NO_ANSWER: &[u8] = b"the agent (loam run) does not answer as it should";
const NO_MEMORY: &[u8] = b"no address space for the shim's own memory";
const NO_REGION: &[u8] = b"no address space for so large a --region: raise ulimit -v, or give less";
const NO_HAND: &[u8] = b"cannot start the shim's thread";

/// True: under Loam, the hand is at work.
fn shake_hands(socket: Fd, reason: Reason) -> core::result::Result<bool, Failure> {
    let mut hello =
        Hello { layout_version: LAYOUT_VERSION, role: reason.role(), pid: sys::getpid(), ..Hello::default() };
    connect::send(socket, &hello, None).map_err(failed(NO_ANSWER))?;
    let (welcome, fds) = connect::receive::<Welcome>(socket).map_err(failed(NO_ANSWER))?;
    let [memory, device] = fds;
    if !goes_on(welcome.status) {
        close_all(fds);
        return Ok(false);
    }
    if welcome.layout_version != LAYOUT_VERSION {
        message::exit(&[
            Piece::Text(b"shim and agent are of different versions ("),
            Piece::Number(u64::from(LAYOUT_VERSION)),
            Piece::Text(b" and "),
            Piece::Number(u64::from(welcome.layout_version)),
            Piece::Text(b"): install Loam again"),
        ]);
    }
    let sane = (TRANSFER_BYTES as u64..=WINDOW_BYTES_MAX).contains(&welcome.window_bytes)
        && welcome.window_bytes.is_multiple_of(BASE_PAGE_BYTES as u64);
    let (Some(memory), true) = (memory, sane && welcome.region.is_sane()) else {
        return Err(Failure { what: NO_ANSWER, errno: Errno::EPROTO });
    };
    let window_bytes = welcome.window_bytes as usize;
    let has_fork_events = welcome.fork_events != 0;
    process::set_fork_events(has_fork_events);

    let control = map_shared(memory).map_err(failed(NO_MEMORY))?;
    let window = map_guarded(window_bytes, process::place(Place::Window)).map_err(failed(NO_MEMORY))?;
    let low = window - BASE_PAGE_BYTES;
    own(low, window_bytes + 2 * BASE_PAGE_BYTES).map_err(failed(NO_MEMORY))?;
    process::set_place(Place::Window, low);
    if process::probe() == 0 {
        process::set_probe(map_guarded(BASE_PAGE_BYTES, 0).map_err(failed(NO_MEMORY))?);
    }
    hello.region_address = region::reserve(&welcome.region).map_err(failed(NO_REGION))? as u64;
    // With fork events the kernel has made the child's userfaultfd already, and the agent has it.
    let made = if reason == Reason::Forked && has_fork_events { None } else { Some(userfault::open(device)) };
    let own_userfaultfd = made.and_then(Result::ok);
    hello.window_address = window as u64;
    hello.window_bytes = window_bytes as u64;
    hello.probe_address = process::probe() as u64;
    hello.userfaultfd_errno = made.and_then(Result::err).map_or(0, |errno| errno.0.unsigned_abs());
    connect::send(socket, &hello, own_userfaultfd).map_err(failed(NO_ANSWER))?;
    let (ready, [inherited, extra]) = connect::receive::<Ready>(socket).map_err(failed(NO_ANSWER))?;

    let goes_on = goes_on(ready.status);
    if goes_on {
        let userfaultfd =
            own_userfaultfd.or(inherited).ok_or(Failure { what: NO_ANSWER, errno: Errno::EPROTO })?;
        connect::wait_without_limit(socket).map_err(failed(NO_ANSWER))?;
        let start =
            hand::Start { control: control as *const Control, window, window_bytes, socket, userfaultfd };
        hand::start(&start).map_err(failed(NO_HAND))?;
        // SAFETY: mapped above, the agent has written it, and it stays for the life of the process.
        process::set_control(unsafe { &*(control as *const Control) });
        region::tell_called();
    } else {
        // SAFETY: both were mapped above and nobody else knows them: the agent has answered that it does not want them.
        unsafe {
            unmap(control, SHARED_BYTES);
            unmap(window - BASE_PAGE_BYTES, window_bytes + 2 * BASE_PAGE_BYTES);
        }
    }
    close_all([Some(memory), device]);
    close_all([own_userfaultfd, None]);
    close_all([inherited, extra]);
    Ok(goes_on)
}

/// False: without Loam. Does not return where the agent has ended the program.
fn goes_on(answer: u32) -> bool {
    match answer {
        status::GO_ON => true,
        status::RUN_WITHOUT => false,
        _ => sys::exit_group(message::EXIT_STATUS),
    }
}

fn close_all(fds: [Option<Fd>; FDS_MAX]) {
    fds.into_iter().flatten().for_each(sys::close);
}

/// The memory shared with the agent. A forked child gets its own.
fn map_shared(memory: Fd) -> Result<usize> {
    let hint = process::place(Place::Shared);
    // SAFETY: a new mapping where the kernel finds room; a hint replaces nothing.
    let address = unsafe { map(hint, SHARED_BYTES, map::PROTECTION_READ_WRITE, map::SHARED, memory) }?;
    own(address, SHARED_BYTES)?;
    process::set_place(Place::Shared, address);
    Ok(address)
}

/// The shim's own memory: not for a forked child, not for a core dump, in base pages.
pub(crate) fn own(address: usize, bytes: usize) -> Result<()> {
    // SAFETY: the callers pass what they have just mapped; none of this changes contents.
    unsafe {
        map::advise(address, bytes, map::ADVICE_DONTFORK)?;
        map::advise(address, bytes, map::ADVICE_DONTDUMP)?;
        // A kernel without large pages answers EINVAL, and needs no advice.
        let _ = map::advise(address, bytes, map::ADVICE_NOHUGEPAGE);
    }
    Ok(())
}
