//! What an operation costs, from the tables of gms-1995 and from nothing else.
//!
//! A small message and a page's message are derived from table 1, where they are in sums: a shared miss is two small messages (211 us), a non-shared
//! hit a small one and a page (1135 us). A shared hit is then two small ones and a page: 1240.5 us, where the table has 1241. What it costs to
//! send a small message that answers nothing is the difference between asking another node (65 us, shared) and asking one's own tables (7 us,
//! non-shared miss): 58 us, as much as table 2 has for a putpage's request.

use super::message::{self, Class};
use crate::reproduce::gms::printed;
use loam_core::global::Message;
use loam_core::units::Duration;

/// Bits a second of the paper's network.
const LINK_BITS: u64 = 155_000_000;
/// Of 53 bytes of an ATM cell 48 are payload.
const CELL: (u64, u64) = (53, 48);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// A fault whose page is nowhere, looked up here: request and directory.
    pub(super) lookup: Duration,
    /// A request to another node's memory, of a non-shared page, with the look-up in the own directory.
    pub(super) request: Duration,
    /// A request of a shared page.
    pub(super) request_shared: Duration,
    pub(super) locate_miss: Duration,
    pub(super) locate_hit: Duration,
    pub(super) target: Duration,
    pub(super) target_shared: Duration,
    pub(super) receipt: Duration,
    pub(super) receipt_shared: Duration,
    pub(super) receipt_miss: Duration,
    pub(super) put: Duration,
    pub(super) put_own_directory: Duration,
    pub(super) put_directory: Duration,
    pub(super) put_target: Duration,
    pub(super) put_target_shared: Duration,
    /// The second message of a putpage, to the directory's node.
    pub(super) put_tell: Duration,
    /// A small message that answers nothing.
    pub(super) send: Duration,
    pub(super) receive: Duration,
    pub(super) scan_local_ps: u64,
    pub(super) scan_global_ps: u64,
    /// The initiator, for each summary, and everybody, for each node with a weight. The paper has them in the cost of the message.
    pub(super) choose_ns: u64,
    pub(super) weigh_ns: u64,
    /// Processors of both sides, for each byte of a message about the cluster. The paper's tables have none.
    pub(super) cpu_ps_per_byte: u64,
    /// Until the controller has the page and its frame is free.
    pub(super) frame_free: Duration,
    pub(super) disk: DiskCosts,
    /// What the file server adds to its disk, or takes alone.
    pub(super) file_server: DiskCosts,
    pub(super) file_server_hit: Duration,
    pub(super) network_small: Duration,
    pub(super) network_page: Duration,
    pub(super) network_put: Duration,
    /// Picoseconds that a byte is on a link.
    pub(super) ps_per_byte: u64,
}

/// A read that follows on another one, and one that does not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskCosts {
    pub(super) sequential: Duration,
    pub(super) random: Duration,
}

fn us(item: &str, case: &str, metric: &str) -> Duration {
    Duration((printed(item, case, metric) * 1_000.0).round() as u64)
}

fn ms(item: &str, case: &str, metric: &str) -> Duration {
    Duration((printed(item, case, metric) * 1_000_000.0).round() as u64)
}

fn sum(a: Duration, b: Duration) -> Duration {
    Duration(a.0 + b.0)
}

fn less(a: Duration, b: Duration) -> Duration {
    Duration(a.0.checked_sub(b.0).expect("the tables' parts are below their sums"))
}

