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
mod decode;
pub mod encode;
mod error;
mod layout;
pub mod limits;
mod stream;
#[cfg(test)]
mod tests;
pub mod tls;

pub use decode::{Decoded, Frame, decode};
pub use error::WireError;
pub use layout::{BorrowerEntry, PageAck, PageMeta, PageRef, PutStatus, StatusFigures, WelcomeBody};
pub use stream::Stream;

use loam_core::ids::ContentHash;

/// What this build speaks. A lender answers any other with an error.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bits in hello and welcome. None is defined yet; unknown ones are ignored.
pub const FEATURES_KNOWN: u64 = 0;

/// Where a lender listens if nobody says otherwise.
pub const DEFAULT_PORT: u16 = 7070;

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
    /// The peer may not do this: it has no credentials, or its certificate has not the role.
    pub const DENIED: u16 = 5;
}

/// The hash that proves a base page's contents.
pub fn page_hash(page: &[u8]) -> ContentHash {
    ContentHash(xxhash_rust::xxh3::xxh3_128(page))
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
