use super::campaign::outcome_of;
use super::shrink::shrink;
use super::*;

/// For a person: `SEED=7 cargo test -p loam-sim one -- --nocapture --ignored`.
#[test]
#[ignore]
fn one() {
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    let script = Script::of(seed);
    let outcome = outcome_of(&script, false, Sabotage::None);
    let Some(failure) = outcome.failure else { return };
    let kind = failure.kind;
    println!("{failure:?}");
    let keep = shrink(script.actions.len(), kind, 400, |keep| {
        outcome_of(&script.with(keep), false, Sabotage::None).failure.map(|f| f.kind)
    });
    println!("{}", outcome_of(&script.with(&keep), true, Sabotage::None).log);
}

#[test]
fn seeds() {
    let mut bad = 0;
    for seed in 0..3000 {
        let script = Script::of(seed);
        let outcome = outcome_of(&script, false, Sabotage::None);
        if let Some(f) = outcome.failure { println!("seed {seed}: {f:?}"); bad += 1; }
        if bad > 12 { break; }
    }
    assert_eq!(bad, 0);
}
