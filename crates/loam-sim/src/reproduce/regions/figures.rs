//! Figures 6 to 11, drawn from our runs, and the crossover.

use super::claims::best_printed;
use super::experiments::{Experiments, Searched};
use super::tables::LOADS;
use crate::regions::config::Division;
use crate::regions::programs::PROGRAMS;
use crate::regions::today;
use crate::report::{Axis, Bars, Figure, Scale, Series, Unit};

/// Figures, each with its file's name.
pub(super) fn figures(e: &Experiments) -> Vec<(String, Figure)> {
    let all = [
        ("figure-6", figure_6(e)),
        ("figure-7", figure_7(e)),
        ("figure-8", figure_8(e)),
        ("figure-9", figure_9(e)),
        ("figure-10", figure_10(e)),
        ("figure-11", figure_11(e)),
        ("crossover", crossover(e)),
    ];
    all.map(|(name, figure)| (name.to_owned(), figure)).into()
}

fn figure_6(e: &Experiments) -> Figure {
    let line = |of: fn(&(u64, f64, f64)) -> f64| e.hops.iter().map(|at| (at.0 as f64, of(at))).collect();
    Figure::new(
        "Figure 6: a remote load by distance",
        Axis::new("hops", Unit::Number),
        Axis::new("time of a load", Unit::Ns).include(0.0),
    )
    .series(Series::line("random", line(|at| at.1)).markers())
    .series(Series::line("fixed stride", line(|at| at.2)).markers())
    .series(Series::published("printed", 0, vec![(1.0, e.inputs.random.0 as f64)]))
    .series(Series::published("printed", 1, vec![(1.0, e.inputs.stride.0 as f64)]))
}

fn figure_7(e: &Experiments) -> Figure {
    let mut bars = Bars::plain(["1 thread", "2 threads", "4 threads"]);
    for (servers, hops) in [(1, 1), (4, 1), (4, 2), (4, 3)] {
        let name = format!("{servers} server{}, {hops} hop{}", plural(servers), plural(hops));
        let times = [1, 2, 4].map(|threads| e.client[&(Division::Rest, servers, hops, threads)].ns * LOADS);
        bars = bars.plain_group(name, times);
    }
    Figure::bars("Figure 7: 10 million loads of one client node", Axis::new("time", Unit::Ns), bars)
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn figure_8(e: &Experiments) -> Figure {
    let points = e.server[&Division::Rest].iter().map(|of| (of.clients as f64, of.ns * LOADS)).collect();
    Figure::new(
        "Figure 8: 10 million loads of a control thread while others load from the same server",
        Axis::new("other nodes, of four threads each", Unit::Number).include(0.0),
        Axis::new("time", Unit::Ns).include(0.0),
    )
    .series(Series::line("control thread", points).markers())
}

fn searches(all: &[Searched], x: fn(&Searched) -> f64, y: fn(&Searched) -> f64) -> Vec<(f64, f64)> {
    all.iter().map(|of| (x(of), y(of))).collect()
}

fn figure_9(e: &Experiments) -> Figure {
    let best = e.children.iter().min_by(|a, b| a.swap_ns().total_cmp(&b.swap_ns())).expect("it was run");
    let children = |of: &Searched| of.children as f64;
    Figure::new(
        "Figure 9: a search in a b-tree over remote swap, by children of a node",
        Axis::new("children", Unit::Number).scale(Scale::Log2),
        Axis::new("time of a search", Unit::Ns).include(0.0),
    )
    .series(Series::line("remote swap", searches(&e.children, children, Searched::swap_ns)).markers())
    .series(Series::line("remote memory", searches(&e.children, children, Searched::remote_ns)).markers())
    .series(Series::published("best, printed", 0, vec![(best_printed(), best.swap_ns())]))
    .note("The paper prints the best number of children, not its time.")
}

fn figure_10(e: &Experiments) -> Figure {
    let keys = |of: &Searched| of.keys as f64;
    Figure::new(
        "Figure 10: a search by keys",
        Axis::new("keys", Unit::Number).include(0.0),
        Axis::new("time of a search", Unit::Ns).include(0.0),
    )
    .series(Series::line("remote memory", searches(&e.keys, keys, Searched::remote_ns)).markers())
    .series(Series::line("remote swap", searches(&e.keys, keys, Searched::swap_ns)).markers())
    .series(Series::line("local memory", searches(&e.keys, keys, Searched::local_ns)).markers())
}

fn figure_11(e: &Experiments) -> Figure {
    let mut bars = Bars::plain(["local memory", "remote memory", "remote swap"]);
    for ((name, _), ran) in PROGRAMS.iter().zip(&e.programs) {
        let spent = ran.spent;
        let local = spent.compute_ns + spent.local_ns;
        let times = [spent.local_ns, spent.remote_ns, spent.swap_ns];
        bars = bars.plain_group(*name, times.map(|ns| ((ns + spent.compute_ns) / local).log10().max(0.0)));
    }
    Figure::bars(
        "Figure 11: run times as powers of ten of local memory's",
        Axis::new("log10 of run time / run time in local memory", Unit::Number),
        bars,
    )
    .note("0: as long as in local memory; 1: ten times as long; 2: a hundred times.")
}

/// For each way to load and store, the accesses from which on paging beats it, by what a page costs: a planner reads its own page time off the axis.
fn crossover(e: &Experiments) -> Figure {
    let pages: Vec<f64> = (0..=40).map(|step| 1000.0 * 10_f64.powf(f64::from(step) / 16.0)).collect();
    let mut figure = Figure::new(
        "Accesses to a page before it leaves from which on paging beats load and store",
        Axis::new("time of a page, from the fault on", Unit::Ns).scale(Scale::Log10),
        Axis::new("accesses that miss the cache, for each time the page comes", Unit::Number)
            .scale(Scale::Log10),
    );
    for of in today::load_store(e.inputs.stride) {
        let each = (of.load.0 - of.local.0) as f64;
        figure =
            figure.series(Series::line(of.name, pages.iter().map(|page| (*page, page / each)).collect()));
    }
    let marks = today::paging(e.times.swap);
    let lowest = today::load_store(e.inputs.stride)[1].clone();
    let points =
        marks.iter().filter_map(|way| Some((way.page.0 as f64, today::crossover(way.page, &lowest)?)));
    let names: Vec<&str> = marks.iter().map(|way| way.name.as_str()).collect();
    figure
        .series(Series::scatter("ways to page", points.collect()))
        .series(Series::line("a page's 64 lines", vec![(pages[0], 64.0), (pages[pages.len() - 1], 64.0)]))
        .note(format!("Above a line paging wins, below it load and store. Points, on the line of CXL 2.0, from the slowest page: {}.", names.join("; ")))
}
