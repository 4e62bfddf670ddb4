//! Programs whose large allocations come from a region several times as large as what may stay here: their output is what it is without Loam, the
//! allocations were in the region, and what a region cannot do is told.

use loam_tests::borrow::{Borrow, Borrowed, Running};
use loam_tests::place::{self, Scratch};
use loam_tests::plain::{self, Plain};
use loam_tests::workloads::{self, Workload};
use loam_tests::{procfs, shell};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);
const LENDERS: &str = "2x512M";
const LOCAL_MIB: u64 = 48;
/// Address space: what a program asks for and never touches takes a part of it, too.
const REGION: &str = "4G";

fn borrow(scratch: &Scratch) -> Borrow {
    Borrow::new(scratch.path()).local_mib(LOCAL_MIB).durability("staged").embedded(LENDERS)
}

fn with_region(scratch: &Scratch) -> Borrow {
    borrow(scratch).flags(&["--region", REGION])
}

fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(place::program(name));
    command.args(arguments);
    command
}

/// Runs it without Loam; gives what it has written, too, and takes that away.
fn run_plain(workload: &Workload, dir: &Path) -> (Plain, Option<Vec<u8>>) {
    let plain = plain::run(&workload.command, workload.stdin.as_deref(), dir, LIMIT);
    let written = workload.writes.as_deref().map(|path| {
        let bytes = fs::read(path).expect("the plain run has written it");
        fs::remove_file(path).expect("just read");
        bytes
    });
    (plain, written)
}

fn assert_same(
    name: &str,
    workload: &Workload,
    plain: &Plain,
    written: Option<Vec<u8>>,
    borrowed: &Borrowed,
) {
    assert!(borrowed.ended.stdout == plain.ended.stdout, "{name}: stdout is another");
    assert!(!plain.ended.stdout.is_empty() || written.is_some(), "{name}: there is nothing to compare");
    if let (Some(path), Some(expected)) = (workload.writes.as_deref(), written) {
        assert!(fs::read(path).expect("written") == expected, "{name}: {} is another", path.display());
    }
}

/// Plain, then with a region: the same output, and most of the memory was in the region and left it.
fn same_output(name: &str, peak_mib_min: f64, prepare: impl Fn(&Path) -> Workload) -> Borrowed {
    let _alone = place::alone_here();
    let scratch = Scratch::new(&format!("region-{name}"));
    let workload = prepare(scratch.path());
    let stdin = workload.stdin.as_deref();
    let (plain, written) = run_plain(&workload, scratch.path());
    let borrowed = with_region(&scratch).run(&workload.command, stdin, LIMIT);
    borrowed.assert_ended_well(name);
    assert_same(name, &workload, &plain, written, &borrowed);
    borrowed.assert_memory_left(name);
    // Of local memory that forked relatives share, each has its own in the samples.
    if name != "heap" {
        borrowed.samples.assert_below_bar(name);
    }
    let peak_mib = borrowed.number("/region/peak_bytes") / f64::from(1 << 20);
    assert!(peak_mib >= peak_mib_min, "{name}: {peak_mib} MiB in the region: {}", borrowed.summary["region"]);
    assert_eq!(borrowed.number("/region/full"), 0.0, "{name}: {}", borrowed.summary["region"]);
    println!(
        "{name}: plain {:.1} s, {} MiB; with {LOCAL_MIB} MiB here {:.1} s, {peak_mib:.0} MiB in the region",
        plain.ended.wall.as_secs_f64(),
        plain.peak_bytes >> 20,
        borrowed.ended.wall.as_secs_f64(),
    );
    borrowed
}

#[test]
fn sort() {
    same_output("sort", 100.0, workloads::sort);
}

#[test]
fn xz() {
    same_output("xz", 60.0, |dir| {
        let mut xz = workloads::xz(dir);
        // One thread, one large dictionary.
        let (folder, args) =
            (dir.to_owned(), ["-T1", "-4", "--lzma2=preset=4,dict=24MiB", "-k", "-c", "source"]);
        xz.command = Command::new("xz");
        xz.command.args(args).current_dir(folder);
        xz
    });
}

/// The database's pages are in one buffer that sqlite allocates at its start.
#[test]
fn sqlite() {
    same_output("sqlite", 150.0, |dir| {
        let mut sqlite = workloads::sqlite(dir);
        sqlite.command = Command::new("sqlite3");
        let args = ["-pagecache", "4608", "40000", "-batch", "-bail", ":memory:"];
        sqlite.command.args(args).current_dir(dir);
        sqlite
    });
}

