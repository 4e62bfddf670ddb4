//! On what terms ranges are paged: how large their pages are, and how these come; how long that holds, and how much of it can be remembered. It moves
//! pages, and changes no byte (the property tests of all operations do that, too).

use super::*;
use crate::page_size::{Brought, Left, PageSize, PageSizer, Place};

pub(super) const KEY: SpaceKey = SpaceKey(0);

pub(super) fn terms() -> impl Strategy<Value = Terms> {
    let page = proptest::option::of((0_u8..9).prop_map(PageSize::from_log2));
    let plan = proptest::option::of((0..FETCH_PLANS.len()).prop_map(|n| FetchPlan::numbered(n).unwrap()));
    let local = proptest::option::of((1_u64..600).prop_map(BasePages));
    (page, plan, local).prop_map(|(page, plan, local)| Terms { page, plan, local })
}

pub(super) fn pages_of(page: u64) -> Terms {
    Terms { page: PageSize::new(BasePages(page)), ..Terms::default() }
}

pub(super) fn local(pages: u64) -> Terms {
    Terms { local: Some(BasePages(pages)), ..Terms::default() }
}

pub(super) fn range(start: u64, end: u64) -> BaseRange {
    BaseRange::new(start, end)
}

pub(super) fn write(w: &mut World, start: u64, end: u64) {
    for base in start..end {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    settle(w);
}

pub(super) fn read(w: &mut World, bases: impl IntoIterator<Item = u64>) {
    for base in bases {
        w.step(&Op::Read { space: 0, base });
        settle(w);
    }
}

pub(super) fn settle(w: &mut World) {
    while w.b.has_plans() || !w.pending.is_empty() {
        w.complete(1);
        let now = w.time();
        w.b.handle_plans(now, 10_000);
        w.drain();
    }
}

pub(super) fn here(w: &World, start: u64, end: u64) -> Vec<u64> {
    (start..end).filter(|&base| w.b.state(KEY, base) == BaseState::Local).collect()
}

pub(super) fn count(w: &World, start: u64, end: u64) -> u64 {
    here(w, start, end).len() as u64
}

pub(super) fn set(w: &mut World, start: u64, end: u64, terms: Terms) {
    assert_eq!(w.b.handle_terms(KEY, range(start, end), terms), Ok(()));
    settle(w);
}

/// Everything is away, there is room for all, and nothing is fetched ahead.
pub(super) fn all_away(page: u64) -> World {
    let mut w = World::new(page, false, 1 << 20, 1);
    w.b.config.rescue = false; // what is away is in no buffer
    w.b.prefetcher = Box::new(NoPrefetch);
    write(&mut w, 0, PAGES);
    let now = w.time();
    w.b.handle_advice(now, KEY, range(0, PAGES.next_multiple_of(page)), Advice::WillNotNeed);
    settle(&mut w);
    assert_eq!(count(&w, 0, PAGES), 0);
    w.b.config.rescue = true;
    w
}

#[test]
fn a_range_has_pages_of_its_own_size() {
    for (page, own) in [(1, 16), (16, 1), (16, 4), (4, 256)] {
        let mut w = all_away(page);
        set(&mut w, 256, 1024, pages_of(own));
        read(&mut w, [256 + 37, 100]);
        let first = (256 + 37) / own * own;
        assert_eq!(here(&w, 256, PAGES), (first..first + own).collect::<Vec<_>>(), "of {own}");
        assert_eq!(count(&w, 0, 256), page, "of the process outside");
        // Taken back it is as it was.
        set(&mut w, 256, 1024, Terms::default());
        read(&mut w, [800]);
        assert_eq!(count(&w, 768, 1024), page);
        w.read_all();
    }
}

/// No page has memory of both sides: at an edge they are as large as fits, of either side.
#[test]
fn pages_end_at_the_edges() {
    let mut w = all_away(64);
    set(&mut w, 70, 150, pages_of(16));
    read(&mut w, [75]);
    assert_eq!(here(&w, 0, 300), (72..80).collect::<Vec<_>>());
    read(&mut w, [70, 149]);
    assert_eq!(here(&w, 0, 72), [70, 71]);
    assert_eq!(here(&w, 80, 300), (148..150).collect::<Vec<_>>());
    read(&mut w, [69, 160]);
    assert_eq!(here(&w, 0, 70), [68, 69], "nor of the outside");
    assert_eq!(here(&w, 150, 300), (160..192).collect::<Vec<_>>());
    w.read_all();
}

#[test]
fn fresh_memory_comes_in_that_size() {
    let mut w = World::new(4, false, 1 << 20, 1);
    w.b.prefetcher = Box::new(NoPrefetch);
    set(&mut w, 512, 1024, pages_of(32));
    read(&mut w, [600, 100]);
    assert_eq!(here(&w, 512, 1024), (576..608).collect::<Vec<_>>());
    assert_eq!(count(&w, 0, 512), 4);
}

/// In no order, and in pages of more than one base page: the size holds, and nothing is fetched ahead.
#[test]
fn a_size_of_its_own_holds_for_what_has_no_order() {
    let mut w = all_away(4);
    w.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(64)));
    assert!(w.b.handle_pattern(KEY, range(0, 1024), Pattern::Random));
    set(&mut w, 0, 1024, pages_of(8));
    read(&mut w, (0..10).map(|n| n * 8));
    assert_eq!(count(&w, 0, PAGES), 80);
}

