//! What the policy that sizes pages is told: which pages come and go, and what of them is wanted (see [`crate::page_size`]).

use super::evict::Leaving;
use super::holes::{Hole, Stay};
use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Ahead, Borrower, Stream};
use crate::page_size::{Brought, Fill, Filled, Left, PageSize, Place};
use crate::units::{BasePages, Duration, Instant};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// What nobody has waited for after this part of a turn of local memory is told of.
const AGED_SHARE: u64 = 8;
/// Parts of a page that come farther from each other than this have met something else.
const STREAM_GAP_MAX: Duration = Duration::from_millis(20);

impl Borrower {
    /// The size of the page that a fault at `base` brings. What is used in no order comes alone, unless it has a size of its own.
    pub(super) fn size_at(&mut self, key: SpaceKey, base: u64) -> PageSize {
        let told = Self::told_size(self.mark(key, base));
        let size = told.unwrap_or_else(|| self.sizer.size(Place { space: key, base }));
        self.fitted(key, base, size)
    }

    /// The same where pages are here already: the largest one up to that of which nothing is missing.
    pub(super) fn whole_size_at(&mut self, key: SpaceKey, base: u64) -> PageSize {
        let most = self.size_at(key, base);
        let is_whole = |size: &PageSize| {
            let first = size.first(base);
            (first..first + size.base_pages()).all(|base| self.state(key, base) == BaseState::Local)
        };
        let sizes = (0..=most.log2()).map(PageSize::from_log2);
        sizes.take_while(is_whole).last().expect("the base page itself is here")
    }

    /// The same in fresh memory, where zeros come.
    pub(super) fn fresh_size_at(&mut self, key: SpaceKey, base: u64) -> PageSize {
        let told = Self::told_size(self.mark(key, base));
        let size = told.unwrap_or_else(|| self.sizer.fresh_size(Place { space: key, base }));
        self.fitted(key, base, size)
    }

    /// A fault brings a page, `missing` base pages of it. Answers with one that is to be left out: the same as before, if the page is here in part without one.
    /// (What another fault brings is not wanted for that.) Of a rescue it may lie outside of the page.
    pub(super) fn note_page(
        &mut self,
        key: SpaceKey,
        base: u64,
        size: PageSize,
        missing: u64,
    ) -> Option<u64> {
        if let Some(stays) = self.note_rescue(key, base, size) {
            return stays;
        }
        let left_out = self.holes.of_page(key, size.first(base));
        let left_out = left_out.filter(|&hole| self.is_still_left_out(key, base, size, hole) && hole != base);
        self.leave_out(key, base, size, missing).or(left_out)
    }

    /// The same of one that is left out from now on.
    fn leave_out(&mut self, key: SpaceKey, base: u64, size: PageSize, missing: u64) -> Option<u64> {
        let entry = self.entry(key, base);
        if entry.state != BaseState::Away {
            return None; // zeros: nothing comes
        }
        if self.is_size_told(key, base, size) {
            return None; // nobody has chosen this size, and nothing is to be learnt of it
        }
        let first = size.first(base);
        self.note_coming(key, first, size);
        if self.is_buffered(entry) {
            return None; // it has been fetched ahead
        }
        let page = Brought { fault: Place { space: key, base }, size, fetched: BasePages(missing) };
        let hole = self.sizer.brought(self.waits_changed_at, &page)?;
        assert!(hole != base && size.first(hole) == first, "the page is not left without what is waited for");
        if self.entry(key, hole).state != BaseState::Away || self.waits.contains_key(&(key, hole)) {
            return None;
        }
        let reach = PageSize::from_log2((u64::BITS - (base ^ hole).leading_zeros()) as u8);
        let left_out = Hole {
            first,
            fault: base,
            size,
            part: self.sizer.part(),
            reach,
            touched: false,
            page: Stay::First,
            came_at: self.sizer.turned_over(),
            after: BasePages(0),
            left_before: Some(self.left),
            told: false,
        };
        self.holes.insert(key, hole, left_out).then_some(hole)
    }

    /// A page has been touched that was fetched ahead: so those on the way to it have been, too. (What nobody has followed says nothing of
    /// what belongs together.)
    pub(super) fn note_followed(&mut self, key: SpaceKey, size: PageSize, page: i64, ahead: &Ahead) {
        // No more were fetched the last time than are this time.
        for n in 0..=i64::from(ahead.count) {
            let Ok(page) = u64::try_from(page - ahead.stride * n) else { break };
            let first = page * size.base_pages();
            let here = matches!(self.state(key, first), BaseState::Local | BaseState::Fetching);
            let known = self.spaces.get(&key).is_none_or(|space| space.table.is_brought(first));
            if n > 0 && !here {
                break;
            }
            // What was here before it was gone over, too.
            if n == 0 || !known {
                self.note_coming(key, first, size);
            }
        }
    }

