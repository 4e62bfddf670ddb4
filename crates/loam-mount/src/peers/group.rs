//! The mounts of one source that know each other, as one of them sees it.
//!
//! Whom to know is given (`--peer`), and whoever calls is called back, so of two mounts one has to be told of the other. A thread asks
//! each of them twice a second whether it is there; those that answer, and this one, are the members. When they change, each
//! mount tells the directory's new keepers what it has.

use super::directory::{Directory, LastCopy};
use super::herald::{self, News};
use super::link::{Card, Link};
use super::peer::Peer;
use super::rendezvous::keeper;
use super::{Holder, NodeId, Peers, finder, server};
use crate::cache::Cache;
use crate::error::MountError;
use crate::figures::Figures;
use crate::run::{Run, RunKey};
use loam_wire::limits::{LOCATE_EXTENTS_MAX, REQUEST_PAGES_MAX};
use loam_wire::mount::{EXTENT_RUNS, ExtentRef, ExtentRuns, RUN_PAGES};
use loam_wire::tls::{Role, Watched};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// How often members are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What a mount said that it has is forgotten when it has been away for so long: one that only hung has it still.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Mounts that one mount knows at most.
const PEERS_MAX: usize = 64;

/// Living members, this one among them.
pub(crate) type Members = Vec<NodeId>;

/// What a group needs to know.
#[derive(Clone, Debug)]
pub(crate) struct GroupConfig {
    /// The source's name: mounts of another have nothing to do with this one.
    pub(crate) name: String,
    /// Where to listen; port 0 takes any that is free.
    pub(crate) listen: SocketAddr,
    /// Mounts to know.
    pub(crate) peers: Vec<SocketAddr>,
    /// Where this machine's node listens for local programs: others are found through it.
    pub(crate) node: Option<PathBuf>,
    /// Folder with credentials; `None`: plain TCP.
    pub(crate) tls: Option<PathBuf>,
}

/// What all threads of a group use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) card: Card,
    pub(crate) cache: Arc<Cache>,
    pub(crate) figures: Arc<Figures>,
    directory: Mutex<Directory>,
    peers: RwLock<Vec<Arc<Peer>>>,
    members: RwLock<Arc<Members>>,
    news: SyncSender<News>,
    /// Rung when there is a new peer to look at.
    bell: (Mutex<bool>, Condvar),
}

/// The group, as its mount uses it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) shared: Arc<Shared>,
    /// Where it listens.
    pub(crate) addr: SocketAddr,
}

impl Group {
    /// Listens, and looks once at each peer, so that the first read already finds them.
    pub(crate) fn start(
        config: &GroupConfig,
        cache: &Arc<Cache>,
        figures: &Arc<Figures>,
    ) -> Result<Self, MountError> {
        let credentials = config.tls.as_deref().map(|dir| Watched::load(dir, &[Role::Node])).transpose()?;
        let listen = |why| MountError::Listen { addr: config.listen, why };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
            .map_err(MountError::system("drawing a random number"))?;
        let node = NodeId(u64::from_ne_bytes(random).max(1));
        let group = xxhash_rust::xxh3::xxh3_64(config.name.as_bytes());
        let card = Card {
            node,
            group,
            name: config.name.clone(),
            port: addr.port(),
            credentials: credentials.map(Arc::new),
        };
        let (news, told) = sync_channel(herald::NEWS_MAX);
        let shared = Arc::new(Shared {
            card,
            cache: Arc::clone(cache),
            figures: Arc::clone(figures),
            directory: Mutex::default(),
            peers: RwLock::default(),
            members: RwLock::new(Arc::new(vec![node])),
            news,
            bell: (Mutex::new(false), Condvar::new()),
        });
        for &peer in config.peers.iter().filter(|&&peer| peer != addr) {
            shared.know(peer);
        }
        let mut watch = Watch::default();
        shared.look(&mut watch);
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let spawned = thread::Builder::new().name(name.into()).spawn(work);
            spawned.map(drop).map_err(MountError::system("starting a thread"))
        };
        let of = || Arc::clone(&shared);
        let (server, herald, keeper) = (of(), of(), of());
        start("loam-server", Box::new(move || server::run(&server, &listener)))?;
        start("loam-herald", Box::new(move || herald::run(&herald, &told)))?;
        start("loam-members", Box::new(move || keeper.keep_looking(watch)))?;
        if let Some(socket) = config.node.clone() {
            let finder = of();
            start("loam-finder", Box::new(move || finder::run(&finder, &socket, addr)))?;
        }
        Ok(Self { shared, addr })
    }
}

/// What the thread that looks at members keeps.
#[derive(Debug, Default)]
struct Watch {
    links: BTreeMap<SocketAddr, Option<Link>>,
    /// Since when former members are away.
    away: BTreeMap<NodeId, Instant>,
}

