//! The memory of regions: a file that exists only in memory for each stretch, as large for ever as it was made.

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are taken from the machine at a time: some tens of milliseconds. In between there is time to see that the node ends.
pub(super) const STEP_BYTES: u64 = if cfg!(test) { 8192 } else { 64 << 20 };
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A file of memory that is being made. It goes, and its memory with it, when it is dropped.
#[derive(Debug)]
pub(super) struct Making {
    file: OwnedFd,
    bytes: u64,
    /// So many of them are there.
    at: u64,
}

impl Making {
    /// Memory of `bytes`, none of it there yet.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(bytes: u64, huge: bool) -> io::Result<Self> {
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
        Ok(Self { file, bytes, at: 0 })
    }

    /// Takes the next piece from the machine; answers its bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn step(&mut self) -> io::Result<u64> {
        let part = STEP_BYTES.min(self.bytes - self.at);
        let take = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.at, part);
        rustix::io::retry_on_intr(take)?;
        self.at += part;
        Ok(part)
    }

    /// All of it is there.
    pub(super) fn is_whole(&self) -> bool {
        self.at == self.bytes
    }

    /// The memory: who uses it never waits for the kernel to find a page. It can become neither smaller (a mapping would end in nothing) nor
    /// larger (it would be more than is counted), whoever has its descriptor.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If it is not whole.
    pub(super) fn finish(self) -> io::Result<OwnedFd> {
        assert!(self.is_whole());
        rustix::fs::fcntl_add_seals(&self.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(self.file)
    }
}

/// Gives the memory of a finished [`Making`] back to the machine, whoever still has its descriptor or has it mapped: who looks there finds
/// zeros.
///
/// # Errors
/// The system's.
pub(super) fn release(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, bytes))?)
}

/// Copies the first `bytes` from one to the other, unless `ends` says that nobody wants it any more.
///
/// # Errors
/// The system's, or that it was not wanted any more. (Memory of huge pages cannot be written this way.)
pub(super) fn copy(from: OwnedFd, to: &OwnedFd, bytes: u64, ends: impl Fn() -> bool) -> io::Result<()> {
    let (from, to) = (std::fs::File::from(from), std::fs::File::from(to.try_clone()?));
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = usize::try_from(bytes - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        from.read_exact_at(&mut buffer[..part], at)?;
        to.write_all_at(&buffer[..part], at)?;
        at += part as u64;
        if ends() {
            return Err(io::Error::other("the node ends"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(bytes: u64) -> OwnedFd {
        let mut making = Making::begin(bytes, false).expect("a file");
        while !making.is_whole() {
            making.step().expect("memory");
        }
        making.finish().expect("sealed")
    }

    #[test]
    fn it_is_there_and_stays_as_large_as_it_is() {
        let file = make(1 << 20);
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
    fn it_is_made_in_steps() {
        let mut making = Making::begin(STEP_BYTES + 4096, false).expect("a file");
        let there =
            |making: &Making| rustix::fs::fstat(&making.file).expect("it is open").st_blocks as u64 * 512;
        for step in [STEP_BYTES, 4096] {
            let before = there(&making);
            assert!(!making.is_whole());
            assert_eq!(making.step().expect("memory"), step);
            assert_eq!(there(&making), before + step);
        }
        assert!(making.is_whole());
    }

    /// Also from who has kept the descriptor.
    #[test]
    fn what_is_released_is_the_machines_again() {
        let file = make(1 << 20);
        let kept = std::fs::File::from(file.try_clone().expect("a descriptor"));
        kept.write_all_at(&[7; 4096], 4096).expect("written");
        release(&file, 1 << 20).expect("released");
        drop(file);
        let stat = rustix::fs::fstat(&kept).expect("it is open");
        assert_eq!((stat.st_size, stat.st_blocks), (1 << 20, 0));
        let mut back = [1; 4096];
        kept.read_exact_at(&mut back, 4096).expect("it ends in nothing bad");
        assert_eq!(back, [0; 4096]);
    }

    #[test]
    fn copies_are_whole() {
        let bytes = (COPY_BYTES + 4096) as u64;
        let made = || make(bytes);
        let (from, to) = (made(), made());
        let contents: Vec<u8> = (0..bytes).map(|at| (at / 11) as u8).collect();
        let from = std::fs::File::from(from);
        from.write_all_at(&contents, 0).expect("written");
        let from = OwnedFd::from(from);
        assert!(copy(from.try_clone().expect("a descriptor"), &to, bytes, || true).is_err(), "the node ends");
        copy(from, &to, bytes, || false).expect("copied");
        let mut back = vec![0; contents.len()];
        std::fs::File::from(to).read_exact_at(&mut back, 0).expect("read");
        assert!(back == contents);
    }
}
