//! Reservations over a real connection: who gets the last bytes, and what can take them away again.

use crate::giveback::Machine;
use crate::support::*;
use loam_core::units::Bytes;
use loam_node::{LendHandle, spawn};
use loam_wire::client::{Client, ClientError};
use loam_wire::{Frame, PutStatus, Reservation, encode, error_code, feature};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const SPARE: u64 = feature::RECALL | feature::SPARE | feature::RESERVE;
const ONLY: u64 = feature::RECALL | feature::RESERVE;
/// Is told of nothing that it has not asked for.
const KEPT: u64 = feature::RESERVE;

/// Lends 8 MiB, of which 6 may be reserved.
fn lender() -> LendHandle {
    let mut config = config(Bytes(8 * MIB));
    config.reservable = Some(Bytes(6 * MIB));
    spawn(&config).unwrap()
}

fn borrower(lender: &LendHandle, space: u64, features: u64) -> Borrower {
    let client = Client::connect_with(lender.addr(), features, space, "test", TIMEOUT).unwrap();
    assert_eq!(client.welcome().features(), features);
    Borrower { client, space }
}

/// What it has, what it could have, what all have.
fn facts(reservation: &Reservation) -> (bool, u64, u64, u64) {
    let mib = |bytes: u64| bytes / MIB;
    let r = reservation;
    (r.granted(), mib(r.own_bytes()), mib(r.most_bytes()), mib(r.all_bytes()))
}

