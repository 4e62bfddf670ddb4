//! Lenders that come and go, and where pages go among them.

use super::*;

/// Fills memory with contents that differ from page to page, and has what leaves stored.
fn fill(w: &mut World) {
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
}

fn held(w: &World) -> Vec<u64> {
    (0..w.lenders.len()).map(|n| w.b.held_by(LenderIndex(n as u8)).0).collect()
}

fn weigh(w: &mut World, weights: &[u32], min_age: Duration) {
    let weights: Vec<(LenderIndex, u32)> =
        weights.iter().enumerate().map(|(n, &weight)| (LenderIndex(n as u8), weight)).collect();
    let now = w.time();
    w.b.handle_weights(now, &weights, min_age);
    w.drain();
}

#[test]
fn pages_follow_the_weights_batch_by_batch() {
    let mut w = World::new(1, true, 600, 3);
    w.b.place_pages(lender_choice("gms", 11).unwrap());
    weigh(&mut w, &[0, 1, 3], Duration(1));
    for round in 0..40 {
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: round * PAGES + base + 1 });
            if base % 64 == 0 {
                w.complete(base as usize);
            }
        }
    }
    assert_eq!(w.puts[0], 0, "{:?}", w.puts);
    // Some 200 batches: their spread is 4% of the whole.
    let part = w.puts[2] as f64 / (w.puts[1] + w.puts[2]) as f64;
    assert!((0.62..0.88).contains(&part), "{part}: {:?}", w.puts);
    // What leaves together goes together.
    assert!(w.changes * 32 < w.puts.iter().sum::<u64>(), "{} changes: {:?}", w.changes, w.puts);
    w.read_all();
}

#[test]
fn min_age_zero_leaves_pages_to_the_disk_until_the_next_epoch() {
    let mut w = World::new(1, true, 600, 2);
    w.b.place_pages(lender_choice("gms", 1).unwrap());
    weigh(&mut w, &[5, 5], Duration(0));
    fill(&mut w);
    assert_eq!(held(&w), [0, 0]);
    w.read_all();
    assert_eq!(w.b.stats().answered[FaultKind::Remote as usize], 0);
    weigh(&mut w, &[5, 5], Duration(1));
    w.read_all();
    while w.complete(0) {}
    assert!(held(&w).iter().sum::<u64>() > 0);
}

#[test]
fn under_n_chance_a_refused_page_has_one_more_chance() {
    let mut w = World::new(1, true, 600, 3);
    w.b.place_pages(lender_choice("n-chance", 5).unwrap());
    w.lender_room = false;
    fill(&mut w);
    let stored = w.disk.len() as u64;
    assert!(stored > 500, "{stored}");
    assert_eq!(w.puts.iter().sum::<u64>(), 2 * stored, "each was offered to two, and then dropped");
    w.read_all();
    // Without a disk what was dropped twice waits in its buffer for the next try.
    let mut w = World::new(1, false, 600, 3);
    w.b.place_pages(lender_choice("n-chance", 5).unwrap());
    w.lender_room = false;
    fill(&mut w);
    assert!(w.b.stuck() > 0);
    w.lender_room = true;
    w.read_all();
}

#[test]
fn without_lenders_that_are_to_be_used_the_disk_has_all() {
    let mut w = World::new(1, true, 600, 2);
    w.b.place_pages(lender_choice("none", 5).unwrap());
    fill(&mut w);
    assert_eq!(w.puts.iter().sum::<u64>(), 0);
    w.read_all();
}

#[test]
fn a_program_takes_no_more_than_its_share() {
    let mut w = World::new(1, true, 600, 2);
    w.b.limit_lending(BasePages(100));
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        assert!(w.b.lent() <= BasePages(100));
    }
    while w.complete(0) {}
    assert_eq!(held(&w).iter().sum::<u64>(), 100);
    w.read_all();
    assert!(w.b.lent() <= BasePages(100));
}

/// A scan over much memory beside a few pages that come back: without the guard the scan has nearly all that lenders have.
#[test]
fn a_scan_goes_to_the_disk_the_first_time() {
    let scan = |guard: bool| {
        let mut w = World::new(1, true, 300, 1);
        w.b.guard_from_scans(guard);
        for base in 0..PAGES {
            w.step(&Op::Write { space: 0, base, value: base + 1 });
        }
        while w.complete(0) {}
        let first = held(&w)[0];
        // Read again: they come home, and leave unchanged.
        w.read_all();
        while w.complete(0) {}
        (first, held(&w)[0])
    };
    let (open, guarded) = (scan(false), scan(true));
    assert!(open.0 > 1_000, "{open:?}");
    assert!(guarded.0 < 200, "what the stream began with alone: {guarded:?}");
    assert!(guarded.1 > 500, "the second time they were not read once: {guarded:?}");
}

