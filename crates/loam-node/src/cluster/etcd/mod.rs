//! Membership by a site's own etcd: a key for each node under a lease that the node keeps alive, and a watch on all of them.
//!
//! ```text
//! /loam/CLUSTER/nodes/0123456789abcdef  ─►  {"addr":"10.0.0.7:7070","name":"node-7"}     (which life ─► where it listens)
//! ```
//!
//! - [`members`] is the machine: it decides what to ask of etcd next, and who lives by the answers. No I/O, no clock.
//! - [`view`] is what it makes of the keys; nothing in them is trusted.
//! - [`wire`] is the task that asks: etcd's v3 JSON gateway by plain HTTP. `json` knows how the questions and answers are written.
//!
//! Whatever breaks, the answer is the same: another server, the lease (or a new one), the key, a whole list, a watch from there on. A watch is
//! never continued, so a compacted revision, another leader and a server that has lost its data need no cases of their own.

#[cfg(test)]
mod fake;
mod json;
mod members;
mod site;
mod view;
mod wire;

pub(crate) use members::EtcdMembers;
pub use site::{EtcdSite, EtcdSiteError};
pub(crate) use wire::Wire;

/// Longest answer of etcd, and longest line of a watch, in bytes: 1024 nodes take a tenth of it.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest value of a key that is looked at, in bytes.
const VALUE_BYTES_MAX: usize = 512;

/// A question for etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Make a lease of at least so many seconds.
    Grant {
        /// That many.
        ttl_s: u64,
    },
    /// Begin the lease's time anew.
    Keep {
        /// Which.
        lease: u64,
    },
    /// Write this node's key.
    Put {
        /// The key goes with it.
        lease: u64,
        /// Below the prefix.
        key: String,
        /// JSON.
        value: String,
    },
    /// Remove a key of a former life.
    Remove {
        /// Below the prefix.
        key: String,
    },
    /// All keys below the prefix, as of one revision.
    List,
    /// Tell of every change from this revision on: one [`Answer::Watching`], then [`Answer::Changes`] until it breaks.
    Watch {
        /// The first one.
        from: u64,
    },
    /// End the lease, and the key with it.
    Revoke {
        /// Which.
        lease: u64,
    },
}

/// A question on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The answer names it.
    pub(crate) number: u64,
    /// Connections and watches of other sessions are to be closed.
    pub(crate) session: u64,
    /// Which server.
    pub(crate) endpoint: usize,
    /// What.
    pub(crate) call: Call,
}

/// A key below the prefix, and its value; no value: it has been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// What etcd says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// To [`Call::Grant`].
    Granted {
        /// The new lease.
        lease: u64,
    },
    /// To [`Call::Keep`]: whether there still is such a lease.
    Kept(bool),
    /// To [`Call::Put`], [`Call::Remove`] and [`Call::Revoke`].
    Done,
    /// To [`Call::List`].
    Listed {
        /// The list holds at this revision.
        revision: u64,
        /// All keys.
        keys: Vec<Change>,
    },
    /// The watch has begun.
    Watching,
    /// In the order in which they happened.
    Changes(Vec<Change>),
}

/// Why there is no such answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The lease has run out.
    LeaseGone,
    /// The server did not answer, or not so.
    Failed(String),
}

/// An answer on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// To which question.
    pub(crate) number: u64,
    /// What it says.
    pub(crate) answer: Result<Answer, Trouble>,
}
