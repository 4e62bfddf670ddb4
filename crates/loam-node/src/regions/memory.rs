//! The memory of regions: a file that exists only in memory for each stretch, as large for ever as it was made.

use loam_disk::{Mapped, Placement};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that are taken from the machine at a time: some tens of milliseconds. In between there is time to see that the node ends.
pub(super) const STEP_BYTES: u64 = if cfg!(test) { 8192 } else { 64 << 20 };
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
const HUGE_BYTES: usize = 2 << 20;

/// A file of memory that is being made. It goes, and its memory with it, when it is dropped.
#[derive(Debug)]
pub(super) struct Making {
    file: Arc<OwnedFd>,
    bytes: u64,
    /// So many of them are there.
    at: u64,
    /// Pages come through it: the kernel keeps no policy with a file of huge pages, so it has to be a mapping that has it.
    through: Option<Mapped>,
}

impl Making {
    /// Memory of `bytes`, none of it there yet, that will come from where `placement` says.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(bytes: u64, huge: bool, placement: Option<Placement>) -> io::Result<Self> {
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
        let mut through = None;
        if let Some(placement) = placement {
            let whole = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let mapped = Mapped::new(&file, 0, whole, if huge { HUGE_BYTES } else { PAGE_BYTES })?;
            mapped.place(placement)?;
            through = huge.then_some(mapped);
        }
        Ok(Self { file: Arc::new(file), bytes, at: 0, through })
    }

    /// Takes the next piece from the machine; answers its bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn step(&mut self) -> io::Result<u64> {
        let part = STEP_BYTES.min(self.bytes - self.at);
        if let Some(mapped) = &self.through {
            mapped.take(self.at as usize..(self.at + part) as usize)?;
        } else {
            let take = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.at, part);
            rustix::io::retry_on_intr(take)?;
        }
        self.at += part;
        Ok(part)
    }

    /// All of it is there.
    pub(super) fn is_whole(&self) -> bool {
        self.at == self.bytes
    }

    /// What is being made, to be written to.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// The memory: who uses it never waits for the kernel to find a page. It can become neither smaller (a mapping would end in nothing) nor
    /// larger (it would be more than is counted), whoever has its descriptor.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If it is not whole.
    pub(super) fn finish(&self) -> io::Result<Arc<OwnedFd>> {
        assert!(self.is_whole());
        rustix::fs::fcntl_add_seals(&self.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Arc::clone(&self.file))
    }
}

/// Gives `bytes` from `from` on of a finished [`Making`] back to the machine, whoever still has its descriptor or has it mapped: who looks there finds
/// zeros.
///
/// # Errors
/// The system's.
pub(super) fn release(file: &OwnedFd, from: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, from, bytes))?)
}

/// Copies the next piece of the first `bytes` from one to the other, from `at` on; answers its bytes.
///
/// # Errors
/// The system's. (Memory of huge pages cannot be written this way.)
pub(super) fn copy_step(from: &OwnedFd, to: &OwnedFd, at: u64, bytes: u64) -> io::Result<u64> {
    let (from, to) = (std::fs::File::from(from.try_clone()?), std::fs::File::from(to.try_clone()?));
    let end = bytes.min(at + STEP_BYTES);
    let mut buffer = vec![0; COPY_BYTES];
    let mut next = at;
    while next < end {
        let part = usize::try_from(end - next).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        from.read_exact_at(&mut buffer[..part], next)?;
        to.write_all_at(&buffer[..part], next)?;
        next += part as u64;
    }
    Ok(end - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(bytes: u64) -> Arc<OwnedFd> {
        let mut making = Making::begin(bytes, false, None).expect("a file");
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
        let mut making = Making::begin(STEP_BYTES + 4096, false, None).expect("a file");
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
        release(&file, 0, 1 << 20).expect("released");
        drop(file);
        let stat = rustix::fs::fstat(&kept).expect("it is open");
        assert_eq!((stat.st_size, stat.st_blocks), (1 << 20, 0));
        let mut back = [1; 4096];
        kept.read_exact_at(&mut back, 4096).expect("it ends in nothing bad");
        assert_eq!(back, [0; 4096]);
    }

    #[test]
    fn copies_are_whole() {
        let bytes = STEP_BYTES + 4096;
        let (from, to) = (make(bytes + 4096), make(bytes));
        let contents: Vec<u8> = (0..bytes + 4096).map(|at| (at / 11) as u8 | 1).collect();
        let file = std::fs::File::from(from.try_clone().expect("a descriptor"));
        file.write_all_at(&contents, 0).expect("written");
        assert_eq!(copy_step(&from, &to, 0, bytes).expect("copied"), STEP_BYTES);
        let mut back = vec![0; bytes as usize];
        let file = std::fs::File::from(to.try_clone().expect("a descriptor"));
        file.read_exact_at(&mut back, 0).expect("read");
        assert!(back[STEP_BYTES as usize..].iter().all(|byte| *byte == 0), "in steps");
        assert_eq!(copy_step(&from, &to, STEP_BYTES, bytes).expect("copied"), 4096);
        file.read_exact_at(&mut back, 0).expect("read");
        assert!(back == contents[..back.len()]);
    }

    /// What the kernel says of a mapping of the finished file: who has it open elsewhere is told the same.
    #[test]
    fn it_comes_from_where_it_is_to_come_from() {
        for (placement, told) in [(None, "default"), (Some(Placement::Bind(1)), "bind:0")] {
            let mut making = Making::begin(1 << 20, false, placement).expect("a file");
            while !making.is_whole() {
                making.step().expect("memory");
            }
            let file = making.finish().expect("sealed");
            assert_eq!(rustix::fs::fstat(&file).expect("open").st_blocks, (1 << 20) / 512);
            let _mapped = Mapped::new(&file, 0, 1 << 20, PAGE_BYTES).expect("mapped");
            let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel with NUMA");
            let ours = maps.lines().filter(|line| line.contains("loam-region"));
            assert!(ours.map(|line| line.split(' ').nth(1)).any(|policy| policy == Some(told)), "{maps}");
        }
        let absent = Making::begin(1 << 20, false, Some(Placement::Bind(1 << 63)));
        assert_eq!(absent.err().and_then(|why| why.raw_os_error()), Some(22));
    }
}
