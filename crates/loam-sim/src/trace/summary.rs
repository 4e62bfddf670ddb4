//! What there is in a trace.

use super::{Run, Source, TraceError};
use std::collections::BTreeMap;

/// Grains of an extent, 1 MiB.
const GRAINS_PER_EXTENT: u64 = 4096;
/// Words of an extent's bit map.
const WORDS: usize = (GRAINS_PER_EXTENT / 64) as usize;
/// Most extents that a trace may touch: 600 MB of bit maps. A program's are some thousand.
pub const EXTENTS_MAX: usize = 1 << 20;

/// The counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// References.
    pub references: u64,
    /// Runs that write.
    pub writing_runs: u64,
    /// Different grains.
    pub grains: u64,
    /// Different pages of 4 KiB.
    pub pages_4k: u64,
    /// Different pages of 8 KiB.
    pub pages_8k: u64,
}

/// A trace touches more memory than can be counted.
#[derive(Debug, thiserror::Error)]
#[error("the trace touches more than {EXTENTS_MAX} different MiB of memory: split it")]
pub struct TooWide;

/// Counts a trace as it goes by.
#[derive(Debug, Default)]
pub struct Counter {
    runs: u64,
    references: u64,
    writing_runs: u64,
    /// Which grains of each extent were touched.
    extents: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl Counter {
    /// Counts some runs.
    ///
    /// # Errors
    /// [`TooWide`], if they touch too much memory.
    pub fn add(&mut self, runs: &[Run]) -> Result<(), TooWide> {
        for run in runs {
            self.runs += 1;
            self.references += u64::from(run.references);
            self.writing_runs += u64::from(run.writes);
            let extent = run.grain / GRAINS_PER_EXTENT;
            let room = self.extents.len() < EXTENTS_MAX;
            let map = match self.extents.entry(extent) {
                std::collections::btree_map::Entry::Occupied(map) => map.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) if room => {
                    place.insert(Box::new([0; WORDS]))
                }
                std::collections::btree_map::Entry::Vacant(_) => return Err(TooWide),
            };
            let bit = run.grain % GRAINS_PER_EXTENT;
            map[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        Ok(())
    }

    /// The counts so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            runs: self.runs,
            references: self.references,
            writing_runs: self.writing_runs,
            ..Totals::default()
        };
        for word in self.extents.values().flat_map(|map| map.iter()) {
            totals.grains += u64::from(word.count_ones());
            // A word is 16 KiB: four base pages.
            totals.pages_4k += (0..4).filter(|page| word >> (page * 16) & 0xFFFF != 0).count() as u64;
            totals.pages_8k += (0..2).filter(|page| word >> (page * 32) & 0xFFFF_FFFF != 0).count() as u64;
        }
        totals
    }
}

/// Reads all of a trace into memory: for tests and short traces.
///
/// # Errors
/// What the source says.
pub fn all_runs(source: &mut dyn Source) -> Result<Vec<Run>, TraceError> {
    let mut runs = Vec::new();
    while source.next_runs(&mut runs)? {}
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_once() {
        let mut counter = Counter::default();
        let run = |grain, writes| Run { grain, references: 2, writes };
        counter
            .add(&[run(0, true), run(15, false), run(16, false), run(32, false), run(0, false)])
            .expect("small");
        counter.add(&[run(u64::MAX, true)]).expect("small");
        let totals = Totals { runs: 6, references: 12, writing_runs: 2, grains: 5, pages_4k: 4, pages_8k: 3 };
        assert_eq!(counter.totals(), totals);
    }
}
