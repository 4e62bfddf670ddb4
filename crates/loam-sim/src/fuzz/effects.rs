//! Carrying out what the policy decides, as the live agent does: neighbouring installs are held back and go in one call.

use super::seat::Seat;
use super::sim::{FailureKind, Sabotage, SeatEvent, Sim};
use loam_core::borrower::{
    BaseRange, BufferIndex, Effect, InstallOutcome, InstallSource, PutAnswer, SpaceKey,
};
use loam_core::ids::Urgency;
use loam_core::units::{Duration, EXTENT_BASE_PAGES};

/// What is done with protected pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Protect,
    Release,
    Look,
}

/// An install that may still grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    space: SpaceKey,
    base: u64,
    pages: u32,
    from: InstallSource,
}

fn follows(from: InstallSource, after: u32, next: InstallSource) -> bool {
    match (from, next) {
        (InstallSource::Zero, InstallSource::Zero) => true,
        (InstallSource::Buffer(a), InstallSource::Buffer(b)) => a.0 + after == b.0,
        (InstallSource::Arrived(a), InstallSource::Arrived(b)) => a + after == b,
        _ => false,
    }
}

impl Seat {
    /// Carries out every effect that waits.
    pub(crate) fn drain(&mut self, sim: &mut Sim) {
        loop {
            match self.borrower.poll_effect() {
                Some(Effect::Install { space, base, pages, source }) => {
                    self.hold_install(space, base, pages, source, sim);
                }
                Some(effect) => {
                    self.install_held(sim);
                    self.carry_out(effect, sim);
                }
                None if self.held.is_some() => self.install_held(sim),
                None if self.submit_disk(sim) => {}
                None => break,
            }
        }
        while self.borrower.poll_latency().is_some() {}
        self.flush_soon(sim);
        self.set_timeout(sim);
        if self.borrower.has_plans() && !self.plans_come {
            self.plans_come = true;
            let delay = sim.dice.delay(Duration::from_micros(5));
            self.after(delay, SeatEvent::Plans, sim);
        }
        // One try at a time, as the agent's loop has it.
        if self.retry && !self.retry_comes {
            self.retry = false;
            self.retry_comes = true;
            let delay = sim.dice.delay(Duration::from_micros(5));
            self.after(delay, SeatEvent::Retry, sim);
        }
    }

    fn carry_out(&mut self, effect: Effect, sim: &mut Sim) {
        let index = self.index;
        sim.log(|| format!("borrower {index}: {effect:?}"));
        match effect {
            Effect::Install { .. } => unreachable!("held by the caller"),
            Effect::Evict(batch) => self.order_eviction(batch, sim),
            Effect::Populate { space, base, pages } => self.order_populate(space, base, pages, sim),
            Effect::Wake { space, base, pages } => {
                if sim.sabotage != Sabotage::NeverWakes {
                    self.wake(space, base, u64::from(pages), sim);
                }
            }
            Effect::Unprotect { .. } if sim.sabotage == Sabotage::NeverLetsWrite => {}
            Effect::Protect { space, base, pages } => self.guard(space, (base, pages, Guard::Protect), sim),
            Effect::Unprotect { space, base, pages } => self.guard(space, (base, pages, Guard::Release), sim),
            Effect::LookForOwn { space, base, pages } => self.guard(space, (base, pages, Guard::Look), sim),
            Effect::Get { lender, copy, version, urgency, .. } => {
                if let Some(conn) = self.conn(lender) {
                    match urgency {
                        Urgency::Waited => conn.gets.push((copy, version)),
                        Urgency::Behind => conn.gets_behind.push((copy, version)),
                    }
                }
            }
            Effect::Hurry { lender, copy, version } => {
                if let Some(conn) = self.conn(lender) {
                    conn.hurry((copy, version));
                }
            }
            Effect::Spare { lender, copy, version } => {
                self.may_send_again((copy, version));
                if let Some(conn) = self.conn(lender) {
                    conn.spared.insert((copy, version));
                    conn.spares.push((copy, version));
                }
            }
            Effect::Put { lender, copy, version, hash, buffer, class } => {
                self.count_sent((copy, version), sim);
                if sim.sabotage == Sabotage::SkipsMending && self.harmed.get(&copy) == Some(&version) {
                    return self.borrower.handle_put_answer(
                        sim.now,
                        lender,
                        copy,
                        version,
                        PutAnswer::Stored,
                    );
                }
                if let Some(conn) = self.conn(lender) {
                    conn.puts.push(super::sim::Sent { copy, version, hash, buffer, value: 0, class });
                }
            }
            Effect::Drop { lender, copy, version } => {
                let skips = sim.sabotage == Sabotage::NeverDrops;
                let page = (copy, version);
                self.may_send_again(page);
                if let Some(conn) = self.conns.get_mut(usize::from(lender.0)).filter(|_| !skips) {
                    conn.stored.remove(&page);
                    conn.told.remove(&page);
                    conn.spared.remove(&page);
                }
                if let Some(conn) = self.conn(lender).filter(|_| !skips) {
                    conn.drops.push((copy, version));
                }
            }
            Effect::Hold { tag, buffer } => self.fill(buffer, self.payload[tag as usize]),
            Effect::WriteDisk { copy, buffer } => self.disk.writes.push((copy, buffer)),
            Effect::ReadDisk { copy, version, buffer } => self.disk.reads.push((copy, version, buffer)),
            Effect::Lost { space, base } => {
                if !self.is_really_lost(space, base, sim) {
                    sim.fail(FailureKind::WrongBytes, || {
                        format!(
                            "borrower {index}: ended for page {base} of {space:?}, which no fault has taken"
                        )
                    });
                }
                self.end(format!("page {base} of {space:?} is lost"), sim);
            }
        }
    }

