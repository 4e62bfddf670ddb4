//! All programs, small, on small machines.

use super::*;
use crate::multiprocessor::{Part, Prefetch};

#[test]
fn small_programs_come_to_every_row_twice_the_same() {
    let run = || Experiments::run(Extent::Small, 2, &|_, _| {}).expect("programs check what they compute");
    let (first, second) = (run(), run());
    assert!(first.touches() > 0);
    for (key, outcome) in first.all() {
        assert_eq!(outcome, second.get(key.0, key.1, key.2, key.3), "{key:?}");
        let sum: f64 = Part::ALL.iter().map(|&part| outcome.part_ns(part)).sum();
        assert!((sum - outcome.run.0 as f64).abs() < 1.0, "{key:?}: parts of the run");
        assert!(outcome.reads.count > 0, "{key:?}: data begin on disk");
    }
    let reproduction = reproduce(&first);
    let of_kind = rows().into_iter().filter(|row| row.kind == super::super::Kind::Result).count();
    assert_eq!(reproduction.results.len(), of_kind, "every result is there");
    assert_eq!(reproduction.checks.len(), 3);
    assert!(reproduction.tables.iter().all(|(_, _, table)| !table.rows().is_empty()));
    assert!(reproduction.figures.iter().all(|(_, figure)| figure.svg().contains("NoFree")));
}

#[test]
fn small_programs_swap_out_and_the_ring_serves_them() {
    let e = Experiments::run(Extent::Small, 2, &|_, _| {}).expect("programs check what they compute");
    let all = || {
        (0..PARALLEL_NAMES.len())
            .map(|program| e.get(program, machines::Machine::Paper, Prefetch::Optimal, true))
    };
    assert!(all().map(|outcome| outcome.swap_outs.count).sum::<u64>() > 100);
    assert!(all().map(|outcome| outcome.ring_hits.count).sum::<u64>() > 10);
}

#[test]
fn the_claim_of_orders_can_fail() {
    let check = |ratios: &[(&str, Option<f64>)]| claims::orders(Prefetch::Naive, ratios).pass;
    assert!(check(&[("fft", Some(8.0)), ("sor", None), ("lu", Some(900.0))]));
    assert!(!check(&[("fft", Some(8.0)), ("lu", Some(7000.0))]), "four orders");
    assert!(!check(&[("fft", Some(2.0))]), "none");
    assert!(!check(&[("fft", None), ("sor", None)]), "nothing was judged");
}

#[test]
fn what_is_printed_of_gains_is_found_by_program() {
    use tables::gain_printed;
    assert_eq!(gain_printed("em3d", Prefetch::Optimal), Some(23.0));
    assert_eq!(gain_printed("gauss", Prefetch::Optimal), Some(64.0));
    assert_eq!(gain_printed("mg", Prefetch::Optimal), Some(60.0));
    assert_eq!(gain_printed("lu", Prefetch::Optimal), None);
    assert_eq!(gain_printed("fft", Prefetch::Naive), Some(-3.0));
    assert_eq!(gain_printed("radix", Prefetch::Naive), Some(3.0));
    assert_eq!(least_free_frames(), [12, 4, 2]);
}
