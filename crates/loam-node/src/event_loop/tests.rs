use super::*;
use crate::cluster::Front;
use crate::disk_store::tests::on_power_disk;
use crate::drainer::StoreLink;
use crate::limits::{BORROWERS_MAX, GRACE, QUEUED_BYTES_HIGH, READING_PAGES_MAX, TOOL_IDLE_TIMEOUT};
use crate::places::Kind;
use crate::regions::Desk;
use crate::slab::Slab;
use loam_core::ids::{NodeId, SpaceId, Version};
use loam_core::lender::{Lender, StoreConfig};
use loam_core::units::{BasePages, Bytes};
use loam_wire::client::{self, Target};
use loam_wire::limits::REQUEST_PAGES_MAX;
use loam_wire::tls::testing::Authority;
use loam_wire::tls::{Credentials, Role};
use loam_wire::{PageRef, feature};
use rustix::event::{EventfdFlags, eventfd};
use std::net::{SocketAddr, TcpListener, TcpStream};

const SPACE: SpaceId = SpaceId(7);
const SIZE: Bytes = Bytes::from_mib(1);

/// Asks for all that [`turned_by_hand_over_a_disk`] has there.
fn ask_for_all(out: &mut Vec<u8>, request: u64) {
    let pages: Vec<_> = (0..REQUEST_PAGES_MAX as u64).map(|index| PageRef::new(index, Version(1))).collect();
    loam_wire::encode::getpage(out, request, &pages);
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// A loop that is turned by hand.
fn turned_by_hand() -> EventLoop {
    turned_by_hand_of(Lender::new(SIZE.base_pages(), GRACE, BORROWERS_MAX), None)
}

/// The same, of a lender whose disk has the pages of one full request, and reads none of them.
fn turned_by_hand_over_a_disk() -> EventLoop {
    let config = StoreConfig {
        capacity: BasePages(REQUEST_PAGES_MAX as u64),
        channel: BasePages(100),
        write_pages_max: 32,
        under_way_max: BasePages(64),
        linger: loam_core::units::Duration::ZERO,
    };
    let lender = Lender::new(SIZE.base_pages(), GRACE, BORROWERS_MAX);
    let pages = (0..REQUEST_PAGES_MAX as u64).map(|index| (SPACE, index, Version(1)));
    let lender = lender.with_store(loam_core::units::Instant(0), config, pages);
    let (_disk, store) = on_power_disk();
    turned_by_hand_of(lender, Some(StoreLink::new(bell(), bell(), &store)))
}

fn turned_by_hand_of(lender: Lender, store: Option<StoreLink>) -> EventLoop {
    let (front, _) = Front::new(NodeId(1), "test".to_owned(), "127.0.0.1:1".parse().unwrap(), false);
    let (slab, _) = Slab::create(SIZE).unwrap();
    let shared = Arc::new(Shared::new(lender, slab, store, String::new(), front, bell(), Desk::new().0));
    EventLoop::new(shared, Arc::new(Mailbox::new(bell())), Duration::ZERO, Turns::default(), false).unwrap()
}

impl EventLoop {
    /// A borrower comes, and its hello has been answered.
    fn borrower_comes(&mut self, space: SpaceId) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, addr) = listener.accept().unwrap();
        self.stranger_comes(Stream::Plain(socket), addr);
        let mut hello = Vec::new();
        // Who has pages on the disk has said so.
        let staging = feature::RECALL | feature::STAGING;
        let features = if self.shared.store.is_some() { staging } else { 0 };
        loam_wire::encode::hello_with(&mut hello, features, space.0, "test");
        io::Write::write_all(&mut peer, &hello).unwrap();
        let token = self.token_last;
        while !self.connections[&token].is_of(space) {
            self.poll(&mut Vec::with_capacity(1), Duration::from_millis(10));
            self.advance(token);
        }
        peer
    }

    fn stranger_comes(&mut self, stream: Stream, addr: SocketAddr) {
        stream.socket().set_nonblocking(true).unwrap();
        let place = Place::take(&self.shared, Kind::Stranger).unwrap();
        self.mailbox.deliver((stream, Origin::Tcp(addr), place));
        self.welcome_newcomers();
    }

    /// A tool comes and says this behind its hello, and has been answered.
    fn tool_comes(&mut self, says: &[u8]) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, addr) = listener.accept().unwrap();
        self.stranger_comes(Stream::Plain(socket), addr);
        let mut all = Vec::new();
        loam_wire::encode::hello(&mut all, 0, "test");
        all.extend(says);
        io::Write::write_all(&mut peer, &all).unwrap();
        peer.set_nonblocking(true).unwrap();
        for _ in 0..1000 {
            self.turn();
            if peer.peek(&mut [0]).is_ok() {
                return peer;
            }
        }
        panic!("it is not answered");
    }

    /// What one turn of [`EventLoop::run`] does.
    fn turn(&mut self) {
        if std::mem::take(&mut self.posts_are_due) {
            self.deliver_posts();
        }
        let mut events = Vec::with_capacity(8);
        self.poll(&mut events, Duration::from_millis(10));
        for event in events {
            let event: epoll::Event = event;
            self.heed(event.data.u64(), event.flags);
        }
    }
}

