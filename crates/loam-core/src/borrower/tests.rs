//! The borrower against a simple model: a program whose memory must always read what it last wrote, whatever
//! order answers come in and whichever lender dies.

mod lenders;

use super::*;
use alloc::boxed::Box;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::vec;

#[derive(Clone, Debug)]
enum Op {
    Write { space: usize, base: u64, value: u64 },
    Read { space: usize, base: u64 },
    Remove { space: usize, base: u64, len: u64 },
    UnmapAndMap { space: usize, base: u64, len: u64 },
    Remap { space: usize, base: u64, len: u64 },
    Fork { space: usize },
    Exit { space: usize },
    Complete { pick: usize },
    LoseLender,
    JoinLender { room: u64 },
    Weights { weights: [u32; 4], min_age: u64 },
    WeightsUnknown,
    Room { room: bool },
    Tick,
    Limit { pages: u64 },
    Refuse { installs: u32 },
}

#[derive(Clone, Debug)]
enum Pending {
    Evict(BatchId),
    Get { lender: LenderIndex, copy: CopyIndex, version: Version },
    Read { copy: CopyIndex, version: Version, buffer: BufferIndex },
    Put { lender: LenderIndex, copy: CopyIndex, version: Version, value: u64 },
    Write { copy: CopyIndex, value: u64 },
}

const PAGES: u64 = 1500;
const FAR: u64 = 4096;

struct World {
    b: Borrower,
    now: u64,
    /// What each base page must read as; absent: zero.
    truth: BTreeMap<(SpaceKey, u64), u64>,
    /// What is present in each program.
    present: BTreeMap<(SpaceKey, u64), u64>,
    buffers: Vec<u64>,
    lenders: Vec<Option<BTreeMap<(CopyIndex, Version), u64>>>,
    disk: BTreeMap<CopyIndex, u64>,
    pending: Vec<Pending>,
    /// Of pages that the hand has taken and the borrower has not been told of.
    fates: BTreeMap<(SpaceKey, u64), PageFate>,
    spaces: Vec<SpaceKey>,
    next_space: u32,
    forked: BTreeSet<SpaceKey>,
    /// None of its pages can be taken.
    pinned: Option<SpaceKey>,
    lender_room: bool,
    /// Pages that were sent to each lender, and how often the lender changed from one to the next.
    puts: Vec<u64>,
    changes: u64,
    put_last: Option<LenderIndex>,
    /// So many installs are refused yet, as the kernel does while mappings change.
    refuses: u32,
    arrived: u64,
    steps: u64,
}

impl World {
    fn new(page: u64, disk: bool, limit: u64, lenders: usize) -> Self {
        let config = BorrowerConfig {
            page: BasePages(page),
            buffers: BUFFERS_MIN,
            disk,
            hedge_after: Duration::from_millis(5),
            rescue: true,
        };
        let mut b =
            Borrower::new(config, Box::new(SecondChanceFifo::default()), Box::new(StridePrefetcher::new(8)));
        for _ in 0..lenders {
            b.handle_lender_joined(BasePages(100_000));
        }
        b.handle_limit(Instant(0), BasePages(limit));
        let mut w = Self {
            b,
            now: 0,
            truth: BTreeMap::new(),
            present: BTreeMap::new(),
            buffers: std::vec![0; BUFFERS_MIN as usize],
            lenders: (0..lenders).map(|_| Some(BTreeMap::new())).collect(),
            disk: BTreeMap::new(),
            pending: Vec::new(),
            fates: BTreeMap::new(),
            spaces: Vec::new(),
            next_space: 1,
            forked: BTreeSet::new(),
            pinned: None,
            lender_room: true,
            puts: std::vec![0; lenders],
            changes: 0,
            put_last: None,
            refuses: 0,
            arrived: 0,
            steps: 0,
        };
        let key = SpaceKey(0);
        w.b.handle_space_added(key, true);
        w.b.handle_adopted(Instant(0), key, BaseRange::new(0, PAGES), &[]);
        w.spaces.push(key);
        w.drain();
        w
    }

    fn time(&mut self) -> Instant {
        self.now += 1_000;
        Instant(self.now)
    }

