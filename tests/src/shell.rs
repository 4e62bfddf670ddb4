//! Running a command to its end with a limit on its time, its output going to files so that no pipe can block it.

use crate::procfs;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A command that was started.
#[derive(Debug)]
pub struct Started {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    start: Instant,
    ended: bool,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: String,
    /// How long it took.
    pub wall: Duration,
}

impl Ended {
    /// Exit code, or 128 + signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Lines of stderr that are not empty.
    pub fn error_lines(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| !line.trim().is_empty()).collect()
    }
}

/// The command `program`, to be given its arguments: a test that is killed leaves nothing behind that would load the machine. (`loam run`
/// takes with it all that it has started.) Signals mean what they mean by default, also where the tests run in the background of a shell
/// that has SIGINT ignored there.
pub fn that_dies_with_us(program: &Path) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A script for `sh`.
pub fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Who writes to which file.
static WRITERS: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

/// Starts a command in a process group of its own; stdout and stderr go to `DIR/NAME.out` and `.err`.
///
/// # Panics
/// If it cannot be started, or another one that runs writes there.
pub fn start(command: &mut Command, dir: &Path, name: &str) -> Started {
    let stdout = dir.join(format!("{name}.out"));
    let writer = WRITERS.lock().expect("no test fails with it").get(&stdout).copied();
    // One that was killed may need a moment.
    let ended = procfs::wait_until(Duration::from_secs(5), || !writer.is_some_and(procfs::runs));
    assert!(ended.is_ok(), "{}: {writer:?} writes there", stdout.display());
    let stderr = dir.join(format!("{name}.err"));
    let file = |path: &Path| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let child = command
        .stdout(file(&stdout))
        .stderr(file(&stderr))
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    WRITERS.lock().expect("no test fails with it").insert(stdout.clone(), child.id());
    Started { child, stdout, stderr, start: Instant::now(), ended: false }
}

/// Runs a command that reads nothing.
///
/// # Panics
/// If it cannot be started, or is not done within `limit`.
pub fn run(command: &mut Command, dir: &Path, name: &str, limit: Duration) -> Ended {
    start(command.stdin(Stdio::null()), dir, name).finish(limit)
}

/// Lines of what is still being written: the last one may be there in part.
pub fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

impl Started {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If it cannot be asked.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// What it has written to stdout so far.
    pub fn stdout_so_far(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    /// What it has written to stderr so far.
    pub fn stderr_so_far(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// Waits until stdout has a line that begins with `marker`.
    ///
    /// # Panics
    /// If it ends before, or does not get there in time.
    pub fn wait_for_line(&mut self, marker: &str, limit: Duration) {
        let start = Instant::now();
        while !whole_lines(&self.stdout_so_far()).any(|line| line.starts_with(marker)) {
            assert!(self.runs(), "ended before '{marker}'; stderr: {}", self.stderr_so_far());
            assert!(start.elapsed() < limit, "no '{marker}' in {limit:?}; stderr: {}", self.stderr_so_far());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it is not done within `limit`; it is killed then, with all that it started.
    pub fn finish(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "not done within {limit:?}; stdout ends: {:?}; stderr: {}",
                self.stdout_so_far().lines().last(),
                self.stderr_so_far()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        self.ended = true;
        Ended {
            status,
            wall: self.start.elapsed(),
            stdout: fs::read(&self.stdout).expect("made by start"),
            stderr: self.stderr_so_far(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.ended && self.runs() {
            procfs::kill_tree(self.child.id());
            let _ = self.child.wait();
        }
    }
}
