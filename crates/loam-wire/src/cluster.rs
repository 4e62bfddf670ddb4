//! The bytes of what nodes say to each other, and of what a node tells borrowers of its cluster.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ClusterBody {
    pub(crate) sender: U64,
    pub(crate) class: u8,
    pub(crate) reserved: [u8; 7],
}
const _: () = assert!(size_of::<ClusterBody>() == 16);

/// What holds for the whole cluster, as one node sees it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ViewFigures {
    epoch: U64,
    min_age_ns: U64,
    version: U64,
    reserved: [u8; 8],
}
const _: () = assert!(size_of::<ViewFigures>() == 32);

impl ViewFigures {
    /// Describes a view.
    pub fn new(epoch: u64, min_age_ns: u64, version: u64) -> Self {
        Self { epoch: epoch.into(), min_age_ns: min_age_ns.into(), version: version.into(), reserved: [0; 8] }
    }
    /// Number of the epoch to which the weights belong; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }
    /// Pages that were not touched for longer than this are not worth sending: discard them (gms-1995, section 3.2).
    /// Nanoseconds; 0 means that nothing is to be sent to global memory in this epoch.
    pub fn min_age_ns(&self) -> u64 {
        self.min_age_ns.get()
    }
    /// Grows with each change of this node's view; another node's are not comparable.
    pub fn version(&self) -> u64 {
        self.version.get()
    }
}

/// One living node of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ViewEntry {
    id: U64,
    weight: U32,
    flags: U32,
    free_bytes: U64,
    capacity_bytes: U64,
    ip: [u8; 16],
    port: U16,
    reserved: [u8; 14],
}
const _: () = assert!(size_of::<ViewEntry>() == 64);

impl ViewEntry {
    /// In [`ViewEntry::flags`]: the node that answers.
    pub const FLAG_SELF: u32 = 1;

    /// Describes a node. A zone of an IPv6 address is left out: it means nothing elsewhere.
    pub fn new(
        id: u64,
        addr: SocketAddr,
        weight: u32,
        flags: u32,
        free_bytes: u64,
        capacity_bytes: u64,
    ) -> Self {
        Self {
            id: id.into(),
            weight: weight.into(),
            flags: flags.into(),
            free_bytes: free_bytes.into(),
            capacity_bytes: capacity_bytes.into(),
            ip: ip_bytes(addr.ip()),
            port: addr.port().into(),
            reserved: [0; 14],
        }
    }
    /// Which life of which node: a restarted node has another one.
    pub fn id(&self) -> u64 {
        self.id.get()
    }
    /// Share of evicted pages that should go there (gms-1995, section 3.2): in proportion to the sum of all weights.
    pub fn weight(&self) -> u32 {
        self.weight.get()
    }
    /// Bits; those without a name are to be ignored.
    pub fn flags(&self) -> u32 {
        self.flags.get()
    }
    /// Room that could be used at once when the node last told.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.get()
    }
    /// Room in all that it lends.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.get()
    }
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::new(ip_of(self.ip), self.port.get())
    }
}

/// An address as 16 bytes: IPv4 is mapped into IPv6.
pub(crate) fn ip_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// And back.
pub(crate) fn ip_of(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}
