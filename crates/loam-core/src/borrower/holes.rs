//! Base pages that are left out of pages on purpose, to see whether a thread wants them while the page is here.

use super::ages::Ages;
use super::table::SpaceKey;
use crate::page_size::{PageSize, Place, Probed, Seen};
use crate::units::BasePages;
use alloc::collections::BTreeMap;
use core::ops::Range;

/// So many are left out at a time, at most.
const HOLES_MAX: usize = 4096;

/// A base page that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    /// The first base page of the page that it was left out of.
    pub(super) first: u64,
    /// Where the fault fell that brought that page.
    pub(super) fault: u64,
    /// That page's size.
    pub(super) size: PageSize,
    /// In which part of the program the page came.
    pub(super) part: u8,
    /// The smallest page that would have had both it and the fault.
    pub(super) reach: PageSize,
    /// A thread has waited for it.
    pub(super) touched: bool,
    /// How far memory had been turned over ([`crate::page_size::PageSizer::turned_over`]) when its page came first; and, once a thread has waited for it, how much farther by then.
    pub(super) came_at: BasePages,
    pub(super) after: BasePages,
    /// Where its page is.
    pub(super) page: Stay,
    /// How many base pages had left when it was left out. `None` once it has been asked for by that.
    pub(super) left_before: Option<BasePages>,
    /// That nobody has waited for it has been told.
    pub(super) told: bool,
}

impl Hole {
    /// A thread waits for it: only the first one counts.
    pub(super) fn touch(&mut self, turned_over: BasePages) {
        if !core::mem::replace(&mut self.touched, true) {
            self.after = BasePages(turned_over.0.saturating_sub(self.came_at.0));
        }
    }

    /// What is known of it, at `base`.
    pub(super) fn probed(&self, space: SpaceKey, base: u64) -> Probed {
        let Self { part, size, reach, touched, after, told, .. } = *self;
        let seen = if told { Seen::Again } else { Seen::LeftOut };
        Probed { place: Place { space, base }, part, size, reach, wanted: touched, after, seen }
    }
}

/// Where a page is of which something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Here, since it was fetched.
    First,
    /// It has left, and may come back from a buffer.
    Away,
    /// Back from a buffer.
    Second,
}

/// Those of all pages that are here, or may be back from a buffer, one each at most.
#[derive(Debug, Default)]
pub(super) struct Holes {
    all: BTreeMap<(SpaceKey, u64), Hole>,
    /// Of those of which nobody has asked what became of them after a while ([`Self::next_aged`]).
    ages: Ages,
}

/// Whether this base page was left out when so many base pages had left, its page has been here all the time, and nobody has asked for it by that.
fn is_young(all: &BTreeMap<(SpaceKey, u64), Hole>, base: (SpaceKey, u64), at: BasePages) -> bool {
    all.get(&base).is_some_and(|hole| hole.left_before == Some(at) && hole.page == Stay::First)
}

impl Holes {
    /// The base page that was left out of the page that begins at `first`.
    pub(super) fn of_page(&self, key: SpaceKey, first: u64) -> Option<u64> {
        let places = (key, first)..(key, first + PageSize::LARGEST.base_pages());
        self.all.range(places).find(|(_, hole)| hole.first == first).map(|(&(_, base), _)| base)
    }

    /// `base` was left out.
    pub(super) fn has(&self, key: SpaceKey, base: u64) -> bool {
        self.all.contains_key(&(key, base))
    }

    /// `base` is left out. False, and nothing changes, if there are enough, or it, or another one of its page, is left out already.
    pub(super) fn insert(&mut self, key: SpaceKey, base: u64, hole: Hole) -> bool {
        let fits =
            self.all.len() < HOLES_MAX && !self.has(key, base) && self.of_page(key, hole.first).is_none();
        if fits {
            self.all.insert((key, base), hole);
            if let Some(at) = hole.left_before {
                let is_there = |key, base, at| is_young(&self.all, (key, base), at);
                self.ages.begin((key, base, at), HOLES_MAX, is_there);
            }
        }
        fits
    }

    /// One that was left out before so many base pages had left, whose page has been here all the time: once each, the oldest first.
    pub(super) fn next_aged(&mut self, left_before: BasePages) -> Option<(SpaceKey, u64, &mut Hole)> {
        let at = self.ages.next(left_before, |key, base, at| is_young(&self.all, (key, base), at))?;
        let hole = self.all.get_mut(&at).expect("it was there");
        hole.left_before = None;
        Some((at.0, at.1, hole))
    }

    /// A thread waits at `base`, which may have been left out of a page that is here.
    pub(super) fn touch(&mut self, key: SpaceKey, base: u64, turned_over: BasePages) {
        if let Some(hole) = self.all.get_mut(&(key, base)).filter(|hole| hole.page != Stay::Away) {
            hole.touch(turned_over);
        }
    }

    /// What was left out at `base`.
    pub(super) fn get(&self, key: SpaceKey, base: u64) -> Option<&Hole> {
        self.all.get(&(key, base))
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, key: SpaceKey, base: u64) -> Option<&mut Hole> {
        self.all.get_mut(&(key, base))
    }

    /// Nothing is left out at `base` any more.
    pub(super) fn remove(&mut self, key: SpaceKey, base: u64) -> Option<Hole> {
        self.all.remove(&(key, base))
    }

