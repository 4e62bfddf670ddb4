//! What carries reads, writes and syncs out: io_uring, or two plain threads where a host forbids it.

use io_uring::{IoUring, opcode, types};
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Attempts that the kernel (or the threads) may have at once.
pub const DEPTH: usize = 128;
/// Threads of the fallback: enough to keep a disk busy, few enough to be no load.
const WORKERS: usize = 2;
/// Kernel threads that io_uring may use for what it cannot do without blocking.
const RING_WORKERS_MAX: u32 = 4;

/// The machinery itself failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} failed ({errno})")]
pub struct EngineError {
    /// The call.
    pub what: &'static str,
    /// Why.
    pub errno: Errno,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Bytes of the file into memory.
    Read,
    /// Memory into the file.
    Write,
    /// fdatasync: what was written survives the loss of power.
    Sync,
}

/// One system call's worth of work. The iovecs and what they point to live until its result has come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) op: u32,
    pub(crate) verb: Verb,
    pub(crate) offset_bytes: u64,
    pub(crate) iovecs: *const libc::iovec,
    pub(crate) iovecs_count: u32,
}

/// Which engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// io_uring if it is to be had.
    Best,
    /// Threads.
    Threads,
}

/// Takes attempts, gives `(op, bytes or -errno)` back, and makes its eventfd readable when there is something to
/// give.
pub(crate) struct Engine {
    eventfd: Arc<OwnedFd>,
    fd: Arc<OwnedFd>,
    inside: usize,
    runner: Runner,
}

enum Runner {
    Ring(Box<IoUring>),
    Threads(Threads),
}

struct Threads {
    jobs: Vec<Sender<Job>>,
    results: Receiver<(u32, i32)>,
    handles: Vec<JoinHandle<()>>,
    next: usize,
}

struct Job(Attempt);
// SAFETY: the pointers inside are only passed to the kernel, which may be asked from any thread; what they point to
// is kept alive and alone until the result has come back.
unsafe impl Send for Job {}

impl Engine {
    pub(crate) fn new(fd: &Arc<OwnedFd>, choice: Choice) -> Result<Self, EngineError> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| EngineError { what: "eventfd", errno })?;
        let eventfd = Arc::new(eventfd);
        let ring = match choice {
            // EPERM and ENOSYS where containers forbid it, ENOMEM where locked memory is short: the threads do in
            // each case.
            Choice::Best => make_ring(&eventfd).ok(),
            Choice::Threads => None,
        };
        let runner = match ring {
            Some(ring) => Runner::Ring(Box::new(ring)),
            None => Runner::Threads(Threads::start(fd, &eventfd)?),
        };
        Ok(Self { eventfd, fd: fd.clone(), inside: 0, runner })
    }

    pub(crate) fn eventfd(&self) -> &OwnedFd {
        &self.eventfd
    }

    pub(crate) fn is_ring(&self) -> bool {
        matches!(self.runner, Runner::Ring(_))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.inside < DEPTH
    }

    /// Takes an attempt; it begins at the next [`submit`](Self::submit) at the latest.
    ///
    /// # Safety
    /// The iovecs and the memory they name stay, and are left alone, until the attempt's result has come back.
    pub(crate) unsafe fn push(&mut self, attempt: Attempt) {
        assert!(self.has_room(), "more attempts than the engine takes");
        self.inside += 1;
        match &mut self.runner {
            Runner::Threads(threads) => threads.push(attempt),
            Runner::Ring(ring) => {
                let fd = types::Fd(self.fd.as_raw_fd());
                let entry = match attempt.verb {
                    Verb::Read => opcode::Readv::new(fd, attempt.iovecs, attempt.iovecs_count)
                        .offset(attempt.offset_bytes)
                        .build(),
                    Verb::Write => opcode::Writev::new(fd, attempt.iovecs, attempt.iovecs_count)
                        .offset(attempt.offset_bytes)
                        .build(),
                    Verb::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
                };
                // SAFETY: the entry's pointers are good until its completion, by this function's contract.
                let pushed = unsafe { ring.submission().push(&entry.user_data(u64::from(attempt.op))) };
                // The queue has DEPTH entries or more, and at most DEPTH are inside.
                assert!(pushed.is_ok(), "io_uring's queue is full below its depth");
            }
        }
    }

    /// Hands everything that was pushed to the kernel.
    pub(crate) fn submit(&mut self) -> Result<(), EngineError> {
        let Runner::Ring(ring) = &mut self.runner else { return Ok(()) };
        while !ring.submission().is_empty() {
            match ring.submit() {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                    Errno::INTR => {}
                    // Short of memory now: have the loop come back.
                    Errno::AGAIN | Errno::BUSY | Errno::NOMEM => {
                        notify(&self.eventfd);
                        return Ok(());
                    }
                    errno => return Err(EngineError { what: "io_uring_enter", errno }),
                },
            }
        }
        Ok(())
    }

    /// Adds all results that have come back.
    pub(crate) fn drain(&mut self, results: &mut Vec<(u32, i32)>) {
        // First the bell, then the door: what comes in between rings again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.eventfd, &mut count);
        let before = results.len();
        match &mut self.runner {
            Runner::Ring(ring) => {
                results.extend(ring.completion().map(|entry| {
                    (u32::try_from(entry.user_data()).expect("an entry that we did not make"), entry.result())
                }));
            }
            Runner::Threads(threads) => results.extend(threads.results.try_iter()),
        }
        let came = results.len() - before;
        assert!(came <= self.inside, "more results than attempts");
        self.inside -= came;
    }

    /// Waits until at least one result can be drained; with nothing inside, returns at once.
    pub(crate) fn wait(&mut self) {
        if self.inside == 0 {
            return;
        }
        let result = match &mut self.runner {
            Runner::Ring(ring) => ring.submit_and_wait(1).map(|_| ()),
            Runner::Threads(_) => {
                let mut fds = [rustix::event::PollFd::new(&*self.eventfd, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut fds, None).map(|_| ()).map_err(Into::into)
            }
        };
        if let Err(error) = result {
            let errno = Errno::from_io_error(&error);
            let passing = matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM));
            assert!(passing, "waiting for the disk failed: {error}");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The kernel must be done with everybody's buffers before they can go.
        let mut results = Vec::new();
        while self.inside > 0 {
            self.wait();
            self.drain(&mut results);
        }
        if let Runner::Threads(threads) = &mut self.runner {
            threads.jobs.clear();
            for handle in threads.handles.drain(..) {
                assert!(handle.join().is_ok(), "a thread of the disk panicked");
            }
        }
    }
}

