//! What a borrower tells of itself: its figures, and where its pages are.

use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, copies};
use crate::units::{BasePages, Duration};
use alloc::vec::Vec;

/// How a fault was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// With zeros.
    Zero,
    /// From the victim buffer.
    Rescued,
    /// From a buffer that the prefetcher had filled.
    PrefetchedHit,
    /// By a lender.
    Remote,
    /// By the disk.
    Disk,
}

/// Figures of a borrower so far; all in base pages or events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Faults read.
    pub faults: u64,
    /// Faults answered, by [`FaultKind`] in its order.
    pub answered: [u64; 5],
    /// Pages that the hand took.
    pub moved: u64,
    /// Of those unchanged.
    pub clean: u64,
    /// Of those zero.
    pub zero: u64,
    /// Pages that could not be taken.
    pub busy: u64,
    /// Pages that were sent to a lender, once for each.
    pub sent: u64,
    /// Pages that a lender has on its disk.
    pub drained: u64,
    /// Pages that lost a lender and were brought to another, or to the slot file.
    pub mended: u64,
    /// Pages that were asked for because the program had said that it will need them ([`Advice`](super::Advice)).
    pub advised_in: u64,
    /// Pages that were told to leave because it had said that it will not, or that it goes through them in order, and has.
    pub advised_out: u64,
    /// Times that a thread waited to write to what was shared with a forked relative.
    pub writes: u64,
    /// Frames that were counted for copies of what such pages held.
    pub copied: u64,
    /// Times that a process was given the token, with which its pages leave last.
    pub token_given: u64,
    /// Time in which a thread waited for the page that it touched.
    pub first_wait: Duration,
    /// Time in which threads waited only because there was no room: for a frame, or a buffer to read into.
    pub queued_wait: Duration,
    /// Time in which threads waited only for what another fault had asked for.
    pub joined_wait: Duration,
}

impl Borrower {
    /// The limit as it is.
    pub fn limit(&self) -> BasePages {
        BasePages(self.limit)
    }

    /// Base pages that are local or have a frame reserved, over all spaces.
    pub fn frames(&self) -> BasePages {
        BasePages(self.frames)
    }

    /// Base pages of `space` that are local, with those that share a relative's frame.
    pub fn local_in(&self, space: SpaceKey) -> BasePages {
        self.spaces.get(&space).map_or(BasePages(0), |s| BasePages(s.frames + s.shared))
    }

    /// Base pages of `space` that are local in a relative's frame.
    pub fn shared_in(&self, space: SpaceKey) -> BasePages {
        self.spaces.get(&space).map_or(BasePages(0), |s| BasePages(s.shared))
    }

    /// Base pages adopted, over all spaces.
    pub fn adopted(&self) -> BasePages {
        BasePages(self.spaces.values().map(|s| s.table.adopted()).sum())
    }

    /// Base pages with lenders, and on their way there.
    pub fn lent(&self) -> BasePages {
        BasePages(self.lent)
    }

    /// Copies in use.
    pub fn copies_in_use(&self) -> BasePages {
        BasePages(u64::from(self.copies.in_use()))
    }

    /// Slots that the slot file needs room for: every index ever used is below this.
    pub fn slots(&self) -> u32 {
        self.copies.len()
    }

    /// Something is known of a range: it is adopted, or has contents.
    pub fn is_known(&self, space: SpaceKey, range: BaseRange) -> bool {
        self.ranges(space).iter().any(|of| !of.intersect(range).is_empty())
            || !self.used(space, range).is_empty()
    }

    /// `base` of `space` is adopted.
    pub fn is_adopted(&self, space: SpaceKey, base: u64) -> bool {
        self.spaces.get(&space).is_some_and(|s| s.table.range_of(base).is_some())
    }

    /// Something of it is adopted.
    pub fn adopts_any(&self, space: SpaceKey) -> bool {
        self.spaces.get(&space).is_some_and(|s| s.table.ranges().next().is_some())
    }

    /// It forked, or was forked, and nobody told of the other side ([`Self::handle_forked_unseen`]).
    pub fn is_forked_unseen(&self, space: SpaceKey) -> bool {
        self.spaces.get(&space).is_some_and(|s| s.forked_unseen)
    }

    /// The state of one base page.
    pub fn state(&self, space: SpaceKey, base: u64) -> BaseState {
        self.spaces.get(&space).map_or(BaseState::Empty, |s| s.table.get(base).state)
    }

    /// The adopted ranges of a space.
    pub fn ranges(&self, space: SpaceKey) -> Vec<BaseRange> {
        self.spaces.get(&space).map_or_else(Vec::new, |s| s.table.ranges().collect())
    }

    /// Something is under way that will bring frames or pages: worth polling for.
    pub fn waits_for_something(&self) -> bool {
        !self.waits.is_empty() || self.batches_under_way() > 0
    }

    /// Fetches that are not answered yet.
    pub fn fetches_in_flight(&self) -> usize {
        self.fetches.len()
    }

    /// Figures so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Latencies of answered faults since the last call, oldest first.
    pub fn poll_latency(&mut self) -> Option<(FaultKind, Duration)> {
        self.latencies.pop_front()
    }

    /// How long it took until pages that left were safe, one for each batch, oldest first: the time of a swap-out (nwcache-1999, tables 3 and 4).
    pub fn poll_swap_out(&mut self) -> Option<Duration> {
        self.swap_outs.pop_front()
    }

    /// Bytes of the borrower's own records (not page contents).
    pub fn record_bytes(&self) -> u64 {
        let tables: u64 = self.spaces.values().map(|s| s.table.table_bytes()).sum();
        tables + u64::from(self.copies.len()) * size_of::<copies::Copy>() as u64
    }
}
