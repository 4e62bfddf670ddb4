//! A run in a cluster: lenders that join while it runs, die and come back; a daemon that dies; where pages go. What the program prints
//! must be what it prints without Loam.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::daemon::{FakeDaemon, Node};
use loam_tests::lender::Lender;
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell, workloads};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const SECOND_NS: u64 = 1_000_000_000;

fn walk() -> Command {
    workloads::memwalk(96, 6, "blocks")
}

/// One that a test ends when it has seen what it waits for.
fn endless() -> Command {
    workloads::memwalk(96, workloads::ENDLESS, "blocks")
}

/// What a plain run prints.
fn expected(scratch: &Scratch) -> String {
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

fn borrow(scratch: &Scratch, daemon: &FakeDaemon) -> Borrow {
    Borrow::new(scratch.path()).flags(&["--node", &daemon.socket.to_string_lossy()])
}

fn node(id: u64, lender: &Lender, weight: u32) -> Node {
    Node { id, addr: lender.addr, weight }
}

fn assert_right(borrowed: &Borrowed, expected: &str, what: &str) {
    borrowed.assert_ended_well(what);
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{what}");
    borrowed.assert_memory_left(what);
}

/// A figure of the lender at this address, over all its lives.
fn of(borrowed: &Borrowed, lender: &Lender, key: &str) -> f64 {
    figure(&borrowed.summary, lender, key)
}

fn received(status: &Value, lender: &Lender) -> f64 {
    figure(status, lender, "received_bytes")
}

fn figure(summary: &Value, lender: &Lender, key: &str) -> f64 {
    let lenders = summary["lenders"].as_array().expect("a list");
    let here = lenders.iter().filter(|l| l["addr"] == lender.addr.to_string().as_str());
    here.filter_map(|l| l[key].as_f64()).sum()
}

fn wait_for_pages(lender: &Lender, what: &str) {
    let came = procfs::wait_until(Duration::from_secs(60), || lender.figures().puts.get() > 0);
    came.unwrap_or_else(|_| panic!("{what}: no page ever came to {}", lender.addr));
}

#[test]
fn lenders_join_in_the_middle_of_a_run() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("join");
    let expected = expected(&scratch);
    let lenders: Vec<Lender> = (0..3).map(|_| Lender::start("512M")).collect();
    // At first nobody lends.
    let daemon = FakeDaemon::start(scratch.path(), &[]);
    let mut running = borrow(&scratch, &daemon).start(&endless(), None);
    running.run.wait_for_line("filled", LIMIT);
    daemon.change(&[node(1, &lenders[0], 0)]);
    wait_for_pages(&lenders[0], "the first to lend");
    daemon.change(&[node(1, &lenders[0], 0), node(2, &lenders[1], 0), node(3, &lenders[2], 0)]);
    wait_for_pages(&lenders[1], "the second to lend");
    // All of them, and pages come back from them.
    let all_joined =
        || running.status()["lenders_joined"] == 3 && received(&running.status(), &lenders[0]) > 0.0;
    procfs::wait_until(LIMIT, all_joined).unwrap_or_else(|_| panic!("{}", running.status()));
    let borrowed = running.finish_endless(&expected, LIMIT, "lenders that join");
    assert_eq!((borrowed.number("/lenders_joined"), borrowed.number("/lenders_lost")), (3.0, 0.0));
    assert!(of(&borrowed, &lenders[0], "received_bytes") > 0.0, "{}", borrowed.summary);
    assert_eq!(borrowed.summary["placement"], "gms");
}

