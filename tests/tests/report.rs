//! `loam run --report`: one file that tells a real run, and a refusal before the program runs where it cannot be written.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::shell;
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const HEADINGS: [&str; 7] = [
    "Where the time went",
    "Where the time went, from start to end",
    "Memory here and elsewhere",
    "When pages were missing",
    "How long a thread waited for a page",
    "Where in a page a program goes on",
    "Page sizes",
];

/// The elements of the body, each closed in its turn; their names.
fn elements(page: &str) -> Vec<String> {
    let body = page.split_once("<body>").expect("a body").1;
    let (body, after) = body.split_once("<script>").expect("a script");
    assert!(after.ends_with("</script>\n</body>\n</html>\n"), "cut short");
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for piece in body.split('<').skip(1) {
        let tag = piece.split_once('>').unwrap_or_else(|| panic!("a tag without an end: {piece:?}")).0;
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
        let name = tag.trim_matches('/').split_whitespace().next().expect("a name").to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "<{tag}> closes nothing");
        } else {
            seen.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    seen
}

#[test]
fn a_run_is_drawn_in_one_file() {
    let _alone = place::alone();
    let scratch = Scratch::new("report");
    let file = scratch.join("a run.html");
    let mut walk = Command::new(place::program("memwalk"));
    walk.args(["96", "3", "random"]);
    let borrow = Borrow::new(scratch.path()).embedded("2x256M");
    let borrowed = borrow.flags(&["--report", file.to_str().expect("UTF-8")]).run(&walk, None, LIMIT);
    borrowed.assert_ended_well("memwalk");
    borrowed.assert_memory_left("memwalk");
    let split: f64 = ["exec", "sp_latency", "put_wait", "page_wait"]
        .iter()
        .map(|key| borrowed.number(&format!("/time_s/{key}")))
        .sum();
    let wall = borrowed.number("/wall_s");
    assert!((split - wall).abs() < 1e-6 * wall, "each moment is in one part: {split} s of {wall} s");
    assert!(borrowed.number("/time_s/sp_latency") > 0.0, "{}", borrowed.summary);
    assert_eq!(borrowed.number("/subpage_bytes"), borrowed.number("/page_bytes"));

    let page = fs::read_to_string(&file).expect("the report is written");
    let seen = elements(&page);
    let drawn = seen.iter().filter(|name| *name == "svg").count();
    // Whole pages are fetched, so nothing is known of distances; the report says that instead.
    assert!((5..=6).contains(&drawn), "{drawn} figures");
    for heading in HEADINGS {
        assert!(page.contains(&format!("{heading}</h2>")), "no figure '{heading}'");
    }
    for outside in ["<link", " src=", "href=", "@import", "url(", "https://", "NaN"] {
        assert!(!page.contains(outside), "{outside:?} in the report");
    }
    assert!(page.replace("http://www.w3.org/2000/svg", "").find("http://").is_none(), "it needs a network");
    assert!(page.contains("memwalk") && page.contains("prefers-color-scheme:dark"));
    for kind in ["remote", "disk"] {
        let faults = borrowed.number(&format!("/faults/{kind}"));
        let cell = format!("<td class=\"number\">{faults}</td>");
        assert!(faults == 0.0 || page.contains(&cell), "{kind}: {cell} is not in the table");
    }
}

#[test]
fn a_program_that_fits_has_a_report_too() {
    let _alone = place::alone();
    let scratch = Scratch::new("report-fits");
    let file = scratch.join("run.html");
    let borrow = Borrow::new(scratch.path()).flags(&["--report", file.to_str().expect("UTF-8")]);
    let borrowed = borrow.run(&Command::new("true"), None, LIMIT);
    borrowed.assert_ended_well("true");
    let page = fs::read_to_string(&file).expect("the report is written");
    elements(&page);
    assert!(page.contains("nothing was borrowed"), "{page}");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_program_runs() {
    let _alone = place::alone();
    let scratch = Scratch::new("report-refused");
    let ran = scratch.join("ran");
    let folder = scratch.path().to_str().expect("UTF-8").to_owned();
    let missing = scratch.join("no such folder/run.html");
    for path in [missing.to_str().expect("UTF-8"), &folder, "/proc/run.html", ""] {
        let mut command = Command::new(place::loam());
        command.args(["run", "--local", "32M", "--quiet", "--report", path, "--", "touch"]).arg(&ran);
        let ended = shell::run(&mut command, scratch.path(), "loam", LIMIT);
        assert_eq!(ended.code(), 125, "{path:?}: {}", ended.stderr);
        assert_eq!(ended.error_lines().len(), 1, "{path:?}: one line is due: {}", ended.stderr);
        assert!(ended.stderr.contains("--report") && ended.stderr.contains(path), "{}", ended.stderr);
        assert!(!ran.exists(), "{path:?}: the program ran");
    }
}