    fn drain(&mut self) {
        while let Some(effect) = self.b.poll_effect() {
            match effect {
                Effect::Evict(batch) => self.pending.push(Pending::Evict(batch)),
                Effect::Populate { .. } | Effect::Wake { .. } => {}
                Effect::Install { space, base, pages, source } => {
                    if self.refuses > 0 {
                        self.refuses -= 1;
                        let now = self.time();
                        self.b.handle_installed(now, space, base, pages, InstallOutcome::Again);
                        continue;
                    }
                    let mut outcome = InstallOutcome::Done;
                    for i in 0..u64::from(pages) {
                        let value = match source {
                            InstallSource::Zero => 0,
                            InstallSource::Buffer(buffer) => self.buffers[buffer.0 as usize],
                            InstallSource::Arrived(_) => self.arrived,
                        };
                        if !self.spaces.contains(&space) {
                            outcome = InstallOutcome::Gone;
                        } else if let btree_map::Entry::Vacant(place) = self.present.entry((space, base + i))
                        {
                            place.insert(value);
                        } else {
                            outcome = InstallOutcome::Exists;
                        }
                    }
                    let now = self.time();
                    self.b.handle_installed(now, space, base, pages, outcome);
                }
                Effect::Get { lender, copy, version, .. } => {
                    self.pending.push(Pending::Get { lender, copy, version });
                }
                Effect::ReadDisk { copy, version, buffer } => {
                    self.pending.push(Pending::Read { copy, version, buffer });
                }
                Effect::Hold { buffer, .. } => self.buffers[buffer.0 as usize] = self.arrived,
                Effect::Put { lender, copy, version, buffer, hash } => {
                    let value = self.buffers[buffer.0 as usize];
                    assert_eq!(u128::from(value), hash.0, "a buffer was reused before it was sent");
                    self.puts[usize::from(lender.0)] += 1;
                    self.changes += u64::from(self.put_last.replace(lender) != Some(lender));
                    self.pending.push(Pending::Put { lender, copy, version, value });
                }
                Effect::WriteDisk { copy, buffer } => {
                    let value = self.buffers[buffer.0 as usize];
                    self.pending.push(Pending::Write { copy, value });
                }
                Effect::Drop { lender, copy, version } => {
                    if let Some(store) = &mut self.lenders[usize::from(lender.0)] {
                        assert!(store.remove(&(copy, version)).is_some(), "dropped what was not there");
                    }
                }
                Effect::Lost { space, base } => panic!("lost {space:?} {base}"),
            }
        }
    }

