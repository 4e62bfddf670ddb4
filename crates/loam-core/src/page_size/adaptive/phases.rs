//! Parts of a program that nobody has named, found from where its faults fall.
//!
//! What a part of a program does shows in how far each fault is from the one before: a sweep goes on by one page each time, a sweep across a
//! matrix by a row, a search anywhere. So the faults of a window make a pattern, and a window whose pattern is like one that has been seen is the
//! same phase again. A pattern that was never seen is a new phase once two windows in a row have it: the one in which a phase ends
//! and another begins has a pattern of its own.

use super::super::{PageSize, Place};
use crate::borrower::SpaceKey;

/// Faults of a window.
const WINDOW: u32 = 96;
/// Phases that are told apart; one more takes the place of the one that was seen longest ago.
pub(super) const PHASES_MAX: usize = 12;
/// Distances are told apart forwards and backwards: up to so many pages, whatever their size, and above that by powers of four of base pages, so
/// that a pattern stays what it is when the size of pages changes.
const NEAR_PAGES: u64 = 4;
const DISTANCES: usize = 12;
const PATTERN: usize = 2 * DISTANCES;
/// Patterns are alike whose parts differ by no more than this in all, of 2 at most.
const ALIKE: f32 = 0.5;
/// How much of a phase's pattern the newest window makes up.
const NEWEST: f32 = 0.125;

type Pattern = [f32; PATTERN];

#[derive(Clone, Debug)]
struct Phase {
    pattern: Pattern,
    /// The window that was like it last.
    seen: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Phases {
    last: Option<(SpaceKey, u64)>,
    counts: [u32; PATTERN],
    faults: u32,
    windows: u64,
    phases: alloc::vec::Vec<Phase>,
    now: usize,
    /// The last window's pattern, if it was like no other.
    unknown: Option<Pattern>,
}

fn distance(a: &Pattern, b: &Pattern) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum()
}

impl Phases {
    /// A fault brings a page. Answers with the phase's number, and whether that is a new one, when another phase has begun.
    pub(super) fn fault(&mut self, at: Place, size: PageSize) -> Option<(u32, bool)> {
        let page = at.base >> size.log2();
        let before = self.last.replace((at.space, at.base));
        let bucket = match before {
            Some((space, base)) if space == at.space => {
                let before = base >> size.log2();
                let near = page.abs_diff(before) <= NEAR_PAGES;
                let power = at.base.abs_diff(base).checked_ilog2().map_or(0, |power| power as usize / 2);
                let bucket = if near { 0 } else { (1 + power).min(DISTANCES - 1) };
                bucket + if at.base < base { DISTANCES } else { 0 }
            }
            _ => DISTANCES - 1,
        };
        self.counts[bucket] += 1;
        self.faults += 1;
        if self.faults < WINDOW {
            return None;
        }
        let pattern = core::mem::take(&mut self.counts).map(|count| count as f32 / WINDOW as f32);
        self.faults = 0;
        self.windows += 1;
        self.window(pattern)
    }

    fn window(&mut self, pattern: Pattern) -> Option<(u32, bool)> {
        let nearest = (0..self.phases.len())
            .map(|n| (n, distance(&self.phases[n].pattern, &pattern)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|&(_, distance)| distance <= ALIKE);
        if let Some((n, _)) = nearest {
            self.unknown = None;
            let phase = &mut self.phases[n];
            phase.seen = self.windows;
            for (part, new) in phase.pattern.iter_mut().zip(pattern) {
                *part += (new - *part) * NEWEST;
            }
            return (core::mem::replace(&mut self.now, n) != n).then_some((n as u32, false));
        }
        let again =
            self.unknown.replace(pattern).is_some_and(|unknown| distance(&unknown, &pattern) <= ALIKE);
        if !again && !self.phases.is_empty() {
            return None;
        }
        self.unknown = None;
        let phase = Phase { pattern, seen: self.windows };
        let first = self.phases.is_empty();
        let n = if self.phases.len() < PHASES_MAX {
            self.phases.push(phase);
            self.phases.len() - 1
        } else {
            let others = (0..PHASES_MAX).filter(|&n| n != self.now);
            let oldest = others.min_by_key(|&n| self.phases[n].seen).expect("there are several");
            self.phases[oldest] = phase;
            oldest
        };
        self.now = n;
        // The first phase is what the program does to begin with: nothing changes.
        (!first).then_some((n as u32, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn tell(phases: &mut Phases, bases: impl Iterator<Item = u64>) -> Vec<(u32, bool)> {
        let size = PageSize::from_log2(2);
        bases.filter_map(|base| phases.fault(Place { space: SpaceKey(0), base }, size)).collect()
    }

    #[test]
    fn a_program_that_sweeps_and_searches_in_turn_has_two_phases() {
        let mut phases = Phases::default();
        let mut draw = Draw::new(1);
        let mut found = Vec::new();
        for _ in 0..5 {
            found.push(tell(&mut phases, (0..2_000).map(|n| n * 4)));
            found.push(tell(&mut phases, (0..1_000).map(|_| draw.below(1 << 20))));
        }
        assert_eq!(found[0], [], "the first one is what there is");
        assert_eq!(found[1], [(1, true)]);
        for turn in &found[2..] {
            assert_eq!(turn.len(), 1, "one change each: {found:?}");
            assert!(!turn[0].1, "both are known by now");
        }
        assert_ne!(found[2], found[3]);
    }

    #[test]
    fn sweeps_along_rows_and_across_them_are_told_apart() {
        let mut phases = Phases::default();
        let mut turn = || {
            let along = tell(&mut phases, (0..1_000).map(|n| n * 4));
            let across = tell(&mut phases, (0..1_000).map(|n| n % 100 * 2_000 + n / 100 * 4));
            (along, across)
        };
        turn();
        let (along, across) = turn();
        assert_eq!((along.len(), across.len()), (1, 1));
        assert_ne!(along[0].0, across[0].0);
    }

    proptest! {
        /// Numbers stay below the limit, a phase that is new or another one is told, and never the same twice in a row.
        #[test]
        fn phases_are_few(seeds in proptest::collection::vec((0_u64..1 << 30, 1_u64..5_000), 1..40)) {
            let mut phases = Phases::default();
            let mut now = 0;
            for (start, stride) in seeds {
                for (number, new) in tell(&mut phases, (0..300).map(|n| start + n * stride)) {
                    prop_assert!((number as usize) < PHASES_MAX);
                    prop_assert!(new || number != now);
                    now = number;
                }
            }
            prop_assert!(phases.phases.len() <= PHASES_MAX);
        }
    }
}
