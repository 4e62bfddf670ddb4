//! Which pages of a range are there: the `PAGEMAP_SCAN` call (Linux 6.7); and which of them no other process has: the words of the file.

use super::{ProcError, open};
use linux_raw_sys::general::{PAGE_IS_PRESENT, PAGE_IS_SWAPPED, page_region, pm_scan_arg};
use loam_core::units::BASE_PAGE_BYTES;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

/// `_IOWR('f', 16, struct pm_scan_arg)`: the header crate has no constant for it.
const PAGEMAP_SCAN: u32 = (3 << 30) | ((size_of::<pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16;
/// Regions that one call may give; more take more calls.
const REGIONS: usize = 512;

/// The open pagemap of a process.
#[derive(Debug)]
pub(crate) struct Pagemap {
    pid: Pid,
    fd: OwnedFd,
}

impl Pagemap {
    /// Opens it.
    ///
    /// # Errors
    /// [`ProcError`].
    pub(crate) fn open(pid: Pid) -> Result<Self, ProcError> {
        Ok(Self { pid, fd: open(pid, "pagemap")? })
    }

    /// Adds the page ranges (first address, one past the last) in `start..end` that are there and that no other process has mapped to `out`. In order,
    /// neighbours joined.
    ///
    /// # Errors
    /// [`ProcError`]; `out` then has what came before.
    pub(crate) fn unshared(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) -> Result<(), ProcError> {
        const PRESENT: u64 = 1 << 63;
        const MAPPED_ONCE: u64 = 1 << 56;
        let page = BASE_PAGE_BYTES as u64;
        let mut words = [0_u8; 8 * 512];
        let mut at = start / page;
        while at < end / page {
            let wanted = words.len().min((end / page - at) as usize * 8);
            let got = match rustix::io::pread(&self.fd, &mut words[..wanted], at * 8) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(ProcError::new(self.pid, "pagemap", errno)),
                Ok(0) => return Ok(()), // its memory is gone
                Ok(got) => got,
            };
            for word in words[..got].chunks_exact(8) {
                let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
                if word & (PRESENT | MAPPED_ONCE) == PRESENT | MAPPED_ONCE {
                    match out.last_mut() {
                        Some(last) if last.1 == at * page => last.1 += page,
                        _ => out.push((at * page, (at + 1) * page)),
                    }
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// Adds the page ranges (first address, one past the last) in `start..end` that are there to `out`: resident or
    /// in the kernel's own swap. In order, neighbours joined. Pages that were never touched, or that Loam took
    /// away, are not among them; poisoned ones are.
    ///
    /// # Errors
    /// [`ProcError`]; `out` then has what came before.
    pub(crate) fn present(&self, start: u64, end: u64, out: &mut Vec<(u64, u64)>) -> Result<(), ProcError> {
        assert!(
            start <= end && (start | end).is_multiple_of(BASE_PAGE_BYTES as u64),
            "not a range of base pages"
        );
        let mut regions = [page_region { start: 0, end: 0, categories: 0 }; REGIONS];
        let (mut from, before) = (start, out.len());
        while from < end {
            let wanted = u64::from(PAGE_IS_PRESENT | PAGE_IS_SWAPPED);
            let mut arg = pm_scan_arg {
                size: size_of::<pm_scan_arg>() as u64,
                flags: 0,
                start: from,
                end,
                walk_end: 0,
                vec: regions.as_mut_ptr().addr() as u64,
                vec_len: REGIONS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: 0,
                category_anyof_mask: wanted,
                return_mask: wanted,
            };
            let fd = self.fd.as_raw_fd();
            // SAFETY: `arg` is the structure of this call, and it names `regions` with its true length; both live on.
            let count = unsafe { libc::ioctl(fd, u64::from(PAGEMAP_SCAN), &raw mut arg) };
            if count < 0 {
                let error = std::io::Error::last_os_error();
                match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                    Errno::INTR => continue,
                    errno => return Err(ProcError::new(self.pid, "pagemap", errno)),
                }
            }
            let count = usize::try_from(count).expect("a count that is not negative");
            assert!(count <= REGIONS, "the kernel gave more regions than there is room for");
            assert!(arg.walk_end > from && arg.walk_end <= end, "the kernel's walk did not go on");
            for region in &regions[..count] {
                assert!(start <= region.start && region.start < region.end && region.end <= end);
                match out[before..].last_mut() {
                    Some(last) if last.1 == region.start => last.1 = region.end,
                    _ => out.push((region.start, region.end)),
                }
            }
            from = arg.walk_end;
        }
        Ok(())
    }
}
