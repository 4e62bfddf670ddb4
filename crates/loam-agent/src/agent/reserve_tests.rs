//! Reservations at lenders that answer, that do not, and that are too old to be asked.

use super::*;
use loam_core::ids::SpaceId;
use loam_wire::client::Target;
use loam_wire::{Decoded, Frame, ReservationFacts, Stream, decode, encode, feature};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

const MIB: u64 = 1 << 20;

/// How a lender behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It has so many bytes to reserve.
    Has(u64),
    /// It knows no reservations.
    Old,
    /// It never answers.
    Hung,
    /// It says what it has, and does not answer when it is asked for it.
    HangsLater(u64),
    /// It grants, and has set nothing aside.
    Lies(u64),
}

/// One that answers until the connection ends; it answers what it was asked for, and whether it heard goodbye.
fn lender(kind: Kind) -> (Lender, JoinHandle<(Vec<u64>, bool)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let addr = stream.peer_addr().unwrap();
    let features = if kind == Kind::Old { 0 } else { feature::RESERVE };
    let conn = Conn::new(Stream::Plain(stream), Target::from(addr), SpaceId(1), 0, features);
    let (mut socket, _) = listener.accept().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut asked, mut own, mut bytes) = (Vec::new(), 0, Vec::new());
        loop {
            let mut more = [0; 256];
            match socket.read(&mut more) {
                Ok(read @ 1..) => bytes.extend_from_slice(&more[..read]),
                _ => return (asked, false),
            }
            while let Ok(Decoded::Whole { frame, consumed }) = decode(&bytes) {
                let mut answer = Vec::new();
                match frame {
                    Frame::Reserve { request, bytes } => {
                        asked.push(bytes);
                        let (has, answers) = match kind {
                            Kind::Has(has) | Kind::Lies(has) => (has, true),
                            Kind::HangsLater(has) => (has, bytes == 0),
                            Kind::Old | Kind::Hung => (0, false),
                        };
                        let granted = bytes <= has;
                        if granted && !matches!(kind, Kind::Lies(_)) {
                            own = bytes;
                        }
                        let facts =
                            ReservationFacts { own_bytes: own, most_bytes: has, ..Default::default() };
                        if answers {
                            encode::reserved(&mut answer, request, &Reservation::new(&facts, granted));
                        }
                    }
                    Frame::Bye => return (asked, true),
                    other => panic!("{other:?}"),
                }
                bytes.drain(..consumed);
                socket.write_all(&answer).unwrap();
            }
        }
    });
    (Lender::new(addr, conn), thread)
}

/// Reserves at lenders of these kinds; answers what came of it, each one's share, and what each was asked for.
fn reserved(kinds: &[Kind], mib: u64) -> (Result<Promised, String>, Vec<u64>, Vec<Vec<u64>>) {
    let (lenders, threads): (Vec<_>, Vec<_>) = kinds.iter().map(|kind| lender(*kind)).unzip();
    let mut waiting = Waiting(lenders);
    let answer = reserve(&mut waiting.0, Bytes(mib * MIB), 1);
    let shares = waiting.0.iter().map(|lender| lender.reserved_bytes / MIB).collect();
    // The run does not come to use them.
    drop(waiting);
    let heard: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(heard.iter().all(|(_, bye)| *bye), "nobody's room waits out the grace: {heard:?}");
    (answer, shares, heard.into_iter().map(|(asked, _)| asked).collect())
}

#[test]
fn one_that_cannot_answer_does_not_matter_where_others_have_room() {
    for kind in [Kind::Old, Kind::Hung] {
        let (answer, shares, asked) = reserved(&[kind, Kind::Has(8 * MIB)], 5);
        let promised = answer.expect("the other has enough");
        assert_eq!((shares, promised.shares.len()), (vec![0, 5], 2), "{kind:?}");
        let once = if kind == Kind::Hung { vec![0] } else { vec![] };
        assert_eq!(asked, [once, vec![0, 5 * MIB]], "nobody is waited for twice");
    }
}

#[test]
fn one_that_falls_silent_is_done_without() {
    let (answer, shares, asked) = reserved(&[Kind::HangsLater(8 * MIB), Kind::Has(8 * MIB)], 6);
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(shares, [0, 6]);
    assert_eq!(asked, [vec![0, 3 * MIB], vec![0, 3 * MIB, 0, 6 * MIB]]);
}

#[test]
fn a_refusal_says_who_did_not_answer_and_what_the_others_have() {
    let (answer, _, asked) = reserved(&[Kind::Hung, Kind::Old, Kind::Has(2 * MIB)], 5);
    let line = answer.expect_err("there is too little");
    assert!(line.contains("3.0 MiB are missing") && line.contains("has 2.0 MiB"), "{line}");
    assert!(line.contains("did not answer (nothing has come in time)"), "{line}");
    assert!(line.contains("did not answer (it knows no reservations"), "{line}");
    assert_eq!(asked[0], [0], "a hung one is waited for once, however often the others are asked");
    assert!(asked[2].len() > 2, "{asked:?}");
}

#[test]
fn a_grant_without_room_is_none() {
    let (answer, shares, _) = reserved(&[Kind::Lies(8 * MIB)], 5);
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(shares, [0]);
}
