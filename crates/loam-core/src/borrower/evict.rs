//! Pages on their way out.

use super::advice::Why;
use super::copies::{BufferIndex, LenderIndex, Stored};
use super::prefetch::StreamSpace;
use super::space::Space;
use super::table::{BaseState, Entry, SpaceKey};
use super::{BatchId, Borrower, Effect};
use crate::ids::ContentHash;
use crate::page_size::{Fill, PageSize};
use crate::replacement::PageRef;
use crate::staging::{Reserve, ReserveConfig};
use crate::units::{Duration, EXTENT_BASE_PAGES, Instant};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Frames that are kept free at least, and at most; in between as many as are wanted, within a part of the budget.
const RESERVE_MIN: u64 = 64;
const RESERVE_MAX: u64 = 16 * 1024;
/// Base pages that leave together at most. A shootdown costs the same for one page as for 256 (DESIGN.md, section 3).
pub(super) const BATCH_PAGES: usize = EXTENT_BASE_PAGES;
/// Batches under way at a time.
const BATCHES_MAX: usize = 3;
/// Fewer pages than this are not worth waking the hand for while more buffers are about to be free.
pub(super) const BATCH_PAGES_MIN: u64 = 64;
/// Pages that are passed over for one batch, and base pages that are found shared, before faults are looked at again.
const LOOKS_MAX: usize = 4096;
/// Pause after a batch was void.
const VOID_PAUSE: Duration = Duration::from_micros(50);
/// When batch after batch has freed nothing for so long, who waits for a frame gets one over the limit: the page
/// that holds the others may be his to give back (a system call that has pinned what it read so far and faults on the rest).
const VAIN_MAX: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Batch {
    space: SpaceKey,
    /// Base pages.
    pages: Vec<u64>,
    /// The pages that they are of.
    of: Vec<Leaving>,
    buffers: Vec<BufferIndex>,
    /// Fates reported so far.
    reported: usize,
    /// What became of each that is reported, in the same order, if anybody listens.
    fills: Option<Vec<(u64, Fill)>>,
    /// Base pages that could not be taken; and of these, where the mapping does not allow it.
    busy: Vec<u64>,
    denied: Vec<u64>,
    /// At least one base page has left.
    freed: bool,
    /// The hand has looked at one at least: not all of it was void.
    tried: bool,
    /// Some of it leaves because the program has said that it is not needed; some, because a reader in order has passed it.
    has_given: bool,
    has_passed: bool,
    /// Where its pages go; `None`: the disk alone.
    target: Option<LenderIndex>,
    /// When it began.
    since: Instant,
}

/// A page of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub first: u64,
    pub size: PageSize,
    /// The part in which it came.
    pub part: u8,
    /// Base pages of the batch up to its last.
    pub end: usize,
}

impl Batch {
    pub(super) fn space(&self) -> SpaceKey {
        self.space
    }
    /// Pages whose fate is not known yet.
    pub(super) fn unreported(&self) -> u64 {
        (self.pages.len() - self.reported) as u64
    }
    /// The page with which a base page leaves.
    fn page_of(&self, base: u64) -> (u64, PageSize) {
        let has = |page: &&Leaving| page.size.first(base) == page.first;
        // A base page may be in two of them, where sizes have changed: either will do.
        let page = self.of.iter().find(has).expect("a base page leaves with a page");
        (page.first, page.size)
    }
    /// A base page that could not be taken, and goes back when the batch is done.
    pub(super) fn keeps(&self, space: SpaceKey, base: u64) -> bool {
        self.space == space && self.busy.contains(&base)
    }
    /// Buffers for what is still to come.
    pub(super) fn buffers(&self) -> &[BufferIndex] {
        &self.buffers
    }
}

/// What became of one base page of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFate {
    /// It has left the program; its contents are with the driver and hash to this. `None`: they are zeros.
    Moved(Option<ContentHash>),
    /// There was no page.
    Hole,
    /// It is pinned or shared: still there.
    Busy,
    /// Its mapping does not allow it (protection, lock): still there.
    Denied,
    /// The command was void: still there.
    Cancelled,
    /// Nobody can say whether it was taken, nor what it had: who looks for it in vain must not be told anything.
    Unknown,
}

