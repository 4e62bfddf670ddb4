//! When what is home is looked through for copies that can be given up.

use super::*;

/// Memory for all of it but a little, and all of it written; what was away is home again, and has left its copies.
fn filled(pages: u64, lenders: usize, replicas: u8) -> World {
    let mut w = World::configured(1, pages + 500, lenders, |config| config.replicas = replicas);
    w.b.config.rescue = false;
    w.b.handle_limit(Instant(0), BasePages(600));
    for base in 0..pages {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    w.b.handle_limit(Instant(w.now), BasePages(pages + 500));
    (0..pages).for_each(|base| w.touch(SpaceKey(0), base));
    while w.complete(0) {}
    assert_eq!(w.b.local_in(SpaceKey(0)), BasePages(pages));
    w
}

fn tell_room(w: &mut World, lender: u8, room: u64) {
    w.b.handle_lender_room(LenderIndex(lender), BasePages(room));
}

/// Too few lenders, or one of them full that has nothing of it: looking through all of memory at each eviction would find nothing.
#[test]
fn nothing_is_looked_at_where_nothing_can_be_given_up() {
    let mut w = filled(PAGES, 1, 2);
    assert!(w.b.held_by(LenderIndex(0)).0 > 800);
    assert_eq!(w.b.make_room_at_lenders(), 0, "one lender of two, with room");
    let full = w.join_lender(0);
    assert_eq!(w.b.make_room_at_lenders(), 0, "and one without, that has nothing");
    // From the moment when the one that has something is full, it is.
    tell_room(&mut w, 0, 0);
    assert!(w.b.make_room_at_lenders() > 200);
    w.drain();
    assert_eq!(w.b.held_by(full), BasePages(0));
}

/// What a child shares cannot be given up.
#[test]
fn what_cannot_be_given_up_is_looked_at_once_and_in_pieces() {
    let pages = 9_000;
    let mut w = filled(pages, 1, 1);
    w.step(&Op::Fork { space: 0 });
    tell_room(&mut w, 0, 0);
    w.b.handle_limit(Instant(w.now), BasePages(pages)); // something has to leave
    let mut looked_at = Vec::new();
    while w.b.home.goes_on {
        assert!(w.b.poll_timeout().is_some_and(|due| due.0 <= w.now), "it goes on at once");
        looked_at.push(w.b.make_room_at_lenders());
        assert!(looked_at.len() < 10, "{looked_at:?}");
    }
    assert!(looked_at.len() >= 3 && looked_at.iter().all(|&n| n < 4_096 + 256), "{looked_at:?}");
    assert_eq!(w.b.make_room_at_lenders(), 0, "nothing has come home since");
}

/// It is enough when a lender has room for a batch. When it has none again, the rest of what is home is still known.
#[test]
fn what_was_not_given_up_is_given_up_later() {
    let mut w = filled(PAGES, 1, 1);
    let held = w.b.held_by(LenderIndex(0)).0;
    let mut rounds = 0;
    while w.b.held_by(LenderIndex(0)).0 > 0 {
        let before = w.b.held_by(LenderIndex(0)).0;
        tell_room(&mut w, 0, 0);
        w.b.make_room_at_lenders();
        w.drain();
        let given_up = before - w.b.held_by(LenderIndex(0)).0;
        assert!((1..=256).contains(&given_up), "{given_up} of {before}");
        rounds += 1;
    }
    assert!(rounds >= held / 256, "{rounds} for {held}");
    w.check();
}
