//! A region's memory in this process: the one place of this crate with system calls that the compiler cannot check.

use super::RegionError;
use super::link::Stretch;
use rustix::fs::{FileType, SealFlags};
use rustix::mm::{self, MapFlags, MlockFlags, ProtFlags};
use rustix::process::{Pid, getpid};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU8;

const HUGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
/// Bytes of one advice to put pages together: the kernel can be interrupted between two, and what one cannot is tried in smaller pieces.
const COLLAPSE_BYTES: usize = if cfg!(test) { 2 * HUGE_BYTES } else { 64 << 20 };

/// How a range is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Soon: its pages are mapped at once, so that not even the first touch is a fault.
    WillNeed,
    /// Not soon: its pages are unmapped, their contents stay. (The memory stays reserved: give it back by resizing.)
    WillNotNeed,
    /// In order.
    Sequential,
    /// In no order.
    Random,
    /// Often, and in places far apart: the kernel puts its pages together into large ones (2 MiB), which miss the processor's table less. It copies
    /// each once for that, does as much as it finds room for, and counts them as this process's memory from then on (of its memory cgroup). A
    /// [`super::Region`] is told this when it is opened, where this process's memory has no limit.
    LargePages,
}

/// What came of an advice to put pages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collapsed {
    All,
    NotAll,
    /// There is no room for large pages (any more), or this kernel has none.
    NoMore,
}

/// Stretches of a region, mapped one behind the other. They are unmapped when it is dropped, by the process that has mapped them.
#[derive(Debug)]
pub(super) struct Map {
    /// All of the address space that was set aside for it.
    reserved: NonNull<c_void>,
    reserved_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
    /// A part of it, from `base` on, where the kernel would map nothing: it may have freed the place before it failed, and whatever is there by now may be
    /// somebody else's.
    abandoned: Option<Range<usize>>,
    /// Where each stretch ends.
    ends: Vec<usize>,
    locked: bool,
    /// Of its pages: what the kernel takes advice for.
    page_bytes: usize,
    /// Who has mapped it. In a child that forked off the addresses may be somebody else's by now.
    process: Pid,
}

// SAFETY: it is memory and nothing that is bound to a thread; who may use it at the same time is said by `&` and `&mut` of the owner.
unsafe impl Send for Map {}
// SAFETY: through `&Map` memory is only read (`as_slice`), or changed by atomics (`as_atomics`), by the same type never both: see there.
unsafe impl Sync for Map {}

