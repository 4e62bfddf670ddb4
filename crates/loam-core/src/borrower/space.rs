//! One address space of the tree: its pages, and the counts that go with each change of one.

use super::marks::{Marks, Priority};
use super::table::{BaseRange, Entry, SpaceKey, Table};
use super::{Borrower, PageRef};
use crate::page_size::PageSize;
use crate::units::Instant;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Entries of the replacement policy that may be of pages that are gone, beside as many as there are pages.
pub(super) const GONE_MAX: u64 = 1024;

/// A page of which a part is on its way or away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    pub(super) size: PageSize,
    /// The subpage that was wanted first.
    pub(super) subpage: u32,
}

/// What has come last of a page that is fetched in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Where the page begins.
    pub(super) page: (SpaceKey, u64),
    pub(super) at: Instant,
    /// It was not the first one of the page.
    pub(super) flows: bool,
}

#[derive(Debug)]
pub(super) struct Space {
    pub(super) table: Table,
    /// Its hand has come.
    pub(super) has_hand: bool,
    /// No pages may be taken from it for now.
    pub(super) closed: bool,
    /// No eviction begins here now.
    pub(super) at_rest: bool,
    /// Its hand does nothing, for nobody knows how long: what it was told to take may be on its way for ever.
    pub(super) stands_still: bool,
    /// Forked from, or forked, a space that still lives: its frames may be shared with it.
    pub(super) relatives: Vec<SpaceKey>,
    /// Pages of it may still be mapped as shared though no relative lives.
    pub(super) forked: bool,
    /// Base pages that are local, leaving or being fetched, frames of its own.
    pub(super) frames: u64,
    /// Base pages that are local in frames of a relative.
    pub(super) shared: u64,
    /// Base pages that have been brought home from where others keep them.
    pub(super) fetched: u64,
    /// What the program has said of its memory and holds.
    pub(super) marks: Marks,
    /// Pages that could not be taken, out of the replacement order for a while.
    pub(super) parked: Vec<(u64, PageSize)>,
    /// The same of pages that somebody has pinned, and how often pages have been found so since they came.
    pub(super) pinned: Vec<(u64, PageSize)>,
    pub(super) found_pinned: BTreeMap<u64, u8>,
    /// Base pages of those that could not for where they are mapped: it is locked, or may only be read.
    pub(super) denied: u64,
    /// Who forked it.
    pub(super) parent: Option<SpaceKey>,
    /// How many of its children went, one after the other, without that much was written of what they shared.
    pub(super) quiet_children: u32,
    /// Base pages that it has written of what it shared, and its parent had when it forked it.
    pub(super) copies: u64,
    pub(super) copies_before: u64,
    /// Where it was let write since what could not be taken was last looked through, and how many base pages that is.
    pub(super) granted: Vec<BaseRange>,
    pub(super) granted_pages: u64,
    /// Of what it shares with relatives something is not protected, and will not be: who writes there is not heard of.
    pub(super) unguarded: bool,
    /// It forked, or was forked, and nobody told of the other side.
    pub(super) forked_unseen: bool,
    /// When it was forked, or forked last.
    pub(super) forked_at: Instant,
    /// Pages that were made its own so that they can be taken, and have not left since: once is enough.
    pub(super) tried: BTreeSet<u64>,
}

impl Space {
    /// Pages can be taken from it.
    pub(super) fn gives(&self) -> bool {
        self.has_hand && !self.closed && !self.stands_still
    }

    /// Evictions begin again when its changes have been dealt with.
    pub(super) fn rests(&self) -> bool {
        self.at_rest && !self.stands_still
    }
}

impl Borrower {
    /// Sets one entry and keeps the counts. References of copies are the caller's.
    pub(super) fn set_entry(&mut self, key: SpaceKey, base: u64, new: Entry) {
        let space = self.spaces.get_mut(&key).expect("the space lives");
        let old = space.table.get(base);
        match (old.has_frame(), new.has_frame()) {
            (false, true) => {
                space.frames += 1;
                self.frames += 1;
                self.reserve.handle_taken(self.waits_changed_at, 1);
            }
            (true, false) => {
                space.frames -= 1;
                self.frames -= 1;
            }
            _ => {}
        }
        match (old.shared, new.shared) {
            (false, true) => space.shared += 1,
            (true, false) => space.shared -= 1,
            _ => {}
        }
        match (old.frame_leaves(), new.frame_leaves()) {
            (false, true) => self.leaving += 1,
            (true, false) => self.leaving -= 1,
            _ => {}
        }
        space.table.set(base, new);
        if old.is_own() != new.is_own() && !(self.ranks.is_empty() && self.budgets.is_empty()) {
            for first in space.table.all_queued_around(base) {
                let recount = |frames| if new.is_own() { frames + 1 } else { frames - 1 };
                self.ranks.recount(PageRef { space: key, first }, recount);
                self.budgets.recount(PageRef { space: key, first }, recount);
            }
        }
    }

