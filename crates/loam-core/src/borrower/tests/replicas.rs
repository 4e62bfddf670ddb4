//! Copies at several lenders: whichever lender dies, alone, nothing is lost.

use super::*;
use crate::borrower::copies::Stored;

/// What lenders know of the copies that are not theirs alone.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    /// As what each page was sent.
    class: BTreeMap<(LenderIndex, CopyIndex, Version), PutClass>,
    spare: BTreeSet<(LenderIndex, CopyIndex, Version)>,
    /// On a lender's disk, and told.
    drained: BTreeSet<(LenderIndex, CopyIndex, Version)>,
    pub(super) away: BTreeSet<LenderIndex>,
    /// A lender has given something up without a word.
    untold: bool,
    /// A lender has died, and not everything has come to rest since.
    shaken: bool,
    /// They take no more to write to their disks.
    rings_full: BTreeSet<LenderIndex>,
    /// One more would be too many: nobody has taken what it had.
    spent: bool,
}

impl Replicas {
    pub(super) fn put(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version, class: PutClass) {
        self.forget(lender, copy, version);
        self.class.insert((lender, copy, version), class);
    }

    pub(super) fn takes(&self, lender: LenderIndex, copy: CopyIndex, version: Version) -> bool {
        let staged = self.class.get(&(lender, copy, version)) == Some(&PutClass::Staged);
        !(staged && self.rings_full.contains(&lender))
    }

    pub(super) fn spare(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version) {
        let elsewhere = self.drained.iter().any(|&(l, c, v)| l != lender && (c, v) == (copy, version));
        assert!(elsewhere, "{copy:?} became spare at {lender:?}, and is on no disk");
        self.spare.insert((lender, copy, version));
    }

    pub(super) fn forget(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version) {
        let page = (lender, copy, version);
        self.spare.remove(&page);
        self.drained.remove(&page);
    }
}

impl World {
    fn has(&self, (lender, copy, version): (LenderIndex, CopyIndex, Version)) -> bool {
        self.lenders[usize::from(lender.0)].as_ref().is_some_and(|store| store.contains_key(&(copy, version)))
    }

    pub(super) fn drain_one(&mut self, pick: usize) {
        let r = &self.replicas;
        let staged = r.class.iter().filter(|&(page, &class)| class == PutClass::Staged && self.has(*page));
        let staged: Vec<_> = staged.map(|(&page, _)| page).filter(|page| !r.drained.contains(page)).collect();
        for &(lender, copy, version) in staged.iter().skip(pick % staged.len().max(1)).take(16) {
            self.pending.push(Pending::Stored { lender, copy, version });
        }
    }

    pub(super) fn stored(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version) {
        if self.has((lender, copy, version)) {
            self.replicas.drained.insert((lender, copy, version));
            let now = self.time();
            self.b.handle_stored(now, lender, core::iter::once((copy, version)));
        }
    }

    pub(super) fn give_up(&mut self, pick: usize, tells: bool) {
        if self.replicas.shaken {
            // Both at once would be two faults.
            return;
        }
        let spare: Vec<_> = self.replicas.spare.iter().copied().collect();
        let Some(&(lender, copy, version)) = spare.get(pick % spare.len().max(1)) else { return };
        self.replicas.forget(lender, copy, version);
        if let Some(store) = &mut self.lenders[usize::from(lender.0)] {
            store.remove(&(copy, version));
        }
        self.taken.insert((copy, version));
        if tells {
            self.pending.push(Pending::Gone { lender, copy, version });
        }
        self.replicas.untold |= !tells;
    }

    pub(super) fn bring_back(&mut self, lender: LenderIndex) {
        if self.replicas.away.remove(&lender) {
            // Nobody has heard what was asked of it meanwhile: it is asked again.
            self.pending.retain(|p| !matches!(p, Pending::Get { lender: of, .. } if *of == lender));
            let now = self.time();
            self.b.handle_lender_back(now, lender, BasePages(100_000));
            self.drain();
        }
    }

    /// Everything under way is done, and what too few lenders have is with enough.
    fn come_to_rest(&mut self) {
        for lender in self.replicas.away.clone() {
            self.bring_back(lender);
        }
        self.finish();
        self.replicas.shaken = false;
    }

