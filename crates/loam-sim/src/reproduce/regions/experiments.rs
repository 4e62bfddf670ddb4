//! The runs that tables and figures are made of.

use super::claims::best_printed;
use crate::jobs;
use crate::regions::btree::BTree;
use crate::regions::config::{Config, Division, Inputs};
use crate::regions::machine::{self, Thread};
use crate::regions::memory::{Memory, PAGE_BYTES, Spent, Times};
use crate::regions::programs::{self, PROGRAMS, Ran};
use loam_core::units::Duration;
use std::collections::BTreeMap;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A sixteenth, in seconds.
    Quick,
    /// All of it.
    All,
    /// Hardly anything, to see that it works.
    Small,
}

/// The first node of the second row: its neighbour to the east is the server of figure 8, and only they use the link between them.
const CONTROL: usize = 4;
const SERVER: usize = 5;
/// Clients of figure 7 are at the same place.
const CLIENT: usize = 5;
/// Threads of a client node that loads the server of figure 8.
pub(super) const CLIENT_THREADS: usize = 4;
/// The prototype's cache: what a core and its socket have together, 512 KiB and 2 MiB, to the power of two below. Figure 10's claim depends on it
/// (docs/simulator-regions.md).
const CACHE_BYTES: u64 = 2 << 20;
/// Remote swap, from the fault to the page (docs/simulator-regions.md): fault, block layer and two context switches; a round trip of TCP over Gigabit Ethernet;
/// 4,096 bytes at 1 Gb/s with 90 of each 1,538 bytes headers and gaps; four copies at 2 GB/s.
const SWAP_NS: [u64; 4] = [10_000, 55_000, WIRE_NS, 8_000];
const WIRE_NS: u64 = 4_096 * 8 * 1_538 / 1_448;
/// Comparing a key: a branch that cannot be predicted.
const PROBE_NS: f64 = 6.0;

/// What figure 7 has a bar for: division, servers, hops, threads.
pub(super) type ClientKey = (Division, usize, usize, usize);

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    /// Time for each load, of all threads together.
    pub(super) ns: f64,
    /// Of all requests, so many were refused.
    pub(super) refused: f64,
}

/// The control thread of figure 8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Congestion {
    pub(super) clients: usize,
    /// What a load of it took, and its drawing.
    pub(super) ns: f64,
    /// How busy the server was: a share.
    pub(super) busy: f64,
    /// Loads that the server answered, in millions a second.
    pub(super) rate: f64,
}

/// Searches in a b-tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Searched {
    pub(super) children: usize,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) searches: u64,
    pub(super) nodes: f64,
    pub(super) probes: f64,
    pub(super) spent: Spent,
}

impl Searched {
    /// A search in remote memory, in ns.
    pub(super) fn remote_ns(&self) -> f64 {
        (self.spent.compute_ns + self.spent.remote_ns) / self.searches as f64
    }

    /// Over remote swap.
    pub(super) fn swap_ns(&self) -> f64 {
        (self.spent.compute_ns + self.spent.swap_ns) / self.searches as f64
    }

    /// In local memory.
    pub(super) fn local_ns(&self) -> f64 {
        (self.spent.compute_ns + self.spent.local_ns) / self.searches as f64
    }
}

/// The runs, done.
#[derive(Debug, PartialEq)]
pub struct Experiments {
    /// Sizes are one of so many parts of the full ones.
    pub(super) part: usize,
    pub(super) inputs: Inputs,
    pub(super) times: Times,
    pub(super) frames: usize,
    /// Figure 6: hops, and a load at random and with a fixed stride.
    pub(super) hops: Vec<(u64, f64, f64)>,
    pub(super) client: BTreeMap<ClientKey, Bar>,
    pub(super) server: BTreeMap<Division, Vec<Congestion>>,
    pub(super) children: Vec<Searched>,
    pub(super) keys: Vec<Searched>,
    pub(super) programs: Vec<Ran>,
}

/// What is run at a time.
#[derive(Clone, Copy, Debug)]
enum Job {
    Tree { children: usize, keys: u64 },
    Program(usize),
}

enum Done {
    Tree(Searched),
    Program(Result<Ran, String>),
}

