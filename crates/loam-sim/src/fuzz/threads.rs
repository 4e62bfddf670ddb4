//! The program's threads: what they touch, and how they change their address space.

use super::kernel::{Fault, Process, Raised, Uevent, Waits};
use super::script::Work;
use super::seat::{Seat, WAKE, WaitingCall};
use super::sim::{FailureKind, SeatEvent, Sim};
use loam_core::borrower::{BaseRange, Homecoming, SpaceKey};
use loam_core::units::Duration;

/// Touches between two looks at the rest of the world.
const TOUCHES: u64 = 12;

enum Touched {
    Done,
    Blocked,
}

impl Seat {
    /// Gives a thread something to do. Whoever is named lives: numbers are taken modulo the living.
    pub(crate) fn give_work(&mut self, process: u64, thread: u64, work: Work, sim: &mut Sim) {
        let living: Vec<u32> =
            self.processes.values().filter(|p| p.known && !p.ended).map(|p| p.key.0).collect();
        let Some(&key) = living.get(process as usize % living.len().max(1)) else { return };
        let process = self.processes.get_mut(&key).expect("it lives");
        let n = thread as usize % process.threads.len();
        process.threads[n].work.push_back(work);
        self.schedule(key, n, sim);
    }

    fn schedule(&mut self, key: u32, n: usize, sim: &mut Sim) {
        let thread = &mut self.processes.get_mut(&key).expect("the caller has it").threads[n];
        if !thread.scheduled && thread.waits == Waits::Nothing && !thread.work.is_empty() {
            thread.scheduled = true;
            let delay = sim.dice.delay(WAKE);
            self.after(delay, SeatEvent::Thread { process: key, thread: n }, sim);
        }
    }

    /// A thread runs for a while.
    pub(crate) fn run_thread(&mut self, key: u32, n: usize, sim: &mut Sim) {
        let Some(process) = self.processes.get_mut(&key).filter(|p| !p.ended) else { return };
        let thread = &mut process.threads[n];
        thread.scheduled = false;
        if thread.waits != Waits::Nothing {
            return;
        }
        let Some(&work) = thread.work.front() else { return };
        let first = thread.done;
        match work {
            Work::Touch { page, count, stride, write, zero } => {
                let pages = process.pages.len() as u64;
                for done in first..count.min(first + TOUCHES) {
                    let at = ((page + done * stride) % pages) as usize;
                    match self.touch(key, n, at, write, zero, sim) {
                        Touched::Done => {}
                        Touched::Blocked => return,
                    }
                    self.thread(key, n).done = done + 1;
                }
                if self.thread(key, n).done >= count {
                    self.finish_work(key, n);
                }
            }
            Work::Discard(page, count) => self.discard(key, n, page, count, sim),
            Work::Unmap(page, count) => self.unmap(key, n, page, count, sim),
            Work::Move(from, to) => self.move_arena(key, n, from, to, sim),
            Work::Grow(arena, count) => {
                let indexes = process.arena(arena);
                let end = indexes.clone().take_while(|&i| process.pages[i].mapped).last();
                if let Some(last) = end {
                    let registered = process.pages[last].registered;
                    for i in last + 1..indexes.end.min(last + 1 + count as usize) {
                        if process.pages[i].mapped {
                            break;
                        }
                        process.pages[i].mapped = true;
                        process.pages[i].registered = registered;
                    }
                }
                self.finish_work(key, n);
            }
            Work::Fork => self.fork(key, n, sim),
            Work::Exit => self.exit(key, sim),
            Work::Release(page, count) => {
                let indexes = process.span(page, count);
                let (first, last) = (process.base_of(indexes.start), process.base_of(indexes.end - 1));
                let range = BaseRange::new(first, last + 1);
                self.thread(key, n).waits = Waits::Answer;
                self.thread(key, n).since = sim.now;
                self.finish_work(key, n);
                self.take_call(WaitingCall { process: key, thread: n, home: Homecoming::new(range) }, sim);
            }
        }
        if self.ended.is_none() && self.processes.get(&key).is_some_and(|p| !p.ended) {
            self.schedule(key, n, sim);
        }
    }

    fn thread(&mut self, key: u32, n: usize) -> &mut super::kernel::Thread {
        &mut self.processes.get_mut(&key).expect("the caller has it").threads[n]
    }

    fn finish_work(&mut self, key: u32, n: usize) {
        let thread = self.thread(key, n);
        thread.work.pop_front();
        thread.done = 0;
    }

