use super::*;
use alloc::collections::BTreeSet;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

const SPACE: SpaceKey = SpaceKey(0);

/// A pager with FIFO replacement around a sizer. Time passes by what it does.
struct Pager {
    sizer: Adaptive,
    limit: u64,
    local: BTreeSet<u64>,
    /// Pages in the order in which they came: first base page and size.
    order: VecDeque<(u64, PageSize)>,
    holes: BTreeMap<u64, Hole>,
    /// Of each page that has come, by its first base page.
    together: BTreeMap<u64, With>,
    now_ns: u64,
    faults: u64,
    fetched: u64,
}

/// A base page that was left out of a page.
struct Hole {
    base: u64,
    part: u8,
    reach: PageSize,
    /// How far memory had been turned over when the page came, and how much farther when it was wanted.
    came_at: u64,
    after: u64,
}

/// A page, and the largest pages around it that were here, when it came and at most.
struct With {
    part: u8,
    size: PageSize,
    first: PageSize,
    most: PageSize,
}

const FAULT_NS: u64 = 20_000;
const BASE_PAGE_NS: u64 = 2_000;

impl Pager {
    fn new(limit: u64, start: u8) -> Self {
        let start = PageSize::from_log2(start);
        let mut sizer = Adaptive::new(PageSize::SMALLEST, start, PageSize::LARGEST, 7);
        sizer.limited(BasePages(limit));
        let (local, order, holes) = (BTreeSet::new(), VecDeque::new(), BTreeMap::new());
        Self {
            sizer,
            limit,
            local,
            order,
            holes,
            together: BTreeMap::new(),
            now_ns: 0,
            faults: 0,
            fetched: 0,
        }
    }

    fn place(base: u64) -> Place {
        Place { space: SPACE, base }
    }

    fn evict(&mut self, room: u64) {
        while self.local.len() as u64 + room > self.limit {
            let (first, size) = self.order.pop_front().expect("what is local came once");
            let page = first..first + size.base_pages();
            if let Some(Hole { base, part, reach, after, .. }) = self.holes.remove(&first) {
                let (wanted, after) = (self.local.contains(&base), BasePages(after));
                let (place, seen) = (Self::place(base), Seen::LeftOut);
                let probe = Probed { place, part, size, reach, wanted, after, seen };
                self.sizer.probed(Instant(self.now_ns), &probe);
            }
            let before = self.local.len();
            page.for_each(|b| {
                self.local.remove(&b);
            });
            let pages = BasePages((before - self.local.len()) as u64);
            if let Some(with) = self.together.remove(&first) {
                let first = Self::place(first);
                let (part, came_with, together) = (with.part, with.first, with.most);
                let left = Left { first, part, size, pages, came_with, together };
                self.sizer.left(Instant(self.now_ns), &left);
            }
        }
    }

    fn touch(&mut self, base: u64) {
        if self.local.contains(&base) {
            return;
        }
        self.faults += 1;
        let holes = self.holes.range_mut(base.saturating_sub(255)..=base);
        if let Some((_, hole)) = { holes }.find(|(_, hole)| hole.base == base) {
            hole.after = self.sizer.turned_over().0 - hole.came_at;
        }
        let size = self.sizer.size(Self::place(base));
        let first = size.first(base);
        let n = size.base_pages();
        let missing: Vec<u64> = (first..first + n).filter(|b| !self.local.contains(b)).collect();
        self.evict(missing.len() as u64);
        let fetched = BasePages(missing.len() as u64);
        self.fetched += fetched.0;
        self.now_ns += FAULT_NS + BASE_PAGE_NS * fetched.0;
        self.sizer.waited(Duration(FAULT_NS));
        self.sizer.streamed(fetched, Duration(BASE_PAGE_NS * fetched.0));
        let page = Brought { fault: Self::place(base), size, fetched };
        let hole = self.sizer.brought(Instant(self.now_ns), &page);
        self.local.extend(missing.iter().filter(|&&b| Some(b) != hole));
        self.order.push_back((first, size));
        let mut came_with = size;
        for larger in PageSize::all().skip(1 + usize::from(size.log2())) {
            let around = larger.first(first)..larger.first(first) + larger.base_pages();
            let pages = around.clone().step_by(n as usize);
            let brought = pages.filter(|&p| p == first || self.together.range(p..p + n).next().is_some());
            if brought.count() as u64 * n * 4 >= larger.base_pages() * 3 {
                came_with = larger;
                let pages = self.together.range_mut(around).filter(|(_, with)| with.size >= size);
                pages.for_each(|(_, with)| with.most = larger.max(with.most));
            }
        }
        self.together
            .insert(first, With { part: self.sizer.part(), size, first: came_with, most: came_with });
        if let Some(hole) = hole {
            let reach = PageSize::from_log2((u64::BITS - (base ^ hole).leading_zeros()) as u8);
            let (base, part, came_at) = (hole, self.sizer.part(), self.sizer.turned_over().0);
            self.holes.insert(first, Hole { base, part, reach, came_at, after: 0 });
        }
    }

