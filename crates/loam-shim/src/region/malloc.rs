//! libc's functions for memory, as the program finds them: large requests are served from the region, everything else is the next allocator's.
//! A request that the region has no room for is the next allocator's, too.
//!
//! None of the exported functions calls another: by such a name the dynamic linker finds libc's, where the program has loaded the shim itself
//! (`dlopen`). What they share are the private functions at the beginning.

use core::ffi::{c_int, c_void};

use loam_hand::BASE_PAGE_BYTES;

use super::{contains, is_large, next};
use crate::throttle;

type Memory = *mut c_void;

/// C's `max_align_t`: what memory is aligned to that nobody asked more of. Any page is.
const ALIGN: usize = 16;

/// Sizes above are refused by every allocator: `ptrdiff_t` could not tell the distance of their ends.
const BYTES_MAX: usize = isize::MAX as usize;

/// From the region, if it is large and there is room.
#[inline(always)]
fn region(bytes: usize, align: usize, zeros: bool) -> Option<Memory> {
    if !is_large(bytes) || bytes > BYTES_MAX {
        return None;
    }
    super::allocate(bytes, align, zeros).map(|address| address as Memory)
}

#[inline(always)]
fn allocate(bytes: usize) -> Memory {
    region(bytes, ALIGN, false).unwrap_or_else(|| next::malloc(bytes))
}

/// # Safety
/// As [`free`].
#[inline(always)]
unsafe fn give_back(memory: Memory) {
    if contains(memory as usize) {
        super::free(memory as usize);
    } else {
        // SAFETY: the caller's promise.
        unsafe { next::free(memory) };
    }
}

/// # Safety
/// As [`realloc`].
#[inline(always)]
unsafe fn resize(memory: Memory, bytes: usize) -> Memory {
    if memory.is_null() {
        return allocate(bytes);
    }
    if contains(memory as usize) {
        // SAFETY: the caller's promise.
        return unsafe { resize_in_region(memory, bytes) };
    }
    if is_large(bytes) {
        // SAFETY: the caller's promise.
        return unsafe { resize_of_next(memory, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { next::realloc(memory, bytes) }
}

/// An allocation of the region stays there if it stays large.
///
/// # Safety
/// `memory` is in the region.
unsafe fn resize_in_region(memory: Memory, bytes: usize) -> Memory {
    let old_bytes = super::usable(memory as usize, b"realloc");
    if bytes == 0 {
        super::free(memory as usize); // as glibc does
        return core::ptr::null_mut();
    }
    if bytes > BYTES_MAX {
        return next::out_of_memory();
    }
    let is_large = is_large(bytes);
    if is_large && super::resize(memory as usize, bytes) {
        return memory;
    }
    let new = allocate(bytes);
    if new.is_null() {
        // What becomes smaller can always stay.
        return if bytes <= old_bytes { memory } else { new };
    }
    // SAFETY: two allocations, the old one of `old_bytes`, the new one of `bytes` at least.
    unsafe { core::ptr::copy_nonoverlapping(memory, new, old_bytes.min(bytes)) };
    super::free(memory as usize);
    new
}

/// An allocation of the next allocator's becomes large: it comes into the region, if that has room and the old size can be known.
///
/// # Safety
/// `memory` is an allocation of the next allocator's.
unsafe fn resize_of_next(memory: Memory, bytes: usize) -> Memory {
    let new = if next::has_usable() { region(bytes, ALIGN, false) } else { None };
    let Some(new) = new else {
        // SAFETY: the caller's promise.
        return unsafe { next::realloc(memory, bytes) };
    };
    // SAFETY: the caller's promise; the new allocation has `bytes`, and the old one is not used any more.
    unsafe {
        let old_bytes = next::usable(memory);
        core::ptr::copy_nonoverlapping(memory, new, old_bytes.min(bytes));
        next::free(memory);
    }
    new
}

/// `malloc(3)`.
#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> Memory {
    allocate(bytes)
}

/// `calloc(3)`.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> Memory {
    let all = count.checked_mul(bytes);
    all.and_then(|all| region(all, ALIGN, true)).unwrap_or_else(|| next::calloc(count, bytes))
}

/// `free(3)`. Leaves `errno` as it is.
///
/// # Safety
/// As the C function. Of the region's memory what is wrong is found, and ends the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: Memory) {
    // SAFETY: the caller's promise.
    unsafe { give_back(memory) };
}

/// `free_sized` of C23. A libc that has it frees by a call inside of itself, which would not come here.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(memory: Memory, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { give_back(memory) };
}

/// `free_aligned_sized` of C23.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(memory: Memory, _: usize, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { give_back(memory) };
}

/// `malloc_usable_size(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: Memory) -> usize {
    if contains(memory as usize) {
        return super::usable(memory as usize, b"malloc_usable_size");
    }
    // SAFETY: the caller's promise.
    if memory.is_null() { 0 } else { unsafe { next::usable(memory) } }
}

/// `realloc(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: Memory, bytes: usize) -> Memory {
    // SAFETY: the caller's promise.
    unsafe { resize(memory, bytes) }
}

/// `reallocarray(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: Memory, count: usize, bytes: usize) -> Memory {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's promise.
        Some(all) => unsafe { resize(memory, all) },
        None => next::out_of_memory(),
    }
}

/// `memalign(3)`.
#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, bytes: usize) -> Memory {
    let region = if align.is_power_of_two() { region(bytes, align, false) } else { None };
    region.unwrap_or_else(|| next::memalign(align, bytes))
}

/// `aligned_alloc(3)`.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, bytes: usize) -> Memory {
    let region = if align.is_power_of_two() { region(bytes, align, false) } else { None };
    region.unwrap_or_else(|| next::aligned_alloc(align, bytes))
}

/// `posix_memalign(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(into: *mut Memory, align: usize, bytes: usize) -> c_int {
    let right = align.is_power_of_two() && align.is_multiple_of(size_of::<Memory>());
    match if right { region(bytes, align, false) } else { None } {
        Some(memory) => {
            // SAFETY: the caller's promise.
            unsafe { into.write(memory) };
            0
        }
        // SAFETY: the caller's promise.
        None => unsafe { next::posix_memalign(into, align, bytes) },
    }
}

/// `valloc(3)`.
#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> Memory {
    region(bytes, BASE_PAGE_BYTES, false).unwrap_or_else(|| next::valloc(bytes))
}

/// `pvalloc(3)`: whole pages.
#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> Memory {
    let whole = bytes.checked_next_multiple_of(BASE_PAGE_BYTES);
    whole.and_then(|whole| region(whole, BASE_PAGE_BYTES, false)).unwrap_or_else(|| next::pvalloc(bytes))
}

/// `sbrk(2)`: allocators other than libc's take memory by it.
#[unsafe(no_mangle)]
extern "C" fn sbrk(bytes: isize) -> Memory {
    throttle::ask();
    next::sbrk(bytes)
}
