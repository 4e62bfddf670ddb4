//! Runs with the write cache: lenders with disk stores that go and come back, and every durability (docs/write-cache.md).

use super::dice::Dice;
use super::script::{Act, DiskFault, Lie, Settings};
use loam_core::borrower::{PLACEMENTS, Site};
use loam_core::lender::Terms;

/// What holds for such a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Durability `staged`.
    pub staged: bool,
    /// Which lenders have a disk store.
    pub stores: [bool; 4],
    /// On which machine each lender is.
    pub machines: [u32; 4],
    /// In which zone; 0: it does not say.
    pub zones: [u32; 4],
    /// Base pages of a store.
    pub store_pages: u64,
    /// Base pages of one borrower that may wait for a disk.
    pub channel_pages: u64,
    /// Base pages that may be on their way to a disk.
    pub under_way_pages: u64,
    /// Microseconds of a write, of a sync and of a read.
    pub write_us: u64,
    /// See `write_us`.
    pub sync_us: u64,
    /// See `write_us`.
    pub read_us: u64,
    /// Milliseconds that a page lingers before it is written; 0: not at all.
    pub linger_ms: u64,
    /// Milliseconds that a lender that is away is waited for.
    pub patience_ms: u64,
}

/// How a lender's disk misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It takes some hundred times as long.
    Slow,
    /// It says that it is full.
    Full,
    /// Writes fail.
    Writes,
    /// Reads fail.
    Reads,
    /// A sync fails: from then on nothing is written until the lender is started again.
    Broken,
}

impl Settings {
    /// What a borrower says of its pages when it connects.
    pub(crate) fn terms(&self) -> Terms {
        match &self.cache {
            _ if self.disk => Terms::Spare,
            Some(cache) if cache.staged => Terms::Staging,
            _ => Terms::Recallable,
        }
    }
}

impl Cache {
    pub(crate) fn site(&self, lender: usize) -> Site {
        Site {
            machine: self.machines[lender],
            zone: self.zones[lender],
            drains: self.staged && self.stores[lender],
        }
    }
}

/// Makes a run's settings those of one with the write cache.
pub(super) fn settings(dice: &mut Dice, plain: Settings) -> Settings {
    let (staged, disk, replicas) = dice.pick(&[
        (true, false, 2),
        (true, false, 2),
        (true, false, 2),
        (false, false, 2),
        (false, false, 3),
        (false, true, 1),
        (false, false, 1),
    ]);
    let lenders = dice.between(2, 4);
    let places = if disk { &PLACEMENTS[..] } else { &PLACEMENTS[..4] };
    let lender_pages = dice.pick(&[32, 64, 300, 3_000]);
    let mut of_each = |choices: &[u32]| [(); 4].map(|()| dice.pick(choices));
    let cache = Cache {
        staged,
        stores: of_each(&[0, 1, 1]).map(|store| store == 1),
        machines: of_each(&[1, 2, 3, 4]),
        zones: of_each(&[0, 1, 2]),
        store_pages: dice.pick(&[16, 100, 1_000, 10_000]),
        channel_pages: dice.pick(&[4, 32, lender_pages]),
        under_way_pages: dice.pick(&[1, 64, 16_384]),
        write_us: dice.pick(&[20, 200, 5_000]),
        sync_us: dice.pick(&[50, 1_000, 20_000]),
        read_us: dice.pick(&[80, 200, 8_000]),
        linger_ms: dice.pick(&[0, 0, 1, 1_000]),
        patience_ms: dice.pick(&[1_000, 60_000, 60_000]),
    };
    let known = if dice.once_in(4) { dice.between(1, lenders) } else { lenders };
    let place = dice.pick(places);
    Settings {
        lenders,
        known,
        place,
        disk,
        replicas,
        lender_pages,
        datagram: false,
        cache: Some(cache),
        ..plain
    }
}

/// One more action, in place of a plain one now and then.
pub(super) fn act(dice: &mut Dice, s: &Settings, pace: u64, plain: Act) -> Act {
    let lender = dice.below(s.lenders);
    let us = dice.pick(&[pace, pace * 10, pace * 100, 30_000_000.min(pace * 2_000)]);
    match (plain, dice.below(if s.faults { 24 } else { 200 })) {
        (_, 0) => Act::CrashLender(lender, us),
        (_, 1) => Act::PowerLoss(lender, us),
        (_, 2) => Act::EndLender(lender, us),
        (_, 3) => Act::Reset(lender),
        (_, 4) => Act::Cut(lender, us),
        (_, 5..=7) if s.faults => {
            let fault = dice.pick(&[
                StoreFault::Slow,
                StoreFault::Slow,
                StoreFault::Full,
                StoreFault::Writes,
                StoreFault::Reads,
                StoreFault::Broken,
            ]);
            Act::Store(lender, fault, us)
        }
        (_, 8) if s.faults => Act::Rot(lender, dice.pick(&[1, 3, 20])),
        // Lenders tell the truth here, and the slot file does not forget: what is lost is then known exactly.
        (Act::Lie(lender, _, us), _) => Act::Lie(lender, Lie::Refuse, us),
        (Act::Disk(DiskFault::Reads | DiskFault::Rot, us), _) => Act::Disk(DiskFault::Writes, us),
        (plain, _) => plain,
    }
}