    fn size(&mut self, base: u64) -> PageSize {
        self.sizer.size(Self::place(base))
    }
}

#[test]
fn a_sweep_over_much_memory_has_large_pages() {
    let mut pager = Pager::new(8_192, 4);
    for _ in 0..4 {
        (0..65_536).for_each(|base| pager.touch(base));
    }
    assert!(pager.size(30_000) >= PageSize::from_log2(5), "{}", pager.size(30_000));
    let before = pager.faults;
    (0..65_536).for_each(|base| pager.touch(base));
    // Of 32 base pages a fault, and one more for the probe that every third page has.
    assert!(pager.faults - before < 65_536 / 22, "{} faults", pager.faults - before);
}

#[test]
fn random_touches_have_the_smallest_pages() {
    let mut pager = Pager::new(8_192, 4);
    let mut draw = Draw::new(3);
    for _ in 0..60_000 {
        pager.touch(draw.below(40_000));
    }
    let sizes: Vec<u8> = (0..40_000).step_by(2048).map(|base| pager.size(base).log2()).collect();
    // At 8 KiB a wanted base page costs hardly more than at 4 KiB here, as many are wanted by chance.
    assert!(sizes.iter().all(|&log2| log2 <= 2), "{sizes:?}");
    assert!(sizes.iter().map(|&log2| u32::from(log2)).sum::<u32>() <= 24, "{sizes:?}");
}

/// Like a database's buffers: blocks of 16 KiB in no order, most of them wanted again and again. Of larger pages most is wanted as well, but late, and takes frames until then.
#[test]
fn blocks_in_no_order_have_pages_of_their_size() {
    let time = |least: u8, most: u8| {
        let mut pager = Pager::new(8_192, most.min(6));
        let (least, start, most) =
            (PageSize::from_log2(least), PageSize::from_log2(most.min(6)), PageSize::from_log2(most));
        pager.sizer = Adaptive::new(least, start, most, 7);
        pager.sizer.limited(BasePages(8_192));
        let mut draw = Draw::new(3);
        let mut run = |pager: &mut Pager, blocks: u64| {
            for _ in 0..blocks {
                // Half of them are of a quarter.
                let of = if draw.below(2) == 0 { 4_096 / 4 } else { 4_096 };
                let block = draw.below(of) * 1_021 % 4_096 * 4;
                (block..block + 4).for_each(|base| pager.touch(base));
            }
        };
        run(&mut pager, 40_000);
        let before = pager.now_ns;
        run(&mut pager, 80_000);
        (pager.now_ns - before) / 1_000_000
    };
    let fixed: Vec<u64> = (0..=6).map(|log2| time(log2, log2)).collect();
    let found = time(0, 8);
    assert!(found * 100 <= fixed[2] * 110, "{found} ms, with one size {fixed:?}");
}

/// Small pages are no reason for small pages: nothing shows any more how early what is around them would come.
#[test]
fn larger_pages_are_tried_again() {
    let (small, large) = (PageSize::SMALLEST, PageSize::from_log2(2));
    let mut evidence = Evidence::default();
    for n in 0..48 {
        let (place, reach, seen) =
            (Pager::place(n * 4), PageSize::from_log2(1 + (n % 2) as u8), Seen::LeftOut);
        let probe = Probed { place, part: 0, size: large, reach, wanted: true, after: BasePages(0), seen };
        evidence.probed(&probe, 0.6);
        let pages = BasePages(1);
        evidence.left(&Left { first: place, part: 0, size: small, pages, came_with: small, together: large });
    }
    let back = Back { share: 0.9, rate: 2.0 };
    let judged = |evidence: &Evidence| evidence.judge(None, small, (small, large), Costs::default(), back);
    assert!(judged(&evidence).is_none());
    let mut eighths = 0;
    while judged(&evidence).is_none() {
        eighths += 1;
        evidence.forget_early(small);
        assert!(eighths < 24, "after three turns");
    }
    assert!(eighths > 4, "{eighths}");
}

