//! One adopted address space: which addresses are adopted, and the state of each of their base pages.
//!
//! State hangs on extents (1 MiB) that exist only where a page was ever local or away, so a huge sparse
//! reservation costs one range.

use super::copies::CopyIndex;
use crate::page_size::PageSize;
use crate::units::EXTENT_BASE_PAGES;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU8;

/// One address space of a borrowing process tree; never used twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceKey(pub u32);

/// Base pages `start..end`; an index is an address divided by 4,096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseRange {
    /// First base page.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

impl BaseRange {
    /// `start..end`.
    ///
    /// # Panics
    /// If it ends before it starts.
    pub fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "a range ends before it starts");
        Self { start, end }
    }
    /// Base pages in it.
    pub fn len(self) -> u64 {
        self.end - self.start
    }
    /// Nothing in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
    /// What both have.
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
    /// What is before `hole`, and behind it; if they have nothing in common, the whole.
    pub fn without(self, hole: Self) -> impl Iterator<Item = Self> {
        let cut = self.intersect(hole);
        let parts = if cut.is_empty() {
            [self, Self::new(self.end, self.end)]
        } else {
            [Self::new(self.start, cut.start), Self::new(cut.end, self.end)]
        };
        parts.into_iter().filter(|part| !part.is_empty())
    }
    /// `base` lies in it.
    pub fn contains(self, base: u64) -> bool {
        self.start <= base && base < self.end
    }
}

/// Where one base page's contents are. A page is in exactly one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaseState {
    /// Never touched, discarded, or all zeros: no contents anywhere, the next touch reads zeros.
    #[default]
    Empty,
    /// In the program's memory.
    Local,
    /// The hand was told to take it.
    Leaving,
    /// Only in copies (victim buffer, lender, disk).
    Away,
    /// In copies, and on its way back.
    Fetching,
    /// No copy is left; a touch ends the program.
    Lost,
}

const NO_COPY: u32 = u32::MAX;
/// It came with contents, and the copy was given up: see [`Entry::had_copy`].
const GIVEN_UP: u32 = u32::MAX - 1;

/// One for each base page.
type Bits = [u64; EXTENT_BASE_PAGES / 64];

#[derive(Clone, Debug)]
struct Extent {
    state: [BaseState; EXTENT_BASE_PAGES],
    copy: [u32; EXTENT_BASE_PAGES],
    /// Base pages whose frame is a forked relative's too.
    shared: Bits,
    /// Base pages that are here as they were at a fork, and protected.
    protected: Bits,
    /// Base pages that a discard may have taken with it.
    unsure: Bits,
    /// Base pages that could not be taken away, and are not asked for again before their page is.
    stuck: Bits,
    /// For each base page that begins a page which stands in the replacement queue: 1 plus that page's [`PageSize`]. Else 0. Two a byte.
    queued: [u8; EXTENT_BASE_PAGES / 2],
    /// While the queue is tidied: of those base pages, the ones whose page has been found there.
    listed: Bits,
    /// For each base page that begins one that has come: in which part of the program.
    part: [u8; EXTENT_BASE_PAGES],
    /// Base pages that begin a page which was brought, as bits that are quickly counted; for each of them what was here with it.
    brought: Bits,
    together: [Option<Together>; EXTENT_BASE_PAGES],
    used: u16,
}

impl Extent {
    const fn new() -> Self {
        Self {
            state: [BaseState::Empty; EXTENT_BASE_PAGES],
            copy: [NO_COPY; EXTENT_BASE_PAGES],
            shared: [0; EXTENT_BASE_PAGES / 64],
            protected: [0; EXTENT_BASE_PAGES / 64],
            unsure: [0; EXTENT_BASE_PAGES / 64],
            stuck: [0; EXTENT_BASE_PAGES / 64],
            queued: [0; EXTENT_BASE_PAGES / 2],
            listed: [0; EXTENT_BASE_PAGES / 64],
            brought: [0; EXTENT_BASE_PAGES / 64],
            part: [0; EXTENT_BASE_PAGES],
            together: [None; EXTENT_BASE_PAGES],
            used: 0,
        }
    }
}

