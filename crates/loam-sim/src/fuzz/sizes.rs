//! Pages of many sizes without any reason, so that they meet in every way that there is.

use super::dice::Dice;
use loam_core::page_size::{Brought, PageSize, PageSizer, Place};
use loam_core::units::Instant;

/// A size by chance for each page, up to one, and now and then a base page left out of it.
#[derive(Debug)]
pub(crate) struct AnySize {
    most: PageSize,
    dice: Dice,
}

impl AnySize {
    pub(crate) fn new(most: PageSize, seed: u64) -> Self {
        Self { most, dice: Dice::new(seed, 6) }
    }
}

impl PageSizer for AnySize {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(self.dice.below(u64::from(self.most.log2()) + 1) as u8)
    }

    fn largest(&self) -> PageSize {
        self.most
    }

    fn watches_pages(&self) -> bool {
        true // so that what is kept for it is tried, too
    }

    fn rescue_size(&mut self, _: Place, size: PageSize) -> PageSize {
        PageSize::from_log2(self.dice.below(u64::from(size.log2()) + 1) as u8)
    }

    fn rescued(&mut self, at: Place, _: PageSize, most: PageSize) -> Option<u64> {
        let base = most.first(at.base) + self.dice.below(most.base_pages());
        (base != at.base && self.dice.once_in(3)).then_some(base)
    }

    fn comes_alone(&mut self, _: Place, _: PageSize) -> bool {
        self.dice.once_in(2)
    }

    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        let hole = page.size.first(page.fault.base) + self.dice.below(page.size.base_pages());
        (hole != page.fault.base && self.dice.once_in(3)).then_some(hole)
    }
}