#[test]
fn what_a_place_begins_with_is_given_up_in_steps() {
    let mut pager = Pager::new(16_384, 6);
    let mut draw = Draw::new(3);
    for _ in 0..60_000 {
        pager.touch(draw.below(80_000));
    }
    let mut shrank = BTreeSet::new();
    let (mut first_steps, mut at_once) = (0, 0);
    let changes = core::iter::from_fn(|| pager.sizer.poll_change());
    for change in changes.filter(|change| change.to < change.from) {
        let place = match change.scope {
            Scope::All => None,
            Scope::Range(at, _) => Some(at.base),
        };
        let halvings = change.from.log2() - change.to.log2();
        // A place that has followed its part may be smaller by then.
        let is_first = shrank.insert(place) && change.from == PageSize::from_log2(6);
        if is_first {
            assert!(halvings <= FIRST_HALVINGS, "{change:?}");
            first_steps += 1;
        } else {
            at_once += u32::from(halvings > FIRST_HALVINGS);
        }
    }
    assert!(first_steps > 0, "{first_steps} places");
    assert!(at_once > 0, "later sizes shrink to where they should be");
    assert!((0..80_000).step_by(2048).all(|base| pager.size(base).log2() <= 2));
}

/// Memory is filled from its begin to its end, and used in no order then. Nothing has been fetched when that begins, so what filling has shown is all that is known; and that is of
/// another use. Places are many, and what becomes of one page in each says it of all.
#[test]
fn how_memory_was_filled_says_little_of_how_it_is_used() {
    let mut pager = Pager::new(16_384, 6);
    let memory = 256 * PLACE_BASE_PAGES;
    let size = PageSize::from_log2(5);
    for base in (0..memory).step_by(32) {
        let probe = |reach| Probed {
            place: Pager::place(base),
            part: 0,
            size,
            reach,
            wanted: true,
            after: BasePages(0),
            seen: Seen::Filled,
        };
        (1..=5).for_each(|log2| pager.sizer.probed(Instant(0), &probe(PageSize::from_log2(log2))));
    }
    let mut draw = Draw::new(3);
    (0..2_000).for_each(|_| pager.touch(draw.below(memory)));
    let before = pager.fetched;
    (0..10_000).for_each(|_| pager.touch(draw.below(memory)));
    // Of the first size it would be 64 for each.
    assert!(pager.fetched - before < 40_000, "{} base pages for 10,000 touches", pager.fetched - before);
}

/// A place of which nothing is known has the size of its part also if it was there before.
#[test]
fn a_place_without_a_size_of_its_own_has_that_of_its_part() {
    let mut pager = Pager::new(8_192, 6);
    let mut draw = Draw::new(3);
    let alone = 50 * PLACE_BASE_PAGES;
    pager.touch(alone);
    (0..30_000).for_each(|_| pager.touch(draw.below(40_000)));
    let size = pager.sizer.part_known().size;
    assert!(size <= PageSize::from_log2(2), "{size}");
    pager.touch(alone + 1000); // with the size that it had: who comes by looks
    assert_eq!(pager.size(alone), size);
}

/// Of much memory a page leaves late. What was left out and nobody has waited for long before is told then, if there is so much of it that nobody will.
#[test]
fn what_nobody_waits_for_is_known_before_it_leaves() {
    let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::from_log2(6), PageSize::LARGEST, 7);
    sizer.limited(BasePages(1 << 20));
    let probe = |n: u64, wanted, seen| Probed {
        place: Pager::place(n * 64),
        part: 0,
        size: PageSize::from_log2(6),
        reach: PageSize::from_log2(1 + (n % 6) as u8),
        wanted,
        after: BasePages(0),
        seen,
    };
    let row = UNWANTED_MIN as usize;
    let mut aged = |n, wanted| sizer.aged(Instant(0), &probe(n, wanted, Seen::LeftOut));
    let told: Vec<bool> = (0..400).map(|n| aged(n, false)).collect();
    assert!(told[..row].iter().all(|&told| !told) && told[row..].iter().all(|&told| told));
    assert!(!aged(400, true) && !aged(401, false), "one that is wanted: another row begins");
    assert!(sizer.size(Pager::place(0)) <= PageSize::from_log2(4), "nothing has left, and the size is found");
    // Where they are wanted after all it is not believed again.
    (row as u64..120).for_each(|n| sizer.probed(Instant(0), &probe(n, true, Seen::Again)));
    let told = (0..400).filter(|&n| sizer.aged(Instant(0), &probe(n, false, Seen::LeftOut))).count();
    assert_eq!(told, 0);
}

