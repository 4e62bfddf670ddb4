//! Runs points on threads.

use super::{Point, Value};
use crate::jobs;
use crate::report::Unit;

/// What a report does with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is in the tables.
    Plain,
    /// It has a figure, too.
    Figure,
    /// It is a part of the first figure's value: bars show the parts.
    Part,
}

/// A result that every point has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, the unit last.
    pub name: &'static str,
    /// What it is, for people.
    pub label: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// Where it is shown.
    pub role: Role,
}

/// Runs one configuration. Its results depend on the point alone.
pub trait Runner: Sync {
    /// What it finds out.
    fn columns(&self) -> &[Column];

    /// The results of `point`, one for each column.
    ///
    /// # Errors
    /// Why this point cannot be simulated, in one line; other points still can.
    fn run(&self, point: &Point) -> Result<Vec<Value>, String>;
}

/// The results of one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The point's place in the plan.
    pub index: usize,
    /// A value for each column, or why there is none.
    pub outcome: Result<Vec<Value>, String>,
}

/// Runs `points` on `threads` threads and gives their rows in the order of the points. `progress` is called after each.
///
/// # Panics
/// If the runner does, or gives another number of values than it has columns.
pub fn sweep(
    points: &[Point],
    runner: &dyn Runner,
    threads: usize,
    progress: &(dyn Fn() + Sync),
) -> Vec<Row> {
    let columns = runner.columns().len();
    let mut rows = jobs::run(points, threads, &|_| progress(), |point| {
        let outcome = runner.run(point);
        if let Ok(values) = &outcome {
            assert_eq!(values.len(), columns, "values of a point");
        }
        Row { index: point.index, outcome }
    });
    rows.sort_by_key(|row| row.index);
    rows
}
