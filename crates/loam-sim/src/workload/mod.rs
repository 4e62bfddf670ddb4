//! Programs of the kinds that gms-1995 measured (section 5.3), as streams of page references.
//!
//! Each is a real computation, or a recorded one, whose data lie in simulated memory: what it reads and writes there is what it
//! yields. Sizes come from the paper, from the benchmark's own definition, or are stated with their reason in
//! `docs/simulator-workloads.md`; none is fitted to the paper's speedups.
//!
//! **Time.** A workload counts instructions (or data references of a recorded program) between references to pages, and turns them
//! into nanoseconds of the paper's 225-MHz Alpha. What one takes is from subpages-1996, section 3.2: 12 ns for a data reference at
//! 266 MHz; a third of a RISC processor's instructions are data references.
//!
//! **What is yielded.** A program goes back and forth between a few pages all the time, and no simulator can learn anything from each
//! time. A page that is referenced is yielded, and then not again until 44 other references have been (see `recorder`): the order of last uses,
//! which is what replacement works with, is right to within 44 pages, and first uses, first writes and the time between
//! them are exact.

mod cad;
mod compile;
pub mod kernels;
mod oo7;
mod page_trace;
pub mod parallel;
mod query;
mod recorder;
mod render;
mod router;
mod space;
#[cfg(test)]
mod tests;

pub use cad::{Cad, CadConfig};
pub use compile::{Compile, CompileConfig};
pub use oo7::{Finding, Oo7, Oo7Config, Operation};
pub use page_trace::PageTrace;
pub use query::{Query, QueryConfig};
pub use render::{Render, RenderConfig};
pub use router::{Router, RouterConfig};

use crate::trace::TraceError;
use loam_core::units::Bytes;
use std::path::Path;

/// Bytes of a page of the paper's machines.
pub const PAGE_BYTES: Bytes = Bytes(8192);
/// Time of a data reference: 12 ns on the 266-MHz Alpha of subpages-1996 (section 3.2), as many cycles on the 225-MHz one of gms-1995.
const PS_PER_REFERENCE: u64 = 12_000 * 266 / 225;
/// A third of a RISC processor's instructions are loads and stores.
const INSTRUCTIONS_PER_REFERENCE: u64 = 3;
/// What the system does to copy a byte between a file's page and a program, with its share of the system call: five instructions for
/// eight bytes (load, store, and the loop), and as much again for the call, the look-up and the cache misses of what is not reused.
const INSTRUCTIONS_PER_FILE_WORD: u64 = 10;

/// What a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The anonymous memory of the program that runs. A workload runs one at a time.
    Private,
    /// A file; the index in [`Footprint::files`]. Files are shared: another instance with the same seed reads the same ones.
    File(u16),
}

/// A page of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkPage {
    /// What it belongs to.
    pub object: Object,
    /// Its number in there, from 0.
    pub page: u32,
}

/// A reference to a page, and what the program did before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Where.
    pub page: WorkPage,
    /// Nanoseconds of the processor since the reference before this one.
    pub cpu_ns: u32,
    /// Microseconds that the program's user thought, or typed, after that. A simulator may leave them out, as a replay does.
    pub idle_us: u32,
    /// It writes.
    pub write: bool,
    /// What the page held before does not matter: memory that a program touches for the first time, or a part of a new file that is
    /// written whole. It need not be fetched from anywhere.
    pub fresh: bool,
}

/// A file of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFile {
    /// What it is.
    pub name: String,
    /// Its size, in pages: its page numbers are below.
    pub pages: u64,
    /// The program makes it (a temporary or result file): there is nothing in it before.
    pub made: bool,
}

/// What a workload has at most at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Pages of private memory: their numbers are below.
    pub private_pages: u64,
    /// Its files, by number.
    pub files: Vec<WorkFile>,
}

impl Footprint {
    /// Pages in all.
    pub fn pages(&self) -> u64 {
        self.private_pages + self.file_pages()
    }

    /// Pages of files.
    pub fn file_pages(&self) -> u64 {
        self.files.iter().map(|file| file.pages).sum()
    }

    /// A number for each page, without gaps: private ones first, then file by file.
    ///
    /// # Panics
    /// If the page is not in the footprint.
    pub fn number(&self, page: WorkPage) -> u64 {
        let (begin, pages) = match page.object {
            Object::Private => (0, self.private_pages),
            Object::File(file) => {
                let before = self.files[..usize::from(file)].iter().map(|file| file.pages).sum::<u64>();
                (self.private_pages + before, self.files[usize::from(file)].pages)
            }
        };
        assert!(u64::from(page.page) < pages, "{page:?} is outside of what the workload said it has");
        begin + u64::from(page.page)
    }
}

/// A program's page references, in order. It is a function of its configuration and seed.
pub trait Workload: Send {
    /// One of [`NAMES`].
    fn name(&self) -> &'static str;

    /// What it has.
    fn footprint(&self) -> &Footprint;

    /// Appends the next references, some thousand at a time. False: there are no more, and nothing was appended.
    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool;

    /// Begins again: the same references follow.
    fn restart(&mut self);

    /// What was computed, checked: a line for each result. Called at the end.
    ///
    /// # Errors
    /// The first result that is wrong.
    fn check(&self) -> Result<Vec<String>, String>;
}

/// How large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Milliseconds, for tests.
    Small,
    /// As the paper has it.
    Paper,
}

/// The workloads, in the paper's order.
pub const NAMES: [&str; 6] = ["cad", "router", "compile", "oo7", "render", "query"];

/// The workload of this name; none if there is no such name. `traces` is the folder with the recorded programs (`compile` reads `cc1.trace`
/// and `ld.trace`).
///
/// # Errors
/// [`TraceError`], if a recorded program cannot be read.
///
/// # Panics
/// If a page is not a power of two from 4 KiB to 1 MiB.
pub fn by_name(
    name: &str,
    scale: Scale,
    page: Bytes,
    seed: u64,
    traces: &Path,
) -> Result<Option<Box<dyn Workload>>, TraceError> {
    let small = scale == Scale::Small;
    Ok(Some(match name {
        "cad" => Box::new(Cad::new(if small { CadConfig::small() } else { CadConfig::paper() }, page, seed)),
        "router" => {
            let config = if small { RouterConfig::small() } else { RouterConfig::paper() };
            Box::new(Router::new(config, page, seed))
        }
        "compile" => {
            let config = if small { CompileConfig::small() } else { CompileConfig::paper() };
            Box::new(Compile::open(config, page, seed, traces)?)
        }
        "oo7" => Box::new(Oo7::new(if small { Oo7Config::tiny() } else { Oo7Config::paper() }, page, seed)),
        "render" => {
            let config = if small { RenderConfig::small() } else { RenderConfig::paper() };
            Box::new(Render::new(config, page, seed))
        }
        "query" => {
            let config = if small { QueryConfig::small() } else { QueryConfig::paper() };
            Box::new(Query::new(config, page, seed))
        }
        _ => return Ok(None),
    }))
}
