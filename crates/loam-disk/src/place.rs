//! Where a file may be, and the space that it has for certain.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Why a directory cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirError {
    /// It cannot be made or opened.
    #[error("it cannot be used ({0})")]
    Unusable(Errno),
    /// It is somebody else's.
    #[error("it belongs to user {owner_uid}")]
    Foreign {
        /// Whose.
        owner_uid: u32,
    },
}

/// Opens the directory, made with mode 0700 if it is missing. One that belongs to somebody else is refused: in a
/// shared place like /var/tmp, whoever made it first could have chosen it to read or swap what we write.
///
/// # Errors
/// [`DirError`].
pub fn open_dir(dir: &Path) -> Result<OwnedFd, DirError> {
    let of_io = |error: std::io::Error| DirError::Unusable(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let own_uid = rustix::process::geteuid().as_raw();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(of_io)?;
    // A link at the end of the path counts as the directory does: it must be ours.
    let link = std::fs::symlink_metadata(dir).map_err(of_io)?;
    if link.uid() != own_uid {
        return Err(DirError::Foreign { owner_uid: link.uid() });
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(DirError::Unusable)?;
    let owner_uid = rustix::fs::fstat(&fd).map_err(DirError::Unusable)?.st_uid;
    if owner_uid != own_uid {
        return Err(DirError::Foreign { owner_uid });
    }
    Ok(fd)
}

/// Why space is not to be had. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// `ulimit -f`.
    #[error("the limit of a file's size is {limit_bytes} bytes")]
    FileLimit {
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk is full, or the user's share of it.
    #[error("{free_bytes} bytes are free")]
    Full {
        /// What the file system has for this user.
        free_bytes: u64,
    },
    /// Anything else.
    #[error("{0}")]
    Refused(Errno),
}

/// Sees to it that a file has space for its bytes from `from_bytes` to `to_bytes`, and is as long at least. Answers
/// false where the file system cannot reserve: the file is long enough then, but a write may find the disk full.
///
/// # Errors
/// [`RoomError`]; what was had of it has been given back, if the file ended at `from_bytes`.
pub fn reserve(file: impl AsFd, from_bytes: u64, to_bytes: u64) -> Result<bool, RoomError> {
    assert!(from_bytes < to_bytes, "no bytes from {from_bytes} to {to_bytes}");
    let file = file.as_fd();
    // Beyond this limit the kernel would end us with SIGXFSZ.
    if let Some(limit_bytes) = rustix::process::getrlimit(Resource::Fsize).current
        && to_bytes > limit_bytes
    {
        return Err(RoomError::FileLimit { limit_bytes });
    }
    let length_bytes = rustix::fs::fstat(file).map_err(RoomError::Refused)?.st_size as u64;
    let result = loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), from_bytes, to_bytes - from_bytes) {
            Err(Errno::INTR) => {}
            result => break result,
        }
    };
    match result {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            if length_bytes < to_bytes {
                rustix::fs::ftruncate(file, to_bytes).map_err(RoomError::Refused)?;
            }
            Ok(false)
        }
        Err(Errno::NOSPC | Errno::DQUOT) => {
            if length_bytes <= from_bytes {
                // A full disk hurts others too.
                let _ = rustix::fs::ftruncate(file, length_bytes);
            }
            Err(RoomError::Full { free_bytes: free_bytes(file) })
        }
        Err(errno) => Err(RoomError::Refused(errno)),
    }
}

/// What the file system of `file` has free for this user.
fn free_bytes(file: impl AsFd) -> u64 {
    rustix::fs::fstatvfs(file).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What offsets and lengths of direct I/O must be multiples of for this file, if the kernel tells (Linux 6.1); `None` also where there
/// is no direct I/O.
pub fn direct_align_bytes(file: impl AsFd) -> Option<usize> {
    let wanted = StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let align_bytes = told.stx_dio_offset_align as usize;
    (told.stx_mask & wanted.bits() != 0 && align_bytes > 0).then_some(align_bytes)
}