/// Numbers of children of figure 9. 171 is what fits in a page.
const CHILDREN: [usize; 17] = [4, 8, 16, 32, 64, 96, 128, 150, 160, 168, 171, 176, 192, 216, 256, 384, 512];
/// Keys of figure 10, in thousands. Its trees have as many children as the paper's.
const KEYS: [u64; 13] =
    [500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 10_000, 12_000, 15_000, 20_000];
/// Keys of figure 9.
const KEYS_9: u64 = 10_000_000;

impl Experiments {
    /// Runs everything, on so many threads; `done` is told how many of how many runs are done.
    ///
    /// # Errors
    /// If a program computed something wrong, or a key was not found.
    pub fn run(extent: Extent, threads: usize, done: &(dyn Fn(usize, usize) + Sync)) -> Result<Self, String> {
        let (part, loads) = match extent {
            Extent::All => (1, 200_000),
            Extent::Quick => (16, 20_000),
            Extent::Small => (1000, 20_000),
        };
        let inputs = super::inputs();
        let config = Config::of(&inputs, Division::Rest);
        let times = Times {
            local: crate::regions::config::MEMORY,
            local_loads: inputs.local_loads as u64,
            remote: inputs.stride,
            posted: config.client_pass,
            swap: Duration(SWAP_NS.iter().sum()),
            swap_out: Duration(WIRE_NS),
        };
        let frames = (super::free_bytes() / PAGE_BYTES) as usize / part;
        let mut all = Self {
            part,
            inputs,
            times,
            frames,
            hops: (1..=super::printed("figure 6", "mesh") as u64)
                .map(|hops| distance(&config, hops, loads / 10))
                .collect(),
            client: BTreeMap::new(),
            server: BTreeMap::new(),
            children: Vec::new(),
            keys: Vec::new(),
            programs: Vec::new(),
        };
        for division in Division::ALL {
            let config = Config::of(&inputs, division);
            for (servers, hops) in [(1, 1), (4, 1), (4, 2), (4, 3)] {
                for threads in [1, 2, 4] {
                    let bar = bar(&config, servers, hops, threads, loads);
                    all.client.insert((division, servers, hops, threads), bar);
                }
            }
            let clients = clients(&config);
            let series =
                (0..=clients.len()).map(|n| congestion(&config, &clients[..n], loads / 10)).collect();
            all.server.insert(division, series);
        }
        let of_children = CHILDREN.map(|children| Job::Tree { children, keys: KEYS_9 / part as u64 });
        let jobs: Vec<Job> = of_children.into_iter().chain((0..PROGRAMS.len()).map(Job::Program)).collect();
        let total = jobs.len() + KEYS.len();
        for done in all.jobs(&jobs, threads, &|n| done(n, total)) {
            match done {
                Done::Tree(searched) => all.children.push(searched),
                Done::Program(ran) => all.programs.push(ran?),
            }
        }
        // Section V.B: "From this number, we study the scalability": the paper's number, not what is best here.
        let children = best_printed() as usize;
        let jobs = KEYS.map(|keys| Job::Tree { children, keys: keys * 1000 / part as u64 });
        for tree in all.jobs(&jobs, threads, &|n| done(total - KEYS.len() + n, total)) {
            if let Done::Tree(searched) = tree {
                all.keys.push(searched);
            }
        }
        Ok(all)
    }

    /// The number of children with which a search over remote swap is the fastest.
    pub(super) fn best_children(&self) -> usize {
        let best = self.children.iter().min_by(|a, b| a.swap_ns().total_cmp(&b.swap_ns()));
        best.expect("figure 9 was run").children
    }

    /// Lines and pages that programs and searches asked memory for.
    pub fn accesses(&self) -> u64 {
        let searched = self.children.iter().chain(&self.keys).map(|of| of.spent.accesses);
        searched.chain(self.programs.iter().map(|of| of.spent.accesses)).sum()
    }

    fn memory(&self) -> Memory {
        let cache = (CACHE_BYTES / self.part as u64).next_power_of_two().max(1 << 14);
        Memory::new(self.times, cache, self.frames)
    }

    fn jobs(&self, jobs: &[Job], threads: usize, done: &(dyn Fn(usize) + Sync)) -> Vec<Done> {
        jobs::run(jobs, threads, done, |&job| match job {
            Job::Tree { children, keys } => Done::Tree(self.search(children, keys)),
            Job::Program(n) => Done::Program(programs::run(n, self.part, 1, self.memory())),
        })
    }

