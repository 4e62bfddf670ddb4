//! The bytes of frames as types without alignment, so that they can be borrowed from any place of a buffer.

use crate::cluster::{ClusterBody, ClusterFigures, NodeEntry, ViewEntry, ViewFigures};
use crate::limits::*;
use crate::mount::{ExtentRef, ExtentRuns, FileVersion, Holders, MountHelloBody, MountWelcomeBody};
use crate::mounts::MountAt;
use crate::regions::{RegionCallBody, RegionEntry, RegionFigures, RegionRefusedBody, RegionSpan};
use crate::reservation::{Reservation, ReserveBody};
use loam_core::ids::{ContentHash, PutClass, Urgency, Version};
use loam_core::units::BASE_PAGE_BYTES;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `LOAM` as its bytes lie on the wire.
pub(crate) const MAGIC: [u8; 4] = *b"LOAM";
/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = size_of::<Header>();
pub(crate) const PAGE_META_BYTES: usize = size_of::<PageMeta>();

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 4],
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Entries behind the fixed part of the body.
    pub(crate) count: U16,
    /// Bytes behind the header.
    pub(crate) body_bytes: U32,
    /// Over the header with this field zero, and the body without the payload.
    pub(crate) crc: U32,
    pub(crate) request: U64,
}
const _: () = assert!(HEADER_BYTES == 24 && PAGE_META_BYTES == 32);

pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WELCOME: u8 = 2;
    pub(crate) const GETPAGE: u8 = 3;
    pub(crate) const PAGE: u8 = 4;
    pub(crate) const MISS: u8 = 5;
    pub(crate) const PUTPAGE: u8 = 6;
    pub(crate) const ACK: u8 = 7;
    pub(crate) const DROP: u8 = 8;
    pub(crate) const BYE: u8 = 9;
    pub(crate) const ERROR: u8 = 10;
    pub(crate) const PING: u8 = 11;
    pub(crate) const PONG: u8 = 12;
    pub(crate) const STATUS_REQUEST: u8 = 13;
    pub(crate) const STATUS: u8 = 14;
    pub(crate) const CLUSTER: u8 = 15;
    pub(crate) const VIEW_REQUEST: u8 = 16;
    pub(crate) const VIEW: u8 = 17;
    pub(crate) const RECALL: u8 = 20;
    pub(crate) const MEMORY_REQUEST: u8 = 21;
    pub(crate) const MEMORY: u8 = 22;
    // Between mounts of one source: from 32 on.
    pub(crate) const MOUNT_HELLO: u8 = 32;
    pub(crate) const MOUNT_WELCOME: u8 = 33;
    pub(crate) const SHARED_GETPAGE: u8 = 34;
    pub(crate) const LOCATE: u8 = 35;
    pub(crate) const LOCATED: u8 = 36;
    pub(crate) const REGISTER: u8 = 37;
    pub(crate) const UNREGISTER: u8 = 38;
    pub(crate) const LAST_COPY: u8 = 39;
    pub(crate) const HURRY: u8 = 28;
    pub(crate) const STORE: u8 = 29;
    pub(crate) const STORED: u8 = 30;
    pub(crate) const SPARE: u8 = 31;
    pub(crate) const GONE: u8 = 23;
    pub(crate) const LOCAL: u8 = 24;
    pub(crate) const MOUNT_HERE: u8 = 25;
    pub(crate) const MOUNTS_REQUEST: u8 = 26;
    pub(crate) const MOUNTS: u8 = 27;
    pub(crate) const NODES_REQUEST: u8 = 18;
    pub(crate) const NODES: u8 = 19;
    // Reservations.
    pub(crate) const RESERVE: u8 = 40;
    pub(crate) const RESERVED: u8 = 41;
    // Between programs and the node of their machine: direct regions.
    pub(crate) const REGION_CALL: u8 = 48;
    pub(crate) const REGION: u8 = 49;
    pub(crate) const REGIONS: u8 = 50;
    pub(crate) const REGION_REFUSED: u8 = 51;
}

/// What a body of one kind is made of: a fixed part, entries, and a payload for each entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) fixed_bytes: usize,
    pub(crate) entry_bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) count_min: usize,
    pub(crate) count_max: usize,
}

impl Shape {
    const fn new(fixed_bytes: usize, entry_bytes: usize, count_min: usize, count_max: usize) -> Self {
        Self { fixed_bytes, entry_bytes, payload_bytes: 0, count_min, count_max }
    }

    const fn pages(count_max: usize) -> Self {
        let payload_bytes = BASE_PAGE_BYTES;
        Self { fixed_bytes: 0, entry_bytes: PAGE_META_BYTES, payload_bytes, count_min: 1, count_max }
    }

