//! What somebody has pinned for a moment leaves soon after it; what is pinned for good is not asked for all the time.

use super::terms::settle;
use super::*;

const ONLY: SpaceKey = SpaceKey(0);
/// The first of these pages are pinned.
const PINNED: u64 = 100;
const LIMIT: u64 = 400;

fn pinned() -> World {
    let mut w = World::new(1, false, LIMIT, 1);
    for base in (0..PINNED).rev() {
        w.step(&Op::Write { space: 0, base, value: base + 1 }); // nothing is brought ahead
    }
    settle(&mut w);
    w.shared.extend((0..PINNED).map(|base| (ONLY, base)));
    w
}

/// Some of them have been found so.
fn refused() -> World {
    let mut w = pinned();
    work(&mut w, 400);
    assert!(!w.b.spaces[&ONLY].found_pinned.is_empty());
    w
}

fn here(w: &World) -> u64 {
    (0..PINNED).filter(|&base| w.b.state(ONLY, base) == BaseState::Local).count() as u64
}

/// The program works for so many milliseconds, on more than fits. How often a page was refused in each tenth of that.
fn work(w: &mut World, ms: u64) -> [u64; 10] {
    let mut refused = [0; 10];
    for at in 0..ms {
        let base = PINNED + w.now / 1_000_000 % (PAGES - PINNED);
        let before = w.b.stats().busy;
        w.step(&Op::Write { space: 0, base, value: base + w.now });
        settle(w);
        w.now += 1_000_000;
        w.b.handle_timeout(Instant(w.now));
        w.drain();
        settle(w);
        refused[(at * 10 / ms) as usize] += w.b.stats().busy - before;
    }
    refused
}

#[test]
fn what_was_pinned_for_a_moment_leaves_in_a_turn() {
    let mut w = pinned();
    let refused: u64 = work(&mut w, 400).iter().sum();
    assert!(refused >= PINNED / 2, "{refused} pages have been refused");
    assert_eq!(here(&w), PINNED, "they are pinned");
    w.shared.clear();
    // (What is shared with a child would stay for half a second, at first.)
    work(&mut w, 450);
    assert_eq!(here(&w), 0);
    assert!(w.b.spaces[&ONLY].found_pinned.is_empty(), "that is over");
    w.read_all();
}

#[test]
fn what_is_pinned_for_good_is_asked_for_less_and_less() {
    let mut w = pinned();
    let refused = work(&mut w, 20_000);
    assert!(refused[0] >= 4 * PINNED, "each some times at first: {refused:?}");
    // Put aside for up to 16 s by then.
    assert!(refused[5..].iter().sum::<u64>() <= 3 * PINNED, "{refused:?}");
    assert_eq!(here(&w), PINNED);
    w.read_all();
}

/// What it shares would be made its own first, and put aside for half a second if that does not help.
#[test]
fn a_process_that_has_forked_once_is_no_other() {
    let mut w = pinned();
    w.shared.clear();
    w.step(&Op::Fork { space: 0 });
    w.forked.clear(); // what is busy is told here
    w.step(&Op::Exit { space: 1 });
    assert!(w.b.spaces[&ONLY].forked);
    w.pinned = Some(ONLY);
    for turn in 0.. {
        work(&mut w, 10);
        if !w.b.spaces[&ONLY].found_pinned.is_empty() {
            break; // asked for and refused, though they were made its own
        }
        assert!(turn < 100);
    }
    w.pinned = None;
    work(&mut w, 450);
    assert_eq!(here(&w), 0);
    w.read_all();
}

/// What is put aside stays so for longer each time, until some of it leaves.
#[test]
fn what_was_pinned_for_longer_makes_nobody_stay_for_ever_longer() {
    let mut w = pinned();
    let first = w.b.parked_for;
    work(&mut w, 6_000);
    assert!(w.b.parked_for.0 > 4 * first.0, "{:?}", w.b.parked_for);
    w.shared.clear();
    work(&mut w, 9_000);
    assert_eq!((here(&w), w.b.parked_for), (0, first));
}

/// They are others.
#[test]
fn pages_that_come_to_the_place_of_pinned_ones_begin_anew() {
    let mut w = refused();
    let now = w.time();
    w.b.handle_removed(now, ONLY, BaseRange::new(0, PINNED));
    w.drain();
    assert!(w.b.spaces[&ONLY].found_pinned.is_empty());
}

#[test]
fn a_page_that_is_unmapped_meanwhile_leaves_nothing_behind() {
    let mut w = refused();
    let now = w.time();
    w.b.handle_unmapped(now, ONLY, BaseRange::new(0, PINNED));
    w.drain();
    let space = &w.b.spaces[&ONLY];
    assert!(space.found_pinned.is_empty() && space.pinned.is_empty() && space.parked.is_empty());
}