#[test]
fn what_was_told_too_early_is_taken_back() {
    let (reach, size) = (PageSize::from_log2(1), PageSize::from_log2(6));
    let probe = |wanted, seen| Probed {
        place: Pager::place(0),
        part: 0,
        size,
        reach,
        wanted,
        after: BasePages(0),
        seen,
    };
    let (mut corrected, mut plain) = (Evidence::default(), Evidence::default());
    for wanted in [true, false, true, true, false] {
        plain.probed(&probe(wanted, Seen::LeftOut), 0.0);
        corrected.probed(&probe(false, Seen::LeftOut), 0.0);
        corrected.probed(&probe(wanted, Seen::Again), 0.0);
    }
    assert_eq!(corrected.wanted_share(None, reach), plain.wanted_share(None, reach));
    assert_eq!(corrected.probes(), plain.probes());
}

#[test]
fn a_sweep_and_random_touches_side_by_side_have_their_own_sizes() {
    let mut pager = Pager::new(8_192, 4);
    let mut draw = Draw::new(5);
    for n in 0..400_000_u64 {
        pager.touch(n % 65_536);
        if n % 4 == 0 {
            pager.touch(100_000 + draw.below(40_000));
        }
    }
    assert!(pager.size(20_000) >= PageSize::from_log2(5), "the sweep has {}", pager.size(20_000));
    assert!(pager.size(120_000) <= PageSize::from_log2(1), "random touches have {}", pager.size(120_000));
}

/// The z sweep of an ADI solver (aapc-2012, figures 5 and 6): lines of one element in each of many planes, and the next element of
/// each plane in the next line. Small pages stay until their next element is wanted; large ones push each other out before.
#[test]
fn pages_that_push_each_other_out_become_smaller() {
    let (planes, plane_pages, lines_a_page) = (256, 256, 8);
    let mut pager = Pager::new(4_096, 8);
    for _ in 0..3 {
        for page in 0..plane_pages {
            for _ in 0..lines_a_page {
                (0..planes).for_each(|plane| pager.touch(plane * plane_pages + page));
            }
        }
    }
    let sizes: BTreeSet<u8> = (0..64).map(|n| pager.size(n * 1024).log2()).collect();
    // 256 planes in 4,096 base pages: 16 base pages of each at most.
    assert!(sizes.iter().all(|&log2| (2..=4).contains(&log2)), "{sizes:?}");
}

/// The same after a sweep in the same part, time and again, as each direction of such a solver begins and ends: what the sweep has shown does not
/// hold for what follows it.
#[test]
fn a_sweep_does_not_speak_for_what_pushes_itself_out() {
    let (planes, plane_pages, lines_a_page) = (2048, 32, 8);
    let mut pager = Pager::new(4_096, 4);
    let mut fetched = Vec::new();
    for _ in 0..4 {
        (0..planes * plane_pages).for_each(|base| pager.touch(base));
        let before = pager.fetched;
        for page in 0..plane_pages {
            for _ in 0..lines_a_page {
                (0..planes).for_each(|plane| pager.touch(plane * plane_pages + page));
            }
        }
        fetched.push((pager.fetched - before) as f64 / (planes * plane_pages) as f64);
    }
    // With pages of 16 base pages it would be 128 times the data, with the right ones once; what the sweep has shown costs some of it in each turn.
    assert!(fetched[0] < 6.0 && fetched[1..].iter().all(|&times| times < 4.0), "{fetched:?}");
}

#[test]
fn what_a_part_leaves_behind_does_not_speak_for_it() {
    let mut pager = Pager::new(8_192, 4);
    let mut draw = Draw::new(13);
    for turn in 0..6 {
        pager.sizer.part_begins(Instant(pager.now_ns), 1);
        (0..40_000).for_each(|_| pager.touch(draw.below(65_536)));
        while pager.sizer.poll_change().is_some() {}
        pager.sizer.part_begins(Instant(pager.now_ns), 2);
        (0..65_536).for_each(|base| pager.touch(base));
        let changes = core::iter::from_fn(|| pager.sizer.poll_change());
        let late: Vec<SizeChange> = changes.filter(|change| change.part == 1).collect();
        assert!(late.is_empty(), "turn {turn}: {late:?}");
    }
}

#[test]
fn parts_have_sizes_of_their_own() {
    let mut pager = Pager::new(8_192, 4);
    let mut draw = Draw::new(9);
    for _ in 0..6 {
        pager.sizer.part_begins(Instant(pager.now_ns), 1);
        (0..65_536).for_each(|base| pager.touch(base));
        pager.sizer.part_begins(Instant(pager.now_ns), 2);
        (0..20_000).for_each(|_| pager.touch(draw.below(65_536)));
    }
    pager.sizer.part_begins(Instant(pager.now_ns), 1);
    let swept = pager.size(30_000);
    pager.sizer.part_begins(Instant(pager.now_ns), 2);
    let random = pager.size(30_000);
    assert!(swept >= PageSize::from_log2(5) && random <= PageSize::from_log2(1), "{swept} and {random}");
}

