//! The borrower against a simple model: a program whose memory must always read what it last wrote, whatever
//! order answers come in and whichever lender dies.

mod advice;
mod budgets;
mod cases;
mod lenders;
mod marks;
mod plans;
mod recalls;
mod replicas;
mod sharing;
mod sizes;
mod terms;
mod waiters;
mod writes;

use super::*;
use crate::ids::{ContentHash, PutClass};
use alloc::boxed::Box;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::vec;

#[derive(Clone, Debug)]
enum Op {
    Write {
        space: usize,
        base: u64,
        value: u64,
    },
    Read {
        space: usize,
        base: u64,
    },
    Remove {
        space: usize,
        base: u64,
        len: u64,
    },
    UnmapAndMap {
        space: usize,
        base: u64,
        len: u64,
    },
    Remap {
        space: usize,
        base: u64,
        len: u64,
    },
    Fork {
        space: usize,
    },
    Exit {
        space: usize,
    },
    Complete {
        pick: usize,
    },
    LoseLender,
    JoinLender {
        room: u64,
    },
    Weights {
        weights: [u32; 4],
        min_age: u64,
    },
    WeightsUnknown,
    Room {
        room: bool,
    },
    /// A lender gives a stored page's place to another.
    Replace {
        pick: usize,
        tells: bool,
    },
    Tick,
    Limit {
        pages: u64,
    },
    Refuse {
        installs: u32,
    },
    /// A lender's machine wants some of its memory back.
    Recall {
        lender: usize,
        pick: usize,
        pages: usize,
    },
    /// It has room again.
    RoomAgain {
        lender: usize,
    },
    /// The program says what it will do with a range.
    Advise {
        space: usize,
        base: u64,
        len: u64,
        will_need: bool,
    },
    /// How it goes through a range, and what that is worth.
    Mark {
        space: usize,
        base: u64,
        len: u64,
        pattern: Option<Pattern>,
        priority: Option<Priority>,
    },
    /// On what terms it is paged.
    Terms {
        space: usize,
        base: u64,
        len: u64,
        terms: Terms,
    },
    /// A lender writes a page that it was told to, and says so soon.
    Drain {
        pick: usize,
    },
    /// A lender gives a page up that it was told is spare.
    GiveUp {
        pick: usize,
        tells: bool,
    },
    /// A lender dies, or restarts with what its disk has; before the next one does everything comes to rest.
    LoseOne {
        lender: usize,
        comes_back: bool,
    },
}

#[derive(Clone, Debug)]
enum Pending {
    Evict(BatchId),
    Get { lender: LenderIndex, copy: CopyIndex, version: Version, urgency: Urgency },
    Read { copy: CopyIndex, version: Version, buffer: BufferIndex },
    Put { lender: LenderIndex, copy: CopyIndex, version: Version, value: u64, buffer: BufferIndex },
    Write { copy: CopyIndex, value: u64, buffer: BufferIndex },
    Gone { lender: LenderIndex, copy: CopyIndex, version: Version },
    Stored { lender: LenderIndex, copy: CopyIndex, version: Version },
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
    replicas: replicas::Replicas,
    pending: Vec<Pending>,
    /// Of pages that the hand has taken and the borrower has not been told of.
    fates: BTreeMap<(SpaceKey, u64), PageFate>,
    spaces: Vec<SpaceKey>,
    next_space: u32,
    forked: BTreeSet<SpaceKey>,
    /// None of its pages can be taken.
    pinned: Option<SpaceKey>,
    /// What is found to have been written between a fork and the time when what is shared is protected.
    own: BTreeSet<(SpaceKey, u64)>,
    /// What may not be written before the borrower says so.
    protected: BTreeSet<(SpaceKey, u64)>,
    /// Pages that cannot be taken before they are made the process's own; and how many were.
    shared: BTreeSet<(SpaceKey, u64)>,
    populated: u64,
    lender_room: bool,
    /// Lenders that want pages back and take none.
    full: BTreeSet<usize>,
    writes_fail: bool,
    /// Lenders have given their place to others.
    taken: BTreeSet<(CopyIndex, Version)>,
    /// Pages that were sent to each lender, and how often the lender changed from one to the next.
    puts: Vec<u64>,
    changes: u64,
    put_last: Option<LenderIndex>,
    /// So many installs are refused yet, as the kernel does while mappings change.
    refuses: u32,
    arrived: u64,
    /// What was asked of lenders, in order, and how often something was hurried.
    gets: Vec<(CopyIndex, u32, Urgency)>,
    hurries: u64,
    steps: u64,
}

