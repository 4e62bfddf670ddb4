//! CG: conjugate gradients for a sparse symmetric matrix whose entries are at random places, as NPB's CG: what is read of the vector by one
//! row is spread over all of it.
//!
//! Each unknown is coupled with others at random, in both directions with the same weight; the diagonal is the sum of a row's weights and
//! [`SHIFT`]. So by Gershgorin all eigenvalues lie between SHIFT and SHIFT + 2 × the largest sum, and the classical bound on what an iteration leaves
//! holds for certain.

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random::{self, Order};

pub(crate) const PARTS: &[&str] = &["multiply", "update", "direction"];
/// Couplings that each unknown chooses; as many choose it, on average.
const CHOSEN: usize = 8;
const ROW_ENTRIES: u64 = 2 * CHOSEN as u64 + 1;
/// Added to the diagonal.
const SHIFT: f64 = 1.0;
const SEED: u64 = 0xc6;
/// Rounding: the error is never less than this part of what it was.
const FLOOR: f64 = 1e-12;

/// See the module.
pub(crate) struct Cg<M: Memory> {
    memory: M,
    /// Where each row begins; its diagonal is its first entry.
    rows: M::Array<u32>,
    columns: M::Array<u32>,
    values: M::Array<f64>,
    x: M::Array<f64>,
    b: M::Array<f64>,
    r: M::Array<f64>,
    p: M::Array<f64>,
    q: M::Array<f64>,
    /// r × r.
    rho: f64,
    /// The ratio of the last two of them.
    beta: f64,
    start_error: f64,
    row_sum_max: f64,
}

pub(crate) fn bytes(n: usize) -> u64 {
    let n = n as u64;
    (n + 1) * 4 + n * ROW_ENTRIES * 12 + 5 * n * 8
}

/// Who is coupled with whom: by each choice all unknowns stand in a circle, in an order that looks random, and choose the next one. So who chose an
/// unknown can be told as well as whom it chose, and the matrix is written from its first row to its last.
struct Couplings {
    n: usize,
    circles: [Order; CHOSEN],
}

impl Couplings {
    fn new(n: usize) -> Self {
        Self { n, circles: core::array::from_fn(|choice| Order::new(SEED + 16 * choice as u64, n)) }
    }

    /// So many places further in a circle.
    fn beside(&self, choice: usize, row: usize, further: usize) -> usize {
        let circle = self.circles[choice];
        circle.number((circle.place(row) + further) % self.n)
    }

    /// With whom an unknown is coupled, and how strong.
    fn of(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let strength = |chooser: usize, choice: usize| {
            -random::unit(SEED + 1, (chooser * CHOSEN + choice) as u64) / (2 * CHOSEN) as f64
        };
        (0..CHOSEN).flat_map(move |choice| {
            let (next, last) = (self.beside(choice, row, 1), self.beside(choice, row, self.n - 1));
            [(next, strength(row, choice)), (last, strength(last, choice))]
        })
    }
}

/// The solution.
fn solution(row: usize) -> f64 {
    1.0 + random::unit(SEED + 2, row as u64)
}

impl<M: Memory> Cg<M> {
    pub(crate) fn new(memory: &M, n: usize) -> Self {
        let entries = n * ROW_ENTRIES as usize;
        let vector = || memory.array::<f64>(n);
        let mut new = Self {
            memory: memory.clone(),
            rows: memory.array(n + 1),
            columns: memory.array(entries),
            values: memory.array(entries),
            x: vector(),
            b: vector(),
            r: vector(),
            p: vector(),
            q: vector(),
            rho: 0.0,
            beta: 0.0,
            start_error: 0.0,
            row_sum_max: 0.0,
        };
        new.fill(n);
        new.begin(n);
        new
    }

    fn fill(&mut self, n: usize) {
        let couplings = Couplings::new(n);
        let mut at = 0;
        for row in 0..n {
            let (diagonal, mut sum) = (at, 0.0);
            self.columns.set(diagonal, row as u32);
            for (other, value) in couplings.of(row) {
                at += 1;
                self.columns.set(at, other as u32);
                self.values.set(at, value);
                sum -= value;
            }
            at += 1;
            self.values.set(diagonal, SHIFT + sum);
            self.rows.set(row + 1, at as u32);
            self.row_sum_max = self.row_sum_max.max(sum);
        }
        assert_eq!(at, self.columns.len(), "all entries have a place");
    }

