//! Compile and link: a part of a kernel is compiled again, and the whole of it linked (gms-1995, section 5.3).
//!
//! The compiler and the linker are recorded ones (`traces/cc1.trace`, `ld.trace`); they are small, and the paper says that "by far, the most
//! time is spent in file I/O for compiler and linker access to temporary, source, and object files". So the files are
//! what is scaled: a tree of source, header and object files of a kernel's size, read and written through the system's file cache
//! page by page. For each source file: the preprocessor reads it and the headers that it includes and writes a temporary file,
//! the compiler reads that and writes assembler text, the assembler reads that and writes an object file. Then each subsystem is linked from
//! its objects, and the kernel from the subsystems. A linker reads its input twice (symbols, then contents).

mod config;

pub use config::CompileConfig;

use super::page_trace::PageTrace;
use super::recorder::Recorder;
use super::{Footprint, Reference, WorkFile, Workload};
use crate::fuzz::dice::Dice;
use crate::replay::Zipf;
use crate::trace::{self, TraceError};
use loam_core::units::Bytes;
use std::path::Path;

/// Files by number.
const CC1: u16 = 0;
const LD: u16 = 1;
const SOURCES: u16 = 2;
const HEADERS: u16 = 3;
const OBJECTS: u16 = 4;
const TEMPORARY: u16 = 5;
const ASSEMBLER: u16 = 6;
const SUBSYSTEMS: u16 = 7;
const KERNEL: u16 = 8;

/// Text and relocated contents that a linker writes for each byte of an object that it reads: the rest is symbols, which are merged.
const LINKED: (u64, u64) = (3, 4);
/// Text that the preprocessor makes of a byte that it reads (comments go), and assembler text that the compiler makes of that.
const PREPROCESSED: (u64, u64) = (3, 4);
const ASSEMBLED: (u64, u64) = (1, 2);
/// Skew of how often headers are included.
const HEADER_SKEW: f64 = 0.8;
/// To scan or assemble a byte of text.
const INSTRUCTIONS_PER_TEXT_BYTE: u64 = 20;
/// Pieces into which a program's run is cut, so that its reading and writing goes on while it runs.
const PIECES: u64 = 64;

/// A stretch of an archive of files, which lie one after the other.
type Place = (u64, u64);

/// What is done next.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Compile(u32),
    Link(u32),
    Kernel,
    Over,
}

/// See the module. Many small files are told as one, in which they lie one after the other.
#[derive(Clone, Debug)]
pub struct Compile {
    config: CompileConfig,
    seed: u64,
    page: Bytes,
    cc1: PageTrace,
    ld: PageTrace,
    footprint: Footprint,
    recorder: Recorder,
    sources: Vec<Place>,
    headers: Vec<Place>,
    objects: Vec<Place>,
    includes: Zipf,
    phase: Phase,
    /// Bytes read and written so far.
    transferred: (u64, u64),
    /// Of the subsystems that are linked, and their sizes.
    linked: Vec<Place>,
}

impl Compile {
    /// With the recorded programs of a folder.
    ///
    /// # Errors
    /// [`TraceError`], if one of them cannot be read.
    pub fn open(config: CompileConfig, page: Bytes, seed: u64, traces: &Path) -> Result<Self, TraceError> {
        let read = |name: &str| {
            let mut source = trace::open(&traces.join(name))?;
            PageTrace::read(&mut source, page, config.references_max)
        };
        let (cc1, ld) = (read("cc1.trace")?, read("ld.trace")?);
        Ok(Self::new(config, page, seed, cc1, ld))
    }

    /// With a compiler and a linker.
    ///
    /// # Panics
    /// If a part is missing, more is compiled than there is, or the programs were read for other pages.
    pub fn new(config: CompileConfig, page: Bytes, seed: u64, cc1: PageTrace, ld: PageTrace) -> Self {
        assert!(cc1.page_bytes() == page && ld.page_bytes() == page, "programs are of another page size");
        assert!(config.objects.is_multiple_of(config.subsystems), "subsystems have as many objects each");
        assert!(config.compiled <= config.objects && config.included <= config.headers, "too few files");
        let recorder = Recorder::new(page);
        let mut dice = Dice::new(seed, 11);
        let mut lay = |count: u32, mean: u64| {
            let mut end = 0;
            // A file begins with a page, and is not empty.
            let places = (0..count).map(|_| {
                let place = (end, dice.between(mean / 2, mean * 3 / 2).max(1));
                end = (place.0 + place.1).next_multiple_of(page.0);
                place
            });
            places.collect::<Vec<_>>()
        };
        let sources = lay(config.compiled, config.source_bytes);
        let headers = lay(config.headers, config.header_bytes);
        let objects = lay(config.objects, config.object_bytes);
        let archive = |places: &[Place]| places.last().map_or(0, |&(begin, bytes)| begin + bytes);
        let text_max = u64::from(config.included) * config.header_bytes * 3 / 2 + config.source_bytes * 3 / 2;
        let output = archive(&objects) * LINKED.0 / LINKED.1 + u64::from(config.subsystems) * page.0;
        let file = |name: &str, pages: u64, made| WorkFile { name: name.into(), pages, made };
        let bytes = |name, bytes, made| file(name, recorder.pages(bytes), made);
        let files = vec![
            file("cc1", cc1.file_pages(), false),
            file("ld", ld.file_pages(), false),
            bytes("source files", archive(&sources), false),
            bytes("headers", archive(&headers), false),
            bytes("object files", archive(&objects), false),
            bytes("preprocessed text", text_max * PREPROCESSED.0 / PREPROCESSED.1 + 1, true),
            bytes("assembler text", text_max * ASSEMBLED.0 / ASSEMBLED.1 + 1, true),
            bytes("subsystems", output, true),
            bytes("kernel", output, true),
        ];
        let footprint = Footprint { private_pages: cc1.private_pages().max(ld.private_pages()), files };
        let includes = Zipf::new(config.headers, HEADER_SKEW, seed);
        Self {
            footprint,
            recorder,
            sources,
            headers,
            objects,
            includes,
            phase: Phase::Compile(0),
            transferred: (0, 0),
            linked: Vec::new(),
            config,
            seed,
            page,
            cc1,
            ld,
        }
    }

