//! The slot file: the disk copy of evicted pages, in slots of one base page each.
//!
//! Reads and writes are queued, go to the kernel together, and their results are fetched when the event descriptor is
//! readable. Nothing here waits. There is no order between operations: whoever reads a slot has seen its write
//! complete. Which slot holds what is the caller's knowledge; the file has no name and nothing in it outlives the
//! run.

mod file;
#[cfg(test)]
mod tests;

use file::{ATTEMPTS, Backing, Kind};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_disk::{Choice, EngineError, Queue, QueueFull, Verb};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = BASE_PAGE_BYTES;
/// Slots of one operation at most (1 MiB): also what keeps it below the kernel's limit of 1,024 iovecs.
pub(crate) const RUN_SLOTS_MAX: usize = 256;
/// Operations that may wait or be under way.
pub(crate) const OPERATIONS_MAX: usize = 16 * 1024;

/// What can go wrong with the slot file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotsError {
    /// The directory cannot be made or opened.
    #[error("slot file: directory {} cannot be used ({errno}): choose another with --disk DIR", dir.display())]
    Dir {
        /// Which.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The directory is somebody else's.
    #[error("slot file: directory {} belongs to user {owner_uid}, who could tamper with it: choose one of your own with --disk DIR", dir.display())]
    ForeignDir {
        /// Which.
        dir: PathBuf,
        /// Whose.
        owner_uid: u32,
    },
    /// The file cannot be made.
    #[error("slot file in {}: cannot be made or grown ({errno}): choose another place with --disk DIR", dir.display())]
    Create {
        /// Where.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The disk is full, or the user's share of it.
    #[error("slot file in {}: no room for {wanted} more, {free} are free: make room or choose another place with --disk DIR", dir.display())]
    Space {
        /// Where.
        dir: PathBuf,
        /// Asked for.
        wanted: Bytes,
        /// What the file system has for this user.
        free: Bytes,
    },
    /// `ulimit -f`.
    #[error("slot file in {}: {wanted} exceed the limit of a file's size, {limit}: raise it (ulimit -f unlimited)", dir.display())]
    FileLimit {
        /// Where.
        dir: PathBuf,
        /// Size that the file was to get.
        wanted: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// A read or write failed.
    #[error("slot file in {}: {what} of {slots} pages at slot {first_slot} failed ({errno}): check the disk, or choose another place with --disk DIR", dir.display())]
    Io {
        /// Where.
        dir: PathBuf,
        /// `read` or `write`.
        what: &'static str,
        /// First slot.
        first_slot: u64,
        /// How many.
        slots: usize,
        /// Why.
        errno: Errno,
    },
    /// More is queued than the disk can do for a long time: take completions first.
    #[error("slot file in {}: {OPERATIONS_MAX} operations wait already: the disk is too slow, choose another place with --disk DIR", dir.display())]
    QueueFull {
        /// Where.
        dir: PathBuf,
    },
    /// The machinery itself.
    #[error("slot file: {what} failed ({errno}): free memory or raise the limits of threads and descriptors")]
    Engine {
        /// The call.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
}

impl From<EngineError> for SlotsError {
    fn from(EngineError { what, errno }: EngineError) -> Self {
        Self::Engine { what, errno }
    }
}

/// See the module. Dropped, it waits for what the kernel has begun and forgets what waits.
pub(crate) struct SlotFile {
    queue: Queue,
    backing: Backing,
}

impl SlotFile {
    /// Makes the file in `dir`, which is made too if it is missing, with space for `initial_slots` or more.
    ///
    /// # Errors
    /// [`SlotsError`]: the directory, the space, or a file that cannot be written.
    pub(crate) fn create(dir: &Path, initial_slots: u64) -> Result<Self, SlotsError> {
        Self::create_as(dir, initial_slots, &ATTEMPTS, Choice::Best)
    }

    fn create_as(dir: &Path, initial_slots: u64, kinds: &[Kind], choice: Choice) -> Result<Self, SlotsError> {
        let backing = Backing::create(dir, initial_slots, kinds)?;
        let queue = Queue::new(backing.fd(), SLOT_BYTES, OPERATIONS_MAX, choice)?;
        Ok(Self { queue, backing })
    }

    /// Sees to it that slots below `slots` have space on the disk. Done in steps of 64 MiB.
    ///
    /// # Errors
    /// [`SlotsError::Space`], [`SlotsError::FileLimit`]; what was reserved before stays.
    pub(crate) fn reserve(&mut self, slots: u64) -> Result<(), SlotsError> {
        self.backing.reserve(slots)
    }

    /// What a person should know about how the file works here; empty where everything is as it should be.
    pub(crate) fn notes(&self) -> Vec<String> {
        let dir = self.backing.dir.display();
        let mut notes = Vec::new();
        if !self.backing.kind.direct {
            notes.push(format!(
                "slot file in {dir}: no O_DIRECT here, so the page cache keeps a second copy: another --disk DIR is better"
            ));
        }
        if !self.backing.reserves {
            notes.push(format!(
                "slot file in {dir}: space cannot be reserved here: if the disk fills up, pages stay in memory, over --local"
            ));
        }
        if !self.queue.is_ring() {
            notes.push(
                "slot file: io_uring is not permitted here: threads are used, which is slower".to_owned(),
            );
        }
        notes
    }

    /// Readable when there may be completions; for epoll.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue.event_fd()
    }

    /// Operations that are not complete.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Queues a write of consecutive slots, one buffer each.
    ///
    /// # Safety
    /// Each buffer is a base page at an address that is a multiple of 4,096; it stays and is not written until the
    /// completion with `token` has come, or this file has been dropped.
    ///
    /// # Errors
    /// [`SlotsError::QueueFull`]: nothing was queued.
    pub(crate) unsafe fn queue_write(
        &mut self,
        token: u64,
        first_slot: u64,
        buffers: &[*const u8],
    ) -> Result<(), SlotsError> {
        let buffers = buffers.iter().map(|buffer| buffer.cast_mut());
        // SAFETY: by this function's contract; the kernel only reads what is written.
        unsafe { self.queue(token, Verb::Write, first_slot, buffers) }
    }

    /// Queues a read of consecutive slots, one buffer each.
    ///
    /// # Safety
    /// Each buffer is a base page at an address that is a multiple of 4,096, and no two are the same; it stays and
    /// is neither read nor written until the completion with `token` has come, or this file has been dropped.
    ///
    /// # Errors
    /// [`SlotsError::QueueFull`]: nothing was queued.
    pub(crate) unsafe fn queue_read(
        &mut self,
        token: u64,
        first_slot: u64,
        buffers: &[*mut u8],
    ) -> Result<(), SlotsError> {
        // SAFETY: by this function's contract.
        unsafe { self.queue(token, Verb::Read, first_slot, buffers.iter().copied()) }
    }

    /// # Safety
    /// As for [`queue_read`](Self::queue_read) and [`queue_write`](Self::queue_write).
    unsafe fn queue(
        &mut self,
        token: u64,
        verb: Verb,
        first_slot: u64,
        buffers: impl ExactSizeIterator<Item = *mut u8>,
    ) -> Result<(), SlotsError> {
        let slots = buffers.len();
        assert!(slots > 0, "an operation on no slots");
        assert!(slots <= RUN_SLOTS_MAX, "{slots} slots in one operation");
        let end = first_slot.checked_add(slots as u64).expect("slots beyond any file");
        assert!(end <= self.backing.slots, "slot {end} is beyond the {} reserved ones", self.backing.slots);
        let aligned = buffers.inspect(|buffer| {
            assert!(
                !buffer.is_null() && buffer.addr().is_multiple_of(SLOT_BYTES),
                "a buffer that is not aligned"
            );
        });
        let offset_bytes = first_slot * SLOT_BYTES as u64;
        // SAFETY: each buffer is a base page that stays and is left alone, by this function's contract.
        let queued = unsafe { self.queue.queue(token, verb, offset_bytes, aligned, SLOT_BYTES) };
        queued.map_err(|QueueFull| SlotsError::QueueFull { dir: self.backing.dir.clone() })
    }

    /// Hands what is queued to the kernel: all reads, which threads wait for, and `most_writes` writes (each costs some
    /// microseconds), as far as it takes them; the rest follows with the next call.
    ///
    /// # Errors
    /// [`SlotsError::Engine`]: io_uring itself failed; the run cannot go on with this file.
    pub(crate) fn submit(&mut self, most_writes: usize) -> Result<(), SlotsError> {
        Ok(self.queue.submit(most_writes)?)
    }

    /// A call of [`submit`](Self::submit) would hand something to the kernel.
    pub(crate) fn can_submit(&self) -> bool {
        self.queue.can_submit()
    }

    /// Calls `each` with the token of every operation that is complete; an error concerns that operation alone. Short
    /// and interrupted transfers are continued here. Answers how many were complete.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub(crate) fn completions(
        &mut self,
        mut each: impl FnMut(u64, Result<(), SlotsError>),
    ) -> Result<usize, SlotsError> {
        let dir = &self.backing.dir;
        let ended = self.queue.completions(|ended| {
            let outcome = ended.outcome.map_err(|errno| SlotsError::Io {
                dir: dir.clone(),
                what: if ended.verb == Verb::Read { "read" } else { "write" },
                first_slot: ended.offset_bytes / SLOT_BYTES as u64,
                slots: ended.bytes / SLOT_BYTES,
                errno,
            });
            each(ended.token, outcome);
        })?;
        Ok(ended)
    }

    /// Waits until an operation may be complete: the event loop uses [`event_fd`](Self::event_fd).
    #[cfg(test)]
    fn wait(&mut self) {
        self.queue.wait();
    }
}
