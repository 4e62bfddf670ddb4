//! What a store that was closed, killed or cut from power still has.
//!
//! Everything that may be data is read, in groups of 32 slots, and a slot counts if its header *and* its page are whole. Reading the
//! headers alone would cost a disk as much (they are in every second block), and would take a torn newer version for
//! better than a whole older one, which was promised to somebody.

use super::device::Device;
use super::error::DiskStoreError;
use super::layout::{GROUP_SLOTS, Geometry, SlotHeader, TABLE_BYTES, TABLE_OFFSETS_BYTES, Table};
use loam_core::ids::{ContentHash, PageId, SpaceId, Version};
use loam_core::units::BASE_PAGE_BYTES;
use loam_disk::{Buffer, EngineError, Finished};
use loam_wire::page_hash;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Groups that are read at once: enough to keep a disk busy, 2.4 MB.
const READS_AT_ONCE: usize = 16;

/// The newest whole slot of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) slot: u32,
    pub(super) sequence: u64,
    pub(super) version: Version,
    pub(super) hash: ContentHash,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) pages: BTreeMap<PageId, Kept>,
    pub(super) table: Table,
    /// Greater than every sequence that the disk has seen.
    pub(super) next_sequence: u64,
    /// Slots that could not be read.
    pub(super) unreadable: Vec<u32>,
    /// Slots that hold neither zeros nor a whole page.
    pub(super) torn: u64,
    pub(super) bytes_read: u64,
}

/// Why nothing could be found.
#[derive(Debug)]
pub(super) enum Lost {
    Engine(EngineError),
    /// What is there cannot be made durable.
    Sync(Errno),
    /// Neither table of spaces is whole.
    NoTable,
}

impl From<EngineError> for Lost {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Lost {
    pub(super) fn at(self, path: &std::path::Path) -> DiskStoreError {
        match self {
            Self::Engine(error) => DiskStoreError::Engine(error),
            Self::Sync(errno) => DiskStoreError::File { path: path.to_owned(), what: "syncing", errno },
            Self::NoTable => DiskStoreError::NotAStore { path: path.to_owned() },
        }
    }
}

/// Reads the tables and every slot that may hold something.
pub(super) fn recover(device: &mut impl Device, geometry: &Geometry) -> Result<Found, Lost> {
    // What a lender that was killed had written and not synced counts from now on: it must not vanish after this.
    sync(device)?;
    let table = newest_table(device, geometry)?.ok_or(Lost::NoTable)?;
    let since: BTreeMap<SpaceId, u64> = table.spaces.iter().copied().collect();
    let mut found = Found { next_sequence: table.next_sequence, table, ..Found::default() };

    let group_bytes = GROUP_SLOTS as usize * geometry.stride_bytes();
    let mut buffers: Vec<Buffer> = (0..READS_AT_ONCE).map(|_| Buffer::new(group_bytes)).collect();
    // A run of slots is a read's tag: its first, and how many.
    let tag = |first: u32, slots: u32| u64::from(first) << 32 | u64::from(slots);
    let (mut next, mut single) = (Some(0), Vec::new());
    let mut over = Vec::new();
    loop {
        while let Some(buffer) = buffers.pop() {
            let from = single.pop().map(|slot| (slot, 1)).or_else(|| {
                let group = next_group(device, geometry, next?);
                next = group.map(|(first, slots)| first + slots);
                group
            });
            let Some((first, slots)) = from else {
                buffers.push(buffer);
                break;
            };
            let bytes = slots as usize * geometry.stride_bytes();
            device.read(tag(first, slots), geometry.offset_bytes(first), buffer, bytes);
        }
        if buffers.len() == READS_AT_ONCE {
            break;
        }
        device.submit()?;
        device.wait();
        device.finished(&mut over)?;
        for Finished { token, buffer, outcome } in over.drain(..) {
            let (first, slots) = ((token >> 32) as u32, token as u32);
            let buffer = buffer.expect("a read has a buffer");
            match outcome {
                Ok(()) => found.take_in(geometry, &since, first, slots, &buffer),
                // One bad block: the others of the group one by one.
                Err(_) if slots > 1 => single.extend(first..first + slots),
                Err(_) => found.unreadable.push(first),
            }
            buffers.push(buffer);
        }
    }
    Ok(found)
}

/// The next group that may hold data, from `first` on.
fn next_group(device: &impl Device, geometry: &Geometry, first: u32) -> Option<(u32, u32)> {
    if first >= geometry.slots {
        return None;
    }
    let offset_bytes = geometry.offset_bytes(first);
    let data_bytes = device.data_from(offset_bytes)?;
    let skip = data_bytes.saturating_sub(offset_bytes) / geometry.stride_bytes() as u64;
    let slot = u64::from(first) + skip;
    if slot >= u64::from(geometry.slots) {
        return None;
    }
    let first = slot as u32 / GROUP_SLOTS * GROUP_SLOTS;
    Some((first, GROUP_SLOTS.min(geometry.slots - first)))
}

impl Found {
    fn take_in(
        &mut self,
        geometry: &Geometry,
        since: &BTreeMap<SpaceId, u64>,
        first: u32,
        slots: u32,
        bytes: &[u8],
    ) {
        let stride_bytes = geometry.stride_bytes();
        self.bytes_read += (slots as usize * stride_bytes) as u64;
        for (slot, bytes) in (first..first + slots).zip(bytes.chunks_exact(stride_bytes)) {
            let (head, page) = bytes.split_at(stride_bytes - BASE_PAGE_BYTES);
            let Some(header) = SlotHeader::decode(geometry.store, slot, head) else {
                self.torn += u64::from(head.iter().any(|&byte| byte != 0));
                continue;
            };
            // Also of what does not count: no two pages ever have the same.
            self.next_sequence = self.next_sequence.max(header.sequence + 1);
            if since.get(&header.page.space).is_none_or(|&since| header.sequence < since) {
                continue;
            }
            if page_hash(page) != header.hash {
                self.torn += 1;
                continue;
            }
            let SlotHeader { page, version, sequence, hash } = header;
            let kept = Kept { slot, sequence, version, hash };
            let newest = self.pages.entry(page).or_insert(kept);
            if newest.sequence < sequence {
                *newest = kept;
            }
        }
    }
}

fn newest_table(device: &mut impl Device, geometry: &Geometry) -> Result<Option<Table>, EngineError> {
    for (tag, offset_bytes) in TABLE_OFFSETS_BYTES.into_iter().enumerate() {
        device.read(tag as u64, offset_bytes, Buffer::new(TABLE_BYTES), TABLE_BYTES);
    }
    let mut over = Vec::new();
    while over.len() < TABLE_OFFSETS_BYTES.len() {
        device.submit()?;
        device.wait();
        device.finished(&mut over)?;
    }
    let whole = over.iter().filter(|read| read.outcome.is_ok());
    let tables = whole.filter_map(|read| Table::decode(geometry.store, read.buffer.as_ref()?));
    Ok(tables.max_by_key(|table| table.generation))
}

fn sync(device: &mut impl Device) -> Result<(), Lost> {
    device.sync(0);
    let mut over = Vec::new();
    while over.is_empty() {
        device.submit()?;
        device.wait();
        device.finished(&mut over)?;
    }
    over.remove(0).outcome.map_err(Lost::Sync)
}