impl Extent {
    fn entry(&self, i: usize) -> Entry {
        Entry {
            state: self.state[i],
            copy: (self.copy[i] < GIVEN_UP).then_some(CopyIndex(self.copy[i])),
            had_copy: self.copy[i] == GIVEN_UP,
            shared: is_set(&self.shared, i),
            protected: is_set(&self.protected, i),
            unsure: is_set(&self.unsure, i),
        }
    }

    fn set_entry(&mut self, i: usize, entry: Entry) {
        let (was_empty, empty) = (self.state[i] == BaseState::Empty, entry.state == BaseState::Empty);
        assert!(!empty || (entry.copy.is_none() && !entry.shared), "an empty page has no copy");
        self.state[i] = entry.state;
        let here = matches!(entry.state, BaseState::Local | BaseState::Leaving);
        let none = if entry.had_copy && here { GIVEN_UP } else { NO_COPY };
        self.copy[i] = entry.copy.map_or(none, |c| c.0);
        set(&mut self.shared, i, entry.shared);
        set(&mut self.protected, i, entry.protected && here);
        set(&mut self.unsure, i, entry.unsure && here);
        if entry.state != BaseState::Local {
            set(&mut self.stuck, i, false);
        }
        if was_empty != empty {
            if empty {
                self.used -= 1;
            } else {
                self.used += 1;
            }
        }
    }

    fn queued_at(&self, i: usize) -> Option<PageSize> {
        let code = self.queued[i / 2] >> (i % 2 * 4) & 0x0f;
        (code > 0).then(|| PageSize::from_log2(code - 1))
    }

    /// Pages that begin in it and stand in the replacement queue.
    fn queued_pages(&self) -> u64 {
        self.queued.iter().map(|two| u64::from(two & 0x0f > 0) + u64::from(two >> 4 > 0)).sum()
    }

    /// Of each page of this size, whether it has been brought, as a whole or in part: at the bit of its first base page.
    fn brought_as(&self, size: PageSize) -> Bits {
        let mut pages = self.brought;
        // Each bit tells of twice as many base pages after each turn.
        for n in (0..size.log2()).map(|log2| 1_usize << log2) {
            for w in 0..pages.len() {
                let next = if n < 64 { pages[w] >> n } else { pages.get(w + n / 64).copied().unwrap_or(0) };
                pages[w] |= next;
            }
        }
        let n = size.base_pages();
        let mut firsts = (0..EXTENT_BASE_PAGES as u64 / 64).map(|w| match n {
            0..64 => u64::MAX / ((1 << n) - 1),
            _ => u64::from(w % (n / 64) == 0),
        });
        pages.map(|bits| bits & firsts.next().expect("as many as there are words"))
    }
}

/// What is here with a page: the largest pages around it of which three quarters have been brought in pages as small as it, when it comes
/// and at most. (What has come in a larger one was perhaps not wanted.) One byte: 1 plus the second in the low half, so that there is a
/// value for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Together(NonZeroU8);

impl Together {
    fn new(first: PageSize, most: PageSize) -> Self {
        Self(NonZeroU8::new(first.log2() << 4 | (1 + most.log2())).expect("the low half is not zero"))
    }
    fn first(self) -> PageSize {
        PageSize::from_log2(self.0.get() >> 4)
    }
    fn most(self) -> PageSize {
        PageSize::from_log2((self.0.get() & 0x0f) - 1)
    }
}

/// What the table says of one base page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub state: BaseState,
    /// The copy: the only contents when away, perhaps still equal when local.
    pub copy: Option<CopyIndex>,
    /// Here, and came with contents, of which the copy was given up ([`super::home`]): not what fresh memory was written with.
    pub had_copy: bool,
    /// Its frame is a forked relative's too, and counted there.
    pub shared: bool,
    /// Here, and not written since a fork: a write is told before it is done ([`Effect::Protect`](super::Effect::Protect)).
    pub protected: bool,
    /// Zeros that came while a discard of it may have been under way ([`super::discards`]): if it is missing, zeros are what belongs there.
    pub unsure: bool,
}

impl Entry {
    /// It has a frame of its own.
    pub(super) fn has_frame(&self) -> bool {
        matches!(self.state, BaseState::Local | BaseState::Leaving | BaseState::Fetching) && !self.shared
    }

    /// It is here, in a frame of its own.
    pub(super) fn is_own(&self) -> bool {
        self.state == BaseState::Local && !self.shared
    }

