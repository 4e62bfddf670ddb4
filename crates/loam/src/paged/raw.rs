//! Memory of the region as `malloc`, `calloc`, `realloc` and `free` give it, for libraries that make these available to others: bindings, allocators.
//!
//! Give it large requests only, of the region's `--min-alloc` and more. Smaller ones, and what the region has no room for, may be served by the program's
//! ordinary allocator, or be refused: [`region`] tells which of the two an address is.

use super::{Advice, PagedError, Priority, Terms, said, served};
use std::ops::Range;
use std::ptr::NonNull;

/// The addresses of this process's region. None: it is not served, or by a `loam run` without `--region`, where all of its memory is borrowed for.
pub fn region() -> Option<Range<usize>> {
    served()?.region()
}

/// Memory with any contents, aligned to 16 bytes. What was freed of late is used again before fresh memory is.
///
/// # Errors
/// [`PagedError::NotConnected`], [`PagedError::Full`].
pub fn allocate(bytes: usize) -> Result<NonNull<u8>, PagedError> {
    served().ok_or(PagedError::NotConnected)?.allocate(bytes).ok_or(PagedError::Full { bytes })
}

/// The same, aligned to more.
///
/// # Errors
/// As [`allocate`].
///
/// # Panics
/// If `align` is not a power of two.
pub fn aligned(align: usize, bytes: usize) -> Result<NonNull<u8>, PagedError> {
    assert!(align.is_power_of_two(), "memory cannot be aligned to {align} bytes");
    let shim = served().ok_or(PagedError::NotConnected)?;
    let memory = if align <= 16 { shim.allocate(bytes) } else { shim.aligned(align, bytes) };
    memory.ok_or(PagedError::Full { bytes })
}

/// The same of zeros, none of which is touched.
///
/// # Errors
/// As [`allocate`].
pub fn zeros(bytes: usize) -> Result<NonNull<u8>, PagedError> {
    super::zeros(bytes)
}

/// Makes it larger or smaller, where it is or elsewhere; what is new has any contents.
///
/// # Errors
/// As [`allocate`]; then `memory` is as it was.
///
/// # Safety
/// `memory` is from here and was not freed; unless this fails, nobody uses it any more.
pub unsafe fn resize(memory: NonNull<u8>, bytes: usize) -> Result<NonNull<u8>, PagedError> {
    // SAFETY: the caller's promise.
    unsafe { super::resize(Some(memory), bytes) }
}

/// The bytes that it has, at least as many as were asked for: of the region's memory whole base pages. 0 if this process was never served.
///
/// # Safety
/// `memory` is from here and was not freed.
pub unsafe fn usable(memory: NonNull<u8>) -> usize {
    // SAFETY: the caller's promise.
    served().map_or(0, |shim| unsafe { shim.usable(memory) })
}

/// Frees it.
///
/// # Panics
/// If this process was never served: then it has nothing from here.
///
/// # Safety
/// `memory` is from here and was not freed; nobody uses it any more.
pub unsafe fn free(memory: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { super::free(memory) };
}

/// [`advise`](super::advise), of addresses.
///
/// # Errors
/// As there.
pub fn advise(range: Range<usize>, advice: Advice) -> Result<(), PagedError> {
    let shim = served().ok_or(PagedError::NotConnected)?;
    // First: an agent that answers too late has heard it all the same.
    if matches!(advice, Advice::Sequential | Advice::Random) {
        said::remember(&range);
    }
    shim.advise(range, advice)
}

/// [`prioritize`](super::prioritize), of addresses.
///
/// # Errors
/// As there.
pub fn prioritize(range: Range<usize>, priority: Priority) -> Result<(), PagedError> {
    let shim = served().ok_or(PagedError::NotConnected)?;
    // As above.
    if priority != Priority::Normal {
        said::remember(&range);
    }
    shim.prioritize(range, priority)
}

/// [`set_terms`](super::set_terms), of addresses.
///
/// # Errors
/// As there.
pub fn set_terms(range: Range<usize>, terms: &Terms) -> Result<(), PagedError> {
    terms.check()?;
    let shim = served().ok_or(PagedError::NotConnected)?;
    // As above.
    if *terms != Terms::new() {
        said::remember(&range);
    }
    shim.set_terms(range, terms)
}

/// Memory that is not from here is about to be freed, or to become another size: what was said of it holds no longer. It costs nothing where nothing was said
/// near it; of less than a base page (4 KiB) nothing is forgotten, for others may lie in the same one. (What is from here needs no such call.)
pub fn forget(range: Range<usize>) {
    if let Some(shim) = served() {
        said::forget_range(shim, range);
    }
}

/// Requests of so many bytes and more are the region's (`--min-alloc`). None: as of [`region`].
pub fn least() -> Option<usize> {
    served()?.region_least()
}
