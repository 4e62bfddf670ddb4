//! Every metric of a node, in one table: name, help and where its value comes from. `docs/metrics.md` lists the same, which a test sees to.

use crate::cluster::{Counters, Published};
use crate::disk_store::DiskFigures;
use crate::drainer::StoreLink;
use crate::shared::Shared;
use loam_core::lender::LenderStats;
use loam_core::units::BASE_PAGE_BYTES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// What [`text()`] is made of.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One look at a node.
struct Sample {
    lender: LenderStats,
    store: DiskFigures,
    memory_bytes: u64,
    regions_bytes: u64,
    uptime_s: u64,
    connections: usize,
    local_pages: u64,
    id: u64,
    published: Arc<Published>,
    counters: Arc<Counters>,
}

impl Sample {
    fn of(shared: &Shared) -> Self {
        // Each by itself: what is asked below takes these locks too.
        let lender = shared.lender().stats();
        let (regions, _) = shared.shares().of_regions();
        Self {
            lender,
            store: shared.store.as_ref().map(StoreLink::figures).unwrap_or_default(),
            memory_bytes: shared.slab.memory().unwrap_or_default().0,
            regions_bytes: regions.bytes().0,
            uptime_s: shared.uptime_s(),
            connections: shared.places.taken(),
            local_pages: shared.local_pages(),
            id: shared.instance,
            published: shared.published(),
            counters: Arc::clone(&shared.front.counters),
        }
    }

    fn weight(&self) -> u32 {
        let own = self.published.view_nodes.iter().find(|node| node.id() == self.id);
        own.map_or(0, loam_wire::ViewEntry::weight)
    }
}

const NS_PER_S: f64 = 1e9;

/// What is read, and how it is shown.
enum Value {
    Counter(fn(&Sample) -> u64),
    Gauge(fn(&Sample) -> f64),
}
use Value::{Counter, Gauge};

struct Metric(&'static str, Option<Unit>, &'static str, Value);

