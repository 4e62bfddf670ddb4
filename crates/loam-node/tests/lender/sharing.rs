//! Several borrowers, several connections, and peers that do not keep up.

use crate::support::*;
use loam_core::ids::Version;
use loam_wire::client::Client;
use loam_wire::{PageRef, PutStatus, encode};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn borrowers_do_not_see_each_other() {
    let lender = lender(32);
    thread::scope(|scope| {
        for space in 1..=6 {
            let lender = &lender;
            scope.spawn(move || {
                let mut borrower = Borrower::new(lender, space);
                for round in 1..=12_u32 {
                    let first = u64::from(round) * 64 % 512;
                    let statuses = borrower.put(first..first + 128, round);
                    assert!(statuses.iter().all(|status| *status == PutStatus::Stored));
                    assert_eq!(borrower.get(first..first + 128, round).len(), 128);
                    borrower.drop_pages(first..first + 40, round);
                    assert_eq!(borrower.get(first..first + 60, round).len(), 20);
                }
            });
        }
    });
}

#[test]
fn connections_of_one_borrower_share_its_pages() {
    let lender = lender(4);
    let (mut one, mut two) = (Borrower::new(&lender, 9), Borrower::new(&lender, 9));
    one.put(0..64, 1);
    assert_eq!(two.get(0..64, 1).len(), 64);
    drop(one);
    thread::sleep(GRACE + Duration::from_millis(300));
    assert_eq!(two.get(0..64, 1).len(), 64, "it has not gone while one connection is open");
    let status = two.client.status().unwrap();
    assert_eq!(status.borrowers.len(), 1);
    let entry = &status.borrowers[0];
    assert_eq!((entry.number(), entry.pages(), entry.connections(), entry.name()), (1, 64, 1, "test"));
}

/// A borrower's link is silent for a while, and the borrower comes back over another connection. What it had sent over the old one comes after that: the
/// kernel sends it again. It threw out what was put since, and the borrower never heard of it.
#[test]
fn what_comes_late_over_the_connection_of_one_who_is_back_counts_no_more() {
    let lender = lender(4);
    let mut old = Borrower::new(&lender, 9);
    old.put(0..8, 1);
    let late = old.putpage(0..8, 2);
    // Half of it is there when the borrower comes back.
    old.client.stream().write_all(&late[..20_000]).unwrap();
    thread::sleep(Duration::from_millis(20));
    let mut back = Borrower::back(&lender, 9, 2);
    assert_eq!(back.get(0..8, 1).len(), 8);
    back.put(0..8, 3);
    old.client.stream().write_all(&late[20_000..]).unwrap();
    let Err(refused) = old.client.receive().map(|_| ()) else { panic!("it was answered") };
    assert!(refused.to_string().contains("over another connection"), "{refused}");
    assert_eq!(back.get(0..8, 3).len(), 8, "what was put since is there");
    // What is asked for, forgotten or reserved that way neither.
    type Late = fn(&mut Vec<u8>);
    let others: [Late; 4] = [
        |out| encode::getpage(out, 1, &[PageRef::new(0, Version(3))]),
        |out| encode::drop(out, &[PageRef::new(0, Version(3))]),
        |out| encode::bye(out),
        |out| encode::reserve(out, 1, 1 << 20),
    ];
    for (at, late) in others.into_iter().enumerate() {
        let mut next = Borrower::back(&lender, 9, 3 + at as u32);
        back.client.send(&[], late).unwrap();
        assert!(back.client.receive().is_err(), "{at}");
        assert_eq!(next.get(0..8, 3).len(), 8, "{at}");
        back = next;
    }
    // Nor does a try that was given up before the last one.
    let again = Client::connect_back(lender.addr(), 0, 9, 6, "test", TIMEOUT);
    assert!(again.is_err_and(|why| why.to_string().contains("over another connection")));
    let mut beside = Borrower::new(&lender, 9);
    assert_eq!((beside.get(0..8, 3).len(), back.get(0..8, 3).len()), (8, 8), "one beside it is as ever");
    let status = back.client.status().unwrap();
    assert_eq!(status.borrowers[0].connections(), 2, "those that are void do not count");
    drop((beside, back));
    eventually("it is gone after its grace", || {
        Borrower::new(&lender, 10).client.status().unwrap().figures.borrowers.get() == 1
    });
}

