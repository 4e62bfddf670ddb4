//! Operations that go through the tree of assemblies.

use super::Operation;
use super::build::{
    ASSEMBLY_BYTES, ATOMIC_BYTES, COMPOSITE_BYTES, CONNECTION_BYTES, Database, NODE_BYTES, VISITED_BYTES,
};
use crate::workload::recorder::Recorder;

/// To visit an atomic part: the call, its place in the visited set, the benchmark's empty work.
const VISIT_INSTRUCTIONS: u64 = 60;
/// To follow a connection, and to see whether its end was visited.
const FOLLOW_INSTRUCTIONS: u64 = 25;
/// To go down to an assembly or a composite part.
const DOWN_INSTRUCTIONS: u64 = 40;
/// To swap x and y, or to change a date.
const UPDATE_INSTRUCTIONS: u64 = 10;

/// What is done with an atomic part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    Nothing,
    Swap,
    Date,
}

/// A traversal under way.
#[derive(Clone, Debug)]
pub(super) struct Traversal {
    update: Update,
    /// So often.
    times: u32,
    /// The root atomic part of a composite part only is changed.
    root_only: bool,
    /// Only the root is visited at all.
    sparse: bool,
    next: usize,
    count: u64,
    /// Of a composite part's atomic parts.
    visited: Vec<bool>,
    stack: Vec<(u32, u32)>,
}

/// What an operation counts for each composite part that it meets.
pub(super) fn visits_per_composite(operation: Operation, atomics: u32) -> u64 {
    match operation {
        Operation::T2a | Operation::T3a | Operation::T6 => 1,
        Operation::T2c | Operation::T3c => 4 * u64::from(atomics),
        _ => u64::from(atomics),
    }
}

impl Traversal {
    /// None if the operation is no traversal of the assemblies.
    pub(super) fn of(operation: Operation) -> Option<Self> {
        use Operation as O;
        let (update, times, root_only, sparse) = match operation {
            O::T1 => (Update::Nothing, 0, false, false),
            O::T2a => (Update::Swap, 1, true, false),
            O::T2b => (Update::Swap, 1, false, false),
            O::T2c => (Update::Swap, 4, false, false),
            O::T3a => (Update::Date, 1, true, false),
            O::T3b => (Update::Date, 1, false, false),
            O::T3c => (Update::Date, 4, false, false),
            O::T6 => (Update::Nothing, 0, false, true),
            O::T8 | O::T9 | O::Q1 | O::Q2 | O::Q3 | O::Q4 | O::Q5 | O::Q7 => return None,
        };
        Some(Self {
            update,
            times,
            root_only,
            sparse,
            next: 0,
            count: 0,
            visited: Vec::new(),
            stack: Vec::new(),
        })
    }

    /// Parts visited, or changes made.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next assembly; false if there is none.
    pub(super) fn step(&mut self, database: &mut Database, recorder: &mut Recorder) -> bool {
        let Some(assembly) = database.assemblies.get(self.next) else { return false };
        self.next += 1;
        recorder.work(DOWN_INSTRUCTIONS);
        recorder.private(assembly.address, ASSEMBLY_BYTES, false);
        for at in 0..assembly.components.len() {
            let (node, composite) = database.assemblies[self.next - 1].components[at];
            recorder.private(node, NODE_BYTES, false);
            recorder.work(DOWN_INSTRUCTIONS);
            recorder.private(database.composites[composite as usize].address, COMPOSITE_BYTES, false);
            self.composite(composite, database, recorder);
        }
        true
    }

    /// Depth first from the root part, along the connections.
    fn composite(&mut self, composite: u32, database: &mut Database, recorder: &mut Recorder) {
        let (atomics, connections) = (database.atomics_each, database.connections_each);
        let first = composite * atomics;
        self.visited.clear();
        self.visited.resize(atomics as usize, false);
        self.visit(first, first, database, recorder);
        if self.sparse {
            return;
        }
        self.stack.push((first, 0));
        while let Some((part, next)) = self.stack.last_mut() {
            if *next == connections {
                self.stack.pop();
                continue;
            }
            let connection = database.connections[(*part * connections + *next) as usize];
            *next += 1;
            recorder.work(FOLLOW_INSTRUCTIONS);
            recorder.private(connection.node, NODE_BYTES, false);
            recorder.private(connection.address, CONNECTION_BYTES, false);
            recorder.private(database.atomics[connection.to as usize].address, ATOMIC_BYTES, false);
            if !self.visited[(connection.to - first) as usize] {
                self.visit(connection.to, first, database, recorder);
                self.stack.push((connection.to, 0));
            }
        }
    }

    fn visit(&mut self, id: u32, root: u32, database: &mut Database, recorder: &mut Recorder) {
        self.visited[(id - root) as usize] = true;
        recorder.work(VISIT_INSTRUCTIONS);
        recorder.private(database.visited + u64::from(id - root) * 8 % VISITED_BYTES, 8, true);
        let part = &mut database.atomics[id as usize];
        recorder.private(part.address, ATOMIC_BYTES, false);
        if self.update == Update::Nothing {
            self.count += 1;
            return;
        }
        if self.root_only && id != root {
            return;
        }
        for _ in 0..self.times {
            self.count += 1;
            recorder.work(UPDATE_INSTRUCTIONS);
            recorder.private(database.atomics[id as usize].address, ATOMIC_BYTES, true);
            match self.update {
                Update::Swap => {
                    let part = &mut database.atomics[id as usize];
                    std::mem::swap(&mut part.x, &mut part.y);
                }
                Update::Date => database.change_date(id, recorder),
                Update::Nothing => unreachable!("it was looked at before"),
            }
        }
    }
}
