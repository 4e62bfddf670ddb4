//! Mappings that move (`mremap`), and the order in which that is told.
//!
//! The kernel makes a change of mappings first, and tells of it when it has let go of them: a thread may lose its processor in between. Of two threads' changes
//! the later one may then be told first, and that matters where the kernel gives one's place to the other: of the moves A to B, then C to A, the second alone
//! would put what is known of C where what is known of A still is. A place that is taken, though something has moved there, has been left: the word of that is on its way, and dealt with first.
//!
//! Of a move there are two words: that it moved, and, when that one has been read, that its old place is unmapped. By then another thread may have put something there: the
//! second word says nothing of what is there now.
//!
//! What this cannot tell apart: a thread that leaves a place and is not heard before another one has moved there, been heard of, returned, and left it as well.

use super::Agent;
use crate::procfs;
use crate::uffd::Event;
use loam_core::borrower::{BaseRange, SpaceKey};
use loam_core::units::{Duration, Instant};
use std::collections::VecDeque;

/// For a word that is on its way nothing is read for so long at a time: whoever moved to the taken place does not return meanwhile, and so cannot leave it again.
pub(super) const WORD_PAUSE: Duration = Duration::from_millis(1);
/// A word that has not come by now will not: the place was known for taken by mistake. (`MREMAP_DONTUNMAP`, which has no second word, makes such.)
const WORD_MAX: Duration = Duration::from_millis(1_000);

/// Which of the events that were read is to be dealt with next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The change at this place.
    Change(usize),
    /// The change at this place, if no word is on its way. Otherwise none before the word has come.
    Doubtful(usize),
    /// No change is left.
    Fault,
}

/// The next of the events. `is_taken`: something is known of a range.
fn next(events: &VecDeque<Event>, is_taken: impl Fn(BaseRange) -> bool) -> Next {
    let Some(first) = events.iter().position(|event| !matches!(event, Event::Fault { .. })) else {
        return Next::Fault;
    };
    let mut at = first;
    // Whoever has left may have moved to a place that somebody has left in turn. No circle: the first of all moved to where nothing was.
    for _ in 0..events.len() {
        let Event::Remap { to, bytes, .. } = events[at] else { return Next::Change(at) };
        let into = pages(to, to + bytes);
        if !is_taken(into) {
            return Next::Change(at);
        }
        let leaves = |event: &Event| match *event {
            Event::Remap { from, bytes, .. } => !pages(from, from + bytes).intersect(into).is_empty(),
            Event::Unmap { start, end } => !pages(start, end).intersect(into).is_empty(),
            _ => false,
        };
        let Some(of) = events.iter().position(leaves) else { break };
        at = of;
    }
    Next::Doubtful(first)
}

fn pages(start: u64, end: u64) -> BaseRange {
    BaseRange::new(start >> 12, end >> 12)
}

/// What is to be known of the moves of a process.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Places that were left, of which the second word is to come; each as often as it was left.
    left: Vec<BaseRange>,
    /// Of these the second word has come, and something is known there: it came there since, if that word was one.
    doubted: Vec<BaseRange>,
    /// Since when a word is waited for.
    waits_since: Option<Instant>,
}

impl Moves {
    /// The first word of a move.
    pub(super) fn left(&mut self, from: BaseRange) {
        self.left.push(from);
    }

    /// A word is waited for.
    pub(super) fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// It is the second word of a move.
    pub(super) fn is_second_word(&mut self, unmapped: BaseRange) -> bool {
        let at = self.left.iter().position(|&left| left == unmapped);
        at.map(|at| self.left.swap_remove(at)).is_some()
    }
}

