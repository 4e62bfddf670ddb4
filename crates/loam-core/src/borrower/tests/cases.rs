//! Single cases, each a fault that once was or a promise that must hold.

use super::*;

/// Pages that are rescued and written again, round after round: free buffers suffice, so nobody takes reusable ones from the front of
/// their list.
#[test]
fn rescued_pages_that_are_written_again_leave_nothing_behind() {
    let mut w = World::new(1, true, 600, 1);
    for round in 0..12 {
        for base in 0..700 {
            w.step(&Op::Write { space: 0, base, value: round * 1000 + base + 1 });
        }
        while w.complete(0) {}
        w.check();
    }
    assert!(w.b.stats().answered[FaultKind::Rescued as usize] > 3_000, "{:?}", w.b.stats());
    w.read_all();
}

#[test]
fn the_limit_holds_while_memory_is_filled() {
    let mut w = World::new(16, true, 600, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        w.complete(base as usize);
        assert!(w.b.frames().0 <= 600, "{} frames", w.b.frames().0);
    }
    assert!(w.b.stats().moved > 0);
    w.read_all();
}

#[test]
fn unchanged_pages_are_clean_and_zeros_are_dropped() {
    let mut w = World::new(1, true, 600, 1);
    for base in 0..PAGES {
        let value = if base % 2 == 0 { 0 } else { base };
        w.step(&Op::Write { space: 0, base, value });
    }
    for _ in 0..4 {
        w.read_all();
        while w.complete(0) {}
    }
    let stats = w.b.stats();
    assert!(stats.zero > 500 && stats.clean > 500, "{stats:?}");
}

/// All is written, and nobody takes what should leave.
fn with_no_room_anywhere() -> World {
    let mut w = World::new(16, false, 600, 1);
    w.lender_room = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w
}

#[test]
fn with_no_room_anywhere_the_program_goes_on_over_its_limit() {
    let mut w = with_no_room_anywhere();
    w.read_all();
    assert!(w.b.stuck() > 0);
}

#[test]
fn what_is_stuck_leaves_when_a_lender_tells_of_room() {
    let mut w = with_no_room_anywhere();
    while w.complete(0) {}
    let (stuck, puts) = (w.b.stuck(), w.puts[0]);
    assert!(stuck > 1);
    // No time passes.
    w.b.handle_lender_room(LenderIndex(0), BasePages(0));
    w.lender_room = true;
    w.b.handle_lender_room(LenderIndex(0), BasePages(1));
    w.drain();
    while w.complete(0) {}
    assert_eq!(w.puts[0] - puts, 1, "no more than there is room for");
    w.b.handle_lender_room(LenderIndex(0), BasePages(0));
    w.b.handle_lender_room(LenderIndex(0), BasePages(100_000));
    w.drain();
    while w.complete(0) {}
    assert_eq!(w.b.stuck(), 0);
    w.read_all();
}

#[test]
fn a_fault_is_answered_while_nothing_can_be_taken() {
    let mut w = World::new(1, true, 600, 1);
    w.pinned = Some(SpaceKey(0));
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    assert_eq!(w.b.stats().moved, 0);
    w.read_all();
}

/// More than the limit is locked: the rest of the program still finds a part of the limit for itself, and no more than the limit when that is over.
#[test]
fn what_cannot_leave_leaves_room_for_the_rest() {
    const LIMIT: u64 = 1000;
    let mut w = World::new(1, true, LIMIT, 1);
    let key = SpaceKey(0);
    let (locked, rest) = (0..1100, 1100..1180);
    w.denied.extend(locked.clone().map(|base| (key, base)));
    let mut value = 0;
    let mut round = |w: &mut World, pages: std::ops::Range<u64>| {
        value += 1;
        for base in pages {
            w.step(&Op::Write { space: 0, base, value });
            let now = w.time();
            w.b.handle_limit(now, BasePages(LIMIT));
            w.drain();
            while w.complete(0) {}
        }
    };
    round(&mut w, locked.clone());
    round(&mut w, rest.clone());
    let moved = w.b.stats().moved;
    for _ in 0..10 {
        round(&mut w, rest.clone());
    }
    assert_eq!(w.b.stats().moved, moved, "a working set of 80 pages stays");
    assert!((1300..=1350).contains(&w.b.limit().0), "{:?}", w.b.limit());
    // Unlocked. What was put aside is tried again by and by.
    w.denied.clear();
    w.now += 20_000_000_000;
    let now = w.time();
    w.b.handle_timeout(now);
    round(&mut w, rest.clone());
    assert_eq!(w.b.limit().0, LIMIT);
    assert!(w.b.frames().0 <= LIMIT, "{:?}", w.b.frames());
    w.read_all();
}

