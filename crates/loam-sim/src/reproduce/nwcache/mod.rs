//! nwcache-1999: "NWCache: Optimizing Disk Accesses via an Optical Network/Write Cache Hybrid", its tables and figures on the paper's machine.

mod claims;
mod experiments;
mod figures;
mod machines;
mod notes;
mod results;
mod tables;
#[cfg(test)]
mod tests;

pub use experiments::{Experiments, Extent};

use super::Reproduction;
use super::published::{self, Published, Value};
use crate::workload::parallel::PARALLEL_NAMES;

/// What the paper prints.
fn rows() -> Vec<Published> {
    published::rows(include_str!("../../../published/nwcache-1999.csv"))
}

/// A row that the paper prints.
fn row(item: &str, case: &str, metric: &str) -> Published {
    let row = rows().into_iter().find(|row| (&*row.item, &*row.case, &*row.metric) == (item, case, metric));
    row.unwrap_or_else(|| panic!("{item}, {case}, {metric}: not printed"))
}

/// One figure that the paper prints.
pub(crate) fn printed(item: &str, case: &str, metric: &str) -> f64 {
    row(item, case, metric).value.ends().0
}

/// The least free frames that section 5 found best: standard with optimal and with naive prefetching, NWCache.
pub(crate) fn least_free_frames() -> [u32; 3] {
    const CASE: &str = "least free frames: standard optimal / standard naive / nwcache";
    let Value::List(_, frames) = row("section 5", CASE, "frames").value else {
        panic!("three numbers are printed")
    };
    let frames: Vec<u32> = frames.into_iter().map(|frames| frames as u32).collect();
    frames.try_into().expect("three numbers are printed")
}

/// The number of a program.
fn number(name: &str) -> usize {
    PARALLEL_NAMES.iter().position(|of| *of == name).unwrap_or_else(|| panic!("{name}: no such program"))
}

/// Everything that the paper shows, from experiments that have been run.
pub fn reproduce(experiments: &Experiments) -> Reproduction {
    let about = [
        "Machine: table 1's, with what the paper does not say assumed (docs/simulator-write-cache.md has the list). One number was fitted: 12 of 64 page frames \
         hold what is private, since then the run times that the ring saves are nearest to the six that are printed.",
        "The ring's channels, queues, order and victim reads are loam_core::staging's, as live; its timing is the optical fibre's.",
        "Programs of the same kinds and sizes stand in for the paper's (docs/simulator-workloads.md): they compute, and their results are checked.",
    ];
    Reproduction {
        title: "nwcache-1999: NWCache: Optimizing Disk Accesses via an Optical Network/Write Cache Hybrid"
            .into(),
        about: about.into_iter().map(str::to_owned).collect(),
        tables: tables::tables(experiments),
        figures: figures::figures(experiments),
        results: results::results(experiments),
        checks: claims::checks(experiments),
    }
}
