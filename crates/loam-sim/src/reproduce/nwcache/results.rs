//! Ours beside each printed result.

use super::experiments::Experiments;
use super::machines::Machine::Paper;
use super::{number, rows};
use crate::multiprocessor::Prefetch::{self, Naive, Optimal};
use crate::reproduce::{Compared, Kind, Published};
use crate::workload::parallel::PARALLEL_NAMES;

/// Nanoseconds of a pcycle, from table 1.
pub(super) fn pcycle_ns() -> f64 {
    super::printed("table 1", "pcycle", "parameter")
}

/// All `result` rows.
pub(super) fn results(e: &Experiments) -> Vec<Compared> {
    let of_kind = rows().into_iter().filter(|row| row.kind == Kind::Result);
    of_kind.map(|row| compared(e, row)).collect()
}

fn compared(e: &Experiments, row: Published) -> Compared {
    let ours = ours(e, &row);
    let mut compared = Compared { published: row, ours, note: "" };
    compared.note = super::notes::note(&compared);
    compared
}

/// A table's prefetching.
pub(super) fn prefetch_of(item: &str) -> Prefetch {
    match item.contains("optimal") {
        true => Optimal,
        false => Naive,
    }
}

fn ours(e: &Experiments, row: &Published) -> (f64, f64) {
    let one = |value: f64| (value, value);
    let (item, case) = (row.item.as_str(), row.case.as_str());
    let prefetch = prefetch_of(item);
    if item.starts_with("figure 3") && case == "seven applications" {
        let gains = (0..PARALLEL_NAMES.len()).map(|program| e.gain(program, Paper, Optimal));
        return gains
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), gain| (low.min(gain), high.max(gain)));
    }
    if item.starts_with("figure 4") && case == "radix lowest, gauss highest" {
        let of = |name| e.gain(number(name), Paper, Naive);
        return (of("radix"), of("gauss"));
    }
    let (name, which) = case.split_once(' ').unwrap_or((case, ""));
    let program = number(name);
    if item.starts_with("figure") {
        return one(e.gain(program, Paper, prefetch));
    }
    if item == "table 7" {
        let prefetch = prefetch_of(which);
        return one(100.0 * e.get(program, Paper, prefetch, true).ring_share());
    }
    let outcome = e.get(program, Paper, prefetch, which == "nwcache");
    one(match row.unit.as_str() {
        "Mpcycles" => outcome.swap_outs.ns() / pcycle_ns() / 1e6,
        "Kpcycles" if item.starts_with("table 8") => outcome.cache_hits.ns() / pcycle_ns() / 1e3,
        "Kpcycles" => outcome.swap_outs.ns() / pcycle_ns() / 1e3,
        "pages" => outcome.combined(),
        unit => panic!("{item}, {case}: in {unit}?"),
    })
}
