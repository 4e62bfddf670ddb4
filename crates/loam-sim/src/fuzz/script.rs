//! What is done to a run: settings and a list of actions, made from the seed before the run begins.
//!
//! The run only interprets it. Whoever is named is named by a number that is taken modulo those who live at the time, so any
//! action may be taken out and the rest still means something: that is what makes a failure small.

use super::dice::Dice;
use super::script_cache;
pub use super::script_cache::{Cache, StoreFault};
use loam_core::borrower::{FETCH_PLANS, PLACEMENTS};
use loam_core::units::Instant;

/// What holds for a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Borrowers.
    pub seats: u64,
    /// Lenders.
    pub lenders: u64,
    /// Those that a borrower knows when it begins: the first few. The others join later, or never.
    pub known: u64,
    /// Where pages go: a name of [`PLACEMENTS`].
    pub place: &'static str,
    /// Base pages that may be with lenders, under `disk`.
    pub share: u64,
    /// What a long stream passes over goes to the disk alone, the first time.
    pub guard: bool,
    /// Durability `disk`; else `none` or `replicas`.
    pub disk: bool,
    /// Without it: lenders that have each page.
    pub replicas: u8,
    /// Messages are datagrams: lost, doubled and reordered one by one. Else connections.
    pub datagram: bool,
    /// Base pages of a page.
    pub page: u64,
    /// Pages have any size up to that.
    pub any_size: bool,
    /// Base pages of a subpage, and in which order they are fetched.
    pub subpage: u64,
    /// See `subpage`: a name of [`FETCH_PLANS`].
    pub fetch_plan: &'static str,
    /// Pages that have left can be had from their buffers for a while.
    pub rescue: bool,
    /// Page buffers of a borrower.
    pub buffers: u32,
    /// Base pages that may be local.
    pub limit: u64,
    /// Ranges of address space of a process.
    pub arenas: u64,
    /// Base pages of each.
    pub arena_pages: u64,
    /// How far each arena begins from a page's boundary, in base pages.
    pub skew: u64,
    /// Threads of a process.
    pub threads: u64,
    /// Pages fetched ahead at most; 0: none.
    pub ahead: u32,
    /// Base pages of a lender.
    pub lender_pages: u64,
    /// Microseconds until the disk is asked too.
    pub hedge_us: u64,
    /// Faults are injected (else only races are).
    pub faults: bool,
    /// Lenders have disk stores, say where they are, and may come back.
    pub cache: Option<Cache>,
}

/// How a lender misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It sends other contents than it was given.
    Contents,
    /// It answers with another version.
    Version,
    /// It says that it has stored what it has not.
    Forget,
    /// It says that it has no room.
    Refuse,
}

/// How the disk misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// It is full: writes are refused at once.
    Full,
    /// Writes fail, and leave something torn.
    Writes,
    /// Reads fail.
    Reads,
    /// Reads bring other contents.
    Rot,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Touches pages in order, `stride` apart.
    Touch {
        /// First page.
        page: u64,
        /// How many.
        count: u64,
        /// From one to the next.
        stride: u64,
        /// Writes (else reads).
        write: bool,
        /// Writes zeros.
        zero: bool,
    },
    /// `MADV_DONTNEED`.
    Discard(u64, u64),
    /// `munmap`, and `mmap` there again.
    Unmap(u64, u64),
    /// `mremap` of one arena to another's place.
    Move(u64, u64),
    /// `mremap` in place: the last mapping of an arena grows.
    Grow(u64, u64),
    /// `fork`.
    Fork,
    /// `exit` of the process.
    Exit,
    /// Asks for a range to be given back for good.
    Release(u64, u64),
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A thread gets something to do.
    Work {
        /// Whose.
        process: u64,
        /// Which.
        thread: u64,
        /// What.
        work: Work,
    },
    /// The agent looks at the mappings, and adopts.
    Adopt,
    /// Another limit.
    Limit(u64),
    /// Pages are pinned for so many microseconds: (process, page, count, us).
    Pin(u64, u64, u64, u64),
    /// A protection keeps pages from being taken for so many microseconds.
    Deny(u64, u64, u64, u64),
    /// So many installs are refused (the machine has no free memory).
    RefuseInstalls(u64),
    /// The agent gets no core for so many microseconds.
    StallAgent(u64),
    /// The hand gets none.
    StallHand(u64, u64),
    /// The agent is killed, its program with it; both start anew.
    CrashBorrower,
    /// The connection to a lender is reset.
    Reset(u64),
    /// No message passes for so many microseconds.
    Cut(u64, u64),
    /// A new connection to a lender.
    Join(u64),
    /// An epoch begins: weights by lender, and MinAge in nanoseconds.
    Weights([u8; 4], u64),
    /// Nobody tells weights any more.
    WeightsUnknown,
    /// A lender crashes with all that it holds, and is back after so many microseconds.
    CrashLender(u64, u64),
    /// The same, with its machine: what its disk has not made durable may be gone, too.
    PowerLoss(u64, u64),
    /// A lender says that it ends, and is back after so many microseconds.
    EndLender(u64, u64),
    /// A lender's disk misbehaves for so many microseconds.
    Store(u64, StoreFault, u64),
    /// A bit flips in so many slots of a lender's disk.
    Rot(u64, u64),
    /// A lender misbehaves for so many microseconds.
    Lie(u64, Lie, u64),
    /// The disk misbehaves for so many microseconds.
    Disk(DiskFault, u64),
    /// A lender's machine wants memory back, or has it again: (lender, base pages that it may lend).
    Lend(u64, u64),
}

