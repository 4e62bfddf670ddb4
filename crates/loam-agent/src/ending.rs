//! Ending this process by a signal, as the program that it ran was ended.

use rustix::process::{Resource, Rlimit};

/// Raises `signal` on this process with its default action, without a core dump. Returns only if that does not end it.
///
/// Handlers that a run installed, a blocked signal and the ignored SIGPIPE of the standard library would all
/// turn the signal into something else, so they are undone first.
pub fn end_by_signal(signal: i32) {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // The core, if one is wanted, is the program's: ours would overwrite it. A refusal only means a core more.
    let _ = rustix::process::setrlimit(Resource::Core, none);
    // SAFETY: plain calls with a set on our own stack, which `sigemptyset` initialises before it is used; the
    // default action runs no code of ours. An invalid number is refused by each call.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        if libc::sigaddset(&raw mut set, signal) != 0 {
            return;
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_signal_ends_nobody() {
        end_by_signal(0);
        end_by_signal(4096);
        end_by_signal(-1);
    }
}
