//! Peers that break TLS: each ends its own connection, and nothing else.

use super::*;
use proptest::prelude::*;
use std::io::{IoSlice, Read, Write};

/// Feeds bytes to a side until it errs, or they have all been taken and the other side has gone.
fn feed(mut stream: TlsStream, mut peer: TcpStream, bytes: &[u8]) -> io::Error {
    peer.set_nonblocking(false).unwrap();
    peer.set_write_timeout(Some(LIMIT)).unwrap();
    // It may have been refused before all has gone.
    let _ = peer.write_all(bytes);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let mut room = vec![0; 4096];
    wait(|| match stream.receive(&mut room) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err::<(), _>(error),
    })
    .unwrap_err()
}

#[test]
fn a_plain_client_is_told_in_its_own_language() {
    let (node, _) = friends();
    let (mut c, s) = sockets();
    let mut server = TlsStream::server(s, &node).unwrap();
    let mut hello = Vec::new();
    crate::encode::hello(&mut hello, 7, "plain");
    // The first bytes may come alone.
    c.write_all(&hello[..2]).unwrap();
    assert_eq!(server.receive(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    c.write_all(&hello[2..]).unwrap();
    let error = wait(|| server.receive(&mut [0; 64])).unwrap_err();
    assert!(matches!(TlsError::of(&error), Some(TlsError::PlainClient)), "{error}");
    c.set_nonblocking(false).unwrap();
    c.set_read_timeout(Some(LIMIT)).unwrap();
    server.end();
    let mut answer = Vec::new();
    c.read_to_end(&mut answer).unwrap();
    let Ok(crate::Decoded::Whole { frame: crate::Frame::Error { code, text }, .. }) = crate::decode(&answer)
    else {
        panic!("{answer:?}")
    };
    assert_eq!(code, crate::error_code::DENIED);
    assert!(text.contains("--tls"), "{text}");
}

#[test]
fn a_lender_that_speaks_plain_tcp_is_known() {
    let (_, borrower) = friends();
    let (c, s) = sockets();
    let mut frame = Vec::new();
    crate::encode::error(&mut frame, crate::error_code::BAD_FRAME, "what is that?");
    let error = feed(TlsStream::client(c, &borrower, None).unwrap(), s, &frame);
    assert!(matches!(TlsError::of(&error), Some(TlsError::NotTls)), "{error}");
}

#[test]
fn what_is_changed_on_the_way_is_not_believed() {
    for turned in [0, 3, 5, 20, 100] {
        let (mut client, server) = open();
        // What the client seals goes to us instead.
        let (ours, theirs) = sockets();
        let mut record = Vec::new();
        client.records().seal(&[&[7; 100]], |sealed| record = sealed).unwrap();
        record[turned] ^= 1;
        let server = server.on(theirs);
        let error = feed(server, ours, &record);
        assert!(TlsError::of(&error).is_some(), "bit in byte {turned}: {error}");
    }
}

#[test]
fn a_record_that_comes_twice_is_not_believed() {
    let (mut client, server) = open();
    let (ours, theirs) = sockets();
    let mut record = Vec::new();
    client.records().seal(&[b"pay"], |sealed| record = sealed).unwrap();
    let twice = [&record[..], &record[..]].concat();
    let error = feed(server.on(theirs), ours, &twice);
    assert!(matches!(TlsError::of(&error), Some(TlsError::Rustls(_))), "{error}");
}

#[test]
fn a_failed_side_gives_no_bytes_out() {
    let (mut client, server) = open();
    let (mut ours, theirs) = sockets();
    let mut server = server.on(theirs);
    ours.write_all(&[22, 3, 3, 0, 1, 0]).unwrap();
    let mut room = [0; 64];
    assert!(wait(|| server.receive(&mut room)).is_err());
    let mut record = Vec::new();
    client.records().seal(&[b"too late"], |sealed| record = sealed).unwrap();
    ours.write_all(&record).unwrap();
    drop(ours);
    assert!(wait(|| server.receive(&mut room)).is_err());
    assert_eq!(server.send(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(room, [0; 64]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_end_a_handshake(bytes in prop::collection::vec(any::<u8>(), 1..3000)) {
        let (node, borrower) = friends();
        let (c, s) = sockets();
        feed(TlsStream::server(s, &node).unwrap(), c, &bytes);
        let (c, s) = sockets();
        feed(TlsStream::client(c, &borrower, None).unwrap(), s, &bytes);
    }

    /// As above, dressed as records of a handshake, which rustls reads on.
    #[test]
    fn random_handshake_messages_end_it(bytes in prop::collection::vec(any::<u8>(), 1..3000), kind in 20_u8..25) {
        let (node, _) = friends();
        let (c, s) = sockets();
        let mut records = Vec::new();
        for piece in bytes.chunks(700) {
            records.extend([kind, 3, 3]);
            records.extend((piece.len() as u16).to_be_bytes());
            records.extend_from_slice(piece);
        }
        feed(TlsStream::server(s, &node).unwrap(), c, &records);
    }

    #[test]
    fn random_bytes_end_an_open_connection(bytes in prop::collection::vec(any::<u8>(), 1..3000), dressed in any::<bool>()) {
        let (_client, server) = open();
        let (ours, theirs) = sockets();
        let mut sent = Vec::new();
        if dressed {
            sent.extend([23, 3, 3]);
            sent.extend((bytes.len() as u16).to_be_bytes());
        }
        sent.extend_from_slice(&bytes);
        feed(server.on(theirs), ours, &sent);
    }
}
