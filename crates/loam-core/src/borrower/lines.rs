//! Pages that stand in lines, oldest first, each with the base pages of it that are here in frames of their own, and the sums of these: what
//! [`super::ranks`] and [`super::budgets`] have in common. (Where a page lies in a larger one, after sizes have changed, a frame counts for both.)

use super::table::{BaseRange, SpaceKey};
use crate::replacement::PageRef;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Debug;

/// A page that was taken out of its line, and where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing<L> {
    pub page: PageRef,
    pub line: L,
    number: u64,
    pub frames: u64,
}

#[derive(Debug, Default)]
struct Line {
    pages: BTreeMap<u64, (PageRef, u64)>,
    frames: u64,
}

/// See the module's documentation. As in a policy, a page whose mapping was removed may stay until it is taken.
#[derive(Debug)]
pub(super) struct Lines<L> {
    lines: BTreeMap<L, Line>,
    places: BTreeMap<PageRef, (L, u64)>,
    next: u64,
}

impl<L> Default for Lines<L> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), places: BTreeMap::new(), next: 0 }
    }
}

impl<L: Copy + Ord + Debug> Lines<L> {
    /// Pages in all lines.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// No page stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The line in which a page stands.
    pub(super) fn of(&self, page: PageRef) -> Option<L> {
        self.places.get(&page).map(|place| place.0)
    }

    /// The sum over a line.
    pub(super) fn frames(&self, line: L) -> u64 {
        self.lines.get(&line).map_or(0, |line| line.frames)
    }

    /// The frames that a page counts for, if it stands here.
    pub(super) fn frames_of(&self, page: PageRef) -> Option<u64> {
        let &(line, number) = self.places.get(&page)?;
        self.lines[&line].pages.get(&number).map(|&(_, frames)| frames)
    }

    /// Somebody stands in it.
    pub(super) fn has_pages(&self, line: L) -> bool {
        self.lines.get(&line).is_some_and(|line| !line.pages.is_empty())
    }

    /// What a page counts for has changed: answers with its line, if it stands in one.
    pub(super) fn recount(&mut self, page: PageRef, recount: impl FnOnce(u64) -> u64) -> Option<L> {
        let &(of, number) = self.places.get(&page)?;
        let line = self.lines.get_mut(&of).expect("a place is in a line");
        let (_, frames) = line.pages.get_mut(&number).expect("each place is in its line");
        let before = *frames;
        *frames = recount(before);
        line.frames = line.frames - before + *frames;
        Some(of)
    }

    /// A page has come, `frames` base pages of it: it is the youngest of its line, and stands in no other.
    pub(super) fn insert(&mut self, page: PageRef, frames: u64, line: L) {
        self.remove(page);
        let number = self.next;
        self.next += 1;
        self.restore(Standing { page, line, number, frames });
    }

    /// Directly after it was taken: it stands where it stood.
    pub(super) fn restore(&mut self, of: Standing<L>) {
        let line = self.lines.entry(of.line).or_default();
        line.frames += of.frames;
        assert!(line.pages.insert(of.number, (of.page, of.frames)).is_none(), "a number is given once");
        assert!(self.places.insert(of.page, (of.line, of.number)).is_none(), "a page stands in one place");
    }

    /// A page stands here no longer: answers with its line, if it stood in one.
    pub(super) fn remove(&mut self, page: PageRef) -> Option<L> {
        let (of, number) = self.places.remove(&page)?;
        let line = self.lines.get_mut(&of).expect("a place is in a line");
        let (there, frames) = line.pages.remove(&number).expect("each place is in its line");
        assert_eq!(there, page, "each place is in its line");
        line.frames -= frames;
        Some(of)
    }

    /// The oldest of a line leaves it.
    pub(super) fn take(&mut self, line: L) -> Option<Standing<L>> {
        let of = self.lines.get_mut(&line)?;
        let (number, (page, frames)) = of.pages.pop_first()?;
        of.frames -= frames;
        assert_eq!(self.places.remove(&page), Some((line, number)), "each place is in its line");
        Some(Standing { page, line, number, frames })
    }

    /// Pages of `range` that stand here and are gone, as their mappings are: they need not be taken first.
    pub(super) fn gone(
        &self,
        key: SpaceKey,
        range: BaseRange,
        is_gone: impl Fn(u64) -> bool,
    ) -> Vec<PageRef> {
        let at = |first| PageRef { space: key, first };
        let all = self.places.range(at(range.start)..at(range.end)).map(|(&page, _)| page);
        all.filter(|page| is_gone(page.first)).collect()
    }

    /// There is no such line any more, and its pages stand nowhere.
    pub(super) fn drop_line(&mut self, line: L) {
        for (page, _) in self.lines.remove(&line).unwrap_or_default().pages.into_values() {
            self.places.remove(&page);
        }
    }
}
