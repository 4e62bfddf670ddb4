//! Whether a triangular factorisation is right, by a criterion that has nothing of the elimination in it.

use super::checks::{distance, near};
use super::program::uniform;
use crate::fuzz::dice::Dice;

/// Random vectors that are tried: one is enough (Freivalds 1977), but for chance.
const VECTORS: usize = 3;
/// What rounding of doubles leaves, for the matrices of the programs.
const ERROR_MAX: f64 = 1e-13;

/// Whether L (U x) is A x for random vectors x. L is below the diagonal of `factored`, with ones on it; U is the rest.
/// There are at least as many rows as columns.
///
/// # Errors
/// If it is not.
pub(super) fn check(
    (rows, columns): (usize, usize),
    input: impl Fn(usize, usize) -> f64,
    factored: impl Fn(usize, usize) -> f64,
) -> Result<Vec<String>, String> {
    let mut dice = Dice::new(2, 43);
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..VECTORS {
        let x: Vec<f64> = (0..columns).map(|_| uniform(&mut dice)).collect();
        let u_times = |row: usize| (row..columns).map(|column| factored(row, column) * x[column]).sum();
        let ux: Vec<f64> = (0..columns).map(u_times).collect();
        for row in 0..rows {
            let below: f64 = (0..row.min(columns)).map(|column| factored(row, column) * ux[column]).sum();
            found.push(below + ux.get(row).unwrap_or(&0.0));
            expected.push((0..columns).map(|column| input(row, column) * x[column]).sum());
        }
    }
    let what = format!("L (U x) against A x, for {VECTORS} random vectors x");
    Ok(vec![near(&what, distance(&found, &expected), ERROR_MAX)?])
}
