//! What happens when parts die, hang, lie or fill up. The program checks its memory by itself: it never goes on with a wrong byte.

use loam_tests::borrow::{Borrow, Running};
use loam_tests::lender::{self, Lender};
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell, workloads};
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const LOCAL_MIB: u64 = 32;
/// Moments of a run: while it fills, right after, late.
const MOMENTS: [&str; 3] = ["", "filled", "pass 2"];

fn walk() -> Command {
    workloads::memwalk(96, 5, "blocks")
}

/// One that does not end by itself.
fn endless() -> Command {
    workloads::memwalk(96, workloads::ENDLESS, "blocks")
}

/// What a plain run prints.
fn expected(scratch: &Scratch) -> String {
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

fn borrow(scratch: &Scratch) -> Borrow {
    Borrow::new(scratch.path()).local_mib(LOCAL_MIB)
}

/// Waits for the moment; the first one is in the middle of filling, when pages have begun to leave.
fn wait_for(running: &mut Running, moment: &str) {
    if moment.is_empty() {
        running.wait_until_full(LOCAL_MIB);
    } else {
        running.run.wait_for_line(moment, LIMIT);
    }
}

/// Ended early: non-zero, one line, and whatever was printed before is right.
fn assert_ended_clearly(ended: &shell::Ended, expected: &str, what: &str) {
    assert_ne!(ended.code(), 0, "{what}: it should have been ended; stderr: {}", ended.stderr);
    assert!(!ended.stderr.contains("WRONG"), "{what}: the program saw wrong data: {}", ended.stderr);
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(
        expected.starts_with(&*printed) || printed.starts_with(expected),
        "{what}: printed something else: {printed}"
    );
    let ours: Vec<&str> = ended.error_lines().into_iter().filter(|line| line.starts_with("loam")).collect();
    assert_eq!(ours.len(), 1, "{what}: one line of Loam's is due, got: {}", ended.stderr);
}

/// Harm to some of three lenders under `disk`, at each moment.
fn harm_lenders(harmed: usize, harm: fn(&Lender), what: &str) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("lenders");
    let expected = expected(&scratch);
    for moment in MOMENTS {
        let what = format!("{what} at '{moment}'");
        let lenders: Vec<Lender> = (0..3).map(|_| Lender::start("512M")).collect();
        let borrow = lenders.iter().fold(borrow(&scratch), |borrow, lender| borrow.lender(lender.addr));
        let mut running = borrow.start(&endless(), None);
        wait_for(&mut running, moment);
        lenders[..harmed].iter().for_each(harm);
        procfs::wait_until(LIMIT, || running.lost() == harmed)
            .unwrap_or_else(|_| panic!("{what}: {}", running.status()["lenders"]));
        running.run.wait_for_line("pass 4", LIMIT);
        let borrowed = running.finish_endless(&expected, LIMIT, &what);
        assert_eq!(borrowed.lost(), harmed, "{what}: {}", borrowed.summary["lenders"]);
        println!("{what}: {:.1} s", borrowed.ended.wall.as_secs_f64());
    }
}

#[test]
fn one_lender_of_three_killed() {
    harm_lenders(1, Lender::kill, "one of three killed");
}

#[test]
fn all_lenders_killed() {
    harm_lenders(3, Lender::kill, "all killed");
}

#[test]
fn one_lender_of_three_hangs() {
    harm_lenders(1, Lender::stop, "one of three stopped");
}

#[test]
fn all_lenders_hang() {
    harm_lenders(3, Lender::stop, "all stopped");
}

/// Under `none` the pages of the only lender are gone with it: one clear end, never wrong data.
#[test]
fn only_lender_killed_without_disk() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("none");
    let expected = expected(&scratch);
    for moment in MOMENTS {
        let lender = Lender::start("512M");
        let mut running = borrow(&scratch).not_durable().lender(lender.addr).start(&endless(), None);
        wait_for(&mut running, moment);
        lender.kill();
        let ended = running.finish(LIMIT).ended;
        assert_ended_clearly(&ended, &expected, &format!("the only lender killed at '{moment}'"));
    }
}

/// The agent's death: the program is gone within a second, with a line, and reads no zeros meanwhile.
#[test]
fn the_agent_killed() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("agent");
    for moment in MOMENTS {
        let mut running = borrow(&scratch).embedded("1x512M").start(&endless(), None);
        wait_for(&mut running, moment);
        let program = running.program();
        assert!(!program.is_empty(), "the program runs at '{moment}'");
        procfs::send(running.run.pid(), Signal::KILL);
        let gone =
            procfs::wait_until(Duration::from_secs(5), || !program.iter().any(|&pid| procfs::runs(pid)));
        if gone.is_err() {
            program.iter().for_each(|&pid| procfs::send(pid, Signal::KILL));
        }
        let took = gone.unwrap_or_else(|_| panic!("the program outlived its agent at '{moment}'"));
        let stderr = running.run.stderr_so_far();
        assert!(took < Duration::from_secs(1), "it took {took:?} at '{moment}'");
        assert!(!stderr.contains("WRONG"), "the program saw wrong data at '{moment}': {stderr}");
        assert!(stderr.lines().any(|line| line.starts_with("loam")), "no line at '{moment}': {stderr}");
        assert_eq!(running.finish(LIMIT).ended.code(), 128 + 9);
        println!("agent killed at '{moment}': gone after {took:?}");
    }
}

