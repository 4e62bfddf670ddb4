//! The paper's set-ups (sections 5.3 to 5.7), as clusters.

use super::micro::FILE;
use crate::cluster::{Cluster, ClusterConfig, NodeReport, PAGE_BYTES, Recording, Replay, Walk, WalkConfig};
use loam_core::units::{Duration, Instant};
use std::sync::Arc;

/// Frames of a machine with 64 MB.
pub(super) const FRAMES: u32 = (64 << 20) / PAGE_BYTES as u32;
/// Nodes besides the one with the program.
const OTHERS: u32 = 8;
const SECOND: Duration = Duration::from_millis(1_000);

/// Who decides where pages go, with how much idle memory: in tenths of what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Policy {
    pub(super) placement: &'static str,
    pub(super) tenths: u32,
}

impl Policy {
    pub(super) const GMS: Self = Self { placement: "gms", tenths: 10 };
    /// The four bars of figures 9 to 11.
    pub(super) const ALL: [Self; 4] = [Self::chance(10), Self::chance(15), Self::chance(20), Self::GMS];

    pub(super) const fn chance(tenths: u32) -> Self {
        Self { placement: "n-chance", tenths }
    }

    pub(super) fn name(self) -> String {
        match (self.placement, self.tenths) {
            ("gms", _) => "GMS, idle = needed".into(),
            (_, 10) => "N-chance, idle = needed".into(),
            (_, tenths) => format!("N-chance, idle = {} x needed", f64::from(tenths) / 10.0),
        }
    }
}

/// So many of the eight nodes hold the rest of 100% of the idle memory.
pub(super) const SKEWS: [(u32, f64); 3] = [(2, 0.75), (3, 0.625), (4, 0.5)];

/// What came of a scene.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The measured programs'.
    pub(super) programs: Vec<NodeReport>,
    /// References a second of the busy nodes' programs, before and during the measured one.
    pub(super) busy: [f64; 2],
    /// Bytes on the network while the measured program ran.
    pub(super) bytes: u64,
    /// The first idle node's processor and transfers, in that time.
    pub(super) service: Duration,
    pub(super) transfers: u64,
    pub(super) span: Duration,
    /// References that were simulated.
    pub(super) references: u64,
}

impl Outcome {
    /// Mean time of the measured programs in seconds.
    pub(super) fn seconds(&self) -> f64 {
        let sum: u64 = self.programs.iter().map(|report| report.elapsed.0).sum();
        sum as f64 / 1e9 / self.programs.len().max(1) as f64
    }
}

/// Frames that a program lacks.
pub(super) fn needed(recording: &Recording) -> u32 {
    u32::try_from(recording.pages).expect("it fits into a simulation").saturating_sub(FRAMES)
}

/// Programs that read files are measured when the cluster has seen them once.
fn passes(recording: &Recording) -> u32 {
    if ["oo7", "router"].contains(&recording.name) { 1 } else { 2 }
}

fn program(recording: &Arc<Recording>, node: usize) -> Box<Replay> {
    Box::new(Replay::new(recording.clone(), Cluster::space(node), passes(recording)))
}

/// Starts the programs on the first nodes, and runs until all have ended.
fn measure(mut cluster: Cluster, recordings: &[&Arc<Recording>], idle: Option<usize>) -> Outcome {
    let began = cluster.now();
    let bytes = cluster.bytes_sent();
    let at = |cluster: &Cluster| idle.map(|n| cluster.report(n)).unwrap_or_default();
    let before = at(&cluster);
    for (n, recording) in recordings.iter().enumerate() {
        cluster.start(n, program(recording, n));
    }
    (0..recordings.len()).for_each(|n| cluster.run_until_end(n));
    let after = at(&cluster);
    let references = recordings.iter().map(|of| of.references() * u64::from(passes(of))).sum();
    Outcome {
        programs: (0..recordings.len()).map(|n| cluster.report(n)).collect(),
        busy: [0.0; 2],
        bytes: cluster.bytes_sent() - bytes,
        service: Duration(after.service.0 - before.service.0),
        transfers: after.transfers - before.transfers,
        span: cluster.now() - began,
        references,
    }
}

fn ready(config: ClusterConfig) -> Cluster {
    let mut cluster = Cluster::new(config);
    cluster.run(Duration::from_millis(2_000));
    cluster
}

/// Without global memory.
pub(super) fn native(recording: &Arc<Recording>) -> Outcome {
    let config = ClusterConfig::paper(vec![FRAMES]);
    measure(ready(ClusterConfig { global: false, placement: "none", ..config }), &[recording], None)
}

/// Figure 6: one program, and eight nodes with so much idle memory together.
pub(super) fn ample(recording: &Arc<Recording>, idle_mb: u32) -> Outcome {
    let all = (u64::from(idle_mb) << 20) / PAGE_BYTES;
    let mut frames = vec![FRAMES];
    frames.extend(std::iter::repeat_n((all / u64::from(OTHERS)) as u32, OTHERS as usize));
    measure(ready(ClusterConfig::paper(frames)), &[recording], None)
}

/// Figure 7: of each five nodes two are idle, the others run three workloads.
pub(super) fn many(recordings: [&Arc<Recording>; 3], nodes: u32) -> Outcome {
    let groups = nodes / 5;
    let room: u32 = recordings.iter().map(|of| needed(of)).sum();
    let mut frames = vec![FRAMES; 3 * groups as usize];
    frames.extend(std::iter::repeat_n(room.div_ceil(2) * 11 / 10, 2 * groups as usize));
    let programs: Vec<&Arc<Recording>> = (0..groups).flat_map(|_| recordings.iter().copied()).collect();
    measure(ready(ClusterConfig::paper(frames)), &programs, None)
}

