use super::*;
use crate::workload::{self, Scale};
use std::path::Path;
use std::sync::Arc;

const FILE: SpaceId = SpaceId(99);

fn walk(private: u32, shared: u32, passes: u32) -> WalkConfig {
    WalkConfig {
        private,
        shared,
        passes: Some(passes),
        warm_up: 0,
        random: true,
        cpu_ns: 20_000,
        builds: true,
    }
}

fn run(placement: &'static str, seed: u64) -> Vec<NodeReport> {
    let config = ClusterConfig { placement, seed, ..ClusterConfig::paper(vec![64, 64, 96, 32]) };
    let mut cluster = Cluster::new(config);
    cluster.run(Duration::from_millis(1_000));
    for n in 0..2 {
        cluster.start(n, Box::new(Walk::new(walk(80, 40, 20), Cluster::space(n), FILE, seed)));
    }
    cluster.frames_at(cluster.now() + Duration::from_millis(500), 2, 20);
    (0..2).for_each(|n| cluster.run_until_end(n));
    (0..4).map(|n| cluster.report(n)).collect()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for placement in placement::NAMES {
        let text = |seed| format!("{:?}", run(placement, seed));
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2), "{placement}");
    }
}

#[test]
fn every_fault_is_served_by_one_of_the_four_cases() {
    for report in &run("gms", 1)[..2] {
        let stats = report.stats;
        assert_eq!(report.faults, stats.own + stats.global + stats.duplicate + stats.disk, "{report:?}");
        assert_eq!(report.references, 120 * 20);
        assert!(stats.global > 100 && stats.duplicate > 0 && stats.puts > 100, "{stats:?}");
    }
}

/// A program that computes for `ms` beside a reference now and then.
fn computing(ms: u32) -> WalkConfig {
    WalkConfig { cpu_ns: 1_000_000, random: false, ..walk(1, 0, ms) }
}

#[test]
fn what_a_node_does_for_others_delays_its_own_program() {
    let alone = {
        let mut cluster = Cluster::new(ClusterConfig::paper(vec![32, 256]));
        cluster.start(1, Box::new(Walk::new(computing(1_000), Cluster::space(1), FILE, 1)));
        cluster.run_until_end(1);
        cluster.report(1)
    };
    let mut cluster = Cluster::new(ClusterConfig::paper(vec![32, 256]));
    cluster.start(0, Box::new(Walk::new(walk(128, 0, 1_000), Cluster::space(0), FILE, 1)));
    cluster.run(Duration::from_millis(2_000));
    let before = cluster.report(1).service;
    cluster.start(1, Box::new(Walk::new(computing(1_000), Cluster::space(1), FILE, 1)));
    cluster.run_until_end(1);
    let (report, costs) = (cluster.report(1), Costs::paper());
    let lost = Duration(report.elapsed.0 - alone.elapsed.0);
    let served = Duration(report.service.0 - before.0);
    assert!(lost.0 > 100 * costs.put_target.0, "hardly anything was asked of it: {lost:?}");
    // What was asked for while it did not run, at its ends and while it waited for its one page, is not its loss.
    assert!(served.0 >= lost.0 && served.0 - lost.0 < 20_000_000, "{served:?} of service, {lost:?} lost");
}

#[test]
fn without_global_memory_nothing_is_charged_for_it() {
    let config = ClusterConfig::paper(vec![64]);
    let mut cluster = Cluster::new(ClusterConfig { global: false, placement: "none", ..config });
    let walk = WalkConfig { random: false, builds: false, ..walk(128, 0, 3) };
    cluster.start(0, Box::new(Walk::new(walk, Cluster::space(0), FILE, 1)));
    cluster.run_until_end(0);
    let report = cluster.report(0);
    assert_eq!((report.faults, report.service, report.bytes_sent), (3 * 128, Duration(0), 0));
    let costs = Costs::paper().disk;
    // Each pass begins with a jump.
    assert_eq!(report.fault_wait.0, 3 * (costs.random.0 + 127 * costs.sequential.0));
}

#[test]
fn a_workload_is_recorded_and_runs_faster_with_idle_memory() {
    let small = workload::by_name("oo7", Scale::Small, workload::PAGE_BYTES, 1, Path::new("unused"));
    let recording = Arc::new(Recording::new(&mut *small.unwrap().unwrap()).unwrap());
    let frames = (recording.pages / 2) as u32;
    let time = |global: bool| {
        let config = ClusterConfig::paper(vec![frames, 2 * frames]);
        let placement = if global { "gms" } else { "none" };
        let mut cluster = Cluster::new(ClusterConfig { global, placement, ..config });
        cluster.run(Duration::from_millis(1_000));
        cluster.start(0, Box::new(Replay::new(recording.clone(), Cluster::space(0), 2)));
        cluster.run_until_end(0);
        cluster.report(0)
    };
    let (with, without) = (time(true), time(false));
    assert_eq!(with.references, recording.references());
    assert!(with.stats.disk < without.stats.disk, "{with:?} {without:?}");
    assert!(with.elapsed < without.elapsed, "{with:?} {without:?}");
}