    fn read(&mut self, file: u16, place: Place) {
        self.transferred.0 += place.1;
        self.recorder.file(file, place.0, place.1, false, false);
    }

    fn write(&mut self, file: u16, place: Place) {
        self.transferred.1 += place.1;
        // What is written replaces what was there.
        self.recorder.file(file, place.0, place.1, true, true);
    }

    /// Preprocessor, compiler, assembler.
    fn compile(&mut self, unit: u32) {
        self.recorder.next_program();
        let source = self.sources[unit as usize];
        let mut included = Vec::with_capacity(self.config.included as usize);
        while included.len() < self.config.included as usize {
            let header = self.includes.next().expect("it is endless") as usize;
            if !included.contains(&header) {
                included.push(header);
            }
        }
        self.read(SOURCES, source);
        let mut bytes = source.1;
        for header in included {
            let place = self.headers[header];
            self.read(HEADERS, place);
            self.recorder.work(place.1 * INSTRUCTIONS_PER_TEXT_BYTE);
            bytes += place.1;
        }
        let text = (bytes * PREPROCESSED.0 / PREPROCESSED.1).max(1);
        let assembler = (text * ASSEMBLED.0 / ASSEMBLED.1).max(1);
        self.write(TEMPORARY, (0, text));
        // The compiler reads while it runs, and writes what it has compiled.
        self.recorder.next_program();
        let pieces = |piece: u64, of: u64| of * piece / PIECES;
        for piece in 0..PIECES {
            let (from, to) = (pieces(piece, text), pieces(piece + 1, text));
            if to > from {
                self.read(TEMPORARY, (from, to - from));
            }
            let length = self.cc1.len() as u64;
            let part = pieces(piece, length) as usize..pieces(piece + 1, length) as usize;
            self.cc1.run(part, CC1, &mut self.recorder);
            let (from, to) = (pieces(piece, assembler), pieces(piece + 1, assembler));
            if to > from {
                self.write(ASSEMBLER, (from, to - from));
            }
        }
        self.recorder.next_program();
        self.read(ASSEMBLER, (0, assembler));
        self.recorder.work(assembler * INSTRUCTIONS_PER_TEXT_BYTE);
        let object = self.objects[self.object_of(unit) as usize];
        self.write(OBJECTS, object);
    }

    /// Compiled files are spread evenly over the tree.
    fn object_of(&self, unit: u32) -> u32 {
        (u64::from(unit) * u64::from(self.config.objects) / u64::from(self.config.compiled)) as u32
    }

    /// Reads `inputs` for their symbols, runs the linker while it reads them again, and writes to `output`.
    fn link(&mut self, from: u16, inputs: &[Place], output: (u16, u64)) -> Place {
        self.recorder.next_program();
        for &input in inputs {
            self.read(from, input);
        }
        let length = self.ld.len();
        let mut written = 0;
        for (at, &input) in inputs.iter().enumerate() {
            let cut = |at: usize| length * at / inputs.len();
            self.ld.run(cut(at)..cut(at + 1), LD, &mut self.recorder);
            self.read(from, input);
            let bytes = (input.1 * LINKED.0 / LINKED.1).max(1);
            self.write(output.0, (output.1 + written, bytes));
            written += bytes;
        }
        (output.1, written)
    }

    fn step(&mut self) {
        self.phase = match self.phase {
            Phase::Compile(unit) if unit < self.config.compiled => {
                self.compile(unit);
                Phase::Compile(unit + 1)
            }
            Phase::Compile(_) => Phase::Link(0),
            Phase::Link(subsystem) if subsystem < self.config.subsystems => {
                let each = (self.config.objects / self.config.subsystems) as usize;
                let inputs = self.objects[subsystem as usize * each..][..each].to_vec();
                let begin = self.linked.last().map_or(0, |&(begin, bytes)| begin + bytes);
                let place = self.link(OBJECTS, &inputs, (SUBSYSTEMS, begin.next_multiple_of(self.page.0)));
                self.linked.push(place);
                Phase::Link(subsystem + 1)
            }
            Phase::Link(_) => Phase::Kernel,
            Phase::Kernel => {
                let inputs = self.linked.clone();
                self.link(SUBSYSTEMS, &inputs, (KERNEL, 0));
                Phase::Over
            }
            Phase::Over => Phase::Over,
        }
    }
}

impl Workload for Compile {
    fn name(&self) -> &'static str {
        "compile"
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
        *self = Self::new(self.config.clone(), self.page, self.seed, self.cc1.clone(), self.ld.clone());
    }

    fn check(&self) -> Result<Vec<String>, String> {
        let sum = |places: &[Place]| places.iter().map(|place| place.1).sum::<u64>();
        let (objects, subsystems) = (sum(&self.objects), sum(&self.linked));
        let kept = |bytes: u64| bytes * LINKED.0 / LINKED.1;
        // Each object loses at most a byte where its size is rounded down.
        let right = kept(objects).abs_diff(subsystems) <= self.objects.len() as u64
            && self.linked.len() == self.config.subsystems as usize;
        if !right {
            return Err(format!("{objects} bytes of objects became {subsystems} of subsystems"));
        }
        let (read, written) = self.transferred;
        Ok(vec![format!("{} of file reads, {} of file writes", Bytes(read), Bytes(written))])
    }
}
