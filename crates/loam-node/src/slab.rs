//! The memory that is lent: one file that exists only in memory and never goes to swap.
//!
//! It is written with `pwrite`, which takes memory without a fault a page, and read through a mapping: a page costs 0.4 us that way and 0.8 by `pread`, one of
//! many 0.17 and 0.28 (where there is no address space for a mapping, by `pread`). A copy could be saved by sending from the mapping or with `sendfile`. But a page
//! that `sendfile` handed to a socket may sit in the receiver's queue by reference for as long as it likes, so no
//! slot could be written again without punching it out first (1 to 7 us a page).
//!
//! A page that is mapped in is dear to give back, as every core has to forget it: what is given back piece by piece is taken out of the mapping first, a block at a time.
//!
//! Without swap: locking a mapping does not help, since pages that come in through `pwrite` are in no mapping. A
//! private tmpfs with `noswap` (Linux 6.4) does; it takes CAP_SYS_ADMIN. An ordinary user gets a plain memfd and, if the machine has
//! swap, a warning.

use crate::error::NodeError;
use loam_core::lender::{Slot, SlotRun};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_disk::Mapped;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Where a second small run of so much memory is given back, all of it is taken out of the mapping first, as more will follow (the page table of so much is one page) …
const UNMAP_BYTES: usize = 2 << 20;
/// … and again after so many, as what stays is read, and mapped in, meanwhile.
const UNMAP_RUNS: u32 = 64;

#[derive(Debug)]
pub(crate) struct Slab {
    file: OwnedFd,
    /// All of its whole pages, to read from.
    mapped: Option<Mapped>,
    /// The block of [`UNMAP_BYTES`] in which memory was given back last, and how many times one after the other.
    punched: Mutex<(usize, u32)>,
    /// Keeps the private tmpfs that the file is in.
    _mount: Option<OwnedFd>,
}

fn offset(slot: Slot) -> u64 {
    u64::from(slot.0) * BASE_PAGE_BYTES as u64
}