/// Streams keep to the pages of the range, and end at its edge.
#[test]
fn streams_end_where_the_terms_do() {
    let mut w = all_away(1);
    w.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(64)));
    set(&mut w, 0, 512, pages_of(8));
    let before = w.b.stats().faults;
    read(&mut w, 0..504);
    assert!(w.b.stats().faults - before < 60, "{}", w.b.stats().faults - before);
    assert_eq!(count(&w, 512, PAGES), 0);
    let mut plain = all_away(1);
    plain.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(64)));
    read(&mut plain, 0..504);
    assert!(count(&plain, 512, PAGES) > 0, "nothing was tested");
}

/// It chooses base pages, and learns from nothing.
#[derive(Debug)]
struct Deaf;

impl PageSizer for Deaf {
    fn size(&mut self, at: Place) -> PageSize {
        assert!(!(256..1024).contains(&at.base), "the size of {} is told", at.base);
        PageSize::from_log2(4)
    }
    fn largest(&self) -> PageSize {
        PageSize::from_log2(4)
    }
    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        assert!(page.fault.base < 240, "it has not chosen the page of {}", page.fault.base);
        None
    }
    fn watches_pages(&self) -> bool {
        true
    }
    fn left(&mut self, _: Instant, page: &Left) {
        assert!(page.first.base < 240, "it has not chosen the page of {}", page.first.base);
    }
}

#[test]
fn sizing_neither_chooses_nor_learns() {
    let mut w = all_away(1);
    // Of the extent behind the edge only base 250 is cut.
    set(&mut w, 250, 1024, pages_of(8));
    w.b.size_pages(Box::new(Deaf), PageSize::SMALLEST);
    read(&mut w, (0..32).map(|n| n * 30));
    let now = w.time();
    w.b.handle_advice(now, KEY, range(0, PAGES), Advice::WillNotNeed);
    settle(&mut w);
    assert_eq!(count(&w, 0, PAGES), 0);
    w.b.size_pages(Box::new(crate::page_size::Fixed(PageSize::SMALLEST)), PageSize::SMALLEST);
    w.read_all();
}

/// What memory is held ready for: a page of the range finds frames though those of the process are small.
#[test]
fn room_is_kept_for_its_pages() {
    let mut w = World::new(1, false, 900, 1);
    w.b.config.rescue = false;
    w.b.prefetcher = Box::new(NoPrefetch);
    write(&mut w, 0, PAGES);
    set(&mut w, 0, 256, pages_of(64));
    write(&mut w, 1000, PAGES);
    let before = count(&w, 0, 256);
    assert_eq!(before, 0, "nothing is tested");
    read(&mut w, [70]);
    assert_eq!(count(&w, 0, 256), 64);
    // And no longer, when it is taken back.
    let kept = w.b.page_largest();
    set(&mut w, 0, 256, Terms::default());
    assert_eq!((kept, w.b.page_largest()), (64, 1));
}

