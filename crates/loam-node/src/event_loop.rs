//! One thread's epoll and its connections.
//!
//! After a request the loop does not sleep for a while, where that pays and nobody wants the processor more ([`Spinning`]): it asks the socket
//! that was last served again and again, and the others every few times, and gives its turn away before each look. A wake-up across cores costs
//! several times what serving a page does.

#[cfg(test)]
mod tests;

use crate::config::Turns;
use crate::connection::{Connection, Origin, Progress};
use crate::drainer::Reply;
use crate::latency::LatencyHold;
use crate::limits::SWEEP_INTERVAL;
use crate::places::Place;
use crate::posts::{News, Post, Takes};
use crate::service::Service;
use crate::shared::{Shared, ring, silence};
use crate::sock_diag::SockDiag;
use crate::spinning::Spinning;
use crate::watch;
use loam_core::ids::SpaceId;
use loam_wire::Stream;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Epoll's name for the bell.
const BELL: u64 = 0;
/// Looks at the hot socket between two looks at all of them.
const HOT_LOOKS: u32 = 8;
/// Who has the core for no longer than this when it is given away only wanted it for a moment: the thread that has just got its page, say.
const YIELD_SHORT: Duration = Duration::from_micros(20);

/// A connection on its way to a loop.
pub(crate) type Newcomer = (Stream, Origin, Place);

/// An answer for a connection that is there, and the memory that goes with it.
type Handed = (u64, Vec<u8>, Vec<Arc<OwnedFd>>);

/// The keeper's handle of a loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    newcomers: Mutex<Vec<Newcomer>>,
    /// Frames for connections that are there, and the pages that each answers.
    answers: Mutex<Vec<(u64, usize, Vec<u8>)>>,
    /// Answers to calls about regions.
    handed: Mutex<Vec<Handed>>,
    bell: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new(bell: OwnedFd) -> Self {
        Self { newcomers: Mutex::new(Vec::new()), answers: Mutex::default(), handed: Mutex::default(), bell }
    }

    /// Hands a connection over.
    pub(crate) fn deliver(&self, newcomer: Newcomer) {
        self.newcomers.lock().expect("nothing panics under it").push(newcomer);
        ring(&self.bell);
    }

    /// Answers `pages` that one of its connections has asked for. If it has gone, nobody wants to know.
    pub(crate) fn answer(&self, connection: u64, pages: usize, frame: Vec<u8>) {
        self.answers.lock().expect("nothing panics under it").push((connection, pages, frame));
        ring(&self.bell);
    }

    /// Answers a call about a region that one of its connections has made, with the memory that goes with it.
    pub(crate) fn hand(&self, connection: u64, frame: Vec<u8>, files: Vec<Arc<OwnedFd>>) {
        self.handed.lock().expect("nothing panics under it").push((connection, frame, files));
        ring(&self.bell);
    }

    /// Answers that nobody has taken.
    #[cfg(test)]
    pub(crate) fn answers(&self) -> usize {
        self.answers.lock().expect("nothing panics under it").len()
    }

    /// Makes the loop look up, to see that it shall end.
    pub(crate) fn wake(&self) {
        ring(&self.bell);
    }
}

#[derive(Debug)]
pub(crate) struct EventLoop {
    epoll: OwnedFd,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    service: Service,
    connections: BTreeMap<u64, Connection>,
    token_last: u64,
    latency: LatencyHold,
    spinning: Spinning,
    turns: Turns,
    /// A connection takes posts that have waited for it.
    posts_are_due: bool,
    /// It has asked for the usual ones last.
    has_usual_turns: bool,
    /// `None`: the kernel cannot be asked, and peers that are stopped are taken for gone.
    kernel: Option<SockDiag>,
}

