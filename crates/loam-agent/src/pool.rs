//! Page buffers: one mapping of base pages for victims, disk and network.
//!
//! They are aligned for O_DIRECT and their addresses never change, so the kernel may work on them while the loop
//! goes on.

use loam_core::units::BASE_PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;

/// The buffers could not be had.
#[derive(Debug, thiserror::Error)]
#[error("page buffers of {} KiB: mmap failed ({errno}): free memory, or raise the limit of address space (ulimit -v)", pages.saturating_mul(BASE_PAGE_BYTES / 1024))]
pub(crate) struct PoolError {
    pages: usize,
    errno: Errno,
}

/// Buffers of one base page each. Memory is taken at the first touch of each.
#[derive(Debug)]
pub(crate) struct Pool {
    base: NonNull<[u8; BASE_PAGE_BYTES]>,
    pages: usize,
}

impl Pool {
    /// Reserves `pages` buffers, all zeros.
    ///
    /// # Errors
    /// [`PoolError`] if the address space is not to be had.
    pub(crate) fn new(pages: usize) -> Result<Self, PoolError> {
        assert!(pages > 0, "a pool of no pages");
        let bytes = pages.checked_mul(BASE_PAGE_BYTES).ok_or(PoolError { pages, errno: Errno::NOMEM })?;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| PoolError { pages, errno })?;
        // Not inherited: copy-on-write after a fork would give the kernel's I/O and us different pages. Not huge: memory is
        // taken page by page.
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage] {
            // SAFETY: the mapping made above; both advices leave its contents alone. A kernel built without huge
            // pages refuses the second, which is as good.
            let _ = unsafe { rustix::mm::madvise(base, bytes, advice) };
        }
        Ok(Self { base: NonNull::new(base.cast()).expect("mmap gave address zero"), pages })
    }

    /// Bytes of it that the machine holds.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let own = rustix::process::getpid();
        let start = self.base.addr().get() as u64;
        let mut present = Vec::new();
        let listed = crate::procfs::Pagemap::open(own)
            .and_then(|map| map.present(start, start + (self.pages * BASE_PAGE_BYTES) as u64, &mut present));
        if listed.is_err() {
            return 0;
        }
        present.iter().map(|(from, to)| to - from).sum()
    }

    /// Address of buffer `index`, for the kernel. Valid while the pool lives; neighbours are adjacent.
    pub(crate) fn pointer(&self, index: usize) -> *mut u8 {
        self.slot(index).as_ptr().cast()
    }

    /// Contents of buffer `index`. Not while the kernel writes it (the contract of whoever started that).
    pub(crate) fn page(&self, index: usize) -> &[u8; BASE_PAGE_BYTES] {
        // SAFETY: inside the mapping, which lives as long as `self`; every byte of it is initialised (zeros).
        // Nobody else writes: `page_mut` needs `&mut self`, and I/O into buffers is started by unsafe calls whose
        // contract says so.
        unsafe { self.slot(index).as_ref() }
    }

    /// The same, to write.
    pub(crate) fn page_mut(&mut self, index: usize) -> &mut [u8; BASE_PAGE_BYTES] {
        // SAFETY: as in `page`; `&mut self` makes it the only reference.
        unsafe { self.slot(index).as_mut() }
    }

    fn slot(&self, index: usize) -> NonNull<[u8; BASE_PAGE_BYTES]> {
        assert!(index < self.pages, "no buffer {index} in a pool of {}", self.pages);
        // SAFETY: inside the mapping, by the assert.
        unsafe { self.base.add(index) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing borrowed from it outlives `self`.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.pages * BASE_PAGE_BYTES) };
        assert!(result.is_ok(), "munmap of the page buffers failed: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_adjacent_and_apart() {
        let mut pool = Pool::new(8).unwrap();
        for index in 0..8 {
            assert_eq!(pool.pointer(index).addr() % BASE_PAGE_BYTES, 0);
            assert_eq!(pool.pointer(index).addr() - pool.pointer(0).addr(), index * BASE_PAGE_BYTES);
            pool.page_mut(index).fill(index as u8 + 1);
        }
        for index in 0..8 {
            assert_eq!(*pool.page(index), [index as u8 + 1; BASE_PAGE_BYTES]);
        }
    }

    #[test]
    fn memory_is_taken_at_the_first_touch_only() {
        let mut pool = Pool::new(1 << 18).unwrap(); // 1 GiB
        pool.page_mut(77)[0] = 1;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = pool.pointer(77).addr();
        // The kernel may have merged it with the pool of another test, so its mapping is the one around the address.
        let mut lines = smaps.lines().skip_while(|line| {
            let range = line.split(' ').next().unwrap().split_once('-');
            let Some((start, end)) = range else { return true };
            let hex = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            !(hex(start)..hex(end)).contains(&address)
        });
        let rss = lines.find(|l| l.starts_with("Rss:")).unwrap();
        let kib: u64 = rss.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((4..=64).contains(&kib), "{rss}");
        let flags = lines.find(|l| l.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" dc") && flags.contains(" nh"), "{flags}");
    }

    #[test]
    #[should_panic(expected = "no buffer 8")]
    fn no_buffer_beyond_the_end() {
        Pool::new(8).unwrap().pointer(8);
    }

    #[test]
    fn address_space_that_is_not_there_is_an_error() {
        let error = Pool::new(usize::MAX / 2).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
