//! A TLS connection over a socket, blocking or not.
//!
//! Bytes are received into the inbox, opened there record by record, and copied to where they are wanted. What is sent is sealed and queued; the
//! socket takes it as it can. So there may be bytes that the socket's readiness does not tell of: received and opened ones
//! ([`TlsStream::holds`]), and sealed ones that wait ([`TlsStream::waits`]). A read goes on until its room is full or nothing
//! whole is left, so that whoever offers [`INBOX_BYTES_MAX`] of room finds nothing held afterwards.

use super::handshake::{Handshake, Taken};
use super::records::{CONTENTS_BYTES_MAX, Opened, RECORD_BYTES_MAX, Records};
use super::{Credentials, Identity, TlsError};
use crate::layout::MAGIC;
use crate::{encode, error_code};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that a connection has received and not opened, at most.
pub const INBOX_BYTES_MAX: usize = 256 * 1024;
/// The inbox begins with this, and again when it was given back, and grows as whole fills come.
const INBOX_BYTES_MIN: usize = RECORD_BYTES_MAX + 4096;
/// Bytes that are sealed before the socket gets them: the other side opens them while the next are sealed.
const SEALED_BYTES: usize = 4 * CONTENTS_BYTES_MAX;
/// Pieces of one record, and of one write.
const PIECES_MAX: usize = 64;
/// Reads of one call that may bring records without a byte for the reader.
const EMPTY_READS_MAX: usize = 8;
/// Records in the outbox beyond which a peer that wants new keys all the time is given up.
const KEYS_WAITING_MAX: usize = 64;

const _: () = assert!(INBOX_BYTES_MAX >= 4 * INBOX_BYTES_MIN);

#[derive(Debug)]
enum Phase {
    Shaking(Handshake),
    Open(Box<Records>),
    /// The peer has said that it sends no more; we may.
    HalfOpen(Box<Records>),
    /// It went wrong. What still comes is thrown away: a socket that is closed with unread bytes loses what was
    /// sent last, which says why.
    Failed,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    phase: Phase,
    server: bool,
    identity: Option<Identity>,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    /// Opened bytes for which the room was too small.
    held: Vec<u8>,
    held_start: usize,
    outbox: VecDeque<Vec<u8>>,
    /// Bytes of the first one that are sent.
    sent: usize,
    /// What is received must have come by then, however slowly its bytes drip.
    due: Option<Instant>,
}

impl TlsStream {
    /// The side that listens; the handshake goes on as bytes are received.
    ///
    /// # Errors
    /// rustls's.
    pub fn server(socket: TcpStream, credentials: &Credentials) -> io::Result<Self> {
        let connection = UnbufferedServerConnection::new(credentials.server())
            .map_err(|why| TlsError::Rustls(why).io())?;
        Ok(Self::new(socket, Handshake::Server(Box::new(connection)), true))
    }

    /// The side that connects, to a node of this name if one is given.
    ///
    /// # Errors
    /// rustls's.
    pub fn client(socket: TcpStream, credentials: &Credentials, name: Option<&str>) -> io::Result<Self> {
        let config = credentials.client(name).map_err(|why| TlsError::Rustls(why).io())?;
        Self::client_with(socket, config)
    }

    pub(super) fn client_with(socket: TcpStream, config: Arc<ClientConfig>) -> io::Result<Self> {
        // It is not sent: nodes are known by their certificates, whatever their address.
        let anybody = ServerName::IpAddress(socket.peer_addr()?.ip().into());
        let connection =
            UnbufferedClientConnection::new(config, anybody).map_err(|why| TlsError::Rustls(why).io())?;
        Ok(Self::new(socket, Handshake::Client(Box::new(connection)), false))
    }

    fn new(socket: TcpStream, handshake: Handshake, server: bool) -> Self {
        Self {
            socket,
            phase: Phase::Shaking(handshake),
            server,
            identity: None,
            inbox: vec![0; INBOX_BYTES_MIN],
            start: 0,
            end: 0,
            held: Vec::new(),
            held_start: 0,
            outbox: VecDeque::new(),
            sent: 0,
            due: None,
        }
    }

