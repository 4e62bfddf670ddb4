//! Whole figures and reports: they are well-formed, say what they should, and do not change by themselves.

use super::*;

/// Walks through XML: tags match, attributes are quoted and unique, nothing is left unescaped. Enough for what we write.
fn well_formed(xml: &str) -> Result<usize, String> {
    let (mut open, mut rest, mut elements) = (Vec::new(), xml, 0);
    let entities = |text: &str| {
        text.split('&').skip(1).all(|after| {
            ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|entity| after.starts_with(entity))
        })
    };
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        if !entities(text) || text.contains('>') {
            return Err(format!("text {text:?}"));
        }
        let end = rest[start..].find('>').ok_or("a tag without an end")? + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        elements += 1;
        let (closed, tag) = tag.strip_suffix('/').map_or((false, tag), |tag| (true, tag));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut seen = std::collections::BTreeSet::new();
        while !attributes.trim().is_empty() {
            let (key, value) =
                attributes.trim_start().split_once("=\"").ok_or(format!("attributes {tag:?}"))?;
            let (value, after) = value.split_once('"').ok_or(format!("quotes {tag:?}"))?;
            if !entities(value) || value.contains('<') || !seen.insert(key) {
                return Err(format!("attribute {key} of {tag:?}"));
            }
            attributes = after;
        }
        if !closed {
            open.push(name);
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(elements) } else { Err(format!("left open: {open:?}")) }
}

fn lines() -> Figure {
    let x = Axis::new("subpage", Unit::Bytes).scale(Scale::Log2);
    let y = Axis::new("time of a fault", Unit::Ns).include(0.0);
    let ours = vec![(256.0, 450e3), (512.0, 470e3), (1024.0, 520e3), (2048.0, 660e3), (4096.0, 940e3)];
    Figure::new("Latency of a <subpage> & \"its\" rest", x, y)
        .series(Series::line("subpage", ours.clone()).markers())
        .series(Series::step("rest", ours.iter().map(|point| (point.0, 1.4e6)).collect()))
        .series(Series::scatter("seen", vec![(300.0, 1e6), (-1.0, 1e6), (f64::NAN, 0.0)]))
        .series(Series::published("published", 0, ours))
}

fn stacks() -> Figure {
    let bars = Bars::stacked(["p_8192", "sp_1024"], ["exec", "sp_latency", "page_wait"])
        .group("full mem", vec![vec![1e9, 1.2e9, 0.0], vec![1e9, 0.5e9, 0.3e9]])
        .published(vec![Some(2.3e9), None])
        .group("½ mem <b>", vec![vec![1e9, 3e9, 0.0], vec![]]);
    Figure::bars("Run time", Axis::new("time", Unit::Ns), bars)
}

