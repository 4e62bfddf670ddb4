//! Zipf streams: page k is referenced in proportion to 1/k^alpha.

use rand_core::RngCore;
use rand_pcg::Pcg64;

/// An endless stream of page numbers; 0 is the most popular.
///
/// The same on every machine: powers are computed from additions, multiplications and divisions only, which IEEE 754 fixes to the last
/// bit, and picks are integer arithmetic (Walker's alias method as Vose builds it, IEEE Transactions on Software Engineering 17(9), 1991).
#[derive(Clone, Debug)]
pub struct Zipf {
    columns: Vec<Column>,
    random: Pcg64,
}

/// A pick falls on a column, and there on its own page with chance `cut` / 2^32, else on its alias.
#[derive(Clone, Copy, Debug)]
struct Column {
    cut: u32,
    alias: u32,
}

/// All columns are equally high.
const HEIGHT: u64 = 1 << 32;
/// The stream of the generator, one for each kind of use of a seed.
const STREAM: u128 = 0x7a69_7066;

impl Zipf {
    /// `pages` pages with skew `alpha`: at 0 all are equally popular.
    ///
    /// # Panics
    /// Without pages, or if `alpha` is not from 0 to 10.
    pub fn new(pages: u32, alpha: f64, seed: u64) -> Self {
        assert!(pages > 0, "a Zipf stream needs pages");
        assert!((0.0..=10.0).contains(&alpha), "alpha is from 0 to 10");
        let weights: Vec<f64> = (1..=pages).map(|k| exp(-alpha * ln(f64::from(k)))).collect();
        let total: f64 = weights.iter().sum();
        let area = HEIGHT * u64::from(pages);
        // Of the area, rounded down; what is left over goes to the most popular page.
        let mut areas: Vec<u64> =
            weights.iter().map(|weight| (weight / total * area as f64) as u64).collect();
        let used: u64 = areas.iter().sum();
        areas[0] = (areas[0] + area).checked_sub(used).expect("parts are rounded down");
        Self { columns: columns(&mut areas), random: Pcg64::new(u128::from(seed), STREAM) }
    }
}

/// Fills the columns: what a page has too little of, a page with too much gives.
fn columns(areas: &mut [u64]) -> Vec<Column> {
    let mut columns: Vec<Column> =
        (0..areas.len()).map(|page| Column { cut: u32::MAX, alias: page as u32 }).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) =
        (0..areas.len() as u32).partition(|&page| areas[page as usize] < HEIGHT);
    while let (Some(page), Some(&giver)) = (small.pop(), large.last()) {
        let own = areas[page as usize];
        columns[page as usize] = Column { cut: own as u32, alias: giver };
        areas[giver as usize] -= HEIGHT - own;
        if areas[giver as usize] < HEIGHT {
            large.pop();
            small.push(giver);
        }
    }
    columns
}

impl Iterator for Zipf {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let pick = self.random.next_u64();
        let page = ((pick >> 32) * self.columns.len() as u64) >> 32;
        let column = self.columns[page as usize];
        Some(if (pick as u32) < column.cut { page } else { u64::from(column.alias) })
    }
}

/// Natural logarithm of a whole number from 1 on.
fn ln(x: f64) -> f64 {
    let (mut mantissa, mut twos) = (x, 0);
    while mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        twos += 1;
    }
    // ln m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1).
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (s, 0.0);
    for term in 0..14 {
        sum += power / f64::from(2 * term + 1);
        power *= s * s;
    }
    2.0 * sum + f64::from(twos) * std::f64::consts::LN_2
}

/// e^x of a number up to 0.
fn exp(x: f64) -> f64 {
    let halvings = (-x / std::f64::consts::LN_2) as u32;
    let rest = x + f64::from(halvings) * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= rest / f64::from(n);
        sum += term;
    }
    for _ in 0..halvings {
        sum /= 2.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_right() {
        for (k, alpha) in [(1, 1.0), (2, 1.0), (3, 0.5), (1_000_000, 0.8), (12_345, 1.2), (7, 10.0)] {
            let (ours, theirs) = (exp(-alpha * ln(f64::from(k))), f64::from(k).powf(-alpha));
            assert!((ours / theirs - 1.0).abs() < 1e-12, "{k}^-{alpha}: {ours} for {theirs}");
        }
    }

    #[test]
    fn pages_are_as_popular_as_they_should_be() {
        let (pages, picks) = (100, 1_000_000);
        let mut counts = vec![0_u32; pages as usize];
        Zipf::new(pages, 1.0, 7).take(picks).for_each(|page| counts[page as usize] += 1);
        let total: f64 = (1..=pages).map(|k| 1.0 / f64::from(k)).sum();
        for (k, &count) in (1..).zip(&counts) {
            let expected = picks as f64 / f64::from(k) / total;
            let deviation = (f64::from(count) - expected).abs() / expected.sqrt();
            assert!(deviation < 5.0, "page {k}: {count} for {expected:.0}");
        }
    }

    #[test]
    fn a_seed_is_a_stream() {
        let first = |seed| Zipf::new(1_000_000, 0.8, seed).take(8).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        // Written down: a change of the generator would change every figure that was printed from it.
        assert_eq!(first(1), GOLDEN);
    }

    const GOLDEN: [u64; 8] = [254_145, 9_201, 964_145, 20_425, 884_772, 20_194, 326_340, 759_496];
}
