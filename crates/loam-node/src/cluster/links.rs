//! Connections to other nodes: made when there is something for one, kept while there is more, bounded in number. What does not fit in a queue,
//! or was on its way when a connection broke, is lost, and nobody is told: all that nodes say to each other may be.

use super::Counters;
use loam_core::ids::NodeId;
use loam_wire::WelcomeBody;
use loam_wire::client::{self, ClientError};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::sync::mpsc;

/// Connections at once. The one that was used least lately gives way.
const LINKS_MAX: usize = 128;
/// Frames that wait for one connection.
const QUEUE_FRAMES_MAX: usize = 64;
/// For each step of connecting: a node that does not answer in this time might as well be dead.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);
/// A peer that takes nothing for this long is given up; a partition that ends finds a fresh connection, not one whose
/// next try is far away.
const STALLED_TIMEOUT: Duration = Duration::from_millis(2000);
/// A connection without use for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection that failed is not tried again sooner.
const RETRY_AFTER: Duration = Duration::from_millis(300);

#[derive(Debug)]
struct Link {
    frames: mpsc::Sender<Vec<u8>>,
    addr: SocketAddr,
    begun: Instant,
    used: Instant,
}

/// All connections of one node to others.
#[derive(Debug)]
pub(crate) struct Links {
    name: Arc<str>,
    counters: Arc<Counters>,
    links: BTreeMap<NodeId, Link>,
}

impl Links {
    /// `name` is what lenders show of this node.
    pub(crate) fn new(name: &str, counters: Arc<Counters>) -> Self {
        Self { name: format!("node {name}").into(), counters, links: BTreeMap::new() }
    }

    /// Brings a frame to life `to`, which listens at `addr`, or loses it. Call inside the runtime.
    pub(crate) fn send(&mut self, to: NodeId, addr: SocketAddr, frame: Vec<u8>) {
        let now = Instant::now();
        if let Some(link) = self.links.get_mut(&to) {
            link.used = now;
            if link.addr != addr || link.frames.is_closed() && now > link.begun + RETRY_AFTER {
                self.links.remove(&to);
            }
        }
        if !self.links.contains_key(&to) {
            self.make_room();
            self.links.insert(to, self.open(to, addr, now));
        }
        let sent = self.links[&to].frames.try_send(frame).is_ok();
        Counters::add(if sent { &self.counters.messages_out } else { &self.counters.messages_out_lost });
    }

    /// Closes what is open to those who are gone.
    pub(crate) fn retain(&mut self, lives: impl Fn(NodeId) -> bool) {
        self.links.retain(|id, link| lives(*id) || link.used.elapsed() < STALLED_TIMEOUT);
    }

    fn make_room(&mut self) {
        if self.links.len() < LINKS_MAX {
            return;
        }
        self.links.retain(|_, link| !link.frames.is_closed());
        if self.links.len() >= LINKS_MAX {
            let oldest = self.links.iter().min_by_key(|(_, link)| link.used).map(|(id, _)| *id);
            self.links.remove(&oldest.expect("there are many"));
        }
    }

    fn open(&self, to: NodeId, addr: SocketAddr, now: Instant) -> Link {
        let (frames, queue) = mpsc::channel(QUEUE_FRAMES_MAX);
        let (name, counters) = (Arc::clone(&self.name), Arc::clone(&self.counters));
        tokio::spawn(async move {
            let opened = connect(addr, name).await;
            let carried = match opened {
                Ok((_, welcome)) if welcome.instance() != to.0 => Err("another life answers".to_owned()),
                Ok((stream, _)) => {
                    Counters::add(&counters.links_opened);
                    counters.links.fetch_add(1, Ordering::Relaxed);
                    let carried = carry(stream, queue).await;
                    counters.links.fetch_sub(1, Ordering::Relaxed);
                    carried.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = carried {
                Counters::add(&counters.links_failed);
                tracing::debug!(node = format_args!("{:016x}", to.0), %addr, %why, "lost the link");
            }
        });
        Link { frames, addr, begun: now, used: now }
    }
}

/// Connects and shakes hands on a thread that may wait, as everybody does. (TLS, where there are credentials, belongs here.)
async fn connect(addr: SocketAddr, name: Arc<str>) -> Result<(TcpStream, WelcomeBody), ClientError> {
    let connecting = move || client::connect(addr, 0, 0, &name, CONNECT_TIMEOUT);
    let (stream, welcome) = tokio::task::spawn_blocking(connecting)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Interrupted).into()))?;
    stream.set_nonblocking(true)?;
    let stalled_ms = u32::try_from(STALLED_TIMEOUT.as_millis()).expect("seconds");
    rustix::net::sockopt::set_tcp_user_timeout(&stream, stalled_ms).map_err(io::Error::from)?;
    Ok((stream, welcome))
}

/// Who listens at an address.
pub(crate) async fn meet(addr: SocketAddr, name: Arc<str>) -> Result<NodeId, ClientError> {
    connect(addr, name).await.map(|(_, welcome)| NodeId(welcome.instance()))
}

/// Sends what is queued until there is nothing for a while, nobody queues any more, or the connection breaks. The runtime watches a second
/// descriptor of the socket; bytes go through `stream` itself.
async fn carry(mut stream: TcpStream, mut queue: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let watched = tokio::net::TcpStream::from_std(stream.try_clone()?)?;
    loop {
        let next = tokio::time::timeout(IDLE_TIMEOUT, queue.recv());
        tokio::select! {
            frame = next => {
                let Ok(Some(frame)) = frame else { return Ok(()) };
                tokio::time::timeout(STALLED_TIMEOUT, send(&watched, &mut stream, &frame)).await??;
            }
            ready = watched.readable() => {
                ready?;
                throw_away(&watched, &mut stream)?;
            }
        }
    }
}

async fn send(watched: &tokio::net::TcpStream, stream: &mut TcpStream, mut frame: &[u8]) -> io::Result<()> {
    while !frame.is_empty() {
        watched.writable().await?;
        match watched.try_io(Interest::WRITABLE, || stream.write(frame)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => frame = &frame[bytes..],
            Err(error) if transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A lender that takes cluster frames says nothing, but an error before it closes.
fn throw_away(watched: &tokio::net::TcpStream, stream: &mut TcpStream) -> io::Result<()> {
    match watched.try_io(Interest::READABLE, || stream.read(&mut [0; 1024])) {
        Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
        Ok(_) => Ok(()),
        Err(error) if transient(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
