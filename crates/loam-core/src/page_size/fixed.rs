//! One size for all pages.

use super::{PageSize, PageSizer, Place};

/// One size, chosen by the user.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub PageSize);

impl PageSizer for Fixed {
    fn size(&mut self, _: Place) -> PageSize {
        self.0
    }
    fn largest(&self) -> PageSize {
        self.0
    }
}
