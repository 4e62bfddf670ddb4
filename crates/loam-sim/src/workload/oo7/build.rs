//! The database and its objects on the heap.
//!
//! Sizes are those of C++ classes with the benchmark's attributes, a table of virtual functions and pointers of 64 bits; associations
//! to many are lists of nodes (value, next, previous), as the class libraries of the time have them.

use super::index::{DateIndex, Table};
use super::{Oo7Config, Operation};
use crate::fuzz::dice::Dice;
use crate::workload::recorder::Recorder;
use crate::workload::space::Heap;

/// id, type of 10 letters, build date, behind a pointer to virtual functions.
const DESIGN_BYTES: u64 = 32;
/// and x, y, document's id; composite part, heads of both lists of connections, next part of the extent.
pub(super) const ATOMIC_BYTES: u64 = DESIGN_BYTES + 16 + 4 * 8;
/// Type of 10 letters, length, both ends.
pub(super) const CONNECTION_BYTES: u64 = 40;
/// A node of a list.
pub(super) const NODE_BYTES: u64 = 24;
/// and document, root part, heads of the lists of parts and of uses.
pub(super) const COMPOSITE_BYTES: u64 = DESIGN_BYTES + 4 * 8;
/// Title of 40 letters, id, text, composite part.
pub(super) const DOCUMENT_BYTES: u64 = 64;
/// and parent, module, head of the list of what it consists of.
pub(super) const ASSEMBLY_BYTES: u64 = DESIGN_BYTES + 3 * 8;
/// and manual, root assembly.
const MODULE_BYTES: u64 = DESIGN_BYTES + 2 * 8;
/// The visited set of a traversal of one composite part's graph.
pub(super) const VISITED_BYTES: u64 = 8192;
/// To make an object: allocation and constructor.
const MAKE_INSTRUCTIONS: u64 = 150;
/// Build dates (the benchmark's MinAtomicDate and so on): atomic parts and assemblies; old and young composite parts, of
/// which 10% are young.
pub(super) const DATES: (u64, u64) = (1000, 1999);
const OLD_DATES: (u64, u64) = (0, 999);
const YOUNG_DATES: (u64, u64) = (2000, 2999);
const YOUNG_PERCENT: u64 = 10;
/// The manual is this again and again.
pub(super) const MANUAL: &[u8] = b"I am the manual for module #00000001.\n";

