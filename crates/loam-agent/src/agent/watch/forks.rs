//! Memory that comes before anybody can adopt it: what a fork copies, and what is filled at once.

use super::Agent;
use loam_core::borrower::SpaceKey;
use std::sync::atomic::Ordering::Relaxed;

/// Where a process and so many copies of it come near `--local`, or one copy comes there with what the tree has, its memory is adopted before it forks.
const ANNOUNCED_COPIES: u64 = 3;
/// Nor does a copy of so little (4 MiB) matter when hardly any room is left.
const ANNOUNCED_PAGES_MIN: u64 = 4 << 8;
/// Memory that the program wants filled at once, where what it fills may have to leave (2 MiB).
const POPULATED_PAGES: u64 = 2 << 8;
/// Up to this part of `--local` may be counted for a child and for its parent.
const INHERITED_SHARE: u64 = 32;

impl Agent<'_> {
    /// Of memory that nobody adopts before it is here, the base pages that do not matter.
    fn pages_unadopted(&self) -> u64 {
        if self.watch.pressed {
            return POPULATED_PAGES;
        }
        let near = self.watch.near_pages();
        let room = near.saturating_sub(self.watch.resident_pages + self.watch.forked_pages);
        (near / ANNOUNCED_COPIES).min(room.max(ANNOUNCED_PAGES_MIN))
    }

    pub(super) fn tell_all_limits(&self) {
        self.processes.keys().for_each(|&key| self.tell_limits(key));
    }

    /// Tells a process of how much of what it copies or fills we are to hear first.
    pub(in crate::agent) fn tell_limits(&self, key: SpaceKey) {
        let Some(process) = self.processes.get(&key) else { return };
        let Some(hand) = &process.hand else { return };
        let pages = self.pages_unadopted();
        let (mut announced, mut populated) = (0, 0);
        if self.config.region.is_none() && self.direct.is_none() {
            populated = pages;
            announced = if !self.fork_events {
                0
            } else if !self.watch.pressed {
                pages
            } else if process.waited_in_vain || !process.adoption_unsure && self.borrower.adopts_any(key) {
                0
            } else {
                // It may fork again and again, and is at rest for no look then.
                process.looked_at_pages + ANNOUNCED_PAGES_MIN
            };
        }
        let borrows_nothing = announced > 0 && !self.watch.pressed;
        let told = |pages| u32::try_from(pages).unwrap_or(u32::MAX);
        let control = hand.shared.control();
        control.announce_above.store(told(announced), Relaxed);
        control.borrows_nothing.store(borrows_nothing.into(), Relaxed);
        control.populate_max.store(told(populated), Relaxed);
    }

    /// What processes may share with their parents that was not adopted when they were forked: each has it counted. 0 where that is too little to look for, and in an
    /// attached program, of which what was there before does not count.
    pub(super) fn inherited_pages(&self) -> u64 {
        let pages = self.all_inherited_pages();
        if pages > self.watch.local_pages / INHERITED_SHARE { pages } else { 0 }
    }

    /// The same, however little it is.
    pub(super) fn all_inherited_pages(&self) -> u64 {
        if self.program.is_attached() {
            return 0;
        }
        self.processes.values().filter(|p| p.statm.is_some()).map(|p| p.inherited_pages).sum()
    }

    /// How much of it is shared still, as far as known. Where it is nearly nothing it is forgotten.
    pub(super) fn look_at_inherited(&mut self, pages: u64, counted: u64) -> u64 {
        let Some((again, most)) = self.watch.copied.counted_again(counted) else { return 0 };
        if most <= self.watch.local_pages / INHERITED_SHARE {
            let counted = self.processes.values_mut().filter(|process| process.statm.is_some());
            counted.for_each(|process| process.inherited_pages = 0);
        }
        again.min(pages)
    }

    /// A process has a child, which may copy what of it is not adopted. That counts from now on: it may have forked again before the next look.
    /// How much that is, in base pages.
    pub(in crate::agent) fn book_copy(&mut self, parent: SpaceKey) -> u64 {
        let figures = self.processes[&parent].statm.as_ref().and_then(|statm| statm.read().ok());
        let pages = figures.unwrap_or_default().may_be_adopted();
        if self.watch.pressed {
            // What is adopted is shared with our knowledge.
            let left = pages.saturating_sub(self.borrower.local_in(parent).0);
            return if left > ANNOUNCED_PAGES_MIN { left } else { 0 };
        }
        self.watch.forked_pages += pages;
        self.tell_all_limits();
        pages
    }
}
