//! Raw system calls: no `errno`, no cancellation points, nothing of libc. Safe to call from the hand, in a forked child of a
//! threaded program, and before libc is set up.

mod file;

use core::arch::asm;
use core::sync::atomic::AtomicU32;

pub(crate) use file::{
    above_standard, each_entry, open_to_read, pair, read, read_beginning, read_link, send_byte, wait_for_byte,
};

/// An error number of the kernel, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const EPERM: Errno = Errno(1);
    pub(crate) const ENOENT: Errno = Errno(2);
    pub(crate) const ESRCH: Errno = Errno(3);
    pub(crate) const EINTR: Errno = Errno(4);
    pub(crate) const EAGAIN: Errno = Errno(11);
    pub(crate) const ENOMEM: Errno = Errno(12);
    pub(crate) const EACCES: Errno = Errno(13);
    pub(crate) const EFAULT: Errno = Errno(14);
    pub(crate) const EBUSY: Errno = Errno(16);
    pub(crate) const EEXIST: Errno = Errno(17);
    pub(crate) const ENOTDIR: Errno = Errno(20);
    pub(crate) const EINVAL: Errno = Errno(22);
    pub(crate) const ENFILE: Errno = Errno(23);
    pub(crate) const EMFILE: Errno = Errno(24);
    pub(crate) const ENOSPC: Errno = Errno(28);
    pub(crate) const EPIPE: Errno = Errno(32);
    pub(crate) const EPROTO: Errno = Errno(71);
    pub(crate) const EUSERS: Errno = Errno(87);
    pub(crate) const ECONNRESET: Errno = Errno(104);
    pub(crate) const ENOBUFS: Errno = Errno(105);
    pub(crate) const ECONNREFUSED: Errno = Errno(111);
}

pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// A descriptor number. Owned by nobody: the shim closes what it opened by hand, since its threads differ in their tables.
pub(crate) type Fd = i32;

pub(crate) const READ: usize = 0;
pub(crate) const CLOSE: usize = 3;
pub(crate) const POLL: usize = 7;
pub(crate) const MMAP: usize = 9;
pub(crate) const MPROTECT: usize = 10;
pub(crate) const MUNMAP: usize = 11;
pub(crate) const RT_SIGPROCMASK: usize = 14;
pub(crate) const IOCTL: usize = 16;
pub(crate) const PREAD64: usize = 17;
pub(crate) const WRITEV: usize = 20;
pub(crate) const SCHED_YIELD: usize = 24;
pub(crate) const MREMAP: usize = 25;
pub(crate) const MINCORE: usize = 27;
pub(crate) const MADVISE: usize = 28;
pub(crate) const SHMAT: usize = 30;
pub(crate) const SHMCTL: usize = 31;
pub(crate) const GETPID: usize = 39;
pub(crate) const SOCKET: usize = 41;
pub(crate) const CONNECT: usize = 42;
pub(crate) const SENDTO: usize = 44;
pub(crate) const RECVFROM: usize = 45;
pub(crate) const SENDMSG: usize = 46;
pub(crate) const RECVMSG: usize = 47;
pub(crate) const SOCKETPAIR: usize = 53;
pub(crate) const SETSOCKOPT: usize = 54;
pub(crate) const GETSOCKOPT: usize = 55;
pub(crate) const CLONE: usize = 56;
pub(crate) const EXIT: usize = 60;
pub(crate) const WAIT4: usize = 61;
pub(crate) const KILL: usize = 62;
pub(crate) const FCNTL: usize = 72;
pub(crate) const CHDIR: usize = 80;
pub(crate) const GETEUID: usize = 107;
pub(crate) const MUNLOCK: usize = 150;
pub(crate) const PRCTL: usize = 157;
pub(crate) const GETTID: usize = 186;
pub(crate) const TGKILL: usize = 234;
pub(crate) const FUTEX: usize = 202;
pub(crate) const CLOCK_GETTIME: usize = 228;
pub(crate) const GETDENTS64: usize = 217;
pub(crate) const SET_TID_ADDRESS: usize = 218;
pub(crate) const EXIT_GROUP: usize = 231;
pub(crate) const OPENAT: usize = 257;
pub(crate) const READLINKAT: usize = 267;
pub(crate) const UNSHARE: usize = 272;
pub(crate) const PRLIMIT64: usize = 302;
pub(crate) const SETNS: usize = 308;
pub(crate) const PROCESS_VM_READV: usize = 310;
pub(crate) const KCMP: usize = 312;
pub(crate) const USERFAULTFD: usize = 323;
pub(crate) const PIDFD_SEND_SIGNAL: usize = 424;
pub(crate) const PIDFD_OPEN: usize = 434;
pub(crate) const CLOSE_RANGE: usize = 436;
pub(crate) const PIDFD_GETFD: usize = 438;

