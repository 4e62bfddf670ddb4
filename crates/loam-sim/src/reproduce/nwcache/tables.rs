//! The paper's tables, ours beside what is printed.

use super::experiments::{Experiments, Extent};
use super::machines::Machine;
use super::results::pcycle_ns;
use super::{printed, row};
use crate::multiprocessor::{Outcome, Part, Prefetch};
use crate::report::{Cell, Table, Unit};
use crate::reproduce::{Kind, Value};
use crate::workload::parallel::PARALLEL_NAMES;

const BOTH: [(Prefetch, &str); 2] = [(Prefetch::Optimal, "optimal"), (Prefetch::Naive, "naive")];

/// Tables, each with its file's name and caption.
pub(super) fn tables(e: &Experiments) -> Vec<(String, String, Table)> {
    let named = |name: &str, caption: &str, table| (name.to_owned(), caption.to_owned(), table);
    let mut tables = vec![
        named("table-1", "Table 1: what the machine was given", inputs()),
        named("table-2", "Table 2: the programs that stand in", programs(e)),
    ];
    let swap = |scale: f64| move |outcome: &Outcome| outcome.swap_outs.ns() / pcycle_ns() / scale;
    let metric = "average swap-out time";
    let pair = |item: &str, metric: &str, of: &dyn Fn(&Outcome) -> f64| beside(e, item, metric, of);
    tables.push(named(
        "table-3",
        "Table 3: mean swap-out time, Mpcycles, optimal prefetching",
        pair("table 3 optimal prefetching", metric, &swap(1e6)),
    ));
    tables.push(named(
        "table-4",
        "Table 4: mean swap-out time, Kpcycles, naive prefetching",
        pair("table 4 naive prefetching", metric, &swap(1e3)),
    ));
    let metric = "swap-outs combined per disk write";
    for (number, kind) in [(5, "optimal"), (6, "naive")] {
        let table = pair(&format!("table {number} {kind} prefetching"), metric, &Outcome::combined);
        tables.push(named(
            &format!("table-{number}"),
            &format!("Table {number}: swap-outs in a disk write, {kind} prefetching"),
            table,
        ));
    }
    tables.push(named("table-7", "Table 7: page reads that the ring served, %", ring_hits(e)));
    let hit = |outcome: &Outcome| outcome.cache_hits.ns() / pcycle_ns() / 1e3;
    tables.push(named(
        "table-8",
        "Table 8: page fault latency where the disk's cache has the page, Kpcycles, naive prefetching",
        pair("table 8 naive prefetching", "page fault latency on a disk cache hit", &hit),
    ));
    tables.push(named("gains", "Figures 3 and 4: run times, and how much less with the ring", gains(e)));
    tables.push(named("runs", "Every run", runs(e)));
    if e.extent == Extent::All {
        let off = "% off the run time with the ring";
        tables.push(named(
            "assumed",
            &format!("What else could be assumed: {off}"),
            gains_on(e, &Machine::ASSUMED),
        ));
        tables.push(named("today", &format!("Loam's ring today: {off}"), gains_on(e, &Machine::TODAY)));
        tables.push(named("today-times", "Loam's ring today: run times", times_on(e, &Machine::TODAY)));
        tables.push(named(
            "nodes",
            &format!("More nodes, with the same memory and ring in total: {off}"),
            gains_on(e, &Machine::LARGER),
        ));
        tables.push(named("nodes-times", "More nodes: run times", times_on(e, &Machine::LARGER)));
    }
    tables
}

fn inputs() -> Table {
    let mut table = Table::new(["parameter", "value", "unit"]);
    for row in super::rows().into_iter().filter(|row| row.kind == Kind::Input && row.item != "table 2") {
        table.push(vec![Cell::from(row.case), Cell::from(row.value.to_string()), Cell::from(row.unit)]);
    }
    table
}

fn programs(e: &Experiments) -> Table {
    let mut table = Table::new(["program", "input", "data, MB", "printed", "checked"]);
    let rows = super::rows();
    for (name, (checked, bytes)) in PARALLEL_NAMES.into_iter().zip(&e.programs) {
        let row = rows.iter().find(|row| row.item == "table 2" && row.case == name).expect("it is printed");
        table.push(vec![
            Cell::from(name),
            Cell::from(row.metric.trim_start_matches("input: ")),
            Cell::from(format!("{:.2}", *bytes as f64 / 1e6)),
            Cell::from(row.value.to_string()),
            Cell::from(checked.join("; ")),
        ]);
    }
    table
}