const METRICS: &[Metric] = &[
    Metric(
        "lender_capacity",
        Some(Unit::Bytes),
        "Room in all that this node lends",
        Gauge(|s| s.lender.capacity.0 as f64),
    ),
    Metric(
        "lender_free",
        Some(Unit::Bytes),
        "Room that could be used at once",
        Gauge(|s| s.lender.free.0 as f64),
    ),
    Metric(
        "lender_memory",
        Some(Unit::Bytes),
        "Memory of this machine that the lent pages take",
        Gauge(|s| s.memory_bytes as f64),
    ),
    Metric(
        "lender_pages",
        None,
        "Base pages (4 KiB) held for others: global pages",
        Gauge(|s| s.lender.pages as f64),
    ),
    Metric(
        "regions",
        Some(Unit::Bytes),
        "Memory that direct regions have; it is not asked back",
        Gauge(|s| s.regions_bytes as f64),
    ),
    Metric(
        "lender_reserved",
        Some(Unit::Bytes),
        "Memory that is reserved for borrowers, used or not; it is not asked back",
        Gauge(|s| s.lender.reserved.0 as f64),
    ),
    Metric(
        "lender_reservable",
        Some(Unit::Bytes),
        "Memory that may be reserved for all borrowers together",
        Gauge(|s| s.lender.reservable.0 as f64),
    ),
    Metric(
        "local_pages",
        None,
        "Base pages (4 KiB) in this machine's memory of the programs here that borrow",
        Gauge(|s| s.local_pages as f64),
    ),
    Metric(
        "lender_borrowers",
        None,
        "Borrowers with a connection, or lost less than ten seconds ago (75 with a disk store)",
        Gauge(|s| s.lender.borrowers as f64),
    ),
    Metric(
        "lender_connections",
        None,
        "Open connections of borrowers, nodes and tools",
        Gauge(|s| s.connections as f64),
    ),
    Metric("lender_pages_fetched", None, "Base pages that borrowers asked for", Counter(|s| s.lender.gets)),
    Metric("lender_pages_stored", None, "Base pages that borrowers stored", Counter(|s| s.lender.puts)),
    Metric(
        "lender_pages_missed",
        None,
        "Base pages that were asked for and were not here",
        Counter(|s| s.lender.misses),
    ),
    Metric(
        "lender_pages_replaced",
        None,
        "Base pages that gave way to others because this node was full",
        Counter(|s| s.lender.replaced),
    ),
    Metric(
        "lender_pages_dropped",
        None,
        "Spare copies that were dropped because this machine wanted their memory",
        Counter(|s| s.lender.dropped),
    ),
    Metric(
        "lender_staged_waiting",
        None,
        "Base pages that wait here for the disk",
        Gauge(|s| s.lender.ring.waiting as f64),
    ),
    Metric(
        "lender_staged_held",
        None,
        "Base pages that were read while they waited for the disk, and are written only if room is short",
        Gauge(|s| s.lender.ring.held as f64),
    ),
    Metric(
        "lender_staged_under_way",
        None,
        "Base pages on their way to the disk",
        Gauge(|s| s.lender.ring.under_way as f64),
    ),
    Metric(
        "lender_staged",
        None,
        "Base pages that were put to wait for the disk",
        Counter(|s| s.lender.ring.taken),
    ),
    Metric(
        "lender_staged_refused",
        None,
        "Base pages that were refused because those of their borrower that wait are too many",
        Counter(|s| s.lender.ring.refused),
    ),
    Metric(
        "lender_staged_hits",
        None,
        "Base pages that were read while they waited for the disk",
        Counter(|s| s.lender.ring.victim_hits),
    ),
    Metric(
        "lender_staged_cancelled",
        None,
        "Base pages that were dropped or put anew before they were written",
        Counter(|s| s.lender.ring.cancelled),
    ),
    Metric(
        "lender_drained",
        None,
        "Base pages that were written to the disk",
        Counter(|s| s.lender.ring.drained),
    ),
    Metric(
        "lender_drain_writes",
        None,
        "Writes that they took; neighbours are combined",
        Counter(|s| s.lender.ring.writes),
    ),
    Metric(
        "lender_drain_failed",
        None,
        "Base pages that could not be written to the disk, and stayed in memory",
        Counter(|s| s.lender.ring.failed),
    ),
    Metric(
        "store_capacity",
        Some(Unit::Bytes),
        "Room for pages in the disk store",
        Gauge(|s| (s.lender.disk_capacity * BASE_PAGE_BYTES as u64) as f64),
    ),
    Metric(
        "store_free",
        Some(Unit::Bytes),
        "What of it is free",
        Gauge(|s| (s.store.slots_free * BASE_PAGE_BYTES as u64) as f64),
    ),
    Metric(
        "store_pages",
        None,
        "Base pages that the disk store has and this node may be asked for",
        Gauge(|s| s.lender.on_disk as f64),
    ),
    Metric(
        "store_pages_read",
        None,
        "Base pages that were read from the disk store",
        Counter(|s| s.store.reads),
    ),
    Metric("store_syncs", None, "Times that the disk store was synced", Counter(|s| s.store.syncs)),
    Metric("store_errors", None, "Operations that the disk of the store failed", Counter(|s| s.store.errors)),
    Metric(
        "store_corrupt",
        None,
        "Base pages in the disk store that were not what was written there",
        Counter(|s| s.store.corrupt),
    ),
    Metric("node_uptime", Some(Unit::Seconds), "Time since this node started", Gauge(|s| s.uptime_s as f64)),
    Metric(
        "cluster_members",
        None,
        "Living nodes that this node sees, itself among them",
        Gauge(|s| s.published.nodes.len() as f64),
    ),
    Metric(
        "cluster_is_master",
        None,
        "1 if this node is the master: the living node with the lowest id",
        Gauge(|s| f64::from(s.published.cluster.master.get() == s.id)),
    ),
    Metric(
        "cluster_is_initiator",
        None,
        "1 if this node begins the next epoch",
        Gauge(|s| f64::from(s.published.cluster.initiator.get() == s.id)),
    ),
    Metric(
        "cluster_membership_answers",
        None,
        "0 while the membership service (etcd) does not answer, and the members are those of an earlier time",
        Gauge(|s| f64::from(!s.published.is_stale())),
    ),
    Metric(
        "cluster_members_joined",
        None,
        "Nodes that this node has seen coming",
        Counter(|s| Counters::get(&s.counters.members_joined)),
    ),
    Metric(
        "cluster_members_lost",
        None,
        "Nodes that this node has seen going",
        Counter(|s| Counters::get(&s.counters.members_lost)),
    ),
    Metric(
        "cluster_views",
        None,
        "Views of the cluster that borrowers were told",
        Counter(|s| Counters::get(&s.counters.views)),
    ),
    Metric(
        "epoch_number",
        None,
        "Number of the epoch; 0 before the first",
        Gauge(|s| s.published.cluster.epoch.get() as f64),
    ),
    Metric(
        "epoch_duration",
        Some(Unit::Seconds),
        "How long the epoch may last (T)",
        Gauge(|s| s.published.cluster.epoch_ns.get() as f64 / NS_PER_S),
    ),
    Metric(
        "epoch_replacements",
        None,
        "Base pages that may be replaced in the epoch (M)",
        Gauge(|s| s.published.cluster.replacements.get() as f64),
    ),
    Metric(
        "epoch_min_age",
        Some(Unit::Seconds),
        "Pages older than this are not sent to global memory (MinAge); 0: none are that have a disk of their own, or no epoch yet",
        Gauge(|s| s.published.cluster.min_age_ns.get() as f64 / NS_PER_S),
    ),
    Metric(
        "epoch_weight",
        None,
        "How many of the M oldest pages of the cluster this node has",
        Gauge(|s| f64::from(s.weight())),
    ),
    Metric(
        "epochs",
        None,
        "Epochs that began while this node watched",
        Counter(|s| Counters::get(&s.counters.epochs)),
    ),
    Metric(
        "link_open",
        None,
        "Connections to other nodes",
        Gauge(|s| Counters::get(&s.counters.links) as f64),
    ),
    Metric(
        "link_opened",
        None,
        "Connections to other nodes that were made",
        Counter(|s| Counters::get(&s.counters.links_opened)),
    ),
    Metric(
        "link_failed",
        None,
        "Connections to other nodes that could not be made, or broke",
        Counter(|s| Counters::get(&s.counters.links_failed)),
    ),
    Metric(
        "link_messages_sent",
        None,
        "Messages to other nodes that were queued",
        Counter(|s| Counters::get(&s.counters.messages_out)),
    ),
    Metric(
        "link_messages_unsent",
        None,
        "Messages to other nodes that were lost before they were sent",
        Counter(|s| Counters::get(&s.counters.messages_out_lost)),
    ),
    Metric(
        "link_messages_received",
        None,
        "Messages from other nodes",
        Counter(|s| Counters::get(&s.counters.messages_in)),
    ),
    Metric(
        "link_messages_dropped",
        None,
        "Messages from other nodes that came faster than they could be handled",
        Counter(|s| Counters::get(&s.counters.messages_in_lost)),
    ),
    Metric(
        "link_messages_refused",
        None,
        "Messages from other nodes that had no meaning, or came from a node that is not a member",
        Counter(|s| Counters::get(&s.counters.messages_in_refused)),
    ),
];

