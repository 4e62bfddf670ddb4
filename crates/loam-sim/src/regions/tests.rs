//! The prototype alone: what no load can be faster than, and what no controller can exceed.

use super::config::{Config, Division, Inputs};
use super::machine::{Thread, run};
use loam_core::units::Duration;

fn inputs() -> Inputs {
    crate::reproduce::regions::inputs()
}

fn one(node: usize, server: usize, loads: u64, random: bool) -> Thread {
    Thread { node, servers: vec![server], loads: Some(loads), random }
}

#[test]
fn a_load_alone_takes_what_is_printed() {
    let inputs = inputs();
    for division in Division::ALL {
        let config = Config::of(&inputs, division);
        assert_eq!(config.unloaded(1), inputs.stride, "{division:?}");
        for (hops, server) in [(1, 1), (2, 2), (3, 3), (4, 7), (5, 11), (6, 15)] {
            let expected = inputs.stride.0 + (hops - 1) * inputs.hop.0;
            let run = run(&config, &[one(0, server, 100, false)], 1);
            assert_eq!(run.waited[0], Duration(100 * expected), "{division:?}, {hops} hops");
            assert_eq!(run.refusals, 0);
        }
    }
}

#[test]
fn drawing_a_place_takes_what_the_two_benchmarks_differ_by() {
    let inputs = inputs();
    let config = Config::of(&inputs, Division::Rest);
    let run = run(&config, &[one(5, 6, 1000, true)], 1);
    let each = run.ns_per_load(1000);
    assert!((each - inputs.random.0 as f64).abs() < 15.0, "{each} ns, and a beginning within a load");
}

#[test]
fn no_controller_does_more_than_it_can() {
    let inputs = inputs();
    for division in Division::ALL {
        let config = Config::of(&inputs, division);
        for threads in [1, 2, 4, 8, 16] {
            let all: Vec<Thread> = (0..threads).map(|_| one(5, 6, 500, true)).collect();
            let run = run(&config, &all, 7);
            let each = run.ns_per_load(500 * threads);
            assert!(each >= 2.0 * config.client_pass.0 as f64, "{division:?}, {threads} threads: {each} ns");
            assert!(each * threads as f64 >= inputs.random.0 as f64 * 0.98, "one load a core at a time");
            assert!(run.client_busy.iter().chain(&run.server_busy).all(|busy| busy.0 <= run.end.0));
            assert_eq!(run.loads.iter().sum::<u64>(), 500 * threads);
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let config = Config::of(&inputs(), Division::Rest);
    let all: Vec<Thread> =
        (0..4).map(|_| Thread { servers: vec![1, 4, 6, 9], ..one(5, 6, 300, true) }).collect();
    assert_eq!(run(&config, &all, 3), run(&config, &all, 3));
    assert_ne!(run(&config, &all, 3), run(&config, &all, 4));
}

#[test]
#[should_panic(expected = "servers are other nodes")]
fn a_node_does_not_load_from_itself() {
    run(&Config::of(&inputs(), Division::Rest), &[one(5, 5, 1, false)], 1);
}
