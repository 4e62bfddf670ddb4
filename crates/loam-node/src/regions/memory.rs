//! The memory of regions: a file that exists only in memory for each stretch, as large for ever as it was made.

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Memory of `bytes`, all of it there: who uses it never waits for the kernel to find a page. It can become neither smaller (a mapping
/// would end in nothing) nor larger (it would be more than is counted), whoever has its descriptor.
///
/// # Errors
/// The system's; what was taken is given back.
pub(super) fn make(bytes: u64, huge: bool) -> io::Result<OwnedFd> {
    let kind = if huge {
        MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB | MemfdFlags::ALLOW_SEALING
    } else {
        MemfdFlags::ALLOW_SEALING
    };
    let flags = kind | MemfdFlags::CLOEXEC;
    // (Before Linux 6.3 there is no such flag, and never for huge pages on some.)
    let file = rustix::fs::memfd_create("loam-region", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create("loam-region", flags))?;
    rustix::fs::ftruncate(&file, bytes)?;
    loop {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Copies the first `bytes` from one to the other.
///
/// # Errors
/// The system's. (Memory of huge pages cannot be written this way.)
pub(super) fn copy(from: OwnedFd, to: &OwnedFd, bytes: u64) -> io::Result<()> {
    let (from, to) = (std::fs::File::from(from), std::fs::File::from(to.try_clone()?));
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = usize::try_from(bytes - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        from.read_exact_at(&mut buffer[..part], at)?;
        to.write_all_at(&buffer[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_and_stays_as_large_as_it_is() {
        let file = make(1 << 20, false).expect("a megabyte");
        let stat = rustix::fs::fstat(&file).expect("it is open");
        assert_eq!((stat.st_size, stat.st_blocks), (1 << 20, (1 << 20) / 512));
        for bytes in [0, 1 << 19, 1 << 21] {
            assert_eq!(rustix::fs::ftruncate(&file, bytes), Err(rustix::io::Errno::PERM), "{bytes}");
        }
        assert_eq!(
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 21),
            Err(rustix::io::Errno::PERM)
        );
    }

    #[test]
    fn copies_are_whole() {
        let bytes = (COPY_BYTES + 4096) as u64;
        let (from, to) = (make(bytes, false).expect("made"), make(bytes, false).expect("made"));
        let contents: Vec<u8> = (0..bytes).map(|at| (at / 11) as u8).collect();
        let from = std::fs::File::from(from);
        from.write_all_at(&contents, 0).expect("written");
        copy(from.into(), &to, bytes).expect("copied");
        let mut back = vec![0; contents.len()];
        std::fs::File::from(to).read_exact_at(&mut back, 0).expect("read");
        assert!(back == contents);
    }
}
