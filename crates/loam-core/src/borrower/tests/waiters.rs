//! What a run's time is said to have gone to.

use super::*;
use crate::borrower::Lazy;

/// Faults on fresh pages until one has to wait for a frame; nothing that is under way is answered meanwhile.
fn fill_until_one_waits(w: &mut World, key: SpaceKey) {
    for base in 0..PAGES {
        if !w.present.contains_key(&(key, base)) {
            let now = w.time();
            w.b.handle_fault(now, key, base);
            w.drain();
        }
        if w.b.waiting() > BasePages(0) {
            return;
        }
    }
    panic!("the budget was never full: {:?}", w.b.stats());
}

#[test]
fn a_wait_for_room_is_told_from_a_wait_for_an_answer() {
    const PAUSE: u64 = 3_000_000;
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    let key = SpaceKey(0);
    fill_until_one_waits(&mut w, key);
    let before = w.b.stats();
    assert_eq!(before.joined_wait, Duration(0));
    w.now += PAUSE;
    while w.b.waiting() > BasePages(0) {
        assert!(w.complete(0), "nobody brings a frame");
    }
    let after = w.b.stats();
    assert!((after.queued_wait.0 - before.queued_wait.0) >= PAUSE, "{after:?}");
    // From the frame to the page in place there is a step of this test's clock.
    assert!((after.first_wait.0 - before.first_wait.0) < PAUSE / 100, "{after:?}");
    assert_eq!(after.joined_wait, Duration(0), "{after:?}");

    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let after = w.b.stats();
    let away = (0..PAGES).find(|&base| w.b.state(key, base) == BaseState::Away).expect("one has left");
    let room = BasePages(w.b.frames().0 + 100);
    let now = w.time();
    w.b.handle_limit(now, room);
    w.b.handle_fault(now, key, away);
    w.drain();
    assert_eq!(w.b.waiting(), BasePages(1));
    w.now += PAUSE;
    while w.b.waiting() > BasePages(0) {
        assert!(w.complete(0), "nobody answers");
    }
    let answered = w.b.stats();
    assert!((answered.first_wait.0 - after.first_wait.0) >= PAUSE, "{answered:?}");
    assert_eq!(answered.queued_wait, after.queued_wait, "{answered:?}");
}

#[test]
fn distances_are_counted_from_a_faulted_subpage_to_the_next_of_its_page() {
    let mut w = World::new(16, true, 600, 1);
    w.b.plan_fetches(BasePages(2), Box::new(Lazy));
    let key = SpaceKey(0);
    // Subpages 2, 4 and 1 of one page, each of which is a fault of its own under `lazy`. 5 and 4 of another, 0 alone of a third.
    for base in [5, 8, 2, 16 + 10, 16 + 9, 64] {
        w.touch(key, base);
    }
    assert_eq!(w.b.next_distances().collect::<std::vec::Vec<_>>(), [(-3, 1), (-1, 1), (2, 1)]);
    assert_eq!(w.b.subpage(), BasePages(2));
}

#[test]
fn what_the_disk_has_is_counted_while_it_comes_and_goes() {
    let mut w = World::new(1, true, 600, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    w.check(); // which counts them
    let full = w.b.on_disk();
    assert!(full > BasePages(500), "{full:?}");
    w.step(&Op::Remove { space: 0, base: 0, len: PAGES });
    w.finish();
    assert_eq!(w.b.on_disk(), BasePages(0), "what nobody refers to is not on the disk");
}
