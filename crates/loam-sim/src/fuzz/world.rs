//! The run: interprets a script, event by event, with the checkers after each.

use super::check;
use super::node::{Fall, Node};
use super::script::{Act, Script};
use super::seat::Seat;
use super::sim::{Event, Failure, FailureKind, Sabotage, SeatEvent, Sim, ToBorrower, ToLender, take_log};
use loam_core::units::{BasePages, Duration, Instant};

/// Once faults have ended every thread is answered within this: the longest patience with a silent lender (20 s), and the
/// longest rest of pages that could not be taken (16 s).
const ANSWERED_WITHIN: Duration = Duration::from_millis(40_000);
/// The phases of a run's end are numbered from 0 to this.
const PHASE_LAST: u32 = 4;
/// What is under way at the end of a program is over after this.
const SETTLED_WITHIN: Duration = Duration::from_millis(25_000);
/// Lenders with stores keep what borrowers have left for so long.
const RETURNED_WITHIN: Duration = Duration::from_millis(100_000);
/// More than any run needs: somebody goes in circles.
const EVENTS_MAX: u64 = 3_000_000;
/// Events between two looks at everything; what is read or installed is checked at once, every time. A look costs as much as some thirty
/// events.
const FULL_CHECK_EVENTS: u64 = 64;
/// Base pages that are asked for behind others at a time: few, so that more can happen in between.
const PLAN_PAGES: u64 = 8;
/// Every so many seeds one is looked at after every event, and so is each that is run again with a log.
const THOROUGH_SEEDS: u64 = 32;

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// What happened, a line each; empty unless it was asked for.
    pub log: String,
    /// Events.
    pub events: u64,
    /// Base pages that left.
    pub moved: u64,
    /// Faults answered, in the order of `FaultKind`.
    pub answered: [u64; 5],
    /// Programs that were ended for a page that an injected fault had taken.
    pub lost_runs: u64,
}

/// Runs a script.
pub fn run(script: &Script, log: bool, sabotage: Sabotage) -> Outcome {
    drop(take_log());
    World::new(script, log, sabotage).run()
}

