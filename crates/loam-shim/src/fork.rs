//! Fork handlers. Threads do not survive a fork, so the child starts a hand of its own before it runs on.
//!
//! They run in a child of a possibly threaded program: raw system calls only. A child that cannot be served is ended: it must never
//! read zeros.

use core::sync::atomic::Ordering::Relaxed;

use loam_hand::{BASE_PAGE_BYTES, Call, call};

use crate::alone;
use crate::connect::{self, Patience};
use crate::join::{self, Reason};
use crate::message;
use crate::process;
use crate::region;
use crate::room;
use crate::sys::{self, SignalsBlocked, map};

/// Before the fork. Where the kernel does not tell the agent of forks, everything that the child could read must be at
/// home by then: the child's missing pages would be zeros.
pub(crate) extern "C" fn prepare() {
    if process::is_under_loam() && !process::has_fork_events() {
        let _blocked = SignalsBlocked::new();
        let path = process::path();
        let prepare = Call { what: call::FORK_PREPARE, ..Call::default() };
        let done = connect::call_agent(path.bytes(), &prepare, Patience::WhileTheAgentLives);
        if let Err(errno) = done {
            message::exit_errno(b"the agent (loam run) cannot bring the memory home for a fork", errno);
        }
    } else if process::is_under_loam() {
        announce();
    }
    region::fork_begins();
}

/// What a child and its parent copy of memory that is not adopted yet nobody holds back, and it may be several times `--local` before anybody
/// has seen it. So memory that is large beside it is adopted first. Only the limit depends on it: if the agent cannot be asked, the fork goes on.
fn announce() {
    let above = process::control().map_or(0, |control| control.announce_above.load(Relaxed));
    if above == 0 || resident_pages() <= above {
        return;
    }
    let _blocked = SignalsBlocked::new();
    let comes = Call { what: call::FORK_COMES, ..Call::default() };
    let _ = connect::call_agent(process::path().bytes(), &comes, Patience::WhileTheAgentLives);
}

/// Base pages that this process has here, without those of files and shared memory, which no fork copies; 0 where nobody says.
fn resident_pages() -> u32 {
    let mut text = [0; 64];
    let Ok(bytes) = sys::read_beginning(c"/proc/self/statm", &mut text) else { return 0 };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_u32, |pages, digit| {
            pages
                .checked_mul(10)?
                .checked_add(u32::from(digit.checked_sub(b'0').filter(|value| *value < 10)?))
        })
    };
    let mut numbers = text[..bytes].split(|byte| *byte == b' ').skip(1).map(number);
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(resident), Some(shared)) => resident.saturating_sub(shared),
        _ => 0,
    }
}

/// After the fork, in the parent.
pub(crate) extern "C" fn parent() {
    region::fork_ends(false);
    if process::is_under_loam() && !process::has_fork_events() {
        let _blocked = SignalsBlocked::new();
        let path = process::path();
        let over = Call { what: call::FORK_DONE, ..Call::default() };
        if let Err(errno) = connect::call_agent(path.bytes(), &over, Patience::Limited) {
            message::exit_errno(b"the agent (loam run) does not hear that a fork is over", errno);
        }
    }
}

/// After the fork, in the child.
pub(crate) extern "C" fn child() {
    process::forget_control();
    room::child_begins();
    alone::child_begins();
    region::child_begins();
    if process::is_under_loam() {
        let _blocked = SignalsBlocked::new();
        let knock = if process::has_fork_events() { knock(process::probe()) } else { 0 };
        if let Err(refusal) = join::join(Reason::Forked { knock }) {
            refusal.end_program();
        }
        region::child_joined();
    }
    region::fork_ends(true);
}

/// Touches the probe page, which is missing and registered: the fault comes out of the userfaultfd that the kernel made for this
/// child, and the agent answers with a number that nobody else gets. Who tells it that number has this memory, so it knows which of its descriptors is ours. (Thread ids, which come with faults, are
/// those of the child's own pid namespace.) Then empties the page again, for a child of this child.
fn knock(probe: usize) -> u64 {
    assert_ne!(probe, 0, "a process under Loam has a probe page");
    // SAFETY: the probe page is mapped for the life of the process, and only ever read.
    let empty = || unsafe { map::advise(probe, BASE_PAGE_BYTES, map::ADVICE_DONTNEED) };
    // In the parent something may have touched it: `mlockall`, a debugger. (What is locked is not so in a child.) The kernel may have swapped it out since, which
    // looks as if there were nothing.
    let _ = empty();
    // SAFETY: as above, and it is aligned.
    let number = unsafe { core::ptr::read_volatile(probe as *const u64) };
    let _ = empty();
    number
}
