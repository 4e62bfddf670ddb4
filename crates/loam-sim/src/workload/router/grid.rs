//! The chip: which net each cell belongs to, and what the wave cost there.

use crate::workload::recorder::Recorder;

const COST_BYTES: u64 = 4;
const OWNER_BYTES: u64 = 2;
/// Nobody's.
const FREE: u16 = 0;
/// A pin whose net is not routed yet.
const PIN: u16 = u16::MAX;
/// To clear a cell.
const CLEAR_INSTRUCTIONS: u64 = 2;

/// See the module. In memory the costs come first, then the owners; each layer by layer, row by row.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub tracks: u32,
    pub layers: u32,
    /// The search in which the wave came here, and what it cost to.
    costs: Vec<(u16, u16)>,
    owners: Vec<u16>,
}

impl Grid {
    pub(super) fn new(tracks: u32, layers: u32) -> Self {
        let cells = tracks as usize * tracks as usize * layers as usize;
        assert!(cells > 0 && cells <= 1 << 30, "a chip has cells, at most 2^30");
        Self { tracks, layers, costs: vec![(0, 0); cells], owners: vec![FREE; cells] }
    }

    pub(super) fn cells(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Bytes of both arrays.
    pub(super) fn bytes(&self) -> u64 {
        self.owners.len() as u64 * (COST_BYTES + OWNER_BYTES)
    }

    pub(super) fn cell(&self, x: u32, y: u32, layer: u32) -> u32 {
        (layer * self.tracks + y) * self.tracks + x
    }

    /// x, y, layer.
    pub(super) fn place(&self, cell: u32) -> (u32, u32, u32) {
        let row = cell / self.tracks;
        (cell % self.tracks, row % self.tracks, row / self.tracks)
    }

    /// The program begins: it fills both arrays.
    pub(super) fn clear(&self, recorder: &mut Recorder) {
        recorder.work(u64::from(self.cells()) * CLEAR_INSTRUCTIONS);
        recorder.private(0, self.bytes(), true);
    }

    pub(super) fn is_pin(&self, cell: u32) -> bool {
        self.owners[cell as usize] == PIN
    }

    pub(super) fn put_pin(&mut self, cell: u32) {
        assert!(self.owners[cell as usize] == FREE, "a cell has one pin");
        self.owners[cell as usize] = PIN;
    }

    pub(super) fn owner(&self, cell: u32) -> u16 {
        self.owners[cell as usize]
    }

    /// Cells that belong to a route.
    pub(super) fn owned(&self) -> u64 {
        self.owners.iter().filter(|&&owner| owner != FREE && owner != PIN).count() as u64
    }

    fn owner_address(&self, cell: u32) -> u64 {
        u64::from(self.cells()) * COST_BYTES + u64::from(cell) * OWNER_BYTES
    }

    /// The program looks whether a cell is free.
    pub(super) fn is_free(&self, cell: u32, recorder: &mut Recorder) -> bool {
        recorder.private(self.owner_address(cell), OWNER_BYTES, false);
        self.owners[cell as usize] == FREE
    }

    /// The program gives a cell to a net.
    pub(super) fn take(&mut self, cell: u32, net: u16, recorder: &mut Recorder) {
        let owner = &mut self.owners[cell as usize];
        assert!(*owner == FREE || *owner == PIN, "a cell is given once");
        *owner = net;
        recorder.private(self.owner_address(cell), OWNER_BYTES, true);
    }

    /// The program looks what the wave of this search cost at a cell.
    pub(super) fn cost(&self, cell: u32, search: u16, recorder: &mut Recorder) -> Option<u16> {
        recorder.private(u64::from(cell) * COST_BYTES, COST_BYTES, false);
        let (when, cost) = self.costs[cell as usize];
        (when == search).then_some(cost)
    }

    pub(super) fn set_cost(&mut self, cell: u32, search: u16, cost: u16, recorder: &mut Recorder) {
        recorder.private(u64::from(cell) * COST_BYTES, COST_BYTES, true);
        self.costs[cell as usize] = (search, cost);
    }

    pub(super) fn are_neighbours(&self, one: u32, other: u32) -> bool {
        let (a, b) = (self.place(one), self.place(other));
        a.0.abs_diff(b.0) + a.1.abs_diff(b.1) + a.2.abs_diff(b.2) == 1
    }
}
