//! Reservations, case by case, and against a model that knows of each borrower what it has stored and what it was promised.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const GRACE: Duration = Duration::from_millis(10);
const CAPACITY: u64 = 24;
const RESERVABLE: u64 = 18;
/// Of each space.
const TERMS: [Terms; 4] = [Terms::Spare, Terms::Recallable, Terms::Kept, Terms::Spare];
const A: SpaceId = SpaceId(0);
const ONLY: SpaceId = SpaceId(1);
const OTHER: SpaceId = SpaceId(3);

fn lender() -> Lender {
    let mut lender =
        Lender::new(BasePages(CAPACITY), GRACE, TERMS.len()).with_reservable(BasePages(RESERVABLE));
    for (space, terms) in (0..).zip(TERMS) {
        lender.connection_opened(SpaceId(space), "test", terms).unwrap();
    }
    lender
}

fn put(lender: &mut Lender, space: SpaceId, index: u64) -> bool {
    let now = Instant(0);
    let Some(run) = lender.reserve(now, space, &[index]) else { return false };
    lender.commit(now, space, index, Version(1), ContentHash(index.into()), run.first);
    true
}

fn there(lender: &mut Lender, space: SpaceId, index: u64) -> bool {
    let mut found = false;
    lender.get(Instant(0), space, core::iter::once((index, Version(1))), |_, _, hit| {
        found = hit.here().is_some();
    });
    found
}

/// Until there is nothing to do at once.
fn settle(lender: &mut Lender, now: Instant) {
    for _ in 0..1000 {
        while let Some(effect) = lender.poll_effect() {
            if let Effect::Release(run) = effect {
                lender.released(run);
            }
        }
        if lender.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        lender.handle_timeout(now);
    }
    panic!("it never comes to rest");
}

#[test]
fn what_is_reserved_is_one_borrowers_alone() {
    let mut lender = lender();
    assert_eq!(lender.reserve_memory(A, BasePages(10)), Ok(()));
    let mut stored = 0;
    while put(&mut lender, ONLY, stored) {
        stored += 1;
    }
    assert_eq!(stored, CAPACITY - 10, "others have the rest, and are refused then");
    assert_eq!((lender.free(), lender.room_of(A)), (Bytes(0), BasePages(10).bytes()));
    for index in 0..10 {
        assert!(put(&mut lender, A, index), "page {index} was promised");
    }
    assert!(!put(&mut lender, A, 10), "no more than was promised");
    assert_eq!(lender.reservation(A), BasePages(10));
}

#[test]
fn spare_copies_make_room_for_a_reservation_and_the_only_copies_do_not() {
    let mut lender = lender();
    (0..10).for_each(|index| assert!(put(&mut lender, ONLY, index)));
    (0..14).for_each(|index| assert!(put(&mut lender, OTHER, index)));
    assert_eq!(lender.reservation_max(Some(A)), BasePages(14));
    assert_eq!(lender.reserve_memory(A, BasePages(15)), Err(TooMuch { most: BasePages(14) }));
    assert_eq!(lender.reserve_memory(A, BasePages(14)), Ok(()));
    // At once: nobody waits until they have left.
    (0..14).for_each(|index| assert!(put(&mut lender, A, index)));
    settle(&mut lender, Instant(0));
    assert_eq!((0..14).filter(|&index| there(&mut lender, OTHER, index)).count(), 0);
    assert_eq!((0..10).filter(|&index| there(&mut lender, ONLY, index)).count(), 10);
}

#[test]
fn neither_the_machine_nor_a_flood_takes_what_is_pinned() {
    let mut lender = lender();
    lender.reserve_memory(A, BasePages(6)).unwrap();
    (0..8).for_each(|index| assert!(put(&mut lender, A, index)));
    for index in 0..100 {
        put(&mut lender, OTHER, index);
    }
    assert_eq!((0..6).filter(|&index| there(&mut lender, A, index)).count(), 6);
    lender.handle_limit(BasePages(0));
    settle(&mut lender, Instant(0));
    assert_eq!((0..6).filter(|&index| there(&mut lender, A, index)).count(), 6);
    assert_eq!(lender.stats().pages, 6, "everything else has gone");
    assert_eq!(lender.stats().limit, BasePages(6).bytes(), "what was promised may be stored");
    assert!(lender.drop_page(A, 3, Version(1)) && put(&mut lender, A, 50), "in place of one of its own");
    assert!(!put(&mut lender, A, 51) && !put(&mut lender, OTHER, 0));
}

