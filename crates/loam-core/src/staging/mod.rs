//! The write cache: how a dirty page leaves (nwcache-1999, section 3; DESIGN.md, section 5).
//!
//! A page that leaves waits in a [`Ring`] until the disk has time for it: there it is safe, so its frame is free at once. The paper keeps the ring
//! in glass; live it is the memory of lenders. A ring here is what the NWCache interfaces know of it: which pages wait on which channel, in
//! which order, and which of them a disk gets next.
//!
//! ```text
//! swap_out ─► waiting ─► drain ─► under way ─► finish: on the disk, off the ring
//!    │Nack       │ victim read       └ cancel: the write ends, nobody wants it any more
//!    ▼           ▼
//! poll_ok      taken off (the paper), or held: written only when pressed for room
//! ```
//!
//! The live lender and the simulated machine use the same ring. A driver names pages by [`PageId`](crate::ids::PageId) and gives each a
//! dense number while it is in the ring ([`RingSlot`]: live its slot in memory, simulated the page's number), so that no step looks anything up by name.
//!
//! [`Reserve`] is the other half: how many frames a borrower keeps free so that a burst of faults does not wait for swap-outs.

mod channel;
mod figures;
mod reserve;
mod ring;
#[cfg(test)]
mod tests;

pub use channel::Channel;
pub use figures::RingFigures;
pub use reserve::{Reserve, ReserveConfig};
pub use ring::{Ring, RingConfig, RingPage, RingSlot, RingWrite, SwapOut, Victim};

/// Consecutive pages that belong to one disk (section 3.1: "pages are stored in groups of 32 consecutive pages", the groups to the disks in turn).
pub const GROUP_PAGES: u32 = 32;
