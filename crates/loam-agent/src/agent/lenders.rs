//! Lenders: joining them, their answers, their loss.

use super::away::Returns;
use super::{Agent, Token};
use crate::cluster::CONNECT_TIMEOUT;
use crate::config::Durability;
use crate::conn::{Came, Conn};
use crate::summary::LenderSummary;
use crate::{AgentError, agent::report::Report};
use loam_core::borrower::{Arrival, CopyIndex, LenderIndex, PutAnswer, Site, Source};
use loam_core::ids::SpaceId;
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Duration, Instant};
use loam_wire::client::Target;
use loam_wire::{Decoded, Frame, PageMeta, PutStatus, decode, error_code, page_hash};
use rustix::fd::AsFd;
use std::net::SocketAddr;

/// A lender that owes an answer and is silent for this long is lost, where the disk has everything anyway.
const SILENCE_UNDER_DISK: std::time::Duration = std::time::Duration::from_secs(2);
/// The same where it alone has pages: patience costs time, its loss the run.
const SILENCE_UNDER_NONE: std::time::Duration = std::time::Duration::from_secs(20);
/// A lender that has said something within this time is there.
const HEARD_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// A lender polls no longer than this for what comes next (`loam-node`, `spinning`).
const SLEEPS_AFTER: std::time::Duration = std::time::Duration::from_micros(100);
/// How often silence is looked for.
const LOOK: Duration = Duration::from_millis(250);

/// Lenders of the past that the summary lists; more are counted only.
const PAST_MAX: usize = 256;

/// A lender of this run.
#[derive(Debug)]
pub(super) struct Lender {
    pub addr: SocketAddr,
    /// `None`: lost.
    pub conn: Option<Conn>,
    pub why_lost: String,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// When it last said how much room it has.
    pub room_heard: Instant,
    /// What it has said of its disk and of where it is.
    pub site: Site,
    /// It is waited for.
    pub away: bool,
    pub returns: Returns,
    /// What it has set aside for this run.
    pub reserved_bytes: u64,
}

impl Lender {
    pub(super) fn new(addr: SocketAddr, conn: Conn) -> Self {
        Self {
            addr,
            conn: Some(conn),
            why_lost: String::new(),
            sent_bytes: 0,
            received_bytes: 0,
            room_heard: Instant(0),
            site: Site::default(),
            away: false,
            returns: Returns::default(),
            reserved_bytes: 0,
        }
    }

    /// It is the one that this connection leads to: two copies there would be one.
    pub(super) fn is(&self, conn: &Conn) -> bool {
        self.conn.as_ref().is_some_and(|own| own.instance == conn.instance)
    }

    /// Both lead to one lender.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        other.conn.as_ref().is_some_and(|conn| self.is(conn))
    }

    /// As the summary has it.
    pub(super) fn summary(&self, held: BasePages) -> LenderSummary {
        LenderSummary {
            addr: self.addr.to_string(),
            pages: held.0,
            bytes: held.bytes().0,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            lost: self.conn.is_none() && !self.away,
            why: self.why_lost.clone(),
            reserved_bytes: self.reserved_bytes,
        }
    }
}

/// A number for a machine: lenders with one address are on one.
fn machine_of(addr: SocketAddr) -> u32 {
    number_of(addr.ip().to_canonical().to_string().as_bytes())
}

/// A number for a zone; 0: it has none.
fn zone_of(name: &str) -> u32 {
    if name.is_empty() { 0 } else { number_of(name.as_bytes()).max(1) }
}

/// (Two names in 2^32 pairs are one number: then two copies are kept farther apart than they need be.)
fn number_of(name: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(name) as u32
}

/// Lenders that have no place any more.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub lenders: Vec<LenderSummary>,
    /// How many have joined and were lost, in all.
    pub joined: u64,
    pub lost: u64,
}

impl Past {
    fn remember(&mut self, lender: LenderSummary) {
        if self.lenders.len() < PAST_MAX {
            self.lenders.push(lender);
        }
    }
}