#[derive(Clone, Debug)]
pub(super) struct Atomic {
    pub address: u64,
    pub x: u32,
    pub y: u32,
    pub date: u32,
    /// As it was made with.
    first: (u32, u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub address: u64,
    /// In the list of the part that it goes from.
    pub node: u64,
    /// An index.
    pub to: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Composite {
    pub address: u64,
    pub document: u64,
    pub date: u32,
    /// The nodes and base assemblies that use it.
    pub uses: Vec<(u64, u32)>,
}

#[derive(Clone, Debug)]
pub(super) struct Assembly {
    pub address: u64,
    pub date: u32,
    /// A base assembly's: node and composite part.
    pub components: Vec<(u64, u32)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Database {
    heap: Heap,
    pub visited: u64,
    pub atomics: Vec<Atomic>,
    /// Of each atomic part in turn, as many as each has.
    pub connections: Vec<Connection>,
    pub composites: Vec<Composite>,
    /// Depth first, parents before children: in the order in which a traversal meets them.
    pub assemblies: Vec<Assembly>,
    pub manual: (u64, u64),
    pub ids: Table,
    pub titles: Table,
    pub dates: DateIndex,
    pub atomics_each: u32,
    pub connections_each: u32,
}

impl Database {
    pub(super) fn new(config: &Oo7Config) -> Self {
        let mut heap = Heap::default();
        let visited = heap.allocate(VISITED_BYTES);
        Self {
            visited,
            atomics: Vec::new(),
            connections: Vec::new(),
            composites: Vec::new(),
            assemblies: Vec::new(),
            manual: (0, 0),
            ids: Table::new(&mut heap, config.composites * config.atomics),
            titles: Table::new(&mut heap, config.composites),
            dates: DateIndex::new(&mut heap, DATES),
            atomics_each: config.atomics,
            connections_each: config.connections,
            heap,
        }
    }

    /// What the database of this configuration takes at most: chunks of the date index, whose number depends on the seed, and on what traversals
    /// change, are taken to be as many as they can be.
    pub(super) fn bytes(config: &Oo7Config) -> u64 {
        let object = |bytes: u64| bytes.next_multiple_of(8) + 8;
        let atomics = u64::from(config.composites) * u64::from(config.atomics);
        let connection = object(CONNECTION_BYTES) + 2 * object(NODE_BYTES);
        let atomic = object(ATOMIC_BYTES) + object(NODE_BYTES) + u64::from(config.connections) * connection;
        let composite = object(COMPOSITE_BYTES) + object(DOCUMENT_BYTES) + object(config.document_bytes);
        let base = config.base_assemblies();
        let assemblies =
            (base * u64::from(config.subassemblies)).div_ceil(u64::from(config.subassemblies) - 1);
        let uses = base * u64::from(config.components) * 2 * object(NODE_BYTES);
        object(VISITED_BYTES)
            + atomics * atomic
            + u64::from(config.composites) * composite
            + assemblies * (object(ASSEMBLY_BYTES) + object(NODE_BYTES))
            + uses
            + object(MODULE_BYTES)
            + object(config.manual_bytes)
            + Table::bytes(config.composites * config.atomics)
            + Table::bytes(config.composites)
            + DateIndex::bytes(DATES, atomics)
    }

    fn make(&mut self, bytes: u64, recorder: &mut Recorder) -> u64 {
        let address = self.heap.allocate(bytes);
        recorder.work(MAKE_INSTRUCTIONS);
        recorder.private(address, bytes, true);
        address
    }

    /// A composite part with its document, atomic parts and their connections. The graph is connected: the first connection of each
    /// part goes to the next part.
    pub(super) fn build_composite(&mut self, config: &Oo7Config, dice: &mut Dice, recorder: &mut Recorder) {
        let address = self.make(COMPOSITE_BYTES, recorder);
        let document = self.make(DOCUMENT_BYTES, recorder);
        let text = self.make(config.document_bytes, recorder);
        recorder.work(config.document_bytes / 2);
        assert!(text > document, "a heap grows");
        self.titles.insert(self.composites.len() as u32, recorder);
        let range = if dice.below(100) < YOUNG_PERCENT { YOUNG_DATES } else { OLD_DATES };
        let date = dice.between(range.0, range.1) as u32;
        self.composites.push(Composite { address, document, date, uses: Vec::new() });
        let first = self.atomics.len() as u32;
        for _ in 0..config.atomics {
            let part = self.make(ATOMIC_BYTES, recorder);
            self.make(NODE_BYTES, recorder);
            let (x, y) = (dice.below(100_000) as u32, dice.below(100_000) as u32);
            let date = dice.between(DATES.0, DATES.1) as u32;
            let id = self.atomics.len() as u32;
            self.ids.insert(id, recorder);
            self.dates.insert(date, id, &mut self.heap, recorder);
            self.atomics.push(Atomic { address: part, x, y, date, first: (x, y, date) });
        }
        for from in 0..config.atomics {
            for connection in 0..config.connections {
                let to = match connection {
                    0 => (from + 1) % config.atomics,
                    _ => dice.below(u64::from(config.atomics)) as u32,
                };
                let address = self.make(CONNECTION_BYTES, recorder);
                let node = self.make(NODE_BYTES, recorder);
                self.make(NODE_BYTES, recorder);
                // Both ends' lists get a new head.
                for end in [from, to] {
                    recorder.private(self.atomics[(first + end) as usize].address, ATOMIC_BYTES, true);
                }
                self.connections.push(Connection { address, node, to: first + to });
            }
        }
    }

    /// The module: its manual, and the tree of assemblies, whose leaves choose composite parts at random.
    pub(super) fn build_module(&mut self, config: &Oo7Config, dice: &mut Dice, recorder: &mut Recorder) {
        self.make(MODULE_BYTES, recorder);
        self.manual = (self.make(config.manual_bytes, recorder), config.manual_bytes);
        recorder.work(config.manual_bytes / 2);
        self.build_assembly(config, 1, dice, recorder);
        let bytes = self.heap.bytes();
        assert!(bytes <= Self::bytes(config), "the footprint is too small: {bytes} bytes");
    }

    fn build_assembly(&mut self, config: &Oo7Config, level: u32, dice: &mut Dice, recorder: &mut Recorder) {
        let address = self.make(ASSEMBLY_BYTES, recorder);
        let date = dice.between(DATES.0, DATES.1) as u32;
        let at = self.assemblies.len();
        self.assemblies.push(Assembly { address, date, components: Vec::new() });
        if level < config.levels {
            for _ in 0..config.subassemblies {
                self.make(NODE_BYTES, recorder);
                self.build_assembly(config, level + 1, dice, recorder);
            }
            return;
        }
        for _ in 0..config.components {
            let composite = dice.below(u64::from(config.composites)) as u32;
            let node = self.make(NODE_BYTES, recorder);
            self.assemblies[at].components.push((node, composite));
            let usage = self.make(NODE_BYTES, recorder);
            let composite = &mut self.composites[composite as usize];
            recorder.private(composite.address, COMPOSITE_BYTES, true);
            composite.uses.push((usage, at as u32));
        }
    }

    /// An even date becomes the odd one after it, an odd one the even one before it, in the part and in the index.
    pub(super) fn change_date(&mut self, id: u32, recorder: &mut Recorder) {
        let before = self.atomics[id as usize].date;
        let after = before ^ 1;
        self.atomics[id as usize].date = after;
        self.dates.remove(before, id, recorder);
        self.dates.insert(after, id, &mut self.heap, recorder);
    }

    /// Everything is as the operations must have left it: each swap and each change of a date undoes the one before.
    pub(super) fn check(&self, config: &Oo7Config) -> Result<(), String> {
        let times = |operation| config.operations.iter().filter(|&&o| o == operation).count();
        let (swaps, changes) =
            ([times(Operation::T2a), times(Operation::T2b)], [times(Operation::T3a), times(Operation::T3b)]);
        for (id, part) in self.atomics.iter().enumerate() {
            let composite = &self.composites[id / self.atomics_each as usize];
            let root = usize::from(id.is_multiple_of(self.atomics_each as usize));
            let odd = |of: [usize; 2]| composite.uses.len() * (root * of[0] + of[1]) % 2 == 1;
            let (x, y, date) = part.first;
            let expected = if odd(swaps) { (y, x) } else { (x, y) };
            let dated = if odd(changes) { date ^ 1 } else { date };
            if (part.x, part.y) != expected || part.date != dated {
                return Err(format!("atomic part {id} is {part:?}"));
            }
        }
        self.dates.check(self.atomics.iter().map(|part| part.date))
    }
}
