//! The bytes of what nodes say to each other, and of what a node tells borrowers of its cluster.

use crate::layout::figures;
use crate::limits::{NAME_BYTES_MAX, VIEW_NODES_MAX};
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

figures! {
    /// What one node knows of the whole cluster; each is a little-endian `U64`.
    ClusterFigures {
        /// The node that answers.
        id,
        /// The living node with the lowest id.
        master,
        /// Who begins the next epoch.
        initiator,
        /// Number of the epoch; 0 before the first.
        epoch,
        /// Who began it.
        epoch_initiator,
        /// T: how long it may last, in nanoseconds.
        epoch_ns,
        /// How long it has lasted, in nanoseconds.
        epoch_age_ns,
        /// M: base pages that may be replaced in it.
        replacements,
        /// MinAge in nanoseconds; 0: nothing is sent to global memory.
        min_age_ns,
        /// Number of the page-ownership directory.
        pod,
        /// Version of the node's view, as in a view frame.
        version,
    }
}

figures! {
    /// What a node has heard of a node, for a message of class 3; each is a little-endian `U64`.
    NodeFigures {
        /// Which life of which node.
        id,
        /// Grows each time that the node looks: of two the higher one counts.
        number,
        /// Room in all that it lends.
        capacity_bytes,
        /// Pages that it holds for others, in bytes.
        used_bytes,
        /// Room that could be used at once.
        free_bytes,
        /// Base pages of the programs that run there and borrow.
        local_pages,
        /// Since when it runs.
        uptime_s,
    }
}

impl NodeFigures {
    /// A message's figures; none if it is not made of whole ones, or has more than a cluster may.
    pub fn list(message: &[u8]) -> Option<&[Self]> {
        <[Self]>::ref_from_bytes(message).ok().filter(|list| list.len() <= VIEW_NODES_MAX)
    }
    /// And back.
    pub fn message(list: &[Self]) -> &[u8] {
        list.as_bytes()
    }
}

/// One living node, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeEntry {
    id: U64,
    capacity_bytes: U64,
    used_bytes: U64,
    free_bytes: U64,
    local_pages: U64,
    uptime_s: U64,
    heard_ms: U64,
    weight: U32,
    flags: U32,
    ip: [u8; 16],
    port: U16,
    reserved: [u8; 5],
    name_bytes: u8,
    name: [u8; NAME_BYTES_MAX],
}
const _: () = assert!(size_of::<NodeEntry>() == 152);

/// What a [`NodeEntry`] is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts<'a> {
    /// Which life of which node.
    pub id: u64,
    /// What people call it; cut if it is too long.
    pub name: &'a str,
    /// Where it listens.
    pub addr: SocketAddr,
    /// As [`ViewEntry::flags`].
    pub flags: u32,
    /// As [`ViewEntry::weight`].
    pub weight: u32,
    /// Room in all that it lends, in bytes.
    pub capacity_bytes: u64,
    /// Pages that it holds for others, in bytes.
    pub used_bytes: u64,
    /// Room that could be used at once, in bytes.
    pub free_bytes: u64,
    /// Base pages of the programs that run there and borrow.
    pub local_pages: u64,
    /// Since when it runs, in seconds.
    pub uptime_s: u64,
    /// How old these figures are, in milliseconds; `u64::MAX` if none have come.
    pub heard_ms: u64,
}

impl NodeFacts<'_> {
    /// In [`NodeFacts::flags`] of the node that answers: its membership service does not answer it, so who the members are may have changed.
    pub const FLAG_STALE: u32 = 2;
}

impl NodeEntry {
    /// Describes a node.
    pub fn new(facts: &NodeFacts<'_>) -> Self {
        let name = crate::encode::tidy(facts.name, NAME_BYTES_MAX);
        let mut field = [0; NAME_BYTES_MAX];
        field[..name.len()].copy_from_slice(name.as_bytes());
        Self {
            id: facts.id.into(),
            capacity_bytes: facts.capacity_bytes.into(),
            used_bytes: facts.used_bytes.into(),
            free_bytes: facts.free_bytes.into(),
            local_pages: facts.local_pages.into(),
            uptime_s: facts.uptime_s.into(),
            heard_ms: facts.heard_ms.into(),
            weight: facts.weight.into(),
            flags: facts.flags.into(),
            ip: ip_bytes(facts.addr.ip()),
            port: facts.addr.port().into(),
            reserved: [0; 5],
            name_bytes: name.len() as u8,
            name: field,
        }
    }
    /// What it says.
    pub fn facts(&self) -> NodeFacts<'_> {
        NodeFacts {
            id: self.id.get(),
            name: self.name_checked().unwrap_or_default(),
            addr: SocketAddr::new(ip_of(self.ip), self.port.get()),
            flags: self.flags.get(),
            weight: self.weight.get(),
            capacity_bytes: self.capacity_bytes.get(),
            used_bytes: self.used_bytes.get(),
            free_bytes: self.free_bytes.get(),
            local_pages: self.local_pages.get(),
            uptime_s: self.uptime_s.get(),
            heard_ms: self.heard_ms.get(),
        }
    }
    pub(crate) fn name_checked(&self) -> Option<&str> {
        crate::decode::printable(self.name.get(..usize::from(self.name_bytes))?)
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