    fn complete(&mut self, pick: usize) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let op = self.pending.swap_remove(pick % self.pending.len());
        let now = self.time();
        match op {
            Pending::Evict(batch) => {
                let (key, pages) = self.b.batch_pages(batch);
                let pages = pages.to_vec();
                // The hand takes the whole batch at once; the driver takes it in piece by piece, with everything else in between.
                let first = self.b.batch_reported(batch);
                if first == 0 {
                    for &base in &pages {
                        let shared = self.forked.contains(&key) && (base + pick as u64).is_multiple_of(3);
                        let fate = if shared || self.pinned == Some(key) {
                            PageFate::Busy
                        } else {
                            match self.present.remove(&(key, base)) {
                                None => PageFate::Hole,
                                Some(0) => PageFate::Moved(None),
                                Some(v) => PageFate::Moved(Some(ContentHash(u128::from(v)))),
                            }
                        };
                        self.fates.insert((key, base), fate);
                    }
                }
                let end = pages.len().min(first + 1 + pick % 40);
                for (i, base) in pages.iter().enumerate().take(end).skip(first) {
                    let fate = self.fates.remove(&(key, *base)).expect("the hand has had it");
                    if let Some(buffer) = self.b.handle_fate(batch, i, fate) {
                        let PageFate::Moved(Some(hash)) = fate else { panic!("contents of {fate:?}") };
                        self.buffers[buffer.0 as usize] = hash.0 as u64;
                    }
                    self.drain();
                }
                if end == pages.len() {
                    self.b.handle_batch_done(now, batch);
                } else {
                    self.pending.push(op);
                }
            }
            Pending::Get { lender, copy, version } => {
                let source = Source::Lender(lender);
                let Some(store) = &self.lenders[usize::from(lender.0)] else { return true };
                match store.get(&(copy, version)) {
                    Some(&v) => {
                        self.arrived = v;
                        let hash = ContentHash(u128::from(v));
                        self.b.handle_arrival(now, copy, version, hash, source, 7);
                    }
                    None => {
                        self.b.handle_missed(now, copy, version, source);
                    }
                }
            }
            Pending::Read { copy, version, buffer } => {
                let v = self.disk[&copy];
                self.buffers[buffer.0 as usize] = v;
                self.b.handle_arrival(now, copy, version, ContentHash(u128::from(v)), Source::Disk, 7);
            }
            Pending::Put { lender, copy, version, value } => {
                let Some(store) = &mut self.lenders[usize::from(lender.0)] else { return true };
                let answer = if self.lender_room {
                    store.insert((copy, version), value);
                    PutAnswer::Stored
                } else {
                    PutAnswer::Refused
                };
                self.b.handle_put_answer(now, lender, copy, version, answer);
            }
            Pending::Write { copy, value } => {
                self.disk.insert(copy, value);
                self.b.handle_written(now, copy, true);
            }
        }
        self.drain();
        true
    }

    fn touch(&mut self, key: SpaceKey, base: u64) {
        if !self.present.contains_key(&(key, base)) {
            let now = self.time();
            self.b.handle_fault(now, key, base);
            self.drain();
        }
        let mut turns = 0;
        while !self.present.contains_key(&(key, base)) {
            turns += 1;
            assert!(turns < 20_000, "a fault is never answered: {:?}", self.b.state(key, base));
            let now = self.time();
            self.b.handle_retry(now);
            self.drain();
            if !self.b.waits.contains_key(&(key, base)) && !self.present.contains_key(&(key, base)) {
                // It was woken, and touches the page again.
                let now = self.time();
                self.b.handle_fault(now, key, base);
                self.drain();
            }
            if !self.complete(turns) {
                let due = self.b.poll_timeout().map_or(self.now + 2_000_000_000, |due| due.0);
                self.now = due.max(self.now + 1_000_000); // what is overdue may wait for something else
                self.b.handle_timeout(Instant(self.now));
                self.drain();
            }
        }
        let want = self.truth.get(&(key, base)).copied().unwrap_or(0);
        assert_eq!(self.present[&(key, base)], want, "wrong bytes at {key:?} {base}");
    }

    /// Evictions under way are finished before a change of mappings, as the live driver's gate has it.
    fn rest(&mut self) {
        while let Some(i) = self.pending.iter().position(|p| matches!(p, Pending::Evict(_))) {
            let len = self.pending.len();
            self.pending.swap(i, len - 1);
            self.complete(len - 1);
        }
    }

    fn clear(&mut self, key: SpaceKey, start: u64, end: u64) {
        for base in start..end {
            self.truth.remove(&(key, base));
            self.present.remove(&(key, base));
        }
    }

    fn step(&mut self, op: &Op) {
        let pick = |s: &Self, i: usize| s.spaces[i % s.spaces.len()];
        match *op {
            Op::Write { space, base, value } => {
                let key = pick(self, space);
                self.touch(key, base);
                self.present.insert((key, base), value);
                self.truth.insert((key, base), value);
            }
            Op::Read { space, base } => {
                let key = pick(self, space);
                self.touch(key, base);
            }
            Op::Remove { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                let now = self.time();
                // The event is read before the kernel drops the pages.
                self.b.handle_removed(now, key, BaseRange::new(base, base + len));
                self.drain();
                self.clear(key, base, base + len);
            }
            Op::UnmapAndMap { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                self.clear(key, base, base + len);
                let now = self.time();
                self.b.handle_unmapped(now, key, BaseRange::new(base, base + len));
                self.drain();
                let now = self.time();
                self.b.handle_adopted(now, key, BaseRange::new(base, base + len), &[]);
                self.drain();
            }
            Op::Remap { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                for (from, to) in [(base, base + FAR), (base + FAR, base)] {
                    for i in 0..len {
                        for map in [&mut self.truth, &mut self.present] {
                            if let Some(v) = map.remove(&(key, from + i)) {
                                map.insert((key, to + i), v);
                            }
                        }
                    }
                    let now = self.time();
                    self.b.handle_remapped(now, key, BaseRange::new(from, from + len), to);
                    self.drain();
                    self.touch(key, to + len / 2);
                    self.rest();
                }
            }
            Op::Fork { space } => {
                if self.spaces.len() >= 4 {
                    return;
                }
                let parent = pick(self, space);
                let child = SpaceKey(self.next_space);
                self.next_space += 1;
                self.rest();
                for map in [&mut self.truth, &mut self.present] {
                    let copy: Vec<_> = map
                        .range((parent, 0)..(parent, u64::MAX))
                        .map(|(&(_, b), &v)| ((child, b), v))
                        .collect();
                    map.extend(copy);
                }
                let now = self.time();
                self.b.handle_forked(now, parent, child);
                self.b.handle_hand(child);
                self.spaces.push(child);
                self.forked.extend([parent, child]);
                self.drain();
            }
            Op::Exit { space } => {
                if self.spaces.len() == 1 {
                    return;
                }
                let key = self.spaces.remove(space % self.spaces.len());
                self.truth.retain(|at, _| at.0 != key);
                self.present.retain(|at, _| at.0 != key);
                let now = self.time();
                self.b.handle_space_gone(now, key);
                self.drain();
            }
            Op::Complete { pick } => {
                self.complete(pick);
            }
            Op::LoseLender => {
                if let Some(i) = self.lenders.iter().position(Option::is_some) {
                    self.lenders[i] = None;
                    self.pending.retain(|p| {
                        !matches!(p, Pending::Get { lender, .. } | Pending::Put { lender, .. } if usize::from(lender.0) == i)
                    });
                    let now = self.time();
                    let lost = self.b.handle_lender_lost(now, LenderIndex(i as u8));
                    assert_eq!(lost.0, 0, "nothing is lost under disk");
                    self.drain();
                }
            }
            Op::JoinLender { room } => {
                if self.lenders.iter().flatten().count() < 6 {
                    self.join_lender(room);
                }
            }
            Op::Weights { weights, min_age } => {
                let up = (0..self.lenders.len()).filter(|&i| self.lenders[i].is_some());
                let some: Vec<(LenderIndex, u32)> =
                    up.zip(weights).map(|(i, weight)| (LenderIndex(i as u8), weight)).collect();
                let now = self.time();
                self.b.handle_weights(now, &some, Duration(min_age));
                self.drain();
            }
            Op::WeightsUnknown => {
                let now = self.time();
                self.b.handle_weights_unknown(now);
                self.drain();
            }
            Op::Room { room } => self.lender_room = room,
            Op::Tick => {
                self.now += 6_000_000;
                self.b.handle_timeout(Instant(self.now));
                self.drain();
            }
            Op::Refuse { installs } => self.refuses = installs,
            Op::Limit { pages } => {
                let now = self.time();
                self.b.handle_limit(now, BasePages(pages));
                self.b.handle_sharing_broken(now);
                self.drain();
            }
        }
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            self.check();
        }
    }

    fn join_lender(&mut self, room: u64) -> LenderIndex {
        let index = self.b.handle_lender_joined(BasePages(room));
        let at = usize::from(index.0);
        if at == self.lenders.len() {
            self.lenders.push(None);
            self.puts.push(0);
        }
        assert!(self.lenders[at].replace(BTreeMap::new()).is_none(), "two lenders have one index");
        self.drain();
        index
    }

    fn check(&self) {
        self.b.audit();
    }

    fn read_all(&mut self) {
        for key in self.spaces.clone() {
            for base in 0..PAGES {
                self.touch(key, base);
            }
        }
    }
}