    fn touch(&mut self, key: u32, n: usize, at: usize, write: bool, zero: bool, sim: &mut Sim) -> Touched {
        let index = self.index;
        let process = self.processes.get_mut(&key).expect("the caller has it");
        let base = process.base_of(at);
        let page = &mut process.pages[at];
        if !page.mapped {
            return Touched::Done; // it would not touch what it has unmapped
        }
        let Some(value) = page.present else {
            if !page.registered {
                page.install(0);
                return self.touch(key, n, at, write, zero, sim);
            }
            process.threads[n].waits = Waits::Page(base);
            process.threads[n].since = sim.now;
            process.faults.push_back(Fault { base, writes: false, by_hand: false });
            self.ring_agent(SpaceKey(key), sim);
            return Touched::Blocked;
        };
        if page.truth != value {
            let truth = page.truth;
            sim.fail(FailureKind::WrongBytes, || {
                format!("borrower {index}: a thread of {key} reads {value} at {base}, not {truth}")
            });
        }
        if write && page.protected {
            process.threads[n].waits = Waits::Page(base);
            process.threads[n].since = sim.now;
            process.faults.push_back(Fault { base, writes: true, by_hand: false });
            self.ring_agent(SpaceKey(key), sim);
            return Touched::Blocked;
        }
        if write {
            sim.value_last += u64::from(!zero);
            let new = if zero { 0 } else { sim.value_last };
            page.truth = new;
            page.present = Some(new);
            page.exclusive = true; // a copy of its own, if it was shared
            page.written |= page.windows > 0;
        }
        Touched::Done
    }

    /// Raises changes of mappings; the thread waits until they have been read.
    fn raise(&mut self, key: u32, n: usize, events: Vec<Uevent>, sim: &mut Sim) {
        if events.is_empty() {
            return;
        }
        let process = self.processes.get_mut(&key).expect("the caller has it");
        process.threads[n].waits = Waits::Reading(events.len() as u32);
        process.threads[n].since = sim.now;
        let index = self.index;
        for event in events {
            sim.log(|| format!("borrower {index}: process {key} thread {n} raises {event:?}"));
            process.raised.push_back(Raised { event, thread: n });
        }
        self.ring_agent(SpaceKey(key), sim);
    }

    /// A change of this thread has been read: it goes on when all have.
    pub(crate) fn was_read(&mut self, key: u32, n: usize, sim: &mut Sim) {
        let thread = self.thread(key, n);
        let Waits::Reading(left) = thread.waits else { unreachable!("it waits until its events are read") };
        if left > 1 {
            thread.waits = Waits::Reading(left - 1);
            return;
        }
        thread.waits = Waits::Nothing;
        let work = thread.work.front().copied();
        let process = self.processes.get_mut(&key).expect("the caller has it");
        match work {
            Some(Work::Discard(..)) => {
                process.threads[n].waits = Waits::Call;
                // The discard follows its event at once, or as long as the thread is kept from a core.
                let delay = sim.dice.delay(Duration::from_micros(2));
                self.after(delay, SeatEvent::Dropped { process: key, thread: n }, sim);
                return;
            }
            Some(Work::Unmap(page, count)) => {
                let span = process.span(page, count);
                for page in &mut process.pages[span] {
                    page.mapped = true; // fresh memory at the same address
                }
            }
            Some(Work::Fork) => {
                let child = process.threads[n].done as u32;
                if let Some(child) = self.processes.get_mut(&child) {
                    // It runs from here on, whether the agent knows it or not.
                    child.threads[0].waits = Waits::Nothing;
                }
                sim.log(|| format!("process {child} runs"));
            }
            _ => {}
        }
        self.finish_work(key, n);
        self.schedule(key, n, sim);
    }

    fn discard(&mut self, key: u32, n: usize, page: u64, count: u64, sim: &mut Sim) {
        let process = self.processes.get_mut(&key).expect("the caller has it");
        let span = process.span(page, count);
        let runs = process.runs(span.clone(), |p| p.mapped && p.registered);
        let mut dropping = Vec::new();
        for at in span {
            let page = &mut process.pages[at];
            if page.mapped && page.registered {
                if page.windows == 0 {
                    page.written = false;
                }
                page.windows += 1;
                page.also = Some(0);
                dropping.push(at);
            } else if page.mapped {
                // Of a mapping that nobody has registered the kernel drops the pages without a word, in one step.
                page.present = None;
                (page.truth, page.also) = (0, None);
            }
        }
        process.threads[n].dropping = dropping;
        if runs.is_empty() {
            process.threads[n].waits = Waits::Call;
            self.dropped(key, n, sim);
            return;
        }
        self.raise(key, n, runs.into_iter().map(Uevent::Remove).collect(), sim);
    }

