//! gms-1995 beyond what its authors had: clusters of a hundred, a thousand and ten thousand nodes, on their network and on today's.
//!
//! Every node is a live one (`loam_core::global::GlobalNode`): members, POD, epochs, directories, placement. Of each five nodes two have idle
//! memory, as in the paper's figure 7; the other three run a program that uses twice its memory at random places, a quarter of it a file that the
//! three of them share. First epochs are measured with nothing else going on, then all programs at once.
//!
//! Nodes are small, so that ten thousand fit into one machine: a frame stands for many when ages are counted, since that is what an epoch costs
//! by the size of memory. Everything else depends on how many nodes there are, not on how large.

mod program;
mod table;
#[cfg(test)]
mod tests;

pub use table::tables;

use crate::cluster::{Cluster, ClusterConfig, Costs, EpochStep, NodeReport, cluster_bytes};
use crate::model::Model;
use loam_core::global::Message;
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use program::Pager;
use std::sync::Arc;

/// Frames of a node with a program.
const FRAMES: u32 = 64;
const PRIVATE: u32 = 96;
const SHARED: u32 = 32;
const GROUP: usize = 5;
const BUSY: usize = 3;
/// Of the two nodes that are idle, each: half of what three programs lack, and half as much again, as in figure 8.
const IDLE: u32 = (BUSY as u32 * (PRIVATE + SHARED - FRAMES) / 2) * 3 / 2;
/// References of each program.
const REFERENCES: u32 = 300;
/// Processor time between two references to pages.
const CPU_NS: u64 = 10_000;
/// How long an epoch is: "on the order of 5-10 seconds" (section 3.2).
pub const PERIOD: Duration = Duration::from_millis(10_000);
const EPOCHS: u64 = 2;
/// Simulated time in which these have begun, or it does not work at this size.
const PATIENCE: Duration = Duration::from_millis(400_000);

/// Machines and a network.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// For tables.
    pub name: String,
    costs: Costs,
}

impl Hardware {
    /// The paper's: 64 MB in pages of 8 KiB, 155 Mb/s.
    pub fn paper() -> Self {
        const PAGES: u64 = (64 << 20) / crate::cluster::PAGE_BYTES;
        let costs = Costs::paper_in_little(PAGES / u64::from(FRAMES));
        Self { name: "the paper's, 155 Mb/s".into(), costs }
    }

    /// 64 GiB in pages of 8 KiB, with a network of `network` and a disk of `disk`.
    pub fn today(network: &Model, disk: &Model) -> Self {
        const PAGES: u64 = (64 << 30) / crate::cluster::PAGE_BYTES;
        let costs = Costs::today(network, disk, PAGES / u64::from(FRAMES));
        Self { name: format!("{} and {}", network.name, disk.name), costs }
    }
}

/// What came of one size on one hardware.
#[derive(Clone, Debug, Default)]
pub struct Scaled {
    /// The hardware's name.
    pub hardware: String,
    /// Nodes.
    pub nodes: u32,
    /// Nodes with a weight in the last epoch.
    pub weights: usize,
    /// Nodes that have idle memory.
    pub idle: usize,
    /// From the beginning of an epoch to that of the next one. None: none began, or none that knew of idle memory.
    pub interval: Option<Duration>,
    /// Processor time for each epoch: of its initiator, besides what it does as everybody.
    pub initiator: Duration,
    /// Of everybody, on average.
    pub others: Duration,
    /// Of the master, for questions about its POD.
    pub master: Duration,
    /// Bytes for each epoch: the initiator's, everybody's together.
    pub initiator_bytes: u64,
    /// See there.
    pub all_bytes: u64,
    /// How long the initiator's link is busy with them.
    pub link: Duration,
    /// When a node joins: bytes of the POD that each node gets.
    pub pod_bytes: u64,
    /// And how long the master's link is busy until all have it.
    pub pod_link: Duration,
    /// And the part of the shared pages' directory entries that move, in millionths.
    pub pod_moved_ppm: u64,
    /// Faults of the measured programs, and how many of them the disk served.
    pub faults: u64,
    /// See there.
    pub from_disk: u64,
    /// Directory messages and their bytes, for all of these faults.
    pub directory: (u64, u64),
    /// Mean wait for a fault.
    pub fault: Duration,
    /// Mean time of the programs, and of one without global memory.
    pub time: Duration,
    /// See there.
    pub native: Duration,
}

