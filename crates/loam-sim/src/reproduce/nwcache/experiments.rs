//! The runs that tables and figures are made of.

use super::machines::Machine;
use crate::jobs;
use crate::multiprocessor::{self, Outcome, Prefetch};
use crate::workload::Scale;
use crate::workload::parallel::{PARALLEL_NAMES, parallel_by_name};
use std::collections::BTreeMap;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The paper's tables and figures.
    Paper,
    /// And what is assumed otherwise, Loam's own ring on today's machines, and larger machines.
    All,
    /// Small programs, to see that it works.
    Small,
}

/// A run: the program, the machine, what is read ahead, with a ring or without.
pub(super) type Key = (usize, Machine, Prefetch, bool);

/// The runs, done.
#[derive(Debug)]
pub struct Experiments {
    outcomes: BTreeMap<Key, Outcome>,
    /// What a program's check says, and bytes of its data: of the paper's machine.
    pub(super) programs: Vec<(Vec<String>, u64)>,
    /// How much was run.
    pub extent: Extent,
}

/// What one run told.
struct Done {
    outcome: Outcome,
    checked: Vec<String>,
    bytes: u64,
}

impl Experiments {
    /// Runs everything, on `threads` threads; `done` is told how many of how many runs are done.
    ///
    /// # Errors
    /// If a program's result is wrong.
    pub fn run(extent: Extent, threads: usize, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Self, String> {
        let keys = keys(extent);
        let scale = if extent == Extent::Small { Scale::Small } else { Scale::Paper };
        let results = jobs::run(&keys, threads, &|n| done(n, keys.len()), |&key| run(key, scale));
        let mut outcomes = BTreeMap::new();
        let mut programs = vec![(Vec::new(), 0); PARALLEL_NAMES.len()];
        for (key, result) in keys.into_iter().zip(results) {
            let Done { outcome, checked, bytes } = result?;
            if key.1 == Machine::Paper {
                programs[key.0] = (checked, bytes);
            }
            outcomes.insert(key, outcome);
        }
        Ok(Self { outcomes, programs, extent })
    }

    /// Touches of all runs.
    pub fn touches(&self) -> u64 {
        self.outcomes.values().map(|outcome| outcome.touches).sum()
    }

    pub(super) fn get(&self, program: usize, machine: Machine, prefetch: Prefetch, ring: bool) -> &Outcome {
        self.outcomes.get(&(program, machine, prefetch, ring)).expect("each run was run")
    }

    /// Every run.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Outcome)> {
        self.outcomes.iter()
    }

    /// By how much less time a machine takes with its ring, in percent.
    pub(super) fn gain(&self, program: usize, machine: Machine, prefetch: Prefetch) -> f64 {
        let standard = self.get(program, machine, prefetch, false);
        100.0 * self.get(program, machine, prefetch, true).gain_over(standard)
    }
}

fn keys(extent: Extent) -> Vec<Key> {
    let machines = match extent {
        Extent::All => Machine::all(),
        Extent::Paper | Extent::Small => vec![Machine::Paper],
    };
    let mut jobs = Vec::new();
    for program in 0..PARALLEL_NAMES.len() {
        for &machine in &machines {
            for prefetch in [Prefetch::Optimal, Prefetch::Naive] {
                jobs.extend([false, true].map(|ring| (program, machine, prefetch, ring)));
            }
        }
    }
    jobs
}

fn run((program, machine, prefetch, ring): Key, scale: Scale) -> Result<Done, String> {
    let name = PARALLEL_NAMES[program];
    let config = machine.config(prefetch, ring, scale);
    let mut of = parallel_by_name(name, scale, config.nodes).expect("it has that name");
    let outcome = multiprocessor::run(&config, &mut *of);
    let checked = of.check().map_err(|error| format!("{name}: {error}"))?;
    Ok(Done { outcome, checked, bytes: of.shared_bytes() })
}
