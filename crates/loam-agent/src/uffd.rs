//! A userfaultfd of a borrowing process: events out of it, pages into it.
//!
//! What is easy to get wrong is settled here: a copy that stopped half-way, the errors that mean "later", "already
//! there" and "gone", and the descriptor of a forked child, which is a bare number in the message until it is
//! wrapped.

use crate::delays;
use linux_raw_sys::general::{
    _UFFDIO_POISON, UFFD_API, UFFD_EVENT_FORK, UFFD_EVENT_PAGEFAULT, UFFD_EVENT_REMAP, UFFD_EVENT_REMOVE,
    UFFD_EVENT_UNMAP, UFFD_PAGEFAULT_FLAG_WP, UFFDIO, UFFDIO_COPY_MODE_DONTWAKE,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffd_msg, uffdio_api, uffdio_copy, uffdio_poison,
    uffdio_range, uffdio_register, uffdio_writeprotect,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_WRITEPROTECT,
};
use loam_core::units::BASE_PAGE_BYTES;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;

/// `_IOWR(UFFDIO, nr, bytes)`: the header crate has no constants for the newest calls.
const fn iowr(nr: u32, bytes: usize) -> u32 {
    (3 << 30) | ((bytes as u32) << 16) | (UFFDIO << 8) | nr
}
/// Install a poison marker (Linux 6.6).
const UFFDIO_POISON: u32 = iowr(_UFFDIO_POISON, size_of::<uffdio_poison>());
/// Protect; else: let write. (The header crate lacks it.)
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
/// `_IO(UFFDIO, 0)`: a new userfaultfd from the open device; the argument is the descriptor's flags.
const USERFAULTFD_IOC_NEW: u32 = UFFDIO << 8;
/// Where userfaultfd is had without a capability.
const DEVICE: &str = "/dev/userfaultfd";

const _: () = assert!(size_of::<uffd_msg>() == MSG_BYTES);
/// Bytes of one message.
const MSG_BYTES: usize = 32;
/// One message as it is read: room for [`Uffd::read_events`].
pub(crate) type RawMsg = [u8; MSG_BYTES];

/// A call on a userfaultfd that was refused.
#[derive(Debug, thiserror::Error)]
#[error("userfaultfd: {call} was refused ({errno}): {hint}")]
pub(crate) struct UffdError {
    /// The call.
    pub(crate) call: &'static str,
    /// Why.
    pub(crate) errno: Errno,
    /// What to do.
    hint: &'static str,
}

impl UffdError {
    fn new(call: &'static str, errno: Errno) -> Self {
        let hint = match errno {
            Errno::PERM | Errno::ACCESS | Errno::NOENT | Errno::NOSYS => {
                "`loam doctor` says which permission is missing"
            }
            Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
                "out of kernel memory or descriptors: raise the limit"
            }
            Errno::INVAL => "the kernel or the mapping does not support it: see `loam doctor`",
            Errno::SRCH => "the program has ended",
            _ => "see `loam doctor`",
        };
        Self { call, errno, hint }
    }
}

/// Why an install stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The program's mappings are changing: read all events, then try again.
    Again,
    /// A page is there already. Nobody has been woken for it: wake.
    Exists,
    /// The mapping or the program is gone.
    Gone,
    /// Anything else.
    Other(Errno),
}

impl Stop {
    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Again,
            Errno::EXIST => Self::Exists,
            Errno::NOENT | Errno::SRCH => Self::Gone,
            other => Self::Other(other),
        }
    }
}

/// What an install did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOutcome {
    /// Bytes installed, from the start of the range on.
    pub(crate) copied_bytes: usize,
    /// Why it did not go on. `None`: everything is installed.
    pub(crate) error: Option<Stop>,
}

/// What happened in the program.
#[derive(Debug)]
pub(crate) enum Event {
    /// A thread waits for a page.
    Fault {
        /// The base page's address.
        address: u64,
        /// The page is there, and write-protected: it waits to write.
        writes: bool,
        /// Its id, or 0 where `UFFD_FEATURE_THREAD_ID` is off.
        tid: u32,
    },
    /// The program forked: the child's own descriptor, already made nonblocking. It inherits the API call and the
    /// registered ranges.
    Fork {
        /// The child's.
        uffd: Uffd,
    },
    /// A mapping moved.
    Remap {
        /// Its old address.
        from: u64,
        /// Its new one.
        to: u64,
        /// Its length.
        bytes: u64,
    },
    /// Contents were discarded (`MADV_DONTNEED` and the like); the mapping stays.
    Remove {
        /// First address.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// A mapping went away.
    Unmap {
        /// First address.
        start: u64,
        /// One past the last.
        end: u64,
    },
}

/// Ways to register a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Report pages that are not there.
    Missing,
    /// Both: pages that are not there, and writes to protected ones.
    Pages,
    /// Report writes to protected pages.
    WriteProtect,
}

