//! Extended attributes, those that programs and permission rules use, and the search for holes.

use super::errno;
use crate::inodes::Node;
use crate::open::OpenFile;
use crate::source::Source;
use fuser::ReplyXattr;
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// The mount's counters, on its root. Not listed.
pub(super) const FIGURES: &str = "user.loam.figures";
/// The kernel's own limit of a value and of a list.
const BYTES_MAX: usize = 64 << 10;

/// Attributes that are shown: programs' own, and access control lists, which the kernel then goes by. Others speak of the source's
/// machine (capabilities, labels).
fn is_shown(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}

/// The value of an attribute.
pub(super) fn value(source: &Source, node: &Node, name: &OsStr) -> Result<Vec<u8>, Errno> {
    if !is_shown(name.as_bytes()) || !has_attributes(node) {
        return Err(Errno::NODATA);
    }
    let mut value = vec![0; BYTES_MAX];
    let held = source.hold(&node.place())?;
    let bytes = rustix::fs::getxattr(by_descriptor(&held), name, &mut value[..])
        .map_err(not_supported(Errno::NODATA))?;
    value.truncate(bytes);
    Ok(value)
}

/// The names of attributes, each with a zero behind it.
pub(super) fn names(source: &Source, node: &Node) -> Result<Vec<u8>, Errno> {
    if !has_attributes(node) {
        return Ok(Vec::new());
    }
    let mut names = vec![0; BYTES_MAX];
    let held = source.hold(&node.place())?;
    let bytes = match rustix::fs::listxattr(by_descriptor(&held), &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        answer => answer?,
    };
    let shown = names[..bytes].split_inclusive(|&byte| byte == 0);
    Ok(shown.filter(|name| is_shown(name.strip_suffix(b"\0").unwrap_or(name))).collect::<Vec<_>>().concat())
}

/// A source without extended attributes has none; ENOTSUP would make the kernel stop asking for those of the mount itself.
fn not_supported(instead: Errno) -> impl Fn(Errno) -> Errno {
    move |error| if error == Errno::OPNOTSUPP { instead } else { error }
}

fn has_attributes(node: &Node) -> bool {
    let kind = FileType::from_raw_mode(node.state().stat.mode);
    matches!(kind, FileType::RegularFile | FileType::Directory)
}

/// The file behind a descriptor that was not opened: there is no call for that.
fn by_descriptor(held: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// Answers as the kernel asked: for the size, or for the value if it fits.
pub(super) fn answer(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(errno(Errno::RANGE)),
        Err(error) => reply.error(errno(error)),
    }
}

/// SEEK_DATA and SEEK_HOLE: the only ones that the kernel asks for.
pub(super) fn seek(source: &Source, file: &OpenFile, offset: i64, whence: i32) -> Result<i64, Errno> {
    const SEEK_DATA: i32 = 3;
    const SEEK_HOLE: i32 = 4;
    let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
    let to = match whence {
        SEEK_DATA => SeekFrom::Data(offset),
        SEEK_HOLE => SeekFrom::Hole(offset),
        _ => return Err(Errno::INVAL),
    };
    let found = rustix::fs::seek(file.file(source)?, to)?;
    i64::try_from(found).map_err(|_| Errno::OVERFLOW)
}