impl EventLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        spin: Duration,
        turns: Turns,
        hold_latency: bool,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &mailbox.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Self {
            epoll,
            service: Service::new(Arc::clone(&shared)),
            shared,
            mailbox,
            connections: BTreeMap::new(),
            token_last: BELL,
            latency: LatencyHold::new(hold_latency),
            spinning: Spinning::new(spin),
            turns,
            posts_are_due: false,
            has_usual_turns: false,
            kernel: SockDiag::new()
                .inspect_err(|why| tracing::debug!("cannot ask the kernel about connections: {why}"))
                .ok(),
        })
    }

    /// Serves until the lender ends.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        let mut hot = None;
        let mut looks = 0_u32;
        let mut now = Instant::now();
        // Long ago.
        let mut served = now.checked_sub(Duration::from_secs(3600)).unwrap_or(now);
        let mut swept = now;
        while !self.shared.stopping() {
            if std::mem::take(&mut self.posts_are_due) {
                self.deliver_posts();
            }
            let spinning = self.spins(now);
            looks = looks.wrapping_add(1);
            let looks_at_all = looks.is_multiple_of(HOT_LOOKS);
            if spinning {
                // Whoever waits for this core (the borrower, perhaps) comes first, before each look; from who works it is not ours to spin on.
                rustix::thread::sched_yield();
                let before = std::mem::replace(&mut now, Instant::now());
                if now.saturating_duration_since(before) > YIELD_SHORT {
                    self.spinning.yields();
                }
            }
            if let Some(token) = hot.filter(|_| spinning && !looks_at_all) {
                if self.advance(token) == Progress::Some {
                    served = Instant::now();
                    now = served;
                    self.spinning.served(now);
                    continue;
                }
            } else {
                let at_once = spinning || self.posts_are_due;
                let wait = if at_once { Duration::ZERO } else { self.wait(served, now) };
                self.poll(&mut events, wait);
                let mut any = false;
                for event in &events {
                    let event: &epoll::Event = event;
                    let token = event.data.u64();
                    if token == BELL {
                        self.welcome_newcomers();
                        self.deliver_answers();
                        self.hand_over();
                        self.deliver_posts();
                        self.offer_views();
                    } else if self.heed(token, event.flags) == Progress::Some {
                        hot = Some(token);
                        any = true;
                    }
                }
                if any {
                    self.latency.active();
                    served = Instant::now();
                    self.spinning.served(served);
                }
            }
            now = Instant::now();
            if now.saturating_duration_since(swept) > SWEEP_INTERVAL {
                swept = now;
                self.sweep(now);
            }
        }
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            connection.end();
            connection.close(&self.shared);
        }
    }

    /// Whether to look for the next request without sleeping. In usual turns then: giving a short one away gives away next to nothing.
    fn spins(&mut self, now: Instant) -> bool {
        let spins = self.spinning.spins(now);
        if spins != self.has_usual_turns {
            self.has_usual_turns = spins;
            if spins { (self.turns.usual)() } else { (self.turns.short)() }
        }
        spins
    }

    /// How long it may sleep.
    fn wait(&mut self, served: Instant, now: Instant) -> Duration {
        let hold = self.latency.idle(served, now);
        let sweep = if self.connections.is_empty() { Duration::from_secs(3600) } else { SWEEP_INTERVAL };
        hold.unwrap_or(sweep).min(sweep)
    }

    fn poll(&self, events: &mut Vec<epoll::Event>, wait: Duration) {
        events.clear();
        let wait = Timespec::try_from(wait).expect("at most an hour");
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => panic!("epoll_wait: {why}"),
        }
    }

    fn welcome_newcomers(&mut self) {
        silence(&self.mailbox.bell);
        let newcomers = std::mem::take(&mut *self.mailbox.newcomers.lock().expect("nothing panics under it"));
        for (stream, origin, place) in newcomers {
            self.token_last += 1;
            let reply = Reply { mailbox: Arc::clone(&self.mailbox), connection: self.token_last };
            let connection = Connection::new(stream, origin, place, reply);
            let data = EventData::new_u64(self.token_last);
            match epoll::add(&self.epoll, connection.socket(), data, connection.interest) {
                Ok(()) => assert!(self.connections.insert(self.token_last, connection).is_none()),
                Err(why) => tracing::warn!("cannot take the connection of {origin}: {why}"),
            }
        }
    }

    /// Sends what was read from the disk.
    fn deliver_answers(&mut self) {
        let answers = std::mem::take(&mut *self.mailbox.answers.lock().expect("nothing panics under it"));
        for (token, pages, frame) in answers {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.answer(pages, &frame);
                self.advance(token);
            }
        }
    }

    /// Sends what became of calls about regions.
    fn hand_over(&mut self) {
        let handed = std::mem::take(&mut *self.mailbox.handed.lock().expect("nothing panics under it"));
        for (token, frame, files) in handed {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.hand(&frame, &files);
                self.advance(token);
            }
        }
    }

    /// Sends what was left for the borrowers whose connections are here, as far as they take it.
    fn deliver_posts(&mut self) {
        let connections = &mut self.connections;
        let mut rooms: BTreeMap<SpaceId, Option<(u64, usize)>> = BTreeMap::new();
        let posts = self.shared.posts.take(|space, bytes| {
            let room = rooms.entry(space).or_insert_with(|| {
                let theirs = connections.iter().filter(|(_, connection)| connection.is_of(space));
                theirs.map(|(token, connection)| (*token, connection.post_room())).max_by_key(|at| at.1)
            });
            match room {
                None => Takes::No,
                Some((token, 0)) => {
                    connections.get_mut(token).expect("it was just there").has_posts = true;
                    Takes::Later
                }
                Some((_, room)) => {
                    *room = room.saturating_sub(bytes);
                    Takes::Yes
                }
            }
        });
        let mut told = BTreeSet::new();
        for Post { to, news, frame, .. } in posts {
            let Some(Some((token, _))) = rooms.get(&to) else {
                unreachable!("it has a connection of theirs")
            };
            // It may have gone while it was sent the one before.
            let others = |connections: &BTreeMap<u64, Connection>| {
                connections.iter().find(|(_, connection)| connection.is_of(to)).map(|(token, _)| *token)
            };
            let there = self.connections.contains_key(token).then_some(*token);
            let Some(token) = there.or_else(|| others(&self.connections)) else { continue };
            self.connections.get_mut(&token).expect("it was just there").post(&frame);
            self.advance(token);
            if news == News::Stored {
                told.insert(to);
            }
        }
        if !told.is_empty() {
            let mut lender = self.shared.lender();
            told.into_iter().for_each(|space| lender.told_stored(space));
            self.shared.tell_of(&lender);
        }
    }

    /// Sends the newest view to those who want it and have not got it.
    fn offer_views(&mut self) {
        if !self.connections.values().any(Connection::wants_views) {
            return;
        }
        let published = self.service.published();
        let offer = |(token, connection): (&u64, &mut Connection)| {
            connection.offer_view(&published).then_some(*token)
        };
        let offered: Vec<u64> = self.connections.iter_mut().filter_map(offer).collect();
        for token in offered {
            self.advance(token);
        }
    }

    /// Does what an event is for. Epoll tells of a peer that is gone whether that is asked for or not, and again and again: one that is not read from
    /// just now, as it has asked for so much, would keep the loop awake, and nobody is there for what it has asked.
    fn heed(&mut self, token: u64, flags: EventFlags) -> Progress {
        let progress = self.advance(token);
        let is_gone = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let unread = |connection: &Connection| !connection.interest.contains(EventFlags::IN);
        if is_gone && self.connections.get(&token).is_some_and(unread) {
            self.close(token);
            return Progress::Over;
        }
        progress
    }

    fn advance(&mut self, token: u64) -> Progress {
        // It may have gone since epoll told of it.
        let Some(connection) = self.connections.get_mut(&token) else { return Progress::None };
        let mut progress = connection.advance(&mut self.service);
        self.posts_are_due |= connection.wants_posts();
        let wants = connection.wants();
        if progress != Progress::Over && wants != connection.interest {
            connection.interest = wants;
            if epoll::modify(&self.epoll, connection.socket(), EventData::new_u64(token), wants).is_err() {
                progress = Progress::Over;
            }
        }
        if progress == Progress::Over {
            self.close(token);
        }
        progress
    }

    fn close(&mut self, token: u64) {
        let connection = self.connections.remove(&token).expect("it was just there");
        // Dropping the socket takes it off the epoll.
        connection.close(&self.shared);
    }

    fn sweep(&mut self, now: Instant) {
        self.spinning.look(now, watch::processors_stalled_us());
        let late: Vec<u64> = self
            .connections
            .iter_mut()
            .filter_map(|(token, connection)| connection.sweep(now, self.kernel.as_mut()).then_some(*token))
            .collect();
        for token in late {
            self.close(token);
        }
        self.offer_views();
    }
}
