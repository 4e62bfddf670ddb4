//! Lenders, as a borrower sees them. What is sent: [`super::requests`]; what comes: [`super::answers`]; their loss: [`super::away`].

use super::seat::Seat;
use super::sim::{Event, SeatEvent, Sent, Sim, ToBorrower, ToLender};
use loam_core::borrower::{CopyIndex, LenderIndex, Site};
use loam_core::ids::Version;
use loam_core::units::{BasePages, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// As the live agent's, for the same reasons.
const SILENCE_UNDER_DISK: Duration = Duration::from_millis(2_000);
const SILENCE_UNDER_NONE: Duration = Duration::from_millis(20_000);
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// One lender of a run, by its `LenderIndex`.
#[derive(Debug)]
pub(crate) struct Conn {
    pub wire: usize,
    /// Which machine.
    pub lender: usize,
    pub up: bool,
    /// It is waited for.
    pub away: bool,
    /// How often it has come back.
    pub returns: u32,
    /// It had been lost, and may still have pages from before that nobody counts on.
    pub met_before: bool,
    /// What it has said of its disk and of where it is.
    pub site: Site,
    pub gets: Vec<(CopyIndex, Version)>,
    pub gets_behind: Vec<(CopyIndex, Version)>,
    pub(super) hurries: Vec<(CopyIndex, Version)>,
    pub puts: Vec<Sent>,
    pub drops: Vec<(CopyIndex, Version)>,
    pub spares: Vec<Page>,
    pub(super) flushes: bool,
    pub(super) request: u64,
    /// Requests without an answer, and the pages of each that it is owed for (a part of an answer may be lost, another come twice).
    pub(super) open: BTreeMap<u64, (ToLender, BTreeSet<(CopyIndex, Version)>)>,
    pub(super) quiet_since: Instant,
    /// What it said that it has, and has not been told to forget.
    pub stored: BTreeMap<Page, u64>,
    pub(super) sent: BTreeMap<Page, u64>,
    /// What it said is on its disk.
    pub told: BTreeSet<Page>,
    /// What it was told that it may give up.
    pub spared: BTreeSet<Page>,
}

/// Contents, as borrowers and lenders name them.
pub(crate) type Page = (CopyIndex, Version);

impl Conn {
    fn new(wire: usize, lender: usize, site: Site, now: Instant) -> Self {
        Self {
            wire,
            lender,
            up: true,
            away: false,
            returns: 0,
            met_before: false,
            site,
            gets: Vec::new(),
            gets_behind: Vec::new(),
            hurries: Vec::new(),
            puts: Vec::new(),
            drops: Vec::new(),
            spares: Vec::new(),
            flushes: false,
            request: 0,
            open: BTreeMap::new(),
            quiet_since: now,
            stored: BTreeMap::new(),
            sent: BTreeMap::new(),
            told: BTreeSet::new(),
            spared: BTreeSet::new(),
        }
    }

    /// It goes on over another connection: what was to be sent over the old one is void.
    pub(super) fn connect(&mut self, wire: usize, now: Instant) {
        let fresh = Self::new(wire, self.lender, self.site, now);
        let before = std::mem::replace(self, fresh);
        (self.request, self.returns, self.met_before) = (before.request, before.returns, before.met_before);
        (self.stored, self.told) = (before.stored, before.told);
    }

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
        self.conns.iter().any(|c| (c.up || c.away) && c.lender == lender)
    }

    /// A connection has been made.
    pub(crate) fn join(&mut self, wire: usize, room: BasePages, sim: &mut Sim) {
        let lender = sim.wires[wire].lender;
        sim.log(|| format!("borrower {}: joins lender {lender} as wire {wire}, room {}", self.index, room.0));
        let index = usize::from(self.borrower.handle_lender_joined(room).0);
        let site = sim
            .settings
            .cache
            .as_ref()
            .map_or_else(|| Site { machine: lender as u32, ..Site::default() }, |c| c.site(lender));
        self.borrower.handle_lender_site(LenderIndex(index as u8), site);
        let before = self.conns.get(index);
        assert!(
            before.is_none_or(|conn| !conn.up && !conn.away) && index <= self.conns.len(),
            "two lenders have one name"
        );
        // What comes late is told from what is new.
        let request = before.map_or(0, |conn| conn.request);
        let met_before = !self.met.insert(lender);
        let conn = Conn { request, met_before, ..Conn::new(wire, lender, site, sim.now) };
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

    /// Loses lenders that owe an answer for too long.
    pub(crate) fn look_for_silence(&mut self, sim: &mut Sim) {
        self.looks = false;
        let hears = |conn: &Conn| conn.up && !sim.is_cut(self.index, conn.lender);
        let heard: Vec<bool> = self.conns.iter().map(hears).collect();
        let mut owed = false;
        for n in 0..self.conns.len() {
            let conn = &mut self.conns[n];
            if !conn.up || conn.open.is_empty() {
                continue;
            }
            owed = true;
            if sim.settings.cache.is_some() && sim.settings.replicas > 1 && heard[n] {
                conn.quiet_since = sim.now; // it is slow, but it answers pings
            }
            // One of several may be lost; if none of the others is heard it may be the network, or this machine.
            let others = sim.settings.cache.is_some()
                && sim.settings.replicas > 1
                && heard.iter().enumerate().any(|(other, &heard)| heard && other != n);
            let patience = if sim.settings.disk || others { SILENCE_UNDER_DISK } else { SILENCE_UNDER_NONE };
            if sim.now - conn.quiet_since > patience {
                self.lender_broke(n, "it has not answered", sim);
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
