//! Pages of many sizes without any reason, so that they meet in every way that there is.

use loam_core::page_size::{Brought, PageSize, PageSizer, Place};
use loam_core::units::Instant;

/// A size by chance for each page, up to one, and now and then a base page left out of it.
#[derive(Debug)]
pub(crate) struct AnySize {
    most: PageSize,
    state: u64,
}

impl AnySize {
    pub(crate) fn new(most: PageSize, seed: u64) -> Self {
        Self { most, state: seed | 1 }
    }

    /// Marsaglia's xorshift: small, and the same for ever.
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound
    }
}

impl PageSizer for AnySize {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(self.below(u64::from(self.most.log2()) + 1) as u8)
    }

    fn largest(&self) -> PageSize {
        self.most
    }

    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        let hole = page.size.first(page.fault.base) + self.below(page.size.base_pages());
        (hole != page.fault.base && self.below(3) == 0).then_some(hole)
    }
}
