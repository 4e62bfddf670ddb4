//! Everything, small.

use super::*;

#[test]
fn small_runs_come_to_every_row_twice_the_same() {
    let run = || Experiments::run(Extent::Small, 2, &|_, _| {}).expect("what is computed is right");
    let first = run();
    assert_eq!(first, run());
    assert!(first.keys.iter().all(|of| of.children == 168), "figure 10's trees are the paper's");
    let reproduction = reproduce(&first);
    let of_kind = |kind| rows().into_iter().filter(|row| row.kind == kind).count();
    assert_eq!(reproduction.results.len(), of_kind(super::super::Kind::Result), "every result is there");
    assert_eq!(reproduction.checks.len(), of_kind(super::super::Kind::Claim), "and every claim");
    assert!(reproduction.tables.iter().all(|(_, _, table)| !table.rows().is_empty()));
    assert!(reproduction.figures.iter().all(|(_, figure)| figure.svg().contains("</svg>")));
}

#[test]
fn claims_of_the_controllers_can_fail() {
    let e = Experiments::run(Extent::Small, 2, &|_, _| {}).expect("what is computed is right");
    use crate::regions::config::Division;
    let fails = |division| claims::controllers(&e, division).iter().any(|(pass, _)| !pass);
    let base = claims::controllers(&e, Division::Rest);
    assert!(base.iter().all(|(pass, _)| *pass), "{base:#?}");
    assert!(
        fails(Division::Equal),
        "client and server as fast as each other: four threads would halve again"
    );
    assert!(fails(Division::RestQueued), "a queue alone has nothing to gain from a longer way");
    assert!(
        fails(Division::RestNoRoomSlowServers),
        "two threads whose requests are refused do not take half of the time of one"
    );
}

#[test]
fn a_line_explains_what_lies_on_it() {
    let line: Vec<(f64, f64)> = (0..9).map(|x| (f64::from(x), 3.0 * f64::from(x) - 2.0)).collect();
    assert!((claims::explained(&line) - 1.0).abs() < 1e-12);
    let bent: Vec<(f64, f64)> = (-4..5).map(|x| (f64::from(x), f64::from(x * x))).collect();
    assert!(claims::explained(&bent) < 0.01);
}

#[test]
fn what_is_printed_is_read() {
    let inputs = inputs();
    assert_eq!((inputs.nodes, inputs.random, inputs.hop), (16, Duration(2200), Duration(600)));
    assert_eq!(free_bytes(), 156_000_000);
}
