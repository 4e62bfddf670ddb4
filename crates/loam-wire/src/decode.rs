//! From bytes to frames: without copies, without allocation, without trust.

use crate::cluster::{ClusterBody, ClusterFigures, NodeEntry, ViewEntry, ViewFigures};
use crate::error::WireError;
use crate::layout::*;
use crate::mount::{ExtentRef, ExtentRuns, FileVersion, Holders, MountHelloBody, MountWelcomeBody};
use crate::mounts::MountAt;
use crate::regions::{
    RegionAsk, RegionCallBody, RegionEntry, RegionFigures, RegionRefusal, RegionRefusedBody, RegionSpan,
};
use crate::reservation::{Reservation, ReserveBody};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// One message. Lists and payloads borrow from the buffer that was decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frame<'a> {
    /// Client to lender, first: who I am and what I speak.
    Hello {
        /// The client's protocol version.
        version: u16,
        /// Features that the client has.
        features: u64,
        /// The borrower's space; 0 for tools that store nothing.
        space: u64,
        /// 0, or: the borrower comes back, and this is its only connection. Those that have said less count no more, whatever of theirs is still on its
        /// way. Each try to come back says more than the one before.
        returns: u32,
        /// What `loam status` calls the borrower.
        name: &'a str,
    },
    /// Lender to client: the answer to hello.
    Welcome(&'a WelcomeBody),
    /// Borrower to lender: send me these.
    GetPage {
        /// Comes back in the answers.
        request: u64,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Lender to borrower: some of what was asked for, in the order of the request. The answer to a getpage is
    /// complete when the pages of its page and miss frames are as many as were asked for.
    Page {
        /// The getpage's.
        request: u64,
        /// Which, with their hashes.
        pages: &'a [PageMeta],
        /// Their contents, one base page each, in the same order. Not yet proved: compare hashes.
        payload: &'a [u8],
    },
    /// Lender to borrower: what was asked for and is not here in that version.
    Miss {
        /// The getpage's.
        request: u64,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Borrower to lender: keep these. Older contents of the same indexes are gone from then on.
    PutPage {
        /// Comes back in the ack.
        request: u64,
        /// Which, with their hashes.
        pages: &'a [PageMeta],
        /// Their contents, one base page each, in the same order.
        payload: &'a [u8],
    },
    /// Lender to borrower: what became of each page of a putpage, in its order.
    Ack {
        /// The putpage's.
        request: u64,
        /// Page by page.
        pages: &'a [PageAck],
        /// Room that the lender has left.
        free_bytes: u64,
    },
    /// Borrower to lender: forget these, where the version is still this one. No answer.
    Drop {
        /// Which.
        pages: &'a [PageRef],
    },
    /// Borrower to lender, where both have [`crate::feature::PLAN`]: threads wait for these by now. Those of them that are asked for as
    /// [`Urgency::Behind`](loam_core::ids::Urgency::Behind) and not sent yet go before the others. No answer of its own.
    Hurry {
        /// Which.
        pages: &'a [PageRef],
    },
    /// Borrower to lender: I am done, forget all that is mine. No answer.
    Bye,
    /// Either way, last: why I close this connection.
    Error {
        /// One of [`crate::error_code`].
        code: u16,
        /// For people.
        text: &'a str,
    },
    /// Are you there?
    Ping {
        /// Comes back in the pong.
        request: u64,
    },
    /// I am.
    Pong {
        /// The ping's.
        request: u64,
    },
    /// Client to lender: how are you?
    StatusRequest {
        /// Comes back in the status.
        request: u64,
    },
    /// The answer.
    Status {
        /// The request's.
        request: u64,
        /// The lender's figures.
        figures: &'a StatusFigures,
        /// Its borrowers, or the first few.
        borrowers: &'a [BorrowerEntry],
    },
    /// Node to node: a message of the membership, of the coordinators or the like. No answer: it may be lost.
    Cluster {
        /// Which life of which node says so.
        sender: u64,
        /// One of [`crate::cluster_class`]; others are to be ignored.
        class: u8,
        /// The message.
        bytes: &'a [u8],
    },
    /// Borrower to node: tell me your view of the cluster, now and whenever it changes.
    ViewRequest {
        /// Comes back in every view.
        request: u64,
    },
    /// The answer, and each change; at most a few a second.
    View {
        /// The request's.
        request: u64,
        /// What holds for all.
        figures: &'a ViewFigures,
        /// The living nodes, by ascending id.
        nodes: &'a [ViewEntry],
    },
    /// Lender to borrower, unasked, where both have [`crate::feature::RECALL`]: my machine wants memory back; take these home, and
    /// drop each when it is safe elsewhere. Without pages: this is the room that I have again.
    Recall {
        /// Room that the lender has left.
        free_bytes: u64,
        /// By when it would have some of them gone. What is not taken home stays.
        within_ms: u32,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Lender to borrower, where both have [`crate::feature::SPARE`] or [`crate::feature::STAGING`]: I have these no longer, others have
    /// taken their place.
    Gone {
        /// Room that the lender has left.
        free_bytes: u64,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Lender to client, behind the welcome where both have [`crate::feature::STAGING`]: what my disk can take.
    Store {
        /// Room of the disk store in all; 0: there is none.
        store_bytes: u64,
        /// What of it is free.
        store_free_bytes: u64,
        /// What may fail together with this lender (a rack, a host): two copies in one zone are worth less. Empty if nobody has said.
        zone: &'a str,
    },
    /// Lender to borrower, unasked, where both have [`crate::feature::STAGING`]: these are safe on my disk by now.
    Stored {
        /// What of the disk store is free.
        store_free_bytes: u64,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Borrower to lender, where both have [`crate::feature::STAGING`]: these may give way to others from now on, where the version is
    /// still this one. No answer; what is replaced is told by [`Frame::Gone`].
    Spare {
        /// Which.
        pages: &'a [PageRef],
    },
    /// Borrower to lender, where both have [`crate::feature::RESERVE`]: have so much memory set aside for me, in all, in place of what I had set
    /// aside before. A tool asks with 0 what there is.
    Reserve {
        /// Comes back in the answer.
        request: u64,
        /// 0: nothing.
        bytes: u64,
    },
    /// The answer: all of it, or it is as it was.
    Reserved {
        /// The request's.
        request: u64,
        /// What is reserved now.
        reservation: &'a Reservation,
    },
    /// Borrower to the node of its own machine, over the UNIX socket: so many base pages of my program are local. No answer.
    Local {
        /// Instead of what was said before on this connection.
        pages: u64,
    },
    /// Mount to the node of its own machine, over the UNIX socket: here I am, as long as this connection lives. No answer.
    MountHere(&'a MountAt),
    /// Mount to node: where are the mounts of my source on your machine?
    MountsRequest {
        /// Comes back in the answer.
        request: u64,
        /// Hash of the source's name.
        group: u64,
    },
    /// The answer. Hints.
    Mounts {
        /// The request's.
        request: u64,
        /// The first [`crate::limits::MOUNTS_MAX`] of them.
        mounts: &'a [MountAt],
    },
    /// Client to lender: how much do you lend now, and why?
    MemoryRequest {
        /// Comes back in the answer.
        request: u64,
    },
    /// The answer.
    Memory {
        /// The request's.
        request: u64,
        /// The figures.
        figures: &'a MemoryFigures,
        /// Why it lends less than it was told to, for people; empty if it does not.
        reason: &'a str,
    },
    /// Mount to mount, first: who I am and which source I show.
    MountHello {
        /// Node, group, version.
        body: &'a MountHelloBody,
        /// The source's name, for people.
        name: &'a str,
    },
    /// The answer.
    MountWelcome(&'a MountWelcomeBody),
    /// Mount to mount: send me these pages of a file. Answered as a getpage is; versions of pages are 0.
    SharedGetPage {
        /// Comes back in the answers.
        request: u64,
        /// Of which version of which file.
        file: &'a FileVersion,
        /// Which.
        pages: &'a [PageRef],
    },
    /// Mount to the one that keeps this part of the directory: who has these?
    Locate {
        /// Comes back in the answer.
        request: u64,
        /// Which.
        extents: &'a [ExtentRef],
    },
    /// The answer, in the order of the question. Hints.
    Located {
        /// The question's.
        request: u64,
        /// Extent by extent.
        holders: &'a [Holders],
    },
    /// I have these. No answer.
    Register {
        /// Which runs of which extents.
        extents: &'a [ExtentRuns],
    },
    /// I have them no longer. No answer.
    Unregister {
        /// Which runs of which extents.
        extents: &'a [ExtentRuns],
    },
    /// Directory to holder: as far as I know you alone have these. No answer.
    LastCopy {
        /// Which runs of which extents.
        extents: &'a [ExtentRuns],
    },
    /// Tool to node: how is the cluster?
    NodesRequest {
        /// Comes back in the answer.
        request: u64,
    },
    /// Node to tool: the answer to a nodes request.
    Nodes {
        /// The request's.
        request: u64,
        /// What holds for all.
        figures: &'a ClusterFigures,
        /// The living nodes, by ascending id.
        nodes: &'a [NodeEntry],
    },
    /// Program to the node of its own machine, over the UNIX socket: do this with a region. One at a time.
    RegionCall {
        /// Comes back in the answer.
        request: u64,
        /// What, and with which region.
        ask: RegionAsk<'a>,
    },
    /// The answer of a call on one region. With spans, if the asker has it open, there came a descriptor for each.
    Region {
        /// The call's.
        request: u64,
        /// The region, as it is now.
        entry: &'a RegionEntry,
        /// Its memory, from its beginning on.
        spans: &'a [RegionSpan],
    },
    /// The answer to a list.
    Regions {
        /// The call's.
        request: u64,
        /// What the node lends as regions.
        figures: &'a RegionFigures,
        /// By name.
        entries: &'a [RegionEntry],
    },
    /// The call was refused, and nothing was changed. The connection goes on.
    RegionRefused {
        /// The call's.
        request: u64,
        /// Why.
        why: RegionRefusal,
        /// For people.
        text: &'a str,
    },
}

/// What the front of a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// Not a whole frame yet. Call again with at least `bytes_total` bytes (which may be asked for in two steps:
    /// the header, then the frame).
    NeedMore {
        /// Bytes of the buffer that are needed in all.
        bytes_total: usize,
    },
    /// A frame.
    Whole {
        /// The message.
        frame: Frame<'a>,
        /// Bytes of the buffer that it takes.
        consumed: usize,
    },
}

/// Decodes the frame at the front of `buffer`. A damaged header is found as soon as the header's crc
/// can be checked, before its payload has come.
///
/// # Errors
/// [`WireError`]; nothing behind it in the stream can be trusted.
pub fn decode(buffer: &[u8]) -> Result<Decoded<'_>, WireError> {
    let Ok((header, body)) = Header::ref_from_prefix(buffer) else {
        let known = buffer.len().min(MAGIC.len());
        if buffer[..known] != MAGIC[..known] {
            return Err(WireError::Magic);
        }
        return Ok(Decoded::NeedMore { bytes_total: HEADER_BYTES });
    };
    if header.magic != MAGIC {
        return Err(WireError::Magic);
    }
    let kind = header.kind;
    let shape = Shape::of(kind).ok_or(WireError::Kind { kind })?;
    if header.flags != 0 {
        return Err(WireError::Flags { flags: header.flags });
    }
    let count = usize::from(header.count.get());
    if count < shape.count_min || count > shape.count_max {
        return Err(WireError::Count { kind, count: header.count.get() });
    }
    let (bytes, expected) = (header.body_bytes.get(), shape.body_bytes(count));
    if bytes as usize != expected {
        return Err(WireError::Length { kind, bytes, expected });
    }
    let Some((proved, behind)) = body.split_at_checked(shape.proved_bytes(count)) else {
        return Ok(Decoded::NeedMore { bytes_total: HEADER_BYTES + expected });
    };
    if checksum(header, proved) != header.crc.get() {
        return Err(WireError::Checksum { kind });
    }
    let Some(payload) = behind.get(..shape.payload_bytes * count) else {
        return Ok(Decoded::NeedMore { bytes_total: HEADER_BYTES + expected });
    };
    let frame = frame(header, shape, proved, payload)?;
    Ok(Decoded::Whole { frame, consumed: HEADER_BYTES + expected })
}

/// The front of a page frame whose payload has not come yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageHead<'a> {
    /// The getpage's.
    pub request: u64,
    /// Which, with their hashes. Their contents follow in this order, one base page each.
    pub pages: &'a [PageMeta],
}

/// Bytes of the head of a page frame, by its header; `None` if that is not the header of a page frame.
pub fn page_head_bytes(header: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(header).ok()?;
    let (shape, count) = (Shape::of(kind::PAGE)?, usize::from(header.count.get()));
    let of_pages = header.magic == MAGIC && header.kind == kind::PAGE && count <= shape.count_max;
    of_pages.then(|| HEADER_BYTES + shape.proved_bytes(count))
}

/// The head of a page frame, if `buffer` is one to its last byte: for who wants to receive the payload where it shall lie.
/// `None`: another frame, or more or fewer bytes; ask [`decode`].
pub fn page_head(buffer: &[u8]) -> Option<PageHead<'_>> {
    let (header, proved) = Header::ref_from_prefix(buffer).ok()?;
    let count = usize::from(header.count.get());
    let of_pages = header.magic == MAGIC && header.kind == kind::PAGE && header.flags == 0;
    let shape = Shape::of(kind::PAGE)?;
    let whole = (shape.count_min..=shape.count_max).contains(&count)
        && proved.len() == shape.proved_bytes(count)
        && header.body_bytes.get() as usize == shape.body_bytes(count)
        && checksum(header, proved) == header.crc.get();
    (of_pages && whole).then(|| PageHead { request: header.request.get(), pages: list(proved) })
}

/// The crc of a header (its crc field counted as zero) and what lies behind it.
pub(crate) fn checksum(header: &Header, proved: &[u8]) -> u32 {
    let header = Header { crc: 0.into(), ..*header };
    crc32c::crc32c_append(crc32c::crc32c(zerocopy::IntoBytes::as_bytes(&header)), proved)
}

/// Text from outside that may go to a terminal: UTF-8 without control characters.
pub(crate) fn printable(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

fn one<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_bytes(bytes).expect("cut to its size, and any bytes will do")
}

fn list<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("cut to whole entries, and any bytes will do")
}

fn frame<'a>(
    header: &Header,
    shape: Shape,
    proved: &'a [u8],
    payload: &'a [u8],
) -> Result<Frame<'a>, WireError> {
    let kind = header.kind;
    let request = header.request.get();
    let (fixed, entries) = proved.split_at(shape.fixed_bytes);
    Ok(match kind {
        kind::HELLO => {
            let hello: &HelloBody = one(fixed);
            Frame::Hello {
                version: hello.version.get(),
                features: hello.features.get(),
                space: hello.space.get(),
                returns: hello.returns.get(),
                name: printable(entries).ok_or(WireError::Text { kind })?,
            }
        }
        kind::WELCOME => Frame::Welcome(one(fixed)),
        kind::GETPAGE => Frame::GetPage { request, pages: list(entries) },
        kind::REGION_CALL => {
            let text = printable(entries).ok_or(WireError::Text { kind })?;
            let ask = one::<RegionCallBody>(fixed).checked(text).ok_or(WireError::Field { kind })?;
            Frame::RegionCall { request, ask }
        }
        kind::REGION => {
            let entry: &RegionEntry = one(fixed);
            if !entry.is_whole() {
                return Err(WireError::Text { kind });
            }
            Frame::Region { request, entry, spans: list(entries) }
        }
        kind::REGIONS => {
            let regions: &[RegionEntry] = list(entries);
            if !regions.iter().all(RegionEntry::is_whole) {
                return Err(WireError::Text { kind });
            }
            Frame::Regions { request, figures: one::<RegionFigures>(fixed), entries: regions }
        }
        kind::REGION_REFUSED => {
            let why = one::<RegionRefusedBody>(fixed).why_checked().ok_or(WireError::Field { kind })?;
            Frame::RegionRefused { request, why, text: printable(entries).ok_or(WireError::Text { kind })? }
        }
        kind::RESERVE => Frame::Reserve { request, bytes: one::<ReserveBody>(fixed).bytes.get() },
        kind::RESERVED => {
            let reservation: &Reservation = one(fixed);
            if !reservation.is_sane() {
                return Err(WireError::Field { kind });
            }
            Frame::Reserved { request, reservation }
        }
        kind::HURRY => Frame::Hurry { pages: list(entries) },
        kind::PAGE => Frame::Page { request, pages: list(entries), payload },
        kind::MISS => Frame::Miss { request, pages: list(entries) },
        kind::PUTPAGE => {
            let pages: &[PageMeta] = list(entries);
            if pages.iter().any(|page| page.class_checked().is_none()) {
                return Err(WireError::Field { kind });
            }
            Frame::PutPage { request, pages, payload }
        }
        kind::ACK => {
            let pages: &[PageAck] = list(entries);
            if pages.iter().any(|page| page.status_checked().is_none()) {
                return Err(WireError::Field { kind });
            }
            Frame::Ack { request, pages, free_bytes: one::<AckBody>(fixed).free_bytes.get() }
        }
        kind::DROP => Frame::Drop { pages: list(entries) },
        kind::BYE => Frame::Bye,
        kind::ERROR => Frame::Error {
            code: one::<ErrorBody>(fixed).code.get(),
            text: printable(entries).ok_or(WireError::Text { kind })?,
        },
        kind::PING => Frame::Ping { request },
        kind::PONG => Frame::Pong { request },
        kind::STATUS_REQUEST => Frame::StatusRequest { request },
        kind::STATUS => {
            let borrowers: &[BorrowerEntry] = list(entries);
            if borrowers.iter().any(|borrower| borrower.name_checked().is_none()) {
                return Err(WireError::Text { kind });
            }
            Frame::Status { request, figures: one(fixed), borrowers }
        }
        kind::CLUSTER => {
            let body: &ClusterBody = one(fixed);
            Frame::Cluster { sender: body.sender.get(), class: body.class, bytes: entries }
        }
        kind::VIEW_REQUEST => Frame::ViewRequest { request },
        kind::VIEW => Frame::View { request, figures: one(fixed), nodes: list(entries) },
        kind::RECALL => {
            let recall: &RecallBody = one(fixed);
            Frame::Recall {
                free_bytes: recall.free_bytes.get(),
                within_ms: recall.within_ms.get(),
                pages: list(entries),
            }
        }
        kind::GONE => {
            Frame::Gone { free_bytes: one::<AckBody>(fixed).free_bytes.get(), pages: list(entries) }
        }
        kind::STORE => {
            let store: &StoreBody = one(fixed);
            Frame::Store {
                store_bytes: store.store_bytes.get(),
                store_free_bytes: store.store_free_bytes.get(),
                zone: printable(entries).ok_or(WireError::Text { kind })?,
            }
        }
        kind::STORED => {
            let store_free_bytes = one::<AckBody>(fixed).free_bytes.get();
            Frame::Stored { store_free_bytes, pages: list(entries) }
        }
        kind::SPARE => Frame::Spare { pages: list(entries) },
        kind::LOCAL => Frame::Local { pages: one::<LocalBody>(fixed).pages.get() },
        kind::MOUNT_HERE => Frame::MountHere(one(fixed)),
        kind::MOUNTS_REQUEST => Frame::MountsRequest { request, group: one::<GroupBody>(fixed).group.get() },
        kind::MOUNTS => Frame::Mounts { request, mounts: list(entries) },
        kind::MEMORY_REQUEST => Frame::MemoryRequest { request },
        kind::MEMORY => Frame::Memory {
            request,
            figures: one(fixed),
            reason: printable(entries).ok_or(WireError::Text { kind })?,
        },
        kind::MOUNT_HELLO => {
            Frame::MountHello { body: one(fixed), name: printable(entries).ok_or(WireError::Text { kind })? }
        }
        kind::MOUNT_WELCOME => Frame::MountWelcome(one(fixed)),
        kind::SHARED_GETPAGE => Frame::SharedGetPage { request, file: one(fixed), pages: list(entries) },
        kind::LOCATE => Frame::Locate { request, extents: list(entries) },
        kind::LOCATED => Frame::Located { request, holders: list(entries) },
        kind::REGISTER => Frame::Register { extents: list(entries) },
        kind::UNREGISTER => Frame::Unregister { extents: list(entries) },
        kind::LAST_COPY => Frame::LastCopy { extents: list(entries) },
        kind::NODES_REQUEST => Frame::NodesRequest { request },
        kind::NODES => {
            let nodes: &[NodeEntry] = list(entries);
            if nodes.iter().any(|node| node.name_checked().is_none()) {
                return Err(WireError::Text { kind });
            }
            Frame::Nodes { request, figures: one(fixed), nodes }
        }
        _ => return Err(WireError::Kind { kind }),
    })
}
