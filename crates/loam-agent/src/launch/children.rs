//! The end of the program and of whatever it leaves behind.

use super::LaunchError;
use rustix::process::{Pid, WaitOptions};

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It exited.
    Exited {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// A signal ended it.
    Killed {
        /// Which.
        signal: i32,
    },
    /// A signal stopped it; it lives.
    Stopped {
        /// Which.
        signal: i32,
    },
}

/// From now on, processes of the tree whose parent has ended become our children: none slips out of the budget, and
/// the program's own end is not taken for the end of the tree.
///
/// # Errors
/// If the kernel refuses, which it does not.
pub(crate) fn become_subreaper() -> Result<(), LaunchError> {
    // Any id means "on".
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| LaunchError::Signals { call: "PR_SET_CHILD_SUBREAPER", errno })
}

/// Takes note of all children that have ended or stopped, without waiting, and calls `each` with them. Answers
/// whether there are children left. To be called at every SIGCHLD: several ends may come with one signal.
pub(crate) fn reap(mut each: impl FnMut(Pid, Change)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => {
                let change = if let Some(code) = status.exit_status() {
                    Change::Exited { code }
                } else if let Some(signal) = status.terminating_signal() {
                    Change::Killed { signal }
                } else if let Some(signal) = status.stopping_signal() {
                    Change::Stopped { signal }
                } else {
                    continue; // "continued" was not asked for
                };
                each(pid, change);
            }
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::CHILD, "waiting for children failed");
                return false;
            }
        }
    }
}
