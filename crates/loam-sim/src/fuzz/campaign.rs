//! Many seeds, one engine a thread; and assertions as outcomes.

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
        }
    }

    /// The kind of an exit status.
    pub fn of_exit_status(status: i32) -> Option<Self> {
        [Self::WrongBytes, Self::Unsafe, Self::Liveness, Self::Leak, Self::Assert]
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

/// Runs a script; an assertion that fails is its failure.
pub fn outcome_of(script: &Script, log: bool, sabotage: Sabotage) -> Outcome {
    hear_panics();
    SEED.set(Some(script.seed));
    let result = catch_unwind(AssertUnwindSafe(|| run(script, log, sabotage)));
    SEED.set(None);
    result.unwrap_or_else(|_| {
        let what = PANIC.take().unwrap_or_default();
        let failure = Failure { kind: FailureKind::Assert, at: Instant(0), what };
        Outcome { failure: Some(failure), log: sim::take_log(), ..Outcome::default() }
    })
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
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Totals::default();
                while !stop.load(Relaxed) {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= count {
                        break;
                    }
                    let seed = first.wrapping_add(n);
                    let outcome = outcome_of(&Script::of(seed), false, Sabotage::None);
                    own.seeds += 1;
                    own.events += outcome.events;
                    own.moved += outcome.moved;
                    own.lost_runs += outcome.lost_runs;
                    own.answered.iter_mut().zip(outcome.answered).for_each(|(sum, n)| *sum += n);
                    if let Some(failure) = outcome.failure {
                        stop.store(true, Relaxed);
                        let mut worst = failed.lock().expect("nobody panics with it");
                        // Which thread is first depends on the machine; of those that failed the lowest seed is told.
                        if worst.as_ref().is_none_or(|w| w.0 > seed) {
                            *worst = Some((seed, failure));
                        }
                    }
                    progress(n + 1);
                }
                let mut totals = totals.lock().expect("nobody panics with it");
                totals.seeds += own.seeds;
                totals.events += own.events;
                totals.moved += own.moved;
                totals.lost_runs += own.lost_runs;
                totals.answered.iter_mut().zip(own.answered).for_each(|(sum, n)| *sum += n);
            });
        }
    });
    match failed.into_inner().expect("nobody panics with it") {
        Some(failure) => Err(failure),
        None => Ok(totals.into_inner().expect("nobody panics with it")),
    }
}
