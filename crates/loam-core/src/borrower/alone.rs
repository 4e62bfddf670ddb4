//! Base pages that come alone, though their page is larger.
//!
//! Of a page that is touched in one place only all but one base page is brought for nothing; of one that is touched in two the rest, if it does not come at once, costs another fault. So the first fault of a page of which
//! nothing is here may bring its base page alone (lazy subpage fetch, subpages-1996, section 2.1, technique 1), and the second one all the rest (which is what sets it apart: technique 1 brings one subpage for each
//! fault). Which is better depends on how many such pages are touched a second time before their base page leaves: that is counted, and [`PageSizer::comes_alone`](crate::page_size::PageSizer::comes_alone)
//! decides.

use super::Borrower;
use super::ages::Ages;
use super::prefetch::StreamSpace;
use super::table::{BaseRange, BaseState, SpaceKey};
use crate::page_size::{PageSize, Place, Probed, Seen};
use crate::units::BasePages;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// So many are watched at a time, at most. (Others come alone as well.)
const WATCHED_MAX: usize = 4096;
/// Smaller pages always come as a whole: 16 KiB.
const SIZE_LEAST: PageSize = PageSize::from_log2(2);

/// A base page that came alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    /// The size of its page, in which part of the program that was, and how many base pages had left.
    size: PageSize,
    part: u8,
    left_before: BasePages,
}

/// Those whose page has not been touched a second time, by base page: one of a page at most.
#[derive(Debug, Default)]
pub(super) struct Alone {
    all: BTreeMap<(SpaceKey, u64), Watched>,
    ages: Ages,
}

/// Whether this base page is watched, and has been since so many base pages had left.
fn is_watched(all: &BTreeMap<(SpaceKey, u64), Watched>, base: (SpaceKey, u64), at: BasePages) -> bool {
    all.get(&base).is_some_and(|watched| watched.left_before == at)
}

impl Alone {
    /// Nothing changes if there are enough.
    fn insert(&mut self, key: SpaceKey, base: u64, watched: Watched) {
        if self.all.len() < WATCHED_MAX {
            self.all.insert((key, base), watched);
            let is_there = |key, base, at| is_watched(&self.all, (key, base), at);
            self.ages.begin((key, base, watched.left_before), WATCHED_MAX, is_there);
        }
    }

    /// Those in this range.
    fn in_range(&self, key: SpaceKey, range: BaseRange) -> impl Iterator<Item = (u64, &Watched)> {
        self.all.range((key, range.start)..(key, range.end)).map(|(&(_, base), watched)| (base, watched))
    }

    /// Another one than `base` whose page has that, too.
    fn beside(&self, key: SpaceKey, base: u64) -> Option<u64> {
        let first = PageSize::LARGEST.first(base);
        let around = BaseRange::new(first, first + PageSize::LARGEST.base_pages());
        let same_page = |&(other, watched): &(u64, &Watched)| {
            other != base && watched.size.first(other) == watched.size.first(base)
        };
        self.in_range(key, around).find(same_page).map(|(other, _)| other)
    }

    fn take(&mut self, key: SpaceKey, base: u64) -> Option<Watched> {
        self.all.remove(&(key, base))
    }

    /// One that has been watched since so many base pages had left, or fewer. Once each, the oldest first.
    fn next_aged(&mut self, left_before: BasePages) -> Option<(SpaceKey, u64)> {
        self.ages.next(left_before, |key, base, at| is_watched(&self.all, (key, base), at))
    }

    /// Nothing is known of this range any more.
    pub(super) fn forget(&mut self, key: SpaceKey, range: BaseRange) {
        let gone: Vec<u64> = self.in_range(key, range).map(|(base, _)| base).collect();
        gone.into_iter().for_each(|base| {
            self.take(key, base);
        });
    }
}

impl Borrower {
    /// A thread waits at `base`: is that a second fault of a page whose first base page came alone?
    pub(super) fn touch_alone(&mut self, key: SpaceKey, base: u64) {
        while let Some(other) = self.alone.beside(key, base) {
            let watched = self.alone.take(key, other).expect("just found");
            self.tell_alone(key, other, watched, true);
            // Both may still stand in the queue, and all is to come for either of them.
            for waits_at in [base, other] {
                self.waits.get_mut(&(key, waits_at)).into_iter().for_each(|wait| wait.whole = true);
            }
        }
    }

    /// A fault at `base` is to be served where pages have `size`: its base page comes alone.
    pub(super) fn comes_alone(&mut self, key: SpaceKey, base: u64, size: PageSize) -> bool {
        if size < SIZE_LEAST || self.waits.get(&(key, base)).is_some_and(|wait| wait.whole) {
            return false;
        }
        // It has stood in the queue since.
        let again = self.alone.all.contains_key(&(key, base));
        let comes = (again || self.sizer.comes_alone(Place { space: key, base }, size))
            && self.may_come_alone(key, base, size);
        if !comes {
            self.alone.take(key, base);
            self.waits.get_mut(&(key, base)).into_iter().for_each(|wait| wait.whole = true);
        } else if !again {
            let (part, left_before) = (self.sizer.part(), self.left);
            self.alone.insert(key, base, Watched { size, part, left_before });
        }
        comes
    }

    /// Nothing is here of the page of this size around `base`, most of it is with lenders, nobody has said what is to be done with it, no stream comes to it, and nothing was left out of it.
    fn may_come_alone(&mut self, key: SpaceKey, base: u64, size: PageSize) -> bool {
        let (first, stream) = (size.first(base), StreamSpace { space: key, size });
        let page = BaseRange::new(first, first + size.base_pages());
        let missing = |space: &super::space::Space| space.table.missing_in(page) == page.len();
        // Who begins at its first base page often goes on. (And where a page begins a smaller one would stand in the queue in its place.)
        base != first
            && self.spaces.get(&key).is_some_and(missing)
            && !self.prefetcher.expects(stream, (base / size.base_pages()) as i64)
            && !self.is_size_told(key, base, size)
            && self.holes.of_page(key, first).is_none()
            && self.is_fetched(key, base)
            && (page.start..page.end).filter(|&b| self.is_fetched(key, b)).count() as u64 * 2 >= page.len()
    }

