//! What mounts of one source say to each other: pages of files by `(file version, index)`, and who has which.
//!
//! A file is cut into *extents* of 256 base pages, and an extent into 8 *runs* of 32. A run is what a mount caches, an extent
//! what it asks the directory about, so that one question goes with one read of the kernel's (1 MiB).
//!
//! Nothing here is believed: a holder may have lost what it is said to have, and pages are proved by the hash that
//! whoever read them from the source has computed.

use crate::PROTOCOL_VERSION;
use crate::encode::{append, tidy};
use crate::layout::{PageRef, kind};
use crate::limits::NAME_BYTES_MAX;
use loam_core::ids::SpaceId;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Base pages of a run.
pub const RUN_PAGES: usize = 32;
/// Runs of an extent.
pub const EXTENT_RUNS: usize = 8;
/// Holders that a located names for an extent.
pub const HOLDERS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
/// Who a mount is.
pub struct MountHelloBody {
    features: U64,
    group: U64,
    node: U64,
    version: U16,
    port: U16,
    reserved: [u8; 4],
}

impl MountHelloBody {
    /// Version of the protocol that it speaks.
    pub fn version(&self) -> u16 {
        self.version.get()
    }
    /// Hash of the source's name: mounts of different sources have nothing to say to each other.
    pub fn group(&self) -> u64 {
        self.group.get()
    }
    /// One life of a mount: random, new with each start.
    pub fn node(&self) -> u64 {
        self.node.get()
    }
    /// Where it listens, on the address that it comes from; 0 if it does not.
    pub fn port(&self) -> u16 {
        self.port.get()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
/// Who the mount is that was called.
pub struct MountWelcomeBody {
    features: U64,
    group: U64,
    node: U64,
    version: U16,
    reserved: [u8; 6],
}

impl MountWelcomeBody {
    /// Version of the protocol that it speaks.
    pub fn version(&self) -> u16 {
        self.version.get()
    }
    /// Hash of the source's name.
    pub fn group(&self) -> u64 {
        self.group.get()
    }
    /// One life of a mount: random, new with each start.
    pub fn node(&self) -> u64 {
        self.node.get()
    }
}

/// One version of one file: 128 bits of its identity's hash. The first half is the space of its pages.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct FileVersion {
    space: U64,
    check: U64,
}

impl FileVersion {
    /// From the hash of what tells a file's version from all others.
    pub fn new(identity_hash: u128) -> Self {
        Self { space: (identity_hash as u64).into(), check: ((identity_hash >> 64) as u64).into() }
    }
    /// The space of its pages.
    pub fn space(&self) -> SpaceId {
        SpaceId(self.space.get())
    }
    /// The other half: two versions that share a space by chance differ here.
    pub fn check(&self) -> u64 {
        self.check.get()
    }
}

/// One extent of a file.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct ExtentRef {
    file: FileVersion,
    extent: U64,
}

impl ExtentRef {
    /// Names an extent.
    pub fn new(file: FileVersion, extent: u64) -> Self {
        Self { file, extent: extent.into() }
    }
    /// Of which file.
    pub fn file(&self) -> FileVersion {
        self.file
    }
    /// Which: the first has 0.
    pub fn extent(&self) -> u64 {
        self.extent.get()
    }
}

/// Some runs of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentRuns {
    extent: ExtentRef,
    runs: u8,
    reserved: [u8; 7],
}

impl ExtentRuns {
    /// Names runs of an extent: bit 0 is the first.
    pub fn new(extent: ExtentRef, runs: u8) -> Self {
        Self { extent, runs, reserved: [0; 7] }
    }
    /// Of which extent.
    pub fn extent(&self) -> ExtentRef {
        self.extent
    }
    /// Which runs: bit 0 is the first.
    pub fn runs(&self) -> u8 {
        self.runs
    }
}

/// Who has runs of one extent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Holders {
    nodes: [U64; HOLDERS_MAX],
    runs: [u8; HOLDERS_MAX],
    reserved: [u8; 4],
}

impl Holders {
    /// Names nodes and the runs that each has; what is beyond [`HOLDERS_MAX`] is left out.
    pub fn new(holders: &[(u64, u8)]) -> Self {
        let mut new = Self::default();
        for (at, &(node, runs)) in holders.iter().take(HOLDERS_MAX).enumerate() {
            new.nodes[at] = node.into();
            new.runs[at] = runs;
        }
        new
    }
    /// Node and runs of each holder.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.nodes.iter().map(|node| node.get()).zip(self.runs).filter(|&(node, runs)| node != 0 && runs != 0)
    }
}

/// `MountHello`; a name that is too long is cut.
pub fn hello(out: &mut Vec<u8>, group: u64, node: u64, port: u16, name: &str) {
    let name = tidy(name, NAME_BYTES_MAX);
    let body = MountHelloBody {
        features: crate::FEATURES_KNOWN.into(),
        group: group.into(),
        node: node.into(),
        version: PROTOCOL_VERSION.into(),
        port: port.into(),
        reserved: [0; 4],
    };
    append(out, kind::MOUNT_HELLO, 0, name.len(), body.as_bytes(), name.as_bytes());
}

/// `MountWelcome`.
pub fn welcome(out: &mut Vec<u8>, group: u64, node: u64) {
    let body = MountWelcomeBody {
        features: crate::FEATURES_KNOWN.into(),
        group: group.into(),
        node: node.into(),
        version: PROTOCOL_VERSION.into(),
        reserved: [0; 6],
    };
    append(out, kind::MOUNT_WELCOME, 0, 0, body.as_bytes(), &[]);
}

/// `SharedGetPage` for 1 to [`crate::limits::REQUEST_PAGES_MAX`] pages.
pub fn getpage(out: &mut Vec<u8>, request: u64, file: &FileVersion, pages: &[PageRef]) {
    append(out, kind::SHARED_GETPAGE, request, pages.len(), file.as_bytes(), pages.as_bytes());
}

/// `Locate` for 1 to [`crate::limits::LOCATE_EXTENTS_MAX`] extents.
pub fn locate(out: &mut Vec<u8>, request: u64, extents: &[ExtentRef]) {
    append(out, kind::LOCATE, request, extents.len(), &[], extents.as_bytes());
}

/// `Located`, in the order of the question.
pub fn located(out: &mut Vec<u8>, request: u64, holders: &[Holders]) {
    append(out, kind::LOCATED, request, holders.len(), &[], holders.as_bytes());
}

/// `Register` for 1 to [`crate::limits::REGISTER_EXTENTS_MAX`] extents.
pub fn register(out: &mut Vec<u8>, extents: &[ExtentRuns]) {
    append(out, kind::REGISTER, 0, extents.len(), &[], extents.as_bytes());
}

/// `Unregister` for 1 to [`crate::limits::REGISTER_EXTENTS_MAX`] extents.
pub fn unregister(out: &mut Vec<u8>, extents: &[ExtentRuns]) {
    append(out, kind::UNREGISTER, 0, extents.len(), &[], extents.as_bytes());
}

/// `LastCopy` for 1 to [`crate::limits::REGISTER_EXTENTS_MAX`] extents.
pub fn last_copy(out: &mut Vec<u8>, extents: &[ExtentRuns]) {
    append(out, kind::LAST_COPY, 0, extents.len(), &[], extents.as_bytes());
}
