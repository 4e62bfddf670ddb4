//! Base pages that are left out of pages: what brings them, and what is said of them.

use super::*;
use crate::page_size::{Brought, PageSize, PageSizer, Place, Probed};
use std::sync::{Arc, Mutex};

const KEY: SpaceKey = SpaceKey(0);
/// Base pages of a page here, and which one is left out of it.
const PAGE: u64 = 16;
const HOLE: u64 = 9;

/// Base pages that were left out, and whether they were wanted.
type Said = Arc<Mutex<Vec<(u64, bool)>>>;

/// How far memory has been turned over; and by how much each base page that was wanted was so after its page had come.
type Clock = Arc<Mutex<(u64, Vec<u64>)>>;

/// Leaves the same base page out of every page.
#[derive(Debug)]
struct LeavesOut(Said, Clock);

impl PageSizer for LeavesOut {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(4)
    }
    fn largest(&self) -> PageSize {
        PageSize::from_log2(4)
    }
    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        let hole = page.size.first(page.fault.base) + HOLE;
        (hole != page.fault.base).then_some(hole)
    }
    fn probed(&mut self, _: Instant, probe: &Probed) {
        self.0.lock().unwrap().push((probe.place.base, probe.wanted));
        if probe.wanted && probe.place.base == HOLE {
            self.1.lock().unwrap().1.push(probe.after.0);
        }
    }
    fn turned_over(&self) -> BasePages {
        BasePages(self.1.lock().unwrap().0)
    }
}

/// Brings the next page with each, ahead of nobody.
#[derive(Debug)]
struct Next;

impl Prefetcher for Next {
    fn faulted(&mut self, fault: Faulted<'_>) -> Option<Ahead> {
        let page = fault.page;
        Some(Ahead { first: page + 1, stride: 1, count: 1, marker: 1, bet: false })
    }
    fn cut(&mut self, _: StreamSpace, _: &Ahead, _: u32) {}
}

/// A world in which everything has been written and the first pages are away, and what is said of what is left out.
fn world() -> (World, Said) {
    world_at(Clock::default())
}

fn world_at(clock: Clock) -> (World, Said) {
    let mut w = World::new(PAGE, false, 600, 1);
    w.b.config.rescue = false;
    w.b.prefetcher = Box::new(NoPrefetch);
    w.b.plan_fetches(BasePages(1), fetch_planner("eager").unwrap());
    w.b.plan_in_pieces();
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.settle(16);
    let said = Said::default();
    w.b.size_pages(Box::new(LeavesOut(Arc::clone(&said), clock)), PageSize::from_log2(4));
    (w, said)
}

/// The same, and the first page has come without what is left out of it.
fn fetched() -> (World, Said) {
    let (mut w, said) = world();
    w.touch(KEY, 2);
    w.settle(16);
    assert_eq!(away(&w, 0), [HOLE]);
    (w, said)
}

/// Base pages of the page that begins at `first` which are away.
fn away(w: &World, first: u64) -> Vec<u64> {
    (first..first + PAGE).filter(|&base| w.b.state(KEY, base) == BaseState::Away).collect()
}

/// The first pages leave: what is said of what was left out of them.
fn push_out(w: &mut World, said: &Said) -> Vec<(u64, bool)> {
    w.push_out(512);
    assert!((0..4).all(|page| away(w, page * PAGE).len() as u64 == PAGE), "they have left");
    let mut said = core::mem::take(&mut *said.lock().unwrap());
    said.retain(|&(base, _)| base < 512);
    said
}

#[test]
fn what_nobody_touches_is_not_wanted_whatever_else_of_its_page_is_asked_for() {
    let (mut w, said) = world();
    let now = w.time();
    w.b.handle_fault(now, KEY, 2);
    // Of the rest nothing has been asked for yet: the page is brought a second time, by a thread that does not wait for what is left out.
    assert!(away(&w, 0).contains(&5));
    w.b.handle_fault(now, KEY, 5);
    w.drain();
    w.settle(16);
    assert_eq!(away(&w, 0), [HOLE]);
    assert_eq!(push_out(&mut w, &said), [(HOLE, false)]);
    w.read_all();
}

