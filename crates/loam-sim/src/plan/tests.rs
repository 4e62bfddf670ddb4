//! Plans are read as written, sweeps give the same bytes however they run.

use super::*;
use crate::report::Unit;

const PLAN: &str = "\
title = \"A <plan>\"
trace = [\"a.csv\", \"b, c.csv\"]
model = \"tcp-10g\"
page_bytes = \"8K\"
subpage_bytes = { from = 256, to = 4096, times = 2 }
local_share = [\"1/4\", 0.5, 1]
";

/// Gives figures that are made up from the point, and refuses some.
struct Made;

const MADE: &[Column] = &[
    Column { name: "total_ns", label: "run time", unit: Unit::Ns, role: Role::Figure },
    Column { name: "a_ns", label: "a part", unit: Unit::Ns, role: Role::Part },
    Column { name: "b_ns", label: "another", unit: Unit::Ns, role: Role::Part },
    Column { name: "ratio", label: "ratio", unit: Unit::Share, role: Role::Plain },
];

impl Runner for Made {
    fn columns(&self) -> &[Column] {
        MADE
    }
    fn run(&self, point: &Point) -> Result<Vec<Value>, String> {
        // Later points are done sooner, so that threads finish in another order than they began.
        std::thread::sleep(std::time::Duration::from_micros(400 - 10 * point.index as u64));
        if point.index % 7 == 3 {
            return Err("not \"this\", one".into());
        }
        let a = point.whole("subpage_bytes").unwrap() * 1_000;
        let b = point.index as u64 * 1_000_000;
        Ok(vec![Value::Whole(a + b), Value::Whole(a), Value::Whole(b), Value::Real(1.0 / (b + 3) as f64)])
    }
}

fn rows(plan: &Plan, threads: usize) -> Vec<Row> {
    sweep(&plan.points(), &Made, threads, &|| ())
}

#[test]
fn the_last_parameter_varies_fastest() {
    let plan = Plan::parse(PLAN).unwrap();
    assert_eq!((plan.len(), plan.title()), (30, "A <plan>"));
    assert_eq!(plan.swept(), ["trace", "subpage_bytes", "local_share"]);
    let said = |index: usize| {
        let point = &plan.points()[index];
        (
            point.text("trace").to_owned(),
            point.whole("subpage_bytes").unwrap(),
            point.get("local_share").cloned(),
        )
    };
    assert_eq!(said(0), ("a.csv".into(), 256, Some(Value::Real(0.25))));
    assert_eq!(said(1), ("a.csv".into(), 256, Some(Value::Real(0.5))));
    assert_eq!(said(3), ("a.csv".into(), 512, Some(Value::Real(0.25))));
    assert_eq!(said(29), ("b, c.csv".into(), 4096, Some(Value::Real(1.0))));
    let point = &plan.points()[0];
    assert_eq!(point.whole("unit_bytes"), Some(256), "a default");
    assert_eq!(point.text("fetch_plan"), "eager");
}

#[test]
fn ranges_end_where_they_should() {
    let values = |range: &str| {
        let text = format!("trace=\"t\"\nmodel=\"m\"\npage_bytes=8192\nsubpage_bytes=256\n{range}\n");
        let plan = Plan::parse(&text).unwrap();
        let name = range.split(['=', ' ']).next().unwrap();
        plan.values(name).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(values("local_pages = { from = 8, to = 20, step = 5 }"), "8 13 18");
    assert_eq!(values("local_pages = [{ from = 8, to = 10, step = 1 }, 100]"), "8 9 10 100");
    assert_eq!(values("unit_bytes = { from = \"256\", to = \"4K\", times = 4 }"), "256 1024 4096");
    assert_eq!(values("local_pages = { from = 0x10, to = 0x30, step = 0x10 }"), "16 32 48");
    assert_eq!(values("unit_bytes = { from = 256, to = 4096, times = 0b100 }"), "256 1024 4096");
    assert_eq!(values("local_share = { from = 0.1, to = 0.3, step = 0.1 }"), "0.1 0.2 0.3");
    assert_eq!(values("local_share = { from = \"25%\", to = 1, step = \"25%\" }"), "0.25 0.5 0.75 1");
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let base = "trace=\"t\"\nmodel=\"m\"\npage_bytes=8192\nsubpage_bytes=256\n";
    for (more, line, what) in [
        ("subpage_byte = 1", 5, "unknown key \"subpage_byte\": did you mean subpage_bytes?"),
        ("moon = 1", 5, "known keys are title, trace"),
        ("\n\nlocal_share = 1.5", 7, "expected a share"),
        ("local_pages = -1", 5, "expected a whole number"),
        ("local_pages = []", 5, "1 to 10000 values, not 0"),
        ("local_pages = [9, 10,\n 9]", 5, "9 is there twice"),
        ("local_pages = { from = 8, to = 9 }", 5, "a range is"),
        ("local_pages = { from = 8, to = 9, stop = 1 }", 5, "a range is"),
        ("local_pages = { from = 9, to = 8, step = 1 }", 5, "no range"),
        ("local_pages = { from = 8, to = 9, step = 0 }", 5, "above 0"),
        ("local_pages = { from = 8, to = 9000000, times = 1.0000001 }", 5, "not 10001"),
        ("local_pages = { from = 8, to = 90000, step = 1 }", 5, "1 to 10000 values"),
        ("fetch_plan = { from = 1, to = 2, step = 1 }", 5, "no range"),
        ("local_pages = 9\nlocal_share = 1", 7, "keep one"),
        (
            "local_pages = { from = 1, to = 1000, step = 1 }\nunit_bytes = { from = 1, to = 101, step = 1 }",
            7,
            "101000 points",
        ),
        ("local_pages = [", 5, ""),
    ] {
        let error = Plan::parse(&format!("{base}{more}\n")).expect_err(more);
        assert!(error.what.contains(what) && !error.what.contains('\n'), "{more}: {error}");
        assert!(error.line == line || error.line == line + 1, "{more}: {error}");
    }
    let error = Plan::parse("trace = \"t\"\n").expect_err("no model");
    assert!(error.what.contains("no model"), "{error}");
}

#[test]
fn threads_do_not_change_a_byte() {
    let plan = Plan::parse(PLAN).unwrap();
    let (one, three) = (rows(&plan, 1), rows(&plan, 3));
    let of = |rows: &[Row]| {
        let results = Results::new(&plan, MADE, rows);
        (results.table().csv(), results.html(), results.parquet())
    };
    assert_eq!(of(&one), of(&three));
    let csv = of(&one).0;
    let mut lines = csv.lines();
    assert_eq!(
        lines.next().unwrap(),
        "trace,model,page_bytes,subpage_bytes,local_share,unit_bytes,fetch_plan,replacement,pipelined_unattended,\
         total_ns,a_ns,b_ns,ratio,error"
    );
    assert_eq!(
        lines.next().unwrap(),
        "a.csv,tcp-10g,8192,256,0.25,256,eager,second-chance,false,256000,256000,0,0.3333333333333333,"
    );
    assert!(csv.contains("\"b, c.csv\",") && csv.contains(",,,,,\"not \"\"this\"\", one\"\n"), "{csv}");
    assert_eq!(csv.lines().count(), 31);
}

#[test]
fn shards_make_the_same_sweep() {
    let plan = Plan::parse(PLAN).unwrap();
    let shard = |text: &str| -> (String, Shard) {
        let part: Part = text.parse().unwrap();
        let shard = Shard::new(&plan, part, sweep(&part.points(&plan), &Made, 2, &|| ()));
        (text.into(), Shard::from_json(text, &shard.to_json(), MADE.len()).unwrap())
    };
    let (found, rows_of_shards) =
        merge(vec![shard("3/4"), shard("1/4"), shard("4/4"), shard("2/4")]).unwrap();
    assert_eq!((&found, &rows_of_shards), (&plan, &rows(&plan, 1)));

    let missing = merge(vec![shard("3/4"), shard("1/4")]).unwrap_err().to_string();
    assert_eq!(missing, "2 of 4 shards are missing: 2, 4");
    let twice = merge(vec![shard("1/2"), shard("1/2")]).unwrap_err().to_string();
    assert!(twice.contains("part 1 is there already"), "{twice}");
    let other = merge(vec![shard("1/2"), shard("2/3")]).unwrap_err().to_string();
    assert!(other.contains("the number of parts differs"), "{other}");
    let other_plan = Plan::parse(&PLAN.replace("8K", "16K")).unwrap();
    let part: Part = "2/2".parse().unwrap();
    let stranger = Shard::new(&other_plan, part, sweep(&part.points(&other_plan), &Made, 1, &|| ()));
    let error = merge(vec![shard("1/2"), ("x".into(), stranger)]).unwrap_err().to_string();
    assert!(error.starts_with("x: the plan's text differs"), "{error}");
    for wrong in ["{}", "", "[1", &shard("1/2").1.to_json().replace("shard-1", "shard-9")] {
        assert!(matches!(Shard::from_json("x", wrong, 4), Err(MergeError::Malformed { .. })), "{wrong}");
    }
    let cut = shard("1/2").1.to_json().replacen("{\"values\":[0,", "{\"values\":[1,", 1);
    assert!(Shard::from_json("x", &cut, 4).unwrap_err().to_string().contains("not those of its part"));
    for wrong in ["0/4", "5/4", "1", "1/0", "a/b", "1/99999"] {
        assert!(wrong.parse::<Part>().is_err(), "{wrong}");
    }
    // More parts than points: some have none, and that is fine.
    assert!("31/40".parse::<Part>().unwrap().points(&plan).is_empty());
}

#[test]
fn a_report_has_figures_of_what_is_swept() {
    let plan = Plan::parse(PLAN).unwrap();
    let rows = rows(&plan, 2);
    let results = Results::new(&plan, MADE, &rows);
    let titles: Vec<String> = results.figures().iter().map(|figure| figure.title().to_owned()).collect();
    assert_eq!(titles, ["Run time", "Run time and its parts, by subpage"]);
    assert_eq!(results.errors(), (4, Some("not \"this\", one")));
    let html = results.html();
    assert!(html.contains("A &lt;plan&gt;") && html.contains("4 of them could not be simulated"));
    if let Some(dir) = std::env::var_os("LOAM_SAMPLES").map(std::path::PathBuf::from) {
        for (at, figure) in results.figures().iter().enumerate() {
            std::fs::write(dir.join(format!("sweep-{at}.svg")), figure.svg()).unwrap();
        }
        std::fs::write(dir.join("sweep.html"), html).unwrap();
        std::fs::write(dir.join("sweep.parquet"), results.parquet()).unwrap();
        std::fs::write(dir.join("sweep.csv"), results.table().csv()).unwrap();
    }
    // Without a number that is swept there are bars; with nothing swept, too.
    for text in [
        PLAN.replace("{ from = 256, to = 4096, times = 2 }", "256").replace("[\"1/4\", 0.5, 1]", "1"),
        PLAN.lines()
            .map(|line| if line.starts_with("trace") { "trace = \"t\"" } else { line })
            .collect::<Vec<_>>()
            .join("\n")
            .replace("{ from = 256, to = 4096, times = 2 }", "256")
            .replace("[\"1/4\", 0.5, 1]", "1"),
    ] {
        let plan = Plan::parse(&text).unwrap();
        let rows = sweep(&plan.points(), &Made, 1, &|| ());
        assert!(!Results::new(&plan, MADE, &rows).figures().is_empty(), "{text}");
    }
}

/// A walk over some pages.
struct Walk(u64);

impl crate::trace::Source for Walk {
    fn next_runs(&mut self, into: &mut Vec<crate::trace::Run>) -> Result<bool, crate::trace::TraceError> {
        if self.0 == 20 {
            return Ok(false);
        }
        into.extend((0..200).map(|at| crate::trace::Run {
            grain: (self.0 * 37 + at * 5) % 2_000,
            references: 3,
            writes: at == 0,
        }));
        self.0 += 1;
        Ok(true)
    }
}

#[test]
fn plans_are_simulated() {
    let plan = Plan::parse(
        "trace=\"walk\"\nmodel=\"alpha-an2-1996\"\npage_bytes=[4096,8192]\nsubpage_bytes=[1024,8192]\nunit_bytes=256\nlocal_share=0.5\n",
    )
    .unwrap();
    let reads = std::sync::atomic::AtomicUsize::new(0);
    let open = |path: &std::path::Path| -> Result<Box<dyn crate::trace::Source>, String> {
        assert_eq!(path, std::path::Path::new("folder/walk"));
        reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Box::new(Walk(0)))
    };
    let folder = std::path::Path::new("folder");
    let run = |threads| {
        let runner = MachineRunner::new(&plan.points(), folder, &open).unwrap();
        sweep(&plan.points(), &runner, threads, &|| ())
    };
    let rows = run(1);
    // One look at whether it is there, then one reading for each page size.
    assert_eq!(reads.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert_eq!(rows, run(3));
    let why = rows[1].outcome.as_ref().unwrap_err();
    assert!(why.contains("subpage"), "a subpage larger than its page: {why}");
    for row in rows.iter().filter(|row| row.index != 1) {
        let values: Vec<u64> =
            row.outcome.as_ref().unwrap().iter().map(|v| v.number().unwrap() as u64).collect();
        assert_eq!(values[0], values[1..6].iter().sum::<u64>(), "the parts of the time are the time");
        assert!(values[6] > 0 && values[9] == 20 * 200 * 3, "{values:?}");
    }
    for (wrong, what) in [("lru-9", "second-chance"), ("eager", "")] {
        let text = format!("{}replacement=\"{wrong}\"\n", plan.text());
        let error = MachineRunner::new(&Plan::parse(&text).unwrap().points(), folder, &open).err();
        assert!(error.is_some_and(|error| error.contains(what)), "{wrong}");
    }
}
