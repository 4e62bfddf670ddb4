//! Between pages and numbers.

use super::numbering::Numbering;
use super::{Order, PageRef, Replacement};
use crate::borrower::SpaceKey;

/// Numbers are taken back from pages that the policy has forgotten when there are this many more than after the last time, and twice
/// as many.
const SWEEP_EXTRA: usize = 1024;

/// An [`Order`] as a [`Replacement`]: gives pages numbers.
#[derive(Debug, Default)]
pub struct Numbered<O> {
    order: O,
    numbers: Numbering<PageRef>,
    kept: usize,
}

impl<O: Order> Numbered<O> {
    /// The policy inside.
    pub fn order(&self) -> &O {
        &self.order
    }

    /// How many pages have a number: those that are held or remembered, and some that are neither any more.
    pub fn numbers(&self) -> usize {
        self.numbers.len()
    }

    fn number(&mut self, page: PageRef) -> u32 {
        if self.numbers.len() >= 2 * self.kept + SWEEP_EXTRA {
            for number in 0..self.numbers.bound() {
                let page = self.numbers.key(number);
                if !self.order.knows(number) && self.numbers.get(page) == Some(number) {
                    self.numbers.remove(page);
                }
            }
            self.kept = self.numbers.len();
        }
        self.numbers.number(page)
    }
}

impl<O: Order> Replacement for Numbered<O> {
    fn inserted(&mut self, page: PageRef) {
        let number = self.number(page);
        if self.order.holds(number) {
            self.order.touched(number);
        } else {
            self.order.inserted(number);
        }
    }

    fn touched(&mut self, page: PageRef) {
        if let Some(number) = self.numbers.get(page).filter(|&number| self.order.holds(number)) {
            self.order.touched(number);
        }
    }

    fn victim(&mut self) -> Option<PageRef> {
        self.order.victim().map(|number| self.numbers.key(number))
    }

    fn put_back(&mut self, page: PageRef) {
        let number = self.number(page);
        self.order.put_back(number);
    }
}

/// A [`Replacement`] as an [`Order`]: number n is page n of one space.
#[derive(Debug, Default)]
pub struct Unnumbered<R> {
    policy: R,
    held: alloc::vec::Vec<bool>,
    len: usize,
}

impl<R> Unnumbered<R> {
    fn page(number: u32) -> PageRef {
        PageRef { space: SpaceKey(0), first: u64::from(number) }
    }

    fn hold(&mut self, number: u32) {
        let held = core::mem::replace(super::cell(&mut self.held, number), true);
        assert!(!held, "page {number} is inserted twice");
        self.len += 1;
    }
}

impl<R: Replacement + Default> Order for Unnumbered<R> {
    /// Not known of a policy that may be any.
    const TOUCHES_IN_A_ROW: u32 = 3;

    fn len(&self) -> usize {
        self.len
    }

    fn holds(&self, page: u32) -> bool {
        self.held.get(page as usize).is_some_and(|&held| held)
    }

    fn knows(&self, _: u32) -> bool {
        true
    }

    fn inserted(&mut self, page: u32) {
        self.hold(page);
        self.policy.inserted(Self::page(page));
    }

    fn touched(&mut self, page: u32) {
        self.policy.touched(Self::page(page));
    }

    fn victim(&mut self) -> Option<u32> {
        let page = self.policy.victim()?.first as u32;
        self.held[page as usize] = false;
        self.len -= 1;
        Some(page)
    }

    fn put_back(&mut self, page: u32) {
        self.hold(page);
        self.policy.put_back(Self::page(page));
    }
}