#[test]
fn a_fault_is_answered_while_what_was_shared_is_pinned() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 0, value: 1 });
    w.step(&Op::Fork { space: 0 });
    // Its relative has gone: it may still look shared, so that it is tried again and again without a rest.
    w.step(&Op::Exit { space: 1 });
    w.pinned = Some(w.spaces[0]);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.read_all();
}

#[test]
fn a_relative_whose_pages_are_pinned_does_not_keep_the_others_from_theirs() {
    let mut w = World::new(1, true, 600, 1);
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.step(&Op::Fork { space: 0 });
    w.pinned = Some(w.spaces[0]);
    let most = w.b.limit().0 + w.b.frames().0;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 1, base, value: base + 2 });
        assert!(w.b.frames().0 <= most, "{} frames: what could be taken stayed", w.b.frames().0);
    }
    w.read_all();
}

#[test]
fn the_only_lender_lost_is_told() {
    let mut w = World::new(16, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let lost = w.b.handle_lender_lost(Instant(u64::MAX), LenderIndex(0));
    assert!(lost.0 > 0);
}

#[test]
fn what_was_answered_in_time_wakes_nobody_later() {
    let mut w = World::new(1, true, 600, 1);
    // A working set that is too large: pages go out and come back.
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.read_all();
    while w.complete(0) {}
    assert!(
        w.b.stats().answered[FaultKind::Remote as usize] > 0 && w.b.fetches_in_flight() == 0,
        "pages came back from the lender"
    );
    // Only a fetch that is still open may set the clock.
    assert_eq!(w.b.poll_timeout(), None);
}

#[test]
fn two_threads_that_race_for_a_page_through_a_long_run_lose_nothing() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    // Both faults were read, and the first was answered: a page that is there, again and again over hours.
    for _ in 0..10_000 {
        w.now += 2_000_000_000;
        let now = w.time();
        w.b.handle_fault(now, SpaceKey(0), 7);
        w.drain();
    }
    w.read_all();
}

#[test]
#[should_panic(expected = "lost")]
fn a_page_that_is_really_gone_is_told_of() {
    let mut w = World::new(1, true, 600, 1);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    for _ in 0..10_000 {
        let now = w.time();
        w.b.handle_fault(now, SpaceKey(0), 7);
        w.drain();
    }
}

/// Found by the fuzz simulation (seed 107): the hand faults on a page that it makes the process's own, its install is refused
/// once (mappings change, or the machine is out of memory), and the budget is full. Asked for again it stood in the queue for
/// frames, which only the batches behind it in the hand's own ring could have given.
#[test]
fn the_hand_waits_for_no_frame_though_its_install_is_refused() {
    for already_queued in [false, true] {
        let mut w = World::new(1, true, 600, 1);
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: base + 1 });
        }
        while w.complete(0) {}
        let key = SpaceKey(0);
        let away = |w: &World, from: u64| {
            (from..PAGES).find(|&b| w.b.state(key, b) == BaseState::Away).expect("most are away")
        };
        // Fill the budget until batches wait for the hand.
        let mut at = 0;
        while w.b.batches.is_empty() || w.b.frames < w.b.limit {
            at = away(&w, at);
            let now = w.time();
            w.b.handle_fault(now, key, at);
            w.drain();
            w.pending.retain(|p| matches!(p, Pending::Evict(_)) || !w.b.frames_will_come());
            at += 1;
            if at + 1 >= PAGES {
                break;
            }
        }
        assert!(
            w.b.frames_will_come() && w.b.frames >= w.b.limit,
            "the budget is full, and batches are under way"
        );
        let base = away(&w, at);
        if already_queued {
            let now = w.time();
            w.b.handle_fault(now, key, base); // a thread of the program waits there too
            w.drain();
        }
        w.refuses = 1;
        let now = w.time();
        w.b.handle_fault(now, key, base);
        w.b.handle_wanted(now, key, base);
        w.drain();
        for _ in 0..4 {
            while let Some(i) = w.pending.iter().position(|p| !matches!(p, Pending::Evict(_))) {
                let op = w.pending.remove(i);
                w.pending.push(op);
                let last = w.pending.len() - 1;
                w.complete(last);
            }
            let now = w.time();
            w.b.handle_retry(now);
            w.drain();
        }
        assert!(w.present.contains_key(&(key, base)), "the hand waits for itself");
    }
}

