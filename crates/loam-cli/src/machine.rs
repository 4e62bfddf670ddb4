//! Facts about this machine, read from `/proc` and `/sys`.

use crate::failure::Failure;
use loam_core::units::Bytes;
use std::path::{Path, PathBuf};

/// The two figures of `/proc/meminfo` that Loam decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Installed.
    pub(crate) total: Bytes,
    /// Could be used now without swapping.
    pub(crate) available: Bytes,
}

/// Reads `/proc/meminfo`.
pub(crate) fn memory() -> Result<Memory, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")
        .map_err(|error| Failure::new(format!("cannot read /proc/meminfo ({error}): mount /proc")))?;
    parse_meminfo(&text).ok_or_else(|| {
        Failure::new("/proc/meminfo has no MemTotal or MemAvailable: Linux 6.8 or newer is needed")
    })
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024).map(Bytes)
    };
    Some(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// One small file of `/proc` or `/sys`, without its line end; `None` if it is not there or not readable.
pub(crate) fn setting(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_string())
}

/// The kernel's release, such as `6.8.0-40-generic`.
pub(crate) fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Cores that this process may run on.
pub(crate) fn cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => vec![0],
    }
}

/// Where slot files go unless `--disk` says otherwise.
pub(crate) fn default_disk_dir() -> PathBuf {
    PathBuf::from(format!("/var/tmp/loam-{}", rustix::process::getuid().as_raw()))
}

/// Makes `dir` if it is missing, private to this user, and refuses one that belongs to somebody else: the slot file holds
/// the program's memory.
pub(crate) fn private_dir(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let shown = dir.display();
    if let Err(error) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        return Err(Failure::new(format!("cannot make {shown} ({error}): give another folder with --disk")));
    }
    let meta = std::fs::metadata(dir).map_err(|error| {
        Failure::new(format!("cannot look at {shown} ({error}): give another folder with --disk"))
    })?;
    let writable =
        rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    if !meta.is_dir() || !writable {
        return Err(Failure::new(format!("cannot write to {shown}: give another folder with --disk")));
    }
    // Only the default has a guessable name in a folder that everyone may write to.
    if dir == default_disk_dir() && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Failure::new(format!(
            "{shown} belongs to another user: give another folder with --disk"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text =
            "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    9000000 kB\nSwapTotal: 0 kB\n";
        let memory = parse_meminfo(text).expect("both fields are there");
        assert_eq!(memory, Memory { total: Bytes(16_000_000 * 1024), available: Bytes(9_000_000 * 1024) });
        assert_eq!(parse_meminfo("MemTotal: 5 kB\n"), None);
        assert_eq!(parse_meminfo("MemTotal: x kB\nMemAvailable: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_memory_and_a_core() {
        let memory = memory().expect("proc is mounted");
        assert!(memory.total.0 >= memory.available.0 && memory.available.0 > 0);
        assert!(!cores().is_empty());
    }
}
