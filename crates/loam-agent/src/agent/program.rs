//! The program itself: started, signalled, waited for.

use crate::config::RunConfig;
use crate::launch::{self, Action, Change, Environment, LaunchError, Signals};
use crate::procfs;
use rustix::fd::BorrowedFd;
use rustix::process::{Pid, getpid};
use std::ffi::OsStr;
use std::path::Path;

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl Status {
    /// As a shell says it: 128 + signal.
    pub(super) fn exit_code(self) -> i32 {
        self.code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}

/// See the module's documentation.
pub(super) struct Program {
    pid: Pid,
    signals: Signals,
    status: Option<Status>,
    /// Children that we had before: embedded lenders.
    others: Vec<Pid>,
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
        Ok(Self { pid, signals, status: None, others })
    }

    /// Readable when a signal has come.
    pub(super) fn signal_fd(&self) -> BorrowedFd<'_> {
        self.signals.fd()
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    /// Every process of the tree, those that were orphaned included.
    pub(super) fn tree(&self) -> Vec<Pid> {
        let mut tree = procfs::descendants(getpid());
        tree.retain(|pid| !self.others.contains(pid));
        tree
    }

    /// `pid` belongs to the tree.
    pub(super) fn is_inside(&self, pid: Pid) -> bool {
        pid == self.pid || (!self.others.contains(&pid) && procfs::is_descendant(pid, getpid()))
    }

    /// Passes signals on, and takes note of children that have ended.
    pub(super) fn take_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.read() {
            match received.action(|pid| procfs::is_descendant(pid, self.pid)) {
                Action::Reap => self.reap(),
                Action::Forward(signal) if self.status.is_none() => launch::forward(self.pid, signal),
                Action::Forward(_) | Action::Nothing => {}
            }
        }
    }

    /// Takes note of children that have ended.
    pub(super) fn reap(&mut self) {
        let (program, status) = (self.pid, &mut self.status);
        let mut stopped = None;
        launch::reap(|pid, change| match change {
            _ if pid != program => {}
            Change::Exited { code } => *status = Some(Status { code: Some(code), signal: None }),
            Change::Killed { signal } => *status = Some(Status { code: None, signal: Some(signal) }),
            Change::Stopped { signal } => stopped = Some(signal),
        });
        if let Some(signal) = stopped {
            launch::stop_with(program, signal);
        }
    }
}
