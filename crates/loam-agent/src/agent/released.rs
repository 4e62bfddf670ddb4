//! What a process keeps for itself: memory that it registers with a userfaultfd of its own, or that its children are to find empty (or, where the kernel
//! reports no forks, not at all).

use loam_core::borrower::BaseRange;

/// Ranges in the order of their addresses; no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Released(Vec<BaseRange>);

impl Released {
    pub(super) fn iter(&self) -> impl Iterator<Item = &BaseRange> {
        self.0.iter()
    }

    /// The process keeps a range.
    pub(super) fn add(&mut self, range: BaseRange) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|of| of.end < range.start);
        let end = self.0.partition_point(|of| of.start <= range.end);
        let touching = &self.0[first..end];
        let start = touching.first().map_or(range.start, |of| of.start.min(range.start));
        let last = touching.last().map_or(range.end, |of| of.end.max(range.end));
        self.0.splice(first..end, [BaseRange::new(start, last)]);
    }

    /// A range is no more.
    pub(super) fn remove(&mut self, range: BaseRange) {
        if self.0.iter().any(|of| !of.intersect(range).is_empty()) {
            self.0 = self.0.iter().flat_map(|of| of.without(range)).collect();
        }
    }

    /// Only what is `mapped`, in the order of its addresses, is still kept: the kernel does not tell us when memory goes that is not registered
    /// with us.
    pub(super) fn keep(&mut self, mapped: impl IntoIterator<Item = BaseRange>) {
        if self.0.is_empty() {
            return;
        }
        let mut kept = Self::default();
        let mut rest = self.0.iter().copied().peekable();
        for mapping in mapped {
            while rest.next_if(|of| of.end <= mapping.start).is_some() {}
            while let Some(&of) = rest.peek() {
                kept.add(of.intersect(mapping));
                if of.end > mapping.end {
                    break; // the next mapping may have more of it
                }
                rest.next();
            }
        }
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(ranges: &[(u64, u64)]) -> Released {
        let mut released = Released::default();
        ranges.iter().for_each(|&(start, end)| released.add(BaseRange::new(start, end)));
        released
    }

    fn ranges(released: &Released) -> Vec<(u64, u64)> {
        released.iter().map(|of| (of.start, of.end)).collect()
    }

    #[test]
    fn what_touches_is_one() {
        assert_eq!(ranges(&released(&[(10, 20), (30, 40), (20, 30)])), [(10, 40)]);
        assert_eq!(ranges(&released(&[(30, 40), (10, 20), (50, 50)])), [(10, 20), (30, 40)]);
        assert_eq!(ranges(&released(&[(10, 20), (30, 40), (60, 70), (15, 61)])), [(10, 70)]);
        // A program that registers the same memory again and again.
        assert_eq!(ranges(&released(&[(10, 20); 100])), [(10, 20)]);
    }

    #[test]
    fn only_what_goes_is_removed() {
        let mut some = released(&[(10, 20), (30, 40)]);
        some.remove(BaseRange::new(0, 10));
        assert_eq!(ranges(&some), [(10, 20), (30, 40)]);
        some.remove(BaseRange::new(15, 32));
        assert_eq!(ranges(&some), [(10, 15), (32, 40)]);
    }

    #[test]
    fn what_is_not_mapped_any_more_is_not_kept() {
        let mapped =
            |list: &[(u64, u64)]| list.iter().map(|&(s, e)| BaseRange::new(s, e)).collect::<Vec<_>>();
        let check = |list, expected: &[(u64, u64)]| {
            let mut some = released(&[(10, 20), (30, 40), (60, 70)]);
            some.keep(mapped(list));
            assert_eq!(ranges(&some), expected, "{list:?}");
        };
        check(&[], &[]);
        check(&[(0, 100)], &[(10, 20), (30, 40), (60, 70)]);
        check(
            &[(0, 12), (12, 15), (18, 33), (65, 66), (68, 90)],
            &[(10, 15), (18, 20), (30, 33), (65, 66), (68, 70)],
        );
        check(&[(20, 30), (40, 60), (70, 80)], &[]);
    }
}