/// Makes a system call; the answer as the kernel gives it (errors are -4095 to -1).
///
/// # Safety
/// As the call itself: pointers among the arguments must be good for what the kernel does with them.
#[inline(always)]
pub(crate) unsafe fn raw(number: usize, arguments: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the x86-64 system call convention; rcx and r11 are overwritten by the instruction. What the call does is
    // the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// As [`raw`], with the error told apart.
///
/// # Safety
/// As [`raw`].
#[inline(always)]
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's promise.
    let answer = unsafe { raw(number, arguments) };
    if (-4095..0).contains(&answer) { Err(Errno(-answer as i32)) } else { Ok(answer as usize) }
}

/// A system call that touches no memory of the program and cannot end anything of it.
#[inline(always)]
fn plain(number: usize, a: usize, b: usize, c: usize) -> Result<usize> {
    // SAFETY: only calls with plain numbers as arguments come here (private, see below).
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

pub(crate) fn close(fd: Fd) {
    // A descriptor is gone after close whatever it answers.
    let _ = plain(CLOSE, fd as usize, 0, 0);
}

pub(crate) fn close_range(first: u32, last: u32) -> Result<()> {
    plain(CLOSE_RANGE, first as usize, last as usize, 0).map(drop)
}

pub(crate) fn getpid() -> u32 {
    plain(GETPID, 0, 0, 0).map_or(0, |pid| pid as u32)
}

pub(crate) fn geteuid() -> u32 {
    plain(GETEUID, 0, 0, 0).map_or(u32::MAX, |uid| uid as u32)
}

pub(crate) fn gettid() -> u32 {
    plain(GETTID, 0, 0, 0).map_or(0, |tid| tid as u32)
}

/// What tells the calling thread from the others of libc's, in a forked child too: the address of its control block, which the x86-64 ABI keeps at
/// the beginning of that block. (Its id is another in a child.)
pub(crate) fn thread() -> usize {
    let thread: usize;
    // SAFETY: reads the first word of the thread's own control block, which every thread of a libc has.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly)) };
    thread
}

pub(crate) fn sched_yield() {
    let _ = plain(SCHED_YIELD, 0, 0, 0);
}

/// Sleeps for so long, or until a signal comes.
pub(crate) fn sleep_ms(ms: usize) {
    let _ = plain(POLL, 0, 0, ms);
}

pub(crate) fn socket(domain: usize, kind: usize) -> Result<Fd> {
    plain(SOCKET, domain, kind, 0).map(|fd| fd as Fd)
}

pub(crate) fn duplicate_from(fd: Fd, least: Fd) -> Result<Fd> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    plain(FCNTL, fd as usize, F_DUPFD_CLOEXEC, least as usize).map(|fd| fd as Fd)
}

/// How many descriptors the process may have: now, and if it asks for it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

const RLIMIT_NOFILE: usize = 7;

pub(crate) fn descriptor_limits() -> Result<Limits> {
    let mut limits = Limits::default();
    // SAFETY: the kernel writes two 64-bit words, which is what `limits` is.
    unsafe { call(PRLIMIT64, [0, RLIMIT_NOFILE, 0, &raw mut limits as usize, 0, 0]) }.map(|_| limits)
}

pub(crate) fn set_descriptor_limits(limits: &Limits) -> Result<()> {
    // SAFETY: the kernel reads two 64-bit words, which is what `limits` is.
    unsafe { call(PRLIMIT64, [0, RLIMIT_NOFILE, &raw const *limits as usize, 0, 0, 0]) }.map(drop)
}

pub(crate) fn userfaultfd(flags: usize) -> Result<Fd> {
    plain(USERFAULTFD, flags, 0, 0).map(|fd| fd as Fd)
}

/// Monotonic time.
pub(crate) fn now_ns() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes two 64-bit words, which is what `time` is.
    let answer = unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, &raw mut time as usize, 0, 0, 0, 0]) };
    assert!(answer.is_ok(), "the monotonic clock cannot be read");
    time[0] * 1_000_000_000 + time[1]
}

pub(crate) fn exit_group(status: u32) -> ! {
    loop {
        let _ = plain(EXIT_GROUP, status as usize, 0, 0);
    }
}

/// Ends the calling thread only. For the hand: no destructor of libc runs. `status` is the process's where no other thread is left.
pub(crate) fn exit_thread(status: u32) -> ! {
    loop {
        let _ = plain(EXIT, status as usize, 0, 0);
    }
}

