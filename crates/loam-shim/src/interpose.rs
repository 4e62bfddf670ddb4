//! Functions of libc that the shim stands in for, to tell the agent of requests that clash with paging (and `mremap`: see [`crate::remap`]), and `mmap`, where
//! whoever takes memory too fast waits ([`throttle`]). Everything else passes straight through to the kernel. And those that a program calls to say something of itself.

use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use loam_hand::{BASE_PAGE_BYTES, Call, call, part_begins, terms_word};

use crate::connect::{self, Patience};
use crate::start::errno_location;
use crate::sys::{self, Errno, SignalsBlocked, map};
use crate::{alone, process, region, throttle, userfault};

const MADV_DONTNEED: c_int = map::ADVICE_DONTNEED as c_int;
const MADV_FREE: c_int = 8;
const MADV_WIPEONFORK: c_int = 18;
const MADV_DONTFORK: c_int = 10;
const MADV_GUARD_INSTALL: c_int = map::ADVICE_GUARD_INSTALL as c_int;
const MADV_POPULATE_READ: c_int = 22;
const MADV_POPULATE_WRITE: c_int = map::ADVICE_POPULATE_WRITE as c_int;

/// Filled at one go ([`populate`]): a millisecond's work.
const POPULATED_BYTES: usize = 2 << 20;

/// Asks the agent to bring a range home and let it go for good, however long that takes.
pub(crate) fn release(address: u64, bytes: u64) -> sys::Result<()> {
    let _blocked = SignalsBlocked::new();
    let path = process::path();
    let request = Call { what: call::RELEASE, address, bytes, ..Call::default() };
    connect::call_agent(path.bytes(), &request, Patience::WhileTheAgentLives)
}

/// A child would have by the agent's record what the kernel does not give it, and what it puts there is another thing: so the agent looks what a child has. Once is
/// enough, for those that it forks as well.
fn tell_that_it_keeps() -> sys::Result<()> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.load(Relaxed) {
        return Ok(());
    }
    let _blocked = SignalsBlocked::new();
    let path = process::path();
    let request = Call { what: call::KEEPS, ..Call::default() };
    connect::call_agent(path.bytes(), &request, Patience::WhileTheAgentLives)?;
    TOLD.store(true, Relaxed);
    Ok(())
}

/// Start and length of the range at `argument`; `None` if it cannot be read, which the kernel will say as well.
fn range_at(argument: usize) -> Option<(u64, u64)> {
    let mut range = [0_u64; 2];
    let local = [&raw mut range as usize, size_of_val(&range)];
    let remote = [argument, size_of_val(&range)];
    let arguments = [sys::getpid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    // SAFETY: writes at most 16 bytes to `range`; a bad remote address is an error, not a fault.
    let read = unsafe { sys::call(sys::PROCESS_VM_READV, arguments) };
    (read == Ok(size_of_val(&range))).then_some((range[0], range[1]))
}

/// libc's answer: -1 and `errno`.
pub(crate) fn answer(result: sys::Result<usize>) -> c_int {
    match result {
        Ok(value) => value as c_int,
        Err(errno) => {
            // SAFETY: libc's own location for the calling thread, which is a thread of the program: the hand never comes here.
            unsafe { *errno_location() = errno.0 };
            -1
        }
    }
}

/// `ioctl(2)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // The kernel takes 32 bits of the request; callers with an `int` extend its sign.
    if request as u32 as usize == userfault::REGISTER
        && process::is_under_loam()
        && let Some((start, bytes)) = range_at(argument)
    {
        // If the agent cannot, the program's request gets the kernel's answer, as it would for a range that another pager holds.
        let _ = release(start, bytes);
    }
    // SAFETY: the caller's promise.
    answer(unsafe { sys::call(sys::IOCTL, [fd as usize, request as usize, argument, 0, 0, 0]) })
}

/// `MADV_GUARD_INSTALL`, of which the kernel tells nobody: pages that are away would come back with what they held when the guard is taken away
/// again. So it is a discard as well, which the agent hears of. And as the agent's pages would push a guard out, the range is let go.
///
/// # Safety
/// As the system call.
unsafe fn install_guard(address: usize, bytes: usize) -> sys::Result<()> {
    // SAFETY: the caller's promise; a discard takes no more than the guard has taken already.
    unsafe {
        // First, as it says whether the kernel knows it, and allows it here. Over a hole (ENOMEM) it does all but the hole.
        match map::advise(address, bytes, map::ADVICE_GUARD_INSTALL) {
            Ok(()) | Err(Errno::ENOMEM) => {}
            refused => return refused,
        }
        let _ = map::advise(address, bytes, map::ADVICE_DONTNEED);
        let _ = release(address as u64, bytes as u64);
        // What the agent was about to install may have come in between.
        map::advise(address, bytes, map::ADVICE_GUARD_INSTALL)
    }
}

