//! Parallel programs of the kinds that nwcache-1999 ran (section 4, table 2), as one stream of touches a processor.
//!
//! A program is cut into *phases* by its barriers. Between two barriers its processors touch nothing that another one writes there, so running
//! one processor after the other computes what running them at once would; the simulated machine then replays their streams side by side.
//!
//! **Data.** The paper's programs map their files and find their input there, so setting it up is no part of a
//! program: all of it is on disk before the first phase.
//!
//! **Instructions** are counted loop by loop, as a compiler for MIPS would write them (the paper's simulator runs such
//! code): one for each load, store and arithmetic operation, one for the address in each array that the loop goes
//! along, one for its branch.
//!
//! Each program says where its algorithm comes from, how it is divided, and what its sweeps are; see also
//! `docs/simulator-workloads.md`.

mod checks;
mod em3d;
mod factors;
mod fft;
mod gauss;
mod lu;
mod memory;
mod mg;
mod program;
#[cfg(test)]
mod races;
mod radix;
mod sor;
#[cfg(test)]
mod tests;

pub use memory::PAGE_BYTES;
pub use program::PROCESSORS_MAX;

use super::Scale;
use program::Program;

/// How a program touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TouchKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// One sweep over neighbouring bytes of the program's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    /// First byte, from the beginning of the shared memory.
    pub address: u64,
    /// How many, in order; at most a page's, and never across the end of one.
    pub bytes: u32,
    /// Read or written.
    pub kind: TouchKind,
    /// Instructions that the processor executes for it, of one cycle each, without what memory makes it wait.
    pub busy_cycles: u32,
}

/// A program for a machine with so many processors. It is a function of its configuration: the same phases give the same touches.
pub trait ParallelProgram: Send {
    /// Its name in the paper.
    fn name(&self) -> &'static str;
    /// Bytes of shared memory: addresses are below.
    fn shared_bytes(&self) -> u64;
    /// Processors that it is divided among.
    fn processors(&self) -> usize;
    /// Phases; after each there is a barrier.
    fn phases(&self) -> usize;
    /// Computes one processor's part of a phase and appends its touches. Called once for each processor in each phase, phases in order.
    fn run(&mut self, phase: usize, processor: usize, into: &mut Vec<Touch>);
    /// What was computed, checked, once all phases have run: a line for each result.
    ///
    /// # Errors
    /// The first result that is wrong.
    fn check(&self) -> Result<Vec<String>, String>;
}

/// The programs, in the paper's order.
pub const PARALLEL_NAMES: [&str; 7] = ["em3d", "fft", "gauss", "lu", "mg", "radix", "sor"];

/// The program of this name, divided among so many processors; none if there is no such name.
///
/// # Panics
/// If there are no processors, or more than [`PROCESSORS_MAX`].
pub fn parallel_by_name(name: &str, scale: Scale, processors: usize) -> Option<Box<dyn ParallelProgram>> {
    Some(match name {
        "em3d" => Box::new(Program::<em3d::Em3d>::new(scale, processors)),
        "fft" => Box::new(Program::<fft::Fft>::new(scale, processors)),
        "gauss" => Box::new(Program::<gauss::Gauss>::new(scale, processors)),
        "lu" => Box::new(Program::<lu::Lu>::new(scale, processors)),
        "mg" => Box::new(Program::<mg::Mg>::new(scale, processors)),
        "radix" => Box::new(Program::<radix::Radix>::new(scale, processors)),
        "sor" => Box::new(Program::<sor::Sor>::new(scale, processors)),
        _ => return None,
    })
}