#[test]
fn lenders_come_and_go_for_days() {
    let mut w = World::new(1, true, 600, 0);
    for round in 0..600_u64 {
        w.join_lender(100_000);
        let base = round * 7 % PAGES;
        w.step(&Op::Write { space: 0, base, value: round + 1 });
        w.step(&Op::Complete { pick: round as usize });
        if round % 3 > 0 {
            w.step(&Op::LoseLender);
        }
        if w.lenders.iter().flatten().count() > 20 {
            w.step(&Op::LoseLender);
            w.step(&Op::LoseLender);
        }
    }
    assert!(w.lenders.len() < 40, "{} indices", w.lenders.len());
    w.read_all();
}

/// An answer of one life of an index must find nothing of the next.
#[test]
fn an_index_that_is_used_again_begins_anew() {
    let mut w = World::new(1, true, 600, 1);
    fill(&mut w);
    assert!(held(&w)[0] > 0);
    w.step(&Op::LoseLender);
    assert_eq!((held(&w)[0], w.b.lent()), (0, BasePages(0)));
    assert_eq!(w.join_lender(50), LenderIndex(0));
    let state = w.b.lender(LenderIndex(0));
    assert_eq!(state, LenderState { up: true, room: 50, ..LenderState::default() });
    w.check();
    w.read_all();
    while w.complete(0) {}
    assert!(held(&w)[0] > 0);
}

#[test]
fn a_page_that_comes_home_leaves_nothing_with_a_lender_that_is_tight() {
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    fill(&mut w);
    w.read_all();
    while w.complete(0) {}
    assert_eq!(held(&w)[0], PAGES, "there is room: a copy of each page stays");
    let puts = w.puts[0];
    w.read_all();
    while w.complete(0) {}
    assert_eq!(w.puts[0], puts, "nothing that is unchanged is sent");
    // Each round makes it a little roomier, until another borrower takes that.
    for _ in 0..12 {
        w.b.handle_lender_room(LenderIndex(0), BasePages(5));
        w.read_all();
        while w.complete(0) {}
    }
    assert!(
        (PAGES - 600..PAGES - 300).contains(&held(&w)[0]),
        "what is away, and hardly more: {:?}",
        held(&w)
    );
    assert!(w.puts[0] > puts + 1_000, "{:?}", w.puts);
    let store = w.lenders[0].as_ref().expect("it is there").len() as u64;
    assert_eq!(held(&w)[0], store, "both know the same");
}

#[test]
fn what_others_took_the_place_of_is_sent_again_or_read_from_the_disk() {
    let mut w = World::new(1, true, 600, 1);
    w.b.config.rescue = false;
    fill(&mut w);
    w.read_all();
    while w.complete(0) {}
    let stored: Vec<_> = w.lenders[0].as_ref().expect("it is there").keys().copied().collect();
    let puts = w.puts[0];
    for &(copy, version) in &stored {
        w.lenders[0].as_mut().expect("it is there").remove(&(copy, version));
        w.b.handle_gone(LenderIndex(0), copy, version);
        // Again, and of another version: nothing happens.
        w.b.handle_gone(LenderIndex(0), copy, version);
        w.b.handle_gone(LenderIndex(0), copy, Version(version.0.wrapping_add(1)));
    }
    assert_eq!(held(&w), [0]);
    w.read_all();
    while w.complete(0) {}
    assert!(w.b.stats().answered[FaultKind::Disk as usize] > 600, "{:?}", w.b.stats());
    assert!(w.puts[0] > puts + 600, "what left since went to the lender again");
    w.read_all();
}

/// Lenders have room for what is away and little more. What came home while they had room is given up when they have none, and what comes home then leaves nothing.
#[test]
fn lenders_that_have_room_for_all_that_is_away_hold_no_program_up() {
    for (replicas, lenders) in [(1, 1), (1, 2), (2, 2)] {
        let mut w = World::configured(1, 600, lenders, |config| config.replicas = replicas);
        let each = (PAGES as usize - 600 + 150) * usize::from(replicas) / lenders;
        w.limit_lenders(Some(each));
        fill(&mut w);
        for round in 0..4 {
            w.read_all();
            while w.complete(0) {}
            assert_eq!((w.b.stuck(), w.disk.len()), (0, 0), "round {round} with {replicas} of {lenders}");
            assert!(
                w.b.local_in(SpaceKey(0)) <= BasePages(600),
                "{:?} with {replicas} of {lenders}",
                w.b.local_in(SpaceKey(0))
            );
        }
        let away: u64 = held(&w).iter().sum();
        assert!(away >= (PAGES - 600) * u64::from(replicas), "{away}");
    }
}