struct World<'a> {
    script: &'a Script,
    sim: Sim,
    seats: Vec<Seat>,
    nodes: Vec<Node>,
    events: u64,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(script: &'a Script, log: bool, sabotage: Sabotage) -> Self {
        let s = &script.settings;
        let sim = Sim::new(script.seed, s, log, sabotage);
        let nodes = (0..s.lenders as usize).map(|i| Node::new(i, &sim)).collect();
        let seats = (0..s.seats as usize).map(|i| Seat::new(i, 0, s)).collect();
        Self { script, sim, seats, nodes, events: 0, outcome: Outcome::default() }
    }

    fn run(mut self) -> Outcome {
        self.sim.log(|| format!("seed {}: {:?}", self.script.seed, self.script.settings));
        for seat in 0..self.seats.len() {
            self.start(seat);
        }
        for (i, action) in self.script.actions.iter().enumerate() {
            self.sim.queue.push(action.at, Event::Act(i));
        }
        let thorough = self.sim.logs || self.script.seed.is_multiple_of(THOROUGH_SEEDS);
        self.sim.queue.push(self.script.quiet_at, Event::Phase(0));
        while self.sim.failure.is_none()
            && let Some((now, event)) = self.sim.queue.pop()
        {
            self.sim.now = now;
            self.events += 1;
            self.handle(event);
            self.restart_ended();
            // With a log, failures are to be told where they happen.
            if thorough || self.events.is_multiple_of(FULL_CHECK_EVENTS) {
                check::everything(&mut self.seats, &mut self.sim);
            }
            if self.events > EVENTS_MAX {
                self.sim.fail(FailureKind::Liveness, || "the run goes in circles".into());
            }
        }
        for seat in 0..self.seats.len() {
            self.book(seat);
        }
        self.outcome.events = self.events;
        self.outcome.failure = self.sim.failure.take();
        self.outcome.log = take_log();
        self.outcome.lost_runs = self.sim.lost_runs;
        self.outcome
    }

    fn book(&mut self, seat: usize) {
        let stats = self.seats[seat].borrower.stats();
        self.outcome.moved += stats.moved;
        for (sum, n) in self.outcome.answered.iter_mut().zip(stats.answered) {
            *sum += n;
        }
    }

    /// A borrower's run begins: it connects to the lenders that it knows and that are up.
    fn start(&mut self, seat: usize) {
        for lender in 0..self.script.settings.known as usize {
            self.join(seat, lender);
        }
        self.seats[seat].drain(&mut self.sim);
    }

    fn join(&mut self, seat: usize, lender: usize) {
        let node = &mut self.nodes[lender];
        if !node.up || self.sim.is_cut(seat, lender) || self.seats[seat].is_connected(lender) {
            return;
        }
        let wire = self.sim.connect(seat, self.seats[seat].life, lender, node.life);
        let room = node.open(wire, &mut self.sim).expect("a simulated lender has few borrowers");
        self.seats[seat].join(wire, room, &mut self.sim);
        self.seats[seat].drain(&mut self.sim);
    }

    /// A borrower tries to reach a lender that is away.
    fn look_for(&mut self, seat: usize, conn: usize, until: Instant) {
        let Some(lender) = self.seats[seat].conns.get(conn).filter(|c| c.away).map(|c| c.lender) else {
            return;
        };
        if self.nodes[lender].up && !self.sim.is_cut(seat, lender) {
            let wire = self.sim.connect(seat, self.seats[seat].life, lender, self.nodes[lender].life);
            let room =
                self.nodes[lender].open(wire, &mut self.sim).expect("a simulated lender has few borrowers");
            self.seats[seat].lender_back(conn, wire, room, &mut self.sim);
        } else if self.sim.now < until {
            self.seats[seat].try_again(conn, until, &mut self.sim);
        } else {
            self.seats[seat].give_up(conn, &mut self.sim);
        }
    }

    /// A run that could not go on is over; its place is taken by a new one.
    fn restart_ended(&mut self) {
        for seat in 0..self.seats.len() {
            if self.seats[seat].ended.is_some() {
                self.sim.lost_runs += 1;
                self.restart(seat);
            }
        }
    }

    fn restart(&mut self, seat: usize) {
        self.book(seat);
        self.seats[seat].hang_up(&mut self.sim);
        self.seats[seat] = Seat::new(seat, self.seats[seat].life + 1, &self.script.settings);
        self.start(seat);
    }

    fn handle(&mut self, event: Event) {
        let sim = &mut self.sim;
        match event {
            Event::Act(i) => self.act(i),
            Event::Seat { seat, life, event } => {
                if self.seats[seat].life == life {
                    let seat = &mut self.seats[seat];
                    seat_event(seat, event, sim);
                    if seat.ended.is_none() {
                        seat.answer_calls(sim);
                    }
                }
            }
            Event::ToLender { wire, message } => {
                let w = &sim.wires[wire];
                let dead = w.dead && !matches!(message, ToLender::Closed);
                let same = w.lender_life == self.nodes[w.lender].life || sim.settings.datagram;
                if !dead && same {
                    self.nodes[sim.wires[wire].lender].receive(wire, message, sim);
                }
            }
            Event::ToBorrower { wire, message } => {
                let w = &sim.wires[wire];
                let dead = w.dead && !matches!(message, ToBorrower::Closed);
                if !dead && self.seats[w.seat].life == w.life {
                    let seat = &mut self.seats[w.seat];
                    seat.receive(wire, message, sim);
                    if seat.ended.is_none() {
                        seat.answer_calls(sim);
                    }
                }
            }
            Event::Serve { lender, life, job } => {
                if self.nodes[lender].life == life {
                    self.nodes[lender].serve(job, sim);
                }
            }
            Event::LenderClock { lender, life } => {
                if self.nodes[lender].life == life {
                    self.nodes[lender].tick(sim);
                }
            }
            Event::Released { lender, life, run } => {
                if self.nodes[lender].life == life {
                    self.nodes[lender].core.released(run);
                }
            }
            Event::Store { lender, life, event } => {
                if self.nodes[lender].life == life {
                    self.nodes[lender].store_event(event, sim);
                }
            }
            Event::Return { seat, life, conn, until } => {
                if self.seats[seat].life == life {
                    self.look_for(seat, conn, until);
                }
            }
            Event::LenderUp { lender } => self.nodes[lender].rises(sim),
            Event::Uncut { seat, lender } => {
                if !sim.is_cut(seat, lender) {
                    sim.log(|| format!("the network between borrower {seat} and lender {lender} is whole"));
                    sim.uncut(seat, lender);
                }
            }
            Event::Phase(phase) => self.phase(phase),
        }
    }

    fn act(&mut self, i: usize) {
        let action = self.script.actions[i];
        let index = action.seat as usize;
        self.sim.log(|| format!("-- {:?} at borrower {index}", action.act));
        let now = self.sim.now;
        let until = |us: u64| Instant((now + Duration::from_micros(us)).0.min(self.script.quiet_at.0));
        let sim = &mut self.sim;
        let seat = &mut self.seats[index];
        match action.act {
            Act::Work { process, thread, work } => seat.give_work(process, thread, work, sim),
            Act::Adopt => seat.adopt(sim),
            Act::Limit(pages) => {
                seat.borrower.handle_limit(now, BasePages(pages));
                seat.borrower.handle_sharing_broken(now);
                seat.drain(sim);
            }
            Act::Pin(process, page, count, us) | Act::Deny(process, page, count, us) => {
                let n = process as usize % seat.processes.len();
                let process = seat.processes.values_mut().nth(n).expect("taken modulo their number");
                let span = process.span(page, count);
                for page in &mut process.pages[span] {
                    match action.act {
                        Act::Pin(..) => page.pinned_until = until(us),
                        _ => page.denied_until = until(us),
                    }
                }
            }
            Act::RefuseInstalls(n) => seat.refuse_installs = n,
            Act::StallAgent(us) => seat.stalled_until = until(us),
            Act::StallHand(process, us) => {
                let n = process as usize % seat.processes.len();
                let process = seat.processes.values_mut().nth(n).expect("taken modulo their number");
                if let Some(hand) = &mut process.hand {
                    hand.stalled_until = until(us);
                }
            }
            Act::CrashBorrower => self.restart(index),
            Act::Reset(lender) => seat.reset(lender as usize, sim),
            Act::Cut(lender, us) => {
                let end = until(us).max(now);
                sim.cut[index][lender as usize] = end;
                sim.queue.push(end, Event::Uncut { seat: index, lender: lender as usize });
            }
            Act::Join(lender) => self.join(index, lender as usize),
            Act::Weights(weights, min_age) => seat.weigh(Some((weights, Duration(min_age))), sim),
            Act::WeightsUnknown => seat.weigh(None, sim),
            Act::CrashLender(lender, us) | Act::PowerLoss(lender, us) | Act::EndLender(lender, us) => {
                let how = match action.act {
                    Act::PowerLoss(..) => Fall::Power,
                    Act::EndLender(..) => Fall::Ends,
                    _ => Fall::Killed,
                };
                let node = &mut self.nodes[lender as usize];
                if node.up {
                    node.fall(how, sim);
                    sim.queue.push(until(us).max(now), Event::LenderUp { lender: lender as usize });
                }
            }
            Act::Store(lender, fault, us) => {
                if let Some(store) = &mut self.nodes[lender as usize].store {
                    store.fault = Some((fault, until(us)));
                }
            }
            Act::Rot(lender, pages) => self.nodes[lender as usize].rot(pages, sim),
            Act::Lie(lender, lie, us) => self.nodes[lender as usize].lie = Some((lie, until(us))),
            Act::Lend(lender, pages) => self.nodes[lender as usize].lend(pages, sim),
            Act::Disk(fault, us) => seat.disk.fault = Some((fault, until(us))),
        }
    }

    /// The quiet end: nothing is injected any more; everybody is answered, everything is read, everything comes back.
    fn phase(&mut self, phase: u32) {
        let returned = if self.sim.settings.cache.is_some() { RETURNED_WITHIN } else { SETTLED_WITHIN };
        let lasts = match phase {
            // There was much to do, and it goes on; whoever goes in circles has done too much one day.
            1 | 2 if check::goes_on(&self.seats, &self.sim, ANSWERED_WITHIN) => {
                self.sim.after(ANSWERED_WITHIN, Event::Phase(phase));
                return;
            }
            0 | 1 => ANSWERED_WITHIN,
            2 => SETTLED_WITHIN,
            _ => returned,
        };
        if phase < PHASE_LAST {
            self.sim.after(lasts, Event::Phase(phase + 1));
        }
        let sim = &mut self.sim;
        sim.log(|| format!("-- phase {phase} of the end"));
        match phase {
            0 => {
                sim.quiet = true;
                for node in &mut self.nodes {
                    node.lend(u64::MAX, sim);
                }
                for seat in 0..self.seats.len() {
                    for lender in 0..self.nodes.len() {
                        sim.uncut(seat, lender);
                    }
                }
            }
            1 => {
                check::answered(&self.seats, sim);
                check::mended(&self.seats, &self.nodes, sim);
                for seat in &mut self.seats {
                    seat.read_all(sim);
                }
            }
            2 => {
                check::answered(&self.seats, sim);
                check::everything(&mut self.seats, sim);
                check::mended(&self.seats, &self.nodes, sim);
                for seat in &mut self.seats {
                    let living: Vec<u32> =
                        seat.processes.values().filter(|p| !p.ended).map(|p| p.key.0).collect();
                    for key in living {
                        seat.end_process(key, sim);
                    }
                }
            }
            3 => {
                check::settled(&self.seats, &self.nodes, sim);
                for seat in &mut self.seats {
                    seat.bye(sim);
                }
            }
            _ => check::returned(&self.nodes, sim),
        }
    }
}

