use super::*;
use loam_wire::{Decoded, Frame, decode};
use std::net::{TcpListener, TcpStream};

/// Pages of each frame that has come; of a getpage, as a negative number, of a drop a thousand times as many, of a hurry a million.
fn frames(lender: &mut TcpStream, bytes: &mut Vec<u8>) -> Vec<i64> {
    let mut piece = [0; 1 << 16];
    while let Ok(n @ 1..) = lender.read(&mut piece) {
        bytes.extend_from_slice(&piece[..n]);
    }
    let (mut found, mut start) = (Vec::new(), 0);
    while let Ok(Decoded::Whole { frame, consumed }) = decode(&bytes[start..]) {
        start += consumed;
        match frame {
            Frame::GetPage { pages, .. } => found.push(-(pages.len() as i64)),
            Frame::PutPage { pages, .. } => found.push(pages.len() as i64),
            Frame::Hurry { pages } => found.push(1_000_000 * pages.len() as i64),
            Frame::Drop { pages, .. } => found.push(1_000 * pages.len() as i64),
            _ => panic!("none of these was sent"),
        }
    }
    bytes.drain(..start);
    found
}

fn conn_to(stream: TcpStream, features: u64) -> Conn {
    let target = Target::from(stream.peer_addr().unwrap());
    Conn::new(Stream::Plain(stream), target, SpaceId(1), 0, features)
}

/// Both ends of a connection to a lender that knows plans.
fn pair() -> (Conn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (lender, _) = listener.accept().unwrap();
    lender.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    (conn_to(stream, feature::PLAN), lender)
}

#[test]
fn a_lender_is_here_by_either_address_of_the_machine() {
    let are = |ours: &str, theirs: &str| are_one_machine(ours.parse().unwrap(), theirs.parse().unwrap());
    assert!(are("10.0.0.1", "10.0.0.1") && are("127.0.0.1", "127.0.0.2"));
    assert!(are("::1", "::1") && are("10.0.0.1", "::ffff:10.0.0.1") && are("::1", "::ffff:127.0.0.1"));
    assert!(!are("10.0.0.1", "10.0.0.2") && !are("127.0.0.1", "10.0.0.2") && !are("fe80::1", "fe80::2"));
    assert!(pair().0.is_here);
}

