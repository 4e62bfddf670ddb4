//! The slot file: the disk copy of evicted pages, in slots of one base page each.
//!
//! Reads and writes are queued, go to the kernel together, and their results are fetched when the event descriptor is
//! readable. Nothing here waits. There is no order between operations: whoever reads a slot has seen its write
//! complete. Which slot holds what is the caller's knowledge; the file has no name and nothing in it outlives the
//! run.

mod engine;
mod file;
#[cfg(test)]
mod tests;

pub(crate) use engine::block_all_signals;
use engine::{Attempt, Choice, Engine, Verb};
use file::{ATTEMPTS, Backing, Kind};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = BASE_PAGE_BYTES;
/// Slots of one operation at most (1 MiB): also what keeps it below the kernel's limit of 1,024 iovecs.
pub(crate) const RUN_SLOTS_MAX: usize = 256;
/// Operations that may wait or be under way.
pub(crate) const OPERATIONS_MAX: usize = 16 * 1024;
/// Attempts without a whole slot of progress before an operation fails.
const IDLE_ATTEMPTS_MAX: u8 = 16;

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

/// One operation from queueing to completion. Kept for reuse afterwards, with its vectors.
struct Operation {
    token: u64,
    verb: Verb,
    first_slot: u64,
    slots: usize,
    /// One for each slot.
    buffers: Vec<*mut u8>,
    /// What the kernel reads while an attempt is under way: not touched meanwhile.
    iovecs: Vec<libc::iovec>,
    done_slots: usize,
    idle_attempts: u8,
    live: bool,
}

