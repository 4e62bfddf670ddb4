//! Giving memory back, case by case.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

const SPACE: SpaceId = SpaceId(7);

/// A lender whose only borrower has put `pages` pages, `each_unit` of them in each unit of age.
fn lender(terms: Terms, pages: u64, each_unit: u64) -> (Lender, Instant) {
    let mut lender = Lender::new(BasePages(pages), Duration::from_millis(10), 2);
    lender.connection_opened(SPACE, "test", terms).unwrap();
    let mut now = Instant(0);
    for index in 0..pages {
        now = Instant(index / each_unit * AGE_UNIT.0);
        put(&mut lender, now, index).expect("there is room");
    }
    (lender, now)
}

fn put(lender: &mut Lender, now: Instant, index: u64) -> Option<Slot> {
    let slot = lender.reserve(now, SPACE, &[index])?.first;
    lender.commit(now, SPACE, index, Version(1), ContentHash(index.into()), slot);
    Some(slot)
}

fn there(lender: &mut Lender, now: Instant, pages: u64) -> Vec<u64> {
    let mut there = Vec::new();
    lender.get(now, SPACE, (0..pages).map(|index| (index, Version(1))), |index, _, hit| {
        there.extend(hit.here().map(|_| index));
    });
    there
}

/// Does all that is due now. Answers the steps, the runs that were released, and what was recalled.
fn work(lender: &mut Lender, now: Instant) -> (usize, Vec<u32>, Vec<u64>) {
    let (mut steps, mut runs, mut recalled) = (0, Vec::new(), Vec::new());
    loop {
        let due = lender.poll_timeout().is_some_and(|at| at <= now);
        if due {
            lender.handle_timeout(now);
            steps += 1;
            assert!(steps < 10_000, "it is never done");
        }
        match lender.poll_effect() {
            Some(Effect::Release(run)) => {
                runs.push(run.pages);
                lender.released(run);
            }
            Some(Effect::Recall(recall)) => recalled.extend(recall.pages.iter().map(|page| page.0)),
            Some(other) => panic!("nothing is replaced or written here: {other:?}"),
            None if due => {}
            None => return (steps, runs, recalled),
        }
    }
}

#[test]
fn the_oldest_go_first_and_what_was_fetched_is_young() {
    let (mut lender, now) = lender(Terms::Spare, 40, 10);
    there(&mut lender, now, 5);
    lender.handle_limit(BasePages(20));
    assert_eq!(lender.free(), Bytes(0));
    assert_eq!(put(&mut lender, now, 99), None, "above the limit nothing is taken");
    work(&mut lender, now);
    // Five of the first ten were fetched just now; the other five and the next ten are 15 of the 20 that must go.
    let left = there(&mut lender, now, 40);
    assert_eq!(left.len(), 20);
    assert_eq!(left[..5], [0, 1, 2, 3, 4]);
    assert!(left[5..].iter().all(|index| *index >= 20), "{left:?}");
    assert_eq!((lender.stats().dropped, lender.stats().kept), (20, 0));
    assert!(put(&mut lender, now, 99).is_some(), "at the limit another gives way");
    assert_eq!((lender.stats().pages, lender.take_gone(SPACE).len()), (20, 1));
}

#[test]
fn steps_are_bounded_and_memory_goes_in_long_runs() {
    let pages = 100 * EXTENT_BASE_PAGES as u64;
    let (mut lender, now) = lender(Terms::Spare, pages, 1000);
    lender.handle_limit(BasePages(0));
    let (mut steps, mut before) = (0, lender.stats().pages);
    while before > 0 {
        lender.handle_timeout(now);
        let pages = lender.stats().pages;
        assert!(before - pages <= (REAP_EXTENTS * EXTENT_BASE_PAGES) as u64);
        assert!(pages == 0 || lender.poll_effect().is_none(), "runs are still growing");
        before = pages;
        steps += 1;
        assert!(steps < 100, "it makes no progress");
    }
    let (_, runs, _) = work(&mut lender, now);
    assert_eq!(runs.iter().map(|run| u64::from(*run)).sum::<u64>(), pages);
    let (_, full) = runs.split_last().expect("there were some");
    assert!(full.iter().all(|run| *run == 3), "three at a time is the most in tests");
    assert_eq!(lender.poll_timeout(), None);
}

/// Half-way its borrower drops as much as was still to go, or the machine has room again: no step was due any more, and what had gone kept its memory.
#[test]
fn memory_goes_though_what_was_still_above_the_limit_goes_otherwise() {
    let pages = 100 * EXTENT_BASE_PAGES as u64;
    let half_way = || {
        let (mut lender, now) = lender(Terms::Spare, pages, 1000);
        lender.handle_limit(BasePages(pages / 2));
        lender.handle_timeout(now);
        lender.handle_timeout(now);
        let left = lender.stats().pages;
        assert!(left < pages && left > pages / 2, "{left}");
        assert!(lender.poll_effect().is_none(), "runs are still growing");
        (lender, now)
    };
    let (mut dropped, now) = half_way();
    let mut index = pages;
    while dropped.stats().pages > pages / 2 {
        index -= 1;
        dropped.drop_page(SPACE, index, Version(1));
    }
    let (mut raised, _) = half_way();
    raised.handle_limit(BasePages(raised.stats().pages));
    for mut lender in [dropped, raised] {
        assert!(lender.has_effect());
        let (_, runs, _) = work(&mut lender, now);
        let released: u64 = runs.iter().map(|run| u64::from(*run)).sum();
        assert_eq!(released, pages - lender.stats().pages, "all that is above the limit");
    }
}

