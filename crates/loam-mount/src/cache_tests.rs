//! The cache against a model, and its waiting.

use super::*;
use loam_wire::mount::FileVersion;
use proptest::prelude::*;

const ROOM_RUNS: usize = 16;

fn cache(shared: bool) -> Cache {
    Cache::new(CACHE_BYTES_MIN, shared, Arc::default())
}

fn key(run: u64) -> RunKey {
    RunKey { file: FileVersion::new(1), run }
}

fn run_of(cache: &Cache, run: u64) -> Arc<Run> {
    let mut buffer = cache.buffers.take();
    buffer.fill(run as u8 | 1);
    Arc::new(Run::read(buffer, RUN_BYTES))
}

/// Reads a run as a mount does; the answer is what left.
fn read(cache: &Cache, run: u64, duplicate: bool) -> Vec<RunKey> {
    let (claims, mut claimed) = cache.claim([key(run)].into_iter());
    match &claims[..] {
        [Claim::Hit(found)] => {
            assert_eq!(found.contents()[0], run as u8 | 1);
            Vec::new()
        }
        [Claim::Mine] => claimed.bring(&[(key(run), run_of(cache, run))], duplicate),
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read { run: u64, duplicate: bool },
    Lend(u64),
    LastCopy(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = 0..40_u64;
    let step = prop_oneof![
        4 => (run.clone(), any::<bool>()).prop_map(|(run, duplicate)| Step::Read { run, duplicate }),
        1 => run.clone().prop_map(Step::Lend),
        1 => run.prop_map(Step::LastCopy),
    ];
    proptest::collection::vec(step, 1..300)
}

/// The same in the slowest way: (run, duplicate, spared), the oldest first.
#[derive(Default)]
struct Model(Vec<(u64, bool, bool)>);

impl Model {
    fn read(&mut self, run: u64, duplicate: bool, shared: bool) -> Vec<RunKey> {
        if let Some(at) = self.0.iter().position(|held| held.0 == run) {
            let held = self.0.remove(at);
            self.0.push((held.0, held.1, false));
            return Vec::new();
        }
        self.0.push((run, duplicate, false));
        let mut evicted = Vec::new();
        let mut tries = 0;
        while self.0.len() > ROOM_RUNS {
            let (run, duplicate, spared) = self.0.remove(0);
            if shared && !duplicate && !spared && tries < SPARED_MAX {
                self.0.push((run, duplicate, true));
                tries += 1;
            } else {
                evicted.push(key(run));
            }
        }
        evicted
    }

    fn mark(&mut self, run: u64, duplicate: bool) {
        self.0.iter_mut().filter(|held| held.0 == run).for_each(|held| held.1 = duplicate);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_does_what_the_model_does(steps in steps(), shared in any::<bool>()) {
        let cache = cache(shared);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Read { run, duplicate } => {
                    prop_assert_eq!(read(&cache, run, duplicate), model.read(run, duplicate, shared));
                }
                Step::Lend(run) => {
                    let there = model.0.iter().any(|held| held.0 == run);
                    prop_assert_eq!(cache.lend(key(run)).is_some(), there);
                    model.mark(run, true);
                }
                Step::LastCopy(run) => {
                    cache.is_last_copy(key(run));
                    model.mark(run, false);
                }
            }
            let (mut held, mut expected) = (cache.keys(), model.0.iter().map(|held| key(held.0)).collect::<Vec<_>>());
            held.sort();
            expected.sort();
            prop_assert_eq!(held, expected);
            prop_assert!(cache.held_bytes().0 <= cache.held_bytes().1);
        }
    }
}

#[test]
fn duplicates_leave_before_the_last_copies() {
    let cache = cache(true);
    for run in 0..ROOM_RUNS as u64 {
        read(&cache, run, run % 2 == 1);
    }
    let mut gone = Vec::new();
    for run in 100..108 {
        gone.extend(read(&cache, run, true));
    }
    assert_eq!(
        gone,
        (0..8).map(|at| key(2 * at + 1)).collect::<Vec<_>>(),
        "all odd ones, though the even ones are older"
    );
}

#[test]
fn a_run_is_brought_once_and_waited_for() {
    let cache = cache(false);
    let (_, mut claimed) = cache.claim([key(1), key(2)].into_iter());
    assert_eq!(claimed.keys(), [key(1), key(2)]);
    let (claims, none) = cache.claim([key(1)].into_iter());
    assert!(matches!(claims[..], [Claim::Others]) && none.keys().is_empty());
    assert!(cache.wait(key(1), Duration::from_millis(1)).is_none(), "it is not there in time");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.wait(key(1), Duration::from_secs(20)));
        let in_vain = scope.spawn(|| cache.wait(key(2), Duration::from_secs(20)));
        claimed.bring(&[(key(1), run_of(&cache, 1))], false);
        // The thread that had claimed the other one gives up.
        drop(claimed);
        assert!(waiting.join().expect("no panic").is_some());
        assert!(in_vain.join().expect("no panic").is_none());
    });
    let (claims, _claimed) = cache.claim([key(2)].into_iter());
    assert!(matches!(claims[..], [Claim::Mine]), "what was given up can be claimed again");
}