    /// The one table of kinds; `None` for those that this version does not have.
    pub(crate) const fn of(kind: u8) -> Option<Self> {
        Some(match kind {
            kind::HELLO => Self::new(size_of::<HelloBody>(), 1, 0, NAME_BYTES_MAX),
            kind::WELCOME => Self::new(size_of::<WelcomeBody>(), 0, 0, 0),
            kind::GETPAGE | kind::HURRY | kind::MISS => {
                Self::new(0, size_of::<PageRef>(), 1, REQUEST_PAGES_MAX)
            }
            kind::PAGE => Self::pages(PAGE_FRAME_PAGES_MAX),
            kind::PUTPAGE => Self::pages(REQUEST_PAGES_MAX),
            kind::ACK => Self::new(size_of::<AckBody>(), size_of::<PageAck>(), 1, REQUEST_PAGES_MAX),
            kind::DROP => Self::new(0, size_of::<PageRef>(), 1, DROP_PAGES_MAX),
            kind::ERROR => Self::new(size_of::<ErrorBody>(), 1, 0, ERROR_TEXT_BYTES_MAX),
            kind::BYE | kind::PING | kind::PONG => Self::new(0, 0, 0, 0),
            kind::STATUS_REQUEST | kind::VIEW_REQUEST | kind::NODES_REQUEST | kind::MEMORY_REQUEST => {
                Self::new(0, 0, 0, 0)
            }
            kind::STATUS => {
                Self::new(size_of::<StatusFigures>(), size_of::<BorrowerEntry>(), 0, STATUS_BORROWERS_MAX)
            }
            kind::CLUSTER => Self::new(size_of::<ClusterBody>(), 1, 1, CLUSTER_BYTES_MAX),
            kind::VIEW => Self::new(size_of::<ViewFigures>(), size_of::<ViewEntry>(), 0, VIEW_NODES_MAX),
            kind::RECALL => Self::new(size_of::<RecallBody>(), size_of::<PageRef>(), 0, RECALL_PAGES_MAX),
            kind::GONE => Self::new(size_of::<AckBody>(), size_of::<PageRef>(), 1, GONE_PAGES_MAX),
            kind::STORE => Self::new(size_of::<StoreBody>(), 1, 0, ZONE_BYTES_MAX),
            kind::STORED => Self::new(size_of::<AckBody>(), size_of::<PageRef>(), 1, STORED_PAGES_MAX),
            kind::SPARE => Self::new(0, size_of::<PageRef>(), 1, SPARE_PAGES_MAX),
            kind::LOCAL => Self::new(size_of::<LocalBody>(), 0, 0, 0),
            kind::MOUNT_HERE => Self::new(size_of::<MountAt>(), 0, 0, 0),
            kind::MOUNTS_REQUEST => Self::new(size_of::<GroupBody>(), 0, 0, 0),
            kind::MOUNTS => Self::new(0, size_of::<MountAt>(), 0, MOUNTS_MAX),
            kind::MEMORY => Self::new(size_of::<MemoryFigures>(), 1, 0, REASON_BYTES_MAX),
            kind::MOUNT_HELLO => Self::new(size_of::<MountHelloBody>(), 1, 0, NAME_BYTES_MAX),
            kind::MOUNT_WELCOME => Self::new(size_of::<MountWelcomeBody>(), 0, 0, 0),
            kind::SHARED_GETPAGE => {
                Self::new(size_of::<FileVersion>(), size_of::<PageRef>(), 1, REQUEST_PAGES_MAX)
            }
            kind::LOCATE => Self::new(0, size_of::<ExtentRef>(), 1, LOCATE_EXTENTS_MAX),
            kind::LOCATED => Self::new(0, size_of::<Holders>(), 1, LOCATE_EXTENTS_MAX),
            kind::REGISTER | kind::UNREGISTER | kind::LAST_COPY => {
                Self::new(0, size_of::<ExtentRuns>(), 1, REGISTER_EXTENTS_MAX)
            }
            kind::NODES => Self::new(size_of::<ClusterFigures>(), size_of::<NodeEntry>(), 0, VIEW_NODES_MAX),
            kind::RESERVE => Self::new(size_of::<ReserveBody>(), 0, 0, 0),
            kind::RESERVED => Self::new(size_of::<Reservation>(), 0, 0, 0),
            kind::REGION_CALL => {
                Self::new(size_of::<RegionCallBody>(), 1, 0, NAME_BYTES_MAX + REGION_DEVICE_BYTES_MAX)
            }
            kind::REGION => Self::new(size_of::<RegionEntry>(), size_of::<RegionSpan>(), 0, REGION_SPANS_MAX),
            kind::REGIONS => Self::new(size_of::<RegionFigures>(), size_of::<RegionEntry>(), 0, REGIONS_MAX),
            kind::REGION_REFUSED => Self::new(size_of::<RegionRefusedBody>(), 1, 0, ERROR_TEXT_BYTES_MAX),
            _ => return None,
        })
    }