fn make_ring(eventfd: &OwnedFd) -> std::io::Result<IoUring> {
    let ring = IoUring::builder().dontfork().build(DEPTH as u32)?;
    ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
    // Too old a kernel for the limit (5.15): its own is as good.
    let _ = ring.submitter().register_iowq_max_workers(&mut [RING_WORKERS_MAX, RING_WORKERS_MAX]);
    Ok(ring)
}

fn notify(eventfd: &OwnedFd) {
    // EAGAIN: the counter is full, so it is readable.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

impl Threads {
    fn start(fd: &Arc<OwnedFd>, eventfd: &Arc<OwnedFd>) -> Result<Self, EngineError> {
        let (results_in, results) = channel();
        let mut threads = Self { jobs: Vec::new(), results, handles: Vec::new(), next: 0 };
        for index in 0..WORKERS {
            let (jobs_in, jobs) = channel::<Job>();
            let (fd, eventfd, results_in) = (fd.clone(), eventfd.clone(), results_in.clone());
            let builder =
                std::thread::Builder::new().name(format!("loam-disk-{index}")).stack_size(128 * 1024);
            let handle = builder
                .spawn(move || {
                    block_all_signals();
                    while let Ok(Job(attempt)) = jobs.recv() {
                        // The receiver goes only after this thread was joined.
                        results_in.send((attempt.op, carry_out(&fd, attempt))).expect("nobody takes results");
                        notify(&eventfd);
                    }
                })
                .map_err(|error| EngineError {
                    what: "starting a thread",
                    errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
                })?;
            threads.jobs.push(jobs_in);
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    fn push(&mut self, attempt: Attempt) {
        let sent = self.jobs[self.next].send(Job(attempt));
        assert!(sent.is_ok(), "a thread of the disk is gone");
        self.next = (self.next + 1) % self.jobs.len();
    }
}

/// Signals are the event loop's: it reads them from a descriptor.
pub fn block_all_signals() {
    // SAFETY: a signal set is plain data, filled before its use, and the call changes this thread's mask only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// One attempt, blocking; its result as io_uring would give it.
fn carry_out(fd: &OwnedFd, attempt: Attempt) -> i32 {
    let offset_bytes = attempt.offset_bytes as i64;
    let (raw, count) = (fd.as_raw_fd(), attempt.iovecs_count as i32);
    // SAFETY: the iovecs and their memory are good until the result is given back, by `Engine::push`.
    let result = unsafe {
        match attempt.verb {
            Verb::Read => libc::preadv(raw, attempt.iovecs, count, offset_bytes),
            Verb::Write => libc::pwritev(raw, attempt.iovecs, count, offset_bytes),
            Verb::Sync => libc::fdatasync(raw) as isize,
        }
    };
    if result < 0 {
        -std::io::Error::last_os_error().raw_os_error().expect("a system call failed without an errno")
    } else {
        i32::try_from(result).expect("an attempt is 1 MiB at most")
    }
}
