//! Lenders that are gone: for good, or until they come back with what is on their disks.

use super::seat::Seat;
use super::sim::{Event, FailureKind, Sim, ToLender};
use loam_core::borrower::LenderIndex;
use loam_core::units::{BasePages, Duration, Instant};

/// As the live agent's.
const AGAIN: Duration = Duration::from_millis(200);
const RETURNS_MAX: u32 = 16;

impl Seat {
    /// Nothing comes from a lender any more. One that has written pages to its disk may come back with them.
    pub(crate) fn lender_broke(&mut self, n: usize, why: &str, sim: &mut Sim) {
        let Some(cache) = sim.settings.cache.clone().filter(|cache| cache.staged) else {
            return self.lose_lender(n, why, sim);
        };
        let Some(conn) = self.conns.get(n).filter(|c| c.up) else { return };
        if !conn.site.drains || conn.returns >= RETURNS_MAX {
            return self.lose_lender(n, why, sim);
        }
        self.disconnect(n, true, why, sim);
        self.conns[n].away = true;
        let covered = self.covered(sim);
        let lost = self.borrower.handle_lender_away(sim.now, LenderIndex(n as u8));
        self.check_covered(&covered, sim);
        self.check_lost(sim);
        let kept = self.borrower.held_by(LenderIndex(n as u8));
        if lost > BasePages(0) || kept == BasePages(0) {
            self.give_up(n, sim);
            if lost > BasePages(0) {
                self.end(format!("lender {n} alone had {} pages in its memory", lost.0), sim);
            }
        } else {
            let until = sim.now + Duration::from_millis(cache.patience_ms);
            self.try_again(n, until, sim);
        }
        self.drain(sim);
    }

    /// Looks for a lender that is away a little later.
    pub(crate) fn try_again(&self, n: usize, until: Instant, sim: &mut Sim) {
        sim.after(AGAIN, Event::Return { seat: self.index, life: self.life, conn: n, until });
    }

    /// A lender is back, over another connection.
    pub(crate) fn lender_back(&mut self, n: usize, wire: usize, room: BasePages, sim: &mut Sim) {
        sim.log(|| format!("borrower {}: lender {n} is back as wire {wire}, room {}", self.index, room.0));
        let conn = &mut self.conns[n];
        conn.connect(wire, sim.now);
        conn.away = false;
        conn.returns += 1;
        self.borrower.handle_lender_back(sim.now, LenderIndex(n as u8), room);
        self.drain(sim);
    }

    /// A lender is gone for this run, with what it held.
    pub(crate) fn lose_lender(&mut self, n: usize, why: &str, sim: &mut Sim) {
        if self.conns.get(n).is_some_and(|c| c.up) {
            self.disconnect(n, false, why, sim);
            self.give_up(n, sim);
        }
    }

    fn disconnect(&mut self, n: usize, memory_only: bool, why: &str, sim: &mut Sim) {
        let conn = &mut self.conns[n];
        conn.up = false;
        let wire = conn.wire;
        sim.log(|| format!("borrower {}: loses lender {n}: {why}", self.index));
        // The lender sees its end of the connection closed.
        sim.send_to_lender(wire, ToLender::Closed);
        self.loses_places(n, memory_only, sim);
    }

    /// A lender without a connection is given up, with what is on its disk.
    pub(crate) fn give_up(&mut self, n: usize, sim: &mut Sim) {
        self.conns[n].away = false;
        self.loses_places(n, false, sim);
        let covered = self.covered(sim);
        let lost = self.borrower.handle_lender_lost(sim.now, LenderIndex(n as u8));
        self.check_covered(&covered, sim);
        self.check_lost(sim);
        if lost > BasePages(0) {
            let survives = sim.settings.disk || (sim.settings.replicas > 1 && !sim.replicas_may_be_lost());
            // With the write cache it is known exactly who has what.
            if sim.settings.cache.is_none() && survives && sim.harmed_on_disk.is_empty() {
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
}
