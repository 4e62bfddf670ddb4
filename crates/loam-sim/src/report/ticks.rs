//! Where an axis has its ticks, and what stands beside them.

use super::unit::{Unit, without_zeros};

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    #[default]
    Linear,
    /// Equal factors, ticks at powers of two. Values that are not positive are not drawn.
    Log2,
    /// Equal factors, ticks at powers of ten. Values that are not positive are not drawn.
    Log10,
}

/// One axis of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it shows; the ticks carry the unit.
    pub label: String,
    /// How its numbers are written.
    pub unit: Unit,
    /// How its values are spread.
    pub scale: Scale,
    /// Values that must be in sight besides the data, as zero or one.
    pub include: Vec<f64>,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, ..Self::default() }
    }

    /// The same with another scale.
    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// The same with `value` in sight.
    #[must_use]
    pub fn include(mut self, value: f64) -> Self {
        self.include.push(value);
        self
    }

    /// Whether `value` has a place on this axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        // Values near the ends of f64 would overflow in the arithmetic of ticks; no measurement is that large.
        value.abs() < 1e300 && (self.scale == Scale::Linear || value > 1e-300)
    }

    /// Smallest and largest of `values` and of what must be in sight; something sensible if there is nothing.
    pub(super) fn span(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let all = values.chain(self.include.iter().copied()).filter(|value| self.shows(*value));
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in all {
            low = low.min(value);
            high = high.max(value);
        }
        match (low <= high, low == high, self.scale) {
            (false, _, Scale::Linear) => (0.0, 1.0),
            (false, _, _) => (1.0, 10.0),
            (_, true, Scale::Linear) if low == 0.0 => (0.0, 1.0),
            (_, true, Scale::Linear) => (low.min(0.0), high.max(0.0)),
            (_, true, _) => (low / 2.0, high * 2.0),
            _ => (low, high),
        }
    }
}

/// One tick.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// Ticks and the span that they make: `low` and `high` widened to ticks where `widen` or a logarithmic scale asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<Tick>,
}

/// At most `most` ticks (never fewer than two where the span has room for them) for `low..=high`.
pub(super) fn ticks(axis: &Axis, low: f64, high: f64, most: usize, widen: bool) -> Ticks {
    let most = most.max(2);
    match axis.scale {
        Scale::Linear => linear(axis.unit, low, high, most, widen),
        Scale::Log2 => logarithmic(axis.unit, low, high, most, 2),
        Scale::Log10 => logarithmic(axis.unit, low, high, most, 10),
    }
}

/// A step of a linear axis: `mantissa` × 10^`exponent`, so that ticks are computed from integers and carry no float noise.
#[derive(Clone, Copy)]
struct Step {
    mantissa: f64,
    exponent: i32,
}

impl Step {
    /// The smallest of 1, 2 and 5 times a power of ten that is not under `raw`.
    fn decimal(raw: f64) -> Self {
        let exponent = raw.log10().floor() as i32;
        let leading = raw / power_of_ten(exponent);
        let mantissa = [1.0, 2.0, 5.0].into_iter().find(|nice| leading <= nice + 1e-9);
        mantissa
            .map_or(Self { mantissa: 1.0, exponent: exponent + 1 }, |mantissa| Self { mantissa, exponent })
    }

    /// The smallest power of two that is not under `raw`.
    fn binary(raw: f64) -> Self {
        Self { mantissa: 2_f64.powi((raw.log2() - 1e-9).ceil() as i32), exponent: 0 }
    }

    fn times(self, count: f64) -> f64 {
        if self.exponent < 0 {
            count * self.mantissa / power_of_ten(-self.exponent)
        } else {
            count * self.mantissa * power_of_ten(self.exponent)
        }
    }
}

fn linear(unit: Unit, low: f64, high: f64, most: usize, widen: bool) -> Ticks {
    let prefix = unit.prefix(low.abs().max(high.abs()));
    let (from, to) = (low / prefix.size, high / prefix.size);
    let raw = (to - from) / most as f64;
    let step = if unit == Unit::Bytes { Step::binary(raw) } else { Step::decimal(raw) };
    let width = step.times(1.0);
    let (first, last) = if widen {
        ((from / width + 1e-9).floor(), (to / width - 1e-9).ceil())
    } else {
        ((from / width - 1e-9).ceil(), (to / width + 1e-9).floor())
    };
    let decimals = if unit == Unit::Bytes { 4 } else { usize::try_from(-step.exponent).unwrap_or(0) };
    let mut ticks = Vec::new();
    let mut count = first;
    // The bound also holds where adding one to a huge count changes nothing.
    while count <= last && ticks.len() <= 2 * most + 2 {
        let at = step.times(count);
        let text = match at {
            0.0 => "0".into(),
            _ if unit == Unit::Bytes => {
                format!("{}{}", without_zeros(format!("{at:.decimals$}")), prefix.name)
            }
            _ => format!("{at:.decimals$}{}", prefix.name),
        };
        ticks.push(Tick { at: at * prefix.size, text });
        count += 1.0;
    }
    let end = |value: f64, tick: Option<&Tick>| tick.filter(|_| widen).map_or(value, |tick| tick.at);
    Ticks { low: end(low, ticks.first()).min(low), high: end(high, ticks.last()).max(high), ticks }
}

