//! What the figures are drawn from, and what the paper does not have: other divisions of a load's time, and today's ways to remote memory.

use super::claims::controllers;
use super::experiments::{Experiments, Searched};
use crate::regions::config::Division;
use crate::regions::programs::PROGRAMS;
use crate::regions::today;
use crate::report::{Cell, Table, Unit};

type Named = (String, String, Table);

pub(super) fn tables(e: &Experiments) -> Vec<Named> {
    let named = |name: &str, caption: &str, table| (name.to_owned(), caption.to_owned(), table);
    vec![
        named("figure-6", "Figure 6: a load by distance", distance(e)),
        named(
            "figure-7",
            "Figure 7: one client node; time for 10 million loads, shared by its threads",
            client(e),
        ),
        named(
            "figure-8",
            "Figure 8: a control thread beside nodes of four threads on the same server",
            server(e),
        ),
        named(
            "assumed",
            "What else could be assumed: figure 7's and 8's claims in their order (two threads halve; four do not; four servers do not help; farther is \
            slightly faster; three nodes do not slow; more do)",
            assumed(e),
        ),
        named("figure-9", "Figure 9: a search by children of a node", searched(&e.children)),
        named("figure-10", "Figure 10: a search by keys", searched(&e.keys)),
        named(
            "figure-11",
            "Figure 11: programs, and equations 1 and 2 (waiting for memory alone)",
            programs(e),
        ),
        named("checked", "What was checked of the programs' results", checked(e)),
        named("load-store", "Today: loads and stores to another machine's memory", load_store(e)),
        named("paging", "Today: a page on a fault", paging(e)),
        named(
            "crossover",
            "Accesses (cache lines) to a page before it leaves from which on paging beats load and store; what runs of it found in brackets; a page has 64 lines",
            crossover(e),
        ),
    ]
}

fn ns(value: f64) -> Cell {
    Cell::Number(value, Unit::Ns)
}

fn distance(e: &Experiments) -> Table {
    let mut table = Table::new(["hops", "random", "fixed stride"]);
    for &(hops, random, stride) in &e.hops {
        table.push(vec![hops.into(), ns(random), ns(stride)]);
    }
    table
}

/// Loads of the paper's benchmark: times are given for as many.
pub(super) const LOADS: f64 = 1e7;

fn client(e: &Experiments) -> Table {
    let mut table =
        Table::new(["servers", "hops", "threads", "time", "for each load", "of one thread's", "refused"]);
    for (&(division, servers, hops, threads), bar) in &e.client {
        if division == Division::Rest {
            let one = e.client[&(division, servers, hops, 1)].ns;
            table.push(vec![
                (servers as u64).into(),
                (hops as u64).into(),
                (threads as u64).into(),
                ns(bar.ns * LOADS),
                ns(bar.ns),
                Cell::Number(bar.ns / one, Unit::Share),
                Cell::Number(bar.refused, Unit::Share),
            ]);
        }
    }
    table
}

fn server(e: &Experiments) -> Table {
    let mut table = Table::new([
        "nodes",
        "threads",
        "control thread, 10 M loads",
        "a load",
        "server busy",
        "loads a second",
    ]);
    for of in &e.server[&Division::Rest] {
        table.push(vec![
            (of.clients as u64).into(),
            ((of.clients * super::experiments::CLIENT_THREADS) as u64).into(),
            ns(of.ns * LOADS),
            ns(of.ns),
            Cell::Number(of.busy, Unit::Share),
            Cell::Number(of.rate * 1e6, Unit::Number),
        ]);
    }
    table
}

fn assumed(e: &Experiments) -> Table {
    let mut table = Table::new([
        "assumed",
        "client pass",
        "server pass",
        "2 / 1",
        "4 / 2",
        "4 servers",
        "farther",
        "3 nodes",
        "more",
        "4 threads, 1, 2, 3 hops",
        "control, 0, 3, all",
    ]);
    for division in Division::ALL {
        let config = crate::regions::config::Config::of(&e.inputs, division);
        let mut row = vec![
            Cell::from(division.name()),
            ns(config.client_pass.0 as f64),
            ns(config.server_pass.0 as f64),
        ];
        row.extend(controllers(e, division).map(|(pass, _)| Cell::from(if pass { "holds" } else { "no" })));
        let far = [1, 2, 3].map(|hops| format!("{:.0}", e.client[&(division, 4, hops, 4)].ns));
        row.push(format!("{} ns", far.join(", ")).into());
        let series = &e.server[&division];
        let control = [0, 3, series.len() - 1].map(|n| format!("{:.0}", series[n].ns));
        row.push(format!("{} ns", control.join(", ")).into());
        table.push(row);
    }
    table
}

