//! Fetch plans as a live driver carries them out: what is waited for first, the rest in pieces behind it.

use super::*;
use crate::borrower::plans::{NEXT_PAGES, RESTS_MAX};

const KEY: SpaceKey = SpaceKey(0);
/// Base pages of a page here.
const PAGE: u64 = 16;

/// A world in which everything has been written and the first pages are away, with one lender and no prefetch.
fn away(plan: &str, subpage: u64) -> World {
    let mut w = away_in(PAGE, plan, subpage);
    w.b.prefetcher = Box::new(NoPrefetch);
    w
}

/// The same, in pages of another size, with prefetch.
fn away_in(page: u64, plan: &str, subpage: u64) -> World {
    let mut w = World::new(page, false, 600, 1);
    w.b.config.rescue = false;
    w.b.plan_fetches(BasePages(subpage), fetch_planner(plan).unwrap());
    w.b.plan_in_pieces();
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(1) {}
    assert!((0..4 * PAGE).all(|base| w.b.state(KEY, base) == BaseState::Away), "the oldest have left");
    w.gets.clear();
    w
}

fn fault(w: &mut World, base: u64) {
    let now = w.time();
    w.b.handle_fault(now, KEY, base);
    w.drain();
}

fn plans(w: &mut World, pages: u64) {
    let now = w.time();
    w.b.handle_plans(now, pages);
    w.drain();
}

/// What was asked for, as base pages.
fn asked(w: &World) -> Vec<(u64, u32, Urgency)> {
    let base_of = |copy| (0..PAGES).find(|&b| w.b.copy_of(KEY, b).is_some_and(|view| view.index == copy));
    let base_of = |copy| base_of(copy).expect("only what has a base page is asked for");
    w.gets.iter().map(|&(copy, message, urgency)| (base_of(copy), message, urgency)).collect()
}

/// The answers to what was asked for `base`.
fn answer(w: &mut World, base: u64) {
    let copy = w.b.copy_of(KEY, base).expect("it is away").index;
    let at = w.pending.iter().position(|op| matches!(op, Pending::Get { copy: c, .. } if *c == copy));
    let last = w.pending.len() - 1;
    w.pending.swap(at.expect("it was asked for"), last);
    assert!(w.complete(last));
}

#[test]
fn the_rest_of_a_page_goes_behind_the_subpage_that_a_thread_waits_for() {
    let mut w = away("pipelined", 1);
    fault(&mut w, 5);
    assert_eq!(asked(&w), [(5, 0, Urgency::Waited)], "nothing else first");
    assert!(w.b.has_plans());
    plans(&mut w, 2);
    assert_eq!(asked(&w)[1..], [(6, 1, Urgency::Behind), (4, 2, Urgency::Behind)]);
    while w.b.has_plans() {
        plans(&mut w, 5);
    }
    let rest: Vec<_> = (0..4).chain(7..PAGE).map(|base| (base, 3, Urgency::Behind)).collect();
    assert_eq!(asked(&w)[3..], rest);
    assert_eq!(w.hurries, 0);
    w.read_all();
}

