//! SP: five scalar pentadiagonal systems for each line, in characteristic variables.
//!
//! In each direction the sound couples one momentum with the energy; their sum and difference over the root of 2 are carried by v + c and
//! v - c alone. So the state's change is turned into such variables (`txinvr`), solved along x, turned into y's (`ninvr`, in x_solve as in
//! NPB), and so on; after z it is turned back (`tzetar`). Three of the five share one system: 15 diagonals for each cell.

use super::{ByComponent, COMPONENTS, Cube, DT, EPS, FLOW_DOUBLES, Flow, NU, equations};
use crate::check::Check;
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) const PARTS: &[&str] = &["compute_rhs", "txinvr", "x_solve", "y_solve", "z_solve", "add"];
/// Diagonals: five for each of three systems.
const DIAGONALS: usize = 15;
/// An iteration leaves less than this part of the error.
const RATE_MAX: f64 = 0.75;

/// See the module.
pub(crate) struct Sp<M: Memory> {
    flow: Flow<M, ByComponent>,
    lhs: M::Array<f64>,
}

pub(crate) fn bytes(n: usize) -> u64 {
    (Cube::new(n).cells() * (FLOW_DOUBLES + DIAGONALS) * 8) as u64
}

impl<M: Memory> Sp<M> {
    pub(crate) fn new(memory: &M, n: usize) -> Self {
        let lhs = memory.array(DIAGONALS * Cube::new(n).cells());
        Self { flow: Flow::new(memory, n), lhs }
    }

    /// Turns the change into the characteristic variables of x. Their order: the three that the velocity carries, then v + c and v - c.
    fn txinvr(&mut self) {
        self.turn(|state| into_characteristic(0, state));
    }

    fn turn(&mut self, turned: impl Fn([f64; COMPONENTS]) -> [f64; COMPONENTS]) {
        let (cube, cells) = (self.flow.cube, self.flow.cube.cells());
        let (memory, rhs) = (&self.flow.memory, &mut self.flow.rhs);
        cube.interior(0, |_, cell| {
            let state = turned(std::array::from_fn(|m| rhs.get(m * cells + cell)));
            for (m, value) in state.into_iter().enumerate() {
                rhs.set(m * cells + cell, value);
            }
            memory.work(8);
        });
    }

    fn solve(&mut self, direction: usize) {
        self.fill_lhs(direction);
        // As NPB does: the three that share a system in one pass, then the two others, each pass over the whole cube.
        self.eliminate(direction, 0, 0..3);
        self.eliminate(direction, 5, 3..4);
        self.eliminate(direction, 10, 4..5);
        self.substitute(direction, 0, 0..3);
        self.substitute(direction, 5, 3..4);
        self.substitute(direction, 10, 4..5);
        match direction {
            0 | 1 => {
                self.turn(|state| into_characteristic(direction + 1, from_characteristic(direction, state)))
            }
            _ => self.turn(|state| from_characteristic(direction, state)),
        }
    }

    /// The factor I + DT (lambda d/dx - NU d2/dx2 + EPS D4) of each of the three systems; walls do not change.
    fn fill_lhs(&mut self, direction: usize) {
        let (cube, cells) = (self.flow.cube, self.flow.cube.cells());
        let (first, second) = (0.5 * DT / cube.h(), DT * NU / (cube.h() * cube.h()));
        let (velocity, speed, lhs) = (&self.flow.velocity[direction], &self.flow.speed, &mut self.lhs);
        let memory = &self.flow.memory;
        for position in [0, cube.n - 1] {
            walk(cube, direction, position..position + 1, |_, cell| {
                for diagonal in 0..DIAGONALS {
                    lhs.set(diagonal * cells + cell, if diagonal % 5 == 2 { 1.0 } else { 0.0 });
                }
            });
        }
        walk(cube, direction, 1..cube.n - 1, |position, cell| {
            let (v, c) = (velocity.get(cell), speed.get(cell));
            let damping = equations::fourth_difference(position, cube.n).map(|factor| DT * EPS * factor);
            for (system, lambda) in [v, v + c, v - c].into_iter().enumerate() {
                let at = |diagonal: usize| (system * 5 + diagonal) * cells + cell;
                lhs.set(at(0), damping[0]);
                lhs.set(at(1), damping[1] - lambda * first - second);
                lhs.set(at(2), damping[2] + 1.0 + 2.0 * second);
                lhs.set(at(3), damping[3] + lambda * first - second);
                lhs.set(at(4), damping[4]);
            }
            memory.work(30);
        });
    }

