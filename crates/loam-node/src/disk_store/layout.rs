//! What stands in the file, byte by byte (drawn in docs/disk-store.md). Numbers are little-endian; every structure carries a
//! CRC-32C over itself, with the CRC's own four bytes as zeros, and the store's random number.

use loam_core::ids::{ContentHash, PageId, SpaceId, Version};
use loam_core::units::BASE_PAGE_BYTES;

/// Pages of one operation at most: the group that nwcache-1999, section 3.1, keeps together on a disk.
pub(super) const GROUP_SLOTS: u32 = 32;
/// The format. Another one is refused.
pub(super) const FORMAT: u32 = 1;

/// Bytes of a superblock; there are two, one after the other.
pub(super) const SUPERBLOCK_BYTES: usize = 4096;
/// Where the two tables of spaces are.
pub(super) const TABLE_OFFSETS_BYTES: [u64; 2] = [64 * 1024, 128 * 1024];
/// Bytes of one.
pub(super) const TABLE_BYTES: usize = 64 * 1024;
/// Where the slots begin.
pub(super) const DATA_OFFSET_BYTES: u64 = 1024 * 1024;
/// Spaces that a table holds.
pub(super) const SPACES_MAX: usize = (TABLE_BYTES - TABLE_HEADER_BYTES) / TABLE_ENTRY_BYTES;

const TABLE_HEADER_BYTES: usize = 64;
const TABLE_ENTRY_BYTES: usize = 16;
const HEADER_BYTES: usize = 64;
const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"LoamDisk");
const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"LoamSpac");
const SLOT_MAGIC: u32 = u32::from_le_bytes(*b"Slot");

/// Where slots are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The random number of this store: what another one has left on the disk is not taken for ours.
    pub(super) store: u64,
    /// Bytes before the page in a slot: what direct I/O is aligned to, so that the page is aligned in memory too.
    pub(super) header_bytes: u32,
    /// Slots.
    pub(super) slots: u32,
}

impl Geometry {
    /// Slots that a file of `file_bytes` has room for.
    pub(super) fn slots_in(file_bytes: u64, header_bytes: u32) -> u32 {
        let stride_bytes = u64::from(header_bytes) + BASE_PAGE_BYTES as u64;
        // The last number means "none".
        let slots =
            (file_bytes.saturating_sub(DATA_OFFSET_BYTES) / stride_bytes).min(u64::from(u32::MAX) - 1);
        slots as u32
    }

    pub(super) fn stride_bytes(&self) -> usize {
        self.header_bytes as usize + BASE_PAGE_BYTES
    }

    pub(super) fn offset_bytes(&self, slot: u32) -> u64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        DATA_OFFSET_BYTES + u64::from(slot) * self.stride_bytes() as u64
    }

    /// Bytes of the whole file.
    pub(super) fn file_bytes(&self) -> u64 {
        DATA_OFFSET_BYTES + u64::from(self.slots) * self.stride_bytes() as u64
    }

    /// Writes the superblock.
    pub(super) fn encode(&self, to: &mut [u8]) {
        let to = &mut to[..SUPERBLOCK_BYTES];
        to.fill(0);
        put(to, 0, &SUPERBLOCK_MAGIC.to_le_bytes());
        put(to, 12, &FORMAT.to_le_bytes());
        put(to, 16, &self.store.to_le_bytes());
        put(to, 24, &self.header_bytes.to_le_bytes());
        put(to, 28, &(self.stride_bytes() as u32).to_le_bytes());
        put(to, 32, &u64::from(self.slots).to_le_bytes());
        put(to, 40, &DATA_OFFSET_BYTES.to_le_bytes());
        seal(to, 8);
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// The format's number, if it is whole but of another format; `None` if it is no superblock.
    pub(super) fn decode(from: &[u8]) -> Result<Self, Option<u32>> {
        let from = &from[..SUPERBLOCK_BYTES];
        if u64_at(from, 0) != SUPERBLOCK_MAGIC || !sealed(from, 8) {
            return Err(None);
        }
        let format = u32_at(from, 12);
        let geometry =
            Self { store: u64_at(from, 16), header_bytes: u32_at(from, 24), slots: u64_at(from, 32) as u32 };
        let whole = geometry.header_bytes.is_power_of_two()
            && (512..=4096).contains(&geometry.header_bytes)
            && u32_at(from, 28) as usize == geometry.stride_bytes()
            && u64_at(from, 32) < u64::from(u32::MAX)
            && u64_at(from, 40) == DATA_OFFSET_BYTES;
        if format != FORMAT || !whole { Err(Some(format)) } else { Ok(geometry) }
    }
}

