//! Clustering points around centres that are opened one by one (PARSEC's streamcluster): all points are read from end to end for each candidate.

use super::{Array, CYCLE_NS, Dice, Memory, Ran, Space};

/// Numbers of a point.
const DIMENSIONS: usize = 64;
/// Cycles of a distance: a subtraction, a product and a sum for each number, two numbers at a time.
const DISTANCE_CYCLES: f64 = 1.5 * DIMENSIONS as f64;
/// Places that points are drawn around.
const CLUSTERS: usize = 20;

pub(super) fn run(points: usize, candidates: usize, seed: u64, mut memory: Memory) -> Result<Ran, String> {
    let mut dice = Dice::new(seed);
    let mut space = Space::default();
    let around: Vec<f64> = (0..CLUSTERS * DIMENSIONS).map(|_| dice.between(0.0, 100.0)).collect();
    let mut values = Vec::with_capacity(points * DIMENSIONS);
    for _ in 0..points {
        let cluster = dice.below(CLUSTERS) * DIMENSIONS;
        let centre = &around[cluster..cluster + DIMENSIONS];
        values.extend(centre.iter().map(|&middle| (middle + dice.between(-5.0, 5.0)) as f32));
    }
    let data = space.array(values);
    let mut nearest = space.array(vec![(f32::INFINITY, u32::MAX); points]);
    memory.set_up(space.end);
    memory.begin();
    // The cost of opening a centre: so much nearer must its points be, in all.
    let facility = points as f32 * 10.0;
    let mut open = Vec::new();
    let mut first_cost = 0.0;
    for n in 0..candidates {
        let candidate = dice.below(points);
        let centre = point(&data, candidate, &mut memory).to_vec();
        let distances = distances(&data, &centre, points, &mut memory);
        let saved: f32 = if open.is_empty() {
            f32::INFINITY
        } else {
            distances.iter().enumerate().map(|(at, d)| (nearest.values[at].0 - d).max(0.0)).sum()
        };
        if saved <= facility {
            continue;
        }
        open.push(candidate);
        for (at, &distance) in distances.iter().enumerate() {
            if distance < nearest.read(at, &mut memory).0 {
                nearest.write(at, (distance, candidate as u32), &mut memory);
            }
        }
        if n == 0 {
            first_cost = cost(&nearest);
        }
    }
    let spent = memory.spent();
    for (at, &(distance, centre)) in nearest.values.iter().enumerate() {
        let own = &data.values[at * DIMENSIONS..][..DIMENSIONS];
        let to = |centre: usize| between(own, &data.values[centre * DIMENSIONS..][..DIMENSIONS]);
        let least = open.iter().map(|&centre| to(centre)).fold(f32::INFINITY, f32::min);
        if least != distance || to(centre as usize) != distance {
            return Err(format!("point {at} is {least} from its nearest centre, not {distance}"));
        }
    }
    let last_cost = cost(&nearest);
    if candidates > 1 && last_cost >= first_cost {
        return Err(format!("more centres, and points are not nearer: {first_cost}, {last_cost}"));
    }
    let checked =
        format!("{points} points, {} centres; each point's nearest found again by trying all", open.len());
    Ok(Ran { bytes: space.end, spent, checked })
}

fn point<'a>(data: &'a Array<f32>, at: usize, memory: &mut Memory) -> &'a [f32] {
    data.slice(at * DIMENSIONS..(at + 1) * DIMENSIONS, memory)
}

/// How far each point is from a centre.
fn distances(data: &Array<f32>, centre: &[f32], points: usize, memory: &mut Memory) -> Vec<f32> {
    memory.compute(DISTANCE_CYCLES * CYCLE_NS * points as f64);
    (0..points).map(|at| between(point(data, at, memory), centre)).collect()
}

fn between(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn cost(nearest: &Array<(f32, u32)>) -> f64 {
    nearest.values.iter().map(|of| f64::from(of.0)).sum()
}
