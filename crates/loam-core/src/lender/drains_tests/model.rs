//! Against a map of what must be found, a slab of numbers, and a disk that is a map too. The lender may crash at any time.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const CAPACITY: u64 = 24;
const STORE: StoreConfig = StoreConfig {
    capacity: BasePages(16),
    channel: BasePages(9),
    write_pages_max: 3,
    under_way_max: BasePages(5),
    linger: Duration::from_millis(2),
};
const GRACE: Duration = Duration::from_millis(10);
const SPACES: u64 = 2;

type Key = (u64, u64);

#[derive(Clone, Debug)]
enum Op {
    Put { space: u64, first: u64, pages: u64, version: u32, class: PutClass },
    Get { space: u64, index: u64, version: u32 },
    Drop { space: u64, index: u64 },
    DropAll(u64),
    Spare { space: u64, index: u64 },
    Finish { which: usize, drained: Drained },
    Lose { space: u64, index: u64 },
    Poll(usize),
    Pass { ms: u64 },
    Limit(u64),
    Close(u64),
    Open(u64),
    Crash { written: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (space, index, version) = (0..SPACES, 0..14_u64, 0..3_u32);
    let class =
        prop_oneof![4 => Just(PutClass::Staged), 1 => Just(PutClass::Mirror), 1 => Just(PutClass::Ordinary)];
    let drained =
        prop_oneof![8 => Just(Drained::Stored), 1 => Just(Drained::NoRoom), 1 => Just(Drained::Failed)];
    let op = prop_oneof![
        8 => (space.clone(), index.clone(), 1..6_u64, version.clone(), class)
            .prop_map(|(space, first, pages, version, class)| Op::Put { space, first, pages, version, class }),
        5 => (space.clone(), index.clone(), version)
            .prop_map(|(space, index, version)| Op::Get { space, index, version }),
        3 => (space.clone(), index.clone()).prop_map(|(space, index)| Op::Drop { space, index }),
        1 => space.clone().prop_map(Op::DropAll),
        2 => (space.clone(), index.clone()).prop_map(|(space, index)| Op::Spare { space, index }),
        6 => (0..4_usize, drained).prop_map(|(which, drained)| Op::Finish { which, drained }),
        1 => (space.clone(), index.clone()).prop_map(|(space, index)| Op::Lose { space, index }),
        6 => (1..9_usize).prop_map(Op::Poll),
        2 => prop_oneof![0..12_u64, 4_000..7_000_u64].prop_map(|ms| Op::Pass { ms }),
        2 => prop_oneof![0..CAPACITY, Just(CAPACITY), Just(CAPACITY)].prop_map(Op::Limit),
        1 => space.clone().prop_map(Op::Close),
        2 => space.prop_map(Op::Open),
        1 => (0..6_usize).prop_map(|written| Op::Crash { written }),
    ];
    prop::collection::vec(op, 1..250)
}

struct Model {
    lender: Lender,
    now: Instant,
    open: [bool; SPACES as usize],
    expires: [Option<Instant>; SPACES as usize],
    /// What each space has put and not dropped, and which of it may be gone.
    pages: BTreeMap<Key, Version>,
    may_be_gone: BTreeSet<Key>,
    /// What was told to be on the disk, in the version of `pages`.
    told: BTreeSet<Key>,
    slab: Vec<u128>,
    store: BTreeMap<(u64, u64, Version), u128>,
    /// Who has a place in the disk's table of spaces.
    spaces: BTreeSet<u64>,
    writes: Vec<(Drain, Vec<u128>)>,
    crashed: bool,
}

impl Model {
    fn new() -> Self {
        let lender = Lender::new(BasePages(CAPACITY), GRACE, SPACES as usize);
        Self {
            lender: lender.with_store(Instant(0), STORE, []),
            now: Instant(0),
            open: [false; SPACES as usize],
            expires: [None; SPACES as usize],
            pages: BTreeMap::new(),
            may_be_gone: BTreeSet::new(),
            told: BTreeSet::new(),
            slab: vec![0; CAPACITY as usize],
            store: BTreeMap::new(),
            spaces: BTreeSet::new(),
            writes: Vec::new(),
            crashed: false,
        }
    }