    /// It is leaving, and so will a frame.
    pub(super) fn frame_leaves(&self) -> bool {
        self.state == BaseState::Leaving && !self.shared
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    ranges: BTreeMap<u64, u64>,
    extents: BTreeMap<u64, Box<Extent>>,
    adopted: u64,
    /// Base pages that [`Self::next_away`] has looked at.
    #[cfg(test)]
    pub(super) looked_at: core::cell::Cell<u64>,
}

fn is_set(bits: &Bits, i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 == 1
}

fn set(bits: &mut Bits, i: usize, value: bool) {
    bits[i / 64] = bits[i / 64] & !(1 << (i % 64)) | u64::from(value) << (i % 64);
}

const fn split(base: u64) -> (u64, usize) {
    (base / EXTENT_BASE_PAGES as u64, (base % EXTENT_BASE_PAGES as u64) as usize)
}

impl Table {
    /// Base pages that are adopted.
    pub(super) fn adopted(&self) -> u64 {
        self.adopted
    }

    /// Adopts `range`; what was adopted already stays as it is.
    pub(super) fn add_range(&mut self, range: BaseRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Everything that touches the new range melts into it.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.adopted -= e - s;
            self.ranges.remove(&s);
        }
        self.adopted += end - start;
        assert!(self.ranges.insert(start, end).is_none());
    }

    /// Takes `range` out; its entries must be empty already.
    pub(super) fn remove_range(&mut self, range: BaseRange) {
        let mut cut = Vec::new();
        for (&s, &e) in self.ranges.range(..range.end).rev() {
            if e <= range.start {
                break;
            }
            cut.push((s, e));
        }
        for (s, e) in cut {
            self.ranges.remove(&s);
            self.adopted -= e - s;
            if s < range.start {
                self.ranges.insert(s, range.start);
                self.adopted += range.start - s;
            }
            if e > range.end {
                self.ranges.insert(range.end, e);
                self.adopted += e - range.end;
            }
        }
    }

    /// The adopted range around `base`.
    pub(super) fn range_of(&self, base: u64) -> Option<BaseRange> {
        let (&start, &end) = self.ranges.range(..=base).next_back()?;
        (base < end).then_some(BaseRange { start, end })
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = BaseRange> {
        self.ranges.iter().map(|(&start, &end)| BaseRange { start, end })
    }

    pub(super) fn get(&self, base: u64) -> Entry {
        let (x, i) = split(base);
        self.extents.get(&x).map_or_else(Entry::default, |extent| extent.entry(i))
    }

    /// Sets the entry of `base`.
    pub(super) fn set(&mut self, base: u64, entry: Entry) {
        let (x, i) = split(base);
        if entry.state == BaseState::Empty && !self.extents.contains_key(&x) {
            return;
        }
        self.extents.entry(x).or_insert_with(|| Box::new(Extent::new())).set_entry(i, entry);
    }

    /// Appends what has contents in `part`, which lies in one extent (see [`Self::next_used`]).
    pub(super) fn entries_in(&self, part: BaseRange, out: &mut Vec<(u64, Entry)>) {
        let (x, i) = split(part.start);
        let Some(extent) = self.extents.get(&x) else { return };
        let used = (part.start..part.end).zip(i..).filter(|&(_, i)| extent.state[i] != BaseState::Empty);
        out.extend(used.map(|(base, i)| (base, extent.entry(i))));
    }

    /// Empties what is in `part`, which lies in one extent; one that has no contents any more is dropped. Returns how many pages that stand in the
    /// replacement queue are not known of any more.
    pub(super) fn empty(&mut self, part: BaseRange) -> u64 {
        let (x, i) = split(part.start);
        if part.len() < EXTENT_BASE_PAGES as u64
            && let Some(extent) = self.extents.get_mut(&x)
        {
            (i..i + part.len() as usize).for_each(|i| extent.set_entry(i, Entry::default()));
            if extent.used > 0 {
                return 0;
            }
        }
        self.extents.remove(&x).map_or(0, |extent| extent.queued_pages())
    }

    /// Lets `change` see and change each entry that has contents, in order.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(u64, &mut Entry)) {
        for (&x, extent) in &mut self.extents {
            for i in 0..EXTENT_BASE_PAGES {
                if extent.state[i] == BaseState::Empty {
                    continue;
                }
                let mut entry = extent.entry(i);
                change(x * EXTENT_BASE_PAGES as u64 + i as u64, &mut entry);
                extent.set_entry(i, entry);
            }
        }
    }

