//! What forked relatives share leaves, too: not at once, as most children go soon, but not never.

use super::terms::{local, set, settle};
use super::*;

const PARENT: SpaceKey = SpaceKey(0);
const CHILD: SpaceKey = SpaceKey(1);
/// Written before the fork; beside it the parent writes on.
const SHARED: u64 = 100;
const LIMIT: u64 = 400;

/// Parent and child have the same frames.
fn forked() -> World {
    forked_in(World::new(1, false, LIMIT, 1))
}

fn forked_in(mut w: World) -> World {
    for base in (0..SHARED).rev() {
        w.step(&Op::Write { space: 0, base, value: base + 1 }); // nothing is brought ahead
    }
    settle(&mut w);
    w.step(&Op::Fork { space: 0 });
    w.forked.clear(); // what is busy is told here
    assert_eq!((w.here(PARENT), w.here(CHILD)), (SHARED, SHARED));
    for key in [PARENT, CHILD] {
        w.shared.extend((0..SHARED).map(|base| (key, base)));
    }
    w
}

impl World {
    /// Of what was shared.
    fn here(&self, key: SpaceKey) -> u64 {
        (0..SHARED).filter(|&base| self.b.state(key, base) == BaseState::Local).count() as u64
    }

    /// The parent works on for a while, on more than fits. The most that were made a process's own and are still here.
    fn work(&mut self, span: Duration) -> u64 {
        let end = self.now + span.0;
        let (mut base, mut most) = (SHARED, 0);
        while self.now < end {
            let own = |key: SpaceKey| self.b.spaces.get(&key).map_or(0, |space| space.tried.len() as u64);
            most = most.max(own(PARENT) + own(CHILD));
            self.step(&Op::Write { space: 0, base, value: base + self.now });
            settle(self);
            self.now += 1_000_000;
            self.b.handle_timeout(Instant(self.now));
            self.drain();
            base = if base + 1 == PAGES { SHARED } else { base + 1 };
        }
        most
    }
}

#[test]
fn a_child_that_goes_soon_leaves_what_it_shared_alone() {
    let mut w = forked();
    w.work(Duration::from_millis(400));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (SHARED, SHARED, 0));
    w.step(&Op::Exit { space: 1 });
    // The kernel still calls them shared.
    w.work(Duration::from_millis(500));
    assert_eq!((w.here(PARENT), w.populated), (0, SHARED));
    w.read_all();
}

#[test]
fn what_is_shared_with_a_child_that_stays_leaves_in_its_turn_and_counts_once() {
    let mut w = forked();
    assert_eq!((w.b.shared_in(PARENT).0, w.b.shared_in(CHILD).0), (0, SHARED));
    let most = w.work(Duration::from_millis(1500));
    assert_eq!((w.here(PARENT), w.here(CHILD)), (0, 0));
    assert_eq!((w.populated, w.b.shared_in(CHILD).0), (2 * SHARED, 0));
    // Frames that this takes are given back before more are taken.
    assert!((1..=SHARED).contains(&most), "{most} at a time");
    w.read_all();
}

/// To the lenders it is one.
#[test]
fn what_two_have_shared_is_sent_once() {
    let mut w = forked();
    w.work(Duration::from_millis(1500));
    assert_eq!((w.here(PARENT), w.here(CHILD)), (0, 0));
    let copies = |key: SpaceKey| (0..SHARED).map(move |base| (key, base));
    for ((parent, base), (child, _)) in copies(PARENT).zip(copies(CHILD)) {
        let copy = w.b.entry(parent, base).copy;
        assert!(copy.is_some() && w.b.entry(child, base).copy == copy, "{base}");
    }
    // What the child writes is its own from then on.
    w.step(&Op::Write { space: 1, base: 10, value: 5_000 });
    for base in PAGES - LIMIT..PAGES {
        w.step(&Op::Write { space: 1, base, value: base });
        settle(&mut w);
    }
    assert_eq!(w.b.state(CHILD, 10), BaseState::Away);
    assert_ne!(w.b.entry(CHILD, 10).copy, w.b.entry(PARENT, 10).copy);
    w.read_all();
}

