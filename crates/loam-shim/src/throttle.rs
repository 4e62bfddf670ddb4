//! Whoever allocates waits while the tree takes memory faster than what it has can leave.
//!
//! Memory that has just been mapped is not adopted before the agent has seen it, and until then nobody is asked for a page of it: a program that maps some
//! megabytes and fills them, again and again, takes as much as the machine has, however little of it may stay. The kernel makes a task that allocates free memory itself before
//! it gets more (direct reclaim); here it waits until hand and agent have done so. That is at the calls that programs allocate by (`malloc` and its relatives, `mmap`), as far
//! as they come by way of the dynamic linker.
//!
//! Nothing is added to what those calls do as long as nobody is to wait: `malloc` and its relatives compare with a size anyway ([`region::ask_all`]).

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loam_hand::Control;

use crate::{process, region, sys};

/// No call waits for longer: whatever has gone wrong with the agent, the program goes on.
pub(crate) const WAIT_NS_MAX: u64 = 2_000_000_000;

/// Allocations are to ask.
static ASK: AtomicBool = AtomicBool::new(false);

/// The hand looks, before each of its commands and before it sleeps; the agent wakes it for this.
pub(crate) fn look(control: &Control) {
    if control.throttle.load(SeqCst) != 0 {
        ASK.store(true, Release);
        region::ask_all();
    }
}

/// Called by whoever is about to allocate. Its thread may be in a handler of a signal; errno stays as it is.
#[inline(always)]
pub(crate) fn ask() {
    if ASK.load(Relaxed) {
        wait();
    }
}

#[cold]
fn wait() {
    // None in a child that has not joined yet: it is not held back.
    let Some(control) = process::control() else { return };
    let is_on = || control.throttle.load(Acquire) != 0;
    if is_on() {
        control.throttled.fetch_add(1, Relaxed);
        let began_ns = sys::now_ns();
        while is_on() && sys::now_ns() - began_ns < WAIT_NS_MAX {
            sys::sleep_ms(1);
        }
    }
    // Where it has just begun again the hand says so once more.
    ASK.store(false, Relaxed);
}
