//! `loam mount`: a read-only view of a directory whose pages are cached by all who mount it.
//!
//! Programs read and map files below the mountpoint as they do below the source. What one mount has read from the source it keeps in
//! memory (`cache.rs`), in runs of 128 KiB, and offers to the other mounts of the same source (`peers/`), which take it from there: a
//! file server's files are read from its disk once for all (gms-1995, section 3.1, case 4: shared pages, duplicates and singlets).
//!
//! A page is named by its file's *version* (`stat.rs`): a hash of the source's name and the file's inode number, size and times. A changed
//! file is another version, with pages of other names, so nothing that is cached anywhere can be wrong for it, only of no use.
//! `docs/mount.md` says what is promised.
//!
//! The kernel's questions come to several threads (`fs/`); each answers one at a time, and reads by `reader.rs`.
#![forbid(unsafe_code)]

mod cache;
mod config;
mod error;
mod figures;
mod fs;
mod inodes;
mod mountinfo;
mod open;
mod peers;
mod reader;
mod run;
mod session;
mod source;
mod stat;

pub use config::MountConfig;
pub use error::MountError;
pub use session::{Mounted, mount, unmount};