/// The first of them finds out that the borrower has gone, and takes its connection away.
#[test]
fn several_posts_to_who_has_gone_end_nothing() {
    let mut turned = turned_by_hand();
    drop(turned.borrower_comes(SPACE));
    let frame = || {
        let mut frame = Vec::new();
        loam_wire::encode::pong(&mut frame, 1);
        frame
    };
    for _ in 0..3 {
        turned.shared.post(SPACE, News::Hint, frame());
    }
    turned.deliver_posts();
    assert!(turned.connections.is_empty(), "its end was not seen");
    let mut another = turned.borrower_comes(SPACE);
    turned.shared.post(SPACE, News::Hint, frame());
    turned.deliver_posts();
    another.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = Vec::new();
    let mut receive = || {
        loam_wire::client::read_frame(&mut another, &mut buffer)
            .map(|f| matches!(f, loam_wire::Frame::Pong { .. }))
    };
    assert!(!receive().unwrap(), "the welcome");
    assert!(receive().unwrap(), "and the post");
}

/// A borrower that is stopped was sent everything that there was to tell, into this machine's memory: gigabytes, of a large store.
#[test]
fn one_that_does_not_read_is_left_few_posts_and_gets_the_others_when_it_does() {
    const POSTS: u64 = 1000;
    let mut turned = turned_by_hand();
    let mut peer = turned.borrower_comes(SPACE);
    let token = turned.token_last;
    let queued = |turned: &EventLoop| turned.connections[&token].queued_bytes();
    for number in 0..POSTS {
        let pages = vec![loam_wire::PageRef::new(number, loam_core::ids::Version(1)); 1024];
        let mut frame = Vec::new();
        loam_wire::encode::stored(&mut frame, number, &pages);
        turned.shared.post(SPACE, News::Stored, frame);
        turned.deliver_posts();
        assert!(queued(&turned) < QUEUED_BYTES_HIGH + (32 << 10), "{}", queued(&turned));
    }
    assert!(queued(&turned) > QUEUED_BYTES_HIGH / 2, "the socket took them all");
    let reader = std::thread::spawn(move || {
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = Vec::new();
        let mut numbers = Vec::new();
        while (numbers.len() as u64) < POSTS {
            match loam_wire::client::read_frame(&mut peer, &mut buffer).unwrap() {
                loam_wire::Frame::Stored { pages, .. } => numbers.push(pages[0].index()),
                loam_wire::Frame::Welcome(_) => {}
                other => panic!("{other:?}"),
            }
        }
        numbers
    });
    while !reader.is_finished() {
        turned.turn();
    }
    assert_eq!(reader.join().unwrap(), (0..POSTS).collect::<Vec<_>>());
}

/// A loop spun on a borrower that was stopped, for as long as it was: that something waited to be sent counted as something done.
#[test]
fn one_that_takes_nothing_is_no_progress() {
    let mut turned = turned_by_hand();
    let mut peer = turned.borrower_comes(SPACE);
    let token = turned.token_last;
    let mut asks = Vec::new();
    for request in 0..1_000_000 {
        loam_wire::encode::status_request(&mut asks, request);
    }
    peer.set_nonblocking(true).unwrap();
    let (mut sent, mut idle, mut turns) = (0, 0, 0);
    while idle < 100 {
        turns += 1;
        assert!(turns < 1_000_000, "it seems to take something each time");
        sent += io::Write::write(&mut peer, &asks[sent..]).unwrap_or(0);
        idle = if turned.advance(token) == Progress::Some { 0 } else { idle + 1 };
    }
    assert!(sent < asks.len(), "the sockets took all of it");
    assert!(turned.connections[&token].queued_bytes() > 0, "and it is not the answers that wait");
}

/// A lender whose disk was slow read nothing more of who waited for it, and seemed dead: it did not even say that it was there.
#[test]
fn a_slow_disk_leaves_no_ping_unread() {
    const REQUESTS: u64 = 12;
    let mut turned = turned_by_hand_over_a_disk();
    let mut peer = turned.borrower_comes(SPACE);
    let mut asks = Vec::new();
    (0..REQUESTS).for_each(|request| ask_for_all(&mut asks, request));
    loam_wire::encode::ping(&mut asks, REQUESTS);
    io::Write::write_all(&mut peer, &asks).unwrap();
    let reader = std::thread::spawn(move || {
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut buffer, mut misses, mut pongs) = (Vec::new(), 0, 0);
        while pongs == 0 || misses < REQUESTS as usize * REQUEST_PAGES_MAX {
            match loam_wire::client::read_frame(&mut peer, &mut buffer).unwrap() {
                loam_wire::Frame::Welcome(_) | loam_wire::Frame::Store { .. } => {}
                loam_wire::Frame::Miss { pages, .. } if pongs == 1 => misses += pages.len(),
                loam_wire::Frame::Pong { request } => pongs += u64::from(request == REQUESTS),
                other => panic!("{other:?}"),
            }
        }
    });
    let reads = |turned: &EventLoop| turned.shared.store.as_ref().unwrap().asked();
    let mut asked = Vec::new();
    while !reader.is_finished() {
        turned.turn();
        asked.append(&mut reads(&turned));
        assert!(asked.len() <= READING_PAGES_MAX, "{} are read at a time", asked.len());
        let takes = turned.connections.values().all(|connection| connection.queued_bytes() == 0);
        if asked.len() == READING_PAGES_MAX && takes {
            for read in asked.drain(..) {
                let mut frame = Vec::new();
                let page = PageRef::new(read.index, read.version);
                loam_wire::encode::miss(&mut frame, read.request, &[page]);
                turned.mailbox.answer(read.reply.connection, 1, frame);
            }
            turned.deliver_answers();
        }
    }
    reader.join().unwrap();
}

