//! Joining the agent: the handshake of a started program and of a forked child.

use loam_hand::{
    BASE_PAGE_BYTES, Control, Hello, LAYOUT_VERSION, Ready, SHARED_BYTES, TRANSFER_BYTES, role, status,
};

use crate::connect::{self, FDS_MAX};
use crate::message::{self, Piece};
use crate::process::Place;
use crate::region::Files;
use crate::room::Room;
use crate::sys::map::{self, map, map_guarded, unmap};
use crate::sys::{self, Errno, Fd, Result};
use crate::{hand, process, region, userfault};

/// A limit on what the agent may ask for.
const WINDOW_BYTES_MAX: u64 = 64 << 20;

/// Why the process joins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Started,
    /// With what it found when it knocked ([`Hello::knock`]).
    Forked {
        knock: u64,
    },
}

impl Reason {
    fn role(self) -> u32 {
        match self {
            Reason::Started => role::STARTED,
            Reason::Forked { .. } => role::FORKED,
        }
    }
}

/// Why a process is not served.
pub(crate) enum Refusal {
    /// The agent does not want it, and has said so itself.
    ByAgent,
    /// A step that failed.
    Step { what: &'static [u8], errno: Errno },
    /// The agent is of another version.
    Version { agent: u32 },
}

impl Refusal {
    /// Says it, for a program that can do without.
    pub(crate) fn write_into(&self, line: &mut [u8]) {
        match *self {
            Refusal::ByAgent => message::write_into(
                line,
                &[Piece::Text(
                    b"the agent cannot serve this process, and has said why on stderr: see `loam doctor`",
                )],
            ),
            Refusal::Step { what, errno } => {
                let pieces =
                    [Piece::Text(what), Piece::Text(b" (error "), Piece::errno(errno), Piece::Text(b")")];
                message::write_into(line, &pieces);
            }
            Refusal::Version { agent } => message::write_into(line, &Self::versions(agent)),
        }
    }

    /// Ends a program that cannot.
    pub(crate) fn end_program(&self) -> ! {
        match *self {
            Refusal::ByAgent => sys::exit_group(message::EXIT_STATUS),
            Refusal::Step { what, errno } => message::exit_errno(what, errno),
            Refusal::Version { agent } => message::exit(&Self::versions(agent)),
        }
    }

    fn versions(agent: u32) -> [Piece<'static>; 5] {
        [
            Piece::Text(b"shim and agent are of different versions ("),
            Piece::Number(u64::from(LAYOUT_VERSION)),
            Piece::Text(b" and "),
            Piece::Number(u64::from(agent)),
            Piece::Text(b"): install Loam again"),
        ]
    }
}

fn failed(what: &'static [u8]) -> impl FnOnce(Errno) -> Refusal {
    move |errno| Refusal::Step { what, errno }
}

/// Joins the agent, or returns with the process not under Loam: where the agent has gone already, or wishes it so. Signals must be blocked.
pub(crate) fn join(reason: Reason) -> core::result::Result<(), Refusal> {
    process::set_under_loam(false);
    // Descriptors come with the agent's answers, and what there is no room for is lost.
    let _room = Room::new();
    let path = process::path();
    let socket = match connect::connect(path.bytes()) {
        Ok(socket) => socket,
        // Nobody is there any more, or is not to be seen: a program that starts now has nothing to lose.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ECONNREFUSED)
            if reason == Reason::Started =>
        {
            return Ok(());
        }
        Err(errno) => return Err(failed(UNREACHABLE)(errno)),
    };
    let mut made = Made::default();
    let joined = shake_hands(socket, reason, &mut made);
    sys::close(socket);
    made.close();
    if !matches!(joined, Ok(true)) {
        made.unmap();
    }
    process::set_under_loam(joined?);
    Ok(())
}

/// What was made on the way.
#[derive(Default)]
struct Made {
    /// Nobody needs them any more when the process has joined: the hand has its own.
    fds: [Option<Fd>; 2 * FDS_MAX + 1],
    /// Mappings: start and length.
    control: Option<(usize, usize)>,
    window: Option<(usize, usize)>,
}

impl Made {
    fn close(&mut self) {
        self.fds.iter_mut().filter_map(Option::take).for_each(sys::close);
    }

