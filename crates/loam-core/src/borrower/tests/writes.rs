//! Who writes to what forked relatives share gets a frame for it, and that counts before he has it.

use super::terms::settle;
use super::*;
use crate::borrower::writes::QUIET_CHILDREN;

const PARENT: SpaceKey = SpaceKey(0);
/// Pages that are shared.
const SHARED: u64 = 512;

/// Which frame each page of each process really is in, as the kernel has it.
struct Frames {
    w: World,
    of: BTreeMap<(SpaceKey, u64), u64>,
    next: u64,
    /// The most that there were at a time beyond the limit, and beyond what was counted.
    beyond_limit: i64,
    uncounted: i64,
}

impl Frames {
    /// A parent that has written all that will be shared, and its children.
    fn forked(limit: u64, children: usize) -> Self {
        Self::forked_of(1, limit, children)
    }

    /// With pages of so many base pages.
    fn forked_of(page: u64, limit: u64, children: usize) -> Self {
        let mut w = World::new(page, false, limit, 1);
        for base in (0..SHARED).rev() {
            w.step(&Op::Write { space: 0, base, value: base + 1 });
        }
        settle(&mut w);
        let mut frames =
            Self { w, of: BTreeMap::new(), next: 0, beyond_limit: i64::MIN, uncounted: i64::MIN };
        frames.look();
        (0..children).for_each(|_| frames.fork());
        frames.protect();
        frames
    }

    /// What is shared is protected once somebody is seen to copy; what was written until then is found.
    fn protect(&mut self) {
        let now = self.w.time();
        self.w.b.handle_copying(now);
        for _ in 0..100 {
            let frames: Vec<u64> = self.of.values().copied().collect();
            let alone = |frame: u64| frames.iter().filter(|&&other| other == frame).count() == 1;
            self.w.own = self.of.iter().filter(|&(_, &frame)| alone(frame)).map(|(&at, _)| at).collect();
            let now = self.w.time();
            self.w.b.handle_timeout(now);
            self.w.drain();
        }
        self.w.own.clear();
        self.look();
        (self.beyond_limit, self.uncounted) = (i64::MIN, i64::MIN);
    }

    fn fork(&mut self) {
        self.w.step(&Op::Fork { space: 0 });
        self.w.forked.clear(); // what is busy is told here
        let child = *self.w.spaces.last().expect("it was forked");
        let inherited: Vec<_> =
            self.of.range((PARENT, 0)..(PARENT, u64::MAX)).map(|(at, f)| (at.1, *f)).collect();
        for (base, frame) in inherited {
            self.of.insert((child, base), frame);
            self.w.shared.extend([(PARENT, base), (child, base)]);
        }
        self.look();
    }

    fn write(&mut self, space: usize, base: u64, value: u64) {
        self.w.step(&Op::Write { space, base, value });
        self.look(); // it may have come for that
        let at = (self.w.spaces[space], base);
        let frame = self.of[&at];
        if self.of.values().filter(|&&other| other == frame).count() > 1 {
            self.of.insert(at, self.next);
            self.next += 1;
        }
        self.w.shared.remove(&at);
        self.look();
    }

    fn look(&mut self) {
        let Self { w, of, next, .. } = self;
        of.retain(|at, _| w.present.contains_key(at));
        for at in w.present.keys() {
            of.entry(*at).or_insert_with(|| {
                *next += 1;
                *next - 1
            });
        }
        // The hand has written there.
        let mut users: BTreeMap<u64, u32> = BTreeMap::new();
        of.values().for_each(|frame| *users.entry(*frame).or_default() += 1);
        for (_, frame) in of.iter_mut().filter(|(at, _)| !w.shared.contains(at)) {
            let users = users.get_mut(frame).expect("counted above");
            if *users > 1 {
                (*users, *frame, *next) = (*users - 1, *next, *next + 1);
            }
        }
        let real = of.values().collect::<BTreeSet<_>>().len() as i64;
        self.beyond_limit = self.beyond_limit.max(real - w.b.limit().0 as i64);
        self.uncounted = self.uncounted.max(real - w.b.frames().0 as i64);
    }
}

/// Order in which pages are written.
fn scattered(n: u64) -> u64 {
    n * 197 % SHARED
}

#[test]
fn relatives_that_write_what_they_share_keep_to_the_limit() {
    for order in [|n| n, scattered] {
        let mut frames = Frames::forked(900, 3);
        for n in 0..SHARED {
            for space in 0..4 {
                frames.write(space, order(n), 10_000 + 4 * n + space as u64);
            }
        }
        assert!(frames.beyond_limit <= 0, "{} frames beyond the limit", frames.beyond_limit);
        assert!(frames.uncounted <= 0, "{} frames that nobody counts", frames.uncounted);
        // All but the last of four needed one.
        assert_eq!(frames.w.b.stats().copied, 3 * SHARED);
        frames.w.check();
        frames.w.read_all();
    }
}

