//! What the processes of the tree had from their regions. (That of a process with a region only this is adopted: `adopt.rs`.)

use super::process::Process;
use crate::config::RegionConfig;
use crate::direct::Pool;
use crate::summary::{DirectSummary, RegionSummary};
use std::sync::atomic::Ordering::Relaxed;

/// What processes that have ended had.
#[derive(Debug, Default)]
pub(super) struct Regions {
    past: RegionSummary,
}

impl Regions {
    /// Takes the figures of a process that has ended.
    pub(super) fn ended(&mut self, process: &Process) {
        self.past.direct.get_or_insert_default();
        add(&mut self.past, process);
    }

    /// The figures of all processes, those that live included.
    pub(super) fn summary<'a>(
        &self,
        config: RegionConfig,
        pool: Option<&Pool>,
        living: impl Iterator<Item = &'a Process>,
    ) -> RegionSummary {
        let mut all = self.past.clone();
        all.direct = pool.map(|_| all.direct.take().unwrap_or_default());
        living.for_each(|process| add(&mut all, process));
        if let (Some(pool), Some(direct)) = (pool, &mut all.direct) {
            direct.peak_bytes = pool.peak().0;
        }
        (all.size_bytes, all.min_alloc_bytes) = (config.size.0, config.min_alloc.0);
        all
    }
}

/// The program can write its figures as it likes: they are told and nothing else.
fn add(all: &mut RegionSummary, process: &Process) {
    let Some(hand) = &process.hand else { return };
    let figures = &hand.shared.control().region;
    let mut none = DirectSummary::default();
    let direct = all.direct.as_mut().unwrap_or(&mut none);
    let sums = [
        (&mut direct.copied_bytes, &figures.copied_bytes),
        (&mut direct.private_bytes, &figures.private_bytes),
        (&mut all.allocations, &figures.allocations),
        (&mut all.allocated_bytes, &figures.allocated_bytes),
        (&mut all.full, &figures.full),
        (&mut all.full_bytes, &figures.full_bytes),
    ];
    for (sum, figure) in sums {
        *sum = sum.saturating_add(figure.load(Relaxed));
    }
    all.peak_bytes = all.peak_bytes.max(figures.peak_bytes.load(Relaxed));
    all.processes_not_calling += u64::from(figures.called.load(Relaxed) == 0);
}
