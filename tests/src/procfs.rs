//! Processes as `/proc` shows them. Every process may be gone between two looks, so all answers are options.

use rustix::process::{Pid, Signal};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a page of `statm`.
const PAGE_BYTES: u64 = 4096;

/// Processes that `pid`'s threads have started and not yet waited for.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

/// All of its descendants.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        let more = children(found[next]);
        found.extend(more);
        next += 1;
    }
    found
}

/// The borrowing program's processes: what a test has started and is not `loam` itself (its lenders are). Processes whose
/// parent has ended count too: see [`adopt_orphans`].
pub fn program_tree(loam: &Path) -> Vec<u32> {
    let mut found = descendants(std::process::id());
    found.retain(|&pid| executable(pid).is_some_and(|path| path != loam));
    found
}

/// From now on processes that lose their parent become children of this one, and so stay in sight.
///
/// # Panics
/// If the kernel refuses, which none does.
pub fn adopt_orphans() {
    let us = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(us)).expect("any process may");
}

/// Its folder in `/proc`, or a thread's where the main thread has left and shows nothing any more.
fn live_folder(pid: u32) -> Option<PathBuf> {
    let main = PathBuf::from(format!("/proc/{pid}"));
    if fs::read_link(main.join("exe")).is_ok() {
        return Some(main);
    }
    let threads = fs::read_dir(main.join("task")).ok()?;
    threads.flatten().map(|thread| thread.path()).find(|path| fs::read_link(path.join("exe")).is_ok())
}

/// What it executes; none for a zombie.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(live_folder(pid)?.join("exe")).ok()
}

/// For how long its threads, that live, have been ready and had no core.
pub fn waited_for_a_processor(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waited.sum())
}

/// For how long the machine's cores, all of them together, had work and were not run by the host.
pub fn stolen_from_us() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The first line is of all cores; after its name the eighth figure is of ticks of 10 ms.
    let ticks = stat.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok());
    Duration::from_millis(ticks.unwrap_or(0) * 10)
}

/// Time that its threads have had on a core.
pub fn core_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold blanks and brackets. Of what follows it the 12th and the 13th are ticks of 10 ms.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> = rest.split_ascii_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    Some(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}

/// Resident memory.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(live_folder(pid)?.join("statm")).ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE_BYTES)
}

/// Resident memory, each shared page divided by the processes that map it.
pub fn proportional_bytes(pid: u32) -> Option<u64> {
    let folder = live_folder(pid)?;
    // Threads have no smaps_rollup of their own; their smaps is the process's.
    match fs::read_to_string(folder.join("smaps_rollup")) {
        Ok(text) => field_bytes(&text, "Pss:"),
        Err(_) => {
            let text = fs::read_to_string(folder.join("smaps")).ok()?;
            Some(text.lines().filter_map(|line| field_bytes(line, "Pss:")).sum())
        }
    }
}

/// The same for a whole tree. A child of vfork has its parent's memory until it executes: it shows the same figures, and as
/// nothing of them is shared by two address spaces, they are undivided; it is counted once.
pub fn proportional_bytes_of(tree: &[u32]) -> u64 {
    let mut sum = 0;
    let mut before: Option<(u64, String)> = None;
    for &pid in tree {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let Some(bytes) = proportional_bytes(pid) else { continue };
        let anonymous = field_bytes(&text, "Anonymous:").unwrap_or(0);
        let undivided = field_bytes(&text, "Pss_Anon:").unwrap_or(0) / 9 >= anonymous / 10;
        let range = text.lines().next().unwrap_or_default().to_owned();
        let same =
            before.as_ref().is_some_and(|(last, at)| *at == range && last.abs_diff(bytes) < bytes / 50);
        if !(same && undivided && !range.is_empty()) {
            sum += bytes;
        }
        before = Some((bytes, range));
    }
    sum
}

/// The `Rss…` lines of its status, for messages.
pub fn resident_parts(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut parts = String::new();
    for line in status.lines().filter(|line| line.starts_with("Rss") || line.starts_with("Name:")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        parts.push_str(&format!("{} ", words.join(" ")));
    }
    parts
}

/// `NAME  123 kB` in bytes.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Whether it still runs: a zombie does not.
pub fn runs(pid: u32) -> bool {
    live_folder(pid).is_some()
}

/// Sends a signal; a process that has gone is none of our business.
///
/// # Panics
/// For a number that is no process.
pub fn send(pid: u32, signal: Signal) {
    assert!(pid > 1, "process {pid} is not ours");
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not zero");
    let _ = rustix::process::kill_process(pid, signal);
}

/// Kills a process and everything below it, first seen first.
pub fn kill_tree(pid: u32) {
    let mut all = descendants(pid);
    all.insert(0, pid);
    for pid in all {
        send(pid, Signal::KILL);
    }
}

/// Waits until `done` says yes.
///
/// # Errors
/// How long it was waited for, if that was in vain.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> Result<Duration, Duration> {
    let start = Instant::now();
    loop {
        if done() {
            return Ok(start.elapsed());
        }
        if start.elapsed() > limit {
            return Err(limit);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
