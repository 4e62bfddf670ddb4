//! The same V-cycle once more, to check by: whole grids, point by point, in doubles, by recursion.

use super::COARSEST_SMOOTHINGS;
use super::grid::{Grid, Shape};

/// One cycle on the first of the grids and those below it.
pub(super) fn cycle(grids: &[Grid], u: &mut [f64], source: &[f64]) {
    let (grid, coarser) = grids.split_first().expect("there is a grid");
    let Some(coarse) = coarser.first() else {
        (0..COARSEST_SMOOTHINGS).for_each(|_| smooth(grid, u, source));
        return;
    };
    smooth(grid, u, source);
    let residual: Vec<f64> =
        grid.operator(u).iter().zip(source).map(|(flow, source)| source - flow).collect();
    let mut correction = vec![0.0; coarse.shape.points()];
    cycle(coarser, &mut correction, &restricted(grid.shape, &residual, coarse.shape));
    for (at, u) in u.iter_mut().enumerate() {
        *u += interpolated(coarse.shape, &correction, place(grid.shape, at));
    }
    smooth(grid, u, source);
}

fn smooth(grid: &Grid, u: &mut [f64], source: &[f64]) {
    let flow = grid.operator(u);
    for (at, u) in u.iter_mut().enumerate() {
        *u += f64::from(grid.weight()[at]) * (source[at] - flow[at]);
    }
}

/// Plane, row and column of a point.
fn place(shape: Shape, at: usize) -> [usize; 3] {
    [at / shape.columns / shape.rows, at / shape.columns % shape.rows, at % shape.columns]
}

/// The point at a place, which may be beyond the border.
fn point(shape: Shape, place: [usize; 3]) -> usize {
    let [plane, row, column] = place;
    (plane % shape.planes * shape.rows + row % shape.rows) * shape.columns + column % shape.columns
}

/// The 27 steps to a point's neighbours and to itself, each one up (so that none is negative), and a half for each
/// direction that it goes.
fn steps() -> impl Iterator<Item = ([usize; 3], f64)> {
    (0..27).map(|step| {
        let step = [step / 9, step / 3 % 3, step % 3];
        (step, step.map(|way| if way == 1 { 1.0 } else { 0.5 }).iter().product())
    })
}

/// At each coarse point the sum around the fine one, by the weights of [`steps`]: half of it, which is four times the
/// mean (8 is the sum of the weights).
fn restricted(fine: Shape, residual: &[f64], coarse: Shape) -> Vec<f64> {
    let sides = [fine.planes, fine.rows, fine.columns];
    let around = |at: usize| {
        let centre = place(coarse, at).map(|way| 2 * way);
        let value = |(step, weight): ([usize; 3], f64)| {
            let beside = [0, 1, 2].map(|way| centre[way] + step[way] + sides[way] - 1);
            weight * residual[point(fine, beside)]
        };
        steps().map(value).sum::<f64>() / 2.0
    };
    (0..coarse.points()).map(around).collect()
}

/// The mean of the coarse points around a fine one: of its own, or of two each way in which it is between two.
fn interpolated(coarse: Shape, values: &[f64], fine: [usize; 3]) -> f64 {
    let corner = |number: usize| {
        let up = [number / 4, number / 2 % 2, number % 2];
        values[point(coarse, [0, 1, 2].map(|way| (fine[way] + up[way]) / 2))]
    };
    (0..8).map(corner).sum::<f64>() / 8.0
}