impl Borrower {
    /// The base pages of a batch, in order.
    ///
    /// # Panics
    /// If the batch is done.
    pub fn batch_pages(&self, batch: BatchId) -> (SpaceKey, &[u64]) {
        let b = &self.batches[&batch];
        (b.space, &b.pages)
    }

    /// How many of the batch's pages have had their fate.
    ///
    /// # Panics
    /// If the batch is done.
    pub fn batch_reported(&self, batch: BatchId) -> usize {
        self.batches[&batch].reported
    }

    /// The buffer that [`Self::handle_fate`] would give to the batch's next page: the driver may copy contents there first
    /// and judge them in the copy.
    ///
    /// # Panics
    /// If the batch is done, or every page has had its fate.
    pub fn batch_buffer(&self, batch: BatchId) -> BufferIndex {
        *self.batches[&batch].buffers.last().expect("a buffer for each page")
    }

    /// Evictions begin above this many frames.
    ///
    /// What is kept free is what faults take while an eviction is under way (nwcache-1999, sections 1 and 5: the least number of free frames, which
    /// the paper finds by trying).
    pub(super) fn high_water(&self) -> u64 {
        let least = (self.limit / 256).max(RESERVE_MIN).max(2 * self.page_largest());
        let most = (self.limit / 32).max(least).min(self.limit / 4);
        self.limit - self.reserve.frames().max(least).min(most)
    }

    /// Nothing is known of how many frames faults take.
    pub(super) fn new_reserve() -> Reserve {
        Reserve::new(ReserveConfig::Adaptive { frames_min: RESERVE_MIN, frames_max: RESERVE_MAX })
    }

    /// And go on down to this many.
    fn low_water(&self) -> u64 {
        let high = self.high_water();
        high - (self.limit / 128).clamp(BATCH_PAGES_MIN, 512).max(self.page_largest()).min(high / 2)
    }

    /// Starts as many batches as are wanted and can be.
    pub(super) fn evict(&mut self, now: Instant) {
        self.home.goes_on = false; // unless it is looked at again, and stopped
        if self.installs_pending > 0 || self.evict_pause_until.is_some_and(|t| t > now) {
            return;
        }
        let is_wanted = self.frames - self.will_leave() > self.high_water() || !self.queue.is_empty();
        let told = |s: &Self| !s.given.is_empty() || s.budgets.is_any_over();
        if is_wanted && self.can_wait_for_faults() && !told(self) {
            return;
        }
        if !is_wanted && !told(self) {
            if self.batches_under_way() == 0 {
                (self.vain_since, self.in_vain) = (None, false); // nothing is wanted: the next try is a first one
            }
            return;
        }
        if is_wanted {
            self.make_room_at_lenders();
        }
        let goal = self.low_water();
        while self.batches_under_way() < BATCHES_MAX {
            let above = (self.frames - self.will_leave()).saturating_sub(goal);
            let wanted = if is_wanted { above } else { 0 };
            if (wanted == 0 && !told(self)) || !self.start_batch(now, wanted) {
                break;
            }
        }
    }

    /// A thread waits for a page that is on its way, and frames are free for others: what is done for frames would only take a processor from what
    /// it waits for.
    fn can_wait_for_faults(&self) -> bool {
        let high = self.high_water();
        self.in_pieces
            && self.queue.is_empty()
            && !self.waits.is_empty()
            && self.frames - self.will_leave() <= high + (self.limit - high) / 2
    }

    /// Frames will be free without anybody doing anything more.
    pub(super) fn frames_will_come(&self) -> bool {
        if self.in_vain {
            return false;
        }
        let rests = self.spaces.values().any(Space::rests);
        self.batches_under_way() > 0
            || self.installs_pending > 0
            || self.waits_for_buffers()
            || rests
            || self.evict_pause_until.is_some()
            || self.tries_pinned()
    }

    /// Batches that nobody knows the end of.
    fn standing(&self) -> impl Iterator<Item = &Batch> {
        let stands_still = |key: SpaceKey| self.spaces.get(&key).is_some_and(|space| space.stands_still);
        self.batches.values().filter(move |batch| stands_still(batch.space))
    }

    /// The others.
    pub(super) fn batches_under_way(&self) -> usize {
        self.batches.len() - self.standing().count()
    }