/// Ends the calling thread only, and says when it needs its stack no more: `tid` is 0 then. Some other thread must have its memory.
pub(crate) fn exit_thread_clearing(tid: &AtomicU32) -> ! {
    // SAFETY: the kernel writes the one word, which is mapped for the life of the process.
    let _ = unsafe { call(SET_TID_ADDRESS, [tid.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    exit_thread(0)
}

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// Sleeps until it is woken, if the word is still as it was. May return for no reason.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    let arguments = [word.as_ptr() as usize, FUTEX_WAIT_PRIVATE, value as usize, 0, 0, 0];
    // SAFETY: the kernel only reads the word, which lives; no time limit.
    let _ = unsafe { call(FUTEX, arguments) };
}

/// Wakes one that sleeps.
pub(crate) fn futex_wake_one(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0];
    // SAFETY: the word's address is all that is used.
    let _ = unsafe { call(FUTEX, arguments) };
}

pub(crate) fn kill(pid: u32, signal: u32) -> Result<()> {
    plain(KILL, pid as usize, signal as usize, 0).map(drop)
}

pub(crate) fn pidfd_open(pid: u32) -> Result<Fd> {
    plain(PIDFD_OPEN, pid as usize, 0, 0).map(|fd| fd as Fd)
}

/// A descriptor of the process's own table, for the hand, which has another one.
pub(crate) fn descriptor_of_process(fd: Fd) -> Result<Fd> {
    let process = pidfd_open(getpid())?;
    let own = plain(PIDFD_GETFD, process as usize, fd as usize, 0);
    close(process);
    own.map(|fd| fd as Fd)
}

pub(crate) fn pidfd_kill(process: Fd, signal: u32) -> Result<()> {
    plain(PIDFD_SEND_SIGNAL, process as usize, signal as usize, 0).map(drop)
}

/// Whether two processes have one memory. False where that may not be asked.
pub(crate) fn have_one_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: usize = 1;
    plain(KCMP, one as usize, other as usize, KCMP_VM) == Ok(0)
}

/// Waits until there is something to read, of a process until it has ended, but no longer than this.
pub(crate) fn wait_readable(fd: Fd, ms: usize) {
    const POLLIN: u64 = 1;
    // `struct pollfd`: descriptor, events, and room for the answer.
    let mut polled = fd as u32 as u64 | POLLIN << 32;
    // SAFETY: the kernel reads and writes the one structure of 8 bytes.
    let _ = unsafe { call(POLL, [&raw mut polled as usize, 1, ms, 0, 0, 0]) };
}

/// Sends the calling thread a signal.
pub(crate) fn kill_thread(signal: u32) -> Result<()> {
    plain(TGKILL, getpid() as usize, gettid() as usize, signal as usize).map(drop)
}

pub(crate) mod map {
    //! Mappings.
    use super::{Fd, MADVISE, MINCORE, MMAP, MPROTECT, MREMAP, MUNLOCK, MUNMAP, PREAD64, Result, call};
    use loam_hand::BASE_PAGE_BYTES;

    pub(crate) const PROTECTION_NONE: usize = 0;
    pub(crate) const PROTECTION_READ: usize = 1;
    pub(crate) const PROTECTION_READ_WRITE: usize = 3;
    /// And to be executed.
    pub(crate) const PROTECTION_ALL: usize = 7;
    pub(crate) const SHARED: usize = 0x01;
    pub(crate) const PRIVATE: usize = 0x02;
    pub(crate) const FIXED: usize = 0x10;
    pub(crate) const ANONYMOUS: usize = 0x20;
    pub(crate) const NORESERVE: usize = 0x4000;
    /// At the address, or not at all.
    pub(crate) const FIXED_NOREPLACE: usize = 0x10_0000;

    pub(crate) const ADVICE_DONTNEED: usize = 4;
    pub(crate) const ADVICE_DONTFORK: usize = 10;
    pub(crate) const ADVICE_NOHUGEPAGE: usize = 15;
    pub(crate) const ADVICE_DONTDUMP: usize = 16;
    pub(crate) const ADVICE_DODUMP: usize = 17;
    pub(crate) const ADVICE_WIPEONFORK: usize = 18;
    pub(crate) const ADVICE_POPULATE_WRITE: usize = 23;
    /// As [`ADVICE_DONTNEED`], of locked memory too.
    pub(crate) const ADVICE_DONTNEED_LOCKED: usize = 24;
    pub(crate) const ADVICE_GUARD_INSTALL: usize = 102;

