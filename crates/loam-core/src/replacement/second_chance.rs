//! FIFO with a second chance: the live agent's policy.

use super::{PageRef, Replacement};
use crate::borrower::SpaceKey;
use crate::page_size::PageSize;
use alloc::collections::{BTreeMap, VecDeque};

/// This part of the frames is on trial at least. (With a 64th, a sweep across large pages had none of them for long enough to come to its second use, and what
/// was known of them was that they were of no use; with an eighth, pages that are used all the time leave more often.)
const TRIAL_SHARE: u64 = 24;
/// Pages that left are remembered until as much as there is has left, and so many of them at least.
const REMEMBERED_MIN: usize = 64;
/// Highest level of a proven page.
const LEVEL_MAX: u32 = 4;
/// Void entries are cleared away when there are so many more than pages.
const VOIDS_MIN: usize = 1024;
/// Proven pages that one search for a victim passes over at most.
const PASSED_MAX: usize = 64;

/// FIFO with a second chance, which the victim buffer gives: a page that is touched while it waits there is rescued and comes
/// in again at the end (DESIGN.md, section 3, "Local replacement": there are no access bits to read).
///
/// That alone takes a page that is in use all the time away once in each turn of the queue. The one thing that a page without
/// access bits shows is how soon it is wanted again after it has left. So there are two queues. A page begins *on trial*. One
/// that comes back before as many others have left as there are is *proven* and queues with its like, which leave only as others
/// prove themselves (2Q's idea, and the kernel's refault distance). A scan stays on trial and takes nothing from the proven.
///
/// A proven page has a level: how many times sooner it came back than that, as a power of two, and one higher than the last time at
/// most. Its turns in the queue double with each level before it is taken away to see again (as a CLOCK with
/// counters has it, where the counter is the frequency that the distance shows).
///
/// Pages differ in size, and change it: what is counted is base pages. (By number, a few large pages that proved themselves once would be next to nothing beside
/// many small ones, and stay for ever with most of the memory.)
#[derive(Debug, Default)]
pub struct SecondChanceFifo {
    trial: VecDeque<Queued>,
    proven: VecDeque<Proven>,
    /// Base pages of both queues' entries, the void ones' too.
    trial_frames: u64,
    proven_frames: u64,
    /// Base pages that have left so far.
    clock: u64,
    /// Pages that have left and not come back, and in what order they did.
    left_at: BTreeMap<PageRef, Left>,
    left: VecDeque<(PageRef, u64)>,
    /// Entries in the queues that count for nothing, by page: it has left otherwise ([`Replacement::removed`]), and perhaps come back. They are the
    /// first ones of the page.
    void: BTreeMap<PageRef, u32>,
    voids: usize,
    /// Where the last victim was taken from, and how large it was.
    from_proven: bool,
    last_size: Option<PageSize>,
}

/// A [`PageRef`] and its page's size, in as many bytes.
#[derive(Clone, Copy, Debug)]
struct Queued {
    first: u64,
    space: SpaceKey,
    size: PageSize,
}

impl Queued {
    fn new(page: PageRef, size: PageSize) -> Self {
        Self { first: page.first, space: page.space, size }
    }

    fn page(self) -> PageRef {
        PageRef { space: self.space, first: self.first }
    }
}

#[derive(Clone, Copy, Debug)]
struct Proven {
    queued: Queued,
    level: u8,
    /// Turns that it has left.
    turns: u8,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    at: u64,
    level: u8,
}

impl SecondChanceFifo {
    fn len(&self) -> usize {
        self.trial.len() + self.proven.len() - self.voids
    }

    /// An entry that was just taken out was void.
    fn was_void(&mut self, page: PageRef) -> bool {
        let Some(count) = self.void.get_mut(&page) else { return false };
        *count -= 1;
        if *count == 0 {
            self.void.remove(&page);
        }
        self.voids -= 1;
        true
    }

    /// Takes all void entries out, and of the others those of pages that are not there.
    fn sweep(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        let Self { trial, proven, trial_frames, proven_frames, void, .. } = self;
        let mut keeps = |queued: &Queued, frames: &mut u64| {
            let keeps = match void.get_mut(&queued.page()).filter(|count| **count > 0) {
                Some(count) => {
                    *count -= 1;
                    false
                }
                None => is_there(queued.page()),
            };
            *frames -= if keeps { 0 } else { queued.size.base_pages() };
            keeps
        };
        trial.retain(|queued| keeps(queued, trial_frames));
        proven.retain(|proven| keeps(&proven.queued, proven_frames));
        assert!(void.values().all(|&count| count == 0), "a page was removed that was not there");
        void.clear();
        self.voids = 0;
    }

    /// The next one on trial, unless its entry is void.
    fn take_trial(&mut self) -> Option<Queued> {
        let queued = self.trial.pop_front()?;
        self.trial_frames -= queued.size.base_pages();
        (!self.was_void(queued.page())).then_some(queued)
    }

    fn frames(&self) -> u64 {
        self.trial_frames + self.proven_frames
    }

