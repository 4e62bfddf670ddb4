//! Since when base pages have been watched.

use super::table::SpaceKey;
use crate::units::BasePages;
use alloc::collections::VecDeque;

/// Watched base pages in the order in which that began, and how many base pages had left by then; and some that are not watched any more. What each of them is watched for, and
/// whether it still is, its owner knows.
#[derive(Debug, Default)]
pub(super) struct Ages {
    oldest_first: VecDeque<(SpaceKey, u64, BasePages)>,
}

impl Ages {
    /// `base` is watched from now on, where so many base pages have left, no fewer than before the last one. Of no more than `most` that are watched each is kept, and of no more than twice as many entries in all.
    pub(super) fn begin(
        &mut self,
        (key, base, left_before): (SpaceKey, u64, BasePages),
        most: usize,
        is_watched: impl Fn(SpaceKey, u64, BasePages) -> bool,
    ) {
        self.oldest_first.push_back((key, base, left_before));
        if self.oldest_first.len() > 2 * most {
            self.oldest_first.retain(|&(key, base, at)| is_watched(key, base, at));
            // One that was watched twice since as many had left is there twice.
            let excess = self.oldest_first.len().saturating_sub(2 * most);
            self.oldest_first.drain(..excess);
        }
    }

    /// The oldest one that has been watched since so many base pages had left, or fewer. Each is answered once.
    pub(super) fn next(
        &mut self,
        left_before: BasePages,
        is_watched: impl Fn(SpaceKey, u64, BasePages) -> bool,
    ) -> Option<(SpaceKey, u64)> {
        while let Some(&(key, base, at)) = self.oldest_first.front().filter(|&&(_, _, at)| at <= left_before)
        {
            self.oldest_first.pop_front();
            if is_watched(key, base, at) {
                return Some((key, base));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MOST: usize = 4;

    proptest! {
        /// Against a list of what is watched, of which each is due once; and no more is kept than may be.
        #[test]
        fn each_is_due_once_and_the_oldest_first(ops in proptest::collection::vec((0_u8..5, 0_u64..8, 0_u64..4), 0..200)) {
            let key = SpaceKey(1);
            let (mut ages, mut watched, mut due) = (Ages::default(), Vec::<(u64, u64)>::new(), Vec::new());
            let mut left = 0;
            for (op, base, more) in ops {
                let is_watched = |list: &[(u64, u64)], base, at: BasePages| list.contains(&(base, at.0));
                match op {
                    0..=2 if watched.len() < MOST && watched.iter().all(|&(other, _)| other != base) => {
                        left += 1; // none is watched twice since as many
                        watched.push((base, left));
                        due.push((base, left));
                        ages.begin((key, base, BasePages(left)), MOST, |_, base, at| is_watched(&watched, base, at));
                    }
                    0..=2 => watched.retain(|&(other, _)| other != base),
                    _ => {
                        left += more;
                        let before = left.saturating_sub(base);
                        let next = ages.next(BasePages(before), |_, base, at| is_watched(&watched, base, at));
                        let index = due.iter().position(|entry| watched.contains(entry));
                        let expected = index.filter(|&index| due[index].1 <= before);
                        prop_assert_eq!(next, expected.map(|index| (key, due.remove(index).0)));
                    }
                }
                prop_assert!(ages.oldest_first.len() <= 2 * MOST);
            }
        }
    }

    #[test]
    fn one_that_is_watched_again_and_again_is_bounded() {
        let mut ages = Ages::default();
        for _ in 0..100 {
            ages.begin((SpaceKey(1), 7, BasePages(3)), MOST, |_, _, _| true);
            assert!(ages.oldest_first.len() <= 2 * MOST);
        }
    }
}
