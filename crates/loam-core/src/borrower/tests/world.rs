//! The program, its hand, lenders and disk: what the borrower decides is done to them, and they answer in whatever order they are picked.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Pending {
    Evict(BatchId),
    Get { lender: LenderIndex, copy: CopyIndex, version: Version, urgency: Urgency },
    Read { copy: CopyIndex, version: Version, buffer: BufferIndex },
    Put { lender: LenderIndex, copy: CopyIndex, version: Version, value: u64, buffer: BufferIndex },
    Write { copy: CopyIndex, value: u64, buffer: BufferIndex },
    Gone { lender: LenderIndex, copy: CopyIndex, version: Version },
    Stored { lender: LenderIndex, copy: CopyIndex, version: Version },
}

pub(super) const PAGES: u64 = 1500;
pub(super) const FAR: u64 = 4096;

pub(super) struct World {
    pub(super) b: Borrower,
    pub(super) now: u64,
    /// What each base page must read as; absent: zero.
    pub(super) truth: BTreeMap<(SpaceKey, u64), u64>,
    /// What is present in each program.
    pub(super) present: BTreeMap<(SpaceKey, u64), u64>,
    pub(super) buffers: Vec<u64>,
    pub(super) lenders: Vec<Option<BTreeMap<(CopyIndex, Version), u64>>>,
    pub(super) disk: BTreeMap<CopyIndex, u64>,
    pub(super) replicas: replicas::Replicas,
    pub(super) pending: Vec<Pending>,
    /// Of pages that the hand has taken and the borrower has not been told of.
    pub(super) fates: BTreeMap<(SpaceKey, u64), PageFate>,
    pub(super) spaces: Vec<SpaceKey>,
    pub(super) next_space: u32,
    pub(super) forked: BTreeSet<SpaceKey>,
    /// None of its pages can be taken.
    pub(super) pinned: Option<SpaceKey>,
    /// What lies in mappings of which nothing can be taken.
    pub(super) denied: BTreeSet<(SpaceKey, u64)>,
    /// What is found to have been written between a fork and the time when what is shared is protected.
    pub(super) own: BTreeSet<(SpaceKey, u64)>,
    /// What may not be written before the borrower says so.
    pub(super) protected: BTreeSet<(SpaceKey, u64)>,
    /// Pages that cannot be taken before they are made the process's own; and how many were.
    pub(super) shared: BTreeSet<(SpaceKey, u64)>,
    pub(super) populated: u64,
    pub(super) lender_room: bool,
    /// Pages that each lender takes.
    pub(super) lender_pages_max: usize,
    /// Lenders that want pages back and take none.
    pub(super) full: BTreeSet<usize>,
    pub(super) writes_fail: bool,
    /// Lenders have given their place to others.
    pub(super) taken: BTreeSet<(CopyIndex, Version)>,
    /// Pages that were sent to each lender, and how often the lender changed from one to the next.
    pub(super) puts: Vec<u64>,
    pub(super) changes: u64,
    pub(super) put_last: Option<LenderIndex>,
    /// So many installs are refused yet, as the kernel does while mappings change.
    pub(super) refuses: u32,
    pub(super) arrived: u64,
    /// What was asked of lenders, in order, and how often something was hurried.
    pub(super) gets: Vec<(CopyIndex, u32, Urgency)>,
    pub(super) hurries: u64,
    pub(super) steps: u64,
}

impl World {
    pub(super) fn new(page: u64, disk: bool, limit: u64, lenders: usize) -> Self {
        Self::configured(page, limit, lenders, |config| config.disk = disk)
    }