    /// Frames that leave, as far as anybody knows.
    fn will_leave(&self) -> u64 {
        let standing: usize = self.standing().map(|batch| batch.pages.len() - batch.reported).sum();
        self.leaving.saturating_sub(standing as u64)
    }

    /// A batch begins when stores under way have given enough buffers back.
    fn waits_for_buffers(&self) -> bool {
        self.buffers_for_eviction() < BATCH_PAGES_MIN.max(self.page_largest()) && self.stores_in_flight > 0
    }

    /// A batch of so many base pages, and of what was said not to be needed, or is more than its range's budget. False: none could begin.
    fn start_batch(&mut self, now: Instant, wanted: u64) -> bool {
        let room = self.buffers_for_eviction().min(BATCH_PAGES as u64);
        // Where nothing can leave, making pages their process's own would only take frames.
        if room == 0 || self.waits_for_buffers() || wanted > 0 && self.make_other_side_own(now) {
            return false;
        }
        let mut pages: Vec<u64> = Vec::with_capacity(BATCH_PAGES);
        let mut of = Vec::new();
        let (mut from, mut has_given, mut has_passed): (Option<SpaceKey>, bool, bool) = (None, false, false);
        let mut looked_at = 0;
        while (pages.len() as u64) < room {
            if looked_at >= LOOKS_MAX {
                self.evict_pause_until.get_or_insert(now + VOID_PAUSE); // and go on then
                break;
            }
            let Some((victim, why)) = self.next_victim((pages.len() as u64) < wanted) else { break };
            looked_at += 1;
            let PageRef { space: key, first } = victim;
            let Some(space) = self.spaces.get(&key) else { continue };
            if space.rests() {
                self.put_back_victim(victim, why);
                break;
            }
            let Some(size) = self.set_queued(key, first, None) else {
                self.budgets.remove(victim);
                continue; // unmapped since
            };
            let space = self.spaces.get_mut(&key).expect("looked at above");
            if !space.gives() {
                space.parked.push((first, size));
                self.victim_goes(victim, why);
                continue;
            }
            let before = pages.len();
            space.table.local_of(first, size, &mut pages);
            if pages.len() == before {
                self.victim_goes(victim, why);
                continue;
            }
            let mut stay = 0;
            if matches!(why, Why::Policy | Why::Ranked(_)) {
                stay = self.take_out_shared(now, key, before, &mut pages);
                looked_at += stay;
                if pages.len() == before {
                    self.victim_goes(victim, why);
                    self.could_not_leave(now, key, (first, size), false);
                    continue;
                }
            }
            if from.is_some_and(|k| k != key) || pages.len() as u64 > room {
                pages.truncate(before);
                self.set_queued(key, first, Some(size));
                self.put_back_victim(victim, why);
                if from.is_none() {
                    return false; // nor can this, and no other is before it
                }
                break;
            }
            if stay > 0 {
                self.set_aside(now, key, (first, size));
            }
            // At once: another page of this batch may have them too.
            for &base in &pages[before..] {
                let entry = self.entry(key, base);
                self.set_entry(key, base, Entry { state: BaseState::Leaving, ..entry });
            }
            self.note_left(now, key, first, size, (pages.len() - before) as u64);
            self.victim_goes(victim, why);
            self.stats.advised_out += if why.is_advice() { (pages.len() - before) as u64 } else { 0 };
            has_given |= matches!(why, Why::Given(_));
            has_passed |= matches!(why, Why::Passed(_));
            self.incomplete.remove(&(key, first));
            let part = self.spaces.get(&key).map_or(0, |space| space.table.part_of(first));
            of.push(Leaving { first, size, part, end: pages.len() });
            from = Some(key);
        }
        let Some(key) = from else {
            let may = !self.spaces.values().any(Space::rests) && self.evict_pause_until.is_none();
            return wanted > 0 && may && self.break_sharing(now);
        };
        let mut buffers = Vec::with_capacity(pages.len());
        while buffers.len() < pages.len() {
            buffers.push(self.take_buffer().expect("the room was counted"));
        }
        let id = BatchId(self.batch_next);
        self.batch_next += 1;
        let target = self.next_lender(None);
        self.mirror_last = None;
        let fills = self.sizer.watches_pages().then(|| Vec::with_capacity(pages.len()));
        let batch = Batch {
            space: key,
            pages,
            of,
            buffers,
            reported: 0,
            fills,
            busy: Vec::new(),
            denied: Vec::new(),
            freed: false,
            tried: false,
            has_given,
            has_passed,
            target,
            since: now,
        };
        self.batches.insert(id, batch);
        self.effects.push_back(Effect::Evict(id));
        true
    }