#[test]
fn it_ends_with_the_borrower() {
    let mut lender = lender();
    lender.reserve_memory(A, BasePages(18)).unwrap();
    assert!(put(&mut lender, A, 1));
    assert_eq!(lender.reservation_max(Some(ONLY)), BasePages(0));
    lender.connection_closed(Instant(0), A);
    assert_eq!(lender.reservation_max(Some(ONLY)), BasePages(0), "it may come back");
    lender.connection_opened(A, "test", Terms::Spare).unwrap();
    assert_eq!(lender.reservation(A), BasePages(18));
    lender.connection_closed(Instant(0), A);
    settle(&mut lender, Instant(0) + GRACE);
    assert_eq!(lender.reservation_max(Some(ONLY)), BasePages(18), "it is gone");
    lender.reserve_memory(ONLY, BasePages(18)).unwrap();
    lender.drop_all(ONLY);
    assert_eq!(
        (lender.reserved(), lender.reservation(ONLY)),
        (BasePages(0), BasePages(0)),
        "it said goodbye"
    );
    // One that has reserved and stored nothing.
    lender.reserve_memory(OTHER, BasePages(5)).unwrap();
    lender.connection_closed(Instant(0), OTHER);
    assert_eq!(lender.reserved(), BasePages(5));
    settle(&mut lender, Instant(0) + GRACE);
    assert_eq!((lender.reserved(), lender.stats().borrowers), (BasePages(0), 2));
}

#[test]
fn lowering_frees_what_is_unused_and_leaves_what_is_pinned() {
    let mut lender = lender();
    lender.reserve_memory(A, BasePages(18)).unwrap();
    (0..4).for_each(|index| assert!(put(&mut lender, A, index)));
    lender.reserve_memory(A, BasePages(1)).unwrap();
    assert_eq!((lender.reservation(A), lender.reserved()), (BasePages(1), BasePages(4)));
    assert_eq!(lender.reservation_max(Some(ONLY)), BasePages(14));
    lender.handle_limit(BasePages(0));
    settle(&mut lender, Instant(0));
    assert_eq!((0..4).filter(|&index| there(&mut lender, A, index)).count(), 4);
    (0..4).for_each(|index| assert!(lender.drop_page(A, index, Version(1))));
    assert_eq!(lender.reserved(), BasePages(1));
}

#[test]
fn without_leave_nothing_is_reserved() {
    let mut lender = Lender::new(BasePages(8), GRACE, 1);
    lender.connection_opened(A, "test", Terms::Spare).unwrap();
    assert_eq!(lender.reserve_memory(A, BasePages(1)), Err(TooMuch { most: BasePages(0) }));
    assert_eq!(lender.reserve_memory(A, BasePages(0)), Ok(()));
}

/// What it is told of room, everything else done.
fn told(lender: &mut Lender) -> Vec<SpaceId> {
    let effects = core::iter::from_fn(|| lender.poll_effect());
    let room = |effect| if let Effect::Room(space) = effect { Some(space) } else { None };
    effects.filter_map(room).collect()
}

