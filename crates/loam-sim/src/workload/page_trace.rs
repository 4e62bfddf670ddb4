//! A recorded program as page references, ready to be run many times by a workload.

use super::Object;
use super::recorder::Recorder;
use crate::trace::{GRAIN_BYTES, Source, TraceError};
use loam_core::units::Bytes;
use std::collections::BTreeMap;

/// Different pages that a recorded program may have: 8 GiB of the smallest.
const PAGES_MAX: usize = 1 << 21;
const WRITE: u32 = 1 << 31;

/// What a recorded program touches.
///
/// Pages that it never writes are constants and tables of its executable and libraries: pages of a shared file, which stay in memory from one run of the
/// program to the next. All others are its own.
#[derive(Clone, Debug)]
pub struct PageTrace {
    page: Bytes,
    /// The page (its number in the file, or [`PageTrace::file_pages`] and on: in the program's own memory), [`WRITE`]; and the data references up to it.
    entries: Vec<(u32, u32)>,
    private_pages: u32,
    file_pages: u32,
    references: u64,
}

impl PageTrace {
    /// Reads a trace, up to so many references.
    ///
    /// # Errors
    /// What `source` says; a program that touches more than some GiB.
    ///
    /// # Panics
    /// If a page is not a power of two from 4 KiB to 1 MiB.
    pub fn read(source: &mut dyn Source, page: Bytes, references_max: u64) -> Result<Self, TraceError> {
        // A recorder of its own says which references count, and what lies between them.
        let mut recorder = Recorder::new(page);
        let (mut runs, mut told) = (Vec::new(), Vec::new());
        let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
        let mut near = (u64::MAX, 0);
        let (mut entries, mut references, mut before) = (Vec::new(), 0, 0);
        while references < references_max && source.next_runs(&mut runs)? {
            for run in runs.drain(..) {
                let place = run.grain / (page.0 / GRAIN_BYTES);
                if near.0 != place {
                    let next = numbers.len() as u32;
                    near = (place, *numbers.entry(place).or_insert(next));
                }
                recorder.page(Object::Private, u64::from(near.1), run.writes);
                if recorder.take(&mut told) {
                    for reference in told.drain(..) {
                        let written = if reference.write { WRITE } else { 0 };
                        entries.push((reference.page.page | written, (references - before) as u32));
                        before = references;
                    }
                }
                references += u64::from(run.references);
            }
            if numbers.len() > PAGES_MAX {
                return Err(TraceError {
                    trace: "trace".into(),
                    place: format!("reference {references}"),
                    what: format!("a program of a workload touches at most {PAGES_MAX} pages"),
                });
            }
        }
        let mut trace = Self { page, entries, private_pages: 0, file_pages: 0, references };
        trace.number(&numbers);
        Ok(trace)
    }

    /// Gives the pages their final numbers: in the order of their addresses, those that are never written first.
    fn number(&mut self, numbers: &BTreeMap<u64, u32>) {
        let mut written = vec![false; numbers.len()];
        for &(page, _) in &self.entries {
            written[(page & !WRITE) as usize] |= page & WRITE != 0;
        }
        self.file_pages = written.iter().filter(|&&written| !written).count() as u32;
        self.private_pages = written.len() as u32 - self.file_pages;
        let mut last = vec![0_u32; numbers.len()];
        let (mut file, mut private) = (0, self.file_pages);
        for &page in numbers.values() {
            let next = if written[page as usize] { &mut private } else { &mut file };
            last[page as usize] = *next;
            *next += 1;
        }
        for (page, _) in &mut self.entries {
            *page = last[(*page & !WRITE) as usize] | *page & WRITE;
        }
    }

    /// Pages of its own.
    pub fn private_pages(&self) -> u64 {
        u64::from(self.private_pages)
    }

    /// Pages of its executable and libraries that it uses.
    pub fn file_pages(&self) -> u64 {
        u64::from(self.file_pages)
    }

    /// Data references of the recorded program.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The page size that it was read for.
    pub fn page_bytes(&self) -> Bytes {
        self.page
    }

    /// How many page references a run has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Runs a part of it; `image` is the file with what it never writes.
    pub(super) fn run(&self, part: std::ops::Range<usize>, image: u16, recorder: &mut Recorder) {
        for &(page, references) in &self.entries[part] {
            recorder.references(u64::from(references));
            let (number, write) = (page & !WRITE, page & WRITE != 0);
            match number.checked_sub(self.file_pages) {
                Some(own) => recorder.page(Object::Private, u64::from(own), write),
                None => recorder.page(Object::File(image), u64::from(number), false),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Run;

    struct Runs(Vec<Run>);

    impl Source for Runs {
        fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
            into.append(&mut self.0);
            Ok(!into.is_empty())
        }
    }

    #[test]
    fn what_is_never_written_is_the_executables() {
        let run = |page: u64, references, writes| Run { grain: page * 32 + 3, references, writes };
        let runs =
            vec![run(9, 5, false), run(4, 1, false), run(7, 2, true), run(9, 1, true), run(4, 1, false)];
        let trace = PageTrace::read(&mut Runs(runs), Bytes(8192), u64::MAX).expect("no file");
        assert_eq!((trace.private_pages(), trace.file_pages(), trace.references()), (2, 1, 10));
        let (mut recorder, mut out) = (Recorder::new(Bytes(8192)), Vec::new());
        trace.run(0..trace.len(), 5, &mut recorder);
        recorder.take(&mut out);
        let told: Vec<_> = out.iter().map(|r| (r.page.object, r.page.page, r.write)).collect();
        let (own, file) = (Object::Private, Object::File(5));
        assert_eq!(told, [(own, 1, false), (file, 0, false), (own, 0, true), (own, 1, true)]);
        // Eight references of 14 ns before the last of them.
        assert_eq!(out.iter().map(|r| r.cpu_ns).sum::<u32>(), 8 * 14_186 / 1000);
    }
}
