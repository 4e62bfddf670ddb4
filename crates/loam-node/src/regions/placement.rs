//! From which memory nodes of the machine a region may come (NUMA): which there are, and whether they have enough.

use super::book::{Refused, refuse};
use loam_core::units::Bytes;
use loam_disk::Placement;
use loam_wire::{MEMORY_NODES_MAX, MemoryPolicy, RegionRefusal, memory_nodes};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The machine's memory nodes, as the kernel tells them under `sys/devices/system/node`.
#[derive(Debug)]
pub(super) struct MemoryNodes(PathBuf);

impl MemoryNodes {
    /// Of the machine whose `sys` is under `root`.
    pub(super) fn of(root: &Path) -> Self {
        Self(root.join("sys/devices/system/node"))
    }

    /// Those that have memory, a bit each. A kernel without NUMA has one, that is not told.
    fn known(&self) -> u64 {
        read_to_string(self.0.join("has_memory")).ok().and_then(|text| mask(text.trim())).unwrap_or(1)
    }

    /// Bytes that one has free, or could have without swapping: what is free, and files that were read. (The other half of them is in use.)
    fn available(&self, node: u8) -> Option<u64> {
        let text = read_to_string(self.0.join(format!("node{node}/meminfo"))).ok()?;
        let kib = |name: &str| {
            let of = text.lines().find_map(|line| line.split_once(name))?.1;
            of.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        let (free, files) = (kib(" MemFree:")?, kib(" Active(file):")? + kib(" Inactive(file):")?);
        (free + files / 2).checked_mul(1024)
    }

    /// Refuses a policy that this machine cannot have, for `bytes` more.
    ///
    /// # Errors
    /// Why, for people.
    pub(super) fn check(&self, policy: MemoryPolicy, bytes: u64, huge: bool) -> Result<(), Refused> {
        let (known, named) = (self.known(), policy.nodes());
        if named & !known != 0 {
            let text = format!(
                "this machine has no memory node {}: it has {}",
                memory_nodes(named & !known),
                memory_nodes(known)
            );
            return refuse(RegionRefusal::Invalid, text);
        }
        // What is bound to memory nodes that have not enough would end programs there: the kernel frees memory in no other way. (Huge pages are
        // there or not.)
        if let (MemoryPolicy::Bind(_), false) = (policy, huge) {
            let each = (0..MEMORY_NODES_MAX).filter(|node| named >> node & 1 == 1);
            let free = each.map(|node| self.available(node)).sum::<Option<u64>>();
            if let Some(free) = free.filter(|free| *free < bytes) {
                let text = format!(
                    "memory nodes {} have {} to spare, and {} are wanted: bind it to others too, or prefer them",
                    memory_nodes(named),
                    Bytes(free),
                    Bytes(bytes)
                );
                return refuse(RegionRefusal::NoRoom, text);
            }
        }
        Ok(())
    }
}

/// How the kernel is told. `None`: not at all.
pub(super) fn placement(policy: MemoryPolicy) -> Option<Placement> {
    match policy {
        MemoryPolicy::Unset => None,
        MemoryPolicy::Local => Some(Placement::Local),
        MemoryPolicy::Bind(nodes) => Some(Placement::Bind(nodes)),
        MemoryPolicy::Interleave(nodes) => Some(Placement::Interleave(nodes)),
        MemoryPolicy::Preferred(node) => Some(Placement::Preferred(1 << node)),
    }
}

/// `0-1,4` as the kernel writes it. Those that have no bit are left out.
fn mask(list: &str) -> Option<u64> {
    let mut mask = 0_u64;
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        (first..=last.min(u64::from(MEMORY_NODES_MAX) - 1)).for_each(|node| mask |= 1 << node);
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(mask("0"), Some(1));
        assert_eq!(mask("0-1,4"), Some(0b1_0011));
        assert_eq!(mask("62-70,90"), Some(0b11 << 62));
        assert_eq!(mask(""), Some(0));
        assert_eq!(mask("a"), None);
    }

    #[test]
    fn what_is_not_there_is_refused_and_what_is_there_is_named() {
        let root = std::env::temp_dir().join(format!("loam-memory-nodes-{}", std::process::id()));
        let node = root.join("sys/devices/system/node");
        let nodes = MemoryNodes::of(&root);
        let why = |policy, mib: u64, huge| {
            nodes.check(policy, mib << 20, huge).err().map(|(why, text)| {
                assert!(!text.contains('\n'));
                (why, text)
            })
        };
        assert_eq!(why(MemoryPolicy::Bind(1), 1, false), None, "a kernel that tells nothing has one");
        for (number, free) in [(0, 8192), (2, 1024)] {
            std::fs::create_dir_all(node.join(format!("node{number}"))).expect("made");
            let text = format!(
                "Node {number} MemTotal: 9 kB\nNode {number} MemFree:   {free} kB\nNode {number} Active(file):  1024 kB\n\
                 Node {number} Inactive(file): 1024 kB\n"
            );
            std::fs::write(node.join(format!("node{number}/meminfo")), text).expect("written");
        }
        std::fs::write(node.join("has_memory"), "0,2\n").expect("written");
        let (refusal, text) = why(MemoryPolicy::Interleave(0b1010), 1, false).expect("refused");
        assert_eq!(refusal, RegionRefusal::Invalid);
        assert_eq!(text, "this machine has no memory node 1,3: it has 0,2");
        assert!(why(MemoryPolicy::Preferred(1), 1, false).is_some());
        // 8 + 1 and 1 + 1 MiB.
        assert_eq!(why(MemoryPolicy::Bind(0b1), 9, false), None);
        assert_eq!(why(MemoryPolicy::Bind(0b1), 10, false).map(|(why, _)| why), Some(RegionRefusal::NoRoom));
        assert_eq!(why(MemoryPolicy::Bind(0b101), 11, false), None);
        assert!(why(MemoryPolicy::Bind(0b101), 12, false).is_some());
        assert_eq!(why(MemoryPolicy::Bind(0b101), 12, true), None, "huge pages are another matter");
        for policy in [
            MemoryPolicy::Unset,
            MemoryPolicy::Local,
            MemoryPolicy::Preferred(2),
            MemoryPolicy::Interleave(0b101),
        ] {
            assert_eq!(why(policy, 1 << 20, false), None, "{policy}");
        }
        std::fs::remove_dir_all(&root).expect("ours");
    }
}
