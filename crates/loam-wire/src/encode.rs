//! From messages to bytes: each function appends one frame to a buffer, except that the payload of page and putpage
//! is left to the caller, who sends it behind the encoded head from where it lies.

use crate::PROTOCOL_VERSION;
use crate::cluster::{ClusterBody, ClusterFigures, NodeEntry, ViewEntry, ViewFigures};
use crate::layout::*;
use crate::limits::*;
use crate::mounts::MountAt;
pub use crate::regions::{region, region_call, region_refused, regions};
pub use crate::reservation::{reserve, reserved};
use zerocopy::{FromBytes, IntoBytes};

/// The front of `text` that fits into `bytes_max`, cut between characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// As [`cut`], with control characters replaced: the other end refuses them.
pub(crate) fn tidy(text: &str, bytes_max: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(&text, bytes_max).to_owned()
}

pub(crate) fn append(out: &mut Vec<u8>, kind: u8, request: u64, count: usize, fixed: &[u8], entries: &[u8]) {
    let shape = Shape::of(kind).expect("a kind of ours");
    assert!(
        count >= shape.count_min && count <= shape.count_max,
        "{count} entries in a frame of kind {kind}"
    );
    assert_eq!(fixed.len() + entries.len(), shape.proved_bytes(count));
    let header = Header {
        magic: MAGIC,
        kind,
        flags: 0,
        count: (count as u16).into(),
        body_bytes: (shape.body_bytes(count) as u32).into(),
        crc: 0.into(),
        request: request.into(),
    };
    let start = out.len();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(fixed);
    out.extend_from_slice(entries);
    let (header, proved) = Header::mut_from_prefix(&mut out[start..]).expect("just appended");
    header.crc = crate::decode::checksum(header, proved).into();
}

/// Bytes of the head (header and descriptors) of a page or putpage frame.
pub const fn page_head_bytes(pages: usize) -> usize {
    HEADER_BYTES + pages * PAGE_META_BYTES
}

/// `Hello` from a tool (`space` 0), or from a borrower without features. A name that is too long is cut.
pub fn hello(out: &mut Vec<u8>, space: u64, name: &str) {
    hello_of_version(out, PROTOCOL_VERSION, 0, space, name);
}

/// `Hello` from a client with these features ([`crate::feature`]).
pub fn hello_with(out: &mut Vec<u8>, features: u64, space: u64, name: &str) {
    hello_of_version(out, PROTOCOL_VERSION, features, space, name);
}

/// As [`hello_with`], from a borrower that comes back: see [`crate::Frame::Hello`].
pub fn hello_back(out: &mut Vec<u8>, features: u64, space: u64, returns: u32, name: &str) {
    whole_hello(out, PROTOCOL_VERSION, features, space, returns, name);
}

/// As [`hello_with`], speaking another version: for tests of the refusal.
pub fn hello_of_version(out: &mut Vec<u8>, version: u16, features: u64, space: u64, name: &str) {
    whole_hello(out, version, features, space, 0, name);
}

fn whole_hello(out: &mut Vec<u8>, version: u16, features: u64, space: u64, returns: u32, name: &str) {
    let name = tidy(name, NAME_BYTES_MAX);
    let body = HelloBody {
        features: features.into(),
        space: space.into(),
        version: version.into(),
        reserved: [0; 2],
        returns: returns.into(),
    };
    append(out, kind::HELLO, 0, name.len(), body.as_bytes(), name.as_bytes());
}

/// `Welcome`; `features` are those of the client's that this side has too.
pub fn welcome(out: &mut Vec<u8>, features: u64, instance: u64, capacity_bytes: u64, free_bytes: u64) {
    let body = WelcomeBody {
        features: features.into(),
        instance: instance.into(),
        capacity_bytes: capacity_bytes.into(),
        free_bytes: free_bytes.into(),
        version: PROTOCOL_VERSION.into(),
        reserved: [0; 6],
    };
    append(out, kind::WELCOME, 0, 0, body.as_bytes(), &[]);
}

/// `GetPage` for 1 to [`REQUEST_PAGES_MAX`] pages.
pub fn getpage(out: &mut Vec<u8>, request: u64, pages: &[PageRef]) {
    append(out, kind::GETPAGE, request, pages.len(), &[], pages.as_bytes());
}

