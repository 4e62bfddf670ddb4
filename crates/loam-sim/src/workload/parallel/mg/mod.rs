//! Mg: a solver of Poisson's equation in three dimensions by multigrid, 32 x 32 x 64 floats, 10 iterations
//! (nwcache-1999, table 2).
//!
//! The textbook's V-cycles (Briggs, Henson and McCormick, *A Multigrid Tutorial*), with the grids, the periodic
//! border and the weights of residuals and corrections of NAS MG (Bailey and others, *The NAS Parallel Benchmarks*,
//! 1991): on each grid smooth, take the residual, restrict it to the grid of half as many points each way, solve
//! there, correct, smooth again. Smoothing is damped Jacobi, so that all points can be done at once. Each processor
//! has neighbouring planes of each grid (64 planes of 32 x 32 floats, a page each, on the finest; processors without
//! one on a coarse grid wait). A barrier follows each of the steps on each grid; the coarsest is solved by one
//! processor alone.
//!
//! The paper does not say what its arrays are. Its 2.4 MB are eight floats for each point of all grids together; ours
//! are those of an equation with conductivities, -div(k grad u) = f: u, another u (Jacobi's), f, the residual, the
//! conductivity to the next point in three directions, and the weight of a correction.
//!
//! All is done row by row of 32 points: a sweep over each row that is needed, and one over the row that is written.

mod grid;
mod reference;

use super::checks::{distance, near};
use super::memory::{Recorder, Space};
use super::program::{Algorithm, share, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;
use grid::{Grid, Shape};

/// Smoothings, there and back, of the coarsest grid, which has 16 points.
const COARSEST_SMOOTHINGS: usize = 8;
const CYCLES: usize = 10;
/// What may be left of the first guess's error after [`CYCLES`]: two smoothings a cycle, and each leaves 5/7 at most
/// of the waves that no coarser grid has (damped Jacobi in three dimensions).
const REMAINDER_MAX: f64 = 1.2e-3;
/// How far floats may be from doubles, relative to the solution: some hundred roundings.
const ROUNDING_MAX: f64 = 1e-5;

/// What is done with a grid up to a barrier.
#[derive(Clone, Copy, Debug)]
enum Work {
    Smooth,
    /// As `Smooth`, from zeros.
    SmoothZeros,
    Residual,
    /// From the finer grid's residual.
    Restrict,
    SolveCoarsest,
    /// By the coarser grid's solution.
    Correct,
    SmoothBack,
}

/// See the module.
pub(super) struct Mg {
    processors: usize,
    grids: Vec<Grid>,
    /// Of a cycle: what is done, with which grid. 0 is the finest.
    steps: Vec<(Work, usize)>,
    /// What the solution is, but for a constant.
    expected: Vec<f64>,
}

/// A V-cycle's steps.
fn cycle(grids: usize) -> Vec<(Work, usize)> {
    let mut steps = vec![(Work::Smooth, 0)];
    for coarse in 1..grids {
        let last = if coarse + 1 < grids { Work::SmoothZeros } else { Work::SolveCoarsest };
        steps.extend([(Work::Residual, coarse - 1), (Work::Restrict, coarse), (last, coarse)]);
    }
    for fine in (0..grids - 1).rev() {
        steps.extend([(Work::Correct, fine), (Work::SmoothBack, fine)]);
    }
    steps
}

impl Algorithm for Mg {
    const NAME: &'static str = "mg";

    /// The right-hand side is made from a random solution, which has errors of all wavelengths in it; the first guess
    /// is zero.
    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let finest = match scale {
            Scale::Small => Shape { planes: 16, rows: 8, columns: 8 },
            Scale::Paper => Shape { planes: 64, rows: 32, columns: 32 },
        };
        let shapes = std::iter::successors(Some(finest), Shape::coarser);
        let mut grids: Vec<Grid> = shapes.map(|shape| Grid::new(shape, space)).collect();
        let mut dice = Dice::new(1, 71);
        let expected: Vec<f64> = (0..finest.points()).map(|_| uniform(&mut dice)).collect();
        grids[0].set_source(&expected);
        let steps = cycle(grids.len());
        Self { processors, grids, steps, expected }
    }

    /// The steps of all cycles.
    fn phases(&self) -> usize {
        CYCLES * self.steps.len()
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let (work, at) = self.steps[phase % self.steps.len()];
        let (finer, rest) = self.grids.split_at_mut(at);
        let (grid, coarser) = rest.split_first_mut().expect("the step's grid is there");
        let planes = share(grid.shape.planes, self.processors, processor);
        match work {
            Work::Smooth => grid.smooth(planes, true, recorder),
            Work::SmoothZeros => grid.smooth_zeros(planes, recorder),
            Work::Residual => grid.take_residual(planes, recorder),
            Work::Restrict => grid.restrict(&finer[at - 1], planes, recorder),
            Work::SolveCoarsest if processor > 0 => {}
            Work::SolveCoarsest => {
                let all = 0..grid.shape.planes;
                grid.smooth_zeros(all.clone(), recorder);
                (1..COARSEST_SMOOTHINGS).for_each(|time| grid.smooth(all.clone(), time % 2 == 0, recorder));
            }
            Work::Correct => grid.correct(&coarser[0], planes, recorder),
            Work::SmoothBack => grid.smooth(planes, false, recorder),
        }
    }

    /// It is what the same cycles give in doubles and point by point, and near the solution from which the right-hand
    /// side was made.
    fn check(&self) -> Result<Vec<String>, String> {
        let doubles = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
        let source = doubles(self.grids[0].source());
        let mut reference = vec![0.0; source.len()];
        (0..CYCLES).for_each(|_| reference::cycle(&self.grids, &mut reference, &source));
        let found = without_mean(&doubles(self.grids[0].solution()));
        let rounding = distance(&found, &without_mean(&reference));
        let remainder = distance(&found, &without_mean(&self.expected));
        let what = format!("{} points against whole grids in doubles", found.len());
        Ok(vec![
            near(&what, rounding, ROUNDING_MAX)?,
            near("against the known solution", remainder, REMAINDER_MAX)?,
        ])
    }
}

/// A constant does not matter: the equation does not tell it.
fn without_mean(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| value - mean).collect()
}
