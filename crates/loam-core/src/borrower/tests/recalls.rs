//! Lenders whose machines want their memory back, while they have the only copies.

use super::*;

/// A borrower without a disk whose pages are away, and what its lenders have.
fn away_under_none(lenders: usize) -> World {
    let mut w = World::new(16, false, 300, lenders);
    fill(&mut w);
    w
}

fn fill(w: &mut World) {
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.finish();
}

#[test]
fn what_a_lender_wants_back_moves_to_another_and_then_it_may_die() {
    let mut w = away_under_none(2);
    let before = (w.stored_at(0), w.stored_at(1));
    assert!(before.0 > 400 && before.1 > 400, "{before:?}");
    w.recall(0, 0, usize::MAX);
    let fetched = w.pending.iter().filter(|p| matches!(p, Pending::Get { .. })).count();
    assert!(fetched <= 64, "{fetched} pages at a time: faults wait behind them");
    w.finish();
    w.agree();
    // The one page in 31 that it named wrongly stays.
    assert!(w.stored_at(0) <= before.0 / 20 && w.stored_at(1) >= before.1 + before.0 * 19 / 20);
    assert!(w.disk.is_empty());
    w.recall_all(0);
    w.finish();
    assert_eq!(w.stored_at(0), 0, "asked for again, it goes too");
    assert_eq!(w.b.lender(LenderIndex(0)).room, 0, "what has gone makes no room");
    w.step(&Op::LoseLender);
    w.read_all();
}

/// The page is in a buffer at the moment at which its lender wants it back, and it need not travel.
#[test]
fn what_is_in_a_buffer_is_not_fetched() {
    let mut w = away_under_none(2);
    let buffered: Vec<(CopyIndex, Version)> = (0..PAGES)
        .filter_map(|base| w.b.copy_of(SpaceKey(0), base))
        .filter(|c| c.buffer.is_some() && c.at_lender == Some(LenderIndex(0)))
        .map(|c| (c.index, c.version))
        .collect();
    assert!(buffered.len() > 50, "{}", buffered.len());
    w.ask_back(0, buffered.clone());
    assert!(!w.pending.iter().any(|p| matches!(p, Pending::Get { .. })));
    w.finish();
    assert!(buffered.iter().all(|page| !w.lenders[0].as_ref().expect("it is there").contains_key(page)));
    w.agree();
    w.read_all();
}

#[test]
fn pages_move_to_those_who_have_room_in_proportion() {
    for place in ["gms", "n-chance", "random", "round-robin"] {
        let mut w = away_under_none(1);
        w.b.place_pages(lender_choice(place, 5).unwrap());
        w.join_lender(100_000);
        w.join_lender(0);
        w.join_lender(100_000);
        let before = w.stored_at(0);
        w.recall_all(0);
        w.finish();
        w.agree();
        let now: Vec<usize> = (0..4).map(|n| w.stored_at(n)).collect();
        assert!(now[0] == 0 && now[2] == 0, "{place}: {now:?}");
        assert!(now[1] > before / 5 && now[3] > before / 5, "{place}: {now:?}");
        assert!(w.disk.is_empty());
        w.read_all();
    }
}

#[test]
fn what_no_lender_takes_goes_to_the_disk() {
    let mut w = away_under_none(1);
    let before = w.stored_at(0);
    w.recall(0, 0, usize::MAX);
    w.finish();
    w.agree();
    assert!(w.stored_at(0) <= before / 20 && w.disk.len() >= before * 19 / 20);
    w.recall_all(0);
    w.finish();
    w.step(&Op::LoseLender);
    w.read_all();
}

/// The first of these lenders says no though it was believed to have room.
#[test]
fn what_another_refuses_goes_to_the_next_or_to_the_disk() {
    let mut w = away_under_none(1);
    w.join_lender(100_000);
    w.full.insert(1);
    w.recall_all(0);
    w.finish();
    w.agree();
    assert_eq!((w.stored_at(0), w.stored_at(1)), (0, 0));
    w.step(&Op::LoseLender);
    w.step(&Op::LoseLender);
    w.read_all();
}

#[test]
fn what_cannot_be_taken_home_stays_where_it_is() {
    let mut w = away_under_none(1);
    w.writes_fail = true;
    let before = w.stored_at(0);
    w.recall(0, 0, usize::MAX);
    w.finish();
    assert_eq!(w.stored_at(0), before);
    assert_eq!((w.b.stuck(), w.b.recalls_waiting()), (0, 0));
    w.agree();
    w.read_all();
    // Asked for again when there is room on the disk.
    w.writes_fail = false;
    w.recall_all(0);
    w.finish();
    assert_eq!(w.stored_at(0), 0);
    w.read_all();
}

