//! Ours beside each printed result.

use super::experiments::{CHANGES_S, Experiments, Job};
use super::rows;
use super::scenes::{Policy, SKEWS};
use crate::reproduce::{Compared, Kind, Published};

const FAULT_PATH: &str = "the way of a fault through the system around GMS is in no table";
const ENCODING: &str = "messages are ours: see docs/simulator.md";
const OWN_PROGRAM: &str = "a program of the same kind, not the paper's";
const PROTOCOL: &str = "only what tables 1 and 2 charge to the node; the network software's share of its processor is in no table";

/// All `result` rows that were run.
pub(super) fn results(e: &Experiments) -> Vec<Compared> {
    let of_kind = rows().into_iter().filter(|row| row.kind == Kind::Result);
    let compared = |row: Published| {
        let (ours, note) = ours(e, &row)?;
        Some(Compared { published: row, ours, note })
    };
    of_kind.filter_map(compared).collect()
}

fn ours(e: &Experiments, row: &Published) -> Option<((f64, f64), &'static str)> {
    let one = |value: f64| (value, value);
    let m = &e.micro;
    let column =
        |names: &[&str], name: &str| names.iter().position(|of| *of == name).expect("a printed case");
    let (item, case, metric) = (row.item.as_str(), row.case.as_str(), row.metric.as_str());
    if item.starts_with("figure") && !e.has_figures() {
        return None;
    }
    Some(match (item, case, metric) {
        ("table 1 getpage", case, "total") => {
            let at = column(&["non-shared miss", "non-shared hit", "shared miss", "shared hit"], case);
            (one(m.getpage_us[at]), "")
        }
        ("table 2 putpage", case, "sender latency") => {
            (one(m.putpage_us[column(&["non-shared", "shared"], case)]), "")
        }
        ("table 3 non-shared", case, "access time with GMS") => {
            (one(m.non_shared_us[column(&["sequential", "random"], case)][0] / 1e3), FAULT_PATH)
        }
        ("table 4 shared", case, metric) => {
            let at = column(&["GMS single", "GMS duplicate"], metric);
            (one(m.shared_us[column(&["sequential", "random"], case)][at] / 1e3), FAULT_PATH)
        }
        (table_5, case, metric) if table_5.starts_with("table 5") => {
            let at = column(&["initiator request", "gather summary", "distribute weights"], case);
            let cost = e.epochs.last().expect("epochs were run");
            if metric == "CPU" {
                (one(cost.cpu_us[at]), "at n = 100; a small message costs 58 us, as in tables 1 and 2")
            } else {
                (one(cost.bytes_per_s[at]), ENCODING)
            }
        }
        ("figure 6", ..) => {
            let speedups = (0..e.programs().len()).map(|n| e.speedup_of(n, Job::Ample(n, 200)));
            let ends = speedups.fold((f64::INFINITY, 0.0_f64), |(low, high), s| (low.min(s), high.max(s)));
            (ends, OWN_PROGRAM)
        }
        ("figure 8", _, "speedup over no GMS") => (one(e.speedup(Job::Changing(1))), OWN_PROGRAM),
        ("figure 8", ..) => {
            let still = e.speedup(Job::Changing(0));
            let slow = CHANGES_S.into_iter().filter(|&s| s >= 20);
            let worst = slow.map(|s| e.speedup(Job::Changing(s))).fold(f64::INFINITY, f64::min);
            (one(100.0 * (1.0 - worst / still)), OWN_PROGRAM)
        }
        ("figure 10", _, _) if case.ends_with("worst") => {
            let chance = Policy::ALL.into_iter().filter(|policy| *policy != Policy::GMS);
            let all = chance.flat_map(|policy| (0..SKEWS.len()).map(move |skew| (policy, skew)));
            (one(all.map(|(policy, skew)| e.slowdown(policy, skew)).fold(0.0, f64::max)), OWN_PROGRAM)
        }
        ("figure 10", ..) => (one(e.slowdown(Policy::chance(20), 1)), OWN_PROGRAM),
        ("figure 12-13", _, metric) => {
            let outcome = e.get(Job::Serving(7));
            let (seconds, service_us) = (outcome.span.0 as f64 / 1e9, outcome.service.0 as f64 / 1e3);
            if metric.starts_with("page transfers") {
                (one(outcome.transfers as f64 / seconds), "averaged over the whole of the programs' runs")
            } else if case.starts_with("per operation") {
                (one(service_us / outcome.transfers.max(1) as f64), PROTOCOL)
            } else {
                (one(service_us / 1e4 / seconds), PROTOCOL)
            }
        }
        _ => return None,
    })
}
