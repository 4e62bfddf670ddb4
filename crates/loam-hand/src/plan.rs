//! What a process is told of the region that it shall have.

use crate::BASE_PAGE_BYTES;
use crate::direct::DirectPlan;

/// The region that a process shall reserve, from which its large allocations are served.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPlan {
    /// A multiple of 4,096; 0: no region, and the other two are 0, too.
    pub bytes: u64,
    /// Allocations from this size on.
    pub least_bytes: u64,
    /// Freed memory that may keep its contents, to be used again without a fault.
    pub spare_bytes: u64,
    /// The memory that it is made of, if it is direct.
    pub direct: DirectPlan,
}

/// Largest region: its base pages are counted in 32 bits.
pub const REGION_BYTES_MAX: u64 = 8 << 40;

impl RegionPlan {
    /// Whether a region can be like this.
    pub const fn is_sane(&self) -> bool {
        let page = BASE_PAGE_BYTES as u64;
        let none =
            self.bytes == 0 && self.least_bytes == 0 && self.spare_bytes == 0 && self.direct.chunk_bytes == 0;
        let some = self.bytes <= REGION_BYTES_MAX && self.bytes.is_multiple_of(page);
        if !self.direct.is_sane(self.bytes) {
            return false;
        }
        none || some && self.least_bytes >= page && self.least_bytes <= self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_whole_pages_and_room_for_one_allocation() {
        let plan = |bytes, least_bytes| RegionPlan { bytes, least_bytes, ..RegionPlan::default() }.is_sane();
        assert!(RegionPlan::default().is_sane() && plan(1 << 20, 1 << 20) && plan(REGION_BYTES_MAX, 4096));
        assert!(!plan(1 << 20, 0) && !plan(1 << 20, (1 << 20) + 4096) && !plan((1 << 20) + 1, 4096));
        assert!(!plan(REGION_BYTES_MAX + 4096, 4096) && !plan(0, 4096) && !plan(1 << 20, 4095));
    }
}
