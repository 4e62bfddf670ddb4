//! Pages at several lenders and on none of our own disks: one lender may die at any moment, more of them one after the other. The program checks
//! its memory by itself.

use loam_tests::borrow::{Borrow, Borrowed, Running};
use loam_tests::lender::{self, Lender};
use loam_tests::place::{self, Scratch};
use loam_tests::workloads::{self, ENDLESS};
use loam_tests::{procfs, shell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const LOCAL_MIB: u64 = 32;
const MOMENTS: [&str; 2] = ["filling", "pass 2"];

fn walk(passes: u64) -> Command {
    workloads::memwalk(96, passes, "blocks")
}

/// What a plain run prints.
fn expected(scratch: &Scratch, passes: u64) -> String {
    let plain = shell::run(&mut walk(passes), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

fn borrow(scratch: &Scratch, durability: &'static str, lenders: &[Lender]) -> Borrow {
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).durability(durability);
    lenders.iter().fold(borrow, |borrow, lender| borrow.lender(lender.addr))
}

fn lenders(count: usize) -> Vec<Lender> {
    (0..count).map(|_| Lender::start("512M")).collect()
}

/// Waits for the moment; the first one is in the middle of filling, when pages have begun to leave.
fn wait_for(running: &mut Running, moment: &str) {
    if moment == "filling" {
        running.wait_until_full(LOCAL_MIB);
    } else {
        running.run.wait_for_line(moment, LIMIT);
    }
}

fn slot_file_is_used(borrowed: &Borrowed) -> bool {
    borrowed.number("/bytes/disk_written") > 0.0
}

/// Each page that leaves goes to two lenders, and to no disk of this machine.
#[test]
fn two_lenders_have_each_page() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged");
    let lenders = lenders(3);
    let borrowed = borrow(&scratch, "staged", &lenders).run(&walk(3), None, LIMIT);
    borrowed.assert_right(&expected(&scratch, 3), "staged");
    assert!(!slot_file_is_used(&borrowed), "{}", borrowed.summary);
    let new = borrowed.number("/evictions/moved")
        - borrowed.number("/evictions/clean")
        - borrowed.number("/evictions/zero");
    let sent = borrowed.number("/staging/sent");
    assert!(sent <= 2.0 * new, "{sent} pages were sent for {new} that left with new contents");
    assert!(sent > 1.5 * new, "{sent} pages were sent for {new} that left with new contents");
}

/// One of three dies or hangs at each moment: nothing is lost, and what it had is with two others again.
fn harm_one(durability: &'static str, harm: fn(&Lender), what: &str) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-one");
    let expected = expected(&scratch, 5);
    for moment in MOMENTS {
        let what = format!("{durability}: {what} at '{moment}'");
        let lenders = lenders(3);
        let mut running = borrow(&scratch, durability, &lenders).start(&walk(ENDLESS), None);
        wait_for(&mut running, moment);
        harm(&lenders[0]);
        wait_until_mended(&running, 1);
        running.run.wait_for_line("pass 4", LIMIT);
        let borrowed = running.finish_endless(&expected, LIMIT, &what);
        assert_eq!(borrowed.lost(), 1, "{what}: {}", borrowed.summary["lenders"]);
        assert!(borrowed.number("/staging/mended") > 0.0, "{what}: nothing was mended: {}", borrowed.summary);
        println!("{what}: {:.1} s", borrowed.ended.wall.as_secs_f64());
    }
}

#[test]
fn one_of_three_killed() {
    harm_one("staged", Lender::kill, "one of three killed");
}

#[test]
fn one_of_three_hangs() {
    harm_one("staged", Lender::stop, "one of three stopped");
}

/// Two of three replicas die at once.
#[test]
fn two_of_four_killed_at_once_under_three_replicas() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("replicas");
    let expected = expected(&scratch, 5);
    for moment in MOMENTS {
        let lenders = lenders(4);
        let mut running = borrow(&scratch, "replicas=3", &lenders).start(&walk(ENDLESS), None);
        wait_for(&mut running, moment);
        lenders[1..3].iter().for_each(Lender::kill);
        procfs::wait_until(LIMIT, || running.lost() == 2).expect("it notices");
        running.run.wait_for_line("pass 4", LIMIT);
        let borrowed = running.finish_endless(&expected, LIMIT, moment);
        assert_eq!(borrowed.lost(), 2, "{moment}: {}", borrowed.summary["lenders"]);
    }
}

