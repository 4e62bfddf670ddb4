//! From which memory nodes of the machine a region may come (NUMA): which there are, and whether they have enough.

use super::book::{Refused, refuse};
use loam_core::units::Bytes;
use loam_disk::Placement;
use loam_wire::{MEMORY_NODES_MAX, MemoryPolicy, RegionRefusal, memory_nodes};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Where a kernel does not tell what it keeps of a memory node: this part of it, and so many bytes at least. By itself Linux keeps up to 256 MiB of a machine and, of each
/// zone, a five-hundredth on top (mm/page_alloc.c, `__setup_per_zone_wmarks`).
const KEPT_PART: u64 = 32;
const KEPT_MIN_BYTES: u64 = 256 << 20;

/// The machine's memory nodes, as the kernel tells them under `sys/devices/system/node`.
#[derive(Debug)]
pub(super) struct MemoryNodes {
    root: PathBuf,
    /// What the machine keeps for itself; each memory node its share.
    keep: Bytes,
}

/// What a memory node has, in bytes.
struct Figures {
    total: u64,
    available: u64,
}

impl MemoryNodes {
    /// Of the machine whose `sys` and `proc` are under `root`, and which keeps `keep` for itself.
    pub(super) fn of(root: &Path, keep: Bytes) -> Self {
        Self { root: root.to_owned(), keep }
    }

    fn read(&self, file: &str) -> Option<String> {
        read_to_string(self.root.join(file)).ok()
    }

    /// Those that have memory and may be used by this process, a bit each. A kernel without NUMA has one, that is not told. (Of those that this process
    /// may not use the kernel would take nothing, and not say so.)
    fn known(&self) -> u64 {
        let list = self.read("sys/devices/system/node/has_memory");
        let known = list.and_then(|text| mask(text.trim())).unwrap_or(1);
        let status = self.read("proc/self/status");
        let allowed = status.as_deref().and_then(|text| {
            let of = text.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
            mask(of.trim())
        });
        // A kernel without cpusets has no such line.
        known & allowed.unwrap_or(u64::MAX)
    }

