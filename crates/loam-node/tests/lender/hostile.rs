//! Peers that break the rules: they lose their connection, nobody else notices.

use crate::support::*;
use loam_node::LendHandle;
use loam_wire::client::{Client, ClientError};
use loam_wire::{PutStatus, encode, error_code};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Sends bytes; answers the code and text of the error that comes back before the end.
fn refused(lender: &LendHandle, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(lender.addr()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let mut rest = &answer[..];
    loop {
        match loam_wire::decode(rest).unwrap() {
            loam_wire::Decoded::Whole { frame: loam_wire::Frame::Error { code, text }, consumed } => {
                assert_eq!(consumed, rest.len(), "nothing follows an error");
                return (code, text.to_owned());
            }
            loam_wire::Decoded::Whole { consumed, .. } => rest = &rest[consumed..],
            more => panic!("{more:?}"),
        }
    }
}

fn after_hello(space: u64, build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode::hello(&mut out, space, "hostile");
    build(&mut out);
    out
}

#[test]
fn bad_frames_are_answered_and_end_the_connection() {
    let lender = lender(4);
    let mut good = Borrower::new(&lender, 1);
    good.put(0..64, 1);

    let (code, text) = refused(&lender, b"GET / HTTP/1.1\r\nHost: lender\r\n\r\n");
    assert_eq!(code, error_code::BAD_FRAME);
    assert!(text.contains("magic"), "{text}");
    // More garbage than the lender reads at once: the reason still arrives.
    refused(&lender, &vec![0xa5; 3 << 20]);

    let mut other_version = Vec::new();
    encode::hello_of_version(&mut other_version, 999, 0, 2, "future");
    let (code, text) = refused(&lender, &other_version);
    assert_eq!(code, error_code::VERSION);
    assert!(text.contains("999") && text.contains("same version"), "{text}");

    let mut no_hello = Vec::new();
    encode::ping(&mut no_hello, 1);
    assert!(refused(&lender, &no_hello).1.contains("hello"));
    let twice = after_hello(2, |out| encode::hello(out, 2, "again"));
    assert_eq!(refused(&lender, &twice).0, error_code::BAD_FRAME);
    let answer = after_hello(2, |out| encode::pong(out, 1));
    assert_eq!(refused(&lender, &answer).0, error_code::BAD_FRAME);
    let tool = after_hello(0, |out| {
        encode::getpage(out, 1, &[loam_wire::PageRef::new(0, loam_core::ids::Version(1))]);
    });
    assert!(refused(&lender, &tool).1.contains("space 0"));

    let mut damaged = after_hello(2, |out| encode::ping(out, 1));
    let at = damaged.len() - 2;
    damaged[at] ^= 4;
    assert!(refused(&lender, &damaged).1.contains("checksum"));
    let mut unknown = after_hello(2, |out| encode::ping(out, 1));
    let at = unknown.len() - 20;
    unknown[at] = 99;
    assert!(refused(&lender, &unknown).1.contains("unknown frame kind 99"));

    assert_eq!(good.get(0..64, 1).len(), 64, "the others were not touched");
}

#[test]
fn half_a_frame_and_gone() {
    let lender = lender(4);
    let mut good = Borrower::new(&lender, 1);
    good.put(0..64, 1);
    let put = after_hello(2, |out| {
        encode::putpage(out, 1, &[good.meta(0, 1)]);
        out.extend(&contents(1, 0, 1)[..1000]);
    });
    for end in [1, 23, 24, 60, put.len() - 500, put.len()] {
        let mut stream = TcpStream::connect(lender.addr()).unwrap();
        stream.write_all(&put[..end]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    eventually("their connections and spaces are gone", || {
        let status = good.client.status().unwrap();
        status.figures.connections.get() == 1 && status.figures.borrowers.get() == 1
    });
    assert_eq!(good.client.status().unwrap().figures.pages.get(), 64, "half a page is no page");
}

/// A connection cut with a reset in the middle of a put keeps what was acknowledged.
#[test]
fn a_reset_loses_nothing_that_was_acknowledged() {
    let lender = lender(4);
    for round in 1..20_u32 {
        let mut borrower = Borrower::new(&lender, 7);
        assert!(borrower.put(0..32, round).iter().all(|status| *status == PutStatus::Stored));
        // Answers that nobody reads make the close a reset.
        let metas = [borrower.meta(40, round)];
        let payload = contents(7, 40, round);
        borrower.client.send(&payload, |out| encode::putpage(out, 5, &metas)).unwrap();
        drop(borrower);
        assert_eq!(Borrower::new(&lender, 7).get(0..32, round).len(), 32);
    }
}

#[test]
fn too_many_connections_are_told_so() {
    let lender = lender(1);
    let mut open = Vec::new();
    let refused = loop {
        // (Who finds no place learns so with its first question: it might be a node, which has one.)
        let asked = Client::connect(lender.addr(), 0, "crowd", TIMEOUT)
            .and_then(|mut client| client.ping().map(|()| client));
        match asked {
            Ok(client) => open.push(client),
            Err(error) => break error,
        }
        assert!(open.len() <= loam_node::limits::CONNECTIONS_MAX);
    };
    assert_eq!(open.len(), loam_node::limits::CONNECTIONS_MAX);
    // Our hello may meet a socket that is closed already: then the system says so instead.
    assert!(matches!(refused, ClientError::Refused { code: error_code::BUSY, .. } | ClientError::Io(_)));
    open.truncate(10);
    eventually("places are free again", || {
        Client::connect(lender.addr(), 0, "late", TIMEOUT).is_ok_and(|mut client| client.ping().is_ok())
    });
}

#[test]
fn too_many_borrowers_are_told_so() {
    let lender = lender(1);
    let max = loam_node::limits::BORROWERS_MAX as u64;
    let _open: Vec<_> = (1..=max).map(|space| Borrower::new(&lender, space)).collect();
    match Client::connect(lender.addr(), max + 1, "one more", TIMEOUT) {
        Err(ClientError::Refused { code: error_code::BUSY, text }) => assert!(text.contains("borrowers")),
        other => panic!("{other:?}"),
    }
    let status = Client::connect(lender.addr(), 0, "tool", TIMEOUT).unwrap().status().unwrap();
    assert_eq!(status.figures.borrowers.get(), max);
    assert_eq!(status.borrowers.len(), loam_wire::limits::STATUS_BORROWERS_MAX);
}