    /// The kernel drops the pages of a discard, and its thread goes on.
    pub(crate) fn dropped(&mut self, key: u32, n: usize, sim: &mut Sim) {
        let Some(process) = self.processes.get_mut(&key).filter(|p| !p.ended) else { return };
        for at in std::mem::take(&mut process.threads[n].dropping) {
            // Whatever is there by now: the kernel asks for no second event.
            let page = &mut process.pages[at];
            page.written |= page.windows == 0; // what another thread has moved there since
            page.windows = page.windows.saturating_sub(1);
            if page.present.take().is_some() {
                (page.truth, page.also) = (0, (page.windows > 0).then_some(0));
            } else if page.written {
                page.also = Some(0); // taken away after another thread had written it: either order
            } else {
                (page.truth, page.also) = (0, None);
            }
        }
        process.threads[n].waits = Waits::Nothing;
        self.finish_work(key, n);
        self.schedule(key, n, sim);
    }

    fn unmap(&mut self, key: u32, n: usize, page: u64, count: u64, sim: &mut Sim) {
        let process = self.processes.get_mut(&key).expect("the caller has it");
        let span = process.span(page, count);
        let runs = process.runs(span.clone(), |p| p.mapped && p.registered);
        let quiet = runs.is_empty();
        process.set_mapped(span, quiet);
        if quiet {
            self.finish_work(key, n);
            return;
        }
        self.raise(key, n, runs.into_iter().map(Uevent::Unmap).collect(), sim);
    }

    fn move_arena(&mut self, key: u32, n: usize, from: u64, to: u64, sim: &mut Sim) {
        let process = self.processes.get_mut(&key).expect("the caller has it");
        let (from, to) = (process.arena(from), process.arena(to));
        let mapped = process.pages[from.clone()].iter().take_while(|p| p.mapped).count();
        let registered = process.pages[from.clone()].iter().take(mapped).filter(|p| p.registered).count();
        // mremap moves one mapping.
        if from == to || mapped == 0 || (registered != 0 && registered != mapped) {
            self.finish_work(key, n);
            return;
        }
        let (source, target) = (from.start..from.start + mapped, to.start..to.start + mapped);
        let covered = process.runs(target.clone(), |p| p.mapped && p.registered);
        let mut events: Vec<Uevent> = covered.into_iter().map(Uevent::Unmap).collect();
        for (i, j) in source.clone().zip(target.clone()) {
            process.pages[j] = std::mem::take(&mut process.pages[i]);
            process.pages[j].leave_windows();
        }
        if registered > 0 {
            let first = process.base_of(source.start);
            let range = BaseRange::new(first, first + mapped as u64);
            events.push(Uevent::Remap { from: range, to: process.base_of(target.start) });
        }
        if events.is_empty() {
            self.finish_work(key, n);
        }
        self.raise(key, n, events, sim);
    }

    fn fork(&mut self, key: u32, n: usize, sim: &mut Sim) {
        let most = self.processes.len() >= 5;
        let process = self.processes.get_mut(&key).expect("the caller has it");
        if most {
            self.finish_work(key, n);
            return;
        }
        let child = self.key_next;
        self.key_next += 1;
        let mut made = process.fork(SpaceKey(child));
        made.threads[0].waits = Waits::Call; // until its parent's event has been read
        process.threads[n].done = u64::from(child);
        self.processes.insert(child, made);
        self.raise(key, n, vec![Uevent::Fork(SpaceKey(child))], sim);
    }

    fn exit(&mut self, key: u32, sim: &mut Sim) {
        let others = self.processes.values().filter(|p| p.known && !p.ended).count() > 1;
        let process = self.processes.get_mut(&key).expect("the caller has it");
        // The last one ends with the run. And the kernel takes unread events back, with what they are about.
        if !others || !process.raised.is_empty() {
            for thread in &mut process.threads {
                thread.work.retain(|w| *w != Work::Exit);
            }
            return;
        }
        self.end_process(key, sim);
    }

    /// The kernel ends a process; the agent hears of it a little later.
    pub(crate) fn end_process(&mut self, key: u32, sim: &mut Sim) {
        let process: &mut Process = self.processes.get_mut(&key).expect("the caller has it");
        process.ended = true;
        process.faults.clear();
        process.raised.clear();
        for thread in &mut process.threads {
            thread.work.clear();
            thread.waits = Waits::Nothing;
        }
        let index = self.index;
        sim.log(|| format!("borrower {index}: process {key} ends"));
        let delay = sim.dice.delay(Duration::from_micros(20));
        self.after(delay, SeatEvent::Gone { process: key }, sim);
    }
}
