//! Writes to what forked relatives share.
//!
//! After a fork parent and child have the same frames. Whoever writes to one gets another for it from the kernel, which tells nobody: a few children that each
//! write to what they have inherited would take several times the limit, faster than any page can leave. So the driver write-protects what is shared, on both
//! sides, and a write to it waits until there is a frame for the copy, as a touch of what is away does. Who writes in order is given more and more at once.
//!
//! That takes as long as a fork, and most children soon run another program, or end. So after some of them have gone without that much was written, those
//! that follow are not protected before the driver has seen that something is copied ([`Borrower::handle_copying`]).

use super::faults::Wait;
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use super::{Borrower, Effect};
use crate::page_size::PageSize;
use crate::units::{EXTENT_BASE_PAGES, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What shares fewer base pages than this with a new child is not protected.
const PROTECT_MIN: usize = 64;
/// So many children in a row went without that they or their parent wrote as many base pages of what they shared (4 MiB): the next will, too.
pub(super) const QUIET_CHILDREN: u32 = 3;
const QUIET_PAGES: u64 = 4 << 8;
/// Pieces that are protected at once, while the child is about to begin (512 MiB of used memory).
const PIECES_AT_ONCE: usize = 16;
/// Extents of which that is done in one piece, before faults are looked at.
const PROTECT_EXTENTS: usize = 32;
/// Base pages that are given to a writer at once, at most.
const GRANT_MAX: u64 = 64;
/// Writers in order that are followed.
const WRITERS_MAX: usize = 8;
/// So many frames of their own, or this part of what is put aside: then those pages are looked for among what is put aside.
const GRANTED_MIN: u64 = 256;
const GRANTED_SHARE: u64 = 8;

/// Where somebody who writes in order will go on, and how much was given last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    space: SpaceKey,
    next: u64,
    pages: u64,
}

/// What a child shares with its parent is being protected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protecting {
    parent: SpaceKey,
    child: SpaceKey,
    /// How far it is.
    from: u64,
    /// All is protected, and it is looked for what was written before it was.
    looks: bool,
}

/// What is protected, and what not yet.
#[derive(Debug, Default)]
pub(super) struct Guarding {
    /// Children of which nothing is, and their parents.
    not_yet: Vec<(SpaceKey, SpaceKey)>,
    /// How many there have been.
    children: u64,
    under_way: VecDeque<Protecting>,
    /// Until when what is shared is tried to be taken all the same.
    pub(super) tries_shared_until: Instant,
    /// Who writes in order to what was shared, the one that was heard of last at the end.
    writers: VecDeque<Writer>,
}

impl Guarding {
    /// There is more to do, at once.
    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// There are children of which nothing is protected.
    pub(super) fn is_wanting(&self) -> bool {
        !self.not_yet.is_empty()
    }
}