/// Waits until so many lenders are lost, and nothing more is mended.
fn wait_until_mended(running: &Running, lost: usize) {
    procfs::wait_until(LIMIT, || running.lost() == lost).expect("it notices");
    let mended = || running.status()["staging"]["mended"].as_u64().expect("a number");
    let mut last = 0;
    let rests = || {
        std::thread::sleep(Duration::from_millis(700));
        let before = std::mem::replace(&mut last, mended());
        last > 0 && last == before
    };
    procfs::wait_until(LIMIT, rests).expect("it comes to an end");
}

/// One lender after the other dies, with time in between: with the last one gone the slot file has everything.
#[test]
fn one_after_the_other_killed() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-all");
    let lenders = lenders(3);
    let mut running = borrow(&scratch, "staged", &lenders).start(&walk(ENDLESS), None);
    wait_for(&mut running, "filled");
    for (lost, lender) in (1..).zip(&lenders) {
        lender.kill();
        wait_until_mended(&running, lost);
    }
    let borrowed = running.finish_endless(&expected(&scratch, 12), LIMIT, "one after the other killed");
    assert_eq!(borrowed.lost(), 3, "{}", borrowed.summary["lenders"]);
    assert!(slot_file_is_used(&borrowed), "{}", borrowed.summary);
}

/// Both of two die at once: one clear end, never wrong data.
#[test]
fn both_killed() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-both");
    let expected = expected(&scratch, 5);
    let lenders = lenders(2);
    let mut running = borrow(&scratch, "staged", &lenders).start(&walk(ENDLESS), None);
    wait_for(&mut running, "filled");
    lenders.iter().for_each(Lender::kill);
    let ended = running.finish(LIMIT).ended;
    assert_ne!(ended.code(), 0, "it should have been ended; stderr: {}", ended.stderr);
    assert!(!ended.stderr.contains("WRONG"), "the program saw wrong data: {}", ended.stderr);
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(expected.starts_with(&*printed) || printed.starts_with(&expected), "printed something else");
    assert!(ended.stderr.contains("nobody else has"), "{}", ended.stderr);
}

/// With one lender the slot file is the other place, and with none the only one.
#[test]
fn too_few_lenders() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-few");
    let expected = expected(&scratch, 3);
    for count in 0..2 {
        let lenders = lenders(count);
        let borrowed = borrow(&scratch, "staged", &lenders).run(&walk(3), None, LIMIT);
        borrowed.assert_right(&expected, &format!("{count} lenders"));
        assert!(slot_file_is_used(&borrowed), "{count} lenders: {}", borrowed.summary);
    }
}

/// Lenders without room for everything: the slot file takes what they refuse.
#[test]
fn lenders_that_are_too_small() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-small");
    let expected = expected(&scratch, 3);
    let lenders: Vec<Lender> = (0..2).map(|_| Lender::start("32M")).collect();
    let borrowed = borrow(&scratch, "staged", &lenders).run(&walk(3), None, LIMIT);
    borrowed.assert_right(&expected, "two lenders of 32M");
    assert_eq!(borrowed.lost(), 0, "a full lender is not lost: {}", borrowed.summary);
    assert!(slot_file_is_used(&borrowed), "{}", borrowed.summary);
}

/// A lender with a disk of its own.
struct Stored {
    lender: Option<Lender>,
    addr: SocketAddr,
    store: PathBuf,
}

impl Stored {
    fn start(scratch: &Scratch, n: usize) -> Self {
        let store = scratch.path().join(format!("store{n}"));
        let mut stored = Self { lender: None, addr: lender::free_addr(), store };
        stored.again();
        stored
    }

    /// Starts it (again), at its address and on its disk.
    fn again(&mut self) {
        self.lender = None;
        let store = self.store.display().to_string();
        // (The walk changes its pages every second or so: lenders that let them linger would write none.)
        let flags = ["--store", &store, "--store-size", "512M", "--store-linger-ms", "0"];
        self.lender = Some(Lender::start_at_with("512M", self.addr, &flags));
    }

    fn lender(&self) -> &Lender {
        self.lender.as_ref().expect("it has been started")
    }
}