/// Without a word from the program: a sweep and a search over the same memory in turn.
#[test]
fn phases_that_nobody_names_have_sizes_of_their_own() {
    let mut pager = Pager::new(8_192, 4);
    let mut draw = Draw::new(11);
    let (mut swept, mut random) = (PageSize::SMALLEST, PageSize::SMALLEST);
    for _ in 0..8 {
        (0..65_536).for_each(|base| pager.touch(base));
        swept = pager.size(30_000);
        (0..30_000).for_each(|_| pager.touch(draw.below(65_536)));
        random = pager.size(30_000);
    }
    assert!(swept >= PageSize::from_log2(4) && random <= PageSize::from_log2(1), "{swept} and {random}");
    // And they are there again a moment after the phase has begun.
    (0..20_000).for_each(|base| pager.touch(base));
    assert_eq!(pager.size(30_000), swept);
}

#[test]
fn changes_are_told_with_their_reason() {
    let mut pager = Pager::new(16_384, 4);
    (0..100_000).for_each(|base| pager.touch(base % 50_000));
    let change = pager.sizer.poll_change().expect("a sweep makes pages grow");
    assert!(change.to > change.from);
    assert!(alloc::format!("{}", change.reason).contains("is wanted while it is here"));
}

/// Pages that are filled a little at a time, and pushed out in between: what comes back is in a buffer, and nothing is fetched. Of each page the first base pages
/// have contents by then, and this many more are written while it is here.
fn fill_in_turns(sizer: &mut Adaptive, rounds: u64, written: u64) {
    for n in 0..rounds {
        let at = Place { space: SPACE, base: n % 8 * PLACE_BASE_PAGES };
        let size = sizer.size(at);
        let first = size.first(at.base);
        let fill = |b: u64| match b - first {
            0 => Fill::Other,
            b if b <= written => Fill::Written,
            _ => Fill::Unwritten,
        };
        let bases: Vec<_> = (first..first + size.base_pages()).map(|b| (b, fill(b))).collect();
        let part = sizer.part();
        let told = sizer.filled(&Filled { space: SPACE, part, size, bases: &bases });
        told.inspect(|probe| sizer.probed(Instant(n), probe));
        let (pages, first) = (BasePages(size.base_pages()), Place { base: first, ..at });
        sizer.left(Instant(n), &Left { first, part, size, pages, came_with: size, together: size });
    }
}

/// Without that, pages of 128 KiB of which there were more than fit kept a bucket sort at a standstill for ten seconds: nothing was fetched, so
/// nothing was seen.
#[test]
fn pages_that_are_pushed_out_while_they_fill_become_smaller() {
    // A page that does not fill says nothing; one of which much is written stays as it is.
    for (written, sizes_then) in [(0, 5..=5), (1, 0..=1), (31, 5..=5)] {
        let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::from_log2(5), PageSize::LARGEST, 3);
        sizer.limited(BasePages(8_192));
        fill_in_turns(&mut sizer, 4_000, written);
        let sizes: Vec<u8> = (0..8).map(|n| sizer.size(Pager::place(n * PLACE_BASE_PAGES)).log2()).collect();
        assert!(sizes.iter().all(|log2| sizes_then.contains(log2)), "{written} are written: {sizes:?}");
    }
}

/// Half of what comes as zeros is written, and base pages are dear where they are fetched: but not zeros.
#[test]
fn pages_of_zeros_may_be_larger_than_what_is_fetched() {
    let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::from_log2(4), PageSize::LARGEST, 3);
    sizer.limited(BasePages(8_192));
    (0..5_000).for_each(|_| sizer.streamed(BasePages(1), Duration(300_000)));
    fill_in_turns(&mut sizer, 2_000, 8);
    let at = Pager::place(0);
    let (size, fresh, largest) = (sizer.size(at), sizer.fresh_size(at), sizer.largest());
    assert!(size < PageSize::from_log2(3) && fresh >= PageSize::from_log2(4), "{size} and {fresh}");
    assert!(largest >= fresh, "what is held ready is for {largest}");
}

