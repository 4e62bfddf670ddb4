//! `loam run --reserve` with real lenders: all of it before the program starts, or one line and no program.

use loam_tests::borrow::Borrow;
use loam_tests::lender::Lender;
use loam_tests::place::{self, Scratch};
use loam_tests::{plain, procfs, shell, workloads};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);
const SOON: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

fn borrow(scratch: &Scratch, lenders: &[Lender]) -> Borrow {
    let borrow = Borrow::new(scratch.path()).local_mib(48);
    lenders.iter().fold(borrow, |borrow, lender| borrow.lender(lender.addr))
}

/// A program that leaves a mark.
fn marks(dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo it ran >mark"]).current_dir(dir);
    command
}

/// The run ended before its program started, with a line that has all of `words`.
fn assert_not_started(borrow: &Borrow, scratch: &Scratch, words: &[&str]) {
    let ended = borrow.run(&marks(scratch.path()), None, SOON).ended;
    assert_eq!(ended.code(), 125, "{}", ended.stderr);
    let lines = ended.error_lines();
    assert_eq!(lines.len(), 1, "one line is due: {}", ended.stderr);
    for word in words {
        assert!(lines[0].contains(word), "no '{word}' in: {}", lines[0]);
    }
    assert!(!scratch.join("mark").exists(), "the program ran");
}

#[test]
fn a_run_with_room_set_aside_computes_the_same() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("reserve-sort");
    let mut workload = workloads::sort(scratch.path());
    // A buffer that fits into the region.
    workload.command = Command::new("sort");
    let args = ["--parallel=2", "-S", "200M", "-T", ".", "-o", "sorted", "lines"];
    workload.command.args(args).current_dir(scratch.path());
    let sorted = workload.writes.as_deref().expect("it writes a file");
    plain::run(&workload.command, None, scratch.path(), LIMIT);
    let expected = fs::read(sorted).expect("the plain run has written it");
    fs::remove_file(sorted).expect("just read");
    let lenders = [0, 1].map(|_| Lender::start_with("512M", &["--reservable", "448M"]));
    let borrow = borrow(&scratch, &lenders).durability("staged").flags(&["--region", "448M", "--reserve"]);
    let borrowed = borrow.run(&workload.command, None, LIMIT);
    borrowed.assert_ended_well("sort");
    borrowed.assert_memory_left("sort");
    assert!(fs::read(sorted).expect("written") == expected, "another output");
    let of = |what: &str| borrowed.number(&format!("/reservation/{what}")) as u64 / MIB;
    assert_eq!(["bytes", "promised_bytes", "reserved_bytes"].map(of), [448, 896, 896]);
    assert_eq!(borrowed.number("/reservation/copies"), 2.0);
    assert_eq!(borrowed.number("/region/full"), 0.0);
    let free = || lenders.iter().all(|lender| lender.reserved_bytes() == 0);
    procfs::wait_until(SOON, free).expect("it ends with the run");
}

#[test]
fn without_the_room_the_program_is_not_started() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("reserve-short");
    // Half of what is lent may be reserved.
    let lenders = [Lender::start("64M"), Lender::start("32M")];
    let addrs = lenders.each_ref().map(|lender| lender.addr.to_string());
    let has = [format!("{} has 32.0 MiB", addrs[0]), format!("{} has 16.0 MiB", addrs[1])];
    let words = |short: &'static str| ["cannot reserve", short, &has[0], &has[1], "--reserve=SIZE"];
    let with = |durability, reserve: &str| {
        borrow(&scratch, &lenders).durability(durability).flags(&[&format!("--reserve={reserve}")])
    };
    assert_not_started(&with("disk", "50M"), &scratch, &words("2.0 MiB are missing"));
    // The second copy of 4 MiB has no place, though there are 48 in all.
    assert_not_started(&with("staged", "20M"), &scratch, &words("4.0 MiB are missing"));
    assert!(lenders.iter().all(|lender| lender.reserved_bytes() == 0), "nothing stays of it");
    assert_not_started(&borrow(&scratch, &[]).flags(&["--reserve=1M"]), &scratch, &["there is no lender"]);
    let region = borrow(&scratch, &lenders).flags(&["--reserve"]);
    assert_not_started(&region, &scratch, &["--reserve", "--region"]);
    let borrowed = with("disk", "48M").run(&marks(scratch.path()), None, SOON);
    borrowed.assert_ended_well("all that there is");
    assert!(scratch.join("mark").exists());
}

#[test]
fn what_a_killed_run_had_is_anothers_after_the_grace() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("reserve-killed");
    let lenders = [Lender::start("64M"), Lender::start("64M")];
    let first = borrow(&scratch, &lenders).flags(&["--reserve=50M"]);
    let mut sleeps = Command::new("sleep");
    sleeps.arg("300");
    let running = first.start(&sleeps, None);
    let reserved = || lenders.iter().map(Lender::reserved_bytes).sum::<u64>() / MIB;
    procfs::wait_until(SOON, || reserved() == 50).expect("spread over both");
    assert!(lenders.iter().all(|lender| lender.reserved_bytes() == 25 * MIB), "evenly");
    let shown = shell::run(
        Command::new(place::loam()).args(["status", "--lender", &lenders[0].addr.to_string()]),
        scratch.path(),
        "status",
        SOON,
    );
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("25.0 MiB are reserved until those runs end, of 32.0 MiB that may be"), "{shown}");
    let other = Scratch::new("reserve-other");
    let second = borrow(&other, &lenders).flags(&["--reserve=20M"]);
    assert_not_started(&second, &other, &["6.0 MiB are missing", "has 7.0 MiB"]);
    procfs::send(running.run.pid(), Signal::KILL);
    procfs::wait_until(SOON, || reserved() == 0).expect("within the grace of ten seconds");
    second.run(&marks(other.path()), None, SOON).assert_ended_well("the room of the one that was killed");
    assert!(other.join("mark").exists());
}
