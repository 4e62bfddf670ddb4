//! Frames between borrowers and lenders, their codec, and the transports that carry them: TCP, plain or with TLS ([`Stream`]).
//! `docs/protocol.md` draws every byte.
//!
//! The codec needs no sockets: [`decode()`] looks at the front of a receive buffer and gives back a [`Frame`] that borrows
//! from it; the functions of [`encode`] append to a send buffer. Page payloads are never copied here: a borrower
//! installs pages straight from its receive buffer, and sends them straight from where they lie behind the encoded head.
//!
//! The header's crc32c covers the header and the descriptors. Payloads are proved by the 128-bit hash in
//! their descriptors instead ([`page_hash`]), which both ends need anyway: each byte is hashed once a hop.
#![forbid(unsafe_code)]

pub mod client;
mod cluster;
pub mod coordination;
mod decode;
mod descriptors;
pub mod encode;
mod error;
mod layout;
pub mod limits;
mod memory_policy;
pub mod mount;
mod mounts;
pub mod places;
mod regions;
mod reservation;
mod stream;
#[cfg(test)]
mod tests;
pub mod tls;

pub use cluster::{ClusterFigures, NodeEntry, NodeFacts, NodeFigures, ViewEntry, ViewFigures};
pub use decode::{Decoded, Frame, PageHead, decode, page_head, page_head_bytes};
pub use descriptors::allow_many_files;
pub use error::WireError;
pub use layout::HEADER_BYTES;
pub use layout::{
    BorrowerEntry, MemoryFigures, PageAck, PageMeta, PageRef, PutStatus, StatusFigures, WelcomeBody,
};
pub use memory_policy::{MEMORY_NODES_MAX, MemoryPolicy, PolicyError, memory_nodes};
pub use mounts::MountAt;
pub use regions::{
    RegionAsk, RegionCall, RegionEntry, RegionFigures, RegionRefusal, RegionSpan, region_flag,
};
pub use reservation::{Reservation, ReservationFacts};
pub use stream::{Stream, Until};

use loam_core::ids::ContentHash;

/// What this build speaks. A lender answers any other with an error.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bits in hello and welcome; unknown ones are ignored.
pub const FEATURES_KNOWN: u64 =
    feature::RECALL | feature::SPARE | feature::PLAN | feature::STAGING | feature::RESERVE;

/// What a client says in its hello, and the lender in its welcome if it understands.
pub mod feature {
    /// I know [`Frame::Recall`](crate::Frame::Recall), and take home what I am asked to; in the welcome: and I answer
    /// [`Frame::MemoryRequest`](crate::Frame::MemoryRequest).
    pub const RECALL: u64 = 1 << 8;
    /// I have each of my pages elsewhere too: they may be dropped without a word when their memory is wanted, and give way to others' pages; I
    /// know [`Frame::Gone`](crate::Frame::Gone). Without it they may be
    /// the only copies.
    pub const SPARE: u64 = 1 << 9;
    /// My getpages say of each page whether a thread waits for it, and answers to what is behind may be overtaken; in the welcome: and I know
    /// [`Frame::Hurry`](crate::Frame::Hurry).
    pub const PLAN: u64 = 1 << 10;
    /// The write cache: my putpages say what becomes of each page, I know [`Frame::Store`](crate::Frame::Store),
    /// [`Frame::Stored`](crate::Frame::Stored) and [`Frame::Gone`](crate::Frame::Gone); in the welcome: and I know
    /// [`Frame::Spare`](crate::Frame::Spare). Only together with [`RECALL`], and not with [`SPARE`].
    pub const STAGING: u64 = 1 << 11;
    /// I know [`Frame::Reserved`](crate::Frame::Reserved); in the welcome: and I answer [`Frame::Reserve`](crate::Frame::Reserve).
    pub const RESERVE: u64 = 1 << 12;
}

/// Where a lender listens if nobody says otherwise.
pub const DEFAULT_PORT: u16 = 7070;

/// What a message between nodes is about ([`Frame::Cluster`]). A node ignores what it does not know.
pub mod cluster_class {
    /// Membership.
    pub const GOSSIP: u8 = 1;
    /// Epochs and directories: the coordinator's.
    pub const COORDINATOR: u8 = 2;
    /// Figures of nodes, as each has heard them last.
    pub const FIGURES: u8 = 3;
}

/// Why a peer ended the conversation ([`Frame::Error`]).
pub mod error_code {
    /// The other speaks another version of the protocol.
    pub const VERSION: u16 = 1;
    /// The frame was damaged, unknown, too large, or not expected now.
    pub const BAD_FRAME: u16 = 2;
    /// Too many connections or borrowers.
    pub const BUSY: u16 = 3;
    /// The lender is ending.
    pub const ENDING: u16 = 4;
    /// A mount of another source, or not a mount at all.
    pub const OTHER_SOURCE: u16 = 5;
    /// The peer may not do this: it has no credentials, or its certificate has not the role.
    pub const DENIED: u16 = 6;
}

/// The hash that proves a base page's contents.
pub fn page_hash(page: &[u8]) -> ContentHash {
    ContentHash(xxhash_rust::xxh3::xxh3_128(page))
}

/// A name as the protocol takes it: without control characters, cut to what fits.
pub fn printable_name(name: &str) -> String {
    encode::tidy(name, limits::NAME_BYTES_MAX)
}

/// Makes length and crc of a frame's header right, as far as the rest allows: lets a fuzzer past them. Not for other use.
#[doc(hidden)]
pub fn mend_for_fuzzing(frame: &mut [u8]) {
    use zerocopy::FromBytes;
    let Ok((header, body)) = layout::Header::mut_from_prefix(frame) else { return };
    let Some(shape) = layout::Shape::of(header.kind) else { return };
    let count = usize::from(header.count.get());
    header.body_bytes = (shape.body_bytes(count) as u32).into();
    let Some(proved) = body.get(..shape.proved_bytes(count)) else { return };
    header.crc = decode::checksum(header, proved).into();
}
