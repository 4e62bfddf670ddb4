use super::*;
use crate::workload::tests::run_whole;

#[test]
fn every_operation_counts_what_it_must() {
    let mut oo7 = Oo7::new(Oo7Config::tiny(), Bytes(8192), 3);
    run_whole(&mut oo7);
    let found = |operation| oo7.findings().iter().find(|f| f.operation == operation).expect("it ran").found;
    // 27 base assemblies, 3 composite parts each, 20 atomic parts each.
    assert_eq!(found(Operation::T1), 27 * 3 * 20);
    assert_eq!(found(Operation::T2c), 27 * 3 * 20 * 4);
    assert_eq!(found(Operation::T6), 27 * 3);
    assert_eq!(found(Operation::T8), 30_000_u64.div_ceil(38));
    assert_eq!(found(Operation::Q7), 40 * 20);
    assert_eq!(oo7.check().map(|lines| lines.len()), Ok(Operation::ALL.len()));
}

#[test]
fn a_wrong_result_is_told() {
    let mut oo7 = Oo7::new(Oo7Config::tiny(), Bytes(8192), 3);
    assert!(oo7.check().is_err(), "it has not run");
    run_whole(&mut oo7);
    let mut wrong = oo7.clone();
    wrong.findings[0].found += 1;
    assert!(wrong.check().expect_err("a count").contains("T1"));
    let mut wrong = oo7;
    wrong.database.atomics[5].date ^= 1;
    assert!(wrong.check().expect_err("a date").contains("atomic part 5"));
}

#[test]
fn the_databases_have_the_sizes_that_the_benchmark_gives_them() {
    // Of small objects each connection adds the same.
    let bytes = |config: Oo7Config| Database::bytes(&config);
    let small = [3, 6, 9].map(|connections| bytes(Oo7Config::small(connections)));
    assert_eq!(small[2] - small[1], small[1] - small[0]);
    assert!((4 << 20..20 << 20).contains(&small[0]), "{small:?}");
    let medium = [3, 6, 9].map(|connections| bytes(Oo7Config::medium(connections)) >> 20);
    assert!((120..140).contains(&medium[2]), "{medium:?} MiB");
}
