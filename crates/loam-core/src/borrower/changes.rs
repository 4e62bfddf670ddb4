//! Changes of address spaces: adoption, and every event that userfaultfd reports.

use super::marks::Marks;
use super::table::{BaseRange, BaseState, Entry, SpaceKey, Table};
use super::{Borrower, Effect, Space};
use crate::page_size::PageSize;
use crate::units::{BasePages, Instant};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

impl Borrower {
    /// A process has come, nothing of it is adopted yet. `has_hand`: pages can be taken from it.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn handle_space_added(&mut self, key: SpaceKey, has_hand: bool) {
        let space = Space {
            table: Table::default(),
            has_hand,
            closed: false,
            at_rest: false,
            stands_still: false,
            relatives: Vec::new(),
            forked: false,
            frames: 0,
            shared: 0,
            fetched: 0,
            marks: Marks::default(),
            parked: Vec::new(),
            pinned: Vec::new(),
            found_pinned: BTreeMap::new(),
            denied: 0,
            parent: None,
            quiet_children: 0,
            copies: 0,
            copies_before: 0,
            granted: Vec::new(),
            granted_pages: 0,
            unguarded: false,
            forked_unseen: false,
            forked_at: Instant::default(),
            tried: BTreeSet::new(),
        };
        assert!(self.spaces.insert(key, space).is_none(), "a space's key is used once");
    }

    /// A forked child's hand has come.
    pub fn handle_hand(&mut self, key: SpaceKey) {
        if let Some(space) = self.spaces.get_mut(&key) {
            space.has_hand = true;
        }
        self.unpark(key);
    }

    /// `range` is registered from now on, and of it exactly `present` has pages.
    pub fn handle_adopted(&mut self, now: Instant, key: SpaceKey, range: BaseRange, present: &[BaseRange]) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        self.adopt_range(key, range.start, range.end);
        for run in present {
            let run = run.intersect(range);
            for base in run.start..run.end {
                if self.entry(key, base).state == BaseState::Empty {
                    let unsure = self.discards.touch(now, key, BaseRange::new(base, base + 1));
                    self.set_entry(key, base, Entry { state: BaseState::Local, unsure, ..Entry::default() });
                    let size = self.size_at(key, base);
                    self.enqueue(key, base, size);
                }
            }
        }
        self.advance(now);
    }

    pub(super) fn adopt_range(&mut self, key: SpaceKey, start: u64, end: u64) {
        let space = self.spaces.get_mut(&key).expect("the space lives");
        space.table.add_range(BaseRange::new(start, end));
    }

    /// The program discards the contents of `range` (MADV_DONTNEED, MADV_FREE, MADV_REMOVE); its next touch
    /// reads zeros. The event comes *before* the kernel has dropped the pages, so nothing of the range may be called local
    /// until a fault asks for it again.
    pub fn handle_removed(&mut self, now: Instant, key: SpaceKey, range: BaseRange) {
        let span = (key, range.start)..(key, range.end);
        let urgent: Vec<u64> =
            self.waits.range(span).filter(|(_, wait)| wait.urgent).map(|(&(_, base), _)| base).collect();
        let waiting = self.clear(now, key, range);
        self.unmark(key, range);
        self.tidy_ranks(key, range);
        self.discards.note(now, key, range);
        for base in waiting {
            self.wait_from(now, key, base);
            if urgent.contains(&base) {
                self.hurry(key, base); // it waits on, and everybody for it
            }
            self.serve(key, base);
        }
        self.advance(now);
    }

    /// What the program has said of the range holds no longer: it has gone to somebody else, as far as anybody can tell.
    pub(super) fn unmark(&mut self, key: SpaceKey, range: BaseRange) {
        if let Some(space) = self.spaces.get_mut(&key)
            && space.marks.any_in(range)
        {
            let mut ranked = space.marks.parts(range, |mark| mark.is_placed());
            ranked.extend(space.marks.clear(range));
            for part in ranked {
                self.ranking.add(key, part);
            }
        }
    }

    /// The hand of `key` is to rest, so that a change of its mappings can be dealt with: no eviction begins there
    /// until it may go on.
    pub fn handle_rest(&mut self, now: Instant, key: SpaceKey, rest: bool) {
        if let Some(space) = self.spaces.get_mut(&key) {
            space.at_rest = rest;
        }
        if !rest {
            self.advance(now);
        }
    }

    /// `range` is unmapped; who waits there is woken, to meet what the kernel has for it.
    pub fn handle_unmapped(&mut self, now: Instant, key: SpaceKey, range: BaseRange) {
        for base in self.clear(now, key, range) {
            self.effects.push_back(Effect::Wake { space: key, base, pages: 1 });
        }
        self.unmark(key, range);
        if let Some(space) = self.spaces.get_mut(&key) {
            space.table.remove_range(range);
            // What is left of a page of which a part is unmapped still has to leave one day.
            let gone =
                |first: u64, size: PageSize| range.start <= first && first + size.base_pages() <= range.end;
            space.parked.retain(|&(first, size)| !gone(first, size));
            space.pinned.retain(|&(first, size)| !gone(first, size));
        }
        self.tidy_ranks(key, range);
        self.advance(now);
    }

    /// `from` has moved to `to` (mremap), contents and registration with it.
    ///
    /// # Panics
    /// If an install is under way.
    pub fn handle_remapped(&mut self, now: Instant, key: SpaceKey, from: BaseRange, to: u64) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        assert_eq!(self.installs_pending, 0, "what was asked for is installed before a mapping moves");
        let mut moved: Vec<(u64, Entry)> = Vec::new();
        for base in self.used(key, from) {
            let mut entry = self.entry(key, base);
            assert_ne!(entry.state, BaseState::Leaving, "the hand is at rest when mappings change");
            if let Some(copy) = entry.copy {
                self.copies.get_mut(copy).refs += 1; // carried over while the old entry is cleared
            }
            if entry.state == BaseState::Fetching {
                entry.state = BaseState::Away;
            }
            moved.push((to + (base - from.start), entry));
        }
        let waiting = self.clear(now, key, from);
        let into = BaseRange::new(to, to + from.len());
        let covered = self.clear(now, key, into);
        for base in waiting.into_iter().chain(covered) {
            self.effects.push_back(Effect::Wake { space: key, base, pages: 1 });
        }
        let space = self.spaces.get_mut(&key).expect("checked above");
        // Entries of pages that are gone may be used again, on both sides.
        let ranks = |range| !space.marks.parts(range, |mark| mark.is_placed()).is_empty();
        let mut ranked: Vec<BaseRange> =
            if ranks(from) || ranks(into) { [from, into].into() } else { Vec::new() };
        if space.marks.any_in(from) || space.marks.any_in(into) {
            ranked.extend(space.marks.move_to(from, to).into_iter().flatten());
        }
        space.table.remove_range(from);
        space.table.add_range(into);
        for part in ranked {
            self.ranking.add(key, part);
        }
        self.tidy_ranks(key, from);
        self.tidy_ranks(key, into);
        for (base, entry) in moved {
            // A discard that was read before the move, and is still under way, takes what has come to its range.
            let unsure = entry.unsure || self.discards.touch(now, key, BaseRange::new(base, base + 1));
            self.set_entry(key, base, Entry { unsure, ..entry });
            if entry.state == BaseState::Local {
                let size = self.size_at(key, base);
                self.enqueue(key, base, size);
            }
        }
        self.advance(now);
    }

    /// `parent` has forked `child`: it sees the parent's memory as it is now. Local pages share their frames until one side
    /// writes; copies are shared until nobody refers to them.
    ///
    /// # Panics
    /// If `child` was used before, a page of the parent is just leaving, or an install is under way.
    pub fn handle_forked(&mut self, now: Instant, parent: SpaceKey, child: SpaceKey) {
        // What is here by the record alone would be the child's, and never come there.
        assert_eq!(self.installs_pending, 0, "what was asked for is installed before a process forks");
        self.handle_space_added(child, false);
        self.budgets.fork(parent, child);
        let Some(space) = self.spaces.get(&parent) else { return };
        let (mut table, marks) = (space.table.clone(), space.marks.clone());
        table.clear_queued();
        let family: Vec<SpaceKey> = space.relatives.iter().copied().chain([parent]).collect();
        let (copies, mut shared) = (&mut self.copies, Vec::new());
        table.change_all(|base, entry| {
            assert_ne!(entry.state, BaseState::Leaving, "the hand is at rest when a process forks");
            if let Some(copy) = entry.copy {
                copies.get_mut(copy).refs += 1;
            }
            match entry.state {
                BaseState::Fetching => entry.state = BaseState::Away,
                BaseState::Local => entry.shared = true,
                _ => {}
            }
            if entry.shared {
                shared.push(base);
            }
        });
        table.forget_stuck(); // the child has put nothing aside
        let of_two = family.len() == 1;
        for key in &family {
            let member = self.spaces.get_mut(key).expect("relatives live");
            member.relatives.push(child);
            member.forked = true;
        }
        let space = self.spaces.get_mut(&parent).expect("looked at above");
        (space.forked_at, space.tried, space.found_pinned) = (now, BTreeSet::new(), BTreeMap::new());
        let space = self.spaces.get_mut(&child).expect("just added");
        (space.table, space.marks) = (table, marks);
        space.shared = shared.len() as u64;
        space.forked = true;
        space.relatives = family;
        space.parent = Some(parent);
        space.forked_at = now;
        self.guard_child(parent, child, shared.len());
        self.made_own.retain(|(page, _)| page.space != parent); // they are both's again, and stand in their places as ever
        let mut end = 0;
        for base in shared {
            if base >= end {
                let size = self.whole_size_at(child, base);
                self.enqueue(child, base, size);
                end = size.first(base) + size.base_pages();
            }
        }
        if of_two {
            self.park_anew(now);
        }
        self.advance(now);
    }

    /// A process has forked, or was forked, where the kernel does not tell of the other side: what it has here may be the other's, too, and nobody knows for how long.
    pub fn handle_forked_unseen(&mut self, now: Instant, key: SpaceKey) {
        let Some(space) = self.spaces.get_mut(&key) else { return };
        (space.forked, space.forked_unseen, space.forked_at) = (true, true, now);
        (space.tried, space.found_pinned) = (BTreeSet::new(), BTreeMap::new()); // what was its own is shared again
        self.park_anew(now);
    }

    /// A process has ended, or left its address space by exec.
    pub fn handle_space_gone(&mut self, now: Instant, key: SpaceKey) {
        let Some(space) = self.spaces.get(&key) else { return };
        let relatives = space.relatives.clone();
        self.clear(now, key, BaseRange::new(0, u64::MAX));
        self.guard_no_longer(key);
        let space = self.spaces.remove(&key).expect("looked at above");
        self.prefetcher.space_gone(key);
        self.replacement.ahead(self.prefetcher.ahead());
        assert!(space.frames == 0 && space.shared == 0, "a space that is gone has no pages");
        self.tidy_ranks(key, BaseRange::new(0, u64::MAX));
        self.ranking.forget(key);
        self.budgets.forget_space(key);
        if self.spaces.is_empty() {
            self.give_back_all();
        }
        for other in relatives {
            if let Some(member) = self.spaces.get_mut(&other) {
                member.relatives.retain(|k| *k != key);
                if member.relatives.is_empty() {
                    member.unguarded = false;
                    self.parked_for = super::sharing::parked_first();
                    self.unpark(other);
                }
            }
        }
        self.advance(now);
    }

    /// Brings `base` home as a fault would, budget or not: for a call of the program that waits for it, or for the hand itself,
    /// on whose work every other frame depends. Who waits there never waits for a frame from now on, also if the first try to
    /// install the page is refused, or its batch is not taken in yet.
    pub fn handle_wanted(&mut self, now: Instant, key: SpaceKey, base: u64) {
        self.waits_clock(now);
        self.hurry(key, base);
        if matches!(self.entry(key, base).state, BaseState::Away | BaseState::Empty) {
            let size = self.size_at(key, base);
            self.touch_alone(key, base);
            self.bring_waited(key, base, size);
        }
    }

    /// Pages may no longer be taken from a space, or may again.
    pub fn handle_evictable(&mut self, now: Instant, key: SpaceKey, evictable: bool) {
        if let Some(space) = self.spaces.get_mut(&key) {
            // Whose hand has not come yet gives nothing, though it may.
            space.closed = !evictable;
        }
        if evictable {
            self.unpark(key);
        }
        self.advance(now);
    }

    /// The hand of a space does nothing, or works again: its process was stopped, or writes a core, and may go on whenever somebody likes. Nobody else waits for
    /// what it was told to take.
    pub fn handle_stands_still(&mut self, now: Instant, key: SpaceKey, stands_still: bool) {
        if let Some(space) = self.spaces.get_mut(&key) {
            space.stands_still = stands_still;
        }
        if !stands_still {
            self.unpark(key);
        }
        self.advance(now);
    }

    /// Base pages of `range` that have contents.
    pub(super) fn used(&self, key: SpaceKey, range: BaseRange) -> Vec<u64> {
        let mut used = Vec::new();
        if let Some(space) = self.spaces.get(&key) {
            space.table.used_in(range, &mut used);
        }
        used
    }

    /// Empties every entry of `range`; returns the base pages at which threads wait.
    fn clear(&mut self, now: Instant, key: SpaceKey, range: BaseRange) -> Vec<u64> {
        let (mut rest, mut were) = (range, Vec::new());
        while !rest.is_empty()
            && let Some(part) = self.spaces.get(&key).and_then(|space| space.table.next_used(rest))
        {
            rest.start = part.end;
            self.empty_part(key, part, &mut were);
            for &(_, entry) in &were {
                // Only a process's death finds the hand at work: its fates then count for nothing.
                assert!(entry.state != BaseState::Leaving || range.end == u64::MAX, "the hand is at rest");
                if let Some(copy) = entry.copy {
                    self.leftovers.push(copy);
                }
            }
        }
        if let Some(space) = self.spaces.get_mut(&key) {
            let tried: Vec<u64> = space.tried.range(range.start..range.end).copied().collect();
            tried.iter().for_each(|first| {
                space.tried.remove(first);
            });
            let pinned: Vec<u64> =
                space.found_pinned.range(range.start..range.end).map(|(&first, _)| first).collect();
            pinned.iter().for_each(|first| {
                space.found_pinned.remove(first);
            });
        }
        self.forget_parts(key, range);
        let waiting: Vec<u64> =
            self.waits.range((key, range.start)..(key, range.end)).map(|(&(_, base), _)| base).collect();
        for &base in &waiting {
            self.drop_wait(now, key, base);
        }
        waiting
    }

    /// Base pages that are adopted in `key`.
    pub fn adopted_in(&self, key: SpaceKey) -> BasePages {
        self.spaces.get(&key).map_or(BasePages(0), |s| BasePages(s.table.adopted()))
    }
}