    /// b = A × solution, x = 0, r = p = b.
    fn begin(&mut self, n: usize) {
        for row in 0..n {
            self.p.set(row, solution(row));
        }
        self.multiply();
        for row in 0..n {
            let value = self.q.get(row);
            self.b.set(row, value);
            self.r.set(row, value);
            self.p.set(row, value);
            self.rho += value * value;
            self.x.set(row, 0.0);
        }
        self.start_error = self.error();
    }

    /// q = A p.
    fn multiply(&mut self) {
        let mut begin = self.rows.get(0) as usize;
        for row in 0..self.x.len() {
            let end = self.rows.get(row + 1) as usize;
            let mut sum = 0.0;
            for at in begin..end {
                sum += self.values.get(at) * self.p.get(self.columns.get(at) as usize);
            }
            self.q.set(row, sum);
            self.memory.work(2 * (end - begin) as u64);
            begin = end;
        }
    }

    /// The step along p, and what is left.
    fn update(&mut self) {
        let n = self.x.len();
        let product: f64 = (0..n).map(|row| self.p.get(row) * self.q.get(row)).sum();
        let alpha = if product > 0.0 { self.rho / product } else { 0.0 };
        let mut rho = 0.0;
        for row in 0..n {
            self.x.set(row, self.x.get(row) + alpha * self.p.get(row));
            let left = self.r.get(row) - alpha * self.q.get(row);
            self.r.set(row, left);
            rho += left * left;
        }
        self.beta = if self.rho > 0.0 { rho / self.rho } else { 0.0 };
        self.rho = rho;
        self.memory.work(8 * n as u64);
    }

    fn direction(&mut self) {
        for row in 0..self.x.len() {
            self.p.set(row, self.r.get(row) + self.beta * self.p.get(row));
        }
        self.memory.work(2 * self.x.len() as u64);
    }

    /// The error's norm that conjugate gradients make small: the root of e A e.
    fn error(&self) -> f64 {
        let error = |row: usize| self.x.get(row) - solution(row);
        let mut sum = 0.0;
        for row in 0..self.x.len() {
            let (begin, end) = (self.rows.get(row) as usize, self.rows.get(row + 1) as usize);
            let product: f64 =
                (begin..end).map(|at| self.values.get(at) * error(self.columns.get(at) as usize)).sum();
            sum += error(row) * product;
        }
        sum.sqrt()
    }

    /// |b - A x| / |b|, and how far r, which is carried along, is from b - A x.
    fn residual(&self) -> (f64, f64) {
        let (mut left, mut whole, mut apart) = (0.0, 0.0, 0.0);
        for row in 0..self.x.len() {
            let (begin, end) = (self.rows.get(row) as usize, self.rows.get(row + 1) as usize);
            let product: f64 =
                (begin..end).map(|at| self.values.get(at) * self.x.get(self.columns.get(at) as usize)).sum();
            let residual = self.b.get(row) - product;
            left += residual * residual;
            whole += self.b.get(row) * self.b.get(row);
            apart += (residual - self.r.get(row)) * (residual - self.r.get(row));
        }
        ((left / whole).sqrt(), (apart / whole).sqrt())
    }
}

impl<M: Memory> Kernel for Cg<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.multiply(),
            1 => self.update(),
            _ => self.direction(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        let condition = (SHIFT + 2.0 * self.row_sum_max) / SHIFT;
        let rate = (condition.sqrt() - 1.0) / (condition.sqrt() + 1.0);
        let left = (2.0 * rate.powi(i32::try_from(iterations).unwrap_or(i32::MAX))).max(FLOOR);
        checks.at_most("error, in the matrix's norm, of what it was", self.error() / self.start_error, left);
        let (residual, apart) = self.residual();
        // The residual's norm is at most the root of the condition × the error's.
        checks.at_most("residual", residual, left * condition.sqrt());
        checks.at_most("difference of the residual that was carried along", apart, FLOOR);
        checks.0
    }

    fn checksum(&self) -> u64 {
        checksum(&self.x)
    }

    fn corrupt(&mut self, seed: u64) {
        let row = random::below(seed, 0, self.x.len());
        self.x.set(row, self.x.get(row) + 0.001);
    }
}
