//! The paper's table 2 and figures, drawn from our runs.

use super::experiments::{Experiments, Memory, Scheme, lone_fault_ns};
use super::results::{COMPILER, distances, potentials};
use super::{PAGE_BYTES, SUBPAGES, printed};
use crate::model::Model;
use crate::report::{Axis, Bars, Cell, Figure, Scale, Series, Table, Unit};

const COMPONENTS: [&str; 4] = ["exec", "interrupts", "sp_latency", "page_wait"];

fn parts(e: &Experiments, app: usize, memory: Memory, scheme: Scheme) -> Vec<f64> {
    let o = e.get(app, memory, scheme);
    [o.exec_ns + o.emulation_ns, o.interrupt_ns, o.sp_latency_ns, o.page_wait_ns].map(|ns| ns as f64).to_vec()
}

fn schemes() -> Vec<(String, Scheme)> {
    let whole = [("disk_8192".to_owned(), Scheme::Disk), ("p_8192".to_owned(), Scheme::Full)];
    whole.into_iter().chain(SUBPAGES.map(|bytes| (format!("sp_{bytes}"), Scheme::Eager(bytes)))).collect()
}

/// Tables, each with its file's name and caption.
pub(super) fn tables(e: &Experiments) -> Vec<(String, String, Table)> {
    let mut programs = Table::new([
        "program",
        "stands for",
        "references",
        "pages of 8 KiB",
        "faults, full",
        "faults, 1/2",
        "faults, 1/4",
    ]);
    for (n, app) in e.apps().iter().enumerate() {
        let faults = Memory::ALL.map(|m| Cell::from(e.get(n, m, Scheme::Full).faults));
        let mut row = vec![
            Cell::from(app.name.clone()),
            Cell::from(app.stands_for),
            Cell::from(app.trace.references()),
            Cell::from(app.trace.pages()),
        ];
        row.extend(faults);
        programs.push(row);
    }
    let mut table_2 = Table::new([
        "subpage",
        "subpage, ms",
        "printed",
        "rest of page, ms",
        "printed",
        "overlapped execution, %",
        "printed",
        "sender pipelining, %",
        "printed",
    ]);
    let ms = |ns: u64| Cell::from(format!("{:.2}", ns as f64 / 1e6));
    let theirs = |case: &str, metric, digits| {
        Cell::from(format!("{:.digits$}", printed("table 2", case, metric), digits = digits))
    };
    for &(bytes, first, rest) in &e.table_2 {
        if bytes == PAGE_BYTES {
            let mut row = vec![Cell::from("full page"), Cell::Empty, Cell::Empty, ms(rest)];
            row.push(theirs("8192 B full page", "latency", 2));
            row.extend([Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty]);
            table_2.push(row);
            continue;
        }
        let (overlapped, sender) = potentials(e, bytes);
        let case = format!("{bytes} B subpage");
        table_2.push(vec![
            Cell::from(format!("{bytes} B")),
            ms(first),
            theirs(&case, "subpage latency", 2),
            ms(rest),
            theirs(&case, "rest of page latency", 2),
            Cell::from(format!("{overlapped:.0}")),
            theirs(&case, "overlapped execution potential", 0),
            Cell::from(format!("{sender:.0}")),
            theirs(&case, "sender pipelining potential", 0),
        ]);
    }
    let mut times = Table::new([
        "program",
        "memory",
        "scheme",
        "total",
        "exec",
        "interrupts",
        "sp_latency",
        "page_wait",
        "faults",
        "less than p_8192, %",
    ]);
    for (n, app) in e.apps().iter().enumerate() {
        for memory in Memory::ALL {
            let piped = ("pipelined_1024".to_owned(), Scheme::Pipelined(1024));
            let mut all = schemes();
            all.push(piped);
            if memory == Memory::Half {
                all.push(("doubled_512".into(), Scheme::Doubled(512)));
                all.push(("beside_1024".into(), Scheme::Beside(1024)));
                all.push(("learned_1024".into(), Scheme::Learned(1024)));
            }
            for (name, scheme) in all {
                let o = e.get(n, memory, scheme);
                let gain = o.gain_over(e.get(n, memory, Scheme::Full)) * 100.0;
                let mut row = vec![Cell::from(app.name.clone()), Cell::from(memory.name()), Cell::from(name)];
                let ns = [
                    o.total_ns(),
                    o.exec_ns + o.emulation_ns,
                    o.interrupt_ns,
                    o.sp_latency_ns,
                    o.page_wait_ns,
                ];
                row.extend(ns.map(|ns| Cell::Number(ns as f64, Unit::Ns)));
                row.push(Cell::from(o.faults));
                row.push(Cell::from(format!("{gain:.1}")));
                times.push(row);
            }
        }
    }
    vec![
        ("programs".into(), "The programs".into(), programs),
        ("table-2".into(), "Table 2: page-fault latencies of eager full-page fetch".into(), table_2),
        ("runs".into(), "Every run: times, faults, and how much less than with whole pages".into(), times),
    ]
}