/// Arrays that grow, are sorted in pieces and joined: realloc, malloc and free of large blocks.
#[test]
fn python() {
    let code = "
import array, zlib
x, numbers = 1, array.array('Q')
for block in range(120):
    for n in range(1000):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
        numbers.append(x)
    numbers.extend(bytes_ for bytes_ in numbers[-1000:])
    numbers.frombytes(bytes(range(256)) * 2000)
whole = bytearray(numbers.tobytes())
print(len(whole), zlib.crc32(whole))
for at in range(0, len(whole), 4096): whole[at] = at >> 12 & 255
kept = [bytes(whole[at:at + (8 << 20)]) for at in range(0, len(whole), 8 << 20)]
del whole
print(len(kept), [zlib.crc32(part) for part in kept])
print(zlib.crc32(b''.join(reversed(kept))), len(numbers))
";
    same_output("python", 100.0, |dir| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", code]).current_dir(dir);
        Workload { command, stdin: None, writes: None }
    });
}

/// The other programs that must run unchanged, as they are: whatever of their memory is in a region, they print and write the same. Most of it is not, so all of that may
/// stay here.
#[test]
fn what_is_mostly_outside() {
    let _alone = place::alone_here();
    type Prepare = fn(&Path) -> Workload;
    let programs: [(&str, Prepare); 5] = [
        ("python", workloads::python_dicts),
        ("sqlite", workloads::sqlite),
        ("gcc", workloads::gcc),
        ("java", workloads::java),
        ("node", workloads::node),
    ];
    let mut allocations = 0.0;
    for (name, prepare) in programs {
        let scratch = Scratch::new(&format!("region-outside-{name}"));
        let workload = prepare(scratch.path());
        let stdin = workload.stdin.as_deref();
        let (plain, written) = run_plain(&workload, scratch.path());
        let local_mib = (plain.peak_bytes >> 20) + LOCAL_MIB;
        let borrowed = with_region(&scratch).local_mib(local_mib).run(&workload.command, stdin, LIMIT);
        borrowed.assert_ended_well(name);
        assert_same(name, &workload, &plain, written, &borrowed);
        allocations += borrowed.number("/region/allocations");
    }
    assert!(allocations > 0.0, "nothing of any of them was in a region");
}

/// Of each of eight threads; `make region-soak` has more.
fn heap_operations(usual: &str) -> String {
    std::env::var("LOAM_HEAP_OPERATIONS").unwrap_or_else(|_| usual.into())
}

/// Eight threads, forks in the midst, every content checked by the program.
#[test]
fn threads_and_forks() {
    let operations = heap_operations("250");
    let borrowed = same_output("heap", 40.0, |_| Workload {
        command: program("heap", &["8", &operations, "4096", "3"]),
        stdin: None,
        writes: None,
    });
    assert!(borrowed.number("/region/allocations") > 200.0, "{}", borrowed.summary["region"]);
}

/// What the shim does not serve is the sanitizer's, which checks each copy between the two, and that nothing is freed twice or by the wrong one.
/// (Of the region it knows nothing; what is in there the program checks.)
#[test]
fn under_the_address_sanitizer() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-asan");
    let mut heap = Command::new(place::sanitized_program("heap"));
    // Without forks: a sanitizer's own locks may be held by another thread then, with or without Loam.
    heap.args(["8", &heap_operations("150"), "2048", "0"]);
    // It wants to be the first library, and does not know of what is kept in the region when it looks for leaks.
    heap.env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
    let plain = shell::run(&mut heap, scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    // What the sanitizer keeps back of freed memory is not borrowed.
    let borrowed = with_region(&scratch).local_mib(96).run(&heap, None, LIMIT);
    borrowed.assert_ended_well("heap");
    assert_eq!(borrowed.ended.stdout, plain.stdout);
    assert!(borrowed.number("/region/allocations") > 100.0, "{}", borrowed.summary["region"]);
}

/// The edges of the interface, and the children of forks.
#[test]
fn the_interface_is_that_of_the_c_library() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-edges");
    let plain = program("heapedges", &[]).output().expect("it runs without Loam");
    let expected = String::from_utf8(plain.stdout).expect("ASCII");
    assert!(plain.status.success() && !expected.contains("WRONG"), "{expected}");
    // Also where every allocation of a page and more is a large one, and where the region is soon full.
    for flags in [
        ["--region", "512M", "--min-alloc", "256K"],
        ["--region", "300M", "--min-alloc", "4K"],
        ["--region", "24M:paged", "--min-alloc", "1M"],
    ] {
        let borrowed = borrow(&scratch).flags(&flags).run(&program("heapedges", &[]), None, LIMIT);
        borrowed.assert_ended_well("heapedges");
        assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{flags:?}");
        assert!(borrowed.number("/region/allocations") > 10.0, "{}", borrowed.summary);
        assert_eq!(
            borrowed.number("/region/full") > 0.0,
            flags[1].starts_with("24M"),
            "{}",
            borrowed.summary
        );
    }
}