    /// Who still waits for bytes then, of the handshake or behind it, gets an error of the kind that is of a wait that was too long. (Of a blocking socket, whose read timeout is
    /// what is left.)
    pub fn due_by(&mut self, deadline: Option<Instant>) {
        self.due = deadline;
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Who the peer is, once the handshake is done.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// It went wrong: what was to be said about it is sent, and what comes is thrown away.
    pub fn has_failed(&self) -> bool {
        matches!(self.phase, Phase::Failed)
    }

    /// Sealed bytes wait until the socket can be written.
    pub fn waits(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Bytes have come that a call of [`Self::receive`] would give out without the socket's help.
    pub fn holds(&self) -> bool {
        let received = &self.inbox[self.start..self.end];
        let whole =
            || Records::length(received).is_ok_and(|bytes| bytes.is_some_and(|n| n <= received.len()));
        self.held_start < self.held.len() || (matches!(self.phase, Phase::Open(_)) && whole())
    }

    /// Takes the handshake one step: to be called until it answers true, or an error other than
    /// [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Those of the socket, and [`TlsError`].
    pub fn shake(&mut self) -> io::Result<bool> {
        while let Phase::Shaking(handshake) = &mut self.phase {
            let mut taken = Taken::default();
            let received = &mut self.inbox[self.start..self.end];
            let (first, short) = (received.first().copied(), received.len() < MAGIC.len());
            let result = if self.server && received.starts_with(&MAGIC) {
                Err(TlsError::PlainClient)
            } else if self.server && first == Some(MAGIC[0]) && short {
                Ok(())
            } else {
                handshake.take(received, &mut taken)
            };
            self.start += taken.consumed;
            self.held.append(&mut taken.data);
            self.outbox.extend(taken.out);
            if let Err(why) = result {
                return Err(self.fail(why, first));
            }
            self.push_what_goes()?;
            if taken.done {
                let Phase::Shaking(handshake) = std::mem::replace(&mut self.phase, Phase::Failed) else {
                    unreachable!("looked at above")
                };
                let (identity, mut records) = handshake.finish().map_err(TlsError::io)?;
                match identity {
                    Ok(identity) => self.identity = Some(identity),
                    Err(why) => {
                        self.outbox.extend(records.seal_refusal(why.alert()));
                        return Err(self.fail(why, None));
                    }
                }
                self.phase = Phase::Open(Box::new(records));
            } else {
                self.fill()?;
            }
        }
        Ok(matches!(self.phase, Phase::Open(_) | Phase::HalfOpen(_)))
    }

    /// The connection is over; tells the peer why, as far as the socket takes it.
    fn fail(&mut self, why: TlsError, first: Option<u8>) -> io::Error {
        let not_tls = !self.server && matches!(why, TlsError::Garbage) && first == Some(MAGIC[0]);
        let why = if not_tls { TlsError::NotTls } else { why };
        if matches!(why, TlsError::PlainClient) {
            // In its own language.
            let mut frame = Vec::new();
            encode::error(&mut frame, error_code::DENIED, "it wants TLS: give --tls DIR");
            self.outbox.clear();
            self.outbox.push_back(frame);
        }
        self.phase = Phase::Failed;
        (self.start, self.end) = (0, 0);
        let _ = self.push();
        why.io()
    }

    /// Receives into `room`, as [`Read::read`] does: 0 is the end of the stream. While the handshake is not done, it goes on.
    ///
    /// # Errors
    /// Those of the socket, [`io::ErrorKind::WouldBlock`] among them, and [`TlsError`].
    pub fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut empty = 0;
        while empty < EMPTY_READS_MAX {
            match &self.phase {
                Phase::Shaking(_) => {
                    self.shake()?;
                }
                Phase::Failed => self.throw_away()?,
                Phase::Open(_) | Phase::HalfOpen(_) => {}
            }
            let held = self.give_held(room);
            let before = self.start;
            let bytes = if held < room.len() { held + self.open(&mut room[held..])? } else { held };
            if bytes > 0 || matches!(self.phase, Phase::HalfOpen(_)) {
                return Ok(bytes);
            }
            // A record that comes in many pieces is no reason to stop: whoever reads without epoll would take that for an error.
            if self.start > before || !matches!(self.phase, Phase::Open(_)) {
                empty += 1;
            }
            if matches!(self.phase, Phase::Open(_)) {
                self.fill()?;
            }
        }
        // Epoll brings it back: there is more.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Reads what nobody wants any more; the end of it is the end of the connection.
    fn throw_away(&mut self) -> io::Result<()> {
        let _ = self.push();
        match self.socket.read(&mut self.inbox)? {
            0 => Err(TlsError::Truncated.io()),
            _ => Ok(()),
        }
    }

    fn give_held(&mut self, room: &mut [u8]) -> usize {
        let held = &self.held[self.held_start..];
        let bytes = held.len().min(room.len());
        room[..bytes].copy_from_slice(&held[..bytes]);
        self.held_start += bytes;
        if self.held_start == self.held.len() {
            self.held.clear();
            self.held_start = 0;
        }
        bytes
    }

    /// Opens whole records until the room is full or no more are there.
    fn open(&mut self, room: &mut [u8]) -> io::Result<usize> {
        assert!(self.held.is_empty(), "what is held goes first");
        let mut filled = 0;
        while let Phase::Open(records) = &mut self.phase {
            let received = &mut self.inbox[self.start..self.end];
            let bytes = match Records::length(received) {
                Ok(Some(bytes)) if bytes <= received.len() && filled < room.len() => bytes,
                Ok(_) => break,
                Err(why) => return Err(self.fail(why, None)),
            };
            match records.open(&mut received[..bytes]) {
                Ok(Opened::Data(data)) => {
                    let (now, later) = data.split_at(data.len().min(room.len() - filled));
                    room[filled..filled + now.len()].copy_from_slice(now);
                    filled += now.len();
                    self.held.extend_from_slice(later);
                }
                Ok(Opened::Nothing) => {}
                Ok(Opened::KeyWanted) if self.outbox.len() < KEYS_WAITING_MAX => {
                    let outbox = &mut self.outbox;
                    records.change_key(|record| outbox.push_back(record)).map_err(TlsError::io)?;
                    self.push_what_goes()?;
                }
                Ok(Opened::KeyWanted) => return Err(self.fail(TlsError::Protocol("too many keys"), None)),
                Ok(Opened::End) => {
                    let Phase::Open(records) = std::mem::replace(&mut self.phase, Phase::Failed) else {
                        unreachable!("looked at above")
                    };
                    self.phase = Phase::HalfOpen(records);
                }
                Err(why) => return Err(self.fail(why, None)),
            }
            self.start += bytes;
        }
        Ok(filled)
    }

    /// Receives once into the inbox.
    fn fill(&mut self) -> io::Result<()> {
        if let Some(due) = self.due {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.inbox.len() && !self.grow() {
            return Err(self.fail(TlsError::Protocol("a handshake that does not end"), None));
        }
        loop {
            match self.socket.read(&mut self.inbox[self.end..]) {
                Ok(0) => return Err(TlsError::Truncated.io()),
                Ok(bytes) => {
                    self.end += bytes;
                    if self.end == self.inbox.len() {
                        self.grow();
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn grow(&mut self) -> bool {
        let bytes = (self.inbox.len() * 2).clamp(INBOX_BYTES_MIN, INBOX_BYTES_MAX);
        let grows = bytes > self.inbox.len();
        self.inbox.resize(bytes, 0);
        grows
    }

    /// Gives memory back if nothing is in it.
    pub fn shrink(&mut self) {
        // (What goes wrong throws away what comes, into this.)
        if self.start == self.end && !self.has_failed() {
            (self.start, self.end) = (0, 0);
            self.inbox = Vec::new();
        }
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Seals from `pieces` and sends, as [`Write::write_vectored`] does; what is taken is sealed, and may wait
    /// ([`Self::waits`]) until [`Self::push`] is called.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::WouldBlock`] while sealed bytes wait, and during the handshake.
    pub fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.push()?;
        let records = match &mut self.phase {
            Phase::Open(records) | Phase::HalfOpen(records) => records,
            Phase::Shaking(_) => return Err(io::ErrorKind::WouldBlock.into()),
            Phase::Failed => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let (mut piece, mut skip, mut taken) = (0, 0, 0);
        while piece < pieces.len() && taken < SEALED_BYTES {
            // As many pieces, and of the last one as much, as one record takes.
            let mut contents: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
            let (mut used, mut bytes) = (0, 0);
            while piece < pieces.len() && used < PIECES_MAX && bytes < CONTENTS_BYTES_MAX {
                let rest = &pieces[piece][skip..];
                let part = rest.len().min(CONTENTS_BYTES_MAX - bytes);
                contents[used] = &rest[..part];
                (used, bytes) = (used + 1, bytes + part);
                (piece, skip) = if part == rest.len() { (piece + 1, 0) } else { (piece, skip + part) };
            }
            if bytes > 0 {
                let outbox = &mut self.outbox;
                records.seal(&contents[..used], |record| outbox.push_back(record)).map_err(TlsError::io)?;
                taken += bytes;
            }
        }
        self.push_what_goes()?;
        Ok(taken)
    }

    /// Sends what is sealed.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::WouldBlock`] if something still waits.
    pub fn push(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let mut used = 0;
            let mut skip = self.sent;
            for (slice, record) in slices.iter_mut().zip(&self.outbox) {
                *slice = IoSlice::new(&record[std::mem::take(&mut skip)..]);
                used += 1;
            }
            match self.socket.write_vectored(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.pushed(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pushed(&mut self, bytes: usize) {
        self.sent += bytes;
        while self.outbox.front().is_some_and(|record| self.sent >= record.len()) {
            self.sent -= self.outbox.pop_front().expect("looked at above").len();
        }
        assert!(self.sent == 0 || !self.outbox.is_empty(), "no more was sent than there is");
    }

    /// As [`Self::push`]; that something waits is no error.
    fn push_what_goes(&mut self) -> io::Result<()> {
        match self.push() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Tells the peer that no more comes, as far as the socket takes it.
    pub fn end(&mut self) {
        if let Phase::Open(records) | Phase::HalfOpen(records) = &mut self.phase
            && let Ok(record) = records.seal_end()
        {
            self.outbox.push_back(record);
        }
        let _ = self.push();
        if self.outbox.is_empty() {
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// The same connection over another socket, at whose other end a test sits.
    #[cfg(test)]
    pub(super) fn on(self, socket: TcpStream) -> Self {
        Self { socket, ..self }
    }

    #[cfg(test)]
    pub(super) fn records(&mut self) -> &mut Records {
        match &mut self.phase {
            Phase::Open(records) | Phase::HalfOpen(records) => records,
            other => panic!("{other:?}"),
        }
    }
}
