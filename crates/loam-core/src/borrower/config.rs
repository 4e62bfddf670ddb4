//! What the driver of a borrower decides, and how many buffers it must have.

use crate::units::{BasePages, Duration, EXTENT_BASE_PAGES};

/// What the driver decides once.
#[derive(Clone, Debug)]
pub struct BorrowerConfig {
    /// Base pages of a page: a power of two from 1 to 256.
    pub page: BasePages,
    /// Page buffers that the driver has.
    pub buffers: u32,
    /// Durability `disk`: a copy is safe when the slot file has it. Else it is safe when a lender has it; what lenders want back and no
    /// other takes is written all the same ([`Effect::WriteDisk`](super::Effect::WriteDisk)): the driver may then make a slot file, or say that it could not.
    pub disk: bool,
    /// Without `disk`: lenders that must have a copy before it is safe, from 1 to 4. What so many do not take is written to the slot file, if
    /// they are more than one.
    pub replicas: u8,
    /// With more than one: the first lender with a disk writes the copy there (nwcache-1999), and then that is enough.
    pub staged: bool,
    /// A getpage that is not answered by then is asked of the disk too, where the disk has it.
    pub hedge_after: Duration,
    /// A page that has left stays in its buffer, once it is safe, until the buffer is wanted: a fault finds it there.
    pub rescue: bool,
}

/// Buffers that evictions leave for reads from the disk and for the prefetcher's markers, at most; half of all where there are few.
pub(super) const BUFFERS_FOR_READS_MAX: u32 = 2 * EXTENT_BASE_PAGES as u32;
/// Fewest buffers that a live borrower works well with: one full eviction and the reads' share.
pub const BUFFERS_MIN: u32 = BUFFERS_FOR_READS_MAX + 2 * EXTENT_BASE_PAGES as u32;
/// Fewest buffers that a borrower can work with at all, in pages: the simulator has so few that they run out.
pub const BUFFERS_LEAST_PAGES: u32 = 4;
/// And so many where pages are small.
pub const BUFFERS_LEAST: u32 = 16;
