//! BT: a block-tridiagonal system for each line, with blocks of 5 × 5.
//!
//! The three blocks of a cell are kept for the whole cube, `lhs[i][j][k][3][5][5]`, and made anew for each direction. Elimination goes
//! position by position over all lines, in z too, where neighbours in memory are then visited a whole pass apart: that is what makes large pages
//! bad for it (aapc-2012, figure 5).

use super::{ByCell, COMPONENTS, Cube, DT, FLOW_DOUBLES, Flow, Layout, NU};
use crate::check::Check;
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};

pub(crate) const PARTS: &[&str] = &["compute_rhs", "x_solve", "y_solve", "z_solve", "add"];
/// An iteration leaves less than this part of the error.
const RATE_MAX: f64 = 0.75;
const BLOCK: usize = COMPONENTS * COMPONENTS;
/// The blocks of a cell: of the cell before, of itself, of the cell behind.
const BLOCKS: usize = 3;
const LOW: usize = 0;
const OWN: usize = 1;
const HIGH: usize = 2;

/// Elimination of a cell: a product of matrices, one with a vector, and an elimination that carries a matrix and a vector along.
const CELL_OPERATIONS: u64 = 2 * (BLOCK * COMPONENTS + BLOCK + BLOCK * (2 * COMPONENTS + 1)) as u64;

type Vector = [f64; COMPONENTS];
type Matrix = [[f64; COMPONENTS]; COMPONENTS];

/// See the module.
pub(crate) struct Bt<M: Memory> {
    flow: Flow<M, ByCell>,
    lhs: M::Array<f64>,
}

pub(crate) fn bytes(n: usize) -> u64 {
    (Cube::new(n).cells() * (FLOW_DOUBLES + BLOCKS * BLOCK) * 8) as u64
}

impl<M: Memory> Bt<M> {
    pub(crate) fn new(memory: &M, n: usize) -> Self {
        let lhs = memory.array(BLOCKS * BLOCK * Cube::new(n).cells());
        Self { flow: Flow::new(memory, n), lhs }
    }

    fn block(&self, cell: usize, block: usize) -> Matrix {
        let begin = (cell * BLOCKS + block) * BLOCK;
        std::array::from_fn(|row| {
            std::array::from_fn(|column| self.lhs.get(begin + row * COMPONENTS + column))
        })
    }

    fn set_block(&mut self, cell: usize, block: usize, matrix: &Matrix) {
        let begin = (cell * BLOCKS + block) * BLOCK;
        for (row, values) in matrix.iter().enumerate() {
            for (column, &value) in values.iter().enumerate() {
                self.lhs.set(begin + row * COMPONENTS + column, value);
            }
        }
    }

    fn rhs(&self, cell: usize) -> Vector {
        std::array::from_fn(|m| self.flow.rhs.get(ByCell::index(m, cell, 0)))
    }

    fn set_rhs(&mut self, cell: usize, vector: Vector) {
        for (m, value) in vector.into_iter().enumerate() {
            self.flow.rhs.set(ByCell::index(m, cell, 0), value);
        }
    }

    fn solve(&mut self, direction: usize) {
        self.fill_lhs(direction);
        self.eliminate(direction);
        self.substitute(direction);
    }

    /// The factor I + DT (A d/dx - NU d2/dx2); walls do not change.
    fn fill_lhs(&mut self, direction: usize) {
        let cube = self.flow.cube;
        let (first, second) = (0.5 * DT / cube.h(), DT * NU / (cube.h() * cube.h()));
        for i in 0..cube.n {
            for j in 0..cube.n {
                for k in 0..cube.n {
                    let position = [i, j, k];
                    let across = (0..3).filter(|&axis| axis != direction);
                    if across.into_iter().any(|axis| position[axis] == 0 || position[axis] == cube.n - 1) {
                        continue;
                    }
                    let cell = cube.cell(i, j, k);
                    let wall = position[direction] == 0 || position[direction] == cube.n - 1;
                    let (carried, spread) = if wall {
                        ([[0.0; COMPONENTS]; COMPONENTS], 0.0)
                    } else {
                        (self.jacobian(direction, cell, first), second)
                    };
                    for (block, sign, diagonal) in
                        [(LOW, -1.0, -spread), (OWN, 0.0, 1.0 + 2.0 * spread), (HIGH, 1.0, -spread)]
                    {
                        let mut matrix = carried.map(|row| row.map(|value| sign * value));
                        for (m, row) in matrix.iter_mut().enumerate() {
                            row[m] += diagonal;
                        }
                        self.set_block(cell, block, &matrix);
                    }
                    self.flow.memory.work((BLOCKS * BLOCK) as u64);
                }
            }
        }
    }