/// Figures, each with its file's name.
pub(super) fn figures(e: &Experiments) -> Vec<(String, Figure)> {
    let mut figures = vec![("figure-1".to_owned(), figure_1())];
    if let Some(app) = e.app(COMPILER) {
        figures.push(("figure-3".into(), figure_3(e, app)));
        figures.push(("figure-4".into(), figure_4(e, app)));
        figures.push(("figure-5".into(), figure_5(e, app)));
        figures
            .push(("figure-6".into(), clustering(e, &[app], "Figure 6: temporal clustering of page faults")));
        figures.push(("figure-8".into(), figure_8(e, app)));
    }
    for (letter, bytes) in [("a", 2048), ("b", 1024)] {
        figures.push((format!("figure-7{letter}"), figure_7(e, bytes)));
    }
    figures.push(("figure-9".into(), figure_9(e)));
    let two: Vec<usize> = ["gdb", "Atom"].into_iter().filter_map(|name| e.app(name)).collect();
    figures.push(("figure-10".into(), clustering(e, &two, "Figure 10: temporal clustering of page faults")));
    figures
}

fn figure_1() -> Figure {
    let x = Axis::new("bytes transferred", Unit::Bytes).scale(Scale::Log2);
    let mut figure =
        Figure::new("Figure 1: latency and transfer size", x, Axis::new("latency", Unit::Ns).include(0.0));
    for (name, model) in [
        ("disk", "alpha-disk-1996"),
        ("Ethernet, lightly loaded", "ethernet-10-1996"),
        ("ATM (AN2)", "alpha-an2-1996"),
    ] {
        let model = Model::load(model).expect("built in");
        let sizes = (8..=13).map(|shift| 1_u64 << shift);
        let points =
            sizes.map(|bytes| (bytes as f64, lone_fault_ns(&model, bytes, bytes, "full", &[0]) as f64));
        figure = figure.series(Series::line(name, points.collect()).markers());
    }
    figure.note(
        "The loaded Ethernet of the paper's figure is not modelled: the paper gives no figure for its load.",
    )
}

fn figure_3(e: &Experiments, app: usize) -> Figure {
    let names: Vec<String> = schemes().into_iter().map(|s| s.0).collect();
    let mut bars = Bars::stacked(names, COMPONENTS);
    for memory in Memory::ALL {
        bars = bars.group(memory.name(), schemes().into_iter().map(|s| parts(e, app, memory, s.1)).collect());
    }
    let title = format!("Figure 3: subpage performance for 3 memory sizes ({})", e.apps()[app].name);
    Figure::bars(title, Axis::new("run time", Unit::Ns), bars).size(1000, 480)
}

