//! Faults: waiting for a page, asking for it, its arrival, and the page that leaves for it (section 3.1).

use super::super::account::Part;
use super::super::config::Leaving;
use super::super::controller::Request;
use super::super::pages::{Place, Source};
use super::{Event, Machine, State};
use loam_core::replacement::Order;
use loam_core::units::Instant;

impl Machine<'_> {
    /// A processor touches a page that no node has in its memory for all.
    pub(super) fn fault(&mut self, p: usize, page: u32, now: Instant) {
        let entry = &mut self.pages[page as usize];
        let waits_for = if entry.wanted.is_some() {
            entry.waiters.push(p);
            Part::Transit
        } else if let Place::Leaving(node) = entry.place {
            if self.config.leaving == Leaving::Reclaimed && entry.refused {
                return self.reclaim(p, page, node, now);
            }
            entry.waiters.push(p);
            Part::Fault
        } else {
            entry.wanted = Some(p);
            if self.nodes[p].free == 0 {
                self.nodes[p].wants = Some(page);
                Part::NoFree
            } else {
                self.nodes[p].free -= 1;
                self.ask(page, p, now);
                Part::Fault
            }
        };
        self.processors[p].state = State::Waiting(waits_for);
    }

    /// The node has a frame for a page: it asks for it where it is.
    pub(super) fn ask(&mut self, page: u32, node: usize, now: Instant) {
        let entry = &mut self.pages[page as usize];
        entry.asked = now;
        entry.source = if matches!(entry.place, Place::Ring { .. }) { Source::Ring } else { Source::Disk };
        entry.deferred = entry.place == Place::Copying;
        match entry.place {
            Place::Disk => {
                let comes = self.board.message(now, node, self.io_node(page)) + self.read_overhead;
                self.queue.push(comes, Event::Read { page });
            }
            Place::Ring { writer, place } => self.snoop(page, node, writer, place, now),
            // It is asked for at its disk as soon as it is there.
            Place::Copying => {}
            other => panic!("page {page} is asked for and is {other:?}"),
        }
    }

    pub(super) fn arrived(&mut self, page: u32, version: u32, dirty: bool, now: Instant) {
        let entry = &mut self.pages[page as usize];
        assert_eq!(version, entry.version, "page {page}: what comes is what was written last");
        assert!(
            matches!(entry.place, Place::Disk | Place::Coming),
            "page {page} comes and is {:?}",
            entry.place
        );
        let node = entry.wanted.take().expect("somebody wanted it");
        (entry.place, entry.dirty) = (Place::Memory(node), dirty);
        self.outcome.reads.add(now - entry.asked);
        let of_source = match entry.source {
            Source::Cache => &mut self.outcome.cache_hits,
            Source::ReadAhead => &mut self.outcome.read_ahead,
            Source::Disk => &mut self.outcome.disk_reads,
            Source::Ring => &mut self.outcome.ring_hits,
        };
        of_source.add(now - entry.asked);
        let waiters = std::mem::take(&mut entry.waiters);
        self.nodes[node].order.inserted(page);
        self.processors[node].account.pass(now, Part::Fault);
        self.keep_some_free(node, node, now);
        self.processors[node].state = State::Running;
        let goes_on = self.processors[node].account.until;
        self.queue.push(goes_on, Event::Run(node));
        waiters.into_iter().for_each(|p| self.wake(p, now));
    }

    /// "If the arrival of this page reduces the number of free page frames on the node below the minimum, the operating system uses LRU to pick a page to be
    /// replaced." Frames that will be free when their page is safe count. The processor `p` does the work.
    fn keep_some_free(&mut self, node: usize, p: usize, now: Instant) {
        while self.nodes[node].free + self.nodes[node].leaving < self.config.frames_free_min {
            let page = self.nodes[node].order.victim().expect("a node with few free frames has pages");
            self.shoot_down(page, p);
            let entry = &mut self.pages[page as usize];
            assert_eq!(entry.place, Place::Memory(node), "page {page} is of this node's order");
            if entry.dirty {
                entry.place = Place::Leaving(node);
                (entry.leaves_since, entry.refused) = (now, false);
                entry.swap += 1;
                self.nodes[node].leaving += 1;
                let begins = self.processors[p].account.until;
                self.swap_out(page, node, now, begins);
            } else {
                entry.place = Place::Disk;
                let version = entry.version;
                assert_eq!(self.stored(page), version, "page {page} is clean");
                self.outcome.clean += 1;
                self.free_frame(node, now);
            }
        }
    }

    /// "A TLB-shootdown operation takes place, where all other processors are interrupted and must delete their TLB entries for the page." Who waits is
    /// interrupted in time that it loses anyway.
    fn shoot_down(&mut self, page: u32, p: usize) {
        self.caches.forget(page);
        for (other, processor) in self.processors.iter_mut().enumerate() {
            processor.tlb.forget(page);
            if other != p && processor.state == State::Running {
                processor.interrupts += 1;
            }
        }
        let takes = self.config.cycles(self.config.shootdown_cycles);
        let account = &mut self.processors[p].account;
        account.pass(account.until + takes, Part::Tlb);
    }

    /// A frame of a node is free: its processor may wait for it.
    pub(super) fn free_frame(&mut self, node: usize, now: Instant) {
        let Some(page) = self.nodes[node].wants.take() else {
            self.nodes[node].free += 1;
            return;
        };
        let processor = &mut self.processors[node];
        assert_eq!(processor.state, State::Waiting(Part::NoFree), "it waits for a frame");
        processor.account.pass(now, Part::NoFree);
        processor.state = State::Waiting(Part::Fault);
        self.ask(page, node, now);
    }

    /// A page that its controller has refused is mapped again where it is; another one leaves in its place.
    fn reclaim(&mut self, p: usize, page: u32, node: usize, now: Instant) {
        self.outcome.reclaimed += 1;
        let entry = &mut self.pages[page as usize];
        let swap = entry.swap;
        entry.place = Place::Memory(node);
        let waiters = std::mem::take(&mut entry.waiters);
        self.nodes[node].leaving -= 1;
        self.nodes[node].order.inserted(page);
        let heard = self.board.message(now, node, self.io_node(page));
        self.queue.push(heard, Event::Withdrawn(Request { page, swap, node }));
        self.processors[p].state = State::Running;
        self.keep_some_free(node, p, now);
        let goes_on = self.processors[p].account.until;
        self.queue.push(goes_on.max(now), Event::Run(p));
        waiters.into_iter().for_each(|p| self.wake(p, now));
    }

    /// A page's swap-out has ended: nobody needs its frame any more.
    pub(super) fn swapped_out(&mut self, page: u32, to: Place, now: Instant) {
        let entry = &mut self.pages[page as usize];
        let Place::Leaving(node) = entry.place else { panic!("page {page} leaves and is {:?}", entry.place) };
        entry.place = to;
        self.outcome.swap_outs.add(now - entry.leaves_since);
        let waiters = std::mem::take(&mut entry.waiters);
        self.nodes[node].leaving -= 1;
        self.free_frame(node, now);
        waiters.into_iter().for_each(|p| self.wake(p, now));
    }
}
