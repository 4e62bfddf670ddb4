//! A run: 32 base pages of one version of a file, or its last part, with the hash of each page.

use loam_core::ids::ContentHash;
use loam_core::replacement::Key;
use loam_core::units::BASE_PAGE_BYTES;
use loam_wire::mount::{EXTENT_RUNS, ExtentRef, FileVersion, RUN_PAGES};
use loam_wire::page_hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Bytes of a run.
pub(crate) const RUN_BYTES: usize = RUN_PAGES * BASE_PAGE_BYTES;
/// What a run takes beside its contents, roughly: hashes and tables.
pub(crate) const RUN_OVERHEAD_BYTES: u64 = 1024;
/// Buffers that are kept for the next run.
const SPARE_MAX: usize = 64;

static ZEROS: [u8; RUN_BYTES] = [0; RUN_BYTES];
static ZERO_HASH: LazyLock<ContentHash> = LazyLock::new(|| page_hash(&ZEROS[..BASE_PAGE_BYTES]));

/// Which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    /// Of which version of which file.
    pub(crate) file: FileVersion,
    /// Which of it: the first has 0.
    pub(crate) run: u64,
}

impl RunKey {
    /// The extent that it lies in.
    pub(crate) fn extent(self) -> ExtentRef {
        ExtentRef::new(self.file, self.run / EXTENT_RUNS as u64)
    }

    /// Its bit in a mask of the extent's runs.
    pub(crate) fn bit(self) -> u8 {
        1 << (self.run % EXTENT_RUNS as u64)
    }

    /// The run of an extent that has this place in it.
    pub(crate) fn of(extent: ExtentRef, at: usize) -> Self {
        Self { file: extent.file(), run: extent.extent() * EXTENT_RUNS as u64 + at as u64 }
    }

    /// Bytes of it in a file of `size` bytes.
    pub(crate) fn bytes_in(self, size: u64) -> usize {
        let start = self.run.saturating_mul(RUN_BYTES as u64);
        size.saturating_sub(start).min(RUN_BYTES as u64) as usize
    }
}

impl Key for RunKey {
    fn spread(self) -> u64 {
        (self.file.space().0 ^ self.run).spread()
    }
}

/// Buffers of [`RUN_BYTES`] that were used before: fresh ones cost a fault for each page.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// A buffer of a run's size with any contents.
    pub(crate) fn take(&self) -> Vec<u8> {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        used.unwrap_or_else(|| vec![0; RUN_BYTES])
    }

    /// Takes one back.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        assert_eq!(buffer.len(), RUN_BYTES);
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    }
}

/// The contents of a run. They never change.
#[derive(Debug)]
pub(crate) struct Run {
    /// `None`: zeros.
    buffer: Option<Vec<u8>>,
    bytes: usize,
    hashes: Box<[ContentHash]>,
    spare: Arc<Spare>,
}

impl Run {
    /// Takes the first `bytes` of a buffer as they were read from the source, and hashes them.
    pub(crate) fn read(buffer: Vec<u8>, bytes: usize, spare: &Arc<Spare>) -> Self {
        let buffer = padded(buffer, bytes);
        let pages = bytes.div_ceil(BASE_PAGE_BYTES);
        let hashes = buffer.chunks_exact(BASE_PAGE_BYTES).take(pages).map(page_hash).collect();
        Self::new(buffer, bytes, hashes, spare)
    }

    /// Takes a buffer as another mount sent it, with the hashes that came with it. Gives it back if a page is not what its hash
    /// says, or what lies behind the file's end is not zero.
    pub(crate) fn received(
        buffer: Vec<u8>,
        bytes: usize,
        hashes: Box<[ContentHash]>,
        spare: &Arc<Spare>,
    ) -> Result<Self, Vec<u8>> {
        let pages = bytes.div_ceil(BASE_PAGE_BYTES);
        let proved = hashes.len() == pages
            && buffer.chunks_exact(BASE_PAGE_BYTES).zip(&hashes).all(|(page, hash)| page_hash(page) == *hash)
            && buffer[bytes..pages * BASE_PAGE_BYTES].iter().all(|&byte| byte == 0);
        if proved { Ok(Self::new(buffer, bytes, hashes, spare)) } else { Err(buffer) }
    }

