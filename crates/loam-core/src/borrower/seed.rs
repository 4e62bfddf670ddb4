//! Contents that are with a lender before the program begins: a warm global cache (subpages-1996, section 4.1: "all pages are assumed
//! to initially reside in remote memory").

use super::Borrower;
use super::copies::{CopyIndex, LenderIndex, Stored};
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use crate::ids::{ContentHash, Version};

impl Borrower {
    /// Adopts `range`, whose contents `lender` already has: `hash` is told what each copy is called, and answers what its contents
    /// hash to.
    ///
    /// # Panics
    /// If the space or the lender is not there, or a page of the range has contents.
    pub fn handle_seeded(
        &mut self,
        key: SpaceKey,
        range: BaseRange,
        lender: LenderIndex,
        mut hash: impl FnMut(u64, CopyIndex, Version) -> ContentHash,
    ) {
        self.adopt_range(key, range.start, range.end);
        for base in range.start..range.end {
            assert_eq!(self.entry(key, base).state, BaseState::Empty, "a seeded page has contents");
            let i = self.copies.allocate(ContentHash(0)).expect("there are more copies than memory");
            let version = self.copies.get(i).version;
            let contents = hash(base, i, version);
            let copy = self.copies.get_mut(i);
            copy.hash = contents;
            copy.at_lender = Stored::Yes;
            copy.lender = lender;
            let state = &mut self.lenders[usize::from(lender.0)];
            state.held += 1;
            state.room = state.room.saturating_sub(1);
            self.lent += 1;
            self.set_entry(key, base, Entry { state: BaseState::Away, copy: Some(i), ..Entry::default() });
        }
    }
}