/// A userfaultfd, nonblocking.
#[derive(Debug)]
pub(crate) struct Uffd {
    fd: OwnedFd,
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens `/dev/userfaultfd`: whoever is given this descriptor can make a userfaultfd of its own from it, which also
/// serves faults raised inside system calls, without any capability.
///
/// # Errors
/// As `open` says.
pub(crate) fn open_device() -> Result<OwnedFd, UffdError> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| UffdError::new("opening /dev/userfaultfd", errno))
}

impl Uffd {
    /// A userfaultfd for this process from [`open_device`]'s descriptor.
    ///
    /// # Errors
    /// As the ioctl says.
    pub(crate) fn from_device(device: BorrowedFd<'_>) -> Result<Self, UffdError> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: this ioctl takes its flags by value and touches no memory of ours.
        let raw = unsafe { libc::ioctl(device.as_raw_fd(), u64::from(USERFAULTFD_IOC_NEW), flags) };
        if raw < 0 {
            return Err(UffdError::new("USERFAULTFD_IOC_NEW", last_errno()));
        }
        // SAFETY: the kernel has just put this descriptor into our table; nobody else knows its number.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// A userfaultfd for this process by the system call, which needs `CAP_SYS_PTRACE` or the sysctl
    /// `vm.unprivileged_userfaultfd`.
    ///
    /// # Errors
    /// As the call says.
    pub(crate) fn from_syscall() -> Result<Self, UffdError> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes its flags by value and touches no memory of ours.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if raw < 0 {
            return Err(UffdError::new("userfaultfd", last_errno()));
        }
        // SAFETY: the kernel has just put this descriptor into our table; nobody else knows its number.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw as i32) } })
    }

    /// The program behind it has ended or has left its memory: nobody will fault here any more. `probe` is the address
    /// of a registered base page.
    pub(crate) fn is_dead(&self, probe: u64) -> bool {
        self.copy_of_nothing(probe) == Some(Errno::SRCH)
    }

    /// An event that changes mappings, or copies them for a child, is unread, or its thread has not heard yet that it was read. While this says
    /// no, there was none since the last that was read.
    pub(crate) fn is_changing(&self, probe: u64) -> bool {
        self.copy_of_nothing(probe) == Some(Errno::AGAIN)
    }

    /// How the kernel refuses to copy from nowhere: it looks for changes first, then for the program's memory, then at the source.
    fn copy_of_nothing(&self, probe: u64) -> Option<Errno> {
        /// Below every program, and above what the kernel refuses at once: a copy from here reads nothing and so installs nothing.
        const NOWHERE: u64 = 0x1_0000;
        let mut arg = uffdio_copy { dst: probe, src: NOWHERE, len: BASE_PAGE_BYTES as u64, mode: 0, copy: 0 };
        self.ioctl(UFFDIO_COPY, &mut arg).err()
    }

