//! What this kernel allows this user to do with page faults: asked by trying, not by version numbers.
//!
//! `loam doctor` prints the answers. Everything here works on memory of its own and leaves nothing behind.

use linux_raw_sys::general::{
    UFFD_API, UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE,
    UFFD_FEATURE_EVENT_UNMAP, UFFD_FEATURE_MOVE, UFFD_FEATURE_POISON, UFFDIO_REGISTER_MODE_MISSING,
    pm_scan_arg, uffdio_api, uffdio_move, uffdio_range, uffdio_register,
};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags};
use std::ffi::c_void;

/// Group letter of every userfaultfd ioctl.
const GROUP: u8 = 0xAA;
/// Bytes of one base page.
const PAGE_BYTES: usize = loam_core::units::BASE_PAGE_BYTES;
/// Events that a borrower cannot do without, fork aside.
pub(crate) const EVENTS_WITHOUT_FORK: u64 =
    (UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP) as u64;

/// How a userfaultfd that also sees faults raised inside system calls was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `/dev/userfaultfd`, by the rights of that file.
    Device,
    /// The system call: `CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd = 1`.
    Syscall,
}

/// What [`userfaultfd`] found out.
#[derive(Clone, Debug)]
pub struct UserfaultProbe {
    /// Opening `/dev/userfaultfd`.
    pub device: Result<(), Errno>,
    /// Making the system call.
    pub syscall: Result<(), Errno>,
    /// Features that the kernel knows (`UFFD_FEATURE_*`), 0 if no descriptor could be had.
    pub features: u64,
    /// Asking for fork events: `EPERM` where the capability is missing.
    pub fork_events: Result<(), Errno>,
    /// Moving one page from one mapping of this process to another.
    pub move_page: Result<(), Errno>,
}

impl UserfaultProbe {
    /// Whether some way gives a descriptor that this program may use.
    pub fn source(&self) -> Option<Source> {
        match (self.device, self.syscall) {
            (Ok(()), _) => Some(Source::Device),
            (_, Ok(())) => Some(Source::Syscall),
            _ => None,
        }
    }

    /// Whether the kernel knows `UFFDIO_MOVE` (Linux 6.8).
    pub fn has_move(&self) -> bool {
        self.features & u64::from(UFFD_FEATURE_MOVE) != 0
    }

    /// Whether the kernel knows `UFFDIO_POISON` (Linux 6.6).
    pub fn has_poison(&self) -> bool {
        self.features & u64::from(UFFD_FEATURE_POISON) != 0
    }

    /// Whether the kernel reports every change of mappings that a borrower must know of.
    pub fn has_events(&self) -> bool {
        let wanted = EVENTS_WITHOUT_FORK | u64::from(UFFD_FEATURE_EVENT_FORK);
        self.features & wanted == wanted
    }
}

/// Opens a userfaultfd that has not yet agreed on its features.
pub(crate) fn open(source: Source) -> Result<OwnedFd, Errno> {
    match source {
        Source::Device => {
            let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            new_from_device(device.as_fd())
        }
        // SAFETY: the descriptor only ever serves memory that this module (or `floor`) mapped for itself.
        Source::Syscall => unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC) },
    }
}

/// `USERFAULTFD_IOC_NEW` takes its flags as the argument itself and answers with the descriptor.
struct NewDescriptor;

