//! Which process's pages leave last, where several take memory from one another.
//!
//! Processes that each go over more than their share fetch all the time what the others have just displaced, and hardly run. (Where the kernel pages it sees what is touched, and keeps more of who runs than of who waits: one of
//! them gets ahead by chance, has all that it needs, and runs as if it were alone. Faults are all that is seen here, and by those all are alike.) So one of them has a token, with which its pages leave last
//! ([`TokenOrdered`](crate::replacement::TokenOrdered)), and which is passed on: Jiang and Zhang, "Token-ordered LRU", Performance Evaluation 60, 2005. Whether that is any good depends on what they do, and if they wait for one
//! another on nothing that is seen here. So it is measured: where they do not run more with it, all of them together, nobody has it, and it is tried again later.

use super::table::SpaceKey;
use crate::units::{Duration, Instant};
use alloc::collections::{BTreeMap, BTreeSet};

/// For so long at least processes are watched before anything is decided: until this part of local memory has been fetched, but no longer than that.
const WINDOW: Duration = Duration::from_millis(500);
const FETCHED_SHARE: u64 = 32;
const WINDOW_MOST: Duration = Duration::from_millis(8_000);
/// With less than this part fetched nobody lacks memory.
const LITTLE_SHARE: u64 = 512;
/// A process takes part that has fetched this part of what all have, or half of its share of that where more than four do.
const TAKES_PART: u64 = 8;
/// Together they hardly run: this share of one processor. (One that has all it needs runs for one, more or less.)
const SLOW: f64 = 0.5;
/// They run so many times as much with it, and it has shown its worth; and so many times, and it goes on to.
const GAIN: f64 = 1.5;
const STILL_GAINS: f64 = 1.2;
/// As the kernel's count goes by ticks, so much at least; and nothing is taken for less than this share of a processor.
const RAN_MIN: Duration = Duration::from_millis(100);
const RUNS_MIN: f64 = 0.05;
/// For so many windows it is tried, once the process that has it has all that it wants here.
const TRIED_FULL: u32 = 3;
/// Or until they run this part of what they did, where that was enough to tell.
const LOSS: f64 = 0.7;
const TELLS: f64 = 0.1;
/// A process has it for so long at least, and for so many times as long as it took to show its worth.
const TURN_LEAST: Duration = Duration::from_millis(4_000);
const TURN_TIMES: u64 = 4;
/// After so many turns in a row nobody has it for a window, to see what they run without it now.
const TURNS_MOST: u32 = 16;
/// Between two tries: so many times as long as one took of which nothing came, and twice as long as the last time.
const PAUSE_TIMES: u64 = 4;
const PAUSE_LEAST: Duration = Duration::from_millis(8_000);
const PAUSE_MOST: Duration = Duration::from_millis(120_000);

/// A process, as it is now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    /// How long it has run so far.
    pub(super) ran: Duration,
    /// Base pages that it has fetched so far, and that it has here.
    pub(super) fetched: u64,
    pub(super) frames: u64,
}

type Processes = BTreeMap<SpaceKey, Process>;

/// Who has the token.
#[derive(Clone, Copy, Debug)]
struct Holder {
    key: SpaceKey,
    since: Instant,
    /// What it was when it got it, and a window ago.
    then: Process,
    before: Process,
    /// Windows in which next to nothing came to it.
    full_for: u32,
    /// How long it took until all ran more.
    proven_after: Option<Duration>,
}

/// What has been seen in a window.
#[derive(Debug)]
struct Seen {
    /// What those ran that take part, or did; and as a share of a processor.
    ran: Duration,
    runs: f64,
    /// Base pages that all together have fetched, and those who take part.
    fetched: u64,
    take_part: BTreeSet<SpaceKey>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Token {
    holder: Option<Holder>,
    /// What they ran before anybody had it.
    without: f64,
    /// How many have had it since.
    turns: u32,
    /// The begin of the window, and the processes then.
    since: Instant,
    then: Processes,
    /// Those that have taken part since nobody had it.
    group: BTreeSet<SpaceKey>,
    /// When each has had it last.
    had: BTreeMap<SpaceKey, Instant>,
    due: Instant,
    pause: Duration,
}

impl Token {
    /// Who has it.
    pub(super) fn holder(&self) -> Option<SpaceKey> {
        self.holder.map(|holder| holder.key)
    }

    /// Nobody knows how long the processes run: nobody has it.
    pub(super) fn take_back(&mut self, now: Instant) {
        if self.holder.take().is_some() {
            self.due = now + PAUSE_LEAST;
        }
    }

