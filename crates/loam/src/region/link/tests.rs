//! What a program does when its node is late, or answers nonsense: here a node of the test's own.

use super::super::{Region, Regions};
use super::*;
use loam_wire::{RegionEntry, RegionRefusal, region_flag};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{JoinHandle, sleep, spawn};

const PAGE: u64 = 4096;

/// The other end of the connection.
struct Peer(UnixStream);

impl Peer {
    /// Greets, and has the first call be one to open a region of a page.
    fn start(name: &str, then: impl FnOnce(Self) + Send + 'static) -> (PathBuf, JoinHandle<()>) {
        let socket = std::env::temp_dir().join(format!("loam-link-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let thread = spawn(move || {
            let mut peer = Self(listener.accept().expect("a program").0);
            peer.heard(20).expect("hello");
            let mut frame = Vec::new();
            encode::welcome(&mut frame, 0, 1, 0, 0);
            peer.0.write_all(&frame).expect("sent");
            peer.heard(20).expect("open");
            let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .expect("memory");
            rustix::fs::ftruncate(&file, PAGE).expect("sized");
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            peer.answer(1, 1, Some(&file));
            then(peer);
        });
        (socket, thread)
    }

    fn answer(&mut self, request: u64, pages: u64, file: Option<&OwnedFd>) {
        let entry = RegionEntry::new(1, "a", 1, pages * PAGE, 1, 1, region_flag::SHARED).with_memory(
            loam_wire::MemoryPolicy::Unset,
            "",
            PAGE,
        );
        let mut frame = Vec::new();
        let spans = file.map(|_| RegionSpan::new(0, 0, pages * PAGE));
        encode::region(&mut frame, request, &entry, spans.as_slice());
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let sent = rustix::net::sendmsg(&self.0, &[IoSlice::new(&frame)], &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(frame.len()));
    }

    /// What comes within so many seconds. Empty: the program has closed the connection.
    fn heard(&mut self, seconds: u64) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 4096];
        self.0.set_read_timeout(Some(Duration::from_secs(seconds)))?;
        self.0.read(&mut bytes).map(|count| bytes[..count].to_vec())
    }
}

fn open(socket: &Path) -> Region {
    let opened = Region::open_on(Regions::connect(Some(socket)).expect("it listens"), "a").expect("opened");
    let _ = std::fs::remove_file(socket);
    opened
}

#[test]
fn memory_that_takes_long_is_waited_for() {
    let (socket, node) = Peer::start("late", |mut peer| {
        assert!(!peer.heard(20).expect("resize").is_empty());
        sleep(2 * PATIENCE);
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let file = file.expect("memory");
        rustix::fs::ftruncate(&file, 2 * PAGE).expect("sized");
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
        peer.answer(2, 2, Some(&file));
    });
    let mut region = open(&socket);
    region.resize(2 * PAGE).expect("late, and as good");
    assert_eq!(region.len() as u64, 2 * PAGE);
    drop(region);
    node.join().expect("the node has seen nothing else");
}

/// Nothing more is asked over such a connection, and it stays for as long as the memory is used: the node has the region open.
#[test]
fn after_nonsense_nothing_is_asked_and_the_node_sees_it_open() {
    let (silent, was_silent) = std::sync::mpsc::channel();
    let (socket, node) = Peer::start("nonsense", move |mut peer| {
        assert!(!peer.heard(20).expect("resize").is_empty());
        peer.0.write_all(&[0xff; 64]).expect("sent");
        let next = peer.heard(1);
        assert_eq!(next.map_err(|why| why.kind()), Err(io::ErrorKind::WouldBlock), "no call, no end");
        silent.send(()).expect("it waits for that");
        let next = peer.heard(20);
        assert!(next.expect("the end").is_empty(), "it is dropped");
    });
    let mut region = open(&socket);
    region.as_mut_slice().fill(3);
    let failed = region.resize(2 * PAGE);
    assert!(matches!(failed, Err(RegionError::Protocol(_))), "{failed:?}");
    // Not even what would make it smaller: nothing is asked, so nothing changes.
    let again = region.resize(1);
    assert!(matches!(again, Err(RegionError::Lost(_))), "{again:?}");
    let smaller = region.resize(0);
    assert!(matches!(smaller, Err(RegionError::Lost(_))), "{smaller:?}");
    assert!(region.len() as u64 == PAGE && region.as_slice().iter().all(|byte| *byte == 3));
    was_silent
        .recv_timeout(Duration::from_secs(20))
        .expect("the node has seen neither call nor end for a second");
    drop(region);
    node.join().expect("it was as the node expects");
}

/// A refusal has done nothing; what was done and not handed over has taken the memory away.
#[test]
fn what_a_refused_shrink_leaves_is_said_by_the_refusal() {
    for (refusal, bytes_left) in [(RegionRefusal::Invalid, 2 * PAGE), (RegionRefusal::Unavailable, 0)] {
        let (socket, node) = Peer::start("refused", move |mut peer| {
            assert!(!peer.heard(20).expect("it grows").is_empty());
            let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
            let file = file.expect("memory");
            rustix::fs::ftruncate(&file, 2 * PAGE).expect("sized");
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            peer.answer(2, 2, Some(&file));
            assert!(!peer.heard(20).expect("it shrinks").is_empty());
            let mut frame = Vec::new();
            encode::region_refused(&mut frame, 3, refusal, "no");
            peer.0.write_all(&frame).expect("sent");
            assert!(peer.heard(20).expect("the end").is_empty());
        });
        let mut region = open(&socket);
        region.resize(2 * PAGE).expect("it has grown");
        region.as_mut_slice().fill(4);
        let refused = region.resize(PAGE);
        assert!(matches!(refused, Err(RegionError::Refused { .. })), "{refused:?}");
        assert_eq!(region.len() as u64, bytes_left, "{refusal:?}");
        assert!(region.as_slice().iter().all(|byte| *byte == 4));
        drop(region);
        node.join().expect("it was as the node expects");
    }
}
