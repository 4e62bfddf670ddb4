//! FIFO with a second chance: the live agent's policy.

mod left;
mod loops;
mod queues;

use self::left::{Leavers, Left};
use self::loops::{Change, Loops, Way};
use self::queues::{Proven, Queued, Queues, Voids};
use super::{PageRef, Replacement};
use crate::page_size::PageSize;
use crate::units::BasePages;
use alloc::collections::VecDeque;

/// This part of the frames is on trial at least. (With a 64th, a sweep across large pages had none of them for long enough to come to its second use, and what
/// was known of them was that they were of no use; with an eighth, pages that are used all the time leave more often.)
const TRIAL_SHARE: u64 = 24;
/// And this part where pages are kept: all that comes in stays for no longer. (With an eighth, large pages of a loop with a dozen streams left before it was done with them.)
const TRIAL_SHARE_KEPT: u64 = 4;
/// Of so many pages that leave where pages are kept, one is a kept one, to see whether it is in use.
const SAMPLE_ONE_IN: u32 = 16;
/// What comes back there is kept if it has so high a level, which nothing reaches that was on trial.
const LEVEL_KEPT: u8 = 2;
/// Pages that left are remembered until as much as there is has left, and so many of them at least.
const REMEMBERED_MIN: usize = 64;
/// Highest level of a proven page.
const LEVEL_MAX: u32 = 4;
/// Void entries are cleared away when there are so many more than pages.
const VOIDS_MIN: usize = 1024;

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
/// A loop over a little more than fits has each of its pages come back soon, and finds none of them here. So where that seems to be, it is found out whether fewer come back if what
/// is here is kept, and what came in of late leaves ([`Loops`]). What comes in is on trial then, also if it comes back, unless it was kept and is in use all the time. Now and then a kept page is taken away to see, and
/// the oldest one on trial has its place.
///
/// What is fetched ahead must be here until the program comes to it: for as much as there is ahead of all streams there is room on trial ([`Replacement::ahead`]). (Without, a dozen streams of small pages
/// pushed out what they had fetched. Each page of it came back, proved itself by that, and what had proven itself left ever less room for those on trial.)
///
/// Pages differ in size, and change it: what is counted is base pages. (By number, a few large pages that proved themselves once would be next to nothing beside
/// many small ones, and stay for ever with most of the memory.)
#[derive(Debug, Default)]
pub struct SecondChanceFifo {
    /// The pages of each [`Way`].
    queues: [Queues; 2],
    loops: Loops,
    /// Base pages that have left so far.
    clock: u64,
    /// Pages that have left and not come back, and in what order they did.
    left_at: Leavers,
    left: VecDeque<(PageRef, u64)>,
    voids: Voids,
    /// Where the last victim was taken from, and that it was put back and is the next one.
    last: Option<Taken>,
    again: bool,
    /// Pages that have left where pages are kept.
    left_kept: u32,
    /// What was fetched ahead, and nobody has come to yet.
    ahead: BasePages,
}

/// A page that was taken out of its queue.
#[derive(Clone, Copy, Debug)]
struct Taken {
    queued: Queued,
    way: Way,
    /// The level of a proven one.
    proven: Option<u8>,
}

impl SecondChanceFifo {
    /// The same policy, which compares its two ways with next to no memory as well: for simulations of little memory.
    pub fn of_little_memory() -> Self {
        Self { loops: Loops::of_little_memory(), ..Self::default() }
    }

    fn len(&self) -> usize {
        self.queues.iter().map(Queues::len).sum::<usize>() - self.voids.len()
    }

    /// Base pages of all that it holds.
    pub(super) fn frames(&self) -> u64 {
        self.queues.iter().map(Queues::frames).sum()
    }

    /// Its part of what is ahead: by how much it has of all.
    fn ahead_of(&self, queues: &Queues) -> BasePages {
        BasePages(
            (u128::from(self.ahead.0) * u128::from(queues.frames()) / u128::from(self.frames().max(1)))
                as u64,
        )
    }

    fn of(&mut self, way: Way) -> &mut Queues {
        &mut self.queues[way as usize]
    }

