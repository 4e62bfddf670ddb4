//! Write protection of what forked relatives share, so that a copy waits until there is a frame for it (`loam_core::borrower`, `writes.rs`).
//!
//! It is the policy's account that hangs on it, no page's contents: where the kernel refuses, what is copied is seen later, by the shares of
//! `copied.rs`. Only to let somebody write again must never be forgotten: a thread waits for it.

use super::Agent;
use crate::uffd::Stop;
use loam_core::borrower::{BaseRange, SpaceKey};
use std::collections::{BTreeMap, VecDeque};

/// What is to be done with base pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Whoever writes there waits.
    Protect,
    /// Who waits there goes on.
    Release,
    /// See which are in a frame of their own by now.
    Look,
}

/// Calls that the kernel has put off, in order: mappings are changing. Until the forking thread has heard that its event was read, a fork is such a change,
/// too.
#[derive(Debug, Default)]
pub(super) struct PutOff(BTreeMap<SpaceKey, VecDeque<(BaseRange, Guard)>>);

impl PutOff {
    /// Something that the policy takes for protected is not yet, or was not looked at since.
    pub(super) fn is_behind(&self) -> bool {
        self.0.values().flatten().any(|(_, guard)| *guard != Guard::Release)
    }
}

impl Agent<'_> {
    /// At once, or when the kernel lets us.
    pub(super) fn guard(&mut self, space: SpaceKey, base: u64, pages: u32, guard: Guard) {
        let range = BaseRange::new(base, base + u64::from(pages));
        tracing::trace!(?space, ?range, ?guard, "guard");
        if self.put_off.0.contains_key(&space) || !self.try_to_guard(space, range, guard) {
            self.put_off.0.entry(space).or_default().push_back((range, guard));
            self.retry = true;
        }
    }

    /// What was put off.
    pub(super) fn guard_again(&mut self) {
        for (space, mut calls) in std::mem::take(&mut self.put_off.0) {
            while let Some(&(range, guard)) = calls.front()
                && self.try_to_guard(space, range, guard)
            {
                calls.pop_front();
            }
            if !calls.is_empty() {
                self.put_off.0.insert(space, calls);
                self.retry = true;
            }
        }
    }

    /// False: not now.
    fn try_to_guard(&mut self, space: SpaceKey, range: BaseRange, guard: Guard) -> bool {
        let Some(uffd) = self.uffd_of(space) else { return true };
        let addresses = range.start << 12..range.end << 12;
        let result = match guard {
            Guard::Look => {
                self.look_for_own(space, range);
                return true;
            }
            Guard::Protect => uffd.write_protect(addresses, true),
            Guard::Release => uffd.write_protect(addresses, false),
        };
        match result {
            Ok(()) => true,
            Err(Stop::Again) => false,
            Err(stop) => {
                tracing::debug!(?space, ?range, ?guard, ?stop, "refused");
                if guard == Guard::Protect {
                    self.borrower.handle_not_protected(space, range);
                } else {
                    // A mapping of the range is gone: the rest has its own, and who waits there meets what is there now.
                    for base in range.start..range.end {
                        let _ = uffd.write_protect(base << 12..(base + 1) << 12, false);
                    }
                    let _ = uffd.wake(range.start << 12..range.end << 12);
                }
                true
            }
        }
    }

    /// Somebody may have written between the fork and now. It is looked for where all is protected by now; if that of a relative was put off, what is written
    /// there until then is not seen.
    fn look_for_own(&mut self, space: SpaceKey, range: BaseRange) {
        let pagemap = self.processes.get(&space).and_then(|process| process.pagemap.as_ref());
        let mut own = Vec::new();
        match pagemap.map(|pagemap| pagemap.unshared(range.start << 12, range.end << 12, &mut own)) {
            Some(Ok(())) => {
                for (start, end) in own {
                    self.borrower.handle_own(space, BaseRange::new(start >> 12, end >> 12));
                }
            }
            // It has ended, or may not be looked at.
            _ => self.borrower.handle_not_protected(space, range),
        }
    }
}
