//! Forks: the child gets a copy of what its parent has in use.
//!
//! The parent's thread holds the locks of the region through the fork, and then waits until the child has copied; its other threads that write to
//! direct memory meanwhile wait in the kernel, since it is write-protected (a userfaultfd of the shim's own). A pair of sockets tells the parent that the child is done, or has
//! ended. The child reads the parent's chunks by the mapping of the pool that it has inherited, and looks after each whether it still was the parent's: that of
//! a parent that has ended meanwhile goes to somebody else.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, fence};

use loam_hand::{BASE_PAGE_BYTES, Call, call};

use super::{DIRECT, Direct, NOTHING, PRIVATE, map};
use crate::connect::{self, Patience};
use crate::lock::Lock;
use crate::message::{self, Piece};
use crate::room::Room;
use crate::sys::{self, Fd, Result, SignalsBlocked};
use crate::{process, userfault};

/// A fork under way. In the child it is a copy, with descriptors of its own.
static FORK: Lock<Option<Fork>> = Lock::new(None);
static HELD: Lock<Option<SignalsBlocked>> = Lock::new(None);
/// What a child that joins is in the table; 0: nothing, so what it copies comes into memory of its own.
static TOKEN: AtomicU32 = AtomicU32::new(0);

struct Fork {
    read: Fd,
    write: Fd,
    /// What the parent's memory is protected by.
    protects: Option<Fd>,
}

/// The thread that forks and the hand.
const THREADS_ALONE: u64 = 2;

/// Before the fork, with the region's lock held.
pub(in crate::region) fn prepare() {
    if !super::is_on() {
        return;
    }
    if FORK.lock().is_some() {
        message::exit(&[Piece::Text(b"a handler of the program's for forks forks itself, before the child has its copy of the direct region: use --region SIZE:paged")]);
    }
    let signals = DIRECT.hold();
    *HELD.lock() = Some(signals);
    let mut direct = DIRECT.lock();
    let Some(direct) = direct.as_mut().filter(|direct| direct.is_own()) else { return };
    direct.forks = true;
    if direct.mapped == 0 {
        return; // nothing that a child could need
    }
    let here = 0_u8;
    // What libc keeps of the thread is with its stack, also where it runs on another one just now.
    if [(&raw const here).addr(), sys::thread()].into_iter().any(super::super::contains) {
        message::exit(&[Piece::Text(
            b"a thread whose stack is in the direct region cannot fork: give --min-alloc more than its stack has, or a region that is paged",
        )]);
    }
    let _room = Room::new();
    // No other thread can come into being but by one that is there.
    let is_alone = threads().is_some_and(|threads| threads <= THREADS_ALONE);
    let protects = (!is_alone).then(|| match protect(direct) {
        Ok(userfaultfd) => userfaultfd,
        Err(errno) => message::exit(&[
            Piece::Text(b"a program with several threads that forks needs its direct memory write-protected for that time, and the kernel refuses (error "),
            Piece::errno(errno),
            Piece::Text(b"): use --region SIZE:paged, or see `loam doctor`"),
        ]),
    });
    match sys::pair() {
        Ok((read, write)) => {
            *FORK.lock() = Some(Fork { read, write, protects });
        }
        Err(errno) => message::exit_errno(
            b"no descriptors for a fork: raise the limit of open files (ulimit -n)",
            errno,
        ),
    }
}

/// After it, in the parent: waits until the child has its copy, or has ended, or never began.
pub(in crate::region) fn parent() {
    if !super::is_on() {
        return;
    }
    let fork = FORK.lock().take();
    if let Some(fork) = fork {
        sys::close(fork.write);
        // A byte, or the end: a child that ends closes its side.
        if let Err(errno) = sys::wait_for_byte(fork.read) {
            message::exit_errno(b"the program has closed the shim's descriptor while it forked", errno);
        }
        sys::close(fork.read);
        if let Some(userfaultfd) = fork.protects
            && let Some(direct) = &*DIRECT.lock()
        {
            unprotect(direct, userfaultfd);
            sys::close(userfaultfd);
            // The kernel has taken large pages apart for it: all pages at once cost half of what they would by faults.
            runs(direct).for_each(|(at, bytes)| map::populate(at, bytes));
        }
    }
    if let Some(direct) = DIRECT.lock().as_mut().filter(|direct| direct.is_own()) {
        direct.forks = false;
    }
}

/// After it, in the child, before it joins: its parent's chunks have left gaps, which nobody else may take.
pub(in crate::region) fn child_begins() {
    if !super::is_on() {
        return;
    }
    if let Some(fork) = &*FORK.lock()
        && let Some(direct) = &*DIRECT.lock()
    {
        sys::close(fork.read);
        let mut slots = (0..direct.slots.len()).filter(|slot| direct.chunk(*slot).is_some());
        let filled = slots.try_for_each(|slot| map::nothing_new(direct.address(slot), direct.chunk_bytes));
        if let Err(errno) = filled {
            message::exit_errno(
                b"a handler of the program's for forks has taken the direct region's addresses",
                errno,
            );
        }
    }
}

/// The last step, in the parent and in the child.
pub(in crate::region) fn let_go() {
    let signals = HELD.lock().take();
    if let Some(signals) = signals {
        DIRECT.let_go(signals);
    }
}

/// The agent has said what a child that joins is in the table.
pub(crate) fn set_token(token: u32) {
    TOKEN.store(token, Relaxed);
}

