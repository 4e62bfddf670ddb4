//! Where the region is, for a library that has memory from it and from elsewhere and must tell which is which.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{BASE, BYTES, LEAST_PLANNED};

/// Bytes of the region, and its first address in `start`; 0, and nothing is written: this process has none.
///
/// # Safety
/// `start` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_region(start: *mut usize) -> usize {
    let bytes = BYTES.load(Relaxed);
    if bytes != 0 {
        // SAFETY: the caller's promise.
        unsafe { start.write(BASE.load(Relaxed)) };
    }
    bytes
}

/// Requests of so many bytes and more are the region's; 0: this process has none.
#[unsafe(no_mangle)]
extern "C" fn loam_region_least() -> usize {
    if BYTES.load(Relaxed) == 0 { 0 } else { LEAST_PLANNED.load(Acquire) }
}