    /// Builds a tree and searches it: first until local memory is in its steady state, then measured.
    fn search(&self, children: usize, keys: u64) -> Searched {
        let tree = BTree::build(children, keys, (0..keys).map(|n| (key(n), n)));
        let searches = 500_000 / self.part as u64;
        let warm = searches / 2;
        let mut memory = self.memory();
        memory.set_up(tree.bytes());
        let (mut nodes, mut probes) = (0_u64, 0_u64);
        for n in 0..warm + searches {
            if n == warm {
                memory.begin();
                (nodes, probes) = (0, 0);
            }
            let wanted = mixed(n ^ 0x5eed) % keys;
            let found = tree.search(key(wanted), |address| memory.touch(address, 8, false));
            assert_eq!(found.record, Some(wanted), "each key that is searched for is found");
            memory.compute(
                f64::from(found.probes) * PROBE_NS + (self.inputs.random.0 - self.inputs.stride.0) as f64,
            );
            nodes += u64::from(found.nodes);
            probes += u64::from(found.probes);
        }
        let each = |sum: u64| sum as f64 / searches as f64;
        let spent = memory.spent();
        Searched {
            children,
            keys,
            bytes: tree.bytes(),
            searches,
            nodes: each(nodes),
            probes: each(probes),
            spent,
        }
    }
}

/// The keys: random, and ascending.
fn key(n: u64) -> u64 {
    n << 20 | mixed(n) >> 44
}

/// Any number, always the same one (SplitMix64's last step).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Figure 6, from a corner.
fn distance(config: &Config, hops: u64, loads: u64) -> (u64, f64, f64) {
    let mesh = config.mesh();
    let server =
        (0..config.nodes).find(|&node| mesh.hops(0, node) as u64 == hops).expect("the mesh is that large");
    let each = |random| {
        let thread = Thread { node: 0, servers: vec![server], loads: Some(loads), random };
        let run = machine::run(config, &[thread], 1);
        run.latency_ns(0) + if random { config.draw.0 as f64 } else { 0.0 }
    };
    (hops, each(true), each(false))
}

/// Figure 7: a number of loads, divided among the threads of one node.
fn bar(config: &Config, servers: usize, hops: usize, threads: usize, loads: u64) -> Bar {
    let mesh = config.mesh();
    let servers: Vec<usize> =
        (0..config.nodes).filter(|&node| mesh.hops(CLIENT, node) == hops).take(servers).collect();
    let each = loads / threads as u64;
    let all: Vec<Thread> = (0..threads)
        .map(|_| Thread { node: CLIENT, servers: servers.clone(), loads: Some(each), random: true })
        .collect();
    let run = machine::run(config, &all, 1);
    let loads = each * threads as u64;
    Bar { ns: run.ns_per_load(loads), refused: run.refusals as f64 / (run.refusals + loads) as f64 }
}

/// Nodes that load the server of figure 8, the nearest first. Those of the first column are left out: the server's answers to them would pass the control
/// thread's link.
fn clients(config: &Config) -> Vec<usize> {
    let mesh = config.mesh();
    let mut clients: Vec<usize> =
        (0..config.nodes).filter(|&node| node % mesh.columns() != 0 && node != SERVER).collect();
    clients.sort_by_key(|&node| (mesh.hops(node, SERVER), node));
    clients
}

/// Figure 8: one control thread, and clients with four threads each.
fn congestion(config: &Config, clients: &[usize], loads: u64) -> Congestion {
    let thread = |node, loads| Thread { node, servers: vec![SERVER], loads, random: true };
    let others = clients.iter().flat_map(|&node| (0..CLIENT_THREADS).map(move |_| node));
    let all: Vec<Thread> =
        [thread(CONTROL, Some(loads))].into_iter().chain(others.map(|node| thread(node, None))).collect();
    let run = machine::run(config, &all, 1);
    Congestion {
        clients: clients.len(),
        ns: run.latency_ns(0) + config.draw.0 as f64,
        busy: run.server_busy[SERVER].0 as f64 / run.end.0 as f64,
        rate: run.loads.iter().sum::<u64>() as f64 * 1000.0 / run.end.0 as f64,
    }
}
