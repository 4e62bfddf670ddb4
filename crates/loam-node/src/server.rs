//! Starting, keeping and ending a lender.
//!
//! The *keeper* is the thread that starts it: it takes connections and spreads them over the event loops, gives freed memory
//! back to the system, lets the graces of lost borrowers run out, and waits for the end.

#[cfg(test)]
mod tests;

use crate::cluster::{Control, Front, Plane};
use crate::config::{LendConfig, Lending, StoreAt};
use crate::connection::Origin;
use crate::disk_store::{DiskStore, WRITE_PAGES_MAX};
use crate::doors::Doors;
use crate::drainer::{Drainer, StoreLink};
use crate::error::NodeError;
use crate::event_loop::{EventLoop, Mailbox};
use crate::limits::*;
use crate::local::Local;
use crate::places::{Kind, NO_PLACE, Place};
use crate::regions::{self, Desk};
use crate::reserving::default_reservable;
use crate::shared::Shared;
use crate::slab::Slab;
use crate::watch::{Watch, post_gone, post_recall, post_room, post_stored};
use loam_core::ids::NodeId;
use loam_core::lender::{Effect, Lender, StoreConfig};
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Bytes};
use loam_wire::Stream;
use loam_wire::tls::{Role, Watched};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long to leave the listener alone when the system has no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections taken between two looks at everything else.
const ACCEPTS_MAX: usize = 64;
/// Steps of freeing pages and memory between two looks at the listener.
const KEEPER_STEPS: usize = 8;

