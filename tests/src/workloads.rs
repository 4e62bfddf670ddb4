//! The programs that must run unchanged: how each is prepared and called. What they print is a function of what is here, so a plain
//! run says what a borrowing run must print.

use crate::{place, procfs};
use rustix::process::Signal;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program ready to run.
#[derive(Debug)]
pub struct Workload {
    /// The command, with its folder and environment.
    pub command: Command,
    /// A file for stdin.
    pub stdin: Option<PathBuf>,
    /// A file that it writes, to be compared beside stdout.
    pub writes: Option<PathBuf>,
}

fn workload(dir: &Path, program: &str, args: &[&str]) -> Workload {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).env("LC_ALL", "C").env("TMPDIR", dir);
    Workload { command, stdin: None, writes: None }
}

/// The system's interpreter, not a wrapper of a version manager.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// Lines in no order, about 16,000 bytes each. Long ones, since each comparison of a sort reads two of them wherever they lie: with
/// short ones no pager of any kind could keep a quarter of them here and end in time.
fn write_lines(path: &Path, count: u64) {
    let (mut text, mut x) = (String::with_capacity(count as usize * 17_000), 1_u64);
    for line in 0..count {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{:x} line {line}", x >> 20).expect("a String takes what is written");
        for word in 0..1_900 {
            write!(text, " {}", x.rotate_left(word) % 10_000_019).expect("a String takes what is written");
        }
        text.push('\n');
    }
    fs::write(path, text).expect("the scratch folder is writable");
}

fn prepare(command: &mut Command, what: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}: run tests/setup.sh"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// GNU sort, two threads, all in memory.
pub fn sort(dir: &Path) -> Workload {
    write_lines(&dir.join("lines"), 8_000);
    let args = ["--parallel=2", "-S", "1G", "-T", ".", "-o", "sorted", "lines"];
    Workload { writes: Some(dir.join("sorted")), ..workload(dir, "sort", &args) }
}

/// CPython, large dictionaries.
pub fn python_dicts(dir: &Path) -> Workload {
    python_program(dir, "dicts.py", &["40000"])
}

/// CPython, workers that go over what their parent has.
pub fn python_pool(dir: &Path) -> Workload {
    python_program(dir, "pool.py", &["600000", "3", "20"])
}

fn python_program(dir: &Path, name: &str, args: &[&str]) -> Workload {
    let script = place::source(name);
    let args: Vec<&str> = [script.to_str().expect("UTF-8")].iter().chain(args).copied().collect();
    let mut python = workload(dir, python(), &args);
    python.command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// sqlite3, a database in memory with indexes.
pub fn sqlite(dir: &Path) -> Workload {
    Workload {
        stdin: Some(place::source("table.sql")),
        ..workload(dir, "sqlite3", &["-batch", "-bail", ":memory:"])
    }
}

/// Writes a large C file of so many functions.
fn write_source(path: &Path, functions: u32) {
    let source = fs::File::create(path).expect("the scratch folder is writable");
    let mut command = Command::new(python());
    let status =
        command.arg(place::source("big_source.py")).arg(functions.to_string()).stdout(source).status();
    assert!(status.expect("python3: run tests/setup.sh").success(), "the generator of a large source failed");
}

/// gcc on one large file.
pub fn gcc(dir: &Path) -> Workload {
    write_source(&dir.join("big.c"), 800);
    Workload {
        writes: Some(dir.join("big.o")),
        ..workload(dir, "gcc", &["-O0", "-c", "big.c", "-o", "big.o"])
    }
}

/// xz, two threads; on C source with each line many times, since what is new in the text is looked up all over xz's tables.
pub fn xz(dir: &Path) -> Workload {
    write_source(&dir.join("once"), 160);
    let once = fs::read_to_string(dir.join("once")).expect("just written");
    let mut source = String::with_capacity(once.len() * 50);
    for line in once.split_inclusive('\n') {
        (0..50).for_each(|_| source.push_str(line));
    }
    fs::write(dir.join("source"), source).expect("the scratch folder is writable");
    workload(dir, "xz", &["-T2", "-9", "--block-size=1MiB", "-k", "-c", "source"])
}

/// A JVM; the serial collector and one compiler, since what they walk over on their own is a multiple of what the program does.
pub fn java(dir: &Path) -> Workload {
    prepare(Command::new("javac").arg("-d").arg(dir).arg(place::source("Maps.java")), "javac");
    workload(
        dir,
        "java",
        &[
            "-Xmx200m",
            "-Xmn8m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-cp",
            ".",
            "Maps",
            "54000",
        ],
    )
}

/// Node.js.
pub fn node(dir: &Path) -> Workload {
    let script = place::source("objects.js");
    workload(dir, "node", &[script.to_str().expect("UTF-8"), "54000"])
}

/// More passes of a walk than any test waits for: [`end_walks`] ends it.
pub const ENDLESS: u64 = 1_000_000;

/// Has walks among a process's descendants end after the pass that they are in.
pub fn end_walks(pid: u32) {
    let walk = place::program("memwalk");
    let walks =
        procfs::descendants(pid).into_iter().filter(|&pid| procfs::executable(pid).as_ref() == Some(&walk));
    walks.for_each(|pid| procfs::send(pid, Signal::USR1));
}

/// Our own program: fills memory, checks and rewrites it.
pub fn memwalk(mib: u64, passes: u64, order: &str) -> Command {
    let mut command = Command::new(place::program("memwalk"));
    command.args([&mib.to_string(), &passes.to_string(), order]);
    command
}
