//! Several borrowers, several connections, and peers that do not keep up.

use crate::support::*;
use loam_core::ids::Version;
use loam_wire::{PageRef, PutStatus, encode};
use std::io::Write;
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
