//! The disk store of a lender: where staged pages go when they leave its memory (nwcache-1999: the disk behind the ring).
//!
//! One preallocated file of *slots*, each a header and a page. A page is written to any free slots, so a group of 32 that
//! left a borrower one after the other becomes one write wherever the disk has 32 slots side by side; the paper's
//! groups of 32 consecutive pages come from there (section 3.1). Nothing is overwritten that anybody was promised: the slot of an older
//! version is free only when the newer one is durable.
//!
//! ```text
//! write ──► slots taken ──► written by the kernel ──► fdatasync, one at a time ──► Durable ──► older slots free
//! ```
//!
//! *Durable* means: the write had ended when an fdatasync began that has ended. What the store says of a slot is proved by the
//! slot: its header names the page, and a CRC and the page's hash make it whole. Anything else is an error, never bytes.
//!
//! Nothing here waits, except [`DiskStore::open`]. How it survives what: docs/disk-store.md.

mod commit;
mod device;
mod error;
mod file;
mod free_slots;
mod layout;
mod read;
mod records;
mod recover;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub use device::FileDevice;
pub use error::{DiskStoreError, Fault, ReadRefused, Refused};

use commit::Commit;
pub(crate) use device::Device;
use file::StoreFile;
use free_slots::{FreeSlots, SlotRun};
use layout::{GROUP_SLOTS, Geometry};
use loam_core::ids::{ContentHash, PageId, SpaceId, Version};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_disk::{Buffer, Choice, Finished, Owned};
use records::{Records, State};
use recover::Found;
use rustix::fd::BorrowedFd;
use std::collections::BTreeMap;
use std::path::Path;

/// Pages of one write at most.
pub const WRITE_PAGES_MAX: usize = GROUP_SLOTS as usize;
/// Operations of writes that may be under way: 32 pages each, or fewer where the store is in pieces.
const WRITES_MAX: usize = 64;
/// Pages that are not durable (64 MiB): a sync that writes keep coming in front of may take as long as they do.
const UNSYNCED_PAGES_MAX: usize = 16 * 1024;
/// Reads that may be under way.
const READS_MAX: usize = 64;
/// Slots of spaces that have gone are freed so many at a time: some hundred microseconds, in which a read may wait.
const FREED_AT_ONCE: usize = 4096;
/// Operations of any kind: also a table of spaces and a sync.
const OPERATIONS_MAX: usize = WRITES_MAX + READS_MAX + 2;
/// A space may have more than its equal share of the slots while more than this part of all is free: what a newcomer finds.
const RESERVE_SHARE: u32 = 8;

/// A page to be written: index, version, the hash of its contents, contents.
pub type PageIn<'a> = (u64, Version, ContentHash, &'a [u8; BASE_PAGE_BYTES]);

/// A page that was found when the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPage {
    /// Whose.
    pub space: SpaceId,
    /// Which.
    pub index: u64,
    /// Its newest version that is whole.
    pub version: Version,
    /// Of its contents, which were read and agree.
    pub hash: ContentHash,
}

/// A write that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteToken(u64);

/// A read that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(u64);

/// What has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// All pages of the write survive the loss of power.
    Durable {
        /// Which write.
        token: WriteToken,
    },
    /// None of its pages is in the store; older versions are as before.
    Failed {
        /// Which write.
        token: WriteToken,
        /// Why.
        error: Fault,
    },
    /// A page, whole and of the version that was asked for.
    Read {
        /// Which read.
        token: ReadToken,
        /// Its contents.
        page: Box<[u8; BASE_PAGE_BYTES]>,
        /// Their hash, by which they were proved.
        hash: ContentHash,
    },
    /// No page.
    ReadFailed {
        /// Which read.
        token: ReadToken,
        /// Why.
        error: Fault,
    },
}

/// What the store has done since it was opened, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Write operations that ended well, tables of spaces apart.
    pub writes: u64,
    /// Pages in them.
    pub pages_written: u64,
    /// Bytes in them, headers too.
    pub bytes_written: u64,
    /// Pages read and found whole.
    pub reads: u64,
    /// Bytes read, headers and recovery too.
    pub bytes_read: u64,
    /// fdatasync calls that ended well.
    pub syncs: u64,
    /// Operations that the disk failed.
    pub errors: u64,
    /// Pages that were not what was written.
    pub corrupt: u64,
    /// Pages in the store, also those that are being written.
    pub pages: u64,
    /// Slots there are.
    pub slots: u64,
    /// Slots that are free.
    pub slots_free: u64,
    /// Slots where the disk failed: not used again before the next start.
    pub slots_retired: u64,
    /// Spaces with pages.
    pub spaces: u64,
}

