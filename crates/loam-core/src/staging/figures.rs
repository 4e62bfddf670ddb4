//! What a ring, or one of its channels, has done.

/// Counts of pages since the start, and how many are where now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFigures {
    /// Swapped out to the ring.
    pub taken: u64,
    /// Refused because the channel was full (NACK).
    pub refused: u64,
    /// Read while they were in the ring.
    pub victim_hits: u64,
    /// Taken off before a write of them was issued: read, dropped, or put anew.
    pub cancelled: u64,
    /// Written to a disk.
    pub drained: u64,
    /// Writes that did this: `drained / writes` is the paper's write combining.
    pub writes: u64,
    /// Whose write failed.
    pub failed: u64,
    /// Held pages that had to be queued again because room was short.
    pub pressed: u64,
    /// Waiting now.
    pub waiting: u64,
    /// Held now: read by their owner, and not to be written as long as there is room.
    pub held: u64,
    /// Under way to a disk now.
    pub under_way: u64,
}

impl RingFigures {
    /// Pages that take room in the ring now.
    pub fn load(&self) -> u64 {
        self.waiting + self.held + self.under_way
    }

    /// The field by field sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            refused: self.refused + other.refused,
            victim_hits: self.victim_hits + other.victim_hits,
            cancelled: self.cancelled + other.cancelled,
            drained: self.drained + other.drained,
            writes: self.writes + other.writes,
            failed: self.failed + other.failed,
            pressed: self.pressed + other.pressed,
            waiting: self.waiting + other.waiting,
            held: self.held + other.held,
            under_way: self.under_way + other.under_way,
        }
    }
}