    /// Elimination without pivoting: the systems are diagonally dominant but for the small fourth difference.
    fn eliminate(&mut self, direction: usize, system: usize, components: std::ops::Range<usize>) {
        let (cube, cells) = (self.flow.cube, self.flow.cube.cells());
        let stride = cube.stride(direction);
        let last = cube.n - 1;
        let (lhs, rhs, memory) = (&mut self.lhs, &mut self.flow.rhs, &self.flow.memory);
        let operations = 11 + 5 * components.len() as u64;
        walk(cube, direction, 0..cube.n, |position, cell| {
            let at = |diagonal: usize, cell: usize| (system + diagonal) * cells + cell;
            memory.work(operations);
            let factor = 1.0 / lhs.get(at(2, cell));
            let (upper, upper2) = (factor * lhs.get(at(3, cell)), factor * lhs.get(at(4, cell)));
            lhs.set(at(3, cell), upper);
            lhs.set(at(4, cell), upper2);
            for m in components.clone() {
                rhs.set(m * cells + cell, factor * rhs.get(m * cells + cell));
            }
            // From the two lines below; what stands left of the diagonal there is one place farther left in the second.
            for below in (1..=2).take_while(|below| position + below <= last) {
                let next = cell + below * stride;
                let lower = lhs.get(at(2 - below, next));
                lhs.set(at(3 - below, next), lhs.get(at(3 - below, next)) - lower * upper);
                lhs.set(at(4 - below, next), lhs.get(at(4 - below, next)) - lower * upper2);
                for m in components.clone() {
                    let value = rhs.get(m * cells + next) - lower * rhs.get(m * cells + cell);
                    rhs.set(m * cells + next, value);
                }
            }
        });
    }

    fn substitute(&mut self, direction: usize, system: usize, components: std::ops::Range<usize>) {
        let (cube, cells) = (self.flow.cube, self.flow.cube.cells());
        let stride = cube.stride(direction);
        let (lhs, rhs, memory) = (&self.lhs, &mut self.flow.rhs, &self.flow.memory);
        let operations = 4 * components.len() as u64;
        walk(cube, direction, (0..cube.n - 1).rev(), |position, cell| {
            memory.work(operations);
            let upper = lhs.get((system + 3) * cells + cell);
            let upper2 = lhs.get((system + 4) * cells + cell);
            for m in components.clone() {
                let mut value = rhs.get(m * cells + cell) - upper * rhs.get(m * cells + cell + stride);
                if position + 2 < cube.n {
                    value -= upper2 * rhs.get(m * cells + cell + 2 * stride);
                }
                rhs.set(m * cells + cell, value);
            }
        });
    }
}

/// Visits lines of the cube in a direction, as NPB's loops do: along x and y one position of all lines after the other, along z line by line.
#[inline(always)]
fn walk(
    cube: Cube,
    direction: usize,
    positions: impl Iterator<Item = usize> + Clone,
    mut visit: impl FnMut(usize, usize),
) {
    if direction == 2 {
        for i in 1..cube.n - 1 {
            for j in 1..cube.n - 1 {
                for position in positions.clone() {
                    visit(position, cube.cell(i, j, position));
                }
            }
        }
        return;
    }
    for position in positions {
        for line in 1..cube.n - 1 {
            for k in 1..cube.n - 1 {
                let cell =
                    if direction == 0 { cube.cell(position, line, k) } else { cube.cell(line, position, k) };
                visit(position, cell);
            }
        }
    }
}

/// The momenta that a direction's sound leaves alone.
const OTHERS: [[usize; 2]; 3] = [[2, 3], [1, 3], [1, 2]];

fn into_characteristic(direction: usize, u: [f64; COMPONENTS]) -> [f64; COMPONENTS] {
    let [first, second] = OTHERS[direction];
    let momentum = u[1 + direction];
    [u[0], u[first], u[second], (momentum + u[4]) * FRAC_1_SQRT_2, (momentum - u[4]) * FRAC_1_SQRT_2]
}

fn from_characteristic(direction: usize, w: [f64; COMPONENTS]) -> [f64; COMPONENTS] {
    let [first, second] = OTHERS[direction];
    let mut u = [0.0; COMPONENTS];
    u[0] = w[0];
    u[first] = w[1];
    u[second] = w[2];
    u[1 + direction] = (w[3] + w[4]) * FRAC_1_SQRT_2;
    u[4] = (w[3] - w[4]) * FRAC_1_SQRT_2;
    u
}

impl<M: Memory> Kernel for Sp<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.flow.compute_rhs(),
            1 => self.txinvr(),
            2..=4 => self.solve(part - 2),
            _ => self.flow.add(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        self.flow.verify(iterations, RATE_MAX).0
    }

    fn checksum(&self) -> u64 {
        self.flow.checksum()
    }

    fn corrupt(&mut self, seed: u64) {
        self.flow.corrupt(seed);
    }
}
