//! Unmodified programs whose large allocations come from a direct region (`loam run --region SIZE:direct`): their output is what it is without Loam, a forked
//! child has its own memory, and what cannot be is said in one line.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::place::{self, Scratch};
use loam_tests::region_node::{MIB, Node, SOON};
use loam_tests::workloads::{self, Workload};
use loam_tests::{plain, procfs, shell};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);
const LOCAL_MIB: u64 = 64;

/// A node, and runs with a region of its memory.
struct Site {
    scratch: Scratch,
    node: Node,
}

impl Site {
    fn new(name: &str, lend: &str) -> Self {
        let scratch = Scratch::new(&format!("direct-{name}"));
        let node = Node::start(&scratch, lend);
        Self { scratch, node }
    }

    fn borrow(&self, size: &str) -> Borrow {
        let socket = self.node.socket.to_str().expect("a plain path").to_owned();
        let region = format!("{size}:direct");
        let borrow = Borrow::new(self.scratch.path()).local_mib(LOCAL_MIB);
        borrow.flags(&["--region", &region, "--region-socket", &socket])
    }

    /// What one of the modes of `direct.c` prints, under a region of that size.
    fn runs(&self, size: &str, args: &[&str]) -> Borrowed {
        let borrowed = self.borrow(size).run(&program("direct", args), None, LIMIT);
        borrowed.assert_ended_well(args[0]);
        assert!(!borrowed.ended.stderr.contains("WRONG"), "{args:?}: {}", borrowed.ended.stderr);
        borrowed
    }

    /// The node has all of its memory again.
    fn is_free(&self) {
        procfs::wait_until(SOON, || self.node.list()["reserved_bytes"] == 0).expect("given back");
    }
}

fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(place::program(name));
    command.args(args);
    command
}

fn says(borrowed: &Borrowed, line: &str) {
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), format!("{line}\n"));
}

fn direct(borrowed: &Borrowed, figure: &str) -> f64 {
    borrowed.number(&format!("/region/direct/{figure}"))
}

/// Plain, then with a direct region: the same output; most of the memory was direct, and none of it counted as this machine's.
fn same_output(name: &str, peak_mib_min: f64, prepare: impl Fn(&Path) -> Workload) -> Borrowed {
    let _alone = place::alone_here();
    let site = Site::new(name, "1G");
    let workload = prepare(site.scratch.path());
    let stdin = workload.stdin.as_deref();
    let plain = plain::run(&workload.command, stdin, site.scratch.path(), LIMIT);
    let written = workload.writes.as_deref().map(|path| {
        let bytes = fs::read(path).expect("the plain run has written it");
        fs::remove_file(path).expect("just read");
        bytes
    });
    let borrowed = site.borrow("768M").run(&workload.command, stdin, LIMIT);
    borrowed.assert_ended_well(name);
    assert!(borrowed.ended.stdout == plain.ended.stdout, "{name}: stdout is another");
    assert!(!plain.ended.stdout.is_empty() || written.is_some(), "{name}: there is nothing to compare");
    if let (Some(path), Some(expected)) = (workload.writes.as_deref(), written) {
        assert!(fs::read(path).expect("written") == expected, "{name}: {} is another", path.display());
    }
    let peak_mib = direct(&borrowed, "peak_bytes") / MIB as f64;
    assert!(peak_mib >= peak_mib_min, "{name}: {peak_mib} MiB in the region: {}", borrowed.summary["region"]);
    assert_eq!(borrowed.number("/faults/total"), 0.0, "{name}");
    let here_mib = borrowed.number("/local_peak_bytes") / MIB as f64;
    assert!(here_mib < LOCAL_MIB as f64, "{name}: {here_mib} MiB here, {:?}", borrowed.warnings());
    site.is_free();
    println!(
        "{name}: plain {:.1} s; direct {:.1} s, {peak_mib:.0} MiB there, {here_mib:.0} MiB here",
        plain.ended.wall.as_secs_f64(),
        borrowed.ended.wall.as_secs_f64(),
    );
    borrowed
}

#[test]
fn sort() {
    same_output("sort", 300.0, |dir| {
        let mut sort = workloads::sort(dir);
        // A buffer that fits: it is direct memory from its allocation on, touched or not.
        let args = ["--parallel=2", "-S", "400M", "-T", ".", "-o", "sorted", "lines"];
        sort.command = Command::new("sort");
        sort.command.args(args).current_dir(dir).env("LC_ALL", "C");
        sort
    });
}

#[test]
fn python() {
    let code = "
import os, zlib
whole = bytearray(b'Loam' * (8 << 20))
parts = [bytes(whole[at:at + (4 << 20)]) for at in range(0, len(whole), 4 << 20)]
for n, part in enumerate(parts):
    pid = os.fork()
    if pid == 0:
        whole[::4096] = bytes([n]) * (len(whole) // 4096)
        os._exit(zlib.crc32(whole) % 251)
    print(n, zlib.crc32(part), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), zlib.crc32(whole))
";
    same_output("python", 60.0, |dir| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", code]).current_dir(dir);
        Workload { command, stdin: None, writes: None }
    });
}

