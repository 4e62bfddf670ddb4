//! Any history of writes, newer versions, forgets, reads and crashes, against a model of what was promised.

use super::power::{Failing, PowerDisk};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SPACES: u64 = 4;
const INDEXES: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    Write {
        space: u64,
        first: u64,
        pages: u64,
        stride: u64,
    },
    Forget {
        space: u64,
        index: u64,
    },
    ForgetSpace {
        space: u64,
    },
    Read {
        space: u64,
        index: u64,
    },
    Poll,
    Settle,
    LosePower,
    /// Closed without waiting for syncs, as by kill -9: the kernel ends what it has.
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let (space, index) = (|| 0..SPACES, || 0..INDEXES);
    prop_oneof![
        12 => (space(), index(), 1..=32_u64, 1..=2_u64)
            .prop_map(|(space, first, pages, stride)| Step::Write { space, first, pages, stride }),
        6 => (space(), index()).prop_map(|(space, index)| Step::Forget { space, index }),
        1 => space().prop_map(|space| Step::ForgetSpace { space }),
        8 => (space(), index()).prop_map(|(space, index)| Step::Read { space, index }),
        12 => Just(Step::Poll),
        2 => Just(Step::Settle),
        1 => Just(Step::LosePower),
        1 => Just(Step::Kill),
    ]
}

/// What is known of one page.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last version that was ever given out: never used again.
    last: u32,
    /// Begun and neither durable nor failed.
    begun: BTreeSet<u32>,
    /// Reported durable, the newest that was not forgotten: promised.
    promised: Option<u32>,
    /// Forgotten up to here.
    forgotten: u32,
}

/// So few that what has gone is seen half freed.
const FREED_AT_ONCE: usize = 3;

struct Run {
    disk: PowerDisk,
    geometry: Geometry,
    store: DiskStore<PowerDisk>,
    pages: BTreeMap<(u64, u64), Known>,
    writes: BTreeMap<WriteToken, (u64, Vec<(u64, u32)>)>,
    reads: BTreeMap<ReadToken, (u64, u64, u32)>,
    /// Spaces that were forgotten, with the last version of each page: the mark is not durable yet, or it is.
    going: BTreeMap<(u64, u64), u32>,
    gone: BTreeMap<(u64, u64), u32>,
    failing: Failing,
}

impl Run {
    fn new(seed: u64, header_bytes: u32, slots: u32, failing: Failing) -> Self {
        let geometry = Geometry { store: seed ^ 7, header_bytes, slots };
        let disk = PowerDisk::new(&geometry, seed);
        let (mut store, pages) = disk.open(geometry);
        assert!(pages.is_empty());
        store.freed_at_once = FREED_AT_ONCE;
        disk.0.borrow_mut().failing = failing;
        let (pages, writes, reads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (going, gone) = (BTreeMap::new(), BTreeMap::new());
        Self { disk, geometry, store, pages, writes, reads, going, gone, failing }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { space, first, pages, stride } => self.write(space, first, pages, stride),
            Step::Forget { space, index } => {
                let Some(known) = self.pages.get_mut(&(space, index)) else { return };
                known.forgotten = known.last;
                known.promised = None;
                self.store.forget(SpaceId(space), index, Version(known.last));
                assert!(!self.store.records.knows(PageId { space: SpaceId(space), index }));
            }
            Step::ForgetSpace { space } => {
                if self.store.forget_space(SpaceId(space)) {
                    for (&page, known) in self.pages.range_mut((space, 0)..(space + 1, 0)) {
                        (known.forgotten, known.promised) = (known.last, None);
                        self.going.insert(page, known.last);
                    }
                }
                assert_eq!(self.store.records.slots_of(SpaceId(space)), 0);
            }
            Step::Read { space, index } => self.read(space, index),
            Step::Poll => self.poll(),
            Step::Settle => self.settle(),
            Step::LosePower => {
                self.disk.lose_power();
                self.reopen();
            }
            Step::Kill => {
                // What the kernel has ends; nobody hears of it.
                let mut ended = Vec::new();
                for _ in 0..64 {
                    self.store.device.finished(&mut ended).unwrap();
                }
                self.reopen();
            }
        }
        check(&self.store);
    }

    fn write(&mut self, space: u64, first: u64, pages: u64, stride: u64) {
        let indexes: Vec<u64> = (0..pages).map(|at| first + at * stride).collect();
        let next = |index: &u64| {
            (*index, self.pages.get(&(space, *index)).map_or(0, |known| known.last.max(known.forgotten)) + 1)
        };
        let versions: Vec<(u64, u32)> = indexes.iter().map(next).collect();
        let room = self.store.room(SpaceId(space));
        let free = self.store.free.count();
        let new = indexes
            .iter()
            .filter(|&&index| !self.store.records.knows(PageId { space: SpaceId(space), index }))
            .count();
        match super::write(&mut self.store, space, &versions) {
            Ok(token) => {
                assert!(
                    new <= room as usize && pages <= u64::from(free),
                    "more was taken than there was room for"
                );
                for &(index, version) in &versions {
                    let known = self.pages.entry((space, index)).or_default();
                    known.last = version;
                    known.begun.insert(version);
                }
                assert!(self.writes.insert(token, (space, versions)).is_none());
            }
            Err(Refused::Full { room: told }) => {
                assert_eq!(told, room);
                assert!(new > room as usize || pages > u64::from(free), "refused with room");
            }
            Err(Refused::Busy) => {
                assert!(self.store.writes_under_way > 0 || self.store.is_freeing(), "busy with nothing")
            }
            Err(Refused::Broken) => assert!(self.store.broken().is_some()),
            Err(Refused::Spaces) => panic!("there are {SPACES} spaces"),
        }
    }

