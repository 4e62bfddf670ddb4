use super::campaign::{outcome_of, run_seeds};
use super::shrink::shrink;
use super::*;
use loam_core::borrower::FaultKind;

/// A shrunk failure, for a person who reads the test's output.
fn told(seed: u64, kind: FailureKind, sabotage: Sabotage) -> String {
    let script = Script::of(seed);
    let keep = shrink(script.actions.len(), kind, 200, |keep| {
        outcome_of(&script.with(keep), false, sabotage).failure.map(|f| f.kind)
    });
    outcome_of(&script.with(&keep), true, sabotage).log
}

#[test]
fn nothing_is_found_in_some_hundred_seeds() {
    match run_seeds(0, 300, 2, &|_| {}) {
        Ok(totals) => {
            // Every way to answer a fault is met, and some programs do lose pages, or the faults were too kind.
            assert!(totals.answered.iter().all(|&n| n > 0), "{totals:?}");
            assert!(totals.answered[FaultKind::Remote as usize] > 500, "{totals:?}");
            assert!(totals.lost_runs > 0 && totals.moved > 10_000, "{totals:?}");
        }
        Err((seed, failure)) => {
            panic!("seed {seed}: {failure:?}\n{}", told(seed, failure.kind, Sabotage::None));
        }
    }
}

#[test]
fn a_lender_that_tells_too_early_is_found() {
    is_found(
        Sabotage::TellsTooEarly,
        &[FailureKind::Unsafe, FailureKind::WrongBytes, FailureKind::Assert],
        // What is forgotten before the disk has it stays there for good.
        &[FailureKind::Leak],
        200,
    );
}

#[test]
fn an_agent_that_mends_nothing_is_found() {
    is_found(Sabotage::SkipsMending, &[FailureKind::Unsafe], &[], 400);
}

/// As many seeds of the write cache as are asked for: LOAM_FUZZ_FIRST, LOAM_FUZZ_SEEDS.
#[test]
#[ignore = "a campaign"]
fn campaign_of_the_write_cache() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |n| n.parse().expect("a number"));
    let (first, count) = (number("LOAM_FUZZ_FIRST", 0), number("LOAM_FUZZ_SEEDS", 500));
    let mut kinds = std::collections::BTreeMap::<String, (u64, u64)>::new();
    let (mut lost, mut moved) = (0, 0);
    for n in 0..count {
        let seed = 2 * (first + n) + 1;
        let outcome = outcome_of(&Script::of(seed), false, Sabotage::None);
        lost += outcome.lost_runs;
        moved += outcome.moved;
        if let Some(failure) = outcome.failure {
            let what: String =
                failure.what.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).take(160).collect();
            let entry = kinds.entry(format!("{:?} {what}", failure.kind)).or_insert((seed, 0));
            entry.1 += 1;
        }
    }
    for (what, (seed, count)) in &kinds {
        println!("{count} x, seed {seed}: {what}");
    }
    println!("{count} seeds, {moved} moved, {lost} ended");
    if let Some((_, &(seed, _))) = kinds.iter().next().filter(|_| std::env::var("LOAM_FUZZ_TELL").is_ok()) {
        let seed = number("LOAM_FUZZ_TELL", seed);
        let kind = outcome_of(&Script::of(seed), false, Sabotage::None).failure.expect("it fails").kind;
        println!("{}", told(seed, kind, Sabotage::None));
    }
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in [3, 17, 52] {
        let script = Script::of(seed);
        assert_eq!(script, Script::of(seed));
        let [a, b] = [(); 2].map(|()| outcome_of(&script, true, Sabotage::None));
        assert!(a.log.len() > 1_000 && a.log.as_bytes() == b.log.as_bytes(), "seed {seed}");
        assert_eq!(a, b);
        // The log changes nothing.
        let silent = outcome_of(&script, false, Sabotage::None);
        assert_eq!((silent.events, silent.moved, silent.answered), (a.events, a.moved, a.answered));
    }
}

/// A driver that is broken on purpose is found out within `seeds` seeds, as one of these kinds.
/// One of `seeds` fails in one of `kinds`; those before it in none, or in one of `also`: consequences that other faults have, too.
fn is_found(sabotage: Sabotage, kinds: &[FailureKind], also: &[FailureKind], seeds: u64) {
    for seed in 0..seeds {
        if let Some(failure) = outcome_of(&Script::of(seed), false, sabotage).failure {
            if kinds.contains(&failure.kind) {
                return;
            }
            assert!(also.contains(&failure.kind), "{sabotage:?}, seed {seed}: {failure:?}");
            let without = outcome_of(&Script::of(seed), false, Sabotage::None).failure;
            assert!(without.is_none(), "seed {seed}: {without:?}");
        }
    }
    panic!("{sabotage:?} was not found in {seeds} seeds");
}

#[test]
fn a_lender_that_forgets_is_found() {
    is_found(Sabotage::ForgetfulLender, &[FailureKind::WrongBytes, FailureKind::Unsafe], &[], 100);
}

#[test]
fn an_agent_that_ignores_hashes_is_found() {
    is_found(Sabotage::IgnoresHash, &[FailureKind::WrongBytes, FailureKind::Unsafe], &[], 100);
}

#[test]
fn an_agent_that_skips_writes_is_found() {
    is_found(Sabotage::SkipsWrites, &[FailureKind::Unsafe, FailureKind::WrongBytes], &[], 100);
}

#[test]
fn an_agent_that_wakes_nobody_is_found() {
    is_found(Sabotage::NeverWakes, &[FailureKind::Liveness], &[], 100);
}

#[test]
fn an_agent_that_lets_nobody_write_to_what_is_shared_is_found() {
    is_found(Sabotage::NeverLetsWrite, &[FailureKind::Liveness], &[], 100);
}

#[test]
fn an_agent_that_drops_nothing_is_found() {
    is_found(Sabotage::NeverDrops, &[FailureKind::Leak], &[], 100);
}

#[test]
fn an_agent_that_installs_during_a_change_is_found() {
    let kinds = [FailureKind::WrongBytes, FailureKind::Unsafe, FailureKind::Liveness];
    is_found(Sabotage::InstallsTooEarly, &kinds, &[], 300);
}

#[test]
fn a_failure_is_made_small() {
    let found = (0..100).find_map(|seed| {
        let failure = outcome_of(&Script::of(seed), false, Sabotage::NeverDrops).failure?;
        Some((seed, failure.kind))
    });
    let (seed, kind) = found.expect("it is found");
    let script = Script::of(seed);
    let keep = shrink(script.actions.len(), kind, 400, |keep| {
        outcome_of(&script.with(keep), false, Sabotage::NeverDrops).failure.map(|f| f.kind)
    });
    assert!(keep.len() <= 8, "{} of {} actions are left", keep.len(), script.actions.len());
}

#[test]
fn each_kind_has_an_exit_status_of_its_own() {
    for status in 0..=255 {
        if let Some(kind) = FailureKind::of_exit_status(status) {
            assert_eq!(i32::from(kind.exit_status()), status);
        }
    }
    assert_eq!((0..=255).filter_map(FailureKind::of_exit_status).count(), 6);
}