impl Slab {
    /// A slab of `size`, all of it holes. The text is a warning, if there is one.
    pub(crate) fn create(size: Bytes) -> Result<(Self, Option<String>), NodeError> {
        let (mut slab, warning) = match Self::without_swap(size) {
            Ok(slab) => (slab, None),
            Err(why) => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
                let file = rustix::fs::memfd_create("loam-slab", flags)
                    .or_else(|_| rustix::fs::memfd_create("loam-slab", MemfdFlags::CLOEXEC))
                    .map_err(NodeError::system("making the memory file (memfd_create)"))?;
                (
                    Self { file, mapped: None, punched: Mutex::default(), _mount: None },
                    swap_warning(why.into()),
                )
            }
        };
        rustix::fs::ftruncate(&slab.file, size.0).map_err(NodeError::system(
            "sizing the memory file (is there a limit on file sizes, ulimit -f?)",
        ))?;
        let pages = usize::try_from(size.0 / BASE_PAGE_BYTES as u64).unwrap_or(0);
        if pages > 0 {
            let mapped = Mapped::new(&slab.file, 0, pages * BASE_PAGE_BYTES, BASE_PAGE_BYTES);
            slab.mapped = mapped
                .inspect_err(|why| tracing::info!("lent memory is read without a mapping ({why})"))
                .ok();
        }
        Ok((slab, warning))
    }

    fn without_swap(size: Bytes) -> rustix::io::Result<Self> {
        let config = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_flag(&config, "noswap")?;
        rustix::mount::fsconfig_set_string(&config, "size", size.0.to_string())?;
        rustix::mount::fsconfig_set_string(&config, "mode", "0700")?;
        rustix::mount::fsconfig_create(&config)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = rustix::mount::fsmount(&config, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&mount, ".", flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { file, mapped: None, punched: Mutex::default(), _mount: Some(mount) })
    }

    /// Copies stored slots out.
    pub(crate) fn read(&self, run: SlotRun, mut to: &mut [u8]) -> io::Result<()> {
        assert_eq!(to.len(), run.pages as usize * BASE_PAGE_BYTES);
        let mut at = offset(run.first);
        if let Some(mapped) = &self.mapped
            && let Some(from) = usize::try_from(at).ok().filter(|from| from + to.len() <= mapped.bytes())
        {
            mapped.read(from, to);
            return Ok(());
        }
        while !to.is_empty() {
            match rustix::io::pread(&self.file, &mut *to, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    to = &mut to[bytes..];
                    at += bytes as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Writes reserved slots.
    pub(crate) fn write(&self, run: SlotRun, mut from: &[u8]) -> io::Result<()> {
        assert_eq!(from.len(), run.pages as usize * BASE_PAGE_BYTES);
        let mut at = offset(run.first);
        while !from.is_empty() {
            match rustix::io::pwrite(&self.file, from, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    from = &from[bytes..];
                    at += bytes as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Gives the memory of a run back to the system.
    pub(crate) fn punch(&self, run: SlotRun) -> io::Result<()> {
        let bytes = u64::from(run.pages) * BASE_PAGE_BYTES as u64;
        self.unmap_around(run);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset(run.first), bytes) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    /// Where one small run of a block after the other is given back, the block is taken out of the mapping by one call.
    fn unmap_around(&self, run: SlotRun) {
        let Some(mapped) = &self.mapped else { return };
        let (first, pages) = (run.first.0 as usize, run.pages as usize);
        let block = first * BASE_PAGE_BYTES / UNMAP_BYTES;
        let is_small = (first + pages) * BASE_PAGE_BYTES <= (block + 1) * UNMAP_BYTES;
        if !is_small {
            return;
        }
        let mut punched = self.punched.lock().unwrap_or_else(PoisonError::into_inner);
        *punched = if punched.0 == block { (block, punched.1 + 1) } else { (block, 1) };
        if punched.1 % UNMAP_RUNS == 2 {
            let end = ((block + 1) * UNMAP_BYTES).min(mapped.bytes());
            mapped.unmap((block * UNMAP_BYTES).min(end)..end);
        }
    }

    /// Memory that the slab takes now.
    pub(crate) fn memory(&self) -> io::Result<Bytes> {
        let blocks = rustix::fs::fstat(&self.file)?.st_blocks;
        Ok(Bytes(u64::try_from(blocks).unwrap_or(0) * 512))
    }
}

fn swap_warning(why: io::Error) -> Option<String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    (swaps.lines().count() > 1).then(|| {
        format!(
            "lent pages may be swapped out here, which makes borrowers slow: memory without swap needs Linux 6.4 \
             and CAP_SYS_ADMIN ({why}); start the lender as root, or turn swap off"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, pages: u32) -> SlotRun {
        SlotRun { first: Slot(first), pages }
    }

    #[test]
    fn memory_is_taken_as_it_is_used_and_given_back() {
        let (slab, _) = Slab::create(Bytes::from_mib(64)).unwrap();
        assert_eq!(slab.memory().unwrap(), Bytes(0));
        let pages: Vec<u8> = (0..4 * BASE_PAGE_BYTES).map(|at| (at / 13) as u8).collect();
        slab.write(run(100, 4), &pages).unwrap();
        assert_eq!(slab.memory().unwrap(), Bytes(4 * 4096));
        let mut back = vec![0; 2 * BASE_PAGE_BYTES];
        slab.read(run(101, 2), &mut back).unwrap();
        assert_eq!(back, pages[BASE_PAGE_BYTES..3 * BASE_PAGE_BYTES]);
        slab.punch(run(100, 3)).unwrap();
        assert_eq!(slab.memory().unwrap(), Bytes(4096));
        slab.read(run(101, 2), &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn without_a_mapping_the_same_is_read() {
        let (mut slab, _) = Slab::create(Bytes::from_mib(1)).unwrap();
        let pages: Vec<u8> = (0..2 * BASE_PAGE_BYTES).map(|at| (at / 17) as u8).collect();
        slab.write(run(8, 2), &pages).unwrap();
        assert!(slab.mapped.is_some());
        for _ in 0..2 {
            let mut back = vec![1; 3 * BASE_PAGE_BYTES];
            slab.read(run(8, 3), &mut back).unwrap();
            assert_eq!(back[..pages.len()], pages);
            assert!(back[pages.len()..].iter().all(|byte| *byte == 0));
            slab.mapped = None;
        }
    }

    #[test]
    fn what_lies_between_pages_that_are_given_back_stays() {
        let (slab, _) = Slab::create(Bytes::from_mib(5)).unwrap();
        // The last block is none of a whole one's size.
        let pages = 5 * 256_u32;
        for page in 0..pages {
            slab.write(run(page, 1), &vec![page as u8 | 1; BASE_PAGE_BYTES]).unwrap();
        }
        let mut back = vec![0; BASE_PAGE_BYTES];
        for page in 0..pages {
            slab.read(run(page, 1), &mut back).unwrap();
        }
        (0..pages).step_by(2).for_each(|page| slab.punch(run(page, 1)).unwrap());
        assert_eq!(slab.memory().unwrap(), Bytes(u64::from(pages / 2) * 4096));
        for page in 0..pages {
            slab.read(run(page, 1), &mut back).unwrap();
            let expected = if page % 2 == 0 { 0 } else { page as u8 | 1 };
            assert!(back.iter().all(|byte| *byte == expected), "page {page}");
        }
    }

    #[test]
    fn nothing_is_written_beyond_the_end() {
        let (slab, _) = Slab::create(Bytes::from_mib(1)).unwrap();
        let page = vec![1; BASE_PAGE_BYTES];
        slab.write(run(255, 1), &page).unwrap();
        let mut back = vec![0; BASE_PAGE_BYTES];
        assert!(slab.read(run(256, 1), &mut back).is_err());
    }
}
