//! Who descends from whom, and what else `stat` says of a process.

use super::{ProcError, read_text};
use loam_core::units::Duration;
use rustix::process::Pid;
use std::collections::{HashMap, HashSet};

/// More processes than this are not listed.
const PROCESSES_MAX: usize = 32 * 1024;
/// Ancestors that end while we look are too many after so many looks.
const TRIES: usize = 8;
/// Generations that are followed upwards.
const GENERATIONS_MAX: usize = 1024;

/// All living descendants of a process, itself left out, parents before children. A process that is made meanwhile
/// may be missing; the next look has it.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    match has_children_files() {
        true => walk(root, children_of),
        false => descendants_by_scan(root),
    }
}

/// All processes that we can see.
pub(crate) fn everybody() -> Vec<Pid> {
    numbers_in("/proc")
}

/// For kernels built without `CONFIG_PROC_CHILDREN`.
pub(super) fn descendants_by_scan(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in numbers_in("/proc") {
        // Vanished meanwhile: nobody's child any more.
        if let Ok(Stat { parent: Some(parent), .. }) = stat(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    walk(root, |pid| children.remove(&pid).unwrap_or_default())
}

/// Whether `pid` descends from `ancestor`, now. A process is not its own descendant.
pub(crate) fn is_descendant(pid: Pid, ancestor: Pid) -> bool {
    descends(pid, ancestor, stat)
}

/// The same, by what `stat` says of each process. One that is gone when we get to it has passed its children on to another: then again from the
/// start. (The parent of a daemon that begins ends at once.)
pub(super) fn descends(
    pid: Pid,
    ancestor: Pid,
    mut stat: impl FnMut(Pid) -> Result<Stat, ProcError>,
) -> bool {
    for _ in 0..TRIES {
        let mut at = pid;
        for _ in 0..GENERATIONS_MAX {
            match stat(at) {
                Ok(Stat { parent: Some(parent), .. }) if parent == ancestor => return true,
                Ok(Stat { parent: Some(parent), .. }) => at = parent,
                Ok(Stat { parent: None, .. }) => return false,
                Err(_) if at == pid => return false,
                Err(_) => break,
            }
        }
    }
    false
}

fn walk(root: Pid, mut children: impl FnMut(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut found = Vec::new();
    // Ids are used again: without this a list read at two moments could go in circles.
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    let mut at = root;
    loop {
        for child in children(at) {
            if found.len() < PROCESSES_MAX && seen.insert(child) {
                found.push(child);
            }
        }
        let Some(&pid) = found.get(next) else { return found };
        (at, next) = (pid, next + 1);
    }
}

fn has_children_files() -> bool {
    std::path::Path::new("/proc/thread-self/children").exists()
}

/// Children of all threads of a process: each has those that it made itself.
fn children_of(pid: Pid) -> Vec<Pid> {
    let task = format!("/proc/{}/task", pid.as_raw_nonzero());
    let mut children = Vec::new();
    for tid in numbers_in(&task) {
        // A thread that is gone has passed its children on to another, which the next look will show.
        let text =
            std::fs::read_to_string(format!("{task}/{}/children", tid.as_raw_nonzero())).unwrap_or_default();
        children.extend(text.split_ascii_whitespace().filter_map(pid_of));
    }
    children
}

fn numbers_in(dir: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(|entry| pid_of(entry.ok()?.file_name().to_str()?)).collect()
}

fn pid_of(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?).filter(|pid| pid.as_raw_nonzero().get() > 0)
}

/// A process, by its `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// None: the first process, or one whose parent is outside of our process namespace.
    pub(crate) parent: Option<Pid>,
    /// Its first thread has ended and was not waited for.
    pub(crate) is_zombie: bool,
    /// Threads, the first one included for as long as it was not waited for.
    pub(crate) threads: u64,
    /// How its first thread has ended, as `wait` says it; 0 as well if that is not ours to know.
    pub(crate) wait_status: u32,
}

/// What `stat` says of a process.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn stat(pid: Pid) -> Result<Stat, ProcError> {
    let text = read_text(pid, "stat")?;
    parse_stat(&text).ok_or_else(|| ProcError::malformed(pid, "stat", &text))
}

/// The program that a process has executed last, up to 15 bytes of its name.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn name(pid: Pid) -> Result<String, ProcError> {
    Ok(read_text(pid, "comm")?.trim_end().to_owned())
}

/// What a process has run in its own code so far, by all of its threads, those that have ended among them; but for the thread `except`.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn ran(pid: Pid, except: Option<Pid>) -> Result<Duration, ProcError> {
    let of = |text: String| parse_user_ticks(&text).ok_or_else(|| ProcError::malformed(pid, "stat", &text));
    let mut ticks = of(read_text(pid, "stat")?)?;
    if let Some(thread) = except {
        let path = format!("/proc/{}/task/{}/stat", pid.as_raw_nonzero(), thread.as_raw_nonzero());
        match std::fs::read_to_string(path) {
            Ok(text) => ticks = ticks.saturating_sub(of(text)?),
            // In a pid namespace of its own it knows that thread by another id than we do. What it runs is little.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ProcError::io(pid, "task/stat", &error)),
        }
    }
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Of the text of `stat`: what was run outside of the kernel.
fn parse_user_ticks(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(11)?.parse().ok()
}

/// `pid (name) state ppid ...`; the name may hold blanks and brackets, so it ends at the last bracket.
pub(super) fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    // Counted from the state, which is the third field in proc(5).
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: pid_of(fields.get(1)?),
        is_zombie: *fields.first()? == "Z",
        threads: fields.get(17)?.parse().ok()?,
        wait_status: fields.get(49).and_then(|status| status.parse().ok()).unwrap_or(0),
    })
}
