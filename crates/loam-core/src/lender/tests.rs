//! The lender against a model: a map of what must be found, and a slab whose slots are tagged numbers.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const CAPACITY: u64 = 48;
const GRACE: Duration = Duration::from_millis(10);
const SPACES: u64 = 3;

#[derive(Clone, Debug)]
enum Op {
    Open(u64),
    Close(u64),
    Put { space: u64, first: u64, pages: u64, version: u32 },
    Abort { space: u64, index: u64 },
    Get { space: u64, index: u64, version: u32 },
    ReadBegin { space: u64 },
    ReadEnd,
    Drop { space: u64, index: u64, version: u32 },
    DropAll(u64),
    Pass { ms: u64 },
    Release,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let space = 0..SPACES;
    let index = prop_oneof![0..12_u64, 250..262_u64];
    let version = 0..3_u32;
    let op = prop_oneof![
        2 => space.clone().prop_map(Op::Open),
        1 => space.clone().prop_map(Op::Close),
        6 => (space.clone(), index.clone(), 1..9_u64, version.clone())
            .prop_map(|(space, first, pages, version)| Op::Put { space, first, pages, version }),
        1 => (space.clone(), index.clone()).prop_map(|(space, index)| Op::Abort { space, index }),
        6 => (space.clone(), index.clone(), version.clone())
            .prop_map(|(space, index, version)| Op::Get { space, index, version }),
        2 => space.clone().prop_map(|space| Op::ReadBegin { space }),
        2 => Just(Op::ReadEnd),
        3 => (space.clone(), index, version)
            .prop_map(|(space, index, version)| Op::Drop { space, index, version }),
        1 => space.prop_map(Op::DropAll),
        2 => (0..12_u64).prop_map(|ms| Op::Pass { ms }),
        2 => Just(Op::Release),
    ];
    prop::collection::vec(op, 1..200)
}

struct Model {
    lender: Lender,
    now: Instant,
    open: Vec<u32>,
    /// When a space without connections loses its pages.
    expires: Vec<Option<Instant>>,
    pages: BTreeMap<(u64, u64), (Version, u128)>,
    /// What the driver's slab holds; 0 is a punched hole.
    slab: Vec<u128>,
    reads: VecDeque<(ReadTicket, Vec<(Slot, u128)>)>,
    contents_last: u128,
}

impl Model {
    fn new() -> Self {
        Self {
            lender: Lender::new(BasePages(CAPACITY), GRACE, SPACES as usize),
            now: Instant(0),
            open: vec![0; SPACES as usize],
            expires: vec![None; SPACES as usize],
            pages: BTreeMap::new(),
            slab: vec![0; CAPACITY as usize],
            reads: VecDeque::new(),
            contents_last: 0,
        }
    }

    fn forget(&mut self, space: u64) {
        self.pages.retain(|key, _| key.0 != space);
    }

    fn is_open(&self, space: u64) -> bool {
        self.open[space as usize] > 0
    }

