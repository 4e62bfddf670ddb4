//! Pages of many sizes at once.

use super::*;
use crate::draw::Draw;
use crate::page_size::{Brought, Fill, Filled, Left, PageSize, PageSizer, Place, Probed, Seen};
use std::sync::{Arc, Mutex};

/// Sizes without any reason, and a base page left out of every other page.
#[derive(Debug)]
pub(super) struct Wild {
    draw: Draw,
}

impl Wild {
    pub(super) fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed) }
    }
}

impl PageSizer for Wild {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(self.draw.below(PageSize::COUNT as u64) as u8)
    }
    fn largest(&self) -> PageSize {
        PageSize::LARGEST
    }
    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        assert!(page.fetched.0 > 0 && page.fetched.0 <= page.size.base_pages());
        let hole = page.size.first(page.fault.base) + self.draw.below(page.size.base_pages());
        (hole != page.fault.base && self.draw.below(2) == 0).then_some(hole)
    }
    fn rescue_size(&mut self, _: Place, size: PageSize) -> PageSize {
        PageSize::from_log2(self.draw.below(u64::from(size.log2()) + 1) as u8)
    }
    fn rescued(&mut self, at: Place, _: PageSize, most: PageSize) -> Option<u64> {
        let base = most.first(at.base) + self.draw.below(most.base_pages());
        (base != at.base).then_some(base)
    }
    fn watched(&mut self, probe: &Probed) {
        assert!(probe.part == 7 && probe.seen == Seen::Rescued && probe.reach <= PageSize::LARGEST);
        assert!(probe.reach > PageSize::SMALLEST && (probe.wanted || probe.after == BasePages(0)));
    }
    fn comes_alone(&mut self, _: Place, _: PageSize) -> bool {
        self.draw.below(2) == 0
    }
    fn alone(&mut self, probe: &Probed) {
        assert!(probe.part == 7 && probe.seen == Seen::Alone && probe.size.base_pages() >= 4);
    }
    fn watches_pages(&self) -> bool {
        true
    }
    fn part(&self) -> u8 {
        7
    }
    fn left(&mut self, _: Instant, page: &Left) {
        assert!(page.pages.0 > 0 && page.pages.0 <= page.size.base_pages());
        assert_eq!(page.size.first(page.first.base), page.first.base);
        assert!(page.part == 7 && page.together >= page.came_with);
    }
    fn filled(&mut self, page: &Filled<'_>) -> Option<Probed> {
        let first = page.size.first(page.bases[0].0);
        assert!(page.bases.iter().all(|&(base, _)| page.size.first(base) == first), "one page's: {page:?}");
        assert!(page.bases.is_sorted_by(|a, b| a.0 < b.0));
        // 0: it was there before anybody sized pages, or was moved.
        assert!([0, 7].contains(&page.part) && page.bases.iter().any(|&(_, fill)| fill.is_of_zeros()));
        let &(base, fill) = page.bases.iter().find(|&&(_, fill)| fill.is_of_zeros())?;
        let (place, wanted) = (Place { space: page.space, base }, fill == Fill::Written);
        let reach = page.size;
        (page.part == 7 && reach > PageSize::SMALLEST).then_some(Probed {
            place,
            part: 7,
            size: page.size,
            reach,
            wanted,
            after: BasePages(0),
            seen: Seen::Filled,
        })
    }
    fn probed(&mut self, _: Instant, probe: &Probed) {
        assert!(probe.part == 7 && probe.reach > PageSize::SMALLEST && probe.reach <= probe.size);
    }
}

/// One size after the other.
#[derive(Debug)]
struct InTurn(std::vec::Vec<u8>);

impl PageSizer for InTurn {
    fn size(&mut self, at: Place) -> PageSize {
        PageSize::from_log2(self.0[(at.base / 256) as usize % self.0.len()])
    }
    fn largest(&self) -> PageSize {
        PageSize::LARGEST
    }
}

/// Listens to how far behind each other base pages come.
#[derive(Debug)]
struct Gaps(PageSize, Arc<Mutex<std::vec::Vec<Duration>>>);

impl PageSizer for Gaps {
    fn size(&mut self, _: Place) -> PageSize {
        self.0
    }
    fn largest(&self) -> PageSize {
        self.0
    }
    fn streamed(&mut self, pages: BasePages, span: Duration) {
        assert_eq!(pages, BasePages(1));
        self.1.lock().unwrap().push(span);
    }
}

