//! The edges of an RMAT graph (Chakrabarti, Zhan and Faloutsos 2004), with Graph500's probabilities.

use crate::random;

/// Graph500's edge factor.
pub(super) const EDGES_PER_VERTEX: usize = 16;
/// Of 2^16: 0.57, and with 0.19 and 0.19 more. What is left is 0.05.
const A: u64 = 37_356;
const AB: u64 = A + 12_452;
const ABC: u64 = AB + 12_452;
const SEED: u64 = 0x12;
/// Levels that a random number decides.
const LEVELS_PER_DRAW: u32 = 4;

/// The edge of a number: at each level it falls into one quarter of the matrix of what is left. Vertices are then numbered anew, so that
/// frequent ones are not neighbours.
pub(super) fn edge(vertices: usize, at: u64) -> (usize, usize) {
    assert!(vertices.is_power_of_two(), "vertices are a power of two");
    let levels = vertices.ilog2();
    let (mut from, mut to, mut draw) = (0, 0, 0);
    for level in 0..levels {
        if level % LEVELS_PER_DRAW == 0 {
            draw = random::at(SEED, at << 8 | u64::from(level));
        }
        let dice = draw & 0xffff;
        draw >>= 16;
        // No branches: no processor would guess them.
        let row = usize::from(dice >= AB);
        let column = usize::from((dice >= A) ^ (dice >= AB) ^ (dice >= ABC));
        (from, to) = (from << 1 | row, to << 1 | column);
    }
    (renamed(from, levels), renamed(to, levels))
}

/// A bijection of the numbers of so many bits.
fn renamed(vertex: usize, bits: u32) -> usize {
    let mask = (1_u64 << bits) - 1;
    let mut name = vertex as u64;
    for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
        name = name.wrapping_mul(factor) & mask;
        name ^= name >> bits.div_ceil(2);
    }
    name as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_bijection() {
        for bits in [1, 5, 10] {
            let mut names: Vec<usize> = (0..1 << bits).map(|vertex| renamed(vertex, bits)).collect();
            names.sort_unstable();
            assert!(names.into_iter().eq(0..1 << bits));
        }
    }

    #[test]
    fn a_few_vertices_have_many_edges() {
        let (vertices, mut degrees) = (1 << 10, vec![0; 1 << 10]);
        for at in 0..(EDGES_PER_VERTEX * vertices) as u64 {
            let (from, to) = edge(vertices, at);
            degrees[from] += 1;
            degrees[to] += 1;
        }
        degrees.sort_unstable();
        let total: usize = degrees.iter().sum();
        let top: usize = degrees[vertices - vertices / 10..].iter().sum();
        assert!(top * 3 > total, "a tenth of the vertices have {top} of {total} ends");
    }
}