#[test]
fn a_range_has_a_plan_of_its_own() {
    let mut w = all_away(16);
    w.b.plan_fetches(BasePages(4), fetch_planner("full").unwrap());
    set(&mut w, 512, 1024, Terms { plan: FetchPlan::named("lazy"), ..Terms::default() });
    read(&mut w, [600, 100]);
    assert_eq!(here(&w, 512, 1024), (600..604).collect::<Vec<_>>(), "the touched subpage alone");
    assert_eq!(count(&w, 0, 512), 16, "and outside all");
    w.gets.clear();
    set(&mut w, 512, 1024, Terms { plan: FetchPlan::named("pipelined"), ..Terms::default() });
    read(&mut w, [693]);
    let messages: Vec<u32> = w.gets.iter().map(|get| get.1).collect();
    assert_eq!(messages, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    set(&mut w, 512, 1024, Terms::default());
    read(&mut w, [800]);
    assert_eq!(count(&w, 800, 816), 16);
    w.read_all();
}

#[test]
fn a_child_has_the_terms_and_what_goes_has_none() {
    let mut w = World::new(1, false, 1 << 20, 1);
    let own = Terms { page: PageSize::new(BasePages(2)), ..local(100) };
    set(&mut w, 0, 600, own);
    write(&mut w, 0, 600);
    w.step(&Op::Fork { space: 0 });
    w.forked.clear(); // nothing of it is busy
    for base in 0..600 {
        w.step(&Op::Write { space: 1, base, value: base + 7 });
    }
    settle(&mut w);
    let own_here = |w: &World, n: u32| {
        let space = &w.b.spaces[&SpaceKey(n)];
        (0..600)
            .map(|base| space.table.get(base))
            .filter(|of| of.state == BaseState::Local && !of.shared)
            .count()
    };
    assert!((80..=100).contains(&own_here(&w, 1)), "{} of the child", own_here(&w, 1));
    assert!(own_here(&w, 0) <= 100);
    // Moved, discarded, unmapped, freed.
    let now = w.time();
    w.b.handle_remapped(now, KEY, range(0, 100), FAR);
    w.b.handle_removed(now, KEY, range(100, 200));
    w.b.handle_unmapped(now, KEY, range(200, 300));
    w.b.handle_forgotten(KEY, range(300, 400));
    assert!(count(&w, 520, 580) > 0, "some of what is freed is here");
    w.b.handle_forgotten(KEY, range(520, 580));
    w.drain();
    let has =
        |w: &World, base: u64| w.b.mark(KEY, base).budget.is_some() && w.b.mark(KEY, base).page.is_some();
    assert!(has(&w, FAR) && has(&w, FAR + 99) && has(&w, 400) && has(&w, 599));
    assert!([0, 99, 100, 200, 299, 300, 399, 520, 579, 600, FAR + 100].iter().all(|&base| !has(&w, base)));
    assert!((0..600).all(|base| w.b.mark(SpaceKey(1), base).budget.is_some()), "the child's are its own");
    while w.b.has_advice() {
        w.b.follow_advice();
    }
    w.b.audit();
    w.step(&Op::Exit { space: 0 });
    settle(&mut w);
    assert_eq!(w.b.budgets.len(), 1, "the child's alone");
    w.b.audit();
}

#[test]
fn terms_are_bounded() {
    let mut w = all_away(1);
    for n in 0..64 {
        set(&mut w, n * 4, n * 4 + 3, local(8));
    }
    let more = |w: &mut World, n: u64, terms| w.b.handle_terms(KEY, range(n * 4, n * 4 + 3), terms);
    assert_eq!(more(&mut w, 64, local(8)), Err(TooMany::Budgets));
    assert_eq!(more(&mut w, 5, local(9)), Ok(()), "in place of another");
    assert_eq!(more(&mut w, 64, pages_of(4)), Ok(()), "no budget");
    assert_eq!(more(&mut w, 6, Terms::default()), Ok(()), "taken back");
    assert_eq!(more(&mut w, 64, local(8)), Ok(()));
    w.step(&Op::UnmapAndMap { space: 0, base: 28, len: 4 });
    assert_eq!(more(&mut w, 65, local(8)), Ok(()), "what it was said of has gone");
    assert_eq!(more(&mut w, 66, local(8)), Err(TooMany::Budgets));
    let said = (0..10_000).filter(|n| more(&mut w, 1000 + n, pages_of(4)).is_ok()).count();
    assert!((4000..4096).contains(&said), "{said}");
    assert_eq!(more(&mut w, 90_000, pages_of(4)), Err(TooMany::Ranges));
    assert_eq!(more(&mut w, 5, local(9)), Ok(()));
    assert_eq!(w.b.handle_terms(SpaceKey(77), range(0, 1), local(1)), Ok(()), "nobody's");
    assert_eq!(w.b.handle_terms(KEY, range(5, 5), local(1)), Ok(()));
    assert!(w.b.budgets.len() <= 65, "{} are remembered", w.b.budgets.len());
    assert_eq!(w.b.handle_terms(KEY, range(0, 1 << 40), Terms::default()), Ok(()));
    assert_eq!(w.b.budgets.len(), 0);
    w.b.audit();
    w.read_all();
}