    /// Base pages in `range` that have contents, in order.
    pub(super) fn used_in(&self, range: BaseRange, out: &mut Vec<u64>) {
        let n = EXTENT_BASE_PAGES as u64;
        for (&x, extent) in self.extents.range(range.start / n..range.end.div_ceil(n)) {
            for i in 0..EXTENT_BASE_PAGES {
                let base = x * n + i as u64;
                if extent.state[i] != BaseState::Empty && range.contains(base) {
                    out.push(base);
                }
            }
        }
    }

    /// The part of `range` in the next extent where anything is. `None`: nothing is in it.
    pub(super) fn next_used(&self, range: BaseRange) -> Option<BaseRange> {
        let n = EXTENT_BASE_PAGES as u64;
        let (&x, _) = self.extents.range(range.start / n..range.end.div_ceil(n)).next()?;
        Some(BaseRange::new(x * n, (x + 1) * n).intersect(range))
    }

    /// The first base page in `range` that has contents away, or leaving, or on their way back, or lost.
    pub(super) fn next_away(&self, range: BaseRange) -> Option<u64> {
        let n = EXTENT_BASE_PAGES as u64;
        self.extents.range(range.start / n..range.end.div_ceil(n)).find_map(|(&x, extent)| {
            let part = BaseRange::new(x * n, (x + 1) * n).intersect(range);
            let states = &extent.state[(part.start - x * n) as usize..(part.end - x * n) as usize];
            let is_away = |state: &BaseState| {
                use BaseState::{Away, Fetching, Leaving, Lost};
                matches!(state, Away | Fetching | Leaving | Lost)
            };
            let found = states.iter().position(is_away);
            #[cfg(test)]
            self.looked_at.set(self.looked_at.get() + found.map_or(states.len(), |i| i + 1) as u64);
            found.map(|i| part.start + i as u64)
        })
    }

    /// Says how large the page is that begins at `base` and stands in the replacement queue, or that none does any longer; returns what
    /// was said before.
    pub(super) fn set_queued(&mut self, base: u64, size: Option<PageSize>) -> Option<PageSize> {
        let (x, i) = split(base);
        let extent = self.extents.get_mut(&x)?;
        let was = extent.queued_at(i);
        let code = size.map_or(0, |size| 1 + size.log2());
        let cell = &mut extent.queued[i / 2];
        *cell = if i.is_multiple_of(2) { *cell & 0xf0 | code } else { *cell & 0x0f | code << 4 };
        was
    }

    /// The size of the page that begins at `base` and stands in the replacement queue.
    pub(super) fn queued(&self, base: u64) -> Option<PageSize> {
        let (x, i) = split(base);
        self.extents.get(&x)?.queued_at(i)
    }

    /// The replacement queue has a page that begins at `base`. False: none stands there, or it has been listed already.
    pub(super) fn list(&mut self, base: u64) -> bool {
        let (x, i) = split(base);
        let Some(extent) = self.extents.get_mut(&x).filter(|extent| extent.queued_at(i).is_some()) else {
            return false;
        };
        let is_first = !is_set(&extent.listed, i);
        set(&mut extent.listed, i, true);
        is_first
    }

    /// Takes that back.
    pub(super) fn unlist(&mut self, base: u64) {
        let (x, i) = split(base);
        if let Some(extent) = self.extents.get_mut(&x) {
            set(&mut extent.listed, i, false);
        }
    }

    /// Pages that stand in the replacement queue.
    pub(super) fn queued_pages(&self) -> u64 {
        self.extents.values().map(|extent| extent.queued_pages()).sum()
    }

    /// The smallest page in the replacement queue that has `base`, if it is at least as large as `least`: its first base page and size.
    pub(super) fn queued_around(&self, base: u64, least: PageSize) -> Option<(u64, PageSize)> {
        let (x, _) = split(base);
        let extent = self.extents.get(&x)?;
        PageSize::all().skip(usize::from(least.log2())).find_map(|size| {
            let first = size.first(base);
            extent.queued_at(split(first).1).filter(|&queued| queued >= size).map(|queued| (first, queued))
        })
    }

