//! A node's buses, and how pages and cache lines travel over buses and network.
//!
//! A page is cut through: each part of its way begins as soon as the first line has come over the part before, and is held for as long as all of the page
//! takes there. With every part free that is the slowest part's time and a line on each other one, some 4,200 cycles from a disk controller to another
//! node's memory; the paper's 6,000 for the whole read leave the rest for the handler, the request and the controller.

use super::config::{Config, LINE_BYTES, MESSAGE_BYTES, PAGE_BYTES};
use super::mesh::Mesh;
use crate::engine::Resource;
use loam_core::units::{Duration, Instant};

/// A part of a page's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// A node's memory bus.
    Memory(usize),
    /// A node's I/O bus.
    Io(usize),
    /// The network from one node to another one.
    Net(usize, usize),
}

/// All buses, and the network.
#[derive(Clone, Debug)]
pub struct Board {
    config: Config,
    mesh: Mesh,
    memory: Vec<Resource>,
    io: Vec<Resource>,
}

/// What some cache lines took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The processor has the last one, if it waits for each.
    pub waited_for: Instant,
    /// All of them are done, if they follow one another without anybody waiting.
    pub behind: Instant,
    /// How long one of them takes on the slowest part of its way.
    pub each: Duration,
}

impl Board {
    /// The buses and the network of a machine.
    pub fn new(config: &Config) -> Self {
        let buses = vec![Resource::default(); config.nodes];
        let mesh = Mesh::new(config.nodes, config.link, config.hop);
        Self { config: config.clone(), mesh, memory: buses.clone(), io: buses }
    }

    /// A page goes this way, from now on: when all of it has arrived.
    pub fn page(&mut self, now: Instant, way: &[Leg]) -> Instant {
        self.page_from(now, now, way)
    }

    /// A page that will be at `begins` goes this way: when all of it has arrived. Places in the queues are taken now, in the order of the calls, and nothing is
    /// kept idle for what is to come.
    pub fn page_from(&mut self, now: Instant, begins: Instant, way: &[Leg]) -> Instant {
        let (mut head, mut done) = (begins, begins);
        for &leg in way {
            let (bus, rate) = match leg {
                Leg::Memory(node) => (&mut self.memory[node], self.config.memory_bus),
                Leg::Io(node) => (&mut self.io[node], self.config.io_bus),
                Leg::Net(from, to) => {
                    let rate = self.config.link;
                    let passage = self.mesh.send(now, from, to, PAGE_BYTES);
                    let hops = self.mesh.alone(from, to, 0);
                    head = passage.head.max(head + hops);
                    done = passage.done.max(head + rate.time(PAGE_BYTES)).max(done + rate.time(LINE_BYTES));
                    head = head + rate.time(LINE_BYTES);
                    continue;
                }
            };
            let takes = rate.time(PAGE_BYTES);
            let through = bus.serve(now, takes).max(head + takes);
            let line = rate.time(LINE_BYTES);
            head = Instant(through.0 - takes.0) + line;
            done = through.max(done + line);
        }
        done
    }

    /// A small message: when it has arrived.
    pub fn message(&mut self, ready: Instant, from: usize, to: usize) -> Instant {
        self.mesh.send(ready, from, to, MESSAGE_BYTES).done
    }

    /// A small message over an empty network, which does not hold it up.
    pub fn message_alone(&self, from: usize, to: usize) -> Duration {
        self.mesh.alone(from, to, MESSAGE_BYTES)
    }

    /// The mean over all pairs of nodes.
    pub fn mean_message(&self) -> Duration {
        let nodes = self.config.nodes;
        let all = (0..nodes * nodes).map(|pair| self.message_alone(pair / nodes, pair % nodes).0);
        Duration(all.sum::<u64>() / (nodes * nodes) as u64)
    }

    /// A processor's cache asks a node's memory for so many lines of a page.
    pub fn lines(&mut self, ready: Instant, node: usize, home: usize, lines: u64) -> Lines {
        let config = &self.config;
        let on_bus = config.memory_bus.time(LINE_BYTES);
        let (request, reply) = (MESSAGE_BYTES, LINE_BYTES + MESSAGE_BYTES);
        let mut waited = 0;
        let mut one = config.memory_latency.0 + on_bus.0;
        let mut each = on_bus;
        if node != home {
            let asked = self.mesh.send(ready, node, home, request * lines);
            waited += asked.waited.0;
            one += self.mesh.alone(node, home, request).0 + self.mesh.alone(home, node, reply).0;
            each = each.max(config.link.time(reply));
        }
        let bus = &mut self.memory[home];
        waited += (bus.free_at() - ready).0;
        bus.serve(ready, Duration(on_bus.0 * lines));
        if node != home {
            waited += self.mesh.send(ready, home, node, reply * lines).waited.0;
        }
        let behind = ready + Duration(waited + one + each.0 * (lines - 1));
        Lines { waited_for: ready + Duration(waited + one * lines), behind, each }
    }

