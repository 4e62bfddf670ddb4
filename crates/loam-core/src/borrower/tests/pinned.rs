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

fn here(w: &World) -> u64 {
    (0..PINNED).filter(|&base| w.b.state(ONLY, base) == BaseState::Local).count() as u64
}

/// The program works for so many milliseconds, on more than fits. How often a page was refused in each tenth of that.
fn work(w: &mut World, ms: u64) -> [u64; 10] {
    let mut refused = [0; 10];
    let mut base = PINNED;
    for at in 0..ms {
        let before = w.b.stats().busy;
        w.step(&Op::Write { space: 0, base, value: base + w.now });
        settle(w);
        w.now += 1_000_000;
        w.b.handle_timeout(Instant(w.now));
        w.drain();
        settle(w);
        refused[(at * 10 / ms) as usize] += w.b.stats().busy - before;
        base = if base + 1 == PAGES { PINNED } else { base + 1 };
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

#[test]
fn a_page_that_is_unmapped_meanwhile_leaves_nothing_behind() {
    let mut w = pinned();
    work(&mut w, 400);
    assert!(!w.b.spaces[&ONLY].found_pinned.is_empty());
    let now = w.time();
    w.b.handle_unmapped(now, ONLY, BaseRange::new(0, PINNED));
    w.drain();
    let space = &w.b.spaces[&ONLY];
    assert!(space.found_pinned.is_empty() && space.pinned.is_empty() && space.parked.is_empty());
}