/// Connects to every lender. Those that cannot be reached count as lost from the start.
pub(super) fn connect_all(
    targets: &[Target],
    durability: Durability,
    space: SpaceId,
    name: &str,
    past: &mut Past,
    report: &mut Report,
) -> Result<Vec<Lender>, AgentError> {
    let mut lenders = Vec::new();
    for target in targets {
        let addr = target.addr;
        match Conn::connect(target, durability.features(), space, 0, name, CONNECT_TIMEOUT) {
            Ok(conn) => match lenders.iter().find(|lender: &&Lender| lender.is(&conn)) {
                Some(same) => {
                    report.warn(&format!("lender {addr} is the same as {}: it counts once", same.addr))
                }
                None => lenders.push(Lender::new(addr, conn)),
            },
            Err(error) => {
                report.warn(&format!("lender {addr} cannot be used: {error}"));
                past.lost += 1;
                let (addr, why) = (addr.to_string(), error.to_string());
                past.remember(LenderSummary { addr, lost: true, why, ..LenderSummary::default() });
            }
        }
    }
    if lenders.is_empty() {
        match durability {
            Durability::None => {
                return Err(AgentError::Setup(
                    "no lender can be reached, and --durability none keeps pages nowhere else: start one with \
                     `loam lend SIZE`, or use --durability disk"
                        .into(),
                ));
            }
            _ if !targets.is_empty() => {
                report.warn("no lender can be reached: pages go to the disk alone, which is slower");
            }
            _ => {}
        }
    }
    Ok(lenders)
}

