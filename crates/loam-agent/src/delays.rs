//! Standing still for a moment where the agent meets the kernel or a hand. With the feature `delays` what takes two threads that meet within a microsecond happens all the time
//! (`make delays`); without it nothing is left of this.

/// Sleeps for up to 200 us, one time in `one_in`.
#[cfg(feature = "delays")]
pub(crate) fn maybe(one_in: u64) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Each has keys of its own.
    let drawn = RandomState::new().build_hasher().finish();
    if drawn.is_multiple_of(one_in) {
        std::thread::sleep(std::time::Duration::from_micros(1 + (drawn >> 32) % 200));
    }
}

/// Nothing.
#[cfg(not(feature = "delays"))]
#[inline(always)]
pub(crate) fn maybe(_one_in: u64) {}
