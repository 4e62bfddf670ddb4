//! The control plane: membership, epochs, figures, and what borrowers and people are told of them. gms-1995, sections 3.2 and 4.4.
//!
//! One thread with a small runtime of its own (`plane`). Event loops hand it what comes from other nodes through a bounded channel, and never
//! wait for it; it hands them a new view through one pointer and a ring of their bells.
//!
//! ```text
//! event loop: cluster frame ─► channel ─► plane ─► Swim or EtcdMembers (who lives) ─► Coordinator (epochs, POD)
//!             view request  ◄─ published ◄──┘  └─► links: a connection to each node that there is something for
//! ```

mod account;
mod blocking;
mod cpu;
mod doubts;
mod etcd;
mod figures;
mod links;
mod membership;
mod peer;
mod plane;
mod published;
mod swim;

pub use etcd::{EtcdSite, EtcdSiteError};
pub(crate) use plane::{Control, Plane};
pub(crate) use published::Published;

use loam_core::ids::NodeId;
use loam_wire::NodeFigures;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages of other nodes that wait for the control plane; more are lost, as they may be.
const PACKETS_MAX: usize = 256;

/// What makes a lender a node of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// What people call it. `None`: the machine's name, and the port if it is not the usual one.
    pub name: Option<String>,
    /// The site's own membership service, in place of `join`.
    pub etcd: Option<EtcdSite>,
    /// Addresses of living members, any of them, and perhaps of this node itself.
    pub join: Vec<SocketAddr>,
    /// Where others reach this node, if not where it listens.
    pub advertise: Option<SocketAddr>,
    /// How often it probes another node. A dead one is out of every view after some eight of these; with etcd after some eleven.
    pub probe_period: Duration,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        let probe_period = Duration::from_millis(500);
        Self { name: None, etcd: None, join: Vec::new(), advertise: None, probe_period }
    }
}

/// A message from another node.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) sender: NodeId,
    pub(crate) class: u8,
    pub(crate) bytes: Box<[u8]>,
}

/// What event loops know of the cluster.
#[derive(Debug)]
pub(crate) struct Front {
    /// This life of this node; also the lender's instance.
    pub(crate) id: NodeId,
    pub(crate) name: String,
    /// Where others reach it.
    pub(crate) addr: SocketAddr,
    /// None: it is in no cluster.
    packets: Option<mpsc::Sender<Packet>>,
    published: Mutex<Option<Arc<Published>>>,
    pub(crate) counters: Arc<Counters>,
}

impl Front {
    /// A front, and for a node of a cluster the other end of its channel.
    pub(crate) fn new(
        id: NodeId,
        name: String,
        addr: SocketAddr,
        in_cluster: bool,
    ) -> (Self, Option<mpsc::Receiver<Packet>>) {
        let (packets, received) = in_cluster.then(|| mpsc::channel(PACKETS_MAX)).unzip();
        let front = Self { id, name, addr, packets, published: Mutex::default(), counters: Arc::default() };
        (front, received)
    }

    /// Hands a message over, or counts it as lost. Answers whether there is anybody to hand it to.
    pub(crate) fn deliver(&self, packet: Packet) -> bool {
        let Some(packets) = &self.packets else { return false };
        let taken = packets.try_send(packet).is_ok();
        Counters::add(if taken { &self.counters.messages_in } else { &self.counters.messages_in_lost });
        true
    }

    /// What to tell of the cluster; of a node that is in none, or has just started, what it is itself.
    pub(crate) fn published(&self, own: impl FnOnce() -> NodeFigures) -> Arc<Published> {
        let published = self.published.lock().expect("nothing panics under it").clone();
        published.unwrap_or_else(|| Arc::new(Published::alone(self.addr, &self.name, &own())))
    }

    /// From now on this is told. Answers whether borrowers would see a difference.
    pub(crate) fn publish(&self, mut fresh: Published) -> bool {
        let mut published = self.published.lock().expect("nothing panics under it");
        let changed = match &*published {
            Some(before) => fresh.follow(before),
            None => fresh.begin(),
        };
        *published = Some(Arc::new(fresh));
        if changed {
            Counters::add(&self.counters.views);
        }
        changed
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) messages_in: AtomicU64,
    pub(crate) messages_in_lost: AtomicU64,
    pub(crate) messages_in_refused: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    pub(crate) messages_out_lost: AtomicU64,
    pub(crate) links_opened: AtomicU64,
    pub(crate) links_failed: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) members_joined: AtomicU64,
    pub(crate) members_lost: AtomicU64,
    pub(crate) epochs: AtomicU64,
    pub(crate) views: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