#[test]
fn misuse_ends_the_program_with_a_line() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-misuse");
    for (fault, call) in [("twice", "free"), ("middle", "free"), ("realloc", "realloc"), ("stale", "realloc")]
    {
        let ended = with_region(&scratch).run(&program("heapedges", &[fault]), None, LIMIT).ended;
        assert_ne!(ended.code(), 0, "{fault}");
        assert!(!String::from_utf8_lossy(&ended.stdout).contains("went on"), "{fault}");
        let line = format!("loam: {call}(0x");
        assert!(
            ended.stderr.contains(&line) && ended.stderr.contains("no allocation"),
            "{fault}: {}",
            ended.stderr
        );
    }
}

/// What a region has no room for is the C library's, and is told.
#[test]
fn a_full_region() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-full");
    let heap = program("heap", &["2", "400", "4096", "2"]);
    let plain = plain::run(&heap, None, scratch.path(), LIMIT);
    let borrow = Borrow::new(scratch.path()).local_mib(96).durability("staged").embedded(LENDERS);
    let borrowed = borrow.flags(&["--region", "8M"]).run(&heap, None, LIMIT);
    borrowed.assert_ended_well("heap");
    assert_eq!(borrowed.ended.stdout, plain.ended.stdout);
    for figure in ["/region/allocations", "/region/full", "/region/full_bytes"] {
        assert!(borrowed.number(figure) > 0.0, "{figure}: {}", borrowed.summary["region"]);
    }
    assert!(borrowed.number("/region/peak_bytes") <= f64::from(8 << 20), "{}", borrowed.summary["region"]);
}

/// Only the region is borrowed: what a program maps itself stays, however much it is, and that is told.
#[test]
fn what_is_not_in_the_region_stays_here() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-mmap");
    let borrowed = with_region(&scratch).run(&workloads::memwalk(128, 1, "blocks"), None, LIMIT);
    borrowed.assert_ended_well("memwalk");
    assert_eq!(borrowed.number("/evictions/moved"), 0.0, "{}", borrowed.summary);
    assert_eq!(borrowed.number("/region/allocations"), 0.0, "{}", borrowed.summary);
    let told = borrowed.warnings().iter().any(|line| line.contains("outside of its region"));
    assert!(told, "{:?}", borrowed.warnings());
}

/// A program with an allocator of its own calls nothing that the shim stands in for. One of a shared library is the next behind the shim.
#[test]
fn programs_with_their_own_allocator() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-own");
    let own = with_region(&scratch).run(&program("ownheap", &[]), None, LIMIT);
    own.assert_ended_well("ownheap");
    assert_eq!(own.number("/region/allocations"), 0.0, "{}", own.summary);
    assert_eq!(own.number("/region/processes_not_calling"), 1.0, "{}", own.summary);
    let Some(library) = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"]
        .map(|name| Path::new("/usr/lib/x86_64-linux-gnu").join(name))
        .into_iter()
        .find(|path| path.exists())
    else {
        eprintln!("skipped: no allocator in a shared library here");
        return;
    };
    let mut edges = program("heapedges", &[]);
    let expected = edges.output().expect("it runs without Loam").stdout;
    edges.env("LD_PRELOAD", &library);
    let borrowed = with_region(&scratch).run(&edges, None, LIMIT);
    borrowed.assert_ended_well("heapedges");
    let right = |out: &[u8]| String::from_utf8_lossy(out).matches(": right").count();
    // Of the fine print jemalloc keeps most.
    assert!(right(&borrowed.ended.stdout) + 2 >= right(&expected), "{:?}", borrowed.ended);
    assert!(borrowed.number("/region/allocations") > 10.0, "{}", borrowed.summary);
}

/// A buffer that is freed and allocated again and again has its memory each time, and not fresh pages: those would be fetched one by one.
#[test]
fn buffers_in_a_loop_cost_no_faults() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-loop");
    let borrowed = with_region(&scratch).run(&program("heapedges", &["loop"]), None, LIMIT);
    borrowed.assert_ended_well("loop");
    assert!(String::from_utf8_lossy(&borrowed.ended.stdout).contains("right"), "{:?}", borrowed.ended);
    borrowed.assert_memory_left("loop");
    let touched = 1000.0 * f64::from((2 << 20) / 4096);
    let faults = borrowed.number("/faults/total");
    // About 1,000; with all that is freed given back at once, 45,000.
    assert!(faults < touched / 64.0, "{faults} faults for {touched} pages that were touched in the loop");
}

