//! The borrower's side, live: serves the faults of a borrowing process tree and evicts its pages.

// It panics where stderr cannot be written, and a program dies with its agent: `stderr::say`.
#![deny(clippy::print_stderr)]

mod agent;
mod cluster;
mod config;
mod conn;
mod control;
mod delays;
mod direct;
pub mod ending;
pub mod floor;
mod launch;
mod packets;
mod pool;
pub mod probe;
mod procfs;
pub mod recording;
mod shared;
pub mod slices;
mod slots;
mod spread;
pub mod stderr;
pub mod summary;
mod uffd;

pub use config::{Durability, Lenders, PageChoice, RegionConfig, RunConfig};
pub use control::ControlError;
pub use direct::DirectMemory;
use rustix::process::Pid;
use std::path::{Path, PathBuf};

/// Why a run could not be started or had to be ended. Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Anything that the user can mend before starting again.
    #[error("{0}")]
    Setup(String),
    /// The run was ended to keep wrong data from the program.
    #[error("{0}")]
    Ended(String),
}

/// How the program ended.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, else.
    pub signal: Option<i32>,
    /// The figures of the run.
    pub summary: summary::Summary,
    /// What was recorded of it, if that was asked for.
    pub recording: Option<recording::Recording>,
}

/// Folder of the control sockets of this user's runs (`run-PID.sock`): a connection is answered with one line
/// of JSON, a [`summary::Summary`], and closed. `None`: there is none, as no run has ever made it.
///
/// # Errors
/// [`ControlError`]: another user can put what he likes there.
pub fn control_dir() -> Result<Option<PathBuf>, ControlError> {
    let path = control::path();
    match control::open(&path) {
        Ok(_) => Ok(Some(path)),
        Err(ControlError::Refused { errno: rustix::io::Errno::NOENT, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs the program on borrowed memory until it ends.
///
/// # Errors
/// [`AgentError::Setup`] before the program has started, [`AgentError::Ended`] if it had to be ended.
pub fn run(config: &RunConfig) -> Result<RunOutcome, AgentError> {
    agent::run(config)
}

/// Serves a program that runs already, and that loads the shim by itself: until it, and whatever it has forked, has ended. `ready` is called
/// with the socket that its shim is to join at. How the program ended stays unknown. Signals of this process are not passed on.
///
/// # Errors
/// [`AgentError::Setup`] before `ready` is called, [`AgentError::Ended`] if the program had to be ended.
pub fn attach(config: &RunConfig, pid: Pid, ready: impl FnOnce(&Path)) -> Result<RunOutcome, AgentError> {
    agent::attach(config, pid, ready)
}
