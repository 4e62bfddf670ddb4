//! Files that hold keys and certificates: written whole or not at all, keys for their owner only.

use crate::failure::Failure;
use rustix::fs::{CWD, RenameFlags};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Permissions of a key, and of what may be handed on.
pub(super) const SECRET: u32 = 0o600;
pub(super) const PUBLIC: u32 = 0o644;
/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Makes a folder for keys, or looks whether the one that is there will do.
pub(super) fn private_dir(dir: &Path) -> Result<(), Failure> {
    let shown = dir.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Failure::new(format!("cannot make the folder {shown} ({error}): give another")))?;
    let mode = std::fs::metadata(dir)
        .map_err(|error| Failure::new(format!("cannot look at {shown} ({error}): give another folder")))?
        .mode();
    if mode & 0o077 != 0 {
        return Err(Failure::new(format!(
            "{shown} is open to others (mode {:04o}), and keys are to be in it: chmod 700 it, or give another folder",
            mode & 0o7777
        )));
    }
    Ok(())
}

/// Refuses to replace any of these files, unless it was asked for.
pub(super) fn free(dir: &Path, names: &[&str], force: bool) -> Result<(), Failure> {
    match names.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        Some(path) if !force => Err(there_already(&path)),
        _ => Ok(()),
    }
}

fn there_already(path: &Path) -> Failure {
    Failure::new(format!(
        "{} is there already: give another folder, or --force to replace it",
        path.display()
    ))
}

/// Writes a file whole. Without `force` it is never in the place of another.
pub(super) fn write(path: &Path, contents: &str, mode: u32, force: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write {} ({error}): is there room, and may you?", path.display()))
    };
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = Draft(PathBuf::from(name));
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft.0).map_err(failed)?;
    file.write_all(contents.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    rustix::fs::renameat_with(CWD, &draft.0, CWD, path, flags).map_err(|errno| match errno {
        rustix::io::Errno::EXIST => there_already(path),
        errno => failed(errno.into()),
    })
}

/// A file that is not in its place yet; if it does not get there, it goes.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it is in its place there is nothing under this name.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads a text of limited length; `advice` says what to do if it cannot be had.
pub(super) fn read(path: &Path, advice: &str) -> Result<String, Failure> {
    use std::io::Read;
    let shown = path.display();
    let read = || {
        let file = std::fs::File::open(path)?;
        let mut text = String::new();
        if file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64 > FILE_BYTES_MAX {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "it is too long"));
        }
        Ok(text)
    };
    read().map_err(|error| Failure::new(format!("cannot read {shown} ({error}): {advice}")))
}

/// Reads a key, which nobody else may be able to read.
pub(super) fn read_key(path: &Path, advice: &str) -> Result<String, Failure> {
    let text = read(path, advice)?;
    let mode = std::fs::metadata(path).map_or(0, |meta| meta.mode()) & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Failure::new(format!(
            "{} can be read by others (mode {mode:04o}): chmod 600 it, and make another authority if somebody may have read it",
            path.display()
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_their_owners_alone_and_are_not_replaced() {
        let dir = std::env::temp_dir().join(format!("loam-ca-files-{}", std::process::id()));
        private_dir(&dir).expect("a temporary folder can be made");
        let key = dir.join("key");
        write(&key, "one", SECRET, false).expect("nothing is there");
        assert_eq!(std::fs::metadata(&key).expect("written").mode() & 0o7777, 0o600);
        let refused = write(&key, "two", SECRET, false).expect_err("it is there");
        assert!(refused.line().contains("--force"), "{refused:?}");
        assert!(free(&dir, &["none", "key"], false).is_err() && free(&dir, &["key"], true).is_ok());
        assert_eq!(read_key(&key, "").expect("ours"), "one");
        write(&key, "two", SECRET, true).expect("--force");
        assert_eq!(read_key(&key, "").expect("ours"), "two");
        assert_eq!(std::fs::read_dir(&dir).expect("ours").count(), 1, "no draft is left");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("ours");
        assert!(read_key(&key, "").expect_err("others may read it").line().contains("chmod 600"));
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(private_dir(&dir).expect_err("open").line().contains("chmod 700"));
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
