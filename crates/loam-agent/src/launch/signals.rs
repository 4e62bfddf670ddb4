//! Signals that reach `loam run`: read from a descriptor, and passed on where the program would have got them.
//!
//! The program is in our process group, so what the terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z, a new window size) it
//! has got already: passing that on would deliver it twice. What somebody sends to `loam run` with kill(2) was
//! meant for the program, which does not get it otherwise: that is passed on. The exception is what comes from
//! inside the tree (`kill 0` in a trap): its sender has reached the program by itself, and an answer to each answer
//! would never end.

use super::LaunchError;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// Signals that are read from the descriptor.
const READ: [i32; 10] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];
/// Signals that are held back and never looked at: the program's writing to or reading from the terminal in the
/// background must stop us when it has stopped the program ([`stop_with`]), not before.
const HELD: [i32; 2] = [libc::SIGTTIN, libc::SIGTTOU];

/// What to do about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Children have changed: [`super::reap`].
    Reap,
    /// Send it to the program: [`forward`].
    Forward(i32),
    /// Nothing: the program has it.
    Nothing,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Which.
    pub(crate) signal: i32,
    /// Sent by a process (kill, sigqueue, tgkill), not by the kernel.
    pub(crate) by_process: bool,
    /// That process; `None` if it is not ours to see.
    pub(crate) sender: Option<Pid>,
}

impl Received {
    /// What to do about it. `is_inside` says whether a process belongs to the program's tree; it is asked only when
    /// needed.
    pub(crate) fn action(&self, is_inside: impl FnOnce(Pid) -> bool) -> Action {
        if self.signal == libc::SIGCHLD {
            return Action::Reap;
        }
        let forward = if self.by_process {
            !self.sender.is_some_and(is_inside)
        } else {
            // When a terminal goes away the kernel tells the session's leader alone.
            let own = rustix::process::getpid();
            matches!(self.signal, libc::SIGHUP | libc::SIGCONT) && rustix::process::getsid(None) == Ok(own)
        };
        if forward { Action::Forward(self.signal) } else { Action::Nothing }
    }
}

/// The signals of this thread, blocked and readable; as they were again when dropped.
pub(crate) struct Signals {
    fd: OwnedFd,
    inherited: Inherited,
}

/// What the program is to find: what we found.
#[derive(Clone, Copy)]
pub(super) struct Inherited {
    mask: libc::sigset_t,
    /// SIGCHLD was ignored. We cannot: the kernel would reap our children by itself.
    child_ignored: bool,
}

impl Signals {
    /// Blocks the signals and opens the descriptor. Threads made later inherit the mask; ones made before would
    /// still be hit, so this comes first.
    ///
    /// # Errors
    /// [`LaunchError::Signals`].
    pub(crate) fn block() -> Result<Self, LaunchError> {
        let (read, all) = (set_of(&READ), set_of(&[&READ[..], &HELD].concat()));
        // SAFETY: a signal set is plain data; the call fills it.
        let mut mask = unsafe { std::mem::zeroed() };
        // SAFETY: both sets live through the call.
        let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut mask) };
        if errno != 0 {
            let errno = Errno::from_raw_os_error(errno);
            return Err(LaunchError::Signals { call: "pthread_sigmask", errno });
        }
        // SAFETY: sets the default action, which runs no code of ours.
        let child_ignored = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_IGN;
        let inherited = Inherited { mask, child_ignored };
        // SAFETY: the set lives through the call; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const read, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if raw < 0 {
            let error = std::io::Error::last_os_error();
            let _ = inherited.restore();
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            return Err(LaunchError::Signals { call: "signalfd", errno });
        }
        // SAFETY: the kernel has just put this descriptor into our table; nobody else knows its number.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) }, inherited })
    }

    /// Readable when a signal has come; for epoll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal, `None` if there is none now.
    ///
    /// # Errors
    /// As `read` says.
    pub(crate) fn read(&self) -> Result<Option<Received>, LaunchError> {
        // SAFETY: plain data for which zeros are valid.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let bytes = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the structure has `bytes` bytes, and whatever is in them is valid.
            let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), bytes) };
            if got == bytes as isize {
                break;
            }
            let error = std::io::Error::last_os_error();
            assert!(got < 0, "signalfd gave {got} bytes");
            match Errno::from_io_error(&error).unwrap_or(Errno::INVAL) {
                Errno::AGAIN => return Ok(None),
                Errno::INTR => {}
                errno => return Err(LaunchError::Signals { call: "reading signals", errno }),
            }
        }
        let by_process = matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
        // 0: a process outside of our process namespace.
        let sender = i32::try_from(info.ssi_pid).ok().and_then(Pid::from_raw).filter(|_| by_process);
        Ok(Some(Received { signal: info.ssi_signo as i32, by_process, sender }))
    }

    pub(super) fn inherited(&self) -> Inherited {
        self.inherited
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.inherited.restore();
    }
}

impl Inherited {
    /// Puts things back. Called between fork and exec too: system calls only.
    pub(super) fn restore(&self) -> std::io::Result<()> {
        if self.child_ignored {
            // SAFETY: sets an action that runs no code of ours.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        // SAFETY: the set was filled by the kernel and lives through the call.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut()) }
        {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a signal set is plain data; it is emptied before its use, and the numbers are constants of libc.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            assert_eq!(libc::sigaddset(&raw mut set, *signal), 0, "no signal {signal}");
        }
        set
    }
}

/// Sends a signal to the program. One that has ended needs none.
pub(crate) fn forward(program: Pid, signal: i32) {
    let signal = Signal::from_named_raw(signal).expect("one of the signals that are read");
    let _ = rustix::process::kill_process(program, signal);
}

/// To be called when the program was stopped by `signal`: stops this process as well if that was the terminal's doing
/// (Ctrl-Z, reading in the background), so that the shell sees its job stopped; returns when the job is continued,
/// true if it was stopped. Not for SIGSTOP, which is aimed at one process: the rest of the tree goes on and needs
/// us.
///
/// Not earlier than the program: it may want its memory to put the terminal in order before it stops.
pub(crate) fn stop_with(program: Pid, signal: i32) -> bool {
    let by_terminal = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
    // In a group of its own it is the terminal's job no longer together with us.
    if !by_terminal || rustix::process::getpgid(Some(program)) != rustix::process::getpgid(None) {
        return false;
    }
    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).is_ok()
}
