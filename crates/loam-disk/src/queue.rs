//! Operations in order, bounded, with one result each.

use crate::engine::{Choice, Engine, EngineError, Verb};
use crate::operation::Operation;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// Pieces of one operation at most: the kernel's limit of iovecs.
const PIECES_MAX: usize = 1024;
/// Bytes of one operation at most.
const OPERATION_BYTES_MAX: usize = 1 << 20;

/// As many operations wait or are under way as were permitted: take what has ended first. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many operations wait for the disk as may")]
pub struct QueueFull;

/// One operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As it was queued.
    pub token: u64,
    /// What it was.
    pub verb: Verb,
    /// Where it began in the file.
    pub offset_bytes: u64,
    /// How much it was.
    pub bytes: usize,
    /// All of it was transferred, or why not.
    pub outcome: Result<(), Errno>,
}

/// Reads, writes and syncs of one file. There is no order between operations that are under way: who reads a place has
/// seen its write end; a sync covers the writes that had ended when it was queued. Dropped, it waits for what the
/// kernel has begun and forgets what waits.
pub struct Queue {
    // First, so that it is dropped first: it waits until the kernel has let go of the iovecs in `operations`.
    engine: Engine,
    block_bytes: usize,
    operations_max: usize,
    operations: Vec<Operation>,
    free: Vec<u32>,
    /// Operations that have not been handed to the kernel, in order: reads, and the others.
    waiting_reads: VecDeque<u32>,
    waiting_writes: VecDeque<u32>,
    results: Vec<(u32, i32)>,
    ended: Vec<Ended>,
}

// SAFETY: the pointers in `operations` are only handed to the kernel, which may be asked from any thread; what they
// point to is kept alive and alone by the contract of `queue`, whichever thread the queue is in.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue for `file` of at most `operations_max` operations. A transfer that is cut short goes on at a multiple
    /// of `block_bytes`.
    ///
    /// # Errors
    /// [`EngineError`]: descriptors or threads are short.
    ///
    /// # Panics
    /// Without a block or an operation.
    pub fn new(
        file: &Arc<OwnedFd>,
        block_bytes: usize,
        operations_max: usize,
        choice: Choice,
    ) -> Result<Self, EngineError> {
        assert!(block_bytes > 0 && operations_max > 0, "a queue for nothing");
        Ok(Self {
            engine: Engine::new(file, choice)?,
            block_bytes,
            operations_max,
            operations: Vec::new(),
            free: Vec::new(),
            waiting_reads: VecDeque::new(),
            waiting_writes: VecDeque::new(),
            results: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Whether io_uring does the work; else threads do.
    pub fn is_ring(&self) -> bool {
        self.engine.is_ring()
    }

    /// Readable when something may have ended; for epoll.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.engine.eventfd().as_fd()
    }

    /// Operations that are not over.
    pub fn in_flight(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// Queues a read or write of consecutive bytes from `offset_bytes` on: `pieces` of `piece_bytes` each, or nothing
    /// for a sync.
    ///
    /// # Safety
    /// Each piece is memory that stays until the operation has ended or the queue has been dropped. Until then nobody
    /// writes it; and if it is read into, nobody reads it, and no two pieces overlap.
    ///
    /// # Errors
    /// [`QueueFull`].
    ///
    /// # Panics
    /// On a read or write of nothing, of more than 1 MiB, or of what is no whole number of blocks, and on a sync of something.
    pub unsafe fn queue(
        &mut self,
        token: u64,
        verb: Verb,
        offset_bytes: u64,
        pieces: impl Iterator<Item = *mut u8>,
        piece_bytes: usize,
    ) -> Result<(), QueueFull> {
        if self.in_flight() >= self.operations_max {
            return Err(QueueFull);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.operations.push(Operation::new(self.block_bytes));
            (self.operations.len() - 1) as u32
        });
        let operation = &mut self.operations[index as usize];
        assert!(!operation.live, "an operation in use was given out again");
        operation.pieces.clear();
        let iovec = |piece: *mut u8| libc::iovec { iov_base: piece.cast(), iov_len: piece_bytes };
        operation.pieces.extend(pieces.map(iovec));
        assert!(operation.pieces.len() <= PIECES_MAX, "{} pieces in one operation", operation.pieces.len());
        assert!(!operation.pieces.iter().any(|piece| piece.iov_base.is_null()), "a piece of no memory");
        let bytes = operation.pieces.len() * piece_bytes;
        assert!((bytes == 0) == (verb == Verb::Sync), "{verb:?} of {bytes} bytes");
        assert!(bytes <= OPERATION_BYTES_MAX && bytes.is_multiple_of(self.block_bytes), "{bytes} bytes");
        (operation.token, operation.verb, operation.offset_bytes) = (token, verb, offset_bytes);
        (operation.bytes, operation.done_bytes, operation.idle_attempts) = (bytes, 0, 0);
        operation.live = true;
        self.waiting(verb).push_back(index);
        Ok(())
    }

    fn waiting(&mut self, verb: Verb) -> &mut VecDeque<u32> {
        match verb {
            Verb::Read => &mut self.waiting_reads,
            Verb::Write | Verb::Sync => &mut self.waiting_writes,
        }
    }

    /// Hands what is queued to the kernel: all reads, which threads wait for, and `most_writes` writes (each costs some
    /// microseconds), as far as it takes them; the rest follows with the next call.
    ///
    /// # Errors
    /// [`EngineError`]: io_uring itself failed; nobody can go on with this queue.
    pub fn submit(&mut self, most_writes: usize) -> Result<(), EngineError> {
        let mut writes_left = most_writes;
        while self.engine.has_room() {
            let read = self.waiting_reads.pop_front();
            let next = read.or_else(|| {
                writes_left = writes_left.checked_sub(1)?;
                self.waiting_writes.pop_front()
            });
            let Some(index) = next else { break };
            let attempt = self.operations[index as usize].attempt(index);
            // SAFETY: the iovecs are the operation's own and are not touched before its result; the memory stays by
            // the contract of `queue`; `engine` is dropped before `operations`.
            unsafe { self.engine.push(attempt) };
        }
        self.engine.submit()
    }

    /// A call of [`submit`](Self::submit) would hand something to the kernel.
    pub fn can_submit(&self) -> bool {
        self.engine.has_room() && !(self.waiting_reads.is_empty() && self.waiting_writes.is_empty())
    }

    /// Calls `each` with every operation that is over; an error concerns that operation alone. Short and interrupted
    /// transfers are continued here. Answers how many were over.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn completions(&mut self, each: impl FnMut(Ended)) -> Result<usize, EngineError> {
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
            let (token, verb) = (operation.token, operation.verb);
            let (offset_bytes, bytes) = (operation.offset_bytes, operation.bytes);
            self.free.push(index);
            self.ended.push(Ended { token, verb, offset_bytes, bytes, outcome });
        }
        self.results = results;
        // What was cut short goes on at once; other writes follow in their time.
        let submitted = self.submit(cut_short);
        let count = self.ended.len();
        self.ended.drain(..).for_each(each);
        submitted.map(|()| count)
    }

    /// Waits until an operation that was submitted may be over, for who has no event loop (yet).
    pub fn wait(&mut self) {
        self.engine.wait();
    }
}
