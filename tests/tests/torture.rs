//! Everything that a program may do to its memory, at random: `tests/programs/torture.c`. More seeds by `TORTURE_SEEDS` (`make torture`).

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// How many seeds each test takes, and the first of them.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, usual| {
        std::env::var(name).map_or(usual, |said| said.parse().expect("a number of seeds, and the first"))
    };
    let first = number("TORTURE_FIRST", 1);
    first..first + number("TORTURE_SEEDS", 1)
}

/// Runs each seed to its end. It says nothing unless something is wrong. `size`: steps, threads and pages; `first`: the seeds begin behind it.
fn survive(what: &str, first: u64, size: [u32; 3], change: impl Fn(Borrow) -> Borrow) {
    let _alone = place::alone_here();
    let mut moved = 0.0;
    for seed in seeds().map(|seed| first + seed) {
        let scratch = Scratch::new(what);
        let mut program = Command::new(place::program("torture"));
        program.arg(seed.to_string()).args(size.map(|number| number.to_string()));
        program.current_dir(scratch.path());
        let run = change(Borrow::new(scratch.path()).local_mib(40)).run(&program, None, LIMIT);
        let which = format!("{what}, seed {seed}");
        run.assert_ended_well(&which);
        assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "", "{which}");
        moved += run.number("/evictions/moved");
    }
    // Each by itself need not: with some seeds a small one never has more than its limit.
    assert!(moved > 1_000.0, "{what}: {moved} pages left: nothing was tested");
}

#[test]
fn with_lenders() {
    survive("torture", 0, [600, 2, 16_384], |borrow| borrow.embedded("2x1G").durability("staged"));
}

#[test]
fn with_a_disk_alone() {
    survive("torturedisk", 0, [600, 3, 16_384], |borrow| borrow);
}

/// What is shared with a child does not leave for a while there, so this one has less of it.
#[test]
fn without_fork_events() {
    if !place::is_root() {
        println!("passed over: needs root, to give a capability up");
        return;
    }
    survive("torture-unheard", 10, [400, 2, 8_192], |borrow| {
        borrow.embedded("2x1G").durability("staged").without_fork_events().local_mib(60)
    });
}
