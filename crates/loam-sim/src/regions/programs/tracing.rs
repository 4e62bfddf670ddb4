//! Tracing rays through a grid of cells with a sphere each (PARSEC's raytrace): neighbouring rays pass through the same cells.

use super::{Array, CYCLE_NS, Dice, Memory, Ran, Space};

/// A sphere's radius, in cells: a ray passes some two hundred cells before it meets one.
const RADIUS: f64 = 0.04;
/// Cycles for going on to the next cell, and for trying a sphere.
const CELL_CYCLES: f64 = 15.0;
const SPHERE_CYCLES: f64 = 30.0;
/// Rays for each cell of the scene's front.
const RAYS_PER_CELL: usize = 5;
/// Rays that are traced again by trying all spheres.
const CHECKED: usize = 6;

type Vector = [f64; 3];

/// Spheres (centre and radius), and for each cell which of them reach into it.
struct Scene {
    edge: usize,
    spheres: Array<[f32; 4]>,
    begins: Array<u32>,
    lists: Array<u32>,
}

pub(super) fn run(edge: usize, seed: u64, mut memory: Memory) -> Result<Ran, String> {
    let mut space = Space::default();
    let scene = build(edge, seed, &mut space);
    let (wide, high) = (edge * 2, edge * RAYS_PER_CELL / 2);
    let mut image = space.array(vec![0_f32; wide * high]);
    memory.set_up(space.end);
    memory.begin();
    let mut hits = 0;
    for row in 0..high {
        for column in 0..wide {
            let (from, along) = ray(edge, column as f64 / wide as f64, row as f64 / high as f64);
            let hit = scene.trace(from, along, &mut memory);
            hits += u32::from(hit.is_some());
            image.write(row * wide + column, hit.map_or(0.0, |(t, _)| 1.0 / (1.0 + t as f32)), &mut memory);
        }
    }
    let spent = memory.spent();
    let mut met = 0;
    for n in 0..CHECKED {
        let (column, row) = (wide * (2 * n + 1) / (2 * CHECKED), high * (n * 5 % CHECKED) / CHECKED);
        let (from, along) = ray(edge, column as f64 / wide as f64, row as f64 / high as f64);
        let all = scene.spheres.values.iter();
        let least = all.filter_map(|sphere| meet(sphere, from, along)).fold(f64::INFINITY, f64::min);
        let expected = if least.is_finite() { 1.0 / (1.0 + least as f32) } else { 0.0 };
        met += u32::from(least.is_finite());
        if image.values[row * wide + column] != expected {
            return Err(format!(
                "ray {column}, {row}: {} is not {expected}",
                image.values[row * wide + column]
            ));
        }
    }
    let checked = format!(
        "{} spheres, {hits} of {} rays hit; {CHECKED} of them ({met} hits) by trying all spheres",
        scene.spheres.values.len(),
        wide * high
    );
    Ok(Ran { bytes: space.end, spent, checked })
}

