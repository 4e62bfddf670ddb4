//! Userfaultfd events, read and dealt with in the live agent's order: changes first, with the hand at rest, then faults.

use super::hand::Hand;
use super::kernel::{Fault, Uevent};
use super::seat::{Seat, WaitingCall};
use super::sim::{SeatEvent, Sim};
use loam_core::borrower::{BaseRange, BaseState, SpaceKey};
use loam_core::units::Duration;

impl Seat {
    /// There is something to read: takes some of it, changes and faults.
    pub(crate) fn read_events(&mut self, key: u32, sim: &mut Sim) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.reading = false;
        let mut most = sim.dice.pick(&[1, 4, 64]);
        while most > 0
            && let Some(fault) = process.faults.pop_front()
        {
            process.read.push_back(Uevent::Fault(fault));
            most -= 1;
        }
        let mut read = Vec::new();
        while most > 0
            && let Some(raised) = process.raised.pop_front()
        {
            process.read.push_back(raised.event);
            read.push(raised.thread);
            most -= 1;
        }
        if !read.is_empty()
            && let Some(hand) = &mut process.hand
        {
            hand.epoch += 1;
        }
        let more = !process.faults.is_empty() || !process.raised.is_empty();
        for thread in read {
            self.was_read(key, thread, sim); // whoever made the change goes on
        }
        if more {
            self.ring_agent(SpaceKey(key), sim);
        }
        self.deal_with_events(key, sim);
    }

    pub(crate) fn deal_with_events(&mut self, key: u32, sim: &mut Sim) {
        let mut changed = false;
        loop {
            let Some(process) = self.processes.get_mut(&key) else { return };
            match process.read.iter().position(|e| !matches!(e, Uevent::Fault(_))) {
                Some(at) => {
                    if !self.put_hand_to_rest(key, sim) {
                        return;
                    }
                    let process = self.processes.get_mut(&key).expect("looked at above");
                    let event = process.read.remove(at).expect("its place was just found");
                    self.change(key, event, sim);
                    changed = true;
                    self.let_go_on(key, sim);
                }
                None => match process.read.pop_front() {
                    Some(Uevent::Fault(Fault { base, writes, by_hand })) => {
                        let kind = if writes { "write" } else { "fault" };
                        sim.log(|| format!("borrower {}: {kind} at {key}:{base}", self.index));
                        if writes {
                            self.borrower.handle_write(sim.now, SpaceKey(key), base, by_hand);
                            continue;
                        }
                        // The hand waits for no batch behind its order that is to take this very page.
                        let is_to_leave =
                            by_hand && self.borrower.state(SpaceKey(key), base) == BaseState::Leaving;
                        if is_to_leave {
                            self.put_hand_to_rest(key, sim);
                        }
                        self.borrower.handle_fault(sim.now, SpaceKey(key), base);
                        if by_hand {
                            self.borrower.handle_wanted(sim.now, SpaceKey(key), base);
                        }
                        if is_to_leave {
                            self.let_go_on(key, sim);
                        }
                    }
                    _ => break,
                },
            }
        }
        if changed {
            self.remember_copies(key);
        }
        self.drain(sim);
    }

    fn change(&mut self, key: u32, event: Uevent, sim: &mut Sim) {
        sim.log(|| format!("borrower {}: deals with {event:?} of {key}", self.index));
        let space = SpaceKey(key);
        match event {
            Uevent::Fault(_) => unreachable!("faults are dealt with by the caller"),
            Uevent::Remove(range) => self.borrower.handle_removed(sim.now, space, range),
            Uevent::Unmap(range) => {
                self.borrower.handle_unmapped(sim.now, space, range);
                let process = self.processes.get_mut(&key).expect("still there");
                process.released.retain(|r| r.intersect(range).is_empty());
            }
            Uevent::Remap { from, to } => self.borrower.handle_remapped(sim.now, space, from, to),
            Uevent::Fork(child) => {
                self.borrower.handle_forked(sim.now, space, child);
                let released = self.processes[&key].released.clone();
                let made = self.processes.get_mut(&child.0).expect("the kernel made it");
                made.known = true;
                made.released = released;
                self.remember_copies(child.0);
                let delay = sim.dice.delay(Duration::from_micros(200));
                self.after(delay, SeatEvent::HandCame { process: child.0 }, sim);
                self.ring_agent(child, sim);
            }
        }
    }

    /// A forked child's hand.
    pub(crate) fn hand_came(&mut self, key: u32, sim: &mut Sim) {
        let Some(process) = self.processes.get_mut(&key).filter(|p| !p.ended) else { return };
        process.hand = Some(Hand::default());
        self.borrower.handle_hand(SpaceKey(key));
        self.drain(sim);
    }

    pub(crate) fn let_go_on(&mut self, key: u32, sim: &mut Sim) {
        self.borrower.handle_rest(sim.now, SpaceKey(key), false);
        self.retry = true; // installs were held back meanwhile
        self.drain(sim);
    }

    /// A process has ended.
    pub(crate) fn process_gone(&mut self, key: u32, sim: &mut Sim) {
        let Some(process) = self.processes.get(&key) else { return };
        let space = SpaceKey(key);
        if process.has_undealt_changes() {
            self.borrower.handle_rest(sim.now, space, true);
            self.drain(sim);
            self.take_last(key, sim);
            while let Some(event) = self.processes.get_mut(&key).and_then(|p| p.read.pop_front()) {
                if !matches!(event, Uevent::Fault(_)) {
                    self.change(key, event, sim);
                    self.drain(sim);
                }
            }
        }
        let batches = self.take_batches(key);
        self.processes.remove(&key);
        self.borrower.handle_space_gone(sim.now, space);
        for (batch, _) in batches {
            self.cancel_batch(batch, sim);
        }
        self.calls.retain(|call| call.process != key);
        self.drain(sim);
    }

    /// The agent looks at the mappings, and adopts what is not adopted.
    pub(crate) fn adopt(&mut self, sim: &mut Sim) {
        let keys: Vec<u32> = self.processes.keys().copied().collect();
        for key in keys {
            let process = self.processes.get_mut(&key).expect("just listed");
            // What is adopted during a change may or may not be a child's, too: later, then.
            if process.is_changing() || process.ended || !process.known || process.hand.is_none() {
                continue;
            }
            let space = SpaceKey(key);
            let adopted = self.borrower.ranges(space);
            for arena in process.runs(0..process.pages.len(), |p| p.mapped) {
                let free = |base: u64| {
                    !adopted.iter().any(|r| r.contains(base))
                        && !process.released.iter().any(|r| r.contains(base))
                };
                let mut bases = (arena.start..arena.end).filter(|&b| free(b)).peekable();
                while let Some(first) = bases.next() {
                    let mut end = first + 1;
                    while bases.next_if_eq(&end).is_some() {
                        end += 1;
                    }
                    let range = BaseRange::new(first, end);
                    let span = process.index_of(first).expect("mapped");
                    let span = span..span + range.len() as usize;
                    process.pages[span.clone()].iter_mut().for_each(|p| p.registered = true);
                    let present = process.runs(span, |p| p.present.is_some());
                    sim.log(|| format!("borrower {}: adopts {range:?} of {key}", self.index));
                    self.borrower.handle_adopted(sim.now, space, range, &present);
                }
            }
        }
        self.drain(sim);
    }

    /// A thread asks for a range to be given back for good.
    pub(crate) fn take_call(&mut self, call: WaitingCall, sim: &mut Sim) {
        self.borrower.handle_evictable(sim.now, SpaceKey(call.process), false);
        self.drain(sim);
        self.calls.push(call);
        self.answer_calls(sim);
    }

    /// Brings home what waiting calls need, and answers those that have it.
    pub(crate) fn answer_calls(&mut self, sim: &mut Sim) {
        if self.calls.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.calls);
        let mut answered = Vec::new();
        waiting.retain_mut(|call| {
            let is_answered = self.try_answer(call, sim);
            if is_answered {
                answered.push(call.process);
            }
            !is_answered
        });
        waiting.append(&mut self.calls);
        self.calls = waiting;
        for process in answered {
            if !self.calls.iter().any(|call| call.process == process) {
                self.borrower.handle_evictable(sim.now, SpaceKey(process), true);
            }
        }
        self.drain(sim);
    }

    fn try_answer(&mut self, call: &mut WaitingCall, sim: &mut Sim) -> bool {
        let (key, space) = (call.process, SpaceKey(call.process));
        let Some(process) = self.processes.get(&key).filter(|p| !p.ended) else { return true };
        if process.is_changing() || !self.put_hand_to_rest(key, sim) {
            return false;
        }
        self.let_go_on(key, sim);
        loop {
            let goes_on = self.borrower.bring_home(sim.now, space, &mut call.home);
            self.drain(sim);
            if self.borrower.is_home_again(space, &mut call.home) {
                break;
            }
            if !goes_on {
                return false;
            }
        }
        let range = call.home.range();
        let adopted = self.borrower.ranges(space);
        for part in adopted.into_iter().map(|r| r.intersect(range)).filter(|r| !r.is_empty()) {
            let process = self.processes.get_mut(&key).expect("looked at above");
            for base in part.start..part.end {
                if let Some(page) = process.page(base) {
                    (page.registered, page.protected) = (false, false); // UFFDIO_UNREGISTER lets writers write
                }
            }
            self.wake(space, part.start, part.len(), sim);
            self.borrower.handle_unmapped(sim.now, space, part);
        }
        let process = self.processes.get_mut(&key).expect("looked at above");
        process.released.push(range);
        process.threads[call.thread].waits = super::kernel::Waits::Nothing;
        process.threads[call.thread].scheduled = true;
        self.drain(sim);
        self.after(super::seat::WAKE, SeatEvent::Thread { process: key, thread: call.thread }, sim);
        true
    }
}