    /// A fault there needs a lender, or the disk.
    fn is_fetched(&self, key: SpaceKey, base: u64) -> bool {
        let entry = self.entry(key, base);
        entry.state == BaseState::Away && !self.is_buffered(entry)
    }

    /// Base pages in this range are leaving.
    pub(super) fn alone_leave(&mut self, key: SpaceKey, range: BaseRange) {
        // Others in it may be a smaller page's, and stay.
        let leaves = |base| self.entry(key, base).state == BaseState::Leaving;
        let leaving = self.alone.in_range(key, range).map(|(base, _)| base).filter(|&base| leaves(base));
        let leaving: Vec<u64> = leaving.collect();
        leaving.into_iter().for_each(|base| self.alone_in_vain(key, base));
        // What is wanted later than after a turn of local memory is as good as not wanted.
        while let Some(left_before) = self.left.0.checked_sub(self.limit)
            && let Some((key, base)) = self.alone.next_aged(BasePages(left_before))
        {
            self.alone_in_vain(key, base);
        }
    }

    /// Nobody has waited for another one of its page.
    fn alone_in_vain(&mut self, key: SpaceKey, base: u64) {
        let watched = self.alone.take(key, base).expect("the caller has found it");
        self.tell_alone(key, base, watched, false);
    }

    fn tell_alone(&mut self, space: SpaceKey, base: u64, watched: Watched, wanted: bool) {
        let Watched { size, part, .. } = watched;
        let (place, after, seen) = (Place { space, base }, BasePages(0), Seen::Alone);
        self.sizer.alone(&Probed { place, part, size, reach: size, wanted, after, seen });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u64),
        Take(u64),
        First {
            start: u64,
            pages: u64,
        },
        Forget {
            start: u64,
            pages: u64,
        },
        /// More base pages have left, and it is asked for what has been watched since so many before that.
        Age {
            more: u64,
            ago: u64,
        },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0_u64..64).prop_map(Op::Insert),
            2 => (0_u64..64).prop_map(Op::Take),
            2 => (0_u64..64, 0_u64..16).prop_map(|(start, pages)| Op::First { start, pages }),
            1 => (0_u64..64, 0_u64..16).prop_map(|(start, pages)| Op::Forget { start, pages }),
            2 => (0_u64..4, 0_u64..8).prop_map(|(more, ago)| Op::Age { more, ago }),
        ];
        prop::collection::vec(op, 0..80)
    }

    proptest! {
        /// Against a list of base pages, and when each came.
        #[test]
        fn it_is_a_list_of_base_pages(ops in ops()) {
            let key = SpaceKey(1);
            let (mut alone, mut list, mut young) = (Alone::default(), Vec::<(u64, u64)>::new(), Vec::new());
            let mut left = 0;
            for op in ops {
                match op {
                    Op::Insert(base) => {
                        let watched = Watched { size: PageSize::LARGEST, part: 0, left_before: BasePages(left) };
                        alone.insert(key, base, watched);
                        list.retain(|&(other, _)| other != base);
                        list.push((base, left));
                        young.push((base, left));
                    }
                    Op::Take(base) => {
                        let index = list.iter().position(|&(other, _)| other == base);
                        let expected = index.map(|index| list.remove(index).1);
                        prop_assert_eq!(alone.take(key, base).map(|watched| watched.left_before.0), expected);
                    }
                    Op::First { start, pages } => {
                        let range = BaseRange::new(start, start + pages);
                        let found: Vec<u64> = alone.in_range(key, range).map(|(base, _)| base).collect();
                        let mut expected: Vec<u64> =
                            list.iter().map(|&(base, _)| base).filter(|&base| range.contains(base)).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(found, expected);
                        let beside = list.iter().map(|&(base, _)| base).filter(|&base| base != start).min();
                        prop_assert_eq!(alone.beside(key, start), beside);
                    }
                    Op::Forget { start, pages } => {
                        let range = BaseRange::new(start, start + pages);
                        alone.forget(key, range);
                        list.retain(|&(base, _)| !range.contains(base));
                    }
                    Op::Age { more, ago } => {
                        left += more;
                        let Some(before) = left.checked_sub(ago) else { continue };
                        let mut aged = Vec::new();
                        while let Some((_, base)) = alone.next_aged(BasePages(before)) {
                            aged.push(base);
                        }
                        let due: Vec<(u64, u64)> = young.extract_if(.., |&mut (_, at)| at <= before).collect();
                        let expected: Vec<u64> = due.into_iter().filter(|at| list.contains(at)).map(|(base, _)| base).collect();
                        prop_assert_eq!(aged, expected);
                    }
                }
                prop_assert_eq!(alone.all.len(), list.len());
            }
            prop_assert_eq!(alone.beside(SpaceKey(0), 1), None);
        }

        /// However many come alone, no more are kept than may be.
        #[test]
        fn it_is_bounded(taken in 0_u64..4) {
            let (key, mut alone) = (SpaceKey(1), Alone::default());
            for base in 0..5 * WATCHED_MAX as u64 {
                let watched = Watched { size: PageSize::LARGEST, part: 0, left_before: BasePages(base / 9) };
                alone.insert(key, base, watched);
                if base % 3 < taken {
                    alone.take(key, base);
                }
                assert!(alone.all.len() <= WATCHED_MAX);
            }
        }
    }
}