/// See the module. Dropped, it waits for what the kernel has begun and forgets what waits.
pub(crate) struct SlotFile {
    // First, so that it is dropped first: it waits until the kernel has let go of the iovecs in `operations`.
    engine: Engine,
    backing: Backing,
    operations: Vec<Operation>,
    free: Vec<u32>,
    /// Operations that have not been handed to the kernel, in order: reads, and writes.
    waiting_reads: VecDeque<u32>,
    waiting_writes: VecDeque<u32>,
    results: Vec<(u32, i32)>,
    finished: Vec<(u64, Result<(), SlotsError>)>,
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
        let engine = Engine::new(backing.fd(), choice)?;
        Ok(Self {
            engine,
            backing,
            operations: Vec::new(),
            free: Vec::new(),
            waiting_reads: VecDeque::new(),
            waiting_writes: VecDeque::new(),
            results: Vec::new(),
            finished: Vec::new(),
        })
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
        if !self.engine.is_ring() {
            notes.push(
                "slot file: io_uring is not permitted here: threads are used, which is slower".to_owned(),
            );
        }
        notes
    }

    /// Readable when there may be completions; for epoll.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.engine.eventfd().as_fd()
    }

    /// Operations that are not complete.
    pub(crate) fn in_flight(&self) -> usize {
        self.operations.len() - self.free.len()
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
        self.queue(
            token,
            Verb::Write,
            first_slot,
            buffers.len(),
            buffers.iter().map(|buffer| buffer.cast_mut()),
        )
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
        self.queue(token, Verb::Read, first_slot, buffers.len(), buffers.iter().copied())
    }

    fn queue(
        &mut self,
        token: u64,
        verb: Verb,
        first_slot: u64,
        slots: usize,
        buffers: impl Iterator<Item = *mut u8>,
    ) -> Result<(), SlotsError> {
        assert!(slots > 0, "an operation on no slots");
        assert!(slots <= RUN_SLOTS_MAX, "{slots} slots in one operation");
        let end = first_slot.checked_add(slots as u64).expect("slots beyond any file");
        assert!(end <= self.backing.slots, "slot {end} is beyond the {} reserved ones", self.backing.slots);
        if self.in_flight() >= OPERATIONS_MAX {
            return Err(SlotsError::QueueFull { dir: self.backing.dir.clone() });
        }
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.operations.len() as u32;
            self.operations.push(Operation {
                token: 0,
                verb,
                first_slot: 0,
                slots: 0,
                buffers: Vec::new(),
                iovecs: Vec::new(),
                done_slots: 0,
                idle_attempts: 0,
                live: false,
            });
            index
        });
        let operation = &mut self.operations[index as usize];
        assert!(!operation.live, "an operation in use was given out again");
        operation.buffers.clear();
        operation.buffers.extend(buffers);
        assert!(operation.buffers.len() == slots, "one buffer a slot");
        for buffer in &operation.buffers {
            assert!(
                !buffer.is_null() && buffer.addr().is_multiple_of(SLOT_BYTES),
                "a buffer that is not aligned"
            );
        }
        (operation.token, operation.verb, operation.first_slot) = (token, verb, first_slot);
        (operation.slots, operation.done_slots, operation.idle_attempts) = (slots, 0, 0);
        operation.live = true;
        self.waiting(verb).push_back(index);
        Ok(())
    }

    fn waiting(&mut self, verb: Verb) -> &mut VecDeque<u32> {
        match verb {
            Verb::Read => &mut self.waiting_reads,
            Verb::Write => &mut self.waiting_writes,
        }
    }

    /// Hands what is queued to the kernel: all reads, which threads wait for, and `most_writes` writes (each costs some
    /// microseconds), as far as it takes them; the rest follows with the next call.
    ///
    /// # Errors
    /// [`SlotsError::Engine`]: io_uring itself failed; the run cannot go on with this file.
    pub(crate) fn submit(&mut self, most_writes: usize) -> Result<(), SlotsError> {
        let mut writes_left = most_writes;
        while self.engine.has_room() {
            let read = self.waiting_reads.pop_front();
            let next = read.or_else(|| {
                writes_left = writes_left.checked_sub(1)?;
                self.waiting_writes.pop_front()
            });
            let Some(index) = next else { break };
            let attempt = self.operations[index as usize].attempt(index);
            // SAFETY: the iovecs are the operation's own and are not touched before its result; the buffers stay by
            // the contract of `queue_read` and `queue_write`; `engine` is dropped before `operations`.
            unsafe { self.engine.push(attempt) };
        }
        self.engine.submit()
    }

    /// A call of [`submit`](Self::submit) would hand something to the kernel.
    pub(crate) fn can_submit(&self) -> bool {
        self.engine.has_room() && !(self.waiting_reads.is_empty() && self.waiting_writes.is_empty())
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
        let mut results = std::mem::take(&mut self.results);
        self.engine.drain(&mut results);
        let mut cut_short = 0;
        for (index, result) in results.drain(..) {
            let operation = &mut self.operations[index as usize];
            assert!(operation.live, "a result for an operation that is over");
            let Some(outcome) = operation.judge(result) else {
                // Its turn had come; it keeps it.
                let verb = operation.verb;
                self.waiting(verb).push_front(index);
                cut_short += 1;
                continue;
            };
            operation.live = false;
            let (token, what) = (operation.token, operation.verb.name());
            let (first_slot, slots) = (operation.first_slot, operation.slots);
            self.free.push(index);
            let dir = &self.backing.dir;
            let outcome =
                outcome.map_err(|errno| SlotsError::Io { dir: dir.clone(), what, first_slot, slots, errno });
            self.finished.push((token, outcome));
        }
        self.results = results;
        // What was cut short goes on at once; other writes follow in their time.
        let submitted = self.submit(cut_short);
        let count = self.finished.len();
        for (token, outcome) in self.finished.drain(..) {
            each(token, outcome);
        }
        submitted.map(|()| count)
    }

    /// Waits until an operation may be complete: the event loop uses [`event_fd`](Self::event_fd).
    #[cfg(test)]
    fn wait(&mut self) {
        self.engine.wait();
    }
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Operation {
    /// What is left to do, as one call. Buffers that lie side by side share an iovec.
    fn attempt(&mut self, index: u32) -> Attempt {
        assert!(self.live && (self.done_slots < self.slots));
        self.iovecs.clear();
        for &buffer in &self.buffers[self.done_slots..] {
            match self.iovecs.last_mut() {
                Some(last) if last.iov_base.addr() + last.iov_len == buffer.addr() => {
                    last.iov_len += SLOT_BYTES
                }
                _ => self.iovecs.push(libc::iovec { iov_base: buffer.cast(), iov_len: SLOT_BYTES }),
            }
        }
        Attempt {
            op: index,
            verb: self.verb,
            offset_bytes: (self.first_slot + self.done_slots as u64) * SLOT_BYTES as u64,
            iovecs: self.iovecs.as_ptr(),
            iovecs_count: self.iovecs.len() as u32,
        }
    }

    /// What an attempt's result means: `None` to go on with the rest.
    fn judge(&mut self, result: i32) -> Option<Result<(), Errno>> {
        let whole_slots = match usize::try_from(result) {
            Ok(bytes) => bytes / SLOT_BYTES,
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => 0,
                errno => return Some(Err(errno)),
            },
        };
        assert!(whole_slots <= self.slots - self.done_slots, "more was transferred than asked for");
        self.done_slots += whole_slots;
        if self.done_slots == self.slots {
            return Some(Ok(()));
        }
        // Part of a slot counts for nothing: direct I/O goes on at whole slots.
        self.idle_attempts = if whole_slots == 0 { self.idle_attempts + 1 } else { 0 };
        (self.idle_attempts >= IDLE_ATTEMPTS_MAX).then_some(Err(Errno::IO))
    }
}
