//! Listing directories. Positions are the source's own, so a listing that goes on where it stopped, or back to where it was, means there
//! what it means here, and nothing of a large directory is kept.

use crate::inodes::Inodes;
use crate::source::{Place, stat_in};
use crate::stat::kind_of;
use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Gives entries to `give` until it is full.
    fn each(&self, offset: u64, mut give: impl FnMut(&DirEntry) -> bool) -> Result<(), Errno> {
        let mut listing = self.at(offset)?;
        loop {
            self.read_on(&mut listing)?;
            let Some(entry) = listing.ahead.front() else { return Ok(()) };
            if give(entry) {
                return Ok(());
            }
            listing.position = entry.next;
            listing.ahead.pop_front();
        }
    }

    /// Names, numbers and types.
    pub(super) fn list(&self, offset: u64, reply: &mut ReplyDirectory) -> Result<(), Errno> {
        self.each(offset, |entry| reply.add(INodeNo(entry.ino), entry.next, kind_of(entry.kind), &entry.name))
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
            // Gone since it was listed: as if the listing had come later.
            let Ok(stat) = stat_in(&self.dir, &entry.name) else { return false };
            if entry.name == "." || entry.name == ".." {
                // The kernel takes neither attributes nor a count for these two.
                let attr = stat.attr(stat.ino);
                return reply.add(attr.ino, entry.next, &entry.name, &super::KEPT, &attr, Generation(0));
            }
            let node = inodes.found(place, &entry.name, &stat, device);
            let (attr, generation) = {
                let state = node.state();
                (state.stat.attr(node.id), Generation(state.generation))
            };
            let full = reply.add(attr.ino, entry.next, &entry.name, &super::KEPT, &attr, generation);
            if full {
                inodes.forget(node.id, 1);
            }
            full
        })
    }
}
