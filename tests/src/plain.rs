//! A program's run without Loam: what its output is, and how much memory it wants.

use crate::{place, shell};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Least `--local` that these tests use.
pub const LOCAL_MIB_MIN: u64 = 32;

/// What a plain run showed.
#[derive(Debug)]
pub struct Plain {
    /// Its end and its output.
    pub ended: shell::Ended,
    /// Largest resident memory of one of its processes.
    pub peak_bytes: u64,
}

impl Plain {
    /// A quarter of the peak, in MiB, but at least [`LOCAL_MIB_MIN`].
    pub fn quarter_mib(&self) -> u64 {
        ((self.peak_bytes / 4) >> 20).max(LOCAL_MIB_MIN)
    }
}

/// Runs the command as it stands (program, arguments, environment, folder, stdin), under `peak`.
///
/// # Panics
/// If it fails or takes longer than `limit`.
pub fn run(command: &Command, stdin: Option<&Path>, dir: &Path, limit: Duration) -> Plain {
    let figures = dir.join("plain.peak");
    let mut wrapped = Command::new(place::program("peak"));
    wrapped.arg(&figures).arg(command.get_program()).args(command.get_args());
    inherit(&mut wrapped, command);
    wrapped.stdin(input(stdin));
    let ended = shell::start(&mut wrapped, dir, "plain").finish(limit);
    assert_eq!(ended.code(), 0, "plain {:?}: {}", command.get_program(), ended.stderr);
    let figures = std::fs::read_to_string(&figures).expect("peak has written it");
    let kib: u64 = figures.split(' ').next().and_then(|kib| kib.parse().ok()).expect("peak writes numbers");
    Plain { ended, peak_bytes: kib * 1024 }
}

/// Environment and folder of one command for another.
pub(crate) fn inherit(to: &mut Command, from: &Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
    if let Some(dir) = from.get_current_dir() {
        to.current_dir(dir);
    }
}

pub(crate) fn input(path: Option<&Path>) -> std::process::Stdio {
    path.map_or_else(std::process::Stdio::null, |path| {
        std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
    })
}