    /// Base page number `index` of the batch met this fate; reported in order. If it answers with a buffer the
    /// driver copies the contents there before it does anything else.
    ///
    /// # Panics
    /// If the batch is not under way or the order is wrong.
    pub fn handle_fate(&mut self, batch: BatchId, index: usize, fate: PageFate) -> Option<BufferIndex> {
        let b = self.batches.get_mut(&batch).expect("the batch is under way");
        assert_eq!(b.reported, index, "fates come in order");
        b.reported += 1;
        let (key, base) = (b.space, b.pages[index]);
        self.target = b.target;
        b.tried |= fate != PageFate::Cancelled;
        b.freed |= matches!(fate, PageFate::Moved(_) | PageFate::Hole);
        if !self.spaces.contains_key(&key) {
            return None;
        }
        let entry = self.entry(key, base);
        assert_eq!(entry.state, BaseState::Leaving, "a page changed while the hand was at it");
        if let Some(fills) = &mut self.batches.get_mut(&batch).expect("still under way").fills {
            // What came with contents has a copy still, but for what was lost or given up, and what came before it was adopted or with a fork.
            let fill = match (entry.copy, fate) {
                (None, _) if entry.had_copy => Fill::Other,
                (None, PageFate::Moved(Some(_))) => Fill::Written,
                (None, PageFate::Moved(None)) => Fill::Unwritten,
                (Some(copy), PageFate::Moved(hash)) if hash != Some(self.copies.get(copy).hash) => {
                    Fill::Rewritten
                }
                _ => Fill::Other,
            };
            fills.push((base, fill));
        }
        match fate {
            PageFate::Moved(Some(hash)) => {
                self.stats.moved += 1;
                self.leave(batch, key, base, entry, hash)
            }
            PageFate::Moved(None) | PageFate::Hole => {
                let moved = u64::from(fate != PageFate::Hole);
                self.stats.moved += moved;
                self.stats.zero += moved;
                self.set_entry(key, base, Entry::default());
                entry.copy.inspect(|&c| self.release_ref(c));
                None
            }
            PageFate::Busy | PageFate::Denied => {
                self.stats.busy += 1;
                self.set_entry(key, base, Entry { state: BaseState::Local, ..entry });
                let b = self.batches.get_mut(&batch).expect("still under way");
                b.busy.push(base);
                if fate == PageFate::Denied {
                    b.denied.push(base);
                }
                None
            }
            PageFate::Cancelled => {
                self.set_entry(key, base, Entry { state: BaseState::Local, ..entry });
                let (_, size) = self.batches[&batch].page_of(base);
                self.enqueue(key, base, size);
                None
            }
            PageFate::Unknown => {
                self.set_entry(key, base, Entry { state: BaseState::Lost, ..Entry::default() });
                entry.copy.inspect(|&c| self.release_ref(c));
                None
            }
        }
    }

