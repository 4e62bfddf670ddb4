//! Whether this process's memory has a limit of its own.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// A control group that it is in, or one around that, limits its memory. Where that cannot be told it is said to be so.
pub(super) fn is_limited() -> bool {
    let told = read_to_string("/proc/self/cgroup").ok().and_then(|text| unified(&text));
    told.is_none_or(|group| is_limited_in(Path::new("/sys/fs/cgroup"), &group))
}

/// The one group of the unified hierarchy. `None`: there is none, or older ones beside it, which may limit memory too.
fn unified(text: &str) -> Option<PathBuf> {
    let mut lines = text.lines();
    let group = lines.next()?.strip_prefix("0::/")?;
    lines.next().is_none().then(|| PathBuf::from(group))
}

fn is_limited_in(root: &Path, group: &Path) -> bool {
    let limit =
        |of: &Path| ["memory.max", "memory.high"].map(|file| read_to_string(root.join(of).join(file)));
    // The root has no such files.
    group.ancestors().any(|of| limit(of).into_iter().flatten().any(|limit| limit.trim() != "max"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read() {
        assert_eq!(unified("0::/\n"), Some(PathBuf::new()));
        assert_eq!(unified("0::/user.slice/a.scope\n"), Some(PathBuf::from("user.slice/a.scope")));
        assert_eq!(unified("12:memory:/a\n0::/\n"), None);
        assert_eq!(unified(""), None);
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