    /// A × factor: the velocity, and sound between the direction's momentum and the energy.
    fn jacobian(&self, direction: usize, cell: usize, factor: f64) -> Matrix {
        let (v, c) = (self.flow.velocity[direction].get(cell), self.flow.speed.get(cell));
        let mut matrix = [[0.0; COMPONENTS]; COMPONENTS];
        for (m, row) in matrix.iter_mut().enumerate() {
            row[m] = v * factor;
        }
        matrix[1 + direction][4] = c * factor;
        matrix[4][1 + direction] = c * factor;
        matrix
    }

    fn eliminate(&mut self, direction: usize) {
        let cube = self.flow.cube;
        let stride = cube.stride(direction);
        for position in 0..cube.n {
            for a in 1..cube.n - 1 {
                for b in 1..cube.n - 1 {
                    let cell = cell_at(cube, direction, position, a, b);
                    let (mut own, mut rhs) = (self.block(cell, OWN), self.rhs(cell));
                    if position > 0 {
                        let low = self.block(cell, LOW);
                        subtract_vector(&low, &self.rhs(cell - stride), &mut rhs);
                        subtract_matrix(&low, &self.block(cell - stride, HIGH), &mut own);
                    }
                    let mut high = self.block(cell, HIGH);
                    invert(&mut own, &mut high, &mut rhs);
                    self.set_block(cell, OWN, &own);
                    self.set_block(cell, HIGH, &high);
                    self.set_rhs(cell, rhs);
                    self.flow.memory.work(CELL_OPERATIONS);
                }
            }
        }
    }

    fn substitute(&mut self, direction: usize) {
        let cube = self.flow.cube;
        let stride = cube.stride(direction);
        let visit = |bt: &mut Self, cell: usize| {
            let (high, mut rhs) = (bt.block(cell, HIGH), bt.rhs(cell));
            subtract_vector(&high, &bt.rhs(cell + stride), &mut rhs);
            bt.set_rhs(cell, rhs);
            bt.flow.memory.work(2 * BLOCK as u64);
        };
        if direction == 2 {
            for i in 1..cube.n - 1 {
                for j in 1..cube.n - 1 {
                    (0..cube.n - 1).rev().for_each(|k| visit(self, cube.cell(i, j, k)));
                }
            }
        } else {
            for position in (0..cube.n - 1).rev() {
                for a in 1..cube.n - 1 {
                    for b in 1..cube.n - 1 {
                        visit(self, cell_at(cube, direction, position, a, b));
                    }
                }
            }
        }
    }
}

/// The cell at a position of a line along a direction; `a` and `b` say which line, the slower index first.
fn cell_at(cube: Cube, direction: usize, position: usize, a: usize, b: usize) -> usize {
    match direction {
        0 => cube.cell(position, a, b),
        1 => cube.cell(a, position, b),
        _ => cube.cell(a, b, position),
    }
}

/// into -= matrix × vector.
fn subtract_vector(matrix: &Matrix, vector: &Vector, into: &mut Vector) {
    for (into, row) in into.iter_mut().zip(matrix) {
        for (factor, value) in row.iter().zip(vector) {
            *into -= factor * value;
        }
    }
}

/// into -= left × right.
fn subtract_matrix(left: &Matrix, right: &Matrix, into: &mut Matrix) {
    for (into, left) in into.iter_mut().zip(left) {
        for (factor, right) in left.iter().zip(right) {
            for (into, value) in into.iter_mut().zip(right) {
                *into -= factor * value;
            }
        }
    }
}

/// Solves own × (x, y) = (high, rhs) in place, by Gauss and Jordan without pivoting: blocks are diagonally dominant.
fn invert(own: &mut Matrix, high: &mut Matrix, rhs: &mut Vector) {
    for pivot in 0..COMPONENTS {
        let factor = 1.0 / own[pivot][pivot];
        for column in 0..COMPONENTS {
            own[pivot][column] *= factor;
            high[pivot][column] *= factor;
        }
        rhs[pivot] *= factor;
        let (own_row, high_row, value) = (own[pivot], high[pivot], rhs[pivot]);
        for row in (0..COMPONENTS).filter(|&row| row != pivot) {
            let factor = own[row][pivot];
            for column in 0..COMPONENTS {
                own[row][column] -= factor * own_row[column];
                high[row][column] -= factor * high_row[column];
            }
            rhs[row] -= factor * value;
        }
    }
}

impl<M: Memory> Kernel for Bt<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.flow.compute_rhs(),
            1..=3 => self.solve(part - 1),
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