    fn new(buffer: Vec<u8>, bytes: usize, hashes: Box<[ContentHash]>, spare: &Arc<Spare>) -> Self {
        assert!(bytes > 0 && bytes <= RUN_BYTES && buffer.len() == RUN_BYTES);
        let mut buffer = Some(buffer);
        if hashes.iter().all(|hash| *hash == *ZERO_HASH) {
            spare.give(buffer.take().expect("just put there"));
        }
        Self { buffer, bytes, hashes, spare: Arc::clone(spare) }
    }

    /// What the file has there.
    pub(crate) fn contents(&self) -> &[u8] {
        &self.pages()[..self.bytes]
    }

    /// The same with zeros up to the end of its last page.
    pub(crate) fn pages(&self) -> &[u8] {
        &self.buffer.as_deref().unwrap_or(&ZEROS)[..self.hashes.len() * BASE_PAGE_BYTES]
    }

    /// The hash of each page.
    pub(crate) fn hashes(&self) -> &[ContentHash] {
        &self.hashes
    }

    /// What it takes of the cache's room.
    pub(crate) fn cost_bytes(&self) -> u64 {
        let contents = if self.buffer.is_some() { RUN_BYTES } else { 0 };
        contents as u64 + RUN_OVERHEAD_BYTES
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.spare.give(buffer);
        }
    }
}

/// Zeros from where the contents end to the end of that page.
fn padded(mut buffer: Vec<u8>, bytes: usize) -> Vec<u8> {
    let end = bytes.next_multiple_of(BASE_PAGE_BYTES);
    buffer[bytes..end].fill(0);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(seed: u8) -> Vec<u8> {
        (0..RUN_BYTES).map(|at| (at / 3) as u8 ^ (at / 4096) as u8 ^ seed).collect()
    }

    #[test]
    fn what_was_read_can_be_received_and_nothing_else() {
        let spare = Arc::new(Spare::default());
        for bytes in [1, 4095, 4096, 4097, RUN_BYTES - 1, RUN_BYTES] {
            let run = Run::read(buffer(1), bytes, &spare);
            assert_eq!(run.contents(), &buffer(1)[..bytes]);
            let sent = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut sent = buffer(9);
                sent[..run.pages().len()].copy_from_slice(run.pages());
                change(&mut sent);
                Run::received(sent, bytes, run.hashes().into(), &spare)
            };
            assert_eq!(sent(&|_| ()).expect("the same").contents(), run.contents());
            assert!(sent(&|sent| sent[bytes - 1] ^= 1).is_err());
            assert!(Run::received(buffer(1), bytes, Box::new([]), &spare).is_err());
        }
    }

    #[test]
    fn bytes_behind_the_end_are_not_taken_even_with_their_hash() {
        let spare = Arc::new(Spare::default());
        let long = Run::read(buffer(1), 4096, &spare);
        assert!(Run::received(buffer(1), 4000, long.hashes().into(), &spare).is_err());
    }

    #[test]
    fn zeros_take_no_room() {
        let spare = Arc::new(Spare::default());
        let run = Run::read(vec![0; RUN_BYTES], 5000, &spare);
        assert_eq!((run.contents(), run.pages().len()), (&[0; 5000][..], 8192));
        assert_eq!(run.cost_bytes(), RUN_OVERHEAD_BYTES);
        assert_eq!(spare.0.lock().expect("no panic").len(), 1, "its buffer is free");
    }

    #[test]
    fn runs_lie_in_extents() {
        let file = FileVersion::new(5);
        for run in [0, 7, 8, 1001] {
            let key = RunKey { file, run };
            assert_eq!(RunKey::of(key.extent(), key.bit().trailing_zeros() as usize), key);
        }
        assert_eq!(RunKey { file, run: 1 }.bytes_in(RUN_BYTES as u64 + 10), 10);
        assert_eq!(RunKey { file, run: 2 }.bytes_in(RUN_BYTES as u64 + 10), 0);
        assert_eq!(RunKey { file, run: u64::MAX }.bytes_in(u64::MAX), 0);
    }
}