/// Where the second base page comes as late as it is asked for, behind the first, it says nothing; so of pages of two there is nothing to be seen there.
#[test]
fn the_second_base_page_tells_what_base_pages_cost_if_it_is_asked_for_with_the_first() {
    for (log2, in_pieces) in (0..6).flat_map(|log2| [(log2, false), (log2, true)]) {
        let (mut w, key) = away_world();
        let size = PageSize::from_log2(log2);
        if in_pieces {
            w.b.plan_in_pieces();
        }
        let heard = Arc::new(Mutex::new(std::vec::Vec::new()));
        w.b.size_pages(Box::new(Gaps(size, heard.clone())), PageSize::SMALLEST);
        w.touch(key, 70);
        w.finish();
        assert_eq!(away(&w, key), 512 - size.base_pages());
        let spans = heard.lock().unwrap();
        let silent = if in_pieces { 2 } else { 1 };
        assert_eq!(spans.len() as u64, size.base_pages().saturating_sub(silent), "of {size:?}");
        assert!(spans.iter().all(|span| span.0 > 0));
    }
}

/// A borrower whose first two extents are away, and nothing of them in a buffer.
fn away_world() -> (World, SpaceKey) {
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    w.b.prefetcher = Box::new(NoPrefetch);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.finish();
    let key = w.spaces[0];
    assert_eq!(away(&w, key), 512);
    (w, key)
}

fn away(w: &World, key: SpaceKey) -> u64 {
    (0..512).filter(|&base| w.b.state(key, base) == BaseState::Away).count() as u64
}

/// Two extents with pages of different sizes: a fault in each brings a page of its own size, and no more.
#[test]
fn each_place_has_its_own_size() {
    let (mut w, key) = away_world();
    w.b.size_pages(Box::new(InTurn(std::vec![2, 5])), PageSize::from_log2(2));
    w.touch(key, 9);
    w.finish();
    assert_eq!(away(&w, key), 512 - 4);
    w.touch(key, 256 + 70);
    w.finish();
    assert_eq!(away(&w, key), 512 - 4 - 32);
}

/// A large page around smaller ones that are here fetches what is missing alone (aapc-2012, figure 4b), and leaves as a whole later.
#[test]
fn a_fragmented_page_becomes_whole_again() {
    let (mut w, key) = away_world();
    for base in [3, 17, 40] {
        w.touch(key, base);
    }
    w.finish();
    let remote = w.gets.len();
    w.b.size_pages(Box::new(InTurn(std::vec![6])), PageSize::SMALLEST);
    w.touch(key, 20);
    w.finish();
    assert_eq!(away(&w, key), 512 - 64);
    assert_eq!(w.gets.len() - remote, 64 - 3, "what is here is not fetched again");
    // Whatever their sizes, they leave.
    for base in 512..PAGES {
        w.touch(key, base);
    }
    w.finish();
    assert_eq!(away(&w, key), 512);
}

/// A base page that was left out is away though its page is here, and comes by itself.
#[test]
fn what_is_left_out_of_a_page_comes_when_it_is_wanted() {
    let mut holes = 0;
    for seed in 1..=4 {
        let (mut w, key) = away_world();
        w.b.size_pages(Box::new(Wild::new(seed)), PageSize::SMALLEST);
        for base in (0..512).step_by(13) {
            if w.b.state(key, base) != BaseState::Away {
                continue;
            }
            let before: BTreeSet<u64> = w.b.holes.bases().collect();
            w.touch(key, base);
            w.finish();
            for hole in w.b.holes.bases().filter(|hole| !before.contains(hole)).collect::<Vec<_>>() {
                holes += 1;
                assert_eq!(w.b.state(key, hole), BaseState::Away);
                w.touch(key, hole);
            }
        }
        w.read_all();
    }
    assert!(holes > 3, "{holes} were left out");
}

/// The part of a page that has left, and what became of its base pages.
type Told = Vec<(u8, Vec<(u64, Fill)>)>;

/// Pages of 16 base pages, in part 3, and what is said of the zeros of those that begin with this one: the base page that was written first.
#[derive(Debug)]
struct Listens(Arc<Mutex<Told>>, Arc<Mutex<Vec<u64>>>);

impl PageSizer for Listens {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(4)
    }
    fn largest(&self) -> PageSize {
        PageSize::from_log2(4)
    }
    fn watches_pages(&self) -> bool {
        true
    }
    fn part(&self) -> u8 {
        3
    }
    fn filled(&mut self, page: &Filled<'_>) -> Option<Probed> {
        self.0.lock().unwrap().push((page.part, page.bases.to_vec()));
        let &(base, _) = page.bases.iter().find(|&&(_, fill)| fill == Fill::Written)?;
        let (place, size) = (Place { space: page.space, base }, page.size);
        Some(Probed {
            place,
            part: page.part,
            size,
            reach: size,
            wanted: true,
            after: BasePages(0),
            seen: Seen::Filled,
        })
    }
    fn probed(&mut self, _: Instant, probe: &Probed) {
        self.1.lock().unwrap().push(probe.place.base);
    }
}

