//! Finds other mounts through the cluster: nobody has to say `--peer` where every machine runs a node.
//!
//! A mount tells its machine's node where it listens, and asks that node who else is in the cluster and each of those which mounts of the
//! source it knows. What comes of it are addresses to look at, as those of `--peer` are.

use super::group::Shared;
use loam_wire::client::{Client, ClientError, Target};
use loam_wire::{MountAt, NodeFacts, encode};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often nodes are asked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the node of this machine may take to answer, and any other.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Nodes asked in one look: of more a part has its turn.
const ASKED_MAX: usize = 32;
const NAME: &str = "loam mount";

/// Where the node of this machine listens for others: what another machine can reach a mount here by.
pub(crate) fn address_here(socket: &Path) -> Option<IpAddr> {
    let mut node = Client::connect_local(socket, 0, NAME, ANSWER_WITHIN).ok()?;
    let (figures, nodes) = node.nodes().ok()?;
    let own = nodes.iter().find(|node| node.facts().id == figures.id.get())?;
    Some(own.facts().addr.ip()).filter(|ip| !ip.is_unspecified())
}

/// Looks for others for as long as the mount lives.
pub(crate) fn run(shared: &Shared, socket: &Path, addr: SocketAddr) {
    let mut told = String::new();
    let mut turn = 0;
    loop {
        match look(shared, socket, addr, &mut turn) {
            Ok(never) => match never {},
            Err(error) => {
                let why = error.to_string();
                // The same again and again is said once.
                if why != told {
                    tracing::info!(
                        "the node at {} cannot be asked for other mounts: {why}",
                        socket.display()
                    );
                    told = why;
                }
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Asks again and again, until this machine's node does not answer.
fn look(
    shared: &Shared,
    socket: &Path,
    addr: SocketAddr,
    turn: &mut usize,
) -> Result<std::convert::Infallible, ClientError> {
    let mut node = Client::connect_local(socket, 0, NAME, ANSWER_WITHIN)?;
    let group = shared.card.group;
    node.send(&[], |out| encode::mount_here(out, &MountAt::new(group, addr)))?;
    loop {
        let (figures, nodes) = node.nodes()?;
        for mount in node.mounts(group)? {
            find(shared, addr, mount.addr());
        }
        let others: Vec<SocketAddr> = nodes
            .iter()
            .map(loam_wire::NodeEntry::facts)
            .filter(|facts: &NodeFacts<'_>| facts.id != figures.id.get())
            .map(|facts| facts.addr)
            .collect();
        for step in 0..others.len().min(ASKED_MAX) {
            let other = others[(*turn + step) % others.len()];
            // One that does not answer is membership's business.
            for mount in ask(shared, other, group).unwrap_or_default() {
                find(shared, addr, mount.addr());
            }
        }
        *turn = turn.wrapping_add(ASKED_MAX);
        thread::sleep(LOOK_EVERY);
    }
}

fn ask(shared: &Shared, node: SocketAddr, group: u64) -> Result<Vec<MountAt>, ClientError> {
    let credentials = shared.card.credentials.as_ref().map(|watched| watched.current());
    let target = Target { addr: node, name: None, credentials };
    Client::connect_with(target, 0, 0, NAME, ANSWER_WITHIN)?.mounts(group)
}

/// A mount is there. On loopback it can be reached from its own machine alone, and that is ours only if ours is on loopback too.
fn find(shared: &Shared, own: SocketAddr, mount: SocketAddr) {
    if mount != own && mount.port() != 0 && mount.ip().is_loopback() == own.ip().is_loopback() {
        shared.know(mount);
    }
}
