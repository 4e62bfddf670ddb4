//! Parallel programs of the kinds that nwcache-1999 ran (section 4, table 2), as one stream of touches a processor.
//!
//! A program is cut into *phases* by its barriers. Between two barriers its processors touch nothing that another one writes there, so running
//! one processor after the other computes what running them at once would; the simulated machine then replays their streams side by side.

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
