//! Bytes that go both ways: all of them, in their order, whatever the sizes, the socket's room and the keys.

use super::*;
use crate::tls::INBOX_BYTES_MAX;
use proptest::prelude::*;
use std::io::IoSlice;

/// Bytes that tell where they belong.
fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// Sends `pieces` one after the other, each as two slices, and receives into rooms of these sizes in turn.
fn carry(from: &mut TlsStream, to: &mut TlsStream, pieces: &[usize], rooms: &[usize]) {
    let all: usize = pieces.iter().sum();
    let sent = pattern(0, all);
    let (mut piece, mut left_in_piece, mut at, mut got, mut turn) = (0, pieces[0], 0, Vec::new(), 0);
    let end = Instant::now() + LIMIT;
    let mut room = vec![0; *rooms.iter().max().unwrap()];
    while got.len() < all {
        assert!(Instant::now() < end, "{} of {all} bytes within {LIMIT:?}", got.len());
        if at < all {
            while left_in_piece == 0 {
                piece += 1;
                left_in_piece = pieces[piece];
            }
            let (a, b) = sent[at..at + left_in_piece].split_at(left_in_piece / 3);
            match from.send(&[IoSlice::new(a), IoSlice::new(b)]) {
                Ok(bytes) => {
                    assert!(bytes > 0 && bytes <= left_in_piece);
                    at += bytes;
                    left_in_piece -= bytes;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
            }
        } else if from.waits() {
            let _ = from.push();
        }
        let room = &mut room[..rooms[turn % rooms.len()]];
        turn += 1;
        match to.receive(room) {
            Ok(bytes) => {
                assert!(bytes > 0);
                got.extend_from_slice(&room[..bytes]);
                assert!(bytes == room.len() || !to.holds(), "it goes on until its room is full");
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                assert!(!to.holds(), "it waits for what it has");
            }
        }
    }
    assert!(got == sent, "other bytes came out than went in");
    assert!(!to.holds() && !from.waits());
}

#[test]
fn frames_of_all_sizes_come_through_both_ways() {
    let (mut client, mut server) = open();
    let sizes = [1, 100, 16_384, 16_385, 40_000, 4 << 20, 7];
    carry(&mut client, &mut server, &sizes, &[INBOX_BYTES_MAX]);
    carry(&mut server, &mut client, &sizes, &[INBOX_BYTES_MAX]);
}

/// What a quiet connection has given back it takes again.
#[test]
fn it_goes_on_after_it_has_given_its_memory_back() {
    let (mut client, mut server) = open();
    for _ in 0..3 {
        server.shrink();
        client.shrink();
        carry(&mut client, &mut server, &[7, 40_000, 1 << 20], &[INBOX_BYTES_MAX]);
        carry(&mut server, &mut client, &[1], &[INBOX_BYTES_MAX]);
    }
}

#[test]
fn small_rooms_leave_the_rest_for_later() {
    let (mut client, mut server) = open();
    carry(&mut client, &mut server, &[50_000, 3, 20_000], &[1, 17, 4096, 100]);
}

#[test]
fn keys_change_on_the_way() {
    let (mut client, mut server) = open();
    client.records().set_records_per_key(3);
    server.records().set_records_per_key(2);
    for _ in 0..3 {
        carry(&mut client, &mut server, &[300_000], &[INBOX_BYTES_MAX]);
        carry(&mut server, &mut client, &[100_000, 1, 1, 1], &[5000]);
    }
}

#[test]
fn the_end_is_told_after_everything_before_it() {
    let (mut client, mut server) = open();
    assert_eq!(wait(|| client.send(&[IoSlice::new(b"last")])).unwrap(), 4);
    client.end();
    let mut room = [0; 64];
    assert_eq!(wait(|| server.receive(&mut room)).unwrap(), 4);
    assert_eq!(&room[..4], b"last");
    for _ in 0..3 {
        assert_eq!(wait(|| server.receive(&mut room)).unwrap(), 0);
    }
    // The other direction is still open.
    assert_eq!(wait(|| server.send(&[IoSlice::new(b"bye")])).unwrap(), 3);
    assert_eq!(wait(|| client.receive(&mut room)).unwrap(), 3);
}

#[test]
fn an_end_that_is_not_told_is_an_error() {
    let (client, mut server) = open();
    drop(client);
    let error = wait(|| server.receive(&mut [0; 64])).unwrap_err();
    assert!(matches!(TlsError::of(&error), Some(TlsError::Truncated)), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_sizes_come_through(
        pieces in prop::collection::vec(1_usize..60_000, 1..12),
        rooms in prop::collection::vec(1_usize..80_000, 1..4),
        records_per_key in 1_u64..40,
    ) {
        let (mut client, mut server) = open();
        client.records().set_records_per_key(records_per_key);
        // Rooms of a few bytes take long for many pieces.
        let rooms: Vec<usize> = rooms.into_iter().map(|room| room.max(pieces.iter().sum::<usize>() / 2000 + 1)).collect();
        carry(&mut client, &mut server, &pieces, &rooms);
    }
}