    /// What a page read takes besides its request's and its page's way, so that one from the next node's disk cache takes what it should.
    ///
    /// # Panics
    /// If the way alone takes longer.
    pub fn read_overhead(config: &Config) -> Duration {
        let (all, way) = (config.page_read, Self::read_alone(config));
        assert!(all >= way, "a page read takes {all:?} and its way {way:?}");
        Duration(all.0 - way.0)
    }

    /// A request to the next node, and a page's way back.
    pub fn read_alone(config: &Config) -> Duration {
        let mut empty = Self::new(config);
        let next = 1.min(config.nodes - 1);
        let asked = empty.message(Instant(0), next, 0);
        empty.page(asked, &Self::read_way(0, next)) - Instant(0)
    }

    /// From a disk's controller to a node's memory.
    pub fn read_way(disk: usize, node: usize) -> Vec<Leg> {
        if disk == node {
            return vec![Leg::Io(disk), Leg::Memory(node)];
        }
        vec![Leg::Io(disk), Leg::Memory(disk), Leg::Net(disk, node), Leg::Memory(node)]
    }

    /// From a node's memory to a disk's controller.
    pub fn write_way(node: usize, disk: usize) -> Vec<Leg> {
        if disk == node {
            return vec![Leg::Memory(node), Leg::Io(disk)];
        }
        vec![Leg::Memory(node), Leg::Net(node, disk), Leg::Memory(disk), Leg::Io(disk)]
    }

    /// How long network, memory buses and I/O buses were waited for by pages and lines.
    pub fn waited(&self) -> [Duration; 3] {
        let all = |buses: &[Resource]| Duration(buses.iter().map(|bus| bus.waited().0).sum());
        [self.mesh.waited(), all(&self.memory), all(&self.io)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_read_alone_takes_what_the_paper_says() {
        let config = Config::paper();
        let overhead = Board::read_overhead(&config);
        assert!(overhead.0 > 0 && overhead.0 < 30_000 / 2, "{overhead:?}: less than half of the 30 us");
        let mut board = Board::new(&config);
        let done = board.page(Instant(0), &Board::read_way(0, 1));
        let slowest = 20_480;
        assert!(done.0 > slowest && done.0 < slowest + 1_000, "{done:?}: cut through");
    }

    #[test]
    fn pages_on_one_bus_follow_one_another() {
        let mut board = Board::new(&Config::paper());
        let way = Board::write_way(0, 0);
        let first = board.page(Instant(0), &way);
        let second = board.page(Instant(0), &way);
        // The first one's bus was idle until its first line came, 80 ns, which is kept free for nobody.
        assert_eq!(second - first, Duration(13_652 - 80), "the I/O bus is the slowest");
        assert!(board.waited()[2].0 > 0);
        let other = board.page(Instant(0), &Board::write_way(5, 5));
        assert_eq!(other, first, "another node's buses are free");
    }

    #[test]
    fn lines_of_another_node_take_longer_and_wait_for_pages() {
        let mut board = Board::new(&Config::paper());
        let here = board.lines(Instant(0), 3, 3, 1).waited_for;
        assert_eq!(here, Instant(180));
        let there = board.lines(Instant(0), 0, 1, 1);
        assert_eq!(there.waited_for, Instant(180 + 2 * 20 + 80 + 400));
        assert_eq!(there.each, Duration(400));
        let ten = Board::new(&Config::paper()).lines(Instant(0), 0, 1, 10);
        assert_eq!((ten.waited_for.0, ten.behind.0), (7_000, 700 + 9 * 400));
        let mut busy = Board::new(&Config::paper());
        busy.page(Instant(0), &Board::write_way(1, 0));
        assert!(busy.lines(Instant(0), 0, 1, 1).waited_for.0 > 20_000, "a page is in the way");
    }
}
