//! The figures that the papers print, as they are in `published/*.csv`.

use std::fmt;

/// What a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cost or size: feeds a model.
    Input,
    /// Printed beside ours.
    Result,
    /// An order or a shape that must hold.
    Claim,
}

/// A published value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One figure.
    One(f64),
    /// From the first to the last.
    Range(f64, f64),
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
    /// Near to this.
    About(f64),
    /// For n nodes: the first times n, and the second times the square of n.
    Nodes(f64, f64),
    /// Several, and what stands between them.
    List(&'static str, Vec<f64>),
    /// The lowest and the highest with whose they are, and the mean.
    Spread(Box<[(f64, String); 2]>, f64),
    /// Several, not all of them plain numbers, with ` / ` between them.
    Text(String),
    /// Of a claim: that it is so.
    True,
}

impl Value {
    /// Both ends; the same figure twice where there is one.
    pub fn ends(&self) -> (f64, f64) {
        match *self {
            Self::One(value) => (value, value),
            Self::Range(low, high) => (low, high),
            Self::Below(value) | Self::Above(value) | Self::About(value) => (value, value),
            Self::Nodes(..) => (self.of_nodes(NODES), self.of_nodes(NODES)),
            Self::List(_, ref all) => (all[0], all[all.len() - 1]),
            Self::Spread(ref ends, _) => (ends[0].0, ends[1].0),
            Self::Text(_) => (f64::NAN, f64::NAN),
            Self::True => (1.0, 1.0),
        }
    }

    /// The value for so many nodes, where it depends on them.
    pub fn of_nodes(&self, nodes: f64) -> f64 {
        match *self {
            Self::Nodes(each, square) => (each + square * nodes) * nodes,
            _ => self.ends().0,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<f64>().ok();
        if let Some((ends, mean)) = text.split_once(", mean ") {
            let end = |text: &str| {
                let (value, of) = text.strip_suffix(')')?.split_once(" (")?;
                Some((number(value)?, of.to_owned()))
            };
            let (low, high) = ends.split_once(" .. ")?;
            return Some(Self::Spread(Box::new([end(low)?, end(high)?]), number(mean)?));
        }
        if let Some((low, high)) = text.split_once("..") {
            return Some(Self::Range(number(low)?, number(high)?));
        }
        if text == "true" {
            return Some(Self::True);
        }
        if let Some(rest) = text.strip_prefix('<') {
            return Some(Self::Below(number(rest)?));
        }
        if let Some(rest) = text.strip_prefix('>') {
            return Some(Self::Above(number(rest)?));
        }
        if let Some(rest) = text.strip_prefix("about ") {
            return Some(Self::About(number(rest)?));
        }
        if let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix("*n)*n")) {
            let (each, square) = inner.split_once('+')?;
            return Some(Self::Nodes(number(each)?, number(square)?));
        }
        if let Some(each) = text.strip_suffix("*n") {
            return Some(Self::Nodes(number(each)?, 0.0));
        }
        if let Some(between) = [",", " / "].into_iter().find(|between| text.contains(between)) {
            if let Some(all) = text.split(between).map(number).collect() {
                return Some(Self::List(between, all));
            }
            let several = between == " / " && text.split(between).all(|part| !part.is_empty());
            return several.then(|| Self::Text(text.to_owned()));
        }
        Some(Self::One(number(text)?))
    }
}

/// Nodes for which a value that depends on them is compared: gms-1995, section 5.2.
const NODES: f64 = 100.0;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(value) => write!(f, "{value}"),
            Self::Range(low, high) => write!(f, "{low}..{high}"),
            Self::Below(value) => write!(f, "<{value}"),
            Self::Above(value) => write!(f, ">{value}"),
            Self::About(value) => write!(f, "about {value}"),
            Self::Nodes(each, square) if *square == 0.0 => write!(f, "{each}*n"),
            Self::Nodes(each, square) => write!(f, "({each}+{square}*n)*n"),
            Self::List(between, all) => {
                let all: Vec<String> = all.iter().map(f64::to_string).collect();
                f.write_str(&all.join(between))
            }
            Self::Spread(ends, mean) => {
                let [(low, first), (high, last)] = &**ends;
                write!(f, "{low} ({first}) .. {high} ({last}), mean {mean}")
            }
            Self::Text(text) => f.write_str(text),
            Self::True => f.write_str("true"),
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Table, figure or section.
    pub item: String,
    /// Workload, configuration or row of the table.
    pub case: String,
    /// What was measured.
    pub metric: String,
    /// The figure.
    pub value: Value,
    /// Its unit.
    pub unit: String,
    /// What it is for.
    pub kind: Kind,
}

/// The rows of one of our own files.
///
/// # Panics
/// If the text is not in order: it is part of the program.
pub(super) fn rows(text: &str) -> Vec<Published> {
    text.lines().skip(1).map(row).collect()
}

fn row(line: &str) -> Published {
    let fields = fields(line);
    let [_, item, case, metric, value, unit, kind] = &fields[..] else { panic!("seven fields: {line}") };
    let value = Value::parse(value).unwrap_or_else(|| panic!("a value: {line}"));
    let kind = match kind.as_str() {
        "input" => Kind::Input,
        "result" => Kind::Result,
        "claim" => Kind::Claim,
        _ => panic!("a kind: {line}"),
    };
    let (item, case, metric) = (item.clone(), case.clone(), metric.clone());
    Published { item, case, metric, value, unit: unit.clone(), kind }
}

/// Splits a line of CSV; a quoted field may have commas.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_are_printed() {
        let text = "head\n\
            subpages-1996,figure 3,\"worst (256 B, full-mem)\",gain over full page,8,%,result\n\
            subpages-1996,figure 3,all,best subpage size,1024..2048,B,claim\n\
            subpages-1996,figure 5,all,\"waits form three sections (best, overlap, worst)\",true,,claim";
        let rows = rows(text);
        assert_eq!(rows[0].case, "worst (256 B, full-mem)");
        assert_eq!((rows[0].value.clone(), rows[0].kind), (Value::One(8.0), Kind::Result));
        assert_eq!(rows[1].value, Value::Range(1024.0, 2048.0));
        assert_eq!(rows[2].value, Value::True);
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in [
            "0.29",
            "1.5..3.5",
            "<0.8",
            ">1.5",
            "about 1",
            "78*n",
            "(108+2*n)*n",
            "true",
            "1,2,4",
            "16 / 128",
            "16 / 4x4 / 16 GB",
            "-3",
            "23 (em3d) .. 64 (gauss), mean 41",
        ] {
            let value = Value::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(value.to_string(), text);
        }
        assert_eq!(Value::parse("(108+2*n)*n").map(|value| value.of_nodes(10.0)), Some(1280.0));
        assert!(
            ["", "n", "<", "1..", "(1*n)*n", "about", "1,", " / "]
                .into_iter()
                .all(|text| Value::parse(text).is_none())
        );
    }
}