    pub(super) fn configured(
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
            denied: BTreeSet::new(),
            own: BTreeSet::new(),
            protected: BTreeSet::new(),
            shared: BTreeSet::new(),
            populated: 0,
            lender_room: true,
            lender_pages_max: usize::MAX,
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

    /// Each lender takes so many pages.
    pub(super) fn limit_lenders(&mut self, pages: Option<usize>) {
        let Some(pages) = pages else { return };
        self.lender_pages_max = pages;
        for n in 0..self.lenders.len() {
            self.b.handle_lender_room(LenderIndex(n as u8), BasePages(pages as u64));
        }
    }

    pub(super) fn time(&mut self) -> Instant {
        self.now += 1_000;
        Instant(self.now)
    }

    /// All that was here of the first space leaves, but for what is from `others` on.
    pub(super) fn push_out(&mut self, others: u64) {
        // What has come back from a buffer stays for longer, until there is next to no memory.
        for limit in [600, 40, 600, 40, 600] {
            let now = self.time();
            self.b.handle_limit(now, BasePages(limit));
            self.drain();
            self.settle(16);
            (others..PAGES).for_each(|base| self.touch(SpaceKey(0), base));
            self.settle(16);
        }
    }

    pub(super) fn drain(&mut self) {
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

    pub(super) fn complete(&mut self, pick: usize) -> bool {
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
                        let fate = if self.denied.contains(&(key, base)) {
                            PageFate::Denied
                        } else if shared || self.pinned == Some(key) {
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
                let has_room = self.lender_room && store.len() < self.lender_pages_max;
                let answer = if has_room && takes {
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

    pub(super) fn touch(&mut self, key: SpaceKey, base: u64) {
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
    /// What is here of these leaves, and is in no buffer afterwards.
    pub(super) fn send_away(&mut self, key: SpaceKey, bases: core::ops::Range<u64>) {
        let rescue = core::mem::replace(&mut self.b.config.rescue, false);
        let now = self.time();
        self.b.handle_advice(now, key, BaseRange::new(bases.start, bases.end), Advice::WillNotNeed);
        self.settle(10_000);
        self.b.config.rescue = rescue;
        assert!(bases.into_iter().all(|base| self.b.state(key, base) != BaseState::Local));
    }

    pub(super) fn touch_to_write(&mut self, key: SpaceKey, base: u64) {
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
    pub(super) fn rest(&mut self) {
        while let Some(i) = self.pending.iter().position(|p| matches!(p, Pending::Evict(_))) {
            let len = self.pending.len();
            self.pending.swap(i, len - 1);
            self.complete(len - 1);
        }
    }

    pub(super) fn check(&self) {
        self.b.audit();
        let Stats { first_wait, queued_wait, joined_wait, .. } = self.b.stats();
        let waited = first_wait.0 + queued_wait.0 + joined_wait.0;
        assert!(waited <= self.now, "a moment was counted twice: {waited} of {}", self.now);
    }

    pub(super) fn stored_at(&self, lender: usize) -> usize {
        self.lenders[lender].as_ref().map_or(0, BTreeMap::len)
    }

    /// Plans and advice are followed, so many base pages at a time, until nothing is under way.
    pub(super) fn settle(&mut self, pages: u64) {
        let mut turns = 0;
        while self.b.has_plans() || !self.pending.is_empty() {
            turns += 1;
            assert!(turns < 100_000, "it is never done");
            self.complete(1);
            let now = self.time();
            self.b.handle_plans(now, pages);
            self.drain();
        }
    }

    /// Everything that is under way comes to its end, whatever waits for a clock too. Then both sides agree who holds what.
    pub(super) fn finish(&mut self) {
        for _ in 0..8 {
            let mut turns = 0;
            while self.complete(turns) {
                turns += 1;
                assert!(turns < 100_000, "it is never done");
            }
            self.now += 1_100_000_000;
            self.b.handle_timeout(Instant(self.now));
            while !self.b.leftovers.is_empty() {
                assert!(self.b.poll_timeout().is_some_and(|due| due.0 <= self.now), "it is never given back");
                self.b.handle_timeout(Instant(self.now));
            }
            self.drain();
            if self.pending.is_empty() {
                break;
            }
        }
        self.check();
    }

    pub(super) fn agree(&self) {
        for n in 0..self.lenders.len() {
            let held = self.b.held_by(LenderIndex(n as u8)).0;
            assert_eq!(held, self.stored_at(n) as u64, "what lender {n} has");
        }
    }

    pub(super) fn read_all(&mut self) {
        for key in self.spaces.clone() {
            for base in 0..PAGES {
                self.touch(key, base);
            }
        }
    }
}