/// An action, when, and at which borrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub at: Instant,
    /// Which borrower.
    pub seat: u64,
    /// What.
    pub act: Act,
}

/// A run before it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Where it comes from.
    pub seed: u64,
    /// What holds all the time.
    pub settings: Settings,
    /// What is done, in order of time.
    pub actions: Vec<Action>,
    /// From here on nothing is injected any more.
    pub quiet_at: Instant,
}

const ACTIONS_MAX: u64 = 120;

impl Script {
    /// The script of a seed: an odd one has the write cache.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let cached = seed % 2 == 1;
        let mut settings = settings(&mut dice);
        if cached {
            settings = script_cache::settings(&mut dice, settings);
        }
        let mut actions = Vec::new();
        let mut now = 0_u64;
        // Every borrower fills some memory and has it adopted, or most runs would be of nothing.
        for seat in 0..settings.seats {
            let first =
                Work::Touch { page: 0, count: settings.arena_pages, stride: 1, write: true, zero: false };
            for act in [Act::Work { process: 0, thread: 0, work: first }, Act::Adopt] {
                now += 50_000;
                actions.push(Action { at: Instant(now), seat, act });
            }
        }
        let count = dice.between(20, ACTIONS_MAX);
        let pace = dice.pick(&[20_u64, 200, 2_000, 50_000]);
        for _ in 0..count {
            let us = dice.pick(&[pace / 20, pace, pace, pace * 10]);
            now += dice.between(0, us * 1_000);
            let seat = dice.below(settings.seats);
            let mut act = act(&mut dice, &settings, pace);
            if cached {
                act = script_cache::act(&mut dice, &settings, pace, act);
            }
            actions.push(Action { at: Instant(now), seat, act });
        }
        Self { seed, settings, actions, quiet_at: Instant(now + 1_000_000) }
    }

    /// The same with these actions alone.
    pub fn with(&self, keep: &[usize]) -> Self {
        let actions = keep.iter().filter_map(|&i| self.actions.get(i).copied()).collect();
        Self { actions, ..self.clone() }
    }
}

