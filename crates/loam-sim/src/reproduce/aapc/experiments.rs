//! The runs that the figures are made of.

use super::pool::{self, Recorded};
use super::programs::{FIXED_ITERATIONS, FOUND_ITERATIONS, Program, Sizes, TODAY_BYTES, config};
use crate::paging::{self, Outcome};
use loam_core::page_size::Scope;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The paper's figures.
    Paper,
    /// And today's path.
    All,
    /// Small problems, to see that it works.
    Small,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// How often the time of a machine with enough memory; none: more than is waited for.
    pub(super) relative: Option<f64>,
    /// Of the first iteration.
    pub(super) first: Option<f64>,
    /// Of each part.
    pub(super) parts: BTreeMap<u32, f64>,
    /// In KiB, where sizes are found for all memory: what each part whose size has changed had at the end.
    changed_kib: BTreeMap<u32, u64>,
    pub(super) faults: u64,
    pub(super) fetched: u64,
    pub(super) changes: usize,
}

/// A run: the program, percent of local memory, sizes.
type Key = (usize, u64, Sizes);

/// The runs, done.
#[derive(Debug)]
pub struct Experiments {
    pub(super) programs: Vec<Program>,
    /// Base pages of each program.
    pub(super) base_pages: BTreeMap<usize, u64>,
    done: BTreeMap<Key, Done>,
    /// References replayed, in all.
    pub references: u64,
}

impl Experiments {
    /// Runs everything, on `threads` threads; `done` is told how many of how many runs are done.
    ///
    /// # Errors
    /// If a program's own checks fail, or it cannot be recorded.
    pub fn run(extent: Extent, threads: usize, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Self, String> {
        let programs = match extent {
            Extent::Paper => Program::paper(64, 102, 128, 23),
            Extent::All => {
                Program::paper(64, 102, 128, 23).into_iter().chain(Program::today(TODAY_BYTES)).collect()
            }
            Extent::Small => {
                let today = Program::today(4 << 20).into_iter().take(2);
                Program::paper(16, 16, 16, 12).into_iter().chain(today).collect()
            }
        };
        let all = programs.iter().map(|program| program.runs().len()).sum();
        let (finished, references) = (AtomicUsize::new(0), AtomicU64::new(0));
        let outcomes = Mutex::new((BTreeMap::new(), BTreeMap::new()));
        let work = |recorded: &Recorded, (percent, sizes): (u64, Sizes)| {
            let program = &programs[recorded.program];
            let base_pages = u64::from(recorded.recording.base_pages());
            let config = config(program, percent, sizes, base_pages, recorded.exec_ns);
            let outcome = paging::run(&config, &recorded.recording);
            references.fetch_add(outcome.references, Ordering::Relaxed);
            let mut outcomes = outcomes.lock().expect("no run panicked");
            outcomes.0.insert((recorded.program, percent, sizes), Done::new(sizes, &outcome));
            outcomes.1.insert(recorded.program, base_pages);
            drop(outcomes);
            done(finished.fetch_add(1, Ordering::Relaxed) + 1, all);
        };
        pool::run(&programs, |program| programs[program].runs(), threads, work)?;
        let (outcomes, base_pages) = outcomes.into_inner().expect("no run panicked");
        assert_eq!(outcomes.len(), all, "each run was run");
        Ok(Self { programs, base_pages, done: outcomes, references: references.into_inner() })
    }

    pub(super) fn get(&self, program: usize, percent: u64, sizes: Sizes) -> &Done {
        self.done.get(&(program, percent, sizes)).expect("every figure's runs were run")
    }

    /// The size that AAPC had for each part at the end, in KiB: the first one, if it never changed.
    pub(super) fn sizes_kib(&self, program: usize, percent: u64, sizes: Sizes) -> Vec<u64> {
        let changed = &self.get(program, percent, sizes).changed_kib;
        let [_, start, _] = super::page_sizes_kib();
        let parts = (1..).zip(self.programs[program].info.parts);
        parts.map(|(part, _)| changed.get(&part).copied().unwrap_or(start)).collect()
    }

    /// A program of the paper.
    pub(super) fn program(&self, name: &str) -> usize {
        let of = |program: &Program| program.paper && program.info.name == name;
        self.programs.iter().position(of).expect("the paper's programs were run")
    }

    /// The programs on today's path.
    pub(super) fn today(&self) -> impl Iterator<Item = (usize, &Program)> {
        self.programs.iter().enumerate().filter(|(_, program)| !program.paper)
    }

    /// The best of some fixed sizes, in KiB, and its relative time. None: all were stopped.
    pub(super) fn best(&self, program: usize, percent: u64, kib: &[u64]) -> Option<(u64, f64)> {
        let of = |&kib: &u64| Some((kib, self.get(program, percent, Sizes::Fixed(kib)).relative?));
        kib.iter().filter_map(of).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Done {
    fn new(sizes: Sizes, outcome: &Outcome) -> Self {
        let fixed = matches!(sizes, Sizes::Fixed(_));
        let from = if fixed { FIXED_ITERATIONS } else { FOUND_ITERATIONS };
        let mut times = BTreeMap::<u32, (u64, u64)>::new();
        for turn in outcome.turns_from(from) {
            let time = times.entry(turn.part).or_default();
            *time = (time.0 + turn.wall_ns, time.1 + turn.exec_ns);
        }
        let mut changed_kib = BTreeMap::new();
        for change in outcome.changes.iter().filter(|change| change.part > 0 && change.scope == Scope::All) {
            changed_kib.insert(change.part, change.to.base_pages() * 4);
        }
        let parts = times.into_iter().map(|(part, (wall, exec))| (part, wall as f64 / exec.max(1) as f64));
        Self {
            relative: outcome.relative_time(from, u32::MAX),
            first: outcome.relative_time(1, 1),
            parts: if outcome.stopped { BTreeMap::new() } else { parts.collect() },
            changed_kib,
            faults: outcome.faults,
            fetched: outcome.fetched,
            changes: outcome.changes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::page_size::{PageSize, SizeChange, SizeReason};
    use loam_core::units::{BasePages, Instant};

    #[test]
    fn a_part_whose_size_never_changed_has_the_first() {
        let size = |kib: u64| PageSize::new(BasePages(kib / 4)).expect("a power of two");
        let reason = SizeReason::Fits { working_set: 1, local: 2 };
        let grown =
            SizeChange { at: Instant(0), part: 1, scope: Scope::All, from: size(128), to: size(256), reason };
        let done = Done::new(Sizes::Aapc(1), &Outcome { changes: vec![grown], ..Outcome::default() });
        let mut experiments = Experiments {
            programs: Program::paper(16, 16, 16, 12),
            base_pages: BTreeMap::new(),
            done: BTreeMap::new(),
            references: 0,
        };
        let himeno = experiments.program("himeno");
        experiments.done.insert((himeno, 10, Sizes::Aapc(1)), done);
        assert_eq!(experiments.sizes_kib(himeno, 10, Sizes::Aapc(1)), [256, 128]);
    }
}