    /// Takes a descriptor that a program sent, if it is a userfaultfd: what is read from one is believed, down to
    /// descriptor numbers, so nothing else may pass for it.
    ///
    /// # Errors
    /// `EINVAL`: something else. Or its flags cannot be set.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<Self, UffdError> {
        // The kernel's name for it. Paths begin with a slash, so no file can have this one.
        let name = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())
            .map_err(|errno| UffdError::new("looking at a descriptor in /proc/self/fd", errno))?;
        if name.as_bytes() != b"anon_inode:[userfaultfd]" {
            return Err(UffdError::new("taking a descriptor that is no userfaultfd", Errno::INVAL));
        }
        Self::from_kernel(fd)
    }

    /// A descriptor that is known to be a userfaultfd. It is made nonblocking: a blocking one cannot be polled
    /// (`POLLERR`).
    fn from_kernel(fd: OwnedFd) -> Result<Self, UffdError> {
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| UffdError::new("F_GETFL", errno))?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
            .map_err(|errno| UffdError::new("F_SETFL", errno))?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|errno| UffdError::new("F_SETFD", errno))?;
        Ok(Self { fd })
    }

    /// The first call on a new descriptor; turns on `features` (all of them or none) and says which the kernel knows.
    ///
    /// # Errors
    /// `EINVAL`: a feature that the kernel does not know. `EPERM`: fork events without the capability. The
    /// descriptor can be asked again with fewer.
    pub(crate) fn api(&self, features: u64) -> Result<u64, UffdError> {
        let mut arg = uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
        self.ioctl(UFFDIO_API, &mut arg).map_err(|errno| UffdError::new("UFFDIO_API", errno))?;
        assert_eq!(
            arg.features & features,
            features,
            "the kernel said yes to features that it does not list"
        );
        Ok(arg.features)
    }

    /// Registers a range: from now on its faults are ours. Answers the bit set of calls that it supports.
    ///
    /// # Errors
    /// `EBUSY`: the range belongs to another userfaultfd. `EINVAL`: not mapped, or a kind of mapping that is not
    /// supported.
    pub(crate) fn register(&self, range: Range<u64>, mode: Watch) -> Result<u64, UffdError> {
        let mode = match mode {
            Watch::Missing => UFFDIO_REGISTER_MODE_MISSING,
            Watch::Pages => UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
            Watch::WriteProtect => UFFDIO_REGISTER_MODE_WP,
        };
        let mut arg = uffdio_register { range: uffdio(&range), mode: u64::from(mode), ioctls: 0 };
        self.ioctl(UFFDIO_REGISTER, &mut arg).map_err(|errno| UffdError::new("UFFDIO_REGISTER", errno))?;
        Ok(arg.ioctls)
    }

    /// Lets a range go. Missing pages in it read as **zeros** from now on: only for ranges with nothing away.
    /// Threads that wait in the range are woken.
    ///
    /// # Errors
    /// As the ioctl says.
    pub(crate) fn unregister(&self, range: Range<u64>) -> Result<(), UffdError> {
        let mut arg = uffdio(&range);
        self.ioctl(UFFDIO_UNREGISTER, &mut arg).map_err(|errno| UffdError::new("UFFDIO_UNREGISTER", errno))
    }

    /// Installs `bytes` bytes from `src` at `address`, and wakes the threads that wait there unless `dontwake`.
    ///
    /// `src` is read by the kernel only, which checks it: a bad pointer is an error (`EFAULT`), never undefined
    /// behaviour, and memory that another process writes meanwhile is as good as any.
    ///
    /// When the kernel stops half-way it says how far it came but not why, so the rest is asked for again: that
    /// call, having done nothing, tells the reason. Each round makes progress or is the last.
    pub(crate) fn copy(&self, address: u64, src: *const u8, bytes: usize, dontwake: bool) -> CopyOutcome {
        check_range(address, bytes);
        let mode = if dontwake { u64::from(UFFDIO_COPY_MODE_DONTWAKE) } else { 0 };
        install(bytes, |done_bytes| {
            let mut arg = uffdio_copy {
                dst: address + done_bytes as u64,
                src: src.addr() as u64 + done_bytes as u64,
                len: (bytes - done_bytes) as u64,
                mode,
                copy: 0,
            };
            let result = self.ioctl(UFFDIO_COPY, &mut arg);
            (result, arg.copy)
        })
    }

    /// Marks missing pages as lost: whoever touches them gets SIGBUS. Wakes who waits there.
    pub(crate) fn poison(&self, address: u64, bytes: usize) -> CopyOutcome {
        check_range(address, bytes);
        install(bytes, |done_bytes| {
            let start = address + done_bytes as u64;
            let range = uffdio_range { start, len: (bytes - done_bytes) as u64 };
            let mut arg = uffdio_poison { range, mode: 0, updated: 0 };
            let result = self.ioctl(UFFDIO_POISON, &mut arg);
            (result, arg.updated)
        })
    }

    /// Protects what pages of the range are there, so that writing to them is reported; or lets them be written, and wakes who waits there.
    ///
    /// # Errors
    /// [`Stop::Again`]: the program's mappings are changing. [`Stop::Gone`]: not all of the range is registered, or the program has ended.
    pub(crate) fn write_protect(&self, range: Range<u64>, protect: bool) -> Result<(), Stop> {
        let mode = if protect { UFFDIO_WRITEPROTECT_MODE_WP } else { 0 };
        let mut arg = uffdio_writeprotect { range: uffdio(&range), mode };
        self.ioctl(UFFDIO_WRITEPROTECT, &mut arg).map_err(Stop::from_errno)
    }

    /// Wakes the threads that wait for pages of the range; each touches its page again.
    ///
    /// # Errors
    /// As the ioctl says.
    pub(crate) fn wake(&self, range: Range<u64>) -> Result<(), UffdError> {
        let mut arg = uffdio(&range);
        self.ioctl(UFFDIO_WAKE, &mut arg).map_err(|errno| UffdError::new("UFFDIO_WAKE", errno))
    }

    /// Reads as many events as there are and fit into `raw`, and adds them to `events` in their order. 0: there are
    /// none now.
    ///
    /// # Errors
    /// As `read` says.
    pub(crate) fn read_events(
        &self,
        raw: &mut [RawMsg],
        events: &mut impl Extend<Event>,
    ) -> Result<usize, UffdError> {
        delays::maybe(24);
        let got_bytes = loop {
            match rustix::io::read(&self.fd, raw.as_flattened_mut()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(UffdError::new("read", errno)),
                Ok(bytes) => break bytes,
            }
        };
        assert_eq!(got_bytes % MSG_BYTES, 0, "userfaultfd gave part of a message");
        let count = got_bytes / MSG_BYTES;
        delays::maybe(24);
        events.extend(raw[..count].iter().map(|msg| {
            // SAFETY: the message came out of the read above and is decoded once.
            unsafe { decode(msg) }
        }));
        Ok(count)
    }

    fn ioctl<T>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        // Registrations are few.
        let one_in = if request == UFFDIO_REGISTER { 2 } else { 24 };
        delays::maybe(one_in);
        // SAFETY: every caller above pairs the request with the kernel's structure for it, which lives through the
        // call. What the call does to memory is confined to ranges registered with userfaultfd, which Rust code
        // never refers to, or only reads (the source of a copy).
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), u64::from(request), std::ptr::from_mut(arg)) };
        let answer = if result < 0 { Err(last_errno()) } else { Ok(()) };
        delays::maybe(one_in);
        answer
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).expect("a system call failed without an errno")
}

