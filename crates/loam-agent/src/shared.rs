//! The memory that the agent shares with one hand, seen from the agent.
//!
//! The program on the other side may be hostile or broken: it can write any byte of this memory at any time. So
//! nothing in it is ever borrowed as plain data. The control part is all atomics, valid whatever their bits;
//! contents are copied out once ([`Shared::copy_out`]) and judged only in the copy.

use loam_core::units::BASE_PAGE_BYTES;
use loam_hand::{
    COMMAND_PAGES, CONTROL_BYTES, Control, LAYOUT_VERSION, RING_COMMANDS, SHARED_BYTES, TRANSFER_BYTES,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The shared memory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("shared memory of {} KiB for a program: {what} failed ({errno}): free memory or raise the limit", SHARED_BYTES / 1024)]
pub(crate) struct SharedError {
    what: &'static str,
    errno: Errno,
}

/// A mapped memfd of [`SHARED_BYTES`], laid out as `loam_hand` says.
#[derive(Debug)]
pub(crate) struct Shared {
    memfd: OwnedFd,
    base: NonNull<u8>,
}

impl Shared {
    /// Makes and maps it, all zeros but for the layout's version. Its size is sealed: no program can shrink it
    /// under us and have us die by SIGBUS.
    ///
    /// # Errors
    /// [`SharedError`], for want of memory, descriptors or address space.
    pub(crate) fn create() -> Result<Self, SharedError> {
        let fail = |what| move |errno| SharedError { what, errno };
        let memfd = rustix::fs::memfd_create("loam-hand", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(fail("memfd_create"))?;
        rustix::fs::ftruncate(&memfd, SHARED_BYTES as u64).map_err(fail("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(fail("sealing"))?;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                SHARED_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memfd,
                0,
            )
        }
        .map_err(fail("mmap"))?;
        let base = NonNull::new(base.cast::<u8>()).expect("mmap gave address zero");
        // SAFETY: as in `Drop` and `discard`: our own mapping. A forked child of the agent has no use for it.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), SHARED_BYTES, rustix::mm::Advice::LinuxDontFork)
        };
        let shared = Self { memfd, base };
        shared.control().layout_version.store(LAYOUT_VERSION, Ordering::Release);
        Ok(shared)
    }

    /// The descriptor to send to the shim.
    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The control part.
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the mapping lives as long as `self`, is larger than `Control` and aligned to 4,096. `Control` is
        // made of atomic integers only, for which every bit pattern is valid and writes by others are no data race.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// Start of the transfer area of a command: [`TRANSFER_BYTES`] that the program may be writing. To be handed to
    /// the kernel (`writev`, `UFFDIO_COPY`) or to [`copy_out`](Self::copy_out); never to be made a reference.
    pub(crate) fn transfer(&self, slot: usize) -> *const u8 {
        assert!(slot < RING_COMMANDS, "no command {slot} in the ring");
        // SAFETY: inside the mapping: the last area ends at SHARED_BYTES.
        unsafe { self.base.as_ptr().add(CONTROL_BYTES + slot * TRANSFER_BYTES) }
    }

    /// Copies a page of a command's transfer area. What is hashed, stored and sent is this copy.
    pub(crate) fn copy_out(&self, slot: usize, page: usize, into: &mut [u8; BASE_PAGE_BYTES]) {
        assert!(page < COMMAND_PAGES, "no page {page} in a command");
        // SAFETY: inside the area of `slot`, as the asserts say.
        let from = unsafe { self.transfer(slot).add(page * BASE_PAGE_BYTES) };
        copy_racing(from, into);
    }

