//! The userfaultfd requests that must come from inside the program. Registering for the first time and answering faults
//! is the agent's.

use core::ops::Range;

use crate::sys::{self, Errno, Fd, Result, map};

const O_CLOEXEC: usize = 0o2000000;
const O_NONBLOCK: usize = 0o4000;
const IOC_NEW: usize = 0xaa00;
const MOVE: usize = 0xc028_aa05;
const UNREGISTER: usize = 0x8010_aa01;
/// `UFFDIO_REGISTER`, also as a program asks for it.
pub(crate) const REGISTER: usize = 0xc020_aa00;
const REGISTER_MODE_WRITE_PROTECT: u64 = 2;

/// Makes a userfaultfd for this address space: from `/dev/userfaultfd` if the agent could open it, else by the system
/// call, which needs a privilege (faults inside system calls must be served too).
pub(crate) fn open(device: Option<Fd>) -> Result<Fd> {
    let Some(device) = device else {
        return sys::userfaultfd(O_CLOEXEC | O_NONBLOCK);
    };
    let arguments = [device as usize, IOC_NEW, O_CLOEXEC | O_NONBLOCK, 0, 0, 0];
    // SAFETY: plain numbers; makes a descriptor.
    unsafe { sys::call(sys::IOCTL, arguments) }.map(|fd| fd as Fd)
}

/// Begins with a userfaultfd of the shim's own, which write-protects shared memory.
pub(crate) fn begin(userfaultfd: Fd) -> Result<()> {
    const API: usize = 0xc018_aa3f;
    const VERSION: u64 = 0xaa;
    const WRITE_PROTECT: u64 = 1;
    const WRITE_PROTECT_SHARED: u64 = 1 << 12;
    let mut request = [VERSION, WRITE_PROTECT | WRITE_PROTECT_SHARED, 0];
    // SAFETY: three words, as the kernel's structure has, which live.
    unsafe { sys::call(sys::IOCTL, [userfaultfd as usize, API, request.as_mut_ptr() as usize, 0, 0, 0]) }
        .map(drop)
}

/// Whoever writes to the range waits from now on, as nobody reads of it; until [`unregister`].
pub(crate) fn write_protect(userfaultfd: Fd, address: usize, bytes: usize) -> Result<()> {
    const WRITE_PROTECT: usize = 0xc018_aa06;
    let mut register = [address as u64, bytes as u64, REGISTER_MODE_WRITE_PROTECT, 0];
    let mut protect = [address as u64, bytes as u64, 1];
    // SAFETY: both structures have the kernel's layout (words) and live; contents stay as they are.
    unsafe {
        sys::call(sys::IOCTL, [userfaultfd as usize, REGISTER, register.as_mut_ptr() as usize, 0, 0, 0])?;
        sys::call(sys::IOCTL, [userfaultfd as usize, WRITE_PROTECT, protect.as_mut_ptr() as usize, 0, 0, 0])?;
    }
    Ok(())
}

/// Ends it, in the process that has made the descriptor; whoever waits goes on. (By itself the kernel wakes only who waits for missing pages.)
pub(crate) fn unregister(userfaultfd: Fd, address: usize, bytes: usize) -> Result<()> {
    const WAKE: usize = 0x8010_aa02;
    let mut range = [address as u64, bytes as u64];
    // SAFETY: two words, as the kernel's structure has, which live; contents stay as they are.
    unsafe {
        sys::call(sys::IOCTL, [userfaultfd as usize, UNREGISTER, range.as_mut_ptr() as usize, 0, 0, 0])?;
        sys::call(sys::IOCTL, [userfaultfd as usize, WAKE, range.as_mut_ptr() as usize, 0, 0, 0])?;
    }
    Ok(())
}

/// How one `UFFDIO_MOVE` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// That many bytes, from the start. Fewer than asked: ask again for the rest to learn why.
    Bytes(usize),
    /// Nothing moved.
    Nothing(Errno),
}

/// Moves the pages of `[source, source + bytes)` to `destination`.
///
/// # Safety
/// The destination must be the caller's own, empty and registered with `userfaultfd`. The program must be prepared to
/// have the source's pages missing: the agent serves them from what it gets.
pub(crate) unsafe fn move_pages(userfaultfd: Fd, destination: usize, source: usize, bytes: usize) -> Moved {
    /// Nobody waits at the destination, and to find that out the kernel would look at everybody who waits anywhere: a thousand threads, once a page.
    const DONT_WAKE: u64 = 1;
    #[repr(C)]
    struct Request {
        destination: u64,
        source: u64,
        bytes: u64,
        mode: u64,
        moved: i64,
    }
    let mut request = Request {
        destination: destination as u64,
        source: source as u64,
        bytes: bytes as u64,
        mode: DONT_WAKE,
        moved: 0,
    };
    // SAFETY: the request lives; what it does to memory is the caller's promise.
    let answer =
        unsafe { sys::call(sys::IOCTL, [userfaultfd as usize, MOVE, &raw mut request as usize, 0, 0, 0]) };
    match answer {
        Ok(_) => Moved::Bytes(bytes),
        // A part was moved: the kernel says EAGAIN, and how much. It says EAGAIN with nothing moved while an event of
        // this descriptor is unread.
        Err(Errno::EAGAIN) if request.moved > 0 => {
            let moved = request.moved as usize;
            assert!(moved < bytes && moved.is_multiple_of(4096), "a part of the pages was moved");
            Moved::Bytes(moved)
        }
        Err(errno) => Moved::Nothing(errno),
    }
}

/// Discards a part of a registered mapping of the shim's own without an event: the mapping is taken out of the userfaultfd for
/// the moment. With an event, the caller would wait until the agent has read it: a wake-up per command, and for ever if the
/// agent dies just then. If the program has locked all of its memory, the mapping is unlocked.
///
/// # Safety
/// The mapping must be the caller's own, registered for write protection, the contents of the part not needed any more.
pub(crate) unsafe fn discard_quietly(
    userfaultfd: Fd,
    mapping: Range<usize>,
    part: Range<usize>,
) -> Result<()> {
    assert!(mapping.start <= part.start && part.end <= mapping.end, "a part of the mapping");
    let mut range = [mapping.start as u64, mapping.len() as u64];
    let mut register = [mapping.start as u64, mapping.len() as u64, REGISTER_MODE_WRITE_PROTECT, 0];
    // SAFETY: both structures have the kernel's layout (words) and live; the range is the caller's.
    unsafe {
        sys::call(sys::IOCTL, [userfaultfd as usize, UNREGISTER, range.as_mut_ptr() as usize, 0, 0, 0])?;
        match map::advise(part.start, part.len(), map::ADVICE_DONTNEED) {
            // Locked, by `mlockall`; it may be again in between.
            Err(Errno::EINVAL) => {
                map::unlock(mapping.start, mapping.len())?;
                map::advise(part.start, part.len(), map::ADVICE_DONTNEED_LOCKED)?;
            }
            answer => answer?,
        }
        sys::call(sys::IOCTL, [userfaultfd as usize, REGISTER, register.as_mut_ptr() as usize, 0, 0, 0])?;
    }
    Ok(())
}