    fn read(&mut self, space: u64, index: u64) {
        let Some(known) = self.pages.get(&(space, index)) else { return };
        let Some(version) = known.promised else {
            // A version that was forgotten is not to be had.
            if known.forgotten == known.last && known.last > 0 {
                let refused = self.store.read(SpaceId(space), index, Version(known.last));
                assert_eq!(refused, Err(ReadRefused::Missing));
            }
            return;
        };
        match self.store.read(SpaceId(space), index, Version(version)) {
            Ok(token) => drop(self.reads.insert(token, (space, index, version))),
            Err(error) => assert_eq!(error, ReadRefused::Busy, "a promised page {space}/{index}"),
        }
    }

    fn poll(&mut self) {
        let ended: Vec<Completion> = self.store.poll().collect();
        for completion in ended {
            match completion {
                Completion::Durable { token } => {
                    let (space, pages) = self.writes.remove(&token).expect("a write that was not begun");
                    for (index, version) in pages {
                        let known = self.pages.get_mut(&(space, index)).expect("it was begun");
                        known.begun.remove(&version);
                        if version > known.forgotten {
                            known.promised = known.promised.max(Some(version));
                        }
                    }
                }
                Completion::Failed { token, .. } => {
                    assert!(self.failing.writes + self.failing.syncs > 0, "a write failed on a good disk");
                    let (space, pages) = self.writes.remove(&token).expect("a write that was not begun");
                    for (index, version) in pages {
                        self.pages.get_mut(&(space, index)).expect("it was begun").begun.remove(&version);
                    }
                }
                Completion::Read { token, page, .. } => {
                    let (space, index, version) =
                        self.reads.remove(&token).expect("a read that was not begun");
                    assert!(*page == contents(space, index, version), "wrong bytes");
                }
                Completion::ReadFailed { token, error } => {
                    let (space, index, version) =
                        self.reads.remove(&token).expect("a read that was not begun");
                    let promised = self.pages[&(space, index)].promised;
                    match error {
                        Fault::Missing => assert!(promised != Some(version), "a promised page is missing"),
                        Fault::Disk(_) => assert!(self.failing.reads > 0),
                        other => panic!("{other} on a good disk"),
                    }
                }
            }
        }
        if self.store.is_idle() && self.store.broken().is_none() {
            self.gone.append(&mut self.going);
        }
    }

    fn settle(&mut self) {
        let mut turns = 0;
        while !self.store.is_idle() {
            self.poll();
            turns += 1;
            assert!(turns < 10_000, "it never ends");
        }
        self.poll();
    }

    /// What a new lender finds.
    fn reopen(&mut self) {
        self.disk.0.borrow_mut().failing = Failing::default();
        let (store, found) = self.disk.open(self.geometry);
        self.store = store;
        self.store.freed_at_once = FREED_AT_ONCE;
        self.writes.clear();
        self.reads.clear();
        // The mark may be there or not: nothing is promised.
        self.going.clear();
        let found: BTreeMap<(u64, u64), StoredPage> =
            found.into_iter().map(|page| ((page.space.0, page.index), page)).collect();
        for (&(space, index), known) in &mut self.pages {
            let version = found.get(&(space, index)).map(|page| page.version.0);
            assert!(version >= known.promised, "{space}/{index}: {version:?} of promised {known:?}");
            known.promised = version;
            known.begun.clear();
            known.forgotten = 0;
        }
        for (&(space, index), page) in &found {
            let version = page.version.0;
            let known = self.pages.get(&(space, index)).expect("a page that was never written");
            assert!((1..=known.last).contains(&version), "a version that never was");
            assert_eq!(page.hash, page_hash(&contents(space, index, version)));
            let gone = self.gone.get(&(space, index)).is_some_and(|&last| version <= last);
            assert!(!gone, "a page of a space that has gone came back");
            super::read(&mut self.store, space, index, version).expect("what was found can be read");
        }
        self.settle();
        self.disk.0.borrow_mut().failing = self.failing;
    }
}

fn failing() -> impl Strategy<Value = Failing> {
    prop_oneof![
        3 => Just(Failing::default()),
        1 => Just(Failing { writes: 100, ..Failing::default() }),
        1 => Just(Failing { writes: 300, errno: Some(rustix::io::Errno::NOSPC), ..Failing::default() }),
        1 => Just(Failing { writes: 30, syncs: 50, reads: 50, ..Failing::default() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn what_was_promised_survives_and_nothing_wrong_is_read(
        seed: u64,
        header_bytes in prop_oneof![4 => Just(512_u32), 1 => Just(4096_u32)],
        slots in 40_u32..160,
        failing in failing(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut run = Run::new(seed, header_bytes, slots, failing);
        for step in &steps {
            run.step(step);
        }
        run.step(&Step::Settle);
        run.step(&Step::LosePower);
    }
}
