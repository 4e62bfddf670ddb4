//! The write cache, case by case.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

const A: SpaceId = SpaceId(1);
const GRACE: Duration = Duration::from_millis(10);
const NOW: Instant = Instant(0);

fn lender(pages: u64, channel: u64, disk: u64) -> Lender {
    lender_that_lingers(Duration::ZERO, pages, channel, disk)
}

fn lender_that_lingers(linger: Duration, pages: u64, channel: u64, disk: u64) -> Lender {
    let store = StoreConfig {
        capacity: BasePages(disk),
        channel: BasePages(channel),
        write_pages_max: 32,
        under_way_max: BasePages(64),
        linger,
    };
    let mut lender = Lender::new(BasePages(pages), GRACE, 2).with_store(NOW, store, []);
    lender.connection_opened(A, "test", Terms::Staging).unwrap();
    lender
}

fn stage(lender: &mut Lender, index: u64, version: u32) -> bool {
    let Some(run) = lender.reserve_as(NOW, A, &[index], PutClass::Staged) else { return false };
    lender.commit_as(NOW, A, put(1, index, version, PutClass::Staged), run.first)
}

fn found(lender: &mut Lender, index: u64, version: u32) -> Found {
    let mut answer = Found::Missing;
    lender.get(NOW, A, core::iter::once((index, Version(version))), |_, _, found| answer = found);
    answer
}

/// All writes that may be under way now, and what is to be said.
fn poll(lender: &mut Lender) -> (Vec<Drain>, Vec<Effect>) {
    let (mut drains, mut others) = (Vec::new(), Vec::new());
    while let Some(effect) = lender.poll_disk_effect() {
        match effect {
            DiskEffect::Drain(drain) => drains.push(drain),
            other => panic!("{other:?} is not expected here"),
        }
    }
    while let Some(effect) = lender.poll_effect() {
        match effect {
            Effect::Release(run) => lender.released(run),
            Effect::Stored(stored) => {
                lender.told_stored(stored.space);
                others.push(Effect::Stored(stored));
            }
            other => others.push(other),
        }
    }
    (drains, others)
}

fn forget(pages: &[(u64, u32)]) -> Option<DiskEffect> {
    let pages = pages.iter().map(|&(index, version)| (index, Version(version))).collect();
    Some(DiskEffect::Forget(Forget { space: A, pages }))
}

#[test]
fn a_page_lingers_before_it_is_written_and_what_is_put_anew_meanwhile_is_written_once() {
    const LINGER: Duration = Duration::from_millis(1_000);
    let mut lender = lender_that_lingers(LINGER, 100, 100, 100);
    (0..8).for_each(|index| assert!(stage(&mut lender, index, 1)));
    let mut due = Vec::new();
    for _ in 0..2 {
        // (They are put anew in each interval but the last.)
        (2..4).for_each(|index| assert!(stage(&mut lender, index, 2 + due.len() as u32)));
        assert!(!lender.has_disk_effect(), "nothing is written yet");
        assert_eq!(lender.poll_disk_effect(), None);
        due.push(lender.poll_timeout().expect("it goes on by itself"));
        lender.handle_timeout(*due.last().unwrap());
    }
    assert_eq!(due, [NOW + LINGER, NOW + LINGER + LINGER]);
    assert!(lender.has_disk_effect());
    let (drains, _) = poll(&mut lender);
    let written: Vec<u64> = drains.iter().flat_map(indexes).collect();
    assert_eq!(written, [0, 1, 4, 5, 6, 7], "what was put anew lingers for another interval");
    lender.handle_timeout(lender.poll_timeout().expect("there is more"));
    let (last, _) = poll(&mut lender);
    assert_eq!(last.iter().map(indexes).collect::<Vec<_>>(), [[2, 3]]);
    assert_eq!(
        lender.poll_timeout(),
        Some(NOW + LINGER + LINGER + LINGER + LINGER),
        "it is not known yet that none waits"
    );
    lender.handle_timeout(NOW + LINGER + LINGER + LINGER + LINGER);
    assert_eq!(lender.poll_timeout(), None, "an idle lender sleeps");
}

