//! A direct region: memory that a node of this machine has handed out for the whole run, in chunks that processes claim and map
//! (`loam run --region SIZE:direct`; regions-2010, section IV.B: large allocations are mapped, and used by plain loads and stores).
//!
//! All of the pool is mapped once, without access ([`map`]): that mapping is what a chunk's own is made from, so that no descriptor stays in the
//! program, and a forked child has it, too. A chunk's mapping is kept from children (a child made behind libc's back has nothing there, and ends by SIGSEGV
//! rather than write under its parent's hands); one that libc forks gets a copy ([`fork`]).
//!
//! The lock is taken after the region's, or alone, and never the other way round.

pub(super) mod fork;
mod map;
pub(crate) mod marks;

use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use loam_hand::direct::{Chunks, table_bytes};
use loam_hand::{BASE_PAGE_BYTES, RegionPlan};

use crate::lock::Lock;
use crate::message;
use crate::process;
use crate::sys::map::map_guarded;
use crate::sys::{self, Errno, Fd, Result};
use marks::Marks;

/// The descriptors that come with the plan. The caller closes them: what is mapped needs none.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    pub(crate) table: Fd,
    pub(crate) pool: Fd,
}

/// This process has a direct region.
static IS_ON: AtomicBool = AtomicBool::new(false);
static DIRECT: Lock<Option<Direct>> = Lock::new(None);

/// What backs the part of the region that a chunk would.
const NOTHING: u32 = 0;
/// Memory of the process's own: the pool had no chunk when a child wanted one.
const PRIVATE: u32 = u32::MAX;

struct Direct {
    chunks: Chunks<'static>,
    /// [`NOTHING`], [`PRIVATE`], or 1 plus the chunk's number.
    slots: &'static mut [u32],
    marks: Marks<'static>,
    base: usize,
    /// Where the whole pool is mapped, without access.
    whole: usize,
    chunk_bytes: usize,
    /// What this process has in the table, and which process it is: in another one nothing of this holds (yet).
    token: u32,
    process: u32,
    /// A child is about to have its copy: nothing is mapped, unmapped or written here by other libraries' handlers.
    forks: bool,
    /// Slots that have a chunk.
    mapped: usize,
    /// The chunk behind the one claimed last.
    next: usize,
}

pub(super) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Reserves the region's addresses, and what is needed to map chunks there; the address.
pub(super) fn reserve(plan: &RegionPlan, files: Files) -> Result<usize> {
    let (bytes, direct) = (plan.bytes as usize, plan.direct);
    let (chunks, chunk_bytes) = (direct.chunks as usize, direct.chunk_bytes as usize);
    let words = Marks::words_for(bytes / BASE_PAGE_BYTES);
    let marks_bytes = (words * size_of::<u64>()).next_multiple_of(BASE_PAGE_BYTES);
    let slots_bytes = (chunks * size_of::<u32>()).next_multiple_of(BASE_PAGE_BYTES);
    let table = map::shared(table_bytes(chunks), files.table)?;
    let whole = map::pool(bytes, files.pool, direct.offset)?;
    let base = map::reserve(bytes, chunk_bytes, whole)?;
    let books = map_guarded(marks_bytes + slots_bytes, 0)?;
    // SAFETY: advice for what was just mapped; a kernel without large pages needs none.
    let _ = unsafe { sys::map::advise(books, marks_bytes + slots_bytes, sys::map::ADVICE_NOHUGEPAGE) };
    // SAFETY: mapped just now, for the life of the process, zeros and known to nobody else; the table's words are atomics, valid whatever others write.
    let (table, marks, slots) = unsafe {
        (
            core::slice::from_raw_parts(table as *const _, table_bytes(chunks) / size_of::<u64>()),
            core::slice::from_raw_parts_mut(books as *mut u64, words),
            core::slice::from_raw_parts_mut((books + marks_bytes) as *mut u32, chunks),
        )
    };
    let (token, process, next) = (direct.token, sys::getpid(), 0);
    let (chunks, marks) = (Chunks::new(table, chunks), Marks::new(marks));
    let direct = Direct {
        chunks,
        slots,
        marks,
        base,
        whole,
        chunk_bytes,
        token,
        process,
        forks: false,
        mapped: 0,
        next,
    };
    *DIRECT.lock() = Some(direct);
    IS_ON.store(true, Relaxed);
    Ok(base)
}

/// Sees to it that these pages have memory. False: there is none, or this process has no part in the pool (a child that has not joined, or that nobody
/// knows of); nothing has changed then.
pub(super) fn provide(pages: Range<usize>) -> bool {
    with(|direct| direct.provide(pages)).unwrap_or(false)
}

/// Takes contents and, as far as nothing else is there, the memory of pages that nobody uses. They are zeros from now on.
pub(super) fn take_back(pages: Range<usize>) -> Result<()> {
    with(|direct| direct.take_back(pages)).ok_or(Errno::EBUSY)
}

/// Of pages that all are in use: makes them zeros, also where the program has forbidden itself to write. False: they are not, and nothing is done.
pub(super) fn zero(pages: Range<usize>) -> bool {
    with(|direct| {
        pages.end <= direct.slots.len() * direct.slot_pages()
            && direct.marks.has_all(pages.clone())
            && direct.zero(pages).is_ok()
    })
    .unwrap_or(false)
}

/// Does something in the process that has the chunks, unless it is just forking.
fn with<T>(what: impl FnOnce(&mut Direct) -> T) -> Option<T> {
    let mut direct = DIRECT.lock();
    direct.as_mut().filter(|direct| direct.is_own() && !direct.forks).map(what)
}

impl Direct {
    /// This process has the chunks, and not one from which it was forked.
    fn is_own(&self) -> bool {
        self.process == sys::getpid() && process::is_own()
    }

