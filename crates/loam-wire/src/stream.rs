//! What carries frames: a TCP connection, plain or with TLS. Blocking or not is the socket's matter.

use crate::tls::{Credentials, Identity, TlsStream};
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// See the module's documentation. Which of the two is asked once a call, never once a byte.
#[derive(Debug)]
pub enum Stream {
    /// As it is: on loopback, or where somebody said that the network is trusted.
    Plain(TcpStream),
    /// Encrypted, both sides known.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// The side that was connected to: with credentials a TLS server, whose handshake goes on as bytes are received.
    ///
    /// # Errors
    /// rustls's.
    pub fn accepted(socket: TcpStream, credentials: Option<&Credentials>) -> io::Result<Self> {
        match credentials {
            None => Ok(Self::Plain(socket)),
            Some(credentials) => Ok(Self::Tls(Box::new(TlsStream::server(socket, credentials)?))),
        }
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Who the peer proved to be. `None`: it proved nothing, or its handshake is not done.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.identity(),
        }
    }

    /// Bytes have come that a call of `read` would give out, and that the socket's readiness does not tell of.
    pub fn holds(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.holds(),
        }
    }

    /// Bytes that `write` has taken wait until the socket can be written; [`Write::flush`] sends them.
    pub fn waits(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.waits(),
        }
    }

    /// After an error of `read`: whether the peer may still be told why, while what it sends is thrown away.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_failed(),
        }
    }

    /// As [`TlsStream::due_by`]. Who reads plain bytes sees for himself how late it is.
    fn due_by(&mut self, deadline: Option<Instant>) {
        if let Self::Tls(tls) = self {
            tls.due_by(deadline);
        }
    }

    /// Says that no more comes, as far as the socket takes it. What comes can still be read.
    pub fn end(&mut self) {
        match self {
            Self::Plain(socket) => {
                let _ = socket.shutdown(Shutdown::Write);
            }
            Self::Tls(tls) => tls.end(),
        }
    }

    /// Gives memory back if nothing is in it.
    pub fn shrink(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(tls) => tls.shrink(),
        }
    }
}

/// Reads from a blocking stream until a deadline, however slowly its bytes drip.
#[derive(Debug)]
pub struct Until<'a> {
    stream: &'a mut Stream,
    deadline: Instant,
}

impl<'a> Until<'a> {
    /// Reads by `deadline`, and leaves the socket with some other timeout than it had.
    pub fn new(stream: &'a mut Stream, deadline: Instant) -> Self {
        stream.due_by(Some(deadline));
        Self { stream, deadline }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.socket().set_read_timeout(Some(left))?;
        self.stream.read(room)
    }
}

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.stream.due_by(None);
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(room),
            Self::Tls(tls) => tls.receive(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.send(&[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(pieces),
            Self::Tls(tls) => tls.send(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.push(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