/// Eight threads, forks in the midst with both sides writing, every content checked by the program.
#[test]
fn threads_and_forks() {
    let borrowed = same_output("heap", 60.0, |_| Workload {
        command: program("heap", &["8", "250", "4096", "3"]),
        stdin: None,
        writes: None,
    });
    assert!(direct(&borrowed, "copied_bytes") > 100.0 * MIB as f64, "{}", borrowed.summary["region"]);
    assert_eq!(direct(&borrowed, "private_bytes"), 0.0);
}

/// What does not fit is the C library's, and what a child has no chunk for its own memory: the contents are right all the same.
#[test]
fn a_full_pool() {
    let _alone = place::alone_here();
    let site = Site::new("full", "256M");
    let heap = program("heap", &["8", "250", "4096", "3"]);
    let plain = plain::run(&heap, None, site.scratch.path(), LIMIT);
    let borrowed = site.borrow("24M").local_mib(512).run(&heap, None, LIMIT);
    borrowed.assert_ended_well("heap");
    assert_eq!(borrowed.ended.stdout, plain.ended.stdout);
    for figure in ["/region/full", "/region/full_bytes", "/region/direct/private_bytes"] {
        assert!(borrowed.number(figure) > 0.0, "{figure}: {}", borrowed.summary["region"]);
    }
    assert_eq!(direct(&borrowed, "peak_bytes"), 24.0 * MIB as f64);
}

#[test]
fn the_interface_is_that_of_the_c_library() {
    let _alone = place::alone_here();
    let site = Site::new("edges", "1G");
    let expected = program("heapedges", &[]).output().expect("it runs without Loam").stdout;
    for flags in [["--min-alloc", "256K"], ["--min-alloc", "4K"]] {
        let borrowed = site.borrow("512M").flags(&flags).run(&program("heapedges", &[]), None, LIMIT);
        borrowed.assert_ended_well("heapedges");
        assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), String::from_utf8_lossy(&expected));
        assert!(borrowed.number("/region/allocations") > 10.0, "{}", borrowed.summary);
    }
    let twice = site.borrow("64M").run(&program("heapedges", &["twice"]), None, LIMIT).ended;
    assert!(twice.code() != 0 && twice.stderr.contains("loam: free(0x"), "{}", twice.stderr);
}

/// Another thread writes all the time: the child has the memory of one moment.
#[test]
fn a_child_has_the_memory_of_one_moment() {
    let _alone = place::alone_here();
    let site = Site::new("snapshot", "512M");
    // Room for a few of the twelve children: what each had is there again when it has ended.
    let borrowed = site.runs("160M", &["snapshot", "12"]);
    says(&borrowed, "snapshots right");
    assert_eq!(direct(&borrowed, "private_bytes"), 0.0, "{}", borrowed.summary["region"]);
    assert!(direct(&borrowed, "copied_bytes") >= 12.0 * 24.0 * MIB as f64, "{}", borrowed.summary["region"]);
    // And without the kernel's word of forks.
    if place::is_root() {
        let borrow = site.borrow("256M").without_fork_events();
        let mut command = borrow.command(&program("direct", &["snapshot", "5"]));
        command.current_dir(site.scratch.path());
        let ended = shell::run(&mut command, site.scratch.path(), "loam", LIMIT);
        assert_eq!((ended.code(), &ended.stdout[..]), (0, &b"snapshots right\n"[..]), "{}", ended.stderr);
    }
}

#[test]
fn children_and_programs_of_every_kind() {
    let _alone = place::alone_here();
    let site = Site::new("kinds", "512M");
    for (args, line) in [
        (&["raw"][..], "raw right"),
        (&["exec"], "exec right"),
        (&["daemon"], "daemon right"),
        (&["advice"], "advice right"),
        (&["handlers"], "handlers right"),
        (&["tree", "5"], "tree right"),
    ] {
        says(&site.runs("256M", args), line);
    }
    site.is_free();
}

/// What processes had that have ended is there for the next, as zeros.
#[test]
fn chunks_come_back_from_the_dead_and_are_clean() {
    let _alone = place::alone_here();
    let site = Site::new("clean", "256M");
    let direct = place::program("direct");
    let mut script = Command::new("sh");
    script.arg("-c").arg(format!(
        "for n in 1 2 3 4 5 6; do {0} fill 48 $n && {0} clean 40 || exit 1; done; exec {0} clean 60",
        direct.display()
    ));
    let borrowed = site.borrow("64M").run(&script, None, LIMIT);
    borrowed.assert_ended_well("fill and clean");
    // Nothing went to the C library for want of what others had.
    assert_eq!(borrowed.number("/region/full"), 0.0, "{}", borrowed.summary["region"]);
}

