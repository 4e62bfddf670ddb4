//! What the kernel allows only to a process of one thread: to leave its user namespace for another one. Charliecloud and Apptainer begin with that where they are not
//! root. The hand steps aside meanwhile, and another one goes on where it ended.
//!
//! It gives its descriptors to the thread that asks before it goes: as long as somebody has the userfaultfd, whoever touches a page that is elsewhere waits for it, and never
//! reads zeros. To the agent the hand stands still for so long, as that of a process that is stopped.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, SeqCst};

use loam_hand::{BASE_PAGE_BYTES, Call, Control, Ready, aside, call};

use crate::connect::{self, Patience};
use crate::process::{self, Place};
use crate::room::Room;
use crate::sys::{self, Errno, Fd, Result, SignalsBlocked};
use crate::{delays, hand, message};

const CLONE_VM: usize = 0x100;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const CLONE_NEWPID: usize = 0x2000_0000;
const CLONE_NEWTIME: usize = 0x80;
/// What a process of several threads may not let go.
const ALONE: usize = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
/// Namespaces that only children come into. Whoever has left its own cannot make a thread any more, so the hand must be there before.
const FOR_CHILDREN: usize = CLONE_NEWPID | CLONE_NEWTIME;

/// The kernel knows of a thread for a moment after it has ended. Where nobody says how many there are, a refusal holds after so long.
const ENDS_WITHIN_NS: u64 = 100_000_000;
/// Rounds of a wait before it sleeps.
const ROUNDS_AWAKE: u32 = 200;

/// `unshare(2)`.
pub(crate) fn unshare(flags: usize) -> Result<usize> {
    // SAFETY: plain numbers; what the process shares with others is the caller's to say.
    let unshare = |flags| unsafe { sys::call(sys::UNSHARE, [flags, 0, 0, 0, 0, 0]) };
    match flags & ALONE != 0 {
        true => first_and_later(flags, unshare),
        false => unshare(flags),
    }
}

/// `setns(2)`. Of what kind the namespace is `kinds` need not say, so only the refusal tells.
pub(crate) fn setns(fd: Fd, kinds: usize) -> Result<usize> {
    // SAFETY: plain numbers; in which namespaces the process is is the caller's to say.
    let enter = |kinds| unsafe { sys::call(sys::SETNS, [fd as usize, kinds, 0, 0, 0, 0]) };
    match enter(kinds) {
        Err(errno) if takes_one_thread(errno) => first_and_later(kinds, enter),
        answer => answer,
    }
}

/// The kernel says this of processes that have several threads, and of what is wrong.
fn takes_one_thread(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::EUSERS)
}

/// The call, without a hand, and then its part that would leave no room for one.
fn first_and_later(kinds: usize, call: impl Fn(usize) -> Result<usize>) -> Result<usize> {
    let Some(control) = process::control().filter(|_| is_worth_it()) else { return call(kinds) };
    let (first, later) = (kinds & !FOR_CHILDREN, kinds & FOR_CHILDREN);
    if first == 0 && later != 0 {
        return call(kinds);
    }
    let answer = without_hand(control, || call(first))?;
    if later == 0 { Ok(answer) } else { call(later) }
}

/// It would not be alone without its hand, or a hand could not come back.
fn is_worth_it() -> bool {
    const HAND_AND_CALLER: usize = 2;
    let is_left = |of: &CStr, for_children: &CStr| {
        let (mut own, mut of_children) = ([0; 64], [0; 64]);
        // Nobody is there yet: then it cannot be read.
        sys::read_link(of, &mut own).is_ok()
            && (sys::read_link(for_children, &mut of_children).is_err() || own != of_children)
    };
    threads().is_none_or(|threads| threads <= HAND_AND_CALLER)
        && !is_left(c"/proc/self/ns/pid", c"/proc/self/ns/pid_for_children")
        && !is_left(c"/proc/self/ns/time", c"/proc/self/ns/time_for_children")
}

/// `None` where nobody says it.
fn threads() -> Option<usize> {
    let tasks = sys::open_to_read(c"/proc/self/task").ok()?;
    let mut threads = 0;
    sys::each_entry(tasks, |name| threads += usize::from(name.first().is_some_and(u8::is_ascii_digit)));
    sys::close(tasks);
    Some(threads).filter(|threads| *threads > 0)
}

/// Calls in a process that has one thread, as far as we know.
fn without_hand(control: &'static Control, call: impl Fn() -> Result<usize>) -> Result<usize> {
    let _blocked = SignalsBlocked::new();
    let _room = Room::new();
    let Some([userfaultfd, socket]) = step_aside(control) else { return call() };
    delays::maybe(2);
    let until_ns = sys::now_ns() + ENDS_WITHIN_NS;
    let answer = loop {
        let is_last = threads() == Some(1) || sys::now_ns() >= until_ns;
        match call() {
            Err(errno) if takes_one_thread(errno) && !is_last => sys::sched_yield(),
            answer => break answer,
        }
    };
    delays::maybe(2);
    hand::forget_stack();
    let start = hand::Start {
        control,
        window: process::place(Place::Window) + BASE_PAGE_BYTES,
        window_bytes: process::window_bytes(),
        socket,
        userfaultfd,
    };
    if let Err(errno) = hand::start(&start) {
        message::exit_errno(b"cannot start the shim's thread again", errno);
    }
    [userfaultfd, socket].into_iter().for_each(sys::close);
    answer
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
    let come =
        if !is_told && is_taken_back() || !has_ended(control) { None } else { Some([own, own].map(receive)) };
    [own, its].into_iter().for_each(sys::close);
    come
}

/// False: it stays. (If the agent dies the hand ends the program.)
fn has_ended(control: &Control) -> bool {
    let mut rounds = 0_u32;
    while control.hand_tid.load(Acquire) != 0 {
        if control.aside.load(SeqCst) == aside::STAYS {
            return false;
        }
        rounds += 1;
        if rounds < ROUNDS_AWAKE { sys::sched_yield() } else { sys::sleep_ms(1) }
    }
    true
}

/// What the hand has sent before it ended.
fn receive(from: Fd) -> Fd {
    match connect::receive::<Ready>(from) {
        Ok((_, [Some(fd), ..])) => fd,
        // Its memory could be wrong from now on.
        Ok(_) => message::kill_self(&[message::Piece::Text(
            b"internal error: the hand has ended and given nothing away; the program is ended",
        )]),
        Err(errno) => message::exit_errno(b"cannot take over what the shim's thread had", errno),
    }
}
