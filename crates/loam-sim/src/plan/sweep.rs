//! Runs points on threads.

use super::{Point, Value};
use crate::report::Unit;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let next = AtomicUsize::new(0);
    let columns = runner.columns().len();
    let work = || {
        let mut rows = Vec::new();
        while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = runner.run(point);
            if let Ok(values) = &outcome {
                assert_eq!(values.len(), columns, "values of a point");
            }
            rows.push(Row { index: point.index, outcome });
            progress();
        }
        rows
    };
    let threads = threads.clamp(1, points.len().max(1));
    let mut rows: Vec<Row> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(rows) => rows,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    rows.sort_by_key(|row| row.index);
    rows
}
