//! The paper's tables and figures, drawn from our runs.

use super::experiments::{CHANGES_S, CLIENTS, Experiments, IDLE_MB, Job, MIX, NODES};
use super::scenes::{Policy, SKEWS};
use super::{printed, rows};
use crate::report::{Axis, Bars, Cell, Figure, Series, Table, Unit};

/// Tables, each with its file's name and caption.
pub(super) fn tables(e: &Experiments) -> Vec<(String, String, Table)> {
    let mut tables = vec![
        ("tables-1-2".into(), "Tables 1 and 2: getpage and putpage".into(), operations(e)),
        ("tables-3-4".into(), "Tables 3 and 4: average access times".into(), accesses(e)),
        ("table-5".into(), "Table 5: epochs of 2 s".into(), epochs(e)),
    ];
    if e.has_figures() {
        tables.push(("runs".into(), "Every run".into(), runs(e)));
    }
    tables
}

fn operations(e: &Experiments) -> Table {
    let mut table = Table::new(["operation", "case", "ours, us", "printed, us"]);
    let mut row = |operation: &str, case: &str, ours: f64, theirs: f64| {
        let us = |value: f64| Cell::from(format!("{value:.1}"));
        table.push(vec![Cell::from(operation), Cell::from(case), us(ours), us(theirs)]);
    };
    let cases = ["non-shared miss", "non-shared hit", "shared miss", "shared hit"];
    for (at, case) in cases.into_iter().enumerate() {
        row("getpage", case, e.micro.getpage_us[at], printed("table 1 getpage", case, "total"));
    }
    for (at, case) in ["non-shared", "shared"].into_iter().enumerate() {
        let theirs = printed("table 2 putpage", case, "sender latency");
        row("putpage, sender latency", case, e.micro.putpage_us[at], theirs);
    }
    table
}

fn accesses(e: &Experiments) -> Table {
    let mut table = Table::new(["pages", "access", "from", "ours, ms", "printed, ms"]);
    let mut row = |item: &str, case: &str, metric: &str, ours_us: f64| {
        let ms = |value: f64| Cell::from(format!("{value:.2}"));
        let pages = if item.starts_with("table 3") { "non-shared" } else { "shared" };
        let row = vec![Cell::from(pages), Cell::from(case), Cell::from(metric)];
        table.push(row.into_iter().chain([ms(ours_us / 1e3), ms(printed(item, case, metric))]).collect());
    };
    for (at, case) in ["sequential", "random"].into_iter().enumerate() {
        let [with, without] = e.micro.non_shared_us[at];
        row("table 3 non-shared", case, "access time with GMS", with);
        row("table 3 non-shared", case, "access time without GMS", without);
        let metrics = ["GMS single", "GMS duplicate", "NFS miss", "NFS hit"];
        for (metric, ours) in metrics.into_iter().zip(e.micro.shared_us[at]) {
            row("table 4 shared", case, metric, ours);
        }
    }
    table
}

fn epochs(e: &Experiments) -> Table {
    let mut table = Table::new(["nodes", "operation", "CPU, us", "printed", "bytes/s", "printed"]);
    let cases = ["initiator request", "gather summary", "distribute weights"];
    for cost in &e.epochs {
        for (at, case) in cases.into_iter().enumerate() {
            let theirs = |metric: &str| {
                let row = rows().into_iter().find(|row| row.case == case && row.metric == metric);
                let value = row.expect("a printed row").value.of_nodes(f64::from(cost.nodes));
                Cell::from(format!("{value:.0}"))
            };
            let ours = |value: f64| Cell::from(format!("{value:.0}"));
            table.push(vec![
                Cell::from(u64::from(cost.nodes)),
                Cell::from(case),
                ours(cost.cpu_us[at]),
                theirs("CPU"),
                ours(cost.bytes_per_s[at]),
                theirs("network"),
            ]);
        }
        let all = Cell::from(format!("{:.0}", cost.all_bytes_per_s));
        let nodes = Cell::from(u64::from(cost.nodes));
        table.push(vec![
            nodes,
            Cell::from("all, with the check of the POD"),
            Cell::Empty,
            Cell::Empty,
            all,
            Cell::Empty,
        ]);
    }
    table
}

fn runs(e: &Experiments) -> Table {
    let header =
        ["figure", "run", "time, s", "speedup", "faults", "from global", "from disk", "puts", "network, MB"];
    let mut table = Table::new(header);
    let oo7 = e.number("oo7");
    let mut row = |figure: &str, name: String, program: usize, job: Job| {
        let outcome = e.get(job);
        let sum = |of: fn(&crate::cluster::NodeReport) -> u64| outcome.programs.iter().map(of).sum::<u64>();
        table.push(vec![
            Cell::from(figure),
            Cell::from(name),
            Cell::from(format!("{:.1}", outcome.seconds())),
            Cell::from(format!("{:.2}", e.speedup_of(program, job))),
            Cell::from(sum(|report| report.faults)),
            Cell::from(sum(|report| report.stats.global + report.stats.duplicate)),
            Cell::from(sum(|report| report.stats.disk)),
            Cell::from(sum(|report| report.stats.puts)),
            Cell::from(outcome.bytes >> 20),
        ]);
    };
    for (n, of) in e.programs().iter().enumerate() {
        row("6", format!("{}, without GMS", of.name), n, Job::Native(n));
        for mb in IDLE_MB {
            row("6", format!("{}, {mb} MB idle", of.name), n, Job::Ample(n, mb));
        }
    }
    for seconds in CHANGES_S {
        row("8", change(seconds), oo7, Job::Changing(seconds));
    }
    for (skew, name) in skews() {
        for policy in Policy::ALL {
            row("9", format!("{name}, {}", policy.name()), oo7, Job::Distributed(policy, skew));
            row("10, 11", format!("{name}, {}", policy.name()), oo7, Job::Interfering(policy, skew));
        }
    }
    for clients in CLIENTS {
        row("12, 13", format!("{clients} clients"), oo7, Job::Serving(clients));
    }
    table
}

