//! The floor under a remote fault: one userfaultfd fault, answered by another process from a ready buffer.
//!
//! `loam bench fault` runs the two halves in two processes and adds a bare TCP round trip; no pager over TCP on this
//! kernel can be quicker than the sum. Nothing here is used by a run.

use crate::probe::{self, Mapping, Source};
use linux_raw_sys::general::{UFFD_EVENT_PAGEFAULT, uffd_msg, uffdio_copy};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mm::Advice;
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = loam_core::units::BASE_PAGE_BYTES;

/// How the answering side waits for the next fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeps in `read`.
    Blocking,
    /// Asks again and again; `yields` lets the faulting process have the core in between.
    Spinning {
        /// Both sides share one core.
        yields: bool,
    },
}

/// The faulting half: a mapping whose pages are missing until someone answers.
pub struct Faulter {
    mapping: Mapping,
    uffd: OwnedFd,
    pages: usize,
}

impl Faulter {
    /// Maps and registers `pages` base pages.
    ///
    /// # Errors
    /// The kernel's refusal of the descriptor, the mapping or the registration.
    pub fn new(pages: usize) -> Result<Self, Errno> {
        let uffd = probe::open(Source::Device).or_else(|_| probe::open(Source::Syscall))?;
        probe::handshake(uffd.as_fd(), 0)?;
        let mapping = Mapping::new(pages)?;
        probe::register_missing(uffd.as_fd(), mapping.start, mapping.bytes)?;
        Ok(Self { mapping, uffd, pages })
    }

    /// The descriptor to hand to the answering process.
    pub fn uffd(&self) -> BorrowedFd<'_> {
        self.uffd.as_fd()
    }

    /// Reads the first word of a page: waits until it is answered, if it is missing.
    pub fn touch(&self, page: usize) -> u64 {
        assert!(page < self.pages, "page {page} is outside of the mapping of {} pages", self.pages);
        // SAFETY: inside our mapping, aligned to a page; a missing page is filled by the answering process.
        unsafe { self.mapping.start.cast::<u8>().add(page * PAGE_BYTES).cast::<u64>().read_volatile() }
    }

    /// Makes every page missing again.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn discard(&self) -> Result<(), Errno> {
        // SAFETY: the mapping is ours and nothing holds a reference into it.
        unsafe { rustix::mm::madvise(self.mapping.start, self.mapping.bytes, Advice::LinuxDontNeed) }
    }
}

/// A page-aligned buffer, ready to be copied from.
#[repr(C, align(4096))]
struct ReadyPage([u8; PAGE_BYTES]);

/// Answers `faults` faults of the process that `uffd` belongs to, each with a page whose words are `word`.
///
/// # Errors
/// The kernel's refusal; `ETIMEDOUT` when no fault comes for `patience`.
pub fn answer(
    uffd: &OwnedFd,
    faults: usize,
    word: u64,
    waiting: Waiting,
    patience: Duration,
) -> Result<(), Errno> {
    let mut page = Box::new(ReadyPage([0; PAGE_BYTES]));
    for chunk in page.0.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    // A blocking read would be a hair cheaper than poll and read, but could never give up on a dead peer. Only the
    // first wait is guarded: from then on the peer faults at once or the caller's own time limit ends both.
    rustix::io::ioctl_fionbio(uffd, true)?;
    let timeout = rustix::time::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
    if rustix::event::poll(&mut [PollFd::new(uffd, PollFlags::IN)], Some(&timeout))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    rustix::io::ioctl_fionbio(uffd, matches!(waiting, Waiting::Spinning { .. }))?;
    for _ in 0..faults {
        let address = next_fault(uffd.as_fd(), waiting, patience)?;
        let mut copy = uffdio_copy {
            dst: address & !(PAGE_BYTES as u64 - 1),
            src: page.0.as_ptr().addr() as u64,
            len: PAGE_BYTES as u64,
            mode: 0,
            copy: 0,
        };
        // SAFETY: the opcode belongs to `uffdio_copy`; source and argument live through the call, and the destination
        // is a missing page of the other process, which waits for exactly this.
        unsafe {
            let opcode =
                ioctl::Updater::<{ ioctl::opcode::read_write::<uffdio_copy>(0xAA, 0x03) }, _>::new(&mut copy);
            ioctl::ioctl(uffd, opcode)?;
        }
    }
    Ok(())
}

/// Waits for one fault and gives its address.
fn next_fault(uffd: BorrowedFd<'_>, waiting: Waiting, patience: Duration) -> Result<u64, Errno> {
    let mut raw = [0_u8; size_of::<uffd_msg>()];
    let since = Instant::now();
    let mut tries = 0_u32;
    loop {
        match rustix::io::read(uffd, &mut raw) {
            Ok(bytes) => {
                assert_eq!(bytes, raw.len(), "events are read whole");
                break;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if waiting == (Waiting::Spinning { yields: true }) {
                    rustix::thread::sched_yield();
                } else {
                    std::hint::spin_loop();
                }
                tries = tries.wrapping_add(1);
                if tries.is_multiple_of(4096) && since.elapsed() > patience {
                    return Err(Errno::TIMEDOUT);
                }
            }
            Err(error) => return Err(error),
        }
    }
    assert_eq!(u32::from(raw[0]), UFFD_EVENT_PAGEFAULT, "no other event was asked for");
    // The message is packed: an 8-byte head, then the fault's flags and its address.
    let address = raw.get(16..24).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    address.ok_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both halves in one process, on two threads: every page arrives with the word that was asked for.
    #[test]
    fn faults_are_answered_with_the_word() {
        const WORD: u64 = 0x5a5a_0000_1234_5678;
        const PAGES: usize = 64;
        for waiting in [Waiting::Blocking, Waiting::Spinning { yields: true }] {
            let Ok(faulter) = Faulter::new(PAGES) else {
                assert!(!rustix::process::geteuid().is_root(), "root may always open a userfaultfd");
                return;
            };
            let uffd = faulter.uffd().try_clone_to_owned().expect("a descriptor can be duplicated");
            let answering =
                std::thread::spawn(move || answer(&uffd, 2 * PAGES, WORD, waiting, Duration::from_secs(5)));
            for _round in 0..2 {
                for page in 0..PAGES {
                    assert_eq!(faulter.touch(page), WORD);
                }
                faulter.discard().expect("our own pages can be discarded");
            }
            answering.join().expect("no panic").expect("every fault was answered");
        }
    }
}
