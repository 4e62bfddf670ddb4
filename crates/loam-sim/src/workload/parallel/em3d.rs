//! Em3d: electromagnetic waves on a graph, 32 K nodes, 5% remote, 10 iterations (nwcache-1999, table 2).
//!
//! The algorithm is that of Split-C's EM3D (Culler and others, *Parallel programming in Split-C*, Supercomputing
//! 1993): half of the nodes are values of the electric field, the others of the magnetic one; a node's new value is
//! its old one less a weighted sum of the other field's at its neighbours. Each processor has as many nodes of both
//! fields as the others, in lists; a share of the edges (5%) leads to a random node of another processor, the rest to
//! random ones of its own. A barrier follows each field.
//!
//! A node's record has its value (8 bytes), the number of its edges and the next node of the list (4 each); edges are
//! pointers (4) and coefficients (8) in arrays, one node's after the other's. The paper does not tell the degree; 5
//! is the one with which 32 K nodes have table 2's 2.5 MB (76 bytes a node).
//!
//! Neighbours are touched one by one. With one processor there are no others, and no remote edges.

use super::checks::{distance, near};
use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, share, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;

/// Edges into a node.
const DEGREE: usize = 5;
/// One edge in so many is remote: 5%.
const REMOTE_ONE_IN: u64 = 20;
/// A node: load of its value, edges and next node, store of the value; the addresses of edges and coefficients; two
/// loops' branches.
const NODE_INSTRUCTIONS: usize = 10;
/// An edge: loads of pointer, coefficient and value, multiply, subtract, two addresses, the loop's branch.
const EDGE_INSTRUCTIONS: usize = 8;
/// The end of a list.
const NONE: u32 = u32::MAX;
/// What rounding leaves.
const ERROR_MAX: f64 = 1e-13;

#[derive(Clone, Copy, Debug)]
struct Node {
    value: f64,
    edges: u32,
    next: u32,
}

/// One field.
struct Field {
    nodes: Shared<Node>,
    /// The other field's nodes that a node depends on.
    pointers: Shared<u32>,
    coefficients: Shared<f64>,
}

/// See the module.
pub(super) struct Em3d {
    iterations: usize,
    processors: usize,
    /// Electric and magnetic.
    fields: [Field; 2],
    /// Values as they were.
    input: [Vec<f64>; 2],
}

impl Field {
    fn new(nodes: usize, processors: usize, dice: &mut Dice, space: &mut Space) -> Self {
        let node = |at: usize, end: usize, dice: &mut Dice| Node {
            value: uniform(dice),
            edges: DEGREE as u32,
            next: if at + 1 < end { at as u32 + 1 } else { NONE },
        };
        let (mut records, mut pointers) = (Vec::new(), Vec::new());
        for processor in 0..processors {
            let own = share(nodes, processors, processor);
            records.extend(own.clone().map(|at| node(at, own.end, dice)));
            for _ in own.clone().flat_map(|_| 0..DEGREE) {
                let remote = processors > 1 && dice.once_in(REMOTE_ONE_IN);
                let others = dice.below(processors.max(2) as u64 - 1) as usize + 1;
                let owner = if remote { (processor + others) % processors } else { processor };
                let of_owner = share(nodes, processors, owner);
                pointers.push(of_owner.start as u32 + dice.below(of_owner.len() as u64) as u32);
            }
        }
        // Small enough that no wave grows without end.
        let coefficients = (0..nodes * DEGREE).map(|_| uniform(dice) / DEGREE as f64).collect();
        Self {
            nodes: space.array(records),
            pointers: space.array(pointers),
            coefficients: space.array(coefficients),
        }
    }

    fn values(&self) -> Vec<f64> {
        self.nodes.values().iter().map(|node| node.value).collect()
    }

    /// New values for a list of nodes.
    fn compute(&mut self, first: usize, other: &Field, recorder: &mut Recorder<'_>) {
        let mut at = first;
        while at != NONE as usize {
            let node = recorder.read(&self.nodes, at..at + 1)[0];
            let edges = at * DEGREE..at * DEGREE + node.edges as usize;
            let pointers = recorder.read(&self.pointers, edges.clone());
            let coefficients = recorder.read(&self.coefficients, edges);
            recorder.work(NODE_INSTRUCTIONS);
            let mut value = node.value;
            for (&pointer, coefficient) in pointers.iter().zip(coefficients) {
                let neighbour = pointer as usize;
                value -= coefficient * recorder.read(&other.nodes, neighbour..neighbour + 1)[0].value;
                recorder.work(EDGE_INSTRUCTIONS);
            }
            recorder.write(&mut self.nodes, at..at + 1)[0].value = value;
            at = node.next as usize;
        }
    }
}

impl Algorithm for Em3d {
    const NAME: &'static str = "em3d";

    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let (nodes, iterations) = match scale {
            Scale::Small => (512, 3),
            Scale::Paper => (32 << 10, 10),
        };
        let mut dice = Dice::new(1, 61);
        let fields = [(); 2].map(|()| Field::new(nodes / 2, processors, &mut dice, space));
        let input = [fields[0].values(), fields[1].values()];
        Self { iterations, processors, fields, input }
    }

    /// One for each field in each iteration.
    fn phases(&self) -> usize {
        2 * self.iterations
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let [electric, magnetic] = &mut self.fields;
        let (field, other) =
            if phase.is_multiple_of(2) { (electric, magnetic) } else { (magnetic, electric) };
        let first = share(field.nodes.len(), self.processors, processor).start;
        field.compute(first, other, recorder);
    }

    /// The same waves when each node sends to those that depend on it, instead of asking those that it depends on.
    fn check(&self) -> Result<Vec<String>, String> {
        // From whom, to whom, and how much of it; by senders.
        let messages = self.fields.each_ref().map(|field| {
            let edges = field.pointers.values().iter().zip(field.coefficients.values()).enumerate();
            let message =
                |(edge, (&from, &coefficient)): (usize, (&u32, &f64))| (from, edge / DEGREE, coefficient);
            let mut messages: Vec<(u32, usize, f64)> = edges.map(message).collect();
            messages.sort_by_key(|&(from, to, _)| (from, to));
            messages
        });
        let mut values = self.input.clone();
        for (to_field, from_field) in (0..2 * self.iterations).map(|half| (half % 2, 1 - half % 2)) {
            let mut sums = vec![0.0; values[to_field].len()];
            for &(from, to, coefficient) in &messages[to_field] {
                sums[to] += coefficient * values[from_field][from as usize];
            }
            values[to_field].iter_mut().zip(sums).for_each(|(value, sum)| *value -= sum);
        }
        let found = self.fields.each_ref().map(Field::values).concat();
        let what = format!("{} nodes against nodes that send", found.len());
        Ok(vec![near(&what, distance(&found, &values.concat()), ERROR_MAX)?])
    }
}
