//! A `loam run` of one test.

use crate::sampler::{Sampler, Samples};
use crate::{place, plain, procfs, shell, workloads};
use serde_json::Value;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What to run and how. The defaults are `--local 32M --durability disk`, no lender.
#[derive(Debug)]
pub struct Borrow {
    flags: Vec<String>,
    local_mib: u64,
    dir: PathBuf,
    disk: PathBuf,
    durability: &'static str,
    loam: PathBuf,
    hears_of_forks: bool,
}

/// One that runs.
#[derive(Debug)]
pub struct Running {
    /// The `loam run` process.
    pub run: shell::Started,
    sampler: Option<Sampler>,
    summary: PathBuf,
    loam: PathBuf,
}

/// One that has ended.
#[derive(Debug)]
pub struct Borrowed {
    /// Its end and its output.
    pub ended: shell::Ended,
    /// The summary; `Null` if none was written.
    pub summary: Value,
    /// The process tree's memory.
    pub samples: Samples,
}

impl Borrow {
    /// A run whose files are in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self {
            flags: Vec::new(),
            local_mib: plain::LOCAL_MIB_MIN,
            dir: dir.to_owned(),
            disk: dir.join("slots"),
            durability: "disk",
            loam: place::loam(),
            hears_of_forks: true,
        }
    }
    /// As a user who may not hear of forks (no CAP_SYS_PTRACE). It takes root to become one.
    pub fn without_fork_events(mut self) -> Self {
        self.hears_of_forks = false;
        self
    }
    /// `--local`.
    pub fn local_mib(mut self, mib: u64) -> Self {
        self.local_mib = mib;
        self
    }
    /// `--embedded`.
    pub fn embedded(self, lenders: &str) -> Self {
        self.flags(&["--embedded", lenders])
    }
    /// `--lender`.
    pub fn lender(self, addr: SocketAddr) -> Self {
        self.flags(&["--lender", &addr.to_string()])
    }
    /// `--durability none`.
    pub fn not_durable(self) -> Self {
        self.durability("none")
    }
    /// `--durability`.
    pub fn durability(mut self, kind: &'static str) -> Self {
        self.durability = kind;
        self
    }
    /// `--disk`.
    pub fn disk(mut self, dir: &Path) -> Self {
        self.disk = dir.to_owned();
        self
    }
    /// Any others.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// The command line for a program, its environment and folder taken over.
    pub fn command(&self, program: &Command) -> Command {
        let mut command = if self.hears_of_forks {
            shell::that_dies_with_us(&self.loam)
        } else {
            let mut command = shell::that_dies_with_us(Path::new("setpriv"));
            command.args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-all"]).arg(&self.loam);
            command
        };
        command.arg("run").args([
            "--local",
            &format!("{}M", self.local_mib),
            "--durability",
            self.durability,
        ]);
        command.arg("--disk").arg(&self.disk);
        command.arg("--summary").arg(self.summary_path()).arg("--quiet").args(&self.flags);
        // For a person who looks into a failure: other flags for every run, as `--page 4K`.
        let more = std::env::var("LOAM_TEST_FLAGS").unwrap_or_default();
        command.args(more.split_whitespace());
        command.arg("--").arg(program.get_program()).args(program.get_args());
        plain::inherit(&mut command, program);
        command
    }

    fn summary_path(&self) -> PathBuf {
        self.dir.join("summary.json")
    }

    /// Starts it.
    pub fn start(&self, program: &Command, stdin: Option<&Path>) -> Running {
        // One of a run before must not be taken for this one's.
        let _ = std::fs::remove_file(self.summary_path());
        let mut command = self.command(program);
        command.stdin(plain::input(stdin));
        let run = shell::start(&mut command, &self.dir, "borrowing");
        let sampler = Some(Sampler::start(self.loam.clone(), run.pid(), self.local_mib << 20));
        Running { run, sampler, summary: self.summary_path(), loam: self.loam.clone() }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    pub fn run(&self, program: &Command, stdin: Option<&Path>, limit: Duration) -> Borrowed {
        self.start(program, stdin).finish(limit)
    }
}

impl Running {
    /// The program's processes now.
    pub fn program(&self) -> Vec<u32> {
        procfs::program_tree(&self.loam)
    }