#[test]
fn a_fault_in_a_page_under_way_moves_its_base_page_forward_once() {
    const LARGE: u64 = 64;
    let mut w = away_in(LARGE, "eager", 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    fault(&mut w, 5);
    plans(&mut w, LARGE);
    assert_eq!(w.gets.len() as u64, LARGE);
    fault(&mut w, 39);
    assert_eq!((w.gets.len() as u64, w.hurries), (LARGE, 1), "it is not asked for twice");
    fault(&mut w, 39);
    fault(&mut w, 5);
    assert_eq!(w.hurries, 1, "what is urgent already is not hurried");
    assert_eq!(w.b.waiting(), BasePages(2));
    answer(&mut w, 39);
    assert_eq!((w.b.waiting(), w.b.state(KEY, 39)), (BasePages(1), BaseState::Local));
    fault(&mut w, 39);
    assert_eq!(w.hurries, 1, "what is there is not hurried");
    answer(&mut w, 5);
    assert_eq!(w.b.waiting(), BasePages(0), "nobody waits for the rest");
    w.read_all();
}

#[test]
fn what_comes_next_anyway_is_left_in_its_place() {
    let mut w = away_in(64, "eager", 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    fault(&mut w, 0);
    plans(&mut w, 64);
    // What is asked for behind is numbered from 1 on, in order: here by their base pages.
    fault(&mut w, NEXT_PAGES);
    assert_eq!(w.hurries, 0);
    fault(&mut w, NEXT_PAGES + 1);
    assert_eq!(w.hurries, 1);
    fault(&mut w, NEXT_PAGES + 2);
    assert_eq!(w.hurries, 2);
    for base in 0..=2 {
        answer(&mut w, base);
    }
    fault(&mut w, NEXT_PAGES + 3);
    assert_eq!(w.hurries, 3, "of what is behind two are answered: up to NEXT_PAGES + 2 comes next");
    answer(&mut w, 3);
    fault(&mut w, NEXT_PAGES + 4);
    assert_eq!(w.hurries, 4);
    for base in 4..=8 {
        answer(&mut w, base);
    }
    for base in NEXT_PAGES + 5..=NEXT_PAGES + 8 {
        fault(&mut w, base);
    }
    assert_eq!(w.hurries, 4);
    w.read_all();
}

/// Whether each base page of a page waits in a buffer for the program to come to it; `None`: it is somewhere else altogether.
fn held(w: &World, page: core::ops::Range<u64>) -> Vec<Option<bool>> {
    let one = |base| match w.b.state(KEY, base) {
        BaseState::Local => Some(false),
        BaseState::Away => {
            let copy = w.b.copy_of(KEY, base).expect("it is away").index;
            w.b.copies.get(copy).buffer().map(|_| true)
        }
        _ => None,
    };
    page.map(one).collect()
}

#[test]
fn of_a_marker_the_part_is_held_that_a_stream_comes_to_first() {
    const LARGE: u64 = 64;
    let touch = |w: &mut World, base| {
        w.touch(KEY, base);
        while w.b.has_plans() {
            plans(w, LARGE);
        }
        while w.complete(0) {}
    };
    let mut w = away_in(LARGE, "eager", 1);
    w.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(8 * LARGE))); // which knows of no lost bets
    w.b.config.rescue = true; // else no buffer is kept
    let now = w.time();
    w.b.handle_limit(now, BasePages(1000)); // a guess never makes anybody wait for a frame
    touch(&mut w, 0);
    touch(&mut w, LARGE);
    assert_eq!(held(&w, 2 * LARGE..3 * LARGE), [Some(true); LARGE as usize], "a bet takes no frame");
    touch(&mut w, 2 * LARGE);
    let marker = held(&w, 3 * LARGE..4 * LARGE);
    assert_eq!(marker[..16], [Some(true); 16]);
    assert_eq!(marker[16..], [Some(false); 48]);
    w.read_all();
}

#[test]
fn what_is_here_is_not_fetched_again() {
    let mut w = away("lazy", 1);
    for base in [3, 4, 11] {
        w.touch(KEY, base);
    }
    assert_eq!(w.gets.len(), 3, "lazy fetches what is touched");
    w.b.plan_fetches(BasePages(1), fetch_planner("eager").unwrap());
    w.gets.clear();
    fault(&mut w, 7);
    while w.b.has_plans() {
        plans(&mut w, 1);
    }
    let asked: Vec<u64> = asked(&w).into_iter().map(|get| get.0).collect();
    assert_eq!(asked, [7, 0, 1, 2, 5, 6, 8, 9, 10, 12, 13, 14, 15], "aapc-2012, figure 4b");
    w.read_all();
}

#[test]
fn full_wakes_with_the_last_subpage() {
    let mut w = away("full", 1);
    fault(&mut w, 5);
    assert!(!w.b.has_plans());
    let order: Vec<_> = (0..5).chain(6..PAGE).chain([5]).map(|base| (base, 0, Urgency::Waited)).collect();
    assert_eq!(asked(&w), order);
}