/// See the module. For one thread. Dropped, it waits for what the kernel has begun; what is not durable by then may be there at the next
/// start, or not.
pub struct DiskStore<D = FileDevice> {
    device: D,
    geometry: Geometry,
    records: Records,
    free: FreeSlots,
    next_sequence: u64,
    next_token: u64,
    /// What the kernel has, by tag.
    operations: BTreeMap<u64, Operation>,
    writes_under_way: usize,
    reads_under_way: usize,
    commit: Commit,
    /// Why nothing is taken any more.
    broken: Option<String>,
    notes: Vec<String>,
    figures: DiskFigures,
    write_buffers: Vec<Buffer>,
    read_buffers: Vec<Buffer>,
    finished: Vec<Finished>,
    freed: Vec<u32>,
    freed_at_once: usize,
    completions: Vec<Completion>,
}

/// What a tag stands for.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Write { token: u64, run: SlotRun },
    Read { token: u64, slot: u32, page: PageId, version: Version },
    Table,
    Sync,
}

impl DiskStore<FileDevice> {
    /// Opens the store in `dir`, or makes one of `size`: the whole file, whose space is reserved. A store that is there already is
    /// read from end to end (docs/disk-store.md says how long that takes), and its pages are the second answer, in the order of
    /// their spaces and indexes: whoever they belong to, they stay until they are forgotten.
    ///
    /// # Errors
    /// [`DiskStoreError`], one line each.
    pub fn open(dir: &Path, size: Bytes) -> Result<(Self, Vec<StoredPage>), DiskStoreError> {
        Self::open_as(dir, size, true, Choice::Best)
    }

    fn open_as(
        dir: &Path,
        size: Bytes,
        direct: bool,
        choice: Choice,
    ) -> Result<(Self, Vec<StoredPage>), DiskStoreError> {
        let mut file = StoreFile::open(dir, size, direct)?;
        let block_bytes = file.geometry.header_bytes as usize;
        let owned = Owned::new(&file.fd, block_bytes, OPERATIONS_MAX, choice)?;
        let mut device = FileDevice::new(owned, file.fd.clone());
        let found = recover::recover(&mut device, &file.geometry).map_err(|lost| lost.at(&file.path))?;
        if file.wanted_slots < file.geometry.slots {
            let beyond = found.pages.values().filter(|kept| kept.slot >= file.wanted_slots).count() as u64;
            if beyond > 0 {
                let (wanted, now) = (size, Bytes(file.geometry.file_bytes()));
                return Err(DiskStoreError::Shrink { path: file.path, pages: beyond, wanted, now });
            }
            file.cut()?;
        }
        let notes = notes(&file, device.is_ring());
        let (mut store, pages) = Self::with(device, file.geometry, found);
        store.notes = notes;
        Ok((store, pages))
    }
}

/// What a person should know about how the store works here; empty where everything is as it should be.
fn notes(file: &StoreFile, is_ring: bool) -> Vec<String> {
    let dir = file.dir.display();
    let mut notes = Vec::new();
    if !file.direct {
        notes.push(format!(
            "disk store in {dir}: no O_DIRECT here, so the page cache keeps a second copy: another --store DIR is better"
        ));
    }
    if !file.reserves {
        notes.push(format!(
            "disk store in {dir}: space cannot be reserved here: if the disk fills up, pages stay in memory"
        ));
    }
    if !is_ring {
        notes
            .push("disk store: io_uring is not permitted here: threads are used, which is slower".to_owned());
    }
    notes
}

