//! The traps of the design, each checked by a C program of ours from within, and from here from outside: it ends well, memory really
//! left, and what stayed was within the limit.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::shell;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 80;
const LOCAL_MIB: u64 = 32;
/// Without Loam nothing has to be away.
const PLAIN_MIB: u64 = 32;
const LIMIT: Duration = Duration::from_secs(90);
/// Traps that end by SIGABRT.
const ABORTS: &str = "abort_core";
/// A trap that keeps half of its memory here for good where what is freed lazily is not seen to: less than the bar leaves room for.
const LAZILY_FREED: &str = "madv_free_fill";
/// Traps that lock more than `--local`, so that the limit cannot be held. `faults.rs` has it.
const OVER_BUDGET: &str = "mlock_most";
/// Traps that keep more here than `--local` whatever Loam does, which must say so then: the kernel moves no page that is not writable, and a
/// child that was made behind libc's back has nobody in it who could take its pages away.
const CANNOT_BE_HELD: &[&str] = &["mprotect_read", "mprotect_none", "fork_raw"];
/// Traps whose memory is too little, or whose process ends too soon, for faults to be certain.
const MAY_FIT: &[&str] = &["child_program", "stack_main", "stack_threads"];

fn trap(name: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(place::program("traps"));
    command.args([name, "--mib", &MIB.to_string(), "--limit", "60", "--dir"]).arg(scratch.path());
    command.current_dir(scratch.path());
    command
}

fn names(scratch: &Scratch) -> Vec<String> {
    let list = shell::run(Command::new(place::program("traps")).arg("list"), scratch.path(), "list", LIMIT);
    let text = String::from_utf8(list.stdout).expect("names are ASCII");
    text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// One borrowing run of one trap; an error instead of a panic, so that one run of the suite tells all.
fn check(name: &str, scratch: &Scratch) -> Result<String, String> {
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).embedded("1x1G");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let borrowed = borrow.run(&trap(name, scratch), None, LIMIT);
        if name == ABORTS {
            assert_eq!(borrowed.ended.code(), 134, "stderr: {}", borrowed.ended.stderr);
            assert_eq!(borrowed.number("/exit_code"), 134.0);
        } else {
            borrowed.assert_ended_well(name);
            let stdout = String::from_utf8_lossy(&borrowed.ended.stdout).into_owned();
            assert!(stdout.lines().any(|line| line == format!("ok {name}")), "stdout: {stdout}");
        }
        if !MAY_FIT.contains(&name) {
            borrowed.assert_memory_left(name);
        }
        if borrowed.samples.above > 0 && CANNOT_BE_HELD.contains(&name) {
            let warnings = borrowed.summary["warnings"].to_string();
            assert!(warnings.contains("cannot be held"), "over the limit without a word: {warnings}");
        } else {
            borrowed.samples.assert_below_bar(name);
        }
        if name == LAZILY_FREED {
            let peak = borrowed.samples.peak_bytes >> 20;
            assert!(peak < LOCAL_MIB * 3 / 2, "{peak} MiB of what is freed lazily stay");
        }
        format!(
            "{:.1} s, {} MiB at most ({} of {} samples excused)",
            borrowed.ended.wall.as_secs_f64(),
            borrowed.samples.peak_bytes >> 20,
            borrowed.samples.excused,
            borrowed.samples.count
        )
    }));
    outcome.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "failed without a text".into(),
    })
}

#[test]
fn every_trap() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("traps");
    let only = std::env::var("LOAM_TEST_TRAP").ok();
    let mut names = names(&scratch);
    assert!(names.len() > 50, "the list of traps is short: {names:?}");
    names.retain(|name| name != OVER_BUDGET && only.as_ref().is_none_or(|only| name.contains(only.as_str())));
    // By the program itself, without Loam: a trap that cannot hold there proves nothing. It skips what this machine lacks.
    let mut plain = Command::new(place::program("traps"));
    plain.args(["all", "--mib", &PLAIN_MIB.to_string(), "--limit", "60", "--dir"]).arg(scratch.path());
    let plain = shell::run(plain.current_dir(scratch.path()), scratch.path(), "plain", LIMIT * 3);
    let plain_out = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert_eq!(plain.code(), 0, "plain: {plain_out}{}", plain.stderr);
    let mut failed = Vec::new();
    for name in &names {
        if plain_out.lines().any(|line| line.starts_with(&format!("skip {name}:"))) {
            println!("trap {name}: passed over, this machine does not allow it");
            continue;
        }
        match check(name, &scratch) {
            Ok(figures) => println!("trap {name}: ok, {figures}"),
            Err(error) => {
                println!("trap {name}: FAILED: {error}");
                failed.push(format!("{name}: {error}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {} traps failed:\n{}", failed.len(), names.len(), failed.join("\n"));
}

/// All that is here at a fork, times five: more than the bar leaves room for beside `--local`.
#[test]
fn a_pool_that_writes_to_all_that_it_shares_keeps_to_the_limit() {
    write_to_all_that_is_shared("512");
}

/// Nothing is borrowed, or watched closely, before that fork.
#[test]
fn a_pool_that_fits_until_it_forks_keeps_to_the_limit() {
    write_to_all_that_is_shared("240");
}

fn write_to_all_that_is_shared(mib: &str) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("pool");
    let mut pool = Command::new(place::program("traps"));
    pool.args(["fork_pool", "--mib", mib, "--limit", "80", "--dir"]).arg(scratch.path());
    let borrowed = Borrow::new(scratch.path()).local_mib(160).embedded("2x2G").run(&pool, None, LIMIT);
    borrowed.assert_ended_well("fork_pool");
    borrowed.assert_memory_left("fork_pool");
    borrowed.samples.assert_below_bar("fork_pool");
    assert!(borrowed.samples.processes_max >= 5, "{:?}", borrowed.samples);
    assert!(borrowed.number("/forks/copied") > 4.0 * 10_000.0, "{}", borrowed.summary["forks"]);
    let warnings = borrowed.summary["warnings"].to_string();
    assert!(!warnings.contains("cannot be held"), "{warnings}");
}
