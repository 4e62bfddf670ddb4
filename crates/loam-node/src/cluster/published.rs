//! What the control plane has found out, as event loops tell it to borrowers and to people.

use super::figures::Table;
use super::peer::Peer;
use loam_core::global::Coordinator;
use loam_core::ids::NodeId;
use loam_core::units::Instant;
use loam_wire::limits::VIEW_NODES_MAX;
use loam_wire::{ClusterFigures, NodeEntry, NodeFacts, NodeFigures, ViewEntry, ViewFigures};
use std::net::SocketAddr;

/// One state of the cluster as this node sees it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) view: ViewFigures,
    pub(crate) view_nodes: Vec<ViewEntry>,
    pub(crate) cluster: ClusterFigures,
    pub(crate) nodes: Vec<NodeEntry>,
}

impl Published {
    /// A node that is in no cluster: itself alone, all weight on it.
    pub(crate) fn alone(addr: SocketAddr, name: &str, own: &NodeFigures) -> Self {
        let peer = Peer { id: NodeId(own.id.get()), renewal: 0, addr, name: name.into() };
        let (view_entry, node) = entries(&peer, 1, ViewEntry::FLAG_SELF, 0, Some(own), 0);
        let cluster =
            ClusterFigures { id: own.id, master: own.id, initiator: own.id, ..ClusterFigures::default() };
        let view = ViewFigures::new(0, u64::MAX, 0);
        Self { view, view_nodes: vec![view_entry], cluster, nodes: vec![node] }
    }

    /// What holds at `now` for `members`; `answers` as [`super::membership::Membership::answers`].
    pub(crate) fn of(
        now: Instant,
        me: NodeId,
        members: &[Peer],
        coordinator: &Coordinator,
        table: &Table,
        answers: bool,
    ) -> Self {
        let epoch = coordinator.epoch();
        let (mut view_nodes, mut nodes) = (Vec::new(), Vec::new());
        for peer in members.iter().take(VIEW_NODES_MAX) {
            let heard = table.get(now, peer.id);
            let age_ms = heard.map_or(u64::MAX, |(_, age)| age.as_micros() / 1000);
            let flags = if peer.id == me { ViewEntry::FLAG_SELF } else { 0 };
            let figures = heard.map(|(figures, _)| figures);
            let stale = if peer.id == me && !answers { NodeFacts::FLAG_STALE } else { 0 };
            let (view_entry, node) = entries(peer, epoch.weight(peer.id), flags, stale, figures, age_ms);
            view_nodes.push(view_entry);
            nodes.push(node);
        }
        let cluster = ClusterFigures {
            id: me.0.into(),
            master: coordinator.master().0.into(),
            initiator: coordinator.initiator().0.into(),
            epoch: epoch.id.number.into(),
            epoch_initiator: epoch.id.initiator.0.into(),
            epoch_ns: epoch.duration.0.into(),
            epoch_age_ns: (now - coordinator.epoch_began()).0.into(),
            replacements: epoch.replacements.into(),
            min_age_ns: epoch.min_age.0.into(),
            pod: coordinator.pod().version().number.into(),
            version: 0.into(),
        };
        Self { view: ViewFigures::new(epoch.id.number, epoch.min_age.0, 0), view_nodes, cluster, nodes }
    }

    /// Whether the members are those of an earlier time.
    pub(crate) fn is_stale(&self) -> bool {
        self.nodes.iter().any(|node| node.facts().flags & NodeFacts::FLAG_STALE != 0)
    }

    /// The first one.
    pub(crate) fn begin(&mut self) -> bool {
        self.set_version(1);
        true
    }

    fn set_version(&mut self, version: u64) {
        self.view = ViewFigures::new(self.view.epoch(), self.view.min_age_ns(), version);
        self.cluster.version = version.into();
    }

    /// Gives it the version after `before`'s, or the same if borrowers would see no difference. Answers whether they would.
    pub(crate) fn follow(&mut self, before: &Self) -> bool {
        let unchanged = ViewFigures::new(self.view.epoch(), self.view.min_age_ns(), before.view.version());
        let changed = unchanged != before.view || self.view_nodes != before.view_nodes;
        self.set_version(before.view.version() + u64::from(changed));
        changed
    }
}

fn entries(
    peer: &Peer,
    weight: u32,
    flags: u32,
    stale: u32,
    figures: Option<&NodeFigures>,
    heard_ms: u64,
) -> (ViewEntry, NodeEntry) {
    let none = NodeFigures::default();
    let figures = figures.unwrap_or(&none);
    let (free_bytes, capacity_bytes) = (figures.free_bytes.get(), figures.capacity_bytes.get());
    let node = NodeEntry::new(&NodeFacts {
        id: peer.id.0,
        name: &peer.name,
        addr: peer.addr,
        flags: flags | stale,
        weight,
        capacity_bytes,
        used_bytes: figures.used_bytes.get(),
        free_bytes,
        local_pages: figures.local_pages.get(),
        uptime_s: figures.uptime_s.get(),
        heard_ms,
    });
    (ViewEntry::new(peer.id.0, peer.addr, weight, flags, free_bytes, capacity_bytes), node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::global::CoordinatorConfig;

    #[test]
    fn the_version_grows_when_borrowers_would_see_a_difference() {
        let me = NodeId(5);
        let addr: SocketAddr = "10.0.0.5:7070".parse().unwrap();
        let peer = Peer { id: me, renewal: 0, addr, name: "five".into() };
        let coordinator = Coordinator::new(Instant(0), me, CoordinatorConfig::default());
        let mut table = Table::default();
        let mut figures = NodeFigures {
            id: 5.into(),
            free_bytes: 4096.into(),
            capacity_bytes: 8192.into(),
            ..NodeFigures::default()
        };
        table.set(Instant(0), figures);
        let mut first =
            Published::of(Instant(0), me, std::slice::from_ref(&peer), &coordinator, &table, true);
        assert!(!first.clone().follow(&first));
        let stale = Published::of(Instant(0), me, std::slice::from_ref(&peer), &coordinator, &table, false);
        assert!(stale.is_stale() && !first.is_stale());
        assert!(!stale.clone().follow(&first), "borrowers have no use for it");
        let empty = Published::of(Instant(0), me, &[], &coordinator, &table, true);
        assert!(first.follow(&empty));
        assert_eq!((first.view.version(), first.cluster.version.get()), (1, 1));
        assert_eq!(first.view_nodes[0].flags(), ViewEntry::FLAG_SELF);
        // The time since the figures came is for people alone.
        let mut later = Published::of(
            Instant(9_000_000_000),
            me,
            std::slice::from_ref(&peer),
            &coordinator,
            &table,
            true,
        );
        assert!(!later.follow(&first));
        assert_eq!((later.view.version(), later.nodes[0].facts().heard_ms), (1, 9000));
        figures.free_bytes = 0.into();
        table.set(Instant(9), figures);
        assert!(Published::of(Instant(9), me, &[peer], &coordinator, &table, true).follow(&first));
    }

    #[test]
    fn who_is_in_no_cluster_has_all_the_weight() {
        let own = NodeFigures { id: 7.into(), capacity_bytes: 4096.into(), ..NodeFigures::default() };
        let alone = Published::alone("127.0.0.1:7070".parse().unwrap(), "x", &own);
        assert_eq!((alone.view_nodes[0].id(), alone.view_nodes[0].weight()), (7, 1));
        assert!(alone.view.min_age_ns() > 0, "0 would forbid to send anything");
        assert_eq!(alone.nodes[0].facts().name, "x");
    }
}
