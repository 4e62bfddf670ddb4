//! The benchmark's indexes: parts by id and documents by title (exact match), atomic parts by build date (ranges, and it changes).

use crate::workload::recorder::Recorder;
use crate::workload::space::Heap;

/// To hash a key, or to find a bucket.
const LOOKUP_INSTRUCTIONS: u64 = 60;
/// To look at an entry.
const ENTRY_INSTRUCTIONS: u64 = 6;
const ENTRY_BYTES: u64 = 8;
/// Entries of a chunk of a bucket, which begins with a pointer to the next one.
const CHUNK_ENTRIES: usize = 63;
const CHUNK_BYTES: u64 = 8 + CHUNK_ENTRIES as u64 * ENTRY_BYTES;

/// An open hash table of pointers: as large as the power of two that is at least twice the number of keys. Keys are scattered by an odd factor, which
/// is a permutation, so there are no collisions to go on from.
#[derive(Clone, Debug)]
pub(super) struct Table {
    address: u64,
    slots: u64,
}

impl Table {
    pub(super) fn new(heap: &mut Heap, keys: u32) -> Self {
        let slots = Self::slots(keys);
        Self { address: heap.allocate(slots * ENTRY_BYTES), slots }
    }

    fn slots(keys: u32) -> u64 {
        (2 * u64::from(keys)).next_power_of_two()
    }

    /// What it takes on the heap.
    pub(super) fn bytes(keys: u32) -> u64 {
        Self::slots(keys) * ENTRY_BYTES + 8
    }

    fn entry(&self, key: u32) -> u64 {
        self.address + u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.slots * ENTRY_BYTES
    }

    pub(super) fn insert(&self, key: u32, recorder: &mut Recorder) {
        recorder.work(LOOKUP_INSTRUCTIONS);
        recorder.private(self.entry(key), ENTRY_BYTES, true);
    }

    pub(super) fn look_up(&self, key: u32, recorder: &mut Recorder) {
        recorder.work(LOOKUP_INSTRUCTIONS);
        recorder.private(self.entry(key), ENTRY_BYTES, false);
    }
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    entries: Vec<u32>,
    chunks: Vec<u64>,
}

/// A bucket for each date; a bucket is a chain of chunks.
#[derive(Clone, Debug)]
pub(super) struct DateIndex {
    first: u32,
    directory: u64,
    buckets: Vec<Bucket>,
}

impl DateIndex {
    pub(super) fn new(heap: &mut Heap, (first, last): (u64, u64)) -> Self {
        let dates = last - first + 1;
        let directory = heap.allocate(dates * ENTRY_BYTES);
        Self { first: first as u32, directory, buckets: vec![Bucket::default(); dates as usize] }
    }

    /// What it takes on the heap at most. Dates change between an even one and the odd one after it, so a bucket holds at most what
    /// both had at first; chunks stay with their bucket.
    pub(super) fn bytes((first, last): (u64, u64), entries: u64) -> u64 {
        let dates = last - first + 1;
        let chunks = 2 * entries / CHUNK_ENTRIES as u64 + 2 * dates;
        dates * ENTRY_BYTES + 8 + chunks * (CHUNK_BYTES + 8)
    }

    fn bucket(&mut self, date: u32, recorder: &mut Recorder) -> &mut Bucket {
        let at = date - self.first;
        recorder.work(LOOKUP_INSTRUCTIONS);
        recorder.private(self.directory + u64::from(at) * ENTRY_BYTES, ENTRY_BYTES, false);
        &mut self.buckets[at as usize]
    }

    pub(super) fn insert(&mut self, date: u32, part: u32, heap: &mut Heap, recorder: &mut Recorder) {
        let bucket = self.bucket(date, recorder);
        let chunk = bucket.entries.len() / CHUNK_ENTRIES;
        if chunk == bucket.chunks.len() {
            bucket.chunks.push(heap.allocate(CHUNK_BYTES));
        }
        recorder.private(bucket.chunks[chunk], CHUNK_BYTES, true);
        bucket.entries.push(part);
    }

    /// Takes an entry out; the bucket's last one takes its place.
    pub(super) fn remove(&mut self, date: u32, part: u32, recorder: &mut Recorder) {
        let bucket = self.bucket(date, recorder);
        let at = bucket.entries.iter().position(|&entry| entry == part).expect("the index has every part");
        recorder.work(at as u64 * ENTRY_INSTRUCTIONS);
        for &chunk in &bucket.chunks[..at / CHUNK_ENTRIES] {
            recorder.private(chunk, CHUNK_BYTES, false);
        }
        recorder.private(bucket.chunks[at / CHUNK_ENTRIES], CHUNK_BYTES, true);
        recorder.private(bucket.chunks[(bucket.entries.len() - 1) / CHUNK_ENTRIES], CHUNK_BYTES, true);
        bucket.entries.swap_remove(at);
    }

    /// The parts of a date.
    pub(super) fn parts(&mut self, date: u32, recorder: &mut Recorder) -> &[u32] {
        let bucket = self.bucket(date, recorder);
        recorder.work(bucket.entries.len() as u64 * ENTRY_INSTRUCTIONS);
        for &chunk in &bucket.chunks[..bucket.entries.len().div_ceil(CHUNK_ENTRIES)] {
            recorder.private(chunk, CHUNK_BYTES, false);
        }
        &bucket.entries
    }

    /// Every part is in its date's bucket, once.
    pub(super) fn check(&self, dates: impl ExactSizeIterator<Item = u32>) -> Result<(), String> {
        let entries: usize = self.buckets.iter().map(|bucket| bucket.entries.len()).sum();
        let mut dates_of: Vec<Option<u32>> = vec![None; dates.len()];
        for (date, bucket) in (self.first..).zip(&self.buckets) {
            bucket.entries.iter().for_each(|&part| dates_of[part as usize] = Some(date));
        }
        let right = entries == dates_of.len() && dates_of.into_iter().eq(dates.map(Some));
        if right { Ok(()) } else { Err("the index of build dates is not that of the parts".into()) }
    }
}
