//! The hand: the one thread in the program that carries out the agent's commands.
//!
//! It is a raw thread that libc does not know of. It shares memory and signals' dispositions with the program but has a
//! *descriptor table of its own*: the program's numbers stay as they would be without Loam, a
//! `close_range` in the program does not reach the hand, and the hand's copy of the userfaultfd lives as long as the program,
//! so that a missing page can never read as zeros, whatever becomes of the agent. Every signal is blocked in it. Its working directory is
//! its own as well: a process that shares that with anybody may not go to another mount namespace (`setns`).
//!
//! It sleeps in a receive on its socket; when the agent hangs up, the program is ended.
//!
//! It may step aside for a moment ([`crate::alone`]): then another one goes on where it ended.

use core::arch::asm;
use core::cell::Cell;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loam_hand::{
    BASE_PAGE_BYTES, COMMAND_PAGES, COMMAND_SPANS, Command, Control, RING_COMMANDS, Ready, aside, kind, state,
};

use crate::message::{self, Piece};
use crate::process::{self, Place};
use crate::sys::map::{self, map, unmap};
use crate::sys::{self, Errno, Fd, Result, SignalsBlocked};
use crate::{connect, delays, evict, join, throttle};

/// How long the hand waits awake for the next command before it sleeps: twice as long after a wait that paid off, half as long
/// after one that did not. So it learns whether the agent runs on another core, or needs the one that the hand is
/// spinning on. It does not yield while it spins: a yield gives the core to a busy program for milliseconds, while a
/// sleeper is woken in front of it.
const SPIN_NS_MIN: u64 = 2_000;
const SPIN_NS_MAX: u64 = 30_000;
const SPINS_PER_CLOCK: u32 = 64;
const STACK_BYTES: usize = 64 * 1024;

const CLONE_VM: usize = 0x100;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;

/// What the hand works with. The descriptors are numbers in the table that it is cloned with.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub(crate) control: *const Control,
    pub(crate) window: usize,
    pub(crate) window_bytes: usize,
    pub(crate) socket: Fd,
    pub(crate) userfaultfd: Fd,
}

/// Starts the hand and returns when it holds all that it needs and nothing else of the program's.
pub(crate) fn start(start: &Start) -> Result<()> {
    let bytes = STACK_BYTES + BASE_PAGE_BYTES;
    let anonymous = map::PRIVATE | map::ANONYMOUS | map::NORESERVE;
    // SAFETY: a new mapping where the kernel finds room; all but its lowest page, the guard, becomes the stack.
    let (low, stack) = unsafe {
        let low = map(process::place(Place::Stack), bytes, map::PROTECTION_NONE, anonymous, -1)?;
        (
            low,
            map(low + BASE_PAGE_BYTES, STACK_BYTES, map::PROTECTION_READ_WRITE, anonymous | map::FIXED, -1)?,
        )
    };
    delays::maybe(4);
    join::own(low, bytes)?;
    process::set_place(Place::Stack, low);
    if let Err(errno) = run_on(stack, start) {
        // SAFETY: no thread was made, so the stack has no user.
        unsafe { unmap(low, bytes) };
        return Err(errno);
    }
    Ok(())
}

/// The same after another one that has ended: on its stack, which is marked as ours.
pub(crate) fn start_again(start: &Start) -> Result<()> {
    run_on(process::place(Place::Stack) + BASE_PAGE_BYTES, start)
}

fn run_on(stack: usize, start: &Start) -> Result<()> {
    let top = stack + STACK_BYTES;
    assert!(top.is_multiple_of(16), "the calling convention's alignment");
    let flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    let answer: isize;
    {
        let _blocked = SignalsBlocked::new();
        // SAFETY: the new thread gets a stack that nobody else uses, jumps to `main` with the one argument and never comes
        // back; `start` outlives its use there (the wait below). In this thread only rax, rcx and r11 change.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r12",
                "call {main}",
                "ud2",
                "2:",
                main = sym main,
                inlateout("rax") sys::CLONE as isize => answer,
                in("rdi") flags,
                in("rsi") top,
                in("rdx") 0,
                in("r10") 0,
                in("r8") 0,
                in("r12") &raw const *start as usize,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
    }
    if answer < 0 {
        return Err(Errno(-answer as i32));
    }
    // SAFETY: `join` has mapped it, shared, for the life of the process; all fields are atomics.
    let control = unsafe { &*start.control };
    // It is there, and has `start`: nobody can go on without it. It has a descriptor table to clear, or ends the program.
    while control.hand_tid.load(Acquire) == 0 {
        sys::sched_yield();
    }
    Ok(())
}

