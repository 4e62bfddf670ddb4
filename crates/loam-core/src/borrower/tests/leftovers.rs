//! What a program gives up is given back in pieces, unless it is wanted.

use super::*;

const LIMIT: u64 = 600;
const REMOVED: Op = Op::Remove { space: 0, base: 0, len: PAGES - LIMIT };

/// All is written in order: what was written first is away.
fn filled() -> World {
    let mut w = World::new(1, false, LIMIT, 1);
    w.b.config.rescue = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    assert!(w.stored_at(0) as u64 >= PAGES - LIMIT, "{}", w.stored_at(0));
    w
}

#[test]
fn what_is_discarded_is_given_back_a_piece_at_a_time() {
    let mut w = filled();
    let before = w.stored_at(0);
    w.step(&REMOVED);
    w.check();
    assert!((1..=128).contains(&(before - w.stored_at(0))), "of {before} {} are left", w.stored_at(0));
    // Meanwhile it reads zeros there, and what it wrote elsewhere.
    w.touch(SpaceKey(0), 0);
    w.touch(SpaceKey(0), PAGES - 1);
    w.finish();
    w.agree();
    assert!(w.stored_at(0) <= before - (PAGES - LIMIT) as usize + 1, "{} of {before}", w.stored_at(0));
    w.read_all();
}

#[test]
fn where_a_lender_is_full_all_of_it_is_given_back_at_once() {
    for (room, all) in [(5_000, false), (5, true)] {
        let mut w = filled();
        w.step(&REMOVED);
        assert!(!w.b.leftovers.is_empty());
        // Others have taken the rest of it.
        w.b.handle_lender_room(LenderIndex(0), BasePages(room));
        w.b.handle_limit(Instant(w.now), BasePages(LIMIT / 2)); // something has to leave
        assert_eq!(w.b.leftovers.is_empty(), all, "room for {room}");
    }
}

#[test]
fn nothing_is_left_when_the_last_process_has_ended() {
    let mut w = filled();
    w.b.handle_space_gone(Instant(w.now), SpaceKey(0));
    w.drain();
    assert_eq!(w.stored_at(0), 0);
    assert_eq!(w.b.held_by(LenderIndex(0)), BasePages(0));
}
