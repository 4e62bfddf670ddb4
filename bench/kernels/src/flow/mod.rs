//! The equations that BT and SP solve, by the alternating directions that both are named after.
//!
//! Five quantities in a cube: a density, three momenta and an energy, which are carried by their own velocities, coupled by sound, spread
//! by viscosity and damped by a fourth difference:
//!
//! ```text
//! du/dt = forcing - sum over directions (A_d(u) du/dx_d - nu d2u/dx_d2 + eps D4_d u) - drag(u)
//! ```
//!
//! A_d has the velocity of direction d on its diagonal, and the speed of sound between momentum d and the energy; its eigenvalues are v
//! (three times), v + c and v - c, as those of the NAS benchmarks' Navier-Stokes equations. The forcing is the same discrete operator applied
//! to a polynomial, so that polynomial is the solution that iterations must converge to. What differs from NPB is in `docs/kernels.md`; arrays, their layouts,
//! loop orders and parts are those of NPB 2.3 in C, which aapc-2012 measured.

pub(crate) mod bt;
mod equations;
pub(crate) mod sp;
#[cfg(test)]
mod tests;

use crate::check::{Checks, checksum};
use crate::memory::{Array, Memory};
use crate::random;

/// Quantities of a cell.
const COMPONENTS: usize = 5;
/// Viscosity: large enough that a cell's Péclet number stays below 2 on the smallest grid, so that the systems are diagonally dominant.
const NU: f64 = 0.1;
/// Weight of the fourth difference, as NPB's `dssp`.
const EPS: f64 = 0.25;
/// Drag.
const DRAG: f64 = 0.1;
/// Ratio of specific heats × (itself - 1): the speed of sound's square is this × pressure by density.
const SOUND: f64 = 0.56;
/// Length of a step.
const DT: f64 = 0.1;
/// How far from the solution an iteration begins: so much in the middle of the cube, nothing at its walls.
const START_ERROR: f64 = 0.2;
/// Edge of the smallest cube for which the Péclet number and the fourth difference's five points are as they should be.
pub(crate) const EDGE_MIN: usize = 12;

/// Where component m of a cell is in an array of five.
pub(crate) trait Layout: 'static {
    fn index(component: usize, cell: usize, cells: usize) -> usize;
}

/// SP's: component by component, `u[5][i][j][k]`.
pub(crate) struct ByComponent;

impl Layout for ByComponent {
    #[inline(always)]
    fn index(component: usize, cell: usize, cells: usize) -> usize {
        component * cells + cell
    }
}

/// BT's: cell by cell, `u[i][j][k][5]`.
pub(crate) struct ByCell;

impl Layout for ByCell {
    #[inline(always)]
    fn index(component: usize, cell: usize, _cells: usize) -> usize {
        cell * COMPONENTS + component
    }
}

/// A cube of n points along each edge, in arrays whose edges are odd as NPB's are (against cache conflicts).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cube {
    pub(crate) n: usize,
    edge: usize,
}

impl Cube {
    pub(crate) fn new(n: usize) -> Self {
        Self { n, edge: n / 2 * 2 + 1 }
    }

    pub(crate) fn cells(self) -> usize {
        self.edge * self.edge * self.edge
    }

    #[inline(always)]
    pub(crate) fn cell(self, i: usize, j: usize, k: usize) -> usize {
        (i * self.edge + j) * self.edge + k
    }

    /// From a cell to the next one in a direction: x is the slowest index, z the fastest.
    pub(crate) fn stride(self, direction: usize) -> usize {
        [self.edge * self.edge, self.edge, 1][direction]
    }

    pub(crate) fn h(self) -> f64 {
        1.0 / (self.n - 1) as f64
    }

    /// All interior cells in the order in which they are in memory, with their position along `direction`.
    #[inline(always)]
    pub(crate) fn interior(self, direction: usize, mut visit: impl FnMut(usize, usize)) {
        for i in 1..self.n - 1 {
            for j in 1..self.n - 1 {
                for k in 1..self.n - 1 {
                    visit([i, j, k][direction], self.cell(i, j, k));
                }
            }
        }
    }
}

/// The state, what is derived from it, and the right-hand side.
pub(crate) struct Flow<M: Memory, L: Layout> {
    memory: M,
    cube: Cube,
    u: M::Array<f64>,
    rhs: M::Array<f64>,
    forcing: M::Array<f64>,
    /// Velocities: us, vs, ws.
    velocity: [M::Array<f64>; 3],
    qs: M::Array<f64>,
    rho_i: M::Array<f64>,
    square: M::Array<f64>,
    speed: M::Array<f64>,
    start_rms: f64,
    layout: std::marker::PhantomData<L>,
}