    /// Of pages that begin there nothing is left out any more.
    pub(super) fn forget(&mut self, key: SpaceKey, pages: Range<u64>) {
        let places = (key, pages.start)..(key, pages.end.saturating_add(PageSize::LARGEST.base_pages()));
        let gone = |hole: &Hole| pages.contains(&hole.first);
        let gone: alloc::vec::Vec<_> =
            self.all.range(places).filter(|(_, hole)| gone(hole)).map(|(&at, _)| at).collect();
        gone.iter().for_each(|at| {
            self.all.remove(at);
        });
    }

    #[cfg(test)]
    pub(super) fn bases(&self) -> impl Iterator<Item = u64> {
        self.all.keys().map(|&(_, base)| base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert {
            page: u64,
            log2: u8,
            offset: u64,
        },
        Touch(u64),
        Leave(u64),
        Take(u64),
        Forget {
            first: u64,
            pages: u64,
        },
        /// More base pages have left, and it is asked for what was left out so many before that.
        Age {
            more: u64,
            ago: u64,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (0_u64..16, 1_u8..=8, 0_u64..256).prop_map(|(page, log2, offset)| Op::Insert { page, log2, offset }),
            2 => (0_u64..1024).prop_map(Op::Touch),
            2 => (0_u64..1024).prop_map(Op::Leave),
            2 => (0_u64..1024).prop_map(Op::Take),
            1 => (0_u64..1024, 0_u64..600).prop_map(|(first, pages)| Op::Forget { first, pages }),
            3 => (0_u64..50, 0_u64..200).prop_map(|(more, ago)| Op::Age { more, ago }),
        ];
        prop::collection::vec(op, 0..80)
    }

    /// Of what is left out, or, one time in four, any base page.
    fn one_of(list: &[(u64, Hole)], number: u64) -> u64 {
        let of_list = list.get(number as usize / 4 % list.len().max(1)).filter(|_| !number.is_multiple_of(4));
        of_list.map_or(number, |&(base, _)| base)
    }

    proptest! {
        /// Against a list that is looked through from its begin to its end.
        #[test]
        fn it_is_a_list_of_holes(ops in ops()) {
            let key = SpaceKey(1);
            let (mut holes, mut list) = (Holes::default(), Vec::<(u64, Hole)>::new());
            let (mut left, mut young) = (0, Vec::new());
            for op in ops {
                match op {
                    Op::Insert { page, log2, offset } => {
                        let size = PageSize::from_log2(log2);
                        let (first, base) = (size.first(page * 64), size.first(page * 64) + offset % size.base_pages());
                        let (came_at, after) = (BasePages(left), BasePages(0));
                        let hole = Hole { first, fault: first, size, part: 0, reach: size, touched: false, came_at, after, page: Stay::First, left_before: Some(BasePages(left)), told: false };
                        let fits = list.iter().all(|&(at, other)| at != base && other.first != first);
                        prop_assert_eq!(holes.insert(key, base, hole), fits);
                        if fits {
                            young.push((base, left));
                            list.push((base, hole));
                        }
                    }
                    Op::Touch(base) => {
                        let base = one_of(&list, base);
                        holes.touch(key, base, BasePages(left));
                        let here = list.iter_mut().filter(|(at, hole)| *at == base && hole.page != Stay::Away);
                        here.filter(|(_, hole)| !hole.touched).for_each(|(_, hole)| {
                            (hole.touched, hole.after) = (true, BasePages(left - hole.came_at.0));
                        });
                    }
                    Op::Leave(base) => {
                        let base = one_of(&list, base);
                        let left = list.iter_mut().map(|(at, hole)| (*at, hole)).find(|&(at, _)| at == base);
                        prop_assert_eq!(holes.get(key, base), left.as_ref().map(|(_, hole)| &**hole));
                        left.into_iter().for_each(|(_, hole)| hole.page = Stay::Away);
                        holes.get_mut(key, base).into_iter().for_each(|hole| hole.page = Stay::Away);
                    }
                    Op::Take(first) => {
                        let index = list.iter().position(|(_, hole)| hole.first == first);
                        let taken = holes.of_page(key, first).map(|base| (base, holes.remove(key, base).unwrap()));
                        prop_assert_eq!(taken, index.map(|index| list.remove(index)));
                    }
                    Op::Age { more, ago } => {
                        left += more;
                        let Some(before) = left.checked_sub(ago) else { continue };
                        let mut aged = Vec::new();
                        while let Some((_, base, _)) = holes.next_aged(BasePages(before)) {
                            aged.push(base);
                        }
                        // Each is asked for once, the oldest first, whether it is there by then or not.
                        let due: Vec<(u64, u64)> = young.extract_if(.., |&mut (_, at)| at <= before).collect();
                        let mut expected = Vec::new();
                        for (base, at) in due {
                            let same = |(other, hole): &&mut (u64, Hole)| {
                                *other == base && hole.left_before == Some(BasePages(at)) && hole.page == Stay::First
                            };
                            if let Some((_, hole)) = list.iter_mut().find(same) {
                                hole.left_before = None;
                                expected.push(base);
                            }
                        }
                        prop_assert_eq!(aged, expected);
                    }
                    Op::Forget { first, pages } => {
                        holes.forget(key, first..first + pages);
                        list.retain(|(_, hole)| !(first..first + pages).contains(&hole.first));
                    }
                }
                let mut all: Vec<u64> = list.iter().map(|&(base, _)| base).collect();
                all.sort_unstable();
                prop_assert_eq!(holes.bases().collect::<Vec<_>>(), all);
            }
            prop_assert!(!holes.has(SpaceKey(0), 0) && holes.of_page(SpaceKey(2), 0).is_none());
        }
    }
}