/// Allocating and freeing take the lock once each, which blocks signals and opens them again: two calls of the kernel, and no other.
#[test]
fn a_buffer_costs_four_system_calls() {
    let _alone = place::alone_here();
    let Ok(strace) = Command::new("strace").arg("--version").output() else {
        eprintln!("skipped: no strace here");
        return;
    };
    assert!(strace.status.success());
    let scratch = Scratch::new("region-calls");
    let log = scratch.join("calls");
    let mut traced = Command::new("strace");
    traced.args(["-qq", "-e", "trace=rt_sigprocmask,madvise,futex", "-o"]).arg(&log);
    traced.arg(place::program("heapedges")).arg("loop");
    let borrowed = with_region(&scratch).local_mib(256).run(&traced, None, LIMIT);
    borrowed.assert_ended_well("loop");
    let calls = fs::read_to_string(&log).expect("strace wrote it").lines().count();
    // A thousand of them. With a look at what is to be given back after each, 6,000 and more.
    assert!((4000..4500).contains(&calls), "{calls} calls");
}

/// What is freed leaves the lenders too, but for a quarter of `--local`.
#[test]
fn freed_memory_is_given_back() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-freed");
    let mut running = with_region(&scratch).start(&program("heapedges", &["freed"]), None);
    let elsewhere = |running: &Running| running.status()["remote_bytes"].as_u64().expect("a number");
    running.run.wait_for_line("filled", LIMIT);
    procfs::wait_until(Duration::from_secs(20), || elsewhere(&running) > 64 << 20).expect("it left");
    running.run.wait_for_line("freed", LIMIT);
    let spare = (LOCAL_MIB << 20) / 4;
    let given_back = || elsewhere(&running) <= spare;
    let told = procfs::wait_until(Duration::from_secs(20), given_back);
    assert!(told.is_ok(), "{} MiB are still elsewhere", elsewhere(&running) >> 20);
    running.program().iter().for_each(|&pid| procfs::send(pid, Signal::TERM));
    running.finish(LIMIT);
}

/// A user who may not hear of forks: before each, what the child could read is brought home.
#[test]
fn without_fork_events() {
    let _alone = place::alone_here();
    if !place::is_root() {
        println!("passed over: needs root, to give a capability up");
        return;
    }
    let scratch = Scratch::new("region-unprivileged");
    let programs = [program("heapedges", &[]), program("heap", &["3", "120", "4096", "4"])];
    for inner in programs {
        let mut plain = Command::new(inner.get_program());
        let expected = plain.args(inner.get_args()).output().expect("it runs without Loam").stdout;
        let mut command = with_region(&scratch).without_fork_events().command(&inner);
        command.current_dir(scratch.path());
        let ended = shell::run(&mut command, scratch.path(), "loam", LIMIT);
        assert_eq!(ended.code(), 0, "stderr: {}", ended.stderr);
        assert_eq!(String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&expected));
    }
}

/// A program that executes another, through a shell: each has a region of its own.
#[test]
fn each_process_has_its_own() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-exec");
    let edges = place::program("heapedges");
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("{0} >/dev/null; {0} | grep -c right; exec {0} | grep -c WRONG", edges.display()));
    let borrowed = with_region(&scratch).run(&shell, None, LIMIT);
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), "19\n0\n", "{}", borrowed.ended.stderr);
    assert!(borrowed.number("/region/allocations") > 3.0 * 50.0, "{}", borrowed.summary["region"]);
    assert_eq!(borrowed.number("/region/processes_not_calling"), 0.0, "{}", borrowed.summary["region"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("region-refused");
    let cases: [(&[&str], &str); 5] = [
        (&["--region", "1G:cxl"], "write 1G:paged"),
        (&["--region", "1K"], "a region has"),
        (&["--region", "100T"], "a region has"),
        (&["--region", "2M", "--min-alloc", "4M"], "--min-alloc"),
        (&["--min-alloc", "1M"], "--region"),
    ];
    for (flags, word) in cases {
        let ended = borrow(&scratch).flags(flags).run(&Command::new("true"), None, LIMIT).ended;
        assert!(ended.code() != 0 && ended.stderr.contains(word), "{flags:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{flags:?}: {}", ended.stderr);
    }
}