// SAFETY: the opcode takes an integer, not a pointer, and the kernel's answer is a fresh descriptor of ours.
unsafe impl ioctl::Ioctl for NewDescriptor {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> ioctl::Opcode {
        ioctl::opcode::none(GROUP, 0)
    }
    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(UserfaultfdFlags::CLOEXEC.bits() as usize)
    }
    unsafe fn output_from_ptr(out: ioctl::IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        assert!(out >= 0, "the kernel answered success with a negative descriptor");
        // SAFETY: the kernel has just made this descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

fn new_from_device(device: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: `device` is /dev/userfaultfd, whose only ioctl this is.
    unsafe { ioctl::ioctl(device, NewDescriptor) }
}

/// Agrees on `features`; answers with those that the kernel knows.
pub(crate) fn handshake(uffd: BorrowedFd<'_>, features: u64) -> Result<u64, Errno> {
    let mut api = uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
    // SAFETY: the opcode belongs to `uffdio_api`, which lives through the call.
    unsafe {
        ioctl::ioctl(
            uffd,
            ioctl::Updater::<{ ioctl::opcode::read_write::<uffdio_api>(GROUP, 0x3F) }, _>::new(&mut api),
        )?;
    }
    Ok(api.features)
}

/// Registers `bytes` from `start` for missing faults.
pub(crate) fn register_missing(uffd: BorrowedFd<'_>, start: *mut c_void, bytes: usize) -> Result<(), Errno> {
    let range = uffdio_range { start: start.addr() as u64, len: bytes as u64 };
    let mut register = uffdio_register { range, mode: u64::from(UFFDIO_REGISTER_MODE_MISSING), ioctls: 0 };
    // SAFETY: the opcode belongs to `uffdio_register`, which lives through the call; the callers map the range.
    unsafe {
        let opcode = ioctl::Updater::<{ ioctl::opcode::read_write::<uffdio_register>(GROUP, 0x00) }, _>::new(
            &mut register,
        );
        ioctl::ioctl(uffd, opcode)
    }
}

/// A private anonymous mapping that is unmapped at the end.
pub(crate) struct Mapping {
    /// First byte.
    pub(crate) start: *mut c_void,
    /// Length.
    pub(crate) bytes: usize,
}

impl Mapping {
    pub(crate) fn new(pages: usize) -> Result<Self, Errno> {
        assert!(pages > 0);
        let bytes = pages * PAGE_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Self { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrowed from it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start, self.bytes) };
        assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

/// Tries both ways to a userfaultfd, fork events, and a real `UFFDIO_MOVE`.
pub fn userfaultfd() -> UserfaultProbe {
    let device = open(Source::Device).map(drop);
    let syscall = open(Source::Syscall).map(drop);
    let mut probe = UserfaultProbe {
        device,
        syscall,
        features: 0,
        fork_events: Err(Errno::PERM),
        move_page: Err(Errno::PERM),
    };
    let Some(source) = probe.source() else { return probe };
    // A descriptor agrees on its features once, so each question has a descriptor of its own.
    probe.features = open(source).and_then(|uffd| handshake(uffd.as_fd(), 0)).unwrap_or(0);
    let with_fork = EVENTS_WITHOUT_FORK | u64::from(UFFD_FEATURE_EVENT_FORK);
    probe.fork_events = open(source).and_then(|uffd| handshake(uffd.as_fd(), with_fork).map(drop));
    probe.move_page = if probe.has_move() { move_one_page(source) } else { Err(Errno::NOSYS) };
    probe
}

/// Moves one written page between two mappings of our own and reads it at the other end.
fn move_one_page(source: Source) -> Result<(), Errno> {
    const MARK: u64 = 0x10a4_10a4_10a4_10a4;
    let uffd = open(source)?;
    handshake(uffd.as_fd(), u64::from(UFFD_FEATURE_MOVE))?;
    let (from, to) = (Mapping::new(1)?, Mapping::new(1)?);
    // SAFETY: the mapping is ours, one page long, aligned and writable.
    unsafe { from.start.cast::<u64>().write_volatile(MARK) };
    register_missing(uffd.as_fd(), to.start, to.bytes)?;
    let mut arg = uffdio_move {
        dst: to.start.addr() as u64,
        src: from.start.addr() as u64,
        len: PAGE_BYTES as u64,
        mode: 0,
        move_: 0,
    };
    // SAFETY: the opcode belongs to `uffdio_move`, which lives through the call; both ranges are our own mappings.
    unsafe {
        ioctl::ioctl(
            uffd.as_fd(),
            ioctl::Updater::<{ ioctl::opcode::read_write::<uffdio_move>(GROUP, 0x05) }, _>::new(&mut arg),
        )?;
    }
    assert_eq!(arg.move_, PAGE_BYTES as i64, "a move without error moves the whole page");
    // SAFETY: the page was moved here just now, so the read does not fault; the mapping is ours and aligned.
    let seen = unsafe { to.start.cast::<u64>().read_volatile() };
    if seen == MARK { Ok(()) } else { Err(Errno::IO) }
}

/// Lists this process's first pages by `PAGEMAP_SCAN` (Linux 6.7).
///
/// # Errors
/// The kernel's answer: `ENOTTY` where the call does not exist.
pub fn pagemap_scan() -> Result<(), Errno> {
    let pagemap = rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mapping = Mapping::new(1)?;
    // SAFETY: all fields are integers, for which zero is a value.
    let mut arg: pm_scan_arg = unsafe { std::mem::zeroed() };
    arg.size = size_of::<pm_scan_arg>() as u64;
    arg.start = mapping.start.addr() as u64;
    arg.end = arg.start + PAGE_BYTES as u64;
    // No output vector: the kernel then only counts.
    arg.return_mask = 1;
    // SAFETY: the opcode belongs to `pm_scan_arg`, which lives through the call; there is no vector to write to.
    unsafe {
        ioctl::ioctl(
            pagemap,
            ioctl::Updater::<{ ioctl::opcode::read_write::<pm_scan_arg>(b'f', 16) }, _>::new(&mut arg),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_is_also_announced() {
        let probe = userfaultfd();
        if probe.source().is_none() {
            assert_eq!(probe.features, 0, "no descriptor, no features");
            assert!(probe.move_page.is_err());
            return;
        }
        assert_eq!(probe.move_page.is_ok(), probe.has_move(), "{probe:?}");
        assert!(probe.fork_events.is_err() || probe.has_events(), "{probe:?}");
    }

    #[test]
    fn a_scan_is_refused_only_where_it_is_unknown() {
        match pagemap_scan() {
            Ok(()) | Err(Errno::NOTTY | Errno::INVAL) => {}
            Err(other) => panic!("unexpected answer {other}"),
        }
    }
}
