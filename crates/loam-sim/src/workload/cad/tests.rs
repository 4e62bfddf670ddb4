use super::*;
use crate::workload::tests::run_whole;

#[test]
fn models_do_not_overlap_and_parts_fill_them() {
    let models = lay(20 << 20, &mut Dice::new(1, 17));
    let mut end = 0;
    for model in &models {
        assert_eq!(model.begin, end);
        end += TABLE_BYTES;
        for &(begin, bytes) in &model.parts {
            assert_eq!(begin, end);
            end += bytes;
        }
    }
    assert!(end <= 20 << 20 && end > (20 << 20) - 2 * MODEL_BYTES);
}

#[test]
fn think_times_fill_the_day() {
    for only in [None, Some(3)] {
        let config = CadConfig { only, ..CadConfig::small() };
        let all = run_whole(&mut Cad::new(config.clone(), Bytes(8192), 2));
        let idle_us: u64 = all.iter().map(|reference| u64::from(reference.idle_us)).sum();
        let day_us = config.seconds * 1_000_000;
        assert!(idle_us < day_us && idle_us > day_us * 9 / 10, "{idle_us} of {day_us}");
    }
}

/// All together do what each does alone.
#[test]
fn engineers_alone_are_the_engineers_together() {
    let count = |only| {
        let mut cad = Cad::new(CadConfig { only, ..CadConfig::small() }, Bytes(8192), 2);
        run_whole(&mut cad);
        (cad.operations, cad.opened, cad.edits)
    };
    let alone = (0..8)
        .map(|only| count(Some(only)))
        .fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    assert_eq!(count(None), alone);
}

#[test]
fn popular_models_are_shared() {
    let opened = |only| {
        let config = CadConfig { only: Some(only), ..CadConfig::small() };
        let all = run_whole(&mut Cad::new(config, Bytes(8192), 2));
        all.iter().map(|r| r.page.page).collect::<std::collections::BTreeSet<_>>()
    };
    let (one, other) = (opened(0), opened(1));
    assert!(one.intersection(&other).count() > 0 && one.difference(&other).count() > 0);
}
