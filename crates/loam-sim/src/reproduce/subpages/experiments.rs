//! The runs that the paper's figures are made of.

use super::{PAGE_BYTES, SUBPAGES};
use crate::jobs;
use crate::machine::{self, Config, LOCAL_PAGES_MIN, Outcome, Prepared};
use crate::model::Model;
use crate::trace::{Run, Source, TraceError};
use std::collections::BTreeMap;

/// A program of the paper's kind.
#[derive(Debug)]
pub struct App {
    /// Ours.
    pub name: String,
    /// The paper's.
    pub stands_for: &'static str,
    /// What it did.
    pub trace: Prepared,
}

/// How much of the program's memory is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    Full,
    Half,
    Quarter,
}

impl Memory {
    pub(super) const ALL: [Self; 3] = [Self::Full, Self::Half, Self::Quarter];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Full => "full-mem",
            Self::Half => "1/2-mem",
            Self::Quarter => "1/4-mem",
        }
    }

    fn pages(self, all: u64) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Half => Some((all / 2).max(LOCAL_PAGES_MIN)),
            Self::Quarter => Some((all / 4).max(LOCAL_PAGES_MIN)),
        }
    }
}

/// Where pages come from, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// From disk.
    Disk,
    /// Whole pages from global memory.
    Full,
    /// The faulted subpage, then the rest.
    Eager(u64),
    /// Whole pages, or eager, on the prototype: accesses to incomplete pages are emulated.
    Emulated(u64),
    /// +1, -1, rest.
    Pipelined(u64),
    /// +1 +2, -1 -2, rest.
    Doubled(u64),
    /// With the neighbour beside which the fault fell.
    Beside(u64),
    /// By the distances seen so far.
    Learned(u64),
}

impl Scheme {
    fn config(self, memory: Memory, pages: u64, models: &Models) -> Config {
        let (model, plan, subpage_bytes) = match self {
            Self::Disk => (&models.disk, "full", PAGE_BYTES),
            Self::Full => (&models.network, "full", PAGE_BYTES),
            Self::Eager(bytes) => (&models.network, "eager", bytes),
            Self::Emulated(bytes) => (&models.emulated, "eager", bytes),
            Self::Pipelined(bytes) => (&models.network, "pipelined", bytes),
            Self::Doubled(bytes) => (&models.network, "pipelined-doubled", bytes),
            Self::Beside(bytes) => (&models.network, "pipelined-beside", bytes),
            Self::Learned(bytes) => (&models.network, "learned", bytes),
        };
        Config {
            model: model.clone(),
            subpage_bytes,
            unit_bytes: 256,
            local_pages: memory.pages(pages),
            fetch_plan: plan.into(),
            pipelined_unattended: true,
            details: memory == Memory::Half && !matches!(self, Self::Disk),
        }
    }
}

struct Models {
    network: Model,
    emulated: Model,
    disk: Model,
}

type Key = (usize, Memory, Scheme);

/// The runs, done.
#[derive(Debug)]
pub struct Experiments {
    apps: Vec<App>,
    outcomes: BTreeMap<Key, Outcome>,
    /// For each subpage size, the largest first after the whole page: until the subpage of a lone fault is there, and until the rest is.
    pub(super) table_2: Vec<(u64, u64, u64)>,
    pub(super) network: Model,
    /// References replayed, in all.
    pub references: u64,
}

impl Experiments {
    /// Runs everything, on `threads` threads; `done` is told how many of how many runs are done.
    ///
    /// # Panics
    /// If there are no applications.
    pub fn run(apps: Vec<App>, threads: usize, done: &(dyn Fn(usize, usize) + Sync)) -> Self {
        assert!(!apps.is_empty(), "something must be replayed");
        let load = |name| Model::load(name).expect("built in");
        let network = load("alpha-an2-1996");
        let emulated = Model { emulation: Some(super::results::table_1()), ..network.clone() };
        let models = Models { network, emulated, disk: load("alpha-disk-1996") };
        let keys = keys(apps.len());
        let outcomes = jobs::run(&keys, threads, &|n| done(n, keys.len()), |&(app, memory, scheme)| {
            let trace = &apps[app].trace;
            let config = scheme.config(memory, trace.pages(), &models);
            let lru = loam_core::replacement::by_name("lru").expect("it has that name");
            machine::run(&config, trace, lru).expect("the sizes fit")
        });
        let references = keys.iter().map(|key| apps[key.0].trace.references()).sum();
        let outcomes = keys.into_iter().zip(outcomes).collect();
        let table_2 = table_2(&models.network);
        Self { apps, outcomes, table_2, network: models.network, references }
    }

    /// The programs.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    pub(super) fn get(&self, app: usize, memory: Memory, scheme: Scheme) -> &Outcome {
        self.outcomes.get(&(app, memory, scheme)).expect("every figure's runs were run")
    }

    /// The one that stands for a program of the paper.
    pub(super) fn app(&self, stands_for: &str) -> Option<usize> {
        self.apps.iter().position(|app| app.stands_for == stands_for)
    }
}

fn keys(apps: usize) -> Vec<Key> {
    use Scheme::{Beside, Disk, Doubled, Eager, Emulated, Full, Learned, Pipelined};
    let mut jobs = Vec::new();
    for app in 0..apps {
        for memory in Memory::ALL {
            jobs.extend([Disk, Full].map(|scheme| (app, memory, scheme)));
            jobs.extend(SUBPAGES.map(|bytes| (app, memory, Eager(bytes))));
            jobs.push((app, memory, Pipelined(1024)));
        }
        let more = SUBPAGES.map(Pipelined).into_iter().filter(|s| *s != Pipelined(1024));
        let more = more.chain([Doubled(512), Beside(1024), Learned(1024), Emulated(2048)]);
        jobs.extend(more.map(|scheme| (app, Memory::Half, scheme)));
    }
    jobs
}

struct Touches(Vec<Run>);

impl Source for Touches {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        into.append(&mut self.0);
        Ok(!into.is_empty())
    }
}

/// How long a lone fault on a page of `page_bytes` takes until `grains` of it, touched one after the other, are there.
pub(super) fn lone_fault_ns(
    model: &Model,
    page_bytes: u64,
    subpage_bytes: u64,
    plan: &str,
    grains: &[u64],
) -> u64 {
    let touches = grains.iter().map(|&grain| Run { grain, references: 1, writes: false }).collect();
    let trace = Prepared::read(&mut Touches(touches), page_bytes).expect("it is made up here");
    let config = Config {
        model: model.clone(),
        subpage_bytes,
        unit_bytes: 256,
        local_pages: None,
        fetch_plan: plan.into(),
        pipelined_unattended: true,
        details: false,
    };
    let lru = loam_core::replacement::by_name("lru").expect("it has that name");
    let outcome = machine::run(&config, &trace, lru).expect("the sizes fit");
    outcome.sp_latency_ns + outcome.page_wait_ns
}

fn table_2(model: &Model) -> Vec<(u64, u64, u64)> {
    let full = lone_fault_ns(model, PAGE_BYTES, PAGE_BYTES, "full", &[0]);
    let eager = SUBPAGES.map(|bytes| {
        let first = lone_fault_ns(model, PAGE_BYTES, bytes, "eager", &[0]);
        let both = lone_fault_ns(model, PAGE_BYTES, bytes, "eager", &[0, PAGE_BYTES / 256 - 1]);
        // The one reference between the two waits is not waited for.
        (bytes, first, both + model.reference_ns)
    });
    std::iter::once((PAGE_BYTES, full, full)).chain(eager).collect()
}
