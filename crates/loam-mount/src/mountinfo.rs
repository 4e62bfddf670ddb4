//! What `/proc/self/mountinfo` says of mounts (proc_pid_mountinfo(5)).

use crate::error::MountError;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type of our mounts, as the kernel shows it.
pub(crate) const OUR_TYPE: &str = "fuse.loam";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MountLine {
    /// The directory of the file system that is mounted.
    root: PathBuf,
    mountpoint: PathBuf,
    kind: Vec<u8>,
    from: Vec<u8>,
}

fn mounts() -> Result<Vec<MountLine>, MountError> {
    let text =
        std::fs::read("/proc/self/mountinfo").map_err(MountError::system("reading /proc/self/mountinfo"))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = path(fields.nth(3)?);
    let mountpoint = path(fields.next()?);
    // Any number of optional fields, then a dash.
    let mut behind = fields.skip_while(|field| field != b"-").skip(1);
    Some(MountLine { root, mountpoint, kind: behind.next()?.to_vec(), from: unescape(behind.next()?) })
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Spaces and the like stand as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) if byte == b'\\' => {
                out.push(digits.iter().fold(0_u8, |value, digit| value << 3 | (digit - b'0')));
                rest = &behind[3..];
            }
            _ => {
                out.push(byte);
                rest = behind;
            }
        }
    }
    out
}

/// Is a mount of Loam's the last one that was made at exactly this place?
pub(crate) fn is_loams(mountpoint: &Path) -> Result<bool, MountError> {
    let mounts = mounts()?;
    let there = mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint);
    Ok(there.is_some_and(|mount| mount.kind == OUR_TYPE.as_bytes()))
}

/// What an absolute path without links is called by all nodes: `SERVER:EXPORT` and the path in it for NFS, else the path.
pub(crate) fn name_of(source: &Path) -> Result<String, MountError> {
    Ok(name_in(&mounts()?, source))
}

fn name_in(mounts: &[MountLine], source: &Path) -> String {
    let over = |mount: &&MountLine| source.starts_with(&mount.mountpoint);
    let longest = |mount: &&MountLine| mount.mountpoint.as_os_str().len();
    // Of several at one place the last one is seen.
    let name = match mounts.iter().filter(over).max_by_key(longest) {
        Some(mount) if mount.kind.starts_with(b"nfs") => {
            let inside = source.strip_prefix(&mount.mountpoint).unwrap_or(Path::new(""));
            let mut path = mount.root.join(inside).into_os_string().into_vec();
            path.splice(0..0, mount.from.iter().copied());
            OsString::from_vec(path)
        }
        _ => source.as_os_str().to_owned(),
    };
    // Other bytes than text must not make two names one.
    match name.into_string() {
        Ok(name) => name,
        Err(name) => name.as_bytes().escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 8:1 / / rw,noatime shared:1 - ext4 /dev/root rw\n\
        40 22 0:33 / /mnt/nfs rw shared:9 master:3 - nfs4 server:/export/data rw,vers=4.2\n\
        41 22 0:34 /sub /mnt/with\\040space rw - nfs server:/two rw\n\
        42 22 0:35 / /mnt/view ro - fuse.loam name\\134x ro,user_id=0";

    fn lines() -> Vec<MountLine> {
        TEXT.split(|&byte| byte == b'\n').filter_map(parse).collect()
    }

    #[test]
    fn lines_are_read_with_and_without_optional_fields() {
        let lines = lines();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[2].mountpoint, Path::new("/mnt/with space"));
        assert_eq!((&lines[3].kind[..], &lines[3].from[..]), (&b"fuse.loam"[..], &b"name\\x"[..]));
        assert_eq!(parse(b"22 1 8:1 / /"), None);
        assert_eq!(unescape(b"a\\04"), b"a\\04");
    }

    #[test]
    fn an_export_is_called_the_same_wherever_it_is_mounted() {
        let name = |path: &str| name_in(&lines(), Path::new(path));
        assert_eq!(name("/mnt/nfs/a/b"), "server:/export/data/a/b");
        assert_eq!(name("/mnt/with space/a"), "server:/two/sub/a");
        assert_eq!(name("/mnt/nfs2/a"), "/mnt/nfs2/a", "beside it");
        assert_eq!(name("/home/x"), "/home/x");
        let odd = PathBuf::from(OsString::from_vec(b"/a\xff".to_vec()));
        assert_eq!(name_in(&lines(), &odd), "/a\\xff");
    }
}
