//! What a file is like, as the source says, and which of it makes its version.

use fuser::{FileAttr, FileType, INodeNo};
use loam_wire::mount::FileVersion;
use rustix::fs::{Statx, StatxTimestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A change that comes within this time of the last one may leave no trace: timestamps of older kernels and file systems are as coarse
/// as a tick (at most 10 ms), and clocks of a server and of its client differ by a little.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// The same where only whole seconds are kept (ext3, sshfs), or every second one (vfat).
const SETTLED_AFTER_IN_SECONDS: Duration = Duration::from_millis(2100);

/// Seconds since the epoch, and nanoseconds.
pub(crate) type Time = (i64, u32);

/// What a file is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: (u32, u32),
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) blksize: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// When the inode was made; zero where the source does not say.
    pub(crate) btime: Time,
}

impl From<&Statx> for Stat {
    fn from(stat: &Statx) -> Self {
        let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
        Self {
            dev: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            ino: stat.stx_ino,
            mode: u32::from(stat.stx_mode),
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            blksize: stat.stx_blksize,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: time(stat.stx_btime),
        }
    }
}

impl Stat {
    /// Of a file that was listed and cannot be looked at.
    pub(crate) fn unseen(dev: u64, ino: u64, kind: rustix::fs::FileType) -> Self {
        let never = (0, 0);
        Self {
            dev,
            ino,
            mode: kind.as_raw_mode(),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 0,
            blocks: 0,
            blksize: 0,
            atime: never,
            mtime: never,
            ctime: never,
            btime: never,
        }
    }

    /// File, directory, link...
    pub(crate) fn kind(&self) -> FileType {
        kind_of(rustix::fs::FileType::from_raw_mode(self.mode))
    }

    /// Is it the same inode, as far as can be told? (Its number may have been given to another file since. The device's number is not
    /// looked at: a file server that is mounted again has another one.)
    pub(crate) fn is_inode_of(&self, other: &Self) -> bool {
        (self.ino, self.btime, self.mode & 0o170_000) == (other.ino, other.btime, other.mode & 0o170_000)
    }

    /// Does the source say when inodes were made?
    pub(crate) fn says_when_made(&self) -> bool {
        self.btime != (0, 0)
    }

    /// As the kernel wants it, under the number `id`.
    pub(crate) fn attr(&self, id: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(id),
            size: self.size,
            blocks: self.blocks,
            atime: system_time(self.atime),
            mtime: system_time(self.mtime),
            ctime: system_time(self.ctime),
            crtime: UNIX_EPOCH,
            kind: self.kind(),
            perm: (self.mode & 0o7777) as u16,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: device_number(self.rdev),
            blksize: self.blksize,
            flags: 0,
        }
    }
}

/// The kernel's own packing of a device number into 32 bits.
fn device_number((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// A file type of the system's as one of the kernel's protocol.
pub(crate) fn kind_of(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn system_time((seconds, nanoseconds): Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(nanoseconds));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    time.and_then(|time| time.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// One version of one file: what its pages are cached under, everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The name of its pages.
    pub(crate) file: FileVersion,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// The time of the last change, which no program can set.
    changed: Time,
}

impl Version {
    /// The version that a file has now.
    ///
    /// The inode's number, size and times are the same on all nodes that mount the same export; its device is not, so a file on
    /// another device than the source itself is told by its path too (`elsewhere`). The inode and not the path names a file because a
    /// hard link or a rename is not another file. Any change of the contents changes the time of the last change, which no program can
    /// set; it also tells apart two files that had the same number one after the other.
    pub(crate) fn of(source: &str, elsewhere: Option<&[u8]>, stat: &Stat) -> Self {
        let mut text = Vec::with_capacity(source.len() + 64);
        text.extend_from_slice(&(source.len() as u64).to_le_bytes());
        text.extend_from_slice(source.as_bytes());
        for field in [stat.ino, stat.size] {
            text.extend_from_slice(&field.to_le_bytes());
        }
        for (seconds, nanoseconds) in [stat.mtime, stat.ctime] {
            text.extend_from_slice(&seconds.to_le_bytes());
            text.extend_from_slice(&nanoseconds.to_le_bytes());
        }
        text.extend_from_slice(elsewhere.unwrap_or_default());
        let file = FileVersion::new(loam_wire::page_hash(&text).0);
        Self { file, size: stat.size, changed: stat.ctime }
    }

    /// Would a change from now on be seen? Only what is read after that may be kept.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        // Where there are nanoseconds, none of them is as good as never.
        let after = if self.changed.1 == 0 { SETTLED_AFTER_IN_SECONDS } else { SETTLED_AFTER };
        now.checked_sub(after).is_some_and(|then| system_time(self.changed) < then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> Stat {
        let path = std::env::current_exe().expect("/proc is mounted");
        crate::source::stat_of(std::fs::File::open(path).expect("readable")).expect("it is open")
    }

    #[test]
    fn each_part_of_the_identity_makes_another_version() {
        let one = stat();
        let of = |stat: &Stat| Version::of("name", None, stat).file;
        let mut others = vec![of(&one), Version::of("nam", None, &one).file];
        others.push(Version::of("name", Some(b"e"), &one).file);
        others.push(of(&Stat { ino: one.ino + 1, ..one.clone() }));
        others.push(of(&Stat { size: one.size + 1, ..one.clone() }));
        others.push(of(&Stat { mtime: (one.mtime.0, one.mtime.1 ^ 1), ..one.clone() }));
        others.push(of(&Stat { ctime: (one.ctime.0 + 1, one.ctime.1), ..one.clone() }));
        others.sort();
        others.dedup();
        assert_eq!(others.len(), 7);
        // What differs between nodes that mount one export, or is no matter of contents, does not.
        assert_eq!(of(&one), of(&Stat { dev: 7, atime: (1, 1), btime: (0, 0), blksize: 1, ..one.clone() }));
    }

    #[test]
    fn a_file_is_settled_once_its_last_change_is_past() {
        let changed = |ctime| Version::of("name", None, &Stat { ctime, mtime: (900, 5), ..stat() });
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        let version = changed((1000, 1_000_000));
        assert!(!version.is_settled(at(1_000_001)) && !version.is_settled(at(1_000_101)));
        assert!(version.is_settled(at(1_000_102)));
        assert!(!version.is_settled(at(999_000)), "a time in the future proves nothing");
        let in_seconds = changed((1000, 0));
        assert!(!in_seconds.is_settled(at(1_001_999)) && !in_seconds.is_settled(at(1_002_100)));
        assert!(in_seconds.is_settled(at(1_002_101)));
    }

    #[test]
    fn times_before_the_epoch_and_device_numbers_survive() {
        assert_eq!(system_time((-2, 800_000_000)), UNIX_EPOCH - Duration::from_millis(1200));
        assert_eq!(system_time((i64::MIN, 0)), UNIX_EPOCH - Duration::from_secs(1 << 63));
        assert_eq!(device_number((8, 1)), 0x801);
        assert_eq!(device_number((259, 300)), 300 & 0xff | 259 << 8 | 256 << 12);
    }
}