fn searched(all: &[Searched]) -> Table {
    let mut table = Table::new([
        "children",
        "keys",
        "tree",
        "nodes visited",
        "keys compared",
        "local",
        "remote memory",
        "remote swap",
        "pages a search",
    ]);
    for of in all {
        table.push(vec![
            (of.children as u64).into(),
            of.keys.into(),
            Cell::Number(of.bytes as f64, Unit::Bytes),
            Cell::from(format!("{:.2}", of.nodes)),
            Cell::from(format!("{:.1}", of.probes)),
            ns(of.local_ns()),
            ns(of.remote_ns()),
            ns(of.swap_ns()),
            Cell::from(format!("{:.2}", of.spent.faults as f64 / of.searches as f64)),
        ]);
    }
    table
}

fn programs(e: &Experiments) -> Table {
    let mut table = Table::new([
        "program",
        "for",
        "data",
        "computing",
        "local",
        "remote memory",
        "remote swap",
        "swap / remote",
        "A_total",
        "A_page",
        "waits, remote",
        "equation 2",
        "waits, swap",
        "equation 1",
    ]);
    for ((name, stands_for), ran) in PROGRAMS.iter().zip(&e.programs) {
        let spent = ran.spent;
        let whole = |waits: f64| waits + spent.compute_ns;
        table.push(vec![
            Cell::from(*name),
            Cell::from(*stands_for),
            Cell::Number(ran.bytes as f64, Unit::Bytes),
            ns(spent.compute_ns),
            ns(whole(spent.local_ns)),
            ns(whole(spent.remote_ns)),
            ns(whole(spent.swap_ns)),
            Cell::Number(whole(spent.swap_ns) / whole(spent.remote_ns), Unit::Times),
            spent.accesses.into(),
            if spent.faults == 0 {
                Cell::from("no faults")
            } else {
                Cell::from(format!("{:.1}", spent.accesses_per_page()))
            },
            ns(spent.remote_ns),
            ns(spent.equation_2(&e.times)),
            ns(spent.swap_ns),
            ns(spent.equation_1(&e.times)),
        ]);
    }
    table
}

fn checked(e: &Experiments) -> Table {
    let mut table = Table::new(["program", "checked"]);
    for ((name, _), ran) in PROGRAMS.iter().zip(&e.programs) {
        table.push(vec![Cell::from(*name), Cell::from(ran.checked.clone())]);
    }
    table
}

fn load_store(e: &Experiments) -> Table {
    let mut table = Table::new(["way", "load", "local load", "source"]);
    for of in today::load_store(e.inputs.stride) {
        table.push(vec![of.name.into(), ns(of.load.0 as f64), ns(of.local.0 as f64), of.source.into()]);
    }
    table
}

fn paging(e: &Experiments) -> Table {
    let mut table = Table::new(["way", "page", "source"]);
    for of in today::paging(e.times.swap) {
        table.push(vec![of.name.into(), ns(of.page.0 as f64), of.source.into()]);
    }
    table
}

/// More accesses to a page are not tried in runs.
const LINES_MAX: u64 = 1000;

fn crossover(e: &Experiments) -> Table {
    let ways = today::paging(e.times.swap);
    let names = ways.iter().map(|way| way.name.clone());
    let mut table = Table::new(["load and store".to_owned()].into_iter().chain(names));
    for of in today::load_store(e.inputs.stride) {
        let mut row = vec![Cell::from(of.name)];
        for way in &ways {
            let Some(at) = today::crossover(way.page, &of) else {
                row.push("never".into());
                continue;
            };
            let run = today::crossover_run(way.page, &of, LINES_MAX);
            row.push(match run {
                Some(run) => format!("{at:.1} ({run})").into(),
                None => format!("{at:.0}").into(),
            });
        }
        table.push(row);
    }
    table
}
