//! The paper's claims, one line each.

use super::experiments::Experiments;
use super::machines::Machine::Paper;
use super::{number, printed};
use crate::multiprocessor::Prefetch;
use crate::report::Check;
use crate::workload::parallel::PARALLEL_NAMES;

pub(super) fn checks(e: &Experiments) -> Vec<Check> {
    vec![improvement(e), swap_outs(e, Prefetch::Optimal), swap_outs(e, Prefetch::Naive)]
}

/// Section 5: "improvements are greater than 28% in all cases, except Em3d".
fn improvement(e: &Experiments) -> Check {
    let least = printed("figure 3 optimal", "all but em3d", "improvement of run time");
    let gains: Vec<(usize, f64)> = (0..PARALLEL_NAMES.len())
        .map(|program| (program, e.gain(program, Paper, Prefetch::Optimal)))
        .collect();
    let said: Vec<String> =
        gains.iter().map(|&(program, gain)| format!("{} {gain:.0}", PARALLEL_NAMES[program])).collect();
    let em3d = number("em3d");
    Check::new(
        gains.iter().all(|&(program, gain)| program == em3d || gain > least),
        format!(
            "figure 3: with optimal prefetching the ring takes more than {least}% off the run time of all but em3d ({})",
            said.join(", ")
        ),
    )
}

/// Section 5: "swap-out times are 1 to 3 orders of magnitude lower when the NWCACHE is used". The paper's own tables have ratios from 7.9 to 635, so an order
/// is rounded. A program that swaps nothing out shows nothing.
fn swap_outs(e: &Experiments, prefetch: Prefetch) -> Check {
    let pairs = PARALLEL_NAMES.iter().enumerate().map(|(program, name)| {
        let [standard, ring] = [false, true].map(|ring| e.get(program, Paper, prefetch, ring).swap_outs);
        (*name, (standard.count > 0 && ring.count > 0).then(|| standard.ns() / ring.ns()))
    });
    orders(prefetch, &pairs.collect::<Vec<_>>())
}

/// The same, of what each program's swap-outs take without the ring over what they take with it.
pub(super) fn orders(prefetch: Prefetch, ratios: &[(&str, Option<f64>)]) -> Check {
    let mut judged = 0;
    let mut pass = true;
    let mut said = Vec::new();
    for &(name, ratio) in ratios {
        let Some(ratio) = ratio else {
            said.push(format!("{name} swaps nothing out"));
            continue;
        };
        judged += 1;
        pass &= (1.0..=3.0).contains(&ratio.log10().round());
        said.push(format!("{name} {ratio:.0} times"));
    }
    let (table, kind) = match prefetch {
        Prefetch::Optimal => (3, "optimal"),
        Prefetch::Naive => (4, "naive"),
    };
    Check::new(
        pass && judged > 0,
        format!(
            "section 5, table {table}: with {kind} prefetching swap-outs take 1 to 3 orders of magnitude less with the ring, to the nearest order, in {judged} of {} programs \
             that swap out ({})",
            ratios.len(),
            said.join(", ")
        ),
    )
}