/// No frame is needed for what the kernel had copied before it was protected, so nobody may wait for one: nothing else would end the wait.
#[test]
fn who_waits_to_write_what_is_found_to_be_its_own_goes_on() {
    for found in [Borrower::handle_own, Borrower::handle_not_protected] {
        let mut frames = Frames::forked(2000, 1);
        let w = &mut frames.w;
        let now = w.time();
        w.b.handle_limit(now, BasePages(SHARED - 64));
        w.drain();
        let is_shared =
            |base: u64| [PARENT, SpaceKey(1)].iter().all(|&key| w.protected.contains(&(key, base)));
        let stays = |&base: &u64| w.b.state(PARENT, base) == BaseState::Local && is_shared(base);
        let base = (0..SHARED).find(stays).expect("a batch is a part of it");
        w.b.handle_write(now, PARENT, base, false);
        w.drain();
        assert_eq!(w.b.waiting(), BasePages(1), "there is no frame, and some are on their way");
        found(&mut w.b, PARENT, BaseRange::new(base, base + 1));
        w.drain();
        assert_eq!(w.b.waiting(), BasePages(0));
        assert!(!w.protected.contains(&(PARENT, base)), "it has been woken");
    }
}

/// Before it is protected this is what happens: the test above could not fail.
#[test]
fn what_is_not_protected_is_not_counted() {
    let mut frames = Frames::forked(900, 0);
    frames.w.b.spaces.get_mut(&PARENT).expect("it lives").quiet_children = 3;
    (0..3).for_each(|_| frames.fork());
    for n in 0..SHARED {
        (0..4).for_each(|space| frames.write(space, n, 10_000 + n));
    }
    assert!(frames.beyond_limit > 500, "{}", frames.beyond_limit);
}

#[test]
fn who_writes_in_order_is_given_more_at_once_and_who_does_not_only_what_he_writes() {
    let mut frames = Frames::forked(2000, 1);
    (0..SHARED).for_each(|base| frames.write(1, base, 7));
    let stats = frames.w.b.stats();
    assert!((4..=20).contains(&stats.writes), "{}", stats.writes);
    assert_eq!(stats.copied, SHARED);
    let mut frames = Frames::forked(2000, 1);
    (0..100).for_each(|n| frames.write(1, scattered(n), 7));
    let stats = frames.w.b.stats();
    assert_eq!((stats.writes, stats.copied), (100, 100));
    assert_eq!(frames.w.b.frames().0, SHARED + 100);
}

/// The kernel still has it write-protected, and no copy is needed any more.
#[test]
fn what_is_left_of_a_child_that_has_ended_needs_no_frames() {
    let mut frames = Frames::forked(SHARED + 150, 1);
    frames.w.step(&Op::Exit { space: 1 });
    assert_eq!(frames.w.protected.len() as u64, SHARED);
    let before = frames.w.b.frames();
    (0..SHARED).for_each(|base| frames.write(0, base, 7));
    let stats = frames.w.b.stats();
    assert_eq!((stats.copied, frames.w.b.frames()), (0, before));
    assert!(stats.writes <= 2, "{}", stats.writes);
}

#[test]
fn little_that_is_shared_is_not_protected() {
    let mut w = World::new(1, false, 900, 1);
    (0..20).for_each(|base| w.step(&Op::Write { space: 0, base, value: 3 }));
    w.step(&Op::Fork { space: 0 });
    assert!(!w.b.wants_copying());
    let now = w.time();
    w.b.handle_copying(now);
    w.drain();
    assert!(w.protected.is_empty());
    assert_eq!(w.b.guarded(), None, "who writes is not heard of");
    w.step(&Op::Exit { space: 1 });
    assert_eq!(w.b.guarded(), Some(1));
}

/// Only then nobody has to look for copies.
#[test]
fn all_that_is_shared_is_guarded_once_it_is_protected() {
    let mut frames = Frames::forked(2000, 1);
    assert_eq!(frames.w.b.guarded(), Some(1));
    // The kernel refuses a page of the parent's.
    frames.w.b.handle_not_protected(PARENT, BaseRange::new(7, 8));
    assert_eq!(frames.w.b.guarded(), None);
    frames.w.step(&Op::Exit { space: 1 });
    assert_eq!(frames.w.b.guarded(), Some(1));
    // Nobody is left with whom it could share.
    frames.w.b.handle_not_protected(PARENT, BaseRange::new(8, 9));
    assert_eq!(frames.w.b.guarded(), Some(1));
    // Children that follow quiet ones are not protected at first.
    frames.w.b.spaces.get_mut(&PARENT).expect("it lives").quiet_children = QUIET_CHILDREN;
    frames.fork();
    assert_eq!(frames.w.b.guarded(), None);
    frames.protect();
    assert_eq!(frames.w.b.guarded(), Some(2));
}