fn seat_event(seat: &mut Seat, event: SeatEvent, sim: &mut Sim) {
    match event {
        SeatEvent::Thread { process, thread } => seat.run_thread(process, thread, sim),
        SeatEvent::Dropped { process, thread } => seat.dropped(process, thread, sim),
        SeatEvent::Read { process } => seat.read_events(process, sim),
        SeatEvent::Hand { process } => seat.run_hand(process, sim),
        SeatEvent::HandCame { process } => seat.hand_came(process, sim),
        SeatEvent::Bell { process } => seat.take_bell(process, sim),
        SeatEvent::Gone { process } => seat.process_gone(process, sim),
        SeatEvent::Flush { lender } => seat.flush(lender, sim),
        SeatEvent::Resend { lender, request } => seat.resend(lender, request, sim),
        SeatEvent::DiskDone { operation } => seat.disk_done(operation, sim),
        SeatEvent::Timeout => {
            if seat.timeout_at.is_some_and(|at| at != sim.now) {
                return; // another was wanted since, for an earlier time
            }
            seat.timeout_at = None;
            seat.borrower.handle_timeout(sim.now);
            seat.drain(sim);
        }
        SeatEvent::Retry => {
            seat.retry_comes = false;
            seat.guard_again(sim);
            seat.borrower.handle_retry(sim.now);
            seat.drain(sim);
        }
        SeatEvent::Plans => {
            seat.plans_come = false;
            seat.borrower.handle_plans(sim.now, PLAN_PAGES);
            seat.drain(sim);
        }
        SeatEvent::Look => seat.look_for_silence(sim),
    }
}