    /// What one has, and what of that is free, or could be without swapping: what is free, and files that were read. (The other half of them is in use.)
    fn figures(&self, node: u8) -> Option<Figures> {
        let text = self.read(&format!("sys/devices/system/node/node{node}/meminfo"))?;
        let bytes = |name: &str| {
            let of = text.lines().find_map(|line| line.split_once(name))?.1;
            of.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        let files = bytes(" Active(file):")?.checked_add(bytes(" Inactive(file):")?)?;
        let available = bytes(" MemFree:")?.checked_add(files / 2)?;
        Some(Figures { total: bytes(" MemTotal:")?, available })
    }

    /// Bytes that these could give to a region: what they have available without what the kernel keeps of each (below a zone's high watermark it looks for memory, and ends programs
    /// in the end), and without their share of what the machine keeps. `None`: the kernel does not tell.
    fn spare(&self, nodes: u64) -> Option<u64> {
        let each = |nodes: u64| (0..MEMORY_NODES_MAX).filter(move |node| nodes >> node & 1 == 1);
        let mut all = 0_u128;
        for node in each(self.known()) {
            all += u128::from(self.figures(node)?.total);
        }
        let zones = self.read("proc/zoneinfo");
        let mut spare = 0_u64;
        for node in each(nodes) {
            let Figures { total, available } = self.figures(node)?;
            let kept = zones.as_deref().and_then(|zones| high_watermarks(zones, node));
            let kept = kept.unwrap_or((total / KEPT_PART).max(KEPT_MIN_BYTES));
            let share = u128::from(self.keep.0) * u128::from(total) / all.max(1);
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            spare = spare.checked_add(available.saturating_sub(kept.saturating_add(share)))?;
        }
        Some(spare)
    }

    /// Refuses a policy that this machine cannot have, for `bytes` more.
    ///
    /// # Errors
    /// Why, for people.
    pub(super) fn check(&self, policy: MemoryPolicy, bytes: u64, huge: bool) -> Result<(), Refused> {
        let (known, named) = (self.known(), policy.nodes());
        if named & !known != 0 {
            let text = format!(
                "this machine has no memory node {} that this node may use: there is {}",
                memory_nodes(named & !known),
                memory_nodes(known)
            );
            return refuse(RegionRefusal::Invalid, text);
        }
        self.check_room(policy, bytes, huge)
    }

    /// Refuses what is bound to memory nodes that have not `bytes` more to spare: programs would end for it there, since the kernel frees memory in no other way. (Huge
    /// pages are there or not.)
    ///
    /// # Errors
    /// Why, for people.
    pub(super) fn check_room(&self, policy: MemoryPolicy, bytes: u64, huge: bool) -> Result<(), Refused> {
        let (MemoryPolicy::Bind(nodes), false) = (policy, huge) else { return Ok(()) };
        let named = memory_nodes(nodes);
        let text = match self.spare(nodes) {
            Some(spare) if spare >= bytes => return Ok(()),
            Some(spare) => format!(
                "memory nodes {named} have {} to spare, and {} are wanted: bind it to others too, or prefer them",
                Bytes(spare),
                Bytes(bytes)
            ),
            None => {
                format!("this machine does not tell what memory nodes {named} have free: prefer them instead")
            }
        };
        refuse(RegionRefusal::NoRoom, text)
    }
}

/// Bytes below which the kernel looks for memory in a memory node, all zones of it together, as /proc/zoneinfo tells (in pages: lines `high`; those of
/// `high:` are of the processors' lists). `None`: it tells of no such memory node.
fn high_watermarks(zones: &str, node: u8) -> Option<u64> {
    let begins = format!("Node {node},");
    let mut pages = None;
    let mut is_its = false;
    for line in zones.lines() {
        if line.starts_with("Node ") {
            is_its = line.starts_with(&begins);
        } else if let Some(("high", number)) = line.trim().split_once(' ').filter(|_| is_its) {
            pages = Some(pages.unwrap_or(0_u64).checked_add(number.trim().parse().ok()?)?);
        }
    }
    pages?.checked_mul(rustix::param::page_size() as u64)
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

    const ZONES: &str = "Node 0, zone   Normal\n  pages free     9\n        high     256\n  pagesets\n    cpu: 0\n              high:  7777\n\
        Node 0, zone  Movable\n        high     256\nNode 2, zone   Normal\n        high     0\n";

    #[test]
    fn the_kernels_watermarks_are_read() {
        assert_eq!(high_watermarks(ZONES, 0), Some(512 * 4096), "of both zones");
        assert_eq!(high_watermarks(ZONES, 2), Some(0));
        assert_eq!(high_watermarks(ZONES, 1), None);
        let here = read_to_string("/proc/zoneinfo").expect("Linux tells");
        assert!(high_watermarks(&here, 0).is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn what_is_not_there_is_refused_and_what_is_there_is_named() {
        let root = std::env::temp_dir().join(format!("loam-memory-nodes-{}", std::process::id()));
        let node = root.join("sys/devices/system/node");
        let mut nodes = MemoryNodes::of(&root, Bytes(0));
        let why = |nodes: &MemoryNodes, policy, mib: u64, huge| {
            nodes.check(policy, mib << 20, huge).err().map(|(why, text)| {
                assert!(!text.contains('\n'));
                (why, text)
            })
        };
        let (refusal, text) = why(&nodes, MemoryPolicy::Bind(1), 1, false).expect("it tells nothing");
        assert!(refusal == RegionRefusal::NoRoom && text.contains("does not tell"), "{text}");
        for (number, free) in [(0, 10240), (2, 1024)] {
            std::fs::create_dir_all(node.join(format!("node{number}"))).expect("made");
            let text = format!(
                "Node {number} MemTotal: 16384 kB\nNode {number} MemFree:   {free} kB\nNode {number} Active(file):  1024 kB\n\
                 Node {number} Inactive(file): 1024 kB\n"
            );
            std::fs::write(node.join(format!("node{number}/meminfo")), text).expect("written");
        }
        std::fs::write(node.join("has_memory"), "0,2\n").expect("written");
        assert!(why(&nodes, MemoryPolicy::Bind(0b1), 1, false).is_some(), "no watermarks are told");
        std::fs::create_dir_all(root.join("proc/self")).expect("made");
        std::fs::write(root.join("proc/zoneinfo"), ZONES).expect("written");
        let (refusal, text) = why(&nodes, MemoryPolicy::Interleave(0b1010), 1, false).expect("refused");
        assert_eq!(refusal, RegionRefusal::Invalid);
        assert_eq!(text, "this machine has no memory node 1,3 that this node may use: there is 0,2");
        assert!(why(&nodes, MemoryPolicy::Preferred(1), 1, false).is_some());
        // 10 + 1 without 2 that the kernel keeps, and 1 + 1 MiB.
        assert_eq!(why(&nodes, MemoryPolicy::Bind(0b1), 9, false), None);
        let refused = why(&nodes, MemoryPolicy::Bind(0b1), 10, false);
        assert_eq!(refused.map(|(why, _)| why), Some(RegionRefusal::NoRoom));
        assert_eq!(why(&nodes, MemoryPolicy::Bind(0b101), 11, false), None);
        assert!(why(&nodes, MemoryPolicy::Bind(0b101), 12, false).is_some());
        assert_eq!(why(&nodes, MemoryPolicy::Bind(0b101), 12, true), None, "huge pages are another matter");
        for policy in [
            MemoryPolicy::Unset,
            MemoryPolicy::Local,
            MemoryPolicy::Preferred(2),
            MemoryPolicy::Interleave(0b101),
        ] {
            assert_eq!(why(&nodes, policy, 1 << 20, false), None, "{policy}");
        }
        // Half of what the machine keeps is each one's share; the second has less than that.
        nodes.keep = Bytes(6 << 20);
        assert_eq!(why(&nodes, MemoryPolicy::Bind(0b101), 6, false), None);
        assert!(why(&nodes, MemoryPolicy::Bind(0b101), 7, false).is_some());
        // And what this process may not use.
        std::fs::write(root.join("proc/self/status"), "Name:\tloam\nMems_allowed_list:\t0-1\n")
            .expect("written");
        let (refusal, text) = why(&nodes, MemoryPolicy::Bind(0b101), 1, false).expect("refused");
        assert!(
            refusal == RegionRefusal::Invalid
                && text.ends_with("no memory node 2 that this node may use: there is 0"),
            "{text}"
        );
        std::fs::remove_dir_all(&root).expect("ours");
    }
}
