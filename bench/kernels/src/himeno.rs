//! Jacobi's iteration for Poisson's equation in a box, as the Himeno benchmark does it: 19 points, 14 arrays of single precision, one after
//! the other in memory and in time. What aapc-2012 (figures 2 and 8) calls a typical normal case: it streams.

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;

pub(crate) const PARTS: &[&str] = &["jacobi", "copy"];
/// p, a (4), b (3), c (3), bnd, wrk1, wrk2.
const ARRAYS: usize = 14;
/// The relaxation factor.
const OMEGA: f32 = 0.8;
/// Arithmetic at one point.
const POINT_OPERATIONS: usize = 34;
/// Single precision has seven digits, and values are at most 1.
const TOLERANCE: f64 = 1e-5;
/// Changes of a large box are small beside the values that they are differences of.
const ROUNDING: f64 = 1.01;
/// What single precision leaves of a change where nothing changes any more.
const NOISE: f64 = 1e-7;

/// See the module. `n` is the shortest edge: the box has 2n × n × n points, as the benchmark's sizes have.
pub(crate) struct Himeno<M: Memory> {
    memory: M,
    n: usize,
    p: M::Array<f32>,
    a: [M::Array<f32>; 4],
    b: [M::Array<f32>; 3],
    c: [M::Array<f32>; 3],
    bnd: M::Array<f32>,
    wrk1: M::Array<f32>,
    wrk2: M::Array<f32>,
    /// The sum of squared changes of each iteration.
    gosa: Vec<f64>,
}

pub(crate) fn bytes(n: usize) -> u64 {
    (2 * n * n * n * ARRAYS * 4) as u64
}

impl<M: Memory> Himeno<M> {
    pub(crate) fn new(memory: &M, n: usize) -> Self {
        let cells = 2 * n * n * n;
        let array = || memory.array::<f32>(cells);
        let mut new = Self {
            memory: memory.clone(),
            n,
            p: array(),
            a: std::array::from_fn(|_| array()),
            b: std::array::from_fn(|_| array()),
            c: std::array::from_fn(|_| array()),
            bnd: array(),
            wrk1: array(),
            wrk2: array(),
            gosa: Vec::new(),
        };
        for cell in 0..cells {
            let value = new.start(cell / (n * n));
            new.p.set(cell, value);
            for a in &mut new.a[..3] {
                a.set(cell, 1.0);
            }
            new.a[3].set(cell, 1.0 / 6.0);
            for b in &mut new.b {
                b.set(cell, 0.0);
            }
            for c in &mut new.c {
                c.set(cell, 1.0);
            }
            new.bnd.set(cell, 1.0);
            new.wrk1.set(cell, 0.0);
            new.wrk2.set(cell, value);
        }
        new
    }

    /// The pressure at the beginning, and at the walls always.
    fn start(&self, i: usize) -> f32 {
        let last = (2 * self.n - 1) as f32;
        (i * i) as f32 / (last * last)
    }

    fn jacobi(&mut self) {
        let (row, plane) = (self.n, self.n * self.n);
        let mut gosa = 0.0;
        for i in 1..2 * self.n - 1 {
            for j in 1..self.n - 1 {
                let mut row_gosa = 0.0_f32;
                for k in 1..self.n - 1 {
                    let at = i * plane + j * row + k;
                    let p = |index: usize| self.p.get(index);
                    let s0 = self.a[0].get(at) * p(at + plane)
                        + self.a[1].get(at) * p(at + row)
                        + self.a[2].get(at) * p(at + 1)
                        + self.b[0].get(at)
                            * (p(at + plane + row) - p(at + plane - row) - p(at - plane + row)
                                + p(at - plane - row))
                        + self.b[1].get(at)
                            * (p(at + row + 1) - p(at - row + 1) - p(at + row - 1) + p(at - row - 1))
                        + self.b[2].get(at)
                            * (p(at + plane + 1) - p(at - plane + 1) - p(at + plane - 1) + p(at - plane - 1))
                        + self.c[0].get(at) * p(at - plane)
                        + self.c[1].get(at) * p(at - row)
                        + self.c[2].get(at) * p(at - 1)
                        + self.wrk1.get(at);
                    let change = (s0 * self.a[3].get(at) - p(at)) * self.bnd.get(at);
                    row_gosa += change * change;
                    self.wrk2.set(at, p(at) + OMEGA * change);
                }
                gosa += f64::from(row_gosa);
                self.memory.work((POINT_OPERATIONS * (self.n - 2)) as u64);
            }
        }
        self.gosa.push(gosa);
    }

