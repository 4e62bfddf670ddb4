//! The lender against a model: a map of what must be found, and a slab whose slots are tagged numbers.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const CAPACITY: u64 = 48;
const GRACE: Duration = Duration::from_millis(10);
const SPACES: u64 = 3;
/// Of each space.
const TERMS_OF: [Terms; SPACES as usize] = [Terms::Spare, Terms::Recallable, Terms::Kept];
const SPARE: u64 = 0;
const RECALLABLE: u64 = 1;

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
    Limit(u64),
    TakeHome(usize),
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
        2 => (0..3000_u64).prop_map(|ms| Op::Pass { ms }),
        2 => prop_oneof![0..CAPACITY + 9, Just(CAPACITY)].prop_map(Op::Limit),
        2 => (0..6_usize).prop_map(Op::TakeHome),
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
    used: BTreeMap<(u64, u64), Moment>,
    /// The order of the pages' last uses.
    uses: BTreeMap<(u64, u64), u64>,
    uses_last: u64,
    /// Pages that were replaced and of which their borrower was not told.
    untold: Vec<(u64, u64, Version)>,
    limit: u64,
    /// Pages of the recallable space that it was asked for and has not taken home.
    asked: Vec<(u64, Version)>,
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
            used: BTreeMap::new(),
            uses: BTreeMap::new(),
            uses_last: 0,
            untold: Vec::new(),
            limit: CAPACITY,
            asked: Vec::new(),
            slab: vec![0; CAPACITY as usize],
            reads: VecDeque::new(),
            contents_last: 0,
        }
    }

    fn forget(&mut self, space: u64) {
        self.pages.retain(|key, _| key.0 != space);
        self.untold.retain(|page| page.0 != space);
    }

    fn use_now(&mut self, space: u64, index: u64) {
        self.uses_last += 1;
        self.used.insert((space, index), Moment::of(self.now));
        self.uses.insert((space, index), self.uses_last);
    }

    /// Room for `wanted` pages of `space` was asked for: those that gave way were its own or the oldest, and no more than had to.
    fn replaced(&mut self, space: u64, wanted: u64, free_before: u64) {
        let gone: Vec<_> =
            self.pages.keys().filter(|key| self.slot_of(key.0, key.1).is_none()).copied().collect();
        assert!(gone.len() as u64 <= wanted.saturating_sub(free_before), "more gave way than had to");
        for key in gone {
            assert_eq!(key.0, SPARE, "an only copy gave way");
            let left = self.pages.keys().filter(|other| self.slot_of(other.0, other.1).is_some());
            let mut spare = left.filter(|other| other.0 == SPARE);
            assert!(
                space == SPARE || spare.all(|other| self.uses[other] > self.uses[&key]),
                "an older page was kept"
            );
            let (version, _) = self.pages.remove(&key).expect("it was there");
            if self.is_open(SPARE) {
                self.untold.push((key.0, key.1, version));
            }
        }
    }

    fn told(&mut self, gone: &Gone) {
        assert!(!gone.pages.is_empty() && gone.pages.len() <= GONE_PAGES_MAX);
        for &(index, version) in &gone.pages {
            let page = (gone.space.0, index, version);
            let at = self.untold.iter().position(|other| *other == page).expect("it was replaced");
            self.untold.remove(at);
        }
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
            let free = self.lender.slots.free_pages();
            let run = self.lender.reserve(self.now, SpaceId(space), rest);
            self.replaced(space, rest.len() as u64, free);
            let Some(run) = run else {
                assert_eq!(self.lender.free(), Bytes(0), "refused though there was room");
                let above = self.lender.slots.excess_pages() > 0;
                let spare = self.pages.keys().any(|key| key.0 == SPARE);
                assert!(above || !spare || !self.reads.is_empty(), "refused though pages could give way");
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
                    self.now,
                    SpaceId(space),
                    index,
                    Version(version),
                    ContentHash(self.contents_last),
                    slot,
                );
                self.pages.insert((space, index), (Version(version), self.contents_last));
                self.use_now(space, index);
            }
            rest = &rest[run.pages as usize..];
        }
    }

    /// Asks for pages. Answers where those are that were found, and what must be there.
    fn get(&mut self, space: u64, asked: &[(u64, Version)]) -> Vec<(Slot, u128)> {
        let (mut seen, mut answers) = (Vec::new(), Vec::new());
        self.lender.get(self.now, SpaceId(space), asked.iter().copied(), |index, version, hit| {
            answers.push((index, version, hit));
        });
        assert_eq!(answers.len(), asked.len());
        for (&asked, (index, version, hit)) in asked.iter().zip(answers) {
            assert_eq!(asked, (index, version));
            let want = self.pages.get(&(space, index)).filter(|page| page.0 == version);
            let hit = hit.here();
            assert_eq!(hit.map(|(_, hash)| hash.0), want.map(|page| page.1));
            if let Some((slot, hash)) = hit {
                seen.push((slot, hash.0));
                self.use_now(space, index);
            }
        }
        seen
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open(space) => {
                let terms = TERMS_OF[space as usize];
                self.lender
                    .connection_opened(SpaceId(space), "model", terms)
                    .expect("there is room for each");
                self.open[space as usize] += 1;
                self.expires[space as usize] = None;
            }
            Op::Close(space) if self.is_open(space) => {
                self.lender.connection_closed(self.now, SpaceId(space));
                self.open[space as usize] -= 1;
                if !self.is_open(space) {
                    self.expires[space as usize] = Some(self.now + GRACE);
                    self.untold.retain(|page| page.0 != space);
                }
            }
            Op::Put { space, first, pages, version } if self.is_open(space) => {
                self.put(space, first, pages, version);
            }
            Op::Abort { space, index } if self.is_open(space) => {
                self.pages.remove(&(space, index));
                let free = self.lender.slots.free_pages();
                let run = self.lender.reserve(self.now, SpaceId(space), &[index]);
                self.replaced(space, 1, free);
                if let Some(run) = run {
                    run.slots().for_each(|slot| self.lender.abort(SpaceId(space), slot));
                }
            }
            Op::Get { space, index, version } if self.is_open(space) => {
                let seen = self.get(space, &[(index, Version(version))]);
                let there = seen.iter().all(|(slot, contents)| self.slab[slot.0 as usize] == *contents);
                assert!(there, "other contents than were put");
            }
            Op::ReadBegin { space } if self.is_open(space) => {
                let ticket = self.lender.read_begin();
                let pages = self.pages.iter().filter(|(key, _)| key.0 == space);
                let all: Vec<_> = pages.map(|(key, page)| (key.1, page.0)).collect();
                let seen = self.get(space, &all);
                assert_eq!(seen.len(), all.len());
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
                self.settle();
            }
            Op::Limit(limit) => {
                self.limit = limit.min(CAPACITY);
                self.lender.handle_limit(BasePages(limit));
                assert!(self.lender.free() <= BasePages(self.limit).bytes());
                self.settle();
            }
            Op::TakeHome(pages) if self.is_open(RECALLABLE) => {
                for _ in 0..pages.min(self.asked.len()) {
                    let (index, version) = self.asked.swap_remove(0);
                    let key = (RECALLABLE, index);
                    let there = self.pages.get(&key).is_some_and(|page| page.0 == version);
                    assert_eq!(self.lender.drop_page(SpaceId(RECALLABLE), index, version), there);
                    if there {
                        self.pages.remove(&key);
                    }
                }
                self.settle();
            }
            Op::Release => {
                while let Some(effect) = self.lender.poll_effect() {
                    let Effect::Release(run) = effect else { panic!("`settle` has taken {effect:?}") };
                    run.slots().for_each(|slot| self.slab[slot.0 as usize] = 0);
                    self.lender.released(run);
                }
                let taken = self.slab.iter().filter(|contents| **contents != 0).count() as u64;
                let slots = &self.lender.slots;
                if self.reads.is_empty() {
                    let most = self.limit.max(slots.stored_pages());
                    assert!(taken <= most, "{taken} slots have memory, over a limit of {most}");
                }
            }
            _ => {}
        }
    }

    /// Lets the lender do all that is due, and takes note of what it dropped.
    fn settle(&mut self) {
        let mut steps = 0;
        while self.lender.poll_timeout().is_some_and(|at| at <= self.now) {
            self.lender.handle_timeout(self.now);
            while !self.lender.recalls.is_empty() || !self.lender.tell.is_empty() {
                match self.lender.poll_effect() {
                    Some(Effect::Recall(recall)) => self.recalled(&recall),
                    Some(Effect::Gone(gone)) => self.told(&gone),
                    other => panic!("{other:?} before what waits"),
                }
            }
            steps += 1;
            assert!(steps < 1000, "it is never done");
        }
        let stored = self.pages.len() as u64;
        let excess = stored.saturating_sub(self.limit);
        let there = |key: &(u64, u64)| self.slot_of(key.0, key.1).is_some();
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        for key in self.pages.keys() {
            if there(key) {
                left.push(*key);
            } else {
                gone.push(*key);
            }
        }
        let spare = self.pages.keys().filter(|key| key.0 == SPARE).count() as u64;
        assert_eq!(gone.len() as u64, excess.min(spare), "as many go as must, and as can");
        for key in gone {
            assert_eq!(key.0, SPARE, "an only copy was dropped");
            let younger =
                left.iter().filter(|other| other.0 == SPARE).all(|other| self.used[other] >= self.used[&key]);
            assert!(younger, "an older page was kept");
            self.pages.remove(&key);
        }
    }

    fn slot_of(&self, space: u64, index: u64) -> Option<Slot> {
        let tenancy = self.lender.borrowers.get(&SpaceId(space))?.tenancy;
        let (extent, offset) = split(index);
        self.lender.extents.get(&(tenancy, extent))?.get(offset)
    }

    fn recalled(&mut self, recall: &Recall) {
        assert_eq!(recall.space, SpaceId(RECALLABLE));
        assert!(!recall.pages.is_empty() && recall.pages.len() <= RECALL_PAGES_MAX);
        assert!(self.is_open(RECALLABLE), "somebody who is away was asked");
        for &(index, version) in &recall.pages {
            assert_eq!(self.pages[&(RECALLABLE, index)].0, version);
            // The same page is asked for again when a round was in vain.
            self.asked.retain(|page| page.0 != index);
        }
        for &(index, version) in &recall.pages {
            self.asked.push((index, version));
        }
    }

    fn check(&self) {
        self.lender.slots.check();
        let ages = self.lender.age_histogram(self.now);
        assert_eq!(ages.iter().sum::<u64>(), self.lender.stats().pages, "each page has an age");
        let all = [Terms::Spare, Terms::Recallable, Terms::Kept];
        let by_terms = all.into_iter().flat_map(|terms| self.lender.ages(terms, self.now));
        let old = by_terms.filter(|(age, _)| *age >= AGE_UNIT).map(|(_, pages)| pages);
        assert_eq!(old.sum::<u64>(), ages[1..].iter().sum::<u64>(), "the two ways to ask agree");
        assert!(self.lender.tell_at.is_some() || self.untold.is_empty(), "a borrower will not be told");
        assert_eq!(self.lender.order.pages(), self.lender.ages[Standing::Spare as usize].pages());
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
        model.apply(Op::Limit(CAPACITY));
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
    assert_eq!(lender.connection_opened(SpaceId(1), "a", Terms::Kept), Ok(()));
    assert_eq!(lender.connection_opened(SpaceId(2), "b", Terms::Kept), Ok(()));
    assert_eq!(lender.connection_opened(SpaceId(3), "c", Terms::Kept), Err(Unwelcome::TooManyBorrowers));
    assert_eq!(
        lender.connection_opened(SpaceId(1), "a", Terms::Kept),
        Ok(()),
        "one that is known may open more"
    );
    let other = lender.connection_opened(SpaceId(1), "a", Terms::Spare);
    assert_eq!(other, Err(Unwelcome::OtherTerms), "what was an only copy does not become a spare one");
}

#[test]
fn a_full_store_still_replaces() {
    let mut lender = Lender::new(BasePages(1), GRACE, 1);
    let space = SpaceId(7);
    lender.connection_opened(space, "a", Terms::Kept).unwrap();
    for version in 0..3 {
        let run = lender.reserve(Instant(0), space, &[5]).expect("the old version makes room");
        lender.commit(Instant(0), space, 5, Version(version), ContentHash(1), run.first);
    }
    assert_eq!(lender.reserve(Instant(0), space, &[6]), None);
}

#[test]
#[should_panic(expected = "is not out")]
fn a_ticket_of_another_lender_is_caught() {
    let mut a = Lender::new(BasePages(1), GRACE, 1);
    let ticket = a.read_begin();
    Lender::new(BasePages(1), GRACE, 1).read_end(ticket);
}
