//! Programs that were not started by `loam run` and borrow by the library.

use loam_tests::borrow::status_of;
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Arrays of the example, a quarter of which may be here.
const MIB: u64 = 256;

/// The example that does what its first word says, and writes a summary.
fn attached(what: &str, summary: &Path) -> Command {
    let mut attached = Command::new(place::example("attached"));
    attached.args([what, "--durability", "staged", "--embedded", "2x256M", "--summary"]).arg(summary);
    attached.env("LOAM", place::loam());
    attached
}

/// What the agent has written, once it has ended.
fn figures(summary: &Path) -> Value {
    wait_for_agents_end(summary);
    serde_json::from_slice(&std::fs::read(summary).expect("written")).expect("JSON")
}

fn wait_for_agents_end(summary: &Path) {
    let none = || agents(summary).is_empty();
    procfs::wait_until(Duration::from_secs(20), none).expect("the agent ends by itself");
}

fn number(figures: &Value, pointer: &str) -> u64 {
    figures.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {figures}"))
}

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
    for (flags, word) in [
        (&["--no-such-flag"][..], "'--no-such-flag'"),
        (&["--lender", "nowhere"], "'nowhere'"),
        (&["--local", "1G"], "--local"),
        (&["--help"], "--help"),
    ] {
        let wrong = told(&mut sums(flags));
        assert!(wrong.contains("Refused") && wrong.contains(word), "{flags:?}: {wrong}");
        assert_eq!(wrong.lines().count(), 1, "{flags:?}: {wrong}");
    }
    let other = told(sums(&[]).env("LOAM", "/bin/false"));
    assert!(other.contains("`/bin/false attach`") && other.contains("exit status: 1"), "{other}");
}

/// Without its pager the program cannot go on, and must not read zeros.
#[test]
fn the_agent_is_killed() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-killed");
    let summary = scratch.join("summary.json");
    let flags = ["--embedded", "2x512M", "--summary", summary.to_str().expect("UTF-8")];
    let running = shell::start(&mut sums(&flags), scratch.path(), "sums");
    let moved = |pid: &i32| {
        let status = status_of(pid.unsigned_abs());
        status.is_some_and(|status| number(&status, "/evictions/moved") > 1000)
    };
    procfs::wait_until(LIMIT, || agents(&summary).iter().any(moved))
        .expect("it has joined, and pages have left");
    for pid in agents(&summary) {
        let pid = Pid::from_raw(pid).expect("not zero");
        kill_process(pid, Signal::KILL).expect("it lives");
    }
    let ended = running.finish(LIMIT);
    assert_eq!(ended.code(), 128 + 9, "it cannot have ended well: {}", ended.stderr);
    let line = "loam: the agent (loam run) has died; sums is ended, because its memory elsewhere cannot be read any more";
    assert_eq!(ended.error_lines(), [line]);
    assert!(expected().starts_with(&*String::from_utf8_lossy(&ended.stdout)), "it printed something else");
}

/// What the region has no room for, and small requests, are the program's own allocator's; the C interface's reallocation moves to and fro.
#[test]
fn a_full_region() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-full");
    let summary = scratch.join("summary.json");
    let ended = shell::run(&mut attached("full", &summary), scratch.path(), "full", LIMIT);
    assert_eq!((ended.code(), &ended.stdout[..]), (0, &b"right\n"[..]), "{}", ended.stderr);
    let figures = figures(&summary);
    let region = |what: &str| number(&figures, &format!("/region/{what}"));
    assert_eq!((region("allocations"), region("allocated_bytes")), (5, 15 << 20), "{figures}");
    assert_eq!((region("full"), region("full_bytes")), (2, 10 << 20), "{figures}");
}

