//! What comes from lenders.

use super::seat::Seat;
use super::sim::{FailureKind, Sim, ToBorrower, ToLender};
use loam_core::borrower::{Arrival, CopyIndex, LenderIndex, PutAnswer, Source};
use loam_core::ids::Version;
use loam_core::units::{BasePages, Instant};

impl Seat {
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
            ToBorrower::Closed => {
                self.lender_broke(n, "its connection broke", sim);
                None
            }
            ToBorrower::Ending => {
                self.lender_broke(n, "it says that it ends", sim);
                None
            }
            ToBorrower::Stored { pages } => {
                sim.log(|| format!("borrower {}: on the disk of lender {n}: {pages:?}", self.index));
                self.lender_stored(n, &pages);
                self.borrower.handle_stored(sim.now, lender, pages.into_iter());
                None
            }
            ToBorrower::Page { request, pages } => self.take_pages(lender, request, &pages, sim),
            ToBorrower::Recall { pages, free } => {
                sim.log(|| format!("borrower {}: lender {n} wants {} pages back", self.index, pages.len()));
                for &page in &pages {
                    self.may_send_again(page);
                }
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
                    if !stored {
                        self.may_send_again((copy, version));
                    }
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
                    self.lender_lacks(n, (copy, version), sim);
                    let covered = self.covered_but(copy, Source::Lender(lender), sim);
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
            let covered = self.covered_but(copy, source, sim);
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
            if sim.settings.cache.is_some() {
                self.lender_lacks(usize::from(lender.0), (copy, version), sim);
            }
            let covered = self.covered_but(copy, Source::Lender(lender), sim);
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
}
