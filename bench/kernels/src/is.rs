//! IS: integer sort by counting, as NPB's IS with its buckets: keys are read in order and put into one of 1,024 buckets by their highest bits, so
//! that as many places are written to in turn; then each bucket is counted and written in order by itself.

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;

pub(crate) const PARTS: &[&str] = &["count", "split", "sort"];
/// Keys for each value that a key can have, as in NPB's class A (2^23 keys below 2^19).
const KEYS_PER_VALUE: usize = 16;
/// Binary logarithm of the buckets, as in NPB from class A on.
const BUCKETS_LOG2: u32 = 10;
const SEED: u64 = 0x15;

/// See the module.
pub(crate) struct Is<M: Memory> {
    memory: M,
    keys: M::Array<u32>,
    /// How many keys there are of each value.
    counts: M::Array<u32>,
    sorted: M::Array<u32>,
    /// Keys of a bucket differ in so many low bits.
    low_bits: u32,
    /// Where each bucket begins, and one more.
    begins: Vec<usize>,
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
        let low_bits = (usize::BITS - (values - 1).leading_zeros()).saturating_sub(BUCKETS_LOG2);
        let mut new = Self {
            memory: memory.clone(),
            keys: memory.array(keys),
            counts: memory.array(values),
            sorted: memory.array(keys),
            low_bits,
            begins: vec![0; ((values - 1) >> low_bits) + 2],
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
        self.begins.fill(0);
        for place in 0..self.keys.len() {
            let bucket = self.keys.get(place) as usize >> self.low_bits;
            self.begins[bucket + 1] += 1;
            self.memory.work(2);
        }
        for bucket in 1..self.begins.len() {
            self.begins[bucket] += self.begins[bucket - 1];
        }
    }

    fn split(&mut self) {
        let mut next = self.begins.clone();
        for place in 0..self.keys.len() {
            let key = self.keys.get(place);
            let to = &mut next[key as usize >> self.low_bits];
            self.sorted.set(*to, key);
            *to += 1;
            self.memory.work(3);
        }
    }

    fn sort(&mut self) {
        for bucket in 0..self.begins.len() - 1 {
            let values = bucket << self.low_bits..((bucket + 1) << self.low_bits).min(self.counts.len());
            for value in values.clone() {
                self.counts.set(value, 0);
            }
            for place in self.begins[bucket]..self.begins[bucket + 1] {
                let value = self.sorted.get(place) as usize;
                self.counts.set(value, self.counts.get(value) + 1);
                self.memory.work(1);
            }
            let mut to = self.begins[bucket];
            for value in values {
                for _ in 0..self.counts.get(value) {
                    self.sorted.set(to, value as u32);
                    to += 1;
                    self.memory.work(1);
                }
            }
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
            1 => self.split(),
            _ => self.sort(),
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
