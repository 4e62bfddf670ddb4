//! Figures 3 and 4, drawn from our runs.

use super::experiments::Experiments;
use super::machines::Machine::Paper;
use super::tables::gain_printed;
use crate::multiprocessor::{Part, Prefetch};
use crate::report::{Axis, Bars, Figure, Unit};
use crate::workload::parallel::PARALLEL_NAMES;

/// Figures, each with its file's name.
pub(super) fn figures(e: &Experiments) -> Vec<(String, Figure)> {
    [(Prefetch::Optimal, 3, "optimal"), (Prefetch::Naive, 4, "naive")]
        .map(|(prefetch, number, kind)| {
            let title = format!(
                "Figure {number}: run times under {kind} prefetching, relative to the standard multiprocessor"
            );
            (format!("figure-{number}"), figure(e, prefetch, title))
        })
        .into()
}

fn figure(e: &Experiments, prefetch: Prefetch, title: String) -> Figure {
    let names = Part::ALL.iter().rev().map(|part| part.name());
    let mut bars = Bars::stacked(["standard", "NWCache"], names);
    for (program, name) in PARALLEL_NAMES.into_iter().enumerate() {
        let whole = e.get(program, Paper, prefetch, false).run.0 as f64;
        let stack = |ring| {
            let outcome = e.get(program, Paper, prefetch, ring);
            Part::ALL.iter().rev().map(|&part| outcome.part_ns(part) / whole).collect()
        };
        let printed = gain_printed(name, prefetch).map(|gain| 1.0 - gain / 100.0);
        bars = bars.group(name, vec![stack(false), stack(true)]).published(vec![None, printed]);
    }
    Figure::bars(title, Axis::new("run time", Unit::Share).include(0.0), bars)
}