/// What it will not need leaves though there is room; what it will need is there before it is touched.
#[test]
fn advice_moves_pages_and_changes_none() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-advises");
    let summary = scratch.join("summary.json");
    let ended = shell::run(&mut attached("advises", &summary), scratch.path(), "advises", LIMIT);
    assert_eq!((ended.code(), &ended.stdout[..]), (0, &b"right\n"[..]), "{}", ended.stderr);
    assert!(number(&figures(&summary), "/evictions/advised") > 9_500);
}

/// What it says of how it goes through memory, and of what that is worth, is seen in what comes, what stays and what leaves.
#[test]
fn advice_that_holds() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-holds");
    let summary = scratch.join("summary.json");
    for (what, page) in
        [("random", "64K"), ("sequential", "4K"), ("prioritizes", "4K"), ("prioritizes", "64K")]
    {
        let mut program = attached(what, &summary);
        let ended = shell::run(program.args(["--page", page]), scratch.path(), what, LIMIT);
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.code() == 0 && said.starts_with("right"), "{what}, {page}: {said}{}", ended.stderr);
        wait_for_agents_end(&summary);
    }
}

/// A part of memory has a budget, a page size and a fetch plan of its own: no more of it stays, nothing else leaves for it, and a fault brings what was said.
#[test]
fn terms_of_a_range() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-terms");
    let summary = scratch.join("summary.json");
    for what in ["budget", "pages"] {
        let mut program = Command::new(place::example("terms"));
        program.args([what, "--durability", "staged", "--embedded", "2x256M", "--summary"]).arg(&summary);
        let ended = shell::run(program.env("LOAM", place::loam()), scratch.path(), what, LIMIT);
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.code() == 0 && said.starts_with("right"), "{what}: {said}{}", ended.stderr);
        if what == "pages" {
            let faults: Vec<u64> =
                said.split_whitespace().skip(1).map(|n| n.parse().expect("a number")).collect();
            // A page of 64 KiB may come in two parts, from two lenders or from a buffer and a lender; the program goes on with the first and waits once more.
            let [full, lazy, small] = faults[..] else { panic!("three figures, not {faults:?}") };
            assert!((128..=512).contains(&full), "of 64 KiB: {full}");
            assert_eq!((lazy, small), (2048, 2048), "in pieces of 4 KiB as they are touched, and of 4 KiB");
        }
        wait_for_agents_end(&summary);
    }
}

/// Collections grow into the region, are aligned as they ask, and give all of it back.
#[test]
fn collections_take_the_region() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-collects");
    let summary = scratch.join("summary.json");
    let mut collections = Command::new(place::example("collections"));
    collections.args(["--durability", "staged", "--embedded", "2x256M", "--summary"]).arg(&summary);
    let ended = shell::run(collections.env("LOAM", place::loam()), scratch.path(), "collects", LIMIT);
    assert_eq!((ended.code(), &ended.stdout[..]), (0, &b"right\n"[..]), "{}", ended.stderr);
    assert_eq!(number(&figures(&summary), "/region/full"), 0);
}

/// A program that cannot be served is told so and goes on, the agent ends, and the next try may succeed.
#[test]
fn a_refusal_changes_nothing() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-refused");
    let summary = scratch.join("summary.json");
    let (reads, mut writes) = std::io::pipe().expect("descriptors are left");
    let mut program = attached("refused", &summary);
    let mut running = shell::start(program.stdin(reads), scratch.path(), "refused");
    running.wait_for_line("refused: ", LIMIT);
    let told = running.stdout_so_far();
    assert!(told.contains("no address space") && told.contains("ulimit -v"), "{told}");
    wait_for_agents_end(&summary);
    assert!(running.runs(), "{}", running.stderr_so_far());
    writes.write_all(b"\n").expect("it waits for that");
    let ended = running.finish(LIMIT);
    assert_eq!((ended.code(), &*ended.stderr), (0, ""));
    assert!(ended.stdout.ends_with(b"\nright\n"), "{told}");
    assert!(number(&figures(&summary), "/evictions/moved") > 0);
}

