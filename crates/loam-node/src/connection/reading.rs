//! What comes from a peer: taken in a turn at a time, handled frame by frame, refused if it has to be.

use super::line::Origin;
use super::{Connection, Progress, State};
use crate::behind::Behind;
use crate::limits::*;
use crate::service::{Outlet, Peer, Refusal, Service};
use loam_wire::tls::TlsError;
use loam_wire::{Decoded, WireError, decode, encode, error_code};
use std::io::{self, Read};
use std::time::Instant;

/// What a TLS client says first: a record of its handshake, of any version.
const TLS_BEGINS: &[u8] = &[22, 3];

impl Connection {
    /// Sends one of the `left` frames of this turn that no thread waits for, if all that was to be sent before is with the kernel. False:
    /// there is none, or it has to wait.
    fn send_behind(&mut self, service: &mut Service, left: &mut usize) -> bool {
        if *left == 0
            || !self.line.has_behind()
            || self.line.waits()
            || self.line.broken
            || self.state != State::Open
        {
            return false;
        }
        *left -= 1;
        // Whoever waits for this core comes first: a thread, perhaps, that has just got what it waited for.
        rustix::thread::sched_yield();
        match service.answer_behind(&self.peer, &mut self.line) {
            Ok(()) => self.line.flush(),
            Err(refusal) => self.refuse(&refusal, service),
        }
        true
    }

    /// Does all that can be done without waiting, up to one turn's worth.
    pub(crate) fn advance(&mut self, service: &mut Service) -> Progress {
        let mut progress = Progress::None;
        if self.line.waits() || self.unfinished || self.may_go_on() {
            let sent_before = self.line.sent_bytes;
            self.line.flush();
            let handled = self.handle_frames(service);
            // A peer that takes nothing is not to be asked again and again whether it does.
            if handled || self.line.sent_bytes > sent_before {
                progress = Progress::Some;
            }
        }
        let (mut turn_bytes, mut behind_left) = (0, BEHIND_FRAMES_TURN);
        while turn_bytes < TURN_BYTES_MAX {
            match self.state {
                State::Open if self.has_room() && !self.unfinished => {}
                State::Open => {
                    if self.unfinished || !self.send_behind(service, &mut behind_left) {
                        break;
                    }
                    progress = Progress::Some;
                    continue;
                }
                State::Farewell(_) => self.incoming.consume(self.incoming.bytes().len()),
                State::Over => break,
            }
            let room = self.incoming.room();
            let room_bytes = room.len();
            match self.line.stream.read(room) {
                Ok(0) => {
                    if self.state == State::Open && !self.incoming.bytes().is_empty() {
                        tracing::info!("{} closed in the middle of a frame", self.line.origin);
                    }
                    self.state = State::Over;
                }
                Ok(bytes) => {
                    progress = Progress::Some;
                    turn_bytes += bytes;
                    self.incoming.received(bytes);
                    self.handle_frames(service);
                    // Then the socket is looked at again: what has come meanwhile may be urgent.
                    let sent = self.send_behind(service, &mut behind_left);
                    if bytes < room_bytes && !sent {
                        break;
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    if !self.send_behind(service, &mut behind_left) {
                        break;
                    }
                    progress = Progress::Some;
                }
                Err(why) => self.lose(&why, service),
            }
        }
        if self.line.broken {
            self.state = State::Over;
        }
        // Some of what the disk has read has been taken, perhaps: then more is read.
        match (self.state, &self.peer) {
            // Its borrower has come back by another one, and asks there.
            (State::Open, Peer::Borrower(seat)) if seat.is_void() => self.line.disk_reads.forget(),
            (State::Open, Peer::Borrower(seat)) => service.begin_reads(seat.space, &mut self.line),
            _ => {}
        }
        if self.state == State::Over { Progress::Over } else { progress }
    }

    /// Handles whole frames while there is room for answers, and sends the answers; at most one turn's worth. Whether there was any.
    fn handle_frames(&mut self, service: &mut Service) -> bool {
        let mut any = false;
        (self.unfinished, self.held_back) = (false, false);
        let sent_before = self.line.sent_bytes;
        while self.state == State::Open && !self.line.broken {
            if !self.has_room() {
                self.line.flush();
                if !self.has_room() {
                    self.held_back = true;
                    break;
                }
            }
            if self.line.sent_bytes - sent_before > TURN_BYTES_MAX as u64 {
                self.unfinished = true;
                break;
            }
            let handled = match decode(self.incoming.bytes()) {
                Ok(Decoded::NeedMore { bytes_total }) => {
                    self.incoming.want(bytes_total);
                    break;
                }
                Ok(Decoded::Whole { frame, consumed }) => {
                    self.has_asked = true;
                    let settled = self.place.settle(&frame);
                    settled
                        .and_then(|()| service.handle(&mut self.peer, frame, &mut self.line))
                        .map(|()| consumed)
                }
                Err(error) => Err(self.refusal_of(error)),
            };
            any = true;
            match handled {
                Ok(consumed) => self.incoming.consume(consumed),
                Err(refusal) => self.refuse(&refusal, service),
            }
        }
        self.line.flush();
        any
    }

    /// What to say about bytes that are no frame.
    fn refusal_of(&self, error: WireError) -> Refusal {
        if self.peer == Peer::Stranger && self.incoming.bytes().starts_with(TLS_BEGINS) {
            let text =
                "you speak TLS, and here are no credentials: start it with --tls DIR, or leave --tls out";
            return Refusal { code: error_code::DENIED, text: text.to_owned() };
        }
        error.into()
    }

    /// The connection broke.
    fn lose(&mut self, why: &io::Error, service: &Service) {
        let was_open = self.state == State::Open;
        self.state = State::Over;
        match TlsError::of(why) {
            Some(TlsError::Truncated) | None => tracing::info!("lost {}: {why}", self.line.origin),
            Some(tls) if was_open => {
                self.complain(service, &format!("no TLS: {tls}"));
                self.say_farewell();
            }
            Some(_) => {}
        }
    }

    /// Says why a peer is refused; of one that comes again and again with the same mistake once a minute.
    fn complain(&self, service: &Service, why: &str) {
        let origin = self.line.origin;
        match origin {
            Origin::Tcp(addr) if !service.is_news(addr.ip(), why) => {
                tracing::debug!("refused {origin} again: {why}")
            }
            _ => tracing::warn!("refused {origin}: {why}"),
        }
    }

    fn refuse(&mut self, refusal: &Refusal, service: &Service) {
        self.complain(service, &refusal.text);
        let mut head = Vec::new();
        encode::error(&mut head, refusal.code, &refusal.text);
        self.line.outgoing.append(head.len()).copy_from_slice(&head);
        self.line.flush();
        self.say_farewell();
    }

    /// Leaves the peer some time to read what was said last.
    fn say_farewell(&mut self) {
        self.state = State::Farewell(Instant::now() + FAREWELL_TIMEOUT);
        // Nobody is answered any more: what waits must not keep the loop awake.
        self.line.behind = Behind::default();
        self.line.disk_reads.forget();
        if self.line.outgoing.len() == 0 {
            self.line.stream.end();
        }
    }
}
