//! One connection to another mount, which waits for each answer. Several are open to the same mount when several threads ask.

use super::NodeId;
use crate::run::{Run, RunKey};
use loam_core::ids::{ContentHash, Version};
use loam_core::units::BASE_PAGE_BYTES;
use loam_disk::Pieces;
use loam_wire::client::{self, ClientError, Target, read_frame};
use loam_wire::mount::{self, ExtentRef, Holders, RUN_PAGES};
use loam_wire::tls::Watched;
use loam_wire::{Frame, HEADER_BYTES, PageRef, Stream, encode, page_head, page_head_bytes};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who we are, to others.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) node: NodeId,
    /// Hash of the source's name.
    pub(crate) group: u64,
    /// The source's name.
    pub(crate) name: String,
    /// Where we listen.
    pub(crate) port: u16,
    /// What to show others, and how to know them; `None`: plain TCP.
    pub(crate) credentials: Option<Arc<Watched>>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    /// Whom it leads to.
    pub(crate) node: NodeId,
    limit: Duration,
    buffer: Vec<u8>,
    out: Vec<u8>,
    request_last: u64,
}

/// Reads until a deadline, however slowly the bytes drip.
struct Until<'a> {
    stream: &'a mut Stream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.read(buffer)
    }
}

impl Link {
    /// Connects and shakes hands. `limit` holds for each wait, and five times it for a whole answer.
    pub(crate) fn open(addr: SocketAddr, card: &Card, limit: Duration) -> Result<Self, ClientError> {
        let socket =
            TcpStream::connect_timeout(&addr, limit).map_err(|why| ClientError::Connect { addr, why })?;
        socket.set_nodelay(true)?;
        let credentials = card.credentials.as_ref().map(|watched| watched.current());
        let stream = client::secure(socket, &Target { addr, name: None, credentials }, limit)?;
        stream.socket().set_read_timeout(Some(limit))?;
        stream.socket().set_write_timeout(Some(limit))?;
        let mut link =
            Self { stream, node: NodeId(0), limit, buffer: Vec::new(), out: Vec::new(), request_last: 0 };
        link.send(|out| mount::hello(out, card.group, card.node.0, card.port, &card.name))?;
        link.node = match link.receive(link.deadline())? {
            Frame::MountWelcome(body) if body.group() == card.group && body.node() != 0 => {
                NodeId(body.node())
            }
            _ => return Err(ClientError::Unexpected),
        };
        Ok(link)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + 5 * self.limit
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Result<(), ClientError> {
        self.out.clear();
        build(&mut self.out);
        self.stream.write_all(&self.out)?;
        Ok(self.stream.flush()?)
    }

    fn receive(&mut self, deadline: Instant) -> Result<Frame<'_>, ClientError> {
        read_frame(Until { stream: &mut self.stream, deadline }, &mut self.buffer)
    }

    fn next_request(&mut self) -> u64 {
        self.request_last += 1;
        self.request_last
    }

    /// Waits until the other has handled all that was sent before.
    pub(crate) fn ping(&mut self) -> Result<(), ClientError> {
        let asked = self.next_request();
        self.send(|out| encode::ping(out, asked))?;
        match self.receive(self.deadline())? {
            Frame::Pong { request } if request == asked => Ok(()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Asks the directory's part that the other keeps.
    pub(crate) fn locate(&mut self, extents: &[ExtentRef]) -> Result<Vec<Holders>, ClientError> {
        let asked = self.next_request();
        self.send(|out| mount::locate(out, asked, extents))?;
        match self.receive(self.deadline())? {
            Frame::Located { request, holders } if request == asked && holders.len() == extents.len() => {
                Ok(holders.to_vec())
            }
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Gets runs of one file of `size_bytes`. Each comes whole and in the order asked for, or not at all. `refused` counts runs that are
    /// not what their hashes say; after one, nothing else of this connection is taken.
    pub(crate) fn get(
        &mut self,
        keys: &[RunKey],
        size_bytes: u64,
        buffers: &Arc<Pieces>,
    ) -> Result<Vec<(RunKey, Arc<Run>)>, ClientError> {
        let pages_of = |key: &RunKey| key.bytes_in(size_bytes).div_ceil(BASE_PAGE_BYTES);
        let first_of = |key: &RunKey| key.run * RUN_PAGES as u64;
        let refs: Vec<PageRef> = keys
            .iter()
            .flat_map(|key| (0..pages_of(key) as u64).map(|at| PageRef::new(first_of(key) + at, Version(0))))
            .collect();
        let asked = self.next_request();
        self.send(|out| mount::getpage(out, asked, &keys[0].file, &refs))?;
        let deadline = self.deadline();
        let mut got = Vec::new();
        // Side by side, as they will be read.
        let mut row = buffers.take_row(keys.len()).into_iter().enumerate();
        let mut answered = 0;
        let mut next = 0;
        while answered < refs.len() {
            let mut stream = Until { stream: &mut self.stream, deadline };
            self.buffer.resize(HEADER_BYTES, 0);
            stream.read_exact(&mut self.buffer)?;
            let Some(head_bytes) = page_head_bytes(&self.buffer) else {
                // Not pages: read on behind the header.
                let header = self.buffer.clone();
                match read_frame(header.as_slice().chain(stream), &mut self.buffer)? {
                    Frame::Miss { request, pages } if request == asked => answered += pages.len(),
                    _ => return Err(ClientError::Unexpected),
                }
                continue;
            };
            self.buffer.resize(head_bytes, 0);
            stream.read_exact(&mut self.buffer[HEADER_BYTES..])?;
            let head = page_head(&self.buffer).ok_or(ClientError::Unexpected)?;
            let first = head.pages.first().map(loam_wire::PageMeta::index);
            let found = keys[next..].iter().position(|key| first == Some(first_of(key)));
            let at = next + found.ok_or(ClientError::Unexpected)?;
            let key = keys[at];
            let in_order = head.pages.iter().zip(first_of(&key)..).all(|(page, index)| page.index() == index);
            if head.request != asked || head.pages.len() != pages_of(&key) || !in_order {
                return Err(ClientError::Unexpected);
            }
            let hashes: Box<[ContentHash]> = head.pages.iter().map(loam_wire::PageMeta::hash).collect();
            let (_, mut contents) = row.find(|(n, _)| *n == at).expect("runs come in their order");
            stream.read_exact(&mut contents[..hashes.len() * BASE_PAGE_BYTES])?;
            answered += hashes.len();
            next = at + 1;
            let run = Run::received(contents, key.bytes_in(size_bytes), hashes);
            got.push((key, Arc::new(run.ok_or(ClientError::BadPage)?)));
        }
        if answered == refs.len() { Ok(got) } else { Err(ClientError::Unexpected) }
    }
}