/// Found by the fuzz simulation (seed 102829): the hand faults on a page that it makes the process's own, and before that has come
/// another thread discards it. The hand then waits for zeros, and must not wait for a frame either.
#[test]
fn the_hand_waits_for_no_frame_though_its_page_is_discarded() {
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let key = SpaceKey(0);
    let far = |w: &World, b: u64| {
        w.b.state(key, b) == BaseState::Away && w.b.copy_of(key, b).is_some_and(|c| c.buffer.is_none())
    };
    let away: Vec<u64> = (0..PAGES).filter(|&b| far(&w, b)).collect();
    // Fill the budget until batches wait for the hand.
    for &base in &away[1..] {
        if !w.b.batches.is_empty() && w.b.frames >= w.b.limit {
            break;
        }
        let now = w.time();
        w.b.handle_fault(now, key, base);
        w.drain();
    }
    assert!(
        w.b.frames_will_come() && w.b.frames >= w.b.limit,
        "the budget is full, and batches are under way"
    );
    let now = w.time();
    w.b.handle_fault(now, key, away[0]);
    w.b.handle_wanted(now, key, away[0]);
    w.drain();
    assert_eq!(w.b.state(key, away[0]), BaseState::Fetching);
    // Other faults took the frames that there were.
    let now = w.time();
    let limit = BasePages(w.b.frames - 20);
    w.b.handle_limit(now, limit);
    w.drain();
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(away[0], away[0] + 1));
    w.drain();
    assert_eq!(w.present.get(&(key, away[0])), Some(&0), "the hand waits for itself");
}

/// Found by the fuzz simulation (seed 3187): zeros that were brought between the event of a discard and the discard itself are gone;
/// the second fault has them brought again, and that install is refused. Nobody asked for them a third time.
#[test]
fn a_discarded_page_whose_install_is_refused_comes_all_the_same() {
    for forked in [false, true] {
        let mut w = World::new(1, true, 600, 1);
        let key = SpaceKey(0);
        w.step(&Op::Write { space: 0, base: 7, value: 1 });
        let now = w.time();
        w.b.handle_removed(now, key, BaseRange::new(7, 8));
        w.drain();
        w.clear(key, 7, 8);
        w.touch(key, 7); // another thread, before the kernel has dropped the page
        let space = if forked {
            w.step(&Op::Fork { space: 0 });
            w.spaces[1]
        } else {
            key
        };
        w.clear(space, 7, 8); // now it has
        let now = w.time();
        w.b.handle_fault(now, space, 7);
        w.drain();
        w.refuses = 1;
        let now = w.time();
        w.b.handle_fault(now, space, 7);
        w.drain();
        assert!(!w.present.contains_key(&(space, 7)), "the kernel has refused it");
        let now = w.time();
        w.b.handle_retry(now);
        w.drain();
        assert!(w.present.contains_key(&(space, 7)), "its thread waits for ever (forked: {forked})");
        w.check();
    }
}

/// Found by the fuzz simulation (seed 37912): a page that was discarded a short time ago has contents again, and comes home. Other threads ask for it before
/// its install is done, which is then refused.
#[test]
fn what_was_written_after_a_discard_is_not_taken_for_zeros() {
    let mut w = World::new(1, true, 600, 1);
    let key = SpaceKey(0);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(7, 8));
    w.drain();
    w.clear(key, 7, 8);
    for (base, value) in [(7, 5)].into_iter().chain((100..PAGES).map(|base| (base, base + 1))) {
        w.step(&Op::Write { space: 0, base, value });
        while w.complete(0) {}
    }
    assert_eq!(w.b.state(key, 7), BaseState::Away);
    for refuses in [1, 1, 0] {
        w.refuses = refuses;
        for _ in 0..4 {
            let now = w.time();
            w.b.handle_fault(now, key, 7);
        }
        w.drain();
        while w.complete(0) {}
        let now = w.time();
        w.b.handle_retry(now);
        w.drain();
    }
    assert_eq!(w.present.get(&(key, 7)), Some(&5));
    w.check();
}

