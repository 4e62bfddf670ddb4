//! A lender's machine wants its memory back in the middle of a run. What that machine has is said by a file of ours.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::lender::Lender;
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell, workloads};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A lender on a machine that has as much memory as a test says.
struct Machine {
    root: PathBuf,
    lender: Lender,
}

impl Machine {
    fn new(scratch: &Scratch, name: &str) -> Self {
        let root = scratch.join(name);
        std::fs::create_dir_all(root.join("proc")).expect("the scratch folder is writable");
        has(&root, 4 << 20);
        let at = root.to_str().expect("UTF-8").to_owned();
        let lender = Lender::start_with("512M", &["--keep", "64M", "--machine-root", &at]);
        Self { root, lender }
    }

    /// Its own programs take all that there is.
    fn is_wanted(&self) {
        has(&self.root, 0);
    }

    /// What it says of itself.
    fn memory(&self) -> serde_json::Value {
        let addr = self.lender.addr.to_string();
        let output = Command::new(place::loam())
            .args(["status", "--json", "--lender", &addr])
            .output()
            .expect("loam can be started");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["lenders"][0]["memory"].clone()
    }

    fn slab_bytes(&self) -> u64 {
        self.memory()["slab_bytes"].as_u64().expect("a number")
    }
}

fn has(root: &std::path::Path, available_kib: u64) {
    let text = format!("MemTotal: {} kB\nMemAvailable: {available_kib} kB\n", 8 << 20);
    let new = root.join("new");
    std::fs::write(&new, text).expect("writable");
    std::fs::rename(new, root.join("proc/meminfo")).expect("writable");
}

fn walk() -> Command {
    workloads::memwalk(160, 12, "blocks")
}

fn expected(scratch: &Scratch) -> Vec<u8> {
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    plain.stdout
}

fn ended_well(borrowed: &Borrowed, expected: &[u8], what: &str) {
    borrowed.assert_ended_well(what);
    borrowed.assert_memory_left(what);
    assert!(borrowed.ended.stdout == expected, "{what}: another output");
    assert_eq!(borrowed.lost(), 0, "{what}: {}", borrowed.summary);
}

#[test]
fn spare_copies_are_dropped_and_the_run_goes_on_from_its_disk() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("giveback-disk");
    let expected = expected(&scratch);
    let machine = Machine::new(&scratch, "machine");
    let borrow = Borrow::new(scratch.path()).local_mib(48).lender(machine.lender.addr);
    let mut running = borrow.start(&walk(), None);
    running.run.wait_for_line("pass 1", LIMIT);
    assert!(machine.slab_bytes() > 64 << 20, "nothing was lent: {}", machine.memory());
    machine.is_wanted();
    procfs::wait_until(LIMIT, || machine.slab_bytes() == 0).expect("its memory is given back");
    let memory = machine.memory();
    assert!(memory["dropped_pages"].as_u64() > Some(0) && memory["kept_pages"] == 0, "{memory}");
    ended_well(&running.finish(LIMIT), &expected, "disk");
}

#[test]
fn only_copies_move_to_another_lender() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("giveback-move");
    let expected = expected(&scratch);
    let (first, second) = (Machine::new(&scratch, "first"), Machine::new(&scratch, "second"));
    let borrow = Borrow::new(scratch.path())
        .local_mib(48)
        .not_durable()
        .lender(first.lender.addr)
        .lender(second.lender.addr);
    let mut running = borrow.start(&walk(), None);
    running.run.wait_for_line("pass 1", LIMIT);
    assert!(first.slab_bytes() > 32 << 20, "nothing was lent: {}", first.memory());
    first.is_wanted();
    procfs::wait_until(LIMIT, || first.slab_bytes() == 0).expect("its memory is given back");
    let memory = first.memory();
    assert!(memory["recalled_pages"].as_u64() > Some(0) && memory["dropped_pages"] == 0, "{memory}");
    // It has nothing any more: its death is nobody's loss.
    first.lender.kill();
    let borrowed = running.finish(LIMIT);
    borrowed.assert_ended_well("moved");
    borrowed.assert_memory_left("moved");
    assert!(borrowed.ended.stdout == expected, "another output");
}

#[test]
fn only_copies_that_no_lender_takes_go_to_the_disk() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("giveback-spill");
    let expected = expected(&scratch);
    let machine = Machine::new(&scratch, "machine");
    let borrow = Borrow::new(scratch.path()).local_mib(48).not_durable().lender(machine.lender.addr);
    let mut running = borrow.start(&walk(), None);
    running.run.wait_for_line("pass 1", LIMIT);
    machine.is_wanted();
    procfs::wait_until(LIMIT, || machine.slab_bytes() == 0).expect("its memory is given back");
    let borrowed = running.finish(LIMIT);
    ended_well(&borrowed, &expected, "spilled");
    let told = borrowed.warnings().join("\n");
    assert!(told.contains("a lender wants its memory back"), "nobody was told: {told}");
}

#[test]
fn only_copies_that_nobody_takes_stay() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("giveback-stay");
    let expected = expected(&scratch);
    let machine = Machine::new(&scratch, "machine");
    let slots = scratch.join("slots");
    let borrow =
        Borrow::new(scratch.path()).local_mib(48).not_durable().disk(&slots).lender(machine.lender.addr);
    let mut running = borrow.start(&walk(), None);
    running.run.wait_for_line("pass 1", LIMIT);
    assert!(machine.slab_bytes() > 64 << 20, "nothing was lent: {}", machine.memory());
    // No slot file can be made where there is no folder any more.
    std::fs::remove_dir(&slots).expect("nothing has been written there");
    std::fs::write(&slots, "a file").expect("writable");
    machine.is_wanted();
    // As long as the program changes pages, some of what was asked for goes by itself: then it is not said that all of it stays.
    procfs::wait_until(LIMIT, || machine.memory()["kept_pages"].as_u64() > Some(0) || !running.run.runs())
        .expect("it says what it keeps, or the run ends");
    let memory = machine.memory();
    assert_eq!(memory["dropped_pages"], 0, "{memory}");
    let borrowed = running.finish(LIMIT);
    // What leaves from then on finds no place, so the budget cannot be held; no page is lost.
    borrowed.assert_ended_well("kept");
    assert!(borrowed.ended.stdout == expected, "another output");
    assert_eq!(borrowed.lost(), 0, "{}", borrowed.summary);
    let told = borrowed.warnings().join("\n");
    assert!(told.contains("there is nowhere else to take"), "nobody was told: {told}");
}
