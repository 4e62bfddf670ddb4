//! Starting, keeping and ending a lender.
//!
//! The *keeper* is the thread that starts it: it takes connections and spreads them over the event loops, gives freed memory
//! back to the system, lets the graces of lost borrowers run out, and waits for the end.

use crate::config::{LendConfig, Lending};
use crate::connection::Place;
use crate::error::NodeError;
use crate::event_loop::{EventLoop, Mailbox};
use crate::limits::*;
use crate::shared::Shared;
use crate::slab::Slab;
use loam_core::lender::{Effect, Lender};
use loam_core::units::Bytes;
use loam_wire::Stream;
use loam_wire::tls::{Role, Watched};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long to leave the listener alone when the system has no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Steps of freeing pages and memory between two looks at the listener.
const KEEPER_STEPS: usize = 8;

/// Lends until SIGTERM or SIGINT. `ready` is called once borrowers can come.
///
/// # Errors
/// [`NodeError`], before `ready` is called.
pub fn lend(config: &LendConfig, ready: impl FnOnce(&Lending)) -> Result<(), NodeError> {
    let (end, told) = UnixStream::pair().map_err(NodeError::system("making a socket pair"))?;
    for signal in [SIGTERM, SIGINT] {
        let told = told.try_clone().map_err(NodeError::system("copying a socket"))?;
        signal_hook::low_level::pipe::register(signal, told)
            .map_err(NodeError::system("waiting for signals"))?;
    }
    let keeper = Keeper::start(config)?;
    ready(&keeper.lending);
    keeper.run(Some(&end.into()));
    Ok(())
}

/// A lender on threads of this process: for tests, benchmarks and `--embedded`. Ends when dropped.
#[derive(Debug)]
pub struct LendHandle {
    lending: Lending,
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

/// Starts a lender on threads of this process.
///
/// # Errors
/// [`NodeError`].
pub fn spawn(config: &LendConfig) -> Result<LendHandle, NodeError> {
    let keeper = Keeper::start(config)?;
    let (lending, shared) = (keeper.lending.clone(), Arc::clone(&keeper.shared));
    let keeper = thread::Builder::new()
        .name("loam-keeper".into())
        .spawn(move || keeper.run(None))
        .map_err(NodeError::system("starting a thread"))?;
    Ok(LendHandle { lending, shared, keeper: Some(keeper) })
}

impl LendHandle {
    /// What is lent, and where.
    pub fn lending(&self) -> &Lending {
        &self.lending
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.lending.addr
    }

    /// Memory that its slab takes now.
    pub fn memory(&self) -> Bytes {
        self.shared.slab.memory().unwrap_or_default()
    }
}

impl Drop for LendHandle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.tell_keeper();
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
            && !thread::panicking()
        {
            panic!("the lender broke an invariant");
        }
    }
}

#[derive(Debug)]
struct Keeper {
    lending: Lending,
    shared: Arc<Shared>,
    listener: TcpListener,
    /// For connections that come; those that are there keep what they came with.
    credentials: Option<Watched>,
    looked: Instant,
    loops: Vec<(Arc<Mailbox>, JoinHandle<()>)>,
    next: usize,
}

fn bell() -> Result<OwnedFd, NodeError> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(NodeError::system("making an eventfd"))
}

fn random() -> Result<u64, NodeError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(NodeError::system("reading random bytes"))?;
    Ok(u64::from_ne_bytes(bytes))
}

impl Keeper {
    fn start(config: &LendConfig) -> Result<Self, NodeError> {
        let pages = config.check()?;
        let credentials = config.tls.as_deref().map(|dir| Watched::load(dir, &[Role::Node])).transpose()?;
        let listen = |why| NodeError::Listen { addr: config.listen, why };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let (slab, warning) = Slab::create(pages.bytes())?;
        let mut warnings: Vec<String> = warning.into_iter().collect();
        if !addr.ip().is_loopback() && credentials.is_none() {
            warnings.push(format!(
                "listening on {addr} without encryption: whoever reaches it can read what borrowers store and fill \
                 the memory; use it on a network that you trust"
            ));
        }
        let lender = Lender::new(pages, config.grace, BORROWERS_MAX);
        let shared = Arc::new(Shared::new(lender, slab, random()?, bell()?));
        let lending = Lending { size: pages.bytes(), addr, warnings };
        let looked = Instant::now();
        let mut keeper = Self { lending, shared, listener, credentials, looked, loops: Vec::new(), next: 0 };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for number in 0..config.loops.unwrap_or(cores).clamp(1, LOOPS_MAX) {
            let started = bell().and_then(|bell| keeper.start_loop(config, number, bell));
            if let Err(error) = started {
                keeper.end();
                return Err(error);
            }
        }
        Ok(keeper)
    }

    fn start_loop(&mut self, config: &LendConfig, number: usize, bell: OwnedFd) -> Result<(), NodeError> {
        let mailbox = Arc::new(Mailbox::new(bell));
        let spin = Duration::from_micros(config.spin_us);
        let event_loop =
            EventLoop::new(Arc::clone(&self.shared), Arc::clone(&mailbox), spin, config.hold_latency)
                .map_err(NodeError::system("making an epoll"))?;
        let thread = thread::Builder::new()
            .name(format!("loam-lend-{number}"))
            .spawn(move || event_loop.run())
            .map_err(NodeError::system("starting a thread"))?;
        self.loops.push((mailbox, thread));
        Ok(())
    }

