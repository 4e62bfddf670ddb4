//! One peer: its socket, what came and is not handled, what waits to be sent.

use crate::behind::Behind;
use crate::buffers::{Incoming, Outgoing};
use crate::cluster::Published;
use crate::drainer::Reply;
use crate::limits::*;
use crate::regions::Call;
use crate::service::{Outlet, Peer, Refusal, Service};
use crate::shared::Shared;
use loam_core::ids::SpaceId;
use loam_wire::limits::{REGION_SPANS_MAX, REQUEST_PAGES_MAX};
use loam_wire::tls::{Identity, TlsError};
use loam_wire::{Decoded, Frame, MountAt, RegionRefusal, Stream, WireError, decode, encode, error_code};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a TLS client says first: a record of its handshake, of any version.
const TLS_BEGINS: &[u8] = &[22, 3];

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

/// Where a connection came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Over the network, or loopback.
    Tcp(SocketAddr),
    /// By the UNIX socket: a program of this machine.
    Local,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Local => f.write_str("a local program"),
        }
    }
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct Place(Arc<Shared>);

impl Place {
    /// A place for one more connection, if there is one.
    pub(crate) fn take(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self(Arc::clone(shared));
        (shared.connections.fetch_add(1, Ordering::AcqRel) < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The local pages of one program, counted for as long as its connection lives.
#[derive(Debug)]
struct LocalPages {
    shared: Arc<Shared>,
    pages: u64,
}

impl LocalPages {
    fn new(shared: &Arc<Shared>, pages: u64) -> Self {
        // More than there can be is a mistake, and must not overflow the sum of all.
        let pages = pages.min(LOCAL_PAGES_MAX);
        shared.local_pages_are(pages, 0);
        Self { shared: Arc::clone(shared), pages }
    }
}

impl Drop for LocalPages {
    fn drop(&mut self) {
        self.shared.local_pages_are(0, self.pages);
    }
}

/// A mount of this machine, known for as long as its connection lives.
#[derive(Debug)]
struct Here {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Here {
    fn drop(&mut self) {
        self.shared.mount_is_gone(self.number);
    }
}

/// A program that makes calls about regions; what it has open is closed with it.
#[derive(Debug)]
struct Caller {
    shared: Arc<Shared>,
    number: u64,
    uid: u32,
    /// A call is under way.
    waits: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.shared.regions.gone(self.number);
    }
}

#[derive(Debug)]
struct Line {
    stream: Stream,
    outgoing: Outgoing,
    behind: Behind,
    broken: bool,
    sent_bytes: u64,
    /// When bytes last left, or nothing waited.
    moved: Instant,
    /// The request and the version of the last view that was sent, if views are wanted.
    subscription: Option<(u64, u64)>,
    origin: Origin,
    local_pages: Option<LocalPages>,
    mount: Option<Here>,
    caller: Option<Caller>,
    reply: Reply,
    /// Pages that are being read from the disk for it.
    reading: usize,
}

impl Outlet for Line {
    fn queue(&mut self) -> &mut Outgoing {
        if self.outgoing.len() == 0 {
            self.moved = Instant::now();
        }
        &mut self.outgoing
    }

    fn behind(&mut self) -> &mut Behind {
        if self.behind.is_empty() && self.outgoing.len() == 0 {
            self.moved = Instant::now();
        }
        &mut self.behind
    }

    fn is_local(&self) -> bool {
        self.origin == Origin::Local
    }

    fn calls(&mut self, shared: &Arc<Shared>, call: Call) -> Result<(), Refusal> {
        if self.caller.is_none() {
            let peer = rustix::net::sockopt::socket_peercred(self.stream.socket());
            let uid = peer.map_err(|why| Refusal::bad_frame(&format!("cannot tell who you are: {why}")))?.uid;
            let number = shared.regions.connection();
            self.caller =
                Some(Caller { shared: Arc::clone(shared), number, uid: uid.as_raw(), waits: false });
        }
        let caller = self.caller.as_mut().expect("it is there by now");
        if std::mem::replace(&mut caller.waits, true) {
            return Err(Refusal::bad_frame("one call about a region at a time: wait for the answer"));
        }
        let call = Call { connection: caller.number, uid: caller.uid, ..call };
        shared.regions.call(call, self.reply.clone());
        Ok(())
    }

    fn has_local_pages(&mut self, shared: &Arc<Shared>, pages: u64) {
        self.local_pages = None;
        self.local_pages = Some(LocalPages::new(shared, pages));
    }

    fn is_mount(&mut self, shared: &Arc<Shared>, at: MountAt) {
        self.mount = None;
        let number = shared.mount_is_here(at);
        self.mount = number.map(|number| Here { shared: Arc::clone(shared), number });
    }

    fn subscribe(&mut self, request: u64, version: u64) {
        self.subscription = Some((request, version));
    }

    fn flush(&mut self) {
        while self.waits() && !self.broken {
            let sent = if self.outgoing.len() > 0 {
                self.stream.write(self.outgoing.bytes())
            } else {
                self.stream.flush().map(|()| 0)
            };
            match sent {
                Ok(bytes) => {
                    self.outgoing.sent(bytes);
                    self.sent_bytes += bytes as u64;
                    self.moved = Instant::now();
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.broken = true,
            }
        }
    }

    fn reads(&mut self) -> Reply {
        self.reading += 1;
        self.reply.clone()
    }

    fn identity(&self) -> Option<&Identity> {
        self.stream.identity()
    }
}

impl Line {
    /// Something is to be sent.
    fn waits(&self) -> bool {
        self.outgoing.len() > 0 || self.stream.waits()
    }
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
    /// What epoll was last asked for.
    pub(crate) interest: EventFlags,
    _place: Place,
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
                reading: 0,
                origin,
            },
            peer: Peer::Stranger,
            incoming: Incoming::default(),
            state: State::Open,
            opened: now,
            unfinished: false,
            held_back: false,
            interest: EventFlags::IN,
            _place: place,
        }
    }

    pub(crate) fn socket(&self) -> &Stream {
        &self.line.stream
    }

    /// What to wait for: nothing more is read while much waits to be sent.
    pub(crate) fn wants(&self) -> EventFlags {
        let mut wants = EventFlags::empty();
        // A socket that can be written at once brings an unfinished turn back, and what has come and is not in the socket.
        let sends = self.line.waits() || !self.line.behind.is_empty();
        let goes_on = self.unfinished || self.may_go_on();
        wants.set(EventFlags::OUT, sends || goes_on || self.line.stream.holds());
        wants.set(EventFlags::IN, self.has_room() || self.state != State::Open);
        wants
    }

    fn has_room(&self) -> bool {
        let may_read = self.line.reading + REQUEST_PAGES_MAX <= READING_PAGES_MAX;
        self.line.outgoing.len() <= QUEUED_BYTES_HIGH && self.line.behind.has_room() && may_read
    }

    /// Frames waited for room, and there is some: whatever made it, no event of the socket need come any more.
    fn may_go_on(&self) -> bool {
        self.held_back && self.state == State::Open && self.has_room()
    }

    /// Sends one of the `left` frames of this turn that no thread waits for, if all that was to be sent before is with the kernel. False:
    /// there is none, or it has to wait.
    fn send_behind(&mut self, service: &mut Service, left: &mut usize) -> bool {
        if *left == 0
            || self.line.behind.is_empty()
            || self.line.waits()
            || self.line.broken
            || self.state != State::Open
        {
            return false;
        }
        *left -= 1;
        // Whoever waits for this core comes first: a thread, perhaps, that has just got what it waited for.
        rustix::thread::sched_yield();
        match service.answer_behind(self.peer, &mut self.line) {
            Ok(()) => self.line.flush(),
            Err(refusal) => self.refuse(&refusal, service),
        }
        true
    }

    /// Does all that can be done without waiting, up to one turn's worth.
    pub(crate) fn advance(&mut self, service: &mut Service) -> Progress {
        let mut progress = Progress::None;
        if self.line.waits() || self.unfinished {
            self.line.flush();
            progress = Progress::Some;
            self.handle_frames(service);
        } else if self.may_go_on() {
            progress = Progress::Some;
            self.handle_frames(service);
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
                        tracing::warn!("{} closed in the middle of a frame", self.line.origin);
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
        if self.state == State::Over { Progress::Over } else { progress }
    }

    /// Handles whole frames while there is room for answers, and sends the answers; at most one turn's worth.
    fn handle_frames(&mut self, service: &mut Service) {
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
                    service.handle(&mut self.peer, frame, &mut self.line).map(|()| consumed)
                }
                Err(error) => Err(self.refusal_of(error)),
            };
            match handled {
                Ok(consumed) => self.incoming.consume(consumed),
                Err(refusal) => self.refuse(&refusal, service),
            }
        }
        self.line.flush();
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
        if self.line.outgoing.len() == 0 {
            self.line.stream.end();
        }
    }

    /// It is one of this borrower's, and can be told something.
    pub(crate) fn is_of(&self, space: SpaceId) -> bool {
        self.state == State::Open && self.peer == Peer::Borrower(space)
    }

    /// Queues a frame that nobody asked for.
    pub(crate) fn tell(&mut self, frame: &[u8]) {
        self.line.queue().append(frame.len()).copy_from_slice(frame);
    }

    /// Queues an answer with `pages` that were read from the disk, or were not there.
    pub(crate) fn answer(&mut self, pages: usize, frame: &[u8]) {
        self.line.reading -= pages;
        if self.state == State::Open {
            self.tell(frame);
        }
    }

    /// Sends the answer to a call about a region, with descriptors of its memory. They go beside the bytes, so all that was
    /// to be sent before has to be with the kernel.
    pub(crate) fn hand(&mut self, frame: &[u8], files: &[Arc<OwnedFd>]) {
        if let Some(caller) = &mut self.line.caller {
            caller.waits = false;
        }
        if self.state != State::Open {
            return;
        }
        if files.is_empty() {
            return self.tell(frame);
        }
        self.line.flush();
        if self.line.waits() {
            tracing::warn!("closed {}: it does not take its answers", self.line.origin);
            self.line.broken = true;
            return;
        }
        match send_with(self.line.stream.socket(), frame, files) {
            // What did not fit follows as bytes; the descriptors went with the first.
            Ok(sent) if sent < frame.len() => self.tell(&frame[sent..]),
            Ok(_) => {}
            // It is told and stays: what it has mapped already is its own for as long as its connection lives.
            Err(why) => match decode(frame) {
                Ok(Decoded::Whole { frame: Frame::Region { request, .. }, .. }) => {
                    let text = format!(
                        "cannot hand the region's memory over: {why}; is there a limit on descriptors (ulimit -n)?"
                    );
                    tracing::warn!("{}: {text}", self.line.origin);
                    let mut refused = Vec::new();
                    encode::region_refused(&mut refused, request, RegionRefusal::Unavailable, &text);
                    self.tell(&refused);
                }
                _ => unreachable!("only a region's frame comes with memory"),
            },
        }
    }

    pub(crate) fn wants_views(&self) -> bool {
        self.line.subscription.is_some()
    }

    /// Queues a view for who wants it and has not got it. One who does not take what was sent before gets the next one instead.
    pub(crate) fn offer_view(&mut self, published: &Published) -> bool {
        let version = published.view.version();
        match self.line.subscription {
            Some((request, sent))
                if sent != version && self.state == State::Open && self.line.outgoing.len() == 0 =>
            {
                let mut head = Vec::new();
                encode::view(&mut head, request, &published.view, &published.view_nodes);
                self.line.queue().append(head.len()).copy_from_slice(&head);
                self.line.subscription = Some((request, version));
                true
            }
            _ => false,
        }
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
    pub(crate) fn sweep(&mut self, now: Instant) -> bool {
        self.incoming.shrink();
        self.line.outgoing.shrink();
        self.line.behind.shrink();
        self.line.stream.shrink();
        let sends = self.line.waits() || !self.line.behind.is_empty();
        let late = match self.state {
            State::Farewell(until) => return now >= until,
            _ if self.peer == Peer::Stranger && now > self.opened + HELLO_TIMEOUT => "said no hello",
            _ if sends && now > self.line.moved + STALLED_TIMEOUT => "does not take its answers",
            _ => return false,
        };
        tracing::warn!("closed {}: it {late}", self.line.origin);
        true
    }

    /// Tells the lender's state that it is gone.
    pub(crate) fn close(self, shared: &Shared) {
        if let Peer::Borrower(space) = self.peer {
            shared.lender().connection_closed(shared.now(), space);
            // The keeper has a new moment to wait for.
            shared.tell_keeper();
        }
    }
}

/// Sends bytes with descriptors.
fn send_with(
    socket: &std::net::TcpStream,
    bytes: &[u8],
    files: &[Arc<OwnedFd>],
) -> rustix::io::Result<usize> {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGION_SPANS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "a region has no more spans than that");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))
}