/// `MADV_POPULATE_READ` and `_WRITE` in pieces, between which others may change the mappings: the kernel fills all of it at once, and nobody could adopt any of it
/// before the last page. Where it fails the pages before are filled, as if it had been asked once.
///
/// # Safety
/// As the system call.
unsafe fn populate(address: usize, bytes: usize, advice: c_int) -> sys::Result<()> {
    // What reaches beyond all addresses is refused as a whole.
    let piece_bytes = if address.checked_add(bytes).is_some() { POPULATED_BYTES } else { bytes };
    let (mut done, began_ns) = (0, sys::now_ns());
    loop {
        if sys::now_ns() - began_ns < throttle::WAIT_NS_MAX {
            throttle::ask();
        }
        let piece = (bytes - done).min(piece_bytes);
        // SAFETY: the caller's promise.
        unsafe { map::advise(address + done, piece, advice as usize) }?;
        done += piece;
        if done == bytes {
            return Ok(());
        }
    }
}

/// `MAP_POPULATE`, as far as it may be followed. More of it than matters where somebody else has to leave for it is not filled at once: the kernel would do it before anybody can adopt a page. What
/// the program touches of it comes then.
fn populated(bytes: usize, flags: usize) -> usize {
    const POPULATE: usize = 0x8000;
    const HUGETLB: usize = 0x4_0000;
    const PLAIN: usize = map::PRIVATE | map::ANONYMOUS;
    if flags & POPULATE == 0 || flags & (PLAIN | HUGETLB) != PLAIN || !process::is_under_loam() {
        return flags;
    }
    let most = process::control().map_or(0, |control| control.populate_max.load(Relaxed));
    if most > 0 && bytes / BASE_PAGE_BYTES > most as usize { flags & !POPULATE } else { flags }
}

/// `madvise(2)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if region::advised(address as usize, bytes, advice) {
        return 0;
    }
    if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) && process::is_under_loam() {
        // SAFETY: the caller's promise.
        return answer(unsafe { populate(address as usize, bytes, advice) }.map(|()| 0));
    }
    if advice == MADV_GUARD_INSTALL && process::is_under_loam() {
        // SAFETY: the caller's promise.
        return answer(unsafe { install_guard(address as usize, bytes) }.map(|()| 0));
    }
    let heard = match advice {
        _ if !process::is_under_loam() => Ok(()),
        MADV_WIPEONFORK => release(address as u64, bytes as u64),
        MADV_DONTFORK if process::has_fork_events() => tell_that_it_keeps(),
        // The agent itself hides adopted memory from children so: what the program hides must be its own.
        MADV_DONTFORK => release(address as u64, bytes as u64),
        _ => Ok(()),
    };
    if heard.is_err() {
        return answer(Err(Errno::EAGAIN)); // as where the kernel lacks something for a moment
    }
    // SAFETY: the caller's promise.
    let advise = |advice: c_int| unsafe {
        sys::call(sys::MADVISE, [address as usize, bytes, advice as usize, 0, 0, 0])
    };
    let answered = advise(advice);
    if advice == MADV_FREE && answered.is_ok() && is_borrowing() {
        // It said yes, so all of it is private memory of no file, which reads as it was or as zeros from now on.
        let _ = advise(MADV_DONTNEED);
    }
    answer(answered)
}

/// Memory of this process may be adopted. What it frees lazily (`MADV_FREE`) is to be gone then: the kernel keeps such pages until it is short of memory itself, which it never is for
/// `--local`; and what the program writes to them meanwhile causes no fault, so that nobody would know that they are here.
fn is_borrowing() -> bool {
    process::is_under_loam()
        && process::control().is_some_and(|control| control.borrows_nothing.load(Relaxed) == 0)
}

/// Bytes of a shared segment, whole pages; `None` if the kernel does not say, and will not attach it either.
fn segment_bytes(id: c_int) -> Option<u64> {
    const IPC_STAT: usize = 2;
    /// `shm_segsz`, behind the 48 bytes of `struct ipc64_perm`.
    const BYTES_AT: usize = 6;
    let mut segment = [0_u64; 16];
    // SAFETY: the kernel writes its `struct shmid64_ds`, 112 bytes, to `segment`, which is larger.
    unsafe { sys::call(sys::SHMCTL, [id as usize, IPC_STAT, segment.as_mut_ptr() as usize, 0, 0, 0]) }
        .ok()?;
    segment[BYTES_AT].checked_next_multiple_of(BASE_PAGE_BYTES as u64)
}

/// `shmat(2)`: of what a segment takes the place of (`SHM_REMAP`) the kernel tells nobody.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    const SHM_RND: c_int = 0o20000;
    const SHM_REMAP: c_int = 0o40000;
    let rounded = address as usize & !(BASE_PAGE_BYTES - 1);
    let is_page = flags & SHM_RND != 0 || rounded == address as usize;
    if flags & SHM_REMAP != 0
        && rounded != 0
        && is_page
        && process::is_under_loam()
        && let Some(bytes) = segment_bytes(id)
        && release(rounded as u64, bytes).is_err()
    {
        return answer(Err(Errno::ENOMEM)) as isize as *mut c_void;
    }
    // SAFETY: the caller's promise.
    match unsafe { sys::call(sys::SHMAT, [id as usize, address as usize, flags as usize, 0, 0, 0]) } {
        Ok(address) => core::ptr::with_exposed_provenance_mut(address),
        Err(errno) => answer(Err(errno)) as isize as *mut c_void,
    }
}

