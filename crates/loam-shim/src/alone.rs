//! What the kernel allows only to a process of one thread: to leave its user namespace for another one. Charliecloud and Apptainer begin with that where they are not
//! root. The hand steps aside meanwhile, and another one goes on where it ended.
//!
//! It gives its descriptors to the thread that asks before it goes: as long as somebody has the userfaultfd, whoever touches a page that is elsewhere waits for it, and never
//! reads zeros. To the agent the hand stands still for so long, as that of a process that is stopped.

use core::arch::asm;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use loam_hand::{BASE_PAGE_BYTES, Call, Control, Ready, aside, call};

use crate::connect::{self, Patience};
use crate::process::{self, Place};
use crate::room::Room;
use crate::sys::{self, Errno, Fd, Result, SignalsBlocked, map};
use crate::{delays, hand, message};

const CLONE_NEWUSER: usize = 0x1000_0000;
/// Only children come into this one. Whoever has left its own makes no thread any more, so the hand must be back before.
const CLONE_NEWPID: usize = 0x2000_0000;

/// The kernel counts a thread for a moment after it has ended, and a namespace longer after its last process has.
const SETTLES_WITHIN_NS: u64 = 1_000_000_000;
/// There was room for one thread more, and will be again: without a hand the program cannot go on.
const ROOM_WITHIN_NS: u64 = 10_000_000_000;
/// Rounds of a wait before it sleeps.
const ROUNDS_AWAKE: u32 = 200;

/// One thread is at it. (There should be no other; a process of several makes the plain call.)
static BUSY: AtomicBool = AtomicBool::new(false);

/// `unshare(2)`.
pub(crate) fn unshare(flags: usize) -> Result<usize> {
    let request = |flags| Request { number: sys::UNSHARE, arguments: [flags, 0] };
    let whole = request(flags);
    if flags & CLONE_NEWUSER == 0 {
        return whole.make();
    }
    let Some(alone) = Alone::new() else { return whole.make() };
    let (first, second) = (request(flags & !CLONE_NEWPID), request(flags & CLONE_NEWPID));
    // Before anything has changed.
    match first.try_in_child(second.arguments[0]) {
        Tried::Answer(answer) => answer?,
        Tried::NoChild => return whole.make(),
    };
    let answer = alone.make(&first)?;
    if second.arguments[0] == 0 { Ok(answer) } else { soon(settles, || second.make()) }
}

/// `setns(2)`. Of what kind the namespace is `kinds` need not say, so only the refusal tells that it takes one thread.
pub(crate) fn setns(fd: Fd, kinds: usize) -> Result<usize> {
    let request = Request { number: sys::SETNS, arguments: [fd as usize, kinds] };
    let refused = match request.make() {
        Err(errno) if takes_one_thread(errno) => Err(errno),
        answer => return answer,
    };
    // (Of a namespace of processes as well: no hand could come back.)
    if kinds & CLONE_NEWPID != 0 {
        return refused;
    }
    let Some(alone) = Alone::new() else { return refused };
    match request.try_in_child(0) {
        // A child has our memory, which who enters another time must have for itself.
        Tried::Answer(Ok(_) | Err(Errno::EUSERS)) => alone.make(&request),
        Tried::Answer(refused) => refused,
        Tried::NoChild => refused,
    }
}

/// The kernel says this to processes that have several threads, and of what is wrong.
fn takes_one_thread(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::EUSERS)
}

/// It says this for a moment after a thread has ended, or a child that had such a namespace.
fn settles(errno: Errno) -> bool {
    takes_one_thread(errno) || errno == Errno::ENOSPC
}

/// What a child was told.
enum Tried {
    Answer(Result<usize>),
    /// There was no room for one.
    NoChild,
}

/// A system call of plain numbers.
struct Request {
    number: usize,
    arguments: [usize; 2],
}

impl Request {
    fn make(&self) -> Result<usize> {
        // SAFETY: `unshare` or `setns`: plain numbers. In which namespaces the process is is the caller's to say.
        unsafe { sys::call(self.number, [self.arguments[0], self.arguments[1], 0, 0, 0, 0]) }
    }

    /// What it would answer to a process of one thread, and then `unshare` with the flags `more`, if there are any: to a child that does nothing else.
    fn try_in_child(&self, more: usize) -> Tried {
        const CLONE_VM: usize = 0x100;
        /// Or it would close all of them at its end, which may take long.
        const CLONE_FILES: usize = 0x400;
        const CLONE_VFORK: usize = 0x4000;
        const WAIT_ALL: usize = 0x4000_0000;
        // If it does not come so far.
        let mut tried = -(Errno::EINVAL.0 as isize);
        let child: isize;
        // SAFETY: the child runs on our stack and touches nothing of it: its few instructions use registers only, write the answer to `tried`, which is ours and which nobody else uses meanwhile, and
        // end it. This thread goes on when it has ended. In this thread only rax, rcx and r11 change.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov rax, r12",
                "mov rdi, r13",
                "mov rsi, r14",
                "syscall",
                "test rax, rax",
                "js 3f",
                "test r9, r9",
                "jz 3f",
                "mov eax, {unshare}",
                "mov rdi, r9",
                "syscall",
                "3:",
                "mov qword ptr [r15], rax",
                "mov eax, {exit}",
                "xor edi, edi",
                "syscall",
                "ud2",
                "2:",
                exit = const sys::EXIT,
                unshare = const sys::UNSHARE,
                inlateout("rax") sys::CLONE as isize => child,
                in("rdi") CLONE_VM | CLONE_FILES | CLONE_VFORK,
                in("rsi") 0,
                in("rdx") 0,
                in("r10") 0,
                in("r8") 0,
                in("r9") more,
                in("r12") self.number,
                in("r13") self.arguments[0],
                in("r14") self.arguments[1],
                in("r15") &raw mut tried,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        if child < 0 {
            return Tried::NoChild;
        }
        // It sends no signal, and nobody else waits for such.
        // SAFETY: plain numbers; no status is asked for.
        let _ = unsafe { sys::call(sys::WAIT4, [child as usize, 0, WAIT_ALL, 0, 0, 0]) };
        Tried::Answer(if tried < 0 { Err(Errno(-tried as i32)) } else { Ok(tried as usize) })
    }
}

