//! IS: integer sort by counting, as NPB's IS: keys are read in order, and counted and put where they belong at random.

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;

pub(crate) const PARTS: &[&str] = &["count", "place", "scatter"];
/// Keys for each value that a key can have, as in NPB's class A (2^23 keys below 2^19).
const KEYS_PER_VALUE: usize = 16;
const SEED: u64 = 0x15;

/// See the module.
pub(crate) struct Is<M: Memory> {
    memory: M,
    keys: M::Array<u32>,
    /// How many keys there are of each value, and then where the next one goes.
    counts: M::Array<u32>,
    sorted: M::Array<u32>,
    iteration: usize,
}

pub(crate) fn bytes(keys: usize) -> u64 {
    (2 * keys + values(keys)) as u64 * 4
}

fn values(keys: usize) -> usize {
    keys / KEYS_PER_VALUE
}

/// The key at a place: the mean of four random numbers, as in NPB, so that some values are frequent and others rare.
fn key(place: usize, values: usize) -> u32 {
    let sum: usize = (0..4).map(|draw| random::below(SEED + draw, place as u64, values)).sum();
    (sum / 4) as u32
}

/// A sum that tells which keys there are, whatever their order.
#[derive(PartialEq, Eq)]
struct Census {
    sum: u64,
    mixed: u64,
}

impl Census {
    fn of(keys: impl Iterator<Item = u32>) -> Self {
        let mut census = Self { sum: 0, mixed: 0 };
        for key in keys {
            census.sum += u64::from(key);
            census.mixed = census.mixed.wrapping_add(random::mix(u64::from(key)));
        }
        census
    }
}

impl<M: Memory> Is<M> {
    pub(crate) fn new(memory: &M, keys: usize) -> Self {
        let values = values(keys);
        let mut new = Self {
            memory: memory.clone(),
            keys: memory.array(keys),
            counts: memory.array(values),
            sorted: memory.array(keys),
            iteration: 0,
        };
        for place in 0..keys {
            new.keys.set(place, key(place, values));
        }
        new
    }

    /// An iteration changes two keys, as in NPB, so that no two sort the same.
    fn changed(&self, iteration: usize) -> [(usize, u32); 2] {
        let (keys, values) = (self.keys.len(), self.counts.len());
        let low = iteration % (keys / 2);
        [(low, (iteration % values) as u32), (low + keys / 2, (values - 1 - iteration % values) as u32)]
    }

    fn count(&mut self) {
        for (place, key) in self.changed(self.iteration) {
            self.keys.set(place, key);
        }
        self.iteration += 1;
        for value in 0..self.counts.len() {
            self.counts.set(value, 0);
        }
        for place in 0..self.keys.len() {
            let value = self.keys.get(place) as usize;
            self.counts.set(value, self.counts.get(value) + 1);
            self.memory.work(1);
        }
    }

    fn place(&mut self) {
        let mut begin = 0;
        for value in 0..self.counts.len() {
            let count = self.counts.get(value);
            self.counts.set(value, begin);
            begin += count;
            self.memory.work(1);
        }
    }

    fn scatter(&mut self) {
        for place in 0..self.keys.len() {
            let key = self.keys.get(place);
            let to = self.counts.get(key as usize);
            self.counts.set(key as usize, to + 1);
            self.sorted.set(to as usize, key);
            self.memory.work(1);
        }
    }

    /// The keys that there must be after so many iterations, made anew.
    fn expected(&self, iterations: u32) -> Census {
        let (keys, values) = (self.keys.len(), self.counts.len());
        let mut census = Census::of((0..keys).map(|place| key(place, values)));
        let mut latest = std::collections::BTreeMap::new();
        (0..iterations as usize).for_each(|iteration| latest.extend(self.changed(iteration)));
        for (place, new) in latest {
            let old = Census::of([key(place, values)].into_iter());
            let new = Census::of([new].into_iter());
            census.sum = census.sum - old.sum + new.sum;
            census.mixed = census.mixed.wrapping_sub(old.mixed).wrapping_add(new.mixed);
        }
        census
    }
}

impl<M: Memory> Kernel for Is<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.count(),
            1 => self.place(),
            _ => self.scatter(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        let falls =
            (1..self.sorted.len()).filter(|&at| self.sorted.get(at - 1) > self.sorted.get(at)).count();
        checks.equal("places where the order is wrong", falls, 0);
        let expected = self.expected(iterations);
        let found = Census::of((0..self.sorted.len()).map(|at| self.sorted.get(at)));
        checks.equal("sum of the keys", found.sum, expected.sum);
        checks.equal("sum of the mixed keys", found.mixed, expected.mixed);
        checks.0
    }

    fn checksum(&self) -> u64 {
        checksum(&self.sorted)
    }

    fn corrupt(&mut self, seed: u64) {
        let at = random::below(seed, 0, self.sorted.len());
        self.sorted.set(at, self.sorted.get(at) ^ 1);
    }
}
