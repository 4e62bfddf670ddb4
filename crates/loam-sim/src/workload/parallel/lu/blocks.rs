//! What is done with one block, or with one and one or two others. A block's columns lie one after the other.
//!
//! **Instructions.** All innermost loops are y += a x over a piece of a column (SPLASH-2's `daxpy`): an element is
//! two loads, multiply, add, store, two addresses, the loop's branch. A column adds its multiplier (load, negate) and
//! the loop around it.

/// Rows and columns of a block.
pub(super) const BLOCK: usize = 16;
/// Elements of one.
pub(super) const BLOCK_ELEMENTS: usize = BLOCK * BLOCK;
/// An element of y += a x.
const ELEMENT_INSTRUCTIONS: usize = 8;
/// The rest of a y += a x: the multiplier's load and negation, two addresses, the loop's counter and branch.
const COLUMN_INSTRUCTIONS: usize = 6;
/// Pairs of different rows.
const PAIRS: usize = BLOCK * (BLOCK - 1) / 2;

/// Of [`subtract_product`]: a y += a x of whole columns for each element of a block.
pub(super) const PRODUCT_INSTRUCTIONS: usize =
    BLOCK_ELEMENTS * (COLUMN_INSTRUCTIONS + BLOCK * ELEMENT_INSTRUCTIONS);
/// Of [`divide_by_upper`]: a y += a x of whole columns for each pair, and each element is multiplied by a pivot's
/// reciprocal (load, multiply, store, address and branch).
pub(super) const UPPER_INSTRUCTIONS: usize =
    PAIRS * (COLUMN_INSTRUCTIONS + BLOCK * ELEMENT_INSTRUCTIONS) + BLOCK_ELEMENTS * 5;
/// Of [`divide_by_lower`]: for each column of the block, a y += a x of the rest of the column for each row.
pub(super) const LOWER_INSTRUCTIONS: usize =
    BLOCK * (BLOCK * COLUMN_INSTRUCTIONS + PAIRS * ELEMENT_INSTRUCTIONS);
/// Of [`factor`]: the rest of each column right of each pivot, a third of a block's cube; the multipliers (as above,
/// once each).
pub(super) const FACTOR_INSTRUCTIONS: usize = PAIRS * COLUMN_INSTRUCTIONS
    + (BLOCK - 1) * BLOCK * (2 * BLOCK - 1) / 6 * ELEMENT_INSTRUCTIONS
    + PAIRS * 5;

/// y -= a x.
fn subtract(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y -= a * x;
    }
}

/// The block becomes its own L (below the diagonal, ones left out) and U.
pub(super) fn factor(block: &mut [f64]) {
    for k in 0..BLOCK {
        let (left, right) = block.split_at_mut((k + 1) * BLOCK);
        let pivot_column = &mut left[k * BLOCK..];
        let reciprocal = 1.0 / pivot_column[k];
        pivot_column[k + 1..].iter_mut().for_each(|element| *element *= reciprocal);
        for column in right.chunks_exact_mut(BLOCK) {
            let a = column[k];
            subtract(&mut column[k + 1..], a, &pivot_column[k + 1..]);
        }
    }
}

/// A block below the diagonal one: what, times the diagonal one's U, is the block.
pub(super) fn divide_by_upper(diagonal: &[f64], block: &mut [f64]) {
    for k in 0..BLOCK {
        let (left, right) = block.split_at_mut((k + 1) * BLOCK);
        let solved = &mut left[k * BLOCK..];
        let reciprocal = 1.0 / diagonal[k * BLOCK + k];
        solved.iter_mut().for_each(|element| *element *= reciprocal);
        for (column, of_diagonal) in
            right.chunks_exact_mut(BLOCK).zip(diagonal[(k + 1) * BLOCK..].chunks_exact(BLOCK))
        {
            subtract(column, of_diagonal[k], solved);
        }
    }
}

/// A block right of the diagonal one: what, after the diagonal one's L, is the block.
pub(super) fn divide_by_lower(diagonal: &[f64], block: &mut [f64]) {
    for column in block.chunks_exact_mut(BLOCK) {
        for (k, of_diagonal) in diagonal.chunks_exact(BLOCK).enumerate() {
            let a = column[k];
            subtract(&mut column[k + 1..], a, &of_diagonal[k + 1..]);
        }
    }
}

/// Takes off the product of the block at the left end of its row and that at the upper end of its column.
pub(super) fn subtract_product(left: &[f64], above: &[f64], block: &mut [f64]) {
    for (column, above) in block.chunks_exact_mut(BLOCK).zip(above.chunks_exact(BLOCK)) {
        for (of_left, &a) in left.chunks_exact(BLOCK).zip(above) {
            subtract(column, a, of_left);
        }
    }
}
