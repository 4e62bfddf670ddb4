//! Pricing options by the formula of Black and Scholes (PARSEC's blackscholes): arrays that are read from end to end, and computing in between.

use super::{Array, CYCLE_NS, Dice, Memory, Ran, Space};

/// Cycles of an option: two normal distributions, a logarithm, two exponentials, a root and some forty other operations.
const OPTION_CYCLES: f64 = 250.0;
/// Options that are priced between two looks at the arrays: a line of each.
const BLOCK: usize = 16;
/// Options whose price is checked by integrating.
const CHECKED: usize = 64;

/// One option: price now, price agreed, interest, volatility, years; and whether it is to sell.
#[derive(Clone, Copy, Debug)]
struct Option_ {
    spot: f64,
    strike: f64,
    rate: f64,
    volatility: f64,
    years: f64,
    put: bool,
}

pub(super) fn run(options: usize, passes: usize, seed: u64, mut memory: Memory) -> Result<Ran, String> {
    let mut dice = Dice::new(seed);
    let mut space = Space::default();
    let mut drawn = |low: f64, high: f64| -> Array<f32> {
        space.array((0..options).map(|_| dice.between(low, high) as f32).collect())
    };
    let columns = [
        drawn(20.0, 120.0),
        drawn(20.0, 120.0),
        drawn(0.01, 0.1),
        drawn(0.1, 0.6),
        drawn(0.1, 2.0),
        drawn(0.0, 1.0),
    ];
    let mut prices = space.array(vec![0_f32; options]);
    memory.set_up(space.end);
    memory.begin();
    for _ in 0..passes {
        for begin in (0..options).step_by(BLOCK) {
            let range = begin..(begin + BLOCK).min(options);
            let block = columns.each_ref().map(|column| column.slice(range.clone(), &mut memory));
            memory.compute(OPTION_CYCLES * CYCLE_NS * range.len() as f64);
            for (at, price) in prices.slice_mut(range, &mut memory).iter_mut().enumerate() {
                *price = price_of(option(block.map(|column| column[at]))) as f32;
            }
        }
    }
    let spent = memory.spent();
    let mut worst = 0_f64;
    for n in 0..CHECKED {
        let at = n * (options - 1) / (CHECKED - 1);
        let by_integral = integral(option(columns.each_ref().map(|column| column.values[at])));
        let off = (f64::from(prices.values[at]) - by_integral).abs();
        if off > 1e-3 {
            return Err(format!("option {at} costs {by_integral}, not {}", prices.values[at]));
        }
        worst = worst.max(off);
    }
    if prices.values.iter().any(|price| !price.is_finite()) {
        return Err("an option without a price".into());
    }
    let checked = format!("{options} options; {CHECKED} prices by integrating, off by at most {worst:.0e}");
    Ok(Ran { bytes: space.end, spent, checked })
}

fn option(of: [f32; 6]) -> Option_ {
    let [spot, strike, rate, volatility, years, kind] = of.map(f64::from);
    Option_ { spot, strike, rate, volatility, years, put: kind < 0.5 }
}

fn price_of(of: Option_) -> f64 {
    let spread = of.volatility * of.years.sqrt();
    let first =
        ((of.spot / of.strike).ln() + (of.rate + of.volatility * of.volatility / 2.0) * of.years) / spread;
    let later = of.strike * (-of.rate * of.years).exp();
    let sign = if of.put { -1.0 } else { 1.0 };
    sign * (of.spot * normal(sign * first) - later * normal(sign * (first - spread)))
}

/// The normal distribution: Abramowitz and Stegun, 26.2.17, as PARSEC has it; off by less than 7.5e-8.
fn normal(x: f64) -> f64 {
    const FACTORS: [f64; 5] = [0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
    let k = 1.0 / (1.0 + 0.2316419 * x.abs());
    let sum = FACTORS.iter().rev().fold(0.0, |sum, factor| (sum + factor) * k);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// What the option is expected to pay, discounted: Simpson's rule over the normal distribution.
fn integral(of: Option_) -> f64 {
    const STEPS: usize = 20_000;
    let (low, high) = (-10.0_f64, 10.0);
    let width = (high - low) / STEPS as f64;
    let drift = (of.rate - of.volatility * of.volatility / 2.0) * of.years;
    let pays = |z: f64| {
        let then = of.spot * (drift + of.volatility * of.years.sqrt() * z).exp();
        let pays = if of.put { of.strike - then } else { then - of.strike };
        pays.max(0.0) * (-z * z / 2.0).exp()
    };
    let sum: f64 = (0..=STEPS)
        .map(|step| {
            let weight = match step {
                0 | STEPS => 1.0,
                step if step % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * pays(low + width * step as f64)
        })
        .sum();
    (-of.rate * of.years).exp() * sum * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}
