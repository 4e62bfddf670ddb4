//! The blocking side: the handshake, and a small client for tools and tests. The agent uses the handshake and
//! then goes on without blocking.

use crate::tls::{Credentials, TlsError, TlsStream};
use crate::{
    BorrowerEntry, ClusterFigures, Decoded, Frame, MemoryFigures, MountAt, NodeEntry, PageRef, Reservation,
    StatusFigures, Stream, Until, WelcomeBody, WireError, decode, encode,
};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whom to connect to, and how.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The name that its certificate must have; without one, any node's will do.
    pub name: Option<String>,
    /// What to show it, and how to know it. `None`: plain TCP.
    pub credentials: Option<Arc<Credentials>>,
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, name: None, credentials: None }
    }
}

/// Why talking to a lender failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("cannot reach the lender {addr}: {why}; is `loam lend` or `loam node` running there?")]
    Connect {
        /// Whom.
        addr: SocketAddr,
        /// The system's answer.
        why: io::Error,
    },
    /// No connection to this machine's node.
    #[error("cannot reach the node at {}: {why}; is `loam node` running?", path.display())]
    Local {
        /// Its socket.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// The connection broke or was too slow.
    #[error("lost the lender: {0}")]
    Io(io::Error),
    /// TLS failed: one side does not know the other, or does not want it.
    #[error("no TLS with the lender: {0}")]
    Tls(TlsError),
    /// The other end does not speak our protocol.
    #[error("the lender's answer cannot be used: {0}")]
    Wire(#[from] WireError),
    /// The lender refused; its own words.
    #[error("the lender refused: {text}")]
    Refused {
        /// One of [`crate::error_code`].
        code: u16,
        /// The lender's text.
        text: String,
    },
    /// A frame that is no answer to what was asked.
    #[error("the lender answered something else than was asked: use the same version of Loam on both")]
    Unexpected,
    /// Contents that are not what their hash says.
    #[error(
        "a page that came is not what its hash says: damaged on its way, or in the memory of who sent it"
    )]
    BadPage,
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<TlsError>() {
            Ok(tls) => Self::Tls(tls),
            Err(error) => Self::Io(error),
        }
    }
}

/// Reads exactly one frame into `buffer` (and nothing behind it), and decodes it.
///
/// # Errors
/// [`ClientError`], among them an error frame as [`ClientError::Refused`].
pub fn read_frame<'a>(mut from: impl Read, buffer: &'a mut Vec<u8>) -> Result<Frame<'a>, ClientError> {
    buffer.clear();
    while let Decoded::NeedMore { bytes_total } = decode(buffer)? {
        let had = buffer.len();
        assert!(bytes_total > had, "the decoder asks for what it has");
        buffer.resize(bytes_total, 0);
        from.read_exact(&mut buffer[had..])?;
    }
    match decode(buffer)? {
        Decoded::Whole { frame: Frame::Error { code, text }, .. } => {
            Err(ClientError::Refused { code, text: text.to_owned() })
        }
        Decoded::Whole { frame, .. } => Ok(frame),
        Decoded::NeedMore { .. } => unreachable!("it was whole"),
    }
}

/// Says `hello` on a blocking stream and waits for the welcome, `timeout` for all of it. Takes not a byte more
/// than the welcome off the stream, whose socket may be made nonblocking afterwards; its timeouts are lifted.
///
/// # Errors
/// [`ClientError`], among them the lender's refusal in its own words.
pub fn handshake(
    stream: &mut Stream,
    hello: impl FnOnce(&mut Vec<u8>),
    timeout: Duration,
) -> Result<WelcomeBody, ClientError> {
    let deadline = Instant::now() + timeout;
    stream.socket().set_write_timeout(Some(timeout))?;
    let mut out = Vec::new();
    hello(&mut out);
    // A peer that has refused us may have gone already, and what it said is still to be read.
    let said = stream.write_all(&out);
    let welcome = match (read_frame(Until::new(stream, deadline), &mut out), said) {
        (Ok(Frame::Welcome(welcome)), Ok(())) => *welcome,
        (Ok(_), Ok(())) => return Err(ClientError::Unexpected),
        (Err(ClientError::Io(_)) | Ok(_), Err(said)) => return Err(said.into()),
        (Err(error), _) => return Err(error),
    };
    stream.socket().set_read_timeout(None)?;
    stream.socket().set_write_timeout(None)?;
    Ok(welcome)
}

/// The handshake of TLS on a blocking socket, all of it within `timeout`.
fn shake(tls: &mut TlsStream, timeout: Duration) -> Result<(), ClientError> {
    let deadline = Instant::now() + timeout;
    tls.due_by(Some(deadline));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        tls.socket().set_read_timeout(Some(left))?;
        tls.socket().set_write_timeout(Some(left))?;
        if tls.shake()? {
            tls.due_by(None);
            return Ok(());
        }
    }
}

/// Connects and shakes hands; `features` are [`crate::feature`]'s.
///
/// # Errors
/// As [`handshake`], and [`ClientError::Connect`], [`ClientError::Tls`].
pub fn connect(
    target: &Target,
    features: u64,
    space: u64,
    name: &str,
    timeout: Duration,
) -> Result<(Stream, WelcomeBody), ClientError> {
    connect_back(target, features, space, 0, name, timeout)
}

