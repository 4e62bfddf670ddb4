//! How large messages are, in our own encoding: a header of 24 bytes and the fields, as `loam-wire` writes frames.

use loam_core::global::{AGE_BUCKETS, Message, NodeMessage, PageMessage};

/// Bytes of a page of the paper's machines.
pub const PAGE_BYTES: u64 = 8192;
const HEADER: u64 = 24;
/// A page's id.
const PAGE_ID: u64 = 16;
const NODE: u64 = 8;
const VERSION: u64 = 4;
/// Number and node: of an epoch, of a POD.
const ORDER: u64 = 16;

/// What of the cost tables a message is charged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Everything without a page.
    Small,
    /// The answer to a getpage.
    Data,
    /// A putpage.
    Put,
}

pub(super) fn class(message: &NodeMessage) -> Class {
    match message {
        NodeMessage::Page(PageMessage::Data { .. }) => Class::Data,
        NodeMessage::Page(PageMessage::Put { .. }) => Class::Put,
        _ => Class::Small,
    }
}

/// Bytes of a message about the cluster.
pub(crate) fn cluster_bytes(message: &Message) -> u64 {
    HEADER
        + match message {
            Message::EpochRequest { .. } => ORDER,
            // Replaced, consumed, busy; then the buckets.
            Message::Summary { .. } => ORDER + 10 + 4 * AGE_BUCKETS as u64,
            // Duration, M, MinAge, next initiator, two rates; then the weights.
            Message::EpochBegins(epoch) => ORDER + 48 + (NODE + 4) * epoch.weights.len() as u64,
            Message::EpochEnds { .. } => ORDER + 1,
            Message::Pod(pod) => ORDER + NODE * pod.owners().len() as u64,
            Message::PodRequest { .. } => ORDER,
        }
}

/// Bytes on the link, contents and all.
pub(super) fn bytes(message: &NodeMessage) -> u64 {
    match message {
        NodeMessage::Cluster(message) => cluster_bytes(message),
        NodeMessage::Page(message) => {
            HEADER
                + match message {
                    PageMessage::Locate { .. } => PAGE_ID + NODE,
                    PageMessage::Fetch { .. } => PAGE_ID + VERSION + NODE,
                    PageMessage::Data { .. } => PAGE_ID + VERSION + 1 + PAGE_BYTES,
                    PageMessage::Miss { .. } | PageMessage::Singlet { .. } => PAGE_ID,
                    PageMessage::Put { .. } => PAGE_ID + NODE + VERSION + 4 + 8 + PAGE_BYTES,
                    PageMessage::Moved { .. } => PAGE_ID + VERSION + 2 * NODE,
                    PageMessage::Entries(entries) => (PAGE_ID + NODE + 1) * entries.len() as u64,
                }
        }
    }
}