/// The hand's first function.
///
/// # Safety
/// `start` points to a [`Start`] that lives until `Control::hand_tid` is set, with the mappings and descriptors that it names.
unsafe extern "C" fn main(start: *const Start) -> ! {
    // SAFETY: the caller's promise.
    let start = unsafe { *start };
    // SAFETY: mapped for the life of the process; all fields are atomics.
    let control = unsafe { &*start.control };
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel reads the name, which is a string with its zero.
    let _ = unsafe { sys::call(sys::PRCTL, [PR_SET_NAME, c"loam-hand".as_ptr() as usize, 0, 0, 0, 0]) };
    // Or it would keep the folder that the program began in from being unmounted. Nothing here depends on where it is.
    // SAFETY: the kernel reads the path, which is a string with its zero.
    let _ = unsafe { sys::call(sys::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]) };
    keep_only(start.socket, start.userfaultfd);
    // A program that has given up its rights may not, nor one that sees no /proc.
    let pagemap = sys::open_to_read(c"/proc/self/pagemap").ok();
    assert_eq!(control.hand_tid.load(Relaxed), 0, "one hand a process");
    let mut executed = control.finished.load(SeqCst);
    control.hand_tid.store(sys::gettid(), Release);
    let hand = Hand { start, control, pagemap, window_executes: Cell::new(false) };
    let mut spin_ns = SPIN_NS_MAX;
    loop {
        hand.wait_for_command(executed, &mut spin_ns);
        let posted = control.posted.load(SeqCst);
        assert!(posted.wrapping_sub(executed) <= RING_COMMANDS as u32, "more commands than slots");
        while executed != posted {
            let slot = executed as usize % RING_COMMANDS;
            throttle::look(control);
            let goes_on = hand.execute(slot, &control.commands[slot]);
            executed = executed.wrapping_add(1);
            control.finished.store(executed, SeqCst);
            hand.tell_agent();
            if goes_on == GoesOn::No {
                sys::exit_thread_clearing(&control.hand_tid);
            }
        }
    }
}

/// Closes every descriptor of the hand's own table but two.
fn keep_only(a: Fd, b: Fd) {
    let (low, high) = (a.min(b) as u32, a.max(b) as u32);
    assert!(low < high, "two different descriptors");
    let close = |first: u32, last: u32| first > last || sys::close_range(first, last).is_ok();
    let closed = (low == 0 || close(0, low - 1)) && close(low + 1, high - 1) && close(high + 1, u32::MAX);
    assert!(closed, "close_range is older than what Loam needs");
}

/// Whether the hand has more to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    Yes,
    /// Another one has.
    No,
}

/// The hand at work.
pub(crate) struct Hand {
    pub(crate) start: Start,
    pub(crate) control: &'static Control,
    /// Which pages there are in the program.
    pub(crate) pagemap: Option<Fd>,
    /// The window is as the pages are that it takes: those of executable memory go to none other.
    pub(crate) window_executes: Cell<bool>,
}

