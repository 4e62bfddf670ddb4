//! What every part of a run shares: the clock, the queue, chance, the network's wires, and the verdict.

use super::dice::Dice;
use super::script::Settings;
use super::store::Stored;
use crate::engine::Queue;
use loam_core::borrower::{BufferIndex, CopyIndex};
use loam_core::ids::{PutClass, SpaceId, Version};
use loam_core::lender::SlotRun;
use loam_core::units::{Duration, Instant};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Something that happens. A borrower that was started anew has another `life`: what was meant for the old one is void.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Act(usize),
    Seat {
        seat: usize,
        life: u32,
        event: SeatEvent,
    },
    ToLender {
        wire: usize,
        message: ToLender,
    },
    ToBorrower {
        wire: usize,
        message: ToBorrower,
    },
    /// A lender goes on with what it has begun.
    Serve {
        lender: usize,
        life: u32,
        job: u64,
    },
    LenderClock {
        lender: usize,
        life: u32,
    },
    Released {
        lender: usize,
        life: u32,
        run: SlotRun,
    },
    /// A lender's disk has done something.
    Store {
        lender: usize,
        life: u32,
        event: StoreEvent,
    },
    /// A borrower tries to reach a lender that is gone, by its `LenderIndex`.
    Return {
        seat: usize,
        life: u32,
        conn: usize,
        until: Instant,
    },
    LenderUp {
        lender: usize,
    },
    Uncut {
        seat: usize,
        lender: usize,
    },
    Phase(u32),
}

/// What the disk of a lender has done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreEvent {
    Written(u64),
    Synced,
    Read(u64),
}

/// Something that happens at a borrower.
#[derive(Clone, Debug)]
pub(crate) enum SeatEvent {
    Thread {
        process: u32,
        thread: usize,
    },
    /// The kernel ends a discard.
    Dropped {
        process: u32,
        thread: usize,
    },
    /// The agent reads a descriptor's events.
    Read {
        process: u32,
    },
    Hand {
        process: u32,
    },
    HandCame {
        process: u32,
    },
    Bell {
        process: u32,
    },
    Gone {
        process: u32,
    },
    Flush {
        lender: usize,
    },
    Resend {
        lender: usize,
        request: u64,
    },
    DiskDone {
        operation: u64,
    },
    Timeout,
    Retry,
    Plans,
    Look,
}

/// Frames of a borrower.
#[derive(Clone, Debug)]
pub(crate) enum ToLender {
    Get { request: u64, pages: Vec<(CopyIndex, Version)> },
    Put { request: u64, pages: Vec<Sent> },
    Drop { pages: Vec<(CopyIndex, Version)> },
    Hurry { pages: Vec<(CopyIndex, Version)> },
    Spare { pages: Vec<(CopyIndex, Version)> },
    Bye,
    Closed,
}

/// A page of a putpage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub copy: CopyIndex,
    pub version: Version,
    pub hash: loam_core::ids::ContentHash,
    pub buffer: BufferIndex,
    pub value: u64,
    pub class: PutClass,
}

/// Frames of a lender.
#[derive(Clone, Debug)]
pub(crate) enum ToBorrower {
    Page {
        request: u64,
        pages: Vec<(CopyIndex, Version, u64)>,
    },
    Miss {
        request: u64,
        pages: Vec<(CopyIndex, Version)>,
    },
    Ack {
        request: u64,
        pages: Vec<(CopyIndex, Version, bool)>,
        free: u64,
    },
    Gone {
        pages: Vec<(CopyIndex, Version)>,
        free: u64,
    },
    Recall {
        pages: Vec<(CopyIndex, Version)>,
        free: u64,
    },
    /// These are safe on its disk.
    Stored {
        pages: Vec<(CopyIndex, Version)>,
    },
    /// It ends in good order.
    Ending,
    Closed,
}

/// One connection; on datagrams an association.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub seat: usize,
    pub life: u32,
    pub lender: usize,
    pub lender_life: u32,
    pub space: SpaceId,
    /// Neither end takes anything from it any more.
    pub dead: bool,
    /// The borrower has closed it: what comes late belongs to nobody.
    pub closed: bool,
    last: [Instant; 2],
    held: Vec<(usize, Event)>,
}