fn logarithmic(unit: Unit, low: f64, high: f64, most: usize, base: i32) -> Ticks {
    let power = |exponent: i32| if base == 2 { 2_f64.powi(exponent) } else { power_of_ten(exponent) };
    let log = |value: f64| if base == 2 { value.log2() } else { value.log10() };
    let first = (log(low) + 1e-9).floor() as i32;
    let last = ((log(high) - 1e-9).ceil() as i32).max(first + 1);
    let powers = usize::try_from(last - first).unwrap_or(0) + 1;
    let stride = powers.div_ceil(most).max(1);
    let mut ticks = Vec::new();
    for exponent in (first..=last).step_by(stride) {
        // A few decades leave room for 2 and 5 between the powers of ten.
        let between: &[f64] = if base == 10 && powers * 3 <= most + 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        for factor in between.iter().take(if exponent == last { 1 } else { 3 }) {
            let at = factor * power(exponent);
            ticks.push(Tick { at, text: unit.write(at) });
        }
    }
    Ticks { low: power(first).min(low), high: power(last).max(high), ticks }
}

/// The nearest number to 10^`exponent`; `powi` would multiply its own rounding errors.
fn power_of_ten(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().expect("a float literal")
}

/// Turns values into places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruler {
    scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from_px: f64,
    pub(super) to_px: f64,
}

impl Ruler {
    pub(super) fn new(scale: Scale, ticks: &Ticks, from_px: f64, to_px: f64) -> Self {
        assert!(ticks.low < ticks.high, "an axis from {} to {}", ticks.low, ticks.high);
        Self { scale, low: ticks.low, high: ticks.high, from_px, to_px }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            // Not the logarithm of a quotient: that could overflow.
            _ => (value.log2() - self.low.log2()) / (self.high.log2() - self.low.log2()),
        };
        self.from_px + part * (self.to_px - self.from_px)
    }

    /// How the script of a report finds the value at a place.
    pub(super) fn attribute(&self, unit: Unit) -> String {
        let kind = if self.scale == Scale::Linear { "lin" } else { "log" };
        format!("{kind},{},{},{:.1},{:.1},{unit:?}", self.low, self.high, self.from_px, self.to_px)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, low: f64, high: f64, most: usize) -> Vec<String> {
        ticks(axis, low, high, most, true).ticks.into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let axis = |unit| Axis::new("", unit);
        assert_eq!(texts(&axis(Unit::Number), 0.0, 0.93, 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&axis(Unit::Number), 0.0, 3_900.0, 5), ["0", "1k", "2k", "3k", "4k"]);
        assert_eq!(texts(&axis(Unit::Ns), 0.0, 1.4e6, 4), ["0", "0.5 ms", "1.0 ms", "1.5 ms"]);
        assert_eq!(
            texts(&axis(Unit::Bytes), 0.0, 2.2 * 1_048_576.0, 5),
            ["0", "0.5 MiB", "1 MiB", "1.5 MiB", "2 MiB", "2.5 MiB"]
        );
        assert_eq!(texts(&axis(Unit::Share), 0.0, 1.0, 4), ["0", "50%", "100%"]);
        assert_eq!(texts(&axis(Unit::Number), -3.0, 4.0, 4), ["-4", "-2", "0", "2", "4"]);
    }

    #[test]
    fn an_axis_that_is_not_widened_ends_with_its_data() {
        let found = ticks(&Axis::new("", Unit::Number), 3.0, 17.0, 5, false);
        assert_eq!((found.low, found.high), (3.0, 17.0));
        assert_eq!(found.ticks.iter().map(|tick| tick.at).collect::<Vec<_>>(), [5.0, 10.0, 15.0]);
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let bytes = Axis::new("", Unit::Bytes).scale(Scale::Log2);
        assert_eq!(texts(&bytes, 256.0, 8192.0, 8), ["256 B", "512 B", "1 KiB", "2 KiB", "4 KiB", "8 KiB"]);
        assert_eq!(texts(&bytes, 256.0, 8192.0, 3), ["256 B", "1 KiB", "4 KiB"]);
        let time = Axis::new("", Unit::Ns).scale(Scale::Log10);
        assert_eq!(texts(&time, 1e3, 1e6, 6), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert_eq!(texts(&time, 1e3, 1e4, 6), ["1 µs", "2 µs", "5 µs", "10 µs"]);
    }

    #[test]
    fn odd_spans_do_not_hang_or_panic() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for values in [
                vec![],
                vec![0.0],
                vec![7.0],
                vec![-5.0],
                vec![f64::NAN, f64::INFINITY],
                vec![1e17, 1e17 + 16.0],
                vec![1e-290, 1e290],
            ] {
                let axis = Axis::new("", Unit::Number).scale(scale);
                let (low, high) = axis.span(values.iter().copied());
                for widen in [false, true] {
                    let found = ticks(&axis, low, high, 6, widen);
                    assert!(found.ticks.len() <= 16, "{scale:?} {values:?} {found:?}");
                    let ruler = Ruler::new(scale, &found, 0.0, 100.0);
                    assert!((0.0..=100.0).contains(&ruler.at(high)), "{scale:?} {values:?} {ruler:?}");
                }
            }
        }
    }
}