impl Hand {
    /// Returns when more than `executed` commands are posted.
    fn wait_for_command(&self, executed: u32, spin_ns: &mut u64) {
        let posted = || self.control.posted.load(SeqCst) != executed;
        let began_ns = sys::now_ns();
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if posted() {
                    *spin_ns = (*spin_ns * 2).min(SPIN_NS_MAX);
                    return;
                }
                spin_loop();
            }
            if sys::now_ns() - began_ns > *spin_ns {
                break;
            }
        }
        *spin_ns = (*spin_ns / 2).max(SPIN_NS_MIN);
        loop {
            // Either the agent sees that the hand sleeps and rings, or the hand sees the command here.
            self.control.hand_sleeps.store(1, SeqCst);
            // The same holds for this.
            throttle::look(self.control);
            let is_posted = posted();
            if !is_posted && connect::wait_for_bell(self.start.socket).is_err() {
                self.agent_died();
            }
            self.control.hand_sleeps.store(0, SeqCst);
            if is_posted || posted() {
                return;
            }
        }
    }

    fn execute(&self, slot: usize, command: &Command) -> GoesOn {
        match command.state.compare_exchange(state::POSTED, state::RUNNING, SeqCst, SeqCst) {
            Ok(_) => {}
            Err(state::CANCELLED) => return GoesOn::Yes,
            Err(_) => self.broken(b"a command that is not posted"),
        }
        match command.kind.load(Relaxed) {
            kind::EVICT => {
                let used = evict::take_pages(self, slot, command);
                command.state.store(state::DONE, SeqCst);
                self.tell_agent();
                evict::empty_window(self, used);
            }
            kind::ADVISE => {
                advise(self, command);
                command.state.store(state::DONE, SeqCst);
            }
            kind::ADVISE_CHECKED => {
                command.outcome.store(advise(self, command), Relaxed);
                command.state.store(state::DONE, SeqCst);
            }
            kind::NO_HUGE_PAGES => {
                // A kernel without them answers EINVAL, and has none to turn off.
                let _ = turn_off_huge_pages();
                command.state.store(state::DONE, SeqCst);
            }
            kind::EXIT => {
                let wait_status = self.spans(command).next().map_or(0, |(_, _, status)| status);
                command.state.store(state::DONE, SeqCst);
                match wait_status & 0x7f {
                    0 => sys::exit_thread(wait_status >> 8 & 0xff),
                    // Its signal cannot end it once more: as shells say it.
                    signal => sys::exit_group(128 + signal),
                }
            }
            kind::STEP_ASIDE => {
                let socket = self.spans(command).next().map_or(u32::MAX, |(_, _, socket)| socket);
                let goes = self.steps_aside(socket);
                command.state.store(state::DONE, SeqCst);
                return goes;
            }
            _ => self.broken(b"a command of an unknown kind"),
        }
        GoesOn::Yes
    }

    /// For the thread that has the other end of `socket`, a number of the process's own table, if it still wants that.
    fn steps_aside(&self, socket: u32) -> GoesOn {
        let word = &self.control.aside;
        if word.compare_exchange(aside::wanted(socket), aside::GOES, SeqCst, SeqCst).is_err() {
            return GoesOn::Yes;
        }
        if self.send_own(socket as Fd).is_ok() {
            return GoesOn::No;
        }
        word.store(aside::STAYS, SeqCst);
        GoesOn::Yes
    }

    fn send_own(&self, socket: Fd) -> Result<()> {
        let to = sys::descriptor_of_process(socket)?;
        let nothing = Ready::default();
        let sent = connect::send(to, &nothing, Some(self.start.userfaultfd))
            .and_then(|()| connect::send(to, &nothing, Some(self.start.socket)));
        sys::close(to);
        sent
    }

    /// The spans of a command, checked: address, pages, extra.
    pub(crate) fn spans<'a>(
        &'a self,
        command: &'a Command,
    ) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        let count = command.spans_count.load(Relaxed) as usize;
        if count > COMMAND_SPANS {
            self.broken(b"too many spans");
        }
        let evicts = command.kind.load(Relaxed) == kind::EVICT;
        let mut pages_all = 0;
        command.spans[..count].iter().map(move |span| {
            let (address, pages) = (span.address.load(Relaxed) as usize, span.pages.load(Relaxed) as usize);
            pages_all += pages;
            if !address.is_multiple_of(BASE_PAGE_BYTES) || (evicts && pages_all > COMMAND_PAGES) {
                self.broken(b"a span that is too long or not aligned");
            }
            (address, pages, span.extra.load(Relaxed))
        })
    }

    fn tell_agent(&self) {
        if self.control.agent_sleeps.load(SeqCst) != 0 && connect::ring(self.start.socket).is_err() {
            self.agent_died();
        }
    }

    /// For waits that the agent ends: ends the program if it cannot any more.
    pub(crate) fn check_agent(&self) {
        if connect::hung_up(self.start.socket) {
            self.agent_died();
        }
    }

    fn agent_died(&self) -> ! {
        let mut name = [0; 16];
        message::kill_self(&[
            Piece::Text(b"the agent (loam run) has died; "),
            Piece::Text(message::program_name(&mut name)),
            Piece::Text(b" is ended, because its memory elsewhere cannot be read any more"),
        ])
    }

    /// The agent asks for what it never should.
    pub(crate) fn broken(&self, what: &[u8]) -> ! {
        message::kill_self(&[
            Piece::Text(b"internal error, the agent (loam run) and the shim disagree: "),
            Piece::Text(what),
            Piece::Text(b"; the program is ended"),
        ])
    }
}

/// From now on nothing of this process is made of huge pages; those that are there stay until a page is taken out of them. Its children begin like that.
fn turn_off_huge_pages() -> Result<()> {
    const PR_SET_THP_DISABLE: usize = 41;
    // SAFETY: it changes nothing of what memory contains.
    unsafe { sys::call(sys::PRCTL, [PR_SET_THP_DISABLE, 1, 0, 0, 0, 0]) }.map(drop)
}

/// Gives the advice to each span; the first errno.
fn advise(hand: &Hand, command: &Command) -> u32 {
    let mut first = 0;
    for (address, pages, advice) in hand.spans(command) {
        // SAFETY: the agent answers for what it advises, as for what it evicts: it is the program's pager.
        let answer = unsafe { map::advise(address, pages * BASE_PAGE_BYTES, advice as usize) };
        if let (Err(errno), 0) = (answer, first) {
            first = errno.0.unsigned_abs();
        }
    }
    first
}
