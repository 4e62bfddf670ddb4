//! One picture.

use super::Drawn;
use super::scene::{Cell, RECORD_BYTES, SIDE, Scene};
use crate::workload::Object;
use crate::workload::recorder::Recorder;

/// A pixel: color and depth.
pub(super) const PIXEL_BYTES: u64 = 8;
/// Half the field of view, as a tangent.
const FIELD: f64 = 0.4;
/// What it looks along: down a slope; and the picture's upright. Both have length 1.
const FORWARD: [f64; 3] = [0.0, 0.8, -0.6];
const UP: [f64; 3] = [0.0, 0.6, 0.8];
/// To transform a cell's bounds and to compare them with the field of view.
const CELL_INSTRUCTIONS: u64 = 150;
/// To draw a box of less than a pixel: which sides are seen, and their mixed color.
const BOX_INSTRUCTIONS: u64 = 250;
/// To transform, clip, light and draw a small polygon.
const POLYGON_INSTRUCTIONS: u64 = 400;
/// To clear a pixel.
const CLEAR_INSTRUCTIONS: u64 = 2;
const DATABASE: Object = Object::File(0);

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Where the picture is seen from.
#[derive(Clone, Debug)]
pub(super) struct Camera {
    eye: [f64; 3],
    pixels: u32,
}

impl Camera {
    /// Looks at the ground in the middle of the scene, from so many sides of it away.
    pub(super) fn new(scene: &Scene, distance: f64, pixels: u32) -> Self {
        let middle = f64::from(SIDE / 2);
        let near = |point: &&[u16; 3]| {
            let off = |axis: usize| (f64::from(point[axis]) - middle).abs();
            off(0).max(off(1)) < middle / 16.0
        };
        let ground = scene.polygons.iter().filter(near).map(|point| point[2]).min().unwrap_or(0);
        let target = [middle, middle, f64::from(ground)];
        let back = distance * f64::from(SIDE);
        Self { eye: std::array::from_fn(|axis| target[axis] - back * FORWARD[axis]), pixels }
    }

    /// From the eye to a place.
    pub(super) fn to(&self, place: [f64; 3]) -> [f64; 3] {
        std::array::from_fn(|axis| place[axis] - self.eye[axis])
    }

    /// How far in front, and how far from the middle line. The field of view is round.
    pub(super) fn depth_and_aside(way: [f64; 3]) -> (f64, f64) {
        let depth = dot(way, FORWARD);
        (depth, (dot(way, way) - depth * depth).max(0.0).sqrt())
    }

    /// A ball of this radius may be seen.
    pub(super) fn sees(&self, way: [f64; 3], radius: f64) -> bool {
        let (depth, aside) = Self::depth_and_aside(way);
        // The cone's side is this much farther from the ball's center than straight aside.
        let slope = (1.0 + FIELD * FIELD).sqrt();
        depth + radius > 0.0 && aside <= FIELD * depth + radius * slope
    }

    /// How many pixels wide something of this size is.
    pub(super) fn pixels_wide(&self, size: f64, depth: f64) -> f64 {
        size / depth * f64::from(self.pixels) / (2.0 * FIELD)
    }

    /// The address of the pixel in which a place is seen; none outside of the picture.
    fn pixel(&self, way: [f64; 3]) -> Option<u64> {
        let depth = dot(way, FORWARD);
        let half = f64::from(self.pixels) / 2.0;
        let at = |aside: f64| {
            let pixel = half + aside / depth / FIELD * half;
            (depth > 0.0 && pixel >= 0.0 && pixel < 2.0 * half).then_some(pixel as u64)
        };
        Some((at(dot(way, UP))? * u64::from(self.pixels) + at(way[0])?) * PIXEL_BYTES)
    }
}

/// What was done with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    OutOfView,
    Inside,
    Box,
    Polygons,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    camera: Camera,
    /// Cells to be drawn, the nearest last.
    stack: Vec<u32>,
    drawn: Drawn,
}

impl Frame {
    /// Begins with an empty picture.
    pub(super) fn new(camera: Camera, recorder: &mut Recorder) -> Self {
        let pixels = u64::from(camera.pixels).pow(2);
        recorder.work(pixels * CLEAR_INSTRUCTIONS);
        recorder.private(0, pixels * PIXEL_BYTES, true);
        Self { camera, stack: vec![0], drawn: Drawn::default() }
    }

    pub(super) fn drawn(&self) -> Drawn {
        self.drawn
    }

    /// Goes on with the nearest cell: which it was, and what came of it. None: the picture is done.
    pub(super) fn draw_next(&mut self, scene: &Scene, recorder: &mut Recorder) -> Option<(u32, Seen)> {
        let at = self.stack.pop()?;
        let Cell { corner, level, polygons, .. } = scene.cells[at as usize];
        let count = u64::from(polygons.1 - polygons.0);
        recorder.work(CELL_INSTRUCTIONS);
        recorder.touch(DATABASE, scene.offset(at), RECORD_BYTES, false);
        let side = f64::from(1_u32 << level);
        let way = self.camera.to(corner.map(|c| f64::from(c) + side / 2.0));
        // Half of a cube's diagonal.
        let radius = side * 0.75_f64.sqrt();
        let (depth, _) = Camera::depth_and_aside(way);
        let seen = if !self.camera.sees(way, radius) {
            self.drawn.out_of_view += count;
            Seen::OutOfView
        } else if depth > radius && self.camera.pixels_wide(side, depth) < 1.0 {
            self.drawn.in_boxes += count;
            self.drawn.boxes += 1;
            recorder.work(BOX_INSTRUCTIONS);
            self.draw_at(way, recorder);
            Seen::Box
        } else if scene.is_leaf(at) {
            self.drawn.alone += count;
            recorder.touch(DATABASE, scene.offset(at) + RECORD_BYTES, count * RECORD_BYTES, false);
            for point in &scene.polygons[polygons.0 as usize..polygons.1 as usize] {
                recorder.work(POLYGON_INSTRUCTIONS);
                self.draw_at(self.camera.to(point.map(f64::from)), recorder);
            }
            Seen::Polygons
        } else {
            let begin = self.stack.len();
            self.stack.extend(scene.children(at));
            // Along y and against z it goes away from the eye: the farthest first, so that the nearest is on top.
            self.stack[begin..].sort_by_key(|&child| {
                let [x, y, z] = scene.cells[child as usize].corner;
                (std::cmp::Reverse(y), z, x)
            });
            Seen::Inside
        };
        Some((at, seen))
    }

    fn draw_at(&self, way: [f64; 3], recorder: &mut Recorder) {
        if let Some(address) = self.camera.pixel(way) {
            recorder.private(address, PIXEL_BYTES, true);
        }
    }
}
