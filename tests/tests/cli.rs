//! The command line: what passes through, what is told, and to whom.

use loam_tests::borrow::Borrow;
use loam_tests::lender::{Lender, free_addr};
use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use loam_tests::{plain, procfs, workloads};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn loam(args: &[&str], dir: &Path) -> Ended {
    shell::run(Command::new(place::loam()).args(args), dir, "loam", LIMIT)
}

#[test]
fn stdin_and_stdout_pass_through() {
    let _alone = place::alone();
    let scratch = Scratch::new("cat");
    let input = scratch.join("input");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&input, &bytes).expect("writable");
    let borrowed = Borrow::new(scratch.path()).run(&Command::new("cat"), Some(&input), LIMIT);
    borrowed.assert_ended_well("cat");
    assert!(borrowed.ended.stdout == bytes, "what went in came out");
    assert_eq!(borrowed.ended.stderr, "", "--quiet");
}

#[test]
fn stderr_passes_through() {
    let _alone = place::alone();
    let scratch = Scratch::new("stderr");
    let ended = Borrow::new(scratch.path()).run(&shell::sh("echo to stderr >&2"), None, LIMIT).ended;
    assert_eq!((ended.code(), ended.stderr.as_str()), (0, "to stderr\n"));
}

#[test]
fn the_exit_status_passes_through() {
    let _alone = place::alone();
    let scratch = Scratch::new("status");
    for status in [0, 1, 7, 125, 255] {
        let borrowed = Borrow::new(scratch.path()).run(&shell::sh(&format!("exit {status}")), None, LIMIT);
        assert_eq!(borrowed.ended.code(), status, "{}", borrowed.ended.stderr);
        assert_eq!(borrowed.number("/exit_code"), f64::from(status));
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_the_run() {
    let _alone = place::alone();
    let scratch = Scratch::new("signal");
    for signal in [Signal::TERM, Signal::KILL, Signal::SEGV] {
        let number = signal.as_raw();
        let borrowed =
            Borrow::new(scratch.path()).run(&shell::sh(&format!("kill -{number} $$")), None, LIMIT);
        assert_eq!(borrowed.ended.status.signal(), Some(number), "{:?}", borrowed.ended);
        assert_eq!(borrowed.number("/exit_code"), f64::from(128 + number));
    }
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let _alone = place::alone();
    let scratch = Scratch::new("trap");
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")]
    {
        let script =
            format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut running = Borrow::new(scratch.path()).start(&shell::sh(&script), None);
        running.run.wait_for_line("ready", LIMIT);
        procfs::send(running.run.pid(), signal);
        let ended = running.finish(LIMIT).ended;
        assert_eq!(ended.code(), 9, "{name}: {}", ended.stderr);
        assert!(String::from_utf8_lossy(&ended.stdout).contains(&format!("got {name}")), "{name}");
    }
}

#[test]
fn folder_environment_and_arguments_are_the_users() {
    let _alone = place::alone();
    let scratch = Scratch::new("environment");
    let mut command = shell::sh("pwd; echo \"$GREETING\"; printf '<%s>' \"$@\"; echo");
    command
        .args(["sh", "--local", "a b", "", "--", "*"])
        .env("GREETING", "good day")
        .current_dir(scratch.path());
    let ended = Borrow::new(scratch.path()).run(&command, None, LIMIT).ended;
    let folder = fs::canonicalize(scratch.path()).expect("it exists");
    let expected = format!("{}\ngood day\n<--local><a b><><--><*>\n", folder.display());
    assert_eq!(String::from_utf8_lossy(&ended.stdout), expected);
}

/// The keys that the issue promises, with the types that it means.
#[test]
fn the_summary_has_its_keys() {
    let _alone = place::alone();
    let scratch = Scratch::new("keys");
    let walk = workloads::memwalk(96, 3, "blocks");
    let borrowed = Borrow::new(scratch.path()).embedded("2x512M").run(&walk, None, LIMIT);
    borrowed.assert_ended_well("memwalk");
    borrowed.assert_memory_left("memwalk");
    let keys = [
        "/exit_code",
        "/wall_s",
        "/local_limit_bytes",
        "/local_peak_bytes",
        "/adopted_bytes",
        "/faults/total",
        "/faults/zero",
        "/faults/rescued",
        "/faults/remote",
        "/faults/disk",
        "/faults/prefetched_hit",
        "/fault_latency_us/p50",
        "/fault_latency_us/p90",
        "/fault_latency_us/p99",
        "/fault_latency_us/max",
        "/evictions/moved",
        "/evictions/clean",
        "/evictions/zero",
        "/evictions/busy",
        "/bytes/in",
        "/bytes/out",
        "/bytes/disk_read",
        "/bytes/disk_written",
        "/time_s/exec",
        "/time_s/sp_latency",
        "/time_s/page_wait",
        "/time_s/put_wait",
    ];
    for key in keys {
        assert!(borrowed.number(key) >= 0.0, "{key} is negative");
    }
    for lender in borrowed.summary["lenders"].as_array().expect("a list") {
        assert!(lender["addr"].is_string() && lender["lost"].is_boolean(), "{lender}");
        assert!(lender["pages"].is_u64() && lender["bytes"].is_u64(), "{lender}");
    }
    // The figures fit together.
    assert_eq!(borrowed.summary["lenders"].as_array().map(Vec::len), Some(2));
    assert_eq!(borrowed.number("/local_limit_bytes"), f64::from(32 << 20));
    let parts: f64 = ["zero", "rescued", "remote", "disk", "prefetched_hit"]
        .iter()
        .map(|key| borrowed.number(&format!("/faults/{key}")))
        .sum();
    assert_eq!(
        parts,
        borrowed.number("/faults/total"),
        "each fault is counted once: {}",
        borrowed.summary["faults"]
    );
    assert!(borrowed.number("/fault_latency_us/p50") <= borrowed.number("/fault_latency_us/max"));
    assert!(borrowed.number("/adopted_bytes") >= f64::from(96 << 20) * 0.9, "{}", borrowed.summary);
    assert!(borrowed.number("/bytes/out") > 0.0 && borrowed.number("/bytes/disk_written") > 0.0);
    let wall = borrowed.ended.wall.as_secs_f64();
    let said = borrowed.number("/wall_s");
    assert!(said > 0.0 && said <= wall + 0.1, "{said} s of {wall} s");
    let split: f64 = ["exec", "sp_latency", "page_wait", "put_wait"]
        .iter()
        .map(|key| borrowed.number(&format!("/time_s/{key}")))
        .sum();
    assert!((split - said).abs() < 1e-6 * said, "the split of time adds up: {split} of {said}");
    // Bytes of contents that went to lenders are at most what left.
    assert!(
        borrowed.number("/evictions/clean") + borrowed.number("/evictions/zero")
            <= borrowed.number("/evictions/moved")
    );
}

/// Without `--quiet` a person sees what happened, on stderr alone.
#[test]
fn the_closing_lines_go_to_stderr() {
    let _alone = place::alone();
    let scratch = Scratch::new("closing");
    let disk = scratch.join("disk");
    let walk = place::program("memwalk");
    let args =
        ["run", "--local", "32M", "--embedded", "1x512M", "--disk", disk.to_str().expect("UTF-8"), "--"];
    let mut command = Command::new(place::loam());
    command.args(args).arg(walk).args(["96", "2", "blocks"]);
    let ended = shell::run(&mut command, scratch.path(), "loam", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let stdout = String::from_utf8_lossy(&ended.stdout);
    assert!(stdout.lines().all(|line| line.starts_with("filled") || line.starts_with("pass")), "{stdout}");
    assert!(ended.stderr.starts_with("loam:") || ended.stderr.contains("\nloam:"), "{}", ended.stderr);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let _alone = place::alone();
    let scratch = Scratch::new("cli-pipe");
    let script = format!(
        "'{}' sim workload --help | true; '{}' doctor | true; echo done",
        place::loam().display(),
        place::loam().display()
    );
    let ended = shell::run(&mut shell::sh(&script), scratch.path(), "pipe", LIMIT);
    assert_eq!((ended.code(), ended.stdout.as_slice(), ended.stderr.as_str()), (0, b"done\n".as_slice(), ""));
}

/// Nobody loses a day to a full disk under a log.
#[test]
fn an_output_that_cannot_be_written_ends_no_lender_and_no_run() {
    let _alone = place::alone();
    let scratch = Scratch::new("cli-full");
    let (loam, addr) = (place::loam().display().to_string(), free_addr());
    let script = |text: &str| shell::sh(&format!("exec '{loam}' {text}"));
    let mut lender = script(&format!("lend 512M --listen {addr} 2>/dev/full"));
    let mut lender = shell::start(lender.env("LOAM_LOG", "debug"), scratch.path(), "lender");
    let listens = procfs::wait_until(LIMIT, || TcpStream::connect(addr).is_ok());
    assert!(listens.is_ok() && lender.runs(), "it lends");
    // A peer that it has something to say about.
    let mut stranger = TcpStream::connect(addr).expect("it listens");
    stranger.write_all(&[b'?'; 64]).expect("taken by the kernel");
    assert!(stranger.read_to_end(&mut Vec::new()).is_ok() && lender.runs(), "it went on");

    let walk = workloads::memwalk(96, 2, "blocks");
    let program = walk.get_program().display().to_string();
    let args = walk.get_args().map(|arg| arg.display().to_string()).collect::<Vec<_>>().join(" ");
    let disk = scratch.join("slots").display().to_string();
    // The lender that does not exist is a warning.
    let flags = format!("--local 32M --lender {addr} --lender {} --disk '{disk}'", free_addr());
    let mut run = script(&format!("run {flags} -- '{program}' {args} 2>/dev/full"));
    let ended = shell::run(&mut run, scratch.path(), "run", LIMIT);
    let alone = plain::run(&walk, None, scratch.path(), LIMIT);
    assert_eq!(ended.code(), 0);
    assert!(ended.stdout == alone.ended.stdout, "the output is another one");
    assert!(lender.runs(), "it still lends");

    let ended = shell::run(&mut script("status --json >/dev/full"), scratch.path(), "status", LIMIT);
    assert_eq!((ended.code(), ended.error_lines().len()), (125, 1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("loam: cannot write to stdout: No space left"), "{}", ended.stderr);
}

#[test]
fn status_shows_a_run_and_a_lender() {
    let _alone = place::alone();
    let scratch = Scratch::new("status-run");
    let lender = Lender::start("512M");
    let addr = lender.addr.to_string();
    let mut running = Borrow::new(scratch.path())
        .lender(lender.addr)
        .start(&workloads::memwalk(96, 100_000, "blocks"), None);
    running.run.wait_for_line("pass 1", LIMIT);
    let pid = running.run.pid();
    let ended = loam(&["status", "--json", "--lender", &addr], scratch.path());
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let status: Value = serde_json::from_slice(&ended.stdout).expect("one JSON object");
    let runs = status["runs"].as_array().expect("a list of runs");
    let ours =
        runs.iter().find(|run| run["pid"] == pid).unwrap_or_else(|| panic!("no run {pid} in {status}"));
    assert!(ours["faults"]["total"].as_u64().is_some_and(|total| total > 0), "{ours}");
    assert!(ours["exit_code"].is_null(), "it still runs: {ours}");
    let text = loam(&["status", "--lender", &addr], scratch.path());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("memwalk") && text.contains(&addr), "{text}");
    procfs::send(pid, Signal::TERM);
    assert_eq!(running.finish(LIMIT).ended.status.signal(), Some(Signal::TERM.as_raw()));
    // A lender that cannot be asked is told, not passed over.
    drop(lender);
    let ended = loam(&["status", "--lender", &addr], scratch.path());
    assert!(
        format!("{}{}", ended.stderr, String::from_utf8_lossy(&ended.stdout)).contains(&addr),
        "{ended:?}"
    );
}

#[test]
fn doctor_has_findings() {
    let _alone = place::alone();
    let scratch = Scratch::new("doctor");
    let disk = scratch.join("disk");
    let ended = loam(&["doctor", "--disk", disk.to_str().expect("UTF-8")], scratch.path());
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.code() <= 1, "{}: {}", ended.code(), ended.stderr);
    assert!(text.contains("userfaultfd") && text.lines().count() >= 5, "{text}");
    let json = loam(&["doctor", "--json", "--disk", disk.to_str().expect("UTF-8")], scratch.path());
    let _: Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    assert_eq!(json.code(), ended.code(), "the same findings");
}

#[test]
fn help_has_examples() {
    let _alone = place::alone();
    let scratch = Scratch::new("help");
    for command in [&[][..], &["run"], &["lend"], &["status"], &["region"], &["doctor"], &["bench", "fault"]]
    {
        let args: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let ended = loam(&args, scratch.path());
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{args:?}");
        assert!(text.contains("Usage: loam"), "{args:?}: {text}");
        assert!(command == ["doctor"] || text.contains("Examples:"), "{args:?}: {text}");
    }
    let ended = loam(&["--version"], scratch.path());
    assert!(String::from_utf8_lossy(&ended.stdout).starts_with("loam "));
}

/// A program that fits is not touched: same output, nothing evicted.
#[test]
fn a_program_that_fits_is_left_alone() {
    let _alone = place::alone();
    let scratch = Scratch::new("fits");
    let walk = workloads::memwalk(64, 2, "random");
    let plain = shell::run(&mut workloads::memwalk(64, 2, "random"), scratch.path(), "plain", LIMIT);
    let borrowed = Borrow::new(scratch.path()).local_mib(256).embedded("1x512M").run(&walk, None, LIMIT);
    borrowed.assert_ended_well("memwalk");
    assert_eq!(borrowed.ended.stdout, plain.stdout);
    assert_eq!(borrowed.number("/evictions/moved"), 0.0, "{}", borrowed.summary);
}

/// A pipeline in a shell: several programs, one budget, nothing lost between them.
#[test]
fn a_pipeline_shares_one_budget() {
    let _alone = place::alone();
    let scratch = Scratch::new("pipeline");
    let script = "seq 3000000 | LC_ALL=C sort -S 400M --parallel=2 -r | sha256sum";
    let plain = shell::run(&mut shell::sh(script), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    let borrowed =
        Borrow::new(scratch.path()).local_mib(48).embedded("1x1G").run(&shell::sh(script), None, LIMIT);
    borrowed.assert_ended_well("pipeline");
    assert_eq!(borrowed.ended.stdout, plain.stdout);
    borrowed.assert_memory_left("pipeline");
    borrowed.samples.assert_below_bar("pipeline");
    assert!(borrowed.number("/processes") >= 4.0, "{}", borrowed.summary);
}