    /// The processes, as they are by now. `limit`: base pages of local memory.
    pub(super) fn progressed(&mut self, now: Instant, limit: u64, processes: Processes) {
        if self.then.is_empty() {
            (self.since, self.then) = (now, processes);
            return;
        }
        let lives = |key: &SpaceKey| processes.contains_key(key);
        self.had.retain(|key, _| lives(key));
        self.group.retain(lives);
        let gone = self.holder.take_if(|holder| !lives(&holder.key));
        let came = |key: &SpaceKey| {
            let fetched = self.then.get(key).map_or(0, |then| then.fetched);
            processes[key].fetched - fetched
        };
        let (fetched, span) = (processes.keys().map(came).sum::<u64>(), now - self.since);
        let much = fetched >= limit / FETCHED_SHARE;
        if gone.is_none() && (span < WINDOW || !much && span < WINDOW_MOST) {
            return;
        }
        let fetching = processes.keys().filter(|&key| came(key) > 0).count() as u64;
        let least = fetched / TAKES_PART.max(2 * fetching);
        let takes_part = |key: &&SpaceKey| fetched >= limit / LITTLE_SHARE && came(key) >= least.max(1);
        let take_part: BTreeSet<SpaceKey> = processes.keys().filter(takes_part).copied().collect();
        if self.holder.is_none() && gone.is_none() {
            self.group.clear();
        }
        self.group.extend(&take_part);
        let ran_of = |key: &SpaceKey| {
            let (then, is) = (self.then.get(key), processes.get(key));
            // Of one that is new, what it ran before belongs to no window.
            is.zip(then).map_or(0, |(is, then)| is.ran.0.saturating_sub(then.ran.0))
        };
        let ran = Duration(self.group.iter().map(ran_of).sum());
        let runs = ran.0 as f64 / span.0.max(1) as f64;
        let seen = Seen { ran, runs, fetched, take_part };
        match (self.holder, gone) {
            (Some(_), _) => self.look(now, limit, &seen, &processes),
            (None, Some(Holder { proven_after: Some(_), .. })) => _ = self.pass(now, &seen, &processes),
            (None, Some(_)) => {} // it is not what they run without it
            (None, None) => {
                if much && seen.take_part.len() >= 2 && seen.runs <= SLOW && now >= self.due {
                    (self.without, self.turns) = (seen.runs.max(RUNS_MIN), 0);
                    self.pass(now, &seen, &processes);
                }
            }
        }
        (self.since, self.then) = (now, processes);
    }

    /// Whether who has it keeps it.
    fn look(&mut self, now: Instant, limit: u64, seen: &Seen, processes: &Processes) {
        let holder = self.holder.as_mut().expect("somebody has it");
        self.had.insert(holder.key, now);
        let (of, has_had) = (processes[&holder.key], now - holder.since);
        let came = of.fetched - holder.before.fetched + of.frames.saturating_sub(holder.before.frames);
        holder.before = of;
        match holder.proven_after {
            None if seen.runs >= self.without * GAIN && seen.ran >= RAN_MIN => {
                holder.proven_after = Some(has_had);
                self.pause = Duration::ZERO;
            }
            None => {
                let is_full = came * TAKES_PART < seen.fetched || of.fetched - holder.then.fetched >= limit;
                holder.full_for += u32::from(is_full);
                let loses = self.without >= TELLS && seen.runs < self.without * LOSS;
                if holder.full_for >= TRIED_FULL || loses {
                    self.give_up(now, has_had);
                }
            }
            Some(after) => {
                let turn = Duration((TURN_TIMES * after.0).max(TURN_LEAST.0));
                let gains = seen.runs >= self.without * STILL_GAINS;
                if has_had < turn && gains {
                    return;
                }
                if self.turns >= TURNS_MOST || !self.pass(now, seen, processes) && !gains {
                    self.holder = None;
                }
            }
        }
    }

    /// To who takes part and has not had it for longest, of those to who has most here. False: there is none.
    fn pass(&mut self, now: Instant, seen: &Seen, processes: &Processes) -> bool {
        let others = seen.take_part.iter().copied().filter(|&key| Some(key) != self.holder());
        let rank = |key: &SpaceKey| {
            let had = self.had.get(key).copied().unwrap_or_default();
            (had, u64::MAX - processes[key].frames)
        };
        let Some(key) = others.min_by_key(rank) else { return false };
        let of = processes[&key];
        self.holder = Some(Holder { key, since: now, then: of, before: of, full_for: 0, proven_after: None });
        self.turns += 1;
        true
    }

