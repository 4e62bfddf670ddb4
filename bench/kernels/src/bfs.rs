//! Breadth-first search on an RMAT graph, as Graph500 has it: 16 edges for each vertex, a few vertices with very many, none near its neighbours in
//! memory.
//!
//! Edges are made anew each time that they are needed, so the graph alone takes memory. A search is checked as Graph500 checks it, which
//! makes certain that depths are right.

mod graph;

use crate::check::{Check, Checks, Checksum};
use crate::kernel::Kernel;
use crate::memory::{Array, Memory};
use crate::random;
use graph::{EDGES_PER_VERTEX, edge};

pub(crate) const PARTS: &[&str] = &["clear", "search"];
const SEED: u64 = 0xbf;
/// Not reached, where depths are looked at.
const UNREACHED: u32 = u32::MAX;

/// See the module.
pub(crate) struct Bfs<M: Memory> {
    memory: M,
    /// Where each vertex's neighbours begin; one more at the end.
    begins: M::Array<u32>,
    neighbours: M::Array<u32>,
    /// Of each vertex, its parent in the tree and 1, or 0.
    parents: M::Array<u32>,
    /// Vertices in the order in which they are reached.
    queue: M::Array<u32>,
    iteration: u64,
    root: usize,
    /// How many vertices each search reached.
    reached: Vec<u64>,
}

pub(crate) fn bytes(exponent: usize) -> u64 {
    let vertices = 1_u64 << exponent;
    (vertices * (3 + 2 * EDGES_PER_VERTEX as u64) + 1) * 4
}

impl<M: Memory> Bfs<M> {
    /// A graph of 2^exponent vertices.
    pub(crate) fn new(memory: &M, exponent: usize) -> Self {
        let vertices = 1 << exponent;
        let mut new = Self {
            memory: memory.clone(),
            begins: memory.array(vertices + 1),
            neighbours: memory.array(2 * EDGES_PER_VERTEX * vertices),
            parents: memory.array(vertices),
            queue: memory.array(vertices),
            iteration: 0,
            root: 0,
            reached: Vec::new(),
        };
        // The place behind each vertex's holds its degree first.
        for (a, b) in new.edges() {
            for vertex in [a, b] {
                new.begins.set(vertex + 1, new.begins.get(vertex + 1) + 1);
            }
        }
        let mut begin = 0;
        for vertex in 0..vertices {
            let degree = new.begins.get(vertex + 1);
            begin += degree;
            new.begins.set(vertex + 1, begin);
        }
        new.bring_in();
        new
    }

    /// Each edge's ends get to know each other. First all go to the stretch of memory that many vertices share, so that only as many places as
    /// there are stretches are written to in turn; then each stretch is put in order by itself.
    fn bring_in(&mut self) {
        let vertices = self.parents.len();
        // A neighbour and the low bits of whose it is make one word.
        let low_bits = u32::BITS - vertices.ilog2();
        let low_mask = (1 << low_bits) - 1;
        let first = |stretch: usize| (stretch << low_bits).min(vertices);
        let begin = |bfs: &Self, stretch| bfs.begins.get(first(stretch)) as usize;
        let stretches = vertices.div_ceil(1 << low_bits);
        let mut next: Vec<usize> = (0..stretches).map(|stretch| begin(self, stretch)).collect();
        for (a, b) in self.edges() {
            for (whose, neighbour) in [(a, b), (b, a)] {
                let to = &mut next[whose >> low_bits];
                self.neighbours.set(*to, (neighbour << low_bits | whose & low_mask) as u32);
                *to += 1;
            }
        }
        for stretch in 0..stretches {
            let whose = first(stretch)..first(stretch + 1);
            let (from, to) = (begin(self, stretch), begin(self, stretch + 1));
            let words: Vec<u32> = (from..to).map(|at| self.neighbours.get(at)).collect();
            let mut next: Vec<usize> = whose.map(|vertex| self.begins.get(vertex) as usize).collect();
            for word in words {
                let to = &mut next[word as usize & low_mask];
                self.neighbours.set(*to, word >> low_bits);
                *to += 1;
            }
        }
    }

    /// All edges but loops.
    fn edges(&self) -> impl Iterator<Item = (usize, usize)> + use<M> {
        let vertices = self.parents.len();
        (0..(EDGES_PER_VERTEX * vertices) as u64).map(move |at| edge(vertices, at)).filter(|(a, b)| a != b)
    }

