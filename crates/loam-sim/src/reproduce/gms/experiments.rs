//! The runs that the paper's tables and figures are made of.

use super::micro::{EpochCost, Micro};
use super::scenes::{self, Outcome, Policy, SKEWS};
use crate::cluster::Recording;
use crate::jobs;
use crate::workload::{self, NAMES, PAGE_BYTES, Scale};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Idle memory of figure 6, in megabytes.
pub(super) const IDLE_MB: [u32; 6] = [0, 50, 100, 150, 200, 250];
/// Nodes of figure 7.
pub(super) const NODES: [u32; 4] = [5, 10, 15, 20];
/// Seconds between changes of figure 8. 0: never.
pub(super) const CHANGES_S: [u32; 7] = [1, 2, 5, 10, 20, 30, 0];
/// Clients of figures 12 and 13.
pub(super) const CLIENTS: [u32; 7] = [1, 2, 3, 4, 5, 6, 7];
/// Sizes of table 5's clusters.
pub(super) const EPOCH_NODES: [u32; 2] = [10, 100];
/// The programs of figure 7.
pub(super) const MIX: [&str; 3] = ["oo7", "compile", "render"];

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Job {
    /// A program without global memory.
    Native(usize),
    /// Figure 6: a program, and megabytes of idle memory.
    Ample(usize, u32),
    /// Figure 7: nodes.
    Many(u32),
    /// Figure 8: seconds.
    Changing(u32),
    /// Figure 9: policy, and which skew.
    Distributed(Policy, usize),
    /// Figures 10 and 11.
    Interfering(Policy, usize),
    /// Figures 12 and 13: clients.
    Serving(u32),
}

/// The runs, done.
#[derive(Debug)]
pub struct Experiments {
    recordings: Vec<Arc<Recording>>,
    outcomes: BTreeMap<Job, Outcome>,
    pub(super) micro: Micro,
    pub(super) epochs: Vec<EpochCost>,
}

/// The programs, run once.
fn record(names: &[&str], traces: &Path, seed: u64) -> Result<Vec<Arc<Recording>>, String> {
    let record = |name: &&str| {
        let made = workload::by_name(name, Scale::Paper, PAGE_BYTES, seed, traces);
        let mut workload = made.map_err(|error| error.to_string())?.expect("it has that name");
        Recording::new(&mut *workload).map(Arc::new).map_err(|error| format!("{name}: {error}"))
    };
    names.iter().map(record).collect()
}

impl Experiments {
    /// Tables 1 to 5 alone.
    pub fn tables() -> Self {
        let epochs = EPOCH_NODES.map(EpochCost::run).to_vec();
        Self { recordings: Vec::new(), outcomes: BTreeMap::new(), micro: Micro::run(), epochs }
    }

    /// Runs everything, on `threads` threads; `done` is told how many of how many runs are done.
    ///
    /// # Errors
    /// If a recorded program cannot be read, or a workload did not compute what it should.
    pub fn run(
        traces: &Path,
        seed: u64,
        threads: usize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, String> {
        let recordings = record(&NAMES, traces, seed)?;
        let all = Self::tables();
        Ok(all.figures(recordings, jobs(), threads, done))
    }

    fn figures(
        mut self,
        recordings: Vec<Arc<Recording>>,
        jobs: Vec<Job>,
        threads: usize,
        done: &(dyn Fn(usize, usize) + Sync),
    ) -> Self {
        self.recordings = recordings;
        let outcomes = jobs::run(&jobs, threads, &|n| done(n, jobs.len()), |&job| self.one(job));
        self.outcomes = jobs.into_iter().zip(outcomes).collect();
        self
    }

    fn one(&self, job: Job) -> Outcome {
        let oo7 = || self.program("oo7");
        match job {
            Job::Native(program) => scenes::native(&self.recordings[program]),
            Job::Ample(program, mb) => scenes::ample(&self.recordings[program], mb),
            Job::Many(nodes) => scenes::many(MIX.map(|name| self.program(name)), nodes),
            Job::Changing(seconds) => scenes::changing(oo7(), seconds),
            Job::Distributed(policy, skew) => scenes::distributed(oo7(), policy, SKEWS[skew]),
            Job::Interfering(policy, skew) => scenes::interfering(oo7(), policy, SKEWS[skew]),
            Job::Serving(clients) => scenes::serving(oo7(), clients),
        }
    }

    /// Were the figures' runs run?
    pub(super) fn has_figures(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// The programs.
    pub(super) fn programs(&self) -> &[Arc<Recording>] {
        &self.recordings
    }

    pub(super) fn number(&self, name: &str) -> usize {
        self.recordings.iter().position(|of| of.name == name).expect("every program was run")
    }

    fn program(&self, name: &str) -> &Arc<Recording> {
        &self.recordings[self.number(name)]
    }

    pub(super) fn get(&self, job: Job) -> &Outcome {
        self.outcomes.get(&job).expect("every figure's runs were run")
    }

    /// How much faster OO7 is than without global memory.
    pub(super) fn speedup(&self, job: Job) -> f64 {
        self.speedup_of(self.number("oo7"), job)
    }

    /// How much faster a program is.
    pub(super) fn speedup_of(&self, program: usize, job: Job) -> f64 {
        self.get(Job::Native(program)).seconds() / self.get(job).seconds()
    }

    /// Figure 7: of each program of the mix, the mean over its instances.
    pub(super) fn speedups_of_mix(&self, nodes: u32) -> [f64; 3] {
        let outcome = self.get(Job::Many(nodes));
        let of = |n: usize| {
            let native = self.get(Job::Native(self.number(MIX[n]))).seconds();
            let times = outcome.programs.iter().skip(n).step_by(MIX.len());
            let (sum, count) = times
                .fold((0.0, 0.0), |(sum, count), t| (sum + native / (t.elapsed.0 as f64 / 1e9), count + 1.0));
            sum / count
        };
        [0, 1, 2].map(of)
    }

    /// How much slower the busy nodes' programs are while OO7 runs.
    pub(super) fn slowdown(&self, policy: Policy, skew: usize) -> f64 {
        let [before, during] = self.get(Job::Interfering(policy, skew)).busy;
        before / during
    }

    /// Bytes on the network, of figure 11.
    pub(super) fn traffic(&self, policy: Policy, skew: usize) -> f64 {
        self.get(Job::Interfering(policy, skew)).bytes as f64
    }

    /// References that were simulated.
    pub fn references(&self) -> u64 {
        self.outcomes.values().map(|outcome| outcome.references).sum()
    }
}

/// The longest ones first.
fn jobs() -> Vec<Job> {
    let mut jobs: Vec<Job> = NODES.into_iter().rev().map(Job::Many).collect();
    jobs.extend(CLIENTS.into_iter().rev().map(Job::Serving));
    for skew in 0..SKEWS.len() {
        jobs.extend(Policy::ALL.map(|policy| Job::Interfering(policy, skew)));
        jobs.extend(Policy::ALL.map(|policy| Job::Distributed(policy, skew)));
    }
    jobs.extend(CHANGES_S.map(Job::Changing));
    for program in 0..NAMES.len() {
        jobs.push(Job::Native(program));
        jobs.extend(IDLE_MB.map(|mb| Job::Ample(program, mb)));
    }
    jobs
}