/// `Hurry` for 1 to [`REQUEST_PAGES_MAX`] pages.
pub fn hurry(out: &mut Vec<u8>, pages: &[PageRef]) {
    append(out, kind::HURRY, 0, pages.len(), &[], pages.as_bytes());
}

/// The head of a `Page` frame for 1 to [`PAGE_FRAME_PAGES_MAX`] pages; their contents must follow.
pub fn page(out: &mut Vec<u8>, request: u64, pages: &[PageMeta]) {
    append(out, kind::PAGE, request, pages.len(), &[], pages.as_bytes());
}

/// `Miss` for 1 to [`REQUEST_PAGES_MAX`] pages.
pub fn miss(out: &mut Vec<u8>, request: u64, pages: &[PageRef]) {
    append(out, kind::MISS, request, pages.len(), &[], pages.as_bytes());
}

/// The head of a `PutPage` frame for 1 to [`REQUEST_PAGES_MAX`] pages; their contents must follow.
pub fn putpage(out: &mut Vec<u8>, request: u64, pages: &[PageMeta]) {
    append(out, kind::PUTPAGE, request, pages.len(), &[], pages.as_bytes());
}

/// `Ack` for 1 to [`REQUEST_PAGES_MAX`] pages.
pub fn ack(out: &mut Vec<u8>, request: u64, pages: &[PageAck], free_bytes: u64) {
    let body = AckBody { free_bytes: free_bytes.into() };
    append(out, kind::ACK, request, pages.len(), body.as_bytes(), pages.as_bytes());
}

/// `Drop` for 1 to [`DROP_PAGES_MAX`] pages.
pub fn drop(out: &mut Vec<u8>, pages: &[PageRef]) {
    append(out, kind::DROP, 0, pages.len(), &[], pages.as_bytes());
}

/// `Bye`.
pub fn bye(out: &mut Vec<u8>) {
    append(out, kind::BYE, 0, 0, &[], &[]);
}

/// `Error`; a text that is too long is cut.
pub fn error(out: &mut Vec<u8>, code: u16, text: &str) {
    let text = tidy(text, ERROR_TEXT_BYTES_MAX);
    let body = ErrorBody { code: code.into(), reserved: [0; 2] };
    append(out, kind::ERROR, 0, text.len(), body.as_bytes(), text.as_bytes());
}

/// `Ping`.
pub fn ping(out: &mut Vec<u8>, request: u64) {
    append(out, kind::PING, request, 0, &[], &[]);
}

/// `Pong`.
pub fn pong(out: &mut Vec<u8>, request: u64) {
    append(out, kind::PONG, request, 0, &[], &[]);
}

/// `StatusRequest`.
pub fn status_request(out: &mut Vec<u8>, request: u64) {
    append(out, kind::STATUS_REQUEST, request, 0, &[], &[]);
}

/// `Recall` of at most [`RECALL_PAGES_MAX`] pages; without pages it tells of room.
pub fn recall(out: &mut Vec<u8>, free_bytes: u64, within_ms: u32, pages: &[PageRef]) {
    let body = RecallBody { free_bytes: free_bytes.into(), within_ms: within_ms.into(), reserved: 0.into() };
    append(out, kind::RECALL, 0, pages.len(), body.as_bytes(), pages.as_bytes());
}

/// `Gone` with 1 to [`GONE_PAGES_MAX`] pages.
pub fn gone(out: &mut Vec<u8>, free_bytes: u64, pages: &[PageRef]) {
    let body = AckBody { free_bytes: free_bytes.into() };
    append(out, kind::GONE, 0, pages.len(), body.as_bytes(), pages.as_bytes());
}

/// `Store`; a zone's name that is too long is cut.
pub fn store(out: &mut Vec<u8>, store_bytes: u64, store_free_bytes: u64, zone: &str) {
    let zone = tidy(zone, ZONE_BYTES_MAX);
    let body = StoreBody {
        store_bytes: store_bytes.into(),
        store_free_bytes: store_free_bytes.into(),
        reserved: [0; 8],
    };
    append(out, kind::STORE, 0, zone.len(), body.as_bytes(), zone.as_bytes());
}