fn digits(value: f64) -> Cell {
    let text = match value.abs() {
        of if of >= 100.0 => format!("{value:.0}"),
        of if of >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    Cell::from(text)
}

/// Standard and NWCache, ours and printed, and how they relate.
fn beside(e: &Experiments, item: &str, metric: &str, of: &dyn Fn(&Outcome) -> f64) -> Table {
    let prefetch = super::results::prefetch_of(item);
    let mut table = Table::new([
        "program",
        "standard",
        "printed",
        "ratio",
        "NWCache",
        "printed",
        "ratio",
        "standard/NWCache",
        "printed",
    ]);
    for (program, name) in PARALLEL_NAMES.into_iter().enumerate() {
        let [ours, theirs] = [
            [false, true].map(|ring| of(e.get(program, Machine::Paper, prefetch, ring))),
            ["standard", "nwcache"].map(|machine| printed(item, &format!("{name} {machine}"), metric)),
        ];
        let mut cells = vec![Cell::from(name)];
        for at in 0..2 {
            cells.extend([ours[at], theirs[at], ours[at] / theirs[at]].map(digits));
        }
        cells.extend([ours[0] / ours[1], theirs[0] / theirs[1]].map(digits));
        table.push(cells);
    }
    table
}

fn ring_hits(e: &Experiments) -> Table {
    let mut table = Table::new(["program", "naive", "printed", "optimal", "printed"]);
    for (program, name) in PARALLEL_NAMES.into_iter().enumerate() {
        let mut cells = vec![Cell::from(name)];
        for (prefetch, kind) in [BOTH[1], BOTH[0]] {
            let share = e.get(program, Machine::Paper, prefetch, true).ring_share();
            let metric = "page read hit rate in the ring";
            cells.extend([100.0 * share, printed("table 7", &format!("{name} {kind}"), metric)].map(digits));
        }
        table.push(cells);
    }
    table
}

fn gains(e: &Experiments) -> Table {
    let mut header = vec!["program".to_owned()];
    for (_, kind) in BOTH {
        let of = |what: &str| format!("{what}, {kind}");
        header.extend([of("standard"), of("NWCache"), format!("less, {kind}, %"), "printed".into()]);
    }
    let mut table = Table::new(header);
    for (program, name) in PARALLEL_NAMES.into_iter().enumerate() {
        let mut cells = vec![Cell::from(name)];
        for (prefetch, _) in BOTH {
            let of =
                |ring| Cell::Number(e.get(program, Machine::Paper, prefetch, ring).run.0 as f64, Unit::Ns);
            cells.extend([of(false), of(true), digits(e.gain(program, Machine::Paper, prefetch))]);
            cells.push(gain_printed(name, prefetch).map_or(Cell::Empty, digits));
        }
        table.push(cells);
    }
    let mean = |prefetch| {
        let gains = (0..PARALLEL_NAMES.len()).map(|program| e.gain(program, Machine::Paper, prefetch));
        digits(gains.sum::<f64>() / PARALLEL_NAMES.len() as f64)
    };
    let Value::Spread(_, printed_mean) =
        row("figure 3 optimal", "seven applications", "improvement of run time").value
    else {
        panic!("a mean is printed")
    };
    let [optimal, naive] = [Prefetch::Optimal, Prefetch::Naive].map(mean);
    let mut cells = vec![Cell::from("mean"), Cell::Empty, Cell::Empty, optimal, digits(printed_mean)];
    cells.extend([Cell::Empty, Cell::Empty, naive, Cell::Empty]);
    table.push(cells);
    table
}

/// The gains that the paper's text has; its figures have no numbers.
pub(super) fn gain_printed(name: &str, prefetch: Prefetch) -> Option<f64> {
    let metric = "improvement of run time";
    match (prefetch, name) {
        (Prefetch::Optimal, "mg") => Some(printed("figure 3 optimal", "mg", metric)),
        (Prefetch::Optimal, name) => {
            let Value::Spread(ends, _) = row("figure 3 optimal", "seven applications", metric).value else {
                panic!("both ends are named")
            };
            ends.iter().find(|(_, of)| of == name).map(|(gain, _)| *gain)
        }
        (Prefetch::Naive, "fft") => Some(printed("figure 4 naive", "fft", metric)),
        (Prefetch::Naive, name) => {
            let (radix, gauss) = row("figure 4 naive", "radix lowest, gauss highest", metric).value.ends();
            [("radix", radix), ("gauss", gauss)].iter().find(|(of, _)| *of == name).map(|(_, gain)| *gain)
        }
    }
}

fn runs(e: &Experiments) -> Table {
    let mut header = vec!["program", "assumed", "prefetching", "machine", "run"];
    header.extend(Part::ALL.map(Part::name));
    header.extend([
        "page reads",
        "cache hits, %",
        "a cache hit takes",
        "read ahead",
        "one takes",
        "ring hits, %",
        "a ring hit takes",
        "swap-outs",
        "a swap-out takes",
        "clean",
        "NACKs",
        "taken back",
        "disk writes",
        "disk reads",
        "waited for network",
        "for memory buses",
        "for I/O buses",
    ]);
    let mut table = Table::new(header);
    for (&(program, machine, prefetch, ring), o) in e.all() {
        let time = |ns: f64| Cell::Number(ns, Unit::Ns);
        let kind = BOTH.iter().find(|(of, _)| *of == prefetch).map_or("", |(_, kind)| kind);
        let ring = if ring { "NWCache" } else { "standard" };
        let mut cells = vec![Cell::from(PARALLEL_NAMES[program]), Cell::from(machine.name())];
        cells.extend([kind, ring].map(Cell::from));
        cells.push(time(o.run.0 as f64));
        cells.extend(Part::ALL.map(|part| time(o.part_ns(part))));
        cells.extend([
            Cell::from(o.reads.count),
            digits(100.0 * o.cache_share()),
            time(o.cache_hits.ns()),
            Cell::from(o.read_ahead.count),
            time(o.read_ahead.ns()),
            digits(100.0 * o.ring_share()),
            time(o.ring_hits.ns()),
            Cell::from(o.swap_outs.count),
            time(o.swap_outs.ns()),
            Cell::from(o.clean),
            Cell::from(o.refused),
            Cell::from(o.reclaimed),
            Cell::from(o.disk_writes),
            Cell::from(o.disk_reads.count),
        ]);
        cells.extend(o.waited.map(|waited| time(waited.0 as f64)));
        table.push(cells);
    }
    table
}

/// % off the run time with a ring, on each of these machines.
fn gains_on(e: &Experiments, machines: &[Machine]) -> Table {
    let mut header = vec!["prefetching".to_owned(), "machine".to_owned()];
    header.extend(PARALLEL_NAMES.map(str::to_owned));
    let mut table = Table::new(header);
    for (prefetch, kind) in BOTH {
        for &machine in std::iter::once(&Machine::Paper).chain(machines) {
            let mut cells = vec![Cell::from(kind), Cell::from(machine.name())];
            cells.extend((0..PARALLEL_NAMES.len()).map(|program| digits(e.gain(program, machine, prefetch))));
            table.push(cells);
        }
    }
    table
}

/// Run times on each of these machines.
fn times_on(e: &Experiments, machines: &[Machine]) -> Table {
    let mut header = ["prefetching", "machine", "ring"].map(str::to_owned).to_vec();
    header.extend(PARALLEL_NAMES.map(str::to_owned));
    let mut table = Table::new(header);
    for (prefetch, kind) in BOTH {
        for &machine in machines {
            for (ring, with) in [(false, "no"), (true, "yes")] {
                let mut cells = vec![Cell::from(kind), Cell::from(machine.name()), Cell::from(with)];
                let time =
                    |program| Cell::Number(e.get(program, machine, prefetch, ring).run.0 as f64, Unit::Ns);
                cells.extend((0..PARALLEL_NAMES.len()).map(time));
                table.push(cells);
            }
        }
    }
    table
}