    fn run(mut self, signal: Option<&OwnedFd>) {
        let mut paused = false;
        loop {
            let wait = if paused { Some(ACCEPT_PAUSE) } else { self.work() };
            let look = self.credentials.as_ref().map(|_| CREDENTIALS_INTERVAL);
            let wait = wait.into_iter().chain(look).min();
            let wait = wait.map(|wait| Timespec::try_from(wait).expect("graces are short"));
            // Without a signal descriptor the bell stands in for it.
            let signal = signal.unwrap_or_else(|| self.shared.keeper_bell());
            let listens = if paused { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = [
                PollFd::new(self.shared.keeper_bell(), PollFlags::IN),
                PollFd::new(signal, PollFlags::IN),
                PollFd::new(&self.listener, listens),
            ];
            match rustix::event::poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => panic!("poll: {why}"),
            }
            let [bell, signalled, comes] = fds.map(|fd| !fd.revents().is_empty());
            if bell {
                self.shared.keeper_looks();
            }
            let ended = signalled && !std::ptr::eq(signal, self.shared.keeper_bell());
            if ended || self.shared.stopping() {
                break;
            }
            self.look_at_credentials();
            paused = comes && self.accept().is_err();
        }
        self.end();
    }

    /// Connections that come from now on get what is in the folder now, if it can be used.
    fn look_at_credentials(&mut self) {
        let Some(credentials) = &mut self.credentials else { return };
        if self.looked.elapsed() < CREDENTIALS_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        match credentials.look() {
            None => {}
            Some(Ok(new)) => {
                tracing::info!("new credentials of {} are in use for new connections", new.identity())
            }
            Some(Err(why)) => tracing::warn!("the new credentials are not used, the old ones stay: {why}"),
        }
    }

    /// A bounded number of steps of what there is to do. Answers how long there is nothing more.
    fn work(&self) -> Option<Duration> {
        for _ in 0..KEEPER_STEPS {
            let (effect, due) = {
                let mut lender = self.shared.lender();
                let now = self.shared.now();
                if lender.poll_timeout().is_some_and(|due| due <= now) {
                    lender.handle_timeout(now);
                }
                (lender.poll_effect(), lender.poll_timeout())
            };
            match effect {
                Some(Effect::Release(run)) => {
                    if let Err(why) = self.shared.slab.punch(run) {
                        tracing::warn!("cannot give memory back: {why}");
                    }
                    self.shared.lender().released(run);
                }
                None => {
                    let wait = due.map(|due| Duration::from_nanos((due - self.shared.now()).0));
                    if wait != Some(Duration::ZERO) {
                        return wait;
                    }
                }
            }
        }
        Some(Duration::ZERO)
    }

    /// Takes the connections that wait. An error is one of this machine's, not of a peer.
    fn accept(&mut self) -> Result<(), ()> {
        loop {
            let (socket, addr) = match self.listener.accept() {
                Ok(came) => came,
                Err(error) => match error.kind() {
                    std::io::ErrorKind::WouldBlock => return Ok(()),
                    std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::Interrupted => continue,
                    _ => {
                        tracing::warn!("cannot take a connection: {error}; is `ulimit -n` too low?");
                        return Err(());
                    }
                },
            };
            if let Some(place) = Place::take(&self.shared) {
                prepare(&socket, addr);
                let credentials = self.credentials.as_ref().map(|watched| &**watched.current());
                match socket.set_nonblocking(true).and_then(|()| Stream::accepted(socket, credentials)) {
                    Ok(stream) => {
                        self.next = (self.next + 1) % self.loops.len();
                        self.loops[self.next].0.deliver((stream, addr, place));
                    }
                    Err(why) => tracing::warn!("cannot take the connection of {addr}: {why}"),
                }
            } else if self.credentials.is_some() {
                tracing::warn!("refused {addr}: {CONNECTIONS_MAX} connections are open");
            } else {
                tracing::warn!("refused {addr}: {CONNECTIONS_MAX} connections are open");
                let mut head = Vec::new();
                loam_wire::encode::error(
                    &mut head,
                    loam_wire::error_code::BUSY,
                    "this lender has too many connections: try another",
                );
                let _ = rustix::net::send(&socket, &head, rustix::net::SendFlags::DONTWAIT);
            }
        }
    }

    /// Ends the loops, and with them the connections.
    fn end(self) {
        self.shared.stop.store(true, Ordering::Release);
        for (mailbox, _) in &self.loops {
            mailbox.wake();
        }
        for (_, thread) in self.loops {
            assert!(thread.join().is_ok(), "an event loop broke an invariant");
        }
    }
}

/// Small answers leave at once, and a peer whose machine vanished is noticed.
fn prepare(socket: &TcpStream, addr: SocketAddr) {
    let set = rustix::net::sockopt::set_tcp_nodelay(socket, true)
        .and_then(|()| rustix::net::sockopt::set_socket_keepalive(socket, true))
        .and_then(|()| rustix::net::sockopt::set_tcp_user_timeout(socket, PEER_VANISHED_TIMEOUT_MS));
    if let Err(why) = set {
        tracing::warn!("cannot prepare the connection of {addr}: {why}");
    }
}
