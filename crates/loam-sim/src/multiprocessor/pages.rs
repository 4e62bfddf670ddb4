//! The machine's one page table (section 3.1).

use loam_core::units::Instant;

/// Where a page's newest contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On its disk, or in the cache of the disk's controller.
    Disk,
    /// In a node's memory, mapped for all.
    Memory(usize),
    /// In a node's memory, mapped for nobody, on its way to controller or ring.
    Leaving(usize),
    /// On the ring (its Ring bit is set), in a place of a node's channel.
    Ring {
        /// Whose channel.
        writer: usize,
        /// Which place of it.
        place: usize,
    },
    /// On the ring, and being copied to its disk's controller.
    Copying,
    /// Taken off the ring, on its way to a node's memory.
    Coming,
}

/// Where a page that is asked for is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the cache of its disk's controller.
    Cache,
    /// The disk was reading it ahead.
    ReadAhead,
    /// On the disk.
    Disk,
    /// On the ring.
    Ring,
}

/// An entry. Who changes it holds it alone ("each entry of which is accessed by the different processors with mutual exclusion").
#[derive(Clone, Debug)]
pub struct Page {
    /// Where it is.
    pub place: Place,
    /// The node that is bringing it into its memory.
    pub wanted: Option<usize>,
    /// That node has a frame for it, and waits until it can be asked for.
    pub deferred: bool,
    /// It was written to since its disk had it.
    pub dirty: bool,
    /// Grows with each write.
    pub version: u32,
    /// Grows with each swap-out, so that answers to an earlier one are known.
    pub swap: u32,
    /// The controller has refused it, and has not called back.
    pub refused: bool,
    /// When its swap-out began.
    pub leaves_since: Instant,
    /// When it was asked for.
    pub asked: Instant,
    /// Where it was found then.
    pub source: Source,
    /// Processors that wait until it has come, or has gone.
    pub waiters: Vec<usize>,
}

impl Page {
    /// A page of a file that nobody has touched.
    pub fn on_disk() -> Self {
        Self {
            place: Place::Disk,
            wanted: None,
            deferred: false,
            dirty: false,
            version: 0,
            swap: 0,
            refused: false,
            leaves_since: Instant(0),
            asked: Instant(0),
            source: Source::Disk,
            waiters: Vec::new(),
        }
    }
}