/// As [`connect`], for a borrower that comes back; `returns`: see [`Frame::Hello`].
///
/// # Errors
/// As [`connect`].
pub fn connect_back(
    target: &Target,
    features: u64,
    space: u64,
    returns: u32,
    name: &str,
    timeout: Duration,
) -> Result<(Stream, WelcomeBody), ClientError> {
    let addr = target.addr;
    let socket =
        TcpStream::connect_timeout(&addr, timeout).map_err(|why| ClientError::Connect { addr, why })?;
    socket.set_nodelay(true)?;
    let mut stream = secure(socket, target, timeout)?;
    let hello = |out: &mut Vec<u8>| encode::hello_back(out, features, space, returns, name);
    let welcome = handshake(&mut stream, hello, timeout)?;
    Ok((stream, welcome))
}

/// The stream over a socket that is connected, with the handshake of TLS done if there are credentials.
///
/// # Errors
/// [`ClientError::Tls`], [`ClientError::Io`].
pub fn secure(socket: TcpStream, target: &Target, timeout: Duration) -> Result<Stream, ClientError> {
    match &target.credentials {
        None => Ok(Stream::Plain(socket)),
        Some(credentials) => {
            let mut tls = TlsStream::client(socket, credentials, target.name.as_deref())?;
            shake(&mut tls, timeout)?;
            Ok(Stream::Tls(Box::new(tls)))
        }
    }
}

/// As [`connect`], by the UNIX socket of this machine's node. (What comes back is a stream of bytes like any other; that it is no TCP shows in
/// its addresses alone.)
///
/// # Errors
/// As [`handshake`], and [`ClientError::Local`].
pub fn connect_local(
    path: &Path,
    space: u64,
    name: &str,
    timeout: Duration,
) -> Result<(Stream, WelcomeBody), ClientError> {
    let refused = |why| ClientError::Local { path: path.to_owned(), why };
    let socket = TcpStream::from(OwnedFd::from(UnixStream::connect(path).map_err(refused)?));
    let mut stream = Stream::Plain(socket);
    let welcome = handshake(&mut stream, |out| encode::hello(out, space, name), timeout)?;
    Ok((stream, welcome))
}

/// A lender's status, owned.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its figures.
    pub figures: StatusFigures,
    /// Its borrowers, or the first few.
    pub borrowers: Vec<BorrowerEntry>,
}

/// What a lender says of its disk store behind its welcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreNews {
    /// Room in all; 0: there is none.
    pub store_bytes: u64,
    /// What of it is free.
    pub store_free_bytes: u64,
    /// What may fail together with the lender; empty if nobody has said.
    pub zone: String,
}

/// One connection that waits for each answer.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    welcome: WelcomeBody,
    store: Option<StoreNews>,
    buffer: Vec<u8>,
    out: Vec<u8>,
    request_last: u64,
}

