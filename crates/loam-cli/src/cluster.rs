//! The cluster as a node sees it: the part of `loam status` that asks nodes.

use crate::text::{printable, seconds, table};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_wire::client::{Client, ClientError, Target};
use loam_wire::{ClusterFigures, NodeEntry, NodeFacts};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// What tools call themselves.
const NAME: &str = "loam status";
const NS_PER_S: f64 = 1e9;

/// Whom to ask.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A node somewhere.
    Target(Target),
    /// This machine's, by its socket.
    Local(PathBuf),
}

/// One node's answer.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterStatus {
    /// Address or socket.
    asked: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    id: String,
    master: String,
    initiator: String,
    epoch: EpochStatus,
    /// Its membership service does not answer: the nodes are those of an earlier time.
    stale: bool,
    view_version: u64,
    pod_version: u64,
    nodes: Vec<NodeStatus>,
}

/// The epoch that it knows of.
#[derive(Debug, Default, Serialize)]
struct EpochStatus {
    number: u64,
    initiator: String,
    duration_s: f64,
    age_s: f64,
    replacements_pages: u64,
    min_age_s: f64,
}

/// One living node.
#[derive(Debug, Serialize)]
struct NodeStatus {
    id: String,
    name: String,
    addr: String,
    roles: Vec<&'static str>,
    lent_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    global_pages: u64,
    local_pages: u64,
    weight: u32,
    uptime_s: u64,
    /// How old its figures are; none if none have come.
    figures_age_s: Option<f64>,
}

/// The socket that this machine's node listens on: the one that is given, or the first of the usual ones with a node behind it.
pub(crate) fn local(given: Option<&Path>) -> Option<Asked> {
    given.map(Path::to_owned).or_else(crate::node::running).map(Asked::Local)
}

/// Asks a node.
pub(crate) fn ask(asked: &Asked) -> ClusterStatus {
    let (client, place) = match asked {
        Asked::Target(target) => {
            (Client::connect(target.clone(), 0, NAME, ANSWER_WITHIN), target.addr.to_string())
        }
        Asked::Local(path) => {
            (Client::connect_local(path, 0, NAME, ANSWER_WITHIN), path.display().to_string())
        }
    };
    let nodes = client.and_then(|mut client| client.nodes());
    answered(place, nodes)
}

fn hex(id: u64) -> String {
    if id == 0 { String::new() } else { format!("{id:016x}") }
}

fn answered(asked: String, answer: Result<(ClusterFigures, Vec<NodeEntry>), ClientError>) -> ClusterStatus {
    let (figures, nodes, error) = match answer {
        Ok((figures, nodes)) => (figures, nodes, None),
        Err(error) => (ClusterFigures::default(), Vec::new(), Some(error.to_string())),
    };
    let in_s = |ns: u64| ns as f64 / NS_PER_S;
    ClusterStatus {
        asked,
        error,
        id: hex(figures.id.get()),
        master: hex(figures.master.get()),
        initiator: hex(figures.initiator.get()),
        epoch: EpochStatus {
            number: figures.epoch.get(),
            initiator: hex(figures.epoch_initiator.get()),
            duration_s: in_s(figures.epoch_ns.get()),
            age_s: in_s(figures.epoch_age_ns.get()),
            replacements_pages: figures.replacements.get(),
            min_age_s: in_s(figures.min_age_ns.get()),
        },
        stale: nodes.iter().any(|node| node.facts().flags & NodeFacts::FLAG_STALE != 0),
        view_version: figures.version.get(),
        pod_version: figures.pod.get(),
        nodes: nodes.iter().map(|node| node_status(&node.facts(), &figures)).collect(),
    }
}

