//! Room for descriptors of the shim's own in a program that has as many open as it may. A fork needs none by itself, so it must not fail for want of them: the
//! soft limit is the hard one for a moment. Other threads may open files beyond their limit meanwhile.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::sys::{self, Limits};

/// Somebody has raised the limit, or is about to.
static HELD: AtomicBool = AtomicBool::new(false);
/// What it was, while it is raised.
static SOFT: AtomicU64 = AtomicU64::new(NOT_RAISED);
/// The limit that nobody could raise.
const NOT_RAISED: u64 = u64::MAX;
/// Rounds that another thread is waited for, which needs microseconds. (In a child that was made behind libc's back there may be none.)
const ROUNDS_MAX: u32 = 1_000;

/// There is room while it lives, as far as the hard limit allows.
pub(crate) struct Room {
    raised: Option<Limits>,
}

impl Room {
    pub(crate) fn new() -> Room {
        let mut rounds = 0;
        while HELD.swap(true, Acquire) {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Room { raised: None };
            }
            sys::sched_yield();
        }
        let raised =
            sys::descriptor_limits().ok().filter(|limits| limits.soft < limits.hard).and_then(|limits| {
                SOFT.store(limits.soft, Relaxed);
                let raised = Limits { soft: limits.hard, ..limits };
                sys::set_descriptor_limits(&raised).ok().map(|()| raised)
            });
        if raised.is_none() {
            let_go();
        }
        Room { raised }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(raised) = self.raised else { return };
        // Unless the program has set another one meanwhile.
        if sys::descriptor_limits() == Ok(raised) {
            let _ = sys::set_descriptor_limits(&Limits { soft: SOFT.load(Relaxed), ..raised });
        }
        let_go();
    }
}

fn let_go() {
    SOFT.store(NOT_RAISED, Relaxed);
    HELD.store(false, Release);
}

/// In a forked child, whose parent's other threads are not there: one of them may just have had the limit raised.
pub(crate) fn child_begins() {
    let soft = SOFT.load(Relaxed);
    if soft != NOT_RAISED
        && let Ok(limits) = sys::descriptor_limits()
    {
        let _ = sys::set_descriptor_limits(&Limits { soft, ..limits });
    }
    let_go();
}
