//! The machines that programs run on.

use crate::model::{Model, Stage};
use crate::multiprocessor::board::Board;
use crate::multiprocessor::config::{
    DiskTimes, First, Leaving, Lenders, NODES_MAX, Rate, SeekCurve, memory_frames,
};
use crate::multiprocessor::{Config, Prefetch, Staging};
use crate::workload::Scale;
use loam_core::units::Duration;

/// Which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Machine {
    /// Table 1's.
    Paper,
    /// The same, but seeks take time with their distance.
    LinearSeeks,
    /// The same, but all seeks are the shortest.
    ShortestSeeks,
    /// The same, but pages that their controller refused stay locked until they are safe.
    Locked,
    /// The same, but the arm reads first.
    ReadsFirst,
    /// The same, but the arm writes first.
    WritesFirst,
    /// The same, but a third of each memory is in use by what is private: stacks, code, the system.
    ThirdPrivate,
    /// The same, but all of each memory is for what is shared.
    AllShared,
    /// Today's processors and disks, and Loam's ring in lenders' memory on this network.
    Today(Network),
    /// So many nodes, with the paper's memory and ring in total.
    Nodes(usize),
}

/// Networks between lenders, as hardware models (`models/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Network {
    /// TCP at 25 Gb/s.
    Tcp25,
    /// RDMA at 100 Gb/s.
    Rdma100,
}

impl Network {
    fn model(self) -> Model {
        Model::load(match self {
            Self::Tcp25 => "tcp-25g",
            Self::Rdma100 => "rdma-100g",
        })
        .expect("it is built in")
    }
}

impl Machine {
    /// All of them, the paper's first.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self::Paper];
        all.extend(Self::ASSUMED);
        all.extend(Self::TODAY);
        all.extend(Self::LARGER);
        all
    }

    /// What could be assumed otherwise.
    pub(super) const ASSUMED: [Self; 7] = [
        Self::LinearSeeks,
        Self::ShortestSeeks,
        Self::ReadsFirst,
        Self::WritesFirst,
        Self::Locked,
        Self::ThirdPrivate,
        Self::AllShared,
    ];
    /// Loam's ring.
    pub(super) const TODAY: [Self; 2] = [Self::Today(Network::Tcp25), Self::Today(Network::Rdma100)];
    /// More nodes.
    pub(super) const LARGER: [Self; 3] = [Self::Nodes(16), Self::Nodes(32), Self::Nodes(NODES_MAX)];

    /// For tables.
    pub(super) fn name(self) -> String {
        match self {
            Self::Paper => "as assumed".into(),
            Self::LinearSeeks => "seeks grow with the distance".into(),
            Self::ShortestSeeks => "all seeks are the shortest".into(),
            Self::Locked => "refused pages stay locked".into(),
            Self::ReadsFirst => "the arm reads first".into(),
            Self::WritesFirst => "the arm writes first".into(),
            Self::ThirdPrivate => "a third of memory is private".into(),
            Self::AllShared => "all of memory is shared".into(),
            Self::Today(network) => format!("today, {}", network.model().name),
            Self::Nodes(nodes) => format!("{nodes} nodes"),
        }
    }

    /// Small programs run in small memories, or nothing would leave.
    pub(super) fn config(self, prefetch: Prefetch, ring: bool, scale: Scale) -> Config {
        let mut config = Config::paper().with(prefetch, ring);
        match self {
            Self::Paper => {}
            Self::LinearSeeks => config.disk.curve = SeekCurve::Linear,
            Self::ShortestSeeks => config.disk.curve = SeekCurve::Shortest,
            Self::Locked => config.leaving = Leaving::Locked,
            Self::ReadsFirst => config.first = First::Reads,
            Self::WritesFirst => config.first = First::Writes,
            Self::ThirdPrivate => config.frames = memory_frames() - memory_frames() / 3,
            Self::AllShared => config.frames = memory_frames(),
            Self::Today(network) => today(&mut config, network),
            Self::Nodes(nodes) => divide(&mut config, nodes),
        }
        if scale == Scale::Small {
            config.frames = config.frames.min(SMALL_FRAMES);
            config.frames_free_min = config.frames_free_min.min(SMALL_FRAMES / 2);
        }
        config
    }
}

/// Frames of a node for small programs.
const SMALL_FRAMES: u32 = 6;

/// The machine on more nodes: the same memory and the same ring in total, half of the nodes with a disk, as many free frames in total.
fn divide(config: &mut Config, nodes: usize) {
    let times = nodes / config.nodes;
    config.nodes = nodes;
    config.disks *= times;
    config.frames /= times as u32;
    config.frames_free_min = config.frames_free_min.div_ceil(times as u32);
    if let Staging::Optical(ring) = &mut config.staging {
        ring.nodes = nodes;
        ring.places /= times;
    }
}

/// What is of today. What is not from a hardware model is assumed: a processor of 3 GHz, one channel of memory (DDR5-4800 less refresh), four lanes of PCIe 4, a link
/// between sockets, and a few microseconds for a round of inter-processor interrupts.
fn today(config: &mut Config, network: Network) {
    config.pcycle_ps = 333;
    (config.shootdown_cycles, config.interrupt_cycles) = (12_000, 4_500);
    config.memory_bus = Rate::mb_per_s(20_000.0);
    config.io_bus = Rate::mb_per_s(7_000.0);
    config.link = Rate::mb_per_s(12_800.0);
    let nvme = Model::load("nvme").expect("it is built in");
    let sum = |of: fn(&Stage) -> u64| nvme.stages.iter().map(of).sum();
    config.disk = DiskTimes {
        seek_min: Duration(0),
        seek_max: Duration(0),
        rotation: Duration(sum(|stage| stage.fixed_ns)),
        rate: Rate { ps_per_byte: sum(|stage| stage.ps_per_byte) },
        curve: SeekCurve::Shortest,
    };
    config.page_read = Duration(nvme.request_ns + Board::read_alone(config).0);
    if let Staging::Optical(ring) = config.staging {
        config.staging = Staging::Lenders(Lenders::of_model(&network.model(), 2, ring.places));
    }
}