impl Map {
    /// Maps memory of the node, in pages of `page_bytes`: files in memory that are sealed, or spans of a device. With `alone` nobody else has it open, and
    /// children of a fork do not get it.
    pub(super) fn new(memory: &[Stretch], page_bytes: usize, device: bool, alone: bool) -> io::Result<Self> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        let align = page_bytes.max(HUGE_BYTES);
        let mut bytes = 0_usize;
        for (span, file) in memory {
            let end =
                span.offset().checked_add(span.bytes()).ok_or_else(|| invalid("a stretch without end"))?;
            // Behind the end of a file there is SIGBUS, and in front of it, too, once it has shrunk. (A device that is no file tells no size, and
            // has no end that could move; who may make a file of a device shorter could as well write to it.)
            let stat = rustix::fs::fstat(file)?;
            let has_end = FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice;
            if !device && !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
                return Err(invalid("the node's memory could go away: it is not sealed"));
            }
            if (!device || has_end) && u64::try_from(stat.st_size).is_ok_and(|size| size < end) {
                return Err(invalid("the node's memory is shorter than its stretch"));
            }
            let more = usize::try_from(span.bytes()).map_err(|_| invalid("larger than the address space"))?;
            if more == 0 || !more.is_multiple_of(page_bytes) || span.offset() % page_bytes as u64 != 0 {
                return Err(invalid("a stretch that is no whole pages"));
            }
            bytes = bytes.checked_add(more).ok_or_else(|| invalid("larger than the address space"))?;
        }
        if bytes == 0 || bytes > isize::MAX as usize - align {
            return Err(invalid("no memory, or larger than the address space"));
        }
        let mut map = Self::reserve(bytes, page_bytes)?;
        map.lay(memory)?;
        if alone {
            // SAFETY: it changes nothing in this process. A child that forks off has no mapping there, so what is `&mut` here is nobody's else.
            unsafe { mm::madvise(map.base.as_ptr().cast(), bytes, mm::Advice::LinuxDontFork)? };
        }
        Ok(map)
    }

    /// Sets addresses aside for so many bytes.
    fn reserve(bytes: usize, page_bytes: usize) -> io::Result<Self> {
        let align = page_bytes.max(HUGE_BYTES);
        // The kernel can put pages together into large ones where a large one would be aligned in the file and in memory; a device has to be mapped
        // at a multiple of its pages.
        let reserved_bytes = bytes + align;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of the program.
        let reserved = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mm::mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::empty(), flags)?
        };
        let reserved = NonNull::new(reserved).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let skip = reserved.as_ptr().align_offset(align);
        // SAFETY: `align` more were set aside than are needed, so this is within the reservation.
        let base = unsafe { reserved.cast::<u8>().add(skip) };
        // From here on dropping it takes the reservation back.
        Ok(Self {
            reserved,
            reserved_bytes,
            base,
            bytes,
            abandoned: None,
            ends: Vec::new(),
            locked: true,
            page_bytes,
            process: getpid(),
        })
    }

    /// Maps the stretches over what was set aside. Where that fails, the place of the one that failed is abandoned.
    fn lay(&mut self, memory: &[Stretch]) -> io::Result<()> {
        let mut at = 0;
        for (span, file) in memory {
            let length = span.bytes() as usize;
            let (protection, flags) =
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            // SAFETY: the place is within the reservation, which is this map's alone (nothing of it is abandoned yet) and which nobody has a reference
            // into yet. The file is as long as that and cannot shrink (both seen to in `new`), so every byte of it is memory until it is unmapped. That of
            // a device is for as long as those leave it alone who may open it: the node has it to itself (by a lock), and hands it to no other user's
            // programs.
            let mapped = unsafe {
                let place = self.base.add(at).as_ptr().cast();
                mm::mmap(place, length, protection, flags, file, span.offset()).inspect(|_| {
                    // Not before the first touch: that would take as long as touching all of it.
                    self.locked &= mm::mlock_with(place, length, MlockFlags::ONFAULT).is_ok();
                })
            };
            if let Err(why) = mapped {
                self.abandoned = Some(at..at + length);
                return Err(why.into());
            }
            at += length;
            self.ends.push(at);
        }
        Ok(())
    }

    /// No memory at all.
    pub(super) fn none() -> Self {
        Self {
            reserved: NonNull::dangling(),
            reserved_bytes: 0,
            base: NonNull::dangling(),
            bytes: 0,
            abandoned: None,
            ends: Vec::new(),
            locked: false,
            page_bytes: PAGE_BYTES,
            process: getpid(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(super) fn spans(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }

    /// For who has it alone ([`super::Region`]).
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes (the kernel's zeros, or what was written), mapped for as long as `self` lives. Nobody else writes
        // there: the node hands it to one connection at a time and, to be used alone, to programs of its owner only. Such a program could
        // write here though it has said that it is done, as it could write any memory of this user's programs (ptrace); no safe function of this
        // library does: it unmaps before it says so. (That holds for a device, too: who has its descriptor is trusted with all of it.) A fork does not copy the mapping, and `&mut self` is needed to write here.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// The same.
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to it now.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// For who shares it ([`super::SharedRegion`], which never asks for slices of the other kind).
    pub(super) fn as_atomics(&self) -> &[AtomicU8] {
        // SAFETY: as above, but others may write at any moment: an atomic may be changed behind a shared reference, and has the size and
        // alignment of a byte.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes) }
    }

    pub(super) fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), RegionError> {
        if range.start > range.end || range.end > self.bytes {
            return Err(RegionError::Range { start: range.start, end: range.end, bytes: self.bytes });
        }
        let start = range.start / self.page_bytes * self.page_bytes;
        let length = range.end.next_multiple_of(self.page_bytes) - start;
        let kernel = match advice {
            Advice::WillNeed => libc::MADV_POPULATE_WRITE,
            // The other kind refuses what is locked.
            Advice::WillNotNeed if self.locked => libc::MADV_DONTNEED_LOCKED,
            Advice::WillNotNeed => libc::MADV_DONTNEED,
            Advice::Sequential => libc::MADV_SEQUENTIAL,
            Advice::Random => libc::MADV_RANDOM,
            Advice::LargePages => {
                self.collapse(start, length);
                return Ok(());
            }
        };
        let told = match self.tell_kernel(start, length, kernel) {
            Err(why) if kernel == libc::MADV_DONTNEED_LOCKED && why.raw_os_error() == Some(libc::EINVAL) => {
                self.unmap_locked(start, length)
            }
            told => told,
        };
        told.map_err(RegionError::Advice)
    }

    /// Large pages, as far as they can be had: that there are none (any more) is no error.
    fn collapse(&self, start: usize, length: usize) {
        if self.page_bytes >= HUGE_BYTES {
            return;
        }
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        // One stretch after the other: the kernel goes no further than the first mapping that it can do nothing with.
        for (begin, end) in begins.zip(&self.ends) {
            let from = begin.max(start).next_multiple_of(HUGE_BYTES);
            let to = (*end).min(start + length) / HUGE_BYTES * HUGE_BYTES;
            for at in (from..to).step_by(COLLAPSE_BYTES) {
                let part = COLLAPSE_BYTES.min(to - at);
                let mut told = self.collapse_at(at, part);
                if told == Collapsed::NotAll {
                    // It does not say which: each by itself. (What is done already costs no copy.)
                    let mut each = (at..at + part).step_by(HUGE_BYTES);
                    let ends = each.any(|at| self.collapse_at(at, HUGE_BYTES) == Collapsed::NoMore);
                    told = if ends { Collapsed::NoMore } else { Collapsed::All };
                }
                if told == Collapsed::NoMore {
                    return;
                }
            }
        }
    }

    fn collapse_at(&self, start: usize, length: usize) -> Collapsed {
        match self.tell_kernel(start, length, libc::MADV_COLLAPSE) {
            Ok(()) => Collapsed::All,
            // Where the file has it in another place of a large page, or where somebody uses it just now.
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::EAGAIN)) => Collapsed::NotAll,
            Err(_) => Collapsed::NoMore,
        }
    }

    /// `start` and `length` are whole pages of this map.
    fn tell_kernel(&self, start: usize, length: usize, advice: i32) -> io::Result<()> {
        // SAFETY: the range is within the mapping. None of `Advice` changes what its bytes are: pages of a shared file that are unmapped are
        // found again by the next access.
        let done = unsafe { libc::madvise(self.base.add(start).as_ptr().cast(), length, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// For kernels before 5.18, which have no advice for what is locked.
    fn unmap_locked(&self, start: usize, length: usize) -> io::Result<()> {
        // SAFETY: the range is within the mapping; whether it is locked changes nothing of what its bytes are.
        unsafe { mm::munlock(self.base.add(start).as_ptr().cast(), length)? };
        let told = self.tell_kernel(start, length, libc::MADV_DONTNEED);
        // SAFETY: the same.
        unsafe { mm::mlock_with(self.base.add(start).as_ptr().cast(), length, MlockFlags::ONFAULT)? };
        told
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // A child has the memory of a region that is open alone not at all, and something else may be there; that of a shared one is unmapped
        // with its end.
        if self.reserved_bytes == 0 || self.process != getpid() {
            return;
        }
        // In front of what is abandoned, and behind it; where nothing is that is all and nothing. (What is abandoned costs addresses, if it is still set
        // aside, and no memory.)
        let before = self.base.as_ptr().addr() - self.reserved.as_ptr().addr();
        let end = self.reserved_bytes;
        let gap = self.abandoned.as_ref().map_or(end..end, |gap| before + gap.start..before + gap.end);
        for part in [0..gap.start, gap.end..end] {
            if part.is_empty() {
                continue;
            }
            // SAFETY: within the reservation all but what is abandoned is this map's alone: set aside by it, or mapped over that with success. No reference
            // into it outlives `self`.
            let unmapped = unsafe { mm::munmap(self.reserved.byte_add(part.start).as_ptr(), part.len()) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

#[cfg(test)]
mod tests;
