//! Whether this process's memory has a limit of its own.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// From so many bytes on a limit of the first version is none: it counts in pages, up to the largest number.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The control groups that a process's memory counts in.
#[derive(Debug, PartialEq, Eq)]
enum Groups {
    /// Of the second version, alone.
    Unified(PathBuf),
    /// Of the first, which has a hierarchy for memory.
    Memory(PathBuf),
}

/// A control group that it is in, or one around that, limits its memory. Where that cannot be told it is said to be so.
pub(super) fn is_limited() -> bool {
    let groups = read_to_string("/proc/self/cgroup").ok().and_then(|text| groups(&text));
    groups.is_none_or(|groups| match groups {
        Groups::Unified(group) => is_limited_in(Path::new(ROOT), &group),
        Groups::Memory(group) => is_limited_in_first(&Path::new(ROOT).join("memory"), &group),
    })
}

/// `None`: it is not in one hierarchy that is known to limit its memory.
fn groups(text: &str) -> Option<Groups> {
    let path = |group: &str| group.strip_prefix('/').map(PathBuf::from);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.splitn(3, ':').collect()).collect();
    let of_memory = lines
        .iter()
        .find(|line| matches!(line[..], [_, names, _] if names.split(',').any(|name| name == "memory")));
    match (of_memory.map(Vec::as_slice), lines.as_slice()) {
        (Some([_, _, group]), _) => path(group).map(Groups::Memory),
        (None, [only]) if matches!(only[..], ["0", "", _]) => path(only[2]).map(Groups::Unified),
        _ => None,
    }
}

fn is_limited_in(root: &Path, group: &Path) -> bool {
    let limit =
        |of: &Path| ["memory.max", "memory.high"].map(|file| read_to_string(root.join(of).join(file)));
    // The root has no such files.
    group.ancestors().any(|of| limit(of).into_iter().flatten().any(|limit| limit.trim() != "max"))
}

fn is_limited_in_first(root: &Path, group: &Path) -> bool {
    // Here the root has the file as well. Where one is missing the group is not below what is mounted.
    let limit =
        |of: &Path| read_to_string(root.join(of).join("memory.limit_in_bytes")).ok()?.trim().parse().ok();
    group.ancestors().any(|of| limit(of).is_none_or(|bytes: u64| bytes < NO_LIMIT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read() {
        let unified = |group: &str| Some(Groups::Unified(group.into()));
        assert_eq!(groups("0::/\n"), unified(""));
        assert_eq!(groups("0::/user.slice/a.scope\n"), unified("user.slice/a.scope"));
        let memory = |group: &str| Some(Groups::Memory(group.into()));
        assert_eq!(groups("12:cpu,memory:/a:b\n3:cpuset:/\n0::/\n"), memory("a:b"));
        assert_eq!(groups("4:memory:/\n"), memory(""));
        // The second version's may limit memory here, and is mounted somewhere else.
        assert_eq!(groups("12:cpuset:/a\n0::/\n"), None);
        assert_eq!(groups("12:memory:a\n"), None);
        assert_eq!(groups("nothing\n"), None);
        assert_eq!(groups(""), None);
    }

    #[test]
    fn a_limit_of_the_first_version_counts_and_so_does_what_cannot_be_read() {
        let root = std::env::temp_dir().join(format!("loam-cgroup-first-{}", std::process::id()));
        std::fs::create_dir_all(root.join("outer/inner")).expect("a folder can be made");
        let write = |group: &str, text: &str| {
            std::fs::write(root.join(group).join("memory.limit_in_bytes"), text).expect("written");
        };
        let limited = || is_limited_in_first(&root, Path::new("outer/inner"));
        for group in ["", "outer", "outer/inner"] {
            assert!(limited(), "{group:?} cannot be read yet");
            write(group, "9223372036854771712\n");
        }
        assert!(!limited());
        for group in ["", "outer", "outer/inner"] {
            write(group, "1073741824\n");
            assert!(limited(), "{group:?}");
            write(group, "9223372036854771712\n");
        }
        write("outer", "much\n");
        assert!(limited());
        std::fs::remove_dir_all(&root).expect("it is ours");
    }

    #[test]
    fn a_limit_of_any_group_around_counts() {
        let root = std::env::temp_dir().join(format!("loam-cgroup-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).expect("a folder can be made");
        let write = |file: &str, text: &str| std::fs::write(root.join(file), text).expect("written");
        let limited = || is_limited_in(&root, Path::new("outer/inner"));
        assert!(!limited(), "no files");
        write("outer/inner/memory.max", "max\n");
        write("outer/memory.max", "max\n");
        assert!(!limited());
        write("outer/memory.max", "1073741824\n");
        assert!(limited());
        write("outer/memory.max", "max\n");
        write("outer/inner/memory.high", "4096\n");
        assert!(limited());
        std::fs::remove_dir_all(&root).expect("it is ours");
    }
}