impl Borrower {
    /// A thread waits to write at `base`, which is protected ([`Effect::Protect`]). `urgent`: it is the hand, on whose work all frames depend.
    /// Answered by [`Effect::Unprotect`].
    pub fn handle_write(&mut self, now: Instant, key: SpaceKey, base: u64, urgent: bool) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        self.waits_clock(now);
        self.stats.writes += 1;
        let is_protected = self.entry(key, base).protected;
        match self.waits.get(&(key, base)) {
            // Neither for a frame nor for the end of a batch.
            _ if is_protected && urgent => self.grant(key, base, base + 1),
            Some(wait) if is_protected && wait.writes => {} // as another thread does
            None if is_protected => {
                let wait = Wait::to_write(now);
                self.waiters.begin(wait);
                self.waits.insert((key, base), wait);
                self.serve(key, base); // or the end of its batch does
            }
            // Let go already, away, or discarded and maybe there still: what is there is the program's to write, and what is not is met as ever.
            _ => self.let_go(key, base),
        }
        self.advance(now);
    }

    /// Of what follows as much as is not protected either, as far as the record knows: what is left of a relative that has gone.
    fn let_go(&mut self, key: SpaceKey, base: u64) {
        let mapped = self.spaces[&key].table.range_of(base).map_or(base + 1, |range| range.end);
        let extent_end = PageSize::LARGEST.first(base) + EXTENT_BASE_PAGES as u64;
        let guarded = (base + 1..mapped.min(extent_end)).find(|&at| self.entry(key, at).protected);
        let end = guarded.unwrap_or(mapped.min(extent_end));
        self.effects.push_back(Effect::Unprotect { space: key, base, pages: (end - base) as u32 });
    }

    /// Lets the thread that waits to write at `base` write, and in what follows where that is likely, if there are frames for it.
    pub(super) fn serve_write(&mut self, key: SpaceKey, base: u64) {
        let extent = PageSize::LARGEST.first(base)..PageSize::LARGEST.first(base) + EXTENT_BASE_PAGES as u64;
        let space = &self.spaces[&key];
        let alone = space.relatives.is_empty().then(|| space.table.range_of(base)).flatten();
        if let Some(mapped) = alone {
            // Nobody is left with whom it could share.
            let range = mapped.intersect(BaseRange::new(extent.start, extent.end));
            self.grant(key, range.start, range.end);
            return;
        }
        if !self.entry(key, base).protected {
            // It was found to be its own while it was waited for: no frame is needed, and nothing else would end the wait.
            self.grant(key, base, base + 1);
            return;
        }
        let known = self.guarding.writers.iter().position(|w| (w.space, w.next) == (key, base));
        let most = known.map_or(1, |at| (2 * self.guarding.writers[at].pages).min(GRANT_MAX));
        let room = self.limit.saturating_sub(self.frames);
        let may_exceed = !self.frames_will_come();
        let (mut end, mut taken) = (base, 0);
        while end < extent.end && self.entry(key, end).protected {
            let needs = u64::from(self.needs_frame(key, end));
            let is_first = end == base;
            if (end - base >= most || taken + needs > room) && !(is_first && may_exceed) {
                break;
            }
            taken += needs;
            end += 1;
        }
        if end == base {
            self.enqueue_fault(key, base);
            return;
        }
        known.map(|at| self.guarding.writers.remove(at));
        if self.guarding.writers.len() >= WRITERS_MAX {
            self.guarding.writers.pop_front();
        }
        self.guarding.writers.push_back(Writer { space: key, next: end, pages: end - base });
        self.grant(key, base, end);
    }

    fn grant(&mut self, key: SpaceKey, base: u64, end: u64) {
        for at in base..end {
            self.take_own(key, at);
            if self.waits.get(&(key, at)).is_some_and(|wait| wait.writes)
                && let Some(wait) = self.waits.remove(&(key, at))
            {
                self.waiters.end(wait);
            }
        }
        self.effects.push_back(Effect::Unprotect { space: key, base, pages: (end - base) as u32 });
        self.note_own(key, base, end);
    }

    /// What was put aside there can be taken from now on.
    fn note_own(&mut self, key: SpaceKey, base: u64, end: u64) {
        let space = self.spaces.get_mut(&key).expect("it has a page here");
        if space.parked.is_empty() {
            return;
        }
        space.granted_pages += end - base;
        match space.granted.last_mut() {
            Some(last) if last.end == base => last.end = end,
            _ => space.granted.push(BaseRange::new(base, end)),
        }
        if space.granted_pages >= GRANTED_MIN.max(space.parked.len() as u64 / GRANTED_SHARE) {
            self.unpark_granted(key);
        }
    }

    /// What has been written since it could not be taken is tried again: it is the process's own. True: there is something.
    pub(super) fn unpark_granted(&mut self, key: SpaceKey) -> bool {
        let Some(space) = self.spaces.get_mut(&key) else { return false };
        let mut granted = core::mem::take(&mut space.granted);
        space.granted_pages = 0;
        if granted.is_empty() {
            return false;
        }
        granted.sort_unstable_by_key(|range| range.start);
        granted.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            last.end = if joins { last.end.max(next.end) } else { last.end };
            joins
        });
        let is_granted = |first: u64, end: u64| {
            let before = granted.partition_point(|range| range.start < end);
            before > 0 && granted[before - 1].end > first
        };
        let (again, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut space.parked)
            .into_iter()
            .partition(|&(first, size)| is_granted(first, first + size.base_pages()));
        space.parked = rest;
        let any = !again.is_empty();
        for (first, size) in again {
            self.ask_again(key, first, size);
            self.enqueue_page(key, first, size);
        }
        any
    }

    /// A child has come.
    pub(super) fn guard_child(&mut self, parent: SpaceKey, child: SpaceKey, shared: usize) {
        self.guarding.children += 1;
        if shared < PROTECT_MIN {
            for key in [parent, child].into_iter().filter(|_| shared > 0) {
                self.spaces.get_mut(&key).expect("just forked").unguarded = true;
            }
            return;
        }
        let copies = self.spaces[&parent].copies;
        self.spaces.get_mut(&child).expect("just added").copies_before = copies;
        if self.spaces[&parent].quiet_children >= QUIET_CHILDREN {
            self.guarding.not_yet.push((parent, child));
            return;
        }
        self.guarding.under_way.push_front(Protecting { parent, child, from: 0, looks: false });
        for _ in 0..PIECES_AT_ONCE {
            if !self.guarding.under_way.front().is_some_and(|next| next.child == child && !next.looks) {
                break;
            }
            self.guard_piece();
        }
        // Nobody has had the time to write then.
        if self.guarding.under_way.back().is_some_and(|last| last.child == child && last.looks) {
            self.guarding.under_way.pop_back();
        }
    }

    /// A space goes.
    pub(super) fn guard_no_longer(&mut self, gone: SpaceKey) {
        self.guarding.not_yet.retain(|(_, child)| *child != gone);
        let space = &self.spaces[&gone];
        let (copies, before) = (space.copies, space.copies_before);
        if let Some(parent) = space.parent.and_then(|parent| self.spaces.get_mut(&parent)) {
            let is_quiet = copies + (parent.copies - before) < QUIET_PAGES;
            parent.quiet_children = if is_quiet { parent.quiet_children + 1 } else { 0 };
        }
    }

    /// More is copied by forked relatives than by such as soon go: what they share is to be protected.
    pub fn handle_copying(&mut self, now: Instant) {
        for (parent, child) in core::mem::take(&mut self.guarding.not_yet) {
            if let Some(space) = self.spaces.get_mut(&parent) {
                space.quiet_children = 0;
            }
            self.guarding.under_way.push_back(Protecting { parent, child, from: 0, looks: false });
        }
        self.guard_piece();
        self.advance(now);
    }

    /// Who writes to what relatives share is heard of, all of it; with the number of children that there have been. `None`: not of all, or not yet.
    pub fn guarded(&self) -> Option<u64> {
        let all = !self.guarding.is_wanting() && !self.guarding.is_under_way();
        (all && !self.spaces.values().any(|space| space.unguarded)).then_some(self.guarding.children)
    }

    /// There are forked relatives of whose copies nobody knows: [`Self::handle_copying`] is wanted.
    pub fn wants_copying(&self) -> bool {
        self.guarding.is_wanting()
    }

    /// Goes on with what is to be protected.
    pub(super) fn guard_piece(&mut self) {
        let Some(next) = self.guarding.under_way.pop_front() else { return };
        let from = if next.looks { self.look_piece(next) } else { self.protect_piece(next) };
        match from {
            Some(from) => self.guarding.under_way.push_front(Protecting { from, ..next }),
            None if next.looks => {}
            None => self.guarding.under_way.push_back(Protecting { from: 0, looks: true, ..next }),
        }
    }

    /// A piece of what the child has, and where to go on. Nothing: it has gone, or has nobody with whom it could share.
    fn piece_of(&self, child: SpaceKey, mut from: u64) -> (Vec<u64>, Option<u64>) {
        let mut bases = Vec::new();
        let Some(space) = self.spaces.get(&child).filter(|space| !space.relatives.is_empty()) else {
            return (bases, None);
        };
        for _ in 0..PROTECT_EXTENTS {
            let Some(used) = space.table.next_used(BaseRange::new(from, u64::MAX)) else {
                return (bases, None);
            };
            space.table.used_in(used, &mut bases);
            from = used.end;
        }
        (bases, Some(from))
    }

    /// Both of them, or the child, if its parent has gone.
    fn both(&self, of: Protecting) -> impl Iterator<Item = SpaceKey> + use<> {
        let lives = |key: &SpaceKey| self.spaces.contains_key(key);
        [Some(of.child), Some(of.parent).filter(lives)].into_iter().flatten()
    }

    fn protect_piece(&mut self, of: Protecting) -> Option<u64> {
        let (mut bases, next) = self.piece_of(of.child, of.from);
        let space = self.spaces.get(&of.child)?;
        // What is not here is left out by the kernel; nothing lies between them that the policy does not know.
        bases.retain(|&base| {
            let entry = space.table.get(base);
            entry.shared || !matches!(entry.state, BaseState::Local | BaseState::Leaving)
        });
        let is_shared = |base: &&u64| space.table.get(**base).shared;
        let runs: Vec<BaseRange> = bases
            .chunk_by(|a, b| a + 1 == *b)
            .filter_map(|run| {
                let (first, last) = (run.iter().find(is_shared)?, run.iter().rfind(is_shared)?);
                Some(BaseRange::new(*first, last + 1))
            })
            .collect();
        for key in self.both(of) {
            for run in &runs {
                self.effects.push_back(Effect::Protect {
                    space: key,
                    base: run.start,
                    pages: run.len() as u32,
                });
                for base in run.start..run.end {
                    let entry = self.entry(key, base);
                    if self.entry(of.child, base).shared {
                        self.set_entry(key, base, Entry { protected: true, ..entry }); // if it is here
                    }
                }
            }
        }
        next
    }

    fn look_piece(&mut self, of: Protecting) -> Option<u64> {
        let (bases, next) = self.piece_of(of.child, of.from);
        for key in self.both(of) {
            let protected: Vec<u64> =
                bases.iter().copied().filter(|&base| self.entry(key, base).protected).collect();
            for run in protected.chunk_by(|a, b| a + 1 == *b) {
                self.effects.push_back(Effect::LookForOwn {
                    space: key,
                    base: run[0],
                    pages: run.len() as u32,
                });
            }
        }
        next
    }

    /// These base pages of `key` are in a frame of their own: somebody wrote before they were protected ([`Effect::LookForOwn`]).
    pub fn handle_own(&mut self, key: SpaceKey, range: BaseRange) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        for base in range.start..range.end {
            self.take_own(key, base);
            self.end_write_wait(key, base);
        }
        self.note_own(key, range.start, range.end);
    }

    /// The driver could not protect these base pages, or not look at them: what becomes of them nobody knows.
    pub fn handle_not_protected(&mut self, key: SpaceKey, range: BaseRange) {
        for base in self.used(key, range) {
            let entry = self.entry(key, base);
            if entry.protected {
                self.set_entry(key, base, Entry { protected: false, ..entry });
                let space = self.spaces.get_mut(&key).expect("it has this page");
                space.unguarded = !space.relatives.is_empty();
                self.end_write_wait(key, base);
            }
        }
    }

    /// It is not protected any more, as far as the record knows: a thread that waits to write there goes on.
    fn end_write_wait(&mut self, key: SpaceKey, base: u64) {
        if self.waits.get(&(key, base)).is_some_and(|wait| wait.writes) {
            self.serve(key, base);
        }
    }

    /// Takes those out of `pages`, from number `from` on, that are known to be shared: the kernel would refuse, after a turn of the hand's. How many.
    pub(super) fn take_out_shared(
        &self,
        now: Instant,
        key: SpaceKey,
        from: usize,
        pages: &mut Vec<u64>,
    ) -> usize {
        if self.spaces[&key].relatives.is_empty() || now < self.guarding.tries_shared_until {
            return 0;
        }
        let mut at = 0;
        let before = pages.len();
        pages.retain(|&base| {
            at += 1;
            at <= from || !self.is_held_by_others(key, base)
        });
        before - pages.len()
    }

    /// Somebody else has the same frame.
    fn is_held_by_others(&self, key: SpaceKey, base: u64) -> bool {
        self.holders(key, base).next().is_some()
    }

    /// Those of its relatives that have the frame of `base` in common with `key`, as far as that is known.
    pub(super) fn holders(&self, key: SpaceKey, base: u64) -> impl Iterator<Item = SpaceKey> {
        let is_held = self.entry(key, base).protected;
        let relatives = self.spaces[&key].relatives.iter().copied().filter(move |_| is_held);
        relatives.filter(move |&other| self.entry(other, base).protected)
    }

    /// `key` may have the frame of `base` in common with somebody of whom that is known, though of `key` it is not: a grandchild's, whose parent was protected before it was
    /// known of its own parent's.
    pub(super) fn may_be_held(&self, key: SpaceKey, base: u64) -> bool {
        let of = |&other: &SpaceKey| self.entry(other, base);
        let protected = || self.spaces[&key].relatives.iter().map(of).filter(|entry| entry.protected);
        !self.entry(key, base).protected
            && protected().next().is_some()
            && !protected().any(|entry| !entry.shared)
    }

    /// It is known of all that `key` and its relatives have in common.
    pub(super) fn knows_holders(&self, key: SpaceKey) -> bool {
        let Guarding { not_yet, under_way, .. } = &self.guarding;
        let mut family = self.spaces[&key].relatives.iter().chain([&key]);
        let is_open = |of: &SpaceKey| {
            self.spaces[of].unguarded
                || not_yet.iter().any(|(parent, child)| of == parent || of == child)
                || under_way.iter().any(|next| *of == next.parent || *of == next.child)
        };
        !family.any(is_open)
    }

    /// Of those that have the frame of `base` in common with `key`, one that does not count as having one.
    fn uncounted(&self, key: SpaceKey, base: u64) -> Option<SpaceKey> {
        let entry = self.entry(key, base);
        if !entry.protected {
            return None;
        }
        if entry.shared {
            return Some(key);
        }
        let counts_not = |other: &&SpaceKey| {
            let entry = self.entry(**other, base);
            entry.protected && entry.shared
        };
        self.spaces[&key].relatives.iter().find(counts_not).copied()
    }

    fn needs_frame(&self, key: SpaceKey, base: u64) -> bool {
        self.uncounted(key, base).is_some()
    }

    /// `key` gets a frame of its own for `base`, or has got one: one more counts, if anybody has the other.
    fn take_own(&mut self, key: SpaceKey, base: u64) {
        let uncounted = self.uncounted(key, base);
        let entry = self.entry(key, base);
        if entry.protected {
            self.set_entry(key, base, Entry { protected: false, ..entry });
        }
        if let Some(other) = uncounted {
            self.spaces.get_mut(&key).expect("the caller has it").copies += 1;
            let entry = self.entry(other, base);
            self.set_entry(other, base, Entry { shared: false, ..entry });
            self.stats.copied += 1;
        }
    }

    /// The hand makes `base` the process's own. Of two that share a frame, one gets a frame of its own; the one that did not count as having one does now.
    pub(super) fn count_own_frame(&mut self, key: SpaceKey, base: u64) {
        if self.entry(key, base).protected {
            self.take_own(key, base);
            return;
        }
        // Of what is protected it is known who has which.
        let counts_not = |key: &SpaceKey| {
            let entry = self.entry(*key, base);
            entry.shared && !entry.protected
        };
        let relatives = self.spaces[&key].relatives.iter().copied();
        if let Some(key) = core::iter::once(key).chain(relatives).find(counts_not) {
            let entry = self.entry(key, base);
            self.set_entry(key, base, Entry { shared: false, ..entry });
        }
    }
}