fn settings(dice: &mut Dice) -> Settings {
    let page = dice.pick(&[1_u64, 1, 2, 4, 8, 16]);
    let arenas = dice.between(2, 4);
    let arena_pages = dice.pick(&[32_u64, 64, 64, 128, 200]);
    let least = (4 * page as u32).max(16);
    let all = arenas * arena_pages;
    let disk = !dice.once_in(3);
    let lenders = dice.between(1, 4);
    // Without a disk pages need somebody.
    let known = if dice.once_in(2) { lenders } else { dice.between(u64::from(!disk), lenders) };
    let places = if disk { &PLACEMENTS[..] } else { &PLACEMENTS[..4] };
    Settings {
        seats: dice.pick(&[1, 1, 2, 3]),
        lenders,
        known,
        place: dice.pick(places),
        share: dice.pick(&[u64::MAX, u64::MAX, all, all / 4, 0]),
        guard: dice.once_in(2),
        disk,
        datagram: dice.once_in(3),
        page,
        subpage: page / dice.pick(&[1, 1, 2, 4]).min(page),
        fetch_plan: dice.pick(&FETCH_PLANS),
        rescue: !dice.once_in(4),
        buffers: dice.pick(&[least, least * 2, 64.max(least), 128, 1024]),
        limit: dice.between(4 + 2 * page, (all / 2).max(8 + 2 * page)),
        arenas,
        arena_pages,
        skew: dice.below(20),
        threads: dice.between(1, 4),
        ahead: dice.pick(&[0, 4, 32]),
        lender_pages: dice.pick(&[8, 64, 300, 3_000]),
        hedge_us: dice.pick(&[50, 2_000, 200_000]),
        faults: !dice.once_in(4),
        any_size: dice.once_in(2),
        cache: None,
        replicas: if disk { 1 } else { dice.pick(&[1, 2, 2, 3]) },
    }
}

fn act(dice: &mut Dice, s: &Settings, pace: u64) -> Act {
    let pages = s.arenas * s.arena_pages;
    let process = dice.below(8);
    let page = dice.below(pages);
    let count = dice.pick(&[1, 2, 7, 30, s.arena_pages]);
    let us = dice.pick(&[pace, pace * 10, pace * 100, 30_000_000.min(pace * 2_000)]);
    let work = |work| Act::Work { process, thread: page, work };
    let most = if s.faults { 186 } else { 136 };
    let lender = dice.below(s.lenders);
    match dice.below(most) {
        0..=79 => {
            let (count, stride) = (dice.pick(&[1, 10, 60, pages]), dice.pick(&[1, 1, 1, 3, 17]));
            let write = dice.below(5) < 2;
            work(Work::Touch { page, count, stride, write, zero: dice.once_in(12) })
        }
        80..=83 => work(Work::Discard(page, count)),
        84..=87 => work(Work::Unmap(page, count)),
        88..=90 => work(Work::Move(dice.below(s.arenas), dice.below(s.arenas))),
        91..=92 => work(Work::Grow(dice.below(s.arenas), count)),
        93..=96 => work(Work::Fork),
        97..=98 => work(Work::Exit),
        99 => work(Work::Release(page, count)),
        100..=104 => Act::Adopt,
        105..=108 => Act::Limit(dice.between(4 + 2 * s.page, pages)),
        109..=111 => Act::Pin(process, page, count, us),
        112 => Act::Deny(process, page, count, us),
        113..=114 => Act::RefuseInstalls(dice.between(1, 20)),
        115..=116 => Act::StallAgent(us.min(100_000)),
        117 => Act::StallHand(process, us.min(100_000)),
        118..=121 => Act::Join(lender),
        122..=128 => {
            // Bits of one draw: a weight is 0, 1, 5 or 25.
            let draw = dice.below(1 << 10);
            let weight = |n: u64| [0, 1, 5, 25][(draw >> (2 * n)) as usize % 4];
            let min_age = if draw >> 8 == 0 { 0 } else { 1_000_000_000 };
            Act::Weights([0, 1, 2, 3].map(weight), min_age)
        }
        129 => Act::WeightsUnknown,
        130..=135 => {
            Act::Lend(lender, dice.pick(&[0, s.lender_pages / 8, s.lender_pages / 2, s.lender_pages]))
        }
        136..=137 => Act::CrashBorrower,
        138..=142 => Act::Reset(lender),
        143..=150 => Act::Cut(lender, us),
        151..=157 => Act::Join(lender),
        158..=162 => Act::CrashLender(lender, us),
        163..=170 => {
            let lie = dice.pick(&[Lie::Contents, Lie::Version, Lie::Forget, Lie::Refuse, Lie::Refuse]);
            Act::Lie(lender, lie, us)
        }
        _ => {
            let fault = dice.pick(&[
                DiskFault::Full,
                DiskFault::Full,
                DiskFault::Writes,
                DiskFault::Writes,
                DiskFault::Reads,
                DiskFault::Rot,
            ]);
            Act::Disk(fault, us)
        }
    }
}
