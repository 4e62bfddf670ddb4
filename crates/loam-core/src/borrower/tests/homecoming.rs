//! All of a range is brought home, a piece at a time.

use super::*;

const KEY: SpaceKey = SpaceKey(0);

/// So many base pages are written, and most have left.
fn away(pages: u64, refuses: u32) -> World {
    let mut w = World::new(1, false, 600, 1);
    w.b.config.rescue = false;
    for base in 0..pages {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    w.rest();
    let now = w.time();
    w.b.handle_evictable(now, KEY, false);
    w.drain();
    w.refuses = refuses;
    w
}

fn look(w: &mut World, home: &mut Homecoming) -> bool {
    loop {
        let now = w.time();
        let goes_on = w.b.bring_home(now, KEY, home);
        w.drain();
        if w.b.is_home_again(KEY, home) {
            return true;
        }
        if !goes_on {
            return false;
        }
    }
}

fn is_away(w: &World, base: u64) -> bool {
    !matches!(w.b.state(KEY, base), BaseState::Local | BaseState::Empty)
}

/// Until all of it is there; the most that were on their way, and the looks.
fn bring_home(w: &mut World, range: BaseRange, picks: &[usize]) -> (usize, usize) {
    let (mut home, mut most, mut looks) = (Homecoming::new(range), 0, 0);
    let mut picks = picks.iter().copied().cycle();
    while !look(w, &mut home) {
        looks += 1;
        most = most.max(w.b.fetches_in_flight());
        assert!(looks < 100_000, "it is never home");
        assert!(w.complete(picks.next().unwrap_or(0)), "nobody asks for more");
    }
    assert!((range.start..range.end).all(|base| !is_away(w, base)));
    (most, looks)
}

/// Each base page is looked at a few times, however many there are.
#[test]
fn what_has_come_is_not_looked_at_again() {
    let pages = 20_000;
    let mut w = away(pages, 0);
    let (most, looks) = bring_home(&mut w, BaseRange::new(0, pages), &[0]);
    assert!((500..=1_024).contains(&most) && looks > 10_000, "{most} at a time, {looks} looks");
    let looked_at = w.b.spaces[&KEY].table.looked_at.get();
    assert!(looked_at < 4 * pages, "{looked_at} for {pages}");
    w.b.audit();
}

/// The program has moved some of it to where nothing was away any more.
#[test]
fn what_has_moved_to_the_front_comes_home_too() {
    let mut w = away(PAGES, 0);
    let mut home = Homecoming::new(BaseRange::new(0, 2 * FAR));
    let now = w.time();
    w.b.handle_unmapped(now, KEY, BaseRange::new(0, 100));
    w.clear(KEY, 0, 100);
    w.drain();
    assert!(!look(&mut w, &mut home));
    let last = (0..PAGES).rev().find(|&base| is_away(&w, base)).expect("some are on their way");
    while w.b.fetches_in_flight() > 1 {
        w.complete(0);
        assert!(!look(&mut w, &mut home));
    }
    let now = w.time();
    let moved = (0..PAGES).find(|&base| is_away(&w, base)).unwrap_or(last);
    w.b.handle_remapped(now, KEY, BaseRange::new(moved, moved + 1), 7);
    w.drain();
    while !look(&mut w, &mut home) {
        assert!(w.complete(0), "nobody asks for it");
    }
    assert_eq!(w.b.state(KEY, 7), BaseState::Local);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In whatever order it comes, and though the kernel refuses some of it for a while.
    #[test]
    fn all_of_a_range_comes_home(
        start in 0..PAGES, len in 0..PAGES, refuses in 0..3_000_u32, picks in proptest::collection::vec(0..5_000_usize, 1..40),
    ) {
        let mut w = away(PAGES, refuses);
        bring_home(&mut w, BaseRange::new(start, start + len), &picks);
        let now = w.time();
        w.refuses = 0;
        w.b.handle_evictable(now, KEY, true);
        w.drain();
        w.read_all();
        w.check();
    }
}