#[test]
fn nothing_lingers_in_a_channel_that_is_half_full_nor_when_room_is_short() {
    let mut lender = lender_that_lingers(Duration::from_millis(1_000), 100, 16, 100);
    (0..7).for_each(|index| assert!(stage(&mut lender, index, 1)));
    assert!(!lender.has_disk_effect());
    assert!(stage(&mut lender, 7, 1));
    let (drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[0, 1, 2, 3, 4, 5, 6, 7]]);

    let mut lender = lender_that_lingers(Duration::from_millis(1_000), 8, 100, 100);
    (0..8).for_each(|index| assert!(stage(&mut lender, index, 1)));
    assert!(!lender.has_disk_effect());
    assert!(
        lender.reserve_as(NOW, A, &[8], PutClass::Mirror).is_none(),
        "there is no room for a mirror either"
    );
    let (drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[0, 1, 2, 3, 4, 5, 6, 7]]);
}

fn indexes(drain: &Drain) -> Vec<u64> {
    drain.pages.iter().map(|page| page.index).collect()
}

fn stored(pages: &[(u64, u32)]) -> Effect {
    let pages = pages.iter().map(|&(index, version)| (index, Version(version))).collect();
    Effect::Stored(Stored { space: A, pages })
}

#[test]
fn what_is_drained_is_told_and_may_give_way_and_is_read_from_the_disk() {
    let mut lender = lender(4, 4, 100);
    assert!((0..4).all(|index| stage(&mut lender, index, 1)));
    assert!(!stage(&mut lender, 9, 1), "nothing may give way yet");
    let (mut drains, others) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[0, 1, 2, 3]]);
    assert_eq!(others, [], "nothing is told before it is there");
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    let (_, others) = poll(&mut lender);
    assert_eq!(
        others,
        [stored(&[(0, 1), (1, 1), (2, 1), (3, 1)]), Effect::Room(A)],
        "and who was refused hears of room"
    );
    assert!((9..12).all(|index| stage(&mut lender, index, 1)));
    assert_eq!(lender.take_gone(A), [], "what the disk has is not gone");
    let left: Vec<_> = (0..4).map(|index| found(&mut lender, index, 1)).collect();
    assert_eq!(left.iter().filter(|found| **found == Found::OnDisk).count(), 3);
    assert_eq!(found(&mut lender, 0, 2), Found::Missing);
    let stats = lender.stats();
    assert_eq!((stats.on_disk, stats.ring.drained, stats.ring.writes, stats.ring.waiting), (4, 4, 1, 3));
}

/// Section 3.2: "This message tells the remote NWCache interface that the page does not have to be written to disk".
#[test]
fn a_read_holds_a_page_back_until_room_is_short() {
    let mut lender = lender(8, 8, 100);
    assert!((0..3).all(|index| stage(&mut lender, index * 10, 1)));
    assert!(matches!(found(&mut lender, 10, 1), Found::Here(..)));
    let (drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[0], [20]]);
    drains.into_iter().for_each(|drain| lender.handle_drained(NOW, drain, Drained::Stored));
    poll(&mut lender);
    assert_eq!((lender.stats().ring.held, lender.stats().ring.victim_hits), (1, 1));
    // The machine wants memory back: what the disk has goes first, then what is held is written.
    lender.handle_limit(BasePages(0));
    lender.handle_timeout(NOW);
    lender.handle_timeout(NOW);
    let (mut drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[10]]);
    assert_eq!((lender.stats().pages, lender.stats().kept), (1, 0));
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    lender.handle_timeout(NOW);
    lender.handle_timeout(NOW);
    assert_eq!((lender.stats().pages, lender.stats().on_disk), (0, 3));
    assert!([0, 10, 20].into_iter().all(|index| found(&mut lender, index, 1) == Found::OnDisk));
}

#[test]
fn what_is_held_alone_is_written_when_the_machine_wants_memory() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 3, 1));
    assert!(matches!(found(&mut lender, 3, 1), Found::Here(..)));
    assert_eq!(poll(&mut lender).0, []);
    lender.handle_limit(BasePages(0));
    let mut steps = 0;
    while lender.poll_timeout() == Some(NOW) {
        lender.handle_timeout(NOW);
        steps += 1;
        assert!(steps < 10, "it is never done");
    }
    assert_eq!(poll(&mut lender).0.iter().map(indexes).collect::<Vec<_>>(), [[3]]);
}