impl Client {
    /// Connects and shakes hands; `timeout` then holds for each read and write. `space` 0 for tools. Its pages are neither
    /// dropped nor recalled.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect(
        target: impl Into<Target>,
        space: u64,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        Self::connect_with(target, 0, space, name, timeout)
    }

    /// As [`Self::connect`], with [`crate::feature`]s. One with [`crate::feature::RECALL`] may [receive](Self::receive)
    /// recalls between its answers.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect_with(
        target: impl Into<Target>,
        features: u64,
        space: u64,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        connect(&target.into(), features, space, name, timeout)
            .and_then(|connection| Self::over(connection, timeout))
    }

    /// As [`Self::connect_with`], for a borrower that comes back; `returns`: see [`Frame::Hello`].
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect_back(
        target: impl Into<Target>,
        features: u64,
        space: u64,
        returns: u32,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        connect_back(&target.into(), features, space, returns, name, timeout)
            .and_then(|connection| Self::over(connection, timeout))
    }

    /// The same by the UNIX socket of this machine's node.
    ///
    /// # Errors
    /// As [`connect_local`].
    pub fn connect_local(
        path: &Path,
        space: u64,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        connect_local(path, space, name, timeout).and_then(|connection| Self::over(connection, timeout))
    }

    fn over((stream, welcome): (Stream, WelcomeBody), timeout: Duration) -> Result<Self, ClientError> {
        let mut client =
            Self { stream, welcome, store: None, buffer: Vec::new(), out: Vec::new(), request_last: 0 };
        if welcome.features() & crate::feature::STAGING != 0 {
            let until = Until::new(&mut client.stream, Instant::now() + timeout);
            let Frame::Store { store_bytes, store_free_bytes, zone } = read_frame(until, &mut client.buffer)?
            else {
                return Err(ClientError::Unexpected);
            };
            client.store = Some(StoreNews { store_bytes, store_free_bytes, zone: zone.to_owned() });
        }
        client.stream.socket().set_read_timeout(Some(timeout))?;
        client.stream.socket().set_write_timeout(Some(timeout))?;
        Ok(client)
    }

    /// What the lender said of itself.
    pub fn welcome(&self) -> &WelcomeBody {
        &self.welcome
    }

    /// What its disk can take, and its zone; where both have [`crate::feature::STAGING`].
    pub fn store(&self) -> Option<&StoreNews> {
        self.store.as_ref()
    }

    /// The socket, for what this client does not do itself.
    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// A request id that was not used on this connection.
    pub fn next_request(&mut self) -> u64 {
        self.request_last += 1;
        self.request_last
    }

    /// Sends one frame as `build` appends it, and `payload` behind it.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn send(&mut self, payload: &[u8], build: impl FnOnce(&mut Vec<u8>)) -> Result<(), ClientError> {
        self.out.clear();
        build(&mut self.out);
        let mut slices = [IoSlice::new(&self.out), IoSlice::new(payload)];
        let mut rest = &mut slices[..];
        while rest.iter().any(|slice| !slice.is_empty()) {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // What a stream has taken and not sent, since the socket took no more for a while.
        Ok(self.stream.flush()?)
    }

    /// Waits for one frame. An error frame comes out as [`ClientError::Refused`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn receive(&mut self) -> Result<Frame<'_>, ClientError> {
        read_frame(&mut self.stream, &mut self.buffer)
    }

    /// The lender's figures.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::status_request(out, asked))?;
        match self.receive()? {
            Frame::Status { request, figures, borrowers } if request == asked => {
                Ok(Status { figures: *figures, borrowers: borrowers.to_vec() })
            }
            _ => Err(ClientError::Unexpected),
        }
    }

    /// How much the lender lends now, and why not more. Only of one whose welcome has [`crate::feature::RECALL`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn memory(&mut self) -> Result<(MemoryFigures, String), ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::memory_request(out, asked))?;
        match self.receive()? {
            Frame::Memory { request, figures, reason } if request == asked => {
                Ok((*figures, reason.to_owned()))
            }
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Has the lender set `bytes` in all aside for this space; as a tool, with 0, asks what there is. Only of one whose welcome has
    /// [`crate::feature::RESERVE`].
    ///
    /// # Errors
    /// [`ClientError`]. That it was not granted is none: the answer tells.
    pub fn reserve(&mut self, bytes: u64) -> Result<Reservation, ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::reserve(out, asked, bytes))?;
        match self.receive()? {
            Frame::Reserved { request, reservation } if request == asked => Ok(*reservation),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// The cluster as this node sees it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn nodes(&mut self) -> Result<(ClusterFigures, Vec<NodeEntry>), ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::nodes_request(out, asked))?;
        match self.receive()? {
            Frame::Nodes { request, figures, nodes } if request == asked => Ok((*figures, nodes.to_vec())),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Where mounts of a source are on a node's machine, as it knows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn mounts(&mut self, group: u64) -> Result<Vec<MountAt>, ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::mounts_request(out, asked, group))?;
        match self.receive()? {
            Frame::Mounts { request, mounts } if request == asked => Ok(mounts.to_vec()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Waits until the lender has handled all that was sent before.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ping(&mut self) -> Result<(), ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::ping(out, asked))?;
        match self.receive()? {
            Frame::Pong { request } if request == asked => Ok(()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Fetches pages and waits for the whole answer. `on_page` gets each page that is there once its hash is proved, in the
    /// order of the request; the answer is what is missing.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Unexpected`] also for contents that do not match their hash.
    pub fn getpages(
        &mut self,
        pages: &[PageRef],
        mut on_page: impl FnMut(u64, &[u8]),
    ) -> Result<Vec<PageRef>, ClientError> {
        let asked = self.next_request();
        self.send(&[], |out| encode::getpage(out, asked, pages))?;
        let mut missing = Vec::new();
        let mut answered = 0;
        while answered < pages.len() {
            match self.receive()? {
                Frame::Page { request, pages, payload } if request == asked => {
                    for (page, contents) in
                        pages.iter().zip(payload.chunks_exact(loam_core::units::BASE_PAGE_BYTES))
                    {
                        if crate::page_hash(contents) != page.hash() {
                            return Err(ClientError::Unexpected);
                        }
                        on_page(page.index(), contents);
                    }
                    answered += pages.len();
                }
                Frame::Miss { request, pages } if request == asked => {
                    missing.extend_from_slice(pages);
                    answered += pages.len();
                }
                _ => return Err(ClientError::Unexpected),
            }
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Each byte had its time anew, and who connected waited for as long as they dripped.
    #[test]
    fn a_welcome_that_drips_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::from(listener.local_addr().unwrap());
        let drips = std::thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            let mut welcome = Vec::new();
            encode::welcome(&mut welcome, 0, 1, 1 << 20, 1 << 20);
            for byte in welcome {
                std::thread::sleep(Duration::from_millis(20));
                if socket.write_all(&[byte]).is_err() {
                    break;
                }
            }
        });
        let connected = connect(&target, 0, 0, "test", Duration::from_millis(200));
        let Err(ClientError::Io(why)) = connected else { panic!("{connected:?}") };
        assert!(matches!(why.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{why}");
        drips.join().unwrap();
    }
}