impl Agent<'_> {
    /// It is here already.
    pub(super) fn has_lender(&self, lender: &Lender) -> bool {
        self.lenders.iter().any(|other| other.is_same(lender))
    }

    /// A lender joins: at the start, or while the program runs.
    pub(super) fn add_lender(&mut self, lender: Lender) {
        let conn = lender.conn.as_ref().expect("who joins is connected");
        let index = self.borrower.handle_lender_joined(Self::lender_room(conn.free_bytes));
        let at = usize::from(index.0);
        if let Err(errno) = self.poll_on(conn.stream.as_fd(), Token::Lender(index.0), false) {
            self.end(format!("epoll: {errno}"));
        }
        tracing::info!("lender {} joins", lender.addr);
        let site = Site { machine: machine_of(lender.addr), ..Site::default() };
        self.borrower.handle_lender_site(index, site);
        self.past.joined += 1;
        if at == self.lenders.len() {
            self.lenders.push(lender);
        } else {
            let before = std::mem::replace(&mut self.lenders[at], lender);
            assert!(before.conn.is_none(), "two lenders have one place");
            self.past.remember(before.summary(BasePages(0)));
        }
        if self.lenders[at].reserved_bytes == 0 {
            self.reserve_again(index);
        }
    }

    /// A lender's socket is readable, or writable again.
    pub(super) fn take_lender(&mut self, lender: LenderIndex, writable: bool) {
        if writable {
            self.flush();
        }
        // A stream never ends the turn by itself: others are waiting too.
        for _ in 0..8 {
            match self.receive(lender) {
                Ok(Came::Nothing) => break,
                Ok(came) => {
                    if !self.take_frames(lender) || came == Came::All {
                        break;
                    }
                }
                Err(error) => {
                    self.lender_broke(lender, &format!("its connection broke ({error})"));
                    break;
                }
            }
        }
        self.drain();
        self.flush();
    }

    /// A lender of this very machine has been asked that slept, since it has been quiet for longer than lenders poll.
    pub(super) fn wakes_a_lender_here(&self) -> bool {
        let wakes = |conn: &Conn| conn.is_here && conn.owes() && !conn.was_heard(SLEEPS_AFTER);
        self.lenders.iter().flat_map(|lender| &lender.conn).any(wakes)
    }

    /// Whether something has come that no event will tell of.
    pub(super) fn lenders_hold(&self) -> bool {
        self.lenders.iter().flat_map(|lender| &lender.conn).any(Conn::holds)
    }

    /// Takes it.
    pub(super) fn take_held(&mut self) {
        for n in 0..self.lenders.len() {
            if self.lenders[n].conn.as_ref().is_some_and(Conn::holds) {
                self.take_lender(LenderIndex(n as u8), false);
            }
        }
    }

    /// One read from each lender that owes an answer.
    pub(super) fn look_for_answers(&mut self) {
        for n in 0..self.lenders.len() {
            if self.lenders[n].conn.as_ref().is_some_and(Conn::owes) {
                self.take_lender_once(LenderIndex(n as u8));
            }
        }
    }

    /// One read from a lender, if it has anything.
    fn take_lender_once(&mut self, lender: LenderIndex) {
        match self.receive(lender) {
            Ok(Came::Nothing) => return,
            Ok(_) => {
                self.take_frames(lender);
            }
            Err(error) => self.lender_broke(lender, &format!("its connection broke ({error})")),
        }
        self.drain();
        self.flush();
    }

    /// Reads once from a lender, if it is not lost.
    fn receive(&mut self, lender: LenderIndex) -> std::io::Result<Came> {
        let awaited = self.borrower.waiting() > BasePages(0);
        let Some(conn) = self.conn(lender) else { return Ok(Came::Nothing) };
        conn.awaited = awaited;
        conn.receive()
    }

    /// Deals with the whole frames that have come. False: the lender is lost.
    pub(super) fn take_frames(&mut self, lender: LenderIndex) -> bool {
        let Some(conn) = self.conn(lender) else { return false };
        let (received, mut start, end) = conn.take_received();
        let mut problem: Option<String> = None;
        loop {
            match decode(&received[start..end]) {
                Ok(Decoded::NeedMore { .. }) => break,
                Ok(Decoded::Whole { frame, consumed }) => {
                    start += consumed;
                    if let Err(why) = self.take_frame(lender, frame) {
                        problem = Some(why);
                        break;
                    }
                    if self.lenders[usize::from(lender.0)].conn.is_none() {
                        return false;
                    }
                }
                Err(error) => {
                    problem = Some(format!("it sent a malformed frame ({error})"));
                    break;
                }
            }
        }
        if let Some(conn) = self.conn(lender) {
            conn.put_back(received, start);
        }
        match problem {
            None => true,
            Some(why) => {
                self.lose_lender(lender, &why);
                false
            }
        }
    }

    fn take_frame(&mut self, lender: LenderIndex, frame: Frame<'_>) -> Result<(), String> {
        let source = Source::Lender(lender);
        let copy_of = |index: u64| {
            u32::try_from(index).map(CopyIndex).map_err(|_| "it sent an unknown page id".to_owned())
        };
        match frame {
            Frame::Page { pages, payload, .. } => {
                self.answered(lender, pages.len());
                self.report.bytes.received += payload.len() as u64;
                self.lenders[usize::from(lender.0)].received_bytes += payload.len() as u64;
                self.payload = payload.as_ptr();
                let mut result = Ok(());
                if pages.len() > 1 && self.borrower.waiting() == BasePages(0) {
                    // Nobody waits for these, and a thread that was just woken may wait for this very core.
                    rustix::thread::sched_yield();
                }
                let first = self.awaited_of(pages);
                // Installed, and who waits awake, before the rest of the frame is looked at.
                let order = first.into_iter().chain((0..pages.len()).filter(|&n| Some(n) != first));
                for (nth, n) in order.enumerate() {
                    if nth == 1 && first.is_some() {
                        self.drain();
                    }
                    let meta = &pages[n];
                    let page = &payload[n * BASE_PAGE_BYTES..(n + 1) * BASE_PAGE_BYTES];
                    let now = self.now();
                    let copy = match copy_of(meta.index()) {
                        Ok(copy) => copy,
                        Err(why) => {
                            result = Err(why);
                            break;
                        }
                    };
                    // The owner's record decides, not what the frame says of itself.
                    let arrival = self.borrower.handle_arrival(
                        now,
                        copy,
                        meta.version(),
                        page_hash(page),
                        source,
                        n as u32,
                    );
                    let wrong = match arrival {
                        Arrival::Taken => continue,
                        Arrival::Corrupt => "it sent a page with wrong contents",
                        // A getpage stays open until its lender has answered it, whoever else was quicker.
                        Arrival::Stale => "it sent a page that it was not asked for",
                    };
                    result = Err(wrong.to_owned());
                    break;
                }
                self.drain();
                self.payload = std::ptr::null();
                result
            }
            Frame::Miss { pages, .. } => {
                self.answered(lender, pages.len());
                for page in pages {
                    let now = self.now();
                    // As with a page: a getpage stays open until its lender has answered it.
                    if !self.borrower.handle_missed(now, copy_of(page.index())?, page.version(), source) {
                        return Err("it says that it misses a page that it was not asked for".to_owned());
                    }
                    self.drain();
                }
                Ok(())
            }
            Frame::Ack { pages, free_bytes, .. } => {
                if let Some(conn) = self.conn(lender) {
                    conn.put_answered(pages.len());
                }
                let mut refused = false;
                for page in pages {
                    let answer = if page.status() == PutStatus::Stored {
                        PutAnswer::Stored
                    } else {
                        refused = true;
                        PutAnswer::Refused
                    };
                    let now = self.now();
                    self.borrower.handle_put_answer(
                        now,
                        lender,
                        copy_of(page.index())?,
                        page.version(),
                        answer,
                    );
                }
                if refused && self.borrower.stuck() > 0 && self.config.durability == Durability::None {
                    self.report.warn(
                        "no lender has room, and --durability none keeps pages nowhere else: they stay in memory, over --local; \
                         start another lender, or use --durability disk",
                    );
                }
                if !refused {
                    self.heard_room(lender, free_bytes);
                }
                self.drain();
                Ok(())
            }
            Frame::Gone { free_bytes, pages } => {
                for page in pages {
                    self.borrower.handle_gone(lender, copy_of(page.index())?, page.version());
                }
                self.heard_room(lender, free_bytes);
                self.drain();
                Ok(())
            }
            // It wants these back; without pages, it has room again.
            Frame::Recall { free_bytes, pages, .. } => {
                let wanted: Result<Vec<_>, String> =
                    pages.iter().map(|page| Ok((copy_of(page.index())?, page.version()))).collect();
                let wanted = wanted?;
                if !wanted.is_empty() {
                    tracing::info!(
                        "lender {} wants {} pages back",
                        self.lenders[usize::from(lender.0)].addr,
                        wanted.len()
                    );
                }
                let now = self.now();
                self.lenders[usize::from(lender.0)].room_heard = now;
                self.borrower.handle_recall(now, lender, Self::lender_room(free_bytes), wanted.into_iter());
                self.drain();
                Ok(())
            }
            Frame::Reserved { request, reservation } => {
                self.take_reserved(lender, request, reservation);
                Ok(())
            }
            Frame::Store { store_bytes, zone, .. } => {
                let entry = &mut self.lenders[usize::from(lender.0)];
                entry.site =
                    Site { machine: machine_of(entry.addr), zone: zone_of(zone), drains: store_bytes > 0 };
                self.borrower.handle_lender_site(lender, entry.site);
                Ok(())
            }
            Frame::Stored { pages, .. } => {
                let stored: Result<Vec<_>, String> =
                    pages.iter().map(|page| Ok((copy_of(page.index())?, page.version()))).collect();
                let now = self.now();
                self.borrower.handle_stored(now, lender, stored?.into_iter());
                self.drain();
                Ok(())
            }
            Frame::Pong { .. } => {
                self.answered(lender, 0);
                Ok(())
            }
            // It ends in good order, and what is on its disk is there when it has started again.
            Frame::Error { code: error_code::ENDING, text, .. } => {
                self.lender_broke(lender, &format!("it says: {text}"));
                Ok(())
            }
            Frame::Error { text, .. } => Err(format!("it says: {text}")),
            _ => Err("it sent a frame that only borrowers send".to_owned()),
        }
    }

    /// The page of a frame that a thread waits for, if there is one that should not wait for the others. (A whole page is waited for as a
    /// whole.)
    fn awaited_of(&self, pages: &[PageMeta]) -> Option<usize> {
        if pages.len() < 2 || self.fetches_full || self.borrower.waiting() == BasePages(0) {
            return None;
        }
        let copy = |page: &PageMeta| u32::try_from(page.index()).map(CopyIndex);
        pages.iter().position(|page| copy(page).is_ok_and(|copy| self.borrower.is_awaited(copy)))
    }

    /// A lender says how much room it has.
    pub(super) fn heard_room(&mut self, lender: LenderIndex, free_bytes: u64) {
        self.lenders[usize::from(lender.0)].room_heard = self.now();
        self.borrower.handle_lender_room(lender, Self::lender_room(free_bytes));
    }

    pub(super) fn answered(&mut self, lender: LenderIndex, pages: usize) {
        if let Some(conn) = self.conn(lender) {
            conn.answered(pages);
        }
    }

    /// A call of [`Self::flush`] would send something.
    pub(super) fn can_send(&self) -> bool {
        self.lenders.iter().flat_map(|lender| &lender.conn).any(Conn::can_send)
    }

    /// Sends what was collected for lenders, of putpages a piece (see [`Conn::flush`]).
    pub(super) fn flush(&mut self) {
        if let Some(membership) = &self.membership {
            membership.has_local_pages(self.borrower.frames().0);
        }
        let mut broken = Vec::new();
        for n in 0..self.lenders.len() {
            let Some(conn) = &mut self.lenders[n].conn else { continue };
            let wanted = conn.wants_write;
            match conn.flush(&self.pool) {
                Ok(()) if conn.wants_write != wanted => {
                    let (wants, token) = (conn.wants_write, Token::Lender(n as u8));
                    let stream = self.lenders[n].conn.as_ref().expect("looked at above").stream.as_fd();
                    if let Err(errno) = self.poll_on(stream, token, wants) {
                        broken.push((n, format!("epoll: {errno}")));
                    }
                }
                Ok(()) => {}
                Err(error) => broken.push((n, format!("its connection broke ({error})"))),
            }
        }
        for (n, why) in broken {
            self.lender_broke(LenderIndex(n as u8), &why);
        }
    }

    /// Nothing comes from a lender any more. One that has written pages to its disk may come back with them.
    fn lender_broke(&mut self, lender: LenderIndex, why: &str) {
        if !self.await_lender(lender, why) {
            self.lose_lender(lender, why);
        }
    }

    /// Its connection is not used any more; none if it had none.
    pub(super) fn disconnect(&mut self, lender: LenderIndex, why: &str) -> Option<Conn> {
        let entry = &mut self.lenders[usize::from(lender.0)];
        let conn = entry.conn.take()?;
        entry.why_lost = why.to_owned();
        entry.reserved_bytes = 0;
        let _ = rustix::event::epoll::delete(&self.epoll, &conn.stream);
        Some(conn)
    }

    /// A lender is gone for this run, with what it held.
    pub(super) fn lose_lender(&mut self, lender: LenderIndex, why: &str) {
        if self.disconnect(lender, why).is_some() {
            self.give_up_lender(lender, why);
        }
    }

    /// The same, for one that has no connection any more.
    pub(super) fn give_up_lender(&mut self, lender: LenderIndex, why: &str) {
        let addr = self.lenders[usize::from(lender.0)].addr;
        self.lenders[usize::from(lender.0)].away = false;
        self.past.lost += 1;
        self.report.warn(&format!("lender {addr} is lost: {why}"));
        let now = self.now();
        if let Some(membership) = &mut self.membership {
            membership.try_later(now, addr);
        }
        let lost = self.borrower.handle_lender_lost(now, lender);
        self.tell_weights(now);
        if lost > BasePages(0) {
            self.end_for_lost(lender, why, lost);
        }
        self.drain();
    }

    /// Pages are lost with a lender.
    pub(super) fn end_for_lost(&mut self, lender: LenderIndex, why: &str, lost: BasePages) {
        let addr = self.lenders[usize::from(lender.0)].addr;
        self.end(format!(
            "lender {addr} is lost ({why}), and nobody else has {} of the program: the program is ended, no wrong data was \
             given to it; run it again with --durability disk, which survives the loss of all lenders",
            lost.bytes()
        ));
    }

    /// When to look for silent lenders next.
    pub(super) fn lenders_due(&self, now: Instant) -> Option<Instant> {
        let owed = self.lenders.iter().flat_map(|l| &l.conn).any(|c| c.silent_for().is_some());
        owed.then(|| now + LOOK)
    }

    /// Loses lenders that owe an answer for too long.
    pub(super) fn look_for_silence(&mut self) {
        let is_silent = |lender: &Lender| {
            lender.conn.as_ref().and_then(Conn::silent_for).is_some_and(|s| s > HEARD_WITHIN / 2)
        };
        if self.config.durability.replicas() > 1 && self.lenders.iter().any(is_silent) {
            // Who has nothing to answer says that it is there.
            self.lenders.iter_mut().flat_map(|lender| &mut lender.conn).for_each(Conn::ping);
            self.flush();
        }
        for n in 0..self.lenders.len() {
            // One of several may be lost; if none of the others is heard it may be the network, or this machine.
            let others = self.lenders.iter().enumerate().filter(|&(other, _)| other != n);
            let others_answer =
                others.flat_map(|(_, lender)| &lender.conn).any(|conn| conn.was_heard(HEARD_WITHIN));
            let patience = match self.config.durability {
                Durability::Disk => SILENCE_UNDER_DISK,
                Durability::Staged | Durability::Replicas(_) if others_answer => SILENCE_UNDER_DISK,
                Durability::None | Durability::Staged | Durability::Replicas(_) => SILENCE_UNDER_NONE,
            };
            let silent = self.lenders[n].conn.as_ref().and_then(Conn::silent_for);
            if silent.is_some_and(|s| s > patience) {
                let why = format!("it has not answered for {} s", patience.as_secs());
                self.lender_broke(LenderIndex(n as u8), &why);
            }
        }
    }
}