#[test]
fn a_new_version_ends_the_old_ones_write() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    assert!(stage(&mut lender, 5, 2));
    assert_eq!(poll(&mut lender), (vec![], vec![]), "not while the old one is under way");
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert_eq!(lender.poll_disk_effect(), forget(&[(5, 1)]), "the old one goes before the new one comes");
    let (mut drains, others) = poll(&mut lender);
    assert_eq!((drains[0].pages[0].version, others), (Version(2), vec![]));
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert_eq!(poll(&mut lender).1, [stored(&[(5, 2)])]);
    assert!(lender.drop_page(A, 5, Version(2)));
    assert_eq!((lender.poll_disk_effect(), lender.stats().on_disk), (forget(&[(5, 2)]), 0));
}

#[test]
fn a_failed_write_leaves_mirrors_and_a_pause() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    lender.handle_drained(NOW, drains.remove(0), Drained::Failed);
    assert!(stage(&mut lender, 6, 1), "the ring takes more, as long as it has room");
    assert_eq!(lender.poll_disk_effect(), forget(&[(5, 1)]));
    assert_eq!(poll(&mut lender), (vec![], vec![]));
    assert!(matches!(found(&mut lender, 5, 1), Found::Here(..)));
    // Both are recalled if their memory is wanted now: no disk will have them soon.
    lender.handle_limit(BasePages(0));
    (0..4).for_each(|_| lender.handle_timeout(NOW));
    let (_, others) = poll(&mut lender);
    assert!(
        matches!(&others[..], [Effect::Recall(recall)] if recall.pages == [(5, Version(1))]),
        "{others:?}"
    );
    lender.handle_limit(BasePages(8));
    let later = lender.poll_timeout().expect("it goes on by itself");
    lender.handle_timeout(later);
    let (drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[6]], "the mirror stays one");
}

#[test]
fn a_full_channel_refuses_and_tells_of_room() {
    let mut lender = lender(64, 16, 100);
    assert!((0..16).all(|index| stage(&mut lender, index * 2, 1)));
    assert!(!stage(&mut lender, 90, 1));
    let run = lender.reserve_as(NOW, A, &[91], PutClass::Mirror).expect("a mirror needs no room there");
    assert!(lender.commit_as(NOW, A, put(1, 91, 1, PutClass::Mirror), run.first));
    assert_eq!(lender.stats().ring.refused, 1);
    let (drains, others) = poll(&mut lender);
    assert_eq!((drains.len(), others), (16, vec![]), "under way they are still in the channel");
    let mut drains = drains.into_iter();
    lender.handle_drained(NOW, drains.next().expect("sixteen"), Drained::Stored);
    assert!(!lender.poll_effect().is_some_and(|effect| effect == Effect::Room(A)), "an eighth must be free");
    lender.handle_drained(NOW, drains.next().expect("sixteen"), Drained::Stored);
    assert_eq!(poll(&mut lender).1, [stored(&[(2, 1)]), Effect::Room(A)]);
    assert_eq!(poll(&mut lender).1, [], "once");
}

#[test]
fn a_spare_page_gives_way_and_is_told() {
    let mut lender = lender(2, 2, 100);
    for index in 0..2 {
        let run = lender.reserve_as(NOW, A, &[index], PutClass::Mirror).expect("there is room");
        assert!(lender.commit_as(NOW, A, put(1, index, 1, PutClass::Mirror), run.first));
    }
    assert!(!stage(&mut lender, 7, 1), "mirrors stay");
    assert!(lender.spare_page(A, 1, Version(1)));
    assert!(!lender.spare_page(A, 0, Version(2)) && !lender.spare_page(A, 9, Version(1)), "passed over");
    assert!(stage(&mut lender, 7, 1));
    assert_eq!(lender.take_gone(A), [(1, Version(1))]);
    assert!(lender.spare_page(A, 7, Version(1)), "a staged one needs no disk then");
    assert_eq!((poll(&mut lender).0, lender.stats().ring.cancelled), (vec![], 1));
}

#[test]
fn a_full_disk_takes_no_more() {
    let mut lender = lender(16, 16, 3);
    assert!((0..5).all(|index| stage(&mut lender, index, 1)));
    let (mut drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[0, 1, 2]]);
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert_eq!(poll(&mut lender).0, []);
    assert!(lender.drop_page(A, 1, Version(1)));
    assert_eq!(lender.poll_disk_effect(), forget(&[(1, 1)]));
    let (drains, _) = poll(&mut lender);
    assert_eq!(drains.iter().map(indexes).collect::<Vec<_>>(), [[3]]);
}