    /// Waits until the program has as much as `local_mib` lets it keep: pages have begun to leave.
    pub fn wait_until_full(&self, local_mib: u64) {
        let near = (local_mib << 20) / 10 * 8;
        let resident = || self.program().iter().filter_map(|&pid| procfs::resident_bytes(pid)).sum::<u64>();
        let reached = procfs::wait_until(Duration::from_secs(30), || resident() > near);
        reached.unwrap_or_else(|_| panic!("never near its limit; stderr: {}", self.run.stderr_so_far()));
        std::thread::sleep(Duration::from_millis(30));
    }

    /// What it says of itself while it runs.
    pub fn status(&self) -> Value {
        status_of(self.run.pid()).expect("it runs")
    }

    /// Lenders that it calls lost now.
    ///
    /// # Panics
    /// If it has ended.
    pub fn lost(&self) -> usize {
        lost(&self.status())
    }

    /// Waits for its end, of a walk of [`workloads::ENDLESS`] passes: it is ended after the pass that it is in, and what it has printed is as far as it goes what a
    /// plain run of some passes printed.
    ///
    /// # Panics
    /// If it does not end well and so.
    pub fn finish_endless(self, expected: &str, limit: Duration, what: &str) -> Borrowed {
        workloads::end_walks(self.run.pid());
        let borrowed = self.finish(limit);
        borrowed.assert_ended_well(what);
        borrowed.assert_memory_left(what);
        let printed = String::from_utf8_lossy(&borrowed.ended.stdout);
        assert!(
            !printed.is_empty() && (printed.starts_with(expected) || expected.starts_with(&*printed)),
            "{what}: printed something else: {printed}"
        );
        borrowed
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    pub fn finish(mut self, limit: Duration) -> Borrowed {
        let ended = self.run.finish(limit);
        let samples = self.sampler.take().expect("until now").finish();
        let summary = std::fs::read(&self.summary)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or(Value::Null);
        Borrowed { ended, summary, samples }
    }
}

/// What the run of this agent tells of itself; none if there is no such run.
///
/// # Panics
/// If that is not JSON.
pub fn status_of(agent: u32) -> Option<Value> {
    let socket = std::env::temp_dir()
        .join(format!("loam-{}", rustix::process::getuid().as_raw()))
        .join(format!("run-{agent}.sock"));
    let mut text = String::new();
    UnixStream::connect(socket).and_then(|mut run| run.read_to_string(&mut text)).ok()?;
    Some(serde_json::from_str(&text).expect("JSON"))
}

fn lost(summary: &Value) -> usize {
    let lenders = summary["lenders"].as_array().unwrap_or_else(|| panic!("no lenders in {summary}"));
    lenders.iter().filter(|lender| lender["lost"] == true).count()
}

impl Borrowed {
    /// A number of the summary, by its JSON pointer.
    ///
    /// # Panics
    /// If it is not there.
    pub fn number(&self, pointer: &str) -> f64 {
        self.summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| {
            panic!("no {pointer} in the summary {}; stderr: {}", self.summary, self.ended.stderr)
        })
    }

    /// Lenders that the summary calls lost.
    ///
    /// # Panics
    /// If there is no list of lenders.
    pub fn lost(&self) -> usize {
        lost(&self.summary)
    }

    /// Lines for people.
    pub fn warnings(&self) -> Vec<String> {
        let list = self.summary["warnings"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect()
    }

    /// Fails unless the program ended well.
    ///
    /// # Panics
    /// If not.
    pub fn assert_ended_well(&self, what: &str) {
        assert_eq!(self.ended.code(), 0, "{what}: stderr: {}\nsummary: {}", self.ended.stderr, self.summary);
        assert_eq!(self.summary["exit_code"], 0, "{what}: summary {}", self.summary);
    }

    /// It ended well, printed what it should, and was short of memory while it ran.
    pub fn assert_right(&self, expected: &str, what: &str) {
        self.assert_ended_well(what);
        assert_eq!(String::from_utf8_lossy(&self.ended.stdout), expected, "{what}");
        self.assert_memory_left(what);
    }

    /// Fails unless pages left and came back: a test in which they did not has tested nothing.
    ///
    /// # Panics
    /// If not.
    pub fn assert_memory_left(&self, what: &str) {
        let moved = self.number("/evictions/moved");
        let back: f64 = ["/faults/remote", "/faults/rescued", "/faults/disk", "/faults/prefetched_hit"]
            .iter()
            .map(|at| self.number(at))
            .sum();
        assert!(moved > 0.0 && back > 0.0, "{what}: {moved} pages left, {back} faults: nothing was tested");
    }
}