impl Costs {
    /// Alphas and an AN2 network of 1995.
    pub fn paper() -> Self {
        const GET: &str = "table 1 getpage";
        const PUT: &str = "table 2 putpage";
        const NETWORK: &str = "network hardware and software";
        let generation = |case| us(GET, case, "request generation");
        let gcd = |case| us(GET, case, "GCD processing");
        let small = Duration(us(GET, "shared miss", NETWORK).0 / 2);
        let own = generation("non-shared miss");
        let hit = ms("table 4 shared", "sequential", "NFS hit");
        let nfs = |case| less(ms("table 4 shared", case, "NFS miss"), hit);
        Self {
            lookup: sum(own, gcd("non-shared miss")),
            request: sum(generation("non-shared hit"), gcd("non-shared hit")),
            request_shared: generation("shared hit"),
            locate_miss: gcd("shared miss"),
            locate_hit: gcd("shared hit"),
            target: us(GET, "non-shared hit", "target processing"),
            target_shared: us(GET, "shared hit", "target processing"),
            receipt: us(GET, "non-shared hit", "reply receipt"),
            receipt_shared: us(GET, "shared hit", "reply receipt"),
            receipt_miss: us(GET, "shared miss", "reply receipt"),
            put: us(PUT, "non-shared", "request generation"),
            put_own_directory: us(PUT, "non-shared", "GCD processing"),
            put_directory: us(PUT, "shared", "GCD processing"),
            put_target: us(PUT, "non-shared", "target processing"),
            put_target_shared: us(PUT, "shared", "target processing"),
            put_tell: less(
                us(PUT, "shared", "request generation"),
                us(PUT, "non-shared", "request generation"),
            ),
            send: less(generation("shared miss"), own),
            receive: us(GET, "shared miss", "reply receipt"),
            scan_local_ps: us("section 5.2", "per local page scanned", "CPU").0 * 1_000,
            scan_global_ps: us("section 5.2", "per global page scanned", "CPU").0 * 1_000,
            choose_ns: 0,
            weigh_ns: 0,
            cpu_ps_per_byte: 0,
            frame_free: us(
                "section 5.1",
                "8 KiB page",
                "time for the controller to transmit a buffer so its frame is free",
            ),
            disk: DiskCosts {
                sequential: ms("table 3 non-shared", "sequential", "access time without GMS"),
                random: ms("table 3 non-shared", "random", "access time without GMS"),
            },
            file_server: DiskCosts { sequential: nfs("sequential"), random: nfs("random") },
            file_server_hit: hit,
            network_small: small,
            network_page: less(us(GET, "non-shared hit", NETWORK), small),
            network_put: us(PUT, "non-shared", NETWORK),
            ps_per_byte: 8 * 1_000_000_000_000 / LINK_BITS * CELL.0 / CELL.1,
        }
    }

    /// A private page comes from another node's memory for one that goes there: "in steady state, every access requires a putpage to free a page
    /// and a getpage to fetch the faulted page" (section 5.1).
    pub(crate) fn swap(&self) -> Duration {
        let get = [self.request, self.network_small, self.target, self.network_page, self.receipt];
        let put = [self.put, self.put_own_directory, self.frame_free];
        Duration(get.iter().chain(&put).map(|part| part.0).sum())
    }

    /// From the sender's hands to the receiver's, if nothing else is on the links.
    pub(super) fn network(&self, class: Class) -> Duration {
        match class {
            Class::Small => self.network_small,
            Class::Data => self.network_page,
            Class::Put => self.network_put,
        }
    }

    /// Of that, how long it is on each link.
    pub(crate) fn on_link(&self, bytes: u64) -> Duration {
        Duration(bytes * self.ps_per_byte / 1_000)
    }

    /// How long looking at so many pages takes (section 5.2).
    pub(super) fn scan(&self, local: u32, global: u32) -> Duration {
        Duration((u64::from(local) * self.scan_local_ps + u64::from(global) * self.scan_global_ps) / 1_000)
    }

    /// Sending a message about the cluster.
    pub(super) fn cluster_send(&self, message: &Message) -> Duration {
        Duration(self.send.0 + self.handled(message))
    }

    /// Receiving one, and what it makes its receiver do at once.
    pub(super) fn cluster_receive(&self, message: &Message) -> Duration {
        let does = match message {
            Message::Summary { .. } => self.choose_ns,
            Message::EpochBegins(epoch) => self.weigh_ns * epoch.weights.len() as u64,
            _ => 0,
        };
        Duration(self.receive.0 + self.handled(message) + does)
    }

    fn handled(&self, message: &Message) -> u64 {
        message::cluster_bytes(message) * self.cpu_ps_per_byte / 1_000
    }
}
