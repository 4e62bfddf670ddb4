//! Tables 1 to 5: single operations and steady states on small clusters.

use super::printed;
use crate::cluster::{Cluster, ClusterConfig, EpochStep, NodeReport, Program, Step, Walk, WalkConfig};
use loam_core::global::Access;
use loam_core::ids::{PageId, SpaceId};
use loam_core::units::{Duration, Instant};

/// The file that clients share.
pub(super) const FILE: SpaceId = SpaceId(1_000_000);
const SECOND: Duration = Duration::from_millis(1_000);

/// Some references, one after the other.
#[derive(Debug)]
struct Script(std::vec::IntoIter<Access>);

impl Program for Script {
    fn next_step(&mut self, into: &mut Step) -> bool {
        let Some(access) = self.0.next() else { return false };
        *into = Step { access, cpu_ns: 1_000_000, fresh: access.write, mark: false };
        true
    }
}

/// What tables 1 to 4 have, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Micro {
    /// Table 1, in the order of its columns: non-shared miss and hit, shared miss and hit.
    pub(super) getpage_us: [f64; 4],
    /// Table 2: sender latency, non-shared and shared.
    pub(super) putpage_us: [f64; 2],
    /// Table 3: with and without global memory; sequential, then random.
    pub(super) non_shared_us: [[f64; 2]; 2],
    /// Table 4: single, duplicate, NFS miss, NFS hit; sequential, then random.
    pub(super) shared_us: [[f64; 4]; 2],
}

fn own(index: u64, write: bool) -> Access {
    Access { page: PageId { space: Cluster::space(0), index }, shared: false, write }
}

fn file(index: u64) -> Access {
    Access { page: PageId { space: FILE, index }, shared: true, write: false }
}

/// What the script waited for, in microseconds. It begins when nothing else is under way.
fn waited(cluster: &mut Cluster, node: usize, script: Vec<Access>) -> f64 {
    cluster.run(Duration::from_millis(100));
    cluster.start(node, Box::new(Script(script.into_iter())));
    cluster.run_until_end(node);
    cluster.report(node).fault_wait.0 as f64 / 1_000.0
}

/// A cluster whose first epoch lasts: single operations are measured between epochs, not beside the messages of one.
fn quiet(frames: Vec<u32>) -> Cluster {
    let mut config = ClusterConfig::paper(frames);
    let long = Duration::from_millis(1_000_000);
    config.node.coordinator.limits.duration_min = long;
    config.node.coordinator.limits.duration_max = long;
    let mut cluster = Cluster::new(config);
    cluster.run(SECOND);
    cluster
}

/// A shared page whose directory entry is on `owner`.
fn owned_by(cluster: &Cluster, owner: usize, from: u64) -> Access {
    let pod = cluster.node(0).coordinator().pod();
    let id = owner as u64 + 1;
    (from..)
        .map(file)
        .find(|access| pod.owner(access.page).is_some_and(|of| of.0 == id))
        .expect("each owns some")
}

impl Micro {
    pub(super) fn run() -> Self {
        let disk = 1_000.0 * printed("table 3 non-shared", "random", "access time without GMS");
        let nfs = 1_000.0 * printed("table 4 shared", "random", "NFS miss");
        let mut c = quiet(vec![16, 64, 64]);
        let miss = waited(&mut c, 0, vec![own(999, false)]) - disk;
        // Twenty new pages in sixteen frames: the first ones go to the others.
        waited(&mut c, 0, (0..20).map(|index| own(index, true)).collect());
        let with_put = waited(&mut c, 0, vec![own(0, false)]);
        c.frames_at(c.now(), 0, 64);
        c.run(SECOND);
        let hit = waited(&mut c, 0, vec![own(1, false)]);
        let page = owned_by(&c, 1, 0);
        let shared_miss = waited(&mut c, 0, vec![page]) - nfs;
        let page = owned_by(&c, 2, 0);
        waited(&mut c, 1, vec![page]);
        let shared_hit = waited(&mut c, 0, vec![page]);
        let frame = printed(
            "section 5.1",
            "8 KiB page",
            "time for the controller to transmit a buffer so its frame is free",
        );
        Self {
            getpage_us: [miss, hit, shared_miss, shared_hit],
            putpage_us: [with_put - hit - frame, shared_put() - shared_hit - frame],
            non_shared_us: [false, true].map(non_shared),
            shared_us: [false, true].map(shared),
        }
    }
}

