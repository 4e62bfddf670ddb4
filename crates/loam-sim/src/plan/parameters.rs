//! The parameters that a plan may have.

use super::Value;
use crate::report::Unit;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any text.
    Text,
    /// Bytes, also as `"8K"`.
    Bytes,
    /// A whole number.
    Whole,
    /// A part of a whole: 0.25, `"25%"`, `"1/4"`.
    Share,
    /// true or false.
    Switch,
}

/// One parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Without it there is no plan.
    pub(super) required: bool,
}

const fn parameter(name: &'static str, kind: Kind, required: bool) -> Parameter {
    Parameter { name, kind, required }
}

/// All of them, in the order in which the columns of those stand that a plan leaves to their defaults.
pub(super) const PARAMETERS: [Parameter; 10] = [
    parameter("trace", Kind::Text, true),
    parameter("model", Kind::Text, true),
    parameter("page_bytes", Kind::Bytes, true),
    parameter("subpage_bytes", Kind::Bytes, true),
    parameter("unit_bytes", Kind::Bytes, false),
    parameter("local_pages", Kind::Whole, false),
    parameter("local_share", Kind::Share, false),
    parameter("fetch_plan", Kind::Text, false),
    parameter("replacement", Kind::Text, false),
    parameter("pipelined_unattended", Kind::Switch, false),
];

/// Keys that are not parameters.
pub(super) const TITLE: &str = "title";

pub(super) fn parameter_of(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

/// How values of a parameter are written for people.
pub(super) fn unit_of(name: &str) -> Unit {
    match parameter_of(name).map(|parameter| parameter.kind) {
        Some(Kind::Bytes) => Unit::Bytes,
        Some(Kind::Share) => Unit::Share,
        _ => Unit::Number,
    }
}

impl Kind {
    /// What the reader of an error message should write.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytes => "bytes: 4096 or \"4K\"",
            Self::Whole => "a whole number",
            Self::Share => "a share above 0 and up to 1: 0.25, \"25%\" or \"1/4\"",
            Self::Switch => "true or false",
        }
    }

    /// A value from text, for kinds that can be written so.
    pub(super) fn of_text(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(Value::Text(text.into())).filter(|_| !text.is_empty()),
            Self::Bytes => bytes(text).map(Value::Whole),
            Self::Share => share(text).and_then(|share| self.of_number(share)),
            Self::Whole | Self::Switch => None,
        }
    }

    /// A value from a number that is not whole.
    pub(super) fn of_number(self, number: f64) -> Option<Value> {
        (self == Self::Share && number > 0.0 && number <= 1.0).then_some(Value::Real(number))
    }

    /// A value from a whole number.
    pub(super) fn of_whole(self, whole: u64) -> Option<Value> {
        match self {
            Self::Bytes | Self::Whole => Some(Value::Whole(whole)),
            Self::Share if whole == 1 => Some(Value::Real(1.0)),
            _ => None,
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[split..].trim() {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    text[..split].parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn share(text: &str) -> Option<f64> {
    if let Some(percent) = text.strip_suffix('%') {
        return Some(percent.trim().parse::<f64>().ok()? / 100.0);
    }
    match text.split_once('/') {
        Some((part, whole)) => {
            Some(f64::from(part.parse::<u32>().ok()?) / f64::from(whole.parse::<u32>().ok()?))
        }
        None => text.parse().ok(),
    }
}

/// The known name that `wrong` is nearest to, if it is near enough to be meant.
pub(super) fn nearest(wrong: &str) -> Option<&'static str> {
    let names = PARAMETERS.iter().map(|parameter| parameter.name).chain([TITLE]);
    let (away, name) = names.map(|name| (distance(wrong, name), name)).min()?;
    (away <= 1 + name.len() / 4).then_some(name)
}

/// Letters to add, drop or change to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // Longer than any name, a word is not near to one.
    for (at, letter) in from.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_forms() {
        assert_eq!(Kind::Bytes.of_text("8K"), Some(Value::Whole(8192)));
        assert_eq!(Kind::Bytes.of_text("1 MiB"), Some(Value::Whole(1 << 20)));
        for wrong in ["", "K", "8Q", "-1", "99999999999G"] {
            assert_eq!(Kind::Bytes.of_text(wrong), None, "{wrong}");
        }
        assert_eq!(Kind::Share.of_text("25%"), Some(Value::Real(0.25)));
        assert_eq!(Kind::Share.of_text("1/4"), Some(Value::Real(0.25)));
        for wrong in ["0%", "101%", "1/0", "0/1", "x", "nan", "inf"] {
            assert_eq!(Kind::Share.of_text(wrong), None, "{wrong}");
        }
        assert_eq!(Kind::Whole.of_text("7"), None);
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest("subpage_byte"), Some("subpage_bytes"));
        assert_eq!(nearest("subpages_bytes"), Some("subpage_bytes"));
        assert_eq!(nearest("fetchplan"), Some("fetch_plan"));
        assert_eq!(nearest("colour_of_the_moon"), None);
    }
}