/// What a slot says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotHeader {
    pub(super) page: PageId,
    pub(super) version: Version,
    /// Grows with every page that the store writes: of two slots for one page the greater is the newer.
    pub(super) sequence: u64,
    pub(super) hash: ContentHash,
}

impl SlotHeader {
    pub(super) fn encode(&self, store: u64, slot: u32, to: &mut [u8]) {
        let to = &mut to[..HEADER_BYTES];
        put(to, 0, &SLOT_MAGIC.to_le_bytes());
        put(to, 8, &store.to_le_bytes());
        put(to, 16, &self.page.space.0.to_le_bytes());
        put(to, 24, &self.page.index.to_le_bytes());
        put(to, 32, &self.sequence.to_le_bytes());
        put(to, 40, &self.version.0.to_le_bytes());
        // A slot that the disk wrote to the wrong place is found out by it.
        put(to, 44, &slot.to_le_bytes());
        put(to, 48, &self.hash.0.to_le_bytes());
        seal(to, 4);
    }

    /// `None` for anything but a whole header of this store and slot.
    pub(super) fn decode(store: u64, slot: u32, from: &[u8]) -> Option<Self> {
        let from = &from[..HEADER_BYTES];
        let whole = u32_at(from, 0) == SLOT_MAGIC
            && u64_at(from, 8) == store
            && u32_at(from, 44) == slot
            && sealed(from, 4);
        whole.then(|| Self {
            page: PageId { space: SpaceId(u64_at(from, 16)), index: u64_at(from, 24) },
            version: Version(u32_at(from, 40)),
            sequence: u64_at(from, 32),
            hash: ContentHash(u128::from_le_bytes(bytes(from, 48))),
        })
    }
}

/// The table of spaces: a slot counts at recovery if its space is in it and the slot was written since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Grows with each write: of the two tables the greater is the newer.
    pub(super) generation: u64,
    /// The next page's sequence when it was written.
    pub(super) next_sequence: u64,
    /// Each space and the sequence of its first page, in the order of spaces.
    pub(super) spaces: Vec<(SpaceId, u64)>,
}

impl Table {
    pub(super) fn encode(&self, store: u64, to: &mut [u8]) {
        assert!(self.spaces.len() <= SPACES_MAX, "more spaces than the table holds");
        let to = &mut to[..TABLE_BYTES];
        to.fill(0);
        put(to, 0, &TABLE_MAGIC.to_le_bytes());
        put(to, 12, &(self.spaces.len() as u32).to_le_bytes());
        put(to, 16, &store.to_le_bytes());
        put(to, 24, &self.generation.to_le_bytes());
        put(to, 32, &self.next_sequence.to_le_bytes());
        let (entries, _) = to[TABLE_HEADER_BYTES..].as_chunks_mut::<TABLE_ENTRY_BYTES>();
        for (entry, (space, since)) in entries.iter_mut().zip(&self.spaces) {
            put(entry, 0, &space.0.to_le_bytes());
            put(entry, 8, &since.to_le_bytes());
        }
        seal(to, 8);
    }

    pub(super) fn decode(store: u64, from: &[u8]) -> Option<Self> {
        let from = &from[..TABLE_BYTES];
        let count = u32_at(from, 12) as usize;
        let whole = u64_at(from, 0) == TABLE_MAGIC
            && u64_at(from, 16) == store
            && count <= SPACES_MAX
            && sealed(from, 8);
        whole.then(|| {
            let (entries, _) = from[TABLE_HEADER_BYTES..].as_chunks::<TABLE_ENTRY_BYTES>();
            let spaces = entries[..count].iter().map(|e| (SpaceId(u64_at(e, 0)), u64_at(e, 8))).collect();
            Self { generation: u64_at(from, 24), next_sequence: u64_at(from, 32), spaces }
        })
    }
}

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: &[u8; N]) {
    to[at..at + N].copy_from_slice(bytes);
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from[at..at + N].try_into().expect("a slice of this length")
}

fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

/// The CRC of everything but the four bytes at `at`, which count as zeros.
fn crc(of: &[u8], at: usize) -> u32 {
    let head = crc32c::crc32c(&of[..at]);
    crc32c::crc32c_append(crc32c::crc32c_append(head, &[0; 4]), &of[at + 4..])
}

fn seal(to: &mut [u8], at: usize) {
    let crc = crc(to, at);
    put(to, at, &crc.to_le_bytes());
}

fn sealed(from: &[u8], at: usize) -> bool {
    u32_at(from, at) == crc(from, at)
}
