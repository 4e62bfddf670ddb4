//! The program itself: started, signalled, waited for; or one that runs already and has asked for us.

use crate::config::RunConfig;
use crate::launch::{self, Action, Change, Environment, LaunchError, Signals};
use crate::procfs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::time::Timespec;
use std::ffi::OsStr;
use std::path::Path;

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl Status {
    /// As a shell says it: 128 + signal. Nobody's if it was not ours to wait for.
    pub(super) fn exit_code(self) -> Option<i32> {
        self.code.or_else(|| self.signal.map(|signal| 128 + signal))
    }
}

/// See the module's documentation.
pub(super) struct Program {
    pid: Pid,
    signals: Signals,
    status: Option<Status>,
    /// Children that we had before: embedded lenders.
    others: Vec<Pid>,
    /// It was there before us.
    attached: bool,
    /// Readable from its end on, of one that was there before us; closed then, or it would be readable for ever.
    end: Option<OwnedFd>,
}

impl Program {
    /// Starts it.
    pub(super) fn start(path: &Path, config: &RunConfig, socket: &Path) -> Result<Self, LaunchError> {
        launch::become_subreaper()?;
        let signals = Signals::block()?;
        let others = procfs::descendants(getpid());
        let variables = [(OsStr::new("LOAM_SOCKET"), socket.as_os_str())];
        let environment = Environment { preload: &config.shim, variables: &variables };
        let pid = launch::spawn(path, &config.program, &config.args, environment, &signals)?;
        Ok(Self { pid, signals, status: None, others, attached: false, end: None })
    }

    /// Follows one that runs. Signals that reach us are not meant for it.
    pub(super) fn attach(pid: Pid) -> Result<Self, LaunchError> {
        let signals = Signals::block()?;
        let end = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|errno| LaunchError::Attach { pid: pid.as_raw_nonzero().get(), errno })?;
        Ok(Self { pid, signals, status: None, others: Vec::new(), attached: true, end: Some(end) })
    }

    /// It was there before us: what it starts besides is none of our business.
    pub(super) fn is_attached(&self) -> bool {
        self.attached
    }

    /// Readable when one that was attached to has ended; none once that is known.
    pub(super) fn end_fd(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(AsFd::as_fd)
    }

    /// Readable when a signal has come.
    pub(super) fn signal_fd(&self) -> BorrowedFd<'_> {
        self.signals.fd()
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    /// Every process of the tree, those that were orphaned included. Of a program that we have started.
    pub(super) fn tree(&self) -> Vec<Pid> {
        let mut tree = procfs::descendants(getpid());
        tree.retain(|pid| !self.others.contains(pid));
        tree
    }

    /// `pid` belongs to the tree; of one that was there before us, as far as those live that it descends by.
    pub(super) fn is_inside(&self, pid: Pid) -> bool {
        if self.attached {
            return self.status.is_none() && (pid == self.pid || procfs::is_descendant(pid, self.pid));
        }
        pid == self.pid || (!self.others.contains(&pid) && procfs::is_descendant(pid, getpid()))
    }

    /// Passes signals on, and takes note of children that have ended.
    pub(super) fn take_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.read() {
            match received.action(|pid| procfs::is_descendant(pid, self.pid)) {
                Action::Reap => self.reap(),
                Action::Forward(signal) if self.status.is_none() && !self.is_attached() => {
                    launch::forward(self.pid, signal)
                }
                Action::Forward(_) | Action::Nothing => {}
            }
        }
        self.look_for_end();
    }

    /// Takes note of the end of one that is not our child: how it ended is its parent's to know.
    fn look_for_end(&mut self) {
        let Some(end) = &self.end else { return };
        let mut polled = [PollFd::new(end, PollFlags::IN)];
        if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1) {
            self.status = Some(Status { code: None, signal: None });
            self.end = None;
        }
    }

    /// Takes note of children that have ended.
    pub(super) fn reap(&mut self) {
        let (program, status) = (self.pid, &mut self.status);
        let mut stopped = None;
        launch::reap(|pid, change| {
            if pid == program {
                stopped = take_note(status, change).or(stopped);
            }
        });
        if let Some(signal) = stopped {
            launch::stop_with(program, signal);
        }
    }
}

/// What became of the child with the program's id; the signal that has stopped it, if one has. Once the program has ended, its id may be another's of
/// the tree.
fn take_note(status: &mut Option<Status>, change: Change) -> Option<i32> {
    if status.is_some() {
        return None;
    }
    match change {
        Change::Exited { code } => *status = Some(Status { code: Some(code), signal: None }),
        Change::Killed { signal } => *status = Some(Status { code: None, signal: Some(signal) }),
        Change::Stopped { signal } => return Some(signal),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_program_that_has_ended_is_anothers() {
        let mut status = None;
        assert_eq!(take_note(&mut status, Change::Stopped { signal: 20 }), Some(20));
        assert_eq!(take_note(&mut status, Change::Exited { code: 7 }), None);
        assert_eq!(take_note(&mut status, Change::Stopped { signal: 20 }), None);
        assert_eq!(take_note(&mut status, Change::Killed { signal: 9 }), None);
        assert_eq!(status.and_then(Status::exit_code), Some(7));
    }
}
