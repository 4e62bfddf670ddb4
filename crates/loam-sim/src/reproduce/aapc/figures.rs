//! The paper's figures, drawn from our runs, and tables of all of them.

use super::claims::{FIGURE_7_KIB, write, write_beyond};
use super::experiments::{Done, Experiments};
use super::programs::{STOP_AT, STOP_TODAY_AT, Sizes, TODAY_KIB};
use super::sizes_kib;
use crate::report::{Axis, Bars, Cell, Figure, Scale, Series, Table, Unit};

/// Tables, each with its file's name and caption.
pub(super) fn tables(e: &Experiments) -> Vec<(String, String, Table)> {
    let mut tables = vec![
        (
            "relative-times".into(),
            "Figures 2, 5, 6 and 8: relative execution time by page size, and with AAPC by the length of its period".into(),
            relative_times(e),
        ),
        ("figure-7".into(), "Figure 7: SP, 10% local, part by part".into(), by_part(e)),
        ("runs".into(), "Every run".into(), runs(e)),
    ];
    if e.today().next().is_some() {
        tables.push((
            "today".into(),
            "Today's path (10 Gb/s TCP), eager plan: relative time by page size, and of sizes that are found with the ratio to the best fixed size"
                .into(),
            today(e),
        ));
    }
    tables
}

/// The paper's programs: figure, number, percent of local memory.
fn cases(e: &Experiments) -> Vec<(&'static str, usize, u64)> {
    [("5", "bt", 5), ("6", "sp", 10), ("2", "ft", 5), ("2", "ft", 10), ("8", "himeno", 10)]
        .map(|(figure, name, percent)| (figure, e.program(name), percent))
        .to_vec()
}