/// What lenders have written to their disks is still theirs when they have been killed, one after the other and all of them, and have come back.
fn lenders_come_back(end: fn(&Lender), what: &str) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-disk");
    let mut lenders: Vec<Stored> = (0..2).map(|n| Stored::start(&scratch, n)).collect();
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).durability("staged");
    let borrow = lenders.iter().fold(borrow, |borrow, lender| borrow.lender(lender.addr));
    let mut running = borrow.start(&walk(ENDLESS), None);
    wait_for(&mut running, "filled");
    for n in [0, 1, 0] {
        // Something of the program is on its disk.
        let stored = || running.status()["staging"]["stored"].as_u64().expect("a number");
        procfs::wait_until(LIMIT, || stored() > 4_000).expect("lenders write to their disks");
        end(lenders[n].lender());
        std::thread::sleep(Duration::from_millis(300));
        lenders[n].again();
        let back = || {
            let status = running.status();
            let lenders = status["lenders"].as_array().expect("a list");
            lenders.iter().all(|lender| lender["lost"] == false && lender["why"] == "")
        };
        procfs::wait_until(LIMIT, back).unwrap_or_else(|_| panic!("{what}: {}", running.status()));
        // What was with it in memory alone is with both again.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let borrowed = running.finish_endless(&expected(&scratch, 12), LIMIT, what);
    assert_eq!(borrowed.lost(), 0, "{what}: {}", borrowed.summary["lenders"]);
    println!("{what}: {:.1} s", borrowed.ended.wall.as_secs_f64());
}

/// What was reserved at a lender is gone with it; when it has come back it is reserved again.
#[test]
fn a_lender_that_comes_back_sets_room_aside_again() {
    const RESERVED: u64 = 100 << 20;
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-reserve");
    let mut lenders: Vec<Stored> = (0..2).map(|n| Stored::start(&scratch, n)).collect();
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).durability("staged");
    let borrow = borrow.flags(&["--reserve=100M"]);
    let borrow = lenders.iter().fold(borrow, |borrow, lender| borrow.lender(lender.addr));
    let mut running = borrow.start(&walk(ENDLESS), None);
    wait_for(&mut running, "filled");
    let still = |running: &Running| running.status()["reservation"]["reserved_bytes"].as_u64();
    assert_eq!(still(&running), Some(2 * RESERVED));
    let stored = || running.status()["staging"]["stored"].as_u64().expect("a number");
    procfs::wait_until(LIMIT, || stored() > 4_000).expect("lenders write to their disks");
    lenders[0].lender().kill();
    procfs::wait_until(LIMIT, || still(&running) == Some(RESERVED)).expect("half of it is gone");
    lenders[0].again();
    procfs::wait_until(LIMIT, || lenders[0].lender().reserved_bytes() == RESERVED).expect("asked for again");
    procfs::wait_until(LIMIT, || still(&running) == Some(2 * RESERVED)).expect("and told");
    let borrowed = running.finish_endless(&expected(&scratch, 12), LIMIT, "reserved again");
    assert_eq!(borrowed.lost(), 0, "{}", borrowed.summary["lenders"]);
    let free = || lenders.iter().all(|lender| lender.lender().reserved_bytes() == 0);
    procfs::wait_until(LIMIT, free).expect("it ends with the run");
}

#[test]
fn lenders_with_disks_are_killed_and_come_back() {
    lenders_come_back(Lender::kill, "killed");
}

#[test]
fn lenders_with_disks_are_restarted_in_good_order() {
    lenders_come_back(Lender::terminate, "restarted");
}

/// A lender that has pages on its disk alone and does not come back: whoever needs them waits, and then the program is ended. Here it comes back
/// late, and everything goes on.
#[test]
fn a_program_waits_for_a_lender_that_is_late() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("staged-late");
    let mut lenders: Vec<Stored> = (0..2).map(|n| Stored::start(&scratch, n)).collect();
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).durability("staged");
    let borrow = lenders.iter().fold(borrow, |borrow, lender| borrow.lender(lender.addr));
    let mut running = borrow.start(&walk(ENDLESS), None);
    wait_for(&mut running, "pass 2");
    let stored = || running.status()["staging"]["stored"].as_u64().expect("a number");
    procfs::wait_until(LIMIT, || stored() > 4_000).expect("lenders write to their disks");
    lenders[0].lender().kill();
    std::thread::sleep(Duration::from_secs(8));
    lenders[0].again();
    std::thread::sleep(Duration::from_secs(1));
    let borrowed = running.finish_endless(&expected(&scratch, 12), LIMIT, "late");
    assert_eq!(borrowed.lost(), 0, "{}", borrowed.summary["lenders"]);
}
