//! Whether waiting by looking again and again pays.
//!
//! Being woken from a block costs more than a small fetch takes (DESIGN.md, section 3), so what is about to come is polled for. But a poll that ends
//! with nothing has taken a processor from somebody. What became of past polls decides: when too many were in vain, many waits go without.

/// Hits that a poll in vain takes to make up for: it wastes several times what a hit saves.
const MISS_COST: u32 = 8;
/// With so many owed …
const DEBT_MAX: u32 = 3 * MISS_COST;
/// … so many waits go without a poll.
const REST: u32 = 256;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Polling {
    /// Hits that are owed for polls in vain.
    debt: u32,
    rest: u32,
}

impl Polling {
    /// Another wait begins: whether it is to be a poll. What becomes of one is told with [`Self::hit`] or [`Self::miss`].
    pub fn begins(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !rests
    }

    /// What was polled for came.
    pub fn hit(&mut self) {
        self.debt = self.debt.saturating_sub(1);
    }

    /// It did not come while it was polled for.
    pub fn miss(&mut self) {
        self.debt += MISS_COST;
        if self.debt >= DEBT_MAX {
            (self.debt, self.rest) = (0, REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_in_vain_are_given_up_for_a_while() {
        let mut polling = Polling::default();
        for _ in 0..3 {
            assert!(polling.begins());
            polling.miss();
        }
        for _ in 0..REST {
            assert!(!polling.begins());
        }
        assert!(polling.begins(), "then it is tried again");
    }

    /// Of `waits`, each so many in vain of ten, how many are polls.
    fn polls(waits: u32, misses_of_ten: u32) -> u32 {
        let mut polling = Polling::default();
        let mut polls = 0;
        for n in 0..waits {
            if polling.begins() {
                polls += 1;
                if n % 10 < misses_of_ten { polling.miss() } else { polling.hit() }
            }
        }
        polls
    }

    #[test]
    fn a_miss_takes_many_hits_to_make_up_for() {
        assert_eq!(polls(10_000, 0), 10_000);
        assert_eq!(polls(10_000, 1), 10_000, "one of ten is worth it");
        let some = polls(10_000, 2);
        assert!((300..3_000).contains(&some), "{some}: two of ten are not");
        let few = polls(10_000, 10);
        assert!((30..300).contains(&few), "{few}: it is only tried now and then");
    }
}
