//! What is fetched ahead of a program that reads in order: how much, and where it is kept until the program comes to it.

use super::marks::{Mark, Pattern};
use super::prefetch::StreamSpace;
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use super::{Ahead, Borrower, Faulted, Touch};
use crate::units::BasePages;

/// Base pages of zeros that are brought ahead of a program that fills fresh memory in order.
pub(super) const ZERO_AHEAD: u64 = 32;
/// The part of the budget that one stream may fetch ahead at once.
pub(super) const AHEAD_SHARE: u64 = 32;
/// So many base pages of a marker are kept in a buffer, where the program comes to it; the rest is put in its place as of any other page. Who
/// goes through a page in steps of no more than that meets them. (Each costs a copy and an install of its own, where others go in one.)
const MARKER_BASE_PAGES: u64 = 16;

/// What of a marker is kept in a buffer: all of a bet, which takes no frame.
fn marker_of(page: BaseRange, ahead: &Ahead) -> BaseRange {
    let bases = if ahead.bet { page.len() } else { page.len().min(MARKER_BASE_PAGES) };
    if ahead.stride > 0 {
        BaseRange::new(page.start, page.start + bases)
    } else {
        BaseRange::new(page.end - bases, page.end)
    }
}

impl Borrower {
    /// What a fault on such an entry tells the prefetcher; None: nothing, its contents are here.
    pub(super) fn touch(&self, entry: Entry) -> Option<Touch> {
        match entry.state {
            BaseState::Empty => Some(Touch::Fresh),
            BaseState::Fetching => Some(Touch::Ahead),
            BaseState::Away => match entry.copy.map(|copy| self.copies.get(copy)) {
                Some(copy) if copy.prefetched => Some(Touch::Ahead),
                Some(copy) if copy.buffer().is_some() => None,
                _ => Some(Touch::Missing),
            },
            BaseState::Local | BaseState::Leaving | BaseState::Lost => None,
        }
    }

    /// Asks the prefetcher, and brings what it says. Fresh memory is filled with zeros ahead of a program that fills memory
    /// in order, and only so far: a page of zeros that nobody writes costs a frame twice.
    pub(super) fn follow(&mut self, key: SpaceKey, base: u64, touch: Touch, mark: Mark) {
        let fresh = touch == Touch::Fresh;
        let page_size = if fresh { self.fresh_size_at(key, base) } else { self.size_at(key, base) };
        let size = page_size.base_pages();
        let room = self.budget_ahead(key, mark);
        if room < size {
            return;
        }
        let most = if fresh { ZERO_AHEAD.min(room) } else { (self.limit / AHEAD_SHARE).min(room) };
        let most = (most / size).clamp(1, u64::from(u32::MAX)) as u32;
        let stream = StreamSpace { space: key, size: page_size };
        let page = (base / size) as i64;
        let told = mark.pattern == Pattern::Sequential;
        let table = self.spaces.get(&key).map(|space| &space.table);
        let here = |page: i64| {
            let (Ok(page), Some(table)) = (u64::try_from(page), table) else { return false };
            (page * size..(page + 1) * size).all(|base| table.get(base).state == BaseState::Local)
        };
        let fault = Faulted { space: stream, page, touch, most, here: &here };
        let ahead = match told {
            true => self.prefetcher.told(fault),
            false => self.prefetcher.faulted(fault),
        };
        let Some(ahead) = ahead else {
            self.replacement.ahead(self.prefetcher.ahead());
            return;
        };
        if touch == Touch::Ahead {
            self.note_followed(key, page_size, page, &ahead);
        }
        let mut fetched = 0;
        for n in 0..ahead.count {
            let page = ahead.first + ahead.stride * i64::from(n);
            let Ok(page) = u64::try_from(page) else {
                self.prefetcher.cut(stream, &ahead, n);
                break;
            };
            let range = self.page_range(key, page * size, page_size);
            let next = self.mark(key, page * size);
            let is_other =
                next.bounds() != mark.bounds() || self.fitted(key, page * size, page_size) != page_size;
            let ends = next.pattern == Pattern::Random || (told && next.pattern != mark.pattern) || is_other;
            // A guess never makes anybody wait for a frame.
            if ends || !self.is_adopted(key, page * size) || self.frames + range.len() + size > self.limit {
                self.prefetcher.cut(stream, &ahead, n);
                break;
            }
            // All of it comes: whether it was wanted is not seen.
            self.alone.forget(key, range);
            let marks = if n == ahead.marker { marker_of(range, &ahead) } else { BaseRange::new(0, 0) };
            for b in range.start..range.end {
                let entry = self.entry(key, b);
                match entry.state {
                    BaseState::Empty if fresh => self.bring(key, b, page_size),
                    BaseState::Away if !fresh => {
                        let copy = entry.copy.expect("a page that is away has a copy");
                        if self.copies.get(copy).buffer().is_none()
                            && !self.holes.has(key, b)
                            && !self.rescues.has(key, b)
                            && self.start_fetch(key, b, copy, page_size, marks.contains(b))
                        {
                            self.set_entry(key, b, Entry { state: BaseState::Fetching, ..entry });
                            fetched += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
        self.replacement.ahead(self.prefetcher.ahead());
        if fetched > 0 {
            self.sizer.fetched_ahead(BasePages(fetched));
        }
    }
}