    /// Base pages of a page that are here in frames of their own.
    pub(super) fn own_in(&self, first: u64, size: PageSize) -> u64 {
        let (x, i) = split(first);
        let Some(extent) = self.extents.get(&x) else { return 0 };
        let is_shared = |i: usize| extent.shared[i / 64] >> (i % 64) & 1 == 1;
        let all = i..i + size.base_pages() as usize;
        all.filter(|&i| extent.state[i] == BaseState::Local && !is_shared(i)).count() as u64
    }

    /// All pages in the replacement queue that have `base`: their first base pages.
    pub(super) fn all_queued_around(&self, base: u64) -> impl Iterator<Item = u64> {
        let extent = self.extents.get(&split(base).0);
        let mut last = None;
        PageSize::all().filter_map(move |size| {
            let first = size.first(base);
            let is_new = last.replace(first) != Some(first);
            // One that begins there has it if it reaches that far: sizes are powers of two.
            let queued = extent.filter(|_| is_new)?.queued_at(split(first).1)?;
            (base < first + queued.base_pages()).then_some(first)
        })
    }

    /// Where pages in the replacement queue begin, and their sizes, in `part`, which lies in one extent (see [`Self::next_used`]).
    pub(super) fn queued_in(&self, part: BaseRange) -> impl Iterator<Item = (u64, PageSize)> {
        let (x, i) = split(part.start);
        let extent = self.extents.get(&x);
        (part.start..part.end).zip(i..).filter_map(move |(first, i)| Some((first, extent?.queued_at(i)?)))
    }

    /// A local base page could not be taken away and is left alone, or no longer.
    pub(super) fn set_stuck(&mut self, base: u64, stuck: bool) {
        let (x, i) = split(base);
        if let Some(extent) = self.extents.get_mut(&x) {
            set(&mut extent.stuck, i, stuck && extent.state[i] == BaseState::Local);
        }
    }

    /// All are asked for again.
    pub(super) fn forget_stuck(&mut self) {
        self.extents.values_mut().for_each(|extent| extent.stuck = Bits::default());
    }

    /// See [`Self::set_stuck`].
    pub(super) fn is_stuck(&self, base: u64) -> bool {
        let (x, i) = split(base);
        self.extents.get(&x).is_some_and(|extent| is_set(&extent.stuck, i))
    }

    /// Appends the local base pages of a page, but for those that are stuck, or in a smaller page of their own in the replacement queue.
    pub(super) fn local_of(&self, first: u64, size: PageSize, out: &mut Vec<u64>) {
        let (x, i) = split(first);
        let Some(extent) = self.extents.get(&x) else { return };
        let end = i + size.base_pages() as usize;
        let mut at = i;
        while at < end {
            match extent.queued_at(at).filter(|_| at > i) {
                Some(other) => at += other.base_pages() as usize,
                None => {
                    if extent.state[at] == BaseState::Local && !is_set(&extent.stuck, at) {
                        out.push(first + (at - i) as u64);
                    }
                    at += 1;
                }
            }
        }
    }

    /// Base pages of `range`, which lies in one extent, that are neither here nor on their way.
    pub(super) fn missing_in(&self, range: BaseRange) -> u64 {
        let (x, i) = split(range.start);
        let Some(extent) = self.extents.get(&x) else { return range.len() };
        let states = &extent.state[i..i + range.len() as usize];
        states.iter().filter(|state| matches!(state, BaseState::Empty | BaseState::Away)).count() as u64
    }