    pub(super) fn lose_one(&mut self, lender: usize, comes_back: bool) {
        if core::mem::replace(&mut self.replicas.shaken, true) {
            self.come_to_rest();
            return;
        }
        let up: Vec<usize> = (0..self.lenders.len()).filter(|&n| self.lenders[n].is_some()).collect();
        let Some(&n) = up.get(lender % up.len().max(1)) else { return };
        let index = LenderIndex(n as u8);
        if core::mem::replace(&mut self.replicas.spent, self.writes_fail) {
            return;
        }
        // A disk that is lost for good may have had the only copy.
        let only = |&(lender, copy, version): &(LenderIndex, CopyIndex, Version)| {
            let elsewhere = (0..self.lenders.len())
                .any(|n| n != usize::from(index.0) && self.has((LenderIndex(n as u8), copy, version)));
            lender == index && !elsewhere
        };
        let comes_back = comes_back || self.replicas.drained.iter().any(only);
        self.full.remove(&n);
        self.pending.retain(|p| {
            !matches!(p, Pending::Get { lender, .. } | Pending::Put { lender, .. } | Pending::Gone { lender, .. }
                | Pending::Stored { lender, .. } if *lender == index)
        });
        let now = self.time();
        let drained = &self.replicas.drained;
        let lost = if comes_back {
            let store = self.lenders[n].as_mut().expect("it is up");
            store.retain(|&(copy, version), _| drained.contains(&(index, copy, version)));
            self.replicas.away.insert(index);
            self.b.handle_lender_away(now, index)
        } else {
            self.lenders[n] = None;
            self.b.handle_lender_lost(now, index)
        };
        self.replicas.class.retain(|&(lender, _, _), _| lender != index);
        self.replicas.spare.retain(|&(lender, _, _)| lender != index);
        if !comes_back {
            self.replicas.drained.retain(|&(lender, _, _)| lender != index);
        }
        assert_eq!(lost.0, 0, "one lender alone had pages");
        self.drain();
    }
}

fn replicated_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        30 => op(false),
        6 => (0usize..1000).prop_map(|pick| Op::Drain { pick }),
        2 => (0usize..1000, any::<bool>()).prop_map(|(pick, tells)| Op::GiveUp { pick, tells }),
        2 => (0usize..6, any::<bool>()).prop_map(|(lender, comes_back)| Op::LoseOne { lender, comes_back }),
        1 => any::<bool>().prop_map(|room| Op::Room { room }),
    ];
    proptest::collection::vec(op, 1..250)
}