    /// Gives pages to another one: they come last there, in the order in which they stood here. None of them is there already; those that have left are forgotten.
    pub(super) fn give(&mut self, to: &mut Self, gives: impl Fn(PageRef) -> bool) {
        self.sweep(&mut |_| true);
        self.left_at.forget(&gives);
        for way in [Way::InTurn, Way::Kept] {
            let Queues { trial, proven, .. } = core::mem::take(self.of(way));
            for queued in trial {
                let page = queued.page();
                if gives(page) {
                    to.of(to.loops.way_of(page)).push_trial(queued)
                } else {
                    self.of(way).push_trial(queued)
                }
            }
            for proven in proven {
                let page = proven.queued.page();
                if gives(page) {
                    to.of(to.loops.way_of(page)).push_proven(proven)
                } else {
                    self.of(way).push_proven(proven)
                }
            }
        }
        for policy in [self, to] {
            let [in_turn, kept] = &policy.queues;
            policy.loops.begin(in_turn.frames(), kept.frames());
            policy.again = false;
        }
    }

    /// Takes all void entries out, and of the others those of pages that are not there.
    fn sweep(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        self.queues.iter_mut().for_each(|queues| queues.sweep(&mut self.voids, is_there));
        assert!(self.voids.len() == 0, "a page was removed that was not there");
    }

    /// It has left: its return will be judged by when.
    fn remember(&mut self, taken: Taken) {
        let page = taken.queued.page();
        self.clock += taken.queued.size.base_pages();
        let sample = taken.way == Way::Kept && taken.proven.is_some();
        let (size, level) = (taken.queued.size, taken.proven.unwrap_or(0));
        self.left_at.insert(page, Left { at: self.clock, size, level, sample });
        self.left.push_back((page, self.clock));
        while self.left.len() > REMEMBERED_MIN
            && let Some(&(page, at)) = self.left.front()
            && self.clock - at >= self.frames()
        {
            self.left.pop_front();
            if let Some(left) = self.left_at.get(page).filter(|left| left.at == at) {
                self.left_at.remove(page);
                if left.sample {
                    self.loops.sampled(false);
                }
            }
        }
    }

