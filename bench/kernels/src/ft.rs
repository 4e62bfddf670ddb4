//! FT: a partial differential equation solved in the spectrum, by three-dimensional fast Fourier transforms, as NPB's FT does.
//!
//! The transform goes along z, y and x, 16 lines at a time through a scratch block that stays in the processor's caches. Along z and
//! y a block's rows are a plane or a row apart in memory: large pages bring in much that is not wanted (aapc-2012, figure 2).

mod line;

use crate::check::{Check, Checks, checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;
use line::{BLOCK, Complex, Line};
use std::f64::consts::PI;

pub(crate) const PARTS: &[&str] = &["evolve", "fft_z", "fft_y", "fft_x", "checksum"];
/// NPB's alpha.
const ALPHA: f64 = 1e-6;
const SEED: u64 = 0xf7;
/// Elements that the sum of an iteration is made of, as in NPB.
const SUMMED: usize = 1024;
/// Of a coefficient's size: rounding of a transform of 2^30 elements stays far below it.
const TOLERANCE: f64 = 1e-11;

/// Doubles for each element: two complex arrays and the factors.
const DOUBLES: u64 = 5;

/// See the module.
pub(crate) struct Ft<M: Memory> {
    memory: M,
    /// Points along x, y and z; x is the fastest in memory.
    edges: [usize; 3],
    /// The spectrum.
    u0: M::Array<f64>,
    /// What it is in space.
    u1: M::Array<f64>,
    /// What an iteration multiplies a coefficient by.
    twiddle: M::Array<f64>,
    lines: [Line; 3],
    sums: Vec<Complex>,
}

pub(crate) fn bytes(exponent: usize) -> u64 {
    (DOUBLES * 8) << exponent
}

impl<M: Memory> Ft<M> {
    /// 2^exponent elements, the edges as equal as can be.
    pub(crate) fn new(memory: &M, exponent: usize) -> Self {
        let edges = [1 << exponent.div_ceil(3), 1 << ((exponent + 1) / 3), 1 << (exponent / 3)];
        let cells = 1 << exponent;
        assert_eq!(edges.iter().product::<usize>(), cells, "the edges make up all elements");
        let mut new = Self {
            memory: memory.clone(),
            edges,
            u0: memory.array(2 * cells),
            u1: memory.array(2 * cells),
            twiddle: memory.array(cells),
            lines: edges.map(Line::new),
            sums: Vec::new(),
        };
        for cell in 0..cells {
            let value = input(cell);
            set(&mut new.u1, cell, value);
            new.twiddle.set(cell, new.decay(cell));
        }
        for direction in 0..3 {
            new.transform(direction, false);
        }
        for index in 0..2 * cells {
            new.u0.set(index, new.u1.get(index));
        }
        new
    }

    fn cells(&self) -> usize {
        self.twiddle.len()
    }

    fn place(&self, cell: usize) -> [usize; 3] {
        let [nx, ny, _] = self.edges;
        [cell % nx, cell / nx % ny, cell / nx / ny]
    }

    /// exp(-4 alpha pi^2 |k|^2), with frequencies beyond the half counted from the end.
    fn decay(&self, cell: usize) -> f64 {
        let mut squares = 0;
        for (place, edge) in self.place(cell).into_iter().zip(self.edges) {
            let frequency = place.min(edge - place);
            squares += frequency * frequency;
        }
        (-4.0 * ALPHA * PI * PI * squares as f64).exp()
    }

    fn evolve(&mut self) {
        for cell in 0..self.cells() {
            let factor = self.twiddle.get(cell);
            let value = get(&self.u0, cell).scaled(factor);
            set(&mut self.u0, cell, value);
            set(&mut self.u1, cell, value);
            self.memory.work(2);
        }
    }

    /// Transforms u1 along one direction, a block of lines at a time. The inverse is scaled after its last direction, x.
    fn transform(&mut self, direction: usize, inverse: bool) {
        let [nx, ny, nz] = self.edges;
        let stride = [1, nx, nx * ny][direction];
        // Lines of a block are neighbours along x, or along y where x is the direction.
        let (across, across_stride) = if direction == 0 { (ny, nx) } else { (nx, 1) };
        let (outer, outer_stride) = if direction == 2 { (ny, nx) } else { (nz, nx * ny) };
        let length = self.edges[direction];
        let scale = if inverse && direction == 0 { 1.0 / self.cells() as f64 } else { 1.0 };
        for outer in 0..outer {
            for begin in (0..across).step_by(BLOCK) {
                let lines = BLOCK.min(across - begin);
                let first = outer * outer_stride + begin * across_stride;
                let scratch = self.lines[direction].scratch();
                // In the order of memory: along x line by line, else one element of each line after the other.
                for (at, cell) in in_order(direction, length, lines, stride, across_stride) {
                    scratch[at] = get(&self.u1, first + cell);
                }
                // Ten operations for two elements in each stage, and as many to load and store them in the scratch.
                self.memory.work((lines * length) as u64 * u64::from(length.ilog2()) * 10);
                let scratch = self.lines[direction].transform(inverse);
                for (at, cell) in in_order(direction, length, lines, stride, across_stride) {
                    set(&mut self.u1, first + cell, scratch[at].scaled(scale));
                }
            }
        }
    }

    fn sum(&mut self) {
        let [nx, ny, nz] = self.edges;
        let mut sum = Complex::default();
        for j in 1..=SUMMED {
            let (q, r, s) = (j % nx, 3 * j % ny, 5 * j % nz);
            sum = sum.plus(get(&self.u1, (s * ny + r) * nx + q));
        }
        self.sums.push(sum);
    }

    /// The sum over all cells of value × exp(sign × 2 pi i k x), by its definition.
    fn by_definition(&self, sign: f64, other: usize, value: impl Fn(usize) -> Complex) -> Complex {
        let other = self.place(other);
        let mut sum = Complex::default();
        for cell in 0..self.cells() {
            let mut turn = 0.0;
            for ((place, other), edge) in self.place(cell).into_iter().zip(other).zip(self.edges) {
                turn += (place * other % edge) as f64 / edge as f64;
            }
            sum = sum.plus(value(cell).times(Complex::turn(sign * turn)));
        }
        sum
    }
}

/// Where each element of a block is in the scratch, and in memory from the block's first element on.
#[inline(always)]
fn in_order(
    direction: usize,
    length: usize,
    lines: usize,
    stride: usize,
    across: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let (slow, fast) = if direction == 0 { (lines, length) } else { (length, lines) };
    (0..slow).flat_map(move |slow| {
        (0..fast).map(move |fast| {
            let (place, line) = if direction == 0 { (fast, slow) } else { (slow, fast) };
            (place * BLOCK + line, place * stride + line * across)
        })
    })
}

/// The input: random in the square from 0 to 1.
fn input(cell: usize) -> Complex {
    let index = 2 * cell as u64;
    Complex { re: random::unit(SEED, index), im: random::unit(SEED, index + 1) }
}

#[inline(always)]
fn get(array: &impl Array<f64>, cell: usize) -> Complex {
    Complex { re: array.get(2 * cell), im: array.get(2 * cell + 1) }
}

#[inline(always)]
fn set(array: &mut impl Array<f64>, cell: usize, value: Complex) {
    array.set(2 * cell, value.re);
    array.set(2 * cell + 1, value.im);
}

impl<M: Memory> Kernel for Ft<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.evolve(),
            1 => self.transform(2, true),
            2 => self.transform(1, true),
            3 => self.transform(0, true),
            _ => self.sum(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        let cells = self.cells();
        // A coefficient of random input is of this size.
        let size = (cells as f64).sqrt();
        for probe in 0..2 {
            let at = random::below(SEED + 1, probe, cells);
            let begun = self.by_definition(-1.0, at, input);
            let factor = self.decay(at).powi(i32::try_from(iterations).unwrap_or(i32::MAX));
            let error = begun.scaled(factor).minus(get(&self.u0, at)).size();
            checks.at_most("a coefficient, beside the sum that defines it", error / size, TOLERANCE);
            let defined = self.by_definition(1.0, at, |cell| get(&self.u0, cell)).scaled(1.0 / cells as f64);
            let error = defined.minus(get(&self.u1, at)).size();
            checks.at_most("an element, beside the sum that defines it", error, TOLERANCE);
        }
        for direction in 0..3 {
            self.transform(direction, false);
        }
        let mut worst = 0.0_f64;
        for cell in 0..cells {
            let error = get(&self.u0, cell).minus(get(&self.u1, cell)).size() / size;
            // A comparison with what is no number is false.
            worst = if error <= worst { worst } else { error };
        }
        checks.at_most("transformed back: largest difference from the spectrum", worst, TOLERANCE);
        checks.equal("sums", self.sums.len(), iterations as usize);
        checks.0
    }

    fn checksum(&self) -> u64 {
        checksum(&self.u1)
    }

    fn corrupt(&mut self, seed: u64) {
        let at = random::below(seed, 0, self.u1.len());
        self.u1.set(at, self.u1.get(at) + 0.5);
    }
}
