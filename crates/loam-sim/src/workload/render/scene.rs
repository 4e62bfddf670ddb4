//! The scene and its octree, as it lies in the database file.

use crate::fuzz::dice::Dice;

/// The scene is a cube of so many units a side; coordinates are whole numbers below.
pub(super) const SIDE: u32 = 1 << LEVELS;
const LEVELS: u32 = 16;
/// Polygons of a leaf at most, but where they are all at one place.
const LEAF_POLYGONS: usize = 8;
/// A cell's record: bounds, a color and an opacity for each side, which children there are and where. A polygon's: three corners, a normal, a color.
pub(super) const RECORD_BYTES: u64 = 64;
/// Of a hundred polygons so many are trees.
const TREE_PERCENT: u64 = 80;

pub(super) type Point = [u16; 3];

/// A cell. Cells stand in depth-first order, as the program that made the database wrote them: a cell, then its children one after the other, or
/// its polygons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Its corner nearest to 0.
    pub corner: Point,
    /// Levels below it: its side is 2 to this.
    pub level: u8,
    /// The index after the last cell in it.
    pub end: u32,
    /// Its polygons.
    pub polygons: (u32, u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Scene {
    pub cells: Vec<Cell>,
    /// Centers, in the order of the file.
    pub polygons: Vec<Point>,
}

impl Scene {
    pub(super) fn new(polygons: u32, trees: u32, seed: u64) -> Self {
        let mut dice = Dice::new(seed, 13);
        let points = forest(polygons, trees, &mut dice);
        let mut coded: Vec<(u64, Point)> = points.into_iter().map(|point| (morton(point), point)).collect();
        coded.sort_unstable();
        let mut cells = Vec::new();
        build(&coded, (0, coded.len()), [0; 3], LEVELS, &mut cells);
        Self { cells, polygons: coded.into_iter().map(|(_, point)| point).collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.cells.len() + self.polygons.len()) as u64 * RECORD_BYTES
    }

    pub(super) fn is_leaf(&self, cell: u32) -> bool {
        self.cells[cell as usize].end == cell + 1
    }

    /// Where a cell's record is in the file: after all cells and polygons that come before it. A leaf's polygons follow it.
    pub(super) fn offset(&self, cell: u32) -> u64 {
        (u64::from(cell) + u64::from(self.cells[cell as usize].polygons.0)) * RECORD_BYTES
    }

    /// Children of a cell that is no leaf.
    pub(super) fn children(&self, cell: u32) -> impl Iterator<Item = u32> + '_ {
        let end = self.cells[cell as usize].end;
        let next = move |&child: &u32| Some(self.cells[child as usize].end).filter(|&next| next < end);
        std::iter::successors(Some(cell + 1), next)
    }
}

/// Bits of the three coordinates in turn: the order of an octree's leaves.
fn morton(point: Point) -> u64 {
    (0..LEVELS).fold(0, |code, bit| {
        let octant = (0..3).fold(0, |octant, axis| octant << 1 | u64::from(point[axis] >> bit & 1));
        code | octant << (3 * bit)
    })
}

fn build(coded: &[(u64, Point)], range: (usize, usize), corner: Point, level: u32, cells: &mut Vec<Cell>) {
    let at = cells.len();
    let polygons = (range.0 as u32, range.1 as u32);
    cells.push(Cell { corner, level: level as u8, end: 0, polygons });
    if range.1 - range.0 > LEAF_POLYGONS && level > 0 {
        let below = level - 1;
        let mut begin = range.0;
        for octant in 0..8_u64 {
            let inside = |&(code, _): &(u64, Point)| code >> (3 * below) & 7 <= octant;
            let end = begin + coded[begin..range.1].partition_point(inside);
            if end > begin {
                let part = |axis: u32| (octant >> (2 - axis) & 1) as u16 * (1 << below);
                let corner = [corner[0] + part(0), corner[1] + part(1), corner[2] + part(2)];
                build(coded, (begin, end), corner, below, cells);
            }
            begin = end;
        }
    }
    cells[at].end = cells.len() as u32;
}

/// Hills from 0 to a fifth of the side: four octaves of noise between random heights.
struct Hills(Vec<u32>);

const GRID: u32 = 64;

impl Hills {
    fn new(dice: &mut Dice) -> Self {
        Self((0..GRID * GRID).map(|_| dice.below(u64::from(SIDE / 10)) as u32).collect())
    }

    fn height(&self, x: u32, y: u32) -> u32 {
        // Squares from an eighth of the side down; each octave is half as high as the one before.
        (0..4).map(|octave| self.noise(x, y, LEVELS - 3 - octave) >> octave).sum()
    }

    fn noise(&self, x: u32, y: u32, shift: u32) -> u32 {
        let corner = |dx: u32, dy: u32| {
            let (gx, gy) = ((x >> shift) + dx, (y >> shift) + dy);
            u64::from(self.0[((gy * 31 + gx) % (GRID * GRID)) as usize])
        };
        let one = 1_u64 << shift;
        let (fx, fy) = (u64::from(x) & (one - 1), u64::from(y) & (one - 1));
        let row = |dy| corner(0, dy) * (one - fx) + corner(1, dy) * fx;
        ((row(0) * (one - fy) + row(1) * fy) >> (2 * shift)) as u32
    }
}

/// Centers of polygons: trees are cones of leaves on the hills, the rest is ground.
fn forest(polygons: u32, trees: u32, dice: &mut Dice) -> Vec<Point> {
    let hills = Hills::new(dice);
    let place = |x: u64, y: u64, above: u64| {
        let last = u64::from(SIDE - 1);
        let (x, y) = (x.min(last), y.min(last));
        let z = (u64::from(hills.height(x as u32, y as u32)) + above).min(last);
        [x as u16, y as u16, z as u16]
    };
    let side = u64::from(SIDE);
    let stands: Vec<(u64, u64, u64)> = (0..trees)
        .map(|_| (dice.below(side), dice.below(side), dice.between(side / 60, side / 25)))
        .collect();
    (0..polygons)
        .map(|_| {
            if stands.is_empty() || dice.below(100) >= TREE_PERCENT {
                return place(dice.below(side), dice.below(side), 0);
            }
            let (x, y, height) = dice.pick(&stands);
            let above = dice.below(height);
            let width = (height - above) / 3;
            let mut beside = |center: u64| (center + dice.below(2 * width + 1)).saturating_sub(width);
            place(beside(x), beside(y), above)
        })
        .collect()
}
