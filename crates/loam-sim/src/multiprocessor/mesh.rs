//! The network: a two-dimensional mesh with wormhole routing (section 3.1).
//!
//! A message holds every link of its path while its bytes pass, so it begins when all of them are free; its head needs the router's time at each hop.
//! Paths go along the row first and then along the column, as in DASH's and most meshes of the time.

use super::config::Rate;
use crate::engine::Resource;
use loam_core::units::{Duration, Instant};

/// Directions in which a node has a link.
const DIRECTIONS: usize = 4;

/// When a message's head arrives, and when its last byte has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// It waited so long for a free path.
    pub waited: Duration,
    /// Its first bytes are there.
    pub head: Instant,
    /// All of it is.
    pub done: Instant,
}

/// Links and paths.
#[derive(Clone, Debug)]
pub struct Mesh {
    nodes: usize,
    columns: usize,
    rate: Rate,
    hop: Duration,
    links: Vec<Resource>,
    /// Links from each node to each other one.
    paths: Vec<Vec<u16>>,
    waited: Duration,
}

impl Mesh {
    /// A mesh of so many nodes, as near to a square as their number allows.
    ///
    /// # Panics
    /// If there are no nodes, or more than 4096.
    pub fn new(nodes: usize, rate: Rate, hop: Duration) -> Self {
        assert!((1..=4096).contains(&nodes), "a mesh of 1 to 4096 nodes");
        let rows = (1..=nodes.isqrt()).rev().find(|rows| nodes.is_multiple_of(*rows)).expect("1 divides");
        let columns = nodes / rows;
        let paths = (0..nodes * nodes).map(|pair| path(columns, pair / nodes, pair % nodes)).collect();
        let links = vec![Resource::default(); nodes * DIRECTIONS];
        Self { nodes, columns, rate, hop, links, paths, waited: Duration(0) }
    }

    /// Links between two nodes.
    pub fn hops(&self, from: usize, to: usize) -> usize {
        self.paths[from * self.nodes + to].len()
    }

    /// Nodes in a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Sends so many bytes. To itself a node sends nothing, at once.
    pub fn send(&mut self, ready: Instant, from: usize, to: usize, bytes: u64) -> Passage {
        let path = &self.paths[from * self.nodes + to];
        let start =
            path.iter().map(|&link| self.links[usize::from(link)].free_at()).fold(ready, Instant::max);
        let takes = self.rate.time(if path.is_empty() { 0 } else { bytes });
        for &link in path {
            self.links[usize::from(link)].serve(start, takes);
        }
        let waited = start - ready;
        self.waited.0 += waited.0;
        let head = start + Duration(self.hop.0 * path.len() as u64);
        Passage { waited, head, done: head + takes }
    }

    /// How long a message of so many bytes takes over an empty network.
    pub fn alone(&self, from: usize, to: usize, bytes: u64) -> Duration {
        let hops = self.hops(from, to) as u64;
        Duration(if hops == 0 { 0 } else { self.hop.0 * hops + self.rate.time(bytes).0 })
    }

    /// How long messages waited for free paths, all together.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

/// The links from one node to another one: along the row, then along the column.
fn path(columns: usize, from: usize, to: usize) -> Vec<u16> {
    let (mut column, mut row) = (from % columns, from / columns);
    let (to_column, to_row) = (to % columns, to / columns);
    let mut links = Vec::new();
    while (column, row) != (to_column, to_row) {
        let direction = match () {
            () if column < to_column => 0,
            () if column > to_column => 1,
            () if row < to_row => 2,
            () => 3,
        };
        let link = (row * columns + column) * DIRECTIONS + direction;
        links.push(u16::try_from(link).expect("nodes are limited"));
        match direction {
            0 => column += 1,
            1 => column -= 1,
            2 => row += 1,
            _ => row -= 1,
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(nodes: usize) -> Mesh {
        Mesh::new(nodes, Rate::mb_per_s(200.0), Duration(20))
    }

    #[test]
    fn meshes_are_as_square_as_they_can_be() {
        assert_eq!([1, 7, 8, 16, 32, 64].map(|nodes| mesh(nodes).columns()), [1, 7, 4, 4, 8, 8]);
    }

    #[test]
    fn paths_are_the_shortest_ones() {
        let mesh = mesh(8);
        for (from, to) in (0..64).map(|pair| (pair / 8, pair % 8)) {
            let apart = (from % 4_usize).abs_diff(to % 4) + (from / 4_usize).abs_diff(to / 4);
            assert_eq!(mesh.hops(from, to), apart, "{from} to {to}");
        }
    }

    #[test]
    fn a_page_takes_what_its_bytes_and_hops_do() {
        let mut mesh = mesh(8);
        let passage = mesh.send(Instant(100), 0, 7, 4096);
        assert_eq!(passage.head, Instant(100 + 4 * 20));
        assert_eq!(passage.done, Instant(100 + 4 * 20 + 20_480));
        assert_eq!(mesh.alone(0, 7, 4096), Duration(4 * 20 + 20_480));
        assert_eq!(mesh.send(Instant(7), 3, 3, 4096).done, Instant(7), "to itself");
    }

    #[test]
    fn messages_on_one_link_wait_and_others_do_not() {
        let mut mesh = mesh(8);
        mesh.send(Instant(0), 0, 2, 1000);
        let beside = mesh.send(Instant(0), 4, 6, 1000);
        assert_eq!(beside.waited, Duration(0), "another row");
        let back = mesh.send(Instant(0), 2, 0, 1000);
        assert_eq!(back.waited, Duration(0), "the other direction");
        let behind = mesh.send(Instant(10), 1, 2, 1000);
        assert_eq!(behind.waited, Duration(4_990), "a link of the first one's path");
        assert_eq!(mesh.waited(), Duration(4_990));
    }
}
