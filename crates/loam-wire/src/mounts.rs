//! Where mounts are: what a mount tells the node of its machine, and what mounts ask of nodes. Mounts themselves speak
//! [another way](crate::mount) with each other.

use crate::cluster::{ip_bytes, ip_of};
use std::net::SocketAddr;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A mount, as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MountAt {
    group: U64,
    ip: [u8; 16],
    port: U16,
    reserved: [u8; 6],
}

impl MountAt {
    /// A mount of the source whose name hashes to `group`, and where it listens.
    pub fn new(group: u64, addr: SocketAddr) -> Self {
        Self { group: group.into(), ip: ip_bytes(addr.ip()), port: addr.port().into(), reserved: [0; 6] }
    }
    /// Mounts of one group show one source.
    pub fn group(&self) -> u64 {
        self.group.get()
    }
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::new(ip_of(self.ip), self.port.get())
    }
}
