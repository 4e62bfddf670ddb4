//! A processor goes through its touches.

use super::super::account::Part;
use super::super::config::PAGE_BYTES;
use super::super::pages::Place;
use super::{Event, Machine, State};
use crate::workload::parallel::{Touch, TouchKind};
use loam_core::replacement::Order;
use loam_core::units::{Duration, Instant};

impl Machine<'_> {
    /// Touches until something else happens, the page is not here, or the phase is at its end.
    pub(super) fn go_on(&mut self, p: usize, now: Instant) {
        assert_eq!(self.processors[p].account.until, now, "no time is left out");
        loop {
            let interrupts = std::mem::take(&mut self.processors[p].interrupts);
            if interrupts > 0 {
                let takes = self.config.cycles(interrupts * self.config.interrupt_cycles);
                self.spend(p, takes, Part::Tlb);
            }
            let at = self.processors[p].account.until;
            if self.queue.next_at().is_some_and(|next| next < at) {
                self.queue.push(at, Event::Run(p));
                return;
            }
            let processor = &self.processors[p];
            let Some(&touch) = processor.touches.get(processor.next) else { return self.at_barrier(p) };
            let page = (touch.address / PAGE_BYTES) as u32;
            let Place::Memory(home) = self.pages[page as usize].place else { return self.fault(p, page, at) };
            self.processors[p].next += 1;
            self.touch(p, page, home, touch);
        }
    }

    fn spend(&mut self, p: usize, takes: Duration, part: Part) {
        let account = &mut self.processors[p].account;
        account.pass(account.until + takes, part);
    }

    fn touch(&mut self, p: usize, page: u32, home: usize, touch: Touch) {
        debug_assert_eq!((touch.address + u64::from(touch.bytes.max(1)) - 1) / PAGE_BYTES, u64::from(page));
        self.outcome.touches += 1;
        self.nodes[home].order.touched(page);
        if !self.processors[p].tlb.look_up(page) {
            self.outcome.tlb_misses += 1;
            self.spend(p, self.config.cycles(self.config.tlb_miss_cycles), Part::Tlb);
        }
        let write = touch.kind == TouchKind::Write;
        let misses = self.caches.sweep(p, touch.address, touch.bytes, write);
        let busy = self.config.cycles(touch.busy_cycles.into());
        let mut done = self.processors[p].account.until + busy;
        if misses.lines > 0 {
            self.outcome.lines += misses.lines;
            let ready = self.processors[p].account.until;
            let lines = self.board.lines(ready, p, home, misses.lines);
            if write {
                // The write buffer waits in the processor's place, as long as it has room (release consistency).
                let processor = &mut self.processors[p];
                processor.writes_done = processor.writes_done.max(lines.behind);
                let room = Duration(lines.each.0 * self.config.write_buffer_lines);
                done = done.max(ready + (processor.writes_done - (ready + room)));
            } else {
                let stall = (lines.waited_for - ready).0 + misses.elsewhere * self.third_hop.0;
                done = done + Duration(stall);
            }
        }
        self.processors[p].account.pass(done, Part::Others);
        if write {
            let entry = &mut self.pages[page as usize];
            entry.dirty = true;
            entry.version += 1;
        }
    }

    /// A barrier is a release: what the processor has written must be everywhere before.
    fn at_barrier(&mut self, p: usize) {
        let processor = &mut self.processors[p];
        let done = processor.writes_done.max(processor.account.until);
        processor.account.pass(done, Part::Others);
        processor.state = State::Barrier;
        self.at_barrier += 1;
        if self.at_barrier < self.processors.len() {
            return;
        }
        let last =
            self.processors.iter().map(|processor| processor.account.until).max().expect("there is one");
        let leaves = last + self.barrier;
        for processor in &mut self.processors {
            assert_eq!(processor.state, State::Barrier, "all are there");
            processor.account.pass(leaves, Part::Others);
        }
        self.phase += 1;
        if self.phase == self.program.phases() {
            self.ended = Some(leaves);
        } else {
            self.begin_phase(leaves);
        }
    }

    pub(super) fn begin_phase(&mut self, at: Instant) {
        self.at_barrier = 0;
        for (p, processor) in self.processors.iter_mut().enumerate() {
            processor.touches.clear();
            processor.next = 0;
            processor.state = State::Running;
            self.program.run(self.phase, p, &mut processor.touches);
            self.queue.push(at, Event::Run(p));
        }
    }

    /// A processor's wait ends now.
    pub(super) fn wake(&mut self, p: usize, now: Instant) {
        let State::Waiting(part) = self.processors[p].state else { panic!("processor {p} does not wait") };
        self.processors[p].account.pass(now, part);
        self.processors[p].state = State::Running;
        self.queue.push(now, Event::Run(p));
    }
}