/// Zeros that a discard took with it are missing however much later they are touched, and however much was discarded since.
#[test]
fn zeros_that_a_discard_took_are_missed_long_after() {
    let mut w = World::new(1, true, 600, 1);
    let key = SpaceKey(0);
    w.step(&Op::Write { space: 0, base: 7, value: 1 });
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(7, 8));
    w.drain();
    w.clear(key, 7, 8);
    w.touch(key, 7); // before the kernel has dropped the page
    w.clear(key, 7, 8);
    for n in 0..20_000 {
        let now = w.time();
        w.b.handle_removed(now, key, BaseRange::new(FAR + 2 * n, FAR + 2 * n + 1));
        w.drain();
    }
    w.now += 3600 * 1_000_000_000;
    for _ in 0..2 {
        let now = w.time();
        w.b.handle_fault(now, key, 7);
        w.drain();
    }
    assert_eq!(w.present.get(&(key, 7)), Some(&0));
    w.check();
}

/// Found by the fuzz simulation (seed 229294): a discard is under way where another thread moves a page to, and from there once more; or where
/// pages are found there when a range is adopted.
#[test]
fn what_came_to_where_a_discard_was_under_way_may_have_gone_with_it() {
    let mut w = World::new(1, true, 600, 1);
    let (key, adopted) = (SpaceKey(0), BaseRange::new(FAR, FAR + 1));
    w.step(&Op::Write { space: 0, base: 100, value: 5 });
    for range in [BaseRange::new(7, 8), adopted] {
        let now = w.time();
        w.b.handle_removed(now, key, range);
    }
    for (from, to) in [(100, 7), (7, 300)] {
        let now = w.time();
        w.b.handle_remapped(now, key, BaseRange::new(from, from + 1), to);
    }
    let now = w.time();
    w.b.handle_adopted(now, key, adopted, &[adopted]);
    w.drain();
    w.clear(key, 100, 101);
    w.now += 3600 * 1_000_000_000;
    for base in [300, FAR] {
        assert_eq!(w.b.state(key, base), BaseState::Local);
        for _ in 0..2 {
            let now = w.time();
            w.b.handle_fault(now, key, base);
            w.drain();
        }
        assert_eq!(w.present.get(&(key, base)), Some(&0));
    }
    w.check();
}

/// Found by the fuzz simulation (seed 26156): the same in a forked child, whose parent or which itself may have been let write since.
#[test]
fn zeros_that_a_discard_took_are_missed_in_a_child_of_which_more_was_let_go() {
    for writer in 0..2 {
        let mut w = World::new(1, true, 600, 1);
        let key = SpaceKey(0);
        for base in 0..200 {
            w.step(&Op::Write { space: 0, base, value: 1 });
        }
        let now = w.time();
        w.b.handle_removed(now, key, BaseRange::new(7, 8));
        w.drain();
        w.clear(key, 7, 8);
        w.touch(key, 7);
        w.clear(key, 7, 8); // dropped, and nobody says so
        w.step(&Op::Fork { space: 0 });
        let writes = w.spaces[writer];
        for base in 0..9 {
            let now = w.time();
            w.b.handle_write(now, writes, base, false);
            w.drain();
        }
        for key in w.spaces.clone() {
            for _ in 0..2 {
                let now = w.time();
                w.b.handle_fault(now, key, 7);
                w.drain();
            }
            assert_eq!(w.present.get(&(key, 7)), Some(&0), "{key:?}, when {writer} has written");
        }
        w.check();
    }
}