fn uffdio(range: &Range<u64>) -> uffdio_range {
    assert!(range.start < range.end, "an empty range for userfaultfd");
    assert!(
        (range.start | range.end).is_multiple_of(BASE_PAGE_BYTES as u64),
        "a range that is not of base pages"
    );
    uffdio_range { start: range.start, len: range.end - range.start }
}

fn check_range(address: u64, bytes: usize) {
    assert!(bytes > 0, "an empty range for userfaultfd");
    assert!(
        address.is_multiple_of(BASE_PAGE_BYTES as u64) && bytes.is_multiple_of(BASE_PAGE_BYTES),
        "a range that is not of base pages"
    );
}

/// Repeats `step(bytes done so far) -> (result, bytes of this step or -errno)` until all is done or a step does
/// nothing.
fn install(bytes: usize, mut step: impl FnMut(usize) -> (Result<(), Errno>, i64)) -> CopyOutcome {
    let mut done_bytes = 0;
    loop {
        let (result, progress_bytes) = step(done_bytes);
        if let Ok(progress_bytes) = usize::try_from(progress_bytes) {
            assert!(progress_bytes <= bytes - done_bytes, "the kernel installed more than it was asked to");
            done_bytes += progress_bytes;
        }
        match result {
            Ok(()) => {
                assert_eq!(done_bytes, bytes, "the kernel said that all is installed, and it is not");
                return CopyOutcome { copied_bytes: done_bytes, error: None };
            }
            // Stopped half-way: the errno (EAGAIN) is about that, not about the cause.
            Err(_) if progress_bytes > 0 => {}
            Err(errno) => {
                return CopyOutcome { copied_bytes: done_bytes, error: Some(Stop::from_errno(errno)) };
            }
        }
    }
}

/// # Safety
/// `msg` was read from a userfaultfd by this process and is decoded only once: a fork message holds a descriptor.
unsafe fn decode(msg: &RawMsg) -> Event {
    // `struct uffd_msg`: the kind in the first byte, from byte 8 on three words whose meaning depends on it.
    let word = |index: usize| -> u64 {
        u64::from_ne_bytes(msg[8 * index..8 * index + 8].try_into().expect("eight bytes"))
    };
    match u32::from(msg[0]) {
        UFFD_EVENT_PAGEFAULT => {
            let writes = word(1) & u64::from(UFFD_PAGEFAULT_FLAG_WP) != 0;
            Event::Fault { address: word(2) & !(BASE_PAGE_BYTES as u64 - 1), writes, tid: word(3) as u32 }
        }
        UFFD_EVENT_FORK => {
            // SAFETY: the kernel put the child's descriptor into our table while we read, and by the contract
            // nobody has taken it yet.
            let fd = unsafe { OwnedFd::from_raw_fd(word(1) as u32 as i32) };
            Event::Fork {
                uffd: Uffd::from_kernel(fd).expect("flags of the descriptor that the kernel just gave us"),
            }
        }
        UFFD_EVENT_REMAP => Event::Remap { from: word(1), to: word(2), bytes: word(3) },
        UFFD_EVENT_REMOVE => Event::Remove { start: word(1), end: word(2) },
        UFFD_EVENT_UNMAP => Event::Unmap { start: word(1), end: word(2) },
        // Only kinds that UFFDIO_API turned on are sent, and those are above.
        other => panic!("userfaultfd event of unknown kind {other}"),
    }
}

/// Held by tests that fork: while a userfaultfd reports forks, each fork of this process waits until it was read.
#[cfg(test)]
pub(crate) static FORKING: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
#[path = "uffd_tests.rs"]
mod tests;
