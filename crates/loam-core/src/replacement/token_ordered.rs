//! Pages of one process leave last.

use super::{PageRef, Replacement, SecondChanceFifo};
use crate::borrower::SpaceKey;
use crate::page_size::PageSize;
use crate::units::BasePages;

/// The others keep this part of what is here, whoever has the token: with less, a process could not even hold what one instruction needs.
const OTHERS_SHARE: u64 = 8;

/// [`SecondChanceFifo`], where one address space may hold a token: its pages leave only when the others have no more than an eighth of what is here.
///
/// Several processes that each go over more than their share take from one another, all the time, what each will want next, and none of them gets anywhere. One that has all it needs
/// runs, ends, and makes room for the next (Jiang and Zhang, "Token-ordered LRU", Performance Evaluation 60, 2005). Who has it is not decided here.
#[derive(Debug)]
pub struct TokenOrdered {
    holder: Option<SpaceKey>,
    /// The pages of the holder.
    held: SecondChanceFifo,
    /// Those of all others.
    others: SecondChanceFifo,
    /// The last victim was the holder's; and it was put back, and is the next one again.
    last_held: bool,
    again: bool,
    /// What was fetched ahead, of all processes.
    ahead: BasePages,
    /// An empty policy.
    makes: fn() -> SecondChanceFifo,
}

impl Default for TokenOrdered {
    fn default() -> Self {
        Self::of(SecondChanceFifo::default)
    }
}

impl TokenOrdered {
    /// As [`SecondChanceFifo::of_little_memory`].
    pub fn of_little_memory() -> Self {
        Self::of(SecondChanceFifo::of_little_memory)
    }

    fn of(makes: fn() -> SecondChanceFifo) -> Self {
        Self {
            holder: None,
            held: makes(),
            others: makes(),
            last_held: false,
            again: false,
            ahead: BasePages(0),
            makes,
        }
    }

    fn policy_of(&mut self, page: PageRef) -> &mut SecondChanceFifo {
        if self.holder == Some(page.space) { &mut self.held } else { &mut self.others }
    }
}

impl Replacement for TokenOrdered {
    fn inserted(&mut self, page: PageRef) {
        self.policy_of(page).inserted(page);
    }

    fn inserted_sized(&mut self, page: PageRef, size: PageSize) {
        self.policy_of(page).inserted_sized(page, size);
    }

    fn removed(&mut self, page: PageRef) {
        self.policy_of(page).removed(page);
    }

    fn kept(&mut self, page: PageRef) {
        self.held.kept(page);
        self.others.kept(page);
    }

    fn ahead(&mut self, pages: BasePages) {
        self.ahead = pages;
        // Whose it is is not known: by how much each has.
        let (held, all) = (self.held.frames(), self.held.frames() + self.others.frames());
        let of_held = u128::from(pages.0) * u128::from(held) / u128::from(all.max(1));
        self.held.ahead(BasePages(of_held as u64));
        self.others.ahead(BasePages(pages.0 - of_held as u64));
    }

    fn entries(&self) -> usize {
        self.held.entries() + self.others.entries()
    }

    fn retain(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        self.held.retain(is_there);
        self.others.retain(is_there);
    }

    fn victim(&mut self) -> Option<PageRef> {
        let (held, others) = (self.held.frames(), self.others.frames());
        if !core::mem::take(&mut self.again) {
            self.last_held = others * OTHERS_SHARE < held + others;
        }
        for _ in 0..2 {
            let policy = if self.last_held { &mut self.held } else { &mut self.others };
            if let Some(page) = policy.victim() {
                return Some(page);
            }
            self.last_held = !self.last_held;
        }
        None
    }

    fn put_back(&mut self, page: PageRef) {
        self.again = true;
        if self.last_held { self.held.put_back(page) } else { self.others.put_back(page) }
    }