impl Shared {
    /// Living members, this one among them.
    pub(crate) fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The mount that is this node now.
    pub(crate) fn peer_of(&self, node: NodeId) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.iter().find(|peer| peer.node() == Some(node)).cloned()
    }

    /// Knows a mount from now on, if there is room.
    pub(crate) fn know(&self, addr: SocketAddr) {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        if peers.iter().all(|peer| peer.addr != addr) {
            // Of too many one makes room that does not answer.
            let silent = peers.iter().position(|peer| peer.node().is_none());
            if peers.len() >= PEERS_MAX {
                let Some(silent) = silent else { return };
                peers.remove(silent);
            }
            peers.push(Arc::new(Peer::new(addr, self.card.clone(), Arc::clone(&self.figures))));
            drop(peers);
            *self.bell.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.bell.1.notify_all();
        }
    }

    fn keep_looking(&self, mut watch: Watch) {
        loop {
            let bell = self.bell.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.bell.1.wait_timeout_while(bell, LOOK_EVERY, |rung| !*rung);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
            self.look_at_credentials();
            self.look(&mut watch);
        }
    }

    /// From now on new connections get what is in the folder now, if it can be used.
    fn look_at_credentials(&self) {
        let Some(credentials) = &self.card.credentials else { return };
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

    /// Looks who is there, and says what it has to those who now keep the directory's entries for it.
    fn look(&self, watch: &mut Watch) {
        let mut members = vec![self.card.node];
        for peer in self.peers() {
            members.extend(peer.look(watch.links.entry(peer.addr).or_default()));
        }
        members.sort();
        members.dedup();
        let before = self.members();
        watch.away.retain(|node, since| {
            let gone = since.elapsed() >= FORGET_AFTER;
            if gone {
                let last = self.directory.lock().unwrap_or_else(PoisonError::into_inner).forget(*node);
                self.tell_last(last);
            }
            !gone && !members.contains(node)
        });
        if *before == members {
            return;
        }
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members.clone());
        let gone = before.iter().filter(|node| !members.contains(node));
        watch.away.extend(gone.map(|&node| (node, Instant::now())));
        for key in self.cache.keys() {
            if keeper(key.extent(), &before) != keeper(key.extent(), &members) {
                self.tell(News::Have(key));
            }
        }
    }

    /// Has something told. If too much waits already, it is not.
    pub(crate) fn tell(&self, news: News) {
        let _ = self.news.try_send(news);
    }

    fn tell_last(&self, last: Vec<LastCopy>) {
        last.into_iter().for_each(|(node, runs)| self.tell(News::Last(node, runs)));
    }

    /// `node` says that it has these.
    pub(crate) fn register(&self, node: NodeId, runs: &[ExtentRuns]) {
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().for_each(|runs| directory.register(node, runs));
    }

    /// `node` says that it does not have these any more.
    pub(crate) fn unregister(&self, node: NodeId, runs: &[ExtentRuns]) {
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<LastCopy> = runs.iter().flat_map(|runs| directory.unregister(node, runs)).collect();
        drop(directory);
        self.tell_last(last);
    }

    /// Who has runs of an extent, as far as the part of the directory here knows.
    pub(crate) fn locate(&self, extent: &ExtentRef, asker: NodeId) -> Vec<Holder> {
        let members = self.members();
        let mut found = self.directory.lock().unwrap_or_else(PoisonError::into_inner).locate(extent, asker);
        found.retain(|holder| members.contains(&holder.0));
        found
    }

    /// The directory says that ours is the last copy of these.
    pub(crate) fn have_last(&self, runs: &[ExtentRuns]) {
        for runs in runs {
            for at in (0..EXTENT_RUNS).filter(|at| runs.runs() >> at & 1 == 1) {
                self.cache.is_last_copy(RunKey::of(runs.extent(), at));
            }
        }
    }
}

impl Peers for Group {
    fn who_has(&self, extents: &[ExtentRef]) -> Vec<Vec<Holder>> {
        let me = self.shared.card.node;
        let members = self.shared.members();
        let mut found = vec![Vec::new(); extents.len()];
        if members.len() == 1 {
            return found;
        }
        let mut by_keeper: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, extent) in extents.iter().enumerate() {
            by_keeper.entry(keeper(*extent, &members)).or_default().push(at);
        }
        for (node, places) in by_keeper {
            if node == me {
                places.into_iter().for_each(|at| found[at] = self.shared.locate(&extents[at], me));
                continue;
            }
            let Some(peer) = self.shared.peer_of(node) else { continue };
            for places in places.chunks(LOCATE_EXTENTS_MAX) {
                let asked: Vec<ExtentRef> = places.iter().map(|&at| extents[at]).collect();
                let Some(answers) = peer.ask(|link| link.locate(&asked)) else { break };
                for (&at, holders) in places.iter().zip(&answers) {
                    found[at] = holders.iter().map(|(node, runs)| (NodeId(node), runs)).collect();
                    found[at].retain(|holder| holder.0 != me);
                }
            }
        }
        found
    }

    fn fetch(&self, from: NodeId, keys: &[RunKey], size_bytes: u64) -> Vec<(RunKey, Arc<Run>)> {
        let Some(peer) = self.shared.peer_of(from) else { return Vec::new() };
        let _turn = peer.transfer();
        let mut got = Vec::new();
        for keys in keys.chunks(REQUEST_PAGES_MAX / RUN_PAGES) {
            match peer.ask(|link| link.get(keys, size_bytes, &self.shared.cache.buffers)) {
                Some(runs) => got.extend(runs),
                None => break,
            }
        }
        got
    }

    fn now_have(&self, keys: &[RunKey]) {
        keys.iter().for_each(|&key| self.shared.tell(News::Have(key)));
    }

    fn no_longer(&self, keys: &[RunKey]) {
        keys.iter().for_each(|&key| self.shared.tell(News::Gone(key)));
    }

    fn count(&self) -> usize {
        self.shared.members().len() - 1
    }
}