// `Device` is how tests put another disk under the store; nobody outside can.
#[expect(private_bounds)]
impl<D: Device> DiskStore<D> {
    fn with(device: D, geometry: Geometry, found: Found) -> (Self, Vec<StoredPage>) {
        let mut records = Records::new(geometry.slots);
        let mut pages = Vec::with_capacity(found.pages.len());
        let since: BTreeMap<SpaceId, u64> = found.table.spaces.iter().copied().collect();
        for (&page, kept) in &found.pages {
            if !records.has_space(page.space) {
                records.add_space(page.space, since[&page.space]);
            }
            records.put(kept.slot, page, kept.version, State::Durable);
            let PageId { space, index } = page;
            pages.push(StoredPage { space, index, version: kept.version, hash: kept.hash });
        }
        for &slot in found.unreadable.iter().filter(|&&slot| slot < geometry.slots) {
            records.retire(slot);
        }
        let free = FreeSlots::new(geometry.slots, |slot| records.state(slot) == State::Free);
        // Spaces without a page need no place in the table.
        let commit = Commit::new(found.table.generation, records.spaces().len() < since.len());
        let figures = DiskFigures {
            bytes_read: found.bytes_read,
            errors: found.unreadable.len() as u64,
            corrupt: found.torn,
            ..DiskFigures::default()
        };
        let store = Self {
            device,
            geometry,
            records,
            free,
            next_sequence: found.next_sequence,
            next_token: 1,
            operations: BTreeMap::new(),
            writes_under_way: 0,
            reads_under_way: 0,
            commit,
            broken: None,
            notes: Vec::new(),
            figures,
            write_buffers: Vec::new(),
            read_buffers: Vec::new(),
            finished: Vec::new(),
            freed: Vec::new(),
            freed_at_once: FREED_AT_ONCE,
            completions: Vec::new(),
        };
        (store, pages)
    }

    /// Readable when something may have ended; for epoll.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.device.event_fd()
    }

    /// What a person should know about how the store works here; empty where everything is as it should be.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why the store takes nothing more, as one line: an fdatasync failed, or write after write; it still reads,
    /// unless it [is dead](DiskStore::is_dead).
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The queue to the disk itself failed: what was under way has ended as failed, nothing is written or read any more, and
    /// [`event_fd`](DiskStore::event_fd) tells of nothing.
    pub fn is_dead(&self) -> bool {
        self.commit.is_dead()
    }

    /// Figures since it was opened, and what there is.
    pub fn figures(&self) -> DiskFigures {
        DiskFigures {
            pages: self.records.pages(),
            slots: u64::from(self.geometry.slots),
            slots_free: u64::from(self.free.count()),
            slots_retired: u64::from(self.records.retired()),
            spaces: u64::from(self.records.active_spaces()),
            ..self.figures
        }
    }

    /// New pages of this space that would be taken now: up to its equal share of the slots, and beyond it while more than an eighth
    /// of all is free. A newer version of a page that is here needs no room of its own.
    pub fn room(&self, space: SpaceId) -> u32 {
        let usable = self.geometry.slots - self.records.retired();
        let used = self.records.slots_of(space);
        let sharers = self.records.active_spaces() + u32::from(used == 0);
        let share = usable / sharers;
        let free = self.free.count();
        let beyond = free.saturating_sub(usable / RESERVE_SHARE);
        free.min(share.saturating_sub(used).max(beyond))
    }

    /// Lets this version of a page go, and older ones; their slots are free at once, or when their write is over. Answers whether
    /// there were any. After a crash they may be found again: the borrower's record decides.
    pub fn forget(&mut self, space: SpaceId, index: u64, version: Version) -> bool {
        let known = self.records.forget(PageId { space, index }, version, &mut self.freed);
        self.release_freed();
        known
    }

    /// Lets everything of a space go. Its slots are free at once, of a large space some of them, and the others by and by
    /// ([`is_freeing`](DiskStore::is_freeing)). That it has gone is made durable with the next sync: afterwards no crash brings anything of it back. Answers
    /// whether it was known.
    pub fn forget_space(&mut self, space: SpaceId) -> bool {
        let known = self.records.forget_space(space, self.commit.slots(), &mut self.freed);
        if known {
            self.free_gone();
            self.commit.table_changed();
            self.advance();
        }
        known
    }

    /// Slots of a space that has gone are still to be freed: each [`poll`](DiskStore::poll) frees some, and is to be called though nothing tells of it.
    pub fn is_freeing(&self) -> bool {
        self.records.has_gone()
    }

    fn free_gone(&mut self) {
        self.records.free_gone(self.freed_at_once, &mut self.freed);
        self.release_freed();
    }

    fn release_freed(&mut self) {
        for slot in self.freed.drain(..) {
            self.free.release(SlotRun { first: slot, slots: 1 });
        }
    }

    /// What has ended since the last call. To be called when [`event_fd`](DiskStore::event_fd) is readable; it also hands to the kernel what
    /// follows (a sync after writes).
    pub fn poll(&mut self) -> std::vec::Drain<'_, Completion> {
        self.take_finished();
        self.free_gone();
        self.advance();
        self.completions.drain(..)
    }

    /// Whether nothing is under way: what was written is durable, or failed, and what was forgotten is, and its slots are free.
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.commit.is_idle() && !self.is_freeing()
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        let tag = self.next_token();
        assert!(self.operations.insert(tag, operation).is_none(), "a tag was given twice");
        tag
    }

    fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}