    fn degree(&self, vertex: usize) -> u32 {
        self.begins.get(vertex + 1) - self.begins.get(vertex)
    }

    fn clear(&mut self) {
        for vertex in 0..self.parents.len() {
            self.parents.set(vertex, 0);
        }
    }

    fn search(&mut self) {
        let vertices = self.parents.len();
        self.root = random::below(SEED, self.iteration, vertices);
        while self.degree(self.root) == 0 {
            self.root = (self.root + 1) % vertices;
        }
        self.iteration += 1;
        self.parents.set(self.root, self.root as u32 + 1);
        self.queue.set(0, self.root as u32);
        let (mut next, mut end) = (0, 1);
        while next < end {
            let vertex = self.queue.get(next) as usize;
            next += 1;
            for at in self.begins.get(vertex) as usize..self.begins.get(vertex + 1) as usize {
                let neighbour = self.neighbours.get(at) as usize;
                if self.parents.get(neighbour) == 0 {
                    self.parents.set(neighbour, vertex as u32 + 1);
                    self.queue.set(end, neighbour as u32);
                    end += 1;
                }
                self.memory.work(1);
            }
        }
        self.reached.push(end as u64);
    }

    fn neighbours_of(&self, vertex: usize) -> impl Iterator<Item = usize> {
        (self.begins.get(vertex)..self.begins.get(vertex + 1))
            .map(|at| self.neighbours.get(at as usize) as usize)
    }

    /// Depth of each vertex in the tree. None if parents form a circle, or one was not reached.
    fn depths(&self) -> Option<Vec<u32>> {
        let vertices = self.parents.len();
        let mut depths = vec![UNREACHED; vertices];
        *depths.get_mut(self.root)? = 0;
        for vertex in 0..vertices {
            let (mut path, mut at) = (Vec::new(), vertex);
            if self.parents.get(vertex) == 0 {
                continue;
            }
            while depths[at] == UNREACHED {
                path.push(at);
                let parent = self.parents.get(at) as usize;
                if parent == 0 || parent > vertices || path.len() > vertices {
                    return None;
                }
                at = parent - 1;
            }
            let mut depth = depths[at];
            for vertex in path.into_iter().rev() {
                depth += 1;
                depths[vertex] = depth;
            }
        }
        Some(depths)
    }
}

impl<M: Memory> Kernel for Bfs<M> {
    fn run_part(&mut self, part: usize) {
        match part {
            0 => self.clear(),
            _ => self.search(),
        }
    }

    fn verify(&mut self, iterations: u32) -> Vec<Check> {
        let mut checks = Checks::default();
        checks.equal("searches", self.reached.len(), iterations as usize);
        checks.equal("parent of the root", self.parents.get(self.root), self.root as u32 + 1);
        let Some(depths) = self.depths() else {
            checks.equal("the parents are a tree", false, true);
            return checks.0;
        };
        let (mut reached, mut strange, mut apart) = (0_u64, 0_u64, 0_u64);
        for vertex in 0..self.parents.len() {
            if self.parents.get(vertex) != 0 {
                reached += 1;
                let parent = self.parents.get(vertex) as usize - 1;
                let known = vertex == self.root || self.neighbours_of(vertex).any(|other| other == parent);
                strange += u64::from(!known);
            }
            // Both ends reached or neither, and then at most one level apart: with a tree this makes depths the least possible.
            let far = |other: usize| match (depths[vertex], depths[other]) {
                (UNREACHED, UNREACHED) => false,
                (UNREACHED, _) | (_, UNREACHED) => true,
                (a, b) => a.abs_diff(b) > 1,
            };
            apart += self.neighbours_of(vertex).filter(|&other| far(other)).count() as u64;
        }
        checks.equal("vertices reached", reached, self.reached.last().copied().unwrap_or(0));
        checks.equal("parents that are no neighbours", strange, 0);
        checks.equal("edges whose ends are not one level apart at most", apart, 0);
        checks.0
    }

    fn checksum(&self) -> u64 {
        let mut sum = Checksum::new();
        self.reached.iter().for_each(|&reached| sum.add(reached));
        sum.array(&self.parents);
        sum.value()
    }

    /// A vertex that was reached is made unreached; one that was not gets the root for its parent.
    fn corrupt(&mut self, seed: u64) {
        let vertex = random::below(seed, 0, self.parents.len());
        let parent = if self.parents.get(vertex) == 0 { self.root as u32 + 1 } else { 0 };
        self.parents.set(vertex, parent);
    }
}
