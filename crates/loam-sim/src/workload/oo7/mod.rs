//! OO7: a parts-assembly database in virtual memory, and traversals of it (gms-1995, section 5.3).
//!
//! The benchmark is Carey, DeWitt, Naughton, "The OO7 Benchmark", SIGMOD 1993, [4] of the paper. A module is a tree of assemblies; a base
//! assembly uses composite parts; a composite part has a document and a graph of atomic parts whose edges are connection
//! objects. All parameters are the benchmark's own. The database is built object by object on a simulated heap,
//! by a C++ program with pointers of 64 bits (see [`build`] for the sizes), and every operation really runs: it counts what it
//! visits, and the count is compared with what it must be.

mod build;
mod index;
mod query;
#[cfg(test)]
mod tests;
mod traverse;

use super::recorder::Recorder;
use super::{Footprint, Reference, WorkFile, Workload};
use crate::fuzz::dice::Dice;
use build::Database;
use loam_core::units::Bytes;
use traverse::Traversal;

/// The benchmark's parameters (its table 1), and what is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oo7Config {
    /// NumCompPerModule.
    pub composites: u32,
    /// NumAtomicPerComp.
    pub atomics: u32,
    /// NumConnPerAtomic.
    pub connections: u32,
    /// DocumentSize.
    pub document_bytes: u64,
    /// ManualSize.
    pub manual_bytes: u64,
    /// NumAssmPerAssm.
    pub subassemblies: u32,
    /// NumAssmLevels, the base assemblies' included.
    pub levels: u32,
    /// NumCompPerAssm.
    pub components: u32,
    /// What is done once the database is built.
    pub operations: Vec<Operation>,
}

impl Oo7Config {
    /// Small, with 3, 6 or 9 connections an atomic part.
    pub fn small(connections: u32) -> Self {
        Self {
            composites: 500,
            atomics: 20,
            connections,
            document_bytes: 2000,
            manual_bytes: 100_000,
            subassemblies: 3,
            levels: 7,
            components: 3,
            operations: Operation::TRAVERSALS.to_vec(),
        }
    }

    /// Medium, with 3, 6 or 9 connections an atomic part.
    pub fn medium(connections: u32) -> Self {
        Self { atomics: 200, document_bytes: 20_000, manual_bytes: 1_000_000, ..Self::small(connections) }
    }

    /// The largest database of one module that the benchmark has: medium with 9 connections.
    pub fn paper() -> Self {
        Self::medium(9)
    }

    /// For tests: everything, in a thousandth of the time.
    pub fn tiny() -> Self {
        Self {
            composites: 40,
            levels: 4,
            manual_bytes: 30_000,
            operations: Operation::ALL.to_vec(),
            ..Self::small(3)
        }
    }

    fn base_assemblies(&self) -> u64 {
        u64::from(self.subassemblies).pow(self.levels - 1)
    }
}

/// An operation of the benchmark (its sections 3.2 to 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Through all assemblies and, depth first, all atomic parts of each composite part met.
    T1,
    /// As T1; swaps x and y of one atomic part of each composite part.
    T2a,
    /// Of all.
    T2b,
    /// Of all, four times.
    T2c,
    /// As T2a, but changes the build date, which is indexed.
    T3a,
    /// Of all.
    T3b,
    /// Of all, four times.
    T3c,
    /// As T1, but visits the root atomic part alone.
    T6,
    /// Counts a letter in the manual.
    T8,
    /// Compares the manual's first and last letter.
    T9,
    /// Ten atomic parts by their ids.
    Q1,
    /// Atomic parts of the last 1% of build dates.
    Q2,
    /// Of the last 10%.
    Q3,
    /// Of 100 documents by title, the base assemblies that use their composite parts.
    Q4,
    /// Base assemblies that use a composite part with a later build date than their own.
    Q5,
    /// All atomic parts.
    Q7,
}

impl Operation {
    /// Those in the benchmark's order whose accesses differ: T2c, T3b and T3c touch what T2b and T3a do, more often.
    pub const TRAVERSALS: [Self; 6] = [Self::T1, Self::T2a, Self::T2b, Self::T6, Self::T8, Self::T9];
    /// All.
    pub const ALL: [Self; 16] = [
        Self::T1,
        Self::T2a,
        Self::T2b,
        Self::T2c,
        Self::T3a,
        Self::T3b,
        Self::T3c,
        Self::T6,
        Self::T8,
        Self::T9,
        Self::Q1,
        Self::Q2,
        Self::Q3,
        Self::Q4,
        Self::Q5,
        Self::Q7,
    ];
}