    /// It has left: its return will be judged by when.
    fn remember(&mut self, queued: Queued, level: u8) {
        let page = queued.page();
        self.clock += queued.size.base_pages();
        self.left_at.insert(page, Left { at: self.clock, level });
        self.left.push_back((page, self.clock));
        while self.left.len() > REMEMBERED_MIN
            && let Some(&(page, at)) = self.left.front()
            && self.clock - at >= self.frames()
        {
            self.left.pop_front();
            if self.left_at.get(&page).is_some_and(|left| left.at == at) {
                self.left_at.remove(&page);
            }
        }
    }

    /// The next proven page without a turn left, unless a void entry comes before it; those that are passed over have one turn less.
    fn take_proven(&mut self, passed: &mut usize) -> Option<Proven> {
        loop {
            let mut proven = self.proven.pop_front()?;
            let frames = proven.queued.size.base_pages();
            if self.was_void(proven.queued.page()) {
                self.proven_frames -= frames;
                return None;
            }
            if proven.turns == 0 || *passed == PASSED_MAX {
                self.proven_frames -= frames;
                return Some(proven);
            }
            *passed += 1;
            proven.turns -= 1;
            self.proven.push_back(proven);
        }
    }

    /// The next one of the queue that is to give one, else of the other. Which one that is may change as void entries, which count until they are found, are
    /// taken out: so that a page that is put back is the next one again.
    fn take(&mut self) -> Option<(Queued, u8)> {
        let mut passed = 0;
        while !(self.trial.is_empty() && self.proven.is_empty()) {
            let few_on_trial = self.trial_frames * TRIAL_SHARE < self.frames();
            self.from_proven = self.trial.is_empty() || few_on_trial && !self.proven.is_empty();
            let taken = match self.from_proven {
                true => self.take_proven(&mut passed).map(|proven| (proven.queued, proven.level)),
                false => self.take_trial().map(|queued| (queued, 0)),
            };
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

impl Replacement for SecondChanceFifo {
    fn inserted(&mut self, page: PageRef) {
        self.inserted_sized(page, PageSize::SMALLEST);
    }

    fn inserted_sized(&mut self, page: PageRef, size: PageSize) {
        let queued = Queued::new(page, size);
        let Some(left) = self.left_at.remove(&page) else {
            self.trial_frames += size.base_pages();
            self.trial.push_back(queued);
            return;
        };
        let distance = (self.clock - left.at).max(size.base_pages());
        let sooner = (self.frames() / distance).checked_ilog2().unwrap_or(0);
        let level = sooner.min(LEVEL_MAX).min(u32::from(left.level) + 1) as u8;
        self.proven_frames += size.base_pages();
        self.proven.push_back(Proven { queued, level, turns: (1 << level) - 1 });
    }

    fn victim(&mut self) -> Option<PageRef> {
        let (queued, level) = self.take()?;
        self.last_size = Some(queued.size);
        self.remember(queued, level);
        Some(queued.page())
    }

    fn removed(&mut self, page: PageRef) {
        *self.void.entry(page).or_default() += 1;
        self.voids += 1;
        if self.voids > self.len() + VOIDS_MIN {
            self.sweep(&mut |_| true);
        }
    }

    fn entries(&self) -> usize {
        self.len()
    }

    fn retain(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        self.sweep(is_there);
    }

    fn kept(&mut self, page: PageRef) {
        self.left_at.remove(&page);
    }

    fn put_back(&mut self, page: PageRef) {
        let left = self.left_at.remove(&page);
        let queued = Queued::new(page, self.last_size.expect("a victim was given before"));
        if self.from_proven {
            let level = left.map_or(0, |left| left.level);
            self.proven_frames += queued.size.base_pages();
            self.proven.push_front(Proven { queued, level, turns: 0 });
        } else {
            self.trial_frames += queued.size.base_pages();
            self.trial.push_front(queued);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrower::SpaceKey;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn page(first: u64) -> PageRef {
        PageRef { space: SpaceKey(1), first }
    }

    /// Faults of a program that touches these pages with so many frames.
    fn faults(frames: usize, touches: impl Iterator<Item = u64>) -> usize {
        let (mut fifo, mut here, mut faults) = (SecondChanceFifo::default(), BTreeSet::new(), 0);
        for first in touches {
            if !here.insert(first) {
                continue;
            }
            faults += 1;
            if here.len() > frames {
                here.remove(&fifo.victim().expect("pages are here").first);
            }
            fifo.inserted(page(first));
        }
        faults
    }

    #[test]
    fn first_in_first_out_and_a_rescued_page_is_last() {
        let mut fifo = SecondChanceFifo::default();
        for n in 0..3 {
            fifo.inserted(page(n));
        }
        assert_eq!(fifo.victim(), Some(page(0)));
        fifo.inserted(page(0)); // touched in the victim buffer
        assert_eq!(fifo.victim(), Some(page(1)));
        fifo.put_back(page(1));
        assert_eq!([fifo.victim(), fifo.victim()], [Some(page(1)), Some(page(2))]);
        assert_eq!([fifo.victim(), fifo.victim()], [Some(page(0)), None]);
    }

    #[test]
    fn a_page_that_could_not_be_taken_has_proven_nothing() {
        for (kept, proven) in [(false, 1), (true, 0)] {
            let mut fifo = SecondChanceFifo::default();
            (0..3).for_each(|n| fifo.inserted(page(n)));
            assert_eq!(fifo.victim(), Some(page(0)));
            if kept {
                fifo.kept(page(0));
            }
            fifo.inserted(page(0));
            assert_eq!((fifo.proven.len(), fifo.len()), (proven, 3));
        }
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_in_use() {
        // Half of the frames' worth is touched again and again, beside a scan that never returns.
        let touches = (0..40_000_u64).flat_map(|n| [n * 7 % 50, 1_000 + n]);
        let faults = faults(100, touches);
        assert!(faults < 40_000 + 4_000, "{} faults on 50 pages in use", faults - 40_000);
    }

    #[test]
    fn what_is_used_more_often_stays_longer() {
        // Half of the touches go to 30 pages, the others to 150, on 100 frames. Whoever keeps the 30 has 53,000 faults; without levels
        // it is 63,000, with them 57,600.
        let mut x = 1_u64;
        let touches = (0..200_000).map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = x >> 33;
            if pick & 1 == 0 { (pick >> 1) % 30 } else { 30 + (pick >> 1) % 150 }
        });
        let faults = faults(100, touches);
        assert!(faults < 60_000, "{faults} faults");
    }

    /// Pages become smaller: the large ones that have proven themselves make room for what is used in their place.
    #[test]
    fn large_pages_that_were_in_use_do_not_keep_the_memory_of_small_ones() {
        let (frames, large) = (1024, PageSize::from_log2(4));
        let mut fifo = SecondChanceFifo::default();
        let mut here: BTreeMap<PageRef, u64> = BTreeMap::new();
        let mut touch = |first: u64, size: PageSize| {
            if here.contains_key(&page(first)) {
                return false;
            }
            while here.values().sum::<u64>() + size.base_pages() > frames {
                let victim = fifo.victim().expect("there are pages");
                here.remove(&victim).expect("it is here");
            }
            here.insert(page(first), size.base_pages());
            fifo.inserted_sized(page(first), size);
            true
        };
        for _ in 0..20 {
            (0..100).for_each(|n| {
                touch(n * 16, large);
            });
        }
        // Most of the memory, and none of the pages of before.
        let mut misses = 0;
        for turn in 0..20 {
            let missed = (0..700).filter(|n| touch(1 << 20 | n, PageSize::SMALLEST)).count();
            misses += if turn < 10 { 0 } else { missed };
        }
        assert!(misses < 700, "{misses} misses in ten turns of 700 pages that fit");
    }

    /// It comes and goes without anybody asking for a victim: what is kept does not grow, and what has come last leaves last.
    #[test]
    fn what_leaves_by_itself_leaves_nothing_behind() {
        let mut fifo = SecondChanceFifo::default();
        for n in 0..100 {
            fifo.inserted(page(n));
        }
        for _ in 0..100_000 {
            fifo.removed(page(7));
            fifo.inserted(page(7));
        }
        assert_eq!(fifo.len(), 100);
        assert!(fifo.trial.len() < 100 + 2 * VOIDS_MIN && fifo.left.is_empty());
        let out: Vec<u64> = core::iter::from_fn(|| fifo.victim()).map(|page| page.first).collect();
        assert_eq!((out.len(), out.last()), (100, Some(&7)));
    }

    #[test]
    fn what_is_in_use_may_change() {
        let touches = (0..30_000_u64).map(|n| n / 10_000 * 1_000 + n * 7 % 90);
        assert!(faults(100, touches) < 600);
    }

    proptest! {
        /// Each page is given out as often as it was put in, and what is remembered stays within its bound.
        #[test]
        fn pages_come_out_as_they_went_in(ops in proptest::collection::vec(0u64..60, 1..600), removes: bool) {
            let mut fifo = SecondChanceFifo::default();
            let mut here: BTreeSet<u64> = BTreeSet::new();
            for op in ops {
                if op < 40 {
                    if here.insert(op) {
                        fifo.inserted(page(op));
                    } else if removes && op < 20 {
                        here.remove(&op);
                        fifo.removed(page(op));
                        if op == 0 {
                            fifo.sweep(&mut |_| true);
                        }
                    }
                } else if let Some(victim) = fifo.victim() {
                    if op < 50 {
                        fifo.put_back(victim);
                        prop_assert_eq!(fifo.victim(), Some(victim));
                    }
                    prop_assert!(here.remove(&victim.first));
                } else {
                    prop_assert!(here.is_empty());
                }
                prop_assert_eq!(fifo.len(), here.len());
                prop_assert!(fifo.left.len() <= fifo.len().max(REMEMBERED_MIN));
                prop_assert!(fifo.left_at.len() <= fifo.left.len());
            }
            let mut rest = Vec::new();
            while let Some(victim) = fifo.victim() {
                rest.push(victim.first);
            }
            rest.sort_unstable();
            prop_assert_eq!(rest, here.into_iter().collect::<Vec<_>>());
        }
    }
}
