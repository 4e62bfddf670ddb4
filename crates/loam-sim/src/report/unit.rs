//! How numbers are written for people: three digits and the prefix that fits.

/// What a number counts, which decides how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A plain number: 1.5k, 20M.
    #[default]
    Number,
    /// Bytes, in powers of 1024: 256 B, 2 MiB.
    Bytes,
    /// Nanoseconds: 12 ns, 0.5 ms, 3 s.
    Ns,
    /// A part of a whole, 0 to 1, written as a percentage: 0.25 is 25%.
    Share,
    /// A factor: 1.8×.
    Times,
}

/// The unit that a value is written in: its size in base units, and its name with the space before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prefix {
    pub(super) size: f64,
    pub(super) name: &'static str,
}

const NUMBER: [(f64, &str); 5] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
const BYTES: [(f64, &str); 6] = [
    (1.0, " B"),
    (1024.0, " KiB"),
    (1_048_576.0, " MiB"),
    (1_073_741_824.0, " GiB"),
    (1_099_511_627_776.0, " TiB"),
    (1_125_899_906_842_624.0, " PiB"),
];
const NS: [(f64, &str); 4] = [(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")];
const SHARE: [(f64, &str); 1] = [(0.01, "%")];
const TIMES: [(f64, &str); 1] = [(1.0, "×")];

impl Unit {
    /// The largest prefix that is not larger than `value`.
    pub(super) fn prefix(self, value: f64) -> Prefix {
        let table: &[(f64, &str)] = match self {
            Self::Number => &NUMBER,
            Self::Bytes => &BYTES,
            Self::Ns => &NS,
            Self::Share => &SHARE,
            Self::Times => &TIMES,
        };
        let fits = |(size, _): &&(f64, &str)| *size <= value.abs();
        let &(size, name) = table.iter().rev().find(fits).unwrap_or(&table[0]);
        Prefix { size, name }
    }

    /// `value` with three significant digits: `1.48 ms`, `2 MiB`, `1.2k`.
    pub fn write(self, value: f64) -> String {
        if value == 0.0 {
            return "0".into();
        }
        let prefix = self.prefix(value);
        format!("{}{}", significant(value / prefix.size), prefix.name)
    }
}

/// `value` with three significant digits and no zeros behind the last that counts.
pub(super) fn significant(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return format!("{value}");
    }
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = match size {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        0.01.. => 4,
        _ => 6,
    };
    without_zeros(format!("{value:.decimals$}"))
}

/// `1.500` becomes `1.5`, `2.0` becomes `2`, `-0.0` becomes `0`.
pub(super) fn without_zeros(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_for_people() {
        for (unit, value, text) in [
            (Unit::Number, 0.0, "0"),
            (Unit::Number, 1.0, "1"),
            (Unit::Number, 1234.0, "1.23k"),
            (Unit::Number, -20e6, "-20M"),
            (Unit::Number, 0.25, "0.25"),
            (Unit::Bytes, 256.0, "256 B"),
            (Unit::Bytes, 1023.0, "1023 B"),
            (Unit::Bytes, 8192.0, "8 KiB"),
            (Unit::Bytes, 2_097_152.0, "2 MiB"),
            (Unit::Ns, 12.0, "12 ns"),
            (Unit::Ns, 1_480_000.0, "1.48 ms"),
            (Unit::Ns, 520_000.0, "520 µs"),
            (Unit::Ns, 3e9, "3 s"),
            (Unit::Share, 0.25, "25%"),
            (Unit::Share, 0.005, "0.5%"),
            (Unit::Times, 1.8, "1.8×"),
        ] {
            assert_eq!(unit.write(value), text);
        }
    }
}