/// Lends until SIGTERM or SIGINT. `ready` is called once borrowers can come.
///
/// # Errors
/// [`NodeError`], before `ready` is called.
pub fn lend(config: &LendConfig, ready: impl FnOnce(&Lending)) -> Result<(), NodeError> {
    // Each connection is a descriptor, and each stretch of a region.
    let files = loam_wire::allow_many_files();
    let (end, told) = UnixStream::pair().map_err(NodeError::system("making a socket pair"))?;
    for signal in [SIGTERM, SIGINT] {
        let told = told.try_clone().map_err(NodeError::system("copying a socket"))?;
        signal_hook::low_level::pipe::register(signal, told)
            .map_err(NodeError::system("waiting for signals"))?;
    }
    let mut keeper = Keeper::start(config)?;
    if config.cluster.is_some() && files < FILES_WANTED as u64 {
        keeper.lending.warnings.push(format!(
            "only {files} files may be open, and {FILES_WANTED} are wanted for a cluster of the largest size: raise the limit \
             (`ulimit -Hn`, LimitNOFILE=)"
        ));
    }
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
    doors: Doors,
    control: Option<Control>,
    /// For connections that come; those that are there keep what they came with.
    credentials: Option<Arc<Watched>>,
    looked: Instant,
    loops: Vec<(Arc<Mailbox>, JoinHandle<()>)>,
    drainer: Option<JoinHandle<()>>,
    /// For programs of this machine, so only where there is a socket for them.
    regions: Option<JoinHandle<()>>,
    next: usize,
    watch: Watch,
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

/// A life that nobody had before.
fn life() -> Result<NodeId, NodeError> {
    // Node 0 is nobody.
    random().map(|id| NodeId(id.max(1)))
}

/// What people call a node of which nobody said it.
fn name_of(config: &LendConfig, addr: SocketAddr) -> String {
    if let Some(name) = config.cluster.as_ref().and_then(|cluster| cluster.name.as_deref()) {
        return loam_wire::printable_name(name);
    }
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    let port =
        if addr.port() == loam_wire::DEFAULT_PORT { String::new() } else { format!(":{}", addr.port()) };
    loam_wire::printable_name(&format!("{machine}{port}"))
}

fn listen_http(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), NodeError> {
    let refused = |why| NodeError::Http { addr, why };
    let listener = TcpListener::bind(addr).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let addr = listener.local_addr().map_err(refused)?;
    Ok((listener, addr))
}

impl Keeper {
    fn start(config: &LendConfig) -> Result<Self, NodeError> {
        let pages = config.check()?;
        let credentials = config.tls.as_deref().map(|dir| Watched::load(dir, &[Role::Node])).transpose()?;
        let credentials = credentials.map(Arc::new);
        let listen = |why| NodeError::Listen { addr: config.listen, why };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let opened = regions::open(&config.region_devices, &config.machine_root);
        let (pools, taken) = opened.map_err(|(path, why)| NodeError::RegionDevice { path, why })?;
        if !pools.is_empty() && config.socket.is_none() {
            return Err(NodeError::RegionDeviceWithoutSocket);
        }
        let (slab, warning) = Slab::create(pages.bytes())?;
        let mut warnings: Vec<String> = warning.into_iter().chain(taken).collect();
        if !addr.ip().is_loopback() && credentials.is_none() {
            warnings.push(format!(
                "listening on {addr} without encryption: whoever reaches it can read what borrowers store and fill \
                 the memory; use it on a network that you trust"
            ));
        }
        let http = config.http.map(listen_http).transpose()?;
        let local = match config.socket.as_ref().map(|socket| (socket, Local::bind(socket))) {
            // Regions of a device can be asked for there only.
            Some((socket, Err(error))) if socket.required || !pools.is_empty() => return Err(error),
            Some((_, Err(error))) => {
                warnings.push(format!("no socket for local programs: {error}"));
                None
            }
            Some((_, Ok(local))) => Some(local),
            None => None,
        };
        let (name, cluster) = (name_of(config, addr), config.cluster.as_ref());
        let reached_at = cluster.and_then(|cluster| cluster.advertise).unwrap_or(addr);
        let (front, packets) = Front::new(life()?, name.clone(), reached_at, cluster.is_some());
        let reservable = config.reservable.unwrap_or_else(|| default_reservable(pages.bytes()));
        let mut lender =
            Lender::new(pages, config.grace, BORROWERS_MAX).with_reservable(reservable.base_pages());
        let (mut store, mut stored) = (None, None);
        if let Some(at) = &config.store {
            let (opened, recovered) = DiskStore::open(&at.dir, at.size)?;
            warnings.extend(opened.notes().iter().cloned());
            let found = Bytes(recovered.len() as u64 * BASE_PAGE_BYTES as u64);
            lender = lender.with_store(
                loam_core::units::Instant(0),
                store_config(pages, at, &opened),
                recovered.iter().map(|page| (page.space, page.index, page.version)),
            );
            let link = StoreLink::new(bell()?, bell()?, &opened);
            stored = Some((at.dir.clone(), link.bytes(), found));
            store = Some((opened, link));
        }
        let (store, link) = store.unzip();
        let zone = config.zone.clone().unwrap_or_default();
        let (desk, ear) = Desk::new();
        let shared = Arc::new(Shared::new(lender, slab, link, zone, front, bell()?, desk));
        let lending = Lending {
            size: pages.bytes(),
            addr,
            node: cluster.map(|_| name),
            http: http.as_ref().map(|(_, addr)| *addr),
            socket: local.as_ref().map(|local| local.path().clone()),
            store: stored,
            warnings,
        };
        let watch = Watch::new(config, pages.bytes());
        let mut keeper = Self {
            lending,
            shared,
            doors: Doors::new(listener, local),
            control: None,
            credentials,
            looked: Instant::now(),
            loops: Vec::new(),
            drainer: None,
            regions: None,
            next: 0,
            watch,
        };
        if let Some(store) = store {
            let drainer = Drainer::new(Arc::clone(&keeper.shared), store);
            let thread = thread::Builder::new().name("loam-drain".into()).spawn(move || drainer.run());
            keeper.drainer = Some(thread.map_err(NodeError::system("starting a thread"))?);
        }
        if keeper.doors.local.is_some() {
            let (shared, root) = (Arc::clone(&keeper.shared), config.machine_root.clone());
            let limits = (pages, keeper.watch.reserve());
            let thread = thread::Builder::new().name("loam-regions".into());
            let thread = thread.spawn(move || regions::run(&shared, limits, pools, &root, &ear));
            keeper.regions = Some(thread.map_err(NodeError::system("starting a thread"))?);
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for number in 0..config.loops.unwrap_or(cores).clamp(1, LOOPS_MAX) {
            let started = bell().and_then(|bell| keeper.start_loop(config, number, bell));
            if let Err(error) = started {
                keeper.end();
                return Err(error);
            }
        }
        if cluster.is_some() || http.is_some() {
            let mailboxes = keeper.loops.iter().map(|(mailbox, _)| Arc::clone(mailbox)).collect();
            let started = random().and_then(|random| {
                let http = http.map(|(listener, _)| listener);
                let credentials = keeper.credentials.clone();
                Plane::start(&keeper.shared, mailboxes, cluster.zip(packets), credentials, http, random)
            });
            match started {
                Ok(control) => keeper.control = Some(control),
                Err(error) => {
                    keeper.end();
                    return Err(error);
                }
            }
        }
        Ok(keeper)
    }

    fn start_loop(&mut self, config: &LendConfig, number: usize, bell: OwnedFd) -> Result<(), NodeError> {
        let mailbox = Arc::new(Mailbox::new(bell));
        let spin = Duration::from_micros(config.spin_us);
        let event_loop = EventLoop::new(
            Arc::clone(&self.shared),
            Arc::clone(&mailbox),
            spin,
            config.turns,
            config.hold_latency,
        )
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
            let (told, look) = self.watch.tick(&self.shared);
            if told {
                self.wake_loops();
            }
            let wait = if paused { Some(ACCEPT_PAUSE) } else { self.work() };
            let look = self.credentials.as_ref().map_or(look, |_| look.min(CREDENTIALS_INTERVAL));
            let wait = Some(wait.unwrap_or(look).min(look));
            let wait = wait.map(|wait| Timespec::try_from(wait).expect("graces are short"));
            // Without a signal descriptor the bell stands in for it.
            let signal = signal.unwrap_or_else(|| self.shared.keeper_bell());
            let listens = if paused { PollFlags::empty() } else { PollFlags::IN };
            // Without a trigger the listener stands in for it, with nothing asked of it.
            let (trigger, presses) = match self.watch.trigger() {
                Some(trigger) => (trigger.as_fd(), PollFlags::PRI),
                None => (self.doors.listener.as_fd(), PollFlags::empty()),
            };
            let mut fds = [
                PollFd::new(self.shared.keeper_bell(), PollFlags::IN),
                PollFd::new(signal, PollFlags::IN),
                PollFd::new(&self.doors.listener, listens),
                PollFd::from_borrowed_fd(trigger, presses),
                // Without a socket for local programs the listener stands in for it.
                self.doors
                    .local
                    .as_ref()
                    .map_or(PollFd::new(&self.doors.listener, listens), |local| PollFd::new(local, listens)),
            ];
            match rustix::event::poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => panic!("poll: {why}"),
            }
            let [bell, signalled, comes, pressed, comes_locally] = fds.map(|fd| !fd.revents().is_empty());
            if bell {
                self.shared.keeper_looks();
            }
            let ended = signalled && !std::ptr::eq(signal, self.shared.keeper_bell());
            if ended || self.shared.stopping() {
                break;
            }
            if pressed && presses == PollFlags::PRI {
                self.watch.hurry();
            }
            self.look_at_credentials();
            paused = (comes || comes_locally) && self.accept().is_err();
        }
        self.end();
    }

    /// Connections that come from now on get what is in the folder now, if it can be used.
    fn look_at_credentials(&mut self) {
        let Some(credentials) = &self.credentials else { return };
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
        if let Some(warning) = credentials.warning() {
            tracing::warn!("{warning}");
        }
    }

    /// A bounded number of steps of what there is to do. Answers how long there is nothing more.
    fn work(&self) -> Option<Duration> {
        for _ in 0..KEEPER_STEPS {
            let (effect, due, gave_room) = {
                let mut lender = self.shared.lender();
                let now = self.shared.now();
                if lender.poll_timeout().is_some_and(|due| due <= now) {
                    lender.handle_timeout(now);
                }
                if let Some(store) = self.shared.store.as_ref().filter(|_| lender.has_disk_effect()) {
                    store.tell();
                }
                (lender.poll_effect(), lender.poll_timeout(), lender.gave_room())
            };
            match effect {
                Some(Effect::Release(run)) => {
                    if let Err(why) = self.shared.slab.punch(run) {
                        tracing::warn!("cannot give memory back: {why}");
                    }
                    self.shared.lender().released(run);
                }
                Some(Effect::Recall(recall)) => {
                    post_recall(&self.shared, &recall);
                    self.wake_loops();
                }
                Some(Effect::Gone(gone)) => {
                    post_gone(&self.shared, &gone);
                    self.wake_loops();
                }
                Some(Effect::Stored(stored)) => {
                    post_stored(&self.shared, &stored);
                    self.wake_loops();
                }
                Some(Effect::Room(space)) => {
                    post_room(&self.shared, space);
                    self.wake_loops();
                }
                // The watch tells of it.
                None if gave_room => break,
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

    fn wake_loops(&self) {
        for (mailbox, _) in &self.loops {
            mailbox.wake();
        }
    }

    /// Takes the connections that wait, or some of many: the keeper has other things to do, too. An error is one of this machine's, not of a peer.
    fn accept(&mut self) -> Result<(), ()> {
        for _ in 0..ACCEPTS_MAX {
            let (socket, origin) = match self.doors.next() {
                Ok(connection) => connection,
                Err(error) => match error.kind() {
                    std::io::ErrorKind::WouldBlock => return Ok(()),
                    std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::Interrupted => continue,
                    _ => {
                        // It is tried again ten times a second.
                        let why = format!("cannot take a connection: {error}; is `ulimit -n` too low?");
                        if self.shared.is_news(Ipv4Addr::UNSPECIFIED.into(), &why) {
                            tracing::warn!("{why}");
                        }
                        return Err(());
                    }
                },
            };
            let kind = match origin {
                Origin::Tcp(_) => Kind::Stranger,
                Origin::Local => Kind::Local(user_of(&socket)),
            };
            if let Some(place) = Place::take(&self.shared, kind) {
                // A program of this machine proves nothing: the socket's permissions say who may connect.
                let credentials = match origin {
                    Origin::Tcp(addr) => {
                        prepare(&socket, addr);
                        self.credentials.as_ref().map(|watched| watched.current())
                    }
                    Origin::Local => None,
                };
                let stream = socket
                    .set_nonblocking(true)
                    .and_then(|()| Stream::accepted(socket, credentials.as_deref()));
                match stream {
                    Ok(stream) => {
                        self.next = (self.next + 1) % self.loops.len();
                        self.loops[self.next].0.deliver((stream, origin, place));
                    }
                    Err(why) => tracing::warn!("cannot take the connection of {origin}: {why}"),
                }
                continue;
            }
            // Who is refused comes again, from another port.
            let why = match kind {
                Kind::Local(user) => {
                    format!("programs of this machine, or of user {user}, have too many connections")
                }
                _ => format!("{CONNECTIONS_MAX} connections have said no hello"),
            };
            let of = match origin {
                Origin::Tcp(addr) => addr.ip(),
                Origin::Local => Ipv4Addr::UNSPECIFIED.into(),
            };
            if self.shared.is_news(of, &why) {
                tracing::warn!("refused {origin}: {why}");
            }
            if self.credentials.is_none() || origin == Origin::Local {
                let mut head = Vec::new();
                loam_wire::encode::error(&mut head, loam_wire::error_code::BUSY, NO_PLACE);
                let _ = rustix::net::send(&socket, &head, rustix::net::SendFlags::DONTWAIT);
            }
        }
        Ok(())
    }

    /// Leaves the cluster, then ends the loops, and with them the connections.
    fn end(self) {
        if let Some(control) = self.control {
            control.end();
        }
        self.shared.stop.store(true, Ordering::Release);
        for (mailbox, _) in &self.loops {
            mailbox.wake();
        }
        for (_, thread) in self.loops {
            assert!(thread.join().is_ok(), "an event loop broke an invariant");
        }
        self.shared.regions.end();
        if let Some(regions) = self.regions {
            assert!(regions.join().is_ok(), "the thread of regions broke an invariant");
        }
        if let (Some(drainer), Some(store)) = (self.drainer, &self.shared.store) {
            store.tell();
            assert!(drainer.join().is_ok(), "the disk's thread broke an invariant");
        }
    }
}

/// How the lender uses its disk store.
fn store_config(pages: BasePages, at: &StoreAt, store: &DiskStore) -> StoreConfig {
    let figures = store.figures();
    let channel = at.channel.map_or(pages.0 / CHANNEL_PART, |bytes| bytes.base_pages().0);
    StoreConfig {
        capacity: BasePages(figures.slots - figures.slots_retired),
        channel: BasePages(channel.clamp(1, pages.0)),
        write_pages_max: WRITE_PAGES_MAX,
        under_way_max: BasePages(DRAINING_PAGES_MAX),
        linger: at.linger.unwrap_or(LINGER),
    }
}

/// Whose program is at the other end of the UNIX socket; of one that has gone already it does not matter.
fn user_of(socket: &TcpStream) -> u32 {
    rustix::net::sockopt::socket_peercred(socket).map_or(u32::MAX, |peer| peer.uid.as_raw())
}

/// Small answers leave at once, and a peer whose machine vanished is noticed.
fn prepare(socket: &TcpStream, addr: SocketAddr) {
    let vanished_ms = u32::try_from(PEER_VANISHED_TIMEOUT.as_millis()).expect("seconds");
    let set = rustix::net::sockopt::set_tcp_nodelay(socket, true)
        .and_then(|()| rustix::net::sockopt::set_socket_keepalive(socket, true))
        .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(socket, KEEPALIVE))
        .and_then(|()| rustix::net::sockopt::set_tcp_keepintvl(socket, KEEPALIVE))
        .and_then(|()| rustix::net::sockopt::set_tcp_user_timeout(socket, vanished_ms));
    let unsent = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    if let Err(why) = unsent {
        tracing::debug!("cannot limit what is unsent to {addr}: {why}");
    }
    if let Err(why) = set {
        tracing::warn!("cannot prepare the connection of {addr}: {why}");
    }
}
