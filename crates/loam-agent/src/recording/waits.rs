//! Per-fault waits, sorted, by how the faults were answered (subpages-1996, figure 5).

use hdrhistogram::Histogram;
use loam_core::borrower::FaultKind;
use loam_core::units::Duration;

/// Largest wait that is told apart: ten minutes, in nanoseconds.
const WAIT_MAX_NS: u64 = 600_000_000_000;
/// Digits of a wait that are kept: a bucket is at most 1% wide.
const DIGITS: u8 = 2;
/// Ways to answer a fault.
const KINDS: usize = 5;

/// How long faults waited. Takes 200 KB however many there are.
#[derive(Clone, Debug)]
pub struct Waits {
    counts: [Histogram<u64>; KINDS],
    total_ns: [u64; KINDS],
}

impl Default for Waits {
    fn default() -> Self {
        let empty = || Histogram::new_with_bounds(1, WAIT_MAX_NS, DIGITS).expect("bounds are in order");
        Self { counts: std::array::from_fn(|_| empty()), total_ns: [0; KINDS] }
    }
}

impl Waits {
    /// Every way to answer a fault.
    pub const KINDS: [FaultKind; KINDS] =
        [FaultKind::Zero, FaultKind::Rescued, FaultKind::PrefetchedHit, FaultKind::Remote, FaultKind::Disk];

    /// A fault was answered after `wait`.
    pub fn record(&mut self, kind: FaultKind, wait: Duration) {
        self.counts[kind as usize].saturating_record(wait.0.max(1));
        let total_ns = &mut self.total_ns[kind as usize];
        *total_ns = total_ns.saturating_add(wait.0);
    }

    /// Faults that were answered so.
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize].len()
    }

    /// Their waits together.
    pub fn total(&self, kind: FaultKind) -> Duration {
        Duration(self.total_ns[kind as usize])
    }

    /// The waits from the longest to the shortest: each with the number of faults that waited so long or longer.
    pub fn sorted(&self, kind: FaultKind) -> Vec<(u64, Duration)> {
        let counts = &self.counts[kind as usize];
        let mut shorter = 0;
        let from_shortest = counts.iter_recorded().map(|bucket| {
            let at_least = counts.len() - shorter;
            shorter += bucket.count_at_value();
            (at_least, Duration(bucket.value_iterated_to()))
        });
        let mut sorted: Vec<_> = from_shortest.collect();
        sorted.reverse();
        sorted
    }

    pub(super) fn bytes(&self) -> usize {
        self.counts.iter().map(|counts| counts.distinct_values() * size_of::<u64>()).sum()
    }
}
