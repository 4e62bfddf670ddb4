//! Events, in one total order.

use loam_core::units::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come. Those of one moment come in the order in which they were pushed.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
    now: Instant,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

// By time and number alone: an event is nothing that could be compared.
impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, now: Instant(0) }
    }
}

impl<E> Queue<E> {
    /// `event` happens at `at`.
    ///
    /// # Panics
    /// If that is before the last event that was taken: time does not run backwards.
    pub fn push(&mut self, at: Instant, event: E) {
        assert!(at >= self.now, "an event in the past");
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next event, and when.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let Reverse(entry) = self.heap.pop()?;
        assert!(entry.at >= self.now, "the order of events is total");
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// Events to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As sorting by time does it, which keeps the order of equal ones.
        #[test]
        fn events_come_in_order(times in proptest::collection::vec(0_u64..20, 0..200)) {
            let mut queue = Queue::default();
            for (n, &at) in times.iter().enumerate() {
                queue.push(Instant(at), n);
            }
            let mut wanted: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
            wanted.sort_by_key(|w| w.0);
            let got: Vec<(u64, usize)> = std::iter::from_fn(|| queue.pop()).map(|(at, n)| (at.0, n)).collect();
            prop_assert_eq!(got, wanted);
        }
    }

    #[test]
    #[should_panic(expected = "an event in the past")]
    fn time_does_not_run_backwards() {
        let mut queue = Queue::default();
        queue.push(Instant(5), ());
        queue.pop();
        queue.push(Instant(4), ());
    }
}
