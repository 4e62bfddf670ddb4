//! Programs of the kinds that figure 11 has from PARSEC. They compute, and what they compute is checked by another way to the same result.
//!
//! Their arrays lie in simulated memory. What sets the input up and what checks the result is not measured, as in PARSEC, which measures a region of interest.

mod annealing;
mod clustering;
mod options;
mod tracing;

use super::memory::{Memory, PAGE_BYTES, Spent};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The programs, and which of PARSEC's each stands for.
pub const PROGRAMS: [(&str, &str); 4] = [
    ("option pricing", "blackscholes"),
    ("ray tracing", "raytrace"),
    ("annealing", "canneal"),
    ("clustering", "streamcluster"),
];

/// A cycle of the prototype's 2.1 GHz Opterons, in ns.
const CYCLE_NS: f64 = 1.0 / 2.1;

/// What a program came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Bytes of its data.
    pub bytes: u64,
    /// What it spent.
    pub spent: Spent,
    /// What was checked.
    pub checked: String,
}

/// Runs program number `program` at a size of 1 / `part` of the full one.
///
/// # Errors
/// If it computed something wrong.
///
/// # Panics
/// If there is no such program.
pub fn run(program: usize, part: usize, seed: u64, memory: Memory) -> Result<Ran, String> {
    match program {
        0 => options::run(8_000_000 / part, 2, seed, memory),
        1 => tracing::run(side(200, part), seed, memory),
        2 => annealing::run(6_000_000 / part, 400_000 / part, seed, memory),
        3 => clustering::run(400_000 / part, 12, seed, memory),
        _ => panic!("{program}: no such program"),
    }
    .map_err(|error| format!("{}: {error}", PROGRAMS[program].0))
}

/// The edge of a cube with 1 / `part` of the cells.
fn side(full: usize, part: usize) -> usize {
    let cells = full.pow(3) / part;
    (1..=full).take_while(|edge| edge.pow(3) <= cells).last().unwrap_or(1)
}

/// Hands out addresses. Each array begins a page, as what `malloc` maps does.
#[derive(Debug, Default)]
struct Space {
    end: u64,
}

impl Space {
    fn array<T>(&mut self, values: Vec<T>) -> Array<T> {
        let base = self.end.next_multiple_of(PAGE_BYTES);
        self.end = base + (values.len() * size_of::<T>()) as u64;
        Array { base, values }
    }
}

/// An array in simulated memory. What is computed with is what is touched.
#[derive(Debug)]
struct Array<T> {
    base: u64,
    values: Vec<T>,
}

impl<T: Copy> Array<T> {
    #[inline]
    fn read(&self, at: usize, memory: &mut Memory) -> T {
        memory.touch(self.base + (at * size_of::<T>()) as u64, size_of::<T>() as u64, false);
        self.values[at]
    }

    #[inline]
    fn slice(&self, range: std::ops::Range<usize>, memory: &mut Memory) -> &[T] {
        let bytes = (range.len() * size_of::<T>()) as u64;
        memory.touch(self.base + (range.start * size_of::<T>()) as u64, bytes, false);
        &self.values[range]
    }

    #[inline]
    fn write(&mut self, at: usize, value: T, memory: &mut Memory) {
        memory.touch(self.base + (at * size_of::<T>()) as u64, size_of::<T>() as u64, true);
        self.values[at] = value;
    }

    #[inline]
    fn slice_mut(&mut self, range: std::ops::Range<usize>, memory: &mut Memory) -> &mut [T] {
        let bytes = (range.len() * size_of::<T>()) as u64;
        memory.touch(self.base + (range.start * size_of::<T>()) as u64, bytes, true);
        &mut self.values[range]
    }
}

/// What sets up and chooses.
struct Dice(Pcg64Mcg);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Times;
    use super::*;
    use loam_core::units::Duration;

    #[test]
    fn small_programs_compute_what_they_should_twice_the_same() {
        let times = Times {
            local: Duration(100),
            local_loads: 8,
            remote: Duration(1900),
            posted: Duration(450),
            swap: Duration(100_000),
            swap_out: Duration(30_000),
        };
        for (program, (name, _)) in PROGRAMS.iter().enumerate() {
            let run = || run(program, 400, 3, Memory::new(times, 1 << 16, 60)).expect("it checks itself");
            let (first, second) = (run(), run());
            assert_eq!(first, second, "{name}");
            let spent = first.spent;
            assert!(spent.accesses > 0 && spent.faults > 0, "{name}: {spent:?}");
            assert!(spent.local_ns < spent.remote_ns && spent.local_ns < spent.swap_ns, "{name}: {spent:?}");
        }
    }
}
