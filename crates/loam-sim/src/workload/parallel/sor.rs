//! SOR: red-black successive over-relaxation, 640 x 512 floats, 10 iterations (nwcache-1999, table 2).
//!
//! The algorithm is that of the SOR which came with TreadMarks (Amza and others, IEEE Computer 29(2), 1996): each
//! point becomes the mean of its four neighbours, first all black ones, then all red ones, of a board whose border
//! stays. Colours have an array each, so a board of M + 2 rows and 2 N + 2 columns is two arrays of M + 2 by N + 1
//! floats. With M = 640 and N = 512 that is the 2.6 MB of table 2, which one array would halve. Processors have
//! neighbouring rows; a barrier follows each colour.
//!
//! A row of one colour is three sweeps over rows of the other and one that writes.

use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, share, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;

/// A point: four loads, three additions, a multiplication, a store; four rows' addresses and the loop's branch.
const POINT_INSTRUCTIONS: usize = 14;
/// A row: its four addresses (multiply and add each), the loop's bound and branch.
const ROW_INSTRUCTIONS: usize = 10;

/// See the module.
pub(super) struct Sor {
    /// Rows without the border.
    rows: usize,
    /// Points of a colour in a row without the border.
    points: usize,
    iterations: usize,
    processors: usize,
    red: Shared<f32>,
    black: Shared<f32>,
    /// The board as it was, row by row, both colours.
    input: Vec<f32>,
}

impl Sor {
    /// Points of a colour in a row.
    fn width(&self) -> usize {
        self.points + 1
    }
}

/// The points of one colour on a board, row by row. The board's upper left corner is black.
fn colour(board: &[f32], rows: usize, width: usize, black: bool) -> Vec<f32> {
    let of_row = |row: usize| {
        let first = (row % 2) ^ usize::from(!black);
        board[row * 2 * width..(row + 1) * 2 * width].iter().skip(first).step_by(2).copied()
    };
    (0..rows).flat_map(of_row).collect()
}

impl Algorithm for Sor {
    const NAME: &'static str = "sor";

    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let (rows, points, iterations) = match scale {
            Scale::Small => (70, 30, 3),
            Scale::Paper => (640, 512, 10),
        };
        let (width, mut dice) = (points + 1, Dice::new(1, 53));
        let input: Vec<f32> = (0..(rows + 2) * 2 * width).map(|_| uniform(&mut dice) as f32).collect();
        let [red, black] = [false, true].map(|black| space.array(colour(&input, rows + 2, width, black)));
        Self { rows, points, iterations, processors, red, black, input }
    }

    /// One for each colour in each iteration.
    fn phases(&self) -> usize {
        2 * self.iterations
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let (points, width) = (self.points, self.width());
        let black = phase.is_multiple_of(2);
        let (from, to) = if black { (&self.red, &mut self.black) } else { (&self.black, &mut self.red) };
        for row in share(self.rows, self.processors, processor).map(|row| row + 1) {
            // Where the border's point at the left end of the row is of this colour, it is left out.
            let first = row * width + usize::from(black == (row.is_multiple_of(2)));
            let above = recorder.read(from, first - width..first - width + points);
            let beside = recorder.read(from, row * width..(row + 1) * width);
            let below = recorder.read(from, first + width..first + width + points);
            let target = recorder.write(to, first..first + points);
            for (k, point) in target.iter_mut().enumerate() {
                *point = (above[k] + below[k] + beside[k] + beside[k + 1]) * 0.25;
            }
            recorder.work(ROW_INSTRUCTIONS + points * POINT_INSTRUCTIONS);
        }
    }

    /// The same relaxation on the whole board, point by point, gives the same points to the last bit.
    fn check(&self) -> Result<Vec<String>, String> {
        let (rows, columns) = (self.rows + 2, 2 * self.width());
        let mut board = self.input.clone();
        for half in 0..2 * self.iterations {
            for at in columns..(rows - 1) * columns {
                let (row, column) = (at / columns, at % columns);
                if (row + column + half).is_multiple_of(2) && (1..columns - 1).contains(&column) {
                    board[at] =
                        (board[at - columns] + board[at + columns] + board[at - 1] + board[at + 1]) * 0.25;
                }
            }
        }
        for (black, found) in [(false, &self.red), (true, &self.black)] {
            let expected = colour(&board, rows, self.width(), black);
            if let Some(at) = (0..expected.len()).find(|&at| found.values()[at] != expected[at]) {
                let (found, expected) = (found.values()[at], expected[at]);
                let (row, point) = (at / self.width(), at % self.width());
                return Err(format!(
                    "row {row}, point {point} of its colour is {found}, but {expected} point by point"
                ));
            }
        }
        Ok(vec![format!("{} points are as relaxed one by one", rows * columns)])
    }
}
