//! Time and size, as types: a bare integer never says what it counts.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes of a base page, the hardware's unit of residency.
pub const BASE_PAGE_BYTES: usize = 4096;
/// Base pages of an extent (1 MiB), the span of the largest page.
pub const EXTENT_BASE_PAGES: usize = 256;

/// A moment, in nanoseconds since an origin that the driver chose. Never runs backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// Whole microseconds in this span.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// The span from `rhs` to `self`; zero if `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        Duration(self.0.saturating_sub(rhs.0))
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` mebibytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// Whole base pages that fit into this size.
    pub const fn base_pages(self) -> BasePages {
        BasePages(self.0 / BASE_PAGE_BYTES as u64)
    }
}

impl fmt::Display for Bytes {
    /// Prints as people say it: `512.0 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut unit = 0;
        let mut whole = self.0;
        let mut rest = 0;
        while whole >= 1024 && unit + 1 < UNITS.len() {
            rest = whole % 1024;
            whole /= 1024;
            unit += 1;
        }
        if unit == 0 {
            write!(f, "{whole} B")
        } else {
            write!(f, "{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
        }
    }
}

/// A count of base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BasePages(pub u64);

impl BasePages {
    /// The same size in bytes.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * BASE_PAGE_BYTES as u64)
    }
    /// `self - rhs`, or zero.
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Add for BasePages {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}
impl AddAssign for BasePages {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}
impl Sub for BasePages {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl SubAssign for BasePages {
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_print_as_people_say_them() {
        assert_eq!(Bytes(17).to_string(), "17 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes::from_mib(512).to_string(), "512.0 MiB");
    }

    #[test]
    fn spans_never_go_below_zero() {
        assert_eq!(Instant(5) - Instant(9), Duration(0));
        assert_eq!(Instant(5) + Duration(9), Instant(14));
    }
}
