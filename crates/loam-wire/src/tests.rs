//! The codec against itself and against damage.

use crate::mount::{ExtentRef, ExtentRuns, FileVersion, Holders};
use crate::*;
use loam_core::ids::{PutClass, Urgency, Version};
use loam_core::units::BASE_PAGE_BYTES;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddr;

/// A message that owns its parts, so that a strategy can make it.
#[derive(Clone, Debug)]
enum Message {
    Hello { version: u16, features: u64, space: u64, name: String },
    Welcome { features: u64, instance: u64, capacity: u64, free: u64 },
    GetPage { request: u64, pages: Vec<PageRef> },
    Page { request: u64, pages: Vec<PageMeta>, seed: u8 },
    Miss { request: u64, pages: Vec<PageRef> },
    PutPage { request: u64, pages: Vec<PageMeta>, seed: u8 },
    Ack { request: u64, pages: Vec<PageAck>, free: u64 },
    Drop { pages: Vec<PageRef> },
    Hurry { pages: Vec<PageRef> },
    Bye,
    Error { code: u16, text: String },
    Ping(u64),
    Pong(u64),
    StatusRequest(u64),
    Status { request: u64, figures: StatusFigures, borrowers: Vec<BorrowerEntry> },
    Cluster { sender: u64, class: u8, bytes: Vec<u8> },
    ViewRequest(u64),
    View { request: u64, figures: ViewFigures, nodes: Vec<ViewEntry> },
    Recall { free: u64, within_ms: u32, pages: Vec<PageRef> },
    Gone { free: u64, pages: Vec<PageRef> },
    Store { bytes: u64, free: u64, zone: String },
    Stored { free: u64, pages: Vec<PageRef> },
    Spare { pages: Vec<PageRef> },
    Reserve { request: u64, bytes: u64 },
    Reserved { request: u64, facts: ReservationFacts, granted: bool },
    Local(u64),
    MountHere(MountAt),
    MountsRequest { request: u64, group: u64 },
    Mounts { request: u64, mounts: Vec<MountAt> },
    MemoryRequest(u64),
    Memory { request: u64, figures: MemoryFigures, reason: String },
    MountHello { group: u64, node: u64, port: u16, name: String },
    MountWelcome { group: u64, node: u64 },
    SharedGetPage { request: u64, file: FileVersion, pages: Vec<PageRef> },
    Locate { request: u64, extents: Vec<ExtentRef> },
    Located { request: u64, holders: Vec<Holders> },
    Runs { what: u8, extents: Vec<ExtentRuns> },
    NodesRequest(u64),
    Nodes { request: u64, figures: ClusterFigures, nodes: Vec<NodeEntry> },
}

fn payload(pages: usize, seed: u8) -> Vec<u8> {
    (0..pages * BASE_PAGE_BYTES).map(|at| (at / 7) as u8 ^ seed).collect()
}

fn mount_at() -> impl Strategy<Value = MountAt> {
    any::<(u64, SocketAddr)>().prop_map(|(group, addr)| MountAt::new(group, addr))
}