#[test]
fn what_a_thread_touches_is_wanted_and_comes() {
    let (mut w, said) = fetched();
    w.touch(KEY, HOLE);
    assert_eq!(away(&w, 0), []);
    assert_eq!(push_out(&mut w, &said), [(HOLE, true)]);
    w.read_all();
}

#[test]
fn who_fetches_ahead_leaves_it_out_too() {
    let (mut w, said) = world();
    w.touch(KEY, PAGE + 2);
    w.settle(16);
    w.b.prefetcher = Box::new(Next);
    w.touch(KEY, 2);
    w.settle(16);
    w.b.prefetcher = Box::new(NoPrefetch);
    assert_eq!((away(&w, 0), away(&w, PAGE)), (vec![HOLE], vec![PAGE + HOLE]));
    let mut said = push_out(&mut w, &said);
    said.sort_unstable();
    assert_eq!(said, [(HOLE, false), (PAGE + HOLE, false)]);
    w.read_all();
}

/// The program has said that it will need it: what it will do with it is not seen.
#[test]
fn of_what_comes_without_being_touched_nothing_is_said() {
    let (mut w, said) = fetched();
    let now = w.time();
    w.b.handle_advice(now, KEY, BaseRange::new(0, PAGE), Advice::WillNeed);
    w.drain();
    w.settle(16);
    assert_eq!(away(&w, 0), []);
    assert_eq!(push_out(&mut w, &said), []);
    w.read_all();
}

/// The first page leaves, and is still in buffers.
fn push_out_first(w: &mut World) {
    let mut others = (512..PAGES).step_by(PAGE as usize);
    while w.b.state(KEY, 0) != BaseState::Away {
        w.touch(KEY, others.next().expect("it leaves before all others have come"));
        w.settle(16);
    }
    assert_eq!(away(w, 0).len() as u64, PAGE);
}

/// Pages that leave on trial and are back at once have not left: neither is what nobody has touched by then unwanted, nor does it come with the rest.
#[test]
fn nothing_is_said_of_a_page_that_comes_back_from_a_buffer() {
    for touched in [false, true] {
        let (mut w, said) = fetched();
        w.b.config.rescue = true;
        push_out_first(&mut w);
        let fetched = w.gets.len();
        w.touch(KEY, 5);
        w.settle(16);
        assert_eq!(w.gets.len(), fetched, "all of it was in buffers");
        assert_eq!(away(&w, 0), [HOLE]);
        assert_eq!(said.lock().unwrap().iter().find(|&&(base, _)| base == HOLE), None);
        if touched {
            w.touch(KEY, HOLE);
        }
        assert_eq!(push_out(&mut w, &said), [(HOLE, touched)]);
        w.read_all();
    }
}

/// How late it is wanted counts from when its page came first, also where the page has been away for a moment and it is what brings it back.
#[test]
fn how_late_it_is_wanted_is_told() {
    for (is_back, is_back_by_it) in [(false, false), (true, false), (true, true)] {
        let clock = Clock::default();
        let (mut w, said) = world_at(Arc::clone(&clock));
        clock.lock().unwrap().0 = 100;
        w.touch(KEY, 2);
        w.settle(16);
        if is_back {
            w.b.config.rescue = true;
            push_out_first(&mut w);
            if !is_back_by_it {
                w.touch(KEY, 5);
                w.settle(16);
            }
        }
        for at in [130, 150] {
            clock.lock().unwrap().0 = at;
            w.touch(KEY, HOLE);
            w.settle(16);
        }
        assert_eq!(push_out(&mut w, &said), [(HOLE, true)]);
        assert_eq!(clock.lock().unwrap().1, [30], "back: {is_back}, by it: {is_back_by_it}");
        w.read_all();
    }
}

/// A page that no buffer has is away for good: it is told at once that what was left out was not wanted, and that is what is touched next.
#[test]
fn a_page_that_cannot_come_back_has_left() {
    let (mut w, said) = fetched();
    push_out_first(&mut w);
    let of_it = |said: &Said| said.lock().unwrap().iter().copied().find(|&(base, _)| base == HOLE);
    assert_eq!(of_it(&said), Some((HOLE, false)));
    w.touch(KEY, HOLE);
    assert_eq!(push_out(&mut w, &said), [(HOLE, false)]);
    w.read_all();
}