/// What an operation returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub operation: Operation,
    /// What it counted.
    pub found: u64,
    /// What it must count: a closed form, or a count over the database's own tables that touches no simulated memory.
    pub expected: u64,
}

/// Where the program is.
#[derive(Clone, Debug)]
enum Phase {
    /// The next composite part to be built.
    Build(u32),
    /// The next operation to be begun.
    Operation(usize),
    /// An operation that goes through the assemblies.
    Traversal(usize, Traversal),
    Over,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Oo7 {
    config: Oo7Config,
    seed: u64,
    page: Bytes,
    footprint: Footprint,
    recorder: Recorder,
    database: Database,
    dice: Dice,
    phase: Phase,
    findings: Vec<Finding>,
}

impl Oo7 {
    /// # Panics
    /// If a parameter is 0, there are fewer than two levels, or a page has no permitted size.
    pub fn new(config: Oo7Config, page: Bytes, seed: u64) -> Self {
        let counts = [config.composites, config.atomics, config.connections, config.subassemblies];
        assert!(counts.iter().all(|&n| n > 0) && config.components > 0, "OO7 needs parts");
        assert!(config.levels >= 2 && config.subassemblies >= 2, "OO7 needs a tree of assemblies");
        let recorder = Recorder::new(page);
        let private_pages = recorder.pages(Database::bytes(&config));
        Self {
            footprint: Footprint { private_pages, files: Vec::<WorkFile>::new() },
            recorder,
            database: Database::new(&config),
            dice: Dice::new(seed, 7),
            phase: Phase::Build(0),
            findings: Vec::new(),
            config,
            seed,
            page,
        }
    }

    /// What the operations so far returned.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn step(&mut self) {
        let (config, database) = (&self.config, &mut self.database);
        match &mut self.phase {
            Phase::Build(composite) if *composite < config.composites => {
                database.build_composite(config, &mut self.dice, &mut self.recorder);
                *composite += 1;
            }
            Phase::Build(_) => {
                database.build_module(config, &mut self.dice, &mut self.recorder);
                self.phase = Phase::Operation(0);
            }
            Phase::Operation(at) => {
                let at = *at;
                let Some(&operation) = config.operations.get(at) else {
                    self.phase = Phase::Over;
                    return;
                };
                if let Some(traversal) = Traversal::of(operation) {
                    self.phase = Phase::Traversal(at, traversal);
                    return;
                }
                let (found, expected) = query::run(operation, database, &mut self.dice, &mut self.recorder);
                self.findings.push(Finding { operation, found, expected });
                self.phase = Phase::Operation(at + 1);
            }
            Phase::Traversal(at, traversal) => {
                if traversal.step(database, &mut self.recorder) {
                    return;
                }
                let operation = config.operations[*at];
                let each = traverse::visits_per_composite(operation, config.atomics);
                let expected = config.base_assemblies() * u64::from(config.components) * each;
                self.findings.push(Finding { operation, found: traversal.count(), expected });
                self.phase = Phase::Operation(*at + 1);
            }
            Phase::Over => {}
        }
    }
}

impl Workload for Oo7 {
    fn name(&self) -> &'static str {
        "oo7"
    }

    fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool {
        while self.recorder.len() == 0 && !matches!(self.phase, Phase::Over) {
            self.step();
        }
        self.recorder.take(into)
    }

    fn restart(&mut self) {
        *self = Self::new(self.config.clone(), self.page, self.seed);
    }

    fn check(&self) -> Result<Vec<String>, String> {
        if !matches!(self.phase, Phase::Over) {
            return Err("the run is not over".into());
        }
        for finding in &self.findings {
            if finding.found != finding.expected {
                return Err(format!("{finding:?}"));
            }
        }
        self.database.check(&self.config)?;
        let told = self.findings.iter().map(|f| format!("{:?}: {}, as it must be", f.operation, f.found));
        Ok(told.collect())
    }
}
