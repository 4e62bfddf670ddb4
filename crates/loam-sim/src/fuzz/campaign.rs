//! Many seeds, one engine a thread; and assertions as outcomes.

use super::cluster;
use super::script::Script;
use super::sim::{self, Failure, FailureKind, Sabotage};
use super::world::{Outcome, run};
use loam_core::units::Instant;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, Once};

impl FailureKind {
    /// The exit status of a process whose run failed so: each kind has its own.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::WrongBytes => 10,
            Self::Unsafe => 11,
            Self::Liveness => 12,
            Self::Leak => 13,
            Self::Assert => 14,
            Self::Disagreement => 15,
        }
    }

    /// The kind of an exit status.
    pub fn of_exit_status(status: i32) -> Option<Self> {
        [Self::WrongBytes, Self::Unsafe, Self::Liveness, Self::Leak, Self::Assert, Self::Disagreement]
            .into_iter()
            .find(|kind| i32::from(kind.exit_status()) == status)
    }
}

/// Sums over many seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Seeds.
    pub seeds: u64,
    /// Events.
    pub events: u64,
    /// Base pages that left.
    pub moved: u64,
    /// Faults answered, in the order of `FaultKind`.
    pub answered: [u64; 5],
    /// Programs that were ended for a page that an injected fault had taken.
    pub lost_runs: u64,
}

thread_local! {
    /// What the panic hook has to say: which seed this thread runs.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    /// And what it has heard.
    static PANIC: Cell<Option<String>> = const { Cell::new(None) };
}

/// What a panic says.
fn payload(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Panics of threads that run a seed are kept as that run's failure. Where panics abort there is no way back from here: the hook itself
/// tells the seed, and ends the process with the status of a failed assertion.
fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let Some(seed) = SEED.get() else { return before(info) };
            let what = payload(info.payload());
            let place = info.location().map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
            let what = format!("assertion failed: {what}{place}");
            if cfg!(panic = "abort") {
                print!("{}", sim::take_log());
                println!("seed {seed} failed: {:?}: {what}", FailureKind::Assert);
                std::process::exit(FailureKind::Assert.exit_status().into());
            }
            PANIC.set(Some(what));
        }));
    });
}

/// What comes of a seed; an assertion that fails is its failure.
fn caught<T>(seed: u64, run: impl FnOnce() -> T, failed: impl FnOnce(Failure, String) -> T) -> T {
    hear_panics();
    SEED.set(Some(seed));
    let result = catch_unwind(AssertUnwindSafe(run));
    SEED.set(None);
    result.unwrap_or_else(|_| {
        let what = PANIC.take().unwrap_or_default();
        failed(Failure { kind: FailureKind::Assert, at: Instant(0), what }, sim::take_log())
    })
}

/// Runs a script; an assertion that fails is its failure.
pub fn outcome_of(script: &Script, log: bool, sabotage: Sabotage) -> Outcome {
    let failed = |failure, log| Outcome { failure: Some(failure), log, ..Outcome::default() };
    caught(script.seed, || run(script, log, sabotage), failed)
}

/// The same of a cluster's script.
pub fn outcome_of_cluster(
    script: &cluster::Script,
    log: bool,
    sabotage: cluster::Sabotage,
) -> cluster::Outcome {
    let failed = |failure, log| cluster::Outcome { failure: Some(failure), log, ..Default::default() };
    caught(script.seed, || cluster::run(script, log, sabotage), failed)
}

/// Sums of what the seeds of one thread came to.
trait Sums: Default + Send {
    /// One seed more.
    fn run(&mut self, seed: u64) -> Option<Failure>;
    /// Another thread's.
    fn add(&mut self, other: Self);
}

impl Sums for Totals {
    fn run(&mut self, seed: u64) -> Option<Failure> {
        let outcome = outcome_of(&Script::of(seed), false, Sabotage::None);
        self.add(Self {
            seeds: 1,
            events: outcome.events,
            moved: outcome.moved,
            answered: outcome.answered,
            lost_runs: outcome.lost_runs,
        });
        outcome.failure
    }

    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.moved += other.moved;
        self.lost_runs += other.lost_runs;
        self.answered.iter_mut().zip(other.answered).for_each(|(sum, n)| *sum += n);
    }
}

/// Sums over many seeds of clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTotals {
    /// Seeds.
    pub seeds: u64,
    /// Of all their counts.
    pub sum: cluster::Outcome,
}

impl Sums for ClusterTotals {
    fn run(&mut self, seed: u64) -> Option<Failure> {
        let mut outcome = outcome_of_cluster(&cluster::Script::of(seed), false, cluster::Sabotage::None);
        let failure = outcome.failure.take();
        self.add(Self { seeds: 1, sum: outcome });
        failure
    }

    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.sum.add(&other.sum);
    }
}

/// Runs `count` seeds from `first` on, in `threads` threads. The first failure that is met ends it.
///
/// # Errors
/// The seed that failed, and how.
pub fn run_seeds(
    first: u64,
    count: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Totals, (u64, Failure)> {
    run_all(first, count, threads, progress)
}

/// The same with clusters.
///
/// # Errors
/// The seed that failed, and how.
pub fn run_cluster_seeds(
    first: u64,
    count: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ClusterTotals, (u64, Failure)> {
    run_all(first, count, threads, progress)
}

fn run_all<S: Sums>(
    first: u64,
    count: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<S, (u64, Failure)> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let totals = Mutex::new(S::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = S::default();
                while !stop.load(Relaxed) {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= count {
                        break;
                    }
                    let seed = first.wrapping_add(n);
                    if let Some(failure) = own.run(seed) {
                        stop.store(true, Relaxed);
                        let mut worst = failed.lock().expect("nobody panics with it");
                        // Which thread is first depends on the machine; of those that failed the lowest seed is told.
                        if worst.as_ref().is_none_or(|w| w.0 > seed) {
                            *worst = Some((seed, failure));
                        }
                    }
                    progress(n + 1);
                }
                totals.lock().expect("nobody panics with it").add(own);
            });
        }
    });
    match failed.into_inner().expect("nobody panics with it") {
        Some(failure) => Err(failure),
        None => Ok(totals.into_inner().expect("nobody panics with it")),
    }
}
