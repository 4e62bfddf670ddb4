//! Real programs at a quarter of the memory that they want: the output is the same, byte for byte, memory really left, and
//! what stayed was within the limit at every look.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::place::{self, Scratch};
use loam_tests::plain::{self, Plain};
use loam_tests::workloads::{self, Workload};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const PLAIN_LIMIT: Duration = Duration::from_secs(120);
const BORROW_LIMIT: Duration = Duration::from_secs(420);
const LENDERS: &str = "2x1G";

/// With a quarter of what its largest process has.
fn same_output(name: &str, prepare: impl Fn(&Path) -> Workload) {
    same_output_in(name, Plain::quarter_mib, prepare);
}

/// A plain run, then one on borrowed memory, then the comparison.
fn same_output_in(name: &str, local_mib: impl Fn(&Plain) -> u64, prepare: impl Fn(&Path) -> Workload) {
    let _alone = place::alone();
    let scratch = Scratch::new(name);
    let workload = prepare(scratch.path());
    let stdin = workload.stdin.as_deref();
    let plain = plain::run(&workload.command, stdin, scratch.path(), PLAIN_LIMIT);
    let written = workload.writes.as_deref().map(|path| {
        let bytes = fs::read(path).expect("the plain run has written it");
        // What the plain run wrote must not be taken for the other's.
        fs::remove_file(path).expect("just read");
        bytes
    });
    assert!(!plain.ended.stdout.is_empty() || written.is_some(), "{name}: there is nothing to compare");
    let local_mib = local_mib(&plain);
    let borrow = Borrow::new(scratch.path()).local_mib(local_mib).embedded(LENDERS);
    let borrowed = borrow.run(&workload.command, stdin, BORROW_LIMIT);
    report(name, &plain, local_mib << 20, &borrowed);
    borrowed.assert_ended_well(name);
    compare(&format!("{name}: stdout"), &plain.ended.stdout, &borrowed.ended.stdout);
    if let (Some(path), Some(expected)) = (workload.writes.as_deref(), written) {
        compare(
            &format!("{name}: {}", path.display()),
            &expected,
            &fs::read(path).expect("the program has written it"),
        );
    }
    borrowed.assert_memory_left(name);
    assert_eq!(borrowed.lost(), 0, "{name}: {}", borrowed.summary);
    borrowed.samples.assert_below_bar(name);
}

/// Equal, or where they differ: dumping megabytes helps nobody.
fn compare(what: &str, expected: &[u8], got: &[u8]) {
    if expected != got {
        let at = expected.iter().zip(got).position(|(a, b)| a != b).unwrap_or(expected.len().min(got.len()));
        panic!("{what}: {} bytes where {} are due, first difference at byte {at}", got.len(), expected.len());
    }
}

/// One line a program, to the terminal of `--nocapture` and to `$LOAM_TEST_REPORT`.
fn report(name: &str, plain: &Plain, limit: u64, borrowed: &Borrowed) {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let line = format!(
        "{name}: plain {:.1} s, {:.0} MiB; at {:.0} MiB {:.1} s, largest sample {:+.1} MiB over the limit (bar {:+.1}), {} samples, {} above, longest gap {} ms\n",
        plain.ended.wall.as_secs_f64(),
        mib(plain.peak_bytes as f64),
        mib(limit as f64),
        borrowed.ended.wall.as_secs_f64(),
        mib(borrowed.samples.overshoot_bytes(limit) as f64),
        mib(borrowed.samples.bar_bytes as f64 - limit as f64),
        borrowed.samples.counted,
        borrowed.samples.above,
        borrowed.samples.gap_max.as_millis(),
    );
    print!("{line}");
    if let Some(path) = std::env::var_os("LOAM_TEST_REPORT") {
        let file = fs::OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("LOAM_TEST_REPORT can be written");
    }
}

#[test]
fn sort() {
    same_output("sort", workloads::sort);
}

#[test]
fn python() {
    same_output("python", workloads::python_dicts);
}

/// A pool of three workers, which each copy what their parent has: half of what they have together.
#[test]
fn python_pool() {
    same_output_in("python pool", |plain| plain.peak_bytes >> 19, workloads::python_pool);
}

#[test]
fn sqlite() {
    same_output("sqlite", workloads::sqlite);
}

#[test]
fn gcc() {
    same_output("gcc", workloads::gcc);
}

#[test]
fn xz() {
    same_output("xz", workloads::xz);
}

#[test]
fn java() {
    same_output("java", workloads::java);
}

#[test]
fn node() {
    same_output("node", workloads::node);
}

#[test]
fn memwalk() {
    same_output("memwalk", |_| Workload {
        command: workloads::memwalk(128, 2, "blocks"),
        stdin: None,
        writes: None,
    });
}

/// What is mapped of a file beyond a part of the limit is the kernel's cache: the program's own memory has room beside it.
#[test]
fn a_mapped_file_takes_nobodys_place() {
    const FILE_MIB: f64 = 400.0;
    let _alone = place::alone();
    let scratch = Scratch::new("mapped");
    let mut command = std::process::Command::new("python3");
    command.arg(place::source("mapped.py")).arg(scratch.join("file")).arg(FILE_MIB.to_string()).arg("64");
    let plain = plain::run(&command, None, scratch.path(), PLAIN_LIMIT);
    let borrow = Borrow::new(scratch.path()).local_mib(112).embedded(LENDERS);
    let borrowed = borrow.run(&command, None, BORROW_LIMIT);
    borrowed.assert_ended_well("mapped");
    compare("mapped: stdout", &plain.ended.stdout, &borrowed.ended.stdout);
    let mib = |pointer| borrowed.number(pointer) / f64::from(1 << 20);
    assert!(mib("/mapped_files_bytes") > FILE_MIB * 0.75, "{}", borrowed.summary);
    assert!(mib("/local_peak_bytes") < 112.0 * 1.05 + 32.0, "{}", borrowed.summary);
    // Were all of it counted, 32 MiB would be left for the table, and each pass would bring it once more.
    assert!(borrowed.number("/evictions/moved") < 32_000.0, "{}", borrowed.summary);
}
