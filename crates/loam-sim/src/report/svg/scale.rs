//! From numbers to places on an axis, and round numbers to write beside it.

/// How numbers are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0 on unless all are far from it.
    Linear,
    /// By their decimal logarithm; only what is above 0 can be shown.
    Log10,
    /// By their binary logarithm: for sizes.
    Log2,
}

/// About so many ticks.
const TICKS: f64 = 6.0;

impl Scale {
    /// The scale over the span of these values.
    pub(super) fn over(self, values: impl Iterator<Item = f64>) -> Span {
        let shown = values.filter_map(|value| self.position(value));
        let (mut low, mut high) =
            shown.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if self == Self::Linear && low > 0.0 && low < high / 2.0 {
            low = 0.0;
        }
        if self == Self::Log10 {
            (low, high) = (low.floor(), high.ceil());
        }
        if high - low < 1e-12 {
            high = low + 1.0;
        }
        Span { scale: self, low, high }
    }

    fn position(self, value: f64) -> Option<f64> {
        let at = match self {
            Self::Linear => value,
            Self::Log10 => value.log10(),
            Self::Log2 => value.log2(),
        };
        at.is_finite().then_some(at)
    }
}

/// A scale with its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Span {
    /// Where a value is, from 0 to 1 of the axis.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        self.scale.position(value).map(|at| (at - self.low) / (self.high - self.low))
    }

    /// Round values within the span, and how to write them.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        let step = match self.scale {
            Scale::Linear => round_step((self.high - self.low) / TICKS),
            // Whole powers.
            Scale::Log10 | Scale::Log2 => ((self.high - self.low) / TICKS).ceil().max(1.0),
        };
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|n| {
                let at = n as f64 * step;
                let value = match self.scale {
                    Scale::Linear => at,
                    Scale::Log10 => 10_f64.powf(at),
                    Scale::Log2 => at.exp2(),
                };
                (value, written(value, step, self.scale))
            })
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, about as large as `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

fn written(value: f64, step: f64, scale: Scale) -> String {
    let decimals = match scale {
        Scale::Linear => -step.log10().floor(),
        Scale::Log10 => -value.log10().round(),
        Scale::Log2 => 0.0_f64.max(-value.log2()),
    };
    let decimals = decimals.clamp(0.0, 9.0) as usize;
    let plain = format!("{value:.decimals$}");
    let (whole, rest) =
        plain.split_once('.').map_or((plain.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    // Thousands apart, as in the tables.
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, low: f64, high: f64) -> Vec<String> {
        scale.over([low, high].into_iter()).ticks().into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(Scale::Linear, 0.0, 100.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(Scale::Linear, 0.0, 0.25), ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25"]);
        assert_eq!(labels(Scale::Linear, 0.0, 5_000.0), ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]);
        assert_eq!(labels(Scale::Log10, 0.02, 100.0), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(Scale::Log2, 1.0, 64.0), ["1", "2", "4", "8", "16", "32", "64"]);
    }

    #[test]
    fn what_cannot_be_shown_has_no_place() {
        let span = Scale::Log10.over([0.0, 1.0, 100.0].into_iter());
        assert_eq!((span.place(0.0), span.place(1.0), span.place(100.0)), (None, Some(0.0), Some(1.0)));
        assert_eq!(Scale::Linear.over([0.0, 4.0].into_iter()).place(1.0), Some(0.25));
    }
}
