//! Where the region is, for a library that has memory from it and from elsewhere and must tell which is which.

use core::sync::atomic::Ordering::Relaxed;

use super::{BASE, BYTES};

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
