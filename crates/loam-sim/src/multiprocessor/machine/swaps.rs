//! Swap-outs of the standard machine: ACK, NACK and OK (section 3.1).

use super::super::board::Board;
use super::super::config::{Leaving, Staging};
use super::super::controller::{Answer, Request};
use super::super::pages::Place;
use super::{Event, Machine};
use loam_core::units::Instant;

impl Machine<'_> {
    /// A dirty page leaves, from `begins` on.
    pub(super) fn swap_out(&mut self, page: u32, node: usize, now: Instant, begins: Instant) {
        if self.config.staging == Staging::None {
            self.send_to_controller(page, node, false, (now, begins));
        } else {
            self.queue_for_ring(page, node, now, begins);
        }
    }

    fn send_to_controller(
        &mut self,
        page: u32,
        node: usize,
        promised: bool,
        (now, begins): (Instant, Instant),
    ) {
        let way = Board::write_way(node, self.io_node(page));
        let comes = self.board.page_from(now, begins, &way);
        let entry = &self.pages[page as usize];
        self.queue.push(comes, Event::Offered { page, version: entry.version, swap: entry.swap, promised });
    }

    pub(super) fn offered(&mut self, page: u32, version: u32, swap: u32, promised: bool, now: Instant) {
        let disk = self.disk_of(page);
        let Place::Leaving(node) = self.pages[page as usize].place else {
            panic!("page {page} cannot be taken back while it is on its way")
        };
        let controller = &mut self.ios[disk].controller;
        let answer = if promised {
            controller.fill(page, version);
            Answer::Ack
        } else {
            controller.offer(Request { page, swap, node }, version)
        };
        let heard = self.board.message(now, self.config.node_of(disk), node);
        if answer == Answer::Ack {
            self.queue.push(heard, Event::Acked { page, swap });
            // A page of the same number may have waited here: a slot that was kept is free again.
            self.room_came(disk, now);
        } else {
            self.outcome.refused += 1;
            self.queue.push(heard, Event::Refused { page, swap });
        }
    }

    pub(super) fn refused(&mut self, page: u32, swap: u32, now: Instant) {
        let entry = &mut self.pages[page as usize];
        assert!(
            entry.swap == swap && matches!(entry.place, Place::Leaving(_)),
            "page {page}: a NACK comes before its OK"
        );
        entry.refused = true;
        if self.config.leaving == Leaving::Reclaimed {
            // Whoever has waited for it can have it back now.
            let waiters = std::mem::take(&mut entry.waiters);
            waiters.into_iter().for_each(|p| self.wake(p, now));
        }
    }

    /// The controller has room for a page that it refused: it is sent again.
    pub(super) fn called_back(&mut self, Request { page, swap, node }: Request, now: Instant) {
        let entry = &mut self.pages[page as usize];
        match entry.place {
            Place::Leaving(_) if entry.swap == swap => {
                entry.refused = false;
                self.send_to_controller(page, node, true, (now, now));
            }
            // It was taken back while the OK was on its way.
            _ => {
                let disk = self.disk_of(page);
                let heard = self.board.message(now, node, self.config.node_of(disk));
                self.queue.push(heard, Event::Released { disk });
            }
        }
    }

    pub(super) fn acked(&mut self, page: u32, swap: u32, now: Instant) {
        assert_eq!(self.pages[page as usize].swap, swap, "page {page}: an ACK of another swap-out");
        self.swapped_out(page, Place::Disk, now);
    }

    pub(super) fn withdrawn(&mut self, request: Request) {
        let disk = self.disk_of(request.page);
        // If it is not among the refused any more, the OK is on its way, and will be answered.
        self.ios[disk].controller.withdraw(request);
    }

    /// A controller has room: first for pages that it refused, or for those on the ring; then the arm.
    pub(super) fn room_came(&mut self, disk: usize, now: Instant) {
        while let Some(request) = self.ios[disk].controller.grant() {
            let heard = self.board.message(now, self.config.node_of(disk), request.node);
            self.queue.push(heard, Event::Ok(request));
        }
        self.drain(disk, now);
        self.kick(disk, now);
    }
}
