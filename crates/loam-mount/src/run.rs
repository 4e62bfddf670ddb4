//! A run: 32 base pages of one version of a file, or its last part, with the hash of each page.

use loam_core::ids::ContentHash;
use loam_core::replacement::Key;
use loam_core::units::BASE_PAGE_BYTES;
use loam_disk::Piece;
use loam_wire::mount::{EXTENT_RUNS, ExtentRef, FileVersion, RUN_PAGES};
use loam_wire::page_hash;
use std::sync::{Arc, LazyLock};

/// Bytes of a run.
pub(crate) const RUN_BYTES: usize = RUN_PAGES * BASE_PAGE_BYTES;
/// What a run takes beside its contents, roughly: hashes and tables.
pub(crate) const RUN_OVERHEAD_BYTES: u64 = 1024;

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

/// The contents of a run. They never change.
#[derive(Debug)]
pub(crate) struct Run {
    /// `None`: zeros.
    buffer: Option<Piece>,
    bytes: usize,
    hashes: Box<[ContentHash]>,
}

impl Run {
    /// Takes the first `bytes` of a buffer as they were read from the source, and hashes them.
    pub(crate) fn read(buffer: Piece, bytes: usize) -> Self {
        let buffer = padded(buffer, bytes);
        let pages = bytes.div_ceil(BASE_PAGE_BYTES);
        let hashes = buffer.chunks_exact(BASE_PAGE_BYTES).take(pages).map(page_hash).collect();
        Self::new(buffer, bytes, hashes)
    }

    /// Takes a buffer as another mount sent it, with the hashes that came with it. `None` if a page is not what its hash
    /// says, or what lies behind the file's end is not zero.
    pub(crate) fn received(buffer: Piece, bytes: usize, hashes: Box<[ContentHash]>) -> Option<Self> {
        let pages = bytes.div_ceil(BASE_PAGE_BYTES);
        let proved = hashes.len() == pages
            && buffer.chunks_exact(BASE_PAGE_BYTES).zip(&hashes).all(|(page, hash)| page_hash(page) == *hash)
            && buffer[bytes..pages * BASE_PAGE_BYTES].iter().all(|&byte| byte == 0);
        proved.then(|| Self::new(buffer, bytes, hashes))
    }

    fn new(buffer: Piece, bytes: usize, hashes: Box<[ContentHash]>) -> Self {
        assert!(bytes > 0 && bytes <= RUN_BYTES);
        let zeros = hashes.iter().all(|hash| *hash == *ZERO_HASH);
        Self { buffer: (!zeros).then_some(buffer), bytes, hashes }
    }

    /// What the file has there.
    pub(crate) fn contents(&self) -> &[u8] {
        &self.pages()[..self.bytes]
    }

    /// The same with zeros up to the end of its last page.
    pub(crate) fn pages(&self) -> &[u8] {
        &self.buffer.as_deref().unwrap_or(&ZEROS)[..self.hashes.len() * BASE_PAGE_BYTES]
    }

    /// The contents of runs that follow each other, as one, with whatever lies behind the last one's. `None`: they do not lie so.
    pub(crate) fn joined(runs: &[Arc<Self>]) -> Option<&[u8]> {
        let pieces: Option<Vec<&Piece>> = runs.iter().map(|run| run.buffer.as_ref()).collect();
        Piece::joined(pieces?)
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

/// Zeros from where the contents end to the end of that page.
fn padded(mut buffer: Piece, bytes: usize) -> Piece {
    let end = bytes.next_multiple_of(BASE_PAGE_BYTES);
    buffer[bytes..end].fill(0);
    buffer
}

/// A buffer of the tests', with these contents.
#[cfg(test)]
pub(crate) fn buffer_of(byte_at: impl Fn(usize) -> u8) -> Piece {
    let mut buffer = loam_disk::Pieces::new(RUN_BYTES, 1).take();
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(at));
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(seed: u8) -> Piece {
        buffer_of(|at| (at / 3) as u8 ^ (at / 4096) as u8 ^ seed)
    }

    #[test]
    fn what_was_read_can_be_received_and_nothing_else() {
        for bytes in [1, 4095, 4096, 4097, RUN_BYTES - 1, RUN_BYTES] {
            let run = Run::read(buffer(1), bytes);
            assert_eq!(run.contents(), &buffer(1)[..bytes]);
            let sent = |change: &dyn Fn(&mut [u8])| {
                let mut sent = buffer(9);
                sent[..run.pages().len()].copy_from_slice(run.pages());
                change(&mut sent);
                Run::received(sent, bytes, run.hashes().into())
            };
            assert_eq!(sent(&|_| ()).expect("the same").contents(), run.contents());
            assert!(sent(&|sent| sent[bytes - 1] ^= 1).is_none());
            assert!(Run::received(buffer(1), bytes, Box::new([])).is_none());
        }
    }

    #[test]
    fn bytes_behind_the_end_are_not_taken_even_with_their_hash() {
        let long = Run::read(buffer(1), 4096);
        assert!(Run::received(buffer(1), 4000, long.hashes().into()).is_none());
    }

    #[test]
    fn zeros_take_no_room() {
        let run = Run::read(buffer_of(|_| 0), 5000);
        assert_eq!((run.contents(), run.pages().len()), (&[0; 5000][..], 8192));
        assert_eq!(run.cost_bytes(), RUN_OVERHEAD_BYTES);
        assert!(run.buffer.is_none(), "its buffer is free");
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
