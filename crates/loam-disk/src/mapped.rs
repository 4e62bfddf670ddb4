//! A file that is memory (a file in memory, a DAX device), mapped by who prepares it for others: it is told from which memory nodes its pages
//! come, its pages are taken, what was in it is cleared. Or mapped by who lends it, to copy pages out. Nobody gets a reference into it.

use rustix::fd::AsFd;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// From which memory nodes pages come: mbind(2)'s modes. A bit each for memory nodes 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// That of the processor which takes the page.
    Local,
    /// These, and no other.
    Bind(u64),
    /// These by turns.
    Interleave(u64),
    /// These first.
    Preferred(u64),
}

/// The kernel has put a mapping where no page of the file's can be. It knows the pages of a DAX device and of hugetlbfs, and does not do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel maps it at {address:#x}, which is no multiple of {align_bytes} bytes")]
pub struct Misaligned {
    /// Where it was mapped.
    pub address: usize,
    /// What that should be a multiple of.
    pub align_bytes: usize,
}

/// Bytes of a file, mapped for as long as this lives.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the whole process, so it does not matter which thread unmaps it.
unsafe impl Send for Mapped {}
// SAFETY: what `&self` does is a copy out, or a call to the kernel, which orders such calls itself; only `&mut self` writes to the memory.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `bytes` from `offset` on, at an address that is a multiple of `align_bytes`, as a DAX device with pages of that size wants it.
    ///
    /// The kernel chooses the address. To set some aside and to map there would be no better: where that fails the kernel may have freed the place already,
    /// and another thread may have mapped something there, which nobody could tell.
    ///
    /// # Errors
    /// The system's; [`Misaligned`], within [`io::ErrorKind::Unsupported`].
    ///
    /// # Panics
    /// If `align_bytes` is no power of two of at least 4096, or `offset` or `bytes` no multiple of it, or `bytes` 0.
    pub fn new(file: impl AsFd, offset: u64, bytes: usize, align_bytes: usize) -> io::Result<Self> {
        assert!(align_bytes.is_power_of_two() && align_bytes >= 4096, "{align_bytes}");
        assert!(bytes > 0 && bytes.is_multiple_of(align_bytes) && offset.is_multiple_of(align_bytes as u64));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of the program.
        let base = unsafe { mm::mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        // From here on dropping it unmaps it.
        let this = Self { base, bytes };
        // What is in it is other people's: it is not to be on the disk because this process has crashed.
        // SAFETY: the mapping made above; the advice leaves its contents alone.
        unsafe { mm::madvise(base.as_ptr(), bytes, Advice::LinuxDontDump)? };
        let address = base.as_ptr().addr();
        if !address.is_multiple_of(align_bytes) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, Misaligned { address, align_bytes }));
        }
        Ok(this)
    }

    /// Says from which memory nodes its pages come, those that are not there yet. A file in memory of ordinary pages keeps that for as long as it is there,
    /// whoever takes the pages; for huge pages it holds for [`Self::take`] of this mapping alone.
    ///
    /// # Errors
    /// The system's: EINVAL if one of them is not there, or not this process's to use.
    pub fn place(&self, placement: Placement) -> io::Result<()> {
        let (mode, nodes) = match placement {
            Placement::Local => (libc::MPOL_LOCAL, 0),
            Placement::Bind(nodes) => (libc::MPOL_BIND, nodes),
            Placement::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
            Placement::Preferred(nodes) => (libc::MPOL_PREFERRED, nodes),
        };
        // Two words: the kernel takes one bit less than it is told.
        let mask = [nodes, 0_u64];
        let (mask_at, bits) = if nodes == 0 { (null_mut(), 0) } else { (mask.as_ptr().cast_mut(), 65_u64) };
        // SAFETY: the range is this mapping, and the kernel reads `bits` rounded up to words, which `mask` has. It changes which pages will be taken,
        // not what any byte is.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                mode as libc::c_ulong,
                mask_at,
                bits,
                0_u32,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes the pages of a range from the machine, as the first touch of each would; contents stay.
    ///
    /// # Errors
    /// The system's: EFAULT where there are none (any more), or the memory is damaged.
    ///
    /// # Panics
    /// If it is not within the mapping.
    pub fn take(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes);
        loop {
            // SAFETY: the range is within the mapping, and no byte changes by it.
            let done = unsafe {
                let from = self.base.byte_add(range.start).as_ptr();
                libc::madvise(from, range.len(), libc::MADV_POPULATE_WRITE)
            };
            if done == 0 {
                return Ok(());
            }
            let why = io::Error::last_os_error();
            if why.kind() != io::ErrorKind::Interrupted {
                return Err(why);
            }
        }
    }

    /// Forgets where the pages of a range are: whoever reads them next finds them in the file again, as they are. To take a page away from a file that is mapped here
    /// means that each core has to forget it by itself (measured: 12 us a page; 2 to 3 where it is not mapped in).
    ///
    /// # Panics
    /// If it is not within the mapping, or not of whole pages.
    pub fn unmap(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes);
        assert!(range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096));
        // SAFETY: the range is within the mapping, which is shared: the file keeps its bytes, and nobody has a reference into it. Without the call (it has failed) all
        // is as it was.
        unsafe {
            let from = self.base.byte_add(range.start).as_ptr();
            libc::madvise(from, range.len(), libc::MADV_DONTNEED);
        }
    }

    /// How many are mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes out, from `offset` on. What has no page yet is zeros, and takes one.
    ///
    /// Whoever writes to the file meanwhile may be seen half-way: that nobody does is the caller's to know, if it matters. A page that the
    /// machine cannot give (the file has become shorter, its memory is damaged) is a signal (SIGBUS), not an error.
    ///
    /// # Panics
    /// If they are not within the mapping.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.bytes && to.len() <= self.bytes - offset, "bytes beyond the mapping");
        // SAFETY: the range is within the mapping, which lives as long as `self`; `to` is no part of it, as nobody has a reference into it. Bytes of a
        // mapping are always some value.
        unsafe {
            let from = self.base.byte_add(offset).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
        }
    }

    /// Makes all bytes of a range 0, and takes their pages.
    ///
    /// # Errors
    /// As [`Self::take`].
    ///
    /// # Panics
    /// As [`Self::take`].
    pub fn clear(&mut self, range: Range<usize>) -> io::Result<()> {
        // A page that cannot be had is an error here, and would be a signal below.
        self.take(range.clone())?;
        // SAFETY: the range is within the mapping, its pages were just there, and nobody has a reference into it. (Who has the file mapped elsewhere
        // sees it through addresses of its own.)
        unsafe { self.base.byte_add(range.start).cast::<u8>().write_bytes(0, range.len()) };
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is whole and this value's alone: it was made whole by one call, and nothing else unmaps any of it. Nobody has a reference
        // into it.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Whether a file's bytes are mapped as they lie on their medium (DAX), with no page cache between: asked as MAP_SYNC, which nothing else can do.
///
/// # Errors
/// The system's, but for the answer no.
pub fn is_dax(file: impl AsFd) -> io::Result<bool> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of the program; nothing reads or writes it.
    let mapped = unsafe { mm::mmap(null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) };
    match mapped {
        Ok(at) => {
            // SAFETY: it was just mapped, and nobody has a reference into it.
            unsafe { mm::munmap(at, 4096)? };
            Ok(true)
        }
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => Ok(false),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::fs::MemfdFlags;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const MIB: usize = 1 << 20;

    fn memory(bytes: usize) -> File {
        let file: OwnedFd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, bytes as u64).expect("sized");
        File::from(file)
    }

    #[test]
    fn what_was_there_is_cleared_and_nothing_else() {
        let file = memory(8 * MIB);
        file.write_all_at(&vec![7; 8 * MIB], 0).expect("written");
        let mut mapped = Mapped::new(&file, 2 * MIB as u64, 4 * MIB, 4096).expect("mapped");
        mapped.clear(MIB..3 * MIB).expect("cleared");
        let mut back = vec![0; 8 * MIB];
        file.read_exact_at(&mut back, 0).expect("read");
        for (at, byte) in back.iter().enumerate() {
            assert_eq!(*byte == 0, (3 * MIB..5 * MIB).contains(&at), "{at}");
        }
    }

    #[test]
    fn what_was_written_to_the_file_is_read() {
        let file = memory(2 * MIB);
        let mapped = Mapped::new(&file, 0, 2 * MIB, 4096).expect("mapped");
        let contents: Vec<u8> = (0..3 * 4096).map(|at| (at / 7) as u8).collect();
        file.write_all_at(&contents, MIB as u64).expect("written");
        let mut back = vec![1; 4 * 4096];
        mapped.read(MIB - 4096, &mut back);
        assert!(back[..4096].iter().all(|byte| *byte == 0), "nothing was written there");
        assert_eq!(back[4096..], contents);
        mapped.read(2 * MIB, &mut []);
    }

    /// As the kernel has noted it: a core dump of who lends would else have its borrowers' pages.
    #[test]
    fn a_core_dump_does_not_have_it() {
        let mapped = Mapped::new(memory(MIB), 0, MIB, 4096).expect("mapped");
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("ours");
        let place = format!("{:x}-", mapped.base.as_ptr().addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&place));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("a mapping has flags");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn nothing_is_read_beyond_the_end() {
        let mapped = Mapped::new(memory(MIB), 0, MIB, 4096).expect("mapped");
        mapped.read(MIB - 4096, &mut [0; 4097]);
    }

    /// What the kernel puts elsewhere than it is wanted is not used. (A file of ordinary pages may be put at a multiple of 2 MiB, and not of 1 GiB.)
    #[test]
    fn what_is_not_aligned_is_told() {
        const GIB: usize = 1 << 30;
        let file = memory(GIB);
        let between = memory(4 * MIB);
        let mut told = 0;
        let mut held = Vec::new();
        // By chance there may be an aligned place, also twice.
        while told == 0 && held.len() < 64 {
            held.push(Mapped::new(&between, 0, 4 * MIB, 4096).expect("mapped"));
            match Mapped::new(&file, 0, GIB, GIB) {
                Ok(mapped) => {
                    assert_eq!(mapped.base.as_ptr().addr() % GIB, 0);
                    held.push(mapped);
                }
                Err(why) => {
                    assert_eq!(why.kind(), io::ErrorKind::Unsupported);
                    let why = why.downcast::<Misaligned>().expect("what it is");
                    assert!(why.align_bytes == GIB && !why.address.is_multiple_of(GIB));
                    let maps = std::fs::read_to_string("/proc/self/maps").expect("ours");
                    let place = format!("{:x}-", why.address);
                    assert!(!maps.lines().any(|line| line.starts_with(&place)), "it is not mapped any more");
                    told += 1;
                }
            }
        }
        assert!(told > 0, "4 MiB between each two of them");
    }

    /// Of huge pages, more than any machine has set aside.
    #[test]
    fn what_cannot_be_mapped_leaves_nothing_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let Ok(file) = rustix::fs::memfd_create("test-huge", flags) else {
            println!("passed over: a kernel without huge pages");
            return;
        };
        rustix::fs::ftruncate(&file, 1 << 42).expect("sized");
        let why = Mapped::new(&file, 0, 1 << 42, 2 * MIB).expect_err("4 TiB of huge pages");
        assert_eq!(why.raw_os_error(), Some(libc::ENOMEM));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("ours");
        assert!(!maps.contains("test-huge"));
    }

    #[test]
    fn pages_are_taken_or_it_is_told() {
        let file = memory(MIB);
        let blocks = || rustix::fs::fstat(&file).expect("it is open").st_blocks * 512;
        let mapped = Mapped::new(&file, 0, MIB, 4096).expect("mapped");
        mapped.take(4096..3 * 4096).expect("taken");
        assert_eq!(blocks(), 2 * 4096);
        rustix::fs::ftruncate(&file, 4096).expect("shrunk");
        assert!(mapped.take(0..2 * 4096).is_err(), "no signal");
    }

    /// What the kernel has noted of the mapping: the policy is the file's.
    #[test]
    fn the_kernel_knows_where_pages_come_from() {
        let policy = |of: &Mapped| {
            let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel with NUMA");
            let place = format!("{:x} ", of.base.as_ptr().addr());
            let line = maps.lines().find(|line| line.starts_with(&place)).expect("a mapping");
            line.split(' ').nth(1).expect("a policy").to_owned()
        };
        for (placement, told) in [
            (Placement::Bind(1), "bind:0"),
            (Placement::Interleave(1), "interleave:0"),
            (Placement::Preferred(1), "prefer:0"),
            (Placement::Local, "local"),
        ] {
            let file = memory(MIB);
            let mapped = Mapped::new(&file, 0, MIB, 4096).expect("mapped");
            assert_eq!(policy(&mapped), "default");
            mapped.place(placement).expect("node 0 is there");
            assert_eq!(policy(&mapped), told);
            drop(mapped);
            let again = Mapped::new(&file, 0, MIB, 4096).expect("mapped");
            assert_eq!(policy(&again), told, "it is the file's, not the mapping's");
        }
        let mapped = Mapped::new(memory(MIB), 0, MIB, 4096).expect("mapped");
        assert_eq!(
            mapped.place(Placement::Bind(1 << 63)).map_err(|why| why.raw_os_error()),
            Err(Some(libc::EINVAL)),
            "all 64 bits are read"
        );
    }

    #[test]
    fn a_file_in_memory_is_no_dax() {
        assert!(!is_dax(memory(MIB)).expect("an answer"));
    }
}