impl Agent<'_> {
    /// Where the change that is to be dealt with next is; `None`: there is none, or its time has not come.
    pub(super) fn next_change(&mut self, key: SpaceKey) -> Option<usize> {
        let process = self.processes.get(&key)?;
        let next = next(&process.events, |range| self.borrower.is_known(key, range));
        let now = self.now();
        let process = self.processes.get_mut(&key)?;
        match next {
            Next::Fault => None,
            Next::Change(at) => {
                process.moves.waits_since = None;
                Some(at)
            }
            Next::Doubtful(at) => {
                let waits = now - *process.moves.waits_since.get_or_insert(now);
                // While this says no, every word that there was is among the events.
                if waits < WORD_MAX && process.uffd.is_changing(process.probe << 12) {
                    tracing::debug!(?key, event = ?process.events[at], "a place is taken; its word is waited for");
                    self.put_hand_to_rest(key);
                    self.wait_for_word(key);
                    return None;
                }
                tracing::debug!(?key, event = ?process.events[at], ?waits, "a place is taken, and was not left");
                process.moves.waits_since = None;
                Some(at)
            }
        }
    }

    /// The kernel says that a range is unmapped.
    pub(super) fn unmapped(&mut self, key: SpaceKey, range: BaseRange) {
        let now = self.now();
        let process = self.processes.get_mut(&key).expect("the caller has it");
        if !process.moves.is_second_word(range) {
            process.released.remove(range);
            self.borrower.handle_unmapped(now, key, range);
        } else if self.borrower.is_known(key, range) {
            tracing::debug!(?key, ?range, "left, and taken again");
            process.moves.doubted.push(range);
        }
    }

    /// Once no change is unread all words have come. What was left without a second word, and unmapped later, was taken for that word: there is nothing there now.
    pub(super) fn look_at_moves(&mut self) {
        let moved =
            self.processes.values().filter(|p| !p.moves.left.is_empty() || !p.moves.doubted.is_empty());
        let moved: Vec<SpaceKey> = moved.filter(|p| p.is_settled()).map(|p| p.key).collect();
        for key in moved {
            let process = self.processes.get_mut(&key).expect("just listed");
            process.moves.left.clear();
            if !process.moves.doubted.is_empty() && self.put_hand_to_rest(key) {
                self.look_at_doubted(key);
                self.let_go_on(key);
            }
        }
    }

    fn look_at_doubted(&mut self, key: SpaceKey) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        let Some(details) = process.pid.and_then(|pid| procfs::flags(pid).ok()) else { return };
        if !process.is_settled() {
            return; // of another time than what is known
        }
        let mut gone = std::mem::take(&mut process.moves.doubted);
        for detail in details.iter().filter(|detail| detail.flags.has("um")) {
            let there = pages(detail.mapping.start, detail.mapping.end);
            gone = gone.into_iter().flat_map(|part| part.without(there)).collect();
        }
        let now = self.now();
        for part in gone {
            tracing::debug!(?key, ?part, "unmapped, and taken for left");
            self.borrower.handle_unmapped(now, key, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGE: u64 = 4096;

    fn remap(from: u64, to: u64) -> Event {
        Event::Remap { from: from * PAGE, to: to * PAGE, bytes: PAGE }
    }

    fn unmap(place: u64) -> Event {
        Event::Unmap { start: place * PAGE, end: (place + 1) * PAGE }
    }

    fn next_of(events: impl IntoIterator<Item = Event>, taken: &[u64]) -> Next {
        next(&events.into_iter().collect(), |range| taken.iter().any(|&place| range.contains(place)))
    }

    #[test]
    fn who_leaves_a_place_goes_before_who_comes() {
        assert_eq!(next_of([], &[]), Next::Fault);
        assert_eq!(
            next_of([remap(3, 1), remap(1, 2)], &[1, 3]),
            Next::Change(1),
            "told the other way around"
        );
        assert_eq!(next_of([remap(3, 1), unmap(3), unmap(1)], &[1, 3]), Next::Change(2));
        assert_eq!(next_of([remap(3, 1), unmap(3), remap(1, 2), remap(2, 5)], &[1, 2, 3]), Next::Change(3));
        assert_eq!(next_of([remap(3, 1), unmap(3)], &[1, 3]), Next::Doubtful(0), "nobody has left yet");
        assert_eq!(
            next_of([remap(3, 1), unmap(1)], &[3]),
            Next::Change(0),
            "a second word, of who left before"
        );
        let fault = Event::Fault { address: 0, writes: false, tid: 1 };
        assert_eq!(next_of([fault, remap(3, 1)], &[1, 3]), Next::Doubtful(1), "faults wait as well");
    }

    /// A thread of the model: it makes a change at once, and tells of it word by word.
    #[derive(Debug, Default)]
    struct Thread {
        /// Not told yet.
        words: VecDeque<Event>,
        /// Told, and not read: it goes on when it is.
        tells: bool,
        /// Where it has something.
        places: Vec<u64>,
    }

    /// Threads that move and unmap what is theirs; the kernel gives the lowest place that is free, as soon as it is.
    #[derive(Debug, Default)]
    struct Model {
        /// What is where, in truth.
        mapped: BTreeMap<u64, u32>,
        threads: Vec<Thread>,
        /// Told, with who told it.
        told: VecDeque<(usize, Event)>,
        // The agent.
        events: VecDeque<Event>,
        known: BTreeMap<u64, u32>,
        moves: Moves,
    }

    impl Model {
        fn new(threads: usize, each: usize) -> Self {
            let mut model =
                Self { threads: (0..threads).map(|_| Thread::default()).collect(), ..Self::default() };
            for place in 0..(threads * each) as u64 {
                model.mapped.insert(place, 100 + place as u32);
                model.threads[place as usize % threads].places.push(place);
            }
            model.known = model.mapped.clone();
            model
        }

        /// Somebody has left the place and not told of it.
        fn is_left_unheard(&self, place: u64) -> bool {
            let leaves = |event: &Event| match *event {
                Event::Remap { from, .. } => from == place * PAGE,
                Event::Unmap { start, .. } => start == place * PAGE,
                _ => false,
            };
            self.threads.iter().any(|thread| thread.words.front().is_some_and(leaves))
        }

        fn begin(&mut self, nth: usize, which: usize, moves: bool) {
            let thread = &self.threads[nth];
            if thread.tells || !thread.words.is_empty() || thread.places.is_empty() {
                return;
            }
            let which = which % thread.places.len();
            let from = thread.places[which];
            if self.is_left_unheard(from) {
                return; // what cannot be told apart (see the module's documentation)
            }
            let content = self.mapped[&from];
            let thread = &mut self.threads[nth];
            if moves {
                let to = (0..).find(|place| !self.mapped.contains_key(place)).expect("there are many");
                self.mapped.insert(to, content);
                thread.places[which] = to;
                thread.words.push_back(remap(from, to));
            } else {
                thread.places.swap_remove(which);
            }
            self.mapped.remove(&from);
            thread.words.push_back(unmap(from));
        }

        fn tell(&mut self, nth: usize) {
            let thread = &mut self.threads[nth];
            if !thread.tells
                && let Some(word) = thread.words.pop_front()
            {
                thread.tells = true;
                self.told.push_back((nth, word));
            }
        }

        fn is_changing(&self) -> bool {
            self.threads.iter().any(|thread| thread.tells || !thread.words.is_empty())
        }

        fn read(&mut self) {
            for (nth, word) in self.told.drain(..) {
                self.threads[nth].tells = false;
                self.events.push_back(word);
            }
            loop {
                let at = match next(&self.events, |range| {
                    self.known.range(range.start..range.end).next().is_some()
                }) {
                    Next::Change(at) => at,
                    Next::Doubtful(at) if !self.is_changing() => at,
                    _ => return,
                };
                match self.events.remove(at).unwrap() {
                    Event::Remap { from, to, .. } => {
                        if let Some(content) = self.known.remove(&(from / PAGE)) {
                            self.known.insert(to / PAGE, content);
                        }
                        self.moves.left(pages(from, from + PAGE));
                    }
                    Event::Unmap { start, end } if !self.moves.is_second_word(pages(start, end)) => {
                        self.known.remove(&(start / PAGE));
                    }
                    _ => {}
                }
            }
        }
    }

    proptest! {
        /// Whatever the order in which threads tell of what they have done: once all is told, what is known is what is there.
        #[test]
        fn what_is_known_is_what_is_there(
            steps in proptest::collection::vec((0_u8..8, 0_usize..4, any::<usize>()), 1..300),
        ) {
            let mut model = Model::new(4, 3);
            let end = (0..4).flat_map(|nth| [(4, nth, 0), (7, 0, 0)]).cycle().take(100);
            for (step, nth, which) in steps.into_iter().chain(end) {
                match step {
                    0..4 => model.begin(nth, which, step > 0),
                    4..6 => model.tell(nth),
                    _ => model.read(),
                }
                if !model.is_changing() && model.told.is_empty() && model.events.is_empty() {
                    prop_assert_eq!(&model.known, &model.mapped);
                }
            }
            prop_assert!(!model.is_changing() && model.events.is_empty(), "all has been told");
        }
    }
}