    /// The process is not served after all.
    fn unmap(&mut self) {
        for (start, bytes) in [self.control.take(), self.window.take()].into_iter().flatten() {
            // SAFETY: mapped by `shake_hands` just now, and nobody else uses them: there is no hand.
            unsafe { unmap(start, bytes) };
        }
        region::release();
    }
}

const UNREACHABLE: &[u8] = b"cannot reach the agent (loam run): a sandbox must show either its folder of sockets or this machine's network";
const NO_ANSWER: &[u8] = b"the agent (loam run) does not answer as it should";
const NO_MEMORY: &[u8] = b"no address space for the shim's own memory";
const NO_REGION: &[u8] = b"no address space for so large a --region: raise ulimit -v, or give less";
const NO_HAND: &[u8] = b"cannot start the shim's thread";

/// True: under Loam, the hand is at work.
fn shake_hands(socket: Fd, reason: Reason, made: &mut Made) -> core::result::Result<bool, Refusal> {
    let knock = if let Reason::Forked { knock } = reason { knock } else { 0 };
    let (layout_version, role) = (LAYOUT_VERSION, reason.role());
    let mut hello = Hello { layout_version, role, pid: sys::getpid(), knock, ..Hello::default() };
    connect::send(socket, &hello, None).map_err(failed(NO_ANSWER))?;
    let (welcome, came) = connect::receive_welcome(socket).map_err(failed(NO_ANSWER))?;
    made.fds[..FDS_MAX].copy_from_slice(&came);
    let [memory, second, third, fourth] = came;
    // A program that is not of its tree may run without it, whatever its version.
    let is_left_alone = reason == Reason::Started && welcome.status == status::RUN_WITHOUT;
    if welcome.layout_version != LAYOUT_VERSION && !is_left_alone {
        return Err(Refusal::Version { agent: welcome.layout_version });
    }
    if !goes_on(welcome.status)? {
        return Ok(false);
    }
    let sane = (TRANSFER_BYTES as u64..=WINDOW_BYTES_MAX).contains(&welcome.window_bytes)
        && welcome.window_bytes.is_multiple_of(BASE_PAGE_BYTES as u64);
    let (Some(memory), true) = (memory, sane && welcome.region.is_sane()) else {
        return Err(failed(NO_ANSWER)(Errno::EPROTO));
    };
    // A child has its parent's mappings, and is told who it is in the table.
    let is_direct = welcome.region.direct.chunk_bytes != 0;
    let (files, device) = match (is_direct && reason == Reason::Started, second, third) {
        (false, ..) => (None, second),
        (true, Some(table), Some(pool)) => (Some(Files { table, pool }), fourth),
        (true, ..) => return Err(failed(NO_ANSWER)(Errno::EPROTO)),
    };
    let is_forked = reason != Reason::Started;
    if is_forked {
        region::set_token(welcome.region.direct.token);
    }
    let window_bytes = welcome.window_bytes as usize;
    let has_fork_events = welcome.fork_events != 0;
    process::set_fork_events(has_fork_events);

    process::mark_own().map_err(failed(NO_MEMORY))?;
    let control = map_shared(memory).map_err(failed(NO_MEMORY))?;
    made.control = Some((control, SHARED_BYTES));
    let window = map_guarded(window_bytes, process::place(Place::Window)).map_err(failed(NO_MEMORY))?;
    let low = window - BASE_PAGE_BYTES;
    made.window = Some((low, window_bytes + 2 * BASE_PAGE_BYTES));
    own(low, window_bytes + 2 * BASE_PAGE_BYTES).map_err(failed(NO_MEMORY))?;
    process::set_place(Place::Window, low);
    process::set_window_bytes(window_bytes);
    if process::probe() == 0 {
        let probe = map_guarded(BASE_PAGE_BYTES, 0).map_err(failed(NO_MEMORY))?;
        // SAFETY: just mapped; its contents stay. A core dump has no use for it, and would touch it.
        let _ = unsafe { map::advise(probe, BASE_PAGE_BYTES, map::ADVICE_DONTDUMP) };
        process::set_probe(probe);
    }
    hello.region_address = region::reserve(&welcome.region, files).map_err(failed(NO_REGION))? as u64;
    // With fork events the kernel has made the child's userfaultfd already, and the agent has it.
    let opened = if is_forked && has_fork_events { None } else { Some(userfault::open(device)) };
    let own_userfaultfd = opened.and_then(Result::ok);
    made.fds[FDS_MAX] = own_userfaultfd;
    hello.window_address = window as u64;
    hello.window_bytes = window_bytes as u64;
    hello.probe_address = process::probe() as u64;
    hello.userfaultfd_errno = opened.and_then(Result::err).map_or(0, |errno| errno.0.unsigned_abs());
    connect::send(socket, &hello, own_userfaultfd).map_err(failed(NO_ANSWER))?;
    let (ready, more) = connect::receive::<Ready>(socket).map_err(failed(NO_ANSWER))?;
    made.fds[FDS_MAX + 1..].copy_from_slice(&more);
    let inherited = more[0];
    if !goes_on(ready.status)? {
        return Ok(false);
    }
    let userfaultfd = own_userfaultfd.or(inherited).ok_or(Errno::EPROTO).map_err(failed(NO_ANSWER))?;
    connect::wait_without_limit(socket).map_err(failed(NO_ANSWER))?;
    let start = hand::Start { control: control as *const Control, window, window_bytes, socket, userfaultfd };
    hand::start(&start).map_err(failed(NO_HAND))?;
    // SAFETY: mapped above, the agent has written it, and it stays for the life of the process.
    process::set_control(unsafe { &*(control as *const Control) });
    region::tell_called();
    Ok(true)
}

/// False: without Loam.
fn goes_on(answer: u32) -> core::result::Result<bool, Refusal> {
    match answer {
        status::GO_ON => Ok(true),
        status::RUN_WITHOUT => Ok(false),
        _ => Err(Refusal::ByAgent),
    }
}

/// The memory shared with the agent. A forked child gets its own.
fn map_shared(memory: Fd) -> Result<usize> {
    let hint = process::place(Place::Shared);
    // SAFETY: a new mapping where the kernel finds room; a hint replaces nothing.
    let address = unsafe { map(hint, SHARED_BYTES, map::PROTECTION_READ_WRITE, map::SHARED, memory) }?;
    if let Err(errno) = own(address, SHARED_BYTES) {
        // SAFETY: just mapped, and nobody else's.
        unsafe { unmap(address, SHARED_BYTES) };
        return Err(errno);
    }
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
