//! The report of made-up runs: well-formed, every number finite, names escaped, and what it says is right.

use super::*;
use loam_agent::recording::{Moment, SizeChange, Sizes, Waits};
use loam_agent::summary::{Evictions, Faults, LenderSummary, TimeSplit};
use loam_core::units::{BasePages, Bytes, Duration, Instant};
use loam_sim::report::{Cell, Unit};

const ODD: &str = "</h1><script>alert(1)</script> \"&' \u{1b}[2J";

/// A run of 20 s that waits in its second half: in bursts for a lender, now and then for the disk.
fn run() -> (Summary, Recording) {
    let mut recording = Recording::default();
    let mut moment = Moment::default();
    for step in 0..2_000_u64 {
        moment.local = Bytes(64 << 20);
        moment.lent = Bytes(step << 16);
        moment.on_disk = Bytes(step << 15);
        if step >= 1_000 {
            moment.sp_latency = Duration(moment.sp_latency.0 + 4_000_000);
            moment.page_wait = Duration(moment.page_wait.0 + 1_000_000);
            moment.put_wait = Duration(moment.put_wait.0 + 500_000);
        }
        if (1_200..1_250).contains(&step) {
            moment.answered[3] += 1_000;
        }
        recording.timeline.record(Instant((step + 1) * 10_000_000), moment);
    }
    for wait_us in 1..=1_000 {
        recording.waits.record(Waits::KINDS[3], Duration::from_micros(wait_us));
        recording.waits.record(Waits::KINDS[4], Duration::from_micros(wait_us * 30));
    }
    recording.next_distances = vec![(-20, 5), (-1, 10), (1, 80), (3, 5)];
    recording.sizes = Sizes::new(BasePages(4));
    let change = |at_s: u64, part, from, to, extents| SizeChange {
        at: Instant(at_s * 1_000_000_000),
        part,
        from: BasePages(from),
        to: BasePages(to),
        reason: ODD.into(),
        extents,
    };
    for change in
        [change(3, 1, 4, 16, 0), change(5, 2, 4, 1, 0), change(9, 1, 16, 64, 0), change(11, 2, 1, 32, 7)]
    {
        recording.sizes.record(change);
    }
    let summary = Summary {
        command: format!("sort {ODD}"),
        exit_code: Some(0),
        wall_s: 20.0,
        local_limit_bytes: 64 << 20,
        local_peak_bytes: 63 << 20,
        faults: Faults { total: 2_000, remote: 1_000, disk: 1_000, ..Faults::default() },
        evictions: Evictions { moved: 9, ..Evictions::default() },
        time_s: TimeSplit { exec: 14.5, sp_latency: 4.0, put_wait: 0.5, page_wait: 1.0 },
        lenders: vec![LenderSummary {
            addr: ODD.into(),
            lost: true,
            why: ODD.into(),
            ..LenderSummary::default()
        }],
        lenders_joined: 1,
        durability: "disk".into(),
        page_bytes: 16384,
        subpage_bytes: 4096,
        fetch_plan: ODD.into(),
        warnings: vec![ODD.into()],
        ..Summary::default()
    };
    (summary, recording)
}

/// Every element is closed in order, and every number of an attribute that places something is finite.
fn check(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = page.split_once("<body>").expect("a body").1;
    let (body, script) = body.split_once("<script>").expect("one script, at the end");
    assert!(!script.contains("<script"), "a second script");
    for piece in body.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("no end: {piece}"));
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        for (at, _) in tag.match_indices("=\"") {
            let key = tag[..at].rsplit(' ').next().unwrap_or_default();
            let value = tag[at + 2..].split('"').next().unwrap_or_default();
            if ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"].contains(&key) {
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{key} is {value}");
            }
            if key == "d" {
                let numbers = value.split(|c: char| c.is_ascii_alphabetic() || c == ' ');
                for number in numbers.filter(|number| !number.is_empty()) {
                    assert!(number.parse::<f64>().is_ok_and(f64::is_finite), "{number} in a path");
                }
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for bad in ["NaN", "inf", "\u{1b}", " src=", "href=", "@import", "url("] {
        assert!(!body.contains(bad), "{bad:?} in the report");
    }
}