    /// Bytes that the crc covers behind the header.
    pub(crate) const fn proved_bytes(self, count: usize) -> usize {
        self.fixed_bytes + self.entry_bytes * count
    }

    pub(crate) const fn body_bytes(self, count: usize) -> usize {
        self.proved_bytes(count) + self.payload_bytes * count
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HelloBody {
    pub(crate) features: U64,
    pub(crate) space: U64,
    pub(crate) version: U16,
    pub(crate) reserved: [u8; 2],
    pub(crate) returns: U32,
}

/// What a lender says of itself when a client has said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WelcomeBody {
    pub(crate) features: U64,
    pub(crate) instance: U64,
    pub(crate) capacity_bytes: U64,
    pub(crate) free_bytes: U64,
    pub(crate) version: U16,
    pub(crate) reserved: [u8; 6],
}

/// One base page by name: its index in the connection's space, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageRef {
    index: U64,
    version: U32,
    /// In a getpage: 0 a thread waits for it, else it is behind. Reserved otherwise.
    class: u8,
    reserved: u8,
    /// In a getpage: the message of the fetch plan. Reserved otherwise.
    message: U16,
}

impl PageRef {
    /// Names a page.
    pub fn new(index: u64, version: Version) -> Self {
        Self::planned(index, version, Urgency::Waited, 0)
    }
    /// Names a page of a fetch plan in a getpage: who waits for it, and in which message of the plan it travels.
    pub fn planned(index: u64, version: Version, urgency: Urgency, message: u16) -> Self {
        let class = match urgency {
            Urgency::Waited => 0,
            Urgency::Behind => 1,
        };
        Self { index: index.into(), version: version.0.into(), class, reserved: 0, message: message.into() }
    }
    /// In a getpage: whether a thread waits for it.
    pub fn urgency(&self) -> Urgency {
        if self.class == 0 { Urgency::Waited } else { Urgency::Behind }
    }
    /// In a getpage: pages of two messages do not travel in one frame.
    pub fn message(&self) -> u16 {
        self.message.get()
    }
    /// Which page of the space.
    pub fn index(&self) -> u64 {
        self.index.get()
    }
    /// Which contents.
    pub fn version(&self) -> Version {
        Version(self.version.get())
    }
}

/// One base page by name, with the hash of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageMeta {
    index: U64,
    version: U32,
    /// In a putpage between two that have [`crate::feature::STAGING`]: 0 ordinary, 1 staged, 2 mirror. Reserved otherwise.
    class: u8,
    reserved: [u8; 3],
    hash: U128,
}

impl PageMeta {
    /// Describes a page.
    pub fn new(index: u64, version: Version, hash: ContentHash) -> Self {
        Self::classed(index, version, hash, PutClass::Ordinary)
    }
    /// Describes a page of a putpage, and what the lender is to do with it. Anything but [`PutClass::Ordinary`] only to a
    /// lender that has [`crate::feature::STAGING`].
    pub fn classed(index: u64, version: Version, hash: ContentHash, class: PutClass) -> Self {
        let class = match class {
            PutClass::Ordinary => 0,
            PutClass::Staged => 1,
            PutClass::Mirror => 2,
        };
        Self { index: index.into(), version: version.0.into(), class, reserved: [0; 3], hash: hash.0.into() }
    }
    /// In a putpage: what the lender is to do with it.
    ///
    /// # Panics
    /// Never on one of a putpage that came from [`crate::decode()`], which refuses other values.
    pub fn class(&self) -> PutClass {
        self.class_checked().expect("the decoder has seen to it")
    }
    pub(crate) fn class_checked(&self) -> Option<PutClass> {
        match self.class {
            0 => Some(PutClass::Ordinary),
            1 => Some(PutClass::Staged),
            2 => Some(PutClass::Mirror),
            _ => None,
        }
    }
    /// Which page of the space.
    pub fn index(&self) -> u64 {
        self.index.get()
    }
    /// Which contents.
    pub fn version(&self) -> Version {
        Version(self.version.get())
    }
    /// What [`crate::page_hash`] of the contents must be.
    pub fn hash(&self) -> ContentHash {
        ContentHash(self.hash.get())
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct AckBody {
    pub(crate) free_bytes: U64,
}

/// What became of one page of a putpage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutStatus {
    /// The lender has it.
    Stored,
    /// The lender is full. It does not have older contents of the page either.
    NoRoom,
    /// The contents are not what their hash says: nothing was changed.
    BadHash,
}

/// The answer to one page of a putpage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageAck {
    index: U64,
    version: U32,
    status: U32,
}