    /// Puts a page into a command's transfer area, in place of a hand that has ended.
    ///
    /// # Errors
    /// As `pwrite` says.
    pub(crate) fn copy_in(
        &self,
        slot: usize,
        page: usize,
        from: &[u8; BASE_PAGE_BYTES],
    ) -> Result<(), Errno> {
        assert!(slot < RING_COMMANDS && page < COMMAND_PAGES, "no page {page} of a command {slot}");
        let at = CONTROL_BYTES + slot * TRANSFER_BYTES + page * BASE_PAGE_BYTES;
        let wrote = rustix::io::pwrite(&self.memfd, from, at as u64)?;
        if wrote == BASE_PAGE_BYTES { Ok(()) } else { Err(Errno::IO) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping that `create` made; nothing borrowed from it outlives `self`.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), SHARED_BYTES) };
        assert!(result.is_ok(), "munmap of the shared memory failed: {result:?}");
    }
}

/// Copies a base page that another process may be writing. An ordinary copy would be a data race, with which the
/// compiler may do as it likes (read twice and believe both); this is one instruction that it cannot look into. The
/// copy may be torn, never anything worse.
fn copy_racing(from: *const u8, into: &mut [u8; BASE_PAGE_BYTES]) {
    // SAFETY: reads 4,096 bytes at `from`, inside the live mapping by the only caller, and writes 4,096 bytes into
    // `into`, which is ours alone. The direction flag is clear at every function's entry by the ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") BASE_PAGE_BYTES => _,
            inout("rsi") from => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_written_by_another_descriptor_come_out() {
        let shared = Shared::create().unwrap();
        let (slot, page) = (RING_COMMANDS - 1, COMMAND_PAGES - 1);
        let bytes: Vec<u8> = (0..BASE_PAGE_BYTES).map(|i| (i * 7 % 251) as u8).collect();
        let offset = (SHARED_BYTES - BASE_PAGE_BYTES) as u64;
        assert_eq!(rustix::io::pwrite(shared.memfd(), &bytes, offset).unwrap(), BASE_PAGE_BYTES);
        let mut out = [0; BASE_PAGE_BYTES];
        shared.copy_out(slot, page, &mut out);
        assert_eq!(out[..], bytes[..]);
        shared.copy_out(slot, page - 1, &mut out);
        assert_eq!(out, [0; BASE_PAGE_BYTES]);
        shared.copy_in(slot, page - 1, &[7; BASE_PAGE_BYTES]).unwrap();
        shared.copy_out(slot, page - 1, &mut out);
        assert_eq!(out, [7; BASE_PAGE_BYTES]);
        shared.copy_out(slot, page, &mut out);
        assert_eq!(out[..], bytes[..], "beside it nothing has changed");
    }

    #[test]
    fn control_is_at_the_start() {
        let shared = Shared::create().unwrap();
        shared.control().epoch.store(0x0102_0304, Ordering::Relaxed);
        let mut bytes = [0; CONTROL_BYTES];
        rustix::io::pread(shared.memfd(), &mut bytes, 0).unwrap();
        assert_eq!(bytes[..4], LAYOUT_VERSION.to_ne_bytes());
        assert!(bytes.windows(4).any(|four| four == 0x0102_0304_u32.to_ne_bytes()));
        assert!(shared.control().gate.try_lock());
        assert!(!shared.control().gate.try_lock());
        shared.control().gate.unlock();
    }

    #[test]
    fn nobody_can_resize_it() {
        let shared = Shared::create().unwrap();
        for bytes in [0, SHARED_BYTES as u64 - 1, SHARED_BYTES as u64 + 4096] {
            assert_eq!(rustix::fs::ftruncate(shared.memfd(), bytes), Err(Errno::PERM));
        }
        assert_eq!(rustix::fs::fcntl_add_seals(shared.memfd(), SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn it_is_unmapped_when_dropped() {
        let shared = Shared::create().unwrap();
        // By the file that is mapped: a test beside this one may be given the same address right after.
        let inode = rustix::fs::fstat(shared.memfd()).unwrap().st_ino.to_string();
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let ours = maps.lines().filter(|line| line.contains("memfd:loam-hand"));
            ours.filter_map(|line| line.split_whitespace().nth(4)).any(|of| of == inode)
        };
        assert!(mapped());
        drop(shared);
        assert!(!mapped());
    }
}
