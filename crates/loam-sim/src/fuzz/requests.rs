//! What goes to lenders: collected, and sent in frames.

use super::hand::hash_of;
use super::lenders::LOOK;
use super::seat::Seat;
use super::sim::{SeatEvent, Sim, ToLender};
use loam_core::units::Duration;
use std::collections::BTreeSet;

/// Datagrams: an unanswered request is sent again.
const RESEND: Duration = Duration::from_millis(40);
const PUT_PAGES: usize = 32;
const GET_PAGES: usize = 64;
/// What nobody waits for is answered in pieces.
const BEHIND_PAGES: usize = 16;

impl Seat {
    /// Has what was collected sent, a moment later.
    pub(crate) fn flush_soon(&mut self, sim: &mut Sim) {
        for n in 0..self.conns.len() {
            let conn = &mut self.conns[n];
            let asks = !(conn.gets.is_empty() && conn.gets_behind.is_empty() && conn.hurries.is_empty());
            let gives = !(conn.puts.is_empty() && conn.drops.is_empty() && conn.spares.is_empty());
            let waits = asks || gives;
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
        let spares = std::mem::take(&mut conn.spares);
        if !spares.is_empty() {
            frames.push((BTreeSet::new(), ToLender::Spare { pages: spares }));
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
}
