//! The kernels of `bench/kernels` as streams of references to base pages, with the marks of their parts (aapc-2012, section II.A).
//!
//! A kernel computes in memory that notes, for each element that it reads or writes, which base page it is in. Its result is checked as that of a
//! live run, and has the same checksum.
//!
//! **Time.** Each reading or writing of an element is an operation, and each arithmetic operation that a kernel counts is one. One takes a
//! cycle of the processor of aapc-2012's table I, an Opteron of 2.3 GHz: [`PS_PER_OPERATION`]. That is an assumption (the paper has no times of its
//! programs): the processor can load twice, add and multiply in a cycle, and what it waits for its caches takes about what that saves.
//!
//! **What is yielded.** Not every touch: an inner loop goes to and fro between some pages, and nothing is learned from each time. A page is
//! yielded at its first touch, at the first one that writes, and again when [`RECENT`] other references have been, or when [`QUANTUM`] operations
//! have passed. So whoever replays it knows within 32 pages, or within 2 us, when a page was used last. (The innermost
//! loops of SP touch 24 pages in turn.) With fewer frames than an innermost loop has pages that is too coarse: what would thrash with each element seems
//! to thrash every 2 us. While a kernel sets up its input, which nobody measures, each page is yielded once, and once when it is first written.

mod recorder;
mod recording;
#[cfg(test)]
mod tests;

pub use recorder::{Recorded, RecordedArray};
pub use recording::{Recording, RecordingError};

use loam_core::units::Bytes;
use loam_kernels::{Info, Report, Run};

/// Picoseconds of an operation: a cycle at 2.3 GHz (aapc-2012, table I).
pub const PS_PER_OPERATION: u64 = 10_000 / 23;
/// A page is yielded again when so many other references have been yielded.
pub const RECENT: u32 = 32;
/// A page is yielded again when so many operations have passed.
pub const QUANTUM: u64 = 4096;

/// What a kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It touched a base page.
    Reference {
        /// Its number: arrays follow each other in the order in which they were made, each from a base page of its own on.
        page: u32,
        /// Nanoseconds of the processor since the event before this one.
        cpu_ns: u32,
        /// It wrote.
        write: bool,
        /// It had never touched this page before: there are zeros in it.
        fresh: bool,
    },
    /// A part began. Parts of an iteration are numbered from 1; 0 is setting up.
    Part(u32),
}

/// A kernel's events, some at a time.
///
/// It is bound to its thread. What many simulations are to replay is [`Recording`], which is not.
pub struct KernelStream {
    run: Option<Run<Recorded>>,
    memory: Recorded,
    report: Option<Report>,
}

impl KernelStream {
    /// A kernel of so many iterations, its problem number from [`Info::problem`], in memory of so large base pages. Its setting up is recorded at
    /// once.
    ///
    /// # Panics
    /// If a base page is not a power of two from 256 bytes to 1 MiB, the problem number is out of range or there are no iterations. Later, if a part
    /// has more than 2^27 events (a quarter of a billion random accesses).
    pub fn new(info: &'static Info, problem: usize, iterations: u32, base_page: Bytes) -> Self {
        let memory = Recorded::new(base_page);
        let run = Run::new(info, problem, iterations, memory.clone());
        Self { run: Some(run), memory, report: None }
    }

    /// Base pages of its memory: page numbers are below.
    pub fn base_pages(&self) -> u32 {
        self.memory.base_pages()
    }

    /// Appends the next events: a part of an iteration at a time. False: there are no more, the result has been checked, and nothing was
    /// appended.
    pub fn next_events(&mut self, into: &mut Vec<Event>) -> bool {
        let Some(run) = &mut self.run else { return false };
        // The first time, there is what was recorded while it was set up.
        if !self.memory.take(into) {
            if !run.step() {
                self.memory.stop();
                self.report = self.run.take().map(Run::finish);
                return false;
            }
            assert!(self.memory.take(into), "a part begins with its mark");
        }
        true
    }

    /// What came out; none before all events have been taken.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }
}
