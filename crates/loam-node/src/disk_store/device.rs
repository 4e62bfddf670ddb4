//! The disk under the store. The live one is a file; tests have one that loses power.

use loam_disk::{Buffer, EngineError, Finished, Owned, QueueFull};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::sync::Arc;

/// Operations without order between those that are under way; a sync covers the writes that had ended when it was begun.
/// The store never begins more than [`OPERATIONS_MAX`](super::OPERATIONS_MAX).
pub(crate) trait Device {
    fn write(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize);
    fn read(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize);
    fn sync(&mut self, tag: u64);
    fn submit(&mut self) -> Result<(), EngineError>;
    /// Adds what is over.
    fn finished(&mut self, into: &mut Vec<Finished>) -> Result<(), EngineError>;
    /// Waits until something that was submitted may be over.
    fn wait(&mut self);
    /// Readable then.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// The first place from `offset_bytes` on that may hold anything but zeros; none if there is nothing more.
    fn data_from(&self, offset_bytes: u64) -> Option<u64>;
}

/// A file by io_uring, or by threads.
pub struct FileDevice {
    owned: Owned,
    file: Arc<OwnedFd>,
}

impl FileDevice {
    pub(super) fn new(owned: Owned, file: Arc<OwnedFd>) -> Self {
        Self { owned, file }
    }

    pub(super) fn is_ring(&self) -> bool {
        self.owned.is_ring()
    }
}

const BOUNDED: &str = "the store begins no more than it may";

impl Device for FileDevice {
    fn write(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize) {
        self.owned.write(tag, offset_bytes, buffer, bytes).map_err(|(full, _)| full).expect(BOUNDED);
    }

    fn read(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize) {
        self.owned.read(tag, offset_bytes, buffer, bytes).map_err(|(full, _)| full).expect(BOUNDED);
    }

    fn sync(&mut self, tag: u64) {
        let queued: Result<(), QueueFull> = self.owned.sync(tag);
        queued.expect(BOUNDED);
    }

    fn submit(&mut self) -> Result<(), EngineError> {
        self.owned.submit()
    }

    fn finished(&mut self, into: &mut Vec<Finished>) -> Result<(), EngineError> {
        self.owned.finished(into)
    }

    fn wait(&mut self) {
        self.owned.wait();
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.owned.event_fd()
    }

    fn data_from(&self, offset_bytes: u64) -> Option<u64> {
        match rustix::fs::seek(&*self.file, SeekFrom::Data(offset_bytes)) {
            Ok(at) => Some(at),
            Err(Errno::NXIO) => None,
            // A file system that cannot tell: all of it may be data.
            Err(_) => Some(offset_bytes),
        }
    }
}