fn relative_times(e: &Experiments) -> Table {
    let fixed = sizes_kib().into_iter().map(|kib| format!("{kib} KiB"));
    let header = ["figure", "program", "MiB", "local"].map(str::to_owned).into_iter().chain(fixed);
    let found = ["AAPC, period: a loop's step", "1/16 of a part", "a part", "KiB at the end, by part"];
    let mut table = Table::new(header.chain(found.map(str::to_owned)));
    for (figure, program, percent) in cases(e) {
        let of = &e.programs[program];
        let mut row = vec![
            Cell::from(figure),
            Cell::from(of.info.name),
            Cell::from(e.base_pages[&program] / 256),
            Cell::from(format!("{percent}%")),
        ];
        row.extend(
            sizes_kib()
                .into_iter()
                .map(|kib| Cell::from(write(e.get(program, percent, Sizes::Fixed(kib)).relative))),
        );
        let periods = [of.steps, 16, 1].map(Sizes::Aapc);
        if of.adaptive {
            row.extend(periods.map(|sizes| Cell::from(write(e.get(program, percent, sizes).relative))));
            let kib = e.sizes_kib(program, percent, periods[0]);
            row.push(Cell::from(kib.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")));
        } else {
            row.extend([Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty]);
        }
        table.push(row);
    }
    table
}

fn by_part(e: &Experiments) -> Table {
    let sp = e.program("sp");
    let fixed = sizes_kib().into_iter().map(|kib| format!("{kib} KiB"));
    let mut table = Table::new(["part".to_owned()].into_iter().chain(fixed).chain(["AAPC".to_owned()]));
    for (part, name) in (1..).zip(e.programs[sp].info.parts) {
        let time = |sizes| write(e.get(sp, 10, sizes).parts.get(&part).copied());
        let mut row = vec![Cell::from(*name)];
        row.extend(sizes_kib().into_iter().map(|kib| Cell::from(time(Sizes::Fixed(kib)))));
        row.push(Cell::from(time(Sizes::Aapc(e.programs[sp].steps))));
        table.push(row);
    }
    table
}

fn name(sizes: Sizes) -> String {
    match sizes {
        Sizes::Fixed(kib) => format!("{kib} KiB"),
        Sizes::Aapc(1) => "AAPC, whole parts".into(),
        Sizes::Aapc(periods) => format!("AAPC, {periods} periods a part"),
        Sizes::Auto => "auto, marked parts".into(),
        Sizes::AutoUnmarked => "auto, without marks".into(),
    }
}

fn runs(e: &Experiments) -> Table {
    let mut table = Table::new([
        "path",
        "program",
        "problem",
        "base pages",
        "local, %",
        "sizes",
        "relative time",
        "of the first iteration",
        "faults",
        "base pages fetched",
        "changes",
    ]);
    for (n, program) in e.programs.iter().enumerate() {
        for (percent, sizes) in program.runs() {
            let done: &Done = e.get(n, percent, sizes);
            let stop_at = if program.paper { STOP_AT } else { STOP_TODAY_AT };
            table.push(vec![
                Cell::from(if program.paper { "paper" } else { "today" }),
                Cell::from(program.info.name),
                Cell::from(program.problem as u64),
                Cell::from(e.base_pages[&n]),
                Cell::from(percent),
                Cell::from(name(sizes)),
                Cell::from(write_beyond(done.relative, stop_at)),
                Cell::from(write_beyond(done.first, stop_at)),
                Cell::from(done.faults),
                Cell::from(done.fetched),
                Cell::from(done.changes as u64),
            ]);
        }
    }
    table
}

fn today(e: &Experiments) -> Table {
    let fixed = TODAY_KIB.map(|kib| format!("{kib} KiB"));
    let found = [Sizes::Aapc(1), Sizes::Auto, Sizes::AutoUnmarked];
    let header = ["program", "MiB", "local"].map(str::to_owned).into_iter().chain(fixed);
    let mut table =
        Table::new(header.chain(found.into_iter().flat_map(|sizes| [name(sizes), "of the best".into()])));
    for (n, program) in e.today() {
        for &percent in &program.percents {
            let mut row = vec![
                Cell::from(program.info.name),
                Cell::from(e.base_pages[&n] / 256),
                Cell::from(format!("{percent}%")),
            ];
            let fixed = TODAY_KIB.map(|kib| e.get(n, percent, Sizes::Fixed(kib)).relative);
            row.extend(fixed.map(|time| Cell::from(write_beyond(time, STOP_TODAY_AT))));
            let best = e.best(n, percent, &TODAY_KIB).map(|(_, time)| time);
            for sizes in found {
                let time = e.get(n, percent, sizes).relative;
                let ratio =
                    time.zip(best).map_or_else(|| "-".into(), |(time, best)| format!("{:.2}", time / best));
                row.extend([Cell::from(write_beyond(time, STOP_TODAY_AT)), Cell::from(ratio)]);
            }
            table.push(row);
        }
    }
    table
}

/// Figures, each with its file's name.
pub(super) fn figures(e: &Experiments) -> Vec<(String, Figure)> {
    let mut figures = vec![("figure-2".to_owned(), figure_2(e))];
    for (number, name, percent, title) in [
        (5, "bt", 5, "BT class A, 5% local"),
        (6, "sp", 10, "SP class B, 10% local"),
        (8, "himeno", 10, "Himeno M, 10% local"),
    ] {
        let title = format!("Figure {number}: fixed sizes and AAPC, {title}");
        figures.push((format!("figure-{number}"), beside(e, e.program(name), percent, title)));
    }
    figures.push(("figure-7".into(), figure_7(e)));
    figures.sort_by(|a, b| a.0.cmp(&b.0));
    figures
}

fn shown(done: &Done) -> f64 {
    done.relative.unwrap_or(STOP_AT as f64)
}

fn figure_2(e: &Experiments) -> Figure {
    let x = Axis::new("page size", Unit::Bytes).scale(Scale::Log2);
    let y = Axis::new("time relative to enough local memory", Unit::Times).scale(Scale::Log10);
    let mut figure = Figure::new("Figure 2: relative execution time by page size", x, y);
    for (_, program, percent) in cases(e) {
        let points = sizes_kib()
            .into_iter()
            .map(|kib| ((kib << 10) as f64, shown(e.get(program, percent, Sizes::Fixed(kib)))));
        let name = format!("{}, {percent}% local", e.programs[program].info.name);
        figure = figure.series(Series::line(name, points.collect()).markers());
    }
    figure.note(format!("What takes more than {STOP_AT} times as long is stopped, and drawn there. The paper prints no figures beside its curves."))
}

fn beside(e: &Experiments, program: usize, percent: u64, title: String) -> Figure {
    let mut bars = Bars::plain(["relative time"]);
    let fixed = sizes_kib().into_iter().map(Sizes::Fixed);
    for sizes in fixed.chain([e.programs[program].steps, 1].map(Sizes::Aapc)) {
        bars = bars.plain_group(name(sizes), [shown(e.get(program, percent, sizes))]);
    }
    let y = Axis::new("time relative to enough local memory", Unit::Times);
    Figure::bars(title, y, bars).note(format!("A bar at {STOP_AT} stands for more."))
}

fn figure_7(e: &Experiments) -> Figure {
    let sp = e.program("sp");
    let mut bars = Bars::plain(FIGURE_7_KIB.map(|kib| format!("{kib} KiB")));
    for (part, name) in (1..).zip(e.programs[sp].info.parts) {
        let time = |kib| e.get(sp, 10, Sizes::Fixed(kib)).parts.get(&part).copied().unwrap_or(STOP_AT as f64);
        bars = bars.plain_group(*name, FIGURE_7_KIB.map(time));
    }
    let y = Axis::new("time relative to enough local memory", Unit::Times);
    Figure::bars("Figure 7: the parts of SP class B, 10% local", y, bars)
}