impl Scaled {
    /// How much faster programs are than without global memory.
    pub fn speedup(&self) -> f64 {
        self.native.0 as f64 / self.time.0.max(1) as f64
    }
}

fn is_busy(n: usize) -> bool {
    n % GROUP < BUSY
}

fn config(hardware: &Hardware, nodes: u32, seed: u64) -> ClusterConfig {
    let frames = (0..nodes as usize).map(|n| if is_busy(n) { FRAMES } else { IDLE }).collect();
    // One server's disk would be all that is measured: files are in servers' memory.
    let paper = ClusterConfig { file_server_caches: true, ..ClusterConfig::paper(frames) };
    let mut config = ClusterConfig { costs: hardware.costs.clone(), seed, ..paper };
    config.node.coordinator.limits.duration_min = PERIOD;
    config.node.coordinator.limits.duration_max = PERIOD;
    config
}

/// Runs programs on the busy nodes, all to their end.
fn run_all(cluster: &mut Cluster, busy: &[usize], program: impl Fn(usize) -> Pager) {
    for &n in busy {
        cluster.start(n, Box::new(program(n)));
    }
    for &n in busy {
        cluster.run_until_end(n);
    }
}

fn native(hardware: &Hardware, seed: u64) -> Duration {
    let config = ClusterConfig { global: false, placement: "none", ..config(hardware, 1, seed) };
    let mut cluster = Cluster::new(config);
    run_all(&mut cluster, &[0], |n| Pager::builds(n, n / GROUP));
    run_all(&mut cluster, &[0], |n| Pager::pages(n, n / GROUP, seed));
    cluster.report(0).elapsed
}

/// Runs a cluster of so many nodes, a multiple of five.
///
/// # Panics
/// If it is none.
pub fn run(hardware: &Hardware, nodes: u32, seed: u64) -> Scaled {
    assert!(nodes > 0 && (nodes as usize).is_multiple_of(GROUP), "of five nodes three are busy");
    let mut config = config(hardware, nodes, seed);
    let costs = config.costs.clone();
    // It is set up in no time: at the largest sizes the first POD alone would take the paper's network minutes.
    config.costs = costs.nothing_but_the_disk();
    let mut cluster = Cluster::new(config);
    cluster.run(Duration::from_millis(1_000));
    let busy: Vec<usize> = (0..nodes as usize).filter(|&n| is_busy(n)).collect();
    run_all(&mut cluster, &busy, |n| Pager::builds(n, n / GROUP));
    // The first epoch took frames for idle that programs have now; what was sent there is lost. The next one knows.
    cluster.run(Duration(PERIOD.0 + PERIOD.0 / 10));
    run_all(&mut cluster, &busy, |n| Pager::pages(n, n / GROUP, seed.wrapping_add(1)));
    cluster.set_costs(costs.clone());
    let mut scaled = Scaled {
        hardware: hardware.name.clone(),
        nodes,
        idle: nodes as usize - busy.len(),
        native: native(hardware, seed),
        ..Scaled::default()
    };
    epochs(&mut cluster, &costs, &mut scaled);
    joining(&cluster, &costs, &mut scaled);
    paging(&mut cluster, &busy, seed, &mut scaled);
    scaled
}

/// Until so many epochs more have begun, as the last node sees it. False: they have not.
fn await_epochs(cluster: &mut Cluster, epochs: u64) -> bool {
    let last = cluster.nodes() - 1;
    let number = |cluster: &Cluster| cluster.node(last).coordinator().epoch().id.number;
    let (first, end) = (number(cluster), cluster.now() + PATIENCE);
    while number(cluster) < first + epochs && cluster.now() < end {
        cluster.run(Duration::from_millis(10));
    }
    number(cluster) >= first + epochs
}

