//! What a fault brings from victim buffers, and what is said of what stays there.

use super::*;
use crate::page_size::{Brought, PageSize, PageSizer, Place, Probed, Seen};
use std::sync::{Arc, Mutex};

const KEY: SpaceKey = SpaceKey(0);
/// Base pages of a page here, of what is rescued of one, and which one of a page is watched.
const PAGE: u64 = 16;
const RESCUED: u64 = 4;
const WATCHED: u64 = 9;

/// Base pages that were watched, and whether they were wanted.
type Said = Arc<Mutex<Vec<(u64, bool)>>>;

/// Watches the same base page of each page; and leaves it out where it is fetched.
#[derive(Debug)]
struct Watches(Said, Said);

impl PageSizer for Watches {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::new(BasePages(PAGE)).unwrap()
    }
    fn largest(&self) -> PageSize {
        PageSize::new(BasePages(PAGE)).unwrap()
    }
    fn rescue_size(&mut self, at: Place, size: PageSize) -> PageSize {
        assert_eq!(size, self.size(at));
        PageSize::new(BasePages(RESCUED)).unwrap()
    }
    fn rescued(&mut self, at: Place, size: PageSize, most: PageSize) -> Option<u64> {
        assert_eq!((size.base_pages(), most.base_pages()), (RESCUED, PAGE));
        let watched = most.first(at.base) + WATCHED;
        (watched != at.base).then_some(watched)
    }
    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        let hole = page.size.first(page.fault.base) + WATCHED;
        (hole != page.fault.base).then_some(hole)
    }
    fn probed(&mut self, _: Instant, probe: &Probed) {
        self.1.lock().unwrap().push((probe.place.base, probe.wanted));
    }
    fn watched(&mut self, probe: &Probed) {
        assert_eq!((probe.seen, probe.size.base_pages()), (Seen::Rescued, PAGE));
        self.0.lock().unwrap().push((probe.place.base, probe.wanted));
    }
}

/// Base pages of the first page which are away.
fn away(w: &World) -> Vec<u64> {
    (0..PAGE).filter(|&base| w.b.state(KEY, base) == BaseState::Away).collect()
}

/// What has been rescued of the first page leaves: what is said of it.
fn push_out(w: &mut World, said: &Said) -> Vec<(u64, bool)> {
    w.push_out(512);
    assert_eq!(w.b.state(KEY, 4), BaseState::Away);
    let mut said = core::mem::take(&mut *said.lock().unwrap());
    said.retain(|&(base, _)| base < PAGE);
    said
}

