//! Pages that the kernel refuses because somebody has pinned them: a device that reads or writes them, or another process (`process_vm_readv`, by which the processes of an MPI program
//! hand over their messages: up to 4 MiB at a time, page after page).
//!
//! To the kernel's answer they are as pages that forked relatives share ([`super::sharing`]). But most pins last for less than a millisecond, and what is shared for seconds: had these to be
//! left alone for as long, a program that sends all of its memory around would keep all of it here. So what nobody can share is asked for again soon, some times, and only then put
//! aside as what is shared.

use super::sharing::parked_first;
use super::table::{BaseState, SpaceKey};
use super::{Borrower, Space};
use crate::page_size::PageSize;
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// How long a pinned page is left alone.
const PINNED_FOR: Duration = Duration::from_millis(10);
/// And how often. (Memory that is registered with a device is pinned for good.)
const PINNED_TIMES: u8 = 4;

impl Borrower {
    /// A page could not be taken: if nobody can share it, it stays out of the order for a moment. False: it is not such a page, or has been that too often. `is_own`: it was made its
    /// process's own before.
    pub(super) fn set_aside_pinned(
        &mut self,
        now: Instant,
        key: SpaceKey,
        page: (u64, PageSize),
        is_own: bool,
    ) -> bool {
        let space = self.space_mut(key);
        if !space.relatives.is_empty() || space.forked && !is_own {
            return false;
        }
        let times = space.found_pinned.entry(page.0).or_default();
        if *times == PINNED_TIMES {
            return false;
        }
        *times += 1;
        space.pinned.push(page);
        self.pinned_until.get_or_insert(now + PINNED_FOR);
        true
    }

    /// These pages have left: those of which nothing was refused are not pinned any more.
    pub(super) fn forget_pinned(&mut self, key: SpaceKey, pages: impl Iterator<Item = (u64, PageSize)>) {
        let space = self.space_mut(key);
        if space.found_pinned.is_empty() {
            return;
        }
        let mut was_aside = false;
        for (first, size) in pages {
            let is_left =
                |base| space.table.is_stuck(base) || space.table.get(base).state == BaseState::Local;
            if !(first..first + size.base_pages()).any(is_left) {
                was_aside |= space.found_pinned.remove(&first) == Some(PINNED_TIMES);
            }
        }
        // Not for good, then: others are not to be left alone for longer and longer.
        if was_aside {
            self.parked_for = parked_first();
        }
    }

    /// What was found pinned is tried again within a moment.
    pub(super) fn tries_pinned(&self) -> bool {
        self.pinned_until.is_some() && self.spaces.values().any(|space| !space.pinned.is_empty())
    }

    fn space_mut(&mut self, key: SpaceKey) -> &mut Space {
        self.spaces.get_mut(&key).expect("the space lives")
    }

    /// What was found pinned for a moment is tried again.
    pub(super) fn try_pinned_in_time(&mut self, now: Instant) {
        if self.pinned_until.is_none_or(|until| until > now) {
            return;
        }
        self.pinned_until = None;
        let has_pinned = |(&key, space): (&SpaceKey, &Space)| (!space.pinned.is_empty()).then_some(key);
        let keys: Vec<SpaceKey> = self.spaces.iter().filter_map(has_pinned).collect();
        for key in keys {
            for (first, size) in core::mem::take(&mut self.space_mut(key).pinned) {
                self.ask_again(key, first, size);
                if !self.enqueue_page(key, first, size) {
                    self.space_mut(key).found_pinned.remove(&first);
                }
            }
        }
    }
}
