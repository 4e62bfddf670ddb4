//! Where the kernel tells of memory: `/proc/meminfo`, `/proc/pressure/memory`, and the control groups of this process.
//!
//! All of it is read below a root folder, which tests choose. A file that is missing or strange tells nothing: the next
//! place does.

use super::{Place, Reading};
use loam_core::units::Bytes;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Most levels of control groups that are looked at.
const GROUP_LEVELS_MAX: usize = 16;
/// A limit from here on is none: version 1 writes "no limit" as a number of pages near 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The two versions of control groups name things differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sources {
    root: PathBuf,
    /// The group of this process and those around it, where memory is accounted.
    groups: Vec<(Version, PathBuf)>,
    /// Becomes ready when programs have begun to wait for memory.
    trigger: Option<OwnedFd>,
}

impl Sources {
    /// The files below `root`, `/` but for tests.
    pub(crate) fn new(root: &Path) -> Self {
        let groups = groups(root);
        let trigger = (root == Path::new("/")).then(|| trigger(&root.join("proc/pressure/memory"))).flatten();
        Self { root: root.to_owned(), groups, trigger }
    }

    /// To be waited for with POLLPRI.
    pub(crate) fn trigger(&self) -> Option<&OwnedFd> {
        self.trigger.as_ref()
    }

    /// The machine's memory in all.
    pub(crate) fn total(&self) -> Option<Bytes> {
        fs::read_to_string(self.root.join("proc/meminfo")).ok().and_then(|text| field(&text, "MemTotal:"))
    }

    /// What every place says now.
    pub(crate) fn read(&self) -> Vec<Reading> {
        let mut readings = Vec::with_capacity(1 + self.groups.len());
        readings.extend(self.machine());
        readings.extend(self.groups.iter().filter_map(|(version, path)| self.group(*version, path)));
        readings
    }

    fn machine(&self) -> Option<Reading> {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        Some(Reading {
            place: Place::Machine,
            total: field(&text, "MemTotal:")?,
            available: field(&text, "MemAvailable:")?,
            stalled_us: stalled_us(&self.root.join("proc/pressure/memory")),
        })
    }

    fn group(&self, version: Version, path: &Path) -> Option<Reading> {
        let bytes = |name: &str| number(&path.join(name));
        let (limit, used, idle) = match version {
            Version::Two => {
                let limits = [bytes("memory.max"), bytes("memory.high")];
                (limits.into_iter().flatten().min()?, bytes("memory.current")?, "inactive_file")
            }
            Version::One => {
                (bytes("memory.limit_in_bytes")?, bytes("memory.usage_in_bytes")?, "total_inactive_file")
            }
        };
        if limit >= NO_LIMIT_BYTES {
            return None;
        }
        // Cached files that nobody has touched lately are given up before anything is refused.
        let stat = fs::read_to_string(path.join("memory.stat")).unwrap_or_default();
        let idle_bytes = stat
            .lines()
            .find_map(|line| line.strip_prefix(idle)?.strip_prefix(' ')?.trim().parse().ok())
            .unwrap_or(0);
        let name = path.strip_prefix(&self.root).unwrap_or(path);
        Some(Reading {
            place: Place::Group(format!("/{}", name.display())),
            total: Bytes(limit),
            available: Bytes(limit.saturating_sub(used.saturating_sub(idle_bytes))),
            stalled_us: stalled_us(&path.join("memory.pressure")),
        })
    }
}

/// Memory that a process of this machine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableMemory {
    /// In all: the machine's memory, or the limit of a control group around this process if that is less.
    pub total: Bytes,
    /// Of that now, without swapping: the least that the machine and its groups have.
    pub available: Bytes,
}

/// What this process may use, by the files below `root` (`/` but for tests). `None` if `/proc/meminfo` does not say.
pub fn usable_memory(root: &Path) -> Option<UsableMemory> {
    let sources = Sources { root: root.to_owned(), groups: groups(root), trigger: None };
    let Reading { total, available, .. } = sources.machine()?;
    let groups = sources.groups.iter().filter_map(|(version, path)| sources.group(*version, path));
    Some(groups.fold(UsableMemory { total, available }, |least, group| UsableMemory {
        total: least.total.min(group.total),
        available: least.available.min(group.available),
    }))
}

/// `NAME  123 kB` of `/proc/meminfo`.
fn field(meminfo: &str, name: &str) -> Option<Bytes> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

/// One number of bytes; `max` is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// For how long some program of this machine has waited for a processor since it was started, where the kernel says so.
pub(crate) fn processors_stalled_us() -> Option<u64> {
    stalled_us(Path::new("/proc/pressure/cpu"))
}

/// The microseconds in which some program has waited, of a pressure-stall file.
fn stalled_us(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// The folders of this process's groups, innermost first.
fn groups(root: &Path) -> Vec<(Version, PathBuf)> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in text.lines() {
        // hierarchy:controllers:path
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (version, mount) = if controllers.split(',').any(|name| name == "memory") {
            (Version::One, root.join("sys/fs/cgroup/memory"))
        } else if number == "0" && controllers.is_empty() {
            let unified = root.join("sys/fs/cgroup/unified");
            (Version::Two, if unified.is_dir() { unified } else { root.join("sys/fs/cgroup") })
        } else {
            continue;
        };
        // In a container the path may be one of the machine outside; what is mounted here is its own group then.
        let inner = mount.join(path.trim_start_matches('/'));
        let inner = if inner.is_dir() { inner } else { mount.clone() };
        let levels = inner.ancestors().take(GROUP_LEVELS_MAX).take_while(|level| level.starts_with(&mount));
        groups.extend(levels.map(|level| (version, level.to_owned())));
    }
    groups
}

/// Asks to be woken when programs wait for memory a tenth of the time. Who is not root may look at two seconds at a time only.
fn trigger(path: &Path) -> Option<OwnedFd> {
    ["some 100000 1000000\0", "some 200000 2000000\0"].into_iter().find_map(|wish| {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        rustix::io::write(&file, wish.as_bytes()).ok().map(|_| file)
    })
}