    /// `UFFDIO_WRITEPROTECT` of what is there, which the kernel refuses while mappings change; or a look at who has which frame.
    fn guard(&mut self, space: SpaceKey, call: (u64, u32, Guard), sim: &mut Sim) {
        let refused =
            self.processes.get(&space.0).is_some_and(|p| !p.raised.is_empty() && call.2 != Guard::Look);
        if refused || self.put_off.contains_key(&space) || (!sim.quiet && sim.dice.once_in(8)) {
            self.put_off.entry(space).or_default().push_back(call);
            self.retry = true;
            return;
        }
        let (base, pages, guard) = call;
        let Some(process) = self.processes.get_mut(&space.0) else { return };
        for base in base..base + u64::from(pages) {
            let Some(page) = process.page(base).filter(|page| page.registered && page.present.is_some())
            else {
                continue;
            };
            match guard {
                Guard::Protect => page.protected = true,
                Guard::Release => page.protected = false,
                Guard::Look if page.exclusive => {
                    self.borrower.handle_own(space, BaseRange::new(base, base + 1))
                }
                Guard::Look => {}
            }
        }
        if guard == Guard::Release {
            self.wake(space, base, u64::from(pages), sim);
        }
    }

    /// What was put off, in order.
    pub(crate) fn guard_again(&mut self, sim: &mut Sim) {
        for (space, calls) in std::mem::take(&mut self.put_off) {
            calls.into_iter().for_each(|call| self.guard(space, call, sim));
        }
    }

    /// Contents for a buffer.
    pub(crate) fn fill(&mut self, buffer: BufferIndex, value: u64) {
        self.buffers[buffer.0 as usize] = value;
    }

    fn hold_install(&mut self, space: SpaceKey, base: u64, pages: u32, from: InstallSource, sim: &mut Sim) {
        if let Some(run) = &mut self.held {
            let adjacent = run.space == space && run.base + u64::from(run.pages) == base;
            let fits = (run.pages + pages) as usize <= EXTENT_BASE_PAGES;
            if adjacent && fits && follows(run.from, run.pages, from) {
                run.pages += pages;
                return;
            }
        }
        self.install_held(sim);
        self.held = Some(Run { space, base, pages, from });
    }

    /// Installs what is held, and reports how it went.
    fn install_held(&mut self, sim: &mut Sim) {
        let Some(run) = self.held.take() else { return };
        let index = self.index;
        let mut reported = 0;
        let mut done = 0;
        while done < run.pages {
            let outcome = self.install(&run, done, sim);
            sim.log(|| {
                format!(
                    "borrower {index}: install {} at {}:{} {outcome:?}",
                    source(run.from, done),
                    run.space.0,
                    run.base + u64::from(done)
                )
            });
            if outcome == InstallOutcome::Done {
                done += 1;
                continue;
            }
            // As UFFDIO_COPY does: what went well before is told first.
            self.installed(&run, reported, done - reported, InstallOutcome::Done, sim);
            let refused = if outcome == InstallOutcome::Again { run.pages - done } else { 1 };
            self.installed(&run, done, refused, outcome, sim);
            done += refused;
            reported = done;
        }
        self.installed(&run, reported, done - reported, InstallOutcome::Done, sim);
    }

    fn installed(&mut self, run: &Run, first: u32, pages: u32, outcome: InstallOutcome, sim: &mut Sim) {
        if pages == 0 {
            return;
        }
        let base = run.base + u64::from(first);
        if outcome == InstallOutcome::Done {
            self.wake(run.space, base, u64::from(pages), sim);
        }
        self.borrower.handle_installed(sim.now, run.space, base, pages, outcome);
    }

    /// `UFFDIO_COPY` of one page.
    fn install(&mut self, run: &Run, nth: u32, sim: &mut Sim) -> InstallOutcome {
        let base = run.base + u64::from(nth);
        let value = match run.from {
            InstallSource::Zero => 0,
            InstallSource::Buffer(buffer) => self.buffers[(buffer.0 + nth) as usize],
            InstallSource::Arrived(tag) => self.payload[(tag + nth) as usize],
        };
        let Some(process) = self.processes.get_mut(&run.space.0) else { return InstallOutcome::Gone };
        if process.has_undealt_changes() && sim.sabotage != Sabotage::InstallsTooEarly {
            return InstallOutcome::Again; // tried again when the change has been dealt with
        }
        if process.ended {
            return InstallOutcome::Gone;
        }
        if !process.raised.is_empty() {
            self.retry = true;
            return InstallOutcome::Again;
        }
        if self.refuse_installs > 0 && !sim.quiet {
            self.refuse_installs -= 1;
            self.retry = true;
            return InstallOutcome::Again;
        }
        let key = process.key;
        let Some(page) = process.page(base).filter(|p| p.mapped && p.registered) else {
            return InstallOutcome::Gone;
        };
        if page.present.is_some() {
            return InstallOutcome::Exists;
        }
        if !page.may_read(value) {
            let (truth, index) = (page.truth, self.index);
            sim.fail(FailureKind::WrongBytes, || {
                format!("borrower {index}: page {base} of {key:?} gets {value}, it wrote {truth}")
            });
        }
        page.install(value);
        InstallOutcome::Done
    }
}

fn source(from: InstallSource, nth: u32) -> String {
    match from {
        InstallSource::Zero => "zeros".into(),
        InstallSource::Buffer(b) => format!("buffer {}", b.0 + nth),
        InstallSource::Arrived(tag) => format!("arrived {}", tag + nth),
    }
}
