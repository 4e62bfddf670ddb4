//! Gauss: unblocked Gaussian elimination, 570 x 512 doubles (nwcache-1999, table 2).
//!
//! The textbook's elimination without pivoting (Golub and Van Loan, *Matrix Computations*, "outer product" form, row
//! by row), as the shared-memory studies of the 1990s have it: rows are dealt out to the processors in turn, so that
//! all have work until the end, and in step k each takes the pivot row k off its own rows below. A barrier ends each
//! step: row k + 1 is whole then. The multipliers stay where the zeros would be. "570 x 512" is taken as rows by
//! columns, so a row is one page; with more rows than columns, L is 570 x 512 and U is 512 x 512.
//!
//! A step reads the pivot row once for each row that it is taken off, reads that row from the pivot's column on, and
//! writes it.

use super::factors;
use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;

/// An element: two loads, multiply, subtract, store; two addresses, the loop's branch.
const ELEMENT_INSTRUCTIONS: usize = 8;
/// A row: loads of the pivot and of the row's element below it, division, store; two rows' addresses, the loop's
/// counter and branch.
const ROW_INSTRUCTIONS: usize = 8;

/// See the module.
pub(super) struct Gauss {
    rows: usize,
    columns: usize,
    processors: usize,
    matrix: Shared<f64>,
    /// As it was.
    input: Vec<f64>,
}

impl Algorithm for Gauss {
    const NAME: &'static str = "gauss";

    /// Random, with a diagonal large enough that no row need ever be exchanged.
    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let (rows, columns) = match scale {
            Scale::Small => (45, 40),
            Scale::Paper => (570, 512),
        };
        let mut dice = Dice::new(1, 41);
        let element = |at: usize| {
            let diagonal = if at / columns == at % columns { rows as f64 } else { 0.0 };
            uniform(&mut dice) + diagonal
        };
        let input: Vec<f64> = (0..rows * columns).map(element).collect();
        Self { rows, columns, processors, matrix: space.array(input.clone()), input }
    }

    /// A step for each column.
    fn phases(&self) -> usize {
        self.columns
    }

    fn run(&mut self, step: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let columns = self.columns;
        let from_pivot_on = |row: usize| row * columns + step..(row + 1) * columns;
        for row in (step + 1..self.rows).filter(|row| row % self.processors == processor) {
            let ([pivot], row) =
                recorder.combine(&mut self.matrix, [from_pivot_on(step)], from_pivot_on(row));
            let multiplier = row[0] / pivot[0];
            row[0] = multiplier;
            for (element, pivot) in row[1..].iter_mut().zip(&pivot[1..]) {
                *element -= multiplier * pivot;
            }
            recorder.work(ROW_INSTRUCTIONS + (columns - step - 1) * ELEMENT_INSTRUCTIONS);
        }
    }

    /// L times U is the input.
    fn check(&self) -> Result<Vec<String>, String> {
        let at = |values: &[f64], row: usize, column: usize| values[row * self.columns + column];
        let (input, factored) = (&self.input, self.matrix.values());
        factors::check(
            (self.rows, self.columns),
            |row, column| at(input, row, column),
            |row, column| at(factored, row, column),
        )
    }
}
