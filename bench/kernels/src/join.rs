//! A hash join: a table of the smaller relation's keys is built at random places, and probed at random places by the larger one, which is
//! read in order.
//!
//! The smaller relation's keys are distinct: a bijection of the row's number, which can be turned around. So what the join must find is counted
//! without a table.

use crate::check::{Check, Checks, Checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;

pub(crate) const PARTS: &[&str] = &["clear", "build", "probe"];
/// Rows of the larger relation for each of the smaller one.
const PROBES_PER_ROW: usize = 4;
/// Places of the table for each row.
const PLACES_PER_ROW: usize = 2;
/// Two words: a key (0: none) and the row's value.
const PLACE_BYTES: u64 = 16;
const SEED: u64 = 0x70;
/// An odd factor, and its inverse modulo 2^64.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(FACTOR);

/// See the module.
pub(crate) struct Join<M: Memory> {
    memory: M,
    exponent: u32,
    build_keys: M::Array<u64>,
    build_values: M::Array<u64>,
    probe_keys: M::Array<u64>,
    table: M::Array<u64>,
    /// For each row of the larger relation, the value that it found, or 0.
    found: M::Array<u64>,
    matches: u64,
    sum: u64,
}

pub(crate) fn bytes(exponent: usize) -> u64 {
    (16 + PROBES_PER_ROW as u64 * 16 + PLACES_PER_ROW as u64 * PLACE_BYTES) << exponent
}

/// Newton's iteration: each step doubles the bits that are right.
const fn inverse(factor: u64) -> u64 {
    let mut inverse = factor;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// The key of a row, never 0; keys of rows up to 2^bits are below 2^bits, and +1.
fn key_of(row: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    (((row.wrapping_mul(FACTOR) & mask) ^ (SEED & mask)) & mask) + 1
}

fn row_of(key: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    (((key - 1) ^ (SEED & mask)) & mask).wrapping_mul(INVERSE) & mask
}

/// The value of a row, never 0.
fn value_of(row: u64) -> u64 {
    random::at(SEED, row) | 1
}

impl<M: Memory> Join<M> {
    /// 2^exponent rows in the smaller relation.
    pub(crate) fn new(memory: &M, exponent: usize) -> Self {
        let rows = 1_usize << exponent;
        let mut new = Self {
            memory: memory.clone(),
            exponent: exponent as u32,
            build_keys: memory.array(rows),
            build_values: memory.array(rows),
            probe_keys: memory.array(rows * PROBES_PER_ROW),
            table: memory.array(rows * PLACES_PER_ROW * 2),
            found: memory.array(rows * PROBES_PER_ROW),
            matches: 0,
            sum: 0,
        };
        for row in 0..rows {
            new.build_keys.set(row, key_of(row as u64, new.key_bits()));
            new.build_values.set(row, value_of(row as u64));
        }
        for row in 0..new.probe_keys.len() {
            new.probe_keys.set(row, new.probe_key(row));
        }
        new
    }

    /// Keys have a bit more than rows have: about half of the probes find something.
    fn key_bits(&self) -> u32 {
        self.exponent + 1
    }

    fn probe_key(&self, row: usize) -> u64 {
        (random::at(SEED + 1, row as u64) >> (64 - self.key_bits())) + 1
    }

    /// Where a key would like to be in the table.
    fn place(&self, key: u64) -> usize {
        (random::mix(key) >> (64 - (self.exponent + PLACES_PER_ROW.ilog2()))) as usize
    }

    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() / 2 - 1)
    }

    fn clear(&mut self) {
        for place in 0..self.table.len() / 2 {
            self.table.set(2 * place, 0);
        }
        (self.matches, self.sum) = (0, 0);
    }

    fn build(&mut self) {
        for row in 0..self.build_keys.len() {
            let key = self.build_keys.get(row);
            let mut place = self.place(key);
            while self.table.get(2 * place) != 0 {
                place = self.next(place);
            }
            self.table.set(2 * place, key);
            self.table.set(2 * place + 1, self.build_values.get(row));
            self.memory.work(10);
        }
    }

    fn probe(&mut self) {
        for row in 0..self.probe_keys.len() {
            let key = self.probe_keys.get(row);
            let mut place = self.place(key);
            let value = loop {
                match self.table.get(2 * place) {
                    0 => break 0,
                    there if there == key => break self.table.get(2 * place + 1),
                    _ => place = self.next(place),
                }
            };
            self.found.set(row, value);
            if value != 0 {
                self.matches += 1;
                self.sum = self.sum.wrapping_add(value);
            }
            self.memory.work(12);
        }
    }
}

impl<M: Memory> Kernel for Join<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.clear(),
            1 => self.build(),
            _ => self.probe(),
        }
    }

    fn verify(&mut self, _iterations: u32) -> Vec<Check> {
        let rows = self.build_keys.len() as u64;
        let (mut matches, mut sum, mut wrong) = (0_u64, 0_u64, 0_u64);
        for probe in 0..self.probe_keys.len() {
            let row = row_of(self.probe_key(probe), self.key_bits());
            let value = if row < rows { value_of(row) } else { 0 };
            matches += u64::from(value != 0);
            sum = sum.wrapping_add(value);
            wrong += u64::from(self.found.get(probe) != value);
        }
        let mut checks = Checks::default();
        checks.equal("rows that found a partner", self.matches, matches);
        checks.equal("sum of what they found", self.sum, sum);
        checks.equal("rows with the wrong partner", wrong, 0);
        checks.0
    }

    fn checksum(&self) -> u64 {
        let mut sum = Checksum::new();
        sum.add(self.matches);
        sum.add(self.sum);
        sum.array(&self.found);
        sum.value()
    }

    fn corrupt(&mut self, seed: u64) {
        let at = random::below(seed, 0, self.found.len());
        self.found.set(at, self.found.get(at) ^ 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_can_be_turned_around() {
        let mut keys: Vec<u64> = (0..1 << 10).map(|row| key_of(row, 11)).collect();
        for (row, &key) in keys.iter().enumerate() {
            assert!((1..=1 << 11).contains(&key));
            assert_eq!(row_of(key, 11), row as u64);
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1 << 10);
    }
}