    fn is_open(&self, space: u64) -> bool {
        self.open[space as usize]
    }

    fn forget(&mut self, key: Key) {
        self.pages.remove(&key);
        self.may_be_gone.remove(&key);
        self.told.remove(&key);
    }

    fn forget_space(&mut self, space: u64) {
        self.pages.retain(|key, _| key.0 != space);
        self.may_be_gone.retain(|key| key.0 != space);
        self.told.retain(|key| key.0 != space);
    }

    fn put(&mut self, space: u64, indexes: &[u64], version: u32, class: PutClass) {
        indexes.iter().for_each(|&index| self.forget((space, index)));
        let mut rest = indexes;
        while !rest.is_empty() {
            let Some(run) = self.lender.reserve_as(self.now, SpaceId(space), rest, class) else { return };
            for (&index, slot) in rest.iter().zip(run.slots()) {
                let put = super::put(space, index, version, class);
                self.slab[slot.0 as usize] = put.hash.0;
                let taken = self.lender.commit_as(self.now, SpaceId(space), put, slot);
                assert!(taken, "nobody else puts between the reservation and this");
                self.pages.insert((space, index), Version(version));
            }
            rest = &rest[run.pages as usize..];
        }
    }

    /// Looks for a page. Whether it was found.
    fn get(&mut self, space: u64, index: u64, version: Version) -> bool {
        let mut answer = None;
        let asked = core::iter::once((index, version));
        self.lender.get(self.now, SpaceId(space), asked, |_, _, found| answer = Some(found));
        let is = self.pages.get(&(space, index)) == Some(&version);
        match answer.expect("one answer") {
            Found::Here(slot, hash) => {
                assert!(is, "an old version was found");
                assert_eq!((self.slab[slot.0 as usize], hash.0), (hash.0, contents(space, index, version.0)));
                true
            }
            Found::OnDisk => {
                // What was cancelled while it was under way may have reached the disk before a crash. Nobody asks for it: its contents are right.
                assert!(is || self.crashed, "an old version was found");
                let there = self.store.get(&(space, index, version)).expect("the disk has it");
                assert_eq!(*there, contents(space, index, version.0));
                is
            }
            Found::Missing => {
                assert!(!is || self.may_be_gone.contains(&(space, index)), "a page is lost");
                false
            }
        }
    }

