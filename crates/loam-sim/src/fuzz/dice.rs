//! The one source of chance: a PCG stream for each component, all from the run's seed.

use loam_core::units::Duration;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A stream of its own for each component, so that an action less in the script changes as little as can be elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Pcg64Mcg);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // An odd factor keeps different streams of one seed, and one stream of different seeds, apart.
        Self(Pcg64Mcg::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a choice of nothing");
        self.0.next_u64() % n
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A delay that is mostly about `typical`, and now and then many times as long: races live in the tail.
    pub(crate) fn delay(&mut self, typical: Duration) -> Duration {
        let factor = match self.below(200) {
            0 => 300,
            1..=4 => 30,
            5..=19 => 5,
            _ => 1,
        };
        let most = typical.0.max(2) * factor;
        Duration(self.between(most / 2, most + most / 2))
    }
}
