//! MG: Poisson's equation on a periodic cube by V-cycles of multigrid, with NPB's 27-point operators and layouts: each level has a layer of
//! ghost cells, all levels of an array lie in one allocation, the finest last.
//!
//! The right-hand side is the operator applied to random numbers, so these are the solution, but for a constant.

mod grid;

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;
use grid::{Grid, grids};

pub(crate) const PARTS: &[&str] = &["resid", "restrict", "prolongate"];
/// NPB's operator a: factors of the cell, of its 6 neighbours by face, 12 by edge, 8 by corner.
const A: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
/// NPB's smoother (classes S, W and A).
const C: [f64; 4] = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0];
const SEED: u64 = 0x36;
/// A V-cycle leaves less than this part of the residual.
const RATE_MAX: f64 = 0.5;
/// Rounding: the residual is never less than this part of what it was.
const FLOOR: f64 = 1e-12;
/// Arithmetic of a 27-point operator at a cell.
const STENCIL_OPERATIONS: u64 = 30;

/// See the module.
pub(crate) struct Mg<M: Memory> {
    memory: M,
    /// The coarsest first.
    grids: Vec<Grid>,
    u: M::Array<f64>,
    r: M::Array<f64>,
    v: M::Array<f64>,
    start: Distance,
}

/// How far from the solution: root mean squares of the residual and of the error, and the largest error.
#[derive(Clone, Copy, Debug, Default)]
struct Distance {
    residual: f64,
    error: f64,
    worst: f64,
}

pub(crate) fn bytes(exponent: usize) -> u64 {
    let grids = grids(exponent);
    let all = grids.iter().map(|grid| grid.cells()).sum::<usize>();
    ((2 * all + grids[exponent - 1].cells()) * 8) as u64
}

/// The solution, from -0.5 to 0.5.
fn solution(n: usize, i: usize, j: usize, k: usize) -> f64 {
    random::unit(SEED, ((i * n + j) * n + k) as u64) - 0.5
}

impl<M: Memory> Mg<M> {
    /// A cube of 2^exponent cells along each edge.
    pub(crate) fn new(memory: &M, exponent: usize) -> Self {
        let grids = grids(exponent);
        let all = grids.iter().map(|grid| grid.cells()).sum();
        let finest = grids[exponent - 1];
        let mut new = Self {
            memory: memory.clone(),
            grids,
            u: memory.array(all),
            r: memory.array(all),
            v: memory.array(finest.cells()),
            start: Distance::default(),
        };
        finest.interior(|[i, j, k], cell| new.u.set(cell, solution(finest.n, i, j, k)));
        finest.wrap(&mut new.u);
        // With v = 0 the residual is -A u.
        new.resid();
        finest.all(|at, cell| new.v.set(at, -new.r.get(cell)));
        finest.all(|_, cell| new.u.set(cell, 0.0));
        new.resid();
        new.start = new.distance();
        new
    }

    fn finest(&self) -> Grid {
        *self.grids.last().expect("there is a level")
    }

    /// r = v - A u on the finest grid.
    fn resid(&mut self) {
        let grid = self.finest();
        let (u, r, v, memory) = (&self.u, &mut self.r, &self.v, &self.memory);
        grid.interior(|_, cell| {
            r.set(cell, v.get(cell - grid.begin) - grid.stencil(A, u, cell));
            memory.work(STENCIL_OPERATIONS);
        });
        grid.wrap(r);
    }

    /// r of each level, down to the coarsest: the weighted mean of the 27 finer cells around each second one.
    fn restrict(&mut self) {
        for level in (1..self.grids.len()).rev() {
            let (coarse, fine) = (self.grids[level - 1], self.grids[level]);
            let (r, memory) = (&mut self.r, &self.memory);
            coarse.interior(|place, cell| {
                let [i, j, k] = place.map(|index| 2 * index + 1);
                let value = fine.stencil([0.5, 0.25, 0.125, 0.0625], r, fine.cell(i, j, k));
                r.set(cell, value);
                memory.work(STENCIL_OPERATIONS);
            });
            coarse.wrap(r);
        }
    }

