//! Operations that own their buffers, so that nobody can touch one while the kernel does.

use crate::engine::{Choice, EngineError, Verb};
use crate::queue::{Queue, QueueFull};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where a buffer begins: what every disk takes for direct I/O.
pub const BUFFER_ALIGN_BYTES: usize = 4096;

/// Memory for direct I/O: aligned, of a size that stays. It is taken from the machine as it is touched.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a buffer is the only owner of its memory, like a `Box<[u8]>`.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer of zeros.
    ///
    /// # Panics
    /// Without a byte. Where memory is short the process ends, as everywhere.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes > 0, "a buffer of no bytes");
        let layout = Self::layout(bytes);
        // SAFETY: the layout is of at least one byte.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
        Self { start, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, BUFFER_ALIGN_BYTES).expect("a buffer beyond the address space")
    }

    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation is of this size, all of it initialised (zeros at first), and nobody else writes it:
        // the kernel does only while `Owned` keeps the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; nothing borrowed from it outlives `self`.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.bytes)) };
    }
}

/// An operation that is over, with its buffer.
#[derive(Debug)]
pub struct Finished {
    /// As it was given.
    pub token: u64,
    /// The buffer; none for a sync.
    pub buffer: Option<Buffer>,
    /// All of it was transferred, or why not. A buffer of a failed read may hold part of it.
    pub outcome: Result<(), Errno>,
}

#[derive(Default)]
struct Held {
    token: u64,
    buffer: Option<Buffer>,
}

/// A [`Queue`] whose operations own their buffers. Dropped, it waits for what the kernel has begun and forgets what waits.
pub struct Owned {
    // First, so that it is dropped first: it waits until the kernel has let go of the buffers.
    queue: Queue,
    held: Vec<Held>,
    idle: Vec<usize>,
}

impl Owned {
    /// See [`Queue::new`].
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn new(
        file: &Arc<OwnedFd>,
        block_bytes: usize,
        operations_max: usize,
        choice: Choice,
    ) -> Result<Self, EngineError> {
        let queue = Queue::new(file, block_bytes, operations_max, choice)?;
        Ok(Self { queue, held: Vec::new(), idle: Vec::new() })
    }

    /// See [`Queue::is_ring`].
    pub fn is_ring(&self) -> bool {
        self.queue.is_ring()
    }

    /// Readable when something may have ended; for epoll.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue.event_fd()
    }

    /// Operations that are not over.
    pub fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Queues a write of the buffer's first `bytes`.
    ///
    /// # Errors
    /// [`QueueFull`]: the buffer comes back, nothing was queued.
    pub fn write(
        &mut self,
        token: u64,
        offset_bytes: u64,
        buffer: Buffer,
        bytes: usize,
    ) -> Result<(), (QueueFull, Buffer)> {
        self.transfer(token, Verb::Write, offset_bytes, buffer, bytes)
    }

    /// Queues a read into the buffer's first `bytes`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(
        &mut self,
        token: u64,
        offset_bytes: u64,
        buffer: Buffer,
        bytes: usize,
    ) -> Result<(), (QueueFull, Buffer)> {
        self.transfer(token, Verb::Read, offset_bytes, buffer, bytes)
    }

    fn transfer(
        &mut self,
        token: u64,
        verb: Verb,
        offset_bytes: u64,
        mut buffer: Buffer,
        bytes: usize,
    ) -> Result<(), (QueueFull, Buffer)> {
        assert!(bytes <= buffer.len(), "{bytes} bytes of a buffer of {}", buffer.len());
        let place = self.place();
        // SAFETY: `bytes` of the buffer's own memory, which is put into `held` before anybody else can get at it and
        // stays there until the operation has ended; `queue` is dropped before `held`.
        let queued = unsafe {
            self.queue.queue(place as u64, verb, offset_bytes, std::iter::once(buffer.start()), bytes)
        };
        match queued {
            Ok(()) => {
                self.held[place] = Held { token, buffer: Some(buffer) };
                Ok(())
            }
            Err(full) => {
                self.idle.push(place);
                Err((full, buffer))
            }
        }
    }

    /// Queues an fdatasync: it covers the writes that have ended before.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn sync(&mut self, token: u64) -> Result<(), QueueFull> {
        let place = self.place();
        // SAFETY: no memory takes part.
        let queued = unsafe { self.queue.queue(place as u64, Verb::Sync, 0, std::iter::empty(), 0) };
        match queued {
            Ok(()) => self.held[place].token = token,
            Err(QueueFull) => self.idle.push(place),
        }
        queued
    }

    fn place(&mut self) -> usize {
        self.idle.pop().unwrap_or_else(|| {
            self.held.push(Held::default());
            self.held.len() - 1
        })
    }

    /// Hands what is queued to the kernel, as far as it takes it.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit(&mut self) -> Result<(), EngineError> {
        self.queue.submit(usize::MAX)
    }

    /// Adds what is over, and continues what was cut short.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn finished(&mut self, into: &mut Vec<Finished>) -> Result<(), EngineError> {
        let (held, idle) = (&mut self.held, &mut self.idle);
        self.queue
            .completions(|ended| {
                let place = ended.token as usize;
                let Held { token, buffer } = std::mem::take(&mut held[place]);
                idle.push(place);
                into.push(Finished { token, buffer, outcome: ended.outcome });
            })
            .map(|_| ())
    }

    /// See [`Queue::wait`].
    pub fn wait(&mut self) {
        self.queue.wait();
    }
}