impl PageAck {
    /// Answers for a page.
    pub fn new(index: u64, version: Version, status: PutStatus) -> Self {
        let status: u32 = match status {
            PutStatus::Stored => 0,
            PutStatus::NoRoom => 1,
            PutStatus::BadHash => 2,
        };
        Self { index: index.into(), version: version.0.into(), status: status.into() }
    }
    /// Which page of the space.
    pub fn index(&self) -> u64 {
        self.index.get()
    }
    /// Which contents.
    pub fn version(&self) -> Version {
        Version(self.version.get())
    }
    /// What became of it.
    ///
    /// # Panics
    /// Never on one that came from [`crate::decode()`], which refuses other values.
    pub fn status(&self) -> PutStatus {
        self.status_checked().expect("the decoder has seen to it")
    }
    pub(crate) fn status_checked(&self) -> Option<PutStatus> {
        match self.status.get() {
            0 => Some(PutStatus::Stored),
            1 => Some(PutStatus::NoRoom),
            2 => Some(PutStatus::BadHash),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ErrorBody {
    pub(crate) code: U16,
    pub(crate) reserved: [u8; 2],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RecallBody {
    pub(crate) free_bytes: U64,
    pub(crate) within_ms: U32,
    pub(crate) reserved: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StoreBody {
    pub(crate) store_bytes: U64,
    pub(crate) store_free_bytes: U64,
    pub(crate) reserved: [u8; 8],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LocalBody {
    pub(crate) pages: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupBody {
    pub(crate) group: U64,
}

/// Fields that are all numbers of eight bytes.
macro_rules! figures {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: U64,)*
        }
    };
}

pub(crate) use figures;

figures! {
    /// A lender's figures; each is a little-endian `U64`.
    StatusFigures {
        /// Random, new with each start of the lender.
        instance,
        /// Room in all.
        capacity_bytes,
        /// Pages that are stored, in bytes.
        used_bytes,
        /// Room that can be used at once.
        free_bytes,
        /// Base pages stored.
        pages,
        /// Base pages asked for since the start.
        gets,
        /// Base pages stored since the start.
        puts,
        /// Base pages asked for that were not there.
        misses,
        /// Seconds since the start.
        uptime_s,
        /// Borrowers, also those that the list leaves out.
        borrowers,
        /// Open connections.
        connections,
    }
}

figures! {
    /// How much a lender lends now, and what it gave back; each is a little-endian `U64`.
    MemoryFigures {
        /// What it was told to lend at most.
        capacity_bytes,
        /// What it lends at most now.
        limit_bytes,
        /// What it keeps free for its own machine.
        reserve_bytes,
        /// What its machine has available now, or its control group if that is less.
        available_bytes,
        /// Memory that its slab takes.
        slab_bytes,
        /// Base pages dropped because their memory was wanted, since the start.
        dropped,
        /// Base pages that borrowers took home because they were asked to, since the start.
        recalled,
        /// Base pages above the limit that borrowers did not take home.
        kept,
    }
}

/// One borrower of a lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BorrowerEntry {
    number: U64,
    pages: U64,
    connections: U32,
    name_bytes: U32,
    name: [u8; NAME_BYTES_MAX],
}

impl BorrowerEntry {
    /// Describes a borrower; a name that is too long is cut.
    pub fn new(number: u64, pages: u64, connections: u32, name: &str) -> Self {
        let name = crate::encode::cut(name, NAME_BYTES_MAX);
        let mut field = [0; NAME_BYTES_MAX];
        field[..name.len()].copy_from_slice(name.as_bytes());
        Self {
            number: number.into(),
            pages: pages.into(),
            connections: connections.into(),
            name_bytes: (name.len() as u32).into(),
            name: field,
        }
    }
    /// Tells it from the others of one answer. (Not its space, which is a secret.)
    pub fn number(&self) -> u64 {
        self.number.get()
    }
    /// Base pages held for it.
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }
    /// Open connections; 0 while its pages wait for it to come back.
    pub fn connections(&self) -> u32 {
        self.connections.get()
    }
    /// The name that it gave.
    pub fn name(&self) -> &str {
        self.name_checked().unwrap_or_default()
    }
    pub(crate) fn name_checked(&self) -> Option<&str> {
        crate::decode::printable(self.name.get(..self.name_bytes.get() as usize)?)
    }
}

impl WelcomeBody {
    /// Version of the protocol that the lender speaks.
    pub fn version(&self) -> u16 {
        self.version.get()
    }
    /// Feature bits that both sides have.
    pub fn features(&self) -> u64 {
        self.features.get()
    }
    /// Random, new with each start of the lender: another one means that the pages put before are gone.
    pub fn instance(&self) -> u64 {
        self.instance.get()
    }
    /// Room in all.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.get()
    }
    /// Room that can be used at once.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.get()
    }
}
