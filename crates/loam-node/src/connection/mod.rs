//! One peer: its socket, what came and is not handled, what waits to be sent.
//!
//! [`line`] is the way out, and what is counted for as long as the peer is there; [`reading`] takes in what comes and has it handled;
//! [`asleep`] tells a peer that was stopped from one that is gone; [`handing`] is for what others have for it: answers that were waited for, and frames that nobody asked for.

mod asleep;
mod handing;
mod line;
mod reading;

use crate::behind::Behind;
use crate::buffers::{Incoming, Outgoing};
use crate::disk_reads::DiskReads;
use crate::drainer::Reply;
use crate::limits::*;
use crate::places::Place;
use crate::seats::Seat;
use crate::service::{Outlet, Peer};
use crate::shared::Shared;
use crate::sock_diag::SockDiag;
use asleep::Asleep;
use line::Line;
pub(crate) use line::Origin;
use loam_core::ids::SpaceId;
use loam_wire::{Stream, encode, error_code};
use rustix::event::epoll::EventFlags;
use std::time::Instant;

/// What an attempt to make progress came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something was received or sent.
    Some,
    /// There was nothing to do.
    None,
    /// The connection is over.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It was refused: the reason is sent, what still comes is thrown away (closing with unread bytes would reset the
    /// connection and lose the reason), and at this moment it ends.
    Farewell(Instant),
    Over,
}

