//! A direct region, seen from the agent: the pool that the node has handed out for this run, and the table that says whose its chunks are.

use loam_core::units::Bytes;
use loam_hand::direct::{Chunks, DirectPlan, chunk_bytes, table_bytes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Memory of this machine's node for a run whose region is direct. Whoever made it keeps it with the node until the run has ended.
#[derive(Debug)]
pub struct DirectMemory {
    /// What processes map.
    pub file: OwnedFd,
    /// Where the region begins in it, in bytes.
    pub offset: u64,
}

impl DirectMemory {
    /// The size of a region that is asked for with `size`: whole chunks.
    pub fn round(size: Bytes) -> Bytes {
        // What is too large stays so: the caller refuses it.
        let size = size.0.min(2 * loam_hand::REGION_BYTES_MAX);
        Bytes(size.next_multiple_of(chunk_bytes(size)))
    }
}

/// The table could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the direct region's table: {what} failed ({errno}): free memory or raise the limit")]
pub(crate) struct TableError {
    what: &'static str,
    errno: Errno,
}

/// The pool and its table.
#[derive(Debug)]
pub(crate) struct Pool {
    memory: Arc<DirectMemory>,
    table: OwnedFd,
    base: NonNull<AtomicU64>,
    chunks: usize,
    chunk_bytes: u64,
    token_last: u32,
}

impl Pool {
    /// All chunks of a region of `size` ([`DirectMemory::round`]) are free. The table's size is sealed: no program can have us die by SIGBUS.
    ///
    /// # Errors
    /// [`TableError`], for want of memory, descriptors or address space.
    pub(crate) fn new(memory: Arc<DirectMemory>, size: Bytes) -> Result<Self, TableError> {
        let chunk_bytes = chunk_bytes(size.0);
        assert!(size.0 > 0 && size.0.is_multiple_of(chunk_bytes), "whole chunks");
        let chunks = usize::try_from(size.0 / chunk_bytes).expect("as many as fit");
        let bytes = table_bytes(chunks);
        let fail = |what| move |errno| TableError { what, errno };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let table = rustix::fs::memfd_create("loam-direct", flags).map_err(fail("memfd_create"))?;
        rustix::fs::ftruncate(&table, bytes as u64).map_err(fail("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&table, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(fail("sealing"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &table, 0) };
        let base = NonNull::new(base.map_err(fail("mmap"))?.cast()).expect("mmap gave address zero");
        Ok(Self { memory, table, base, chunks, chunk_bytes, token_last: 0 })
    }

    /// What the next process that joins is told.
    pub(crate) fn plan(&mut self) -> DirectPlan {
        // So many processes have one only after years; then one that is nobody's is as good as a new one.
        self.token_last = self.token_last.checked_add(1).expect("four thousand million processes in one run");
        DirectPlan {
            chunk_bytes: self.chunk_bytes,
            offset: self.memory.offset,
            token: self.token_last,
            chunks: self.chunks as u32,
        }
    }

    /// What is sent to a program that starts: the table and the pool.
    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.table.as_fd(), self.memory.file.as_fd()]
    }

    fn table(&self) -> Chunks<'_> {
        // SAFETY: the mapping lives as long as `self` and has so many words. They are atomics, valid whatever programs write.
        let words = unsafe {
            std::slice::from_raw_parts(self.base.as_ptr(), table_bytes(self.chunks) / size_of::<AtomicU64>())
        };
        Chunks::new(words, self.chunks)
    }

    /// A process has ended, and nobody runs in its memory any more: what it had is free.
    pub(crate) fn release(&self, token: u32) {
        self.table().release_all(token);
    }

    /// Most bytes that were in use at a time, in whole chunks.
    pub(crate) fn peak(&self) -> Bytes {
        Bytes(self.table().peak() * self.chunk_bytes)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing borrowed from it outlives `self`.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), table_bytes(self.chunks)) };
        assert!(result.is_ok(), "munmap of the table failed: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(size: u64) -> Pool {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        Pool::new(Arc::new(DirectMemory { file, offset: 4096 }), Bytes(size)).expect("a table")
    }

    #[test]
    fn each_process_has_a_number_and_gives_back_its_own() {
        let mut pool = pool(8 << 20);
        let plans = [pool.plan(), pool.plan()];
        let region =
            |direct| loam_hand::RegionPlan { bytes: 8 << 20, least_bytes: 4096, spare_bytes: 0, direct };
        assert!(plans.iter().all(|plan| region(*plan).is_sane()) && plans[0].token != plans[1].token);
        for plan in [plans[0], plans[0], plans[1]] {
            pool.table().claim(0, plan.token).expect("free");
        }
        pool.release(plans[0].token);
        assert!(pool.table().is_owned(2, plans[1].token) && !pool.table().is_owned(0, plans[0].token));
        assert_eq!(pool.peak(), Bytes(6 << 20));
    }

    #[test]
    fn sizes_are_whole_chunks() {
        for (asked, given) in [(1, 2 << 20), (2 << 20, 2 << 20), (3 << 20, 4 << 20), (33 << 30, 33 << 30)] {
            assert_eq!(DirectMemory::round(Bytes(asked)), Bytes(given));
        }
        assert!(DirectMemory::round(Bytes(u64::MAX)).0 > loam_hand::REGION_BYTES_MAX);
        let odd = DirectMemory::round(Bytes((33 << 30) + 1));
        assert_eq!(odd, Bytes((33 << 30) + (4 << 20)));
    }

    #[test]
    fn nobody_can_resize_the_table() {
        let pool = pool(2 << 20);
        assert_eq!(rustix::fs::ftruncate(&pool.table, 0), Err(Errno::PERM));
    }
}