/// A hit on a shared page in a full node whose oldest page is shared, too, and in nobody else's memory. Both pages' entries are elsewhere.
fn shared_put() -> f64 {
    let mut c = quiet(vec![16, 64, 64]);
    let first = owned_by(&c, 1, 0);
    let wanted = owned_by(&c, 2, 0);
    waited(&mut c, 1, vec![wanted]);
    let mut script = vec![first];
    script.extend((0..15).map(|index| own(index, true)));
    waited(&mut c, 0, script);
    waited(&mut c, 0, vec![wanted])
}

const FRAMES: u32 = 512;
const PASSES: u32 = 4;

fn average(report: &NodeReport) -> f64 {
    report.fault_wait.0 as f64 / report.faults.max(1) as f64 / 1_000.0
}

/// One client that goes through twice its memory, and two nodes with room for all of it.
fn steady(config: ClusterConfig, walk: WalkConfig, other: Option<WalkConfig>) -> f64 {
    let mut cluster = Cluster::new(config);
    cluster.run(SECOND);
    if let Some(walk) = other {
        cluster.start(1, Box::new(Walk::new(walk, Cluster::space(1), FILE, 1)));
        cluster.run_until_end(1);
    }
    cluster.start(0, Box::new(Walk::new(walk, Cluster::space(0), FILE, 1)));
    cluster.run_until_end(0);
    average(&cluster.report(0))
}

fn walk(private: u32, shared: u32, random: bool) -> WalkConfig {
    let passes = Some(PASSES);
    WalkConfig { private, shared, passes, warm_up: PASSES - 1, random, cpu_ns: 10_000, builds: true }
}

fn alone(file_server_caches: bool) -> ClusterConfig {
    let config = ClusterConfig::paper(vec![FRAMES]);
    ClusterConfig { global: false, placement: "none", file_server_caches, ..config }
}

/// Table 3, one row.
fn non_shared(random: bool) -> [f64; 2] {
    let walk = walk(2 * FRAMES, 0, random);
    let config = ClusterConfig::paper(vec![FRAMES, 2 * FRAMES, 2 * FRAMES]);
    [steady(config, walk, None), steady(alone(false), walk, None)]
}

/// Table 4, one row.
fn shared(random: bool) -> [f64; 4] {
    let walk = walk(0, 2 * FRAMES, random);
    let frames = vec![FRAMES, 4 * FRAMES, 4 * FRAMES];
    let other = WalkConfig { passes: Some(1), random: false, ..walk };
    [
        steady(ClusterConfig::paper(frames.clone()), walk, None),
        steady(ClusterConfig::paper(frames), walk, Some(other)),
        steady(alone(false), walk, None),
        steady(alone(true), walk, None),
    ]
}

/// Table 5 and section 5.2: what epochs of two seconds cost, for each epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EpochCost {
    pub(super) nodes: u32,
    /// The initiator's processor for asking and telling, another node's for looking.
    pub(super) cpu_us: [f64; 3],
    /// Bytes a second of the initiator's requests, of all summaries, of the initiator's weights.
    pub(super) bytes_per_s: [f64; 3],
    /// Shares of the processor: the initiator's, the mean of all others, and the largest of these.
    pub(super) busy: [f64; 3],
    /// Bytes a second of everything that epochs make nodes say.
    pub(super) all_bytes_per_s: f64,
}

/// Pages of the node itself, and global ones, that are looked at.
const LOCAL: u32 = 8192;
const GLOBAL: u32 = 2000;

