//! LU: blocked dense LU factorisation, 576 x 576 doubles (nwcache-1999, table 2).
//!
//! The algorithm is that of SPLASH-2's LU with contiguous blocks (Woo and others, ISCA 1995, section 3): blocks of 16
//! by 16, its default, each whole in one place of memory (2 KB), columns one after the other; blocks are dealt out in
//! two dimensions to a grid of processors as nearly square as their number permits; each processor's blocks lie
//! together. No pivoting.
//!
//! Step K has two barriers, as there: the owner of the diagonal block factors it | the owners of the blocks below and
//! right of it divide them by it | the owners of all others take the products off. The last goes on without a barrier
//! to the next step's first, whose block is the same processor's.
//!
//! A block (and the two that it is changed with) fits the first cache, so working with it is one sweep over each.

mod blocks;

use super::factors;
use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;
use blocks::{BLOCK, BLOCK_ELEMENTS};
use std::ops::Range;

/// Which processor has which block, and where.
struct Placing {
    /// Blocks in a row and in a column.
    blocks: usize,
    /// Rows and columns of the grid of processors.
    grid: (usize, usize),
    /// Where each block is, by row and column: its number in the array.
    places: Vec<usize>,
}

impl Placing {
    fn new(blocks: usize, processors: usize) -> Self {
        let grid_rows = (1..=processors.isqrt()).rev().find(|rows| processors.is_multiple_of(*rows));
        let grid_rows = grid_rows.expect("one row is always possible");
        let mut placing =
            Self { blocks, grid: (grid_rows, processors / grid_rows), places: vec![0; blocks * blocks] };
        let mut order: Vec<(usize, usize)> =
            (0..blocks * blocks).map(|number| (number % blocks, number / blocks)).collect();
        // Stable: column by column among each processor's.
        order.sort_by_key(|&(row, column)| placing.owner(row, column));
        for (place, (row, column)) in order.into_iter().enumerate() {
            placing.places[row * blocks + column] = place;
        }
        placing
    }

    fn owner(&self, row: usize, column: usize) -> usize {
        column % self.grid.1 + row % self.grid.0 * self.grid.1
    }

    /// A block's elements.
    fn block(&self, row: usize, column: usize) -> Range<usize> {
        let place = self.places[row * self.blocks + column];
        place * BLOCK_ELEMENTS..(place + 1) * BLOCK_ELEMENTS
    }

    /// Where an element is.
    fn element(&self, row: usize, column: usize) -> usize {
        self.block(row / BLOCK, column / BLOCK).start + column % BLOCK * BLOCK + row % BLOCK
    }
}

/// See the module.
pub(super) struct Lu {
    placing: Placing,
    matrix: Shared<f64>,
    /// As it was, row by row.
    input: Vec<f64>,
}

impl Lu {
    fn factor_diagonal(&mut self, step: usize, recorder: &mut Recorder<'_>) {
        blocks::factor(recorder.update(&mut self.matrix, self.placing.block(step, step)));
        recorder.work(blocks::FACTOR_INSTRUCTIONS);
    }

    fn divide_perimeter(&mut self, step: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let placing = &self.placing;
        let diagonal = placing.block(step, step);
        for row in (step + 1..placing.blocks).filter(|&row| placing.owner(row, step) == processor) {
            let block = placing.block(row, step);
            let ([diagonal], block) = recorder.combine(&mut self.matrix, [diagonal.clone()], block);
            blocks::divide_by_upper(diagonal, block);
            recorder.work(blocks::UPPER_INSTRUCTIONS);
        }
        for column in (step + 1..placing.blocks).filter(|&column| placing.owner(step, column) == processor) {
            let block = placing.block(step, column);
            let ([diagonal], block) = recorder.combine(&mut self.matrix, [diagonal.clone()], block);
            blocks::divide_by_lower(diagonal, block);
            recorder.work(blocks::LOWER_INSTRUCTIONS);
        }
    }

    fn subtract_products(&mut self, step: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let placing = &self.placing;
        for row in step + 1..placing.blocks {
            for column in (step + 1..placing.blocks).filter(|&column| placing.owner(row, column) == processor)
            {
                let from = [placing.block(row, step), placing.block(step, column)];
                let ([left, above], block) =
                    recorder.combine(&mut self.matrix, from, placing.block(row, column));
                blocks::subtract_product(left, above, block);
                recorder.work(blocks::PRODUCT_INSTRUCTIONS);
            }
        }
    }
}

impl Algorithm for Lu {
    const NAME: &'static str = "lu";

    /// Random, with a diagonal large enough that no row need ever be exchanged.
    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let blocks = match scale {
            Scale::Small => 5,
            Scale::Paper => 36,
        };
        let placing = Placing::new(blocks, processors);
        let (side, mut dice) = (blocks * BLOCK, Dice::new(1, 47));
        let mut input: Vec<f64> = (0..side * side).map(|_| uniform(&mut dice)).collect();
        (0..side).for_each(|at| input[at * side + at] += side as f64);
        let mut values = vec![0.0; side * side];
        for (at, &element) in input.iter().enumerate() {
            values[placing.element(at / side, at % side)] = element;
        }
        Self { placing, matrix: space.array(values), input }
    }

    /// Two for each step.
    fn phases(&self) -> usize {
        2 * self.placing.blocks
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let step = phase / 2;
        if phase % 2 == 1 {
            self.divide_perimeter(step, processor, recorder);
            return;
        }
        if let Some(before) = step.checked_sub(1) {
            self.subtract_products(before, processor, recorder);
        }
        if self.placing.owner(step, step) == processor {
            self.factor_diagonal(step, recorder);
        }
    }

    /// L times U is the input.
    fn check(&self) -> Result<Vec<String>, String> {
        let side = self.placing.blocks * BLOCK;
        let factored = self.matrix.values();
        factors::check(
            (side, side),
            |row, column| self.input[row * side + column],
            |row, column| factored[self.placing.element(row, column)],
        )
    }
}