impl World {
    fn new(page: u64, disk: bool, limit: u64, lenders: usize) -> Self {
        Self::configured(page, limit, lenders, |config| config.disk = disk)
    }

    fn configured(
        page: u64,
        limit: u64,
        lenders: usize,
        configure: impl FnOnce(&mut BorrowerConfig),
    ) -> Self {
        let mut config = BorrowerConfig {
            page: BasePages(page),
            buffers: BUFFERS_MIN,
            disk: false,
            replicas: 1,
            staged: false,
            hedge_after: Duration::from_millis(5),
            rescue: true,
        };
        configure(&mut config);
        let mut b = Borrower::new(
            config,
            Box::new(SecondChanceFifo::default()),
            Box::new(StridePrefetcher::new(BasePages(8 * page))),
        );
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
            replicas: replicas::Replicas::default(),
            pending: Vec::new(),
            fates: BTreeMap::new(),
            spaces: Vec::new(),
            next_space: 1,
            forked: BTreeSet::new(),
            pinned: None,
            own: BTreeSet::new(),
            protected: BTreeSet::new(),
            shared: BTreeSet::new(),
            populated: 0,
            lender_room: true,
            full: BTreeSet::new(),
            writes_fail: false,
            taken: BTreeSet::new(),
            puts: std::vec![0; lenders],
            changes: 0,
            put_last: None,
            refuses: 0,
            arrived: 0,
            gets: Vec::new(),
            hurries: 0,
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
                Effect::Populate { space, base, pages } => {
                    (base..base + u64::from(pages)).for_each(|base| {
                        self.shared.remove(&(space, base));
                        self.protected.remove(&(space, base)); // the hand's own fault is answered at once
                    });
                    self.populated += u64::from(pages);
                }
                Effect::Wake { .. } => {}
                Effect::Protect { space, base, pages } => {
                    let range = (base..base + u64::from(pages)).map(|base| (space, base));
                    self.protected.extend(range.filter(|at| self.present.contains_key(at)));
                }
                Effect::LookForOwn { space, base, pages } => {
                    for base in base..base + u64::from(pages) {
                        if self.own.contains(&(space, base)) {
                            self.b.handle_own(space, BaseRange::new(base, base + 1));
                        }
                    }
                }
                Effect::Unprotect { space, base, pages } => {
                    for base in base..base + u64::from(pages) {
                        self.protected.remove(&(space, base));
                    }
                }
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
                Effect::Get { lender, copy, version, message, urgency } => {
                    self.gets.push((copy, message, urgency));
                    self.pending.push(Pending::Get { lender, copy, version, urgency });
                }
                Effect::Hurry { lender, copy, version } => {
                    self.hurries += 1;
                    let behind = self.pending.iter_mut().find_map(|op| match op {
                        Pending::Get { lender: l, copy: c, version: v, urgency }
                            if (*l, *c, *v) == (lender, copy, version) =>
                        {
                            Some(urgency)
                        }
                        _ => None,
                    });
                    let urgency = behind.expect("what is hurried was asked for and is not answered");
                    let before = std::mem::replace(urgency, Urgency::Waited);
                    assert_eq!(before, Urgency::Behind, "what is urgent was hurried");
                }
                Effect::ReadDisk { copy, version, buffer } => {
                    self.pending.push(Pending::Read { copy, version, buffer });
                }
                Effect::Hold { buffer, .. } => self.buffers[buffer.0 as usize] = self.arrived,
                Effect::Spare { lender, copy, version } => self.replicas.spare(lender, copy, version),
                Effect::Put { lender, copy, version, buffer, hash, class } => {
                    self.replicas.put(lender, copy, version, class);
                    let value = self.buffers[buffer.0 as usize];
                    assert_eq!(u128::from(value), hash.0, "a buffer was reused before it was sent");
                    self.puts[usize::from(lender.0)] += 1;
                    self.changes += u64::from(self.put_last.replace(lender) != Some(lender));
                    self.pending.push(Pending::Put { lender, copy, version, value, buffer });
                }
                Effect::WriteDisk { copy, buffer } => {
                    let value = self.buffers[buffer.0 as usize];
                    self.pending.push(Pending::Write { copy, value, buffer });
                }
                Effect::Drop { lender, copy, version } => {
                    if let Some(store) = &mut self.lenders[usize::from(lender.0)] {
                        let there = store.remove(&(copy, version)).is_some();
                        self.replicas.forget(lender, copy, version);
                        assert!(there || self.taken.contains(&(copy, version)), "dropped what was not there");
                    }
                }
                Effect::Lost { space, base } => panic!("lost {space:?} {base}"),
            }
        }
    }

    fn complete(&mut self, pick: usize) -> bool {
        // Between two answers a piece of the plans, sometimes none.
        if self.b.has_plans() && !pick.is_multiple_of(4) {
            let now = self.time();
            self.b.handle_plans(now, pick as u64 % 40);
            self.drain();
        }
        if self.pending.is_empty() {
            return false;
        }
        let op = self.pending.swap_remove(pick % self.pending.len());
        if let Pending::Get { lender, .. } = op
            && self.replicas.away.contains(&lender)
        {
            self.bring_back(lender);
            return true;
        }
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
                        let shared = shared || self.shared.contains(&(key, base));
                        let fate = if shared || self.pinned == Some(key) {
                            PageFate::Busy
                        } else {
                            self.protected.remove(&(key, base));
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
            Pending::Get { lender, copy, version, .. } => {
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
            Pending::Put { lender, copy, version, value, buffer } => {
                let Some(store) = &mut self.lenders[usize::from(lender.0)] else { return true };
                assert_eq!(value, self.buffers[buffer.0 as usize], "a buffer was reused while it was sent");
                let takes =
                    !self.full.contains(&usize::from(lender.0)) && self.replicas.takes(lender, copy, version);
                let answer = if self.lender_room && takes {
                    store.insert((copy, version), value);
                    PutAnswer::Stored
                } else {
                    PutAnswer::Refused
                };
                self.b.handle_put_answer(now, lender, copy, version, answer);
            }
            Pending::Gone { lender, copy, version } => {
                // It may be older than what was put there since: then one that is there is believed gone.
                self.b.handle_gone(lender, copy, version);
            }
            Pending::Stored { lender, copy, version } => self.stored(lender, copy, version),
            Pending::Write { copy, value, buffer } => {
                assert_eq!(
                    value, self.buffers[buffer.0 as usize],
                    "a buffer was reused while it was written"
                );
                if !self.writes_fail {
                    self.disk.insert(copy, value);
                }
                self.b.handle_written(now, copy, !self.writes_fail);
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

    /// Touches a page, and waits until it may be written.
    fn touch_to_write(&mut self, key: SpaceKey, base: u64) {
        self.touch(key, base);
        let mut turns = 0;
        while self.protected.contains(&(key, base)) {
            turns += 1;
            assert!(turns < 20_000, "a write is never answered: {:?}", self.b.state(key, base));
            if !self.b.waits.contains_key(&(key, base)) {
                let now = self.time();
                self.b.handle_write(now, key, base, false);
                self.drain();
            }
            if self.protected.contains(&(key, base)) && !self.complete(turns) {
                let due = self.b.poll_timeout().map_or(self.now + 2_000_000_000, |due| due.0);
                self.now = due.max(self.now + 1_000_000);
                self.b.handle_timeout(Instant(self.now));
                self.drain();
            }
            if !self.present.contains_key(&(key, base)) {
                self.touch(key, base);
            }
        }
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
            self.protected.remove(&(key, base));
        }
    }

    fn step(&mut self, op: &Op) {
        let pick = |s: &Self, i: usize| s.spaces[i % s.spaces.len()];
        match *op {
            Op::Write { space, base, value } => {
                let key = pick(self, space);
                self.touch_to_write(key, base);
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
                        if self.protected.remove(&(key, from + i)) {
                            self.protected.insert((key, to + i));
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
                self.protected.retain(|at| at.0 != key);
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
                    self.full.remove(&i);
                    self.pending.retain(|p| {
                        !matches!(p, Pending::Get { lender, .. } | Pending::Put { lender, .. } | Pending::Gone { lender, .. } if usize::from(lender.0) == i)
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
            Op::Replace { pick, tells } => {
                let stored: Vec<_> = self
                    .lenders
                    .iter()
                    .enumerate()
                    .flat_map(|(n, store)| {
                        store
                            .iter()
                            .flat_map(BTreeMap::keys)
                            .map(move |&(copy, version)| (LenderIndex(n as u8), copy, version))
                    })
                    .collect();
                let Some(&(lender, copy, version)) = stored.get(pick % stored.len().max(1)) else { return };
                self.lenders[usize::from(lender.0)]
                    .as_mut()
                    .expect("it has the page")
                    .remove(&(copy, version));
                self.taken.insert((copy, version));
                if tells {
                    self.pending.push(Pending::Gone { lender, copy, version });
                }
            }
            Op::Drain { pick } => self.drain_one(pick),
            Op::GiveUp { pick, tells } => self.give_up(pick, tells),
            Op::LoseOne { lender, comes_back } => self.lose_one(lender, comes_back),
            Op::Tick => {
                self.now += 6_000_000;
                self.b.handle_timeout(Instant(self.now));
                self.drain();
            }
            Op::Refuse { installs } => self.refuses = installs,
            Op::Advise { space, base, len, will_need } => {
                let (key, now) = (pick(self, space), self.time());
                let advice = if will_need { Advice::WillNeed } else { Advice::WillNotNeed };
                self.b.handle_advice(now, key, BaseRange::new(base, base + len), advice);
                self.drain();
            }
            Op::Mark { space, base, len, pattern, priority } => {
                let (key, range) = (pick(self, space), BaseRange::new(base, base + len));
                pattern.inspect(|&pattern| assert!(self.b.handle_pattern(key, range, pattern)));
                priority.inspect(|&priority| assert!(self.b.handle_priority(key, range, priority)));
            }
            Op::Terms { space, base, len, terms } => {
                let (key, range) = (pick(self, space), BaseRange::new(base, base + len));
                assert_eq!(self.b.handle_terms(key, range, terms), Ok(()));
            }
            Op::Recall { lender, pick, pages } => self.recall(lender, pick, pages),
            Op::RoomAgain { lender } => {
                if self.full.remove(&lender) {
                    let now = self.time();
                    let none = core::iter::empty();
                    self.b.handle_recall(now, LenderIndex(lender as u8), BasePages(100_000), none);
                    self.drain();
                }
            }
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
        let Stats { first_wait, queued_wait, joined_wait, .. } = self.b.stats();
        let waited = first_wait.0 + queued_wait.0 + joined_wait.0;
        assert!(waited <= self.now, "a moment was counted twice: {waited} of {}", self.now);
    }

    /// A lender wants some of what it has back; it names a version that is gone now and then, as a late one would.
    fn recall(&mut self, lender: usize, pick: usize, pages: usize) {
        let Some(Some(store)) = self.lenders.get(lender) else { return };
        let named = |&(copy, Version(version)): &(CopyIndex, Version)| {
            (copy, Version(version + u32::from((copy.0 as usize + pick).is_multiple_of(31))))
        };
        let asked: Vec<_> = store.keys().skip(pick % store.len().max(1)).take(pages).map(named).collect();
        // Of what the borrower does not know it says so, and it was never there.
        self.taken.extend(asked.iter().filter(|page| !store.contains_key(page)));
        self.ask_back(lender, asked);
    }

    fn ask_back(&mut self, lender: usize, pages: Vec<(CopyIndex, Version)>) {
        if pages.is_empty() || self.replicas.away.contains(&LenderIndex(lender as u8)) {
            return;
        }
        self.full.insert(lender);
        let now = self.time();
        self.b.handle_recall(now, LenderIndex(lender as u8), BasePages(0), pages.into_iter());
        self.drain();
    }

    /// A lender wants all that it has back.
    fn recall_all(&mut self, lender: usize) {
        let pages =
            self.lenders[lender].as_ref().map_or_else(Vec::new, |store| store.keys().copied().collect());
        self.ask_back(lender, pages);
    }

    fn stored_at(&self, lender: usize) -> usize {
        self.lenders[lender].as_ref().map_or(0, BTreeMap::len)
    }

    /// Everything that is under way comes to its end, whatever waits for a clock too. Then both sides agree who holds what.
    fn finish(&mut self) {
        for _ in 0..8 {
            let mut turns = 0;
            while self.complete(turns) {
                turns += 1;
                assert!(turns < 100_000, "it is never done");
            }
            self.now += 1_100_000_000;
            self.b.handle_timeout(Instant(self.now));
            self.drain();
            if self.pending.is_empty() {
                break;
            }
        }
        self.check();
    }

    fn agree(&self) {
        for n in 0..self.lenders.len() {
            let held = self.b.held_by(LenderIndex(n as u8)).0;
            assert_eq!(held, self.stored_at(n) as u64, "what lender {n} has");
        }
    }

    fn read_all(&mut self) {
        for key in self.spaces.clone() {
            for base in 0..PAGES {
                self.touch(key, base);
            }
        }
    }
}

fn op(lose: bool) -> impl Strategy<Value = Op> {
    let at = (0usize..4, 0u64..PAGES);
    let span = (0usize..4, 0u64..PAGES - 200, 1u64..200);
    prop_oneof![
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
        2 => (0usize..1000, any::<bool>())
            .prop_map(move |(pick, tells)| if lose { Op::Replace { pick, tells } } else { Op::Tick }),
        1 => (200u64..1200).prop_map(|pages| Op::Limit { pages }),
        2 => (1u32..8).prop_map(|installs| Op::Refuse { installs }),
        2 => (0usize..3, 0usize..1000, 1usize..400)
            .prop_map(|(lender, pick, pages)| Op::Recall { lender, pick, pages }),
        1 => (0usize..3).prop_map(|lender| Op::RoomAgain { lender }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, any::<bool>())
            .prop_map(|(space, base, len, will_need)| Op::Advise { space, base, len, will_need }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, proptest::option::of(0usize..3), proptest::option::of(0usize..3))
            .prop_map(|(space, base, len, pattern, priority)| Op::Mark {
                space,
                base,
                len,
                pattern: pattern.map(|n| [Pattern::Unknown, Pattern::Sequential, Pattern::Random][n]),
                priority: priority.map(|n| [Priority::Low, Priority::Normal, Priority::High][n]),
            }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, terms::terms())
            .prop_map(|(space, base, len, terms)| Op::Terms { space, base, len, terms }),
    ]
}

fn ops(lose: bool) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(lose), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn memory_reads_what_was_written_under_disk(
        ops in ops(true), page in 0u32..8, subpage in 0u32..=8, lenders in 0usize..3,
        plan in proptest::sample::select(&FETCH_PLANS[..]), rescue: bool,
        place in proptest::sample::select(&PLACEMENTS[..]), guard: bool, share in 0u64..900, pieces: bool, wild: bool,
    ) {
        let mut w = World::new(1 << page, true, 600, lenders);
        w.b.in_pieces = pieces;
        if wild {
            w.b.size_pages(Box::new(sizes::Wild::new(share)), PageSize::SMALLEST);
        }
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
        place in proptest::sample::select(&PLACEMENTS[..4]), writes_fail: bool, pieces: bool, wild: bool,
    ) {
        let mut w = World::new(1 << page, false, 600, 2);
        w.b.in_pieces = pieces;
        if wild {
            w.b.size_pages(Box::new(sizes::Wild::new(u64::from(page))), PageSize::SMALLEST);
        }
        w.writes_fail = writes_fail;
        w.b.place_pages(lender_choice(place, 3).unwrap());
        w.b.plan_fetches(BasePages(1 << (page * subpage / 8)), fetch_planner(plan).unwrap());
        w.b.config.rescue = rescue;
        for op in &ops { w.step(op); }
        w.read_all();
        // Whatever lenders wanted, both sides agree in the end; and where all is wanted back nobody is needed any more.
        w.finish();
        w.agree();
        w.full.extend(0..w.lenders.len());
        for n in (0..w.lenders.len()).chain(0..w.lenders.len()) {
            w.recall_all(n);
            w.read_all();
            w.finish();
        }
        w.agree();
        if !writes_fail {
            for n in 0..w.lenders.len() {
                prop_assert_eq!(w.stored_at(n), 0, "lender {}", n);
                w.step(&Op::LoseLender);
            }
        }
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
