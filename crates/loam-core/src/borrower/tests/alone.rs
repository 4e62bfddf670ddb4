//! Base pages that come alone at their page's first fault.

use super::*;
use crate::page_size::{PageSize, PageSizer, Place, Probed, Seen};
use std::sync::{Arc, Mutex};
use std::vec::Vec;

const KEY: SpaceKey = SpaceKey(0);
const PAGE: u64 = 16;

type Told = Arc<Mutex<Vec<(u64, bool)>>>;

/// Pages of 64 KiB whose first base page always comes alone: what became of each.
#[derive(Debug, Default)]
struct Always(Told);

impl PageSizer for Always {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(4)
    }
    fn largest(&self) -> PageSize {
        PageSize::from_log2(4)
    }
    fn rescue_size(&mut self, _: Place, _: PageSize) -> PageSize {
        PageSize::SMALLEST
    }
    fn comes_alone(&mut self, _: Place, size: PageSize) -> bool {
        assert_eq!(size.base_pages(), PAGE);
        true
    }
    fn alone(&mut self, probe: &Probed) {
        assert_eq!((probe.seen, probe.size.base_pages()), (Seen::Alone, PAGE));
        self.0.lock().unwrap().push((probe.place.base, probe.wanted));
    }
}

/// Everything is away, and in no buffer.
fn all_away(pages: u64) -> (World, Told) {
    let mut w = World::new(1, false, 1 << 20, 1);
    let told = Arc::default();
    w.b.size_pages(Box::new(Always(Arc::clone(&told))), PageSize::SMALLEST);
    (0..PAGES).for_each(|base| w.step(&Op::Write { space: 0, base, value: base + 1 }));
    w.send_away(KEY, 0..PAGES.next_multiple_of(PAGE));
    let now = w.time();
    w.b.handle_limit(now, BasePages(pages));
    w.drain();
    (w, told)
}

fn touch(w: &mut World, base: u64) {
    w.step(&Op::Read { space: 0, base });
    w.settle(10_000);
}

fn here(w: &World) -> Vec<u64> {
    (0..PAGES).filter(|&base| w.b.state(KEY, base) == BaseState::Local).collect()
}

#[test]
fn the_second_fault_brings_the_rest() {
    let (mut w, told) = all_away(1 << 20);
    touch(&mut w, 165);
    assert_eq!(here(&w), [165]);
    touch(&mut w, 483);
    assert_eq!(here(&w), [165, 483]);
    touch(&mut w, 161);
    assert_eq!(here(&w), (160..176).chain([483]).collect::<Vec<u64>>());
    assert_eq!(*told.lock().unwrap(), [(165, true)]);
    // It leaves without having been touched again.
    w.send_away(KEY, 483..484);
    assert_eq!(*told.lock().unwrap(), [(165, true), (483, false)]);
    // What leaves as a whole says nothing.
    w.send_away(KEY, 160..176);
    assert_eq!((here(&w), told.lock().unwrap().len()), (std::vec![], 2));
    w.read_all();
}

/// Where a stream comes to a page, or may, all of it comes.
#[test]
fn where_a_stream_comes_to_all_comes() {
    let (mut w, told) = all_away(1 << 20);
    touch(&mut w, 165);
    assert_eq!(here(&w), [165]);
    touch(&mut w, 180);
    assert_eq!(here(&w), [165].into_iter().chain(176..192).collect::<Vec<u64>>(), "the next page");
    (192..400).for_each(|base| touch(&mut w, base));
    assert!((176..400).all(|base| w.b.state(KEY, base) == BaseState::Local));
    assert_eq!(told.lock().unwrap()[..], [], "nothing else came alone");
    w.read_all();
}

/// Memory is full of base pages that came alone, and threads wait at each of these offsets in pages of which nothing is here, many of them for a frame: where. (In no order that a stream could be seen in.)
fn wait_for_frames(w: &mut World, offsets: &[u64]) -> Vec<u64> {
    let mut draw = crate::draw::Draw::new(5);
    let mut pages: Vec<u64> = (0..93).collect();
    (1..93).for_each(|n| pages.swap(n, draw.below(n as u64 + 1) as usize));
    let (first, second) = pages.split_at(48);
    first.iter().for_each(|&page| touch(w, page * PAGE + 3));
    let waiting: Vec<u64> =
        offsets.iter().flat_map(|offset| second.iter().map(move |page| page * PAGE + offset)).collect();
    for &base in &waiting {
        let now = w.time();
        w.b.handle_fault(now, KEY, base);
        w.drain();
    }
    assert!(w.b.queue.len() > 10, "nobody waits for a frame");
    waiting
}

/// It stands in the queue until there is a frame, and is served twice: that is one fault.
#[test]
fn who_waits_for_a_frame_is_no_second_fault() {
    let (mut w, told) = all_away(64);
    let waiting = wait_for_frames(&mut w, &[3]);
    waiting.into_iter().for_each(|base| w.touch(KEY, base));
    w.settle(10_000);
    let told = told.lock().unwrap();
    assert!(told.len() > 10, "{told:?}");
    assert!(told.iter().all(|&(_, wanted)| !wanted), "no page was touched twice: {told:?}");
}

/// Two threads wait in one page before either has a frame: that is a second fault, and all of it comes.
#[test]
fn two_that_wait_for_a_frame_in_one_page_get_all_of_it() {
    let (mut w, told) = all_away(64);
    let waiting = wait_for_frames(&mut w, &[3, 9]);
    let count = |of: bool, list: &[(u64, bool)]| list.iter().filter(|&&(_, wanted)| wanted == of).count();
    let before = count(false, &told.lock().unwrap());
    waiting.iter().for_each(|&base| w.touch(KEY, base));
    w.settle(10_000);
    let told = told.lock().unwrap();
    assert!(count(true, &told) > 10, "{told:?}");
    let is_second =
        |&(base, wanted): &(u64, bool)| !wanted && waiting.iter().any(|b| b / PAGE == base / PAGE);
    assert!(!told[..].iter().skip(before).any(is_second), "each of these was touched twice: {told:?}");
}

/// What is discarded, or moved, is not told of.
#[test]
fn what_is_discarded_says_nothing() {
    let (mut w, told) = all_away(1 << 20);
    touch(&mut w, 165);
    let now = w.time();
    w.b.handle_removed(now, KEY, BaseRange::new(160, 176));
    w.drain();
    for base in 160..176 {
        w.truth.remove(&(KEY, base));
        w.present.remove(&(KEY, base));
    }
    (160..176).for_each(|base| w.step(&Op::Write { space: 0, base, value: base }));
    w.send_away(KEY, 160..176);
    assert_eq!(told.lock().unwrap()[..], []);
    w.read_all();
}
