//! Plans: a TOML file that says what to simulate, where any parameter may be a list or a range, and the sweep over all of it.
//!
//! The points of a plan are the product of its parameters' values, in the order in which the parameters stand in the file: the last varies
//! fastest. Results stand in that order, whatever threads or shards they came from, so that a plan gives the same bytes everywhere.
//!
//! - [`Plan`] reads the file, [`Point`] is one configuration of it.
//! - [`sweep`] runs points on threads through a [`Runner`]; [`MachineRunner`] is the one that simulates.
//! - [`Results`] are written as CSV, Parquet and an HTML report.
//! - [`Shard`] is a part of a sweep that ran elsewhere; [`merge`] joins them.
//!
//! See `docs/simulator-sweeps.md`.

mod machine;
mod parameters;
mod parquet;
mod parse;
mod results;
mod shard;
mod sweep;
#[cfg(test)]
mod tests;

pub use machine::{MachineRunner, Open};
pub use parse::{Plan, PlanError, Point};
pub use results::Results;
pub use shard::{MergeError, Part, Shard, merge};
pub use sweep::{Column, Role, Row, Runner, sweep};

use serde::{Deserialize, Serialize};

/// A value of a parameter or a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// Another number. Written as its shortest text: a JSON reader may not give the last bit back.
    Real(#[serde(with = "as_text")] f64),
    /// Yes or no.
    Switch(bool),
}

impl Value {
    /// Its number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(*whole as f64),
            Self::Real(real) => Some(*real),
            Self::Text(_) | Self::Switch(_) => None,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Whole(whole) => write!(f, "{whole}"),
            Self::Real(real) => write!(f, "{real}"),
            Self::Switch(switch) => write!(f, "{switch}"),
        }
    }
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(real: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&real.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