/// `unshare(2)`: only a process of one thread may leave its user namespace.
#[unsafe(no_mangle)]
extern "C" fn unshare(flags: c_int) -> c_int {
    answer(alone::unshare(flags as u32 as usize))
}

/// `setns(2)`: nor into another user namespace, or one of time.
#[unsafe(no_mangle)]
extern "C" fn setns(fd: c_int, kinds: c_int) -> c_int {
    answer(alone::setns(fd, kinds as u32 as usize))
}

/// The call itself: none of the exported functions calls another (see [`crate::region`]).
///
/// # Safety
/// As [`mmap`].
#[inline(always)]
unsafe fn map_new(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    throttle::ask();
    let (protection, flags, fd) = (protection as usize, populated(bytes, flags as usize), fd as usize);
    // SAFETY: the caller's promise.
    match unsafe { sys::call(sys::MMAP, [address as usize, bytes, protection, flags, fd, offset as usize]) } {
        Ok(address) => address as *mut c_void,
        Err(errno) => answer(Err(errno)) as isize as *mut c_void, // MAP_FAILED
    }
}

/// `mmap(2)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map_new(address, bytes, protection, flags, fd, offset) }
}

/// Another name of the same.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map_new(address, bytes, protection, flags, fd, offset) }
}

/// Nobody has heard it.
const UNHEARD: c_int = 1;
/// So much was said of other ranges that this is not remembered.
const TOO_MUCH: c_int = 2;
/// There are too many budgets.
const TOO_MANY_BUDGETS: c_int = 3;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// The program says something of a range: one of `what`, by its number. 0: the agent has heard it.
fn tell(address: usize, bytes: usize, what: &[u32], number: c_int) -> c_int {
    let what = usize::try_from(number).ok().and_then(|number| what.get(number));
    let Some(&what) = what else { return UNHEARD };
    tell_agent(&Call { what, address: address as u64, bytes: bytes as u64, ..Call::default() })
}

fn tell_agent(request: &Call) -> c_int {
    if !process::is_under_loam() {
        return UNHEARD;
    }
    let _blocked = SignalsBlocked::new();
    let path = process::path();
    match connect::call_agent(path.bytes(), request, Patience::Limited) {
        Ok(()) => 0,
        Err(sys::Errno(ENOSPC)) => TOO_MUCH,
        Err(sys::Errno(EDQUOT)) => TOO_MANY_BUDGETS,
        Err(_) => UNHEARD,
    }
}

/// What it will do with a range: 0, it will use it soon; 1, it will not for a while. From now on: 2, nothing is known; 3, it goes through it in order;
/// 4, in none; 5, it has freed it, and nothing holds any more that was said.
#[unsafe(no_mangle)]
extern "C" fn loam_advise_range(address: usize, bytes: usize, advice: c_int) -> c_int {
    const WHAT: [u32; 6] =
        [call::WILL_NEED, call::WILL_NOT_NEED, call::NORMAL, call::SEQUENTIAL, call::RANDOM, call::FORGET];
    tell(address, bytes, &WHAT, advice)
}

/// What a range is worth from now on: 0, less than others; 1, as much; 2, more.
#[unsafe(no_mangle)]
extern "C" fn loam_prioritize_range(address: usize, bytes: usize, priority: c_int) -> c_int {
    tell(address, bytes, &[call::LOW, call::MIDDLE, call::HIGH], priority)
}

/// On what terms a range is paged from now on: pages of `page_bytes`, the plan of number `plan - 1`, at most `local_bytes` of it here; 0 each: as of the process.
#[unsafe(no_mangle)]
extern "C" fn loam_set_terms_range(
    address: usize,
    bytes: usize,
    page_bytes: usize,
    plan: u32,
    local_bytes: u64,
) -> c_int {
    let Some(terms) = terms_word(page_bytes, plan) else { return UNHEARD };
    tell_agent(&Call { what: call::TERMS, terms, address: address as u64, bytes: bytes as u64, local_bytes })
}

/// A part of the program begins (aapc-2012, section II.A): what is learnt of its pages counts for this part until another begins. The agent reads it
/// with the next fault, so it costs a store, and nothing is lost in parts that do not fault.
#[unsafe(no_mangle)]
extern "C" fn loam_part(part: u32) {
    if let Some(control) = process::control() {
        // Two threads at once: one of them begins it.
        control.part.store(part_begins(control.part.load(Relaxed), part), Relaxed);
    }
}
