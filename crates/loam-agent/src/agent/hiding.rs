//! What children find where the kernel reports no forks.
//!
//! Adopted mappings are kept from children there, who would read zeros in them: a child made behind libc's back meets no mapping at all. Around a fork by libc,
//! with everything at home, they are shown. What the program lets go ([`loam_hand::call::RELEASE`]) is shown first, and is none of ours after that.
//!
//! The kernel registers whole mappings, and one that grows or moves takes that and its hiding along. So of a mapping that the policy knows any of, all is ours,
//! whatever was let go at its place before.

use super::Agent;
use super::adopt::without;
use crate::procfs::{self, Mapping, ProcError};
use loam_core::borrower::{BaseRange, SpaceKey};

/// Looks for memory that is still hidden, a call.
const SHOWS_MAX: u32 = 8;

impl Agent<'_> {
    /// A fork that told us of itself, and has everything at home, begins or ends.
    pub(super) fn allow_fork(&mut self, key: SpaceKey, begins: bool) {
        let ours = self.ours(key);
        let known = self.borrower.ranges(key);
        let Some(process) = self.processes.get_mut(&key) else { return };
        let Some(hand) = &mut process.hand else { return };
        hand.forks = if begins { hand.forks + 1 } else { hand.forks.saturating_sub(1) };
        if self.fork_events {
            return;
        }
        if begins {
            // (By what the policy knows a mapping that has grown would come apart, and what it has grown by be nobody's. `is_shown` sees to that.)
            hand.show(&ours.unwrap_or_default());
        } else if hand.forks == 0 {
            hand.hide(&without(ours.unwrap_or(known), &process.letting_go));
        }
    }

    /// The mappings of a process of which the policy knows some, where the kernel reports no forks; `None`: they are changing just now.
    fn ours(&mut self, key: SpaceKey) -> Option<Vec<BaseRange>> {
        let Some(process) = self.processes.get(&key).filter(|_| !self.fork_events) else {
            return Some(Vec::new());
        };
        let mappings = process.pid.and_then(|pid| procfs::mappings(pid).ok()).unwrap_or_default();
        let private = mappings.iter().filter(|mapping| mapping.looks_adoptable());
        self.take_back(key, private.map(Mapping::pages))
    }

    /// Those of the `mappings`, which have just been read, that the policy knows some of, in the order of their addresses; `None`: they are changing just now. What was let go at their places
    /// has gone, of which the kernel has told nobody.
    pub(super) fn take_back(
        &mut self,
        key: SpaceKey,
        mappings: impl Iterator<Item = BaseRange>,
    ) -> Option<Vec<BaseRange>> {
        let known = self.borrower.ranges(key);
        let process = self.processes.get_mut(&key).filter(|process| process.is_settled())?;
        let ours: Vec<BaseRange> = touched(mappings, &known).collect();
        ours.iter().for_each(|mapping| process.released.remove(*mapping));
        Some(ours)
    }

    /// A child would find all of `range` that is adopted. Else the hand has more to show, or there is more to read.
    pub(super) fn is_shown(&mut self, key: SpaceKey, range: BaseRange, shows: &mut u32) -> bool {
        if self.fork_events || self.processes.get(&key).is_none_or(|process| process.hand.is_none()) {
            return true;
        }
        // What stays hidden however often it is shown (there are too many mappings), or cannot be looked at, is not waited for.
        let hidden = loop {
            match self.still_hidden(key, range) {
                Ok(None) => return false,
                Ok(Some(hidden)) if hidden.is_empty() => return true,
                _ if *shows >= SHOWS_MAX => return true,
                Ok(Some(hidden)) => break hidden,
                Err(error) => tracing::debug!(?key, ?error, "not looked at"),
            }
            *shows += 1;
        };
        *shows += 1;
        let hand = self.processes.get_mut(&key).and_then(|process| process.hand.as_mut());
        hand.expect("looked at above").show(&hidden);
        false
    }

    /// What of a range is still hidden from children, not by the program's own wish; `None`: its mappings are changing just now. A mapping that grows
    /// (`mremap`) stays hidden, and the policy, which knows only those pages of the new part that were touched, is told of it.
    fn still_hidden(&mut self, key: SpaceKey, range: BaseRange) -> Result<Option<Vec<BaseRange>>, ProcError> {
        // A look at the flags of mappings is slow, and most of what is let go was never adopted.
        let Some(ours) = self.ours(key) else { return Ok(None) };
        let process = &self.processes[&key];
        let may_hide = process.hand.as_ref().is_some_and(|hand| hand.may_hide(range));
        let Some(pid) =
            process.pid.filter(|_| may_hide || ours.iter().any(|of| !of.intersect(range).is_empty()))
        else {
            return Ok(Some(Vec::new()));
        };
        let details = match procfs::flags_up_to(pid, (range.end << 12) - 1) {
            Err(ProcError::Gone { .. }) => return Ok(Some(Vec::new())),
            details => details?,
        };
        let by_us = details.iter().filter(|of| of.is_hidden_by_us()).map(|of| of.mapping.pages());
        if self.take_back(key, by_us).is_none() {
            return Ok(None);
        }
        let released = self.processes[&key].released.clone();
        let known = self.borrower.ranges(key);
        let mut hidden = Vec::new();
        for detail in details.iter().filter(|detail| detail.may_be_hidden_by_us()) {
            let parts = without(vec![detail.mapping.pages()], released.iter());
            if detail.is_hidden_by_us() {
                let now = self.now();
                for part in without(parts.clone(), &known) {
                    tracing::debug!(?part, "grown");
                    self.borrower.handle_adopted(now, key, part, &[]); // what is in there has come by a fault
                }
            }
            hidden
                .extend(parts.into_iter().map(|part| part.intersect(range)).filter(|part| !part.is_empty()));
        }
        Ok(Some(hidden))
    }
}

/// Those of the `mappings` that have a part of what is `known`. Both are in the order of their addresses.
fn touched<'a>(
    mappings: impl Iterator<Item = BaseRange> + 'a,
    known: &'a [BaseRange],
) -> impl Iterator<Item = BaseRange> + 'a {
    mappings.filter(|mapping| {
        let at = known.partition_point(|of| of.end <= mapping.start);
        known.get(at).is_some_and(|of| of.start < mapping.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_of_which_some_is_known_is_touched() {
        let ranges = |list: &[(u64, u64)]| {
            list.iter().map(|&(start, end)| BaseRange::new(start, end)).collect::<Vec<_>>()
        };
        let mappings = ranges(&[(0, 10), (10, 20), (20, 30), (40, 50), (50, 51), (60, 70)]);
        let check = |known: &[(u64, u64)], expected: &[(u64, u64)]| {
            let known = ranges(known);
            let touched: Vec<BaseRange> = touched(mappings.iter().copied(), &known).collect();
            assert_eq!(touched, ranges(expected), "{known:?}");
        };
        check(&[], &[]);
        check(&[(10, 20)], &[(10, 20)]);
        check(&[(9, 11), (29, 41)], &[(0, 10), (10, 20), (20, 30), (40, 50)]);
        check(&[(30, 40), (51, 60), (70, 80)], &[]);
        check(&[(50, 51), (69, 90)], &[(50, 51), (60, 70)]);
    }
}