/// How a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// A program could read what it never wrote, or was ended for a page that was not lost.
    WrongBytes,
    /// A page had left local memory, and no safe copy of it was left; or it was in two states at once.
    Unsafe,
    /// A thread was not answered in time.
    Liveness,
    /// Something did not come back, or counts disagree.
    Leak,
    /// An assertion failed.
    Assert,
    /// Nodes of a cluster have different views of it.
    Disagreement,
}

/// A failure, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// When.
    pub at: Instant,
    /// What.
    pub what: String,
}

/// A driver that is broken on purpose, to see that the checkers find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Everything as it should be.
    #[default]
    None,
    /// A lender forgets now and then what it has stored, without any fault that would excuse it.
    ForgetfulLender,
    /// The agent takes what arrives for what it asked for.
    IgnoresHash,
    /// The agent says that writes are done which it never began.
    SkipsWrites,
    /// The agent does not wake who waits.
    NeverWakes,
    /// Who waits to write to what is shared with a forked relative waits on.
    NeverLetsWrite,
    /// The agent never tells lenders what they can forget.
    NeverDrops,
    /// The agent installs by what it knew before a change of mappings.
    InstallsTooEarly,
    /// A lender says that its disk has what is written and not synced.
    TellsTooEarly,
    /// The agent says that another lender has what one has lost, and sends it to nobody.
    SkipsMending,
}

/// See the module's documentation.
pub(crate) struct Sim {
    pub settings: Settings,
    pub queue: Queue<Event>,
    pub now: Instant,
    /// Chance for threads and agents, hands, the network, the disks.
    pub dice: Dice,
    pub hand_dice: Dice,
    pub net_dice: Dice,
    pub disk_dice: Dice,
    /// The same for lenders' disks.
    pub store_dice: Dice,
    pub wires: Vec<Wire>,
    /// `cut[seat][lender]`: until when no message passes.
    pub cut: Vec<Vec<Instant>>,
    pub quiet: bool,
    pub value_last: u64,
    /// Contents of which a lender's copy was lost, or not to be had, by a fault that was injected.
    harmed_at_lender: BTreeMap<u64, BTreeSet<usize>>,
    /// The same of disks.
    pub harmed_on_disk: BTreeSet<u64>,
    /// Pages that a lender's disk cannot bring any more, or could not once.
    rotten: BTreeSet<(usize, Stored)>,
    pub failure: Option<Failure>,
    pub logs: bool,
    pub sabotage: Sabotage,
    /// Programs that were ended for a page that was really lost.
    pub lost_runs: u64,
}

