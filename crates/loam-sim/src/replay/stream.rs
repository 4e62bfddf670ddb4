//! A reference stream in memory: which page, in order.

use crate::trace::{GRAIN_BYTES, Run, Source, TraceError};
use loam_core::replacement::Numbering;

/// Bits of an entry that number the page; those above say how often the reference is repeated.
const PAGE_BITS: u32 = 30;
/// More repeats than this change no policy's state: see [`loam_core::replacement::Order::TOUCHES_IN_A_ROW`].
const REPEATS_MAX: u32 = u32::MAX >> PAGE_BITS;

/// The page of an entry.
#[inline]
pub(super) fn page(entry: u32) -> u32 {
    entry & ((1 << PAGE_BITS) - 1)
}

/// How often its reference is repeated, or [`REPEATS_MAX`].
#[inline]
pub(super) fn repeats(entry: u32) -> u32 {
    entry >> PAGE_BITS
}

/// References to pages, numbered in order of first use. Consecutive references to one page are one entry of 4 bytes: all but the first
/// are hits, whatever the policy.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: Vec<u32>,
    distinct: u32,
    references: u64,
}

impl Stream {
    /// The stream of these pages.
    pub fn of(pages: impl IntoIterator<Item = u64>) -> Self {
        let mut builder = StreamBuilder::default();
        pages.into_iter().for_each(|page| builder.push(page, 1));
        builder.finish()
    }

    /// The pages that a trace's references fall on.
    ///
    /// # Errors
    /// The trace's own.
    ///
    /// # Panics
    /// If a page is not a whole number of grains.
    pub fn of_trace(trace: &mut dyn Source, page_bytes: u64) -> Result<Self, TraceError> {
        let mut builder = StreamBuilder::default();
        let mut runs = Vec::new();
        while trace.next_runs(&mut runs)? {
            builder.push_runs(&runs, page_bytes);
            runs.clear();
        }
        Ok(builder.finish())
    }

    /// One entry for each run of references to one page.
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// The page number of each entry: consecutive references to one page are one entry.
    pub fn pages(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        self.entries.iter().map(|&entry| page(entry))
    }

    /// How many pages are referenced at all; their numbers are below this.
    pub fn distinct(&self) -> u32 {
        self.distinct
    }

    /// How many references there are, repeated ones included.
    pub fn references(&self) -> u64 {
        self.references
    }
}

/// Makes a [`Stream`] reference by reference.
#[derive(Debug, Default)]
pub struct StreamBuilder {
    numbers: Numbering<u64>,
    stream: Stream,
    last: Option<u64>,
}

impl StreamBuilder {
    /// `references` to `page`, one after the other.
    ///
    /// # Panics
    /// At the 2^30th page, which is 4 TiB in base pages.
    #[inline]
    pub fn push(&mut self, page: u64, references: u32) {
        self.stream.references += u64::from(references);
        let mut more = references;
        if self.last != Some(page) {
            if references == 0 {
                return;
            }
            let number = self.numbers.number(page);
            assert!(number < 1 << PAGE_BITS, "a stream has at most 2^30 different pages");
            self.stream.entries.push(number);
            self.last = Some(page);
            more -= 1;
        }
        if more > 0 {
            let entry = self.stream.entries.last_mut().expect("it has a last page");
            let room = REPEATS_MAX - repeats(*entry);
            *entry += more.min(room) << PAGE_BITS;
        }
    }

    /// Runs of a trace.
    ///
    /// # Panics
    /// If a page is not a whole number of grains.
    pub fn push_runs(&mut self, runs: &[Run], page_bytes: u64) {
        assert!(
            page_bytes >= GRAIN_BYTES && page_bytes.is_power_of_two(),
            "a page is a power of two of at least {GRAIN_BYTES} bytes"
        );
        let grains = page_bytes / GRAIN_BYTES;
        for run in runs {
            self.push(run.grain / grains, run.references);
        }
    }

    /// Takes the pages so far out, for who does not need all of them at a time: in order, but for the last one, which may be repeated.
    pub fn take_pages(&mut self, taken: impl FnMut(u32)) {
        let before_last = self.stream.entries.len().saturating_sub(1);
        self.stream.entries.drain(..before_last).map(page).for_each(taken);
    }

    /// The stream, without what was taken out; its references and pages are counted with that.
    pub fn finish(mut self) -> Stream {
        self.stream.distinct = self.numbers.bound();
        self.stream
    }
}
