//! Fetch plans, with two threads in the same large pages: outputs are those of a plain run, what a thread waits for comes before the rest,
//! nothing comes twice, and over a slow link a fault elsewhere overtakes the rest of a page.

use loam_tests::borrow::Borrow;
use loam_tests::fake::{FakeLender, Lie};
use loam_tests::lender::Lender;
use loam_tests::place::{self, Scratch};
use loam_tests::{proxy, shell};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const LOCAL_MIB: u64 = 32;
const PLANS: [&str; 7] =
    ["lazy", "full", "eager", "pipelined", "pipelined-doubled", "pipelined-beside", "learned"];

fn two_threads(mib: u64, rounds: u64) -> Command {
    let mut command = Command::new(place::program("twothreads"));
    command.args([mib.to_string(), rounds.to_string()]);
    command
}

fn expected(command: &mut Command, scratch: &Scratch) -> String {
    let plain = shell::run(command, scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

fn every_plan(page: &str, subpage: &str) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("plans");
    let expected = expected(&mut two_threads(160, 600), &scratch);
    for plan in PLANS {
        let lender = Lender::start("512M");
        let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).not_durable().lender(lender.addr);
        let borrow = borrow.flags(&["--page", page, "--subpage", subpage, "--fetch-plan", plan]);
        let borrowed = borrow.run(&two_threads(160, 600), None, LIMIT);
        let what = format!("{plan}, page {page}, subpage {subpage}");
        borrowed.assert_ended_well(&what);
        assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{what}");
        borrowed.assert_memory_left(&what);
        assert!(borrowed.number("/faults/remote") > 100.0, "{what}: {}", borrowed.summary["faults"]);
        println!("{what}: {:.2} s", borrowed.ended.wall.as_secs_f64());
    }
}

#[test]
fn every_plan_keeps_every_byte() {
    every_plan("1M", "4K");
}

#[test]
fn every_plan_keeps_every_byte_in_larger_subpages() {
    every_plan("64K", "16K");
}

/// What a run over a slow link asked for, and when it came.
fn over_a_slow_link(plan: &str) -> proxy::Told {
    let _alone = place::alone_here();
    let scratch = Scratch::new("slow");
    let expected = expected(&mut two_threads(96, 24), &scratch);
    let lender = Lender::start("512M");
    let (link, log) = proxy::start(lender.addr);
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).not_durable().lender(link);
    let borrow = borrow.flags(&["--page", "1M", "--fetch-plan", plan, "--prefetch", "off"]);
    let borrowed = borrow.run(&two_threads(96, 24), None, LIMIT);
    borrowed.assert_ended_well(plan);
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{plan}");
    let told = proxy::read(&log);
    println!("{plan}: {told:?}");
    told
}

#[test]
fn a_fault_overtakes_the_rest_of_a_page_over_a_slow_link() {
    let told = over_a_slow_link("eager");
    assert!(told.waited > 10 && told.behind > 1000, "{told:?}");
    assert!(told.hurried > 0, "the threads meet in pages under way: {told:?}");
    assert!(told.overtakes > 10, "{told:?}");
    // The link, both sides' sockets and a frame hold some; a page has 255.
    assert!(told.before_waited_max < 255, "{told:?}");
}

#[test]
fn lazy_fetches_what_is_touched_and_full_waits_for_all() {
    let told = over_a_slow_link("lazy");
    assert!(told.behind == 0 && told.waited < 24 * 2 * 6 + 50, "{told:?}");
    let told = over_a_slow_link("full");
    assert!(told.behind == 0 && told.waited > 1000, "{told:?}");
}

/// A lender that knows nothing of it gives all the same.
#[test]
fn a_lender_without_plans_serves_every_plan() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("old");
    let expected = expected(&mut two_threads(96, 100), &scratch);
    for plan in ["eager", "pipelined", "full"] {
        let lender = FakeLender::start(Lie::None);
        let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).not_durable().lender(lender.addr);
        let borrow = borrow.flags(&["--page", "1M", "--fetch-plan", plan]);
        let borrowed = borrow.run(&two_threads(96, 100), None, LIMIT);
        borrowed.assert_ended_well(plan);
        assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{plan}");
    }
}
