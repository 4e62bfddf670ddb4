//! What this process has said of memory and holds for as long as that is not freed: so whoever frees it, frees it of that, too. (Else the next one
//! to get the addresses would have it.)

use super::shim::Shim;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// All that anything was ever said of lies between these. A process that says nothing pays for a comparison when it frees; no lock, so a fork needs no care.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Something was said of these addresses.
pub(super) fn remember(range: &Range<usize>) {
    if !range.is_empty() {
        LOWEST.fetch_min(range.start, AcqRel);
        HIGHEST.fetch_max(range.end, AcqRel);
    }
}

/// `memory` is about to be freed, or to become another size.
///
/// # Safety
/// It is from this shim, and not freed.
pub(super) unsafe fn forget(shim: &Shim, memory: NonNull<u8>) {
    let start = memory.as_ptr().addr();
    if HIGHEST.load(Acquire) <= start || !shim.region().is_some_and(|region| region.contains(&start)) {
        return;
    }
    // SAFETY: the caller's promise.
    let range = start..start + unsafe { shim.usable(memory) };
    if LOWEST.load(Acquire) < range.end {
        // An agent that does not hear it goes on with old advice, which changes no byte.
        let _ = shim.forget(range);
    }
}
