//! Programs that were not started by `loam run` and borrow by the library.

use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Arrays of the example, a quarter of which may be here.
const MIB: u64 = 256;

fn sums(flags: &[&str]) -> Command {
    let mut sums = Command::new(place::example("sums"));
    sums.arg(MIB.to_string()).args(flags).env("LOAM", place::loam());
    sums
}

/// What it prints, by mathematics.
fn expected() -> String {
    let count = (MIB << 20) / 8 / 2;
    let places = (0..count).step_by(4099);
    let between: u64 = places.clone().map(|place| 2 * place + 1).sum();
    let (odd, even) = (count * count, count * count - count);
    format!("{odd} {even}\n{} at every 4099th place, {between}\n", places.count())
}

/// The agents that were told to write this summary, and live.
fn agents(summary: &Path) -> Vec<i32> {
    let loam = place::loam();
    let is_agent = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        words.next() == Some(loam.as_os_str().as_bytes())
            && words.any(|word| word == summary.as_os_str().as_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_agent).collect()
}

#[test]
fn a_program_connects_by_itself() {
    let _alone = place::alone();
    let scratch = Scratch::new("library");
    for flags in [["--durability", "staged"], ["--durability", "disk"]] {
        let summary = scratch.join("summary.json");
        let mut all = vec!["--embedded", "2x512M", "--summary", summary.to_str().expect("UTF-8")];
        all.extend(["--disk", scratch.path().to_str().expect("UTF-8")]);
        all.extend(flags);
        let ended = shell::run(&mut sums(&all), scratch.path(), "sums", LIMIT);
        assert_eq!(ended.code(), 0, "{flags:?}: {}", ended.stderr);
        assert_eq!(String::from_utf8_lossy(&ended.stdout), expected(), "{flags:?}");
        procfs::wait_until(Duration::from_secs(10), || agents(&summary).is_empty())
            .expect("the agent ends with it");
        let figures: Value =
            serde_json::from_slice(&std::fs::read(&summary).expect("written")).expect("JSON");
        let number = |pointer: &str| figures.pointer(pointer).and_then(Value::as_u64).expect("a number");
        // Three quarters of what was written went away, and came back to be summed up.
        assert!(number("/evictions/moved") > (MIB << 20) / 4096 / 2, "{figures}");
        assert!(number("/bytes/in") > MIB << 19, "{figures}");
        assert_eq!(number("/processes"), 2, "it, and the child that it has forked: {figures}");
        // For the moment of the fork, what is here is there twice.
        assert!(number("/local_peak_bytes") < (MIB / 4 * 2 + 16) << 20, "{figures}");
        assert_eq!(number("/region/full"), 0, "{figures}");
    }
}

/// Under `loam run` the library finds the agent that is there.
#[test]
fn a_program_that_connects_is_run() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-run");
    for region in [&[][..], &["--region", "2G"][..]] {
        let mut run = Command::new(place::loam());
        run.args(["run", "--quiet", "--local", "64M", "--embedded", "2x512M", "--disk"]).arg(scratch.path());
        let sums = sums(&["--lender", "127.0.0.1:1"]);
        run.args(region).arg("--").arg(sums.get_program()).args(sums.get_args());
        let ended = shell::run(&mut run, scratch.path(), "run", LIMIT);
        assert_eq!(ended.code(), 0, "{region:?}: {}", ended.stderr);
        assert_eq!(String::from_utf8_lossy(&ended.stdout), expected(), "{region:?}");
    }
}

/// From C: by itself and under `loam run` a program prints the same, and finds what it has written.
#[test]
fn a_program_in_c() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-c");
    let summary = scratch.join("summary.json");
    let program = place::c_example("table");
    let table = || {
        let mut table = Command::new(&program);
        table
            .arg(MIB.to_string())
            .args(["--embedded", "2x1G", "--summary"])
            .arg(&summary)
            .env("LOAM", place::loam());
        table
    };
    let ended = shell::run(&mut table(), scratch.path(), "table", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert!(ended.stdout.ends_with(b", 0 wrong\n"), "{}", String::from_utf8_lossy(&ended.stdout));
    procfs::wait_until(Duration::from_secs(10), || agents(&summary).is_empty())
        .expect("the agent ends with it");
    let figures: Value = serde_json::from_slice(&std::fs::read(&summary).expect("written")).expect("JSON");
    let number = |pointer: &str| figures.pointer(pointer).and_then(Value::as_u64).expect("a number");
    assert!(
        number("/evictions/moved") > (MIB << 20) / 4096 / 2 && number("/faults/remote") > 1000,
        "{figures}"
    );
    let mut run = Command::new(place::loam());
    run.args(["run", "--quiet", "--local", "64M", "--embedded", "2x1G", "--"]);
    run.arg(table().get_program()).args(table().get_args());
    let again = shell::run(&mut run, scratch.path(), "run", LIMIT);
    assert_eq!((again.code(), &again.stdout), (0, &ended.stdout), "{}", again.stderr);
    // What goes wrong is a line, and a code.
    let missing = shell::run(table().env("LOAM", "/no/such/loam"), scratch.path(), "missing", LIMIT);
    assert!(missing.code() == 1 && missing.stderr.contains("/no/such/loam"), "{}", missing.stderr);
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-wrong");
    let told = |program: &mut Command| {
        let ended = shell::run(program, scratch.path(), "wrong", LIMIT);
        assert_eq!(ended.code(), 1, "{}", ended.stderr);
        assert!(ended.stdout.is_empty());
        ended.stderr
    };
    let refused = told(&mut sums(&["--durability", "none", "--lender", "127.0.0.1:1"]));
    assert!(refused.contains("no lender can be reached"), "{refused}");
    let missing = told(sums(&[]).env("LOAM", "/no/such/loam"));
    assert!(missing.contains("/no/such/loam"), "{missing}");
}

/// Without its pager the program cannot go on, and must not read zeros.
#[test]
fn the_agent_is_killed() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-killed");
    let summary = scratch.join("summary.json");
    let flags = ["--embedded", "2x512M", "--summary", summary.to_str().expect("UTF-8")];
    let running = shell::start(&mut sums(&flags), scratch.path(), "sums");
    procfs::wait_until(LIMIT, || !agents(&summary).is_empty()).expect("it connects");
    std::thread::sleep(Duration::from_millis(500));
    for pid in agents(&summary) {
        let pid = Pid::from_raw(pid).expect("not zero");
        kill_process(pid, Signal::KILL).expect("it lives");
    }
    let ended = running.finish(LIMIT);
    assert_ne!(ended.code(), 0, "it cannot have ended well: {}", ended.stderr);
    assert!(expected().starts_with(&*String::from_utf8_lossy(&ended.stdout)), "it printed something else");
}