/// In its own turn it would leave when all of the one side has, and no frame would be free before. What the child has written by then is in a frame that nobody else has.
#[test]
fn what_leaves_one_side_leaves_the_other_next() {
    let mut w = forked();
    w.step(&Op::Write { space: 1, base: 11, value: 5_000 });
    w.finish();
    w.now += 600_000_000;
    for base in [12, 11, 10] {
        w.b.could_not_leave(Instant(w.now), PARENT, (base, PageSize::from_log2(0)), false);
    }
    let firsts = |of: &VecDeque<(PageRef, PageSize)>| {
        of.iter().map(|(page, _)| (page.space, page.first)).collect::<Vec<_>>()
    };
    assert_eq!(firsts(&w.b.made_own), [(PARENT, 12), (PARENT, 11), (PARENT, 10)]);
    assert!(!w.b.make_other_side_own(Instant(w.now)), "first these");
    let mut base = SHARED;
    while w.b.state(PARENT, 10) != BaseState::Away || w.b.made_own.is_empty() {
        assert!(w.b.other_side.iter().all(|(page, _)| page.space == CHILD && page.first != 11));
        w.step(&Op::Write { space: 0, base, value: base });
        settle(&mut w);
        base += 1;
    }
    assert_eq!(firsts(&w.b.made_own)[..2], [(CHILD, 12), (CHILD, 10)]);
    w.work(Duration::from_millis(100));
    assert_eq!((w.b.state(CHILD, 12), w.b.state(CHILD, 10)), (BaseState::Away, BaseState::Away));
    w.read_all();
}

/// Else each of them would want a frame for what one frame holds.
#[test]
fn what_more_than_two_share_stays() {
    let mut w = forked();
    w.step(&Op::Fork { space: 0 });
    w.forked.clear();
    w.shared.extend((0..SHARED).map(|base| (SpaceKey(2), base)));
    w.work(Duration::from_millis(3000));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (SHARED, SHARED, 0));
    w.step(&Op::Exit { space: 2 });
    w.work(Duration::from_millis(2500));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (0, 0, 2 * SHARED));
    w.read_all();
}

/// It has no hand (a child of a raw system call), or is stopped before it has one: the frames would stay there, and nothing be won.
#[test]
fn what_is_shared_with_one_from_whom_nothing_can_be_taken_stays() {
    let mut w = forked();
    w.b.spaces.get_mut(&CHILD).expect("it lives").has_hand = false;
    // (No longer: when nothing else can leave, sharing is broken all the same.)
    w.work(Duration::from_millis(1500));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (SHARED, SHARED, 0));
    w.b.spaces.get_mut(&CHILD).expect("it lives").has_hand = true;
    w.work(Duration::from_millis(4000));
    assert_eq!((w.here(PARENT), w.here(CHILD)), (0, 0));
    w.read_all();
}

/// It leaves by its budget's order, and perhaps nothing else does for long.
#[test]
fn what_has_a_budget_of_its_own_is_not_the_next_to_leave() {
    let mut w = forked();
    w.b.make_own(PARENT, 10, PageSize::from_log2(0), true);
    assert_eq!(w.b.made_own.len(), 1);
    set(&mut w, 20, 60, local(64));
    for base in 20..60 {
        w.b.make_own(PARENT, base, PageSize::from_log2(0), true);
    }
    assert_eq!(w.b.made_own.len(), 1);
    w.drain();
    w.check();
}

/// What is mapped at the same place later has not been tried.
#[test]
fn what_is_dropped_is_no_longer_known_as_tried() {
    let mut w = forked();
    w.b.spaces.get_mut(&PARENT).expect("it lives").tried.extend(0..SHARED);
    w.step(&Op::Remove { space: 0, base: 10, len: 20 });
    let left: Vec<u64> = w.b.spaces[&PARENT].tried.iter().copied().collect();
    assert_eq!(left, (0..10).chain(30..SHARED).collect::<Vec<_>>());
}

/// One of them is pinned, or locked: having it made the process's own does not help.
#[test]
fn what_cannot_be_taken_although_it_is_its_own_is_put_aside() {
    let mut w = forked();
    w.pinned = Some(CHILD);
    w.work(Duration::from_millis(4000));
    assert_eq!((w.here(PARENT), w.here(CHILD)), (0, SHARED));
    // Once for the parent; for the child once in each pause, which is twice as long each time.
    let times = (w.populated - SHARED) / SHARED;
    assert!((1..=3).contains(&times), "{times} times");
    w.pinned = None;
    w.work(Duration::from_millis(8000));
    assert_eq!(w.here(CHILD), 0);
    w.read_all();
}