    /// The next one of the queue that is to give one, else of the other. Which one that is may change as void entries, which count until they are found, are
    /// taken out.
    fn take(&mut self) -> Option<Taken> {
        let mut passed = 0;
        if core::mem::take(&mut self.again)
            && let Some(last) = self.last
            && let Some(taken) = self.take_from(last.way, last.proven.is_some(), &mut passed)
        {
            return Some(taken);
        }
        while self.frames() > 0 {
            let [in_turn, kept] = &self.queues;
            let way = self.loops.next(in_turn.frames(), kept.frames());
            let taken = match way {
                Way::InTurn => self.take_from(
                    way,
                    in_turn.gives_proven(TRIAL_SHARE, self.ahead_of(in_turn)),
                    &mut passed,
                ),
                Way::Kept => self.take_kept(&mut passed),
            };
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    fn take_from(&mut self, way: Way, proven: bool, passed: &mut usize) -> Option<Taken> {
        let queues = &mut self.queues[way as usize];
        if proven {
            let of = queues.take_proven(&mut self.voids, passed)?;
            return Some(Taken { queued: of.queued, way, proven: Some(of.level) });
        }
        queues.take_trial(&mut self.voids).map(|queued| Taken { queued, way, proven: None })
    }

    fn take_kept(&mut self, passed: &mut usize) -> Option<Taken> {
        let kept = &self.queues[Way::Kept as usize];
        let (needs_room, keeps_any) =
            (kept.gives_proven(TRIAL_SHARE_KEPT, self.ahead_of(kept)), !kept.proven.is_empty());
        let sample = self.left_kept % SAMPLE_ONE_IN == SAMPLE_ONE_IN - 1 && !needs_room;
        let taken = self.take_from(Way::Kept, needs_room || sample && keeps_any, passed)?;
        self.left_kept = self.left_kept.wrapping_add(1);
        if sample {
            if !keeps_any {
                self.loops.sampled(false);
            }
            let oldest = self.queues[Way::Kept as usize].take_trial(&mut self.voids);
            oldest.into_iter().for_each(|queued| self.of(Way::Kept).push_proven(Proven::new(queued, 0)));
        }
        Some(taken)
    }

    /// Pages go the way that is theirs now. (All of them are gone through; it is some turns until the next time.)
    fn change(&mut self, change: Change) {
        self.sweep(&mut |_| true);
        let from = change.to.other();
        let Queues { trial, proven, .. } = core::mem::take(self.of(from));
        for queued in trial {
            let way = if change.concerns(self.loops.half(queued.page())) { change.to } else { from };
            self.of(way).push_trial(queued);
        }
        for page in proven {
            let way = if change.concerns(self.loops.half(page.queued.page())) { change.to } else { from };
            self.of(way).push_proven(page);
        }
        let [in_turn, kept] = &self.queues;
        self.loops.begin(in_turn.frames(), kept.frames());
    }
}

impl Replacement for SecondChanceFifo {
    fn inserted(&mut self, page: PageRef) {
        self.inserted_sized(page, PageSize::SMALLEST);
    }

    fn inserted_sized(&mut self, page: PageRef, size: PageSize) {
        let (queued, frames) = (Queued::new(page, size), self.frames());
        let left = self.left_at.take(page, size);
        if let Some(change) =
            self.loops.arrived(page, size.base_pages(), (self.len(), frames), left.is_some())
        {
            self.again = false;
            self.change(change);
        }
        let way = self.loops.way_of(page);
        let Some(left) = left else { return self.of(way).push_trial(queued) };
        if left.sample {
            self.loops.sampled(true);
        }
        let distance = (self.clock - left.at).max(size.base_pages());
        let sooner = (frames / distance).checked_ilog2().unwrap_or(0);
        let level = sooner.min(LEVEL_MAX).min(u32::from(left.level) + 1) as u8;
        match way {
            Way::Kept if level < LEVEL_KEPT => self.of(way).push_trial(queued),
            Way::Kept | Way::InTurn => self.of(way).push_proven(Proven::new(queued, level)),
        }
    }

    fn victim(&mut self) -> Option<PageRef> {
        let taken = self.take()?;
        self.last = Some(taken);
        self.remember(taken);
        Some(taken.queued.page())
    }

    fn removed(&mut self, page: PageRef) {
        self.voids.add(page);
        if self.voids.len() > self.len() + VOIDS_MIN {
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
        self.left_at.remove(page);
    }

    fn ahead(&mut self, pages: BasePages) {
        self.ahead = pages;
    }

    fn put_back(&mut self, page: PageRef) {
        self.left_at.remove(page);
        let last = self.last.expect("a victim was given before");
        let queued = Queued::new(page, last.queued.size);
        match last.proven {
            Some(level) => self.of(last.way).restore_proven(Proven::last_turn(queued, level)),
            None => self.of(last.way).restore_trial(queued),
        }
        self.again = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrower::SpaceKey;
    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn page(first: u64) -> PageRef {
        PageRef { space: SpaceKey(1), first }
    }

    /// Faults of a program that touches these pages with so many frames.
    fn faults(frames: usize, touches: impl Iterator<Item = u64>) -> usize {
        faults_of(&mut SecondChanceFifo::default(), frames, touches)
    }

    fn faults_of(fifo: &mut SecondChanceFifo, frames: usize, touches: impl Iterator<Item = u64>) -> usize {
        let (mut here, mut faults) = (BTreeSet::new(), 0);
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
            assert_eq!((fifo.queues[0].proven.len(), fifo.len()), (proven, 3));
        }
    }

    /// Pages are fetched ahead of several streams, where others are in use all the time, most of what fits. None of what is ahead leaves before it is used, if the policy knows how much that is; where it is
    /// more than half of all, it does.
    #[test]
    fn there_is_room_for_what_is_ahead() {
        let (frames, streams) = (960, 8);
        for (ahead, known, early) in [(40, true, false), (40, false, true), (400, true, true)] {
            let mut fifo = SecondChanceFifo::default();
            let (mut here, mut lost) = (BTreeSet::new(), 0);
            let mut bring = |fifo: &mut SecondChanceFifo, first: u64| {
                if !here.insert(first) {
                    return 0;
                }
                if here.len() as u64 > frames {
                    here.remove(&fifo.victim().expect("pages are here").first);
                }
                fifo.inserted(page(first));
                1
            };
            fifo.ahead(BasePages(if known { streams * ahead } else { 0 }));
            for n in 0..6_000 {
                // A page of each stream is used, and the one that many further is fetched.
                for stream in 1..=streams {
                    lost += bring(&mut fifo, stream << 32 | n) * u64::from(n >= ahead);
                    bring(&mut fifo, stream << 32 | (n + ahead));
                }
                // Others are used all the time.
                for k in 0..16 {
                    bring(&mut fifo, (n * 16 + k) * 11 % 700);
                }
            }
            assert_eq!(
                lost > 4_000,
                early,
                "{lost} pages left before their use, {ahead} ahead of each stream"
            );
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

    /// A part of a page that comes back soon has been in use, as a whole page has: it stays where others on trial leave.
    #[test]
    fn a_part_that_comes_back_has_proven_itself() {
        for (parts, size) in [([1, 2], 0), ([0, 2], 0), ([0, 2], 1)] {
            let (mut fifo, large) = (SecondChanceFifo::default(), PageSize::from_log2(2));
            (0..64).for_each(|n| fifo.inserted_sized(page(n * 4), large));
            assert_eq!(fifo.victim(), Some(page(0)));
            parts.iter().for_each(|&first| fifo.inserted_sized(page(first), PageSize::from_log2(size)));
            for n in 64..256 {
                let leaves = fifo.victim().expect("pages are here");
                assert!(!parts.contains(&leaves.first), "{leaves:?} is in use: {parts:?}");
                fifo.inserted_sized(page(n * 4), large);
            }
        }
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
        assert!(fifo.queues[0].trial.len() < 100 + 2 * VOIDS_MIN && fifo.left.is_empty());
        let out: Vec<u64> = core::iter::from_fn(|| fifo.victim()).map(|page| page.first).collect();
        assert_eq!((out.len(), out.last()), (100, Some(&7)));
    }

    #[test]
    fn what_is_in_use_may_change() {
        let touches = (0..30_000_u64).map(|n| n / 10_000 * 1_000 + n * 7 % 90);
        assert!(faults(100, touches) < 600);
    }

    /// A loop over a third more than fits: three quarters of the frames hold what is kept and found each time; what is looked at comes in as well. (All that leaves in turn comes in each time.)
    #[test]
    fn of_a_loop_over_more_than_fits_a_part_stays() {
        let (frames, pages, turns) = (6_000_u64, 8_000_u64, 60);
        let kept = frames * 3 / 4;
        let misses = faults(frames as usize, (0..turns * pages).map(|n| n % pages)) as u64;
        assert!(misses < (pages - kept) * turns * 5 / 4, "{misses} of {}", turns * pages);
        // What the loop needs beyond its pages is here all the time.
        let beside = (0..turns * pages).flat_map(|n| [n % pages, 20_000 + n % 60]);
        let misses = faults(frames as usize, beside) as u64;
        assert!(misses < (pages + 60 - kept) * turns * 5 / 4, "{misses} of {}", turns * pages);
    }

    /// Kept pages are not in use any more: after a few turns they have made room.
    #[test]
    fn what_was_kept_for_a_loop_does_not_stay_for_ever() {
        let (frames, pages, turns, fits) = (6_000, 8_000, 30, 5_600);
        let looped = (0..turns * pages).map(|n| n % pages);
        let before = faults(frames, looped.clone());
        let misses = faults(frames, looped.chain((0..60 * fits).map(|n| (1 << 20) + n * 11 % fits))) - before;
        assert!((misses as u64) < 9 * fits, "{misses} misses of {fits} pages that fit, used sixty times");
    }

    /// The same where all that was kept is gone at once, as with its process.
    #[test]
    fn what_was_kept_may_go_away() {
        let (frames, pages, fits) = (6_000, 8_000, 5_600);
        let mut fifo = SecondChanceFifo::default();
        faults_of(&mut fifo, frames, (0..20 * pages).map(|n| n % pages));
        assert_eq!(fifo.loops.way_of(page(0)), Way::Kept);
        fifo.retain(&mut |_| false);
        assert_eq!(fifo.len(), 0);
        let misses = faults_of(&mut fifo, frames, (0..60 * pages).map(|n| (1 << 20) + n * 11 % pages));
        assert!((misses as u64) < 60 * pages * 3 / 4, "{misses} misses in a loop that is next");
        let misses = faults_of(&mut fifo, frames, (0..60 * fits).map(|n| (1 << 21) + n * 11 % fits));
        assert!(misses as u64 * 10 < 60 * fits, "{misses} misses of {fits} pages that fit, used sixty times");
    }

    /// What is used at random is no loop: no way is better, and all that a comparison costs is seldom and short.
    #[test]
    fn keeping_pages_does_no_harm_where_there_is_no_loop() {
        let mut x = 1_u64;
        let touches: Vec<u64> = (0..1_000_000)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (x >> 33) % 8_000 * ((x >> 45) % 8_000) / 8_000
            })
            .collect();
        let mut fifo = SecondChanceFifo::default();
        let mut in_turn = SecondChanceFifo { loops: Loops::never(), ..SecondChanceFifo::default() };
        let [misses, before] =
            [&mut fifo, &mut in_turn].map(|fifo| faults_of(fifo, 5_000, touches.iter().copied()));
        assert!(fifo.loops.has_compared());
        assert!(misses * 100 < before * 105, "{misses} misses, and {before} where all leaves in turn");
    }

    /// Loops, each over so many pages, so many times, of such a size: each page is given out as often as it was put in, whichever way it went. Whether they were compared.
    fn run_loops(mut fifo: SecondChanceFifo, loops: &[(u64, u64, u8)], frames: u64, puts_back: bool) -> bool {
        let mut here: BTreeMap<u64, u64> = BTreeMap::new();
        let held = |here: &BTreeMap<u64, u64>| here.values().sum::<u64>();
        for &(pages, turns, log2) in loops {
            let size = PageSize::from_log2(log2);
            for n in (0..turns).flat_map(|_| 0..pages) {
                let first = n << 8;
                if n % 19 == 7 && here.remove(&first).is_some() {
                    fifo.removed(page(first));
                }
                if here.contains_key(&first) {
                    continue;
                }
                while held(&here) + size.base_pages() > frames {
                    let victim = fifo.victim().expect("there are pages");
                    assert!(here.remove(&victim.first).is_some(), "{victim:?} is not there");
                    if puts_back && n % 3 == 0 {
                        fifo.put_back(victim);
                        if n % 2 == 0 {
                            fifo.removed(victim);
                        } else {
                            assert_eq!(fifo.victim(), Some(victim));
                        }
                    }
                }
                here.insert(first, size.base_pages());
                fifo.inserted_sized(page(first), size);
            }
            assert_eq!(fifo.len(), here.len());
        }
        let mut rest: Vec<u64> = core::iter::from_fn(|| fifo.victim()).map(|page| page.first).collect();
        rest.sort_unstable();
        assert_eq!(rest, here.into_keys().collect::<Vec<_>>());
        assert_eq!(fifo.frames(), 0);
        fifo.loops.has_compared()
    }

    #[test]
    fn loops_of_large_pages_are_compared() {
        assert!(run_loops(SecondChanceFifo::default(), &[(160, 40, 6)], 8_000, true));
        assert!(run_loops(SecondChanceFifo::of_little_memory(), &[(20, 40, 2)], 60, true));
    }

    proptest! {
        /// See [`run_loops`].
        #[test]
        fn pages_of_loops_come_out_as_they_went_in(
            loops in proptest::collection::vec((60_u64..200, 2_u64..30, 0_u8..8), 1..8), frames in 8_192_u64..24_000, puts_back: bool
        ) {
            run_loops(SecondChanceFifo::default(), &loops, frames, puts_back);
            run_loops(SecondChanceFifo::of_little_memory(), &loops, frames / 64, puts_back);
        }

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
