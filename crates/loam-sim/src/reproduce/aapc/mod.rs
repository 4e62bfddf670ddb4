//! aapc-2012: "Automatic Adaptive Page-size Control for Remote Memory Paging", its figures on the same programs' references, through the
//! live borrower; and Loam's own sizes beside it.

mod claims;
mod experiments;
mod figures;
mod pool;
mod programs;
#[cfg(test)]
mod tests;

pub use experiments::{Experiments, Extent};

use super::Reproduction;
use super::published::{self, Published, Value};

/// What the paper prints.
fn rows() -> Vec<Published> {
    published::rows(include_str!("../../../published/aapc-2012.csv"))
}

/// One row that the paper prints.
fn printed(item: &str, case: &str) -> Value {
    let row = rows().into_iter().find(|row| (&*row.item, &*row.case) == (item, case));
    row.unwrap_or_else(|| panic!("{item}, {case}: not printed")).value
}

/// Basic page, start page and largest page, in KiB (section III).
fn page_sizes_kib() -> [u64; 3] {
    let Value::List(_, sizes) = printed("section III", "basic page / start page / largest page") else {
        panic!("three sizes are printed")
    };
    let sizes: Vec<u64> = sizes.into_iter().map(|size| size as u64).collect();
    sizes.try_into().expect("three sizes are printed")
}

/// The sizes that a page can have, in KiB: the basic page and its multiples (section II.C).
fn sizes_kib() -> Vec<u64> {
    let Value::List(_, multiples) = printed("section II", "sizes") else { panic!("multiples are printed") };
    multiples.into_iter().map(|multiple| multiple as u64 * page_sizes_kib()[0]).collect()
}

/// Everything that the paper shows, from experiments that have been run.
pub fn reproduce(experiments: &Experiments) -> Reproduction {
    let about = [
        "Programs: BT class A, SP class B, FT class A and Himeno M at the paper's sizes, as kernels with the loops and arrays of NPB 2.3 in C; what they \
         touch goes through the live borrower, with AAPC as Loam has it. Whole pages are fetched, nothing ahead; replacement is FIFO.",
        "Times are relative to the same program with enough memory, without setting up, in the steady state: fixed sizes in the second iteration, AAPC in the \
         last of four. Whatever takes more than 150 times as long in one iteration is stopped, and shown as > 150.",
        "Path: 2.5 GB/s (table I). What the library itself costs for a byte is from the authors' rates with STREAM (their reference [1]); \
         15 us from a fault to the first byte are assumed (docs/simulator-page-sizes.md). Nothing was fitted to a figure.",
        "A period, in which AAPC counts the pages that a part swaps in, is a step of the part's outer loop (docs/simulator-page-sizes.md says why); \
         that it is the whole part is shown beside it.",
    ];
    Reproduction {
        title: "aapc-2012: Automatic Adaptive Page-size Control for Remote Memory Paging".into(),
        about: about.into_iter().map(str::to_owned).collect(),
        tables: figures::tables(experiments),
        figures: figures::figures(experiments),
        results: Vec::new(),
        checks: claims::checks(experiments),
    }
}
