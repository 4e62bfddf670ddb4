//! What has left and not come back.

use crate::page_size::PageSize;
use crate::replacement::PageRef;
use alloc::collections::BTreeMap;

/// A page that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Base pages that had left by then.
    pub(super) at: u64,
    pub(super) size: PageSize,
    pub(super) level: u8,
    /// It was taken away to see whether it is in use.
    pub(super) sample: bool,
}

/// Pages that have left, by where they begin.
#[derive(Debug, Default)]
pub(super) struct Leavers {
    pages: BTreeMap<PageRef, Left>,
    /// How many there are of each size.
    of_size: [usize; PageSize::COUNT],
}

impl Leavers {
    pub(super) fn insert(&mut self, page: PageRef, left: Left) {
        self.of_size[usize::from(left.size.log2())] += 1;
        self.pages.insert(page, left).inspect(|old| self.of_size[usize::from(old.size.log2())] -= 1);
    }

    pub(super) fn get(&self, page: PageRef) -> Option<Left> {
        self.pages.get(&page).copied()
    }

    pub(super) fn remove(&mut self, page: PageRef) -> Option<Left> {
        let left = self.pages.remove(&page)?;
        self.of_size[usize::from(left.size.log2())] -= 1;
        Some(left)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn forget(&mut self, which: impl Fn(PageRef) -> bool) {
        self.pages.retain(|&page, left| {
            let goes = which(page);
            self.of_size[usize::from(left.size.log2())] -= usize::from(goes);
            !goes
        });
    }

    /// A page of this size is back: what is known of it, which may have left as a part of a larger one. The rest of that may come back, too, and is remembered.
    pub(super) fn take(&mut self, page: PageRef, size: PageSize) -> Option<Left> {
        if self.pages.get(&page).is_some_and(|left| left.size <= size) {
            return self.remove(page);
        }
        for larger in PageSize::all().skip(1 + usize::from(size.log2())) {
            if self.of_size[usize::from(larger.log2())] == 0 {
                continue;
            }
            let around = PageRef { first: larger.first(page.first), ..page };
            if let Some(left) = self.pages.get_mut(&around).filter(|left| left.size == larger) {
                // Whether it is in use is seen once.
                return Some(core::mem::replace(left, Left { sample: false, ..*left }));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrower::SpaceKey;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Against a list that is looked through.
        #[test]
        fn it_is_a_list_of_pages(ops in proptest::collection::vec((0_u8..4, 0_u64..64, 0_u8..5), 0..120)) {
            let (mut leavers, mut list) = (Leavers::default(), Vec::<(PageRef, Left)>::new());
            for (n, (op, first, log2)) in ops.into_iter().enumerate() {
                let size = PageSize::from_log2(log2);
                let page = PageRef { space: SpaceKey(1), first: size.first(first) };
                let at = list.iter().position(|&(p, _)| p == page);
                match op {
                    0 | 1 => {
                        let left = Left { at: n as u64, size, level: 0, sample: true };
                        leavers.insert(page, left);
                        at.map(|at| list.remove(at));
                        list.push((page, left));
                    }
                    2 if first % 8 == 0 => {
                        leavers.forget(|p| p.first < first);
                        list.retain(|&(p, _)| p.first >= first);
                    }
                    2 => prop_assert_eq!(leavers.remove(page), at.map(|at| list.remove(at).1)),
                    _ => {
                        let whole = at.filter(|&at| list[at].1.size <= size);
                        let around = |&(p, left): &(PageRef, Left)| left.size > size && left.size.first(page.first) == p.first;
                        let smallest = list.iter_mut().filter(|of| around(of)).min_by_key(|of| of.1.size);
                        let expected = match (whole, smallest) {
                            (Some(at), _) => Some(list[at].1),
                            (None, smallest) => smallest.map(|(_, left)| core::mem::replace(left, Left { sample: false, ..*left })),
                        };
                        whole.map(|at| list.remove(at));
                        prop_assert_eq!(leavers.take(page, size), expected);
                    }
                }
                prop_assert_eq!(leavers.get(page), list.iter().find(|of| of.0 == page).map(|of| of.1));
                for size in PageSize::all() {
                    let count = list.iter().filter(|of| of.1.size == size).count();
                    prop_assert_eq!(leavers.of_size[usize::from(size.log2())], count);
                }
            }
        }
    }
}
