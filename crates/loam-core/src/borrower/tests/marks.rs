//! What a program says of how it goes through memory, and of what that is worth: it moves pages, and changes no byte (the property tests of
//! all operations do both).

use super::*;

const KEY: SpaceKey = SpaceKey(0);

fn range(start: u64, end: u64) -> BaseRange {
    BaseRange::new(start, end)
}

fn write(w: &mut World, start: u64, end: u64) {
    for base in start..end {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.settle(10_000);
}

fn read(w: &mut World, bases: impl IntoIterator<Item = u64>) {
    for base in bases {
        w.step(&Op::Read { space: 0, base });
        w.settle(10_000);
    }
}

fn here(w: &World, start: u64, end: u64) -> u64 {
    (start..end).filter(|&base| w.b.state(KEY, base) == BaseState::Local).count() as u64
}

fn limit(w: &mut World, pages: u64) {
    let now = w.time();
    w.b.handle_limit(now, BasePages(pages));
    w.drain();
    w.settle(10_000);
}

/// All is away but what the budget has room for.
fn away(page: u64, pages: u64) -> World {
    let mut w = World::new(page, false, pages, 1);
    w.b.config.rescue = false; // what is away is in no buffer
    write(&mut w, 0, PAGES);
    w.b.config.rescue = true;
    w
}

/// Everything is away, and there is room for all.
fn all_away(page: u64) -> World {
    let mut w = World::new(page, false, 1 << 20, 1);
    w.b.config.rescue = false; // what is away is in no buffer
    write(&mut w, 0, PAGES);
    let now = w.time();
    w.b.handle_advice(now, KEY, range(0, PAGES.next_multiple_of(page)), Advice::WillNotNeed);
    w.settle(10_000);
    assert_eq!(here(&w, 0, PAGES), 0);
    w.b.config.rescue = true;
    w
}

#[test]
fn in_no_order_nothing_comes_beside_what_is_touched() {
    for page in [1, 16] {
        let mut plain = all_away(page);
        read(&mut plain, 100..140);
        assert!(here(&plain, 0, PAGES) > 40, "the prefetcher, or a page, brings more");
        let mut w = all_away(page);
        assert!(w.b.handle_pattern(KEY, range(64, 600), Pattern::Random));
        let before = w.b.stats().faults;
        read(&mut w, (100..140).chain((200..300).step_by(3)));
        assert_eq!(here(&w, 0, PAGES), 40 + 34, "each that was touched, and no other");
        assert_eq!(w.b.stats().faults - before, 40 + 34, "each waited");
        // Taken back it is as it was.
        assert!(w.b.handle_pattern(KEY, range(64, 600), Pattern::Unknown));
        read(&mut w, 400..440);
        assert!(here(&w, 400, 600) > 40);
        w.read_all();
    }
}

/// A stream from outside ends where memory begins that is used in no order.
#[test]
fn streams_do_not_run_into_what_has_no_order() {
    let mut w = all_away(1);
    assert!(w.b.handle_pattern(KEY, range(150, 600), Pattern::Random));
    read(&mut w, 100..150);
    assert_eq!(here(&w, 150, PAGES), 0);
    let mut plain = all_away(1);
    read(&mut plain, 100..150);
    assert!(here(&plain, 150, PAGES) > 0, "nothing was tested");
}

#[test]
fn in_order_it_is_run_ahead_of_at_once_and_to_the_end_of_what_was_said() {
    let mut plain = all_away(1);
    read(&mut plain, [100]);
    assert_eq!(here(&plain, 0, PAGES), 1, "one touch is no pattern");
    let mut w = all_away(1);
    assert!(w.b.handle_pattern(KEY, range(100, 300), Pattern::Sequential));
    read(&mut w, [100]);
    assert!(here(&w, 100, 104) > 1, "{:?}", here(&w, 100, 300));
    let before = w.b.stats().answered[FaultKind::Remote as usize];
    read(&mut w, 101..300);
    assert_eq!(w.b.stats().answered[FaultKind::Remote as usize], before, "nobody has waited for a lender");
    assert_eq!(here(&w, 300, PAGES), 0, "nothing is said of that");
    w.read_all();
}

/// Memory in use beside a reader of much more than there is room for.
fn reader(pattern: Pattern) -> (u64, World) {
    let mut w = away(1, 700);
    assert!(w.b.handle_pattern(KEY, range(300, PAGES), pattern));
    // In use, and then never touched for the length of a reading.
    read(&mut w, 0..300);
    read(&mut w, 300..PAGES);
    (here(&w, 0, 300), w)
}

#[test]
fn what_a_reader_has_passed_leaves_first() {
    let (plain, _) = reader(Pattern::Unknown);
    let (kept, mut w) = reader(Pattern::Sequential);
    assert!(plain < 100, "{plain} of 300 stay without being told: nothing is tested");
    assert_eq!(kept, 300, "the reader has pushed out nothing but what was behind it");
    assert!(w.b.stats().advised_out > 700);
    w.read_all();
}

/// There is room for all: what was passed stays.
#[test]
fn what_a_reader_has_passed_stays_while_there_is_room() {
    let mut w = all_away(1);
    assert!(w.b.handle_pattern(KEY, range(0, PAGES), Pattern::Sequential));
    let before = w.b.stats().advised_out;
    read(&mut w, 0..PAGES);
    assert_eq!(here(&w, 0, PAGES), PAGES);
    assert_eq!(w.b.stats().advised_out, before);
}

/// As much is used of each third as of the others.
fn three_kinds(said: bool) -> [u64; 3] {
    let mut w = World::new(1, false, 1 << 20, 1);
    if said {
        assert!(w.b.handle_priority(KEY, range(0, 500), Priority::High));
    }
    write(&mut w, 0, 1500);
    if said {
        // Here already.
        assert!(w.b.handle_priority(KEY, range(500, 1000), Priority::Low));
        w.settle(10_000);
    }
    limit(&mut w, 1150);
    let first = here(&w, 500, 1000);
    if said {
        assert_eq!(here(&w, 0, 500) + here(&w, 1000, 1500), 1000, "low leaves before all else");
        assert!(first < 200);
    }
    limit(&mut w, 700);
    let left = [here(&w, 0, 500), here(&w, 500, 1000), here(&w, 1000, 1500)];
    w.read_all();
    left
}

#[test]
fn low_leaves_before_normal_before_high() {
    let plain = three_kinds(false);
    assert!(plain[0] < 100, "{plain:?}: first in, first out");
    let [high, low, normal] = three_kinds(true);
    assert!(low <= 15, "{high} {low} {normal}: no more than a share that lets it go on");
    assert!(high > 460, "{high} of 500: one in sixteen of what leaves besides");
    assert!((50..300).contains(&normal), "{normal}");
}

/// All of it is high, and more than there is room for: it is as if nothing were said.
#[test]
fn high_memory_beyond_the_budget_stops_nobody() {
    for all in [Priority::High, Priority::Low] {
        let mut w = World::new(4, false, 300, 1);
        assert!(w.b.handle_priority(KEY, range(0, PAGES), all));
        for turn in 0..3 {
            for base in 0..PAGES {
                w.step(&Op::Write { space: 0, base, value: base + turn });
                assert!(w.b.frames().0 <= 300 + 4, "the budget is kept: {:?}", w.b.frames());
            }
        }
        w.read_all();
    }
}

/// What is high and not used any more goes one day, while other memory is used in its place.
#[test]
fn high_memory_that_is_not_used_goes() {
    let mut w = World::new(1, false, 600, 1);
    assert!(w.b.handle_priority(KEY, range(0, 400), Priority::High));
    write(&mut w, 0, 400);
    assert_eq!(here(&w, 0, 400), 400);
    let mut before = 400;
    for turn in 0..8 {
        read(&mut w, 400..PAGES);
        write(&mut w, 400, PAGES);
        let now = here(&w, 0, 400);
        assert!(now < before || now == 0, "turn {turn}: {now} of {before} are left");
        assert!(turn > 0 || now > 200, "not all at once: {now}");
        before = now;
    }
    assert!(before < 100, "{before} are left after nine thousand others");
    w.read_all();
}

/// Beside high memory that fills the budget, the rest has room to go on: pages that come are not the next to leave.
#[test]
fn what_comes_stays_for_a_while() {
    let mut w = World::new(1, false, 600, 1);
    assert!(w.b.handle_priority(KEY, range(0, 700), Priority::High));
    assert!(w.b.handle_priority(KEY, range(1000, PAGES), Priority::Low));
    write(&mut w, 0, 700);
    for first in [800, 900, 1100, 1200] {
        read(&mut w, first..first + 4);
        assert_eq!(here(&w, first, first + 4), 4, "of {first}");
    }
}

#[test]
fn a_child_has_the_marks_and_what_goes_has_none() {
    let mut w = all_away(1);
    let random =
        |w: &World, space: u32, base: u64| w.b.mark(SpaceKey(space), base).pattern == Pattern::Random;
    assert!(w.b.handle_pattern(KEY, range(100, 400), Pattern::Random));
    assert!(w.b.handle_priority(KEY, range(100, 400), Priority::High));
    w.step(&Op::Fork { space: 0 });
    assert!(random(&w, 1, 100) && !random(&w, 1, 99));
    let now = w.time();
    w.b.handle_remapped(now, KEY, range(100, 200), FAR);
    w.drain();
    assert!(random(&w, 0, FAR + 99) && !random(&w, 0, FAR + 100) && !random(&w, 0, 150));
    assert_eq!(w.b.mark(KEY, FAR).priority, Priority::High);
    w.b.handle_removed(now, KEY, range(200, 300));
    w.b.handle_unmapped(now, KEY, range(350, 400));
    w.drain();
    assert!(!random(&w, 0, 299) && random(&w, 0, 300) && random(&w, 0, 349) && !random(&w, 0, 350));
    assert!(random(&w, 1, 299) && random(&w, 1, 399), "the child's own are as they were");
}

#[test]
fn what_a_program_may_say_is_bounded() {
    let mut w = all_away(1);
    let said =
        (0..10_000).filter(|n| w.b.handle_pattern(KEY, range(n * 2, n * 2 + 1), Pattern::Random)).count();
    assert_eq!(said, 4096);
    assert!(w.b.handle_pattern(KEY, range(0, 1 << 30), Pattern::Sequential), "fewer again");
    assert!(w.b.handle_pattern(SpaceKey(77), range(0, 1), Pattern::Random), "nobody's");
    for (start, end) in [(5, 5), (u64::MAX - 5, u64::MAX)] {
        assert!(w.b.handle_priority(KEY, range(start, end), Priority::High));
    }
    w.settle(10_000);
    w.read_all();
}

/// A fetch ahead that waits for room holds nothing back but others like it, and what is said later of a part of it holds there.
#[test]
fn what_waits_for_room_holds_nobody_back() {
    let mut w = away(1, 900);
    // All of the budget is in use, and nothing may leave for now: there is no room, and it is not known that none will come.
    let now = w.time();
    w.b.handle_rest(now, KEY, true);
    let local: Vec<u64> = (0..PAGES).filter(|&base| w.b.state(KEY, base) == BaseState::Local).collect();
    limit_at_rest(&mut w, local.len() as u64);
    let away: Vec<u64> = (0..PAGES).filter(|&base| w.b.state(KEY, base) == BaseState::Away).collect();
    let now = w.time();
    w.b.handle_advice(now, KEY, range(away[0], away[0] + 100), Advice::WillNeed);
    assert!(!w.b.has_advice(), "it waits");
    let from = local[local.len() / 2];
    w.b.handle_advice(now, KEY, range(from, from + 50), Advice::WillNotNeed);
    assert!(w.b.has_advice(), "and the other one does not");
    w.b.handle_plans(now, 1);
    assert_eq!(w.b.advice_left().1, 1);
    // Half of what waits is taken back.
    w.b.handle_advice(now, KEY, range(away[0] + 20, away[0] + 40), Advice::WillNotNeed);
    w.b.handle_plans(now, 1000);
    assert_eq!(w.b.advice_left().1, 2, "what is left of the first on both sides");
    w.b.handle_rest(now, KEY, false);
    limit(&mut w, 900);
    w.settle(10_000);
    assert_eq!(w.b.advice_left(), (0, 0));
    assert_eq!(here(&w, away[0], away[0] + 20), 20);
    assert_eq!(here(&w, away[0] + 20, away[0] + 40), 0);
    assert_eq!(here(&w, from, from + 50), 0);
    w.read_all();
}

fn limit_at_rest(w: &mut World, pages: u64) {
    let now = w.time();
    w.b.handle_limit(now, BasePages(pages));
    w.drain();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Saying of everything that there is nothing to say changes no decision.
    #[test]
    fn nothing_said_changes_nothing(ops in ops(true), page in 0u32..5) {
        let run = |says: bool| {
            let mut w = World::new(1 << page, true, 600, 2);
            for op in ops.iter().filter(|op| !matches!(op, Op::Advise { .. } | Op::Mark { .. } | Op::Terms { .. })) {
                if says {
                    for &key in &w.spaces.clone() {
                        assert!(w.b.handle_pattern(key, range(0, 1 << 40), Pattern::Unknown));
                        // Taken back before a page is looked at: all of them are looked at for nothing.
                        assert!(w.b.handle_priority(key, range(0, 1 << 40), Priority::High));
                        assert!(w.b.handle_priority(key, range(0, 1 << 40), Priority::Normal));
                    }
                    while w.b.has_advice() {
                        w.b.follow_advice();
                    }
                }
                w.step(op);
            }
            (std::format!("{:?}", w.pending), w.b.stats(), w.now)
        };
        prop_assert_eq!(run(true), run(false));
    }

    /// Whatever is said in whatever order: memory reads what was written, the budget is kept, and nobody waits for ever (`touch` gives up).
    #[test]
    fn whatever_is_said_the_budget_is_kept(
        ops in proptest::collection::vec((0..3_u8, 0..PAGES, 1_u64..700, 0..3_usize), 1..150),
        page in 0_u32..5, pieces: bool,
    ) {
        let mut w = World::new(1 << page, true, 400, 2);
        w.b.in_pieces = pieces;
        for (op, base, len, n) in ops {
            match op {
                0 => for base in (base..(base + len).min(PAGES)).step_by(1 + n) {
                    w.step(&Op::Write { space: 0, base, value: base ^ len });
                    prop_assert!(w.b.frames().0 <= 400 + (1 << page), "{:?}", w.b.frames());
                },
                1 => w.step(&Op::Mark {
                    space: 0, base, len, priority: None,
                    pattern: Some([Pattern::Unknown, Pattern::Sequential, Pattern::Random][n]),
                }),
                _ => w.step(&Op::Mark {
                    space: 0, base, len, pattern: None,
                    priority: Some([Priority::Low, Priority::Normal, Priority::High][n]),
                }),
            }
        }
        w.read_all();
        w.check();
    }
}

/// High memory of more than the budget, a little idle low memory, and what normal memory has to go on with.
#[test]
fn idle_low_memory_takes_no_share_from_normal_memory() {
    let mut w = World::new(1, false, 640, 1);
    assert!(w.b.handle_priority(KEY, range(0, 1000), Priority::High));
    assert!(w.b.handle_priority(KEY, range(1000, 1100), Priority::Low));
    write(&mut w, 1000, 1010); // its least share, a 64th of 640
    let mut waited = 0;
    for turn in 0..20 {
        write(&mut w, turn * 50, turn * 50 + 50);
        assert!(here(&w, 1000, 1100) >= 10, "low memory keeps its share");
        waited += u64::from(here(&w, 1200, 1205) < 5 && turn > 0);
        write(&mut w, 1200, 1205);
    }
    assert!(waited < 4, "what is used between any two pieces is gone {waited} times of 19");
}

/// Pages of which little is here count for little: by their sizes the low ones would be more than their share.
#[test]
fn ranks_count_what_is_here() {
    let mut w = World::new(16, false, 1 << 20, 1);
    assert!(w.b.handle_priority(KEY, range(0, 800), Priority::Low));
    let now = w.time();
    let present: Vec<BaseRange> = (0..50).map(|n| range(n * 16, n * 16 + 1)).collect();
    w.b.handle_adopted(now, KEY, range(0, 800), &present);
    for run in &present {
        w.present.insert((KEY, run.start), 0);
    }
    w.drain();
    assert_eq!(w.b.ranks.sums(), (50, 0));
    // The rest of a page comes, and goes.
    write(&mut w, 0, 16);
    assert_eq!(w.b.ranks.sums(), (65, 0));
    let now = w.time();
    w.b.handle_removed(now, KEY, range(4, 32));
    w.drain();
    assert_eq!(w.b.ranks.sums(), (52, 0));
    // A child shares all of it.
    w.step(&Op::Fork { space: 0 });
    assert_eq!(w.b.ranks.sums(), (52, 0));
    w.b.audit();
}

/// Of what one reader has passed, how much stays when room is wanted; there may be another reader on its way there.
fn passed(has_second: bool) -> u64 {
    let mut w = all_away(1);
    read(&mut w, 700..1400);
    assert!(w.b.handle_pattern(KEY, range(0, 600), Pattern::Sequential));
    read(&mut w, 100..140);
    if has_second {
        read(&mut w, [90]);
    }
    limit(&mut w, 760);
    assert!(here(&w, 700, 1400) < 690, "nothing is tested");
    let left = here(&w, 100, 130);
    w.read_all();
    left
}

#[test]
fn what_lies_ahead_of_a_reader_is_not_behind_another() {
    assert!(passed(false) < 5, "{} of 30", passed(false));
    assert_eq!(passed(true), 30);
}

/// Pages that readers have passed and that cannot leave take no explicit advice with them.
#[test]
fn what_readers_cannot_give_cancels_nothing_else() {
    let mut w = World::new(1, false, 700, 1);
    assert!(w.b.handle_pattern(KEY, range(0, 600), Pattern::Sequential));
    write(&mut w, 0, 600);
    w.pinned = Some(KEY);
    let now = w.time();
    w.b.handle_limit(now, BasePages(400));
    w.drain();
    assert!(w.b.stats().advised_out > 0, "what was passed is to leave");
    w.b.handle_advice(now, KEY, range(500, 600), Advice::WillNotNeed);
    for _ in 0..2000 {
        w.complete(0); // no plans: the advice waits
        assert_eq!(w.b.advice_left().1, 1);
    }
    assert!(w.b.stats().busy > 0);
}