#[test]
fn figures_are_well_formed_whatever_their_texts() {
    let odd = "<script>alert(1)</script> & ' \" \u{1}\u{fffe} ".repeat(9);
    let axis = || Axis::new(odd.as_str(), Unit::Share).scale(Scale::Log10);
    let lines_of_odd = Figure::new(odd.as_str(), axis(), axis())
        .series(Series::line(odd.as_str(), vec![(0.0, 1.0)]).markers())
        .series(Series::published(odd.as_str(), 7, vec![(1.0, 1.0)]))
        .note(odd.as_str());
    let bars_of_odd = Bars::stacked([odd.as_str(); 3], [odd.as_str(); 2])
        .group(odd.as_str(), vec![vec![1.0, f64::NAN], vec![], vec![-1.0, 2.0]]);
    let bars_of_odd = Figure::bars(odd.as_str(), axis(), bars_of_odd).size(1, 1);
    let nothing = Figure::new("", Axis::default(), Axis::default());
    let no_groups = Figure::bars("", Axis::default(), Bars::plain(["a"]));
    for figure in [lines(), stacks(), lines_of_odd, bars_of_odd, nothing, no_groups] {
        let svg = figure.svg();
        let elements = well_formed(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
        assert!(elements > 10, "{svg}");
        assert!(!svg.contains("<script") && !svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
        assert_eq!(svg, figure.svg());
    }
}

#[test]
fn marks_say_their_values() {
    let svg = lines().svg();
    for tip in ["subpage: 450 µs at 256 B", "published: 940 µs at 4 KiB", "seen: 1 ms at 300 B"] {
        assert!(svg.contains(&format!("<title>{tip}</title>")), "{tip}\n{svg}");
    }
    assert!(svg.contains("2 values that the scale cannot show are left out"), "{svg}");
    let svg = stacks().svg();
    assert!(svg.contains("<title>full mem, sp_1024, page_wait: 300 ms of 1.8 s</title>"), "{svg}");
    assert!(svg.contains("<title>full mem, p_8192: published 2.3 s</title>"), "{svg}");
}

#[test]
fn a_small_figure_is_as_it_was() {
    let bars = Bars::plain(["lru", "fifo"]).plain_group("sort", [3.0, 4.0]);
    let svg = Figure::bars("Faults", Axis::new("faults", Unit::Number), bars).size(320, 240).svg();
    let body = svg.split_once("</style>\n").expect("a style").1;
    if let Some(dir) = std::env::var_os("LOAM_SAMPLES") {
        std::fs::write(std::path::Path::new(&dir).join("golden.svg.txt"), body).expect("written");
    }
    assert_eq!(
        body,
        include_str!("golden.svg.txt"),
        "if the new figure is right, put it into golden.svg.txt"
    );
}

#[test]
fn a_report_needs_no_network_and_escapes_its_texts() {
    let mut report = Html::new("A <report> & more");
    report.heading("1 < 2");
    report.paragraph("</p><script>alert(1)</script>");
    report.preformatted("a = [1, 2]\n");
    report.checks([&Check::new(true, "holds"), &Check::new(false, "does <not>")]);
    let mut table = Table::new(["a"]);
    table.push(vec![1.5.into()]);
    report.table(&table);
    report.figure(&lines());
    report.explained(&lines(), &[("What & why.", "a < b")]);
    let part =
        |name: &str, value| Share { name: name.into(), value, text: "1 s".into(), words: "<i>".into() };
    report.shares("the \"whole\"", &[part("<a>", 3.0), part("b", f64::NAN), part("c", 0.5), part("d", -1.0)]);
    let page = report.page();
    for part in [
        "<title>A &lt;report&gt; &amp; more</title>",
        "<h2>1 &lt; 2</h2>",
        "<p>&lt;/p&gt;&lt;script&gt;",
        "<b class=\"pass\">PASS</b> holds",
        "<b class=\"fail\">FAIL</b> does &lt;not&gt;",
        "<p><b>What &amp; why.</b> a &lt; b</p>",
        "aria-label=\"the &quot;whole&quot;\"",
        "<b>&lt;a&gt;</b> 1 s (86%). &lt;i&gt;",
        "<b>b</b> 1 s (0%)",
        "<b>d</b> 1 s (0%)",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<span style=\"width:").count(), 2, "what is nothing has no room");
    assert!(!page.contains("NaN"), "{page}");
    for outside in [" src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(Check::new(false, "x").line(), "FAIL  x");
}

/// Writes samples for a person to look at: `LOAM_SAMPLES=DIR cargo test -p loam-sim report::tests::samples`.
#[test]
fn samples() {
    let Some(dir) = std::env::var_os("LOAM_SAMPLES").map(std::path::PathBuf::from) else { return };
    let mut bars = Bars::stacked(
        ["disk_8192", "p_8192", "sp_4096", "sp_2048", "sp_1024", "sp_512", "sp_256"],
        ["exec", "sp_latency", "page_wait"],
    );
    for (group, times) in [("full-mem", 1.0), ("1/2-mem", 3.0), ("1/4-mem", 6.0)] {
        let values = (0..7)
            .map(|bar| vec![1e9, times * 0.2e9 * f64::from(8 - bar), 0.1e9 * times * f64::from(bar)])
            .collect();
        bars = bars.group(group, values).published((0..7).map(|_| Some(times * 1e9)).collect());
    }
    let time = || Axis::new("run time", Unit::Ns);
    let programs = ["Modula-3", "ld", "Atom", "Render", "gdb"];
    let mut plain = Bars::plain(["eager", "pipelined", "lazy"]);
    for (at, program) in programs.iter().enumerate() {
        let gain = 0.2 + at as f64 / 20.0;
        plain = plain.plain_group(*program, [gain, gain + 0.1, -gain]).published(vec![Some(0.3), None, None]);
    }
    let long =
        (0..50_000).map(|at| (f64::from(at) * 1e5, f64::from(at % 997) * f64::from(at) * 10.0)).collect();
    let count = || Axis::new("distinct pages", Unit::Number);
    let many = (0..20).fold(
        Figure::new(
            "Twenty series of miss ratios",
            Axis::new("local memory", Unit::Bytes),
            Axis::new("misses", Unit::Share).include(0.0),
        ),
        |figure, at| {
            let points = (1..12).map(|x| (f64::from(x << 20), 1.0 / f64::from(x + at))).collect();
            figure.series(Series::line(format!("policy {at}"), points).markers())
        },
    );
    let figures = [
        ("lines", lines().note("Published: subpages-1996, table 2.")),
        (
            "stacks",
            Figure::bars(
                "Run time of Modula-3 by memory size and subpage size (subpages-1996, figure 3)",
                time(),
                bars.clone(),
            ),
        ),
        (
            "stacks-small",
            Figure::bars("Run time of Modula-3 by memory size and subpage size", time(), bars).size(420, 400),
        ),
        ("plain", Figure::bars("Gain over full page", Axis::new("gain", Unit::Share), plain)),
        (
            "long",
            Figure::new("Many points", Axis::new("time", Unit::Ns), count())
                .series(Series::step("faults", long)),
        ),
        (
            "log",
            Figure::new(
                "Logs",
                Axis::new("requests", Unit::Number).scale(Scale::Log10),
                time().scale(Scale::Log10),
            )
            .series(
                Series::line("a", (1..9).map(|x| (10_f64.powi(x), 3_f64.powi(x * 2))).collect()).markers(),
            )
            .series(Series::scatter("b", (1..300).map(|x| (f64::from(x * x), f64::from(x) * 1e3)).collect())),
        ),
        ("many", many),
    ];
    let mut report = Html::new("Samples");
    report.checks([&Check::new(true, "a"), &Check::new(false, "b")]);
    for (name, figure) in &figures {
        std::fs::write(dir.join(format!("{name}.svg")), figure.svg()).expect("written");
        report.figure(figure);
    }
    std::fs::write(dir.join("samples.html"), report.page()).expect("written");
}