/// A world in which the first page is in buffers, all of it, but for what has been rescued.
fn rescued() -> (World, Said) {
    let mut w = World::new(PAGE, false, 600, 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    w.b.plan_fetches(BasePages(1), fetch_planner("eager").unwrap());
    w.b.plan_in_pieces();
    for base in 0..PAGE {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    let said = Said::default();
    w.b.size_pages(Box::new(Watches(Arc::clone(&said), Said::default())), PageSize::SMALLEST);
    let mut others = (512..PAGES).step_by(PAGE as usize);
    while w.b.state(KEY, 0) != BaseState::Away {
        w.touch(KEY, others.next().expect("it leaves before all others have come"));
        w.settle(16);
    }
    assert_eq!(away(&w).len() as u64, PAGE);
    let fetched = w.gets.len();
    w.touch(KEY, 5);
    w.settle(16);
    assert_eq!(w.gets.len(), fetched, "all of it was in buffers");
    let came: Vec<u64> = (0..PAGE).filter(|base| !away(&w).contains(base)).collect();
    assert_eq!(came, [4, 5, 6, 7], "so much of it, around the fault");
    (w, said)
}

#[test]
fn what_a_thread_waits_for_is_wanted() {
    let (mut w, said) = rescued();
    w.touch(KEY, WATCHED);
    w.settle(16);
    // It is told once, and what brings it back is a rescue of its own, of which nothing is watched.
    assert_eq!(push_out(&mut w, &said), [(WATCHED, true)]);
    w.read_all();
}

#[test]
fn what_nobody_waits_for_before_the_other_leaves_is_not() {
    let (mut w, said) = rescued();
    assert_eq!(push_out(&mut w, &said), [(WATCHED, false)]);
    w.read_all();
}

/// The program has said that it will need it: what it will do with it is not seen.
#[test]
fn of_what_comes_without_being_touched_nothing_is_said() {
    let (mut w, said) = rescued();
    let now = w.time();
    w.b.handle_advice(now, KEY, BaseRange::new(0, PAGE), Advice::WillNeed);
    w.drain();
    w.settle(16);
    assert_eq!(away(&w), []);
    assert_eq!(push_out(&mut w, &said), []);
    w.read_all();
}

/// Where either of the two was there is something else by then.
#[test]
fn of_what_is_given_up_nothing_is_said() {
    for gone in [5, WATCHED] {
        let (mut w, said) = rescued();
        w.step(&Op::UnmapAndMap { space: 0, base: gone, len: 1 });
        w.settle(16);
        w.touch(KEY, WATCHED);
        w.settle(16);
        assert_eq!(push_out(&mut w, &said), [], "{gone}");
        w.read_all();
    }
}

/// What is rescued next to it does not bring it: what is said of it is what the program does.
#[test]
fn what_is_watched_comes_with_nothing_else_that_is_touched() {
    let (mut w, said) = rescued();
    w.touch(KEY, WATCHED + 1);
    w.settle(16);
    assert_eq!((w.b.state(KEY, WATCHED), w.b.state(KEY, WATCHED + 2)), (BaseState::Away, BaseState::Local));
    w.touch(KEY, WATCHED);
    assert_eq!(push_out(&mut w, &said), [(WATCHED, true)]);
    w.read_all();
}

/// A world in which the first page is in buffers, but for what was left out of it; what is said of what is watched, and of what is left out.
fn left_out() -> (World, Said, Said) {
    let mut w = World::new(PAGE, false, 600, 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    w.b.plan_fetches(BasePages(1), fetch_planner("eager").unwrap());
    w.b.plan_in_pieces();
    w.b.config.rescue = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.settle(16);
    let (watched, left_out) = (Said::default(), Said::default());
    let sizer = Watches(Arc::clone(&watched), Arc::clone(&left_out));
    w.b.size_pages(Box::new(sizer), PageSize::SMALLEST);
    w.touch(KEY, 2);
    w.settle(16);
    assert_eq!(away(&w), [WATCHED], "fetched, but for that");
    w.b.config.rescue = true;
    let mut others = (512..PAGES).step_by(PAGE as usize);
    while w.b.state(KEY, 0) != BaseState::Away {
        w.touch(KEY, others.next().expect("it leaves before all others have come"));
        w.settle(16);
    }
    (w, watched, left_out)
}

/// A page that left without what was left out of it, and is back in part, has not left: what was left out is wanted while that part is here, or not.
#[test]
fn what_was_left_out_of_a_page_that_is_back_in_part_is_told_of() {
    for (touches, is_touched) in [(2, false), (2, true), (WATCHED + 1, false), (WATCHED + 1, true)] {
        let (mut w, watched, left_out) = left_out();
        w.touch(KEY, touches);
        w.settle(16);
        assert_eq!(w.b.state(KEY, WATCHED), BaseState::Away, "it does not come with a part");
        if is_touched {
            w.touch(KEY, WATCHED);
        }
        let _ = push_out(&mut w, &watched);
        let said =
            left_out.lock().unwrap().iter().copied().filter(|&(base, _)| base < PAGE).collect::<Vec<_>>();
        assert_eq!(said, [(WATCHED, is_touched)], "{touches}");
        w.read_all();
    }
}

/// Both waited for frames when the page came back in part.
#[test]
fn what_was_left_out_comes_to_who_waits_for_it_already() {
    let (mut w, _, left_out) = left_out();
    let now = w.time();
    w.b.handle_limit(now, BasePages(100));
    for base in [2, WATCHED] {
        let now = w.time();
        w.b.handle_fault(now, KEY, base);
        assert!(w.b.waits.contains_key(&(KEY, base)) && w.b.queue.contains(&(KEY, base)), "{base}");
    }
    let now = w.time();
    w.b.handle_limit(now, BasePages(600));
    w.drain();
    w.settle(16);
    for base in [2, WATCHED] {
        assert!(!w.b.waits.contains_key(&(KEY, base)), "{base}");
    }
    let said = left_out.lock().unwrap().iter().copied().filter(|&(base, _)| base < PAGE).collect::<Vec<_>>();
    assert_eq!(said, [(WATCHED, true)]);
    w.read_all();
}
