//! One grid, and what is done with it row by row. All borders are periodic.
//!
//! The operator at a point is the sum over its six neighbours of the conductivity to it times the difference to it;
//! its scale is that of a grid whose points are one apart, so a residual counts four times on the next grid.

use crate::workload::parallel::memory::{Recorder, Shared, Space};
use std::f64::consts::TAU;
use std::ops::Range;

/// Of the correction by Jacobi's step: best for the waves that a coarser grid does not have, in three dimensions.
const DAMPING: f64 = 6.0 / 7.0;
/// What the operator leaves at a point: 7 loads of u, 6 of conductivities, 1 of f; 6 differences, 6 products, 6 sums;
/// addresses of 5 rows of u, 5 of conductivities and 1 of f; the loop's branch.
const IMBALANCE_INSTRUCTIONS: usize = 44;
/// A point smoothed, beside that: load of the weight, multiply, add, store, two addresses.
const SMOOTH_INSTRUCTIONS: usize = 6;
/// A point's residual, beside that: store, one address.
const RESIDUAL_INSTRUCTIONS: usize = 2;
/// A point smoothed from zero: two loads, multiply, store, three addresses, branch.
const ZEROS_INSTRUCTIONS: usize = 8;
/// A point of nine rows made one: nine loads, eight sums, three products, store, ten addresses, branch.
const NINE_ROWS_INSTRUCTIONS: usize = 32;
/// A coarse point of that: three loads, two sums, two products, store, two addresses, branch.
const COARSE_INSTRUCTIONS: usize = 11;
/// A coarse point of the mean of rows: product, store, its address, branch; and for each row load, sum (one less, but
/// for the first of all), address.
const MEAN_INSTRUCTIONS: usize = 3;
const MEAN_ROW_INSTRUCTIONS: usize = 3;
/// Two fine points corrected: four loads, three sums, product, two stores, two addresses, branch.
const CORRECT_INSTRUCTIONS: usize = 13;
/// Addresses of rows and the loops around, for each row.
const ROW_INSTRUCTIONS: usize = 20;

/// Points each way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) planes: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Shape {
    /// Half as many each way, if there are two at least.
    pub(super) fn coarser(&self) -> Option<Self> {
        let coarser = Self { planes: self.planes / 2, rows: self.rows / 2, columns: self.columns / 2 };
        (coarser.planes.min(coarser.rows).min(coarser.columns) >= 2).then_some(coarser)
    }

    pub(super) fn points(&self) -> usize {
        self.planes * self.rows * self.columns
    }

    /// A row's points; beyond the border it begins anew.
    fn row(&self, plane: usize, row: usize) -> Range<usize> {
        let begin = (plane % self.planes * self.rows + row % self.rows) * self.columns;
        begin..begin + self.columns
    }

    /// The rows of these planes.
    fn rows_of(&self, planes: Range<usize>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let rows = self.rows;
        planes.flat_map(move |plane| (0..rows).map(move |row| (plane, row)))
    }
}

/// What the equation is made of.
#[derive(Debug)]
struct Equation {
    shape: Shape,
    source: Shared<f32>,
    /// Conductivity from a point to the next column, row and plane.
    conductivity: [Shared<f32>; 3],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) shape: Shape,
    equation: Equation,
    solution: Shared<f32>,
    /// Jacobi's other solution.
    other: Shared<f32>,
    residual: Shared<f32>,
    /// Of a correction: [`DAMPING`] divided by the sum of a point's six conductivities.
    weight: Shared<f32>,
}

/// Conductivity at a place in the box, whose sides are 1 here: from 1/2 to 3/2.
fn conductivity(place: [f64; 3]) -> f64 {
    1.0 + place.map(|at| (TAU * at).sin()).iter().product::<f64>() / 2.0
}