#[test]
fn slots_that_reads_keep_back_are_not_made_up_for_with_those_of_others() {
    let mut lender = lender();
    (0..14).for_each(|index| assert!(put(&mut lender, ONLY, index)));
    lender.reserve_memory(A, BasePages(10)).unwrap();
    let ticket = lender.read_begin();
    (0..5).for_each(|index| assert!(lender.drop_page(ONLY, index, Version(1))));
    assert_eq!(lender.free(), Bytes(0));
    assert!(!put(&mut lender, ONLY, 20), "what is free is pledged");
    (0..10).for_each(|index| assert!(put(&mut lender, A, index), "page {index} was promised"));
    // Its own slots are kept back now.
    assert!(lender.drop_page(A, 0, Version(1)) && !put(&mut lender, A, 10));
    assert!(!lender.has_effect() && told(&mut lender).is_empty(), "a read is still under way");
    lender.read_end(ticket);
    assert!(lender.has_effect());
    assert_eq!(told(&mut lender), [A], "once");
    assert!(put(&mut lender, A, 10) && told(&mut lender).is_empty());
}

#[test]
fn one_that_is_refused_and_ends_is_not_told() {
    let mut lender = lender();
    (0..6).for_each(|index| assert!(put(&mut lender, ONLY, index)));
    lender.reserve_memory(A, BasePages(18)).unwrap();
    (0..18).for_each(|index| assert!(put(&mut lender, A, index)));
    let ticket = lender.read_begin();
    assert!(lender.drop_page(A, 0, Version(1)) && !put(&mut lender, A, 20));
    lender.drop_all(A);
    lender.read_end(ticket);
    assert!(told(&mut lender).is_empty());
}

#[test]
fn room_is_given_when_less_is_reserved_and_not_when_it_is_used() {
    let mut lender = lender();
    lender.reserve_memory(A, BasePages(10)).unwrap();
    (0..10).for_each(|index| assert!(put(&mut lender, A, index)));
    assert!(lender.drop_page(A, 0, Version(1)) && !lender.gave_room() && !lender.has_work());
    assert_eq!((0..20).filter(|&index| put(&mut lender, ONLY, index)).count(), 14);
    lender.reserve_memory(A, BasePages(4)).unwrap();
    assert!(lender.gave_room() && lender.has_work());
    lender.told_room();
    assert!(!lender.gave_room());
    // Where there is no room for anybody it is told later.
    lender.handle_limit(BasePages(0));
    lender.drop_all(A);
    assert!(!lender.gave_room());
    settle(&mut lender, Instant(0));
    lender.handle_limit(BasePages(CAPACITY));
    assert!(lender.gave_room());
}

#[test]
fn nobody_looks_for_old_pages_among_those_of_one_who_has_only_pinned_ones() {
    let mut lender = lender();
    lender.reserve_memory(ONLY, BasePages(4)).unwrap();
    (0..4).for_each(|index| assert!(put(&mut lender, ONLY, index)));
    assert!(!lender.borrowers[&ONLY].can_be_asked());
    assert!(put(&mut lender, ONLY, 4) && lender.borrowers[&ONLY].can_be_asked());
}