thread_local! {
    /// The log of the run of this thread. Not in [`Sim`]: it is wanted most when an assertion fails, and `Sim` is gone by then.
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The log so far; it begins anew.
pub(crate) fn take_log() -> String {
    LOG.take()
}

/// Something has happened.
pub(crate) fn log_line(now: Instant, line: &str) {
    let (ms, ns) = (now.0 / 1_000_000, now.0 % 1_000_000);
    LOG.with_borrow_mut(|log| log.push_str(&format!("{ms:>7}.{ns:06} ms  {line}\n")));
}

const WIRE: Duration = Duration::from_micros(40);

impl Sim {
    pub(crate) fn new(seed: u64, settings: &Settings, log: bool, sabotage: Sabotage) -> Self {
        Self {
            settings: settings.clone(),
            queue: Queue::new(),
            now: Instant(0),
            dice: Dice::new(seed, 2),
            hand_dice: Dice::new(seed, 3),
            net_dice: Dice::new(seed, 4),
            disk_dice: Dice::new(seed, 5),
            store_dice: Dice::new(seed, 7),
            wires: Vec::new(),
            cut: vec![vec![Instant(0); settings.lenders as usize]; settings.seats as usize],
            quiet: false,
            value_last: 0,
            harmed_at_lender: BTreeMap::new(),
            harmed_on_disk: BTreeSet::new(),
            rotten: BTreeSet::new(),
            failure: None,
            logs: log,
            sabotage,
            lost_runs: 0,
        }
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.logs {
            log_line(self.now, &line());
        }
    }

    pub(crate) fn fail(&mut self, kind: FailureKind, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            let what = what();
            self.log(|| format!("FAILED: {what}"));
            self.failure = Some(Failure { kind, at: self.now, what });
        }
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    /// The value was lost by a fault that the durability does not cover.
    pub(crate) fn is_harmed(&self, value: u64) -> bool {
        if self.settings.disk {
            self.harmed_on_disk.contains(&value)
        } else {
            // What no lender takes is on the disk.
            let machines = self.harmed_at_lender.get(&value).map_or(0, BTreeSet::len);
            machines >= usize::from(self.settings.replicas) || self.harmed_on_disk.contains(&value)
        }
    }

    /// A lender has lost a value, or told lies about it.
    pub(crate) fn harm(&mut self, lender: usize, value: u64) {
        self.harmed_at_lender.entry(value).or_default().insert(lender);
    }

    /// What a lender's disk has of a page is lost.
    pub(crate) fn rot(&mut self, lender: usize, page: Stored) {
        self.rotten.insert((lender, page));
    }

    /// That has happened.
    pub(crate) fn is_rotten(&self, lender: usize, page: Stored) -> bool {
        self.rotten.contains(&(lender, page))
    }

    /// Some lender has.
    pub(crate) fn is_harmed_somewhere(&self, value: u64) -> bool {
        self.harmed_at_lender.contains_key(&value)
    }

    /// Some lender has lost something.
    pub(crate) fn lenders_harmed(&self) -> bool {
        !self.harmed_at_lender.is_empty()
    }

    /// Values may be lost at as many lenders as have each.
    pub(crate) fn replicas_may_be_lost(&self) -> bool {
        let machines: BTreeSet<usize> = self.harmed_at_lender.values().flatten().copied().collect();
        machines.len() >= usize::from(self.settings.replicas)
    }

    pub(crate) fn is_cut(&self, seat: usize, lender: usize) -> bool {
        !self.quiet && self.cut[seat][lender] > self.now
    }

    pub(crate) fn connect(&mut self, seat: usize, life: u32, lender: usize, lender_life: u32) -> usize {
        // Who waits for lenders comes back to them as who it was; else each connection is a borrower of its own.
        let space = match &self.settings.cache {
            Some(_) => (seat as u64 + 1) << 32 | u64::from(life),
            None => self.wires.len() as u64 + 1,
        };
        let space = SpaceId(space);
        let last = [self.now; 2];
        self.wires.push(Wire {
            seat,
            life,
            lender,
            lender_life,
            space,
            dead: false,
            closed: false,
            last,
            held: Vec::new(),
        });
        self.wires.len() - 1
    }

    pub(crate) fn send_to_lender(&mut self, wire: usize, message: ToLender) {
        self.send(wire, 0, Event::ToLender { wire, message });
    }

    pub(crate) fn send_to_borrower(&mut self, wire: usize, message: ToBorrower) {
        self.send(wire, 1, Event::ToBorrower { wire, message });
    }

    fn send(&mut self, wire: usize, way: usize, event: Event) {
        let w = &self.wires[wire];
        if w.dead {
            return;
        }
        let cut = self.is_cut(w.seat, w.lender);
        let closing = matches!(
            event,
            Event::ToLender { message: ToLender::Closed | ToLender::Bye, .. }
                | Event::ToBorrower { message: ToBorrower::Closed, .. }
        );
        if self.settings.datagram && !closing {
            let hostile = self.settings.faults && !self.quiet;
            if cut || (hostile && self.net_dice.once_in(12)) {
                return;
            }
            if hostile && self.net_dice.once_in(12) {
                let late = self.net_dice.delay(Duration::from_millis(5));
                self.after(late, event.clone());
            }
            let delay = self.net_dice.delay(WIRE);
            self.after(delay, event);
            return;
        }
        if cut {
            self.wires[wire].held.push((way, event)); // sent again until the network is whole
            return;
        }
        let delay = self.net_dice.delay(WIRE);
        let w = &mut self.wires[wire];
        let at = (self.now + delay).max(w.last[way]);
        w.last[way] = at;
        self.queue.push(at, event);
    }

    /// The network is whole again between these two.
    pub(crate) fn uncut(&mut self, seat: usize, lender: usize) {
        for wire in 0..self.wires.len() {
            if self.wires[wire].seat == seat && self.wires[wire].lender == lender {
                if self.settings.cache.is_some() && !self.wires[wire].held.is_empty() {
                    // What was sent over an old connection comes when its timer of retransmission says so: a new one may be quicker.
                    let late = self.net_dice.pick(&[0, 0, 100, 3_000]);
                    let at = self.now + Duration::from_millis(late);
                    let w = &mut self.wires[wire];
                    w.last = w.last.map(|last| last.max(at));
                }
                for (way, event) in std::mem::take(&mut self.wires[wire].held) {
                    self.send(wire, way, event);
                }
            }
        }
    }
}