    fn give_token(&mut self, holder: Option<SpaceKey>) {
        if self.holder == holder {
            return;
        }
        self.held.give(&mut self.others, |_| true);
        // What is known of the pages of the last one says nothing of those of the next.
        (self.held, self.holder, self.again) = ((self.makes)(), holder, false);
        if let Some(holder) = holder {
            self.others.give(&mut self.held, |page| page.space == holder);
        }
        self.ahead(self.ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn page(space: u32, first: u64) -> PageRef {
        PageRef { space: SpaceKey(space), first }
    }

    #[test]
    fn who_has_the_token_keeps_all_but_an_eighth() {
        let mut policy = TokenOrdered::default();
        for first in 0..40 {
            policy.inserted(page(1 + (first % 2) as u32, first));
        }
        policy.give_token(Some(SpaceKey(1)));
        let left: Vec<PageRef> = core::iter::from_fn(|| policy.victim()).collect();
        // 18 of the other's 20, in order.
        let others = (0..18).map(|n| page(2, 2 * n + 1));
        assert_eq!(left[..18], others.collect::<Vec<_>>());
        assert_eq!(left[18], page(1, 0));
        assert_eq!(left.len(), 40);
    }

    #[test]
    fn nobody_has_an_advantage_without_it() {
        let mut policy = TokenOrdered::default();
        let order: Vec<PageRef> = (0..30).map(|first| page(1 + (first % 3) as u32, first)).collect();
        order.iter().for_each(|&page| policy.inserted(page));
        policy.give_token(Some(SpaceKey(2)));
        policy.give_token(None);
        let rest: Vec<PageRef> = core::iter::from_fn(|| policy.victim()).collect();
        // What was held is the youngest.
        let (held, others): (Vec<_>, Vec<_>) = order.into_iter().partition(|page| page.space == SpaceKey(2));
        assert_eq!(rest, others.into_iter().chain(held).collect::<Vec<_>>());
    }

    proptest! {
        /// Each page is given out as often as it was put in, whoever has the token when; and the holder's only when the others have no more than their share.
        #[test]
        fn pages_come_out_as_they_went_in(
            ops in proptest::collection::vec((0_u8..12, 0_u64..60), 1..500), little: bool
        ) {
            let mut policy = if little { TokenOrdered::of_little_memory() } else { TokenOrdered::default() };
            let mut here: BTreeSet<PageRef> = BTreeSet::new();
            let mut holder = None;
            for (op, n) in ops {
                let of = page((n % 3) as u32, n);
                match op {
                    0 => {
                        holder = (n % 4 < 3).then_some(SpaceKey((n % 4) as u32));
                        policy.give_token(holder);
                    }
                    1 if here.remove(&of) => policy.removed(of),
                    2 => policy.retain(&mut |_| true),
                    1..=6 => {
                        if here.insert(of) {
                            policy.inserted_sized(of, PageSize::SMALLEST);
                        }
                    }
                    _ => {
                        // Where a page was removed its entry counts until it is found.
                        policy.retain(&mut |_| true);
                        let others = here.iter().filter(|page| Some(page.space) != holder).count();
                        let victim = policy.victim();
                        prop_assert_eq!(victim.is_some(), !here.is_empty());
                        let Some(victim) = victim else { continue };
                        prop_assert!(here.remove(&victim));
                        let all = here.len() + 1;
                        prop_assert_eq!(others < all && (others == 0 || others * 8 < all), Some(victim.space) == holder);
                        if op == 7 {
                            policy.put_back(victim);
                            prop_assert_eq!(policy.victim(), Some(victim));
                        } else if op == 8 {
                            policy.kept(victim);
                            here.insert(victim);
                            policy.inserted(victim);
                        }
                    }
                }
                prop_assert_eq!(policy.entries(), here.len());
            }
            let mut rest: Vec<PageRef> = core::iter::from_fn(|| policy.victim()).collect();
            rest.sort_unstable();
            prop_assert_eq!(rest, here.into_iter().collect::<Vec<_>>());
        }
    }
}