/// A process that has a hand and, as far as we know, one thread besides, with its signals blocked.
struct Alone {
    control: &'static Control,
    _blocked: SignalsBlocked,
    _room: Room,
}

impl Alone {
    /// `None`: without its hand it would not be of one thread, or no hand could come back.
    fn new() -> Option<Alone> {
        let control = process::control().filter(|_| process::is_under_loam())?;
        let (_blocked, _room) = (SignalsBlocked::new(), Room::new());
        let may = threads() == Some(2) && !has_left_own_processes();
        (may && !BUSY.swap(true, Acquire)).then(|| Alone { control, _blocked, _room })
    }

    /// Makes a call that is known to be answered well, without a hand.
    fn make(&self, request: &Request) -> Result<usize> {
        let window = process::place(Place::Window) + BASE_PAGE_BYTES;
        let window_bytes = process::window_bytes();
        let Some([userfaultfd, socket]) = step_aside(self.control) else { return request.make() };
        delays::maybe(2);
        let answer = soon(settles, || request.make());
        delays::maybe(2);
        // As a new hand expects it. (If it cannot be: it tries again when it has to.)
        // SAFETY: the window is the shim's own, and nobody is at it.
        let _ = unsafe { map::protect(window, window_bytes, map::PROTECTION_READ_WRITE) };
        let start = hand::Start { control: self.control, window, window_bytes, socket, userfaultfd };
        let started = within(ROOM_WITHIN_NS, |errno| errno == Errno::EAGAIN, || hand::start_again(&start));
        if let Err(errno) = started {
            message::exit_errno(b"cannot start the shim's thread again", errno);
        }
        [userfaultfd, socket].into_iter().for_each(sys::close);
        answer
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        BUSY.store(false, Release);
    }
}

/// In a forked child.
pub(crate) fn child_begins() {
    BUSY.store(false, Release);
}

fn soon<T>(passes: impl Fn(Errno) -> bool, attempt: impl Fn() -> Result<T>) -> Result<T> {
    within(SETTLES_WITHIN_NS, passes, attempt)
}

/// Tries again where it is refused so, for a while.
fn within<T>(limit_ns: u64, passes: impl Fn(Errno) -> bool, attempt: impl Fn() -> Result<T>) -> Result<T> {
    let (mut rounds, until_ns) = (0, sys::now_ns() + limit_ns);
    loop {
        match attempt() {
            Err(errno) if passes(errno) && sys::now_ns() < until_ns => rest(&mut rounds),
            answer => return answer,
        }
    }
}

fn rest(rounds: &mut u32) {
    *rounds += 1;
    if *rounds < ROUNDS_AWAKE { sys::sched_yield() } else { sys::sleep_ms(1) }
}

/// Its children are to be in another namespace than it is itself.
fn has_left_own_processes() -> bool {
    let (mut own, mut of_children) = ([0; 64], [0; 64]);
    sys::read_link(c"/proc/self/ns/pid", &mut own).is_err()
        // Nobody is there yet: then it cannot be read.
        || sys::read_link(c"/proc/self/ns/pid_for_children", &mut of_children).is_err()
        || own != of_children
}

/// `None` where nobody says it.
fn threads() -> Option<usize> {
    let tasks = sys::open_to_read(c"/proc/self/task").ok()?;
    let mut threads = 0;
    sys::each_entry(tasks, |name| threads += usize::from(name.first().is_some_and(u8::is_ascii_digit)));
    sys::close(tasks);
    Some(threads)
}

/// Has the hand end, and returns what it had: the userfaultfd and its socket. `None`: it is still there.
fn step_aside(control: &Control) -> Option<[Fd; 2]> {
    let (own, its) = sys::pair().ok()?;
    let wanted = aside::wanted(its as u32);
    control.aside.store(wanted, SeqCst);
    let request = Call { what: call::STEP_ASIDE, address: its as u64, ..Call::default() };
    let is_told =
        connect::call_agent(process::path().bytes(), &request, Patience::WhileTheAgentLives).is_ok();
    delays::maybe(2);
    // Where nobody answers the hand may have been told all the same.
    let is_taken_back = || control.aside.compare_exchange(wanted, aside::NOBODY, SeqCst, SeqCst).is_ok();
    let goes = (is_told || !is_taken_back()) && has_ended(control);
    sys::close(its);
    let come = goes.then(|| [own, own].map(receive));
    sys::close(own);
    come
}

/// False: it stays. (If the agent dies the hand ends the program.)
fn has_ended(control: &Control) -> bool {
    let mut rounds = 0;
    while control.hand_tid.load(Acquire) != 0 {
        if control.aside.load(SeqCst) == aside::STAYS {
            return false;
        }
        rest(&mut rounds);
    }
    true
}

/// What the hand has sent before it ended.
fn receive(from: Fd) -> Fd {
    match connect::receive::<Ready>(from) {
        Ok((_, [Some(fd), ..])) => fd,
        Err(errno) => message::exit_errno(b"cannot take over what the shim's thread had", errno),
        // Its memory could be wrong from now on.
        Ok(_) => message::kill_self(&[message::Piece::Text(
            b"internal error: the shim's thread has ended and given nothing away; the program is ended",
        )]),
    }
}
