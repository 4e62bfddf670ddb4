//! Other mounts of the same source: who has which run, and getting it from there.
//!
//! The three directories of gms-1995 (section 4.1) in small: a mount's cache is its page-frame directory; the global-cache
//! directory, which says who holds a run, is split over the mounts; and who keeps which part of it, the page-ownership directory, is
//! not a table here but follows from the list of members by rendezvous hashing, so nothing has to be distributed.
//!
//! All of it is hints. A run's name contains its file's version, so a wrong hint costs a question or a read of the source.

mod directory;
mod finder;
mod group;
mod herald;
mod link;
mod peer;
mod rendezvous;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use finder::address_here;
pub(crate) use group::{Group, GroupConfig};

use crate::run::{Run, RunKey};
use loam_wire::mount::ExtentRef;
use std::fmt::Debug;
use std::sync::Arc;

/// One life of a mount: random, new with each start. 0 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

/// A mount that is said to hold runs of an extent: bit 0 is the extent's first run.
pub(crate) type Holder = (NodeId, u8);

/// What a mount knows of the others.
pub(crate) trait Peers: Debug + Send + Sync {
    /// Who has runs of each of these extents, in their order. Hints.
    fn who_has(&self, extents: &[ExtentRef]) -> Vec<Vec<Holder>>;
    /// Gets runs of one extent of a file of `size_bytes` from another mount: those that it still has, each proved by its hashes.
    fn fetch(&self, from: NodeId, keys: &[RunKey], size_bytes: u64) -> Vec<(RunKey, Arc<Run>)>;
    /// This mount has these from now on.
    fn now_have(&self, keys: &[RunKey]);
    /// This mount does not have these any more.
    fn no_longer(&self, keys: &[RunKey]);
    /// How many other mounts there are now.
    fn count(&self) -> usize;
}

/// There are no others.
#[derive(Debug)]
pub(crate) struct Alone;

impl Peers for Alone {
    fn who_has(&self, extents: &[ExtentRef]) -> Vec<Vec<Holder>> {
        vec![Vec::new(); extents.len()]
    }
    fn fetch(&self, _: NodeId, _: &[RunKey], _: u64) -> Vec<(RunKey, Arc<Run>)> {
        Vec::new()
    }
    fn now_have(&self, _: &[RunKey]) {}
    fn no_longer(&self, _: &[RunKey]) {}
    fn count(&self) -> usize {
        0
    }
}