/// A page that fills slowly is back with what has been written so far, which is written on: of the zeros around it none was wanted yet.
#[test]
fn a_page_that_is_back_and_filled_no_further_becomes_smaller() {
    let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::from_log2(5), PageSize::LARGEST, 3);
    sizer.limited(BasePages(8_192));
    let at = Pager::place(0);
    for (fill, is_large) in [(Fill::Other, true), (Fill::Rewritten, false)] {
        for n in 0..2_000 {
            let size = sizer.size(at);
            let of = |b: u64| if b == 0 { fill } else { Fill::Unwritten };
            let bases: Vec<_> = (0..size.base_pages()).map(|b| (b, of(b))).collect();
            let told = sizer.filled(&Filled { space: SPACE, part: sizer.part(), size, bases: &bases });
            told.inspect(|probe| sizer.probed(Instant(n), probe));
        }
        assert_eq!(sizer.size(at) == PageSize::from_log2(5), is_large, "{fill:?}");
    }
}

/// Half of this page has been written: as often as that is so of what came as zeros, and never of what came with contents.
#[test]
fn zeros_are_seen_as_often_as_they_are_written() {
    let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::SMALLEST, PageSize::LARGEST, 5);
    let fill = |b: u64| [Fill::Written, Fill::Unwritten, Fill::Other, Fill::Written][b as usize % 4];
    let bases: Vec<_> = (0..16).map(|b| (b, fill(b))).collect();
    let page = Filled { space: SPACE, part: 0, size: PageSize::from_log2(4), bases: &bases };
    let seen: Vec<bool> =
        (0..4_000).filter_map(|_| sizer.seen_of_zeros(&page)).map(|probe| probe.wanted).collect();
    // Of written base pages one in two has an unwritten neighbour, the other one that came with contents; farther away there are two written for one unwritten.
    let wanted = seen.iter().filter(|&&wanted| wanted).count();
    assert!((2_300..3_500).contains(&seen.len()), "{} are seen", seen.len());
    assert!((seen.len() * 5 / 10..seen.len() * 6 / 10).contains(&wanted), "{wanted} of {}", seen.len());
}