#[test]
fn a_lender_dies_and_comes_back_as_another() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("back");
    let expected = expected(&scratch);
    let (first, other) = (Lender::start("512M"), Lender::start("512M"));
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &first, 0), node(2, &other, 0)]);
    let mut running = borrow(&scratch, &daemon).start(&endless(), None);
    wait_for_pages(&first, "the one that dies");
    let addr = first.addr;
    drop(first);
    daemon.change(&[node(2, &other, 0)]);
    running.run.wait_for_line("filled", LIMIT);
    let again = Lender::start_at("512M", addr);
    daemon.change(&[node(2, &other, 0), node(3, &again, 0)]);
    wait_for_pages(&again, "the one that came back");
    let borrowed = running.finish_endless(&expected, LIMIT, "a lender that comes back");
    assert_eq!((borrowed.number("/lenders_joined"), borrowed.number("/lenders_lost")), (3.0, 1.0));
    assert!(borrowed.lost() <= 1, "its place may be another's by now: {}", borrowed.summary["lenders"]);
}

/// It is given up, and joined again as soon as it answers; in vain tries hold nobody up.
#[test]
fn a_lender_hangs_and_goes_on() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("hang");
    let expected = expected(&scratch);
    let (hangs, other) = (Lender::start("512M"), Lender::start("512M"));
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &hangs, 0), node(2, &other, 0)]);
    let mut running = borrow(&scratch, &daemon).start(&endless(), None);
    wait_for_pages(&hangs, "the one that hangs");
    hangs.stop();
    running.run.wait_for_line("pass 2", LIMIT);
    hangs.go_on();
    running.run.wait_for_line("pass 4", LIMIT);
    let borrowed = running.finish_endless(&expected, LIMIT, "a lender that hangs for a while");
    println!("{}", borrowed.summary["lenders"]);
}

#[test]
fn the_daemon_dies_and_another_comes() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("daemon");
    let expected = expected(&scratch);
    let (first, second) = (Lender::start("512M"), Lender::start("512M"));
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &first, 1)]);
    daemon.begin_epoch(SECOND_NS);
    let mut running = borrow(&scratch, &daemon).start(&endless(), None);
    wait_for_pages(&first, "before the daemon's end");
    daemon.kill();
    running.run.wait_for_line("filled", LIMIT);
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &first, 1), node(2, &second, 1000)]);
    daemon.begin_epoch(SECOND_NS);
    wait_for_pages(&second, "of the new daemon's view");
    let borrowed = running.finish_endless(&expected, LIMIT, "a daemon that dies");
    assert_eq!((borrowed.number("/lenders_joined"), borrowed.number("/lenders_lost")), (2.0, 0.0));
    assert!(borrowed.warnings().iter().any(|line| line.contains("daemon")), "{:?}", borrowed.warnings());
}

#[test]
fn pages_go_by_the_weights_of_the_epoch() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("weights");
    let expected = expected(&scratch);
    let (idle, busy) = (Lender::start("512M"), Lender::start("512M"));
    let nodes = |idle_weight| [node(1, &idle, idle_weight), node(2, &busy, 0)];
    let daemon = FakeDaemon::start(scratch.path(), &nodes(5));
    daemon.begin_epoch(SECOND_NS);
    let borrowed = borrow(&scratch, &daemon).run(&walk(), None, LIMIT);
    assert_right(&borrowed, &expected, "one weight of two");
    assert_eq!(of(&borrowed, &busy, "sent_bytes"), 0.0, "{}", borrowed.summary["lenders"]);
    assert!(of(&borrowed, &idle, "sent_bytes") > 0.0, "{}", borrowed.summary["lenders"]);
    // MinAge 0: nobody has old pages to give up.
    daemon.begin_epoch(0);
    let borrowed = borrow(&scratch, &daemon).run(&walk(), None, LIMIT);
    assert_right(&borrowed, &expected, "MinAge 0");
    assert_eq!(borrowed.number("/bytes/out"), 0.0, "{}", borrowed.summary["lenders"]);
    // Chance alone does not ask for weights.
    for placement in ["n-chance", "random", "round-robin"] {
        let borrowed = borrow(&scratch, &daemon).flags(&["--placement", placement]).run(&walk(), None, LIMIT);
        assert_right(&borrowed, &expected, placement);
        for lender in [&idle, &busy] {
            assert!(
                of(&borrowed, lender, "sent_bytes") > 0.0,
                "{placement}: {}",
                borrowed.summary["lenders"]
            );
        }
    }
}