    /// # Safety
    /// With [`FIXED`], what was at the address must be the caller's own.
    pub(crate) unsafe fn map(
        address: usize,
        bytes: usize,
        protection: usize,
        flags: usize,
        fd: Fd,
    ) -> Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { map_from(address, bytes, protection, flags, fd, 0) }
    }

    /// As [`map`], from `offset` of the file on.
    ///
    /// # Safety
    /// As [`map`].
    pub(crate) unsafe fn map_from(
        address: usize,
        bytes: usize,
        protection: usize,
        flags: usize,
        fd: Fd,
        offset: usize,
    ) -> Result<usize> {
        // SAFETY: without FIXED the kernel picks a free place; with it, the caller's promise.
        unsafe { call(MMAP, [address, bytes, protection, flags, fd as usize, offset]) }
    }

    /// Maps what is mapped shared at `from` a second time: at `to`, or where the kernel finds room.
    ///
    /// # Safety
    /// What is at `to` must be the caller's own.
    pub(crate) unsafe fn copy_shared(from: usize, bytes: usize, to: Option<usize>) -> Result<usize> {
        const MAY_MOVE: usize = 1;
        const FIXED: usize = 2;
        let flags = if to.is_some() { MAY_MOVE | FIXED } else { MAY_MOVE };
        // SAFETY: of an old size of 0 nothing is taken away; the caller's promise.
        unsafe { call(MREMAP, [from, 0, bytes, flags, to.unwrap_or(0), 0]) }
    }

    /// # Safety
    /// The range must be the caller's own.
    pub(crate) unsafe fn protect(address: usize, bytes: usize, protection: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { call(MPROTECT, [address, bytes, protection, 0, 0, 0]) }.map(drop)
    }

    /// # Safety
    /// The range must be the caller's own, and unused from here on.
    pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        let _ = unsafe { call(MUNMAP, [address, bytes, 0, 0, 0, 0]) };
    }

    /// # Safety
    /// The caller must be entitled to what the advice does to the range's contents.
    pub(crate) unsafe fn advise(address: usize, bytes: usize, advice: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { call(MADVISE, [address, bytes, advice, 0, 0, 0]) }.map(drop)
    }

    /// Ends the locking of a range; contents stay.
    pub(crate) fn unlock(address: usize, bytes: usize) -> Result<()> {
        // SAFETY: plain numbers; whether its pages are locked changes nothing that the program can read.
        unsafe { call(MUNLOCK, [address, bytes, 0, 0, 0, 0]) }.map(drop)
    }

    /// Anonymous memory between two pages without access, so that it never becomes one mapping with a neighbour.
    pub(crate) fn map_guarded(bytes: usize, hint: usize) -> Result<usize> {
        let all = bytes + 2 * BASE_PAGE_BYTES;
        let anonymous = PRIVATE | ANONYMOUS | NORESERVE;
        // SAFETY: a new mapping where the kernel finds room, then its own middle is replaced.
        unsafe {
            let low = map(hint, all, PROTECTION_NONE, anonymous, -1)?;
            map(low + BASE_PAGE_BYTES, bytes, PROTECTION_READ_WRITE, anonymous | FIXED, -1)
        }
    }

    /// Whether there is a page at an address, be it here or swapped out; `pagemap` is the process's own. `None`: it does not say.
    pub(crate) fn has_page(pagemap: Option<Fd>, address: usize) -> Option<bool> {
        const HERE_OR_SWAPPED: u64 = 3 << 62;
        let mut entry = 0_u64;
        let at = address / BASE_PAGE_BYTES * size_of_val(&entry);
        let into = [&raw mut entry as usize, size_of_val(&entry)];
        // SAFETY: the kernel writes at most the one entry.
        let read = unsafe { call(PREAD64, [pagemap? as usize, into[0], into[1], at, 0, 0]) };
        (read == Ok(size_of_val(&entry))).then_some(entry & HERE_OR_SWAPPED != 0)
    }

    /// Whether the page at an address of private anonymous memory is here. False also where it is swapped out, and where nothing is mapped.
    pub(crate) fn is_resident(address: usize) -> bool {
        let mut pages = [0_u8; 1];
        // SAFETY: the kernel writes one byte for the one page that is asked about.
        let answer = unsafe { call(MINCORE, [address, 1, pages.as_mut_ptr() as usize, 0, 0, 0]) };
        answer.is_ok() && pages[0] & 1 == 1
    }
}

/// Every signal blocked while this lives; the old mask comes back when it is dropped.
pub(crate) struct SignalsBlocked {
    old: u64,
}

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        let all = u64::MAX;
        let mut old = 0_u64;
        // SAFETY: two words of the size named in the last argument.
        let answer =
            unsafe { call(RT_SIGPROCMASK, [2, &raw const all as usize, &raw mut old as usize, 8, 0, 0]) };
        assert!(answer.is_ok(), "signals cannot be blocked");
        SignalsBlocked { old }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { call(RT_SIGPROCMASK, [2, &raw const self.old as usize, 0, 8, 0, 0]) };
    }
}
