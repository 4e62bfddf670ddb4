//! The discrete right-hand side, and the solution.

use super::{COMPONENTS, DRAG, DT, EPS, Flow, Layout, NU, SOUND};
use crate::memory::{Array, Memory};

/// Of each component: a constant, and the factors of x, y, z and of their squares and cubes.
const POLYNOMIAL: [[f64; 10]; COMPONENTS] = [
    [1.2, 0.10, 0.05, -0.08, 0.06, -0.04, 0.05, 0.02, 0.03, -0.02],
    [0.3, 0.08, -0.06, 0.05, -0.05, 0.07, 0.02, 0.01, -0.03, 0.02],
    [0.2, -0.05, 0.09, 0.04, 0.06, -0.03, -0.05, -0.02, 0.02, 0.03],
    [0.25, 0.06, 0.03, -0.07, -0.02, 0.05, 0.06, 0.03, -0.01, -0.02],
    [2.5, 0.20, -0.15, 0.10, 0.10, 0.12, -0.08, -0.04, 0.05, 0.06],
];

/// Arithmetic at a cell for one direction, all components: differences and sound.
const CARRY_OPERATIONS: u64 = 5 * 10 + 4;
/// The fourth difference of one component.
const DAMP_OPERATIONS: u64 = 11;
/// For the derived quantities, two of which are a division and a root.
const DERIVED_OPERATIONS: u64 = 50;

/// The polynomial that is the solution.
pub(super) fn solution(component: usize, x: f64, y: f64, z: f64) -> f64 {
    let c = &POLYNOMIAL[component];
    c[0] + x * (c[1] + x * (c[4] + x * c[7]))
        + y * (c[2] + y * (c[5] + y * c[8]))
        + z * (c[3] + z * (c[6] + z * c[9]))
}

/// The fourth difference's factors at a position along a line of n: at the first two points inside of a wall it is one-sided, as NPB's is.
pub(super) fn fourth_difference(position: usize, n: usize) -> [f64; 5] {
    match position {
        1 => [0.0, 0.0, 5.0, -4.0, 1.0],
        2 => [0.0, -4.0, 6.0, -4.0, 1.0],
        _ if position == n - 2 => [1.0, -4.0, 5.0, 0.0, 0.0],
        _ if position == n - 3 => [1.0, -4.0, 6.0, -4.0, 0.0],
        _ => [1.0, -4.0, 6.0, -4.0, 1.0],
    }
}

impl<M: Memory, L: Layout> Flow<M, L> {
    /// rhs = DT × (forcing - operator(u)): pass by pass over the whole cube, as in NPB.
    pub(super) fn compute_rhs(&mut self) {
        self.derive();
        for index in 0..self.rhs.len() {
            self.rhs.set(index, self.forcing.get(index));
        }
        for direction in 0..3 {
            self.carry(direction);
            self.damp(direction);
        }
        self.drag();
    }

    fn derive(&mut self) {
        let (cube, cells) = (self.cube, self.cube.cells());
        for i in 0..cube.n {
            for j in 0..cube.n {
                for k in 0..cube.n {
                    let cell = cube.cell(i, j, k);
                    let u = |m: usize| self.u.get(L::index(m, cell, cells));
                    let rho_i = 1.0 / u(0);
                    let momenta = [u(1), u(2), u(3)];
                    let square = 0.5 * rho_i * momenta.iter().map(|m| m * m).sum::<f64>();
                    let speed = (SOUND * rho_i * (u(4) - square)).sqrt();
                    for (velocity, momentum) in self.velocity.iter_mut().zip(momenta) {
                        velocity.set(cell, momentum * rho_i);
                    }
                    self.rho_i.set(cell, rho_i);
                    self.square.set(cell, square);
                    self.qs.set(cell, square * rho_i);
                    self.speed.set(cell, speed);
                    self.memory.work(DERIVED_OPERATIONS);
                }
            }
        }
    }

    /// Transport, sound and viscosity along one direction.
    fn carry(&mut self, direction: usize) {
        let (cube, cells) = (self.cube, self.cube.cells());
        let stride = cube.stride(direction);
        let (first, second) = (0.5 / cube.h(), NU / (cube.h() * cube.h()));
        cube.interior(direction, |_, cell| {
            let (v, c) = (self.velocity[direction].get(cell), self.speed.get(cell));
            let mut slope = [0.0; COMPONENTS];
            let mut change = [0.0; COMPONENTS];
            for m in 0..COMPONENTS {
                let low = self.u.get(L::index(m, cell - stride, cells));
                let here = self.u.get(L::index(m, cell, cells));
                let high = self.u.get(L::index(m, cell + stride, cells));
                slope[m] = (high - low) * first;
                change[m] = (high - 2.0 * here + low) * second - v * slope[m];
            }
            change[1 + direction] -= c * slope[4];
            change[4] -= c * slope[1 + direction];
            for (m, change) in change.into_iter().enumerate() {
                let at = L::index(m, cell, cells);
                self.rhs.set(at, self.rhs.get(at) + change);
            }
            self.memory.work(CARRY_OPERATIONS);
        });
    }

    /// The fourth difference along one direction.
    fn damp(&mut self, direction: usize) {
        let (cube, cells) = (self.cube, self.cube.cells());
        let stride = cube.stride(direction);
        for m in 0..COMPONENTS {
            cube.interior(direction, |position, cell| {
                let factors = fourth_difference(position, cube.n);
                let at = L::index(m, cell, cells);
                let mut sum = factors[2] * self.u.get(at);
                for (offset, side) in [(1, 1), (2, 2)] {
                    let (low, high) = (factors[2 - side], factors[2 + side]);
                    if low != 0.0 {
                        sum += low * self.u.get(L::index(m, cell - offset * stride, cells));
                    }
                    if high != 0.0 {
                        sum += high * self.u.get(L::index(m, cell + offset * stride, cells));
                    }
                }
                self.rhs.set(at, self.rhs.get(at) - EPS * sum);
                self.memory.work(DAMP_OPERATIONS);
            });
        }
    }

    /// Drag, and the length of a step.
    fn drag(&mut self) {
        let (cube, cells) = (self.cube, self.cube.cells());
        for m in 0..COMPONENTS {
            cube.interior(0, |_, cell| {
                let at = L::index(m, cell, cells);
                let drag = match m {
                    0 => 0.0,
                    4 => self.square.get(cell),
                    _ => self.qs.get(cell) * self.u.get(at),
                };
                self.rhs.set(at, DT * (self.rhs.get(at) - DRAG * drag));
                self.memory.work(4);
            });
        }
    }
}
