//! The papers' experiments, run again: each figure of ours beside the published one.
//!
//! Nothing is fitted. Where a result differs, the report says so and what the likely cause is.

pub mod aapc;
pub mod gms;
pub mod nwcache;
mod published;
pub mod regions;
pub mod subpages;

pub use published::{Kind, Published, Value};

use crate::report::{Cell, Check, Figure, Table};

/// What a reproduction came to.
#[derive(Debug)]
pub struct Reproduction {
    /// The paper.
    pub title: String,
    /// What was run, and on what.
    pub about: Vec<String>,
    /// Tables, with a file name each.
    pub tables: Vec<(String, String, Table)>,
    /// Figures, with a file name each.
    pub figures: Vec<(String, Figure)>,
    /// Published results and ours.
    pub results: Vec<Compared>,
    /// The paper's claims.
    pub checks: Vec<Check>,
}

/// One published result and ours.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The row of the published figures.
    pub published: Published,
    /// Ours, in the row's unit: one figure, or the ends of a range.
    pub ours: (f64, f64),
    /// Why it differs, where it does.
    pub note: &'static str,
}

impl Compared {
    /// Ours / published, for both ends.
    pub fn ratios(&self) -> (f64, f64) {
        let (low, high) = self.published.value.ends();
        let ratio = |ours: f64, theirs: f64| if theirs == 0.0 { f64::NAN } else { ours / theirs };
        (ratio(self.ours.0, low), ratio(self.ours.1, high))
    }
}

/// The results as one table: what, published, ours, ratio, remark.
pub fn results_table(results: &[Compared]) -> Table {
    let mut table = Table::new(["item", "case", "metric", "unit", "published", "ours", "ratio", "remark"]);
    for result in results {
        let row = &result.published;
        let (low, high) = result.ratios();
        let is_range = matches!(row.value, Value::Range(..) | Value::Spread(..));
        let write = |a: f64, b: f64, ratio: bool| {
            let one = |v: f64| match v {
                v if v.is_nan() => "-".to_owned(),
                v if ratio || v.abs() < 10.0 => format!("{v:.2}"),
                v if v.abs() < 1000.0 => format!("{v:.1}"),
                v => format!("{v:.0}"),
            };
            if is_range { format!("{}..{}", one(a), one(b)) } else { one(a) }
        };
        table.push(vec![
            Cell::from(row.item.clone()),
            Cell::from(row.case.clone()),
            Cell::from(row.metric.clone()),
            Cell::from(row.unit.clone()),
            Cell::from(row.value.to_string()),
            Cell::from(write(result.ours.0, result.ours.1, false)),
            Cell::from(write(low, high, true)),
            Cell::from(result.note),
        ]);
    }
    table
}