/// When one of two gets a frame of its own, the other has the old one alone.
#[test]
fn a_page_that_parent_or_child_has_for_itself_counts_for_both() {
    for first in [PARENT, CHILD] {
        let mut w = forked();
        let frames = w.b.frames().0;
        w.b.make_own(first, 10, PageSize::from_log2(1), true);
        w.drain();
        assert_eq!((w.b.frames().0, w.b.shared_in(CHILD).0), (frames + 2, SHARED - 2), "{first:?}");
        w.b.make_own(if first == PARENT { CHILD } else { PARENT }, 10, PageSize::from_log2(1), true);
        assert_eq!(w.b.frames().0, frames + 2, "{first:?}");
        w.check();
    }
}

/// All buffers hold what no lender takes: what would be made a process's own could not leave, and would be there twice.
#[test]
fn nothing_is_made_a_process_s_own_while_no_buffer_is_free() {
    let mut w = forked();
    w.lender_room = false;
    for base in SHARED..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        settle(&mut w);
    }
    assert!(w.b.stuck() > 0 && w.b.buffers_for_eviction() == 0, "{} are stuck", w.b.stuck());
    assert!(!w.b.spaces[&PARENT].parked.is_empty(), "what is shared could not leave");
    w.work(Duration::from_millis(3000));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (SHARED, SHARED, 0));
    // It goes on when a lender takes something.
    w.lender_room = true;
    w.b.handle_lender_room(LenderIndex(0), BasePages(100_000));
    w.work(Duration::from_millis(4000));
    assert_eq!((w.b.stuck(), w.here(PARENT), w.here(CHILD)), (0, 0, 0));
    w.read_all();
}

/// Some are free, and fewer than a page has.
#[test]
fn nor_while_no_page_finds_buffers_enough() {
    let page = 16;
    let mut w = forked_in(World::configured(page, LIMIT, 1, |config| config.buffers += page as u32 / 2));
    w.buffers.resize(w.b.config.buffers as usize, 0);
    w.lender_room = false;
    for base in SHARED..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
        settle(&mut w);
    }
    assert!((1..page).contains(&w.b.buffers_for_eviction()), "{} are free", w.b.buffers_for_eviction());
    assert!(!w.b.spaces[&PARENT].parked.is_empty(), "what is shared could not leave");
    w.work(Duration::from_millis(3000));
    assert_eq!((w.here(PARENT), w.here(CHILD), w.populated), (SHARED, SHARED, 0));
}

#[test]
fn what_could_not_be_taken_of_a_page_is_not_asked_for_with_each_that_comes_to_it() {
    const OF_PAGE: u64 = 15;
    let mut w = World::new(OF_PAGE + 1, false, LIMIT, 1);
    for base in 0..=OF_PAGE {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    settle(&mut w);
    w.shared.extend((0..OF_PAGE).map(|base| (PARENT, base)));
    for round in 1..10 {
        for base in (SHARED..PAGES).step_by(4) {
            w.step(&Op::Write { space: 0, base, value: base + round });
            settle(&mut w);
        }
        assert_eq!(w.b.state(PARENT, OF_PAGE), BaseState::Away, "what is not shared leaves as ever");
        w.step(&Op::Write { space: 0, base: OF_PAGE, value: round });
        settle(&mut w);
    }
    assert_eq!(w.b.stats().busy, OF_PAGE);
    // After a while it is tried again, and leaves if it can.
    w.shared.clear();
    w.now += 600_000_000;
    w.b.handle_timeout(Instant(w.now));
    w.drain();
    w.work(Duration::from_millis(1000));
    assert_eq!(w.b.state(PARENT, 0), BaseState::Away);
    w.read_all();
}

/// Where the kernel reports no forks nobody knows who has what, nor for how long.
#[test]
fn what_is_shared_with_a_child_of_which_nobody_told_leaves_after_a_while() {
    let mut w = World::new(1, false, LIMIT, 1);
    for base in (0..SHARED).rev() {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    settle(&mut w);
    w.b.handle_forked_unseen(Instant(w.now), PARENT);
    w.shared.extend((0..SHARED).map(|base| (PARENT, base)));
    w.work(Duration::from_millis(1_300));
    assert_eq!((w.here(PARENT), w.populated), (SHARED, 0));
    // As long as it forks all the time its children end all the time.
    w.b.handle_forked_unseen(Instant(w.now), PARENT);
    w.work(Duration::from_millis(1_300));
    assert_eq!((w.here(PARENT), w.populated), (SHARED, 0));
    w.work(Duration::from_millis(2_000));
    assert_eq!((w.here(PARENT), w.populated), (0, SHARED));
    w.read_all();
}
