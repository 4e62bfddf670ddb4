//! Groups of several mounts in one process, over loopback, and others that lie.

use super::link::{Card, Link};
use super::*;
use crate::cache::{CACHE_BYTES_MIN, Cache, Claim};
use crate::figures::Figures;
use crate::run::{RUN_BYTES, buffer_of};
use loam_disk::Pieces;
use loam_wire::client::{ClientError, read_frame};
use loam_wire::mount::{self, FileVersion};
use loam_wire::tls::testing::Authority;
use loam_wire::tls::{Credentials, Role, Watched};
use loam_wire::{Frame, PageMeta, Stream, encode, page_hash};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const SIZE: u64 = 3 * RUN_BYTES as u64 + 5000;

struct Node {
    cache: Arc<Cache>,
    group: Group,
}

fn node(name: &str, peers: &[SocketAddr]) -> Node {
    node_with(name, peers, None)
}

fn node_with(name: &str, peers: &[SocketAddr], tls: Option<PathBuf>) -> Node {
    let figures = Arc::new(Figures::default());
    let cache = Arc::new(Cache::new(CACHE_BYTES_MIN, true, Arc::clone(&figures)));
    let config = GroupConfig {
        name: name.into(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        peers: peers.to_vec(),
        node: None,
        tls,
    };
    let group = Group::start(&config, &cache, &figures).expect("loopback has a free port");
    Node { cache, group }
}

fn key(run: u64) -> RunKey {
    RunKey { file: FileVersion::new(77), run }
}

fn contents(run: u64) -> Vec<u8> {
    (0..key(run).bytes_in(SIZE)).map(|at| (at as u64 * (run + 3) / 5) as u8).collect()
}

/// The node has read a run from the source.
fn has(node: &Node, run: u64) {
    let mut buffer = node.cache.buffers.take();
    let bytes = contents(run);
    buffer[..bytes.len()].copy_from_slice(&bytes);
    let made = Arc::new(Run::read(buffer, bytes.len()));
    let (claims, mut claimed) = node.cache.claim([key(run)].into_iter());
    assert!(matches!(claims[..], [Claim::Mine]));
    assert!(claimed.bring(&[(key(run), made)], false).is_empty());
    node.group.now_have(&[key(run)]);
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not within 20 seconds: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What another has of a run. News may be lost, and so may a question: both are said again.
fn fetched(by: &Node, of: &Node, run: u64) -> Vec<(RunKey, Arc<Run>)> {
    let mut got = Vec::new();
    until("it gives it", || {
        of.group.now_have(&[key(run)]);
        let from = holders(by, run).first().copied();
        got = from.map_or_else(Vec::new, |from| by.group.fetch(from, &[key(run)], SIZE));
        got.len() == 1
    });
    got
}

fn holders(of: &Node, run: u64) -> Vec<NodeId> {
    let found = of.group.who_has(&[key(run).extent()]).remove(0);
    found.into_iter().filter(|holder| holder.1 & key(run).bit() != 0).map(|holder| holder.0).collect()
}

#[test]
fn what_one_has_read_the_others_get_whoever_keeps_the_directory() {
    let a = node("one", &[]);
    let b = node("one", &[a.group.addr]);
    let c = node("one", &[a.group.addr, b.group.addr]);
    for each in [&a, &b, &c] {
        until("three members", || each.group.count() == 2);
    }
    for run in 0..4 {
        has(&a, run);
    }
    for reader in [&b, &c] {
        for run in 0..4 {
            let got = fetched(reader, &a, run);
            assert_eq!((got[0].0, got[0].1.contents()), (key(run), &contents(run)[..]));
        }
    }
    // Several at once, some of which are not there.
    let from = a.group.shared.card.node;
    let got = b.group.fetch(from, &[key(0), key(3), key(9)], 20 * RUN_BYTES as u64);
    assert!(got.len() <= 2, "the last run is shorter than such a file's, so it is not taken for it");
    // After such an answer it is left alone for a short time.
    let wanted = [key(0), key(2), key(3)];
    let fetched = || b.group.fetch(from, &wanted, SIZE).into_iter().map(|got| got.0).collect::<Vec<_>>();
    until("it is asked again", || fetched() == wanted);
    until("it is given up", || {
        a.group.no_longer(&[key(1)]);
        holders(&b, 1).is_empty()
    });
}

#[test]
fn who_keeps_the_last_copy_is_told() {
    let a = node("last", &[]);
    let b = node("last", &[a.group.addr]);
    until("two members", || a.group.count() == 1 && b.group.count() == 1);
    for at in [&a, &b] {
        has(at, 0);
    }
    until("both are known", || {
        [&a, &b].iter().for_each(|each| each.group.now_have(&[key(0)]));
        holders(&a, 0).len() == 1 && holders(&b, 0).len() == 1
    });
    // Both have been lent from, so each takes its copy for a duplicate, which would leave first.
    assert!(a.cache.lend(key(0)).is_some());
    until("b has none", || {
        b.group.no_longer(&[key(0)]);
        holders(&a, 0).is_empty()
    });
    // Now a's is the last one: it is spared where a duplicate would have left.
    let fill = |run: u64| {
        let made = Arc::new(Run::read(buffer_of(|_| 1), RUN_BYTES));
        let (_, mut claimed) = a.cache.claim([key(run)].into_iter());
        claimed.bring(&[(key(run), made)], true)
    };
    let mut gone = Vec::new();
    until("the last copy is known as such", || {
        thread::sleep(Duration::from_millis(50));
        true
    });
    for run in 100..116 {
        gone.extend(fill(run));
    }
    assert!(!gone.is_empty() && !gone.contains(&key(0)), "{gone:?}");
}

#[test]
fn mounts_of_other_sources_have_nothing_to_say_to_each_other() {
    let a = node("one source", &[]);
    let card = Card { node: NodeId(5), group: 1, name: "another".into(), port: 0, credentials: None };
    match Link::open(a.group.addr, &card, Duration::from_secs(5)) {
        Err(ClientError::Refused { text, .. }) => assert!(text.contains("--name"), "{text}"),
        other => panic!("{other:?}"),
    }
    let b = node("another source", &[a.group.addr]);
    assert_eq!(b.group.count(), 0);
}

#[test]
fn mounts_with_credentials_know_each_other_and_nobody_else() {
    let (ca, other) = (Authority::new("site"), Authority::new("other"));
    let home = std::env::temp_dir().join(format!("loam-mount-tls-{}", std::process::id()));
    let folder = |name: &str, by: &Authority, roles: &[Role]| {
        by.issue(name, roles, -1, 1).write(&home.join(name), &[&ca, by]);
        Some(home.join(name))
    };
    let a = node_with("tls", &[], folder("a", &ca, &[Role::Node]));
    let b = node_with("tls", &[a.group.addr], folder("b", &ca, &[Role::Node]));
    for each in [&a, &b] {
        until("two members", || each.group.count() == 1);
    }
    has(&a, 1);
    let got = fetched(&b, &a, 1);
    assert_eq!((got[0].0, got[0].1.contents()), (key(1), &contents(1)[..]));
    // One without credentials, and one that is no node: it cannot even listen.
    let card = |credentials| Card {
        node: NodeId(5),
        group: a.group.shared.card.group,
        name: "tls".into(),
        port: 0,
        credentials,
    };
    let refusal = |credentials| match Link::open(a.group.addr, &card(credentials), Duration::from_secs(5)) {
        Err(error) => error.to_string(),
        Ok(link) => panic!("it was let in: {link:?}"),
    };
    assert!(refusal(None).contains("--tls DIR"), "{}", refusal(None));
    let watched = |dir: &Option<PathBuf>| Arc::new(Watched::load(dir.as_deref().unwrap(), &[]).unwrap());
    let borrower = folder("busy", &ca, &[Role::Borrower]);
    let line = refusal(Some(watched(&borrower)));
    assert!(line.contains("busy (borrower)") && line.contains("--role node"), "{line}");
    // A stranger that believes this authority, and is not believed.
    let stranger = folder("stranger", &other, &[Role::Node]);
    let line = refusal(Some(watched(&stranger)));
    assert!(line.contains("does not know the authority"), "{line}");
    let _ = std::fs::remove_dir_all(&home);
}

/// One that let its bytes drip kept a thread, of 512, for as long as they lasted: each of them had its time anew.
#[test]
fn a_stranger_whose_hello_drips_is_given_up() {
    let a = node("drips", &[]);
    let ca = Authority::new("site");
    let dir = std::env::temp_dir().join(format!("loam-mount-drips-{}", std::process::id()));
    ca.issue("a", &[Role::Node], -1, 1).write(&dir, &[&ca]);
    let credentials = Credentials::load(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let mut hello = Vec::new();
    mount::hello(&mut hello, a.group.shared.card.group, 5, 0, "drips");
    // A record of TLS of the largest size begins so.
    let record = [&[22, 3, 1, 0x3f, 0xff][..], &[1; 200]].concat();
    for (says, credentials) in [(hello, None), (record, Some(&credentials))] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        let drips = thread::spawn(move || {
            for byte in says {
                thread::sleep(Duration::from_millis(20));
                if stranger.write_all(&[byte]).is_err() {
                    break;
                }
            }
        });
        let mut stream = Stream::accepted(socket, credentials).unwrap();
        let deadline = Instant::now() + Duration::from_millis(200);
        let greeted = server::greet(&a.group.shared, &mut stream, from, deadline, &mut Vec::new());
        let Err(ClientError::Io(why)) = greeted else { panic!("{greeted:?}") };
        assert!(matches!(why.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{why}");
        drop(stream);
        drips.join().unwrap();
    }
}

/// What a mount that lies answers to the getpage `request`.
type Lie = fn(&TcpStream, u64);

/// Takes connections, shakes hands as a member would, and answers every getpage by `lie`.
fn liar(group: u64, lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut buffer, mut out) = (Vec::new(), Vec::new());
                while let Ok(frame) = read_frame(&stream, &mut buffer) {
                    out.clear();
                    match frame {
                        Frame::MountHello { .. } => mount::welcome(&mut out, group, 99),
                        Frame::SharedGetPage { request, .. } => lie(&stream, request),
                        Frame::Ping { request } => encode::pong(&mut out, request),
                        _ => {}
                    }
                    if (&stream).write_all(&out).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

fn send(mut stream: &TcpStream, request: u64, pages: &[PageMeta], payload: &[u8]) {
    let mut out = Vec::new();
    encode::page(&mut out, request, pages);
    out.extend_from_slice(payload);
    // The reader may have gone already.
    let _ = stream.write_all(&out);
}

/// The pages of run 3, which has two, as the honest would send them.
fn honest() -> (Vec<PageMeta>, Vec<u8>) {
    let mut payload = contents(3);
    payload.resize(8192, 0);
    let metas = payload
        .chunks(4096)
        .zip(96..)
        .map(|(page, index)| PageMeta::new(index, loam_core::ids::Version(0), page_hash(page)));
    (metas.collect(), payload)
}

#[test]
fn nothing_is_taken_from_a_liar() {
    let lies: [(&str, Lie, bool); 8] = [
        (
            "the truth",
            |stream, request| {
                let (metas, payload) = honest();
                send(stream, request, &metas, &payload)
            },
            true,
        ),
        (
            "a flipped bit",
            |stream, request| {
                let (metas, mut payload) = honest();
                payload[5000] ^= 4;
                send(stream, request, &metas, &payload);
            },
            false,
        ),
        (
            "bytes behind the end",
            |stream, request| {
                let (_, mut payload) = honest();
                payload[8000] = 1;
                let metas: Vec<_> = payload
                    .chunks(4096)
                    .zip(96..)
                    .map(|(page, index)| PageMeta::new(index, loam_core::ids::Version(0), page_hash(page)))
                    .collect();
                send(stream, request, &metas, &payload);
            },
            false,
        ),
        (
            "another request's answer",
            |stream, request| {
                let (metas, payload) = honest();
                send(stream, request + 1, &metas, &payload)
            },
            false,
        ),
        (
            "half of the run",
            |stream, request| {
                let (metas, payload) = honest();
                send(stream, request, &metas[..1], &payload[..4096])
            },
            false,
        ),
        (
            "pages of another run",
            |stream, request| {
                let (_, payload) = honest();
                let metas: Vec<_> = payload
                    .chunks(4096)
                    .zip(64..)
                    .map(|(page, index)| PageMeta::new(index, loam_core::ids::Version(0), page_hash(page)))
                    .collect();
                send(stream, request, &metas, &payload);
            },
            false,
        ),
        (
            "no frame",
            |mut stream, _| {
                let _ = stream.write_all(&[7; 9000]);
            },
            false,
        ),
        ("silence", |_, _| (), false),
    ];
    let card = Card { node: NodeId(5), group: 1, name: "x".into(), port: 0, credentials: None };
    for (what, lie, taken) in lies {
        let limit = if taken { Duration::from_secs(20) } else { Duration::from_millis(500) };
        let mut link = Link::open(liar(1, lie), &card, limit).expect("it shakes hands");
        let buffers = Pieces::new(RUN_BYTES, 1);
        match link.get(&[key(3)], SIZE, &buffers) {
            Ok(got) if taken => assert_eq!(got[0].1.contents(), contents(3), "{what}"),
            Ok(got) => panic!("{what} was taken: {got:?}"),
            Err(error) => assert!(!taken, "{what}: {error}"),
        }
    }
}