#[test]
fn a_report_has_every_figure_and_escapes_every_name() {
    let (summary, recording) = run();
    let page = page(&summary, &recording);
    check(&page);
    for (number, heading) in HEADINGS.iter().enumerate() {
        assert!(page.contains(&format!("<h2>{}. {heading}</h2>", number + 1)), "{heading}");
    }
    assert_eq!(page.matches("<svg").count(), HEADINGS.len());
    assert!(page.contains("sort &lt;/h1&gt;&lt;script&gt;"), "the command is escaped, and not left out");
    for part in [
        "4.0 s (20%)",
        "0.5 s (2.5%)",
        "a thread waited for memory in 28% of the time",
        "about 14.5 s would remain",
        "with lenders",
        "part 1",
        "part 2",
        "part 2, single places: 128 KiB at 11 s",
        "4.0 KiB to 128.0 KiB in 7 MiB side by side",
        "16.0 KiB to 64.0 KiB everywhere",
        "80% wanted the next one, 10% the one before",
        "The busiest tenth of this run had 100% of its faults",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_run_that_borrowed_nothing_has_a_report_too() {
    let summary =
        Summary { command: "true".into(), exit_code: Some(0), page_bytes: 4096, ..Summary::default() };
    let page = page(&summary, &Recording::default());
    check(&page);
    assert!(page.contains("nothing was borrowed") && page.contains("nothing to tell"), "{page}");
    assert!(page.contains("hardly slowed"), "{page}");
}

#[test]
fn odd_figures_are_no_odd_drawing() {
    let (mut summary, recording) = run();
    for wall_s in [0.0, 1e-9, 1e9, f64::MAX] {
        summary.wall_s = wall_s;
        summary.local_limit_bytes = u64::MAX;
        check(&page(&summary, &recording));
    }
}

#[test]
fn the_busiest_tenth_is_that_of_the_faults() {
    let (summary, mut recording) = run();
    assert!(figures::in_busiest_tenth(&summary, &recording) > 0.99, "all in half a second of 20");
    recording.timeline = loam_agent::recording::Timeline::default();
    for step in 1..=2_000 {
        let moment = Moment { answered: [0, 0, 0, step * 3, 0], ..Moment::default() };
        recording.timeline.record(Instant(step * 10_000_000), moment);
    }
    let even = figures::in_busiest_tenth(&summary, &recording);
    assert!((even - 0.1).abs() < 0.01, "evenly spread: {even}");
}

#[test]
fn of_ten_faults_nine_waited_no_longer_than_the_second_longest() {
    let (summary, mut recording) = run();
    recording.waits = Waits::default();
    for wait_ms in 1..=10 {
        recording.waits.record(Waits::KINDS[3], Duration::from_millis(wait_ms));
    }
    let sorted = recording.waits.sorted(Waits::KINDS[3]);
    let longest = |n: usize| Cell::Scaled(sorted[n].1.0.into(), Unit::Ns);
    let table = words::faults(&summary, &recording);
    // Half of them, nine of ten, 99 of 100, all.
    assert_eq!(table.rows()[0][3..], [longest(5), longest(1), longest(0), longest(0)]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_in_one_line() {
    let failure = open(Path::new("/no/such/folder/report.html")).expect_err("no such folder");
    let line = failure.line();
    assert!(line.contains("/no/such/folder/report.html") && line.contains("--report"), "{line}");
}

/// Writes a made-up report for a person to look at: `LOAM_SAMPLES=DIR cargo test -p loam-cli run_report`.
#[test]
fn sample() {
    let Some(dir) = std::env::var_os("LOAM_SAMPLES").map(std::path::PathBuf::from) else { return };
    let (summary, recording) = run();
    std::fs::write(dir.join("run-report.html"), page(&summary, &recording)).expect("written");
}