#[test]
fn a_borrower_with_its_share_of_the_disk_stops_nobody() {
    let mut lender = lender(16, 16, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    lender.handle_drained(NOW, drains.remove(0), Drained::NoRoom);
    assert_eq!(lender.poll_disk_effect(), forget(&[(5, 1)]));
    assert!(stage(&mut lender, 7, 1));
    assert_eq!(poll(&mut lender).0.iter().map(indexes).collect::<Vec<_>>(), [[7]], "the next one is tried");
}

#[test]
fn what_the_disk_cannot_read_is_there_no_longer() {
    let mut lender = lender(4, 4, 100);
    assert!((0..4).all(|index| stage(&mut lender, index, 1)));
    let (mut drains, _) = poll(&mut lender);
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert!((4..7).all(|index| stage(&mut lender, index, 1)));
    let memory = (0..4).find(|&index| found(&mut lender, index, 1).here().is_some()).expect("one is left");
    let lost = (0..4).find(|&index| index != memory).expect("three are not");
    poll(&mut lender);
    for (index, after) in [(lost, false), (memory, true)] {
        lender.handle_disk_lost(A, index, Version(2));
        assert_ne!(found(&mut lender, index, 1), Found::Missing, "another version");
        lender.handle_disk_lost(A, index, Version(1));
        assert_eq!(lender.poll_disk_effect(), forget(&[(index, 1)]));
        assert_eq!(found(&mut lender, index, 1).here().is_some(), after);
    }
    assert_eq!(lender.stats().on_disk, 2);
    assert!(!stage(&mut lender, 9, 1), "an only copy does not give way");
}

#[test]
fn a_store_is_found_again_by_those_who_come_back() {
    let store = StoreConfig {
        capacity: BasePages(10),
        channel: BasePages(8),
        write_pages_max: 4,
        under_way_max: BasePages(8),
        linger: Duration::ZERO,
    };
    let recovered = [(A, 3, Version(1)), (A, 3, Version(4)), (A, 3, Version(2)), (SpaceId(9), 3, Version(1))];
    let mut lender = Lender::new(BasePages(8), GRACE, 2).with_store(NOW, store, recovered);
    assert_eq!(lender.poll_disk_effect(), forget(&[(3, 1), (3, 2)]), "the newest version counts");
    assert_eq!((lender.stats().borrowers, lender.stats().on_disk), (2, 2));
    lender.connection_opened(A, "back", Terms::Staging).unwrap();
    assert_eq!(poll(&mut lender).1, [stored(&[(3, 4)])]);
    assert_eq!(found(&mut lender, 3, 4), Found::OnDisk);
    // The other does not come back.
    lender.handle_timeout(NOW + GRACE);
    assert_eq!(lender.poll_disk_effect(), Some(DiskEffect::ForgetSpace(SpaceId(9))));
    assert_eq!(lender.stats().on_disk, 1);
}

/// Each borrower that has gone left a place in the disk's table of spaces, and after 4,092 of them the disk took no new one.
#[test]
fn the_disk_forgets_who_has_gone_though_its_pages_went_one_by_one() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert!(lender.drop_page(A, 5, Version(1)));
    assert_eq!(lender.poll_disk_effect(), forget(&[(5, 1)]));
    lender.connection_closed(NOW, A);
    assert_eq!(lender.stats().borrowers, 0);
    assert_eq!(lender.poll_disk_effect(), Some(DiskEffect::ForgetSpace(A)));
    assert_eq!(lender.poll_disk_effect(), None);
}

#[test]
fn the_disk_forgets_who_says_bye_while_all_that_it_has_is_under_way() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    lender.drop_all(A);
    assert_eq!(lender.poll_disk_effect(), Some(DiskEffect::ForgetSpace(A)));
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert_eq!(lender.poll_disk_effect(), forget(&[(5, 1)]));
    // One that has nothing there is nothing to the disk.
    lender.drop_all(A);
    assert_eq!(lender.poll_disk_effect(), None);
}

