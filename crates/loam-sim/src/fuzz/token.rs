//! The token goes to any process at any time, so that its pages meet those of others in every way that there is.

use super::dice::Dice;
use loam_core::borrower::{PageRef, Replacement, SpaceKey, TokenOrdered};
use loam_core::page_size::PageSize;
use loam_core::units::BasePages;

/// The agent's policy; one in so many victims, somebody gets the token, or nobody has it any more.
#[derive(Debug)]
pub(crate) struct AnyToken {
    policy: TokenOrdered,
    dice: Dice,
}

const ONE_IN: u64 = 64;

impl AnyToken {
    pub(crate) fn new(seed: u64) -> Self {
        Self { policy: TokenOrdered::of_little_memory(), dice: Dice::new(seed, 8) }
    }
}

impl Replacement for AnyToken {
    fn inserted(&mut self, page: PageRef) {
        self.policy.inserted(page);
    }

    fn inserted_sized(&mut self, page: PageRef, size: PageSize) {
        self.policy.inserted_sized(page, size);
    }

    fn removed(&mut self, page: PageRef) {
        self.policy.removed(page);
    }

    fn kept(&mut self, page: PageRef) {
        self.policy.kept(page);
    }

    fn ahead(&mut self, pages: BasePages) {
        self.policy.ahead(pages);
    }

    fn entries(&self) -> usize {
        self.policy.entries()
    }

    fn retain(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        self.policy.retain(is_there);
    }

    fn victim(&mut self) -> Option<PageRef> {
        if self.dice.once_in(ONE_IN) {
            let process = self.dice.below(5) as u32;
            self.policy.give_token((process > 0).then_some(SpaceKey(process)));
        }
        self.policy.victim()
    }

    fn put_back(&mut self, page: PageRef) {
        self.policy.put_back(page);
    }

    fn give_token(&mut self, holder: Option<SpaceKey>) {
        self.policy.give_token(holder);
    }
}
