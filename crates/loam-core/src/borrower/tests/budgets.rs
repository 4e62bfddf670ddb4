//! How much of a range may be here.

use super::terms::{KEY, all_away, count, here, local, range, read, set, settle, write};
use super::*;
use crate::page_size::PageSize;

/// A budget is kept though there is room, and takes nothing from what is beside it.
#[test]
fn no_more_than_its_budget_stays() {
    let mut w = World::new(1, false, 1 << 20, 1);
    write(&mut w, 0, 1400);
    set(&mut w, 100, 500, local(64));
    assert!((56..=64).contains(&count(&w, 100, 500)), "{}", count(&w, 100, 500));
    assert_eq!(count(&w, 0, 100) + count(&w, 500, 1400), 1000, "nothing else leaves");
    // Whatever is done with it.
    for turn in 0..3 {
        write(&mut w, 100, 500);
        assert!((56..=64).contains(&count(&w, 100, 500)), "turn {turn}: {}", count(&w, 100, 500));
        assert!(here(&w, 492, 500).len() == 8, "the youngest stay");
    }
    assert_eq!(count(&w, 0, 100) + count(&w, 500, 1400), 1000, "nothing else leaves");
    // Taken back, all of it has room.
    set(&mut w, 100, 500, Terms::default());
    read(&mut w, 100..500);
    assert_eq!(count(&w, 0, 1400), 1400);
    w.read_all();
}

/// What has left for a budget and come back is young: the policy has older ones to take.
#[test]
fn what_has_come_back_stays() {
    let mut w = World::new(1, false, 1400, 1);
    write(&mut w, 0, 1200);
    set(&mut w, 0, 200, local(100));
    for _ in 0..3 {
        read(&mut w, 0..200);
    }
    let before = here(&w, 0, 200);
    assert!(before.len() > 80, "{before:?}");
    let now = w.time();
    w.b.handle_limit(now, BasePages(900));
    w.drain();
    settle(&mut w);
    assert_eq!(here(&w, 0, 200), before, "they went by when they had first come");
    assert!(count(&w, 200, 400) < 150, "nothing had to leave: nothing was tested");
    w.read_all();
}

/// Several at a time; the budget of all holds for what they have room for as for everything else.
#[test]
fn budgets_hold_beside_each_other_and_below_the_process() {
    let mut w = World::new(1, false, 600, 1);
    set(&mut w, 0, 300, local(100));
    set(&mut w, 300, 600, local(200));
    write(&mut w, 0, PAGES);
    assert!(count(&w, 0, 300) < 50, "{}: no guarantee", count(&w, 0, 300));
    for _ in 0..3 {
        write(&mut w, 0, 600);
        let here = [count(&w, 0, 300), count(&w, 300, 600)];
        assert!((80..=100).contains(&here[0]) && (160..=200).contains(&here[1]), "{here:?}");
    }
    assert!(w.b.frames().0 <= 600);
    w.read_all();
}

/// Of high and of low memory alike the oldest leaves; and what will not be needed does so as ever.
#[test]
fn priorities_do_not_change_what_a_budget_takes() {
    let mut w = World::new(1, false, 1 << 20, 1);
    assert!(w.b.handle_priority(KEY, range(0, 200), Priority::High));
    assert!(w.b.handle_priority(KEY, range(200, 400), Priority::Low));
    set(&mut w, 0, 400, local(80));
    write(&mut w, 0, 400);
    write(&mut w, 0, 40);
    assert!(here(&w, 0, 40).len() == 40 && here(&w, 40, 360).is_empty(), "{:?}", here(&w, 0, 400));
    let now = w.time();
    w.b.handle_advice(now, KEY, range(0, 40), Advice::WillNotNeed);
    settle(&mut w);
    assert_eq!(count(&w, 0, 40), 0);
    w.b.audit();
}

/// Of what will be needed a range brings no more than it has room for.
#[test]
fn advice_keeps_to_the_budget() {
    let mut w = all_away(4);
    set(&mut w, 100, 500, local(64));
    let (before, now) = (w.b.stats(), w.time());
    w.b.handle_advice(now, KEY, range(100, 500), Advice::WillNeed);
    settle(&mut w);
    let brought = w.b.stats().advised_in - before.advised_in;
    assert!((50..=64).contains(&brought) && count(&w, 100, 500) == brought, "{brought}");
    assert_eq!(w.b.stats().moved, before.moved, "nothing has left for it");
    w.read_all();
}

/// Gone through in order: what lies ahead comes, and is there still when the reader does.
#[test]
fn a_reader_in_order_is_run_ahead_of_within_the_budget() {
    let mut w = all_away(1);
    w.b.prefetcher = Box::new(StridePrefetcher::new(BasePages(64)));
    assert!(w.b.handle_pattern(KEY, range(0, 1200), Pattern::Sequential));
    set(&mut w, 0, 1200, local(128));
    let before = w.b.stats().answered[FaultKind::Remote as usize];
    for base in 0..1200 {
        read(&mut w, [base]);
        assert!(count(&w, 0, 1200) <= 128 + 4);
    }
    let waited = w.b.stats().answered[FaultKind::Remote as usize] - before;
    assert!(waited < 20, "{waited}");
}