/// Pages that come home from the slot file and are written leave again, and there is still no lender with room.
#[test]
fn the_budget_is_held_while_a_lender_wants_its_memory_back() {
    let mut w = away_under_none(1);
    w.recall_all(0);
    w.finish();
    for round in 1..4 {
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: round * PAGES + base });
            w.complete(base as usize);
            assert!(w.b.frames().0 <= 300, "{} frames", w.b.frames().0);
        }
    }
    w.finish();
    assert_eq!((w.b.stuck(), w.stored_at(0)), (0, 0));
    // There is room again: what leaves goes to the lender.
    w.step(&Op::RoomAgain { lender: 0 });
    fill(&mut w);
    assert!(w.stored_at(0) > 400);
    w.agree();
    w.read_all();
}

#[test]
fn a_lender_that_dies_while_pages_move_to_it_takes_nothing_along() {
    let mut w = away_under_none(3);
    let before = w.stored_at(2);
    w.recall(2, 0, usize::MAX);
    // Some are under way to each of the others.
    for _ in 0..100 {
        w.complete(0);
    }
    w.recall(0, 0, usize::MAX);
    w.recall_all(0);
    w.finish();
    assert_eq!(w.stored_at(0), 0);
    w.step(&Op::LoseLender);
    w.finish();
    w.agree();
    assert!(w.stored_at(2) <= before / 20);
    w.read_all();
}

/// The new lender dies with puts of moving pages unanswered: the old one has them as before.
#[test]
fn a_move_that_its_new_lender_does_not_survive_begins_anew() {
    let mut w = World::new(16, false, 300, 1);
    fill(&mut w);
    let second = w.join_lender(100_000);
    w.recall_all(0);
    while w.b.stores_in_flight < 20 {
        assert!(w.complete(0), "pages are on their way to the second");
    }
    w.lenders[usize::from(second.0)] = None;
    w.pending.retain(
        |p| !matches!(p, Pending::Put { lender, .. } | Pending::Get { lender, .. } if *lender == second),
    );
    let now = w.time();
    // What the second had been given is lost with it; what was on its way there is not.
    let given = w.b.held_by(second).0;
    let lost = w.b.handle_lender_lost(now, second);
    assert!(lost.0 <= given);
    w.drain();
    w.check();
    assert!(w.b.stores_in_flight > 0, "to the disk");
    w.finish();
    w.agree();
    assert_eq!(w.stored_at(0), 0);
    if lost.0 == 0 {
        w.read_all();
    }
}

/// And the old one, before the new one has answered: then the buffers have what is safe nowhere, and are not given away.
#[test]
fn a_move_goes_on_when_the_old_lender_dies() {
    let mut w = World::new(16, false, 300, 1);
    for base in 0..200 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    let now = w.time();
    w.b.handle_limit(now, BasePages(0));
    w.drain();
    w.finish();
    assert_eq!(w.stored_at(0), 200, "all of it is in buffers, and at the lender");
    w.join_lender(100_000);
    w.recall_all(0);
    assert_eq!(w.b.stores_in_flight, 200);
    w.step(&Op::LoseLender);
    w.check();
    w.finish();
    w.agree();
    assert_eq!(w.stored_at(1), 200);
    let now = w.time();
    w.b.handle_limit(now, BasePages(300));
    w.drain();
    w.read_all();
}

#[test]
fn a_copy_that_the_disk_has_is_given_back_at_once() {
    let mut w = World::new(16, true, 300, 1);
    fill(&mut w);
    assert!(w.stored_at(0) > 400);
    w.recall_all(0);
    assert_eq!(w.stored_at(0), 0);
    w.finish();
    w.agree();
    w.read_all();
}

/// A lender that lends less, and goes on lending: once what it asked for has gone, a page that goes makes room for one that comes.
#[test]
fn a_lender_that_has_got_back_what_it_asked_for_is_used_again() {
    let mut w = away_under_none(1);
    let pages: Vec<_> = w.lenders[0].as_ref().expect("it is there").keys().copied().take(500).collect();
    w.ask_back(0, pages);
    assert_eq!(w.b.lender(LenderIndex(0)).wanted_back, 500);
    w.finish();
    let left = w.stored_at(0);
    assert_eq!((w.b.lender(LenderIndex(0)).wanted_back, w.b.lender(LenderIndex(0)).room), (0, 0));
    w.full.clear();
    for round in 1..4 {
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: round * PAGES + base });
            assert!(w.b.lender(LenderIndex(0)).room <= 600, "the room of what was wanted back");
        }
    }
    w.finish();
    w.agree();
    assert!(w.stored_at(0) > left / 2 && w.stored_at(0) <= left + 100, "{} of {left}", w.stored_at(0));
    w.read_all();
}