/// The child has joined, and gets its copy. `prepare` of its parent has seen to it that the parent does not write meanwhile.
pub(in crate::region) fn child_copies() {
    let token = TOKEN.swap(0, Relaxed);
    let fork = FORK.lock().take();
    let mut direct = DIRECT.lock();
    let Some(direct) = direct.as_mut() else { return };
    // Without a fork under way nothing was mapped; or this is the child of one that has no part in the pool itself, and stays without.
    if fork.is_none() && direct.mapped > 0 {
        // Its own id may be that of the one whose chunks these are: in another pid namespace, or when that has ended.
        direct.process = 0;
        return;
    }
    let parent = core::mem::replace(&mut direct.token, token);
    direct.process = sys::getpid();
    direct.forks = false;
    direct.mapped = 0;
    for slot in 0..direct.slots.len() {
        if let Some(chunk) = direct.chunk(slot) {
            copy_slot(direct, slot, chunk, parent);
        }
    }
    direct.tell_mapped();
    let Some(fork) = fork else { return };
    if let Some(userfaultfd) = fork.protects {
        // The parent may need it: for another library's handler that runs before the shim's.
        unprotect(direct, userfaultfd);
        sys::close(userfaultfd);
    }
    if let Err(errno) = sys::send_byte(fork.write) {
        message::exit_errno(b"a handler of the program's for forks has closed the shim's descriptor", errno);
    }
    sys::close(fork.write);
}

fn copy_slot(direct: &mut Direct, slot: usize, chunk: usize, parent: u32) {
    let (pages, bytes) = (direct.pages_of(slot), direct.chunk_bytes);
    direct.slots[slot] = NOTHING;
    if !direct.marks.has_any(pages.clone()) {
        return;
    }
    let no_memory = b"no memory for a forked child's copy of the direct region";
    let is_shared = direct.token != 0 && direct.map_slot(slot);
    if !is_shared {
        if let Err(errno) = map::private(direct.address(slot), bytes) {
            message::exit_errno(no_memory, errno);
        }
        direct.slots[slot] = PRIVATE;
    }
    let from = match map::foreign(direct.whole_at(chunk), bytes) {
        Ok(from) => from,
        Err(errno) => message::exit_errno(no_memory, errno),
    };
    let mut copied = 0;
    let mut left = pages.clone();
    while let Some(run) = direct.marks.next_run(left.clone(), true) {
        copy_pages(direct, from, &pages, &run);
        copied += run.len() * BASE_PAGE_BYTES;
        left.start = run.end;
    }
    // What was read before is what the word says now.
    fence(Acquire);
    let was_its = direct.chunks.is_owned(chunk, parent);
    // SAFETY: mapped above, and not used any more.
    unsafe { sys::map::unmap(from, bytes) };
    if !was_its {
        message::exit(&[Piece::Text(b"a forked child's parent has ended before the child had its copy of the direct region: the child is ended, too")]);
    }
    super::super::count(|figures| {
        figures.copied_bytes.fetch_add(copied as u64, Relaxed);
        figures.private_bytes.fetch_add(if is_shared { 0 } else { copied as u64 }, Relaxed);
    });
}

/// Copies `run`, some of the `pages` of a slot, whose contents in the parent are mapped at `from`.
fn copy_pages(direct: &Direct, from: usize, pages: &Range<usize>, run: &Range<usize>) {
    let from = from + (run.start - pages.start) * BASE_PAGE_BYTES;
    let to = direct.base + run.start * BASE_PAGE_BYTES;
    // SAFETY: both are mapped, the one for reading, the other just now for writing, and no thread knows either. The parent does not write to what is read; if
    // somebody else does, the caller finds that it was not the parent's any more, and ends.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, run.len() * BASE_PAGE_BYTES) };
}

/// The runs of slots that have chunks, as addresses and bytes.
fn runs(direct: &Direct) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let slots = direct.slots.len();
        let first = (at..slots).find(|slot| direct.chunk(*slot).is_some())?;
        at = (first..slots).find(|slot| direct.chunk(*slot).is_none()).unwrap_or(slots);
        Some((direct.address(first), (at - first) * direct.chunk_bytes))
    })
}

/// Whoever writes to a chunk waits from now on.
fn protect(direct: &Direct) -> Result<Fd> {
    let path = process::path();
    let ask = Call { what: call::USERFAULTFD, ..Call::default() };
    let device = connect::call_agent_for_fd(path.bytes(), &ask, Patience::Limited)?;
    let opened = userfault::open(device);
    device.into_iter().for_each(sys::close);
    let userfaultfd = sys::above_standard(opened?)?;
    let protected = userfault::begin(userfaultfd).and_then(|()| {
        runs(direct).try_for_each(|(at, bytes)| userfault::write_protect(userfaultfd, at, bytes))
    });
    protected.inspect_err(|_| sys::close(userfaultfd))?;
    Ok(userfaultfd)
}

/// Ends it. In the child it is the parent's memory that this is about, all the same: by what runs the parent had.
fn unprotect(direct: &Direct, userfaultfd: Fd) {
    let _ = userfault::unregister(userfaultfd, direct.base, direct.slots.len() * direct.chunk_bytes);
}

/// Threads of this process, the hand among them.
fn threads() -> Option<u64> {
    let mut text = [0_u8; 1024];
    let read = sys::read_beginning(c"/proc/self/stat", &mut text).ok()?;
    // The name, in parentheses, may have any of them itself. Behind it the 18th word.
    let text = text.get(..read)?;
    let behind = text.iter().rposition(|byte| *byte == b')')? + 1;
    let word = text.get(behind..)?.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(17)?;
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
