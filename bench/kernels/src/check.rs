//! What was found when a result was checked, and the checksum that runs are compared by.

use crate::memory::{Array, Element};
use std::fmt::Display;

/// A claim about a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, and what was found.
    pub text: String,
    /// It is as it must be.
    pub passed: bool,
}

/// The claims about a result, in the order in which they were looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(pub(crate) Vec<Check>);

impl Checks {
    /// A figure that must not be above its bound. What is no number is above it.
    pub(crate) fn at_most(&mut self, what: &str, found: f64, bound: f64) {
        let passed = found <= bound;
        self.0.push(Check { text: format!("{what}: {found:.6e}, at most {bound:.6e}"), passed });
    }

    /// Two counts that must be the same.
    pub(crate) fn equal<T: PartialEq + Display>(&mut self, what: &str, found: T, expected: T) {
        let passed = found == expected;
        self.0.push(Check { text: format!("{what}: {found}, expected {expected}"), passed });
    }
}

/// A checksum that depends on each bit and on the order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bits: u64) {
        self.0 = (self.0.rotate_left(5) ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(crate) fn array<T: Element>(&mut self, array: &impl Array<T>) {
        for index in 0..array.len() {
            self.add(array.get(index).bits());
        }
    }

    pub(crate) fn value(self) -> u64 {
        crate::random::mix(self.0)
    }
}

/// The checksum of one array.
pub(crate) fn checksum<T: Element>(array: &impl Array<T>) -> u64 {
    let mut sum = Checksum::new();
    sum.array(array);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_fails() {
        let mut checks = Checks::default();
        checks.at_most("nan", f64::NAN, 1.0);
        checks.at_most("one", 1.0, 1.0);
        checks.equal("counts", 1, 2);
        assert_eq!(checks.0.iter().map(|check| check.passed).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn checksums_tell_order_and_bits() {
        let sum = |values: &[f64]| checksum(&values.to_vec().into_boxed_slice());
        assert_ne!(sum(&[1.0, 2.0]), sum(&[2.0, 1.0]));
        assert_ne!(sum(&[0.0]), sum(&[-0.0]));
        assert_eq!(sum(&[1.5]), sum(&[1.5]));
    }
}