    /// Pages have left: what became of each of their base pages, in the same order.
    pub(super) fn note_filled(
        &mut self,
        now: Instant,
        key: SpaceKey,
        pages: &[Leaving],
        fills: &[(u64, Fill)],
    ) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        let mut begin = 0;
        for &Leaving { first, size, part, end } in pages {
            let bases = &fills[begin..end];
            begin = end;
            let has_zeros = bases.iter().any(|&(_, fill)| fill.is_of_zeros());
            if !has_zeros || self.is_size_told(key, first, size) {
                continue;
            }
            let Some(probe) = self.sizer.filled(&Filled { space: key, part, size, bases }) else { continue };
            // What came with contents in part has been back, or was here before.
            let is_new = bases.iter().all(|&(_, fill)| fill.is_of_zeros());
            match bases.iter().find(|&&(_, fill)| fill == Fill::Written) {
                Some(&(near, _)) if is_new => self.doubt_zeros(key, near, probe),
                _ => self.sizer.probed(now, &probe),
            }
        }
    }

    /// A page comes that somebody wants.
    pub(super) fn note_coming(&mut self, key: SpaceKey, first: u64, size: PageSize) {
        if !self.sizer.watches_pages() {
            return;
        }
        let part = self.sizer.part();
        if let Some(space) = self.spaces.get_mut(&key) {
            space.table.note_brought(first, size, part);
        }
    }

    /// A page leaves, with so many local base pages.
    pub(super) fn note_left(&mut self, now: Instant, key: SpaceKey, first: u64, size: PageSize, pages: u64) {
        let at = Place { space: key, base: first };
        self.left.0 += pages;
        self.note_aged(now);
        self.rescued_leave(key, BaseRange::new(first, first + size.base_pages()));
        self.alone_leave(key, BaseRange::new(first, first + size.base_pages()));
        if let Some(hole) = self.holes.of_page(key, first) {
            let is_away = self.entry(key, hole).state == BaseState::Away;
            let &Hole { touched, page, .. } = self.holes.get(key, hole).expect("it was found");
            if !touched && !is_away {
                // What came without being touched (the program advised it) says nothing: whether it is wanted is not seen.
                self.holes.remove(key, hole);
            } else if touched || page == Stay::Second {
                self.hole_has_left(now, key, hole);
            } else {
                self.doubt_hole(key, hole);
            }
        }
        let together = self.spaces.get_mut(&key).and_then(|space| space.table.note_left(first));
        if let Some((part, came_with, together)) = together {
            self.sizer
                .left(now, &Left { first: at, part, size, pages: BasePages(pages), came_with, together });
        }
    }

    /// What was left out long ago: has a thread waited for it by now? What nobody ever waits for is known before all of memory has been turned over.
    fn note_aged(&mut self, now: Instant) {
        let Some(left_before) = self.left.0.checked_sub(self.limit / AGED_SHARE) else { return };
        while let Some((key, base, hole)) = self.holes.next_aged(BasePages(left_before)) {
            hole.told = self.sizer.aged(now, &hole.probed(key, base));
        }
    }

    /// A base page has come, of a page of this size: how far behind the one before it? Where plans are carried out in pieces the second one says nothing: it
    /// comes as late as its message goes out, whatever a base page costs. (Counted, it made base pages the dearer the smaller pages were, so that what was small
    /// stayed so.) Where all is asked for at once it says what those take that come with it: they are all there in the same moment.
    pub(super) fn note_stream(&mut self, now: Instant, key: SpaceKey, base: u64, size: PageSize) {
        if size == PageSize::SMALLEST {
            return;
        }
        let page = (key, size.first(base));
        let before =
            self.streams_from.filter(|stream| stream.page == page && now - stream.at < STREAM_GAP_MAX);
        if let Some(stream) = before.filter(|stream| stream.flows || !self.in_pieces) {
            self.sizer.streamed(BasePages(1), now - stream.at);
        }
        self.streams_from = Some(Stream { page, at: now, flows: before.is_some() });
    }

    /// The range is discarded, unmapped or moved: its pages are no longer in parts, and nothing is left out of them.
    pub(super) fn forget_parts(&mut self, key: SpaceKey, range: BaseRange) {
        // A page that begins before the range may reach into it.
        let pages = PageSize::LARGEST.first(range.start)..range.end;
        forget(&mut self.incomplete, (key, pages.start)..(key, pages.end));
        self.holes.forget(key, pages);
        self.forget_rescues(key, range);
        self.alone.forget(key, range);
        if let Some(space) = self.spaces.get_mut(&key) {
            space.table.forget_brought(range);
        }
    }
}

fn forget<T>(of: &mut BTreeMap<(SpaceKey, u64), T>, pages: Range<(SpaceKey, u64)>) {
    let gone: Vec<_> = of.range(pages).map(|(&at, _)| at).collect();
    for at in gone {
        of.remove(&at);
    }
}
