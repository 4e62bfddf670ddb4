//! One level: n^3 cells and a layer of ghost cells around them, which repeat those of the opposite border.

use crate::memory::Array;

/// A level, and where it is in the arrays of all levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Cells of an edge, without ghosts.
    pub(super) n: usize,
    /// Its first element.
    pub(super) begin: usize,
}

/// All levels of a cube of 2^exponent cells, from 2 cells on.
pub(super) fn grids(exponent: usize) -> Vec<Grid> {
    let mut begin = 0;
    let level = |exponent: usize| {
        let grid = Grid { n: 1 << exponent, begin };
        begin += grid.cells();
        grid
    };
    (1..=exponent).map(level).collect()
}

impl Grid {
    fn edge(self) -> usize {
        self.n + 2
    }

    /// Elements, ghosts too.
    pub(super) fn cells(self) -> usize {
        self.edge().pow(3)
    }

    /// The element of a cell; cells are numbered from 0 along each edge, and ghosts are not numbered.
    #[inline(always)]
    pub(super) fn cell(self, i: usize, j: usize, k: usize) -> usize {
        self.begin + ((i + 1) * self.edge() + j + 1) * self.edge() + k + 1
    }

    /// All cells but the ghosts, in the order of memory.
    #[inline(always)]
    pub(super) fn interior(self, mut visit: impl FnMut([usize; 3], usize)) {
        for i in 0..self.n {
            for j in 0..self.n {
                for k in 0..self.n {
                    visit([i, j, k], self.cell(i, j, k));
                }
            }
        }
    }

    /// All elements: their number in the level, and in the array.
    pub(super) fn all(self, mut visit: impl FnMut(usize, usize)) {
        (0..self.cells()).for_each(|at| visit(at, self.begin + at));
    }

    /// A 27-point operator at a cell: factors of the cell, of its neighbours by face, by edge and by corner.
    #[inline(always)]
    pub(super) fn stencil(self, factors: [f64; 4], array: &impl Array<f64>, cell: usize) -> f64 {
        let (row, plane) = (self.edge(), self.edge() * self.edge());
        let at = |index: usize| array.get(index);
        // Faces, edges and corners of one row of three at a time: [middle, both ends].
        let line = |middle: usize| [at(middle), at(middle - 1) + at(middle + 1)];
        let own = line(cell);
        let faces = [line(cell - plane), line(cell - row), line(cell + row), line(cell + plane)];
        let edges = [
            line(cell - plane - row),
            line(cell - plane + row),
            line(cell + plane - row),
            line(cell + plane + row),
        ];
        let sum = |lines: &[[f64; 2]; 4], which: usize| lines.iter().map(|line| line[which]).sum::<f64>();
        factors[0] * own[0]
            + factors[1] * (own[1] + sum(&faces, 0))
            + factors[2] * (sum(&faces, 1) + sum(&edges, 0))
            + factors[3] * sum(&edges, 1)
    }

    /// Fills the ghosts: along k, then j, then i, so that edges and corners come right.
    pub(super) fn wrap(self, array: &mut impl Array<f64>) {
        let (edge, last) = (self.edge(), self.n + 1);
        let at = |i: usize, j: usize, k: usize| self.begin + (i * edge + j) * edge + k;
        for i in 1..last {
            for j in 1..last {
                array.set(at(i, j, 0), array.get(at(i, j, self.n)));
                array.set(at(i, j, last), array.get(at(i, j, 1)));
            }
            for k in 0..=last {
                array.set(at(i, 0, k), array.get(at(i, self.n, k)));
                array.set(at(i, last, k), array.get(at(i, 1, k)));
            }
        }
        for j in 0..=last {
            for k in 0..=last {
                array.set(at(0, j, k), array.get(at(self.n, j, k)));
                array.set(at(last, j, k), array.get(at(1, j, k)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_repeat_the_other_side_and_operators_see_all_neighbours() {
        let grid = grids(2)[1];
        assert_eq!((grid.n, grid.begin), (4, 64));
        let mut array = vec![0.0; grid.begin + grid.cells()].into_boxed_slice();
        grid.interior(|[i, j, k], cell| array.set(cell, (100 * i + 10 * j + k) as f64));
        grid.wrap(&mut array);
        // Around the corner cell, by hand.
        let value = |i: i32, j: i32, k: i32| {
            let of = |index: i32| f64::from(index.rem_euclid(4));
            100.0 * of(i) + 10.0 * of(j) + of(k)
        };
        let mut sums = [0.0; 4];
        for i in -1..=1_i32 {
            for j in -1..=1_i32 {
                for k in -1..=1_i32 {
                    sums[(i.abs() + j.abs() + k.abs()) as usize] += value(i, j, 3 + k);
                }
            }
        }
        for (kind, sum) in sums.into_iter().enumerate() {
            let mut factors = [0.0; 4];
            factors[kind] = 1.0;
            assert_eq!(grid.stencil(factors, &array, grid.cell(0, 0, 3)), sum, "{kind}");
        }
    }
}