impl Equation {
    /// A row of u, and what the operator leaves of the source in it.
    fn imbalance<'u>(
        &self,
        u: &'u Shared<f32>,
        (plane, row): (usize, usize),
        recorder: &mut Recorder<'_>,
    ) -> (&'u [f32], Vec<f32>) {
        let shape = self.shape;
        let (own, before, behind) = (shape.row(plane, row), row + shape.rows - 1, plane + shape.planes - 1);
        let [to_column, to_row, to_plane] = &self.conductivity;
        let (source, centre) = (recorder.read(&self.source, own.clone()), recorder.read(u, own.clone()));
        let beside = recorder.read(to_column, own.clone());
        let mut pair = |of_u, conductivity, of_conductivity| {
            (recorder.read(u, of_u), recorder.read(conductivity, of_conductivity))
        };
        // The four rows around, each with the conductivities to it.
        let around = [
            pair(shape.row(plane, row + 1), to_row, own.clone()),
            pair(shape.row(plane, before), to_row, shape.row(plane, before)),
            pair(shape.row(plane + 1, row), to_plane, own),
            pair(shape.row(behind, row), to_plane, shape.row(behind, row)),
        ];
        let columns = shape.columns;
        let left_over = |x: usize| {
            let (left, right) = ((x + columns - 1) % columns, (x + 1) % columns);
            let along = beside[x] * (centre[x] - centre[right]) + beside[left] * (centre[x] - centre[left]);
            let across = around.iter().map(|(u, conductivity)| conductivity[x] * (centre[x] - u[x]));
            source[x] - along - across.sum::<f32>()
        };
        (centre, (0..columns).map(left_over).collect())
    }

    /// The sum over a point's six neighbours of the conductivity to it times this.
    fn sum_around(&self, at: usize, of_neighbour: impl Fn(usize) -> f64) -> f64 {
        let Shape { planes, rows, columns } = self.shape;
        let (x, y, z) = (at % columns, at / columns % rows, at / columns / rows);
        let point = |z: usize, y: usize, x: usize| self.shape.row(z, y).start + x % columns;
        let next = [point(z, y, x + 1), point(z, y + 1, x), point(z + 1, y, x)];
        let before = [point(z, y, x + columns - 1), point(z, y + rows - 1, x), point(z + planes - 1, y, x)];
        let along = |direction: usize| {
            let conductivity = self.conductivity[direction].values();
            f64::from(conductivity[at]) * of_neighbour(next[direction])
                + f64::from(conductivity[before[direction]]) * of_neighbour(before[direction])
        };
        (0..3).map(along).sum()
    }
}

impl Grid {
    /// With the equation's conductivities at its scale, and zeros.
    pub(super) fn new(shape: Shape, space: &mut Space) -> Self {
        let points = shape.points();
        let [source, solution, other, residual] = [(); 4].map(|()| space.array(vec![0.0; points]));
        let half_way = |direction: usize| {
            let at = |point: usize| {
                let (x, y, z) = (
                    point % shape.columns,
                    point / shape.columns % shape.rows,
                    point / shape.columns / shape.rows,
                );
                let mut place = [x as f64, y as f64, z as f64];
                place[direction] += 0.5;
                let sides = [shape.columns, shape.rows, shape.planes];
                conductivity([0, 1, 2].map(|way| place[way] / sides[way] as f64)) as f32
            };
            (0..points).map(at).collect::<Vec<f32>>()
        };
        let conductivity = [0, 1, 2].map(|direction| space.array(half_way(direction)));
        let equation = Equation { shape, source, conductivity };
        let weight = (0..points).map(|at| (DAMPING / equation.sum_around(at, |_| 1.0)) as f32).collect();
        Self { shape, weight: space.array(weight), equation, solution, other, residual }
    }

    /// Makes the source that which this is the solution for.
    pub(super) fn set_source(&mut self, solution: &[f64]) {
        let source: Vec<f32> = self.operator(solution).into_iter().map(|flow| flow as f32).collect();
        self.equation.source.set_input(&source);
    }

    /// The operator for all points, for who sets up and checks.
    pub(super) fn operator(&self, u: &[f64]) -> Vec<f64> {
        let flow = |at: usize| self.equation.sum_around(at, |neighbour| u[at] - u[neighbour]);
        (0..u.len()).map(flow).collect()
    }

    pub(super) fn source(&self) -> &[f32] {
        self.equation.source.values()
    }

    pub(super) fn weight(&self) -> &[f32] {
        self.weight.values()
    }

    pub(super) fn solution(&self) -> &[f32] {
        self.solution.values()
    }

    /// A step of Jacobi's, from the solution to the other one or back.
    pub(super) fn smooth(&mut self, planes: Range<usize>, forth: bool, recorder: &mut Recorder<'_>) {
        let (from, to) =
            if forth { (&self.solution, &mut self.other) } else { (&self.other, &mut self.solution) };
        for place in self.shape.rows_of(planes) {
            let (before, imbalance) = self.equation.imbalance(from, place, recorder);
            let own = self.shape.row(place.0, place.1);
            let weight = recorder.read(&self.weight, own.clone());
            for (x, point) in recorder.write(to, own).iter_mut().enumerate() {
                *point = before[x] + weight[x] * imbalance[x];
            }
            recorder.work(ROW_INSTRUCTIONS + before.len() * (IMBALANCE_INSTRUCTIONS + SMOOTH_INSTRUCTIONS));
        }
    }

