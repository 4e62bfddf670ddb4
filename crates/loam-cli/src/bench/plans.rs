//! How soon the first touched byte comes, by page size and fetch plan (subpages-1996, section 4: sp_latency): the same random reading in
//! turns, each read followed by a pause in which the rest of its page can come.

use super::{median, real};
use crate::failure::Failure;
use crate::text::table;
use serde::Serialize;
use std::path::Path;

/// Turns. The median of each figure counts.
const TURNS: usize = 3;
/// Between two reads. A page of 1 MiB comes, and another leaves, within it.
const PAUSE_US: u64 = 4_000;
/// What is compared with the first.
const WAYS: [(&str, &str); 7] = [
    ("4K", "eager"),
    ("64K", "eager"),
    ("64K", "pipelined"),
    ("64K", "full"),
    ("1M", "eager"),
    ("1M", "pipelined"),
    ("1M", "full"),
];

/// One page size with one plan.
#[derive(Debug, Serialize)]
struct Way {
    page: &'static str,
    fetch_plan: &'static str,
    /// Medians, one a turn.
    turns_p50_us: Vec<f64>,
    p50_us: f64,
    /// Over the median of a page of 4 KiB.
    ratio: f64,
    reads: usize,
    received_bytes: u64,
}

/// What was found. Keys are documented in `docs/summary.md`.
#[derive(Debug, Serialize)]
pub(super) struct Plans {
    kernel: String,
    cores: usize,
    notes: Vec<String>,
    pause_us: u64,
    first_touch: Vec<Way>,
}

/// Measures every way, in turns.
pub(super) fn measure(
    executable: &Path,
    mib: u64,
    seconds: u64,
    cores: usize,
    notes: Vec<String>,
) -> Result<Plans, Failure> {
    let way = |&(page, fetch_plan)| Way {
        page,
        fetch_plan,
        turns_p50_us: Vec::new(),
        p50_us: 0.0,
        ratio: 0.0,
        reads: 0,
        received_bytes: 0,
    };
    let mut first_touch: Vec<Way> = WAYS.iter().map(way).collect();
    for _ in 0..TURNS {
        for way in &mut first_touch {
            let run = real::paused(executable, mib, seconds, way.page, way.fetch_plan, PAUSE_US)?;
            way.turns_p50_us.push(run.figures.remote.p50_us);
            way.reads += run.figures.remote.samples;
            way.received_bytes += run.summary.bytes.received;
        }
    }
    for way in &mut first_touch {
        way.p50_us = median(&way.turns_p50_us);
    }
    let base = first_touch[0].p50_us;
    assert!(base > 0.0, "a fault takes time");
    for way in &mut first_touch {
        way.ratio = way.p50_us / base;
    }
    let kernel = crate::machine::kernel();
    Ok(Plans { kernel, cores, notes, pause_us: PAUSE_US, first_touch })
}

impl Plans {
    /// What a person reads.
    pub(super) fn table(&self) -> String {
        let head = ["page", "fetch plan", "first touched byte, p50", "over 4K", "KiB a read", "all turns"];
        let mut rows = vec![head.map(String::from).to_vec()];
        for way in &self.first_touch {
            let turns: Vec<String> = way.turns_p50_us.iter().map(|us| format!("{us:.1}")).collect();
            let kib = way.received_bytes as f64 / 1024.0 / way.reads.max(1) as f64;
            rows.push(vec![
                way.page.to_owned(),
                way.fetch_plan.to_owned(),
                format!("{:.1} us", way.p50_us),
                format!("{:.2}", way.ratio),
                format!("{kib:.0}"),
                turns.join(" "),
            ]);
        }
        let mut out = table(&rows);
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_compared_with_a_small_page_and_have_plans_that_exist() {
        assert_eq!(WAYS[0].0, "4K");
        assert!(WAYS.iter().all(|(_, plan)| loam_core::borrower::FETCH_PLANS.contains(plan)));
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
