//! gms-1995: "Implementing Global Memory Management in a Workstation Cluster", its tables and figures on simulated clusters that run the live
//! policy.

mod claims;
mod experiments;
mod figures;
mod micro;
mod results;
mod scenes;
#[cfg(test)]
mod tests;

pub use experiments::Experiments;

use super::Reproduction;
use super::published::{self, Published};

/// What the paper prints.
fn rows() -> Vec<Published> {
    published::rows(include_str!("../../../published/gms-1995.csv"))
}

/// One figure that the paper prints.
pub(crate) fn printed(item: &str, case: &str, metric: &str) -> f64 {
    let row = rows().into_iter().find(|row| (&*row.item, &*row.case, &*row.metric) == (item, case, metric));
    row.unwrap_or_else(|| panic!("{item}, {case}, {metric}: not printed")).value.ends().0
}

/// Everything that the paper shows, from experiments that have been run.
pub fn reproduce(experiments: &Experiments) -> Reproduction {
    let about = [
        "Machines: 64 MB in pages of 8 KiB, 155 Mb/s links, costs from the paper's tables 1 and 2, sections 5.1 and 5.2, and the columns without GMS of \
         tables 3 and 4. Nothing was fitted to a result.",
        "Every node runs the live policy: the same directories, epochs and placement as a real one.",
        "Idle memory is free frames. Programs' files are on their own node's disk, so only the busy nodes' program of figures 10 and 11 and table 4 \
         have shared pages.",
        "Programs of the same kinds stand in for the paper's (docs/simulator-workloads.md). Those that read files are measured in their second run.",
    ];
    Reproduction {
        title: "gms-1995: Implementing Global Memory Management in a Workstation Cluster".into(),
        about: about.into_iter().map(str::to_owned).collect(),
        tables: figures::tables(experiments),
        figures: figures::figures(experiments),
        results: results::results(experiments),
        checks: claims::checks(experiments),
    }
}
