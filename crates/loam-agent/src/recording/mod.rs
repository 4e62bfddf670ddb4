//! What a run with `--report` keeps of itself beside its summary: plain data, from which figures are drawn.
//!
//! All of it together is less than [`BYTES_MAX`] however long the run is. Waits are counted in buckets that are 1% wide, the
//! time axis is cut into at most [`SLICES_MAX`] slices that double their length when it is full, and neighbouring changes of page
//! sizes become one when there are too many.

mod sizes;
#[cfg(test)]
mod tests;
mod timeline;
mod waits;

pub use sizes::{CHANGES_MAX, SizeChange, Sizes};
pub use timeline::{Moment, SLICES_MAX, Timeline};
pub use waits::Waits;

/// More than a recording ever takes.
pub const BYTES_MAX: usize = 1 << 20;

/// Everything that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// How long each fault waited.
    pub waits: Waits,
    /// How the run went on.
    pub timeline: Timeline,
    /// How far from a page's faulted subpage the next one was that was wanted of it, in subpages, and how often; filled in at the end.
    pub next_distances: Vec<(i32, u64)>,
    /// Which page sizes were used when; filled in at the end.
    pub sizes: Sizes,
}

impl Recording {
    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let distances = self.next_distances.len() * size_of::<(i32, u64)>();
        self.waits.bytes() + self.timeline.bytes() + self.sizes.bytes() + distances
    }
}