fn ops(lose: bool) -> impl Strategy<Value = Vec<Op>> {
    let at = (0usize..4, 0u64..PAGES);
    let span = (0usize..4, 0u64..PAGES - 200, 1u64..200);
    let op = prop_oneof![
        12 => (at.clone(), 0u64..50).prop_map(|((space, base), value)| Op::Write { space, base, value }),
        8 => at.prop_map(|(space, base)| Op::Read { space, base }),
        1 => span.clone().prop_map(|(space, base, len)| Op::Remove { space, base, len }),
        1 => span.clone().prop_map(|(space, base, len)| Op::UnmapAndMap { space, base, len }),
        1 => span.prop_map(|(space, base, len)| Op::Remap { space, base, len }),
        1 => (0usize..4).prop_map(|space| Op::Fork { space }),
        1 => (0usize..4).prop_map(|space| Op::Exit { space }),
        12 => (0usize..1000).prop_map(|pick| Op::Complete { pick }),
        1 => Just(if lose { Op::LoseLender } else { Op::Tick }),
        2 => proptest::sample::select(&[0, 20, 100_000][..]).prop_map(|room| Op::JoinLender { room }),
        1 => (any::<[u8; 4]>(), 0u64..3)
            .prop_map(|(w, min_age)| Op::Weights { weights: w.map(|w| u32::from(w / 64)), min_age }),
        1 => Just(Op::WeightsUnknown),
        1 => any::<bool>().prop_map(move |room| Op::Room { room: room || !lose }),
        1 => Just(Op::Tick),
        1 => (200u64..1200).prop_map(|pages| Op::Limit { pages }),
        2 => (1u32..8).prop_map(|installs| Op::Refuse { installs }),
    ];
    proptest::collection::vec(op, 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn memory_reads_what_was_written_under_disk(
        ops in ops(true), page in 0u32..8, subpage in 0u32..=8, lenders in 0usize..3,
        plan in proptest::sample::select(&FETCH_PLANS[..]), rescue: bool,
        place in proptest::sample::select(&PLACEMENTS[..]), guard: bool, share in 0u64..900,
    ) {
        let mut w = World::new(1 << page, true, 600, lenders);
        w.b.place_pages(lender_choice(place, share).unwrap());
        w.b.guard_from_scans(guard);
        w.b.limit_lending(BasePages(share));
        w.b.plan_fetches(BasePages(1 << (page * subpage / 8)), fetch_planner(plan).unwrap());
        w.b.config.rescue = rescue;
        for op in &ops { w.step(op); }
        w.read_all();
    }

    #[test]
    fn memory_reads_what_was_written_under_none(
        ops in ops(false), page in 0u32..8, subpage in 0u32..=8,
        plan in proptest::sample::select(&FETCH_PLANS[..]), rescue: bool,
        place in proptest::sample::select(&PLACEMENTS[..4]),
    ) {
        let mut w = World::new(1 << page, false, 600, 2);
        w.b.place_pages(lender_choice(place, 3).unwrap());
        w.b.plan_fetches(BasePages(1 << (page * subpage / 8)), fetch_planner(plan).unwrap());
        w.b.config.rescue = rescue;
        for op in &ops { w.step(op); }
        w.read_all();
    }

    #[test]
    fn the_same_inputs_give_the_same_run(ops in ops(true), place in proptest::sample::select(&PLACEMENTS[..])) {
        let run = || {
            let mut w = World::new(16, true, 600, 2);
            w.b.place_pages(lender_choice(place, 3).unwrap());
            for op in &ops { w.step(op); }
            (std::format!("{:?}", w.pending), w.b.stats(), w.now)
        };
        prop_assert_eq!(run(), run());
    }
}

/// Pages that are rescued and written again, round after round: free buffers suffice, so nobody takes reusable ones from the front of
/// their list.
#[test]
fn rescued_pages_that_are_written_again_leave_nothing_behind() {
    let mut w = World::new(1, true, 600, 1);
    for round in 0..12 {
        for base in 0..700 {
            w.step(&Op::Write { space: 0, base, value: round * 1000 + base + 1 });
        }
        while w.complete(0) {}
        w.check();
    }
    assert!(w.b.stats().answered[FaultKind::Rescued as usize] > 3_000, "{:?}", w.b.stats());
    w.read_all();
}

#[test]
fn the_limit_holds_while_memory_is_filled() {
    let mut w = World::new(16, true, 600, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        w.complete(base as usize);
        assert!(w.b.frames().0 <= 600, "{} frames", w.b.frames().0);
    }
    assert!(w.b.stats().moved > 0);
    w.read_all();
}

#[test]
fn unchanged_pages_are_clean_and_zeros_are_dropped() {
    let mut w = World::new(1, true, 600, 1);
    for base in 0..PAGES {
        let value = if base % 2 == 0 { 0 } else { base };
        w.step(&Op::Write { space: 0, base, value });
    }
    for _ in 0..4 {
        w.read_all();
        while w.complete(0) {}
    }
    let stats = w.b.stats();
    assert!(stats.zero > 500 && stats.clean > 500, "{stats:?}");
}

#[test]
fn with_no_room_anywhere_the_program_goes_on_over_its_limit() {
    let mut w = World::new(16, false, 600, 1);
    w.lender_room = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.read_all();
    assert!(w.b.stuck() > 0);
}

#[test]
fn a_fault_is_answered_while_nothing_can_be_taken() {
    let mut w = World::new(1, true, 600, 1);
    w.pinned = Some(SpaceKey(0));
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    assert_eq!(w.b.stats().moved, 0);
    w.read_all();
}

#[test]
fn a_fault_is_answered_while_what_was_shared_is_pinned() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 0, value: 1 });
    w.step(&Op::Fork { space: 0 });
    // Its relative has gone: it may still look shared, so that it is tried again and again without a rest.
    w.step(&Op::Exit { space: 1 });
    w.pinned = Some(w.spaces[0]);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.read_all();
}

