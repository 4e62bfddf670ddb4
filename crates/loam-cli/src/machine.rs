//! Facts about this machine, read from `/proc` and `/sys`.

use crate::failure::Failure;
use loam_node::UsableMemory;
use std::path::{Path, PathBuf};

/// What this process may use: the machine's memory, or what the control groups around it (a batch system's job, a container) leave of it.
pub(crate) fn memory() -> Result<UsableMemory, Failure> {
    loam_node::usable_memory(Path::new("/")).ok_or_else(|| {
        Failure::new(
            "/proc/meminfo has no MemTotal or MemAvailable: mount /proc; Linux 6.8 or newer is needed",
        )
    })
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
    // As the slot file will refuse it, in the middle of the run perhaps.
    if meta.uid() != rustix::process::geteuid().as_raw() {
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
    fn this_machine_has_memory_and_a_core() {
        let memory = memory().expect("proc is mounted");
        assert!(memory.total.0 >= memory.available.0 && memory.available.0 > 0);
        assert!(!cores().is_empty());
    }
}