    fn copy(&mut self) {
        let (row, plane) = (self.n, self.n * self.n);
        for i in 1..2 * self.n - 1 {
            for j in 1..self.n - 1 {
                for k in 1..self.n - 1 {
                    let at = i * plane + j * row + k;
                    self.p.set(at, self.wrk2.get(at));
                }
            }
        }
    }

    /// Largest difference between points that mirror each other in j or k: the problem is symmetric in both.
    fn asymmetry(&self) -> f64 {
        let (n, plane) = (self.n, self.n * self.n);
        let mut worst = 0.0_f64;
        for i in 0..2 * n {
            for j in 0..n {
                for k in 0..n {
                    let here = self.p.get(i * plane + j * n + k);
                    let mirrored = self.p.get(i * plane + (n - 1 - j) * n + k);
                    let turned = self.p.get(i * plane + j * n + n - 1 - k);
                    for other in [mirrored, turned] {
                        let difference = f64::from((here - other).abs());
                        // A comparison with what is no number is false.
                        worst = if difference <= worst { worst } else { difference };
                    }
                }
            }
        }
        worst
    }

    /// Values that are outside of what the walls have: the equation has a maximum principle.
    fn outside(&self) -> u64 {
        (0..self.p.len()).filter(|&at| !(-1e-6..=1.000_001).contains(&self.p.get(at))).count() as u64
    }

    /// What begins the same in all lines along i stays so until the walls beside them are felt, which takes an iteration for each point: there the
    /// solution is that of one line, computed here in double precision. The largest difference from it, 0 if no such point is left.
    fn off_line(&self, iterations: u32) -> f64 {
        let (n, plane, reach) = (self.n, self.n * self.n, iterations as usize);
        if 2 * reach + 1 >= n {
            return 0.0;
        }
        let mut line: Vec<f64> = (0..2 * n).map(|i| f64::from(self.start(i))).collect();
        for _ in 0..iterations {
            let old = line.clone();
            for i in 1..2 * n - 1 {
                line[i] += f64::from(OMEGA) * (old[i + 1] + old[i - 1] - 2.0 * old[i]) / 6.0;
            }
        }
        let mut worst = 0.0_f64;
        for (i, wanted) in line.into_iter().enumerate() {
            for j in reach + 1..n - 1 - reach {
                for k in reach + 1..n - 1 - reach {
                    let difference = (f64::from(self.p.get(i * plane + j * n + k)) - wanted).abs();
                    // A comparison with what is no number is false.
                    worst = if difference <= worst { worst } else { difference };
                }
            }
        }
        worst
    }

    fn walls_changed(&self) -> u64 {
        let (n, plane) = (self.n, self.n * self.n);
        let mut changed = 0;
        for i in 0..2 * n {
            for j in 0..n {
                for k in 0..n {
                    let wall = i == 0 || i == 2 * n - 1 || j == 0 || j == n - 1 || k == 0 || k == n - 1;
                    if wall && self.p.get(i * plane + j * n + k) != self.start(i) {
                        changed += 1;
                    }
                }
            }
        }
        changed
    }
}

impl<M: Memory> Kernel for Himeno<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.jacobi(),
            _ => self.copy(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        checks.equal("iterations", self.gosa.len(), iterations as usize);
        let noise = self.p.len() as f64 * NOISE * NOISE;
        let rises = self.gosa.windows(2).filter(|pair| pair[1] > pair[0] * ROUNDING + noise).count();
        checks.equal("iterations in which the residual rose by more than rounding", rises, 0);
        let (first, last) =
            (self.gosa.first().copied().unwrap_or(0.0), self.gosa.last().copied().unwrap_or(0.0));
        checks.at_most("sum of squared changes, last to first", last / first, 1.0);
        checks.equal("values beyond those of the walls", self.outside(), 0);
        checks.at_most(
            "difference from the line's solution, out of the walls' reach",
            self.off_line(iterations),
            TOLERANCE,
        );
        checks.equal("walls that have changed", self.walls_changed(), 0);
        checks.at_most("difference of mirrored points", self.asymmetry(), TOLERANCE);
        checks.0
    }

    fn checksum(&self) -> u64 {
        checksum(&self.p)
    }

    fn corrupt(&mut self, seed: u64) {
        let at = random::below(seed, 0, self.p.len());
        self.p.set(at, self.p.get(at) + 0.25);
    }
}
