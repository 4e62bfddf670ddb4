//! What a run's time went to: threads that wait, by what they wait for (subpages-1996, section 4: sp_latency and page_wait).

use super::Borrower;
use super::faults::Wait;
use crate::units::{BasePages, Duration, Instant};

/// How many threads wait for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiters {
    /// For what they asked for themselves.
    first: u64,
    /// For a frame, or a buffer to read into: nothing has been asked for yet.
    queued: u64,
    /// For what another fault, or the prefetcher, asked for.
    joined: u64,
}

impl Waiters {
    fn count(&mut self, wait: Wait) -> &mut u64 {
        match (wait.queued, wait.joined) {
            (true, _) => &mut self.queued,
            (false, true) => &mut self.joined,
            (false, false) => &mut self.first,
        }
    }

    /// A thread waits from now on.
    pub(super) fn begin(&mut self, wait: Wait) {
        *self.count(wait) += 1;
    }

    /// It does not any more, or not for this.
    pub(super) fn end(&mut self, wait: Wait) {
        let count = self.count(wait);
        *count = count.checked_sub(1).expect("a wait ends once");
    }
}

impl Borrower {
    /// Adds the time since the last change to whom it belongs. A moment belongs to one part only: where several threads wait, to the
    /// one that a faster network would shorten, then to the one that more room would.
    pub(super) fn waits_clock(&mut self, now: Instant) {
        // A driver that looks at the clock once for several calls may be behind what it told in between.
        let now = now.max(self.waits_changed_at);
        let span = now - self.waits_changed_at;
        self.waits_changed_at = now;
        let part = match self.waiters {
            Waiters { first: 1.., .. } => &mut self.stats.first_wait,
            Waiters { queued: 1.., .. } => &mut self.stats.queued_wait,
            Waiters { joined: 1.., .. } => &mut self.stats.joined_wait,
            _ => return,
        };
        *part = Duration(part.0 + span.0);
    }

    /// # Panics
    /// If the threads that wait are miscounted.
    pub(super) fn audit_waiters(&self) {
        let mut counted = Waiters::default();
        self.waits.values().for_each(|wait| counted.begin(*wait));
        assert_eq!(counted, self.waiters, "threads that wait are miscounted");
    }

    /// How far from a page's faulted subpage the next one was that a thread wanted of it, in subpages, and how often
    /// (subpages-1996, figure 7). Only pages of which a part was still missing raise a fault there, so only those are counted.
    pub fn next_distances(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.next_distances.iter().map(|(&distance, &times)| (distance, times))
    }

    /// The unit in which pages are fetched.
    pub fn subpage(&self) -> BasePages {
        BasePages(self.subpage)
    }

    /// Copies that are on the disk.
    pub fn on_disk(&self) -> BasePages {
        BasePages(u64::from(self.copies.on_disk()))
    }
}