#[test]
fn only_copies_are_recalled_and_never_dropped() {
    let (mut lender, mut now) = lender(Terms::Recallable, 40, 10);
    lender.handle_limit(BasePages(25));
    let (_, _, asked) = work(&mut lender, now);
    assert_eq!(asked, (0..8).collect::<Vec<u64>>(), "the oldest, as many as may be under way at a time");
    for index in asked {
        assert!(lender.drop_page(SPACE, index, Version(1)));
    }
    let (_, _, asked) = work(&mut lender, now);
    assert_eq!(asked, (8..15).collect::<Vec<u64>>(), "then as many as are above the limit");
    // Nobody takes them home: the first time that passes still saw some go.
    for _ in 0..2 {
        assert_eq!(lender.stats().kept, 0);
        now = now + RECALL_TIME;
        assert_eq!(work(&mut lender, now).2, []);
    }
    assert_eq!((lender.stats().pages, lender.stats().kept, lender.stats().recalled), (32, 7, 8));
    let again = lender.poll_timeout().expect("they are asked for again");
    assert!(again > now);
    let (_, _, asked) = work(&mut lender, again);
    assert_eq!(asked, (8..15).collect::<Vec<u64>>());
    lender.drop_page(SPACE, 8, Version(1));
    assert_eq!(lender.stats().kept, 0, "there is hope");
    // The need is over before they have come home: what comes later is not waited for, nor missed.
    lender.handle_limit(BasePages(40));
    work(&mut lender, again);
    assert_eq!(lender.poll_timeout(), None);
    lender.drop_page(SPACE, 9, Version(1));
    lender.handle_limit(BasePages(29));
    assert_eq!(work(&mut lender, again).2, [10], "a new need is a new round");
}

#[test]
fn slow_progress_is_progress() {
    let (mut lender, mut now) = lender(Terms::Recallable, 12, 12);
    lender.handle_limit(BasePages(4));
    for index in work(&mut lender, now).2 {
        now = now + Duration(RECALL_TIME.0 - 1);
        assert!(work(&mut lender, now).2.is_empty() && lender.stats().kept == 0);
        lender.drop_page(SPACE, index, Version(1));
    }
    assert_eq!(lender.stats().pages, 4);
}

#[test]
fn what_cannot_be_asked_for_stays_and_is_told() {
    let (mut kept, now) = lender(Terms::Kept, 10, 10);
    kept.handle_limit(BasePages(4));
    assert_eq!(work(&mut kept, now), (0, vec![], vec![]));
    assert_eq!((kept.stats().pages, kept.stats().kept), (10, 6));

    // Inside its grace a borrower cannot be asked; when it comes back it is.
    let (mut away, now) = lender(Terms::Recallable, 10, 10);
    away.connection_closed(now, SPACE);
    away.handle_limit(BasePages(4));
    assert_eq!(work(&mut away, now), (0, vec![], vec![]));
    away.connection_opened(SPACE, "test", Terms::Recallable).unwrap();
    assert_eq!(work(&mut away, now).2.len(), 6);
}

/// The oldest pages are those of somebody who is away: others are asked for theirs.
#[test]
fn those_who_are_there_are_asked_when_the_oldest_are_of_those_who_are_not() {
    let (mut lender, now) = lender(Terms::Recallable, 10, 5);
    let other = SpaceId(8);
    lender.handle_limit(BasePages(10));
    for index in 0..5 {
        lender.drop_page(SPACE, index, Version(1));
    }
    lender.connection_opened(other, "other", Terms::Recallable).unwrap();
    for index in 0..5 {
        let slot = lender.reserve(now, other, &[index]).expect("there is room").first;
        lender.commit(now + AGE_UNIT, other, index, Version(1), ContentHash(1), slot);
    }
    lender.connection_closed(now, SPACE);
    lender.handle_limit(BasePages(7));
    assert_eq!(work(&mut lender, now).2, [0, 1, 2]);
}

#[test]
fn spare_pages_of_a_borrower_that_is_away_go_and_it_is_forgotten() {
    let (mut lender, now) = lender(Terms::Spare, 10, 10);
    lender.connection_closed(now, SPACE);
    lender.handle_limit(BasePages(0));
    work(&mut lender, now);
    assert_eq!((lender.stats().borrowers, lender.stats().pages), (0, 0));
    lender.connection_opened(SPACE, "test", Terms::Spare).unwrap();
}