#[derive(Clone, Debug)]
enum Op {
    ReadBegin,
    ReadEnd(usize),
    /// Memory is given back: what the system does takes its time.
    Release,
    Released(usize),
    Reserve {
        space: u64,
        pages: u64,
    },
    Put {
        space: u64,
        first: u64,
        pages: u64,
    },
    Abort {
        space: u64,
        index: u64,
    },
    Drop {
        space: u64,
        index: u64,
    },
    DropAll(u64),
    Close(u64),
    Open(u64),
    Pass {
        ms: u64,
    },
    Limit(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let space = 0..TERMS.len() as u64;
    let index = prop_oneof![0..20_u64, 250..262_u64];
    let op = prop_oneof![
        3 => (space.clone(), 0..RESERVABLE + 4).prop_map(|(space, pages)| Op::Reserve { space, pages }),
        8 => (space.clone(), index.clone(), 1..7_u64)
            .prop_map(|(space, first, pages)| Op::Put { space, first, pages }),
        1 => (space.clone(), index.clone()).prop_map(|(space, index)| Op::Abort { space, index }),
        4 => (space.clone(), index).prop_map(|(space, index)| Op::Drop { space, index }),
        1 => space.clone().prop_map(Op::DropAll),
        1 => space.clone().prop_map(Op::Close),
        2 => space.prop_map(Op::Open),
        2 => (0..15_u64).prop_map(|ms| Op::Pass { ms }),
        2 => prop_oneof![0..CAPACITY, Just(CAPACITY)].prop_map(Op::Limit),
        2 => Just(Op::ReadBegin),
        2 => (0..4_usize).prop_map(Op::ReadEnd),
        1 => Just(Op::Release),
        1 => (0..4_usize).prop_map(Op::Released),
    ];
    prop::collection::vec(op, 1..120)
}

#[derive(Default)]
struct Of {
    open: bool,
    reserved: u64,
    /// Of each page that may be there: whether it was put within the reservation, and so must be.
    pages: BTreeMap<u64, bool>,
    expires: Option<Instant>,
}

impl Of {
    fn pinned(&self) -> u64 {
        self.pages.values().filter(|pinned| **pinned).count() as u64
    }
    fn kept(&self) -> u64 {
        self.reserved.max(self.pinned())
    }
    /// Stored beside what is reserved.
    fn beside(&self) -> u64 {
        self.pages.len() as u64 - self.pinned()
    }
}

struct Model {
    lender: Lender,
    now: Instant,
    of: Vec<Of>,
    reads: Vec<ReadTicket>,
    releasing: Vec<SlotRun>,
    limit: u64,
}

impl Model {
    /// One was refused what it was promised: only reads and memory that is being given back may keep it, and once they do not it is told.
    fn refused(&mut self, space: SpaceId) {
        assert!(!self.reads.is_empty() || !self.releasing.is_empty(), "{space:?} was promised more");
        for ticket in self.reads.drain(..) {
            self.lender.read_end(ticket);
        }
        for run in self.releasing.drain(..) {
            self.lender.released(run);
        }
        let own = self.lender.own_room(space);
        assert!(self.lender.slots.free_pages_of(own) > 0, "nobody else has taken its slots");
        let mut is_told = false;
        while let Some(effect) = self.lender.poll_effect() {
            match effect {
                Effect::Release(run) => self.lender.released(run),
                Effect::Room(to) => is_told |= to == space,
                _ => {}
            }
        }
        assert!(is_told, "{space:?} would not know");
    }

    /// What has gone by itself is taken off; nothing pinned may have.
    fn look(&mut self) {
        for (space, of) in (0..).zip(&mut self.of).filter(|(_, of)| of.open) {
            let lender = &mut self.lender;
            of.pages.retain(|&index, &mut pinned| {
                let found = there(lender, SpaceId(space), index);
                assert!(found || !pinned, "page {index} of {space} was pinned");
                found
            });
        }
    }

    fn put(&mut self, space: u64, first: u64, pages: u64, aborts: bool) {
        let indexes: Vec<u64> = (first..first + pages).collect();
        let of = &mut self.of[space as usize];
        of.pages.retain(|index, _| !indexes.contains(index));
        let mut done = 0;
        while done < indexes.len() {
            let promised = of.pinned() < of.reserved;
            let run = self.lender.reserve(self.now, SpaceId(space), &indexes[done..]);
            let Some(run) = run else {
                if promised {
                    self.refused(SpaceId(space));
                }
                return;
            };
            for slot in run.slots() {
                if aborts {
                    self.lender.abort(SpaceId(space), slot);
                } else {
                    let (index, hash) = (indexes[done], ContentHash(7));
                    self.lender.commit(self.now, SpaceId(space), index, Version(1), hash, slot);
                    let pinned = of.pinned() < of.reserved;
                    of.pages.insert(index, pinned);
                }
                done += 1;
            }
        }
    }