#[test]
fn the_disk_forgets_whole_spaces_that_a_start_has_no_room_for() {
    let store = StoreConfig {
        capacity: BasePages(3),
        channel: BasePages(8),
        write_pages_max: 4,
        under_way_max: BasePages(8),
        linger: Duration::ZERO,
    };
    let page = |space, index| (SpaceId(space), index, Version(1));
    let start = |borrowers_max, recovered: &[(SpaceId, u64, Version)]| {
        let lender = Lender::new(BasePages(8), GRACE, borrowers_max);
        let mut lender = lender.with_store(NOW, store, recovered.iter().copied());
        core::iter::from_fn(move || lender.poll_disk_effect()).collect::<Vec<_>>()
    };
    let too_many = start(1, &[page(1, 0), page(2, 0), page(2, 1), page(3, 0)]);
    assert_eq!(too_many, [DiskEffect::ForgetSpace(SpaceId(2)), DiskEffect::ForgetSpace(SpaceId(3))]);
    let too_much = start(2, &[page(1, 0), page(1, 1), page(1, 2), page(1, 3), page(2, 0)]);
    let beyond = Forget { space: A, pages: vec![(3, Version(1))] };
    assert_eq!(too_much, [DiskEffect::Forget(beyond), DiskEffect::ForgetSpace(SpaceId(2))]);
}

#[test]
fn one_who_comes_back_is_told_as_quickly_as_it_takes_it() {
    let store = StoreConfig {
        capacity: BasePages(100),
        channel: BasePages(8),
        write_pages_max: 4,
        under_way_max: BasePages(8),
        linger: Duration::ZERO,
    };
    // Three pages in each extent.
    let index = |n: u64| n / 3 * EXTENT_BASE_PAGES as u64 + n % 3;
    let recovered = (0..60).map(|n| (A, index(n), Version(1)));
    let mut lender = Lender::new(BasePages(8), GRACE, 2).with_store(NOW, store, recovered);
    lender.connection_opened(A, "back", Terms::Staging).unwrap();
    let mut told = Vec::new();
    while told.len() < 60 {
        let mut at_once = 0;
        while let Some(effect) = lender.poll_effect() {
            let Effect::Stored(stored) = effect else { panic!("{effect:?}") };
            at_once += stored.pages.len();
            told.extend(stored.pages.iter().map(|page| page.0));
        }
        assert!((1..STORED_PAGES_MAX + 3).contains(&at_once), "{at_once} pages are in nobody's hands");
        assert!(!lender.has_effect(), "it waits until that has been taken");
        lender.told_stored(A);
    }
    assert_eq!(told, (0..60).map(index).collect::<Vec<_>>());
    assert_eq!(lender.poll_effect(), None);
    assert!(lender.cache.as_ref().is_some_and(|cache| cache.retell.is_empty()));
}

#[test]
fn one_who_comes_back_has_one_connection_and_is_told_again() {
    let mut lender = lender(8, 8, 100);
    assert!(stage(&mut lender, 5, 1));
    let (mut drains, _) = poll(&mut lender);
    lender.handle_drained(NOW, drains.remove(0), Drained::Stored);
    assert_eq!(poll(&mut lender).1, [stored(&[(5, 1)])]);
    lender.connection_opened(A, "beside", Terms::Staging).unwrap();
    assert_eq!(poll(&mut lender).1, []);
    let other = lender.connection_returned(NOW, A, "other", Terms::Spare);
    assert_eq!(other, Err(Unwelcome::OtherTerms));
    lender.connection_returned(NOW, A, "back", Terms::Staging).unwrap();
    assert_eq!(poll(&mut lender).1, [stored(&[(5, 1)])]);
    assert_eq!(lender.borrowers().map(|b| (b.name, b.connections)).collect::<Vec<_>>(), [("back", 1)]);
    lender.connection_closed(NOW, A);
    assert!(lender.poll_timeout().is_some(), "its grace has begun");
}

#[test]
fn without_a_store_staged_is_a_mirror() {
    let mut lender = Lender::new(BasePages(8), GRACE, 2);
    lender.connection_opened(A, "test", Terms::Staging).unwrap();
    assert!(stage(&mut lender, 5, 1));
    assert_eq!(poll(&mut lender), (vec![], vec![]));
    assert!(lender.spare_page(A, 5, Version(1)));
    assert_eq!(lender.stats().ring, RingFigures::default());
}
