//! What all kernels have in common.

use crate::check::Check;

/// A program that runs in iterations, each of them in the same parts.
pub trait Kernel {
    /// Runs one part of the iteration, numbered from 0. Parts are run in order.
    fn run_part(&mut self, part: usize);

    /// Looks at the result after so many whole iterations.
    fn verify(&mut self, iterations: u32) -> Vec<Check>;

    /// The checksum of the result: the same for each run of this size and so many iterations.
    fn checksum(&self) -> u64;

    /// Damages one element of the result, chosen by `seed`. [`verify`](Kernel::verify) must find it: this is how that is tested.
    fn corrupt(&mut self, seed: u64);
}
