//! Lenders, as a borrower sees them: connections, frames, answers, their loss.

use super::hand::hash_of;
use super::seat::Seat;
use super::sim::{Event, FailureKind, SeatEvent, Sent, Sim, ToBorrower, ToLender};
use loam_core::borrower::{Arrival, CopyIndex, LenderIndex, PutAnswer, Site, Source};
use loam_core::ids::Version;
use loam_core::units::{BasePages, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// As the live agent's, for the same reasons.
const SILENCE_UNDER_DISK: Duration = Duration::from_millis(2_000);
const SILENCE_UNDER_NONE: Duration = Duration::from_millis(20_000);
const LOOK: Duration = Duration::from_millis(250);
/// Datagrams: an unanswered request is sent again.
const RESEND: Duration = Duration::from_millis(40);
const PUT_PAGES: usize = 32;
const GET_PAGES: usize = 64;
/// What nobody waits for is answered in pieces.
const BEHIND_PAGES: usize = 16;

/// One lender of a run, by its `LenderIndex`.
#[derive(Debug)]
pub(crate) struct Conn {
    pub wire: usize,
    /// Which machine.
    pub lender: usize,
    pub up: bool,
    pub gets: Vec<(CopyIndex, Version)>,
    pub gets_behind: Vec<(CopyIndex, Version)>,
    hurries: Vec<(CopyIndex, Version)>,
    pub puts: Vec<Sent>,
    pub drops: Vec<(CopyIndex, Version)>,
    flushes: bool,
    request: u64,
    /// Requests without an answer, and the pages of each that it is owed for (a part of an answer may be lost, another come twice).
    open: BTreeMap<u64, (ToLender, BTreeSet<(CopyIndex, Version)>)>,
    quiet_since: Instant,
    /// What it said that it has.
    pub stored: BTreeMap<(CopyIndex, Version), u64>,
    sent: BTreeMap<(CopyIndex, Version), u64>,
}

impl Conn {
    /// A thread waits by now for what was asked for behind.
    pub(crate) fn hurry(&mut self, page: (CopyIndex, Version)) {
        match self.gets_behind.iter().position(|&behind| behind == page) {
            Some(at) => self.gets.push(self.gets_behind.remove(at)),
            None => self.hurries.push(page),
        }
    }
}

impl Seat {
    /// The connection to a lender that is not lost.
    pub(crate) fn conn(&mut self, lender: LenderIndex) -> Option<&mut Conn> {
        self.conns.get_mut(usize::from(lender.0)).filter(|c| c.up)
    }

    pub(crate) fn is_connected(&self, lender: usize) -> bool {
        self.conns.iter().any(|c| c.up && c.lender == lender)
    }

    /// A connection has been made.
    pub(crate) fn join(&mut self, wire: usize, room: BasePages, sim: &mut Sim) {
        let lender = sim.wires[wire].lender;
        sim.log(|| format!("borrower {}: joins lender {lender} as wire {wire}, room {}", self.index, room.0));
        let index = usize::from(self.borrower.handle_lender_joined(room).0);
        let site = Site { machine: lender as u32, ..Site::default() };
        self.borrower.handle_lender_site(LenderIndex(index as u8), site);
        let before = self.conns.get(index);
        assert!(before.is_none_or(|conn| !conn.up) && index <= self.conns.len(), "two lenders have one name");
        // What comes late is told from what is new.
        let request = before.map_or(0, |conn| conn.request);
        let conn = Conn {
            wire,
            lender,
            up: true,
            gets: Vec::new(),
            gets_behind: Vec::new(),
            hurries: Vec::new(),
            puts: Vec::new(),
            drops: Vec::new(),
            flushes: false,
            request,
            open: BTreeMap::new(),
            quiet_since: sim.now,
            stored: BTreeMap::new(),
            sent: BTreeMap::new(),
        };
        if index == self.conns.len() {
            self.conns.push(conn);
        } else {
            self.conns[index] = conn;
        }
    }

    /// An epoch has begun: weights by machine, as the view of a node's daemon has them. `None`: the daemon is gone.
    pub(crate) fn weigh(&mut self, epoch: Option<([u8; 4], Duration)>, sim: &mut Sim) {
        match epoch {
            Some((weights, min_age)) => {
                let up = self.conns.iter().enumerate().filter(|(_, conn)| conn.up);
                let weights: Vec<(LenderIndex, u32)> =
                    up.map(|(n, c)| (LenderIndex(n as u8), u32::from(weights[c.lender]))).collect();
                self.borrower.handle_weights(sim.now, &weights, min_age);
            }
            None => self.borrower.handle_weights_unknown(sim.now),
        }
        self.drain(sim);
    }

    /// Has what was collected sent, a moment later.
    pub(crate) fn flush_soon(&mut self, sim: &mut Sim) {
        for n in 0..self.conns.len() {
            let conn = &mut self.conns[n];
            let asks = !(conn.gets.is_empty() && conn.gets_behind.is_empty() && conn.hurries.is_empty());
            let waits = asks || !(conn.puts.is_empty() && conn.drops.is_empty());
            if conn.up && waits && !conn.flushes {
                conn.flushes = true;
                let delay = sim.net_dice.delay(Duration::from_micros(2));
                self.after(delay, SeatEvent::Flush { lender: n }, sim);
            }
        }
    }

    /// Makes frames of what was collected and sends them: getpages first.
    pub(crate) fn flush(&mut self, lender: usize, sim: &mut Sim) {
        let Some(conn) = self.conns.get_mut(lender).filter(|c| c.up) else { return };
        conn.flushes = false;
        if conn.open.is_empty() {
            conn.quiet_since = sim.now;
        }
        let mut frames = Vec::new();
        let gets = std::mem::take(&mut conn.gets);
        for pages in gets.chunks(GET_PAGES) {
            conn.request += 1;
            frames.push((
                pages.iter().copied().collect(),
                ToLender::Get { request: conn.request, pages: pages.to_vec() },
            ));
        }
        let behind = std::mem::take(&mut conn.gets_behind);
        for pages in behind.chunks(BEHIND_PAGES) {
            conn.request += 1;
            frames.push((
                pages.iter().copied().collect(),
                ToLender::Get { request: conn.request, pages: pages.to_vec() },
            ));
        }
        let hurries = std::mem::take(&mut conn.hurries);
        if !hurries.is_empty() {
            frames.push((BTreeSet::new(), ToLender::Hurry { pages: hurries }));
        }
        // Before the puts, as live: what has just been given back may be put again.
        let drops = std::mem::take(&mut conn.drops);
        if !drops.is_empty() {
            frames.push((BTreeSet::new(), ToLender::Drop { pages: drops }));
        }
        let mut puts = std::mem::take(&mut conn.puts);
        for put in &mut puts {
            // The buffer is read when it goes: it must not have changed since it was named.
            put.value = self.buffers[put.buffer.0 as usize];
            assert_eq!(hash_of(put.value), put.hash, "a buffer was reused before it was sent");
            conn.sent.insert((put.copy, put.version), put.value);
        }
        for pages in puts.chunks(PUT_PAGES) {
            conn.request += 1;
            frames.push((
                pages.iter().map(|p| (p.copy, p.version)).collect(),
                ToLender::Put { request: conn.request, pages: pages.to_vec() },
            ));
        }
        let wire = conn.wire;
        for (pages, frame) in frames {
            if let ToLender::Get { request, .. } | ToLender::Put { request, .. } = frame {
                self.conns[lender].open.insert(request, (frame.clone(), pages));
                if sim.settings.datagram {
                    self.after(RESEND, SeatEvent::Resend { lender, request }, sim);
                }
            }
            sim.send_to_lender(wire, frame);
        }
        if !self.looks {
            self.looks = true;
            self.after(LOOK, SeatEvent::Look, sim);
        }
    }

    pub(crate) fn resend(&mut self, lender: usize, request: u64, sim: &mut Sim) {
        let Some(conn) = self.conns.get(lender).filter(|c| c.up) else { return };
        if let Some((frame, _)) = conn.open.get(&request) {
            sim.send_to_lender(conn.wire, frame.clone());
            self.after(RESEND, SeatEvent::Resend { lender, request }, sim);
        }
    }

    fn answered(&mut self, lender: usize, request: u64, pages: &[(CopyIndex, Version)], now: Instant) {
        let conn = &mut self.conns[lender];
        conn.quiet_since = now;
        if let Some((_, missing)) = conn.open.get_mut(&request) {
            missing.retain(|page| !pages.contains(page));
            if missing.is_empty() {
                conn.open.remove(&request);
            }
        }
    }

    /// A frame has come.
    pub(crate) fn receive(&mut self, wire: usize, message: ToBorrower, sim: &mut Sim) {
        let Some(n) = self.conns.iter().position(|c| c.wire == wire && c.up) else { return };
        let lender = LenderIndex(n as u8);
        let problem = match message {
            ToBorrower::Closed => Some("its connection broke"),
            ToBorrower::Page { request, pages } => self.take_pages(lender, request, &pages, sim),
            ToBorrower::Recall { pages, free } => {
                sim.log(|| format!("borrower {}: lender {n} wants {} pages back", self.index, pages.len()));
                self.borrower.handle_recall(sim.now, lender, BasePages(free), pages.into_iter());
                None
            }
            ToBorrower::Miss { request, pages } => self.take_misses(lender, request, &pages, sim),
            ToBorrower::Ack { request, pages, free } => {
                let acked: Vec<_> = pages.iter().map(|&(copy, version, _)| (copy, version)).collect();
                self.answered(n, request, &acked, sim.now);
                let mut refused = false;
                for (copy, version, stored) in pages {
                    refused |= !stored;
                    let answer = if stored { PutAnswer::Stored } else { PutAnswer::Refused };
                    if stored && let Some(&value) = self.conns[n].sent.get(&(copy, version)) {
                        self.conns[n].stored.insert((copy, version), value);
                    }
                    sim.log(|| format!("borrower {}: lender {n} on copy {}: {answer:?}", self.index, copy.0));
                    self.borrower.handle_put_answer(sim.now, lender, copy, version, answer);
                }
                if !refused {
                    self.borrower.handle_lender_room(lender, BasePages(free));
                }
                None
            }
            ToBorrower::Gone { pages, free } => {
                for (copy, version) in pages {
                    sim.log(|| format!("borrower {}: lender {n} has copy {} no longer", self.index, copy.0));
                    self.conns[n].stored.remove(&(copy, version));
                    let covered = self.covered_but(copy, Source::Lender(lender));
                    self.borrower.handle_gone(lender, copy, version);
                    self.check_covered(&covered, sim);
                }
                self.borrower.handle_lender_room(lender, BasePages(free));
                None
            }
        };
        if let Some(why) = problem {
            self.lose_lender(n, why, sim);
        }
        self.drain(sim);
    }

    fn take_pages(
        &mut self,
        lender: LenderIndex,
        request: u64,
        pages: &[(CopyIndex, Version, u64)],
        sim: &mut Sim,
    ) -> Option<&'static str> {
        self.payload = pages.iter().map(|p| p.2).collect();
        let source = Source::Lender(lender);
        for (tag, &(copy, version, value)) in pages.iter().enumerate() {
            let covered = self.covered_but(copy, source);
            let arrival = self.take_arrival(copy, version, value, source, tag as u32, sim);
            self.check_covered(&covered, sim);
            sim.log(|| {
                format!(
                    "borrower {}: copy {} from {lender:?}: value {value}, {arrival:?}",
                    self.index, copy.0
                )
            });
            let wrong = match arrival {
                Arrival::Taken => None,
                Arrival::Corrupt => Some("it sent a page with wrong contents"),
                Arrival::Stale => Some("it sent a page that it was not asked for"),
            };
            let honest = !sim.is_harmed_somewhere(value & !(1 << 63));
            if wrong.is_some() && honest && !sim.settings.datagram {
                let what = format!(
                    "borrower {}: a good lender is given up: {arrival:?} of copy {}",
                    self.index, copy.0
                );
                sim.fail(FailureKind::WrongBytes, || what);
            }
            if wrong.is_some() && !sim.settings.datagram {
                self.drain(sim);
                return wrong;
            }
            let asked = self.was_asked(lender, request, copy, version);
            if asked == Some(false) {
                self.drain(sim);
                return Some("it answers with a page that this request did not ask for");
            }
            if arrival != Arrival::Stale || asked == Some(true) {
                self.answered(usize::from(lender.0), request, &[(copy, version)], sim.now);
            }
        }
        self.drain(sim);
        None
    }

    /// The request has this page in it. `None`: it has been answered before (a datagram may come twice).
    fn was_asked(
        &self,
        lender: LenderIndex,
        request: u64,
        copy: CopyIndex,
        version: Version,
    ) -> Option<bool> {
        match self.conns[usize::from(lender.0)].open.get(&request)? {
            (ToLender::Get { pages, .. }, _) => Some(pages.contains(&(copy, version))),
            _ => Some(false),
        }
    }

    fn take_misses(
        &mut self,
        lender: LenderIndex,
        request: u64,
        pages: &[(CopyIndex, Version)],
        sim: &mut Sim,
    ) -> Option<&'static str> {
        self.answered(usize::from(lender.0), request, pages, sim.now);
        for &(copy, version) in pages {
            let covered = self.covered_but(copy, Source::Lender(lender));
            let asked = self.borrower.handle_missed(sim.now, copy, version, Source::Lender(lender));
            self.check_covered(&covered, sim);
            sim.log(|| format!("borrower {}: {lender:?} misses copy {} ({asked})", self.index, copy.0));
            self.drain(sim);
            if !asked && !sim.settings.datagram {
                return Some("it says that it misses a page that it was not asked for");
            }
        }
        None
    }

    /// A lender is gone for this run, with what it held.
    pub(crate) fn lose_lender(&mut self, n: usize, why: &str, sim: &mut Sim) {
        let Some(conn) = self.conns.get_mut(n).filter(|c| c.up) else { return };
        conn.up = false;
        let wire = conn.wire;
        conn.stored.values().for_each(|&value| sim.harm(conn.lender, value));
        sim.log(|| format!("borrower {}: loses lender {n}: {why}", self.index));
        // The lender sees its end of the connection closed.
        sim.send_to_lender(wire, ToLender::Closed);
        let covered = self.covered();
        let lost = self.borrower.handle_lender_lost(sim.now, LenderIndex(n as u8));
        self.check_covered(&covered, sim);
        if lost > BasePages(0) {
            let survives = sim.settings.disk || (sim.settings.replicas > 1 && !sim.replicas_may_be_lost());
            if survives && sim.harmed_on_disk.is_empty() {
                let what = format!(
                    "borrower {}: {} pages lost with a lender, and others have them",
                    self.index, lost.0
                );
                sim.fail(FailureKind::WrongBytes, || what);
            }
            self.end(format!("lender {n} alone held {} pages", lost.0), sim);
        }
        self.drain(sim);
    }

    /// Loses lenders that owe an answer for too long.
    pub(crate) fn look_for_silence(&mut self, sim: &mut Sim) {
        self.looks = false;
        let patience = if sim.settings.disk { SILENCE_UNDER_DISK } else { SILENCE_UNDER_NONE };
        let mut owed = false;
        for n in 0..self.conns.len() {
            let conn = &self.conns[n];
            if !conn.up || conn.open.is_empty() {
                continue;
            }
            owed = true;
            if sim.now - conn.quiet_since > patience {
                self.lose_lender(n, "it has not answered", sim);
            }
        }
        if owed {
            self.looks = true;
            self.after(LOOK, SeatEvent::Look, sim);
        }
    }

    /// Says goodbye to every lender.
    pub(crate) fn bye(&mut self, sim: &mut Sim) {
        for conn in self.conns.iter().filter(|c| c.up) {
            sim.send_to_lender(conn.wire, ToLender::Bye);
        }
    }

    /// The machine's end: its connections break.
    pub(crate) fn hang_up(&mut self, sim: &mut Sim) {
        for conn in self.conns.iter().filter(|c| c.up) {
            sim.send_to_lender(conn.wire, ToLender::Closed);
        }
    }

    /// A wire was reset: both ends hear of it.
    pub(crate) fn reset(&mut self, lender: usize, sim: &mut Sim) {
        let Some(conn) = self.conns.iter().find(|c| c.up && c.lender == lender) else { return };
        let wire = conn.wire;
        sim.log(|| format!("wire {wire} is reset"));
        sim.wires[wire].dead = true;
        for event in [
            Event::ToBorrower { wire, message: ToBorrower::Closed },
            Event::ToLender { wire, message: ToLender::Closed },
        ] {
            let delay = sim.net_dice.delay(Duration::from_micros(100));
            sim.after(delay, event);
        }
    }
}