/// Most run another program, or end, before they have written anything.
#[test]
fn after_a_few_children_that_write_nothing_the_next_is_not_protected_before_it_does() {
    let mut frames = Frames::forked(2000, 0);
    let child = |frames: &mut Frames, writes: u64| {
        frames.w.protected.clear();
        frames.fork();
        let is_protected = !frames.w.protected.is_empty();
        assert_ne!(is_protected, frames.w.b.wants_copying(), "one or the other");
        (0..writes).for_each(|base| frames.write(1, base, 9));
        frames.w.step(&Op::Exit { space: 1 });
        frames.look();
        assert!(!frames.w.b.wants_copying());
        is_protected
    };
    assert_eq!([0, 0, 0, 0, 0].map(|writes| child(&mut frames, writes)), [true, true, true, false, false]);
    // One is seen to copy.
    frames.fork();
    frames.protect();
    frames.w.step(&Op::Exit { space: 1 });
    frames.look();
    assert_eq!(
        [0, 0, 0].map(|writes| child(&mut frames, writes)),
        [true, true, false],
        "it had not written much"
    );
    frames.w.b.spaces.get_mut(&PARENT).expect("it lives").quiet_children = 2;
    frames.w.b.spaces.get_mut(&PARENT).expect("it lives").copies += 1;
    let much = |frames: &mut Frames| {
        frames.fork();
        frames.w.b.spaces.get_mut(&PARENT).expect("it lives").copies += 1024;
        frames.w.step(&Op::Exit { space: 1 });
        frames.look();
    };
    much(&mut frames);
    assert_eq!(frames.w.b.spaces[&PARENT].quiet_children, 0);
}

#[test]
fn what_is_written_before_it_is_protected_counts_from_then_on() {
    let mut frames = Frames::forked(2000, 0);
    frames.w.b.spaces.get_mut(&PARENT).expect("it lives").quiet_children = 3;
    frames.fork();
    frames.fork();
    (0..40).for_each(|base| frames.write(0, base, 7));
    (20..60).for_each(|base| frames.write(1, base, 8));
    (30..50).for_each(|base| frames.write(2, base, 9));
    let before = frames.w.b.frames().0;
    frames.protect();
    // Of what one or two have written there is the old page as well; where all three have, not.
    assert_eq!(frames.w.b.frames().0 - before, (20 + 10) + 2 * (10 + 10) + 2 * 10);
    (0..SHARED).for_each(|n| (0..3).for_each(|space| frames.write(space, scattered(n), 10_000 + n)));
    assert_eq!(frames.w.b.frames().0, 3 * before);
    assert_eq!((frames.uncounted, frames.w.b.stats().copied), (0, 2 * SHARED));
}

/// It is the process's own: others share what was there before.
#[test]
fn what_one_of_several_has_written_leaves_in_its_turn() {
    let mut frames = Frames::forked(1500, 2);
    (0..100).for_each(|base| frames.write(0, base, 7));
    let here = |frames: &Frames, key: SpaceKey, from: u64, to: u64| {
        (from..to).filter(|&base| frames.w.b.state(key, base) == BaseState::Local).count()
    };
    let now = frames.w.time();
    frames.w.b.handle_limit(now, BasePages(SHARED + 150));
    frames.w.drain();
    settle(&mut frames.w);
    assert!(here(&frames, PARENT, 0, 100) <= 50, "{}", here(&frames, PARENT, 0, 100));
    assert_eq!(frames.w.populated, 0);
    assert_eq!(here(&frames, PARENT, 100, SHARED), SHARED as usize - 100);
    frames.w.read_all();
}