#[test]
fn a_full_lender_passes_pages_on_under_n_chance() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("chance");
    let expected = expected(&scratch);
    let (small, large) = (Lender::start("2M"), Lender::start("512M"));
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &small, 0), node(2, &large, 0)]);
    let flags = ["--placement", "n-chance", "--guard-scans", "on"];
    let borrowed = borrow(&scratch, &daemon).flags(&flags).run(&walk(), None, LIMIT);
    assert_right(&borrowed, &expected, "a small lender and a large one");
    assert!(of(&borrowed, &small, "sent_bytes") > f64::from(4 << 20), "it was asked again and again");
    assert_eq!(borrowed.lost(), 0, "{}", borrowed.summary["lenders"]);
}

#[test]
fn a_run_takes_no_more_than_its_share() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("share");
    let expected = expected(&scratch);
    let lender = Lender::start("512M");
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &lender, 0)]);
    let mut running = borrow(&scratch, &daemon).flags(&["--lend-max", "8M"]).start(&walk(), None);
    for line in ["filled", "pass 1", "pass 2"] {
        running.run.wait_for_line(line, LIMIT);
        let used = lender.figures().used_bytes.get();
        assert!((1..=8 << 20).contains(&used), "{used} bytes are lent at '{line}'");
    }
    let borrowed = running.finish(LIMIT);
    assert_right(&borrowed, &expected, "a share of 8 MiB");
    assert!(borrowed.number("/faults/disk") > 0.0, "{}", borrowed.summary);
}

#[test]
fn without_a_disk_a_lender_that_joins_is_used_too() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("join-none");
    let expected = expected(&scratch);
    let (first, second) = (Lender::start("512M"), Lender::start("512M"));
    let daemon = FakeDaemon::start(scratch.path(), &[node(1, &first, 0)]);
    let mut running = borrow(&scratch, &daemon).not_durable().start(&endless(), None);
    running.run.wait_for_line("filled", LIMIT);
    daemon.change(&[node(1, &first, 1), node(2, &second, 1000)]);
    daemon.begin_epoch(SECOND_NS);
    wait_for_pages(&second, "the second to lend");
    let borrowed = running.finish_endless(&expected, LIMIT, "no disk");
    assert_eq!(borrowed.number("/faults/disk"), 0.0);
    assert_eq!(daemon.subscribers().min(1), 1, "the run listened to its end");
}

#[test]
fn what_cannot_be_had_is_told_in_one_line() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("refused");
    let missing = scratch.join("none.sock").to_string_lossy().into_owned();
    let empty = FakeDaemon::start(scratch.path(), &[]);
    let socket = empty.socket.to_string_lossy().into_owned();
    for (flags, due) in [
        (vec!["--node", &missing], "loam node"),
        (vec!["--node", &missing, "--lender", "127.0.0.1:1"], "--lender"),
        (vec!["--node", &socket, "--durability", "none"], "no lender of the cluster"),
        (vec!["--node", &socket, "--durability", "none", "--lend-max", "8M"], "--lend-max"),
        (vec!["--node", &socket, "--durability", "none", "--placement", "none"], "--placement none"),
        (vec!["--durability", "none"], "loam node"),
        (vec!["--placement", "best"], "best"),
    ] {
        let mut command = shell::that_dies_with_us(&place::loam());
        command.args(["run", "--local", "32M", "--quiet"]).args(&flags).args(["--", "true"]);
        let ended = shell::run(&mut command, scratch.path(), "refused", LIMIT);
        assert_eq!(ended.code(), 125, "{flags:?}: {}", ended.stderr);
        let lines = ended.error_lines();
        assert!(lines.len() == 1 && lines[0].contains(due), "{flags:?}: {}", ended.stderr);
    }
}
