//! subpages-1996: "Reducing Network Latency Using Subpages in a Global Memory Environment", its tables and figures on recorded traces.

mod experiments;
mod figures;
mod results;

pub use experiments::{App, Experiments};

use super::Reproduction;
use super::published::{self, Published};

/// Bytes of a page on the paper's platform.
const PAGE_BYTES: u64 = 8192;
/// The subpage sizes of figure 3, largest first.
const SUBPAGES: [u64; 5] = [4096, 2048, 1024, 512, 256];

/// What the paper prints.
fn rows() -> Vec<Published> {
    published::rows(include_str!("../../../published/subpages-1996.csv"))
}

/// One figure that the paper prints.
fn printed(item: &str, case: &str, metric: &str) -> f64 {
    let row = rows().into_iter().find(|row| (&*row.item, &*row.case, &*row.metric) == (item, case, metric));
    row.unwrap_or_else(|| panic!("{item}, {case}, {metric}: not printed")).value.ends().0
}

/// Everything that the paper shows, from experiments that have been run.
pub fn reproduce(experiments: &Experiments) -> Reproduction {
    let names =
        experiments.apps().iter().map(|a| format!("{} stands in for the paper's {}", a.name, a.stands_for));
    let about = [
        "Model: Alpha 250 and AN2 (alpha-an2-1996), from the paper's table 2 and sections 3 and 4.3 only; nothing was fitted to a result.",
        "Warm global cache: every page begins in remote memory (section 4.1). LRU. Local memory: all that the program touches, a half, a quarter.",
        "The paper's programs and inputs are not to be had. Programs of the same kinds were recorded here, on x86-64:",
    ];
    Reproduction {
        title: "subpages-1996: Reducing Network Latency Using Subpages in a Global Memory Environment".into(),
        about: about.into_iter().map(str::to_owned).chain(names).collect(),
        tables: figures::tables(experiments),
        figures: figures::figures(experiments),
        results: results::results(experiments),
        checks: results::checks(experiments),
    }
}
