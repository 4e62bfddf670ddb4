//! Starting the program, and being a good parent of it: what it is, how it starts, which signals it gets, how it
//! ends.

mod children;
mod program;
mod signals;

pub(crate) use children::{Change, become_subreaper, reap};
pub(crate) use program::check_program;
pub(crate) use signals::{Action, Signals, forward, stop_with};

use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// There is no such program.
    #[error("{}: not found: check the name, or give a path to it", Path::new(name).display())]
    NotFound {
        /// As it was given.
        name: OsString,
    },
    /// It may not be executed.
    #[error("{}: cannot be executed ({errno}): check its permissions (chmod +x) and those of its directories", path.display())]
    NotExecutable {
        /// Where.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The interpreter of a script is missing.
    #[error("{}: its interpreter {} is not found: correct its first line, or install it", script.display(), interpreter.display())]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// From its first line.
        interpreter: PathBuf,
    },
    /// Scripts that name scripts, without end.
    #[error("{}: more than {} interpreters, one behind the other: correct its first line", path.display(), program::INTERPRETERS_MAX)]
    TooManyInterpreters {
        /// The program.
        path: PathBuf,
    },
    /// No dynamic loader.
    #[error("{} is statically linked: Loam enters a program through the dynamic loader (LD_PRELOAD) and cannot help it; use a dynamically linked build", path.display())]
    Static {
        /// The program or interpreter.
        path: PathBuf,
    },
    /// Would change the user or group, or get capabilities.
    #[error("{} runs with more rights than its caller ({what}): the dynamic loader then ignores LD_PRELOAD, so Loam cannot help it; run it as the user it changes to, or use a copy without that right", path.display())]
    Privileged {
        /// The program or interpreter.
        path: PathBuf,
        /// Which.
        what: &'static str,
    },
    /// Not for x86-64 with 64 bits.
    #[error("{} is {what}, and Loam helps 64-bit x86-64 programs only: use such a build", path.display())]
    OtherMachine {
        /// The program or interpreter.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// An ELF file that is cut or nonsense.
    #[error("{} is damaged ({what}): install it again", path.display())]
    Damaged {
        /// The program or interpreter.
        path: PathBuf,
        /// What was found.
        what: &'static str,
    },
    /// `LD_PRELOAD` has no way to quote.
    #[error("{}: a library to preload cannot have blanks or colons in its path: move Loam to another directory", path.display())]
    PreloadPath {
        /// The shim.
        path: PathBuf,
    },
    /// `execve`, `fork` or the like said no.
    #[error("{}: cannot be started ({errno}): check its file and the limits (ulimit -a)", path.display())]
    Exec {
        /// The program.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// A process that is to be followed is not there, or not ours.
    #[error("process {pid} cannot be followed ({errno}): it must run, as the same user")]
    Attach {
        /// Which.
        pid: i32,
        /// Why.
        errno: Errno,
    },
    /// Signals cannot be set up.
    #[error("signals: {call} failed ({errno}): raise the limit of open files (ulimit -n)")]
    Signals {
        /// The call.
        call: &'static str,
        /// Why.
        errno: Errno,
    },
}

/// What the program finds in its environment besides ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment<'a> {
    /// The shim. Comes first in `LD_PRELOAD`, what the user has there stays behind it.
    pub(crate) preload: &'a Path,
    /// More variables.
    pub(crate) variables: &'a [(&'a OsStr, &'a OsStr)],
}

/// Starts the program that [`check_program`] found; `name` is its `argv[0]`. It has our stdin, stdout and stderr,
/// our process group and terminal, and the signal mask that `loam run` itself was started with. It is waited for
/// with [`reap`].
///
/// # Errors
/// [`LaunchError::Exec`], [`LaunchError::PreloadPath`].
pub(crate) fn spawn(
    path: &Path,
    name: &OsStr,
    args: &[OsString],
    environment: Environment<'_>,
    signals: &Signals,
) -> Result<Pid, LaunchError> {
    let mut command = Command::new(path);
    command.arg0(name).args(args).env("LD_PRELOAD", preload_list(environment.preload)?);
    for (key, value) in environment.variables {
        command.env(key, value);
    }
    let inherited = signals.inherited();
    // SAFETY: between fork and exec; `restore` makes plain system calls only, it neither allocates nor locks.
    unsafe { command.pre_exec(move || inherited.restore()) };
    match command.spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            Err(LaunchError::Exec { path: path.to_owned(), errno })
        }
    }
}

fn preload_list(shim: &Path) -> Result<OsString, LaunchError> {
    if shim.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        return Err(LaunchError::PreloadPath { path: shim.to_owned() });
    }
    let mut list = shim.as_os_str().to_owned();
    if let Some(users) = std::env::var_os("LD_PRELOAD").filter(|users| !users.is_empty()) {
        list.push(":");
        list.push(users);
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
