//! What the memory of a process contains.

use super::{ProcError, open};
use loam_core::units::BASE_PAGE_BYTES;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::Pid;

/// The open memory of a process. It stays with what the process has now, even if that executes another program.
#[derive(Debug)]
pub(crate) struct Memory {
    pid: Pid,
    fd: OwnedFd,
}

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// [`ProcError`]; whoever may look at a process's mappings may not always look at this.
    pub(crate) fn open(pid: Pid) -> Result<Self, ProcError> {
        Ok(Self { pid, fd: open(pid, "mem")? })
    }

    /// The base page at `address`. It should be there: one that is missing, and a userfaultfd's, is waited for.
    ///
    /// # Errors
    /// [`ProcError::Gone`] also where nobody has this memory any more.
    pub(crate) fn page(&self, address: u64) -> Result<[u8; BASE_PAGE_BYTES], ProcError> {
        let mut page = [0; BASE_PAGE_BYTES];
        let mut read = 0;
        while read < BASE_PAGE_BYTES {
            match rustix::io::pread(&self.fd, &mut page[read..], address + read as u64) {
                Ok(0) => return Err(ProcError::new(self.pid, "mem", Errno::SRCH)),
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ProcError::new(self.pid, "mem", errno)),
            }
        }
        Ok(page)
    }
}