/// The pages of the next getpage.
fn asked(lender: &mut TcpStream) -> Vec<u64> {
    let mut bytes = vec![0; 1 << 16];
    let n = lender.read(&mut bytes).unwrap();
    match decode(&bytes[..n]) {
        Ok(Decoded::Whole { frame: Frame::GetPage { pages, .. }, .. }) => {
            pages.iter().map(PageRef::index).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_waited_for_goes_first_and_in_one_request_with_the_rest() {
    let (mut conn, mut lender) = pair();
    let pool = Pool::new(1).unwrap();
    for index in 0..4 {
        let urgency = if index % 2 == 0 { Urgency::Behind } else { Urgency::Waited };
        conn.get(PageRef::planned(index, Version(1), urgency, 0));
    }
    conn.flush(&pool).unwrap();
    assert_eq!(asked(&mut lender), [1, 3, 0, 2]);
}

#[test]
fn a_hurry_moves_what_is_not_sent_and_tells_of_what_is() {
    let (mut conn, mut lender) = pair();
    let pool = Pool::new(1).unwrap();
    for index in 0..4 {
        conn.get(PageRef::planned(index, Version(1), Urgency::Behind, 1));
    }
    conn.hurry(2, Version(1));
    assert!(conn.hurries.is_empty(), "it is in no frame yet");
    conn.flush(&pool).unwrap();
    assert_eq!(asked(&mut lender), [2, 0, 1, 3]);
    conn.hurry(3, Version(1));
    assert!(conn.can_send());
    conn.flush(&pool).unwrap();
    assert_eq!(frames(&mut lender, &mut Vec::new()), [1_000_000]);
    // A lender that does not know it hears nothing.
    conn.plans = false;
    conn.hurry(1, Version(1));
    assert!(!conn.can_send());
}

#[test]
fn a_hurry_never_overtakes_its_getpage() {
    let (mut conn, mut lender) = pair();
    let pool = Pool::new(1).unwrap();
    for index in 0..400 {
        conn.put(index, Version(1), ContentHash(7), PutClass::Mirror, BufferIndex(0));
    }
    conn.get(PageRef::planned(1000, Version(1), Urgency::Behind, 1));
    conn.pack();
    conn.hurry(1000, Version(1));
    conn.get(PageRef::new(1001, Version(1)));
    conn.pack();
    let sent = conn.gets.len() + conn.gets_behind.len();
    assert_eq!(sent, 1, "what is waited for stays out of frames while one is unsent");
    conn.flush(&pool).unwrap();
    conn.flush(&pool).unwrap();
    let put = PUT_PAGES as i64;
    assert_eq!(frames(&mut lender, &mut Vec::new()), [-1, 1_000_000, put, -1, put]);
}

#[test]
fn puts_go_one_by_one_up_to_a_bound_and_gets_overtake_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut lender, _) = listener.accept().unwrap();
    lender.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut bytes = Vec::new();
    let mut conn = conn_to(stream, 0);
    let pool = Pool::new(1).unwrap();
    for index in 0..400 {
        conn.put(index, Version(1), ContentHash(7), PutClass::Mirror, BufferIndex(0));
    }
    conn.flush(&pool).unwrap();
    assert_eq!(frames(&mut lender, &mut bytes), [PUT_PAGES as i64], "one a call");
    conn.get(PageRef::new(1000, Version(1)));
    conn.flush(&pool).unwrap();
    assert_eq!(frames(&mut lender, &mut bytes), [-1, PUT_PAGES as i64], "a thread waits for the get");
    while conn.can_send() {
        conn.flush(&pool).unwrap();
    }
    let sent: i64 = frames(&mut lender, &mut bytes).iter().sum::<i64>() + 2 * PUT_PAGES as i64;
    assert_eq!(sent, PUTS_UNDER_WAY_MAX as i64);
    conn.get(PageRef::new(1001, Version(1)));
    assert!(conn.can_send());
    conn.flush(&pool).unwrap();
    assert_eq!(frames(&mut lender, &mut bytes), [-1], "puts that wait hold no get up");
    conn.put_answered(PUT_PAGES);
    assert!(conn.can_send());
    conn.flush(&pool).unwrap();
    assert_eq!(frames(&mut lender, &mut bytes), [PUT_PAGES as i64]);
    assert!(!conn.can_send() && !conn.wants_write);
}

/// A page that was given back leaves again under the same version before anything was sent.
#[test]
fn what_is_dropped_and_put_again_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut lender, _) = listener.accept().unwrap();
    lender.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut conn = conn_to(stream, 0);
    conn.drop_page(PageRef::new(7, Version(1)));
    conn.put(7, Version(1), ContentHash(7), PutClass::Mirror, BufferIndex(0));
    conn.flush(&Pool::new(1).unwrap()).unwrap();
    assert_eq!(frames(&mut lender, &mut Vec::new()), [1_000, 1], "the other way round it would be lost");
}

#[test]
fn any_number_of_drops_goes_in_frames_of_the_most_that_one_may_have() {
    let (mut conn, mut lender) = pair();
    let pool = Pool::new(1).unwrap();
    for pages in [2_500, 1_024, 1] {
        (0..pages).for_each(|index| conn.drop_page(PageRef::new(index, Version(1))));
        conn.flush(&pool).unwrap();
        assert!(!conn.can_send(), "all of them have gone");
        let frames = frames(&mut lender, &mut Vec::new());
        let wanted: &[i64] = match pages {
            2_500 => &[1_024_000, 1_024_000, 452_000],
            1_024 => &[1_024_000],
            _ => &[1_000],
        };
        assert_eq!(frames, wanted);
    }
}
