//! Lenders that answer wrongly, late or never: under `disk` no byte is lost and the summary tells; under `none` the run ends with one
//! line. The program checks its memory by itself.

use loam_tests::borrow::Borrow;
use loam_tests::fake::{self, FakeLender, Lie};
use loam_tests::lender::Lender;
use loam_tests::place::{self, Scratch};
use loam_tests::{shell, workloads};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const LOCAL_MIB: u64 = 32;

fn walk() -> Command {
    workloads::memwalk(80, 3, "blocks")
}

fn expected(scratch: &Scratch) -> String {
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

/// A run under `disk` with the liar, and an honest lender if asked for.
fn survives(lie: Lie, with_honest: bool, is_lost: bool) {
    let _alone = place::alone_here();
    let what = format!("{lie:?}{}", if with_honest { " beside an honest one" } else { "" });
    let scratch = Scratch::new("liar");
    let expected = expected(&scratch);
    let liar = FakeLender::start(lie);
    let honest = with_honest.then(|| Lender::start("512M"));
    let mut borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).lender(liar.addr);
    if let Some(honest) = &honest {
        borrow = borrow.lender(honest.addr);
    }
    let borrowed = borrow.run(&walk(), None, LIMIT);
    borrowed.assert_ended_well(&what);
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "{what}");
    borrowed.assert_memory_left(&what);
    assert!(lie == Lie::None || liar.lied() > 0, "{what}: it never came to that; nothing was tested");
    assert_eq!(borrowed.lost(), usize::from(is_lost), "{what}: {}", borrowed.summary["lenders"]);
    if is_lost {
        let why = borrowed.summary["lenders"][0]["why"].as_str().unwrap_or_default().to_owned();
        assert!(!why.is_empty(), "{what}: the summary says why: {}", borrowed.summary);
        println!("{what}: {:.1} s, lost: {why}", borrowed.ended.wall.as_secs_f64());
    }
}

/// The same under `none`, where there is nothing to fall back on.
fn ends(lie: Lie) {
    let _alone = place::alone_here();
    let scratch = Scratch::new("liar-none");
    let expected = expected(&scratch);
    let liar = FakeLender::start(lie);
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).not_durable().lender(liar.addr);
    let ended = borrow.run(&walk(), None, LIMIT).ended;
    assert!(liar.lied() > 0, "{lie:?}: it never came to that; nothing was tested: {}", ended.stderr);
    assert_ne!(ended.code(), 0, "{lie:?}: nothing was left to go on with: {}", ended.stderr);
    assert!(!ended.stderr.contains("WRONG"), "{lie:?}: the program saw wrong data: {}", ended.stderr);
    assert!(
        expected.starts_with(&*String::from_utf8_lossy(&ended.stdout)),
        "{lie:?}: printed something else"
    );
    let ours = ended.error_lines().into_iter().filter(|line| line.starts_with("loam")).count();
    assert_eq!(ours, 1, "{lie:?}: one line is due: {}", ended.stderr);
}

/// What these tests stand on.
#[test]
fn the_fake_lender_is_sound_when_it_does_not_lie() {
    let lender = FakeLender::start(Lie::None);
    fake::prove_sound(&lender).expect("a lender as the protocol says");
    assert_eq!(lender.lied(), 0);
}

macro_rules! lies {
    ($($name:ident: $lie:ident, lost $lost:literal;)*) => {
        $(#[test]
        fn $name() {
            survives(Lie::$lie, false, $lost);
        })*
    };
}

// A page that comes under another request's number is known by its own name, version and hash: it is as good as any.
lies! {
    honest: None, lost false;
    wrong_bytes: WrongBytes, lost true;
    wrong_hash: WrongHash, lost true;
    wrong_id: WrongId, lost true;
    wrong_version: WrongVersion, lost true;
    misses_wrong_version: MissesWrongVersion, lost true;
    cut_frame: CutFrame, lost true;
    bad_checksum: BadChecksum, lost true;
    wrong_request: WrongRequest, lost false;
    never_answers: NoAnswer, lost true;
    never_acknowledges: NoAck, lost true;
    never_welcomes: NoWelcome, lost true;
    not_a_lender: NotLoam, lost true;
    other_version: OtherVersion, lost true;
    no_room: NoRoom, lost false;
}

/// A lender may forget what it holds, and says so: the disk has it, and that is no reason to leave it, nor to keep it.
#[test]
fn misses() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("misses");
    let expected = expected(&scratch);
    let liar = FakeLender::start(Lie::Misses);
    let borrowed =
        Borrow::new(scratch.path()).local_mib(LOCAL_MIB).lender(liar.addr).run(&walk(), None, LIMIT);
    borrowed.assert_ended_well("misses");
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected);
    assert!(liar.lied() > 0 && borrowed.number("/faults/disk") > 0.0, "{}", borrowed.summary);
}

#[test]
fn wrong_bytes_beside_an_honest_lender() {
    survives(Lie::WrongBytes, true, true);
}

#[test]
fn never_answers_beside_an_honest_lender() {
    survives(Lie::NoAnswer, true, true);
}

#[test]
fn wrong_bytes_without_disk() {
    ends(Lie::WrongBytes);
}

#[test]
fn misses_without_disk() {
    ends(Lie::Misses);
}

#[test]
fn never_answers_without_disk() {
    ends(Lie::NoAnswer);
}

/// Nobody takes the pages: they stay, and a person is told that the limit is not held.
#[test]
fn no_room_without_disk() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("no-room");
    let expected = expected(&scratch);
    let liar = FakeLender::start(Lie::NoRoom);
    let borrow = Borrow::new(scratch.path()).local_mib(LOCAL_MIB).not_durable().lender(liar.addr);
    let borrowed = borrow.run(&walk(), None, LIMIT);
    assert!(liar.lied() > 0, "it never came to that; nothing was tested");
    borrowed.assert_ended_well("no room");
    assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected);
    let told = borrowed.warnings();
    assert!(
        told.iter().any(|line| line.contains("room") && line.contains("--local")),
        "who is told: {told:?}"
    );
}
