//! Events in one total order: by time, and at the same time in the order in which they were pushed. So a run depends on nothing but
//! its inputs.

use loam_core::units::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What will happen, and when. Time never runs backwards.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
    now: Instant,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Instant,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn order(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
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
        self.order().cmp(&other.order())
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, now: Instant(0) }
    }
}

impl<E> Queue<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// `event` will happen at `at`, after everything that was pushed for that time before.
    ///
    /// # Panics
    /// If `at` has passed.
    pub fn push(&mut self, at: Instant, event: E) {
        assert!(at >= self.now, "an event in the past: at {at:?}, now {:?}", self.now);
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, event }));
    }

    /// The next event; its time is now, from here on.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let Reverse(entry) = self.heap.pop()?;
        assert!(entry.at >= self.now, "time runs backwards");
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// When the next event is.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The time of the last event.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Events that have not happened yet.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Nothing will happen any more.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[should_panic(expected = "in the past")]
    fn the_past_stays_as_it_was() {
        let mut queue = Queue::new();
        queue.push(Instant(5), ());
        queue.pop();
        queue.push(Instant(4), ());
    }

    proptest! {
        /// Events come out as a stable sort by time has them, however pushes and pops are mixed.
        #[test]
        fn time_then_order(pushes in proptest::collection::vec((0u64..20, any::<bool>()), 0..300)) {
            let mut queue = Queue::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            for (n, (after, pop)) in pushes.into_iter().enumerate() {
                let at = queue.now().0 + after;
                queue.push(Instant(at), n);
                model.push((at, n));
                model.sort();
                prop_assert_eq!(queue.next_at(), Some(Instant(model[0].0)));
                if pop {
                    let (at, n) = queue.pop().unwrap();
                    prop_assert_eq!((at.0, n), model.remove(0));
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            }
            for (at, n) in model {
                prop_assert_eq!(queue.pop(), Some((Instant(at), n)));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