#[test]
fn a_relative_whose_pages_are_pinned_does_not_keep_the_others_from_theirs() {
    let mut w = World::new(1, true, 600, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.step(&Op::Fork { space: 0 });
    w.pinned = Some(w.spaces[0]);
    let most = w.b.limit().0 + w.b.frames().0;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 1, base, value: base + 2 });
        assert!(w.b.frames().0 <= most, "{} frames: what could be taken stayed", w.b.frames().0);
    }
    w.read_all();
}

#[test]
fn the_only_lender_lost_is_told() {
    let mut w = World::new(16, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let lost = w.b.handle_lender_lost(Instant(u64::MAX), LenderIndex(0));
    assert!(lost.0 > 0);
}

#[test]
fn what_was_answered_in_time_wakes_nobody_later() {
    let mut w = World::new(1, true, 600, 1);
    // A working set that is too large: pages go out and come back.
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.read_all();
    while w.complete(0) {}
    assert!(
        w.b.stats().answered[FaultKind::Remote as usize] > 0 && w.b.fetches_in_flight() == 0,
        "pages came back from the lender"
    );
    // Only a fetch that is still open may set the clock.
    assert_eq!(w.b.poll_timeout(), None);
}

#[test]
fn two_threads_that_race_for_a_page_through_a_long_run_lose_nothing() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    // Both faults were read, and the first was answered: a page that is there, again and again over hours.
    for _ in 0..10_000 {
        w.now += 2_000_000_000;
        let now = w.time();
        w.b.handle_fault(now, SpaceKey(0), 7);
        w.drain();
    }
    w.read_all();
}

