//! Fork handlers. Threads do not survive a fork, so the child starts a hand of its own before it runs on.
//!
//! They run in a child of a possibly threaded program: raw system calls only. A child that cannot be served is ended: it must never
//! read zeros.

use loam_hand::{BASE_PAGE_BYTES, Call, call};

use crate::connect::{self, Patience};
use crate::join::{self, Reason};
use crate::message;
use crate::process;
use crate::region;
use crate::sys::{SignalsBlocked, map};

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
    }
    region::fork_begins();
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
    region::child_begins();
    if process::is_under_loam() {
        let _blocked = SignalsBlocked::new();
        if process::has_fork_events() {
            knock(process::probe());
        }
        if let Err(refusal) = join::join(Reason::Forked) {
            refusal.end_program();
        }
        region::child_joined();
    }
    region::fork_ends(true);
}

/// Touches the probe page, which is missing and registered: the fault comes out of the userfaultfd that the kernel made for this
/// child, with our thread id, and so tells the agent which of its descriptors is ours. Then empties the page again, for a child
/// of this child.
fn knock(probe: usize) {
    assert_ne!(probe, 0, "a process under Loam has a probe page");
    // SAFETY: the probe page is mapped for the life of the process, and only ever read.
    let empty = || unsafe { map::advise(probe, BASE_PAGE_BYTES, map::ADVICE_DONTNEED) };
    // In the parent something has touched it: `mlockall`, a debugger. (What is locked is not so in a child.)
    if map::is_present(probe) {
        let _ = empty();
    }
    // SAFETY: as above.
    unsafe { core::ptr::read_volatile(probe as *const u8) };
    let _ = empty();
}
