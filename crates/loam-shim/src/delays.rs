//! Standing still for a moment where the hand takes pages: see the agent's `delays`. Without that feature nothing is left of this.

/// Waits for up to 200 us, one time in `one_in`.
#[cfg(feature = "delays")]
pub(crate) fn maybe(one_in: u64) {
    use crate::sys;
    // SplitMix64's last step; the clock's nanoseconds are as good as drawn.
    let now_ns = sys::now_ns();
    let mut drawn = now_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    drawn ^= drawn >> 31;
    if drawn.is_multiple_of(one_in) {
        let until_ns = now_ns + 1_000 + (drawn >> 32) % 200_000;
        while sys::now_ns() < until_ns {
            sys::sched_yield();
        }
    }
}

/// Nothing.
#[cfg(not(feature = "delays"))]
#[inline(always)]
pub(crate) fn maybe(_one_in: u64) {}
