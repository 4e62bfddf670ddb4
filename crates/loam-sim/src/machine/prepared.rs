//! A trace in memory, ready to be replayed many times: its pages numbered without gaps, in the order of their addresses.

use crate::trace::{GRAIN_BYTES, Run, Source, TraceError};
use std::collections::BTreeMap;

/// Distinct grains that a prepared trace may have.
const GRAINS_MAX: u64 = 1 << 31;

/// Consecutive references to one grain, packed: 8 bytes, so that 100 million references fit into some hundreds of MB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    /// Page number (dense) × grains of a page + grain in the page.
    pub grain: u32,
    /// References × 2, and 1 if one of them writes.
    meta: u32,
}

impl Packed {
    pub(super) fn references(self) -> u32 {
        self.meta >> 1
    }
    pub(super) fn writes(self) -> bool {
        self.meta & 1 == 1
    }
}

/// Runs are kept in pieces, so that none is ever copied to make room.
const PIECE_RUNS: usize = 1 << 20;

/// See the module.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) pieces: Vec<Vec<Packed>>,
    /// Page numbers in the program, in order; the index is the dense number.
    pub(super) pages: Vec<u64>,
    page_bytes: u64,
    references: u64,
}

/// What was last said of a page, for one page of all that end in the same bits.
struct Near(Vec<(u64, u64)>);

impl Default for Near {
    fn default() -> Self {
        Self(vec![(u64::MAX, 0); 4096])
    }
}

impl Near {
    fn get(&mut self, page: u64, find: impl FnOnce(u64) -> u64) -> u64 {
        let place = &mut self.0[page as usize % 4096];
        if place.0 != page {
            *place = (page, find(page));
        }
        place.1
    }
}

impl Prepared {
    /// Reads a trace whole, for pages of `page_bytes`.
    ///
    /// # Errors
    /// What `source` says; a program that touches more than 512 GiB.
    ///
    /// # Panics
    /// If the page size is not a power of two from 256 B to 1 MiB.
    pub fn read(source: &mut dyn Source, page_bytes: u64) -> Result<Self, TraceError> {
        assert!(
            page_bytes.is_power_of_two() && (GRAIN_BYTES..=1 << 20).contains(&page_bytes),
            "page size out of range"
        );
        let grains = page_bytes / GRAIN_BYTES;
        let mut chunk: Vec<Run> = Vec::new();
        let mut pieces: Vec<Vec<Packed>> = Vec::new();
        // Pages get numbers as they come; in the order of their addresses they are known only at the end.
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        // Programs come back to the same pages: most of them need not be looked up.
        let mut near = Near::default();
        let mut references = 0;
        while source.next_runs(&mut chunk)? {
            for run in chunk.drain(..) {
                references += u64::from(run.references);
                let number = near.get(run.grain / grains, |page| {
                    let next = numbers.len() as u64;
                    *numbers.entry(page).or_insert(next)
                });
                let grain = number * grains + run.grain % grains;
                if grain >= GRAINS_MAX {
                    return Err(TraceError {
                        trace: "trace".into(),
                        place: format!("reference {references}"),
                        what: "a simulated program touches at most 512 GiB".into(),
                    });
                }
                let mut left = run.references;
                while left > 0 {
                    let part = left.min(u32::MAX >> 1);
                    if pieces.last().is_none_or(|piece| piece.len() == PIECE_RUNS) {
                        pieces.push(Vec::with_capacity(PIECE_RUNS));
                    }
                    let piece = pieces.last_mut().expect("it was just made");
                    piece.push(Packed { grain: grain as u32, meta: part << 1 | u32::from(run.writes) });
                    left -= part;
                }
            }
        }
        let mut in_order = vec![0_u32; numbers.len()];
        for (rank, &number) in numbers.values().enumerate() {
            in_order[number as usize] = rank as u32;
        }
        let grains = grains as u32;
        for run in pieces.iter_mut().flatten() {
            run.grain = in_order[(run.grain / grains) as usize] * grains + run.grain % grains;
        }
        Ok(Self { pieces, pages: numbers.into_keys().collect(), page_bytes, references })
    }

    /// Pages that the program touches.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// The size of a page.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// References in all.
    pub fn references(&self) -> u64 {
        self.references
    }
}