impl EpochCost {
    /// `nodes` with 8192 pages of their own each and about 2000 for others; one more that has put those there.
    pub(super) fn run(nodes: u32) -> Self {
        let mut frames = vec![256];
        frames.extend(std::iter::repeat_n(LOCAL + GLOBAL + GLOBAL / 10, nodes as usize - 1));
        let mut config = ClusterConfig::paper(frames);
        let period = Duration::from_millis(2_000);
        config.node.coordinator.limits.duration_min = period;
        config.node.coordinator.limits.duration_max = period;
        let mut cluster = Cluster::new(config);
        cluster.run(SECOND);
        let builds = WalkConfig {
            private: LOCAL,
            shared: 0,
            passes: Some(1),
            warm_up: 0,
            random: false,
            cpu_ns: 1_000,
            builds: true,
        };
        for n in 1..nodes as usize {
            cluster.start(n, Box::new(Walk::new(builds, Cluster::space(n), FILE, 1)));
        }
        (1..nodes as usize).for_each(|n| cluster.run_until_end(n));
        let more = WalkConfig { private: 256 + GLOBAL * (nodes - 1), ..builds };
        cluster.start(0, Box::new(Walk::new(more, Cluster::space(0), FILE, 1)));
        cluster.run_until_end(0);
        let number = |cluster: &Cluster| cluster.node(1).coordinator().epoch().id.number;
        // Counted from the beginning of an epoch to that of another one.
        let run_epochs = |cluster: &mut Cluster, epochs: u64| {
            let first = number(cluster);
            while number(cluster) < first + epochs {
                cluster.run(Duration::from_millis(20));
            }
        };
        run_epochs(&mut cluster, 2);
        let reports = |cluster: &Cluster| -> Vec<NodeReport> {
            (0..cluster.nodes()).map(|n| cluster.report(n)).collect()
        };
        let (before, first, began): (_, _, Instant) = (reports(&cluster), number(&cluster), cluster.now());
        run_epochs(&mut cluster, 10);
        let epochs = (number(&cluster) - first).max(1) as f64;
        let seconds = (cluster.now() - began).0 as f64 / 1e9;
        let after = reports(&cluster);
        let cpu = |n: usize, step| (after[n].epochs.cpu_ns(step) - before[n].epochs.cpu_ns(step)) as f64;
        let bytes = |n: usize, step| (after[n].epochs.bytes(step) - before[n].epochs.bytes(step)) as f64;
        let all = || 0..after.len();
        let total_cpu = |step| all().map(|n| cpu(n, step)).sum::<f64>();
        let total_bytes = |step| all().map(|n| bytes(n, step)).sum::<f64>();
        let (request, gather, tell) = (EpochStep::Request, EpochStep::Gather, EpochStep::Distribute);
        let initiating = |n: usize| after[n].epochs.bytes(request) > before[n].epochs.bytes(request);
        let busy =
            |n: usize| (after[n].epochs.all_cpu_ns() - before[n].epochs.all_cpu_ns()) as f64 / 1e9 / seconds;
        let others: Vec<f64> = (1..after.len()).filter(|&n| !initiating(n)).map(busy).collect();
        // Each epoch has an initiator, perhaps another one each time; what is more than another node's is the initiator's.
        let mean = others.iter().sum::<f64>() / others.len().max(1) as f64;
        let extra: f64 = (1..after.len()).filter(|&n| initiating(n)).map(|n| busy(n) - mean).sum();
        let looked: Vec<usize> = (1..after.len()).collect();
        Self {
            nodes,
            cpu_us: [
                total_cpu(request) / epochs / 1e3,
                looked.iter().map(|&n| cpu(n, gather)).sum::<f64>() / looked.len() as f64 / epochs / 1e3,
                total_cpu(tell) / epochs / 1e3,
            ],
            bytes_per_s: [request, gather, tell].map(|step| total_bytes(step) / seconds),
            busy: [mean + extra, mean, others.iter().copied().fold(0.0, f64::max)],
            all_bytes_per_s: all()
                .map(|n| after[n].epochs.all_bytes() - before[n].epochs.all_bytes())
                .sum::<u64>() as f64
                / seconds,
        }
    }
}
