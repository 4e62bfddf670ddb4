//! VLSI router: nets of a chip are routed one after the other, each around those before it (gms-1995, section 5.3).
//!
//! The paper's is a program of DEC WRL "for microprocessor layout. The program is memory intensive". Ours is a maze router (Lee, IRE Transactions
//! on Electronic Computers 10(3), 1961) with A* (Hart, Nilsson, Raphael 1968): a wave of costs from pin to pin over a grid of
//! layers, and the way back down the costs. Cost and owner of each cell are two arrays in memory, row by row, layer
//! by layer. Short nets are routed first, as usual; nets of about one length come module by module, as they stand in a net list.

mod grid;
mod maze;
#[cfg(test)]
mod tests;

use super::recorder::Recorder;
use super::{Footprint, Reference, Workload};
use crate::fuzz::dice::Dice;
use grid::Grid;
use loam_core::units::Bytes;
use maze::Maze;

/// What is routed.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// Tracks of a layer in either direction.
    pub tracks: u32,
    /// Layers; even ones prefer x, odd ones y.
    pub layers: u32,
    /// Nets of two pins.
    pub nets: u32,
    /// The longest net reaches so many tracks in x and in y at most. Half of the nets reach a 32nd of that, and of the others half
    /// twice as far each time.
    pub reach: u32,
}

impl RouterConfig {
    /// Four layers of metal, as a microprocessor of 1995 has them, with 2,048 tracks: 96 MB of cost and owner.
    pub fn paper() -> Self {
        Self { tracks: 2048, layers: 4, nets: 12_000, reach: 512 }
    }

    /// For tests.
    pub fn small() -> Self {
        Self { tracks: 160, layers: 3, nets: 150, reach: 128 }
    }
}

/// Cells around the box of a net's pins that a first search may use; a second one may use eight times as many.
const MARGIN: u32 = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct Router {
    config: RouterConfig,
    seed: u64,
    page: Bytes,
    footprint: Footprint,
    recorder: Recorder,
    grid: Grid,
    maze: Maze,
    nets: Vec<(u32, u32)>,
    /// Of each net that was tried: its cells from pin to pin; none if it found no way.
    routes: Vec<Vec<u32>>,
}

impl Router {
    /// # Panics
    /// If the chip is too small for the nets, or a page has no permitted size.
    pub fn new(config: RouterConfig, page: Bytes, seed: u64) -> Self {
        assert!(config.nets < u32::from(u16::MAX) / 2, "a net's number has 16 bits");
        let mut grid = Grid::new(config.tracks, config.layers);
        let nets = place(&config, &mut grid, &mut Dice::new(seed, 23));
        let recorder = Recorder::new(page);
        let footprint = Footprint {
            private_pages: recorder.pages(Maze::queue_address(&grid) + Maze::QUEUE_BYTES),
            files: vec![],
        };
        Self {
            config,
            seed,
            page,
            footprint,
            recorder,
            maze: Maze::new(&grid),
            grid,
            nets,
            routes: Vec::new(),
        }
    }

    /// The next net.
    fn step(&mut self) {
        let number = self.routes.len();
        if number == 0 {
            self.grid.clear(&mut self.recorder);
        }
        let (from, to) = self.nets[number];
        let net = number as u16 + 1;
        let first = self.maze.route(&mut self.grid, net, (from, to), MARGIN, &mut self.recorder);
        let route = first
            .or_else(|| self.maze.route(&mut self.grid, net, (from, to), 8 * MARGIN, &mut self.recorder));
        self.routes.push(route.unwrap_or_default());
    }
}

/// Side of a module, in tracks.
const MODULE: u64 = 128;

/// Pins on the lowest layer, each on a cell of its own; the nets in the order of their length (to a factor of two), then by module.
fn place(config: &RouterConfig, grid: &mut Grid, dice: &mut Dice) -> Vec<(u32, u32)> {
    let tracks = u64::from(config.tracks);
    assert!(u64::from(config.nets) * 8 < tracks * tracks, "too many nets for the chip");
    let mut nets = Vec::new();
    while nets.len() < config.nets as usize {
        let mut reach = u64::from(config.reach / 32).max(1);
        while reach < u64::from(config.reach) && dice.once_in(2) {
            reach *= 2;
        }
        let (x, y) = (dice.below(tracks), dice.below(tracks));
        let mut other =
            |at: u64| (at + dice.below(2 * reach + 1)).checked_sub(reach).filter(|&at| at < tracks);
        let (Some(to_x), Some(to_y)) = (other(x), other(y)) else { continue };
        let pins = (grid.cell(x as u32, y as u32, 0), grid.cell(to_x as u32, to_y as u32, 0));
        if pins.0 == pins.1 || grid.is_pin(pins.0) || grid.is_pin(pins.1) {
            continue;
        }
        grid.put_pin(pins.0);
        grid.put_pin(pins.1);
        let length = x.abs_diff(to_x) + y.abs_diff(to_y);
        nets.push(((length.ilog2(), y / MODULE, x / MODULE), pins));
    }
    nets.sort_unstable();
    nets.into_iter().map(|(_, pins)| pins).collect()
}

impl Workload for Router {
    fn name(&self) -> &'static str {
        "router"
    }

    fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool {
        while self.recorder.len() == 0 && self.routes.len() < self.nets.len() {
            self.step();
        }
        self.recorder.take(into)
    }

    fn restart(&mut self) {
        *self = Self::new(self.config.clone(), self.page, self.seed);
    }

    /// Each route leads from pin to pin by steps to neighbours, over cells that are its net's alone.
    fn check(&self) -> Result<Vec<String>, String> {
        if self.routes.len() < self.nets.len() {
            return Err("the run is not over".into());
        }
        let (mut cells, mut routed) = (0, 0);
        for (net, (pins, route)) in (1_u16..).zip(self.nets.iter().zip(&self.routes)) {
            let (Some(&first), Some(&last)) = (route.first(), route.last()) else { continue };
            if (first, last) != *pins {
                return Err(format!("net {net} leads from {first} to {last}, not {pins:?}"));
            }
            if let Some(pair) = route.windows(2).find(|pair| !self.grid.are_neighbours(pair[0], pair[1])) {
                return Err(format!("net {net} jumps from {} to {}", pair[0], pair[1]));
            }
            if let Some(cell) = route.iter().find(|&&cell| self.grid.owner(cell) != net) {
                return Err(format!("cell {cell} of net {net} is net {}'s", self.grid.owner(*cell)));
            }
            cells += route.len() as u64;
            routed += 1;
        }
        // No cell is counted twice, so routes cross neither each other nor themselves.
        let owned = self.grid.owned();
        if owned != cells {
            return Err(format!("routes have {cells} cells, but {owned} are owned"));
        }
        Ok(vec![format!("{routed} of {} nets routed over {cells} cells", self.nets.len())])
    }
}