    /// From the coarsest level up: the correction is interpolated, the residual taken anew, and smoothed.
    fn prolongate(&mut self) {
        let coarsest = self.grids[0];
        let u = &mut self.u;
        coarsest.all(|_, cell| u.set(cell, 0.0));
        self.smooth(coarsest);
        for level in 1..self.grids.len() {
            let (coarse, fine) = (self.grids[level - 1], self.grids[level]);
            let top = level + 1 == self.grids.len();
            if !top {
                let u = &mut self.u;
                fine.all(|_, cell| u.set(cell, 0.0));
            }
            self.interpolate(coarse, fine);
            if top {
                self.resid();
            } else {
                self.take_off(fine);
            }
            self.smooth(fine);
        }
    }

    /// u of the fine grid += the coarse one's, linearly between its cells.
    fn interpolate(&mut self, coarse: Grid, fine: Grid) {
        let (u, memory) = (&mut self.u, &self.memory);
        fine.interior(|place, cell| {
            // A fine cell of odd place lies on a coarse one; another lies between two.
            let near = place.map(|index| match index % 2 {
                1 => [index / 2; 2],
                _ => [(index / 2 + coarse.n - 1) & (coarse.n - 1), index / 2],
            });
            let mut sum = 0.0;
            for corner in 0..8 {
                let [i, j, k] = std::array::from_fn(|axis| near[axis][corner >> axis & 1]);
                sum += u.get(coarse.cell(i, j, k));
            }
            u.set(cell, u.get(cell) + sum / 8.0);
            memory.work(9);
        });
        fine.wrap(u);
    }

    /// r -= A u on a grid that is not the finest.
    fn take_off(&mut self, grid: Grid) {
        let (u, r, memory) = (&self.u, &mut self.r, &self.memory);
        grid.interior(|_, cell| {
            r.set(cell, r.get(cell) - grid.stencil(A, u, cell));
            memory.work(STENCIL_OPERATIONS);
        });
        grid.wrap(r);
    }

    /// u += C r.
    fn smooth(&mut self, grid: Grid) {
        let (u, r, memory) = (&mut self.u, &self.r, &self.memory);
        grid.interior(|_, cell| {
            u.set(cell, u.get(cell) + grid.stencil(C, r, cell));
            memory.work(STENCIL_OPERATIONS);
        });
        grid.wrap(u);
    }

    /// Of u as it is; r must be its residual.
    fn distance(&self) -> Distance {
        let grid = self.finest();
        let cells = (grid.n * grid.n * grid.n) as f64;
        let (mut residual, mut mean) = (0.0, 0.0);
        let error = |[i, j, k]: [usize; 3], cell: usize| self.u.get(cell) - solution(grid.n, i, j, k);
        grid.interior(|place, cell| {
            residual += self.r.get(cell) * self.r.get(cell);
            mean += error(place, cell) / cells;
        });
        let (mut square, mut worst) = (0.0, 0.0_f64);
        grid.interior(|place, cell| {
            let error = (error(place, cell) - mean).abs();
            square += error * error;
            // A comparison with what is no number is false.
            worst = if error <= worst { worst } else { error };
        });
        Distance { residual: (residual / cells).sqrt(), error: (square / cells).sqrt(), worst }
    }
}

impl<M: Memory> Kernel for Mg<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.resid(),
            1 => self.restrict(),
            _ => self.prolongate(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        let left = RATE_MAX.powi(i32::try_from(iterations).unwrap_or(i32::MAX)).max(FLOOR);
        self.resid();
        let distance = self.distance();
        checks.at_most("residual, root mean square", distance.residual, self.start.residual * left);
        checks.at_most(
            "distance from the solution, root mean square",
            distance.error,
            self.start.error * left,
        );
        // Errors begin evenly spread, and end as a bell: the largest ones are some times further out.
        let worst = self.start.worst * left * 4.0;
        checks.at_most("distance from the solution, largest", distance.worst, worst);
        checks.0
    }

    fn checksum(&self) -> u64 {
        checksum(&self.u)
    }

    fn corrupt(&mut self, seed: u64) {
        let grid = self.finest();
        let [i, j, k] = std::array::from_fn(|axis| random::below(seed, axis as u64, grid.n));
        let cell = grid.cell(i, j, k);
        self.u.set(cell, self.u.get(cell) + 1.0);
        grid.wrap(&mut self.u);
    }
}