/// A lender's site by its number: three machines in two racks, half of them with disks.
fn site(n: usize) -> Site {
    Site { machine: n as u32 % 3, zone: 1 + n as u32 % 2, drains: n.is_multiple_of(2) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_lender_alone_has_a_page(
        ops in replicated_ops(), page in 0u32..8, lenders in 0usize..5, replicas in 2u8..=4, staged: bool,
        place in proptest::sample::select(&PLACEMENTS[..4]), rescue: bool, sited: bool, few_buffers: bool, writes_fail: bool,
        lender_pages in proptest::option::of(300usize..1500),
    ) {
        let mut w = World::configured(1 << page, 600, lenders, |config| {
            (config.replicas, config.staged) = (if staged { 2 } else { replicas }, staged);
            if few_buffers {
                config.buffers = BUFFERS_LEAST.max(BUFFERS_LEAST_PAGES << page);
            }
        });
        w.limit_lenders(lender_pages);
        w.writes_fail = writes_fail;
        w.b.place_pages(lender_choice(place, 5).unwrap());
        w.b.config.rescue = rescue;
        for n in 0..lenders {
            w.b.handle_lender_site(LenderIndex(n as u8), if sited { site(n) } else { Site::default() });
        }
        for op in &ops { w.step(op); }
        w.read_all();
        w.come_to_rest();
        if !w.replicas.untold {
            w.agree();
        }
        w.read_all();
    }
}

/// Everything away is with two lenders, apart as far as there are lenders for it.
#[test]
fn two_lenders_have_each_page_and_they_are_apart() {
    let mut w = replicated(600, 4, 2, true);
    let sites = [(1, 1, false), (1, 2, true), (2, 1, false), (3, 2, false)];
    for (n, (machine, zone, drains)) in sites.into_iter().enumerate() {
        w.b.handle_lender_site(LenderIndex(n as u8), Site { machine, zone, drains });
    }
    fill(&mut w);
    let mut pairs = BTreeMap::new();
    for base in 0..PAGES {
        let Some(copy) =
            w.b.copy_of(SpaceKey(0), base).filter(|_| w.b.state(SpaceKey(0), base) == BaseState::Away)
        else {
            continue;
        };
        let others: Vec<LenderIndex> = copy.at_others.into_iter().flatten().collect();
        let first = copy.at_lender.expect("a lender has it");
        let [other] = others[..] else { panic!("{others:?} beside the first") };
        *pairs.entry((first.0.min(other.0), first.0.max(other.0))).or_insert(0) += 1;
    }
    // 0 and 1 are one machine; 0 and 2, 1 and 3 are one rack.
    let apart: Vec<_> = pairs.keys().copied().collect();
    assert!(apart.iter().all(|pair| [(0, 3), (1, 2), (2, 3)].contains(pair)), "{pairs:?}");
    assert!(pairs.values().sum::<u64>() > 500, "{pairs:?}");
}

/// What a lender with a disk has written needs no second lender, and none of it is sent again when it comes and goes unchanged.
#[test]
fn what_is_on_a_lenders_disk_is_with_one_lender() {
    let mut w = replicated(600, 2, 2, true);
    w.b.handle_lender_site(LenderIndex(1), Site { machine: 1, zone: 0, drains: true });
    fill(&mut w);
    let puts = w.puts.clone();
    assert_eq!(puts[0], puts[1], "each page goes to both");
    for _ in 0..PAGES {
        w.step(&Op::Drain { pick: 0 });
        while w.complete(0) {}
    }
    let spare = w.replicas.spare.len() as u64;
    assert_eq!(
        (spare, w.replicas.drained.len() as u64),
        (puts[0], puts[1]),
        "all are written, and spare at the other"
    );
    while !w.replicas.spare.is_empty() {
        w.step(&Op::GiveUp { pick: 0, tells: true });
    }
    while w.complete(0) {}
    w.read_all();
    w.finish();
    w.agree();
    let held = w.b.held_by(LenderIndex(0)).0;
    assert!(
        held * 2 < puts[0],
        "what was given up is not sent again as long as it is not changed: {held} of {puts:?}"
    );
    // A restart of the lender with the disk costs no page of it.
    w.lose_one(1, true);
    w.read_all();
}

/// With one lender left everything is on the disk; a second one that joins takes part from then on.
#[test]
fn with_too_few_lenders_the_slot_file_has_each_page() {
    let mut w = replicated(600, 2, 2, false);
    fill(&mut w);
    assert!(w.disk.is_empty());
    w.lose_one(0, false);
    w.come_to_rest();
    assert!(w.disk.len() as u64 >= w.b.held_by(LenderIndex(1)).0, "{} pages on the disk", w.disk.len());
    w.lose_one(1, false);
    w.read_all();
}

/// Where the disk fails too, what has one lender left keeps it, and no buffer; the next lender that joins gets it.
#[test]
fn what_cannot_be_mended_is_mended_when_a_lender_joins() {
    let mut w = replicated(600, 2, 2, false);
    fill(&mut w);
    w.writes_fail = true;
    w.lose_one(0, false);
    w.come_to_rest();
    assert!(w.disk.is_empty());
    let new = w.join_lender(100_000);
    let now = w.time();
    w.b.handle_retry(now);
    w.drain();
    w.come_to_rest();
    assert_eq!(w.b.held_by(new), w.b.held_by(LenderIndex(1)));
    w.lose_one(1, false);
    w.read_all();
}

/// Found by the fuzz simulation (seeds 308849 and 351809): what has lost a lender and is fetched ahead keeps its buffer until it is mended, and the
/// first that is to be mended needs a buffer to be fetched to.
#[test]
fn what_is_fetched_ahead_does_not_keep_the_rest_from_being_mended() {
    let mut w = World::configured(1, 600, 2, |config| (config.replicas, config.buffers) = (2, 16));
    fill(&mut w);
    w.writes_fail = true;
    let new = w.join_lender(100_000);
    w.lose_one(0, false);
    for base in 100..160 {
        w.step(&Op::Read { space: 0, base });
    }
    w.come_to_rest();
    assert_eq!(w.b.held_by(LenderIndex(1)), w.b.held_by(new));
    w.lose_one(1, false);
    w.read_all();
}

/// Found by the fuzz simulation (seed 24379): a lender that was full has room since another borrower left, and does not say so. A few are tried again now
/// and then, and with its answer to those it says how much room it has.
#[test]
fn what_cannot_be_mended_is_mended_when_a_full_lender_has_room_again() {
    let mut w = replicated(600, 3, 2, false);
    w.full.insert(2);
    fill(&mut w);
    w.writes_fail = true;
    w.lose_one(0, false);
    w.come_to_rest();
    let (one, other) = (LenderIndex(1), LenderIndex(2));
    assert!(w.disk.is_empty() && w.b.held_by(one).0 > 100 && w.b.held_by(other).0 == 0);
    let later = |w: &mut World| {
        w.now = w.b.poll_timeout().expect("it tries again").0;
        w.b.handle_timeout(Instant(w.now));
        w.drain();
        w.come_to_rest();
    };
    for _ in 0..3 {
        later(&mut w);
        assert_eq!(w.b.held_by(other).0, 0, "it is full");
    }
    w.full.clear();
    later(&mut w);
    let some = w.b.held_by(other).0;
    assert!(0 < some && some < w.b.held_by(one).0, "{some}");
    w.b.handle_lender_room(other, BasePages(0));
    w.b.handle_lender_room(other, BasePages(100_000));
    later(&mut w);
    assert_eq!(w.b.held_by(one), w.b.held_by(other));
    while w.b.poll_timeout().is_some() {
        later(&mut w);
    }
    w.lose_one(1, false);
    w.read_all();
}

/// As what this lender was sent what it has.
fn classes(w: &World, lender: LenderIndex) -> BTreeMap<PutClass, u64> {
    let mut classes = BTreeMap::new();
    let here = w.replicas.class.iter().filter(|&(page, _)| page.0 == lender && w.has(*page));
    here.for_each(|(_, &class)| *classes.entry(class).or_default() += 1);
    classes
}

/// An index is used again: that its last lender was to write a copy says nothing of the next.
#[test]
fn who_has_the_index_of_a_lender_that_was_to_write_is_not_taken_for_it() {
    let mut w = replicated(600, 2, 2, true);
    let (drains, one) = (Site { machine: 7, zone: 0, drains: true }, LenderIndex(1));
    w.b.handle_lender_site(one, drains);
    fill(&mut w);
    assert!(!classes(&w, one).contains_key(&PutClass::Mirror));
    w.writes_fail = true;
    w.lose_one(1, false);
    assert_eq!(w.join_lender(100_000), one, "without a disk");
    let now = w.time();
    w.b.handle_retry(now);
    w.drain();
    w.come_to_rest();
    assert!(!classes(&w, one).contains_key(&PutClass::Staged));
    w.replicas.spent = false;
    w.lose_one(0, false);
    let new = w.join_lender(100_000);
    w.b.handle_lender_site(new, drains);
    let now = w.time();
    w.b.handle_retry(now);
    w.drain();
    w.come_to_rest();
    let classes = classes(&w, new);
    assert!(classes[&PutClass::Staged] > 500 && !classes.contains_key(&PutClass::Mirror), "{classes:?}");
}

/// The same lender gets it again, and not to write it.
#[test]
fn who_was_to_write_what_it_has_lost_is_not_taken_for_one_that_does() {
    let mut w = replicated(600, 2, 2, true);
    let (zero, one) = (LenderIndex(0), LenderIndex(1));
    w.b.handle_lender_site(one, Site { machine: 7, zone: 0, drains: true });
    fill(&mut w);
    let buffered = |w: &World| w.b.copies.iter_live().find(|(_, c)| c.reusable).map(|(i, c)| (i, c.version));
    let (i, version) = buffered(&w).expect("some are still in their buffers");
    assert_eq!(w.b.copies.get(i).staged_at, one);
    w.lenders[1].as_mut().expect("it is there").remove(&(i, version));
    w.taken.insert((i, version));
    w.b.lenders[1].ring_full = true;
    w.b.source_failed(i, Source::Lender(one));
    let now = w.time();
    w.b.handle_retry(now);
    w.drain();
    while w.complete(0) {}
    assert_eq!(w.replicas.class[&(one, i, version)], PutClass::Mirror);
    let new = w.join_lender(100_000);
    w.b.handle_lender_site(new, Site { machine: 8, zone: 0, drains: true });
    w.lose_one(usize::from(zero.0), false);
    w.come_to_rest();
    assert_eq!(w.replicas.class[&(new, i, version)], PutClass::Staged);
}

/// While it is on its way to a relative, a page leaves that has the same contents, and then a lender is lost: it is in a buffer, and when the answer has
/// come it is stored.
#[test]
fn what_became_thin_while_it_was_fetched_is_stored_then() {
    let mut w = replicated(600, 2, 2, false);
    w.b.config.rescue = false;
    fill(&mut w);
    let base = (0..PAGES).find(|&base| w.b.state(SpaceKey(0), base) == BaseState::Away).expect("most are");
    let now = w.time();
    w.b.handle_fault(now, SpaceKey(0), base);
    w.drain();
    let copy = w.b.copy_of(SpaceKey(0), base).expect("it is away").index;
    let asked = |op: &Pending| match op {
        Pending::Get { lender, copy: of, .. } if *of == copy => Some(*lender),
        _ => None,
    };
    let lender = w.pending.iter().find_map(asked).expect("it was asked for");
    let buffer = w.b.take_buffer().expect("there are some");
    w.buffers[buffer.0 as usize] = w.truth[&(SpaceKey(0), base)];
    w.b.copies.get_mut(copy).set_buffer(Some(buffer));
    w.lose_one(1 - usize::from(lender.0), false);
    // All others are mended before it comes.
    while let Some(next) = w.pending.iter().position(|op| asked(op).is_none()) {
        w.complete(next);
    }
    assert!(w.b.mends.is_empty() && w.b.copies.get(copy).fetching && !w.disk.contains_key(&copy));
    w.come_to_rest();
    assert!(w.disk.contains_key(&copy) && w.b.copies.get(copy).buffer().is_none());
    w.read_all();
}

fn replicated(limit: u64, lenders: usize, replicas: u8, staged: bool) -> World {
    World::configured(1, limit, lenders, |config| (config.replicas, config.staged) = (replicas, staged))
}

fn fill(w: &mut World) {
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    while w.complete(0) {}
}

/// Of three lenders the second has a disk: whoever has the other place of each page wants it back.
fn recall_from_the_other(w: &mut World) {
    let other = [0_u8, 2].into_iter().max_by_key(|&n| w.b.held_by(LenderIndex(n))).expect("there are two");
    assert!(w.b.held_by(LenderIndex(other)).0 > 100);
    w.recall(usize::from(other), 0, usize::MAX);
}

/// Pages that one lender wants back while the other's disk gets them: what the other says meanwhile is not said again.
#[test]
fn what_is_said_of_a_disk_while_pages_move_is_not_forgotten() {
    for before in [0, 40, 400] {
        let mut w = replicated(600, 3, 2, true);
        w.b.handle_lender_site(LenderIndex(1), Site { machine: 1, zone: 0, drains: true });
        fill(&mut w);
        recall_from_the_other(&mut w);
        for _ in 0..before {
            w.complete(0);
        }
        for _ in 0..PAGES {
            w.step(&Op::Drain { pick: 0 });
        }
        w.come_to_rest();
        let (_, stats) = (w.read_all(), w.b.stats());
        let drained = w.replicas.drained.len() as u64;
        assert!(drained > 0 && stats.drained >= drained, "{before}: {drained} told, {} known", stats.drained);
    }
}

/// The same, and then the other is away: what is on its disk is waited for, wherever the pages were on their way.
#[test]
fn who_is_away_keeps_what_it_has_on_its_disk_though_the_pages_were_moving() {
    for (before, rescued) in [(0, false), (40, false), (400, false), (40, true)] {
        let mut w = replicated(600, 3, 2, true);
        let drains = LenderIndex(1);
        w.b.handle_lender_site(drains, Site { machine: 1, zone: 0, drains: true });
        fill(&mut w);
        recall_from_the_other(&mut w);
        for _ in 0..before {
            w.complete(0);
        }
        if rescued {
            // Threads wait for some of what is on its way.
            (0..PAGES).step_by(7).for_each(|base| w.step(&Op::Read { space: 0, base }));
        }
        let under_way = w.b.copies.iter_live().filter(|(_, c)| c.recalled && c.busy()).count();
        assert!(before > 0 || under_way > 5, "{under_way} pages are moving");
        let staged = w
            .replicas
            .class
            .iter()
            .filter(|&(&(lender, ..), &class)| lender == drains && class == PutClass::Staged);
        let staged: Vec<_> = staged.map(|(&page, _)| page).filter(|&page| w.has(page)).collect();
        for &(lender, copy, version) in &staged {
            w.stored(lender, copy, version);
        }
        w.drain();
        let on_disk = w.replicas.drained.len() as u64;
        assert!(on_disk > 100, "{before}: {on_disk}");
        w.replicas.away.insert(drains);
        let now = w.time();
        assert_eq!(w.b.handle_lender_away(now, drains), BasePages(0), "{before}");
        assert_eq!(w.b.held_by(drains), BasePages(on_disk), "{before}: waited for");
        w.b.audit();
    }
}

/// A lender whose disk has enough to do takes pages all the same, as mirrors; when it says that it has room it gets them for its disk again.
#[test]
fn a_full_ring_sends_nothing_to_the_slot_file() {
    let mut w = replicated(600, 2, 2, true);
    let drains = LenderIndex(1);
    w.b.handle_lender_site(drains, Site { machine: 1, zone: 0, drains: true });
    w.replicas.rings_full.insert(drains);
    fill(&mut w);
    assert_eq!((w.disk.len(), w.b.stuck()), (0, 0), "both have memory for it");
    assert_eq!(w.b.held_by(LenderIndex(0)), w.b.held_by(drains));
    let staged = |w: &World| w.replicas.class.values().filter(|&&class| class == PutClass::Staged).count();
    assert!(w.b.held_by(drains).0 > 500);
    let before = staged(&w);
    w.replicas.rings_full.clear();
    let now = w.time();
    w.b.handle_recall(now, drains, BasePages(100_000), core::iter::empty());
    w.drain();
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 7 });
    }
    while w.complete(0) {}
    assert!(staged(&w) > before + 100, "{before}, then {}", staged(&w));
    w.finish();
}