    fn reserve(&mut self, space: u64, pages: u64) {
        let most = self.lender.reservation_max(Some(SpaceId(space))).0;
        let others: u64 =
            (0..).zip(&self.of).filter(|(other, _)| *other != space).map(|(_, of)| of.kept()).sum();
        let stored: u64 = self.of.iter().map(Of::beside).sum();
        let of = &mut self.of[space as usize];
        assert!(most >= of.reserved, "what it has it may have");
        assert!(most <= of.reserved.max(RESERVABLE - others), "more than may be reserved");
        if self.reads.is_empty() && self.releasing.is_empty() && self.lender.leaving.is_empty() {
            // Spare copies would leave, so it may be more.
            let room = (RESERVABLE - others).min(self.limit.saturating_sub(others + stored));
            assert!(most >= room, "{most} of {room} pages that there are");
        }
        let answer = self.lender.reserve_memory(SpaceId(space), BasePages(pages));
        assert_eq!(answer.is_ok(), pages <= most);
        if answer.is_ok() {
            let raised = pages > of.kept();
            of.reserved = pages;
            assert!(!raised || others + of.kept() <= RESERVABLE, "more than may be reserved");
        }
    }

    fn step(&mut self, op: &Op) {
        let is_open = |this: &Self, space: u64| this.of[space as usize].open;
        match *op {
            Op::Reserve { space, pages } if is_open(self, space) => self.reserve(space, pages),
            Op::Put { space, first, pages } if is_open(self, space) => self.put(space, first, pages, false),
            Op::Abort { space, index } if is_open(self, space) => self.put(space, index, 1, true),
            Op::Drop { space, index } if is_open(self, space) => {
                self.lender.drop_page(SpaceId(space), index, Version(1));
                self.of[space as usize].pages.remove(&index);
            }
            Op::DropAll(space) if is_open(self, space) => {
                self.lender.drop_all(SpaceId(space));
                self.of[space as usize] = Of { open: true, ..Of::default() };
            }
            Op::Close(space) if is_open(self, space) => {
                self.look();
                self.lender.connection_closed(self.now, SpaceId(space));
                let of = &mut self.of[space as usize];
                (of.open, of.expires) = (false, Some(self.now + GRACE));
            }
            Op::Open(space) if !is_open(self, space) => {
                let terms = TERMS[space as usize];
                self.lender.connection_opened(SpaceId(space), "test", terms).unwrap();
                let of = &mut self.of[space as usize];
                (of.open, of.expires) = (true, None);
            }
            Op::Pass { ms } => {
                self.now = self.now + Duration::from_millis(ms);
                settle(&mut self.lender, self.now);
                for of in self.of.iter_mut().filter(|of| of.expires.is_some_and(|at| at <= self.now)) {
                    *of = Of::default();
                }
            }
            Op::Limit(pages) => {
                self.limit = pages;
                self.lender.handle_limit(BasePages(pages));
            }
            Op::ReadBegin if self.reads.len() < 4 => self.reads.push(self.lender.read_begin()),
            Op::ReadEnd(n) if n < self.reads.len() => self.lender.read_end(self.reads.remove(n)),
            Op::Release => {
                if let Some(Effect::Release(run)) = self.lender.poll_effect() {
                    self.releasing.push(run);
                }
            }
            Op::Released(n) if n < self.releasing.len() => self.lender.released(self.releasing.remove(n)),
            _ => {}
        }
    }

    /// The lender's own sums, and the model's.
    fn audit(&self) {
        let shares = || self.lender.borrowers.values().map(|borrower| borrower.share);
        assert_eq!(shares().map(Share::unused).sum::<u64>(), self.lender.slots.pledged_pages());
        let kept: u64 = self.of.iter().map(Of::kept).sum();
        assert_eq!(self.lender.reserved(), BasePages(kept));
        assert!(kept <= RESERVABLE, "more is promised than may be");
        self.lender.slots.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, ..ProptestConfig::default() })]
    #[test]
    fn what_is_promised_is_kept(ops in ops()) {
        let of = (0..TERMS.len()).map(|_| Of { open: true, ..Of::default() }).collect();
        let mut model = Model {
            lender: lender(),
            now: Instant(0),
            of,
            reads: Vec::new(),
            releasing: Vec::new(),
            limit: CAPACITY,
        };
        for op in ops {
            model.step(&op);
            model.look();
            model.audit();
        }
    }
}