    /// Empties all entries of `part`, which lies in one extent, as [`Self::set_entry`] would one by one; `were`: what they were, as far as
    /// they had contents. (A process that ends has millions: each by itself is looked up in the table three times.)
    pub(super) fn empty_part(&mut self, key: SpaceKey, part: BaseRange, were: &mut Vec<(u64, Entry)>) {
        were.clear();
        let space = self.spaces.get_mut(&key).expect("the space lives");
        space.table.entries_in(part, were);
        let count = |is: fn(&Entry) -> bool| were.iter().filter(|(_, entry)| is(entry)).count() as u64;
        let frames = count(Entry::has_frame);
        space.frames -= frames;
        self.frames -= frames;
        space.shared -= count(|entry| entry.shared);
        self.leaving -= count(Entry::frame_leaves);
        if !(self.ranks.is_empty() && self.budgets.is_empty()) {
            for &(base, _) in were.iter().filter(|(_, entry)| entry.is_own()) {
                for first in space.table.all_queued_around(base) {
                    self.ranks.recount(PageRef { space: key, first }, |frames| frames - 1);
                    self.budgets.recount(PageRef { space: key, first }, |frames| frames - 1);
                }
            }
        }
        self.queued_pages -= space.table.empty(part);
    }

    pub(super) fn entry(&self, key: SpaceKey, base: u64) -> Entry {
        self.spaces.get(&key).map_or_else(Entry::default, |s| s.table.get(base))
    }

    /// The adopted base pages of the page of this size around `base`.
    pub(super) fn page_range(&self, key: SpaceKey, base: u64, size: PageSize) -> BaseRange {
        let start = size.first(base);
        let page = BaseRange::new(start, start + size.base_pages());
        let range = self.spaces.get(&key).and_then(|s| s.table.range_of(base));
        range.map_or(BaseRange::new(base, base + 1), |r| r.intersect(page))
    }

    /// Tells the replacement policy of a page that has become local, with `base` or more of it.
    ///
    /// Each local base page is in at least one page that stands in the queue. It may be in several, of different sizes: the first
    /// of them to leave takes along what is not in a smaller one (see `start_batch`).
    pub(super) fn enqueue(&mut self, key: SpaceKey, base: u64, size: PageSize) {
        let first = size.first(base);
        let space = self.spaces.get_mut(&key).expect("the space lives");
        // The size hangs on the faulted base page's extent, which exists as it has contents.
        let queued = space.table.queued(first);
        if queued.is_none_or(|queued| queued < size) {
            self.set_queued(key, first, Some(size));
        }
        let page = PageRef { space: key, first };
        if queued.is_none() {
            if self.sizer.watches_pages() {
                let part = self.sizer.part();
                let space = self.spaces.get_mut(&key).expect("the space lives");
                space.table.note_part(first, part);
            }
            self.line_up(page, size);
        } else if queued.is_some_and(|queued| queued < size)
            && !(self.ranks.is_empty() && self.budgets.is_empty())
        {
            let frames = self.spaces[&key].table.own_in(first, size);
            self.ranks.recount(page, |_| frames);
            self.budgets.recount(page, |_| frames);
        }
    }

    /// Says how large the page is that begins at `first` and stands in the queue, or that none does, and keeps the count; returns what was said before.
    pub(super) fn set_queued(
        &mut self,
        key: SpaceKey,
        first: u64,
        size: Option<PageSize>,
    ) -> Option<PageSize> {
        let space = self.spaces.get_mut(&key).expect("the space lives");
        let was = space.table.set_queued(first, size);
        self.queued_pages += u64::from(size.is_some());
        self.queued_pages -= u64::from(was.is_some());
        was
    }

    /// Has the replacement policy forget pages that are gone, when it holds more of them than there are pages. (What is discarded, unmapped or a process
    /// leaves behind stays there, and nobody takes it out as long as frames are free.)
    pub(super) fn tidy_replacement(&mut self) {
        if self.replacement.entries() as u64 <= 2 * self.queued_pages + GONE_MAX {
            return;
        }
        let Self { replacement, spaces, ranks, .. } = self;
        // One that has come again stands there twice. Its first place is the one that counts.
        replacement.retain(&mut |page| {
            ranks.of(page) == Priority::Normal
                && spaces.get_mut(&page.space).is_some_and(|space| space.table.list(page.first))
        });
        replacement.retain(&mut |page| {
            let space = spaces.get_mut(&page.space).expect("what has stayed is there");
            space.table.unlist(page.first);
            true
        });
    }
}
