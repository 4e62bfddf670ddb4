//! What the replacement policy holds of pages that are gone.

use super::*;
use crate::borrower::space::GONE_MAX;

const FAR_ABOVE: u64 = 1 << 20;
const EXTENT: u64 = 256;

/// Where much comes and goes, and nothing ever has to leave.
struct Program {
    b: Borrower,
    now: u64,
    next_space: u32,
    /// Base pages, which are pages here, in the order in which they came; what came again stands there twice.
    came: Vec<PageRef>,
    here: BTreeSet<PageRef>,
    spaces: Vec<SpaceKey>,
}

#[derive(Clone, Debug)]
enum Act {
    Fill(usize, BaseRange),
    Discard(usize, BaseRange),
    Unmap(usize, BaseRange),
    Fork(usize),
    Exit(usize),
}

impl Program {
    fn new() -> Self {
        let mut b = World::new(1, false, FAR_ABOVE, 1).b;
        b.handle_space_gone(Instant(0), SpaceKey(0));
        b.handle_space_added(SpaceKey(1), true);
        let (here, spaces) = (BTreeSet::new(), std::vec![SpaceKey(1)]);
        Self { b, now: 0, next_space: 2, came: Vec::new(), here, spaces }
    }

    fn time(&mut self) -> Instant {
        self.now += 1_000;
        Instant(self.now)
    }

    fn comes(&mut self, key: SpaceKey, bases: impl Iterator<Item = u64>) {
        for first in bases {
            let page = PageRef { space: key, first };
            if self.here.insert(page) {
                self.came.push(page);
            }
        }
    }

    fn goes(&mut self, key: SpaceKey, range: BaseRange) {
        self.here.retain(|page| page.space != key || !range.contains(page.first));
    }

    /// Extents as a whole: of one that has anything left the queue knows what it had.
    fn act(&mut self, act: &Act) {
        let (now, spaces) = (self.time(), self.spaces.clone());
        let pick = |space: usize| spaces[space % spaces.len()];
        match *act {
            Act::Fill(space, range) => {
                self.b.handle_adopted(now, pick(space), range, &[range]);
                self.comes(pick(space), range.start..range.end);
            }
            Act::Discard(space, range) => {
                self.b.handle_removed(now, pick(space), range);
                self.goes(pick(space), range);
            }
            Act::Unmap(space, range) => {
                self.b.handle_unmapped(now, pick(space), range);
                self.goes(pick(space), range);
            }
            Act::Fork(space) => {
                let child = SpaceKey(self.next_space);
                self.next_space += 1;
                self.b.handle_forked(now, pick(space), child);
                self.b.handle_hand(child);
                let all = PageRef { space: pick(space), first: 0 }..;
                let firsts: Vec<u64> = self.here.range(all).map(|page| page.first).collect();
                let same = self.here.iter().filter(|page| page.space == pick(space)).count();
                self.comes(child, firsts.into_iter().take(same));
                self.spaces.push(child);
            }
            Act::Exit(space) if self.spaces.len() > 1 => {
                self.spaces.remove(space % spaces.len());
                self.b.handle_space_gone(now, pick(space));
                self.goes(pick(space), BaseRange::new(0, u64::MAX));
            }
            Act::Exit(_) => {}
        }
        while self.b.poll_effect().is_some() {}
        self.check();
    }

    fn check(&self) {
        let (held, here) = (self.b.replacement.entries() as u64, self.here.len() as u64);
        assert!(held <= 2 * here + GONE_MAX, "{held} entries for {here} pages");
        assert_eq!(self.b.queued_pages, here);
    }

    /// The pages that leave until the policy has none left, in order.
    fn leave(&mut self) -> Vec<PageRef> {
        let mut left = Vec::new();
        while let Some(page) = self.b.replacement.victim() {
            if self.here.remove(&page) {
                left.push(page);
            }
        }
        left
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let range = || {
        (0..8_u64, 1..6_u64).prop_map(|(start, len)| BaseRange::new(start * EXTENT, (start + len) * EXTENT))
    };
    let act = prop_oneof![
        6 => (0..4_usize, range()).prop_map(|(space, range)| Act::Fill(space, range)),
        4 => (0..4_usize, range()).prop_map(|(space, range)| Act::Discard(space, range)),
        1 => (0..4_usize, range()).prop_map(|(space, range)| Act::Unmap(space, range)),
        2 => (0..4_usize).prop_map(Act::Fork),
        2 => (0..4_usize).prop_map(Act::Exit),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However much has come and gone, the policy holds about as much as is there. All of that leaves, and in the order in which it came.
    #[test]
    fn what_is_gone_does_not_stay_in_the_queue(acts in acts()) {
        let mut program = Program::new();
        for act in &acts {
            program.act(act);
        }
        program.b.audit();
        let here = program.here.clone();
        let left = program.leave();
        prop_assert!(left.len() == here.len() && left.iter().all(|page| here.contains(page)));
        // What has come again leaves when it came first, or, if that was forgotten while it was gone, later.
        let mut times: BTreeMap<PageRef, u32> = BTreeMap::new();
        program.came.iter().for_each(|page| *times.entry(*page).or_default() += 1);
        let once = |pages: Vec<PageRef>| pages.into_iter().filter(|page| times[page] == 1).collect::<Vec<_>>();
        let came = once(program.came.iter().copied().filter(|page| here.contains(page)).collect());
        prop_assert!(once(left) == came, "another order");
    }
}

/// 1,000 children that end at once.
#[test]
fn children_that_end_leave_nothing_in_the_queue() {
    let mut program = Program::new();
    program.act(&Act::Fill(0, BaseRange::new(0, 8 * EXTENT)));
    for _ in 0..1_000 {
        program.act(&Act::Fork(0));
        program.act(&Act::Exit(1));
    }
    assert_eq!(program.leave().len() as u64, 8 * EXTENT);
}

/// As much as may be gone is passed over in pieces: faults are looked at in between.
#[test]
fn what_is_gone_is_not_passed_over_all_at_once() {
    let (mut program, pages) = (Program::new(), 80 * EXTENT);
    program.act(&Act::Fill(0, BaseRange::new(0, pages)));
    program.act(&Act::Fill(0, BaseRange::new(pages, 2 * pages)));
    program.act(&Act::Discard(0, BaseRange::new(0, pages)));
    let held = program.b.replacement.entries() as u64;
    assert_eq!(held, 2 * pages, "it is just not tidied");
    let now = program.time();
    program.b.handle_limit(now, BasePages(pages / 2));
    let looked_at = held - program.b.replacement.entries() as u64;
    assert!((4_096..=3 * 4_096).contains(&looked_at), "{looked_at}");
    let mut turns = 0;
    while program.b.poll_effect().is_none() {
        turns += 1;
        program.now = program.b.poll_timeout().expect("it goes on").0;
        program.b.handle_timeout(Instant(program.now));
    }
    assert!(turns <= pages / 4_096 + 1, "{turns}");
}
