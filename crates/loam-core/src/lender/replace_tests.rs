//! A full lender, case by case.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

const A: SpaceId = SpaceId(1);
const B: SpaceId = SpaceId(2);
const ONLY: SpaceId = SpaceId(3);
const GRACE: Duration = Duration::from_millis(10);

fn lender(pages: u64) -> Lender {
    let mut lender = Lender::new(BasePages(pages), GRACE, 3);
    for (space, terms) in [(A, Terms::Spare), (B, Terms::Spare), (ONLY, Terms::Recallable)] {
        lender.connection_opened(space, "test", terms).unwrap();
    }
    lender
}

fn put(lender: &mut Lender, now: Instant, space: SpaceId, index: u64) -> bool {
    let Some(run) = lender.reserve(now, space, &[index]) else { return false };
    lender.commit(now, space, index, Version(1), ContentHash(index.into()), run.first);
    true
}

fn get(lender: &mut Lender, now: Instant, space: SpaceId, pages: &[u64]) -> Vec<u64> {
    let mut there = Vec::new();
    lender.get(now, space, pages.iter().map(|&index| (index, Version(1))), |index, _, hit| {
        there.extend(hit.here().map(|_| index));
    });
    there
}

#[test]
fn the_oldest_spare_page_gives_way_whoever_it_is_of() {
    let mut lender = lender(8);
    let now = Instant(0);
    (0..3).for_each(|index| assert!(put(&mut lender, now, A, index)));
    (0..2).for_each(|index| assert!(put(&mut lender, now, ONLY, index)));
    (0..3).for_each(|index| assert!(put(&mut lender, now, B, index)));
    assert_eq!(get(&mut lender, now, A, &[0]), [0], "used: now the youngest");
    assert!(put(&mut lender, now, ONLY, 9));
    assert!(put(&mut lender, now, B, 3));
    assert_eq!(get(&mut lender, now, A, &[0, 1, 2]), [0], "the oldest, though others came and not A");
    assert_eq!(lender.take_gone(A), vec![(1, Version(1)), (2, Version(1))]);
    assert_eq!((lender.take_gone(A), lender.take_gone(B)), (vec![], vec![]), "once");
    assert_eq!(get(&mut lender, now, ONLY, &[0, 1, 9]), [0, 1, 9], "only copies stay");
    assert_eq!((lender.stats().replaced, lender.stats().pages), (2, 8));
}

#[test]
fn only_copies_alone_leave_no_room() {
    let mut lender = lender(2);
    (0..2).for_each(|index| assert!(put(&mut lender, Instant(0), ONLY, index)));
    assert!(!put(&mut lender, Instant(0), A, 0));
    assert!(!put(&mut lender, Instant(0), ONLY, 2));
}

#[test]
fn who_says_nothing_is_told_after_a_while() {
    let mut lender = lender(4);
    (0..4).for_each(|index| assert!(put(&mut lender, Instant(0), A, index)));
    (0..4).for_each(|index| assert!(put(&mut lender, Instant(0), B, index)));
    let due = lender.poll_timeout().expect("somebody must be told");
    assert_eq!(lender.poll_effect(), None, "not at once: each word costs its reader a wake-up");
    lender.handle_timeout(due);
    let Some(Effect::Gone(Gone { space: A, pages })) = lender.poll_effect() else { panic!("A must be told") };
    assert_eq!(pages, (0..4).map(|index| (index, Version(1))).collect::<Vec<_>>());
    assert_eq!((lender.poll_effect(), lender.poll_timeout()), (None, None));
}

#[test]
fn a_read_under_way_keeps_nobody_from_finding_room() {
    let mut lender = lender(2560);
    let now = Instant(0);
    (0..2560).for_each(|index| assert!(put(&mut lender, now, A, index)));
    assert!(put(&mut lender, now, B, 0), "the first replacement makes the stock");
    assert_eq!(lender.free(), Bytes(0), "which is not told as room");
    let read = lender.read_begin();
    (1..11).for_each(|index| assert!(put(&mut lender, now, B, index)));
    assert!(!put(&mut lender, now, B, 11), "what is replaced now may be being read");
    lender.read_end(read);
    assert!(put(&mut lender, now, B, 11));
}

#[test]
fn one_that_walks_round_a_little_more_than_there_is_room_for_finds_most_of_it() {
    let mut lender = lender(400);
    let (mut now, mut found) = (Instant(0), 0);
    for step in 0..20 * 420_u64 {
        now = Instant(now.0 + 1_000_000);
        let index = step % 420;
        let here = get(&mut lender, now, A, &[index]);
        found += u64::from(!here.is_empty() && step >= 10 * 420);
        lender.drop_page(A, index, Version(1));
        assert!(put(&mut lender, now, A, index));
    }
    // By the order of last use it would find none.
    assert!(found > 10 * 420 * 8 / 10, "{found}");
}