/// A ray from before the scene to a place of its front, a little apart from each other.
fn ray(edge: usize, across: f64, up: f64) -> (Vector, Vector) {
    let edge = edge as f64;
    let from = [edge / 2.0 + 0.013, edge / 2.0 + 0.017, -edge];
    let to = [(across * 0.96 + 0.02) * edge, (up * 0.96 + 0.02) * edge, 0.0];
    let along = [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
    let length = (along[0] * along[0] + along[1] * along[1] + along[2] * along[2]).sqrt();
    (from, along.map(|part| part / length))
}

/// How far along the ray it meets the sphere.
fn meet(sphere: &[f32; 4], from: Vector, along: Vector) -> Option<f64> {
    let [x, y, z, radius] = sphere.map(f64::from);
    let to = [x - from[0], y - from[1], z - from[2]];
    let near = to[0] * along[0] + to[1] * along[1] + to[2] * along[2];
    let off = to[0] * to[0] + to[1] * to[1] + to[2] * to[2] - near * near;
    let inside = radius * radius - off;
    (inside >= 0.0 && near >= 0.0).then(|| near - inside.sqrt())
}

/// A sphere in each cell, at random, and the lists of cells that each reaches into.
fn build(edge: usize, seed: u64, space: &mut Space) -> Scene {
    let mut dice = Dice::new(seed);
    let cells = edge.pow(3);
    let mut spheres = Vec::with_capacity(cells);
    for cell in 0..cells {
        let corner = [cell % edge, cell / edge % edge, cell / edge / edge];
        // All of it is inside: what reached out would be in no cell.
        let inside = (2.0 * RADIUS, edge as f64 - 2.0 * RADIUS);
        let [x, y, z] = corner.map(|at| (at as f64 + dice.share()).clamp(inside.0, inside.1) as f32);
        spheres.push([x, y, z, RADIUS as f32]);
    }
    let mut begins = vec![0_u32; cells + 1];
    for sphere in &spheres {
        reached(edge, sphere, |cell| begins[cell + 1] += 1);
    }
    for cell in 0..cells {
        begins[cell + 1] += begins[cell];
    }
    let mut next = begins.clone();
    let mut lists = vec![0_u32; begins[cells] as usize];
    for (number, sphere) in spheres.iter().enumerate() {
        reached(edge, sphere, |cell| {
            lists[next[cell] as usize] = number as u32;
            next[cell] += 1;
        });
    }
    Scene { edge, spheres: space.array(spheres), begins: space.array(begins), lists: space.array(lists) }
}

/// The cells of the box around a sphere.
fn reached(edge: usize, sphere: &[f32; 4], mut cell: impl FnMut(usize)) {
    let radius = f64::from(sphere[3]) + 1e-6;
    let range = |middle: f32| {
        let at = |value: f64| (value.max(0.0) as usize).min(edge - 1);
        at(f64::from(middle) - radius)..=at(f64::from(middle) + radius)
    };
    for z in range(sphere[2]) {
        for y in range(sphere[1]) {
            for x in range(sphere[0]) {
                cell((z * edge + y) * edge + x);
            }
        }
    }
}

impl Scene {
    /// The nearest sphere that a ray meets, and how far: cell by cell (Amanatides and Woo, Eurographics 1987).
    fn trace(&self, from: Vector, along: Vector, memory: &mut Memory) -> Option<(f64, u32)> {
        let edge = self.edge as f64;
        let mut enter = 0_f64;
        let mut leave = f64::INFINITY;
        for axis in 0..3 {
            let (a, b) = ((-from[axis]) / along[axis], (edge - from[axis]) / along[axis]);
            enter = enter.max(a.min(b));
            leave = leave.min(a.max(b));
        }
        if enter >= leave {
            return None;
        }
        let mut cell = [0_i64; 3];
        let (mut next, mut step, mut each) = ([0.0; 3], [0_i64; 3], [0.0; 3]);
        for axis in 0..3 {
            let at = from[axis] + along[axis] * enter;
            cell[axis] = (at.floor() as i64).clamp(0, self.edge as i64 - 1);
            step[axis] = if along[axis] < 0.0 { -1 } else { 1 };
            let side = cell[axis] + i64::from(along[axis] >= 0.0);
            next[axis] = (side as f64 - from[axis]) / along[axis];
            each[axis] = 1.0 / along[axis].abs();
        }
        let mut best: Option<(f64, u32)> = None;
        loop {
            let at = ((cell[2] * self.edge as i64 + cell[1]) * self.edge as i64 + cell[0]) as usize;
            self.try_cell(at, from, along, &mut best, memory);
            let axis = (0..3).min_by(|&a, &b| next[a].total_cmp(&next[b])).expect("three axes");
            if best.is_some_and(|(t, _)| t <= next[axis]) {
                return best;
            }
            cell[axis] += step[axis];
            if cell[axis] < 0 || cell[axis] >= self.edge as i64 {
                return best;
            }
            next[axis] += each[axis];
        }
    }

    fn try_cell(
        &self,
        at: usize,
        from: Vector,
        along: Vector,
        best: &mut Option<(f64, u32)>,
        memory: &mut Memory,
    ) {
        let ends = self.begins.slice(at..at + 2, memory);
        let range = ends[0] as usize..ends[1] as usize;
        memory.compute((CELL_CYCLES + SPHERE_CYCLES * range.len() as f64) * CYCLE_NS);
        if range.is_empty() {
            return;
        }
        for &number in self.lists.slice(range, memory) {
            let sphere = self.spheres.read(number as usize, memory);
            if let Some(t) = meet(&sphere, from, along)
                && best.is_none_or(|(nearest, _)| t < nearest)
            {
                *best = Some((t, number));
            }
        }
    }
}
