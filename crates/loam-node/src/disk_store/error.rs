//! What can go wrong with the disk store: at its opening, at a request, and later at the disk.

use loam_core::units::Bytes;
use loam_disk::EngineError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a disk store cannot be opened. Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum DiskStoreError {
    /// The directory cannot be made or opened.
    #[error("disk store: directory {} cannot be used ({errno}): choose another with --store DIR", dir.display())]
    Dir {
        /// Which.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The directory, or the file in it, is somebody else's.
    #[error("disk store: {} belongs to user {owner_uid}, who could tamper with it: choose a directory of your own with --store DIR", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose.
        owner_uid: u32,
    },
    /// Another lender has it open.
    #[error("disk store: {} is in use by another lender: stop it, or choose another directory with --store DIR", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// The file cannot be made, read or written.
    #[error("disk store: {what} {} failed ({errno}): check the disk, or choose another directory with --store DIR", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The call.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// There is something else, or it is damaged.
    #[error("disk store: {} is no disk store of Loam, or is damaged: move it away, or choose another directory with --store DIR", path.display())]
    NotAStore {
        /// Which.
        path: PathBuf,
    },
    /// Of another release.
    #[error("disk store: {} has format {format}, this release knows {known}: let its borrowers end under the other release and remove it, or choose another directory with --store DIR", path.display(), known = super::layout::FORMAT)]
    Format {
        /// Which.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Too small to be of use, or beyond what the format can number.
    #[error("disk store: a size of {asked} is not possible: --store-size takes {min} to {max}")]
    Size {
        /// What was asked for.
        asked: Bytes,
        /// The least.
        min: Bytes,
        /// The most.
        max: Bytes,
    },
    /// Pages lie beyond the smaller size.
    #[error("disk store: {} cannot be made smaller, {pages} pages of borrowers are beyond {wanted}: give --store-size {now} until they have gone", path.display())]
    Shrink {
        /// Which.
        path: PathBuf,
        /// How many.
        pages: u64,
        /// The size that was asked for.
        wanted: Bytes,
        /// The size that it has.
        now: Bytes,
    },
    /// The disk is full, or the user's share of it.
    #[error("disk store: no room for {wanted} in {}, {free} are free: make room, or give a smaller --store-size", dir.display())]
    Space {
        /// Where.
        dir: PathBuf,
        /// Asked for.
        wanted: Bytes,
        /// What the file system has for this user.
        free: Bytes,
    },
    /// `ulimit -f`.
    #[error(
        "disk store: {wanted} exceed the limit of a file's size, {limit}: raise it (ulimit -f unlimited), or give a smaller --store-size"
    )]
    FileLimit {
        /// Size that the file was to get.
        wanted: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// The machinery itself.
    #[error("disk store: {0}: free memory or raise the limits of threads and descriptors")]
    Engine(#[from] EngineError),
}

/// Why pages were not taken: they stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The store is full, or the space has its share of it (docs/disk-store.md): the lender keeps the pages in memory.
    #[error("the disk store has room for {room} more pages of this borrower")]
    Full {
        /// New pages of this space that would be taken now.
        room: u32,
    },
    /// Enough is under way: again after a completion. Or a space that has gone is just being freed: again after a poll.
    #[error("the disk has enough to do")]
    Busy,
    /// More spaces than the store can tell of.
    #[error("the disk store has pages of as many borrowers as it can")]
    Spaces,
    /// The store takes nothing more: see [`DiskStore::broken`](super::DiskStore::broken).
    #[error("the disk store is broken")]
    Broken,
}

/// Why a read was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefused {
    /// That version is not here.
    #[error("this version is not in the disk store")]
    Missing,
    /// It is being written: whoever gave it has it in memory until it is durable.
    #[error("this version is being written")]
    Writing,
    /// Enough is under way: again after a completion.
    #[error("the disk has enough to do")]
    Busy,
    /// The queue to the disk is gone: nothing is read any more, see [`DiskStore::is_dead`](super::DiskStore::is_dead).
    #[error("the disk cannot be reached any more")]
    Dead,
}

/// What became of a write, or a read, that was begun and failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The disk's answer: EIO, ENOSPC and the like.
    #[error("the disk failed ({0})")]
    Disk(Errno),
    /// The store broke before the write was durable. It may be found at the next start all the same.
    #[error("the disk store broke")]
    Broken,
    /// The version was forgotten or replaced while it was read.
    #[error("this version is no longer in the disk store")]
    Missing,
    /// What is on the disk is not what was written: it never leaves the store.
    #[error("the disk's contents are damaged")]
    Corrupt,
}