    fn put(&mut self, space: u64, first: u64, pages: u64, version: u32) {
        let indexes: Vec<u64> = (first..first + pages).collect();
        let mut rest = &indexes[..];
        for index in &indexes {
            self.pages.remove(&(space, *index));
        }
        while !rest.is_empty() {
            let Some(run) = self.lender.reserve(SpaceId(space), rest) else {
                assert_eq!(self.lender.free(), Bytes(0), "refused though there was room");
                return;
            };
            assert!(run.pages as usize <= rest.len());
            for (&index, slot) in rest.iter().zip(run.slots()) {
                for (_, seen) in &self.reads {
                    assert!(seen.iter().all(|(read, _)| *read != slot), "reused while it is read");
                }
                self.contents_last += 1;
                self.slab[slot.0 as usize] = self.contents_last;
                self.lender.commit(
                    SpaceId(space),
                    index,
                    Version(version),
                    ContentHash(self.contents_last),
                    slot,
                );
                self.pages.insert((space, index), (Version(version), self.contents_last));
            }
            rest = &rest[run.pages as usize..];
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open(space) => {
                self.lender.connection_opened(SpaceId(space), "model").expect("there is room for each");
                self.open[space as usize] += 1;
                self.expires[space as usize] = None;
            }
            Op::Close(space) if self.is_open(space) => {
                self.lender.connection_closed(self.now, SpaceId(space));
                self.open[space as usize] -= 1;
                if !self.is_open(space) {
                    self.expires[space as usize] = Some(self.now + GRACE);
                }
            }
            Op::Put { space, first, pages, version } if self.is_open(space) => {
                self.put(space, first, pages, version);
            }
            Op::Abort { space, index } if self.is_open(space) => {
                self.pages.remove(&(space, index));
                if let Some(run) = self.lender.reserve(SpaceId(space), &[index]) {
                    run.slots().for_each(|slot| self.lender.abort(slot));
                }
            }
            Op::Get { space, index, version } if self.is_open(space) => {
                let want = self.pages.get(&(space, index)).filter(|page| page.0 == Version(version));
                let slab = &self.slab;
                let mut calls = 0;
                self.lender.get(SpaceId(space), [(index, Version(version))].into_iter(), |_, _, hit| {
                    calls += 1;
                    assert_eq!(hit.map(|(_, hash)| hash.0), want.map(|page| page.1));
                    if let Some((slot, hash)) = hit {
                        assert_eq!(slab[slot.0 as usize], hash.0, "other contents than were put");
                    }
                });
                assert_eq!(calls, 1);
            }
            Op::ReadBegin { space } if self.is_open(space) => {
                let ticket = self.lender.read_begin();
                let all: Vec<_> = self
                    .pages
                    .iter()
                    .filter(|(key, _)| key.0 == space)
                    .map(|(key, p)| (key.1, p.0))
                    .collect();
                let mut seen = Vec::new();
                self.lender.get(SpaceId(space), all.into_iter(), |_, _, hit| {
                    let (slot, hash) = hit.expect("the model has it");
                    seen.push((slot, hash.0));
                });
                self.reads.push_back((ticket, seen));
            }
            Op::ReadEnd => {
                if let Some((ticket, seen)) = self.reads.pop_front() {
                    for (slot, contents) in seen {
                        assert_eq!(self.slab[slot.0 as usize], contents, "changed while it was read");
                    }
                    self.lender.read_end(ticket);
                }
            }
            Op::Drop { space, index, version } if self.is_open(space) => {
                let there = self.pages.get(&(space, index)).is_some_and(|page| page.0 == Version(version));
                assert_eq!(self.lender.drop_page(SpaceId(space), index, Version(version)), there);
                if there {
                    self.pages.remove(&(space, index));
                }
            }
            Op::DropAll(space) if self.is_open(space) => {
                self.lender.drop_all(SpaceId(space));
                self.forget(space);
            }
            Op::Pass { ms } => {
                self.now = self.now + Duration::from_millis(ms);
                for space in 0..SPACES {
                    if self.expires[space as usize].is_some_and(|at| at <= self.now) {
                        self.expires[space as usize] = None;
                        self.forget(space);
                    }
                }
                while self.lender.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.lender.handle_timeout(self.now);
                }
            }
            Op::Release => {
                while let Some(Effect::Release(run)) = self.lender.poll_effect() {
                    run.slots().for_each(|slot| self.slab[slot.0 as usize] = 0);
                    self.lender.released(run);
                }
            }
            _ => {}
        }
    }

    fn check(&self) {
        self.lender.slots.check();
        for borrower in self.lender.borrowers() {
            let pages = self.pages.keys().filter(|key| key.0 == borrower.space.0).count();
            assert_eq!(borrower.pages, pages as u64);
            assert_eq!(borrower.connections, self.open[borrower.space.0 as usize]);
        }
        if self.lender.poll_timeout() != Some(Instant(0)) {
            assert_eq!(self.lender.stats().pages, self.pages.len() as u64);
        }
    }
}

proptest! {
    #[test]
    fn does_what_the_model_does(ops in ops()) {
        let mut model = Model::new();
        for op in ops {
            model.apply(op);
            model.check();
        }
        // The end: everybody leaves, every read ends, and all the memory is free and cold.
        while !model.reads.is_empty() {
            model.apply(Op::ReadEnd);
        }
        for space in 0..SPACES {
            while model.is_open(space) {
                model.apply(Op::Close(space));
            }
        }
        model.apply(Op::Pass { ms: 1000 });
        model.apply(Op::Release);
        model.check();
        prop_assert_eq!(model.lender.free(), BasePages(CAPACITY).bytes());
        prop_assert_eq!(model.lender.stats().borrowers, 0);
        prop_assert!(model.slab.iter().all(|contents| *contents == 0), "memory not given back");
    }
}

#[test]
fn one_borrower_too_many_is_refused() {
    let mut lender = Lender::new(BasePages(4), GRACE, 2);
    assert_eq!(lender.connection_opened(SpaceId(1), "a"), Ok(()));
    assert_eq!(lender.connection_opened(SpaceId(2), "b"), Ok(()));
    assert_eq!(lender.connection_opened(SpaceId(3), "c"), Err(TooManyBorrowers));
    assert_eq!(lender.connection_opened(SpaceId(1), "a"), Ok(()), "one that is known may open more");
}

#[test]
fn a_full_store_still_replaces() {
    let mut lender = Lender::new(BasePages(1), GRACE, 1);
    let space = SpaceId(7);
    lender.connection_opened(space, "a").unwrap();
    for version in 0..3 {
        let run = lender.reserve(space, &[5]).expect("the old version makes room");
        lender.commit(space, 5, Version(version), ContentHash(1), run.first);
    }
    assert_eq!(lender.reserve(space, &[6]), None);
}

#[test]
#[should_panic(expected = "is not out")]
fn a_ticket_of_another_lender_is_caught() {
    let mut a = Lender::new(BasePages(1), GRACE, 1);
    let ticket = a.read_begin();
    Lender::new(BasePages(1), GRACE, 1).read_end(ticket);
}
