//! The search for one net.

use super::grid::Grid;
use crate::workload::recorder::Recorder;

/// A step along a layer's own direction, across it, and to another layer.
pub(super) const ALONG: u16 = 1;
pub(super) const ACROSS: u16 = 3;
pub(super) const VIA: u16 = 4;
/// To take a cell from the queue.
const CELL_INSTRUCTIONS: u64 = 40;
/// To look at a neighbour.
const NEIGHBOUR_INSTRUCTIONS: u64 = 15;
/// An entry of the queue: cell, cost, next.
const ENTRY_BYTES: u64 = 16;

/// The wave: cells by the cost of a way over them, at least, in buckets of one cost each (costs only grow, by the heuristic's triangle
/// inequality).
#[derive(Clone, Debug)]
pub(super) struct Maze {
    buckets: Vec<Vec<(u32, u16)>>,
    /// Searches so far.
    search: u16,
    queue_address: u64,
    /// Entries are used again in turn.
    next_entry: u64,
}

/// The cells that a search may use: x and y from and to.
#[derive(Clone, Copy, Debug)]
struct Window {
    x: (u32, u32),
    y: (u32, u32),
}

impl Maze {
    /// Memory of the queue's entries.
    pub(super) const QUEUE_BYTES: u64 = 1 << 20;

    pub(super) fn new(grid: &Grid) -> Self {
        Self { buckets: Vec::new(), search: 0, queue_address: Self::queue_address(grid), next_entry: 0 }
    }

    /// Behind the grid.
    pub(super) fn queue_address(grid: &Grid) -> u64 {
        grid.bytes().next_multiple_of(ENTRY_BYTES)
    }

    /// The cheapest way between a net's pins through free cells at most `margin` outside of their box. Its cells become the net's.
    pub(super) fn route(
        &mut self,
        grid: &mut Grid,
        net: u16,
        (from, to): (u32, u32),
        margin: u32,
        recorder: &mut Recorder,
    ) -> Option<Vec<u32>> {
        self.search = self.search.checked_add(1).expect("fewer than 2^16 searches");
        let window = Window::around(grid, from, to, margin);
        let (to_x, to_y, to_layer) = grid.place(to);
        let least = |grid: &Grid, cell: u32| {
            let (x, y, layer) = grid.place(cell);
            x.abs_diff(to_x) + y.abs_diff(to_y) + layer.abs_diff(to_layer) * u32::from(VIA)
        };
        self.buckets.iter_mut().for_each(Vec::clear);
        let begin = least(grid, from);
        grid.set_cost(from, self.search, 0, recorder);
        self.push(0, (from, 0), recorder);
        let mut bucket = 0;
        while bucket < self.buckets.len() {
            let Some((cell, cost)) = self.buckets[bucket].pop() else {
                bucket += 1;
                continue;
            };
            recorder.work(CELL_INSTRUCTIONS);
            if cell == to {
                return Some(self.back(grid, net, (from, to), recorder));
            }
            // A cheaper way to it was found since.
            if grid.cost(cell, self.search, recorder) != Some(cost) {
                continue;
            }
            for (next, step) in window.neighbours(grid, cell) {
                recorder.work(NEIGHBOUR_INSTRUCTIONS);
                let costs = cost.checked_add(step).expect("a route costs less than 2^16");
                if next != to && !grid.is_free(next, recorder) {
                    continue;
                }
                if grid.cost(next, self.search, recorder).is_none_or(|before| costs < before) {
                    grid.set_cost(next, self.search, costs, recorder);
                    let whole = u32::from(costs) + least(grid, next) - begin;
                    self.push(whole as usize, (next, costs), recorder);
                }
            }
        }
        None
    }

    fn push(&mut self, bucket: usize, entry: (u32, u16), recorder: &mut Recorder) {
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, Vec::new());
        }
        self.buckets[bucket].push(entry);
        recorder.private(self.queue_address + self.next_entry * ENTRY_BYTES, ENTRY_BYTES, true);
        self.next_entry = (self.next_entry + 1) % (Self::QUEUE_BYTES / ENTRY_BYTES);
    }

    /// From the end down the costs.
    fn back(&self, grid: &mut Grid, net: u16, (from, to): (u32, u32), recorder: &mut Recorder) -> Vec<u32> {
        let everywhere = Window { x: (0, grid.tracks - 1), y: (0, grid.tracks - 1) };
        let mut route = vec![to];
        let mut at = to;
        while at != from {
            let cost = grid.cost(at, self.search, recorder).expect("the wave came here");
            let before = everywhere.neighbours(grid, at).find(|&(cell, step)| {
                recorder.work(NEIGHBOUR_INSTRUCTIONS);
                grid.cost(cell, self.search, recorder).is_some_and(|before| before + step == cost)
            });
            at = before.expect("the wave came from somewhere").0;
            route.push(at);
        }
        route.iter().for_each(|&cell| grid.take(cell, net, recorder));
        route.reverse();
        route
    }
}

impl Window {
    fn around(grid: &Grid, from: u32, to: u32, margin: u32) -> Self {
        let (a, b) = (grid.place(from), grid.place(to));
        let span = |a: u32, b: u32| {
            (a.min(b).saturating_sub(margin), a.max(b).saturating_add(margin).min(grid.tracks - 1))
        };
        Self { x: span(a.0, b.0), y: span(a.1, b.1) }
    }

    /// Neighbours inside, and what a step between them and the cell costs: the same both ways.
    fn neighbours(self, grid: &Grid, cell: u32) -> Neighbours {
        let (x, y, layer) = grid.place(cell);
        let (in_x, in_y) = if layer % 2 == 0 { (ALONG, ACROSS) } else { (ACROSS, ALONG) };
        let (row, plane) = (grid.tracks, grid.tracks * grid.tracks);
        let mut neighbours = Neighbours { all: [(0, 0); 6], len: 0, next: 0 };
        let mut add = |inside: bool, next: u32, step| {
            if inside {
                neighbours.all[neighbours.len] = (next, step);
                neighbours.len += 1;
            }
        };
        add(x > self.x.0, cell.wrapping_sub(1), in_x);
        add(x < self.x.1, cell + 1, in_x);
        add(y > self.y.0, cell.wrapping_sub(row), in_y);
        add(y < self.y.1, cell.wrapping_add(row), in_y);
        add(layer > 0, cell.wrapping_sub(plane), VIA);
        add(layer + 1 < grid.layers, cell.wrapping_add(plane), VIA);
        neighbours
    }
}

/// Up to six cells.
struct Neighbours {
    all: [(u32, u16); 6],
    len: usize,
    next: usize,
}

impl Iterator for Neighbours {
    type Item = (u32, u16);

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.all[..self.len].get(self.next).copied();
        self.next += 1;
        item
    }
}
