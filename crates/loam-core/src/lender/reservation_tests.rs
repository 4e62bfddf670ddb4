//! Reservations, case by case, and against a model that knows of each borrower what it has stored and what it was promised.

use super::*;
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

#[derive(Clone, Debug)]
enum Op {
    Reserve { space: u64, pages: u64 },
    Put { space: u64, first: u64, pages: u64 },
    Abort { space: u64, index: u64 },
    Drop { space: u64, index: u64 },
    DropAll(u64),
    Close(u64),
    Open(u64),
    Pass { ms: u64 },
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
}

struct Model {
    lender: Lender,
    now: Instant,
    of: Vec<Of>,
}

impl Model {
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
            assert!(run.is_some() || !promised, "{space} has {} of {}", of.pinned(), of.reserved);
            let Some(run) = run else { return };
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
        let of = &mut self.of[space as usize];
        assert!(most >= of.reserved, "what it has it may have");
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
            Op::Limit(pages) => self.lender.handle_limit(BasePages(pages)),
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
        let mut model = Model { lender: lender(), now: Instant(0), of };
        for op in ops {
            model.step(&op);
            model.look();
            model.audit();
        }
    }
}
