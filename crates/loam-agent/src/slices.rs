//! Short turns on the processor.
//!
//! Whoever serves a fault runs for microseconds and sleeps again, next to threads that run for as long as they are let: a
//! program, the hand at its batches, another lender at its stores. Since Linux 6.12 a thread may ask for shorter slices, and who
//! has the shorter slice is woken in front of who has the longer one, instead of waiting for its end on a busy core.

use std::mem::{size_of, zeroed};

/// As short as the kernel lets it be (100 µs).
const SLICE_NS: u64 = 100_000;

/// Asks for short slices, for this thread and those that it starts from now on. Where the kernel knows none (before 6.12) nothing
/// changes; a policy that the user has chosen (`chrt`) is left alone.
pub fn ask_for_short_slices() {
    ask_for(SLICE_NS);
}

/// Asks for slices as everybody has them: for a thread that polls. It gives its turn away by `sched_yield`, which puts it back by one slice, and who has a much
/// longer one would not be let before it (a lender that polled in turns of 100 µs let the thread that it had served wait for 20 µs).
pub fn ask_for_usual_slices() {
    ask_for(0);
}

/// Asks for slices of so many ns; 0: the usual ones.
fn ask_for(slice_ns: u64) {
    let bytes = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the struct is plain integers, for which zeros are valid; both calls are given its true size and only it, for
    // the calling thread (0), and write no more than that.
    unsafe {
        let mut attr: libc::sched_attr = zeroed();
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, bytes, 0) != 0
            || attr.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.sched_runtime = slice_ns;
        if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) != 0 {
            tracing::debug!("no slices of {slice_ns} ns: {}", std::io::Error::last_os_error());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_keeps_its_policy_and_niceness() {
        let attr = || {
            // SAFETY: as above.
            unsafe {
                let mut attr: libc::sched_attr = std::mem::zeroed();
                let bytes = size_of::<libc::sched_attr>() as u32;
                assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, bytes, 0), 0);
                (attr.sched_policy, attr.sched_nice, attr.sched_runtime)
            }
        };
        let before = attr();
        super::ask_for_short_slices();
        let after = attr();
        assert_eq!((before.0, before.1), (after.0, after.1));
        // 0: a kernel that knows no slices.
        assert!(after.2 == 0 || after.2 == super::SLICE_NS, "{} ns", after.2);
        super::ask_for_usual_slices();
        assert_eq!(attr(), before);
    }
}
