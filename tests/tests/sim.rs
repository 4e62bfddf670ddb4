//! The simulator as its page (docs/simulator.md) tells a newcomer to use it.

use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

fn loam(args: &[&str], dir: &Path) -> Ended {
    let mut command = shell::that_dies_with_us(&place::loam());
    shell::run(command.args(args).current_dir(dir), dir, "loam", LIMIT)
}

/// One that must end well; its stdout.
fn text(args: &[&str], dir: &Path) -> String {
    let ended = loam(args, dir);
    assert_eq!(ended.code(), 0, "loam {args:?}: {}", ended.stderr);
    String::from_utf8(ended.stdout).expect("text")
}

fn traces() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    folder.to_str().expect("a path of letters").to_owned()
}

#[test]
fn subpages_1996_holds_its_claims() {
    let scratch = Scratch::new("reproduce");
    let text = text(&["sim", "reproduce", "subpages", "--traces", &traces(), "--out", "out"], scratch.path());
    let checks: Vec<&str> = text.lines().filter(|l| l.starts_with("PASS") || l.starts_with("FAIL")).collect();
    assert_eq!(checks.len(), 3, "a line for each claim: {checks:?}");
    assert!(checks.iter().all(|line| line.starts_with("PASS")), "{checks:#?}");
    let results = fs::read_to_string(scratch.join("out/results.csv")).expect("written");
    // Each row that the paper prints as a result, with its ratio.
    assert_eq!(results.lines().count(), 1 + 33, "{results}");
    let report = fs::read_to_string(scratch.join("out/report.html")).expect("written");
    assert_eq!(report.matches("<svg").count(), 10, "all of them inside");
    for figure in ["1", "3", "4", "5", "6", "7a", "7b", "8", "9", "10"] {
        assert!(scratch.join(&format!("out/figure-{figure}.svg")).is_file(), "figure {figure}");
    }
}

#[test]
fn gms_1995_has_its_tables() {
    let scratch = Scratch::new("reproduce-gms");
    let text = text(&["sim", "reproduce", "gms", "--quick", "--out", "out"], scratch.path());
    let checks: Vec<&str> = text.lines().filter(|l| l.starts_with("PASS") || l.starts_with("FAIL")).collect();
    assert_eq!(checks.len(), 3, "a line for each claim about the tables: {checks:?}");
    assert!(checks.iter().all(|line| line.starts_with("PASS")), "{checks:#?}");
    let results = fs::read_to_string(scratch.join("out/results.csv")).expect("written");
    assert_eq!(results.lines().count(), 1 + 18, "{results}");
    for table in ["tables-1-2", "tables-3-4", "table-5"] {
        assert!(scratch.join(&format!("out/{table}.csv")).is_file(), "{table}");
    }
}

#[test]
fn a_program_is_recorded_and_asked() {
    let scratch = Scratch::new("record");
    let dir = scratch.path();
    let recorded =
        loam(&["trace", "record", "-o", "job.trace", "--", "sh", "-c", "echo from the program; exit 3"], dir);
    assert_eq!(
        (recorded.code(), recorded.stdout.as_slice()),
        (3, &b"from the program\n"[..]),
        "{}",
        recorded.stderr
    );
    let info = text(&["trace", "info", "job.trace"], dir);
    assert!(info.contains("references"), "{info}");
    let curve = text(&["sim", "mrc", "job.trace", "--svg", "job.svg", "--csv", "job.csv"], dir);
    assert!(curve.contains("of local memory: with that"), "{curve}");
    assert!(fs::read_to_string(scratch.join("job.svg")).expect("written").starts_with("<svg"));
    let plan = "trace = \"job.trace\"\nmodel = [\"tcp-10g\", \"nvme\"]\npage_bytes = \"16K\"\nsubpage_bytes = \"4K\"\n\
        local_share = { from = 0.5, to = 1, step = 0.25 }\nfetch_plan = [\"full\", \"eager\"]\n";
    fs::write(scratch.join("job.toml"), plan).expect("writable");
    text(&["sim", "run", "job.toml", "--out", "one", "--threads", "1"], dir);
    text(&["sim", "run", "job.toml", "--out", "two", "--threads", "2"], dir);
    for part in ["1/2", "2/2"] {
        text(&["sim", "run", "job.toml", "--out", "shards", "--shard", part], dir);
    }
    text(&["sim", "merge", "shards/shard-1-of-2.json", "shards/shard-2-of-2.json", "--out", "merged"], dir);
    for file in ["results.csv", "results.parquet", "report.html"] {
        let read = |folder: &str| fs::read(scratch.join(&format!("{folder}/{file}"))).expect("written");
        assert!(read("one") == read("two"), "{file}: threads change nothing");
        assert!(read("one") == read("merged"), "{file}: shards change nothing");
    }
    let rows = fs::read_to_string(scratch.join("one/results.csv")).expect("written");
    assert_eq!(rows.lines().count(), 1 + 2 * 3 * 2, "{rows}");
}