fn messages() -> impl Strategy<Value = Message> {
    let version = any::<u32>().prop_map(Version);
    let urgency = prop_oneof![Just(Urgency::Waited), Just(Urgency::Behind)];
    let page_ref = (any::<u64>(), version.clone(), urgency, any::<u16>())
        .prop_map(|(index, version, urgency, message)| PageRef::planned(index, version, urgency, message));
    let class = prop_oneof![Just(PutClass::Ordinary), Just(PutClass::Staged), Just(PutClass::Mirror)];
    let meta =
        (any::<u64>(), version.clone(), any::<u128>(), class).prop_map(|(index, version, hash, class)| {
            PageMeta::classed(index, version, ContentHash(hash), class)
        });
    let status = prop_oneof![Just(PutStatus::Stored), Just(PutStatus::NoRoom), Just(PutStatus::BadHash)];
    let ack = (any::<u64>(), version, status).prop_map(|(index, version, s)| PageAck::new(index, version, s));
    let name = "[a-zA-Z0-9 äλ/._-]{0,20}";
    let borrower = (any::<u64>(), any::<u64>(), any::<u32>(), name)
        .prop_map(|(space, pages, connections, name)| BorrowerEntry::new(space, pages, connections, &name));
    let node = (any::<u64>(), any::<SocketAddr>(), any::<[u32; 2]>(), any::<[u64; 2]>()).prop_map(
        |(id, addr, [weight, flags], [free, capacity])| {
            ViewEntry::new(id, addr, weight, flags, free, capacity)
        },
    );
    let gone = vec(page_ref.clone(), 1..1025);
    let stored = vec(page_ref.clone(), 1..1025);
    let spare = vec(page_ref.clone(), 1..1025);
    let recalled = vec(page_ref.clone(), 0..1025);
    let full = (any::<[u64; 7]>(), any::<SocketAddr>(), any::<[u32; 2]>(), name).prop_map(
        |(
            [id, capacity_bytes, used_bytes, free_bytes, local_pages, uptime_s, heard_ms],
            addr,
            [weight, flags],
            name,
        )| {
            NodeEntry::new(&NodeFacts {
                id,
                name: &name,
                addr,
                flags,
                weight,
                capacity_bytes,
                used_bytes,
                free_bytes,
                local_pages,
                uptime_s,
                heard_ms,
            })
        },
    );
    let refs = move |max| vec(page_ref.clone(), 1..max);
    let file = any::<u128>().prop_map(FileVersion::new);
    let extent = (file.clone(), any::<u64>()).prop_map(|(file, extent)| ExtentRef::new(file, extent));
    let runs = (extent.clone(), any::<u8>()).prop_map(|(extent, runs)| ExtentRuns::new(extent, runs));
    let holders = vec((1..u64::MAX, 1..u8::MAX), 0..6).prop_map(|holders| Holders::new(&holders));
    prop_oneof![
        (any::<u16>(), any::<[u64; 2]>(), name).prop_map(|(version, [features, space], name)| {
            Message::Hello { version, features, space, name }
        }),
        any::<[u64; 4]>().prop_map(|[features, instance, capacity, free]| Message::Welcome {
            features,
            instance,
            capacity,
            free
        }),
        (any::<u64>(), refs(257)).prop_map(|(request, pages)| Message::GetPage { request, pages }),
        (any::<u64>(), vec(meta.clone(), 1..5), any::<u8>())
            .prop_map(|(request, pages, seed)| Message::Page { request, pages, seed }),
        (any::<u64>(), refs(257)).prop_map(|(request, pages)| Message::Miss { request, pages }),
        (any::<u64>(), vec(meta, 1..5), any::<u8>()).prop_map(|(request, pages, seed)| Message::PutPage {
            request,
            pages,
            seed
        }),
        (any::<u64>(), vec(ack, 1..257), any::<u64>()).prop_map(|(request, pages, free)| Message::Ack {
            request,
            pages,
            free
        }),
        refs(1025).prop_map(|pages| Message::Drop { pages }),
        refs(257).prop_map(|pages| Message::Hurry { pages }),
        Just(Message::Bye),
        (any::<u16>(), "[a-z :,äλ]{0,60}").prop_map(|(code, text)| Message::Error { code, text }),
        (any::<[u64; 2]>(), any::<u16>(), name).prop_map(|([group, node], port, name)| Message::MountHello {
            group,
            node,
            port,
            name
        }),
        any::<[u64; 2]>().prop_map(|[group, node]| Message::MountWelcome { group, node }),
        (any::<u64>(), file, refs(257)).prop_map(|(request, file, pages)| Message::SharedGetPage {
            request,
            file,
            pages
        }),
        (any::<u64>(), vec(extent, 1..65))
            .prop_map(|(request, extents)| Message::Locate { request, extents }),
        (any::<u64>(), vec(holders, 1..65))
            .prop_map(|(request, holders)| Message::Located { request, holders }),
        (0..3_u8, vec(runs, 1..257)).prop_map(|(what, extents)| Message::Runs { what, extents }),
        any::<u64>().prop_map(Message::Ping),
        any::<u64>().prop_map(Message::Local),
        mount_at().prop_map(Message::MountHere),
        any::<(u64, u64)>().prop_map(|(request, group)| Message::MountsRequest { request, group }),
        (any::<u64>(), vec(mount_at(), 0..257))
            .prop_map(|(request, mounts)| Message::Mounts { request, mounts }),
        any::<u64>().prop_map(Message::MemoryRequest),
        (any::<u64>(), any::<u64>(), name).prop_map(|(bytes, free, zone)| Message::Store {
            bytes,
            free,
            zone
        }),
        (any::<u64>(), stored).prop_map(|(free, pages)| Message::Stored { free, pages }),
        spare.prop_map(|pages| Message::Spare { pages }),
        any::<[u64; 2]>().prop_map(|[request, bytes]| Message::Reserve { request, bytes }),
        (any::<[u64; 6]>(), any::<bool>()).prop_map(
            |([request, own_bytes, most_bytes, all_bytes, reservable_bytes, free_bytes], granted)| {
                let facts =
                    ReservationFacts { own_bytes, most_bytes, all_bytes, reservable_bytes, free_bytes };
                Message::Reserved { request, facts, granted }
            }
        ),
        (any::<u64>(), gone).prop_map(|(free, pages)| Message::Gone { free, pages }),
        (any::<u64>(), any::<u32>(), recalled).prop_map(|(free, within_ms, pages)| Message::Recall {
            free,
            within_ms,
            pages
        }),
        (any::<[u64; 4]>(), "[a-zA-Z0-9 äλ/._-]{0,60}").prop_map(|([request, a, b, c], reason)| {
            let figures = MemoryFigures {
                capacity_bytes: a.into(),
                slab_bytes: b.into(),
                kept: c.into(),
                ..MemoryFigures::default()
            };
            Message::Memory { request, figures, reason }
        }),
        any::<u64>().prop_map(Message::Pong),
        any::<u64>().prop_map(Message::StatusRequest),
        (any::<u64>(), any::<[u64; 3]>(), vec(borrower, 0..65)).prop_map(
            |(request, [a, b, c], borrowers)| {
                let figures = StatusFigures {
                    instance: a.into(),
                    pages: b.into(),
                    connections: c.into(),
                    ..StatusFigures::default()
                };
                Message::Status { request, figures, borrowers }
            }
        ),
        (any::<u64>(), any::<u8>(), vec(any::<u8>(), 1..200))
            .prop_map(|(sender, class, bytes)| Message::Cluster { sender, class, bytes }),
        any::<u64>().prop_map(Message::ViewRequest),
        any::<u64>().prop_map(Message::NodesRequest),
        (any::<u64>(), any::<[u64; 2]>(), vec(full, 0..20)).prop_map(|(request, [id, epoch], nodes)| {
            let figures = ClusterFigures { id: id.into(), epoch: epoch.into(), ..ClusterFigures::default() };
            Message::Nodes { request, figures, nodes }
        }),
        (any::<u64>(), any::<[u64; 3]>(), vec(node, 0..40)).prop_map(
            |(request, [epoch, min_age, version], nodes)| {
                Message::View { request, figures: ViewFigures::new(epoch, min_age, version), nodes }
            }
        ),
    ]
}