#[test]
#[should_panic(expected = "lost")]
fn a_page_that_is_really_gone_is_told_of() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    for _ in 0..10_000 {
        let now = w.time();
        w.b.handle_fault(now, SpaceKey(0), 7);
        w.drain();
    }
}

/// Found by the fuzz simulation (seed 107): the hand faults on a page that it makes the process's own, its install is refused
/// once (mappings change, or the machine is out of memory), and the budget is full. Asked for again it stood in the queue for
/// frames, which only the batches behind it in the hand's own ring could have given.
#[test]
fn the_hand_waits_for_no_frame_though_its_install_is_refused() {
    for already_queued in [false, true] {
        let mut w = World::new(1, true, 600, 1);
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: base + 1 });
        }
        while w.complete(0) {}
        let key = SpaceKey(0);
        let away = |w: &World, from: u64| {
            (from..PAGES).find(|&b| w.b.state(key, b) == BaseState::Away).expect("most are away")
        };
        // Fill the budget until batches wait for the hand.
        let mut at = 0;
        while w.b.batches.is_empty() || w.b.frames < w.b.limit {
            at = away(&w, at);
            let now = w.time();
            w.b.handle_fault(now, key, at);
            w.drain();
            w.pending.retain(|p| matches!(p, Pending::Evict(_)) || !w.b.frames_will_come());
            at += 1;
            if at + 1 >= PAGES {
                break;
            }
        }
        assert!(
            w.b.frames_will_come() && w.b.frames >= w.b.limit,
            "the budget is full, and batches are under way"
        );
        let base = away(&w, at);
        if already_queued {
            let now = w.time();
            w.b.handle_fault(now, key, base); // a thread of the program waits there too
            w.drain();
        }
        w.refuses = 1;
        let now = w.time();
        w.b.handle_fault(now, key, base);
        w.b.handle_wanted(now, key, base);
        w.drain();
        for _ in 0..4 {
            while let Some(i) = w.pending.iter().position(|p| !matches!(p, Pending::Evict(_))) {
                let op = w.pending.remove(i);
                w.pending.push(op);
                let last = w.pending.len() - 1;
                w.complete(last);
            }
            let now = w.time();
            w.b.handle_retry(now);
            w.drain();
        }
        assert!(w.present.contains_key(&(key, base)), "the hand waits for itself");
    }
}