#[test]
fn subpages_of_several_base_pages_travel_whole() {
    let mut w = away("eager", 4);
    fault(&mut w, 5);
    assert_eq!(asked(&w), [4, 6, 7, 5].map(|base| (base, 0, Urgency::Waited)));
    plans(&mut w, 1);
    assert_eq!(asked(&w)[4..], [0, 1, 2, 3].map(|base| (base, 1, Urgency::Behind)));
    w.read_all();
}

#[test]
fn the_rest_is_given_up_where_the_page_has_gone() {
    let mut w = away("eager", 1);
    fault(&mut w, 5);
    w.step(&Op::UnmapAndMap { space: 0, base: 0, len: 2 * PAGE });
    let now = w.time();
    w.b.handle_unmapped(now, KEY, BaseRange::new(0, 2 * PAGE));
    w.drain();
    plans(&mut w, PAGE);
    assert!(!w.b.has_plans() && w.gets.len() == 1, "there is nothing at that place");
    fault(&mut w, 2 * PAGE + 1);
    w.b.handle_space_gone(Instant(w.now), KEY);
    plans(&mut w, PAGE);
    assert!(!w.b.has_plans());
    w.b.audit();
}

#[test]
fn the_rest_never_makes_anybody_wait_for_a_frame() {
    let mut w = away("eager", 1);
    fault(&mut w, 5);
    let frames = w.b.frames();
    w.b.limit = frames.0 + 3;
    plans(&mut w, PAGE);
    assert!(!w.b.has_plans(), "it is not worth waiting for");
    assert_eq!(w.gets.len(), 4, "three more had a frame");
    w.read_all();
}

fn evictions(w: &World) -> usize {
    w.pending.iter().filter(|op| matches!(op, Pending::Evict(_))).count()
}

#[test]
fn while_a_thread_waits_evictions_begin_when_half_of_the_free_frames_are_taken() {
    let mut w = away("eager", 1);
    let high = w.b.high_water();
    let half = high + (w.b.limit - high) / 2;
    let mut page = 0;
    while w.b.frames().0 + PAGE <= half {
        assert_eq!(evictions(&w), 0, "{} frames of {half}", w.b.frames().0);
        fault(&mut w, page * PAGE + 5);
        plans(&mut w, PAGE);
        page += 1;
    }
    assert!(w.b.frames().0 > high, "at other times they begin here");
    assert_eq!(evictions(&w), 0);
    fault(&mut w, page * PAGE + 5);
    plans(&mut w, PAGE);
    assert!(evictions(&w) > 0, "the others would find no frames");
    w.read_all();
}

#[test]
fn evictions_begin_when_nobody_waits_any_more() {
    let mut w = away("eager", 1);
    let high = w.b.high_water();
    let pages = (high - w.b.frames().0) / PAGE + 1;
    for page in 0..pages {
        fault(&mut w, page * PAGE + 5);
        plans(&mut w, PAGE);
    }
    for page in 1..pages {
        answer(&mut w, page * PAGE + 5);
    }
    assert!(w.b.frames().0 > high);
    assert_eq!((w.b.waiting(), evictions(&w)), (BasePages(1), 0));
    answer(&mut w, 5);
    assert_eq!(w.b.waiting(), BasePages(0));
    assert!(evictions(&w) > 0, "with the answer, not with the rest of its page");
    w.read_all();
}

#[test]
fn plans_that_are_left_alone_are_bounded() {
    let mut w = World::new(PAGE, false, 2000, 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    w.b.plan_fetches(BasePages(1), fetch_planner("eager").unwrap());
    w.b.plan_in_pieces();
    w.b.config.rescue = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.step(&Op::Limit { pages: 200 });
    while w.complete(1) {}
    w.step(&Op::Limit { pages: 2000 });
    for page in 0..PAGES / PAGE {
        fault(&mut w, page * PAGE + 2);
        assert!(w.b.rests.len() <= RESTS_MAX);
    }
    assert_eq!(w.b.rests.len(), RESTS_MAX, "it came to that");
    w.read_all();
}
