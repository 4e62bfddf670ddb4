//! Which pages were used last, for policies that want to know.

/// Pages that are remembered here.
const RECENT: usize = 16;

/// The pages used last, newest first. A program goes back and forth between a few pages; telling the policy each time would cost more
/// than all the rest. It hears of a page when sixteen others have been used since, or when it is about to be asked for a victim, oldest
/// first: an order of last uses (LRU) is then exactly what it would be, and counters of uses count such a burst once.
#[derive(Debug)]
pub(super) struct Touches {
    recent: [u32; RECENT],
    len: usize,
}

impl Touches {
    pub(super) fn new() -> Self {
        Self { recent: [u32::MAX; RECENT], len: 0 }
    }

    /// `page` was used. If it answers with a page, that one's use is to be told now.
    #[inline]
    pub(super) fn touch(&mut self, page: u32) -> Option<u32> {
        if self.recent[0] == page {
            return None;
        }
        self.touch_other(page)
    }

    fn touch_other(&mut self, page: u32) -> Option<u32> {
        match self.recent[..self.len].iter().position(|&p| p == page) {
            Some(at) => {
                self.recent.copy_within(..at, 1);
                self.recent[0] = page;
                None
            }
            None => {
                let pushed_out = (self.len == RECENT).then(|| self.recent[RECENT - 1]);
                self.len = (self.len + 1).min(RECENT);
                self.recent.copy_within(..self.len - 1, 1);
                self.recent[0] = page;
                pushed_out
            }
        }
    }

    /// Everything that is remembered, oldest first; nothing is remembered then.
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> + use<> {
        let len = std::mem::take(&mut self.len);
        let recent = std::mem::replace(&mut self.recent, [u32::MAX; RECENT]);
        (0..len).rev().map(move |at| recent[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The order of last uses is the same as if each had been told at once.
        #[test]
        fn the_order_of_last_uses_is_kept(uses in proptest::collection::vec(0_u32..40, 0..300), cut in 1_usize..50) {
            let (mut plain, mut told): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            let move_last = |order: &mut Vec<u32>, page: u32| {
                order.retain(|&p| p != page);
                order.push(page);
            };
            let mut touches = Touches::new();
            for (n, &page) in uses.iter().enumerate() {
                move_last(&mut plain, page);
                if let Some(page) = touches.touch(page) {
                    move_last(&mut told, page);
                }
                if n % cut == 0 {
                    touches.take().for_each(|page| move_last(&mut told, page));
                    prop_assert_eq!(&plain, &told);
                }
            }
        }
    }
}