/// Doubles for each cell in `Flow`.
const FLOW_DOUBLES: usize = 3 * COMPONENTS + 7;

impl<M: Memory, L: Layout> Flow<M, L> {
    fn new(memory: &M, n: usize) -> Self {
        assert!(n >= EDGE_MIN, "the cube is too small");
        let cube = Cube::new(n);
        let cells = cube.cells();
        let five = || memory.array::<f64>(COMPONENTS * cells);
        let one = || memory.array::<f64>(cells);
        let mut new = Self {
            memory: memory.clone(),
            cube,
            u: five(),
            rhs: five(),
            forcing: five(),
            velocity: [one(), one(), one()],
            qs: one(),
            rho_i: one(),
            square: one(),
            speed: one(),
            start_rms: 0.0,
            layout: std::marker::PhantomData,
        };
        new.make_forcing();
        new.fill(START_ERROR);
        new.start_rms = new.error().0;
        new
    }

    /// Sets the state to the solution and so much of a bump.
    fn fill(&mut self, bump: f64) {
        let (cube, cells) = (self.cube, self.cube.cells());
        let at = |index: usize| index as f64 * cube.h();
        for i in 0..cube.n {
            for j in 0..cube.n {
                for k in 0..cube.n {
                    let (x, y, z) = (at(i), at(j), at(k));
                    let bubble = 64.0 * x * (1.0 - x) * y * (1.0 - y) * z * (1.0 - z);
                    for m in 0..COMPONENTS {
                        let value = equations::solution(m, x, y, z) + bump * bubble;
                        self.u.set(L::index(m, cube.cell(i, j, k), cells), value);
                    }
                }
            }
        }
    }

    /// Makes the polynomial the solution: its own right-hand side is taken off.
    fn make_forcing(&mut self) {
        self.fill(0.0);
        self.compute_rhs();
        for index in 0..self.rhs.len() {
            self.forcing.set(index, -self.rhs.get(index) / DT);
        }
    }

    /// u += what the three sweeps made of the right-hand side.
    fn add(&mut self) {
        let (cube, cells) = (self.cube, self.cube.cells());
        for m in 0..COMPONENTS {
            cube.interior(0, |_, cell| {
                let at = L::index(m, cell, cells);
                self.u.set(at, self.u.get(at) + self.rhs.get(at));
                self.memory.work(1);
            });
        }
    }

    /// Root mean square and maximum of the distance from the solution, walls included.
    fn error(&self) -> (f64, f64) {
        let (cube, cells) = (self.cube, self.cube.cells());
        let at = |index: usize| index as f64 * cube.h();
        let (mut sum, mut worst) = (0.0, 0.0_f64);
        for i in 0..cube.n {
            for j in 0..cube.n {
                for k in 0..cube.n {
                    for m in 0..COMPONENTS {
                        let wanted = equations::solution(m, at(i), at(j), at(k));
                        let error = (self.u.get(L::index(m, cube.cell(i, j, k), cells)) - wanted).abs();
                        sum += error * error;
                        // A comparison with what is no number is false.
                        worst = if error <= worst { worst } else { error };
                    }
                }
            }
        }
        ((sum / (cube.n.pow(3) * COMPONENTS) as f64).sqrt(), worst)
    }

    /// Looks how near the solution is after so many iterations, each of which must take off a part of the error.
    fn verify(&self, iterations: u32, rate_max: f64) -> Checks {
        let mut checks = Checks::default();
        let (rms, worst) = self.error();
        // Rounding: the state has sixteen digits, differences of differences lose some.
        let left = rate_max.powi(i32::try_from(iterations).unwrap_or(i32::MAX)).max(1e-10);
        checks.at_most("distance from the solution, root mean square", rms, self.start_rms * left);
        // The error begins as a smooth bump and stays one.
        checks.at_most("distance from the solution, largest", worst, START_ERROR * 2.0 * left.max(1e-9));
        checks
    }

    fn checksum(&self) -> u64 {
        checksum(&self.u)
    }

    fn corrupt(&mut self, seed: u64) {
        let [i, j, k] = std::array::from_fn(|axis| random::below(seed, axis as u64, self.cube.n));
        let component = random::below(seed, 3, COMPONENTS);
        let at = L::index(component, self.cube.cell(i, j, k), self.cube.cells());
        self.u.set(at, self.u.get(at) + 1.0);
    }
}