    /// A page comes in this part of the program: says so of it, and of everything around that is together with it now.
    pub(super) fn note_brought(&mut self, first: u64, size: PageSize, part: u8) {
        let (x, i) = split(first);
        let Some(extent) = self.extents.get_mut(&x) else { return };
        extent.brought[i / 64] |= 1 << (i % 64);
        extent.part[i] = part;
        let pages = extent.brought_as(size);
        let (mut most, mut around) = (size, i..i + size.base_pages() as usize);
        for larger in PageSize::all().skip(1 + usize::from(size.log2())) {
            let n = larger.base_pages() as usize;
            let start = split(larger.first(first)).1;
            let brought = match n {
                ..64 => (pages[start / 64] >> (start % 64) & ((1 << n) - 1)).count_ones(),
                _ => pages[start / 64..(start + n) / 64].iter().map(|bits| bits.count_ones()).sum(),
            };
            if u64::from(brought) * size.base_pages() * 4 >= larger.base_pages() * 3 {
                (most, around) = (larger, start..start + n);
            }
        }
        extent.together[i] = Some(Together::new(most, most));
        for i in around {
            // Of a smaller one only a part need have been brought.
            let Some(together) = extent.together[i].filter(|_| extent.queued_at(i).is_none_or(|s| s >= size))
            else {
                continue;
            };
            extent.together[i] = Some(Together::new(together.first(), together.most().max(most)));
        }
    }

    /// A page comes in this part of the program, of which nothing need have been brought. One that was brought, and is still here, stays of the part that brought it.
    pub(super) fn note_part(&mut self, first: u64, part: u8) {
        let (x, i) = split(first);
        if let Some(extent) = self.extents.get_mut(&x).filter(|extent| extent.together[i].is_none()) {
            extent.part[i] = part;
        }
    }

    /// The part in which the last page came that began here.
    pub(super) fn part_of(&self, first: u64) -> u8 {
        let (x, i) = split(first);
        self.extents.get(&x).map_or(0, |extent| extent.part[i])
    }

    /// A page that begins here was brought.
    pub(super) fn is_brought(&self, first: u64) -> bool {
        let (x, i) = split(first);
        self.extents.get(&x).is_some_and(|extent| extent.brought[i / 64] >> (i % 64) & 1 == 1)
    }

    /// A page leaves: the part that it came in, and what was together with it when it came, and at most. `None`: it was not brought.
    pub(super) fn note_left(&mut self, first: u64) -> Option<(u8, PageSize, PageSize)> {
        let (x, i) = split(first);
        let extent = self.extents.get_mut(&x)?;
        extent.brought[i / 64] &= !(1 << (i % 64));
        let together = extent.together[i].take()?;
        Some((extent.part[i], together.first(), together.most()))
    }

    /// Forgets what was brought in the range: it is discarded, or stands elsewhere by now.
    pub(super) fn forget_brought(&mut self, range: BaseRange) {
        let n = EXTENT_BASE_PAGES as u64;
        for (&x, extent) in self.extents.range_mut(range.start / n..range.end.div_ceil(n)) {
            let (start, end) = (range.start.max(x * n) - x * n, range.end.min((x + 1) * n) - x * n);
            for i in start as usize..end as usize {
                extent.brought[i / 64] &= !(1 << (i % 64));
                extent.together[i] = None;
            }
        }
    }

    /// Forgets which pages stand in the queue, and came for what: a forked child's copy of the table has its own.
    pub(super) fn clear_queued(&mut self) {
        for extent in self.extents.values_mut() {
            extent.queued = [0; EXTENT_BASE_PAGES / 2];
            extent.brought = [0; EXTENT_BASE_PAGES / 64];
            extent.together = [None; EXTENT_BASE_PAGES];
        }
    }