struct Look(Sample);

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric(name, unit, help, value) in METRICS {
            match value {
                Counter(read) => {
                    let kind: MetricType = ConstCounter::<u64>::TYPE;
                    let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
                    ConstCounter::new(read(&self.0)).encode(encoder)?;
                }
                Gauge(read) => {
                    let kind: MetricType = ConstGauge::<f64>::TYPE;
                    let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
                    ConstGauge::new(read(&self.0)).encode(encoder)?;
                }
            }
        }
        Ok(())
    }
}

/// All metrics of a node, as Prometheus reads them.
pub(crate) fn text(shared: &Shared) -> String {
    let mut registry = Registry::with_prefix("loam");
    registry.register_collector(Box::new(Look(Sample::of(shared))));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a String takes what is written");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Name as it is scraped, kind and help, of each row of the documentation.
    fn documented() -> BTreeMap<String, (String, String)> {
        let page = include_str!("../../../docs/metrics.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `loam_"));
        rows.map(|row| {
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            let [name, kind, help] = cells[..] else { panic!("three columns: {row}") };
            (format!("loam_{}", name.trim_end_matches('`')), (kind.to_owned(), help.to_owned()))
        })
        .collect()
    }

    #[test]
    fn the_documented_list_is_the_real_one() {
        let mut real = BTreeMap::new();
        for Metric(name, unit, help, value) in METRICS {
            let unit = unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
            let (kind, total) = match value {
                Counter(_) => ("counter", "_total"),
                Gauge(_) => ("gauge", ""),
            };
            let listed = (kind.to_owned(), (*help).to_owned());
            assert!(real.insert(format!("loam_{name}{unit}{total}"), listed).is_none(), "{name} twice");
        }
        assert_eq!(documented(), real);
    }
}