/// `Stored` with 1 to [`STORED_PAGES_MAX`] pages.
pub fn stored(out: &mut Vec<u8>, store_free_bytes: u64, pages: &[PageRef]) {
    let body = AckBody { free_bytes: store_free_bytes.into() };
    append(out, kind::STORED, 0, pages.len(), body.as_bytes(), pages.as_bytes());
}

/// `Spare` for 1 to [`SPARE_PAGES_MAX`] pages.
pub fn spare(out: &mut Vec<u8>, pages: &[PageRef]) {
    append(out, kind::SPARE, 0, pages.len(), &[], pages.as_bytes());
}

/// `Local`.
pub fn local(out: &mut Vec<u8>, pages: u64) {
    append(out, kind::LOCAL, 0, 0, LocalBody { pages: pages.into() }.as_bytes(), &[]);
}

/// `MountHere`.
pub fn mount_here(out: &mut Vec<u8>, at: &MountAt) {
    append(out, kind::MOUNT_HERE, 0, 0, at.as_bytes(), &[]);
}

/// `MountsRequest`.
pub fn mounts_request(out: &mut Vec<u8>, request: u64, group: u64) {
    append(out, kind::MOUNTS_REQUEST, request, 0, GroupBody { group: group.into() }.as_bytes(), &[]);
}

/// `Mounts` with the first [`MOUNTS_MAX`] of these.
pub fn mounts(out: &mut Vec<u8>, request: u64, mounts: &[MountAt]) {
    let mounts = &mounts[..mounts.len().min(MOUNTS_MAX)];
    append(out, kind::MOUNTS, request, mounts.len(), &[], mounts.as_bytes());
}

/// `MemoryRequest`.
pub fn memory_request(out: &mut Vec<u8>, request: u64) {
    append(out, kind::MEMORY_REQUEST, request, 0, &[], &[]);
}

/// `Memory`; a reason that is too long is cut.
pub fn memory(out: &mut Vec<u8>, request: u64, figures: &MemoryFigures, reason: &str) {
    let reason = tidy(reason, REASON_BYTES_MAX);
    append(out, kind::MEMORY, request, reason.len(), figures.as_bytes(), reason.as_bytes());
}

/// `Status` with at most [`STATUS_BORROWERS_MAX`] borrowers.
pub fn status(out: &mut Vec<u8>, request: u64, figures: &StatusFigures, borrowers: &[BorrowerEntry]) {
    append(out, kind::STATUS, request, borrowers.len(), figures.as_bytes(), borrowers.as_bytes());
}

/// `Cluster`: 1 to [`CLUSTER_BYTES_MAX`] bytes of a message of `class` (see [`crate::cluster_class`]) from node `sender`.
pub fn cluster(out: &mut Vec<u8>, sender: u64, class: u8, bytes: &[u8]) {
    let body = ClusterBody { sender: sender.into(), class, reserved: [0; 7] };
    append(out, kind::CLUSTER, 0, bytes.len(), body.as_bytes(), bytes);
}

/// `ViewRequest`.
pub fn view_request(out: &mut Vec<u8>, request: u64) {
    append(out, kind::VIEW_REQUEST, request, 0, &[], &[]);
}

/// `View` with at most [`VIEW_NODES_MAX`] nodes.
pub fn view(out: &mut Vec<u8>, request: u64, figures: &ViewFigures, nodes: &[ViewEntry]) {
    append(out, kind::VIEW, request, nodes.len(), figures.as_bytes(), nodes.as_bytes());
}

/// `NodesRequest`.
pub fn nodes_request(out: &mut Vec<u8>, request: u64) {
    append(out, kind::NODES_REQUEST, request, 0, &[], &[]);
}

/// `Nodes` with at most [`VIEW_NODES_MAX`] nodes.
pub fn nodes(out: &mut Vec<u8>, request: u64, figures: &ClusterFigures, nodes: &[NodeEntry]) {
    append(out, kind::NODES, request, nodes.len(), figures.as_bytes(), nodes.as_bytes());
}