/// To the kernel it is shared until the parent writes there, too, and it would stay for ever: a parent that waits for its workers does not.
#[test]
fn what_all_others_have_copied_leaves_in_its_turn() {
    for writers in 1..=3 {
        let mut frames = Frames::forked(2000, 3);
        for space in 1..=writers {
            (0..100).for_each(|base| frames.write(space, base, 7 + space as u64));
        }
        let key = |space: usize| SpaceKey(space as u32);
        let here = |frames: &Frames, space: usize, from: u64, to: u64| {
            (from..to).filter(|&base| frames.w.b.state(key(space), base) == BaseState::Local).count() as u64
        };
        assert_eq!((here(&frames, 0, 0, SHARED), here(&frames, 3, 0, SHARED)), (SHARED, SHARED));
        // Before it is known that the children stay nothing is tried.
        let limited = |frames: &mut Frames, limit: u64| {
            frames.w.now += 600_000_000;
            frames.w.b.handle_timeout(Instant(frames.w.now));
            frames.w.b.handle_limit(Instant(frames.w.now), BasePages(limit));
            frames.w.drain();
            settle(&mut frames.w);
            frames.look();
        };
        let of_writers = (100 * writers as u64).max(138);
        frames.w.b.handle_limit(Instant(frames.w.now), BasePages(SHARED + of_writers));
        frames.w.drain();
        settle(&mut frames.w);
        assert_eq!((here(&frames, 0, 0, 100), frames.w.populated), (100, 0));
        let room = if writers == 1 { 138 } else { 60 };
        (0..10).for_each(|_| limited(&mut frames, SHARED + room));
        let (left, other) = (100 - here(&frames, 0, 0, 100), 100 - here(&frames, 3, 0, 100));
        let populated = frames.w.populated;
        match writers {
            1 => assert_eq!((left, other, populated), (0, 0, 0)),
            2 => assert!(left > 60 && other > 60 && populated >= left + other, "{left} {other} {populated}"),
            _ => assert!(left > 60 && populated >= left, "{left} {populated}"),
        }
        assert_eq!(here(&frames, 0, 100, SHARED), SHARED - 100, "what all have stays");
        assert!(frames.uncounted <= 0, "{} frames that nobody counts", frames.uncounted);
        frames.w.check();
        frames.w.read_all();
    }
}

/// The rest of the page stays, and is no reason for it to stay.
#[test]
fn of_a_large_page_what_all_others_have_copied_leaves() {
    let mut frames = Frames::forked_of(16, 2000, 3);
    let by_all = |&base: &u64| base % 16 == 5;
    for space in 1..=3 {
        // In no order, or more would be given at once.
        let bases = (0..96).map(|n| n * 37 % 96).filter(|base| !by_all(base));
        bases.for_each(|base| frames.write(space, base, 7 + space as u64));
    }
    let here = |frames: &Frames, key: u32, of: &dyn Fn(&u64) -> bool| {
        let here = |&base: &u64| frames.w.b.state(SpaceKey(key), base) == BaseState::Local;
        (0..96).filter(|base| of(base)).filter(here).count()
    };
    for turn in 0..12_usize {
        let limit = SHARED + [270, 200, 150, 120, 100][turn.min(4)];
        frames.w.b.handle_limit(Instant(frames.w.now), BasePages(limit));
        frames.w.now += 600_000_000;
        frames.w.b.handle_timeout(Instant(frames.w.now));
        frames.w.drain();
        settle(&mut frames.w);
        frames.look();
    }
    assert_eq!([0, 1, 2, 3].map(|key| here(&frames, key, &by_all)), [6; 4]);
    let left: usize = 90 - here(&frames, 0, &|base| !by_all(base));
    assert!(left >= 75, "{left}");
    assert!(frames.uncounted <= 0, "{} frames that nobody counts", frames.uncounted);
    frames.w.check();
    frames.w.read_all();
}

/// It must not wait for a frame: all frames wait for it.
#[test]
fn the_hand_waits_for_nothing() {
    let mut frames = Frames::forked(900, 1);
    let now = frames.w.time();
    let b = &mut frames.w.b;
    b.handle_limit(now, BasePages(100));
    while b.poll_effect().is_some() {}
    let mut let_go = |base, urgent| {
        b.handle_write(now, PARENT, base, urgent);
        core::iter::from_fn(|| b.poll_effect())
            .any(|e| e == Effect::Unprotect { space: PARENT, base, pages: 1 })
    };
    assert!(!let_go(9, false), "there is no frame");
    assert!(let_go(300, true));
    assert!(let_go(9, true), "who waits already, too");
}

/// Discarded, or just away: it is met as it is.
#[test]
fn a_write_to_what_is_not_here_is_let_go_at_once() {
    let mut frames = Frames::forked(900, 1);
    frames.w.step(&Op::Remove { space: 1, base: 20, len: 5 });
    let (b, child) = (&mut frames.w.b, SpaceKey(1));
    b.handle_write(Instant(1_000_000_000), child, 22, false);
    // And what lies behind it, of which the same holds.
    assert_eq!(b.poll_effect(), Some(Effect::Unprotect { space: child, base: 22, pages: 3 }));
    assert!(b.waits.is_empty());
}