/// Valgrind would end the program for what the shim does: who asks to be served is told so, and the agent that was started for it ends. (It is known by what it preloads.)
#[test]
fn under_valgrind_it_is_refused() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-valgrind");
    let summary = scratch.join("summary.json");
    let mut program = Command::new(place::example("terms"));
    program.args(["budget", "--durability", "staged", "--embedded", "2x256M", "--summary"]).arg(&summary);
    program.env("LOAM", place::loam()).env("LD_PRELOAD", "/nowhere/vgpreload_core-amd64-linux.so");
    let ended = shell::run(&mut program, scratch.path(), "valgrind", LIMIT);
    assert!(ended.code() != 0 && ended.stderr.contains("valgrind runs this program"), "{}", ended.stderr);
    wait_for_agents_end(&summary);
    assert_eq!(number(&figures(&summary), "/processes"), 0);
}

/// An agent that nobody joins has no reason to stay.
#[test]
fn nobody_joins() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-alone");
    let summary = scratch.join("summary.json");
    let mut attach = Command::new(place::loam());
    attach.args(["attach", "--quiet", "--pid", &std::process::id().to_string()]);
    attach.args(["--local", "64M", "--region", "64M", "--embedded", "2x64M", "--summary"]).arg(&summary);
    let started = shell::run(&mut attach, scratch.path(), "attach", LIMIT);
    assert_eq!(started.code(), 0, "{}", started.stderr);
    procfs::wait_until(LIMIT, || {
        std::fs::read(scratch.join("attach.out")).is_ok_and(|out| out.starts_with(b"ready\n"))
    })
    .expect("it serves");
    assert_eq!(number(&figures(&summary), "/processes"), 0);
}

/// A daemon that the program has started is served on when its parent has ended, and so are its own children; the agent waits for them asleep.
#[test]
fn a_daemon_is_left_behind() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-daemon");
    let summary = scratch.join("summary.json");
    let right = |name: &str| std::fs::read_to_string(scratch.join(name)).expect("written");
    // Also of a user who may not hear of forks.
    for hears in [true, false] {
        let stays = attached("stays", &summary);
        let mut command = Command::new("setpriv");
        if !hears && place::is_root() {
            command.args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-all"]);
        }
        command.arg("--").arg(stays.get_program()).args(stays.get_args()).env("LOAM", place::loam());
        let ended = shell::run(&mut command, scratch.path(), "stays", LIMIT);
        wait_for_agents_end(&summary);
        assert_eq!((ended.code(), &*right("stays.err")), (0, ""), "{hears}");
        assert_eq!(right("stays.out"), "the daemon is right\nright\n", "{hears}");
    }
    let ended = shell::run(&mut attached("leaves", &summary), scratch.path(), "leaves", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    // For two seconds nobody does anything.
    let agent = agents(&summary)[0].unsigned_abs();
    let before = procfs::core_time(agent).expect("it serves the daemon");
    std::thread::sleep(Duration::from_secs(1));
    let spent = procfs::core_time(agent).expect("it serves the daemon") - before;
    assert!(spent < Duration::from_millis(250), "{spent:?} of a second");
    assert_eq!(number(&figures(&summary), "/processes"), 4, "it, its child, the daemon and that one's child");
    assert_eq!((&*right("leaves.out"), &*right("leaves.err")), ("the daemon is right\n", ""));
}

/// What a child has outside of the region counts as its parent's does: all that was not there before.
#[test]
fn a_child_of_a_program_that_has_grown() {
    let _alone = place::alone();
    let scratch = Scratch::new("library-grown");
    let summary = scratch.join("summary.json");
    let ended = shell::run(&mut attached("grown", &summary), scratch.path(), "grown", LIMIT);
    assert_eq!((ended.code(), &ended.stdout[..]), (0, &b"right\n"[..]), "{}", ended.stderr);
    let figures = figures(&summary);
    // 96 MiB each; but a fork does not copy what is mapped of files, which was there before.
    assert!(number(&figures, "/local_peak_bytes") > 150 << 20, "{figures}");
}