/// The same with a tree of processes.
#[test]
fn the_agent_killed_beside_a_tree() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tree");
    let walk = place::program("memwalk");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{0} 64 1000000 blocks & {0} 64 1000000 sequential & wait", walk.display()));
    let mut running = borrow(&scratch).embedded("1x512M").start(&shell, None);
    running.run.wait_for_line("pass 1", LIMIT);
    let program = running.program();
    assert!(program.len() >= 3, "a shell and two programs: {program:?}");
    procfs::send(running.run.pid(), Signal::KILL);
    let gone = procfs::wait_until(Duration::from_secs(2), || !program.iter().any(|&pid| procfs::runs(pid)));
    program.iter().filter(|&&pid| procfs::runs(pid)).for_each(|&pid| procfs::send(pid, Signal::KILL));
    let stderr = running.run.stderr_so_far();
    assert!(!stderr.contains("WRONG"), "{stderr}");
    assert!(gone.is_ok_and(|took| took < Duration::from_secs(1)), "the tree outlived its agent: {gone:?}");
    drop(running);
}

/// A child made by `vfork` has its parent's memory, and is no thread of its: it is ended as well, and reads no zeros first.
#[test]
fn the_agent_killed_beside_a_child_of_vfork() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("sharer");
    for generations in [1, 2] {
        let mut program = Command::new(place::program("vforkreads"));
        program.args(["64".to_owned(), generations.to_string()]);
        let mut running = borrow(&scratch).embedded("1x512M").start(&program, None);
        running.run.wait_for_line("pass 1", LIMIT);
        let program = running.program();
        assert!(program.len() > generations, "the program and its children: {program:?}");
        procfs::send(running.run.pid(), Signal::KILL);
        let gone =
            procfs::wait_until(Duration::from_secs(5), || !program.iter().any(|&pid| procfs::runs(pid)));
        program.iter().filter(|&&pid| procfs::runs(pid)).for_each(|&pid| procfs::send(pid, Signal::KILL));
        let stderr = running.run.stderr_so_far();
        assert!(!stderr.contains("WRONG"), "{generations}: {stderr}");
        assert!(gone.is_ok_and(|took| took < Duration::from_secs(1)), "it outlived its agent: {gone:?}");
        assert!(stderr.lines().any(|line| line.starts_with("loam")), "{generations}: no line: {stderr}");
        drop(running);
    }
}

#[test]
fn no_lender_at_all() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("alone");
    let expected = expected(&scratch);
    let borrowed = borrow(&scratch).run(&walk(), None, LIMIT);
    borrowed.assert_right(&expected, "no lender");
    assert!(borrowed.number("/faults/disk") > 0.0, "{}", borrowed.summary);
}

#[test]
fn an_unreachable_lender_under_disk() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("unreachable");
    let expected = expected(&scratch);
    let borrowed = borrow(&scratch).lender(lender::free_addr()).run(&walk(), None, LIMIT);
    borrowed.assert_right(&expected, "nobody listens there");
    assert_eq!(borrowed.lost(), 1, "{}", borrowed.summary);
    assert!(!borrowed.warnings().is_empty(), "the summary says so: {}", borrowed.summary);
}

#[test]
fn an_unreachable_lender_under_none() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("unreachable-none");
    let ended = borrow(&scratch).not_durable().lender(lender::free_addr()).run(&walk(), None, LIMIT).ended;
    assert_ended_clearly(&ended, "", "the only lender under none is not there");
}

/// A lender with less room than the program needs, under `disk`: the rest is on disk.
#[test]
fn a_small_lender() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("small");
    let expected = expected(&scratch);
    let lender = Lender::start("32M");
    let borrowed = borrow(&scratch).lender(lender.addr).run(&walk(), None, LIMIT);
    borrowed.assert_right(&expected, "a lender of 32M");
    assert_eq!(borrowed.lost(), 0, "a full lender is not lost: {}", borrowed.summary);
}

/// Twice the budget locked: it cannot be held, the program goes on, the summary says so.
#[test]
fn more_locked_than_the_budget() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("locked");
    let mut program = Command::new(place::program("traps"));
    program.args(["mlock_most", "--mib", "128", "--dir"]).arg(scratch.path());
    let borrowed = borrow(&scratch).embedded("1x512M").run(&program, None, LIMIT);
    borrowed.assert_ended_well("locked");
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), "ok mlock_most\n");
    assert!(!borrowed.warnings().is_empty(), "a budget that was not held is told: {}", borrowed.summary);
}