proptest! {
    /// What is seen of zeros is of the page, in reach of a base page that has been written, and as it was told.
    #[test]
    fn what_is_seen_of_zeros_is_so(
        log2 in 0_u8..=8,
        fills in proptest::collection::vec(proptest::option::of(0_u8..3), 256),
        seed in any::<u64>(),
    ) {
        let size = PageSize::from_log2(log2);
        let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::SMALLEST, PageSize::LARGEST, seed);
        let fill = |n: u8| [Fill::Other, Fill::Written, Fill::Unwritten][usize::from(n)];
        let of_page = fills.iter().take(size.base_pages() as usize).enumerate();
        let bases: Vec<(u64, Fill)> = of_page.filter_map(|(i, n)| Some((4096 + i as u64, fill((*n)?)))).collect();
        let page = Filled { space: SPACE, part: 0, size, bases: &bases };
        if let Some(Probed { reach, place, wanted, .. }) = sizer.seen_of_zeros(&page) {
            prop_assert!(reach > PageSize::SMALLEST && reach <= size);
            let told = bases.iter().find(|&&(base, _)| base == place.base).expect("it is one of them").1;
            prop_assert_eq!(told, if wanted { Fill::Written } else { Fill::Unwritten });
            let half = reach.halved().first(place.base);
            let in_reach = |base| reach.first(base) == reach.first(place.base) && reach.halved().first(base) != half;
            prop_assert!(bases.iter().any(|&(base, fill)| in_reach(base) && fill == Fill::Written));
        }
    }

    /// Whatever it is told, sizes stay between the limits, holes are in the page and not the fault's, and the same story has the same end.
    #[test]
    fn sizes_stay_within_their_limits(
        (least, start, most) in (0_u8..=8).prop_flat_map(|a| (Just(a), a..=8)).prop_flat_map(|(a, b)| (Just(a), Just(b), b..=8)),
        story in proptest::collection::vec((0_u8..6, 0_u64..200_000, any::<bool>(), 0_u64..3_000_000), 1..400),
    ) {
        let run = || {
            let [low, mid, high] = [least, start, most].map(PageSize::from_log2);
            let mut sizer = Adaptive::new(low, mid, high, 1);
            sizer.limited(BasePages(5_000));
            let mut sizes = Vec::new();
            for &(what, base, yes, ns) in &story {
                let at = Place { space: SPACE, base };
                let now = Instant(0);
                let size = sizer.size(at);
                assert!(low <= size && size <= high && size <= sizer.largest());
                let fresh = sizer.fresh_size(at);
                assert!(fresh >= size.min(FRESH_MAX) && fresh <= FRESH_MAX && fresh <= sizer.largest());
                sizes.push(size);
                let first = Place { base: size.first(base), ..at };
                match what {
                    0 => {
                        let fetched = BasePages(size.base_pages());
                        let page = Brought { fault: at, size, fetched };
                        if let Some(hole) = sizer.brought(now, &page) {
                            assert!(hole != base && size.first(hole) == first.base);
                        }
                    }
                    1 => {
                        let together = if yes { PageSize::LARGEST } else { size };
                        let pages = BasePages(1);
                        let part = sizer.part();
                        sizer.left(now, &Left { first, part, size, pages, came_with: size, together });
                    }
                    2 if size > low => {
                        let part = sizer.part();
                        sizer.probed(now, &Probed { place: at, part, size, reach: size, wanted: yes, after: BasePages(0), seen: Seen::LeftOut });
                    }
                    3 => sizer.waited(Duration(ns)),
                    4 => {
                        let fill = if yes { Fill::Written } else { Fill::Unwritten };
                        let bases = [(first.base, Fill::Written), (first.base + size.base_pages() - 1, fill)];
                        let part = sizer.part();
                        let told = sizer.filled(&Filled { space: SPACE, part, size, bases: &bases });
                        told.inspect(|probe| sizer.probed(now, probe));
                    }
                    _ => sizer.part_begins(now, base as u32),
                }
            }
            sizes
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_page_now_and_then_that_takes_long_does_not_make_costs_swing() {
    let mut costs = Costs::default();
    let (mut least, mut most) = (f64::MAX, 0.0_f64);
    for n in 0..20_000_u64 {
        let gap_ns = if n % 100 == 99 { 500_000 } else { 1_000 };
        costs.streamed(BasePages(16), Duration(16 * gap_ns));
        if n >= 5_000 {
            // The share that the fault has: 1 where pages cost nothing.
            let share = costs.fault_share(PageSize::from_log2(6));
            (least, most) = (least.min(share), most.max(share));
        }
    }
    assert!(most < 1.5 * least, "from {least} to {most}");
    // 6 us a base page, both ways, beside 30 us for a fault: what took long is part of it.
    let real = 30.0 / (30.0 + 64.0 * 2.0 * 5.99);
    assert!((real / 1.5..real * 1.5).contains(&least), "{least}, should be near {real}");
}

/// Of eight faults two meet nothing; the others wait ten times as long, each behind the pages of the rest, and behind those that are fetched ahead.
#[test]
fn what_faults_wait_behind_many_pages_is_a_cost_of_pages() {
    let page = PageSize::from_log2(5);
    for ahead in [0, 16, 31] {
        let mut costs = Costs::default();
        for n in 0..20_000_u64 {
            let wait_ns = if n % 8 < 2 { 20_000 } else { 200_000 };
            costs.waited(Duration(wait_ns));
            costs.fetched_ahead(BasePages(ahead));
            costs.brought(BasePages(page.base_pages() - ahead));
            costs.streamed(BasePages(31), Duration(31 * 1_000));
        }
        // 30 us for a fault, and for each of 32 base pages 2 us and its part of the 135 that a fault waits on the average.
        let real = 30.0 / (30.0 + 32.0 * 2.0 + 135.0);
        let seen = costs.fault_share(page);
        assert!((real / 1.25..real * 1.25).contains(&seen), "{seen}, should be near {real}");
    }
}

#[test]
fn where_the_program_hardly_runs_the_smallest_pages_are_tried_and_kept() {
    let mut pager = Pager::new(1024, 6);
    let at = Pager::place(0);
    let (mut now, mut ran, mut sizes) = (Instant(0), Duration::ZERO, Vec::new());
    let left = |sizer: &mut Adaptive, now| {
        let size = PageSize::from_log2(6);
        let page = Left { first: at, part: 0, size, pages: BasePages(64), came_with: size, together: size };
        sizer.left(now, &page);
    };
    for _ in 0..60 {
        now = now + Duration::from_millis(250);
        (0..4).for_each(|_| left(&mut pager.sizer, now));
        // It runs five times as much with small pages.
        let size = pager.sizer.size(at);
        ran.0 += if size == PageSize::SMALLEST { 25_000_000 } else { 5_000_000 };
        pager.sizer.progressed(now, ran);
        assert_eq!(
            pager.sizer.fresh_size(at) == PageSize::SMALLEST,
            pager.sizer.size(at) == PageSize::SMALLEST
        );
        sizes.push(size);
    }
    let first = sizes.iter().position(|&size| size == PageSize::SMALLEST).expect("it is tried");
    assert!((32..36).contains(&first), "after eight seconds: {first}");
    assert!(sizes[first..].iter().all(|&size| size == PageSize::SMALLEST), "{sizes:?}");
    let changes = core::iter::from_fn(|| pager.sizer.poll_change());
    let changes: Vec<SizeChange> =
        changes.filter(|change| matches!(change.reason, SizeReason::Progress { .. })).collect();
    let [change] = changes[..] else { panic!("{changes:?}") };
    assert_eq!(change.to, PageSize::SMALLEST);
    assert_eq!(alloc::format!("{}", change.reason), "the program runs 10.0% of the time instead of 2.0%");
}

/// So many pages of 16 base pages are rescued, in one piece or in more, if they return after they have left; what is watched is wanted after so much has left, or not.
fn rescue(sizer: &mut Adaptive, times: u64, returns: bool, wanted: bool, after: BasePages) {
    let most = PageSize::from_log2(4);
    for n in 0..times {
        let at = Pager::place(n * 16 % 2048);
        if returns {
            let (size, pages) = (most, BasePages(16));
            let left = Left { first: at, part: sizer.part(), size, pages, came_with: most, together: most };
            sizer.left(Instant(n), &left);
        }
        let mut fault = at.base;
        while fault < at.base + 16 {
            let size = sizer.rescue_size(Pager::place(fault), most);
            if let Some(base) = sizer.rescued(Pager::place(fault), size, most) {
                let reach = PageSize::from_log2((u64::BITS - (base ^ fault).leading_zeros()) as u8);
                let (place, part, seen) = (Pager::place(base), sizer.part(), Seen::Rescued);
                let after = if wanted { after } else { BasePages(0) };
                sizer.watched(&Probed { place, part, size: most, reach, wanted, after, seen });
            }
            fault = size.first(fault) + size.base_pages();
        }
    }
}

#[test]
fn what_is_rescued_comes_with_what_is_wanted_of_its_page() {
    let (most, at) = (PageSize::from_log2(4), Pager::place(0));
    let size = |returns, wanted, after| {
        let mut sizer = Pager::new(1024, 4).sizer;
        assert_eq!(sizer.rescue_size(at, most), most, "nothing is known");
        rescue(&mut sizer, 2000, returns, wanted, BasePages(after));
        sizer.rescue_size(at, most)
    };
    for returns in [false, true] {
        assert_eq!(size(returns, false, 0), PageSize::SMALLEST, "it is not gone on with");
        assert_eq!(size(returns, true, 0), most, "it is, at once");
    }
    assert_eq!(size(false, true, 256), most, "it is, and what it pushes out is not wanted before");
    assert_eq!(size(true, true, 256), PageSize::SMALLEST, "what it pushes out is");
}

#[test]
fn what_is_rescued_is_found_anew_when_its_use_changes() {
    let (most, at) = (PageSize::from_log2(4), Pager::place(0));
    let mut sizer = Pager::new(1024, 4).sizer;
    for (wanted, size) in [(false, PageSize::SMALLEST), (true, most), (false, PageSize::SMALLEST)] {
        rescue(&mut sizer, 2000, true, wanted, BasePages(0));
        assert_eq!(sizer.rescue_size(at, most), size);
    }
}

/// First faults of pages of 64 KiB in one place, of which so many in a hundred have a second one if their base page came alone: how many came alone, in a hundred.
fn first_faults(sizer: &mut Adaptive, faults: u64, again_percent: u64) -> u64 {
    let (size, mut draw, mut alone) = (PageSize::from_log2(4), Draw::new(3), 0);
    for n in 0..faults {
        let place = Pager::place(n % 128 * 16);
        if sizer.comes_alone(place, size) {
            alone += 1;
            let (wanted, after) = (draw.below(100) < again_percent, BasePages(0));
            let (part, reach, seen) = (0, size, Seen::Alone);
            sizer.alone(&Probed { place, part, size, reach, wanted, after, seen });
        }
    }
    alone * 100 / faults
}

/// By what a fault and a base page costs: of 64 KiB the rest costs two thirds of what it costs with its own fault.
#[test]
fn a_first_fault_brings_its_base_page_alone_where_there_is_seldom_a_second_one() {
    let mut sizer = Adaptive::new(PageSize::SMALLEST, PageSize::from_log2(4), PageSize::LARGEST, 7);
    assert!(!sizer.comes_alone(Pager::place(0), PageSize::from_log2(4)), "nothing is known of any part");
    sizer.size(Pager::place(0));
    for (again, most, least) in [(100, 10, 2), (10, 100, 80), (95, 20, 2), (30, 100, 80)] {
        first_faults(&mut sizer, 2_000, again); // until it is known
        let alone = first_faults(&mut sizer, 1_000, again);
        assert!((least..=most).contains(&alone), "{alone}% alone where {again}% are touched again");
    }
}