    fn slot_pages(&self) -> usize {
        self.chunk_bytes / BASE_PAGE_BYTES
    }

    fn pages_of(&self, slot: usize) -> Range<usize> {
        slot * self.slot_pages()..(slot + 1) * self.slot_pages()
    }

    fn slots_of(&self, pages: &Range<usize>) -> Range<usize> {
        pages.start / self.slot_pages()..pages.end.div_ceil(self.slot_pages())
    }

    fn address(&self, slot: usize) -> usize {
        self.base + slot * self.chunk_bytes
    }

    /// The chunk that a slot has.
    fn chunk(&self, slot: usize) -> Option<usize> {
        match self.slots[slot] {
            NOTHING | PRIVATE => None,
            number => Some(number as usize - 1),
        }
    }

    fn tell_mapped(&self) {
        super::count(|figures| figures.direct_bytes.store((self.mapped * self.chunk_bytes) as u64, Relaxed));
    }

    fn provide(&mut self, pages: Range<usize>) -> bool {
        let slots = self.slots_of(&pages);
        for slot in slots.clone() {
            if self.slots[slot] == NOTHING && !self.map_slot(slot) {
                // What was mapped for this alone.
                for slot in slots.start..slot {
                    if !self.marks.has_any(self.pages_of(slot)) {
                        self.unmap_slot(slot);
                    }
                }
                self.tell_mapped();
                return false;
            }
        }
        self.marks.set(pages);
        true
    }

    /// Claims a chunk and maps it, all zeros.
    fn map_slot(&mut self, slot: usize) -> bool {
        // Behind its neighbour's if that is free: then the two are one mapping.
        let first =
            slot.checked_sub(1).and_then(|before| self.chunk(before)).map_or(self.next, |chunk| chunk + 1);
        let Some(claimed) = self.chunks.claim(first, self.token) else { return false };
        // Told first: the agent must not take it for memory of this machine's.
        self.mapped += 1;
        self.tell_mapped();
        if map::chunk(self.whole_at(claimed.index), self.chunk_bytes, self.address(slot)).is_err() {
            self.mapped -= 1;
            self.chunks.release(claimed.index, self.token);
            return false;
        }
        self.next = claimed.index + 1;
        self.slots[slot] = claimed.index as u32 + 1;
        if claimed.is_dirty {
            self.write_zeros(self.pages_of(slot));
        }
        true
    }

    fn whole_at(&self, chunk: usize) -> usize {
        assert!(chunk < self.slots.len(), "there are as many chunks as places for them");
        self.whole + chunk * self.chunk_bytes
    }

    /// Gives a slot's memory back. Where the kernel refuses (it has no room for one more mapping) the memory stays, as zeros.
    fn unmap_slot(&mut self, slot: usize) {
        if map::nothing(self.address(slot), self.chunk_bytes).is_err() {
            map::allow(self.address(slot), self.chunk_bytes);
            return self.write_zeros(self.pages_of(slot));
        }
        if let Some(chunk) = self.chunk(slot) {
            self.chunks.release(chunk, self.token);
            self.mapped -= 1;
        }
        self.slots[slot] = NOTHING;
    }

    fn take_back(&mut self, pages: Range<usize>) {
        for slot in self.slots_of(&pages) {
            let all = self.pages_of(slot);
            let part = pages.start.max(all.start)..pages.end.min(all.end);
            if self.slots[slot] == NOTHING {
                continue;
            }
            self.marks.clear(part.clone());
            if self.marks.has_any(all) {
                // Whoever has freed it may have left it so that it cannot be written.
                map::allow(self.base + part.start * BASE_PAGE_BYTES, part.len() * BASE_PAGE_BYTES);
                self.write_zeros(part);
            } else {
                self.unmap_slot(slot);
            }
        }
        self.tell_mapped();
    }

    /// As the kernel would by `MADV_DONTNEED`, which asks for no right to write. An error is the kernel's, of memory of the process's own.
    fn zero(&mut self, pages: Range<usize>) -> Result<()> {
        for slot in self.slots_of(&pages) {
            let all = self.pages_of(slot);
            let part = pages.start.max(all.start)..pages.end.min(all.end);
            let bytes = part.len() * BASE_PAGE_BYTES;
            let Some(chunk) = self.chunk(slot) else {
                // SAFETY: memory of the process's own, whose owner asks for it.
                unsafe {
                    sys::map::advise(
                        self.base + part.start * BASE_PAGE_BYTES,
                        bytes,
                        sys::map::ADVICE_DONTNEED,
                    )
                }?;
                continue;
            };
            let from = self.whole_at(chunk) + (part.start - all.start) * BASE_PAGE_BYTES;
            let at = match map::writable(from, bytes) {
                Ok(at) => at,
                // Left to the kernel it would keep its contents, and the program counts on zeros.
                Err(errno) => message::exit_errno(
                    b"no room for a mapping to clear memory of the direct region by (madvise): raise vm.max_map_count",
                    errno,
                ),
            };
            // SAFETY: mapped just now for writing, and known to nobody; what is there is the owner's who asks for it.
            unsafe {
                core::ptr::write_bytes(at as *mut u8, 0, bytes);
                sys::map::unmap(at, bytes);
            }
        }
        Ok(())
    }

    /// The pages are mapped, and nobody else's.
    fn write_zeros(&self, pages: Range<usize>) {
        let address = self.base + pages.start * BASE_PAGE_BYTES;
        // SAFETY: mapped for reading and writing, as the callers have seen to: a chunk of this process, in pages that are free, or whose owner asks for it.
        unsafe { core::ptr::write_bytes(address as *mut u8, 0, pages.len() * BASE_PAGE_BYTES) };
    }
}