    /// A page has left with these contents. Clean or dirty is told by the hash (DESIGN.md, section 3).
    fn leave(
        &mut self,
        batch: BatchId,
        key: SpaceKey,
        base: u64,
        entry: Entry,
        hash: ContentHash,
    ) -> Option<BufferIndex> {
        let same = |s: &Self, c| s.copies.get(c).hash == hash && s.has_place(c);
        let copy = match entry.copy.filter(|&c| same(self, c)) {
            Some(copy) => {
                self.stats.clean += 1;
                copy
            }
            None => {
                let of_relative = self.copy_of_relative(key, base, |s, c| same(s, c));
                entry.copy.inspect(|&c| {
                    let without = Entry { copy: None, ..entry };
                    self.set_entry(key, base, without);
                    self.release_ref(c);
                });
                of_relative
                    .unwrap_or_else(|| self.copies.allocate(hash).expect("there are more copies than memory"))
            }
        };
        self.set_entry(key, base, Entry { state: BaseState::Away, copy: Some(copy), ..Entry::default() });
        let mut taken = None; // nothing, if the buffer of the last time still has it
        if self.copies.get(copy).buffer().is_none() {
            let b = self.batches.get_mut(&batch).expect("still under way");
            taken = Some(b.buffers.pop().expect("a buffer for each page"));
            self.copies.get_mut(copy).set_buffer(taken);
        } else if self.copies.get(copy).busy() || self.copies.get(copy).at_lender != Stored::No {
            return None;
        }
        let once = self.guards_from_scans && self.config.disk && entry.copy.is_none();
        let passed = once && {
            let (first, size) = self.batches[&batch].page_of(base);
            let page = (first / size.base_pages()) as i64;
            self.prefetcher.passed(StreamSpace { space: key, size }, page)
        };
        self.store_at(copy, !passed);
        if self.copies.get(copy).busy() {
            self.unmark_reusable(copy);
        }
        // The rest of the batch goes where this page could go.
        self.batches.get_mut(&batch).expect("still under way").target = self.target;
        self.settle(copy);
        taken
    }

    /// All fates of the batch are reported.
    ///
    /// # Panics
    /// If they are not.
    pub fn handle_batch_done(&mut self, now: Instant, batch: BatchId) {
        self.waits_clock(now);
        let b = self.batches.remove(&batch).expect("the batch is under way");
        assert_eq!(b.reported, b.pages.len(), "every page has a fate");
        self.free_buffers.extend(&b.buffers);
        if b.freed {
            self.reserve.handle_swapped_out(now - b.since);
        }
        if self.spaces.contains_key(&b.space) {
            self.time_swap_out(&b);
        }
        if !b.tried {
            // Whatever made it void is not over yet: the next one at once would be void too, for ever.
            self.evict_pause_until.get_or_insert(now + VOID_PAUSE);
        }
        if b.freed {
            self.vain_since = None;
        } else if b.has_given || b.has_passed {
            // Others may well leave.
            if b.has_given {
                self.keep_given(b.space);
            }
            if b.has_passed {
                self.readers.retain(|page| page.space != b.space);
            }
        } else {
            self.vain_since = self.vain_since.or(Some(now));
        }
        self.in_vain = self.vain_since.is_some_and(|since| now - since >= VAIN_MAX);
        let key = b.space;
        if let Some(fills) = &b.fills {
            self.note_filled(now, key, &b.of, fills);
        }
        self.settle_doubts(now);
        if let Some(space) = self.spaces.get_mut(&key) {
            space.denied += b.denied.len() as u64;
            let pages_of = |bases: &[u64]| bases.iter().map(|&base| b.page_of(base)).collect::<BTreeSet<_>>();
            let (busy, denied) = (pages_of(&b.busy), pages_of(&b.denied));
            let firsts = b.of.iter().map(|page| page.first);
            let has_left = |first: &u64| {
                busy.range((*first, PageSize::SMALLEST)..).next().is_none_or(|page| page.0 != *first)
            };
            self.forget_tried(key, firsts.filter(has_left));
            self.forget_pinned(key, b.of.iter().map(|page| (page.first, page.size)));
            for page in busy {
                if self.could_not_leave(now, key, page, denied.contains(&page)) {
                    self.leave_alone(key, b.busy.iter().copied().filter(|&base| b.page_of(base) == page));
                }
            }
            for base in b.pages {
                if !self.waits.contains_key(&(key, base)) {
                    continue;
                }
                if self.entry(key, base).state == BaseState::Local {
                    self.drop_wait(now, key, base);
                    self.effects.push_back(Effect::Wake { space: key, base, pages: 1 });
                } else {
                    self.serve(key, base);
                }
            }
        }
        self.advance(now);
    }

    /// Times the last page of a batch that is on its way somewhere.
    fn time_swap_out(&mut self, batch: &Batch) {
        let copy = |&base: &u64| {
            self.entry(batch.space, base).copy.filter(|&i| self.copies.get(i).busy() && !self.is_safe(i))
        };
        if let Some(i) = batch.pages.iter().rev().find_map(copy) {
            self.swapping.insert(i, (self.copies.get(i).version, batch.since));
        }
    }
}