/// Found by the fuzz simulation (seed 1884): two relatives have the same copy. One is fetching it when the other, which has it at home,
/// loses its page to the hand unchanged: the contents are in a buffer, and safe at the lender. Then the lender is lost.
#[test]
fn what_a_relative_has_in_a_buffer_is_not_lost_with_its_lender() {
    let mut w = World::new(1, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let away = |w: &World, key, b: &u64| w.b.state(key, *b) == BaseState::Away;
    w.step(&Op::Fork { space: 0 });
    w.forked.clear(); // nothing is pinned here
    let (parent, child) = (w.spaces[0], w.spaces[1]);
    let far = |w: &World, b: &u64| w.b.copy_of(parent, *b).is_some_and(|c| c.buffer.is_none());
    let base = (0..PAGES).find(|b| away(&w, parent, b) && far(&w, b)).expect("most are at the lender alone");
    // The parent has it at home, unchanged; the child asks for it, and is not answered yet.
    w.touch(parent, base);
    let now = w.time();
    w.b.handle_fault(now, child, base);
    w.drain();
    let (answers, rest): (Vec<Pending>, Vec<Pending>) =
        w.pending.drain(..).partition(|p| matches!(p, Pending::Get { .. }));
    w.pending = rest;
    assert!(!answers.is_empty() && w.b.state(child, base) == BaseState::Fetching);
    // Everything of the parent's leaves.
    let now = w.time();
    w.b.handle_limit(now, BasePages(0));
    w.drain();
    for n in 0..20_000 {
        if w.b.state(parent, base) == BaseState::Away {
            break;
        }
        if !w.complete(n) {
            w.step(&Op::Tick);
        }
    }
    assert_eq!(w.b.state(parent, base), BaseState::Away);
    assert!(w.b.copy_of(parent, base).expect("it has one").buffer.is_some());
    let (now, copy) = (w.time(), w.b.copy_of(child, base).expect("it is fetched"));
    w.b.handle_missed(now, copy.index, copy.version, Source::Lender(LenderIndex(0)));
    w.drain();
    assert!(w.present.contains_key(&(child, base)), "{:?}", w.b.state(child, base));
    w.check();
}

/// Found by the fuzz simulation (seed 18800): a page is discarded while it is being fetched, then its lender turns out not to have it.
#[test]
fn a_copy_that_is_discarded_while_it_is_fetched_in_vain_comes_back() {
    let mut w = World::new(1, false, 600, 1);
    w.b.handle_adopted(Instant(0), SpaceKey(0), BaseRange::new(FAR, FAR + PAGES), &[]);
    for base in (0..PAGES).chain(FAR..FAR + PAGES) {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
    let key = SpaceKey(0);
    let far = |w: &World, b: &u64| w.b.copy_of(key, *b).is_some_and(|c| c.buffer.is_none());
    let base = (0..PAGES).find(|b| w.b.state(key, *b) == BaseState::Away && far(&w, b)).expect("most are");
    let now = w.time();
    w.b.handle_fault(now, key, base);
    w.drain();
    let copy = w.b.copy_of(key, base).expect("it is fetched");
    w.pending.retain(|p| !matches!(p, Pending::Get { copy: c, .. } if *c == copy.index));
    w.rest();
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(base, base + 1));
    w.drain();
    let now = w.time();
    assert!(w.b.handle_missed(now, copy.index, copy.version, Source::Lender(LenderIndex(0))));
    w.drain();
    w.b.audit();
}

/// Found by the fuzz simulation (seed 22083): zeros are brought between the event of a discard and the discard itself, and before anybody
/// touches them again the range is moved.
#[test]
fn a_discarded_page_that_is_moved_before_it_is_missed_reads_zeros() {
    let mut w = World::new(1, true, 600, 1);
    let key = SpaceKey(0);
    let now = w.time();
    w.b.handle_removed(now, key, BaseRange::new(7, 9));
    w.drain();
    w.touch(key, 7);
    w.touch(key, 8);
    w.clear(key, 7, 9); // the kernel drops them
    let now = w.time();
    w.b.handle_remapped(now, key, BaseRange::new(8, 20), FAR + 8);
    w.drain();
    for _ in 0..3 {
        let now = w.time();
        w.b.handle_fault(now, key, FAR + 8);
        w.drain();
    }
    assert_eq!(w.present.get(&(key, FAR + 8)), Some(&0), "it is looked for where it was");
}

/// Found by the fuzz simulation (seed 1978): a forked child asks for a range to be given back before its hand has come. When that is done
/// its pages may be taken again, but nobody is there who could take them: batch after batch would be void, in no time.
#[test]
fn nothing_is_taken_from_a_child_whose_hand_has_not_come() {
    let mut w = World::new(1, true, 600, 1);
    let parent = w.spaces[0];
    for base in 0..500 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.rest();
    let (now, child) = (w.time(), SpaceKey(w.next_space));
    w.b.handle_forked(now, parent, child);
    w.b.handle_not_protected(parent, BaseRange::new(0, PAGES)); // else it is known that nothing can be taken from it either
    w.b.handle_evictable(now, child, false);
    w.b.handle_evictable(now, child, true);
    w.b.handle_limit(now, BasePages(100));
    let mut batches = 0;
    while let Some(effect) = w.b.poll_effect() {
        let Effect::Evict(batch) = effect else { continue };
        batches += 1;
        assert!(batches < 10, "void batches follow each other for ever");
        let (key, pages) = w.b.batch_pages(batch);
        assert_ne!(key, child, "it has no hand");
        // And whoever has one: a void batch is not followed by another at once.
        for index in 0..pages.len() {
            w.b.handle_fate(batch, index, PageFate::Cancelled);
        }
        w.b.handle_batch_done(now, batch);
    }
    assert!(batches > 0, "the parent has one");
}

/// A hand ended in the middle of a batch, and somebody else has that memory: what nobody knows of is neither taken to be there, nor to be zeros, nor to be as its last copy.
#[test]
fn what_is_in_doubt_is_given_to_nobody() {
    let mut w = World::new(1, true, 600, 1);
    let key = w.spaces[0];
    for base in 0..500 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.rest();
    let now = w.time();
    w.b.handle_limit(now, BasePages(400));
    let evicts = |effect| if let Effect::Evict(batch) = effect { Some(batch) } else { None };
    let batch = core::iter::from_fn(|| w.b.poll_effect()).find_map(evicts).expect("something has to leave");
    let pages = w.b.batch_pages(batch).1.to_vec();
    w.b.handle_fault(now, key, pages[0]); // it waits already
    for index in 0..pages.len() {
        w.b.handle_fate(batch, index, PageFate::Unknown);
    }
    w.b.handle_batch_done(now, batch);
    w.b.handle_fault(now, key, pages[1]);
    assert!(pages.iter().all(|&base| w.b.state(key, base) == BaseState::Lost));
    let effects: Vec<Effect> = core::iter::from_fn(|| w.b.poll_effect()).collect();
    let is_lost = |base| effects.contains(&Effect::Lost { space: key, base });
    assert!(is_lost(pages[0]) && is_lost(pages[1]), "{effects:?}");
    let installs = |e: &Effect| matches!(e, Effect::Install { base, .. } if pages.contains(base));
    assert!(!effects.iter().any(installs), "{effects:?}");
    // Nor does it count as brought home, where whoever asked would go on without us.
    let mut home = Homecoming::new(BaseRange::new(pages[2], pages[2] + 1));
    w.b.bring_home(now, key, &mut home);
    let effects: Vec<Effect> = core::iter::from_fn(|| w.b.poll_effect()).collect();
    assert!(effects.contains(&Effect::Lost { space: key, base: pages[2] }), "{effects:?}");
    assert!(!w.b.is_home_again(key, &mut home));
}

/// All that is here is a process's that was stopped, and its hand with it: for what it was told to take nobody waits, and what it had is right when it goes on.
#[test]
fn a_hand_that_stands_still_holds_nobody_up() {
    let mut w = World::new(1, true, 600, 1);
    let (stopped, other) = (w.spaces[0], SpaceKey(w.next_space));
    for base in 0..590 {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.rest();
    let now = w.time();
    w.b.handle_space_added(other, true);
    w.spaces.push(other);
    w.b.handle_adopted(now, other, BaseRange::new(0, PAGES), &[]);
    w.b.handle_limit(now, BasePages(500));
    w.drain();
    let evictions = |w: &World| w.pending.iter().filter(|p| matches!(p, Pending::Evict(_))).count();
    let begun = evictions(&w);
    assert!(begun > 0 && w.b.frames_will_come(), "its hand is at work");
    w.b.handle_fault(now, other, 7);
    w.drain();
    assert_eq!(w.b.waiting(), BasePages(1), "there is no frame, and some are on their way");
    let evicts = |p: &mut Pending| matches!(p, Pending::Evict(_));
    let stuck: Vec<Pending> = w.pending.extract_if(.., evicts).collect();
    w.b.handle_stands_still(now, stopped, true);
    w.drain();
    w.touch(other, 7); // over the limit if need be
    // What the others have leaves all the same.
    (8..60).for_each(|base| w.touch(other, base));
    w.rest();
    assert!(w.b.local_in(other) < BasePages(53), "{:?}", w.b.local_in(other));
    let of = |w: &World, key| w.b.batches.values().filter(|batch| batch.space() == key).count();
    assert_eq!(of(&w, stopped), begun, "of the one that was stopped no more is taken");
    let now = w.time();
    w.pending.extend(stuck);
    w.b.handle_stands_still(now, stopped, false);
    w.drain();
    w.rest();
    assert!(w.b.frames() <= w.b.limit(), "{:?}", w.b.frames());
    w.check();
    w.read_all();
}
