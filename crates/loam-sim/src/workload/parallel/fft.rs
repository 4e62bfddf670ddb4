//! FFT: one-dimensional transform of 64 K complex points (nwcache-1999, table 2).
//!
//! The algorithm is that of SPLASH-2's FFT (Woo and others, ISCA 1995, section 3; Bailey, *FFTs in external or
//! hierarchical memory*, 1990): the points are a square matrix, each processor has neighbouring rows, and the
//! transform is six steps: transpose, transform the rows, multiply by roots of unity, transpose, transform the rows,
//! transpose. A processor transposes into its own rows from the columns of all, beginning with its neighbour's, so
//! that not all read from one at a time. It has roots of its own for the rows, copied at the beginning; those of the
//! third step are a matrix as large as the points'.
//!
//! Barriers follow the third, the fifth and the sixth step: all others are of a processor's own rows. The three
//! matrices and the roots of a row are 3.15 MB, table 2's 3.1. (SPLASH-2's rows have padding between them, against
//! conflicts in the first cache; these have none, as with it there would be more than table 2 says.)
//!
//! A transposition reads a piece of another row and writes its elements to as many rows; transforming a row is one
//! sweep over it for each of its stages (256 points are a page).

use super::checks::{distance, near};
use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, share, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;
use std::f64::consts::TAU;

/// An element transposed: two loads, two stores, two addresses, the loop's branch.
const TRANSPOSE_INSTRUCTIONS: usize = 7;
/// A butterfly: six loads (a root and two points), four multiplications and two additions for their product, four for
/// sum and difference, four stores, three addresses, the loop's branch.
const BUTTERFLY_INSTRUCTIONS: usize = 24;
/// A stage of a row: the distance of a butterfly's points, the roots' address, loop.
const STAGE_INSTRUCTIONS: usize = 8;
/// An element's place with its bits reversed, for each bit: two shifts, and, or, count and branch.
const BIT_INSTRUCTIONS: usize = 6;
/// The rest of it: call and return, comparison; half of the elements are exchanged (four loads, four stores, two
/// addresses).
const REVERSE_INSTRUCTIONS: usize = 12;
/// An element times its root: four loads, six arithmetic instructions, two stores, two addresses, the loop's branch.
const TWIDDLE_INSTRUCTIONS: usize = 15;
/// A root copied: as an element transposed.
const COPY_INSTRUCTIONS: usize = 7;
/// What rounding leaves.
const ERROR_MAX: f64 = 1e-13;

#[derive(Clone, Copy, Debug)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    /// exp(-2 pi i `part` / `whole`).
    fn root(part: usize, whole: usize) -> Self {
        let angle = -TAU * part as f64 / whole as f64;
        Self { re: angle.cos(), im: angle.sin() }
    }

    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    fn times(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

/// See the module.
pub(super) struct Fft {
    /// Rows, and points of a row.
    side: usize,
    processors: usize,
    points: Shared<Complex>,
    scratch: Shared<Complex>,
    /// Of the third step.
    twiddles: Shared<Complex>,
    /// Of a row.
    roots: Shared<Complex>,
    /// Each processor's copy of them.
    own_roots: Vec<Vec<Complex>>,
    /// As it was.
    input: Vec<Complex>,
}

/// One processor's rows of the transposed matrix.
fn transpose(
    (from, to): (&Shared<Complex>, &mut Shared<Complex>),
    side: usize,
    (processors, processor): (usize, usize),
    recorder: &mut Recorder<'_>,
) {
    let own = share(side, processors, processor);
    for other in (processor + 1..processors).chain(0..=processor) {
        for row in share(side, processors, other) {
            let piece = recorder.read(from, row * side + own.start..row * side + own.end);
            for (column, element) in own.clone().zip(piece) {
                recorder.write(to, column * side + row..column * side + row + 1)[0] = *element;
                recorder.work(TRANSPOSE_INSTRUCTIONS);
            }
        }
    }
}

/// Transforms a row in its place.
fn transform_row(matrix: &mut Shared<Complex>, row: usize, roots: &[Complex], recorder: &mut Recorder<'_>) {
    let side = roots.len();
    let bits = side.ilog2();
    let range = row * side..(row + 1) * side;
    let points = recorder.update(matrix, range.clone());
    for at in 0..side {
        let reversed = at.reverse_bits() >> (usize::BITS - bits);
        if at < reversed {
            points.swap(at, reversed);
        }
    }
    recorder.work(side * (bits as usize * BIT_INSTRUCTIONS + REVERSE_INSTRUCTIONS));
    for distance in (0..bits).map(|bit| 1 << bit) {
        let points = recorder.update(matrix, range.clone());
        for pair in points.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            let roots = roots.iter().step_by(side / (2 * distance));
            for ((low, high), root) in low.iter_mut().zip(high).zip(roots) {
                let product = high.times(*root);
                (*low, *high) = (low.plus(product), low.minus(product));
            }
        }
        recorder.work(STAGE_INSTRUCTIONS + side / 2 * BUTTERFLY_INSTRUCTIONS);
    }
}

