//! A reservation before the program starts: the only question whose answer is waited for.

use super::Conn;
use loam_wire::{Decoded, Frame, Reservation, decode, encode};
use std::io::Write;
use std::time::{Duration, Instant};

impl Conn {
    /// Has `bytes` in all reserved before anything else is asked, and waits for the answer; other frames that come meanwhile are kept.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(crate) fn reserve_now(&mut self, bytes: u64, timeout: Duration) -> Result<Reservation, String> {
        if !self.reserves {
            return Err("it knows no reservations: start it with this version of Loam".into());
        }
        self.request += 1;
        let (mut head, asked) = (Vec::new(), self.request);
        encode::reserve(&mut head, asked, bytes);
        let deadline = Instant::now() + timeout;
        let socket = self.stream.socket();
        let blocks = socket.set_nonblocking(false).and_then(|()| {
            socket.set_read_timeout(Some(timeout))?;
            socket.set_write_timeout(Some(timeout))
        });
        let answer = blocks
            .and_then(|()| self.stream.write_all(&head))
            .and_then(|()| self.stream.flush())
            .map_err(|error| error.to_string())
            .and_then(|()| self.await_reserved(asked, deadline));
        let socket = self.stream.socket();
        let lifted = socket.set_read_timeout(None).and_then(|()| {
            socket.set_write_timeout(None)?;
            socket.set_nonblocking(true)
        });
        lifted.map_err(|error| error.to_string()).and(answer)
    }

    /// Says goodbye before anything was put, as far as the socket takes it.
    pub(crate) fn bye_now(&mut self) {
        let mut head = Vec::new();
        encode::bye(&mut head);
        // (Who does not hear it waits out the grace.)
        let _ = self.stream.write_all(&head).and_then(|()| self.stream.flush());
        self.stream.end();
    }

    fn await_reserved(&mut self, asked: u64, deadline: Instant) -> Result<Reservation, String> {
        loop {
            let mut at = self.start;
            while let Decoded::Whole { frame, consumed } =
                decode(&self.received[at..self.end]).map_err(|error| error.to_string())?
            {
                match frame {
                    Frame::Reserved { request, reservation } if request == asked => {
                        let reservation = *reservation;
                        self.received.copy_within(at + consumed..self.end, at);
                        self.end -= consumed;
                        return Ok(reservation);
                    }
                    Frame::Error { text, .. } => return Err(format!("it says: {text}")),
                    _ => at += consumed,
                }
            }
            if Instant::now() >= deadline {
                return Err("nothing has come in time".into());
            }
            self.receive().map_err(|error| error.to_string())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::ids::SpaceId;
    use loam_wire::client::Target;
    use loam_wire::{ReservationFacts, Stream, feature};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    const SOON: Duration = Duration::from_secs(20);

    /// What becomes of a request that a lender answers with `answer`, and the connection after it.
    fn answered(answer: Vec<u8>, timeout: Duration) -> (Result<Reservation, String>, Conn, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let target = Target::from(stream.peer_addr().unwrap());
        let mut conn = Conn::new(Stream::Plain(stream), target, SpaceId(1), 0, feature::RESERVE);
        let (mut lender, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                let mut asked = vec![0; 40];
                lender.read_exact(&mut asked).unwrap();
                lender.write_all(&answer).unwrap();
                (asked, lender)
            });
            let answer = conn.reserve_now(7 << 20, timeout);
            let (asked, _lender) = asked.join().unwrap();
            (answer, conn, asked)
        })
    }

    #[test]
    fn an_answer_is_awaited_and_what_comes_around_it_is_kept() {
        let reservation = Reservation::new(&ReservationFacts::default(), true);
        let (mut bytes, mut kept) = (Vec::new(), Vec::new());
        encode::store(&mut bytes, 1, 1, "a");
        encode::reserved(&mut bytes, 77, &reservation); // to another question
        kept.extend_from_slice(&bytes);
        encode::reserved(&mut bytes, 1, &reservation);
        encode::pong(&mut bytes, 5);
        encode::pong(&mut kept, 5);
        let (answer, mut conn, asked) = answered(bytes, SOON);
        assert_eq!(answer, Ok(reservation));
        let Ok(Decoded::Whole { frame, .. }) = decode(&asked) else { panic!("a frame") };
        assert_eq!(frame, Frame::Reserve { request: 1, bytes: 7 << 20 });
        // (The pong may come by itself.)
        conn.stream.socket().set_nonblocking(false).unwrap();
        while conn.end - conn.start < kept.len() {
            conn.receive().unwrap();
        }
        assert_eq!(conn.received[conn.start..conn.end], kept);
    }

    #[test]
    fn whoever_does_not_answer_is_told_of() {
        let mut refusal = Vec::new();
        encode::error(&mut refusal, loam_wire::error_code::BAD_FRAME, "not here");
        let short = Duration::from_millis(100);
        let cases = [
            (refusal, SOON, "it says: not here"),
            (Vec::new(), short, "nothing has come in time"),
            (b"no frame at all of anybody's".to_vec(), SOON, "magic number"),
        ];
        for (answer, timeout, why) in cases {
            let (answer, ..) = answered(answer, timeout);
            let told = answer.expect_err("there is no answer");
            assert!(told.contains(why), "{why}: {told}");
        }
    }

    #[test]
    fn an_older_lender_is_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let target = Target::from(stream.peer_addr().unwrap());
        let mut conn = Conn::new(Stream::Plain(stream), target, SpaceId(1), 0, feature::RECALL);
        let told = conn.reserve_now(1, SOON).expect_err("it does not know the frame");
        assert!(told.contains("no reservations"), "{told}");
        conn.reserve(1);
        assert!(!conn.can_send());
    }
}