/// Whose only copy may be dropped at any moment is not given up: a spare copy makes nothing safe.
#[test]
fn a_spare_copy_alone_makes_nothing_safe() {
    let mut w = replicated(600, 2, 2, true);
    w.b.handle_lender_site(LenderIndex(1), Site { machine: 1, zone: 0, drains: true });
    fill(&mut w);
    for _ in 0..PAGES {
        w.step(&Op::Drain { pick: 0 });
        while w.complete(0) {}
    }
    assert!(w.replicas.spare.len() > 500);
    // The disk here fails too, and the lender with the other disk is gone for good.
    w.writes_fail = true;
    w.lose_one(1, false);
    w.come_to_rest();
    let all: Vec<_> = w.b.copies.iter_live().map(|(i, _)| i).collect();
    let spare_only = |w: &World, i| {
        let c = w.b.copies.get(i);
        c.places().next().is_some() && c.places().all(|place| place.stored == Stored::Spare)
    };
    let spare_only: Vec<_> = all.into_iter().filter(|&i| spare_only(&w, i)).collect();
    assert!(!spare_only.is_empty(), "nothing was tested");
    assert!(!spare_only.iter().any(|&i| w.b.is_safe(i)), "its buffer may be used for another page");
}

/// What is here on the disk is not asked of a lender that is away.
#[test]
fn the_disk_here_comes_before_a_lender_that_is_away() {
    let mut w = World::configured(1, 600, 1, |config| {
        (config.replicas, config.staged, config.buffers) = (2, true, BUFFERS_LEAST);
    });
    w.b.handle_lender_site(LenderIndex(0), Site { machine: 0, zone: 0, drains: true });
    fill(&mut w);
    for _ in 0..PAGES {
        w.step(&Op::Drain { pick: 0 });
        while w.complete(0) {}
    }
    assert!(w.disk.len() > 500 && !w.replicas.drained.is_empty());
    w.lose_one(0, true);
    let bare = |base: &u64| {
        w.b.copy_of(SpaceKey(0), *base).is_some_and(|copy| copy.buffer.is_none() && copy.on_disk)
    };
    let bare: Vec<_> =
        (0..PAGES).filter(|base| w.b.state(SpaceKey(0), *base) == BaseState::Away).filter(bare).collect();
    assert!(bare.len() > 100, "{}", bare.len());
    for base in bare {
        w.step(&Op::Read { space: 0, base });
    }
    assert!(w.replicas.away.contains(&LenderIndex(0)), "a lender that is away was asked");
    w.finish();
}
