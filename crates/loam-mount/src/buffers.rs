//! Memory for runs: taken from the system in large blocks, and used again for the next run.
//!
//! A buffer of its own for each run would be mapped and unmapped each time, with all threads waiting for each other (7 to 8% of the processor's time
//! for a file that comes from another mount). Large pages are not asked for: several threads would each have one cleared, and a virtual machine may
//! have to get them from its host; measured, that was slower.

use crate::run::RUN_BYTES;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So much is taken from the system at a time.
const BLOCK_BYTES: usize = 2 << 20;

/// Where buffers come from and go back to. What it has once taken from the system it keeps, so that is the most that was in use at a time: the cache's
/// room, and what is on its way into it.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<&'static mut [u8]>>);

impl Buffers {
    fn unused(&self) -> MutexGuard<'_, Vec<&'static mut [u8]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with any contents.
    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        let mut unused = self.unused();
        if unused.is_empty() {
            // Zeros that the system has: nothing is touched here. From the end on, so that the first is taken first.
            unused.extend(vec![0; BLOCK_BYTES].leak().rchunks_exact_mut(RUN_BYTES));
        }
        let bytes = unused.pop().expect("a block has several");
        drop(unused);
        Buffer { bytes, home: Arc::clone(self) }
    }
}

/// [`RUN_BYTES`] of memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: &'static mut [u8],
    home: Arc<Buffers>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home.unused().push(bytes);
    }
}

#[cfg(test)]
impl Buffer {
    /// One of the tests', with these contents.
    pub(crate) fn of(byte_at: impl Fn(usize) -> u8) -> Self {
        static TESTS: std::sync::LazyLock<Arc<Buffers>> = std::sync::LazyLock::new(Arc::default);
        let mut buffer = TESTS.take();
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(at));
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_the_same_memory_and_it_is_used_again() {
        let buffers = Arc::new(Buffers::default());
        let in_block = BLOCK_BYTES / RUN_BYTES;
        let mut taken: Vec<Buffer> = (0..2 * in_block + 1).map(|_| buffers.take()).collect();
        for (n, buffer) in taken.iter_mut().enumerate() {
            assert_eq!(buffer.len(), RUN_BYTES);
            buffer.fill(n as u8);
        }
        assert!(taken.iter().enumerate().all(|(n, buffer)| buffer.iter().all(|&byte| byte == n as u8)));
        drop(taken);
        assert_eq!(buffers.unused().len(), 3 * in_block);
        let again: Vec<Buffer> = (0..3 * in_block).map(|_| buffers.take()).collect();
        assert!(buffers.unused().is_empty());
        drop(again);
    }
}