fn epochs(cluster: &mut Cluster, costs: &Costs, scaled: &mut Scaled) {
    // The second one after what was set up is as all that follow.
    if !await_epochs(cluster, 2) {
        return;
    }
    let reports =
        |cluster: &Cluster| -> Vec<NodeReport> { (0..cluster.nodes()).map(|n| cluster.report(n)).collect() };
    let (before, began): (_, Instant) = (reports(cluster), cluster.now());
    if !await_epochs(cluster, EPOCHS) {
        return;
    }
    let after = reports(cluster);
    scaled.weights = cluster.node(0).coordinator().epoch().weights.len();
    if scaled.weights == 0 {
        return;
    }
    let each = |sum: u64| sum / EPOCHS;
    let sum = |of: &dyn Fn(&NodeReport) -> u64| -> u64 {
        after.iter().zip(&before).map(|(after, before)| of(after) - of(before)).sum()
    };
    let cpu = |step| sum(&|report: &NodeReport| report.epochs.cpu_ns(step));
    let bytes = |step| sum(&|report: &NodeReport| report.epochs.bytes(step));
    let master = |step| after[0].epochs.cpu_ns(step) - before[0].epochs.cpu_ns(step);
    let nodes = u64::from(scaled.nodes);
    scaled.interval = Some(Duration(each((cluster.now() - began).0)));
    scaled.initiator = Duration(each(cpu(EpochStep::Request) + cpu(EpochStep::Distribute)));
    let told = cpu(EpochStep::Other) - master(EpochStep::Other);
    scaled.others = Duration(each(cpu(EpochStep::Gather) / nodes + told / (nodes - 1).max(1)));
    scaled.master = Duration(each(master(EpochStep::Other)));
    scaled.initiator_bytes = each(bytes(EpochStep::Request) + bytes(EpochStep::Distribute));
    scaled.all_bytes = each(sum(&|report: &NodeReport| report.epochs.all_bytes()));
    scaled.link = costs.on_link(scaled.initiator_bytes);
}

/// One more node: what the master sends, and what moves.
fn joining(cluster: &Cluster, costs: &Costs, scaled: &mut Scaled) {
    let coordinator = cluster.node(0).coordinator();
    let mut members: Vec<NodeId> = coordinator.members().collect();
    members.push(NodeId(u64::from(scaled.nodes) + 1));
    let (before, after) = (coordinator.pod(), coordinator.pod().changed(&members, NodeId(1)));
    let finer = after.owners().len() / before.owners().len().max(1);
    let owners = after.owners().iter().enumerate();
    let moved = owners.filter(|&(at, &owner)| before.owners()[at / finer.max(1)] != owner).count();
    scaled.pod_moved_ppm = moved as u64 * 1_000_000 / after.owners().len() as u64;
    scaled.pod_bytes = cluster_bytes(&Message::Pod(Arc::new(after)));
    scaled.pod_link = costs.on_link(scaled.pod_bytes * u64::from(scaled.nodes));
}

fn paging(cluster: &mut Cluster, busy: &[usize], seed: u64, scaled: &mut Scaled) {
    let said = |cluster: &Cluster| {
        (0..cluster.nodes()).map(|n| cluster.report(n).directory).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let before = said(cluster);
    run_all(cluster, busy, |n| Pager::pages(n, n / GROUP, seed));
    let after = said(cluster);
    scaled.directory = (after.0 - before.0, after.1 - before.1);
    let reports: Vec<NodeReport> = busy.iter().map(|&n| cluster.report(n)).collect();
    let sum = |of: &dyn Fn(&NodeReport) -> u64| reports.iter().map(of).sum::<u64>();
    scaled.faults = sum(&|report| report.faults);
    scaled.from_disk = sum(&|report| report.stats.disk);
    scaled.fault = Duration(sum(&|report| report.fault_wait.0) / scaled.faults.max(1));
    scaled.time = Duration(sum(&|report| report.elapsed.0) / reports.len() as u64);
}