/// Found by the fuzz simulation (seed 102829): the hand faults on a page that it makes the process's own, and before that has come
/// another thread discards it. The hand then waits for zeros, and must not wait for a frame either.
#[test]
fn the_hand_waits_for_no_frame_though_its_page_is_discarded() {
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let key = SpaceKey(0);
    let far = |w: &World, b: u64| {
        w.b.state(key, b) == BaseState::Away && w.b.copy_of(key, b).is_some_and(|c| c.buffer.is_none())
    };
    let away: Vec<u64> = (0..PAGES).filter(|&b| far(&w, b)).collect();
    // Fill the budget until batches wait for the hand.
    for &base in &away[1..] {
        if !w.b.batches.is_empty() && w.b.frames >= w.b.limit {
            break;
        }
        let now = w.time();
        w.b.handle_fault(now, key, base);
        w.drain();
    }
    assert!(
        w.b.frames_will_come() && w.b.frames >= w.b.limit,
        "the budget is full, and batches are under way"
    );
    let now = w.time();
    w.b.handle_fault(now, key, away[0]);
    w.b.handle_wanted(now, key, away[0]);
    w.drain();
    assert_eq!(w.b.state(key, away[0]), BaseState::Fetching);
    // Other faults took the frames that there were.
    let now = w.time();
    let limit = BasePages(w.b.frames - 20);
    w.b.handle_limit(now, limit);
    w.drain();
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(away[0], away[0] + 1));
    w.drain();
    assert_eq!(w.present.get(&(key, away[0])), Some(&0), "the hand waits for itself");
}

/// Found by the fuzz simulation (seed 3187): zeros that were brought between the event of a discard and the discard itself are gone;
/// the second fault has them brought again, and that install is refused. Nobody asked for them a third time.
#[test]
fn a_discarded_page_whose_install_is_refused_comes_all_the_same() {
    for forked in [false, true] {
        let mut w = World::new(1, true, 600, 1);
        let key = SpaceKey(0);
        w.step(&Op::Write { space: 0, base: 7, value: 1 });
        let now = w.time();
        w.b.handle_removed(now, key, BaseRange::new(7, 8));
        w.drain();
        w.clear(key, 7, 8);
        w.touch(key, 7); // another thread, before the kernel has dropped the page
        let space = if forked {
            w.step(&Op::Fork { space: 0 });
            w.spaces[1]
        } else {
            key
        };
        w.clear(space, 7, 8); // now it has
        let now = w.time();
        w.b.handle_fault(now, space, 7);
        w.drain();
        w.refuses = 1;
        let now = w.time();
        w.b.handle_fault(now, space, 7);
        w.drain();
        assert!(!w.present.contains_key(&(space, 7)), "the kernel has refused it");
        let now = w.time();
        w.b.handle_retry(now);
        w.drain();
        assert!(w.present.contains_key(&(space, 7)), "its thread waits for ever (forked: {forked})");
        w.check();
    }
}

