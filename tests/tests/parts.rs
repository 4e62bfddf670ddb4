//! Programs that name their parts, and page sizes that are found while they run.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::place::{self, Scratch};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The smallest size that any of a part's pages has been changed to.
fn smallest_kib(borrowed: &Borrowed, part: u64) -> Option<u64> {
    let changes = borrowed.summary["page_size_changes"].as_array().expect("a list");
    let of_part = changes.iter().filter(|change| change["part"] == part);
    of_part.map(|change| change["to_bytes"].as_u64().expect("a number") / 1024).min()
}

fn parts_program() -> Command {
    let mut parts = Command::new(place::program("parts"));
    parts.args(["128", "4"]);
    parts
}

#[test]
fn sizes_are_found_for_each_part_that_a_program_names() {
    let _alone = place::alone();
    let scratch = Scratch::new("parts");
    let plain = parts_program().output().expect("parts runs without Loam");
    assert!(plain.status.success(), "the call is harmless without Loam");
    // A subpage may be larger than pages are at first.
    for flags in [["--page", "auto"], ["--page", "aapc"], ["--subpage", "512K"]] {
        let borrow = Borrow::new(scratch.path()).embedded("2x256M").flags(&flags);
        let borrowed = borrow.run(&parts_program(), None, LIMIT);
        borrowed.assert_ended_well("parts");
        borrowed.assert_memory_left("parts");
        assert_eq!(borrowed.ended.stdout, plain.stdout, "{flags:?}");
        // What is touched at random does not stay as large as pages begin, and what is swept through may, or becomes larger.
        let (swept, random) = (smallest_kib(&borrowed, 1), smallest_kib(&borrowed, 2));
        let random = random.unwrap_or_else(|| panic!("{flags:?}: no size changed in part 2"));
        assert!(
            swept.is_none_or(|swept| random < swept),
            "{flags:?}: {random} KiB at random, {swept:?} where it is swept"
        );
    }
}

#[test]
fn a_python_program_names_its_parts() {
    let _alone = place::alone();
    let scratch = Scratch::new("parts-python");
    let code = "
import loam, sys
pages = bytearray(96 << 20)
for turn in range(4):
    loam.part(5)
    print(sum(pages[at] for at in range(0, len(pages), 4096)))
    for at in range(0, len(pages), 4096): pages[at] = turn + 1
";
    let program = || {
        let mut python = Command::new("python3");
        let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/python");
        python.arg("-c").arg(code).env("PYTHONPATH", bindings);
        python
    };
    let plain = program().output().expect("python3 runs");
    assert!(plain.status.success(), "the call is harmless without Loam");
    let borrow = Borrow::new(scratch.path()).embedded("2x256M").flags(&["--page", "aapc"]);
    let borrowed = borrow.run(&program(), None, LIMIT);
    borrowed.assert_ended_well("python3");
    assert_eq!(borrowed.ended.stdout, plain.stdout);
    assert!(smallest_kib(&borrowed, 5).is_some(), "no size changed in part 5");
}
