//! Connections to other nodes: made when there is something for one, kept while there is more, bounded in number. What does not fit in a queue,
//! or was on its way when a connection broke, is lost, and nobody is told: all that nodes say to each other may be.

use super::Counters;
use super::blocking::Blocking;
use loam_core::ids::NodeId;
use loam_wire::Stream;
use loam_wire::WelcomeBody;
use loam_wire::client::{self, ClientError, Target};
use loam_wire::tls::Watched;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::sync::mpsc;

/// Connections at once. The one that was used least lately gives way.
const LINKS_MAX: usize = 128;
/// Frames that wait for one connection.
const QUEUE_FRAMES_MAX: usize = 64;
/// Threads that connect to other nodes, since connecting waits.
const CONNECT_THREADS_MAX: usize = 12;
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
    dialer: Dialer,
    counters: Arc<Counters>,
    links: BTreeMap<NodeId, Link>,
}

impl Links {
    pub(crate) fn new(dialer: Dialer, counters: Arc<Counters>) -> Self {
        Self { dialer, counters, links: BTreeMap::new() }
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
        let (dialer, counters) = (self.dialer.clone(), Arc::clone(&self.counters));
        tokio::spawn(async move {
            let opened = dialer.connect(addr).await;
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

/// How this node connects to others.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    /// What others show of this node.
    name: Arc<str>,
    /// `None`: plain TCP.
    credentials: Option<Arc<Watched>>,
    connecting: Blocking,
}

impl Dialer {
    pub(crate) fn new(name: &str, credentials: Option<Arc<Watched>>) -> Self {
        let connecting = Blocking::new(CONNECT_THREADS_MAX);
        Self { name: format!("node {name}").into(), credentials, connecting }
    }

    /// Connects and shakes hands on a thread that may wait, as everybody does.
    async fn connect(&self, addr: SocketAddr) -> Result<(Stream, WelcomeBody), ClientError> {
        let name = Arc::clone(&self.name);
        // Any node of the authority will do: what says who it is to the cluster is the life in its welcome.
        let credentials = self.credentials.as_ref().map(|watched| watched.current());
        let target = Target { addr, name: None, credentials };
        let connect = move || client::connect(&target, 0, 0, &name, CONNECT_TIMEOUT);
        let (stream, welcome) = self.connecting.run(connect).await??;
        stream.socket().set_nonblocking(true)?;
        let stalled_ms = u32::try_from(STALLED_TIMEOUT.as_millis()).expect("seconds");
        rustix::net::sockopt::set_tcp_user_timeout(&stream, stalled_ms).map_err(io::Error::from)?;
        Ok((stream, welcome))
    }

    /// Who listens at an address.
    pub(crate) async fn meet(&self, addr: SocketAddr) -> Result<NodeId, ClientError> {
        self.connect(addr).await.map(|(_, welcome)| NodeId(welcome.instance()))
    }
}

/// Sends what is queued until there is nothing for a while, nobody queues any more, or the connection breaks. The runtime watches a second
/// descriptor of the socket; bytes go through `stream` itself.
async fn carry(mut stream: Stream, mut queue: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let watched = tokio::net::TcpStream::from_std(stream.socket().try_clone()?)?;
    loop {
        let next = tokio::time::timeout(IDLE_TIMEOUT, queue.recv());
        tokio::select! {
            frame = next => {
                let Ok(Some(frame)) = frame else {
                    stream.end();
                    return Ok(());
                };
                tokio::time::timeout(STALLED_TIMEOUT, send(&watched, &mut stream, &frame)).await??;
            }
            ready = watched.readable() => {
                ready?;
                throw_away(&watched, &mut stream)?;
            }
        }
    }
}

async fn send(watched: &tokio::net::TcpStream, stream: &mut Stream, mut frame: &[u8]) -> io::Result<()> {
    while !frame.is_empty() || stream.waits() {
        watched.writable().await?;
        let write = || if frame.is_empty() { stream.flush().map(|()| 0) } else { stream.write(frame) };
        match watched.try_io(Interest::WRITABLE, write) {
            Ok(0) if !frame.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => frame = &frame[bytes..],
            Err(error) if transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A lender that takes cluster frames says nothing, but an error before it closes.
fn throw_away(watched: &tokio::net::TcpStream, stream: &mut Stream) -> io::Result<()> {
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

/// What carries a message of `me` to another node.
pub(crate) fn frame(me: NodeId, class: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes.len() + 64);
    loam_wire::encode::cluster(&mut frame, me.0, class, bytes);
    frame
}