/// Puts `pages` pages from `first` on, or until one is refused; answers how many were taken. What it is told of pages that gave way is passed over.
fn fill_up_to(borrower: &mut Borrower, first: u64, pages: u64) -> u64 {
    let mut taken = 0;
    while taken < pages {
        let indexes = first + taken..first + taken + 64;
        let metas: Vec<_> = indexes.clone().map(|index| borrower.meta(index, 1)).collect();
        let payload: Vec<u8> = indexes.flat_map(|index| contents(borrower.space, index, 1)).collect();
        let asked = borrower.client.next_request();
        borrower.client.send(&payload, |out| encode::putpage(out, asked, &metas)).unwrap();
        let stored = loop {
            match borrower.client.receive().unwrap() {
                Frame::Ack { request, pages: acks, .. } if request == asked => {
                    break acks.iter().filter(|ack| ack.status() == PutStatus::Stored).count() as u64;
                }
                Frame::Gone { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        taken += stored;
        if stored < 64 {
            break;
        }
    }
    taken
}

/// The same without end.
fn fill(borrower: &mut Borrower, first: u64) -> u64 {
    fill_up_to(borrower, first, 10_000)
}

#[test]
fn of_two_who_want_the_last_bytes_one_gets_all_and_the_other_nothing() {
    let lender = lender();
    let barrier = Barrier::new(2);
    for round in 0..30 {
        let won: Vec<bool> = std::thread::scope(|scope| {
            let ask = |space: u64| {
                let mut borrower = borrower(&lender, space, KEPT);
                barrier.wait();
                let answer = borrower.client.reserve(4 * MIB).unwrap();
                barrier.wait();
                let again = borrower.client.reserve(4 * MIB).unwrap();
                // It is as it was, and asking again changes nothing.
                assert_eq!((again.granted(), again.own_bytes()), (answer.granted(), answer.own_bytes()));
                assert_eq!(answer.own_bytes(), if answer.granted() { 4 * MIB } else { 0 });
                if !answer.granted() {
                    assert_eq!(facts(&again), (false, 0, 2, 4), "what it could have");
                }
                barrier.wait();
                borrower.client.send(&[], encode::bye).unwrap();
                borrower.client.ping().unwrap();
                answer.granted()
            };
            let threads = [2 * round + 1, 2 * round + 2].map(|space| scope.spawn(move || ask(space)));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "round {round}: {won:?}");
    }
}

#[test]
fn a_flood_of_others_is_refused_and_the_reservation_is_there() {
    let lender = lender();
    let (mut own, mut spare, mut only) =
        (borrower(&lender, 1, ONLY), borrower(&lender, 2, SPARE), borrower(&lender, 3, ONLY));
    assert_eq!(facts(&own.client.reserve(5 * MIB).unwrap()), (true, 5, 6, 5));
    // Those who are told that there is no room have been told right.
    assert_eq!(fill(&mut only, 0), 3 * 256);
    assert!(spare.put(0..64, 1).iter().all(|status| *status == PutStatus::NoRoom));
    assert_eq!(own.put(0..256, 1), [PutStatus::Stored; 256]);
    assert_eq!(fill(&mut own, 256), 4 * 256, "all that was promised");
    assert_eq!(own.get(0..256, 1).len(), 256);
    // What it changes it may put anew.
    assert_eq!(own.put(0..256, 2), [PutStatus::Stored; 256]);
    let there = Client::connect_with(lender.addr(), feature::RESERVE, 0, "tool", TIMEOUT)
        .unwrap()
        .reserve(0)
        .unwrap();
    assert_eq!(facts(&there), (true, 0, 0, 5), "the only copies of others leave no room for more");
}

#[test]
fn spare_copies_of_others_leave_for_it_at_once() {
    let lender = lender();
    let (mut other, mut own) = (borrower(&lender, 1, SPARE), borrower(&lender, 2, SPARE));
    assert_eq!(fill_up_to(&mut other, 0, 4096), 4096, "twice what is lent");
    assert_eq!(facts(&own.client.reserve(6 * MIB).unwrap()), (true, 6, 6, 6));
    assert_eq!(fill_up_to(&mut own, 0, 6 * 256), 6 * 256, "nothing of it was refused");
    assert_eq!(fill_up_to(&mut other, 10_000, 4096), 4096, "in place of its own");
    let there: usize = (0..6 * 256).step_by(256).map(|first| own.get(first..first + 256, 1).len()).sum();
    assert_eq!(there, 6 * 256, "and nothing of it gives way, though it is a spare copy");
}

#[test]
fn it_waits_out_the_grace_of_one_that_is_cut_off_and_then_it_is_free() {
    let lender = lender();
    let mut own = borrower(&lender, 7, KEPT);
    assert!(own.client.reserve(6 * MIB).unwrap().granted());
    own.put(0..10, 1);
    drop(own);
    let mut other = borrower(&lender, 8, KEPT);
    let mut back = borrower(&lender, 7, KEPT);
    assert_eq!(facts(&back.client.reserve(6 * MIB).unwrap()), (true, 6, 6, 6));
    drop(back);
    let cut = Instant::now();
    assert!(!other.client.reserve(MIB).unwrap().granted(), "it may come back again");
    eventually("it is free", || other.client.reserve(6 * MIB).unwrap().granted());
    assert!(cut.elapsed() >= GRACE - Duration::from_millis(50), "{:?}", cut.elapsed());
    // Who says goodbye need not be waited for.
    other.client.send(&[], encode::bye).unwrap();
    other.client.ping().unwrap();
    assert_eq!(borrower(&lender, 9, KEPT).client.reserve(0).unwrap().all_bytes(), 0);
    assert_eq!(facts(&other.client.reserve(0).unwrap()), (true, 0, 6, 0));
}

#[test]
fn the_machine_gets_everything_back_but_what_is_reserved() {
    let mut machine = Machine::new("reserved");
    let (mut own, mut other) = (machine.borrower(1, SPARE), machine.borrower(2, SPARE));
    // Half of what is lent, since nobody has said otherwise.
    assert_eq!(facts(&own.client.reserve(5 * MIB).unwrap()), (false, 0, 4, 0));
    assert!(own.client.reserve(2 * MIB).unwrap().granted());
    own.put(0..256, 1);
    other.put(0..256, 1);
    other.put(256..512, 1);
    machine.has(0);
    eventually("the other's memory is given back", || machine.lender().memory() == Bytes(MIB));
    assert_eq!(other.get(0..256, 1), [0_u64; 0]);
    assert_eq!(own.get(0..256, 1).len(), 256);
    assert_eq!(own.put(256..512, 1), [PutStatus::Stored; 256], "the rest of it can still be used");
    assert_eq!(own.put(512..514, 1), [PutStatus::NoRoom; 2]);
    let (figures, reason) = machine.tool().memory().unwrap();
    assert_eq!(figures.kept.get(), 0);
    assert!(reason.starts_with("2.0 MiB are reserved, until those runs end; this machine has"), "{reason}");
    assert!(!other.client.reserve(MIB).unwrap().granted(), "the machine has nothing to promise");
    own.client.send(&[], encode::bye).unwrap();
    eventually("it is given back when the run ends", || machine.lender().memory() == Bytes(0));
}

#[test]
fn who_was_refused_hears_that_a_reservation_has_ended() {
    let mut machine = Machine::new("ended");
    machine.has(100 * MIB);
    let (mut own, mut other) = (machine.borrower(1, ONLY), machine.borrower(2, ONLY));
    assert!(own.client.reserve(4 * MIB).unwrap().granted());
    assert_eq!(fill(&mut other, 0), 4 * 256);
    own.client.send(&[], encode::bye).unwrap();
    let Frame::Recall { free_bytes, pages: [], .. } = other.client.receive().unwrap() else {
        panic!("something else than room")
    };
    assert_eq!(free_bytes, 4 * MIB);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let lender = lender();
    let mut own = borrower(&lender, 1, ONLY);
    assert_eq!(facts(&own.client.reserve(u64::MAX).unwrap()), (false, 0, 6, 0));
    assert_eq!(own.client.reserve(1).unwrap().own_bytes(), 4096, "whole base pages");
    assert_eq!(own.client.reserve(6 * MIB + 1).unwrap().own_bytes(), 4096);
    let mut tool = Client::connect_with(lender.addr(), feature::RESERVE, 0, "tool", TIMEOUT).unwrap();
    match tool.reserve(MIB) {
        Err(ClientError::Refused { code: error_code::BAD_FRAME, text }) => assert!(text.contains("space 0")),
        other => panic!("{other:?}"),
    }
    let mut config = config(Bytes(MIB));
    config.reservable = Some(Bytes(2 * MIB));
    let line = spawn(&config).unwrap_err().to_string();
    assert!(line.contains("--reservable") && line.contains("1.0 MiB"), "{line}");
    config.reservable = Some(Bytes(0));
    let lender = spawn(&config).unwrap();
    assert_eq!(facts(&borrower(&lender, 1, ONLY).client.reserve(4096).unwrap()), (false, 0, 0, 0));
}
