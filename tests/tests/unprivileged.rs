//! A user who may not hear of forks (no CAP_SYS_PTRACE): the fork itself brings home what the child could read.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::shell;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 128;
const LIMIT: Duration = Duration::from_secs(90);
/// With memory that the program itself hides from its children, or wants empty there; and memory that grows, where the new part is not hidden yet.
const TRAPS: &[&str] = &[
    "fork_tree",
    "fork_both_write",
    "fork_wipe",
    "fork_dont",
    "fork_dont_at_fork",
    "fork_over_kept",
    "fork_grown",
    "fork_growing",
    "mremap_grow_by_pages",
];

#[test]
fn memory_is_as_it_should_be_without_fork_events() {
    let _alone = place::alone_here();
    if !place::is_root() {
        println!("passed over: needs root, to give a capability up");
        return;
    }
    let scratch = Scratch::new("unprivileged");
    for name in TRAPS {
        let mut trap = Command::new(place::program("traps"));
        // It forks 120 times, and all that has left comes home for each: there is to be little of that.
        let (mib, local_mib) = if *name == "fork_growing" { (MIB / 2, MIB * 5 / 8) } else { (MIB, MIB / 4) };
        trap.args([name, "--mib", &mib.to_string(), "--limit", "60", "--dir"]).arg(scratch.path());
        trap.current_dir(scratch.path());
        let mut command =
            Borrow::new(scratch.path()).without_fork_events().local_mib(local_mib).command(&trap);
        let ended = shell::run(&mut command, scratch.path(), "loam", LIMIT);
        let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(ended.code(), 0, "{name}: stdout: {stdout}stderr: {}", ended.stderr);
        assert!(stdout.lines().any(|line| line == format!("ok {name}")), "{name}: stdout: {stdout}");
    }
}
