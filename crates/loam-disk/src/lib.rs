//! Reads, writes and syncs of one file without waiting for any of them: the disk as an event loop needs it.
//!
//! ```text
//! Owned   buffers go in with an operation and come out with its end: safe
//!   │
//! Queue   operations: in order, bounded, short transfers continued, one result each. The buffers are the caller's: unsafe
//!   │
//! engine  one system call's worth at a time: io_uring, or two threads where a host forbids it
//! ```
//!
//! Two users: the borrower's slot file (`loam-agent`) has page buffers of its own and uses [`Queue`]; the lender's
//! disk store (`loam-node`) has no unsafe code and uses [`Owned`]. `place` is what both need before: a directory that
//! is the user's own, and space that is there for certain. `mapped` is for the node, too: files that are memory, which it prepares for its regions and copies lent pages out of. `pieces`
//! is a mount's memory (`loam-mount`), which has no unsafe code either.

mod engine;
mod mapped;
mod operation;
mod owned;
mod pieces;
mod place;
mod queue;

pub use engine::{Choice, DEPTH, EngineError, Verb, block_all_signals};
pub use mapped::{Mapped, Misaligned, Placement, is_dax};
pub use owned::{BUFFER_ALIGN_BYTES, Buffer, Finished, Owned};
pub use pieces::{Piece, Pieces};
pub use place::{DirError, RoomError, direct_align_bytes, open_dir, reserve};
pub use queue::{Ended, Queue, QueueFull};

#[cfg(test)]
mod tests;