/// The same while puts of the old connection are half-way on other threads.
#[test]
fn a_put_that_is_half_way_when_its_borrower_comes_back_is_done_before_that() {
    let mut config = config(loam_core::units::Bytes::from_mib(4));
    config.loops = Some(4);
    let lender = loam_node::spawn(&config).unwrap();
    let mut back = Borrower::new(&lender, 9);
    for round in 1..60_u32 {
        let late = Borrower::new(&lender, 9);
        let frame = late.putpage(0..64, 2 * round);
        let seen = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut socket = late.client.stream().try_clone().unwrap();
                while !seen.load(Ordering::Relaxed) {
                    // It is refused at some point, and then closed.
                    let _ = socket.write_all(&frame);
                }
            });
            thread::sleep(Duration::from_millis(u64::from(round % 7)));
            back = Borrower::back(&lender, 9, round);
            back.put(0..64, 2 * round + 1);
            thread::sleep(Duration::from_millis(u64::from(round % 5)));
            let there = back.get(0..64, 2 * round + 1).len();
            seen.store(true, Ordering::Relaxed);
            assert_eq!(there, 64, "round {round}");
        });
    }
    assert_eq!(back.client.status().unwrap().borrowers[0].connections(), 1);
}

/// Pages are replaced on one connection while another reads them: each read is a whole page of one version.
#[test]
fn a_page_is_never_torn() {
    let lender = lender(1);
    thread::scope(|scope| {
        let lender = &lender;
        let writer = scope.spawn(move || {
            let mut borrower = Borrower::new(lender, 3);
            for version in 1..400 {
                borrower.put(0..64, version);
            }
        });
        scope.spawn(move || {
            let mut borrower = Borrower::new(lender, 3);
            let (mut version, mut hits) = (1, 0);
            while !writer.is_finished() {
                // Contents are checked against their name; any version may be the one that is there.
                hits += borrower.get(0..64, version).len();
                version = borrower.client.status().unwrap().figures.puts.get() as u32 / 64;
            }
            assert!(hits > 100, "only {hits} pages were read while they changed");
        });
    });
}

/// One peer asks for far more than it reads. It is held back, everybody else is served at once.
#[test]
fn a_slow_reader_stalls_nobody() {
    let mut config = config(loam_core::units::Bytes::from_mib(8));
    config.loops = Some(1);
    let lender = loam_node::spawn(&config).unwrap();
    let mut slow = Borrower::new(&lender, 1);
    slow.put(0..256, 1);
    let refs: Vec<_> = (0..256).map(|index| PageRef::new(index, Version(1))).collect();
    let mut request = Vec::new();
    encode::getpage(&mut request, 77, &refs);
    // 200 MiB of answers, and not one byte read: at some point the lender stops reading requests too.
    slow.client.stream().set_nonblocking(true).unwrap();
    let mut sent = 0;
    for _ in 0..200 {
        match slow.client.stream().write(&request) {
            Ok(bytes) if bytes == request.len() => sent += 1,
            _ => break,
        }
    }
    assert!(sent >= 8, "only {sent} requests went out");
    let mut quick = Borrower::new(&lender, 2);
    let start = Instant::now();
    for round in 0..50 {
        quick.put(0..8, round);
        assert_eq!(quick.get(0..8, round).len(), 8);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "the others waited {:?}", start.elapsed());
    // Then it reads after all, and gets every answer.
    slow.client.stream().set_nonblocking(false).unwrap();
    let mut pages = 0;
    while pages < sent * 256 {
        match slow.client.receive().unwrap() {
            loam_wire::Frame::Page { request: 77, pages: some, .. } => pages += some.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pages, sent * 256);
}

/// Many small requests in one write are all answered, in their order.
#[test]
fn requests_may_be_sent_ahead() {
    let lender = lender(4);
    let mut borrower = Borrower::new(&lender, 1);
    borrower.put(0..256, 1);
    let mut out = Vec::new();
    for request in 0..1000_u64 {
        encode::getpage(&mut out, request, &[PageRef::new(request % 256, Version(1))]);
    }
    let mut socket = borrower.client.stream().try_clone().unwrap();
    let writer = thread::spawn(move || socket.write_all(&out).unwrap());
    for expected in 0..1000_u64 {
        match borrower.client.receive().unwrap() {
            loam_wire::Frame::Page { request, pages, .. } => {
                assert_eq!((request, pages[0].index()), (expected, expected % 256));
            }
            other => panic!("{other:?}"),
        }
    }
    writer.join().unwrap();
}