fn change(seconds: u32) -> String {
    if seconds == 0 { "no changes".into() } else { format!("a change every {seconds} s") }
}

fn skews() -> impl Iterator<Item = (usize, String)> {
    SKEWS.into_iter().enumerate().map(|(n, (nodes, _))| (n, format!("{}%", f64::from(nodes) / 8.0 * 100.0)))
}

/// Figures, each with its file's name.
pub(super) fn figures(e: &Experiments) -> Vec<(String, Figure)> {
    if !e.has_figures() {
        return Vec::new();
    }
    let named = |n: u32, figure| (format!("figure-{n}"), figure);
    vec![
        named(6, figure_6(e)),
        named(7, figure_7(e)),
        named(8, figure_8(e)),
        named(
            9,
            policies("Figure 9: speedup of OO7 by where idle memory is", "speedup", Unit::Times, |p, s| {
                e.speedup(Job::Distributed(p, s))
            }),
        ),
        named(
            10,
            policies("Figure 10: slowdown of busy nodes' programs", "slowdown", Unit::Times, |p, s| {
                e.slowdown(p, s)
            }),
        ),
        named(11, policies("Figure 11: network traffic", "bytes", Unit::Bytes, |p, s| e.traffic(p, s))),
        named(12, figure_12(e)),
        named(13, figure_13(e)),
    ]
}

fn figure_6(e: &Experiments) -> Figure {
    let x = Axis::new("idle memory, MB", Unit::Number);
    let y = Axis::new("speedup over no GMS", Unit::Times).include(0.0);
    let mut figure = Figure::new("Figure 6: speedup with GMS", x, y);
    for (n, of) in e.programs().iter().enumerate() {
        let points = IDLE_MB.map(|mb| (f64::from(mb), e.speedup_of(n, Job::Ample(n, mb))));
        figure = figure.series(Series::line(of.name, points.to_vec()).markers());
    }
    figure.note("The paper: 1.5 to 3.5 beyond about 200 MB, about 1 with none")
}

fn figure_7(e: &Experiments) -> Figure {
    let x = Axis::new("nodes", Unit::Number);
    let y = Axis::new("speedup over no GMS", Unit::Times).include(0.0);
    let mut figure = Figure::new("Figure 7: speedup as the number of nodes grows, two fifths idle", x, y);
    for (n, name) in MIX.into_iter().enumerate() {
        let points = NODES.map(|nodes| (f64::from(nodes), e.speedups_of_mix(nodes)[n]));
        figure = figure.series(Series::line(name, points.to_vec()).markers());
    }
    figure
}

fn figure_8(e: &Experiments) -> Figure {
    let x = Axis::new("seconds between changes", Unit::Number);
    let y = Axis::new("speedup over no GMS", Unit::Times).include(0.0);
    let points: Vec<(f64, f64)> = CHANGES_S
        .into_iter()
        .filter(|&seconds| seconds > 0)
        .map(|seconds| (f64::from(seconds), e.speedup(Job::Changing(seconds))))
        .collect();
    let theirs = printed("figure 8", "OO7, idle set swaps every 1 s", "speedup over no GMS");
    Figure::new("Figure 8: OO7 while idle nodes change", x, y)
        .series(Series::line("OO7", points).markers())
        .series(Series::published("published", 0, vec![(1.0, theirs)]))
        .note(format!("Without changes: {:.2}", e.speedup(Job::Changing(0))))
}

fn policies(title: &str, y: &str, unit: Unit, value: impl Fn(Policy, usize) -> f64) -> Figure {
    let mut bars = Bars::plain(Policy::ALL.map(Policy::name));
    for (skew, name) in skews() {
        bars = bars.plain_group(format!("{name} of nodes"), Policy::ALL.map(|policy| value(policy, skew)));
    }
    Figure::bars(title, Axis::new(y, unit), bars)
}

fn figure_12(e: &Experiments) -> Figure {
    let x = Axis::new("clients", Unit::Number);
    let y = Axis::new("speedup over no GMS", Unit::Times).include(0.0);
    let points = CLIENTS.map(|clients| (f64::from(clients), e.speedup(Job::Serving(clients))));
    Figure::new("Figure 12: one idle node and several clients", x, y)
        .series(Series::line("OO7, mean of all clients", points.to_vec()).markers())
}

fn figure_13(e: &Experiments) -> Figure {
    let mut bars = Bars::plain(["the idle node's processor"]);
    for clients in CLIENTS {
        let outcome = e.get(Job::Serving(clients));
        let busy = outcome.service.0 as f64 / outcome.span.0.max(1) as f64;
        let rate = outcome.transfers as f64 / (outcome.span.0.max(1) as f64 / 1e9);
        bars = bars.plain_group(format!("{clients}: {rate:.0} pages/s"), [busy]);
        let printed_at = (clients == 7).then(|| {
            printed("figure 12-13", "7 OO7 clients on one idle node", "CPU of the idle node") / 100.0
        });
        bars = bars.published(vec![printed_at]);
    }
    Figure::bars(
        "Figure 13: what several clients take of an idle node",
        Axis::new("processor", Unit::Share),
        bars,
    )
}
