//! The region for collections that ask an allocator.

use super::raw;
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Takes memory as [`raw`] does: the standard library's unstable trait, as the crate `allocator_api2` has it, which vectors and boxes of that crate, `hashbrown`'s maps
/// and others take.
///
/// Collections grow: until one has the region's `--min-alloc` (256 KiB) it is ordinary memory, and then it moves.
///
/// ```no_run
/// use allocator_api2::vec::Vec;
/// # loam::paged::connect(&loam::paged::Options::new(1 << 30, 64 << 30))?;
/// let mut found = Vec::new_in(loam::paged::PagedAllocator);
/// found.push(1_u64);
/// # Ok::<(), loam::paged::PagedError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagedAllocator;

/// What `malloc` aligns to.
const ALIGN: usize = 16;
/// And a base page.
const PAGE: usize = 4096;

fn block(memory: NonNull<u8>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(memory, layout.size())
}

/// An address for no bytes: never read, never freed.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let align = NonZeroUsize::new(layout.align()).expect("an alignment is a power of two");
    block(NonNull::without_provenance(align), layout)
}

// SAFETY: blocks are those of `malloc`: valid until they are freed, by whichever copy of the allocator, which has no state, in whichever thread. Those of no bytes
// are no blocks.
unsafe impl Allocator for PagedAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        let memory = raw::aligned(layout.align().max(ALIGN), layout.size());
        memory.map(|memory| block(memory, layout)).map_err(|_| AllocError)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() > 0
            && layout.align() <= PAGE
            && let Ok(memory) = raw::zeros(layout.size())
        {
            // None of them is touched. What is large enough for the region begins with a page there.
            if memory.as_ptr().addr().is_multiple_of(layout.align()) {
                return Ok(block(memory, layout));
            }
            // SAFETY: from there, and nobody has seen it.
            unsafe { raw::free(memory) };
        }
        let memory = self.allocate(layout)?;
        // SAFETY: just allocated, so many bytes and ours alone.
        unsafe { memory.cast::<u8>().as_ptr().write_bytes(0, layout.size()) };
        Ok(memory)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's promise: it is from here, not freed, and nobody uses it any more.
            unsafe { raw::free(memory) };
        }
    }

    unsafe fn grow(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(memory, old, new) }
    }

    unsafe fn shrink(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(memory, old, new) }
    }
}

impl PagedAllocator {
    /// In its place where that is free.
    ///
    /// # Safety
    /// As of [`Allocator::grow`].
    unsafe fn resize(
        &self,
        memory: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() > 0 && new.size() > 0 && new.align() <= ALIGN {
            // SAFETY: the caller's promise. It is a block of `malloc`, aligned to more or not.
            let resized = unsafe { raw::resize(memory, new.size()) };
            return resized.map(|memory| block(memory, new)).map_err(|_| AllocError);
        }
        let moved = self.allocate(new)?;
        // SAFETY: both have so many bytes, and they are two blocks; the old one is the caller's, who gives it up.
        unsafe {
            memory.copy_to_nonoverlapping(moved.cast(), old.size().min(new.size()));
            self.deallocate(memory, old);
        }
        Ok(moved)
    }
}
