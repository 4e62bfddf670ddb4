//! A full lender takes a page all the same, in place of a spare page (gms-1995, section 3.1, cases 1 to 3). Only copies stay.
//!
//! The paper's node discards its oldest page. So do we, between borrowers. But if that is a page of the very borrower who sends the new one, any
//! of its pages goes: a program that walks round a little more than there is room for would find each page gone a moment before it comes to it
//! (the order of last use is the worst one then), and finds a small part gone this way. It is its own memory either way.
//!
//! Whose page was replaced is told, soon but not at once. Until then it may believe that it has a copy here; that costs it
//! a read of its disk, nothing else (DESIGN.md, section 2, rule 1).

use super::types::Standing;
use super::{Lender, split};
use crate::ids::{SpaceId, Version};
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// Slots freed ahead of need, so that a put finds one although reads that are under way keep others back: this part of the limit, and at most so many.
const STOCK_PART: u64 = 256;
const STOCK_PAGES_MAX: u64 = 64;
/// How long a borrower may not know that a page of its was replaced.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// Pages of one [`Effect::Gone`](super::Effect::Gone).
pub const GONE_PAGES_MAX: usize = if cfg!(test) { 4 } else { 1024 };

/// Pages that are gone without their owner having said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Whose.
    pub space: SpaceId,
    /// Which; at most [`GONE_PAGES_MAX`].
    pub pages: Vec<(u64, Version)>,
}

impl Lender {
    /// Slots that are free only because replacements go ahead of need. They are not told as room: a put there replaces, too.
    pub(super) fn stock(&self) -> u64 {
        if self.order.pages() == 0 { 0 } else { (self.slots.limit_pages() / STOCK_PART).min(STOCK_PAGES_MAX) }
    }

    /// Replaces until `pages` more of `space` can be stored, if spare pages are enough for that.
    pub(super) fn make_room(&mut self, now: Instant, space: SpaceId, pages: u64) {
        let pledged = self.own_room(space);
        let free = self.slots.free_pages_of(pledged);
        // Above the limit every page that goes is one less, and nothing is taken but by those who have reserved it.
        if free >= pages || (pledged == 0 && self.slots.excess_pages() > 0) {
            return;
        }
        // What reads under way keep back will be free in a moment: a put that comes too early for it is refused, and nothing more gives way.
        let own = self.borrowers[&space].tenancy;
        let coming = self.slots.coming_pages_of(pledged);
        for _ in 0..(pages + self.stock()).saturating_sub(coming) {
            let Some(oldest) = self.order.oldest() else { return };
            let any = if own == oldest.1.tenancy {
                self.order.some_of(oldest.1.tenancy, &mut self.draw)
            } else {
                None
            };
            // One that the disk has goes before one that it has not.
            let any = any.filter(|any| self.slots.standing(any.0) == self.slots.standing(oldest.0));
            let (slot, page) = any.unwrap_or(oldest);
            let (at, offset) = split(page.index);
            let extent =
                self.extents.get_mut(&(page.tenancy, at)).expect("a page in the order has an extent");
            assert_eq!(extent.remove(offset), Some(slot), "the order names another page");
            if extent.is_empty() {
                self.extents.remove(&(page.tenancy, at));
            }
            let version = self.slots.stored(slot).0;
            let on_disk = self.slots.standing(slot) == Standing::OnDisk;
            self.free_slot(slot);
            self.replaced += 1;
            // Who has ended, or gone on with new pages, does not want to know.
            let Some(borrower) = self.borrowers.get_mut(&page.space).filter(|b| b.tenancy == page.tenancy)
            else {
                continue;
            };
            borrower.pages -= 1;
            // What the disk has is not gone.
            if borrower.connections > 0 && !on_disk {
                borrower.gone.push((page.index, version));
                self.tell_at.get_or_insert(now + TELL_AFTER);
            }
            self.gone_if_done(page.space);
        }
    }

    /// Which pages of `space` were replaced since it was told last; at most [`GONE_PAGES_MAX`] at a time, the rest at the next call.
    ///
    /// # Panics
    /// Without a connection.
    pub fn take_gone(&mut self, space: SpaceId) -> Vec<(u64, Version)> {
        let gone = &mut self.borrowers.get_mut(&space).expect("its connection is open").gone;
        gone.drain(..gone.len().min(GONE_PAGES_MAX)).collect()
    }

    /// Whoever must be told by now is.
    pub(super) fn tell_gone(&mut self, now: Instant) {
        if self.tell_at.is_none_or(|at| at > now) {
            return;
        }
        self.tell_at = None;
        for (&space, borrower) in &mut self.borrowers {
            for pages in core::mem::take(&mut borrower.gone).chunks(GONE_PAGES_MAX) {
                self.tell.push_back(Gone { space, pages: pages.to_vec() });
            }
        }
    }
}
