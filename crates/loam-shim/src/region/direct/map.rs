//! The mappings of a direct region.

use loam_hand::BASE_PAGE_BYTES;

use crate::sys::map::{
    ADVICE_DODUMP, ADVICE_DONTDUMP, ADVICE_DONTFORK, ADVICE_POPULATE_WRITE, ANONYMOUS, FIXED,
    FIXED_NOREPLACE, NORESERVE, PRIVATE, PROTECTION_NONE, PROTECTION_READ, PROTECTION_READ_WRITE, SHARED,
    advise, copy_shared, map, map_from, protect, unmap,
};
use crate::sys::{Fd, Result};

/// The table: a forked child shares it.
pub(super) fn shared(bytes: usize, fd: Fd) -> Result<usize> {
    // SAFETY: a new mapping where the kernel finds room.
    unsafe { map(0, bytes, PROTECTION_READ_WRITE, SHARED, fd) }
}

/// All of the pool, without access: what chunks are mapped from. A forked child has it, too, and can do nothing with it by mistake.
pub(super) fn pool(bytes: usize, fd: Fd, offset: u64) -> Result<usize> {
    // SAFETY: a new mapping where the kernel finds room; nobody can read or write it.
    unsafe {
        let address = map_from(0, bytes, PROTECTION_NONE, SHARED, fd, offset as usize)?;
        advise(address, bytes, ADVICE_DONTDUMP)?;
        Ok(address)
    }
}

const EMPTY: usize = PRIVATE | ANONYMOUS | NORESERVE;

/// Regions begin between here and twice that: far below where the kernel looks for room first, above what programs choose by themselves.
const LOW: usize = 1 << 44;

/// Addresses for the region, at a multiple of a chunk's size, with a page without access at least on either side. In a child the chunks leave gaps
/// (`MADV_DONTFORK`), which the kernel would give to the child's next mapping if there were none above them. `anywhere` is what it has chosen for another mapping, at random.
pub(super) fn reserve(bytes: usize, align: usize, anywhere: usize) -> Result<usize> {
    let wish = LOW + anywhere % LOW / BASE_PAGE_BYTES * BASE_PAGE_BYTES;
    // SAFETY: a new mapping, without access, where the kernel finds room: at the wish, if nothing is there.
    let low = unsafe { map(wish, bytes + align + BASE_PAGE_BYTES, PROTECTION_NONE, EMPTY, -1) }?;
    Ok((low + BASE_PAGE_BYTES).next_multiple_of(align))
}

/// Maps what is mapped at `from` (in the pool) at `address` of the region, too: all of its pages at once, and not for children. On an error nothing is there.
pub(super) fn chunk(from: usize, bytes: usize, address: usize) -> Result<()> {
    // SAFETY: the caller's own address, at which nothing of the program is.
    unsafe { copy_shared(from, bytes, Some(address)) }.inspect_err(|_| {
        // If the kernel has taken away what was there, it is put back, unless another thread's mapping is there by now.
        let _ = nothing_new(address, bytes);
    })?;
    // SAFETY: mapped just now.
    let made = unsafe {
        advise(address, bytes, ADVICE_DONTFORK)
            .and_then(|()| advise(address, bytes, ADVICE_DODUMP))
            .and_then(|()| protect(address, bytes, PROTECTION_READ_WRITE))
    };
    match made {
        Ok(()) => populate(address, bytes),
        Err(_) => _ = nothing(address, bytes),
    }
    made
}

/// Has all pages mapped at once. Where the kernel does not, each is touched for the first time, as any other.
pub(super) fn populate(address: usize, bytes: usize) {
    // SAFETY: the contents stay as they are.
    let _ = unsafe { advise(address, bytes, ADVICE_POPULATE_WRITE) };
}

/// Maps a chunk of another process's for reading, where the kernel finds room; to be ended by [`unmap`].
pub(super) fn foreign(from: usize, bytes: usize) -> Result<usize> {
    again(from, bytes, PROTECTION_READ)
}

/// Maps a part of a chunk once more, for writing, whatever the program may do there; to be ended by [`unmap`].
pub(super) fn writable(from: usize, bytes: usize) -> Result<usize> {
    again(from, bytes, PROTECTION_READ_WRITE)
}

fn again(from: usize, bytes: usize, protection: usize) -> Result<usize> {
    // SAFETY: a new mapping, which nobody knows.
    unsafe {
        let address = copy_shared(from, bytes, None)?;
        // Before it can be read or written: a child made meanwhile behind libc's back must not have it.
        advise(address, bytes, ADVICE_DONTFORK)
            .and_then(|()| protect(address, bytes, protection))
            .inspect_err(|_| unmap(address, bytes))?;
        Ok(address)
    }
}

/// Lets memory be written, if anybody has forbidden that. An error leaves it as it is: then nobody had.
pub(super) fn allow(address: usize, bytes: usize) {
    // SAFETY: the caller's own, of which the program uses nothing.
    let _ = unsafe { protect(address, bytes, PROTECTION_READ_WRITE) };
}

/// Memory of the process's own, zeros.
pub(super) fn private(address: usize, bytes: usize) -> Result<()> {
    // SAFETY: the caller's own address, at which nothing of the program is.
    unsafe { map(address, bytes, PROTECTION_READ_WRITE, PRIVATE | ANONYMOUS | FIXED, -1) }.map(drop)
}

/// What was there goes; the addresses stay taken.
pub(super) fn nothing(address: usize, bytes: usize) -> Result<()> {
    // SAFETY: the caller's own, of which the program uses nothing.
    unsafe { map(address, bytes, PROTECTION_NONE, EMPTY | FIXED, -1) }.map(drop)
}

/// Takes addresses that a fork has left free. An error: somebody else has them by now.
pub(super) fn nothing_new(address: usize, bytes: usize) -> Result<()> {
    // SAFETY: it replaces nothing.
    unsafe { map(address, bytes, PROTECTION_NONE, EMPTY | FIXED_NOREPLACE, -1) }.map(drop)
}