/// Found by the fuzz simulation (seed 1884): two relatives have the same copy. One is fetching it when the other, which has it at home,
/// loses its page to the hand unchanged: the contents are in a buffer, and safe at the lender. Then the lender is lost.
#[test]
fn what_a_relative_has_in_a_buffer_is_not_lost_with_its_lender() {
    let mut w = World::new(1, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let away = |w: &World, key, b: &u64| w.b.state(key, *b) == BaseState::Away;
    w.step(&Op::Fork { space: 0 });
    w.forked.clear(); // nothing is pinned here
    let (parent, child) = (w.spaces[0], w.spaces[1]);
    let far = |w: &World, b: &u64| w.b.copy_of(parent, *b).is_some_and(|c| c.buffer.is_none());
    let base = (0..PAGES).find(|b| away(&w, parent, b) && far(&w, b)).expect("most are at the lender alone");
    // The parent has it at home, unchanged; the child asks for it, and is not answered yet.
    w.touch(parent, base);
    let now = w.time();
    w.b.handle_fault(now, child, base);
    w.drain();
    let (answers, rest): (Vec<Pending>, Vec<Pending>) =
        w.pending.drain(..).partition(|p| matches!(p, Pending::Get { .. }));
    w.pending = rest;
    assert!(!answers.is_empty() && w.b.state(child, base) == BaseState::Fetching);
    // Everything of the parent's leaves.
    let now = w.time();
    w.b.handle_limit(now, BasePages(0));
    w.drain();
    for n in 0..20_000 {
        if w.b.state(parent, base) == BaseState::Away {
            break;
        }
        if !w.complete(n) {
            w.step(&Op::Tick);
        }
    }
    assert_eq!(w.b.state(parent, base), BaseState::Away);
    assert!(w.b.copy_of(parent, base).expect("it has one").buffer.is_some());
    let (now, copy) = (w.time(), w.b.copy_of(child, base).expect("it is fetched"));
    w.b.handle_missed(now, copy.index, copy.version, Source::Lender(LenderIndex(0)));
    w.drain();
    assert!(w.present.contains_key(&(child, base)), "{:?}", w.b.state(child, base));
    w.check();
}

/// Found by the fuzz simulation (seed 18800): a page is discarded while it is being fetched, then its lender turns out not to have it.
#[test]
fn a_copy_that_is_discarded_while_it_is_fetched_in_vain_comes_back() {
    let mut w = World::new(1, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let key = SpaceKey(0);
    let far = |w: &World, b: &u64| w.b.copy_of(key, *b).is_some_and(|c| c.buffer.is_none());
    let base = (0..PAGES).find(|b| w.b.state(key, *b) == BaseState::Away && far(&w, b)).expect("most are");
    let now = w.time();
    w.b.handle_fault(now, key, base);
    w.drain();
    let copy = w.b.copy_of(key, base).expect("it is fetched");
    w.pending.retain(|p| !matches!(p, Pending::Get { copy: c, .. } if *c == copy.index));
    w.rest();
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(base, base + 1));
    w.drain();
    let now = w.time();
    assert!(w.b.handle_missed(now, copy.index, copy.version, Source::Lender(LenderIndex(0))));
    w.drain();
    w.b.audit();
}

/// Found by the fuzz simulation (seed 22083): zeros are brought between the event of a discard and the discard itself, and before anybody
/// touches them again the range is moved.
#[test]
fn a_discarded_page_that_is_moved_before_it_is_missed_reads_zeros() {
    let mut w = World::new(1, true, 600, 1);
    let key = SpaceKey(0);
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(7, 9));
    w.drain();
    w.touch(key, 7);
    w.touch(key, 8);
    w.clear(key, 7, 9); // the kernel drops them
    let now = w.time();
    w.b.handle_remapped(now, key, BaseRange::new(8, 20), FAR + 8);
    w.drain();
    for _ in 0..3 {
        let now = w.time();
        w.b.handle_fault(now, key, FAR + 8);
        w.drain();
    }
    assert_eq!(w.present.get(&(key, FAR + 8)), Some(&0), "it is looked for where it was");
}
