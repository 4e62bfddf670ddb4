//! Limits of the system and of this user.

use super::Check;
use crate::machine;
use loam_core::units::Bytes;
use rustix::process::{Resource, getrlimit};

/// Descriptors that a tree of a few hundred processes with several lenders needs.
const FILES_MIN: u64 = 1024;
/// The kernel's own default.
const MAPPINGS_MIN: u64 = 65_530;
/// Below this there is no sense in lending, and little in borrowing.
const AVAILABLE_MIN: Bytes = Bytes::from_mib(256);

pub(crate) fn checks() -> Vec<Check> {
    vec![memory(), cores(), open_files(), mappings(), swap(), huge_pages()]
}

fn memory() -> Check {
    match machine::memory() {
        Ok(memory) if memory.available < AVAILABLE_MIN => Check::warn(
            "memory",
            format!("{} available of {}", memory.available, memory.total),
            "end something, or lend from another machine",
        ),
        Ok(memory) => Check::ok("memory", format!("{} available of {}", memory.available, memory.total)),
        Err(_) => Check::fail("memory", "/proc/meminfo cannot be read", "mount /proc"),
    }
}

fn cores() -> Check {
    match machine::cores().len() {
        1 => Check::warn(
            "cores",
            "1",
            "program and agent take turns on it: expect slow faults; use two or more",
        ),
        cores => Check::ok("cores", cores.to_string()),
    }
}

/// A limit that may be absent.
fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".into(), |limit| limit.to_string())
}

fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let found = format!("{}, at most {}", limit_text(limit.current), limit_text(limit.maximum));
    if limit.current.is_some_and(|current| current < FILES_MIN) {
        Check::warn(
            "open files",
            found,
            format!("ulimit -n {FILES_MIN} before a program with many processes"),
        )
    } else {
        Check::ok("open files", found)
    }
}

fn mappings() -> Check {
    let path = "/proc/sys/vm/max_map_count";
    match machine::setting(path).and_then(|text| text.parse::<u64>().ok()) {
        Some(count) if count >= MAPPINGS_MIN => Check::ok("mappings", format!("{count} a process")),
        Some(count) => Check::warn(
            "mappings",
            format!("{count} a process"),
            format!(
                "sysctl vm.max_map_count={MAPPINGS_MIN}: eviction splits mappings, and few of them make it coarse"
            ),
        ),
        None => Check::warn("mappings", format!("{path} cannot be read"), "mount /proc"),
    }
}

/// Lent memory is kept out of swap by a tmpfs of its own (`noswap`), which takes a capability.
fn swap() -> Check {
    let lines = machine::setting("/proc/swaps").unwrap_or_default().lines().count();
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN));
    match lines {
        0 | 1 => Check::ok("swap", "none"),
        _ if capable => Check::ok("swap", "in use; what is lent never goes there"),
        _ => Check::warn(
            "swap",
            "in use, and this user cannot keep lent memory out of it",
            "matters for `loam lend` only: start it as root, or turn swap off (swapoff -a)",
        ),
    }
}

fn huge_pages() -> Check {
    let setting = machine::setting("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen =
        setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(chosen, _)| chosen);
    match chosen {
        "" => Check::ok("huge pages", "not in this kernel"),
        "always" => Check::ok("huge pages", "always: adopted memory is split, which costs once"),
        chosen => Check::ok("huge pages", chosen),
    }
}
