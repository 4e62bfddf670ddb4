//! What a program says of its memory moves pages, and changes no byte (the property tests of all operations do both).

use super::*;

fn world(limit: u64) -> World {
    let mut w = World::new(1, false, limit, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(1) {}
    w
}

fn advise(w: &mut World, start: u64, end: u64, advice: Advice) {
    let now = w.time();
    w.b.handle_advice(now, SpaceKey(0), BaseRange::new(start, end), advice);
    w.drain();
    w.settle(16);
}

fn count(w: &World, start: u64, end: u64, state: BaseState) -> usize {
    (start..end).filter(|&base| w.b.state(SpaceKey(0), base) == state).count()
}

#[test]
fn what_will_be_needed_is_here_before_it_is_touched() {
    let mut w = world(900);
    assert!(count(&w, 0, 300, BaseState::Away) > 250);
    advise(&mut w, 0, 300, Advice::WillNeed);
    assert_eq!(count(&w, 0, 300, BaseState::Local), 300);
    let faults = w.b.stats().faults;
    for base in 0..300 {
        w.step(&Op::Read { space: 0, base });
    }
    assert_eq!(w.b.stats().faults, faults, "nobody has waited");
    assert!(w.b.stats().advised_in > 250);
    w.read_all();
}

#[test]
fn no_more_than_half_of_the_budget_is_brought_ahead() {
    let mut w = world(900);
    let before = w.b.stats().advised_in;
    advise(&mut w, 0, PAGES, Advice::WillNeed);
    assert!((1..=450).contains(&(w.b.stats().advised_in - before)));
    assert!(w.b.frames().0 <= 900);
    w.read_all();
}

#[test]
fn what_will_not_be_needed_leaves_though_there_is_room() {
    let mut w = World::new(1, false, 1400, 1);
    for base in 0..600 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(1) {}
    assert_eq!(count(&w, 0, 600, BaseState::Local), 600, "there is room for all");
    advise(&mut w, 100, 400, Advice::WillNotNeed);
    assert_eq!(count(&w, 100, 400, BaseState::Away), 300);
    assert_eq!(
        count(&w, 0, 100, BaseState::Local) + count(&w, 400, 600, BaseState::Local),
        300,
        "and nothing else"
    );
    assert_eq!((w.b.stats().advised_out, w.b.advice_left()), (300, (0, 0)));
    w.read_all();
}

/// A page of which only a part was named stays: the rest of it may be needed.
#[test]
fn pages_that_are_not_named_whole_stay() {
    let mut w = World::new(8, false, 1400, 1);
    for base in 0..64 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(1) {}
    advise(&mut w, 12, 36, Advice::WillNotNeed);
    let away: Vec<u64> = (0..64).filter(|&base| w.b.state(SpaceKey(0), base) == BaseState::Away).collect();
    assert!(away.iter().all(|base| (16..32).contains(base)), "{away:?}");
    assert!(!away.is_empty());
    w.read_all();
}

/// With too many pages here, what was said leaves and nothing that the policy would have taken.
#[test]
fn what_will_not_be_needed_leaves_first() {
    let mut w = all_here();
    // The youngest, in the moment when room for 200 more is wanted; the policy would take the oldest.
    let now = w.time();
    w.b.handle_advice(now, SpaceKey(0), BaseRange::new(900, 1200), Advice::WillNotNeed);
    let now = w.time();
    w.b.handle_plans(now, 10_000);
    w.b.handle_limit(now, BasePages(1100));
    w.drain();
    while w.complete(1) {}
    assert_eq!(count(&w, 900, 1200, BaseState::Local), 0);
    assert_eq!(count(&w, 0, 900, BaseState::Local), 900, "the oldest have stayed");
    w.read_all();
}

/// Twelve hundred pages that have room, the first the oldest.
fn all_here() -> World {
    let mut w = World::new(1, false, 1400, 1);
    for base in 0..1200 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(1) {}
    assert_eq!(count(&w, 0, 1200, BaseState::Local), 1200);
    w
}

/// What has left for advice and come back is young: the policy has older ones to take.
#[test]
fn what_has_come_back_stays() {
    let mut w = all_here();
    for _ in 0..50 {
        advise(&mut w, 0, 40, Advice::WillNotNeed);
        assert_eq!(count(&w, 0, 40, BaseState::Away), 40);
        advise(&mut w, 0, 40, Advice::WillNeed);
        assert_eq!(count(&w, 0, 40, BaseState::Local), 40);
    }
    let now = w.time();
    w.b.handle_limit(now, BasePages(1100));
    w.drain();
    while w.complete(1) {}
    assert_eq!(count(&w, 0, 40, BaseState::Local), 40, "they went by when they had first come");
    assert!(count(&w, 40, 240, BaseState::Away) > 100, "nothing had to leave: nothing was tested");
    w.read_all();
}

#[test]
fn what_is_said_last_holds() {
    let mut w = all_here();
    let now = w.time();
    w.b.handle_advice(now, SpaceKey(0), BaseRange::new(0, 40), Advice::WillNotNeed);
    w.b.handle_advice(now, SpaceKey(0), BaseRange::new(0, 40), Advice::WillNeed);
    assert_eq!(w.b.advice_left(), (0, 1), "the second has taken the first back");
    w.b.handle_plans(now, 10_000);
    w.drain();
    while w.complete(1) {}
    assert_eq!(count(&w, 0, 40, BaseState::Local), 40);
    w.read_all();
}

/// Who cannot give what it was told to is asked for a part of it, and then left alone: nobody waits behind all of it for a frame.
#[test]
fn what_cannot_leave_is_left_alone() {
    let mut w = all_here();
    w.pinned = Some(SpaceKey(0));
    let now = w.time();
    w.b.handle_advice(now, SpaceKey(0), BaseRange::new(0, 1200), Advice::WillNotNeed);
    w.drain();
    for _ in 0..200 {
        let now = w.time();
        w.b.handle_plans(now, 64);
        w.drain();
        w.complete(1);
    }
    while w.complete(1) {}
    assert_eq!(w.b.advice_left(), (0, 0));
    assert_eq!(count(&w, 0, 1200, BaseState::Local), 1200);
    assert!((1..1000).contains(&w.b.stats().busy), "{} were tried", w.b.stats().busy);
    w.pinned = None;
    w.read_all();
}

#[test]
fn advice_of_nothing_is_nothing() {
    let mut w = world(900);
    for (start, end) in [(5, 5), (FAR * 1000, FAR * 1000 + 5), (u64::MAX - 5, u64::MAX)] {
        advise(&mut w, start, end, Advice::WillNeed);
        advise(&mut w, start, end, Advice::WillNotNeed);
    }
    let now = w.time();
    w.b.handle_advice(now, SpaceKey(77), BaseRange::new(0, 10), Advice::WillNeed);
    for n in 0..1000 {
        let now = w.time();
        w.b.handle_advice(now, SpaceKey(0), BaseRange::new(n, n + 1), Advice::WillNotNeed);
    }
    assert!(w.b.advice_left().1 <= 64, "what is remembered is bounded");
    w.drain();
    w.read_all();
}