#[derive(Debug)]
pub(crate) struct Connection {
    line: Line,
    peer: Peer,
    incoming: Incoming,
    state: State,
    opened: Instant,
    /// Its turn ended with frames left that can be handled.
    unfinished: bool,
    /// Frames have come that are not handled: there was no room for their answers.
    held_back: bool,
    asleep: Asleep,
    /// Bytes of posts since all of them were sent, and the bytes that are sent when these are.
    posted_bytes: usize,
    posted_end: u64,
    /// Others wait for that.
    pub(crate) has_posts: bool,
    /// Bytes sent when the kernel was seen to have none of them left.
    all_sent_bytes: u64,
    /// What epoll was last asked for.
    pub(crate) interest: EventFlags,
    place: Place,
    /// When it asked or said something last, as far as is known; since then it has, again.
    asked: Instant,
    has_asked: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, origin: Origin, place: Place, reply: Reply) -> Self {
        let now = Instant::now();
        Self {
            line: Line {
                stream,
                outgoing: Outgoing::default(),
                behind: Behind::default(),
                broken: false,
                sent_bytes: 0,
                moved: now,
                subscription: None,
                local_pages: None,
                mount: None,
                caller: None,
                reply,
                disk_reads: DiskReads::default(),
                origin,
            },
            peer: Peer::Stranger,
            incoming: Incoming::default(),
            state: State::Open,
            opened: now,
            unfinished: false,
            held_back: false,
            asleep: Asleep::default(),
            posted_bytes: 0,
            posted_end: 0,
            has_posts: false,
            all_sent_bytes: 0,
            interest: EventFlags::IN,
            place,
            asked: now,
            has_asked: false,
        }
    }

    pub(crate) fn socket(&self) -> &Stream {
        &self.line.stream
    }

    /// What to wait for: nothing more is read while much waits to be sent.
    pub(crate) fn wants(&self) -> EventFlags {
        let mut wants = EventFlags::empty();
        // A socket that can be written at once brings an unfinished turn back, and what has come and is not in the socket.
        let goes_on = self.unfinished || self.may_go_on();
        let reads = self.has_room() || self.state != State::Open;
        wants.set(EventFlags::OUT, self.line.sends() || goes_on || reads && self.line.stream.holds());
        wants.set(EventFlags::IN, reads);
        wants
    }

    fn has_room(&self) -> bool {
        let line = &self.line;
        line.outgoing.len() <= QUEUED_BYTES_HIGH && line.behind.has_room() && line.disk_reads.has_room()
    }

    /// Frames waited for room, and there is some: whatever made it, no event of the socket need come any more.
    fn may_go_on(&self) -> bool {
        self.held_back && self.state == State::Open && self.has_room()
    }

    /// It is one of this borrower's, and can be told something.
    pub(crate) fn is_of(&self, space: SpaceId) -> bool {
        let is_theirs = |seat: &Seat| seat.space == space && !seat.is_void();
        self.state == State::Open && matches!(&self.peer, Peer::Borrower(seat) if is_theirs(seat))
    }

    /// The lender ends: says so, without waiting.
    pub(crate) fn end(&mut self) {
        if self.state == State::Open && self.peer != Peer::Stranger {
            let mut head = Vec::new();
            encode::error(&mut head, error_code::ENDING, "the lender was told to end");
            self.line.outgoing.append(head.len()).copy_from_slice(&head);
            self.line.flush();
            self.line.stream.end();
        }
    }

    /// Whether its time has run out; gives buffers back that are not used.
    pub(crate) fn sweep(&mut self, now: Instant, kernel: Option<&mut SockDiag>) -> bool {
        let has_asked = std::mem::take(&mut self.has_asked);
        if has_asked {
            self.asked = now;
        }
        // There may be many that say something now and then.
        let keeps = if has_asked { BUFFER_BYTES_MIN } else { 0 };
        self.incoming.shrink(keeps);
        self.line.outgoing.shrink(keeps);
        self.line.behind.shrink();
        self.line.disk_reads.shrink();
        self.line.stream.shrink();
        self.look_whether_asleep(now, kernel);
        // One of this machine is there, or its connection would be over.
        let is_there = self.asleep.answers() || self.line.origin == Origin::Local;
        let stalled = if is_there { ASLEEP_TIMEOUT } else { STALLED_TIMEOUT };
        let sends = self.line.sends();
        let late = match self.state {
            State::Farewell(until) => return now >= until,
            _ if self.peer == Peer::Stranger && now > self.opened + HELLO_TIMEOUT => "said no hello",
            _ if self.place.is_strangers() && now > self.opened + HELLO_TIMEOUT => "found no place",
            _ if self.is_idle(now) => "has asked nothing for long",
            _ if sends && now > self.line.moved + stalled => "does not take its answers",
            _ => return false,
        };
        tracing::warn!("closed {}: it {late}", self.line.origin);
        true
    }

    /// It keeps a place that it has no use for. (A program of this machine takes one from its own user alone.)
    fn is_idle(&self, now: Instant) -> bool {
        let waits = self.line.origin == Origin::Local || self.line.subscription.is_some();
        self.peer == Peer::Tool && !waits && now > self.asked + TOOL_IDLE_TIMEOUT
    }

    /// A peer that was stopped is not one that has vanished.
    fn look_whether_asleep(&mut self, now: Instant, kernel: Option<&mut SockDiag>) {
        let Some(kernel) = kernel.filter(|_| self.line.origin != Origin::Local) else { return };
        let sent_bytes = self.line.sent_bytes;
        let waits = self.line.waits() || sent_bytes != self.all_sent_bytes;
        if !waits || !self.asleep.looks(now) {
            return;
        }
        let socket = self.line.stream.socket();
        match kernel.ask(socket) {
            Ok(way) => {
                if way.waiting_bytes == 0 {
                    self.all_sent_bytes = sent_bytes;
                }
                if let Some(time) = self.asleep.look(now, way) {
                    let time_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
                    // If it cannot be set the kernel does as before.
                    let _ = rustix::net::sockopt::set_tcp_user_timeout(socket, time_ms);
                }
            }
            // Not looked at, it has the time that it was given last.
            Err(why) => tracing::debug!("cannot ask about {}: {why}", self.line.origin),
        }
    }

    /// Tells the lender's state that it is gone.
    pub(crate) fn close(self, shared: &Shared) {
        if let Peer::Borrower(seat) = &self.peer {
            shared.leave_seat(seat);
            // Whatever is known here of posts: in the turn in which it sent all the loop may not have offered it those that are held.
            shared.posts.let_go(shared.now(), seat.space);
            // The keeper has a new moment to wait for.
            shared.tell_keeper();
        }
    }
}
