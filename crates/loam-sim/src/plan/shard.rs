//! Parts of a sweep that ran in different places, and what joins them.

use super::parse::{PLAN_BYTES_MAX, Plan};
use super::sweep::Row;
use super::{Point, Value};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Parts that a sweep may be cut into.
const PARTS_MAX: usize = 10_000;

/// Part `number` of `of`, counted from 1: points `number - 1`, `number - 1 + of`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which part, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) && of <= PARTS_MAX => Ok(Self { number, of }),
            _ => Err(format!("write I/N with 1 <= I <= N <= {PARTS_MAX}, as 3/16")),
        }
    }
}

impl Part {
    /// The points of this part.
    pub fn points(self, plan: &Plan) -> Vec<Point> {
        plan.points().into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

/// Says what a file is.
const FORMAT: &str = "loam-sim-shard-1";

/// The results of one part, with all that is needed to join them with the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    format: String,
    /// The version of Loam that made it: another one may simulate something else.
    version: String,
    part: Part,
    plan: String,
    rows: Vec<ShardRow>,
}

/// A row as a file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShardRow {
    Values(usize, Vec<Value>),
    Error(usize, String),
}

/// Shards that do not make one sweep. `shard` is the name of the one that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Not a file of `loam sim run --shard`.
    #[error("{shard}: not a shard of this version of Loam: {what}")]
    Malformed {
        /// Its name.
        shard: String,
        /// Why not.
        what: String,
    },
    /// Another plan, another number of parts or another Loam than the first.
    #[error(
        "{shard}: {what} differs from that of {first}: merge the shards of one plan, all run by one version of Loam"
    )]
    Differs {
        /// Its name.
        shard: String,
        /// The one that it was compared with.
        first: String,
        /// What differs.
        what: &'static str,
    },
    /// A part is there twice.
    #[error("{shard}: part {part} is there already, from {first}")]
    Twice {
        /// Its name.
        shard: String,
        /// The first with this part.
        first: String,
        /// Its number.
        part: usize,
    },
    /// Parts are not there.
    #[error("{} of {of} shards are missing: {}", .parts.len(), listed(.parts))]
    Missing {
        /// Their numbers.
        parts: Vec<usize>,
        /// How many there should be.
        of: usize,
    },
    /// Nothing was given.
    #[error("no shard was given")]
    None,
}

fn listed(parts: &[usize]) -> String {
    let mut text: Vec<String> = parts.iter().take(20).map(usize::to_string).collect();
    if parts.len() > 20 {
        text.push("…".into());
    }
    text.join(", ")
}

impl Shard {
    /// The results of `part` of `plan`.
    pub fn new(plan: &Plan, part: Part, rows: Vec<Row>) -> Self {
        let row = |row: Row| match row.outcome {
            Ok(values) => ShardRow::Values(row.index, values),
            Err(error) => ShardRow::Error(row.index, error),
        };
        Self {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            part,
            plan: plan.text().into(),
            rows: rows.into_iter().map(row).collect(),
        }
    }

    /// The file: one line of JSON.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("strings and numbers are JSON");
        text.push('\n');
        text
    }

    /// Reads a file; `name` is for messages.
    ///
    /// # Errors
    /// [`MergeError::Malformed`]
    pub fn from_json(name: &str, text: &str, columns: usize) -> Result<Self, MergeError> {
        let malformed = |what: String| MergeError::Malformed { shard: name.into(), what };
        let shard: Self = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if shard.format != FORMAT {
            return Err(malformed(format!("its format is {:?}, not {FORMAT:?}", shard.format)));
        }
        if shard.plan.len() > PLAN_BYTES_MAX {
            return Err(malformed("its plan is too large".into()));
        }
        format!("{}/{}", shard.part.number, shard.part.of).parse::<Part>().map_err(malformed)?;
        let plan = Plan::parse(&shard.plan).map_err(|error| malformed(format!("its plan, {error}")))?;
        let expected = (shard.part.number - 1..plan.len()).step_by(shard.part.of);
        let found = shard.rows.iter().map(|row| match row {
            ShardRow::Values(index, _) | ShardRow::Error(index, _) => *index,
        });
        if !expected.eq(found) {
            return Err(malformed("its rows are not those of its part; run this part again".into()));
        }
        let short = |row: &ShardRow| matches!(row, ShardRow::Values(_, values) if values.len() != columns);
        if shard.rows.iter().any(short) {
            return Err(malformed("a row has another number of values".into()));
        }
        Ok(shard)
    }
}

/// Joins all parts of a sweep: the plan and its rows in order, as if it had run in one place.
///
/// # Errors
/// [`MergeError`] if they are not exactly the parts of one sweep.
pub fn merge(shards: Vec<(String, Shard)>) -> Result<(Plan, Vec<Row>), MergeError> {
    let Some((first, head)) = shards.first() else { return Err(MergeError::None) };
    let mut of_part: Vec<Option<&str>> = vec![None; head.part.of];
    for (name, shard) in &shards {
        let differs = |what| MergeError::Differs { shard: name.clone(), first: first.clone(), what };
        if shard.plan != head.plan {
            return Err(differs("the plan's text"));
        }
        if shard.version != head.version {
            return Err(differs("the version of Loam"));
        }
        if shard.part.of != head.part.of {
            return Err(differs("the number of parts"));
        }
        let part = shard.part.number;
        if let Some(first) = of_part[part - 1].replace(name) {
            return Err(MergeError::Twice { shard: name.clone(), first: first.into(), part });
        }
    }
    let missing = of_part.iter().enumerate().filter(|(_, name)| name.is_none());
    let missing: Vec<usize> = missing.map(|(part, _)| part + 1).collect();
    if !missing.is_empty() {
        return Err(MergeError::Missing { parts: missing, of: head.part.of });
    }
    let malformed = |what: String| MergeError::Malformed { shard: first.clone(), what };
    let plan = Plan::parse(&head.plan).map_err(|error| malformed(error.to_string()))?;
    let mut rows: Vec<Row> = shards
        .into_iter()
        .flat_map(|(_, shard)| shard.rows)
        .map(|row| match row {
            ShardRow::Values(index, values) => Row { index, outcome: Ok(values) },
            ShardRow::Error(index, error) => Row { index, outcome: Err(error) },
        })
        .collect();
    rows.sort_by_key(|row| row.index);
    Ok((plan, rows))
}
