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

/// A base page.
const PAGE: usize = 4096;

/// Something was said of these addresses.
pub(super) fn remember(range: &Range<usize>) {
    if !range.is_empty() {
        LOWEST.fetch_min(range.start, AcqRel);
        HIGHEST.fetch_max(range.end, AcqRel);
    }
}

/// Something may have been said of these addresses, and is to be forgotten with them. Of less than a base page nothing is: others lie in it.
fn is_due(range: &Range<usize>) -> bool {
    range.len() >= PAGE && LOWEST.load(Acquire) < range.end && HIGHEST.load(Acquire) > range.start
}

/// `memory` is about to be freed, or to become another size. It may be of the region, or the ordinary memory of a program all of whose memory is borrowed for.
///
/// # Safety
/// It is from this shim, or from the allocator behind it, and not freed.
pub(super) unsafe fn forget(shim: &Shim, memory: NonNull<u8>) {
    let start = memory.as_ptr().addr();
    if HIGHEST.load(Acquire) > start {
        // SAFETY: the caller's promise.
        forget_range(shim, start..start + unsafe { shim.usable(memory) });
    }
}

/// The same of addresses.
pub(super) fn forget_range(shim: &Shim, range: Range<usize>) {
    if is_due(&range) {
        // An agent that does not hear it goes on with old advice, which changes no byte.
        let _ = shim.forget(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_near_what_was_said_is_forgotten() {
        let near = |start: usize, len: usize| is_due(&(start..start + len));
        assert!(!near(0, usize::MAX), "nothing is said");
        remember(&(50_000..50_000));
        assert!(!near(0, usize::MAX), "of no address");
        remember(&(100_000..200_000));
        remember(&(400_000..500_000));
        assert!(near(150_000, PAGE) && near(95_000, 5_001) && near(499_999, PAGE));
        assert!(!near(90_000, 10_000) && !near(500_000, PAGE), "beside it");
        assert!(!near(150_000, PAGE - 1), "others may lie in its page");
    }
}