fn figure_4(e: &Experiments, app: usize) -> Figure {
    let mut bars = Bars::stacked([""], COMPONENTS);
    for (name, scheme) in schemes().into_iter().skip(1) {
        bars = bars.group(name, vec![parts(e, app, Memory::Half, scheme)]);
    }
    let title = format!("Figure 4: where the time goes at 1/2 memory ({})", e.apps()[app].name);
    Figure::bars(title, Axis::new("run time", Unit::Ns), bars)
}

fn figure_5(e: &Experiments, app: usize) -> Figure {
    let x = Axis::new("page faults, by what they waited", Unit::Number);
    let title = format!("Figure 5: sorted waits of the faults at 1/2 memory ({})", e.apps()[app].name);
    let mut figure = Figure::new(title, x, Axis::new("wait for data of the page", Unit::Ns).include(0.0));
    for (name, scheme) in schemes().into_iter().skip(1) {
        let mut waits = e.get(app, Memory::Half, scheme).waits_ns.clone();
        waits.sort_unstable_by(|a, b| b.cmp(a));
        let points = waits.iter().enumerate().map(|(n, &wait)| (n as f64, wait as f64)).collect();
        figure = figure.series(Series::line(name, points));
    }
    figure
}

fn clustering(e: &Experiments, apps: &[usize], title: &str) -> Figure {
    let x = Axis::new("part of the program's references", Unit::Share);
    let mut figure =
        Figure::new(title, x, Axis::new("part of its page faults so far", Unit::Share).include(0.0));
    for &app in apps {
        let outcome = e.get(app, Memory::Half, Scheme::Eager(1024));
        let (all, references) = (outcome.fault_at.len().max(1) as f64, outcome.references.max(1) as f64);
        let points = outcome.fault_at.iter().enumerate();
        let points = points.map(|(n, &at)| (at as f64 / references, (n + 1) as f64 / all));
        figure = figure.series(Series::step(e.apps()[app].name.clone(), points.collect()));
    }
    figure
        .note("1/2 memory, 1 KiB subpages. Steep: many faults at once, as when a program changes its phase.")
}

fn figure_7(e: &Experiments, bytes: u64) -> Figure {
    let x = Axis::new("distance to the next subpage touched on the page", Unit::Number);
    let title = format!("Figure 7: distances to the next subpage, {bytes} B subpages");
    let mut figure = Figure::new(title, x, Axis::new("part of the next touches", Unit::Share).include(0.0));
    for (n, app) in e.apps().iter().enumerate() {
        let mut points: Vec<(f64, f64)> =
            distances(e, n, bytes).into_iter().map(|(d, part)| (f64::from(d), part)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        figure = figure.series(Series::line(app.name.clone(), points).markers());
    }
    figure
}

fn figure_8(e: &Experiments, app: usize) -> Figure {
    let mut bars = Bars::stacked(["eager", "pipelined"], COMPONENTS);
    for bytes in SUBPAGES {
        let pair = [Scheme::Eager(bytes), Scheme::Pipelined(bytes)];
        bars = bars.group(format!("{bytes} B"), pair.map(|s| parts(e, app, Memory::Half, s)).to_vec());
    }
    let title =
        format!("Figure 8: eager full-page fetch and pipelining at 1/2 memory ({})", e.apps()[app].name);
    Figure::bars(title, Axis::new("run time", Unit::Ns), bars)
}

fn figure_9(e: &Experiments) -> Figure {
    let mut bars = Bars::plain(["eager", "pipelined"]);
    for (n, app) in e.apps().iter().enumerate() {
        let full = e.get(n, Memory::Half, Scheme::Full);
        let pair = [Scheme::Eager(1024), Scheme::Pipelined(1024)];
        bars = bars.plain_group(app.name.clone(), pair.map(|s| e.get(n, Memory::Half, s).gain_over(full)));
    }
    let y = Axis::new("less run time than with whole pages", Unit::Share);
    Figure::bars(
        format!("Figure 9: reduction in run time, 1/2 memory, 1 KiB subpages of {PAGE_BYTES} B pages"),
        y,
        bars,
    )
}
