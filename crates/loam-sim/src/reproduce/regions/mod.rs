//! regions-2010: "Getting Rid of Coherency Overhead for Memory-Hungry Applications", figures 6 to 11 on the paper's prototype, and the same question today.

mod claims;
mod experiments;
mod figures;
mod results;
mod tables;
#[cfg(test)]
mod tests;

pub use experiments::{Experiments, Extent};

use super::Reproduction;
use super::published::{self, Published, Value};
use crate::regions::config::Inputs;
use loam_core::units::Duration;

/// What the paper prints.
fn rows() -> Vec<Published> {
    published::rows(include_str!("../../../published/regions-2010.csv"))
}

/// A row that the paper prints.
fn row(item: &str, case: &str) -> Published {
    let row = rows().into_iter().find(|row| (&*row.item, &*row.case) == (item, case));
    row.unwrap_or_else(|| panic!("{item}, {case}: not printed"))
}

fn printed(item: &str, case: &str) -> f64 {
    row(item, case).value.ends().0
}

/// The prototype's sizes and times, as printed.
pub(crate) fn inputs() -> Inputs {
    let Value::Text(machine) =
        row("section IV", "nodes / mesh / sockets / cores per node / memory per node / lent per node").value
    else {
        panic!("the machine is a text")
    };
    let nodes = machine.split(" / ").next().and_then(|nodes| nodes.parse().ok()).expect("nodes come first");
    let time = |item, case| {
        let row = row(item, case);
        let ns = match row.unit.as_str() {
            "us" => 1000.0,
            "ns" => 1.0,
            unit => panic!("{case}: in {unit}?"),
        };
        Duration((row.value.ends().0 * ns).round() as u64)
    };
    Inputs {
        nodes,
        random: time("figure 6", "one hop, random"),
        stride: time("figure 6", "one hop, fixed stride"),
        hop: time("figure 6", "each further hop"),
        remote_loads: printed("section IV", "outstanding remote loads per core") as usize,
        local_loads: printed("section IV", "outstanding local loads per core") as usize,
        node_bits: printed("section III", "address bits that name a node") as u32,
    }
}

/// Local memory that is free under remote swap, in bytes (section V).
fn free_bytes() -> u64 {
    let Value::List(_, sizes) = row("section V", "remote swap client").value else {
        panic!("two sizes are printed")
    };
    sizes[1] as u64 * 1_000_000
}

/// Everything that the paper shows, from experiments that have been run.
pub fn reproduce(experiments: &Experiments) -> Reproduction {
    let mut about = vec![
        "Machine: 16 nodes in a 4x4 mesh, one remote load a core at a time; times follow from the printed latencies, and what they leave open is assumed \
         (docs/simulator-regions.md has the list). How controllers divide a load and what room they have were chosen \
         so that figures 7 and 8 come out; nothing else was fitted."
            .to_owned(),
        "The b-tree is built and searched, and each key that is searched for is found; the programs of figure 11 compute, and what they compute is checked."
            .to_owned(),
        format!(
            "Remote swap: a page takes {} us from the fault on, added up from parts; local memory is {} MB, as printed, divided by {}.",
            experiments.times.swap.0 / 1000,
            free_bytes() / 1_000_000,
            experiments.part
        ),
    ];
    if experiments.part > 1 {
        about.push(format!(
            "Quick: keys, local memory, cache and programs are 1/{} of the full ones, loads of figures 6 to 8 a tenth.",
            experiments.part
        ));
    }
    Reproduction {
        title: "regions-2010: Getting Rid of Coherency Overhead for Memory-Hungry Applications".into(),
        about,
        tables: tables::tables(experiments),
        figures: figures::figures(experiments),
        results: results::results(experiments),
        checks: claims::checks(experiments),
    }
}