    fn disk_effect(&mut self, effect: DiskEffect) {
        match effect {
            DiskEffect::Drain(drain) => {
                assert!(drain.pages.len() <= STORE.write_pages_max);
                assert!(drain.pages.windows(2).all(|two| two[0].index + 1 == two[1].index));
                let mut written = Vec::new();
                for page in &drain.pages {
                    let key = (drain.space.0, page.index);
                    assert_eq!(self.pages.get(&key), Some(&page.version), "what is not wanted is written");
                    assert!(!self.told.contains(&key), "it is there already");
                    let others = self.store.keys().any(|other| (other.0, other.1) == key);
                    assert!(!others, "an older version is still there");
                    let under_way = self.writes.iter().any(|(other, _)| {
                        other.space == drain.space && other.pages.iter().any(|o| o.index == page.index)
                    });
                    assert!(!under_way, "two writes of a page are under way");
                    written.push(self.slab[page.slot.0 as usize]);
                }
                self.spaces.insert(drain.space.0);
                self.writes.push((drain, written));
                let under_way: usize = self.writes.iter().map(|write| write.1.len()).sum();
                assert!(under_way < STORE.under_way_max.0 as usize + STORE.write_pages_max);
                assert!(self.store.len() + under_way <= STORE.capacity.0 as usize, "more than fits");
            }
            DiskEffect::Forget(forget) => {
                for (index, version) in forget.pages {
                    let key = (forget.space.0, index);
                    let current = self.pages.get(&key) == Some(&version);
                    assert!(!current || !self.told.contains(&key), "what was told to be stored is forgotten");
                    self.store.remove(&(key.0, key.1, version));
                }
            }
            DiskEffect::ForgetSpace(space) => {
                assert!(
                    !self.told.iter().any(|key| key.0 == space.0),
                    "what was told to be stored is forgotten"
                );
                self.store.retain(|key, _| key.0 != space.0);
                self.spaces.remove(&space.0);
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Stored(stored) => {
                assert!(self.is_open(stored.space.0), "told to nobody");
                assert!(!stored.pages.is_empty() && stored.pages.len() <= STORED_PAGES_MAX);
                self.lender.told_stored(stored.space);
                for (index, version) in stored.pages {
                    let key = (stored.space.0, index);
                    if self.pages.get(&key) == Some(&version) {
                        let there = self.store.get(&(key.0, index, version));
                        assert_eq!(there, Some(&contents(key.0, index, version.0)), "told and not there");
                        self.told.insert(key);
                        self.may_be_gone.remove(&key);
                    }
                }
            }
            // A hint, too: the page may have been put again meanwhile. Whether it was spare shows when it is looked for.
            Effect::Gone(gone) => assert!(!gone.pages.is_empty() && self.is_open(gone.space.0)),
            // Hints: they may have gone since it was decided.
            Effect::Recall(recall) => assert!(!recall.pages.is_empty()),
            Effect::Room(space) => assert!(self.is_open(space.0)),
            Effect::Release(run) => {
                run.slots().for_each(|slot| self.slab[slot.0 as usize] = 0);
                self.lender.released(run);
            }
        }
    }

    fn poll(&mut self, most: usize) {
        for _ in 0..most {
            let (has, has_for_disk) = (self.lender.has_effect(), self.lender.has_disk_effect());
            if let Some(effect) = self.lender.poll_effect() {
                assert!(has, "an effect that nobody would have come for: {effect:?}");
                self.effect(effect);
            } else if let Some(effect) = self.lender.poll_disk_effect() {
                assert!(has_for_disk, "an effect that nobody would have come for: {effect:?}");
                self.disk_effect(effect);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        for space in 0..SPACES {
            if self.expires[space as usize].is_some_and(|at| at <= self.now) {
                self.expires[space as usize] = None;
                self.forget_space(space);
            }
        }
        for _ in 0..1000 {
            if self.lender.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            self.lender.handle_timeout(self.now);
            // What is told has to be heard before it is due again.
            if !self.lender.recalls.is_empty() || !self.lender.tell.is_empty() {
                self.poll(1);
            }
        }
        panic!("it is never done");
    }

    fn finish(&mut self, which: usize, drained: Drained) {
        if which >= self.writes.len() {
            return;
        }
        let (drain, written) = self.writes.remove(which);
        for (page, contents) in drain.pages.iter().zip(written) {
            if drained == Drained::Stored {
                self.store.insert((drain.space.0, page.index, page.version), contents);
            }
        }
        self.lender.handle_drained(self.now, drain, drained);
    }

    /// The disk cannot read a page that it has.
    fn lose(&mut self, space: u64, index: u64) {
        let Some(version) = self.pages.get(&(space, index)).copied() else { return };
        if self.told.remove(&(space, index)) {
            self.store.remove(&(space, index, version));
            self.lender.handle_disk_lost(SpaceId(space), index, version);
            self.may_be_gone.insert((space, index));
            if !self.lender.borrowers.contains_key(&SpaceId(space)) {
                self.expires[space as usize] = None;
                self.forget_space(space);
            }
        }
    }

    /// The lender's process dies and starts again on the same store. `written` of the writes that were under way had come to their end.
    fn crash(&mut self, written: usize) {
        self.crashed = true;
        for (drain, contents) in core::mem::take(&mut self.writes).into_iter().take(written) {
            for (page, contents) in drain.pages.iter().zip(contents) {
                self.store.insert((drain.space.0, page.index, page.version), contents);
            }
        }
        self.spaces = self.store.keys().map(|key| key.0).collect();
        let recovered: Vec<_> = self.store.keys().map(|&(s, index, v)| (SpaceId(s), index, v)).collect();
        self.lender =
            Lender::new(BasePages(CAPACITY), GRACE, SPACES as usize).with_store(self.now, STORE, recovered);
        self.slab = vec![0; CAPACITY as usize];
        // What was not told to be on the disk may be gone, but must not be found in an old version.
        for space in 0..SPACES {
            let told = |key: &Key| self.told.contains(key);
            let lost = self.pages.keys().filter(|key| key.0 == space && !told(key)).copied();
            self.may_be_gone.extend(lost.collect::<Vec<_>>());
            self.open[space as usize] = false;
            self.expires[space as usize] = Some(self.now + GRACE);
            let has_any = self.lender.borrowers.contains_key(&SpaceId(space));
            if !has_any {
                self.expires[space as usize] = None;
                self.forget_space(space);
            }
        }
        for space in 0..SPACES {
            for index in 0..20 {
                let tenancy = self.lender.borrowers.get(&SpaceId(space)).map(|b| b.tenancy);
                let on_disk =
                    tenancy.and_then(|t| self.lender.cache.as_ref().and_then(|c| c.on_disk.get(t, index)));
                let here = on_disk.is_some() && on_disk == self.pages.get(&(space, index)).copied();
                assert!(here || !self.told.contains(&(space, index)), "told to be safe, and lost in a crash");
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Put { space, first, pages, version, class } if self.is_open(space) => {
                let indexes: Vec<u64> = (first..first + pages).collect();
                self.put(space, &indexes, version, class);
            }
            Op::Get { space, index, version } if self.is_open(space) => {
                self.get(space, index, Version(version));
            }
            Op::Drop { space, index } if self.is_open(space) => {
                if let Some(&version) = self.pages.get(&(space, index)) {
                    let there = self.lender.drop_page(SpaceId(space), index, version);
                    assert!(there || self.may_be_gone.contains(&(space, index)));
                    self.forget((space, index));
                }
            }
            Op::DropAll(space) if self.is_open(space) => {
                self.lender.drop_all(SpaceId(space));
                self.forget_space(space);
            }
            Op::Spare { space, index } if self.is_open(space) => {
                let key = (space, index);
                if let Some(&version) = self.pages.get(&key) {
                    let _ = self.lender.spare_page(SpaceId(space), index, version);
                    let tenancy = self.lender.borrowers[&SpaceId(space)].tenancy;
                    let on_disk = self.lender.cache.as_ref().and_then(|c| c.on_disk.get(tenancy, index));
                    if on_disk != Some(version) {
                        self.may_be_gone.insert(key);
                    }
                }
            }
            Op::Finish { which, drained } => self.finish(which, drained),
            Op::Lose { space, index } => self.lose(space, index),
            Op::Poll(most) => self.poll(most),
            Op::Pass { ms } => self.pass(ms),
            Op::Limit(limit) => {
                self.lender.handle_limit(BasePages(limit));
                self.pass(0);
            }
            Op::Close(space) if self.is_open(space) => {
                self.lender.connection_closed(self.now, SpaceId(space));
                self.open[space as usize] = false;
                self.expires[space as usize] = Some(self.now + GRACE);
                if !self.lender.borrowers.contains_key(&SpaceId(space)) {
                    self.expires[space as usize] = None;
                    self.forget_space(space);
                }
            }
            Op::Open(space) if !self.is_open(space) => {
                if !self.lender.borrowers.contains_key(&SpaceId(space)) {
                    // Its last spare page went while it was away.
                    assert!(self.pages.keys().all(|k| k.0 != space || self.may_be_gone.contains(k)));
                    self.forget_space(space);
                }
                let opened = self.lender.connection_opened(SpaceId(space), "model", Terms::Staging);
                assert_eq!(opened, Ok(()));
                self.open[space as usize] = true;
                self.expires[space as usize] = None;
            }
            Op::Crash { written } => self.crash(written),
            _ => {}
        }
    }

    fn check(&self) {
        let (lender, stats) = (&self.lender, self.lender.stats());
        lender.slots.check();
        let ages = |standing: Standing| lender.ages[standing as usize].pages();
        assert_eq!(ages(Standing::OnDisk) + ages(Standing::Spare), lender.order.pages());
        let in_ring = stats.ring.waiting + stats.ring.held;
        let staged = ages(Standing::Staged);
        assert!(
            in_ring <= staged && staged <= in_ring + stats.ring.under_way,
            "staged is what is in the ring"
        );
        let all: u64 = lender.ages.iter().map(Ages::pages).sum();
        assert_eq!(all, stats.pages, "each page is one thing");
        assert!(stats.on_disk <= STORE.capacity.0);
        let cache = lender.cache.as_ref().expect("there is a store");
        for (channel, figures) in cache.ring.channels() {
            assert!(figures.load() <= STORE.channel.0, "channel {channel:?} is bounded");
        }
        for (&space, borrower) in &lender.borrowers {
            let mut from = 0;
            let mut pages = 0;
            while let Some((at, found)) = cache.on_disk.extent(borrower.tenancy, from) {
                for (index, version) in found {
                    assert!(
                        self.store.contains_key(&(space.0, index, version)),
                        "the disk has not what is said"
                    );
                    pages += 1;
                }
                from = at + 1;
            }
            assert_eq!(pages, borrower.on_disk);
        }
    }

    /// Every page that must be there is.
    fn check_all(&mut self) {
        let pages: Vec<_> = self.pages.iter().map(|(key, version)| (*key, *version)).collect();
        for ((space, index), version) in pages {
            if self.is_open(space) {
                self.get(space, index, version);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn does_what_the_model_does(ops in ops()) {
        let mut model = Model::new();
        (0..SPACES).for_each(|space| model.apply(&Op::Open(space)));
        for op in &ops {
            model.apply(op);
            model.check();
        }
        model.check_all();
        // The end: the disk works, there is room and time. All that waits is written, and what the disk has no room for stays.
        model.apply(&Op::Limit(CAPACITY));
        for _ in 0..200 {
            model.apply(&Op::Poll(100));
            model.apply(&Op::Finish { which: 0, drained: Drained::Stored });
            model.check();
        }
        // (As often as a page lingers.)
        (0..3).for_each(|_| model.apply(&Op::Pass { ms: 6_000 }));
        for _ in 0..200 {
            model.apply(&Op::Poll(100));
            model.apply(&Op::Finish { which: 0, drained: Drained::Stored });
        }
        let stats = model.lender.stats();
        prop_assert!(stats.ring.waiting == 0 || stats.on_disk == STORE.capacity.0, "{stats:?}");
        prop_assert_eq!(stats.ring.under_way, 0);
        prop_assert!(!model.lender.has_effect() && !model.lender.has_disk_effect());
        model.check_all();
        // Everybody leaves: nothing is left, in memory or on the disk.
        (0..SPACES).for_each(|space| model.apply(&Op::Close(space)));
        model.apply(&Op::Pass { ms: 1_000 });
        model.apply(&Op::Poll(1_000));
        prop_assert_eq!(model.lender.stats().borrowers, 0);
        prop_assert_eq!(model.store.len(), 0, "the disk keeps what nobody wants");
        prop_assert_eq!(model.spaces.len(), 0, "the disk keeps a place for nobody");
        prop_assert_eq!(model.lender.free(), BasePages(CAPACITY).bytes());
        prop_assert_eq!(model.lender.stats().ring.load(), 0);
    }
}
