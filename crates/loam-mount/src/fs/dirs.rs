//! Listing directories. Positions are the source's own, so a listing that goes on where it stopped, or back to where it was, means there
//! what it means here, and nothing of a large directory is kept.

use crate::inodes::Inodes;
use crate::source::{Place, is_away, stat_in};
use crate::stat::{Stat, kind_of};
use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Entries are read from the source in pieces of this size.
const PIECE_BYTES: usize = 32 << 10;

#[derive(Debug)]
struct DirEntry {
    ino: u64,
    kind: FileType,
    name: OsString,
    /// The position behind it.
    next: u64,
}

/// What became of an entry that was to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Yes,
    /// It was, and no further one is to be now.
    AsLast,
    /// It has gone since it was listed: as if the listing had come later.
    Gone,
    /// There is no room for it.
    Full,
}

#[derive(Debug)]
struct Listing {
    /// Entries that were read and not yet given, beginning at `position`.
    ahead: VecDeque<DirEntry>,
    position: u64,
    end: bool,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct OpenDir {
    dir: OwnedFd,
    listing: Mutex<Listing>,
}

impl OpenDir {
    pub(super) fn new(dir: OwnedFd) -> Self {
        let listing = Listing { ahead: VecDeque::new(), position: 0, end: false };
        Self { dir, listing: Mutex::new(listing) }
    }

    /// The listing from `offset` on.
    fn at(&self, offset: u64) -> Result<MutexGuard<'_, Listing>, Errno> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if listing.position != offset || offset == 0 {
            rustix::fs::seek(&self.dir, SeekFrom::Start(offset))?;
            *listing = Listing { ahead: VecDeque::new(), position: offset, end: false };
        }
        Ok(listing)
    }

    fn read_on(&self, listing: &mut Listing) -> Result<(), Errno> {
        if !listing.ahead.is_empty() || listing.end {
            return Ok(());
        }
        let mut buffer = [MaybeUninit::uninit(); PIECE_BYTES];
        let mut entries = RawDir::new(&self.dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            listing.ahead.push_back(DirEntry {
                ino: entry.ino(),
                kind: entry.file_type(),
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                next: entry.next_entry_cookie(),
            });
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
        listing.end = true;
        Ok(())
    }

    /// Gives entries to `give` until it takes no more. An error that comes behind some of them is told by the next listing: they are given, and count.
    fn each(&self, offset: u64, mut give: impl FnMut(&DirEntry) -> Given) -> Result<(), Errno> {
        let mut listing = self.at(offset)?;
        let mut any = false;
        loop {
            match self.read_on(&mut listing) {
                Err(_) if any => return Ok(()),
                answer => answer?,
            }
            let Some(entry) = listing.ahead.front() else { return Ok(()) };
            let given = give(entry);
            if given == Given::Full {
                return Ok(());
            }
            listing.position = entry.next;
            listing.ahead.pop_front();
            any |= given != Given::Gone;
            if given == Given::AsLast {
                return Ok(());
            }
        }
    }

    /// Names, numbers and types.
    pub(super) fn list(&self, offset: u64, reply: &mut ReplyDirectory) -> Result<(), Errno> {
        self.each(offset, |entry| {
            let full = reply.add(INodeNo(entry.ino), entry.next, kind_of(entry.kind), &entry.name);
            if full { Given::Full } else { Given::Yes }
        })
    }

    /// Names with attributes, each of which counts as a lookup.
    pub(super) fn list_plus(
        &self,
        offset: u64,
        place: &Arc<Place>,
        device: u64,
        inodes: &Inodes,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Errno> {
        self.each(offset, |entry| {
            let looked = stat_in(&self.dir, &entry.name);
            if looked == Err(Errno::NOENT) {
                return Given::Gone;
            }
            // The name is there, whatever keeps its file from being looked at.
            let stat = looked.clone().unwrap_or_else(|_| Stat::unseen(device, entry.ino, entry.kind));
            if entry.name == "." || entry.name == ".." {
                // The kernel takes neither attributes nor a count for these two.
                let attr = stat.attr(stat.ino);
                let full = reply.add(attr.ino, entry.next, &entry.name, &super::KEPT, &attr, Generation(0));
                return if full { Given::Full } else { Given::Yes };
            }
            let (node, kept) = match looked {
                Ok(_) => (inodes.found(place, &entry.name, &stat, device), super::KEPT),
                // Whoever wants more than the name is to get the source's answer.
                Err(_) => (inodes.listed(place, &entry.name, &stat, device), Duration::ZERO),
            };
            let (attr, generation) = {
                let state = node.state();
                (state.stat.attr(node.id), Generation(state.generation))
            };
            if reply.add(attr.ino, entry.next, &entry.name, &kept, &attr, generation) {
                inodes.forget(node.id, 1);
                return Given::Full;
            }
            // Each further one may take as long to fail.
            if looked.is_err_and(is_away) { Given::AsLast } else { Given::Yes }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_behind_what_was_given_is_told_by_the_next_listing() {
        let path = std::env::temp_dir().join(format!("loam-mount-dirs-{}", std::process::id()));
        std::fs::create_dir(&path).expect("writable");
        // Several pieces of names.
        for at in 0..400 {
            std::fs::write(path.join(format!("{at:0>200}")), "").expect("writable");
        }
        let dir = OpenDir::new(std::fs::File::open(&path).expect("there").into());
        let (mut given, mut behind) = (0, 0);
        let listed = dir.each(0, |entry| {
            if given == 0 {
                // A directory that was removed can be listed no more.
                std::fs::remove_dir_all(&path).expect("ours");
            }
            (given, behind) = (given + 1, entry.next);
            Given::Yes
        });
        assert_eq!(listed, Ok(()));
        assert!((1..400).contains(&given), "{given} of a piece");
        assert_eq!(dir.each(behind, |_| Given::Yes), Err(Errno::NOENT));
    }
}
