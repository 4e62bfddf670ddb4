//! A direct region: the pool of chunks that all processes of a run share, and the table that says whose each chunk is.
//!
//! A chunk is claimed by one compare-and-swap of its word, with no message to the agent on the way. The table is memory that every process of the
//! run can write: what is read from it is believed only as far as "this one is mine, if the exchange says so", and no number from it is ever an
//! index.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::{BASE_PAGE_BYTES, REGION_BYTES_MAX};

/// Smallest chunk: a large page of the processor.
pub const CHUNK_BYTES_MIN: u64 = 2 << 20;
/// Chunks of one pool: each may be a mapping of its own, and the kernel lets a process have 65,530.
pub const CHUNKS_MAX: u64 = 16 * 1024;
/// Words in front of the chunks' own.
const HEAD_WORDS: usize = 8;
/// Chunks that are somebody's now.
const USED: usize = 0;
/// Most that were at a time.
const PEAK: usize = 1;

const CLEAN: u64 = 0;
const DIRTY: u64 = 1;
const OWNED: u64 = 2;

/// Bytes of a chunk in a pool of `pool_bytes`: a power of two.
pub const fn chunk_bytes(pool_bytes: u64) -> u64 {
    let least = pool_bytes.div_ceil(CHUNKS_MAX);
    if least <= CHUNK_BYTES_MIN { CHUNK_BYTES_MIN } else { least.next_power_of_two() }
}

/// Bytes of the table of a pool with so many chunks, in whole base pages.
pub const fn table_bytes(chunks: usize) -> usize {
    ((HEAD_WORDS + chunks) * size_of::<AtomicU64>()).next_multiple_of(BASE_PAGE_BYTES)
}

/// The pool of a run, as a process that starts is told of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectPlan {
    /// A power of two, at least [`CHUNK_BYTES_MIN`]; 0: the region is paged, and the others are 0, too.
    pub chunk_bytes: u64,
    /// Where the pool begins in its file.
    pub offset: u64,
    /// The number of this process in the table; never that of another one of the run.
    pub token: u32,
    /// Chunks.
    pub chunks: u32,
}

impl DirectPlan {
    /// Whether a region of `bytes` can be direct like this, or is not direct.
    pub const fn is_sane(&self, bytes: u64) -> bool {
        let Self { chunk_bytes, offset, token, chunks } = *self;
        if chunk_bytes == 0 {
            return offset == 0 && token == 0 && chunks == 0;
        }
        chunk_bytes.is_power_of_two()
            && chunk_bytes >= CHUNK_BYTES_MIN
            && chunk_bytes <= REGION_BYTES_MAX
            && token != 0
            && chunks as u64 <= CHUNKS_MAX
            && bytes == chunks as u64 * chunk_bytes
            && bytes > 0
            && offset.is_multiple_of(BASE_PAGE_BYTES as u64)
            && offset <= i64::MAX as u64 - bytes
    }
}

/// A chunk that was just claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Which.
    pub index: usize,
    /// Somebody had it before: it is to be cleared.
    pub is_dirty: bool,
}

/// The table. All zeros is its valid first state: every chunk is free and clean.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a> {
    head: &'a [AtomicU64],
    words: &'a [AtomicU64],
}

const fn owned_by(token: u32) -> u64 {
    (token as u64) << 2 | OWNED
}

impl<'a> Chunks<'a> {
    /// The table of `chunks` chunks in its words.
    ///
    /// # Panics
    /// If there are fewer words than [`table_bytes`] says.
    pub fn new(table: &'a [AtomicU64], chunks: usize) -> Self {
        let (head, words) = table.split_at(HEAD_WORDS);
        Self { head, words: &words[..chunks] }
    }

    /// Claims a free chunk for a process: `first` if that is free, else the next behind it, and around. `None`: none is free.
    ///
    /// # Panics
    /// If `token` is 0.
    pub fn claim(&self, first: usize, token: u32) -> Option<Claimed> {
        assert!(token != 0, "a process has a number");
        let chunks = self.words.len();
        let first = if first < chunks { first } else { 0 };
        for index in (first..chunks).chain(0..first) {
            let word = self.words[index].load(Relaxed);
            let is_free = word == CLEAN || word == DIRTY;
            if is_free && self.words[index].compare_exchange(word, owned_by(token), AcqRel, Relaxed).is_ok() {
                // Figures, which a process that dies between the two leaves wrong by one.
                let used = self.head[USED].fetch_add(1, Relaxed).wrapping_add(1);
                self.head[PEAK].fetch_max(used.min(chunks as u64), Relaxed);
                return Some(Claimed { index, is_dirty: word == DIRTY });
            }
        }
        None
    }

    /// Gives a chunk back, with its contents. False: it is not that process's.
    pub fn release(&self, index: usize, token: u32) -> bool {
        let Some(word) = self.words.get(index) else { return false };
        let done = word.compare_exchange(owned_by(token), DIRTY, AcqRel, Relaxed).is_ok();
        if done {
            self.head[USED].fetch_sub(1, Relaxed);
        }
        done
    }

    /// Gives back all that a process has, which must have ended. How many.
    pub fn release_all(&self, token: u32) -> usize {
        (0..self.words.len()).filter(|index| self.release(*index, token)).count()
    }

    /// Whether a chunk is that process's.
    pub fn is_owned(&self, index: usize, token: u32) -> bool {
        self.words.get(index).is_some_and(|word| word.load(Acquire) == owned_by(token))
    }

    /// Most chunks that were in use at a time.
    pub fn peak(&self) -> u64 {
        self.head[PEAK].load(Relaxed).min(self.words.len() as u64)
    }
}