    /// Bytes of this table, for the agent's own accounting.
    pub(super) fn table_bytes(&self) -> u64 {
        (self.extents.len() * size_of::<Extent>() + self.ranges.len() * 48) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hole_cuts_a_range() {
        let cut = |a: (u64, u64), b: (u64, u64)| -> Vec<(u64, u64)> {
            BaseRange::new(a.0, a.1).without(BaseRange::new(b.0, b.1)).map(|r| (r.start, r.end)).collect()
        };
        assert_eq!(cut((10, 20), (12, 14)), [(10, 12), (14, 20)]);
        assert_eq!(cut((10, 20), (0, 14)), [(14, 20)]);
        assert_eq!(cut((10, 20), (14, 40)), [(10, 14)]);
        assert_eq!(cut((10, 20), (20, 40)), [(10, 20)]);
        assert_eq!(cut((10, 20), (0, 5)), [(10, 20)]);
        assert_eq!(cut((10, 20), (0, 40)), []);
    }

    #[test]
    fn an_extent_costs_little_for_each_base_page() {
        // With the 48 bytes of a copy within the 64 of the bar.
        assert!(size_of::<Extent>() <= EXTENT_BASE_PAGES * 9);
    }

    #[test]
    fn that_a_copy_was_given_up_is_known_while_the_page_is_here() {
        let mut table = Table::default();
        let mut set = |entry: Entry| {
            table.set(7, entry);
            table.get(7)
        };
        let here = Entry { state: BaseState::Local, had_copy: true, ..Entry::default() };
        assert_eq!(set(here), here);
        let leaving = Entry { state: BaseState::Leaving, ..here };
        assert_eq!(set(leaving), leaving);
        let away = Entry { state: BaseState::Away, copy: Some(CopyIndex(GIVEN_UP - 1)), ..here };
        assert_eq!(set(away), Entry { had_copy: false, ..away });
        assert_eq!(set(Entry { state: BaseState::Empty, ..here }), Entry::default());
    }

    fn left(table: &mut Table, first: u64) -> Option<(u8, u8)> {
        table.note_left(first).map(|(part, first, most)| {
            assert_eq!(part, 3);
            (first.log2(), most.log2())
        })
    }

    #[test]
    fn pages_are_together_when_three_quarters_have_been_brought() {
        let (mut table, size) = (Table::default(), PageSize::from_log2(1));
        table.set(0, Entry { state: BaseState::Local, ..Entry::default() });
        // Two of four are half, the third makes it three quarters.
        [0, 6, 4].into_iter().for_each(|first| table.note_brought(first, size, 3));
        assert_eq!(left(&mut table, 0), Some((1, 3)));
        assert_eq!(left(&mut table, 0), None, "it has left");
        assert_eq!(left(&mut table, 4), Some((3, 3)), "when it came");
        table.note_brought(64, size, 3);
        assert_eq!(left(&mut table, 64), Some((1, 1)), "alone");
        assert_eq!(left(&mut table, 2), None, "it never came");
    }

    #[test]
    fn what_came_in_a_large_page_is_not_together_with_small_ones() {
        let mut table = Table::default();
        table.set(0, Entry { state: BaseState::Local, ..Entry::default() });
        table.note_brought(0, PageSize::from_log2(3), 3);
        table.note_brought(9, PageSize::SMALLEST, 3);
        assert_eq!(left(&mut table, 9), Some((0, 0)));
        // For a page as large, what is in the other half is as good as all of it.
        table.note_brought(9, PageSize::SMALLEST, 3);
        table.note_brought(8, PageSize::from_log2(3), 3);
        assert_eq!(left(&mut table, 8), Some((4, 4)));
    }

    proptest! {
        /// The bits of larger pages are those of the base pages in them.
        #[test]
        fn brought_pages_of_any_size(firsts in proptest::collection::btree_set(0_usize..EXTENT_BASE_PAGES, 0..40)) {
            let mut extent = Extent::new();
            firsts.iter().for_each(|&i| extent.brought[i / 64] |= 1 << (i % 64));
            for size in PageSize::all() {
                let bits = extent.brought_as(size);
                let listed: Vec<u64> = (0..EXTENT_BASE_PAGES as u64).filter(|&i| bits[i as usize / 64] >> (i % 64) & 1 == 1).collect();
                let mut model: Vec<u64> = firsts.iter().map(|&i| size.first(i as u64)).collect();
                model.dedup();
                prop_assert_eq!(listed, model);
            }
        }

        /// Ranges behave as a set of base pages does.
        #[test]
        fn ranges_are_a_set(ops in proptest::collection::vec((any::<bool>(), 0u64..600, 0u64..80), 1..60)) {
            let mut table = Table::default();
            let mut model = BTreeSet::new();
            for (add, start, len) in ops {
                let range = BaseRange::new(start, start + len);
                if add {
                    table.add_range(range);
                    model.extend(range.start..range.end);
                } else {
                    table.remove_range(range);
                    for b in range.start..range.end { model.remove(&b); }
                }
                prop_assert_eq!(table.adopted(), model.len() as u64);
                let listed: BTreeSet<u64> = table.ranges().flat_map(|r| r.start..r.end).collect();
                prop_assert_eq!(&listed, &model);
                for b in 0..700 {
                    prop_assert_eq!(table.range_of(b).is_some(), model.contains(&b));
                }
            }
        }
    }
}