    /// The same from a solution of zeros to the other one.
    pub(super) fn smooth_zeros(&mut self, planes: Range<usize>, recorder: &mut Recorder<'_>) {
        for (plane, row) in self.shape.rows_of(planes) {
            let own = self.shape.row(plane, row);
            let source = recorder.read(&self.equation.source, own.clone());
            let weight = recorder.read(&self.weight, own.clone());
            for (x, point) in recorder.write(&mut self.other, own).iter_mut().enumerate() {
                *point = weight[x] * source[x];
            }
            recorder.work(ROW_INSTRUCTIONS + source.len() * ZEROS_INSTRUCTIONS);
        }
    }

    /// The residual of the other solution.
    pub(super) fn take_residual(&mut self, planes: Range<usize>, recorder: &mut Recorder<'_>) {
        for place in self.shape.rows_of(planes) {
            let (_, imbalance) = self.equation.imbalance(&self.other, place, recorder);
            recorder.write(&mut self.residual, self.shape.row(place.0, place.1)).copy_from_slice(&imbalance);
            recorder
                .work(ROW_INSTRUCTIONS + imbalance.len() * (IMBALANCE_INSTRUCTIONS + RESIDUAL_INSTRUCTIONS));
        }
    }

    /// The source becomes the finer grid's residual: at each point the mean of 27, weighted by 1/2 for each direction
    /// in which one is away.
    pub(super) fn restrict(&mut self, fine: &Grid, planes: Range<usize>, recorder: &mut Recorder<'_>) {
        let Shape { columns, rows, planes: fine_planes } = fine.shape;
        for (plane, row) in self.shape.rows_of(planes) {
            let mut line = vec![0.0; columns];
            for (z, of_plane) in [(fine_planes - 1, 0.25), (0, 0.5), (1, 0.25)] {
                for (y, of_row) in [(rows - 1, 0.25), (0, 0.5), (1, 0.25)] {
                    let residual = recorder.read(&fine.residual, fine.shape.row(2 * plane + z, 2 * row + y));
                    line.iter_mut().zip(residual).for_each(|(sum, value)| *sum += of_plane * of_row * value);
                }
            }
            let coarse = recorder.write(&mut self.equation.source, self.shape.row(plane, row));
            for (x, point) in coarse.iter_mut().enumerate() {
                let sides = line[(2 * x + columns - 1) % columns] + line[2 * x + 1];
                *point = 4.0 * (0.5 * line[2 * x] + 0.25 * sides);
            }
            let of_coarse = coarse.len() * COARSE_INSTRUCTIONS;
            recorder.work(ROW_INSTRUCTIONS + columns * NINE_ROWS_INSTRUCTIONS + of_coarse);
        }
    }

    /// Adds the coarser grid's solution to the other one: means of the two, four or eight coarse points around a
    /// point.
    pub(super) fn correct(&mut self, coarse: &Grid, planes: Range<usize>, recorder: &mut Recorder<'_>) {
        for (plane, row) in self.shape.rows_of(planes) {
            let (last_plane, last_row) = (plane.div_ceil(2), row.div_ceil(2));
            let rows = (last_plane + 1 - plane / 2) * (last_row + 1 - row / 2);
            let mut line = vec![0.0; coarse.shape.columns];
            for z in plane / 2..=last_plane {
                for y in row / 2..=last_row {
                    let solution = recorder.read(&coarse.solution, coarse.shape.row(z, y));
                    line.iter_mut().zip(solution).for_each(|(mean, value)| *mean += value / rows as f32);
                }
            }
            let fine = recorder.update(&mut self.other, self.shape.row(plane, row));
            for (x, pair) in fine.chunks_exact_mut(2).enumerate() {
                pair[0] += line[x];
                pair[1] += 0.5 * (line[x] + line[(x + 1) % line.len()]);
            }
            let of_coarse = MEAN_INSTRUCTIONS + rows * MEAN_ROW_INSTRUCTIONS + CORRECT_INSTRUCTIONS;
            recorder.work(ROW_INSTRUCTIONS + line.len() * of_coarse);
        }
    }
}