/// Of the idle memory, the part that figure 8's four idle nodes have ("most").
const MOST: f64 = 0.9;

/// Figure 8: every so many seconds an idle node and one that is not change roles. 0: never.
pub(super) fn changing(recording: &Arc<Recording>, seconds: u32) -> Outcome {
    let all = f64::from(needed(recording)) * 1.5;
    let [rich, poor] = [MOST, 1.0 - MOST].map(|part| (all * part / 4.0) as u32);
    let mut frames = vec![FRAMES];
    frames.extend([rich, rich, rich, rich, poor, poor, poor, poor]);
    let config = ClusterConfig::paper(frames);
    let swap = config.costs.swap();
    let mut cluster = ready(config);
    if seconds > 0 {
        // Nodes 1 to 4 are idle at first; the n-th change is between one of them and one of the others.
        let mut is_rich = [true, true, true, true, false, false, false, false];
        let step = Duration(SECOND.0 * u64::from(seconds));
        let mut at = cluster.now() + step;
        let end = cluster.now() + Duration::from_millis(2_000_000);
        let mut n = 0;
        while at < end {
            let pair = [n % 4, 4 + n % 4];
            for node in pair {
                is_rich[node] = !is_rich[node];
                cluster.ramp_at(at, node + 1, if is_rich[node] { rich } else { poor }, swap);
            }
            n += 1;
            at = at + step;
        }
    }
    measure(cluster, &[recording], None)
}

fn skewed(recording: &Recording, policy: Policy, skew: (u32, f64)) -> [u32; 2] {
    let all = f64::from(needed(recording)) * f64::from(policy.tenths) / 10.0;
    let (rich, part) = skew;
    [
        (all * part / f64::from(rich)).ceil() as u32,
        (all * (1.0 - part) / f64::from(OTHERS - rich)).ceil() as u32,
    ]
}

/// Figure 9: idle memory is where the skew says.
pub(super) fn distributed(recording: &Arc<Recording>, policy: Policy, skew: (u32, f64)) -> Outcome {
    let [rich, poor] = skewed(recording, policy, skew);
    let mut frames = vec![FRAMES];
    frames.extend((0..OTHERS).map(|n| if n < skew.0 { rich } else { poor }));
    let config = ClusterConfig { placement: policy.placement, ..ClusterConfig::paper(frames) };
    measure(ready(config), &[recording], None)
}

/// Processor time of the busy nodes' program for each page: seven times through its words, at a data reference of 14.2 ns.
const BUSY_CPU_NS: u64 = 100_000;

/// Figures 10 and 11: as before, but the nodes that are not idle run a program that uses all the rest of their memory.
pub(super) fn interfering(recording: &Arc<Recording>, policy: Policy, skew: (u32, f64)) -> Outcome {
    let [rich, poor] = skewed(recording, policy, skew);
    let mut frames = vec![FRAMES];
    frames.extend((0..OTHERS).map(|n| if n < skew.0 { rich } else { FRAMES }));
    let config = ClusterConfig { placement: policy.placement, ..ClusterConfig::paper(frames) };
    let mut cluster = ready(config);
    let uses = FRAMES.saturating_sub(poor).max(2);
    let walk = WalkConfig {
        private: uses / 2,
        shared: uses / 2,
        passes: None,
        warm_up: 0,
        random: false,
        cpu_ns: BUSY_CPU_NS,
        builds: true,
    };
    let busy: Vec<usize> = (skew.0 as usize + 1..=OTHERS as usize).collect();
    for &n in &busy {
        cluster.start(n, Box::new(Walk::new(walk, Cluster::space(n), FILE, 1)));
        cluster.run(Duration::from_millis(300));
    }
    // All have what they use.
    let is_cold =
        |cluster: &Cluster| busy.iter().any(|&n| cluster.report(n).references < 3 * u64::from(uses));
    while is_cold(&cluster) {
        cluster.run(Duration::from_millis(5_000));
    }
    let count = |cluster: &Cluster| busy.iter().map(|&n| cluster.report(n).references).sum::<u64>();
    let rate = |references: u64, span: Duration| references as f64 / (span.0 as f64 / 1e9);
    let (first, began) = (count(&cluster), cluster.now());
    cluster.run(Duration::from_millis(10_000));
    let (second, middle) = (count(&cluster), cluster.now());
    let bytes = cluster.bytes_sent();
    cluster.start(0, program(recording, 0));
    cluster.run_until_end(0);
    let (third, end): (u64, Instant) = (count(&cluster), cluster.now());
    Outcome {
        programs: vec![cluster.report(0)],
        busy: [rate(second - first, middle - began), rate(third - second, end - middle)],
        bytes: cluster.bytes_sent() - bytes,
        span: end - middle,
        references: recording.references() * u64::from(passes(recording)) + third,
        ..Outcome::default()
    }
}

/// Figures 12 and 13: so many clients, and one idle node that has room for all of them.
pub(super) fn serving(recording: &Arc<Recording>, clients: u32) -> Outcome {
    let mut frames = vec![FRAMES; clients as usize];
    frames.push(clients * needed(recording) * 11 / 10);
    let programs = vec![recording; clients as usize];
    measure(ready(ClusterConfig::paper(frames)), &programs, Some(clients as usize))
}