/// However little it may have here, what an instruction touches is there at once, and pages are small enough for that.
#[test]
fn the_smallest_budget_has_room_to_go_on() {
    for (page, own) in [(1, None), (64, None), (1, Some(16))] {
        let mut w = World::new(page, false, 1 << 20, 1);
        let size = own.and_then(|own| PageSize::new(BasePages(own)));
        set(&mut w, 0, PAGES, Terms { page: size, local: Some(BasePages(1)), plan: None });
        let most = 8 * own.unwrap_or(1);
        for turn in 0..20 {
            let four = [0, 300, 700, 1100].map(|base| base + turn * 17);
            for base in four {
                w.step(&Op::Write { space: 0, base, value: turn + base + 1 });
            }
            settle(&mut w);
            assert!(four.iter().all(|&base| w.b.state(KEY, base) == BaseState::Local), "turn {turn}");
            assert!(count(&w, 0, PAGES) <= most, "{} of {most}", count(&w, 0, PAGES));
        }
        w.read_all();
    }
}

/// Pages that cannot leave make nobody wait for ever, and take no frames over the limit.
#[test]
fn what_cannot_leave_stops_nobody() {
    let mut w = World::new(1, false, 1400, 1);
    set(&mut w, 0, 600, local(100));
    w.pinned = Some(KEY);
    for base in 0..600 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        w.complete(1);
    }
    settle(&mut w);
    assert!(!w.b.in_vain && count(&w, 0, 600) == 600 && w.b.stats().busy > 0);
    w.pinned = None;
    w.step(&Op::Tick);
    for _ in 0..8 {
        w.step(&Op::Tick);
        w.now += 20_000_000_000;
        settle(&mut w);
    }
    assert!(count(&w, 0, 600) <= 100, "{} once they can", count(&w, 0, 600));
    w.read_all();
}

/// Who writes faster than pages leave waits: as many as may be are here, and those that leave.
#[test]
fn who_outruns_its_budget_waits() {
    let mut w = World::new(1, false, 1 << 20, 1);
    set(&mut w, 0, PAGES, local(200));
    let mut most = 0;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        // Nothing leaves unless somebody waits for it.
        most = most.max(count(&w, 0, PAGES));
    }
    assert!((150..=200 + 32).contains(&most), "{most}");
    let Stats { queued_wait, .. } = w.b.stats();
    assert!(queued_wait.0 > 0, "nobody has waited");
    w.read_all();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of each range with a budget no more is here than that, what is on its way, and what one fault brings with it; and a fault there brings no more
    /// than a page of the range's own size.
    #[test]
    fn budgets_and_sizes_are_kept(
        ops in proptest::collection::vec((0..8_u8, 0..PAGES, 1_u64..300, any::<bool>()), 1..120),
        edges in [0..500_u64, 500..800, 800..1100, 1100..1400], budgets in [8..200_u64, 8..400],
        own in proptest::option::of(0_u8..6), page in 0_u32..7, limit in 500_u64..3000, pieces: bool, wild: bool,
    ) {
        let mut w = World::new(1 << page, true, limit, 2);
        w.b.in_pieces = pieces;
        if wild {
            w.b.size_pages(Box::new(sizes::Wild::new(limit)), PageSize::SMALLEST);
        }
        let own = own.map(PageSize::from_log2);
        let ranges = [(edges[0], edges[1], own, budgets[0]), (edges[2], edges[3], None, budgets[1])];
        for (start, end, page, most) in ranges {
            let terms = Terms { page, local: Some(BasePages(most)), plan: None };
            prop_assert_eq!(w.b.handle_terms(KEY, range(start, end), terms), Ok(()));
        }
        for (op, base, len, second) in ops {
            match op {
                0..=4 => for base in (base..(base + len).min(PAGES)).step_by(1 + usize::from(op)) {
                    let away = |w: &World| (0..PAGES).filter(|&b| w.b.state(KEY, b) == BaseState::Away).collect::<BTreeSet<u64>>();
                    let mut before = BTreeSet::new();
                    if second && op == 4 {
                        settle(&mut w); // nothing else is on its way
                        before = away(&w);
                    }
                    w.step(&Op::Write { space: 0, base, value: base ^ len });
                    if let Some(size) = own.filter(|_| range(edges[0], edges[1]).contains(base)) {
                        let came = before.difference(&away(&w)).filter(|&&b| range(edges[0], edges[1]).contains(b)).count() as u64;
                        // Its own page, and what is fetched ahead: a page, or what a 32nd of the budget has room for.
                        let ahead = size.base_pages().max(budgets[0].max(8 * size.base_pages()) / 32);
                        prop_assert!(came <= size.base_pages() + ahead, "{} came of {}", came, size);
                    }
                    for (start, end, page, most) in ranges {
                        let least = page.unwrap_or(PageSize::SMALLEST).base_pages();
                        let most = most.max(8 * least);
                        // A fault that finds room, and the zeros or the fetch ahead of it; and what was asked for before it was full. (45 beyond a budget of 52 have been
                        // seen, once in thousands of runs.)
                        let slack = 2 * (most / 8).max(least) + 64;
                        let here = count(&w, start, end);
                        prop_assert!(here <= most + slack, "{} of {} at {}..{}", here, most, start, end);
                    }
                },
                5 => w.step(&Op::Advise { space: 0, base, len, will_need: second }),
                6 => w.step(&Op::Mark {
                    space: 0, base, len,
                    pattern: Some([Pattern::Sequential, Pattern::Unknown][usize::from(second)]),
                    priority: Some([Priority::High, Priority::Low][usize::from(second)]),
                }),
                _ => { w.complete(len as usize); }
            }
        }
        settle(&mut w);
        for (start, end, page, most) in ranges {
            let most = most.max(8 * page.unwrap_or(PageSize::SMALLEST).base_pages());
            prop_assert!(count(&w, start, end) <= most, "at rest: {} of {}", count(&w, start, end), most);
        }
        w.read_all();
        w.check();
    }
}
