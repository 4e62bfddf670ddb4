//! What can be wrong with a frame.

/// A frame that is refused. After it the stream has no known position any more: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The stream is not Loam's, or lost its position.
    #[error("frame does not begin with Loam's magic number: is the peer a Loam node of the same kind?")]
    Magic,
    /// The kind is not one of this version.
    #[error("unknown frame kind {kind}: the peer may be a newer Loam, use the same version on both")]
    Kind {
        /// As received.
        kind: u8,
    },
    /// The flags are not all zero.
    #[error("unknown frame flags {flags:#x}: the peer may be a newer Loam, use the same version on both")]
    Flags {
        /// As received.
        flags: u8,
    },
    /// More (or fewer) entries than a frame of this kind may have.
    #[error("frame of kind {kind} with {count} entries is outside the limit: dropped the connection")]
    Count {
        /// As received.
        kind: u8,
        /// As received.
        count: u16,
    },
    /// The body's length is not what kind and count make it.
    #[error(
        "frame of kind {kind} has a body of {bytes} bytes where {expected} are due: dropped the connection"
    )]
    Length {
        /// As received.
        kind: u8,
        /// As received.
        bytes: u32,
        /// By kind and count.
        expected: usize,
    },
    /// Header or descriptors were damaged on their way.
    #[error("frame of kind {kind} fails its checksum: damaged on its way, reconnect")]
    Checksum {
        /// As received.
        kind: u8,
    },
    /// A name or text is not printable UTF-8.
    #[error("frame of kind {kind} carries a text that is not printable UTF-8: dropped the connection")]
    Text {
        /// As received.
        kind: u8,
    },
    /// A field has a value that has no meaning.
    #[error("frame of kind {kind} has a field without meaning: dropped the connection")]
    Field {
        /// As received.
        kind: u8,
    },
}
