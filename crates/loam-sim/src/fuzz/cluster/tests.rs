use super::*;
use crate::fuzz::FailureKind;
use crate::fuzz::campaign::{outcome_of_cluster, run_cluster_seeds};

#[test]
fn nothing_is_found_in_some_hundred_seeds() {
    let totals = run_cluster_seeds(0, 300, 2, &|_| {})
        .unwrap_or_else(|(seed, failure)| panic!("seed {seed}: {failure:?}"));
    // Every way to answer a fault is met, and nodes really come and go.
    assert!(totals.sum.answered.iter().all(|&n| n > 500), "{totals:?}");
    assert!(totals.sum.died > 300 && totals.sum.left > 30 && totals.sum.joined > 2_000, "{totals:?}");
    assert!(totals.sum.puts > 10_000 && totals.sum.exact > 1_000, "{totals:?}");
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in [3, 17, 52] {
        let script = Script::of(seed);
        assert_eq!(script, Script::of(seed));
        let [a, b] = [(); 2].map(|()| outcome_of_cluster(&script, true, Sabotage::None));
        assert!(a.log.len() > 1_000 && a == b, "seed {seed}");
        let silent = outcome_of_cluster(&script, false, Sabotage::None);
        assert_eq!((silent.events, silent.accesses, silent.answered), (a.events, a.accesses, a.answered));
    }
}

/// A driver that is broken on purpose is found out within `seeds` seeds as the first of these kinds; before that it may be found as another.
fn is_found(sabotage: Sabotage, kinds: &[FailureKind], seeds: u64) {
    for seed in 0..seeds {
        if let Some(failure) = outcome_of_cluster(&Script::of(seed), false, sabotage).failure {
            assert!(kinds.contains(&failure.kind), "{sabotage:?}, seed {seed}: {failure:?}");
            if failure.kind == kinds[0] {
                return;
            }
        }
    }
    panic!("{sabotage:?} was not found in {seeds} seeds");
}

#[test]
fn a_node_that_serves_old_versions_is_found() {
    is_found(Sabotage::ServesOldVersions, &[FailureKind::WrongBytes], 300);
}

#[test]
fn a_coordinator_that_ignores_pods_is_found() {
    is_found(Sabotage::IgnoresPods, &[FailureKind::Disagreement], 50);
}

#[test]
fn a_coordinator_that_ignores_epochs_is_found() {
    is_found(Sabotage::IgnoresEpochs, &[FailureKind::Disagreement], 50);
}

#[test]
fn a_page_that_is_kept_after_its_owners_death_is_found() {
    is_found(Sabotage::NeverBuries, &[FailureKind::Leak, FailureKind::Disagreement], 100);
}

#[test]
fn a_driver_that_skips_writes_is_found() {
    is_found(Sabotage::SkipsWrites, &[FailureKind::WrongBytes], 50);
}

#[test]
fn a_disk_that_does_not_answer_is_found() {
    is_found(Sabotage::LosesDiskReads, &[FailureKind::Liveness], 50);
}

#[test]
fn a_machine_whose_pressure_is_hidden_is_found() {
    is_found(Sabotage::HidesPressure, &[FailureKind::Leak], 50);
}

#[test]
fn a_copy_that_is_counted_twice_is_found() {
    is_found(Sabotage::KeepsServedCopies, &[FailureKind::Leak], 300);
}