#[test]
fn what_cannot_be_simulated_is_told_in_a_line() {
    let scratch = Scratch::new("refused");
    let dir = scratch.path();
    let whole = fs::read(Path::new(&traces()).join("gdb.trace")).expect("it is in the repository");
    fs::write(scratch.join("cut.trace"), &whole[..whole.len() / 2]).expect("writable");
    fs::write(scratch.join("plan.toml"), "trace = \"t\"\nmodle = \"nvme\"\n").expect("writable");
    let cases: [(&[&str], &str); 4] = [
        (&["trace", "info", "cut.trace"], "cut.trace"),
        (&["sim", "mrc", "cut.trace"], "cut.trace"),
        (&["sim", "run", "plan.toml", "--out", "o"], "modle"),
        (&["sim", "reproduce", "subpages", "--traces", "nowhere"], "nowhere"),
    ];
    for (args, word) in cases {
        let ended = loam(args, dir);
        assert_eq!(ended.code(), 125, "{args:?}: {}", ended.stderr);
        assert_eq!(ended.error_lines().len(), 1, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn advice_tells_the_structures_of_a_recorded_program_apart() {
    let scratch = Scratch::new("advise");
    let dir = scratch.path();
    let trace = Path::new(&traces()).join("ld.trace");
    let trace = trace.to_str().expect("a path of letters");
    let asked = text(&["advise", trace, "--local", "12M", "--json"], dir);
    let advice: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
    let structures = advice["advice"]["structures"].as_array().expect("a list");
    let sum = |key: &str| structures.iter().map(|of| of[key].as_u64().expect(key)).sum::<u64>();
    assert_eq!(
        (sum("references"), sum("bytes")),
        (45_772_493, 6_430 * 4096),
        "all of the trace is in some structure"
    );
    assert!(structures.len() > 1, "{asked}");
    let number = |key: &str| advice["advice"][key].as_u64().expect(key);
    assert!(number("local_used_bytes") + number("buffers_bytes") <= 12 << 20, "{asked}");
    for fixed in advice["advice"]["fixed"].as_array().expect("a list") {
        let (time, local) = (fixed["time_ns"].as_u64(), fixed["local_bytes"].as_u64().expect("bytes"));
        assert!(local > 12 << 20 || time.is_none_or(|time| number("time_ns") <= time), "{fixed}");
    }
    fs::write(scratch.join("all.toml"), "local = \"64M\"\ndirect = \"none\"\n").expect("writable");
    let all = text(&["advise", trace, "--cluster", "all.toml"], dir);
    assert!(all.contains("no loads from other nodes") && !all.contains("paged with  direct"), "{all}");
    assert!(
        all.lines().filter(|line| line.ends_with("here")).count() == structures.len(),
        "all of it fits: {all}"
    );
    let ended = loam(&["advise", trace, "--local", "1M", "--direct", "none"], dir);
    assert_eq!((ended.code(), ended.error_lines().len()), (125, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("too little"), "{}", ended.stderr);
}