impl Algorithm for Fft {
    const NAME: &'static str = "fft";

    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let side: usize = match scale {
            Scale::Small => 64,
            Scale::Paper => 256,
        };
        let mut dice = Dice::new(1, 59);
        let point = |_| Complex { re: uniform(&mut dice), im: uniform(&mut dice) };
        let input: Vec<Complex> = (0..side * side).map(point).collect();
        let twiddle = |at: usize| Complex::root(at / side * (at % side), side * side);
        Self {
            side,
            processors,
            points: space.array(input.clone()),
            scratch: space.array(vec![Complex { re: 0.0, im: 0.0 }; side * side]),
            twiddles: space.array((0..side * side).map(twiddle).collect()),
            roots: space.array((0..side).map(|part| Complex::root(part, side)).collect()),
            own_roots: vec![Vec::new(); processors],
            input,
        }
    }

    /// See the module.
    fn phases(&self) -> usize {
        3
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let (side, division) = (self.side, (self.processors, processor));
        let own = share(side, self.processors, processor);
        match phase {
            0 => {
                self.own_roots[processor] = recorder.read(&self.roots, 0..side).to_vec();
                recorder.work(side * COPY_INSTRUCTIONS);
                transpose((&self.points, &mut self.scratch), side, division, recorder);
                for row in own {
                    transform_row(&mut self.scratch, row, &self.own_roots[processor], recorder);
                    let range = row * side..(row + 1) * side;
                    let twiddles = recorder.read(&self.twiddles, range.clone());
                    let points = recorder.update(&mut self.scratch, range);
                    for (point, twiddle) in points.iter_mut().zip(twiddles) {
                        *point = point.times(*twiddle);
                    }
                    recorder.work(side * TWIDDLE_INSTRUCTIONS);
                }
            }
            1 => {
                transpose((&self.scratch, &mut self.points), side, division, recorder);
                for row in own {
                    transform_row(&mut self.points, row, &self.own_roots[processor], recorder);
                }
            }
            _ => transpose((&self.points, &mut self.scratch), side, division, recorder),
        }
    }

    /// The inverse transform, by the textbook's recursion over even and odd points, gives the input.
    fn check(&self) -> Result<Vec<String>, String> {
        let count = self.input.len() as f64;
        let numbers =
            |points: &[Complex]| points.iter().flat_map(|point| [point.re, point.im]).collect::<Vec<_>>();
        let mut found = numbers(&inverse(self.scratch.values()));
        found.iter_mut().for_each(|number| *number /= count);
        let what = format!("{count} points against the inverse of their transform");
        Ok(vec![near(&what, distance(&found, &numbers(&self.input)), ERROR_MAX)?])
    }
}

/// The inverse transform, not divided by the number of points.
fn inverse(points: &[Complex]) -> Vec<Complex> {
    if points.len() == 1 {
        return points.to_vec();
    }
    let every_other = |first| inverse(&points.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
    let (even, odd) = (every_other(0), every_other(1));
    let turned = |at: usize| {
        let root = Complex::root(at, points.len());
        odd[at].times(Complex { im: -root.im, ..root })
    };
    let low = (0..even.len()).map(|at| even[at].plus(turned(at)));
    let high = (0..even.len()).map(|at| even[at].minus(turned(at)));
    low.chain(high).collect()
}