impl Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, features, space, name } => {
                encode::hello_of_version(out, *version, *features, *space, name);
            }
            Self::Welcome { features, instance, capacity, free } => {
                encode::welcome(out, *features, *instance, *capacity, *free);
            }
            Self::GetPage { request, pages } => encode::getpage(out, *request, pages),
            Self::Page { request, pages, seed } => {
                encode::page(out, *request, pages);
                out.extend(payload(pages.len(), *seed));
            }
            Self::Miss { request, pages } => encode::miss(out, *request, pages),
            Self::PutPage { request, pages, seed } => {
                encode::putpage(out, *request, pages);
                out.extend(payload(pages.len(), *seed));
            }
            Self::Ack { request, pages, free } => encode::ack(out, *request, pages, *free),
            Self::Drop { pages } => encode::drop(out, pages),
            Self::Hurry { pages } => encode::hurry(out, pages),
            Self::Bye => encode::bye(out),
            Self::Error { code, text } => encode::error(out, *code, text),
            Self::Ping(request) => encode::ping(out, *request),
            Self::Pong(request) => encode::pong(out, *request),
            Self::StatusRequest(request) => encode::status_request(out, *request),
            Self::Status { request, figures, borrowers } => encode::status(out, *request, figures, borrowers),
            Self::Cluster { sender, class, bytes } => encode::cluster(out, *sender, *class, bytes),
            Self::ViewRequest(request) => encode::view_request(out, *request),
            Self::View { request, figures, nodes } => encode::view(out, *request, figures, nodes),
            Self::Recall { free, within_ms, pages } => encode::recall(out, *free, *within_ms, pages),
            Self::Gone { free, pages } => encode::gone(out, *free, pages),
            Self::Store { bytes, free, zone } => encode::store(out, *bytes, *free, zone),
            Self::Stored { free, pages } => encode::stored(out, *free, pages),
            Self::Spare { pages } => encode::spare(out, pages),
            Self::Reserve { request, bytes } => encode::reserve(out, *request, *bytes),
            Self::Reserved { request, facts, granted } => {
                encode::reserved(out, *request, &Reservation::new(facts, *granted))
            }
            Self::Local(pages) => encode::local(out, *pages),
            Self::MountHere(at) => encode::mount_here(out, at),
            Self::MountsRequest { request, group } => encode::mounts_request(out, *request, *group),
            Self::Mounts { request, mounts } => encode::mounts(out, *request, mounts),
            Self::MemoryRequest(request) => encode::memory_request(out, *request),
            Self::Memory { request, figures, reason } => encode::memory(out, *request, figures, reason),
            Self::MountHello { group, node, port, name } => mount::hello(out, *group, *node, *port, name),
            Self::MountWelcome { group, node } => mount::welcome(out, *group, *node),
            Self::SharedGetPage { request, file, pages } => mount::getpage(out, *request, file, pages),
            Self::Locate { request, extents } => mount::locate(out, *request, extents),
            Self::Located { request, holders } => mount::located(out, *request, holders),
            Self::Runs { what: 0, extents } => mount::register(out, extents),
            Self::Runs { what: 1, extents } => mount::unregister(out, extents),
            Self::Runs { extents, .. } => mount::last_copy(out, extents),
            Self::NodesRequest(request) => encode::nodes_request(out, *request),
            Self::Nodes { request, figures, nodes } => encode::nodes(out, *request, figures, nodes),
        }
    }

    fn matches(&self, frame: Frame<'_>) {
        match (self, frame) {
            (
                Self::Hello { version, features, space, name },
                Frame::Hello { version: v, features: f, space: s, returns: 0, name: n },
            ) => {
                assert_eq!((v, f, s, n), (*version, *features, *space, name.as_str()));
            }
            (Self::Welcome { features, instance, capacity, free }, Frame::Welcome(body)) => {
                assert_eq!(body.version(), PROTOCOL_VERSION);
                assert_eq!((body.features(), body.instance()), (*features, *instance));
                assert_eq!((body.capacity_bytes(), body.free_bytes()), (*capacity, *free));
            }
            (Self::GetPage { request, pages }, Frame::GetPage { request: r, pages: p })
            | (Self::Miss { request, pages }, Frame::Miss { request: r, pages: p }) => {
                assert_eq!((r, p), (*request, &pages[..]));
            }
            (Self::Page { request, pages, seed }, Frame::Page { request: r, pages: p, payload: c })
            | (Self::PutPage { request, pages, seed }, Frame::PutPage { request: r, pages: p, payload: c }) =>
            {
                assert_eq!((r, p), (*request, &pages[..]));
                assert_eq!(c, payload(pages.len(), *seed));
            }
            (Self::Ack { request, pages, free }, Frame::Ack { request: r, pages: p, free_bytes }) => {
                assert_eq!((r, p, free_bytes), (*request, &pages[..], *free));
            }
            (Self::Drop { pages }, Frame::Drop { pages: p }) => assert_eq!(p, &pages[..]),
            (Self::Hurry { pages }, Frame::Hurry { pages: p }) => assert_eq!(p, &pages[..]),
            (Self::Bye, Frame::Bye) => {}
            (Self::Error { code, text }, Frame::Error { code: c, text: t }) => {
                assert_eq!((c, t), (*code, text.as_str()));
            }
            (
                Self::Recall { free, within_ms, pages },
                Frame::Recall { free_bytes, within_ms: w, pages: p },
            ) => {
                assert_eq!((free_bytes, w, p), (*free, *within_ms, &pages[..]));
            }
            (Self::MountHere(at), Frame::MountHere(a)) => assert_eq!(a, at),
            (Self::MountsRequest { request, group }, Frame::MountsRequest { request: r, group: g }) => {
                assert_eq!((r, g), (*request, *group));
            }
            (Self::Mounts { request, mounts }, Frame::Mounts { request: r, mounts: m }) => {
                assert_eq!((r, m), (*request, &mounts[..]));
            }
            (Self::Store { bytes, free, zone }, Frame::Store { store_bytes, store_free_bytes, zone: z }) => {
                assert_eq!((store_bytes, store_free_bytes, z), (*bytes, *free, zone.as_str()))
            }
            (Self::Stored { free, pages }, Frame::Stored { store_free_bytes, pages: p }) => {
                assert_eq!((store_free_bytes, p), (*free, &pages[..]));
            }
            (Self::Reserve { request, bytes }, Frame::Reserve { request: r, bytes: b }) => {
                assert_eq!((r, b), (*request, *bytes));
            }
            (Self::Reserved { request, facts, granted }, Frame::Reserved { request: r, reservation }) => {
                assert_eq!((r, reservation), (*request, &Reservation::new(facts, *granted)));
            }
            (Self::Spare { pages }, Frame::Spare { pages: p }) => assert_eq!(p, &pages[..]),
            (Self::Local(pages), Frame::Local { pages: p }) => assert_eq!(p, *pages),
            (Self::Gone { free, pages }, Frame::Gone { free_bytes, pages: p }) => {
                assert_eq!((free_bytes, p), (*free, &pages[..]));
            }
            (
                Self::Memory { request, figures, reason },
                Frame::Memory { request: r, figures: f, reason: t },
            ) => {
                assert_eq!((r, f, t), (*request, figures, reason.as_str()));
            }
            (Self::MemoryRequest(a), Frame::MemoryRequest { request })
            | (Self::Ping(a), Frame::Ping { request })
            | (Self::Pong(a), Frame::Pong { request })
            | (Self::StatusRequest(a), Frame::StatusRequest { request }) => assert_eq!(*a, request),
            (
                Self::Status { request, figures, borrowers },
                Frame::Status { request: r, figures: f, borrowers: b },
            ) => {
                assert_eq!((r, f, b), (*request, figures, &borrowers[..]));
            }
            (Self::Cluster { sender, class, bytes }, Frame::Cluster { sender: s, class: c, bytes: b }) => {
                assert_eq!((s, c, b), (*sender, *class, &bytes[..]));
            }
            (Self::ViewRequest(a), Frame::ViewRequest { request }) => assert_eq!(*a, request),
            (Self::View { request, figures, nodes }, Frame::View { request: r, figures: f, nodes: n }) => {
                assert_eq!((r, f, n), (*request, figures, &nodes[..]));
            }
            (Self::MountHello { group, node, port, name }, Frame::MountHello { body, name: n }) => {
                assert_eq!((body.version(), body.group(), body.node()), (PROTOCOL_VERSION, *group, *node));
                assert_eq!((body.port(), n), (*port, name.as_str()));
            }
            (Self::MountWelcome { group, node }, Frame::MountWelcome(body)) => {
                assert_eq!((body.version(), body.group(), body.node()), (PROTOCOL_VERSION, *group, *node));
            }
            (
                Self::SharedGetPage { request, file, pages },
                Frame::SharedGetPage { request: r, file: f, pages: p },
            ) => assert_eq!((r, f, p), (*request, file, &pages[..])),
            (Self::Locate { request, extents }, Frame::Locate { request: r, extents: e }) => {
                assert_eq!((r, e), (*request, &extents[..]));
            }
            (Self::Located { request, holders }, Frame::Located { request: r, holders: h }) => {
                assert_eq!((r, h), (*request, &holders[..]));
            }
            (Self::Runs { what: 0, extents }, Frame::Register { extents: e })
            | (Self::Runs { what: 1, extents }, Frame::Unregister { extents: e })
            | (Self::Runs { what: 2, extents }, Frame::LastCopy { extents: e }) => {
                assert_eq!(e, &extents[..])
            }
            (Self::NodesRequest(a), Frame::NodesRequest { request }) => assert_eq!(*a, request),
            (Self::Nodes { request, figures, nodes }, Frame::Nodes { request: r, figures: f, nodes: n }) => {
                assert_eq!((r, f, n), (*request, figures, &nodes[..]));
            }
            (sent, got) => panic!("sent {sent:?}, got {got:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_goes_in_comes_out(messages in vec(messages(), 1..6)) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut bytes));
        let mut rest = &bytes[..];
        for message in &messages {
            match decode(rest).unwrap() {
                Decoded::Whole { frame, consumed } => {
                    message.matches(frame);
                    rest = &rest[consumed..];
                }
                more => panic!("{more:?} for {message:?}"),
            }
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn every_truncation_asks_for_the_rest(message in messages()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        for end in 0..bytes.len() {
            match decode(&bytes[..end]) {
                Ok(Decoded::NeedMore { bytes_total }) => {
                    prop_assert!(bytes_total > end && bytes_total <= bytes.len());
                    // Before the header is whole only its length is known, then the frame's.
                    prop_assert!(end < layout::HEADER_BYTES || bytes_total == bytes.len());
                }
                other => prop_assert!(false, "{other:?} at {end} of {}", bytes.len()),
            }
        }
    }

    #[test]
    fn no_flipped_bit_outside_the_payload_is_taken(message in messages()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let proved = match &message {
            Message::Page { pages, .. } | Message::PutPage { pages, .. } => encode::page_head_bytes(pages.len()),
            _ => bytes.len(),
        };
        for bit in 0..proved * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match decode(&bytes) {
                Err(_) | Ok(Decoded::NeedMore { .. }) => {}
                Ok(Decoded::Whole { frame, .. }) => prop_assert!(false, "bit {bit}: {frame:?}"),
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    /// Garbage behind a header that is right: gets past the first checks.
    #[test]
    fn shaped_garbage_is_refused(kind in any::<u8>(), count in 0..300_u16, body in vec(any::<u8>(), 0..3000)) {
        let mut bytes = b"LOAM".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(count.to_le_bytes());
        let body_bytes = layout::Shape::of(kind).map_or(body.len(), |shape| shape.body_bytes(usize::from(count)));
        bytes.extend((body_bytes as u32).to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(&body);
        let taken = matches!(decode(&bytes), Ok(Decoded::Whole { .. }));
        prop_assert!(!taken);
    }
}

#[test]
fn a_flipped_bit_in_a_payload_fails_its_hash() {
    let contents = payload(2, 3);
    let pages: Vec<_> = contents
        .chunks(BASE_PAGE_BYTES)
        .enumerate()
        .map(|(at, page)| PageMeta::new(at as u64, Version(1), page_hash(page)))
        .collect();
    let mut bytes = Vec::new();
    encode::putpage(&mut bytes, 1, &pages);
    let head = bytes.len();
    assert_eq!(head, encode::page_head_bytes(2));
    bytes.extend(&contents);
    for bit in (0..contents.len() * 8).step_by(997) {
        bytes[head + bit / 8] ^= 1 << (bit % 8);
        let Ok(Decoded::Whole { frame: Frame::PutPage { pages, payload, .. }, .. }) = decode(&bytes) else {
            panic!("a payload is not the codec's to judge");
        };
        let bad = bit / 8 / BASE_PAGE_BYTES;
        for (at, page) in payload.chunks(BASE_PAGE_BYTES).enumerate() {
            assert_eq!(page_hash(page) == pages[at].hash(), at != bad);
        }
        bytes[head + bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn the_head_of_a_page_frame_is_taken_only_whole_and_only_right() {
    let pages: Vec<_> = (0..3).map(|at| PageMeta::new(at, Version(0), ContentHash(u128::from(at)))).collect();
    let mut bytes = Vec::new();
    encode::page(&mut bytes, 9, &pages);
    assert_eq!(page_head(&bytes), Some(PageHead { request: 9, pages: &pages }));
    assert_eq!(page_head(&bytes[..bytes.len() - 1]), None);
    assert_eq!(page_head_bytes(&bytes[..HEADER_BYTES]), Some(bytes.len()));
    assert_eq!(page_head_bytes(&bytes[..HEADER_BYTES - 1]), None);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(page_head(&bytes), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes.push(0);
    assert_eq!(page_head(&bytes), None);
    let mut other = Vec::new();
    encode::putpage(&mut other, 9, &pages);
    assert_eq!(page_head(&other), None);
}

/// The limits are part of the protocol: a count above them is refused however right the rest is.
#[test]
fn counts_above_the_limits_are_refused() {
    let mut bytes = Vec::new();
    encode::getpage(&mut bytes, 1, &[PageRef::new(1, Version(1)); limits::REQUEST_PAGES_MAX]);
    bytes[6..8].copy_from_slice(&(limits::REQUEST_PAGES_MAX as u16 + 1).to_le_bytes());
    assert_eq!(decode(&bytes), Err(WireError::Count { kind: 3, count: 257 }));
    bytes[6..8].copy_from_slice(&0_u16.to_le_bytes());
    assert_eq!(decode(&bytes), Err(WireError::Count { kind: 3, count: 0 }));
}

/// Rebuilds a frame's crc after its bytes were changed.
fn seal(bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn fields_without_meaning_are_refused_even_with_a_right_checksum() {
    let mut bytes = Vec::new();
    encode::ack(&mut bytes, 1, &[PageAck::new(1, Version(1), PutStatus::Stored)], 0);
    let status = bytes.len() - 4;
    bytes[status] = 9;
    seal(&mut bytes);
    assert_eq!(decode(&bytes), Err(WireError::Field { kind: 7 }));

    let staged = PageMeta::classed(1, Version(1), ContentHash(7), PutClass::Mirror);
    let mut bytes = Vec::new();
    encode::putpage(&mut bytes, 1, &[staged]);
    bytes[24 + 12] = 3;
    seal(&mut bytes);
    bytes.extend([0; BASE_PAGE_BYTES]);
    assert_eq!(decode(&bytes), Err(WireError::Field { kind: 6 }));
    let mut bytes = Vec::new();
    encode::page(&mut bytes, 1, &[staged]);
    bytes[24 + 12] = 3;
    seal(&mut bytes);
    bytes.extend([0; BASE_PAGE_BYTES]);
    assert!(decode(&bytes).is_ok(), "reserved in an answer");

    for bad in [b"\x1b[2J".as_slice(), b"\xff\xfe"] {
        let mut bytes = Vec::new();
        encode::error(&mut bytes, 1, &"x".repeat(bad.len()));
        let at = bytes.len() - bad.len();
        bytes[at..].copy_from_slice(bad);
        seal(&mut bytes);
        assert_eq!(decode(&bytes), Err(WireError::Text { kind: 10 }));
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let mut bytes = Vec::new();
    encode::hello(&mut bytes, 1, &"ä\n".repeat(100));
    let Ok(Decoded::Whole { frame: Frame::Hello { name, .. }, .. }) = decode(&bytes) else { panic!("whole") };
    assert_eq!(name, "ä ".repeat(21), "63 bytes: the next character does not fit");
}

/// The bytes of one frame, written out: a change of the layout is a change of the protocol's version.
#[test]
fn the_layout_is_what_the_documentation_draws() {
    let mut bytes = Vec::new();
    encode::getpage(&mut bytes, 0x0102, &[PageRef::new(5, Version(7))]);
    let mut expected = b"LOAM\x03\x00\x01\x00\x10\x00\x00\x00".to_vec();
    expected.extend([0; 4]);
    expected.extend(0x0102_u64.to_le_bytes());
    expected.extend(5_u64.to_le_bytes());
    expected.extend(7_u32.to_le_bytes());
    expected.extend([0; 4]);
    seal(&mut expected);
    assert_eq!(bytes, expected);
    assert_eq!(limits::FRAME_BYTES_MAX, 24 + 256 * (32 + 4096));
}

/// A hello says a return where older lenders look at nothing; one that does not is what it always was.
#[test]
fn a_return_is_in_what_was_reserved() {
    let (mut first, mut back) = (Vec::new(), Vec::new());
    encode::hello_with(&mut first, 3, 9, "name");
    encode::hello_back(&mut back, 3, 9, 0x0102_0304, "name");
    let Ok(Decoded::Whole { frame: Frame::Hello { space: 9, features: 3, returns, .. }, .. }) = decode(&back)
    else {
        panic!("whole")
    };
    assert_eq!(returns, 0x0102_0304);
    assert_eq!(first[24 + 18..24 + 24], [0; 6]);
    assert_eq!(back[24 + 18..24 + 24], [0, 0, 4, 3, 2, 1]);
    back[24 + 20..24 + 24].fill(0);
    seal(&mut back);
    assert_eq!(first, back);
}

/// A getpage's entry has the plan where older lenders look at nothing; a getpage without one is what it always was.
#[test]
fn plans_are_in_what_was_reserved() {
    let mut bytes = Vec::new();
    let planned = PageRef::planned(5, Version(7), Urgency::Behind, 0x0203);
    encode::getpage(&mut bytes, 1, &[planned, PageRef::planned(6, Version(7), Urgency::Waited, 0)]);
    assert_eq!(bytes[24 + 12..24 + 16], [1, 0, 3, 2]);
    assert_eq!(bytes[40 + 12..40 + 16], [0; 4]);
    let Ok(Decoded::Whole { frame: Frame::GetPage { pages, .. }, .. }) = decode(&bytes) else {
        panic!("whole")
    };
    assert_eq!((pages[0].urgency(), pages[0].message()), (Urgency::Behind, 0x0203));
    assert_eq!(pages[1], PageRef::new(6, Version(7)));
    bytes.clear();
    encode::hurry(&mut bytes, &[PageRef::new(5, Version(7))]);
    assert_eq!(bytes[..12], *b"LOAM\x1c\x00\x01\x00\x10\x00\x00\x00");
}

/// What becomes of a page is in what was reserved; an ordinary putpage is what it always was.
#[test]
fn classes_are_in_what_was_reserved() {
    let mut bytes = Vec::new();
    let classes = [PutClass::Ordinary, PutClass::Staged, PutClass::Mirror];
    let metas = classes.map(|class| PageMeta::classed(5, Version(7), ContentHash(9), class));
    assert_eq!(metas[0], PageMeta::new(5, Version(7), ContentHash(9)));
    encode::putpage(&mut bytes, 1, &metas);
    for (at, class) in classes.into_iter().enumerate() {
        assert_eq!(bytes[24 + 32 * at + 12..24 + 32 * at + 16], [at as u8, 0, 0, 0]);
        assert_eq!(metas[at].class(), class);
    }
}

/// The frames of the write cache, written out.
#[test]
fn the_frames_of_the_write_cache_are_what_the_documentation_draws() {
    let mut bytes = Vec::new();
    encode::store(&mut bytes, 0x0203, 0x0102, "rack 7");
    assert_eq!(bytes[4..12], [29, 0, 6, 0, 30, 0, 0, 0]);
    assert_eq!(bytes[24..40], [3, 2, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!((&bytes[40..48], &bytes[48..]), (&[0; 8][..], &b"rack 7"[..]));
    bytes.clear();
    encode::stored(&mut bytes, 5, &[PageRef::new(6, Version(7))]);
    assert_eq!(bytes[4..12], [30, 0, 1, 0, 24, 0, 0, 0]);
    assert_eq!(bytes[24..], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.clear();
    encode::spare(&mut bytes, &[PageRef::new(6, Version(7))]);
    assert_eq!(bytes[4..12], [31, 0, 1, 0, 16, 0, 0, 0]);
}

#[test]
fn addresses_come_back_as_they_were() {
    for addr in ["10.0.0.7:7070", "[fd00::1]:1", "[::]:65535", "0.0.0.0:0"] {
        let addr: SocketAddr = addr.parse().unwrap();
        let node = ViewEntry::new(1, addr, 2, ViewEntry::FLAG_SELF, 3, 4);
        assert_eq!(node.addr(), addr);
        assert_eq!((node.id(), node.weight(), node.flags()), (1, 2, 1));
        assert_eq!((node.free_bytes(), node.capacity_bytes()), (3, 4));
    }
    let facts = NodeFacts {
        id: 1,
        name: "rack 3",
        addr: "10.0.0.7:7070".parse().unwrap(),
        flags: 2,
        weight: 3,
        capacity_bytes: 4,
        used_bytes: 5,
        free_bytes: 6,
        local_pages: 7,
        uptime_s: 8,
        heard_ms: 9,
    };
    assert_eq!(NodeEntry::new(&facts).facts(), facts);
    let figures = ViewFigures::new(5, 6, 7);
    assert_eq!((figures.epoch(), figures.min_age_ns(), figures.version()), (5, 6, 7));
}

#[test]
fn figures_of_nodes_are_whole_or_refused() {
    let one = NodeFigures { id: 5.into(), number: 6.into(), free_bytes: 7.into(), ..NodeFigures::default() };
    let list = vec![one; 3];
    let bytes = NodeFigures::message(&list);
    assert_eq!(bytes.len(), 3 * 56);
    assert_eq!(NodeFigures::list(bytes), Some(&list[..]));
    assert_eq!(NodeFigures::list(&bytes[1..]), None);
    let many = vec![one; limits::VIEW_NODES_MAX + 1];
    assert_eq!(NodeFigures::list(NodeFigures::message(&many)), None);
}