/// A parent that is killed in the middle of a fork leaves a child that has all of its memory, or none at all.
#[test]
fn a_parent_that_dies_leaves_no_torn_child() {
    let _alone = place::alone_here();
    let site = Site::new("orphans", "512M");
    // Room for the parent and its child; who comes then has what was the parent's.
    let borrowed = site.runs("104M", &["orphans", "24"]);
    let said = String::from_utf8_lossy(&borrowed.ended.stdout).into_owned();
    println!("{said}: {}", borrowed.ended.stderr);
    assert!(said.contains('e') && said.contains('r') && !said.contains('W'), "{said}");
    assert!(
        borrowed.ended.stderr.contains("parent has ended before the child had its copy"),
        "none was in the middle"
    );
}

/// What is mapped goes on when the node is killed: allocations and forks, too.
#[test]
fn the_nodes_death_is_not_the_programs() {
    let _alone = place::alone_here();
    let mut site = Site::new("node", "512M");
    let fifo = site.scratch.join("lines");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let hold = program("direct", &["hold"]);
    let writer = fs::OpenOptions::new().read(true).write(true).open(&fifo).expect("a fifo");
    let say = |text: &[u8]| rustix::io::write(&writer, text).expect("it is read");
    let mut running = site.borrow("128M").start(&hold, Some(&fifo));
    running.run.wait_for_line("ready", LIMIT);
    say(b"one\n");
    running.run.wait_for_line("as it was", LIMIT);
    site.node.kill();
    say(b"two\nthree\n");
    let answers = || fs::read_to_string(site.scratch.join("borrowing.out")).unwrap_or_default();
    let answered = procfs::wait_until(SOON, || answers().matches("as it was").count() == 3);
    drop(writer);
    let borrowed = running.finish(LIMIT);
    borrowed.assert_ended_well("hold");
    assert!(answered.is_ok(), "{}", answers());
    assert!(direct(&borrowed, "copied_bytes") >= 3.0 * 24.0 * MIB as f64, "{}", borrowed.summary["region"]);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let _alone = place::alone_here();
    let site = Site::new("refused", "128M");
    let refused = |borrow: Borrow, word: &str| {
        let marker = site.scratch.join("started");
        let mut touch = Command::new("touch");
        touch.arg(&marker);
        let ended = borrow.run(&touch, None, LIMIT).ended;
        assert_eq!(ended.code(), 125, "{word}: {}", ended.stderr);
        assert!(ended.stderr.contains(word) && ended.stderr.lines().count() == 1, "{word}: {}", ended.stderr);
        assert!(!marker.exists(), "{word}: the program was started");
    };
    refused(site.borrow("1G"), "cannot reserve 1.0 GiB for --region; the program was not started");
    let elsewhere = Borrow::new(site.scratch.path()).flags(&["--region", "64M:direct", "--region-socket"]);
    refused(elsewhere.flags(&["/nowhere/node.sock"]), "cannot reach a node at /nowhere/node.sock");
    refused(site.borrow("64M").flags(&["--reserve"]), "--reserve is about pages that leave");
    refused(site.borrow("64M").embedded("1x64M"), "--embedded is about pages that leave");
    let paged = Borrow::new(site.scratch.path()).flags(&["--region", "64M", "--region-socket", "/nowhere"]);
    refused(paged, "this one is paged");
    // And in the program: its stack cannot be copied from under it.
    let ended = site.borrow("64M").run(&program("direct", &["stack"]), None, LIMIT).ended;
    assert!(
        ended.code() == 125 && ended.stderr.contains("stack is in the direct region"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.is_empty());
}

/// The same of a device (a file of tmpfs is none, but goes the whole way).
#[test]
fn of_a_device() {
    let _alone = place::alone_here();
    let file = Path::new("/dev/shm").join(format!("loam-direct-{}", std::process::id()));
    let Ok(()) = fs::File::create(&file).and_then(|made| made.set_len(192 * MIB)) else {
        println!("passed over: no /dev/shm");
        return;
    };
    let scratch = Scratch::new("direct-device");
    let node = Node::start_with(&scratch, "16M", &[&file]);
    let site = Site { scratch, node };
    let device = file.to_str().expect("a plain path").to_owned();
    let borrow = site.borrow("160M").flags(&["--region-device", &device]);
    let borrowed = borrow.run(&program("direct", &["snapshot", "4"]), None, LIMIT);
    let _ = fs::remove_file(&file);
    borrowed.assert_ended_well("snapshot");
    says(&borrowed, "snapshots right");
    assert!(direct(&borrowed, "peak_bytes") >= 48.0 * MIB as f64, "{}", borrowed.summary["region"]);
}