/// Zeros that are written, zeros that are not, and what has come with contents are told apart when a page leaves.
#[test]
fn a_page_that_leaves_tells_what_became_of_its_zeros() {
    let mut w = World::new(1, true, 600, 1);
    let key = w.spaces[0];
    w.b.prefetcher = Box::new(NoPrefetch);
    let told = Arc::new(Mutex::new(Told::default()));
    w.b.size_pages(Box::new(Listens(Arc::clone(&told), Arc::default())), PageSize::SMALLEST);
    let push_out = |w: &mut World| {
        for base in 512..PAGES {
            w.touch(key, base);
            w.finish();
        }
        let of = |bases: &[(u64, Fill)]| bases[0].0 == 0;
        let filled = core::mem::take(&mut *told.lock().unwrap());
        filled.into_iter().filter(|(_, bases)| of(bases)).collect::<Vec<_>>()
    };
    let page = |fill: &dyn Fn(u64) -> Fill| vec![(3, (0..16).map(|base| (base, fill(base))).collect())];
    for base in [2, 5] {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.finish();
    let written = |base: u64| [2, 5].contains(&base);
    let first = push_out(&mut w);
    let is_of = |base: u64| if written(base) { Fill::Written } else { Fill::Unwritten };
    assert_eq!(first, page(&is_of));
    // It comes back with what was written, and zeros again, of which one is written now; and one that had been is others.
    w.touch(key, 5);
    w.step(&Op::Write { space: 0, base: 2, value: 20 });
    w.step(&Op::Write { space: 0, base: 9, value: 10 });
    w.finish();
    let is_of = |base: u64| match base {
        9 => Fill::Written,
        2 => Fill::Rewritten,
        base if written(base) => Fill::Other,
        _ => Fill::Unwritten,
    };
    assert_eq!(push_out(&mut w), page(&is_of));
    w.read_all();
}

/// What the zeros of a page say is said when it cannot come back from a buffer any more. If it does come back it has not left, and of what came with contents then it is said at once.
#[test]
fn of_zeros_nothing_is_said_while_their_page_may_be_back_at_once() {
    for comes_back in [false, true] {
        let mut w = World::new(1, true, 600, 1);
        let key = w.spaces[0];
        w.b.prefetcher = Box::new(NoPrefetch);
        let said = Arc::new(Mutex::new(Vec::new()));
        w.b.size_pages(Box::new(Listens(Arc::default(), Arc::clone(&said))), PageSize::SMALLEST);
        let of_it = || said.lock().unwrap().iter().copied().filter(|&base| base < 16).collect::<Vec<_>>();
        w.step(&Op::Write { space: 0, base: 2, value: 3 });
        w.settle(16);
        let mut others = (512..PAGES).step_by(16);
        while w.b.state(key, 2) != BaseState::Away {
            w.touch(key, others.next().expect("it leaves before all others have come"));
            w.settle(16);
        }
        assert_eq!(of_it(), []);
        let fetched = w.gets.len();
        if comes_back {
            w.touch(key, 2);
            w.step(&Op::Write { space: 0, base: 9, value: 10 });
            w.settle(16);
            assert_eq!(w.gets.len(), fetched, "it was in a buffer");
        }
        for base in (512..PAGES).chain(512..PAGES).chain(512..PAGES) {
            w.step(&Op::Write { space: 0, base, value: base });
            w.settle(16);
        }
        assert_eq!(of_it(), [if comes_back { 9 } else { 2 }]);
        w.read_all();
    }
}

/// Base pages that faults have brought, and that were fetched ahead.
#[derive(Debug, Default)]
struct Counts(Arc<Mutex<(u64, u64)>>);

impl PageSizer for Counts {
    fn size(&mut self, _: Place) -> PageSize {
        PageSize::from_log2(1)
    }
    fn largest(&self) -> PageSize {
        PageSize::from_log2(1)
    }
    fn brought(&mut self, _: Instant, page: &Brought) -> Option<u64> {
        self.0.lock().unwrap().0 += page.fetched.0;
        None
    }
    fn fetched_ahead(&mut self, pages: BasePages) {
        self.0.lock().unwrap().1 += pages.0;
    }
}

#[test]
fn all_that_is_fetched_is_told_as_a_faults_or_as_fetched_ahead() {
    let (mut w, key) = away_world();
    w.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(64)));
    let counts = Counts::default();
    let told = Arc::clone(&counts.0);
    w.b.size_pages(Box::new(counts), PageSize::SMALLEST);
    let mut asked = 0;
    for base in (0..200).chain([400, 300]) {
        let before = w.gets.len();
        w.touch(key, base);
        asked += w.gets.len() - before;
        w.finish();
    }
    let (brought, ahead) = *told.lock().unwrap();
    assert_eq!((brought + ahead) as usize, asked);
    assert!(ahead > 100 && brought > 4, "{ahead} ahead, {brought} by faults");
}
