//! The folder of the slot file.

use super::Check;
use crate::machine;
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// Less than this is soon full.
const FREE_MIN: Bytes = Bytes::from_mib(1024);

pub(crate) fn checks(dir: &Path) -> Vec<Check> {
    let shown = dir.display();
    if let Err(failure) = machine::private_dir(dir) {
        return vec![Check::fail(
            "disk",
            failure.line(),
            "name a folder that you may write to with --disk DIR",
        )];
    }
    vec![free_space(dir), direct_io(dir, &shown.to_string())]
}

fn free_space(dir: &Path) -> Check {
    let name = "disk space";
    match rustix::fs::statvfs(dir) {
        Ok(stat) => {
            let free = Bytes(stat.f_bavail.saturating_mul(stat.f_frsize));
            let found = format!("{free} free in {}", dir.display());
            if free < FREE_MIN {
                Check::warn(
                    name,
                    found,
                    "the slot file holds all that leaves: free some, or give another --disk DIR",
                )
            } else {
                Check::ok(name, found)
            }
        }
        Err(error) => Check::fail(name, format!("{}: {error}", dir.display()), "give another --disk DIR"),
    }
}

/// Opens a file without the page cache, reserves two pages, writes one and reads it back.
fn direct_io(dir: &Path, shown: &str) -> Check {
    let name = "disk, direct";
    match try_direct(dir) {
        Ok(()) => Check::ok(name, format!("O_DIRECT works in {shown}")),
        Err(error) => Check::warn(
            name,
            format!("O_DIRECT in {shown}: {error}"),
            "what is written also fills the page cache: prefer a folder on a real disk (--disk DIR)",
        ),
    }
}

/// A buffer that O_DIRECT accepts.
#[repr(C, align(4096))]
struct Aligned([u8; BASE_PAGE_BYTES]);

fn try_direct(dir: &Path) -> rustix::io::Result<()> {
    let path = dir.join(format!("doctor-{}", std::process::id()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::DIRECT;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    // From here on the file has no name, and is gone however this ends.
    rustix::fs::unlink(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * BASE_PAGE_BYTES as u64)?;
    let written = Box::new(Aligned([0xA5; BASE_PAGE_BYTES]));
    let mut read = Box::new(Aligned([0; BASE_PAGE_BYTES]));
    let at = BASE_PAGE_BYTES as u64;
    let whole = rustix::io::pwrite(&file, &written.0, at)? == BASE_PAGE_BYTES
        && rustix::io::pread(&file, &mut read.0, at)? == BASE_PAGE_BYTES;
    if whole && written.0 == read.0 { Ok(()) } else { Err(rustix::io::Errno::IO) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_folder_that_cannot_be_made_is_a_failure() {
        let found = checks(Path::new("/proc/loam"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].verdict, Verdict::Fail);
    }

    #[test]
    fn the_trial_file_is_gone_afterwards() {
        let dir = std::env::temp_dir().join(format!("loam-doctor-{}", std::process::id()));
        let found = checks(&dir);
        assert_eq!(found.len(), 2);
        let left = std::fs::read_dir(&dir).expect("the folder was made").count();
        std::fs::remove_dir(&dir).expect("it is empty");
        assert_eq!(left, 0);
    }
}