/// More than a connection may have asked of a disk.
fn too_much() -> Vec<u8> {
    let mut asks = Vec::new();
    (0..100).for_each(|request| ask_for_all(&mut asks, request));
    asks
}

/// Has the loop take what it takes of [`too_much`].
fn turn_until_it_reads_no_more(turned: &mut EventLoop) {
    let token = turned.token_last;
    for _ in 0..1000 {
        turned.turn();
        if turned.connections.get(&token).is_some_and(|it| !it.wants().contains(EventFlags::IN)) {
            return;
        }
    }
    panic!("it reads on for ever");
}

/// A loop spun on it until the disk had answered: epoll told of its end, and nothing was read from it meanwhile.
#[test]
fn who_is_gone_while_it_is_not_read_from_is_closed() {
    let mut turned = turned_by_hand_over_a_disk();
    let mut peer = turned.borrower_comes(SPACE);
    let asks = std::thread::spawn(move || {
        peer.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = io::Write::write_all(&mut peer, &too_much());
        peer
    });
    turn_until_it_reads_no_more(&mut turned);
    let peer = asks.join().unwrap();
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    for _ in 0..1000 {
        turned.turn();
        if turned.connections.is_empty() {
            return;
        }
    }
    panic!("its end is told of again and again");
}

/// Bytes that had come and been opened kept the loop awake though nobody wanted them yet.
#[test]
fn what_has_come_and_is_not_read_yet_wakes_nobody() {
    let folder = std::env::temp_dir().join(format!("loam-holds-{}", std::process::id()));
    let ca = Authority::new("site");
    ca.issue("both", &[Role::Node, Role::Borrower], -1, 1).write(&folder, &[&ca]);
    let credentials = Arc::new(Credentials::load(&folder).unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    let mut turned = turned_by_hand_over_a_disk();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let target = Target { addr, name: None, credentials: Some(Arc::clone(&credentials)) };
    let asks = std::thread::spawn(move || {
        let (limit, staging) = (Duration::from_secs(10), feature::RECALL | feature::STAGING);
        let (mut stream, _) = client::connect(&target, staging, SPACE.0, "test", limit).unwrap();
        stream.socket().set_write_timeout(Some(limit)).unwrap();
        let _ = io::Write::write_all(&mut stream, &too_much());
        stream
    });
    let (socket, from) = listener.accept().unwrap();
    turned.stranger_comes(Stream::accepted(socket, Some(&credentials)).unwrap(), from);
    turn_until_it_reads_no_more(&mut turned);
    let connection = &turned.connections[&turned.token_last];
    assert!(connection.socket().holds(), "the test is of what is held");
    assert_eq!(connection.wants(), EventFlags::empty());
    drop(turned);
    drop(asks.join());
}

/// Whoever said hello could keep a place for ever, and 512 of them all.
#[test]
fn a_tool_that_asks_nothing_is_closed_after_a_while() {
    let mut turned = turned_by_hand();
    let _borrower = turned.borrower_comes(SPACE);
    let borrower = turned.token_last;
    let mut wants_views = Vec::new();
    loam_wire::encode::view_request(&mut wants_views, 1);
    let _subscriber = turned.tool_comes(&wants_views);
    let subscriber = turned.token_last;
    let mut asks = turned.tool_comes(&[]);
    let asker = turned.token_last;
    let _idle = turned.tool_comes(&[]);
    let second = Duration::from_secs(1);
    let begin = Instant::now();
    turned.sweep(begin);
    turned.sweep(begin + TOOL_IDLE_TIMEOUT - second);
    assert_eq!(turned.connections.len(), 4);
    let mut ping = Vec::new();
    loam_wire::encode::ping(&mut ping, 1);
    io::Write::write_all(&mut asks, &ping).unwrap();
    for _ in 0..100 {
        turned.turn();
    }
    turned.sweep(begin + TOOL_IDLE_TIMEOUT + second);
    assert_eq!(turned.connections.keys().copied().collect::<Vec<_>>(), [borrower, subscriber, asker]);
}