    /// It was tried for so long, and nothing came of it.
    fn give_up(&mut self, now: Instant, tried: Duration) {
        self.holder = None;
        let least = PAUSE_LEAST.0.max(PAUSE_TIMES * tried.0);
        self.pause = Duration((2 * self.pause.0).min(PAUSE_MOST.0).max(least));
        self.due = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const LIMIT: u64 = 10_000;
    const LOOK: Duration = Duration::from_millis(250);

    /// Processes that fetch, and run.
    struct Tree {
        token: Token,
        now: Instant,
        processes: Processes,
        held: Vec<Option<u32>>,
    }

    impl Tree {
        fn new(processes: u32) -> Self {
            let process = |n| (SpaceKey(n), Process { frames: 1_000 + u64::from(n), ..Process::default() });
            let processes = (1..=processes).map(process).collect();
            Self { token: Token::default(), now: Instant(0), processes, held: Vec::new() }
        }

        /// For so long; each look, who has the token says what each fetches, and what the first of those that fetch, or has it, runs.
        fn go(&mut self, ms: u64, act: impl Fn(u32, Option<u32>) -> u64, runs: impl Fn(Option<u32>) -> u64) {
            for _ in 0..ms / 250 {
                self.now = self.now + LOOK;
                let holder = self.token.holder().map(|key| key.0);
                for (key, of) in &mut self.processes {
                    of.fetched += act(key.0, holder);
                }
                let first = self.processes.keys().copied().find(|key| act(key.0, holder) > 0);
                if let Some(of) = self.token.holder().or(first).and_then(|key| self.processes.get_mut(&key)) {
                    of.ran.0 += Duration::from_millis(runs(holder)).0;
                }
                self.token.progressed(self.now, LIMIT, self.processes.clone());
                let holder = self.token.holder().map(|key| key.0);
                if self.held.last() != Some(&holder) {
                    self.held.push(holder);
                }
            }
        }

        /// All fetch but who has it, and it alone runs.
        fn thrash(&mut self, ms: u64) {
            self.go(
                ms,
                |key, holder| if holder == Some(key) { 0 } else { 500 },
                |holder| if holder.is_some() { 150 } else { 10 },
            );
        }
    }

    #[test]
    fn it_goes_around_where_all_run_more_with_it() {
        let mut tree = Tree::new(3);
        tree.thrash(20_000);
        // Who has most first.
        assert_eq!(tree.held[..5], [None, Some(3), Some(2), Some(1), Some(3)]);
        let turns = tree.held.len() - 1;
        assert!((4..=5).contains(&turns), "{turns} turns of 4 s and a little");
        // Now and then nobody has it, to see what they run without it.
        tree.thrash(100_000);
        let without = tree.held.iter().filter(|held| held.is_none()).count();
        assert_eq!(without, 2, "{:?}", tree.held);
    }

    #[test]
    fn the_policy_is_told() {
        use crate::borrower::{Borrower, BorrowerConfig, NoPrefetch, TokenOrdered};
        let config = BorrowerConfig {
            page: crate::units::BasePages(1),
            buffers: 256,
            disk: true,
            replicas: 1,
            staged: false,
            hedge_after: LOOK,
            rescue: true,
        };
        let policy = alloc::boxed::Box::new(TokenOrdered::default());
        let mut borrower = Borrower::new(config, policy, alloc::boxed::Box::new(NoPrefetch));
        let keys = [SpaceKey(1), SpaceKey(2)];
        keys.iter().for_each(|&key| borrower.handle_space_added(key, true));
        for n in 0..5 {
            keys.iter().for_each(|key| borrower.spaces.get_mut(key).expect("just added").fetched += 100);
            let ran = keys.map(|key| (key, Duration::ZERO));
            borrower.handle_progress(Instant(n * LOOK.0), Some((Duration::ZERO, &ran)));
        }
        let has_it =
            |borrower: &Borrower| alloc::format!("{:?}", borrower.replacement).contains("holder: Some(");
        assert!(borrower.token_holder().is_some() && has_it(&borrower));
        assert_eq!(borrower.stats().token_given, 1);
        // There are too many processes to look at.
        borrower.handle_progress(Instant(5 * LOOK.0), None);
        assert!(borrower.token_holder().is_none() && !has_it(&borrower));
    }

    #[test]
    fn nobody_keeps_it_where_nobody_runs_more() {
        let mut tree = Tree::new(2);
        let fetches = |_, holder: Option<u32>| if holder.is_some() { 100 } else { 500 };
        tree.go(60_000, fetches, |_| 40);
        // Tried with pauses of 8, 16, 32 s between, each for as long as it takes to fetch all memory.
        assert!((3..=7).contains(&tree.held.len()), "{:?}", tree.held);
        // And at once where they run less.
        tree.held.clear();
        tree.go(200_000, fetches, |holder| if holder.is_some() { 10 } else { 55 });
        assert!((4..=8).contains(&tree.held.len()), "{:?}", tree.held);
    }

    /// Twelve that fetch alike have less than an eighth each; one that computes beside them says nothing of them.
    #[test]
    fn many_take_part_and_who_fetches_nothing_does_not() {
        let mut tree = Tree::new(13);
        let computes = |tree: &mut Tree| {
            let of = tree.processes.get_mut(&SpaceKey(13)).expect("it lives");
            of.ran.0 += LOOK.0;
        };
        for _ in 0..40 {
            computes(&mut tree);
            let fetches = |key, holder: Option<u32>| if key == 13 || holder == Some(key) { 0 } else { 100 };
            tree.go(250, fetches, |holder| if holder.is_some() { 150 } else { 10 });
        }
        assert_eq!(tree.held[..3], [None, Some(12), Some(11)], "{:?}", tree.held);
    }

    /// The others fetch too little for a try to begin, and would wait for ever.
    #[test]
    fn who_sleeps_does_not_keep_it() {
        let mut tree = Tree::new(2);
        tree.thrash(3_000);
        assert_eq!(tree.token.holder(), Some(SpaceKey(2)));
        tree.go(18_000, |key, _| if key == 1 { 8 } else { 0 }, |_| 0);
        assert!(tree.held.contains(&Some(1)) || tree.held.last() == Some(&None), "{:?}", tree.held);
        assert_ne!(tree.token.holder(), Some(SpaceKey(2)));
        // Nor where they hardly fetch at all.
        let mut tree = Tree::new(2);
        tree.thrash(3_000);
        tree.go(18_000, |_, _| 0, |_| 0);
        assert_eq!(tree.token.holder(), None);
    }

    #[test]
    fn who_runs_well_or_alone_needs_none() {
        let mut well = Tree::new(2);
        well.go(30_000, |_, _| 500, |_| 200);
        assert_eq!(well.held, [None]);
        let mut alone = Tree::new(3);
        alone.go(30_000, |key, _| if key == 1 { 500 } else { 10 }, |_| 1);
        assert_eq!(alone.held, [None]);
        let mut idle = Tree::new(3);
        idle.go(30_000, |_, _| 1, |_| 0);
        assert_eq!(idle.held, [None]);
    }

    #[test]
    fn who_ends_leaves_it_to_the_next() {
        let mut tree = Tree::new(3);
        tree.thrash(3_000);
        assert_eq!(tree.token.holder(), Some(SpaceKey(3)));
        tree.processes.remove(&SpaceKey(3));
        tree.thrash(250);
        assert_eq!(tree.token.holder(), Some(SpaceKey(2)));
        // The one that is left runs alone.
        tree.processes.remove(&SpaceKey(2));
        tree.go(250, |_, _| 0, |_| 250);
        assert_eq!(tree.token.holder(), None);
    }

    /// It waits for another, say.
    #[test]
    fn who_does_nothing_with_it_passes_it_on() {
        let mut tree = Tree::new(2);
        tree.thrash(2_000);
        assert_eq!(tree.token.holder(), Some(SpaceKey(2)));
        tree.go(750, |key, _| if key == 1 { 500 } else { 0 }, |_| 10);
        assert_eq!(tree.token.holder(), Some(SpaceKey(1)));
    }

    proptest! {
        /// Whatever they do: who has it lives, and nobody is remembered who does not.
        #[test]
        fn who_has_it_lives(acts in proptest::collection::vec((0_u64..2_000, 0_u64..2_000, 0_u64..600, 0_u8..40), 1..300)) {
            let mut tree = Tree::new(3);
            let mut next = 3;
            for (one, rest, runs, what) in acts {
                if what == 0 {
                    tree.processes.pop_first();
                } else if what <= 2 {
                    next += 1;
                    tree.processes.insert(SpaceKey(next), Process { frames: one, ..Process::default() });
                }
                tree.go(250, |key, _| if key % 2 == 0 { one } else { rest }, |_| runs);
                let holder = tree.token.holder();
                prop_assert!(holder.is_none_or(|key| tree.processes.contains_key(&key)));
                prop_assert!(tree.token.had.keys().chain(&tree.token.group).all(|key| tree.processes.contains_key(key)));
            }
        }
    }
}
