//! nwcache-1999: "NWCache: Optimizing Disk Accesses via an Optical Network/Write Cache Hybrid", its tables and figures on the paper's machine.

use super::published::{self, Published, Value};

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