fn node_status(facts: &NodeFacts<'_>, figures: &ClusterFigures) -> NodeStatus {
    let roles = [
        ("master", facts.id == figures.master.get()),
        ("initiator", facts.id == figures.initiator.get()),
        ("lender", facts.capacity_bytes > 0),
        ("borrower", facts.local_pages > 0),
    ];
    NodeStatus {
        id: hex(facts.id),
        name: facts.name.to_owned(),
        addr: facts.addr.to_string(),
        roles: roles.into_iter().filter_map(|(role, has)| has.then_some(role)).collect(),
        lent_bytes: facts.capacity_bytes,
        used_bytes: facts.used_bytes,
        free_bytes: facts.free_bytes,
        global_pages: facts.used_bytes / BASE_PAGE_BYTES as u64,
        local_pages: facts.local_pages,
        weight: facts.weight,
        uptime_s: facts.uptime_s,
        figures_age_s: (facts.heard_ms != u64::MAX).then_some(facts.heard_ms as f64 / 1000.0),
    }
}

/// The same for people.
pub(crate) fn text(cluster: &ClusterStatus) -> String {
    if let Some(error) = &cluster.error {
        return format!("node {}: {}\n", cluster.asked, printable(error, 400));
    }
    let epoch = &cluster.epoch;
    let min_age = match epoch.min_age_s {
        _ if epoch.number == 0 => "-".to_owned(),
        0.0 => "0: what has a disk of its own is not sent".to_owned(),
        s if s > 1e9 => "free memory alone".to_owned(),
        s => seconds(s),
    };
    let mut out = format!(
        "cluster of {} as {} sees it: epoch {} (since {}, at most {}, {} pages), MinAge {min_age}\n",
        cluster.nodes.len(),
        cluster.asked,
        epoch.number,
        seconds(epoch.age_s),
        seconds(epoch.duration_s),
        epoch.replacements_pages,
    );
    if cluster.stale {
        out.push_str("etcd does not answer that node: the list is what it saw last\n");
    }
    let heading = ["node", "address", "roles", "lent", "used", "free", "weight", "up"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    for node in &cluster.nodes {
        let here = if node.id == cluster.id { "*" } else { "" };
        rows.push(vec![
            format!("{}{here}", printable(&node.name, 32)),
            node.addr.clone(),
            node.roles.join(","),
            Bytes(node.lent_bytes).to_string(),
            Bytes(node.used_bytes).to_string(),
            Bytes(node.free_bytes).to_string(),
            node.weight.to_string(),
            node.figures_age_s.map_or_else(|| "?".into(), |_| seconds(node.uptime_s as f64)),
        ]);
    }
    out.push_str(&table(&rows));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: u64, name: &str) -> NodeFacts<'_> {
        NodeFacts {
            id,
            name,
            addr: "10.0.0.7:7070".parse().expect("an address"),
            flags: 0,
            weight: 9,
            capacity_bytes: 1 << 30,
            used_bytes: 8192,
            free_bytes: (1 << 30) - 8192,
            local_pages: 0,
            uptime_s: 61,
            heard_ms: 250,
        }
    }

    #[test]
    fn roles_and_figures_are_told() {
        let figures = ClusterFigures {
            id: 1.into(),
            master: 1.into(),
            initiator: 2.into(),
            epoch: 3.into(),
            min_age_ns: 2_500_000_000.into(),
            ..ClusterFigures::default()
        };
        let nodes = vec![NodeEntry::new(&facts(1, "one")), NodeEntry::new(&facts(2, "two\x1b[2J"))];
        let status = answered("here".into(), Ok((figures, nodes)));
        assert_eq!(status.nodes[0].roles, ["master", "lender"]);
        assert_eq!(status.nodes[1].roles, ["initiator", "lender"]);
        assert_eq!((status.nodes[0].global_pages, status.nodes[0].figures_age_s), (2, Some(0.25)));
        let text = text(&status);
        assert!(
            text.contains("cluster of 2") && text.contains("MinAge 2.5 s") && text.contains("one*"),
            "{text}"
        );
        assert!(!text.contains('\x1b') && !status.stale && !text.contains("etcd"));
        let stale = NodeFacts { flags: NodeFacts::FLAG_STALE, ..facts(1, "one") };
        let status = answered("here".into(), Ok((figures, vec![NodeEntry::new(&stale)])));
        assert!(status.stale && super::text(&status).contains("etcd does not answer"));
    }

    #[test]
    fn a_node_that_is_not_there_is_told() {
        let status = ask(&Asked::Local("/no/such/socket".into()));
        assert!(status.error.is_some() && text(&status).contains("/no/such/socket"), "{status:?}");
    }
}
