//! How much may be lent now: the lender's machine comes first.
//!
//! A few times a second the keeper looks at what its machine has available, at the control groups that it is in, and at the time that
//! programs lose waiting for memory. What slab and regions take, and what is available beside them, less a reserve, is what may be
//! lent; regions are pinned and keep what they have, so it is runs that get less: where that is less than before, the limit falls at once; where it is more, it rises slowly, and not before some time
//! has passed since pages had to go, so that it does not swing.

mod keeping;
mod sources;

use crate::limits::{GROW_INTERVAL, GROW_QUIET, GROW_SHARE, WATCH_INTERVAL, WATCH_INTERVAL_IDLE};
pub(crate) use keeping::{Watch, post_gone, post_recall, post_room, post_stored};
use loam_core::units::Bytes;
use sources::Sources;
pub(crate) use sources::processors_stalled_us;
pub use sources::{UsableMemory, usable_memory};
use std::time::Instant;

/// Where memory may run short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Machine,
    /// A control group, by the path that its limit is in.
    Group(String),
}

/// What one place has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) place: Place,
    /// Memory in all: the machine's, or the group's limit.
    pub(crate) total: Bytes,
    /// What can be had without swapping, beside what slab and regions take.
    pub(crate) available: Bytes,
    /// Time that programs have lost waiting for memory, in microseconds since some start. `None`: not told.
    pub(crate) stalled_us: Option<u64>,
}

/// What the last look came to, for status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) limit: Bytes,
    pub(crate) reserve: Bytes,
    pub(crate) available: Bytes,
    /// Empty: all that was offered may be lent.
    pub(crate) reason: String,
}

/// The reserve of a machine with so much memory, unless somebody says otherwise: a twentieth, and 256 MiB at least.
pub(crate) fn default_reserve(total: Bytes) -> Bytes {
    Bytes((total.0 / 20).max(256 << 20))
}

/// A group is small where a machine is large: its reserve is at most this part of its limit.
const GROUP_RESERVE_SHARE: u64 = 8;
/// More goes than is short, by this part of the reserve, and less comes back than there is.
const MARGIN_SHARE: u64 = 8;
/// Programs that lose more than this part of their time are short of memory: the reserve doubles.
const STALLED_SHARE: u64 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Governor {
    size: Bytes,
    reserve: Bytes,
    limit: Bytes,
    /// When pages last had to go.
    short_at: Option<Instant>,
    grown_at: Option<Instant>,
    /// The last readings of stalled time, by place, and when they were taken.
    stalls: Vec<(Place, u64)>,
    looked_at: Option<Instant>,
    report: Report,
}

impl Governor {
    /// Lends at most `size` and keeps `reserve` free.
    pub(crate) fn new(size: Bytes, reserve: Bytes) -> Self {
        let report = Report { limit: size, reserve, ..Report::default() };
        Self {
            size,
            reserve,
            limit: size,
            short_at: None,
            grown_at: None,
            stalls: Vec::new(),
            looked_at: None,
            report,
        }
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// When to look again.
    pub(crate) fn interval(&self, slab: Bytes) -> std::time::Duration {
        if slab == Bytes(0) && self.limit == self.size { WATCH_INTERVAL_IDLE } else { WATCH_INTERVAL }
    }

    /// Takes in what was read, while slab and regions took `taken`; answers how much may be lent, to runs and as regions together.
    pub(crate) fn look(&mut self, now: Instant, taken: Bytes, readings: &[Reading]) -> Bytes {
        let passed = self.looked_at.replace(now).map_or(0, |before| (now - before).as_micros() as u64);
        let stalls = std::mem::take(&mut self.stalls);
        // The place that has least to spare decides.
        let mut tightest: Option<(i128, &Reading, Bytes, bool)> = None;
        for reading in readings {
            let stalled = reading.stalled_us.is_some_and(|us| {
                self.stalls.push((reading.place.clone(), us));
                let before = stalls.iter().find(|(place, _)| *place == reading.place);
                before.is_some_and(|(_, before)| us.saturating_sub(*before) > passed / STALLED_SHARE)
            });
            let mut reserve = self.reserve.0;
            if reading.place != Place::Machine {
                reserve = reserve.min(reading.total.0 / GROUP_RESERVE_SHARE);
            }
            // Programs wait where their own group is small, too. That says something of this place only if it is nearly short.
            let reserve = Bytes(if stalled { reserve.saturating_mul(2) } else { reserve });
            let spare = i128::from(reading.available.0) - i128::from(reserve.0);
            if tightest.is_none_or(|(least, ..)| spare < least) {
                tightest = Some((spare, reading, reserve, stalled));
            }
        }
        // Nothing could be read: what was right is still the best guess.
        let Some((spare, reading, reserve, stalled)) = tightest else { return self.limit };
        let margin = i128::from(reserve.0 / MARGIN_SHARE);
        let lendable = |bytes: i128| Bytes(bytes.clamp(0, i128::from(self.size.0)) as u64);
        let fits = i128::from(taken.0) + spare;
        if spare < 0 {
            // Pages have to go if more than the limit is taken then; if nothing is, it is not to begin now. (Regions stay.)
            self.short_at = Some(now);
            self.limit = self.limit.min(lendable(fits - margin));
        } else if lendable(fits) < self.limit {
            self.limit = lendable(fits);
        } else {
            let rests = |since: Option<Instant>, time| since.is_none_or(|since| now - since >= time);
            if self.limit < self.size
                && rests(self.short_at, GROW_QUIET)
                && rests(self.grown_at, GROW_INTERVAL)
            {
                let step = Bytes((self.size.0 / GROW_SHARE).max(16 << 20));
                let grown = lendable(fits - margin).min(Bytes(self.limit.0.saturating_add(step.0)));
                if grown > self.limit {
                    self.grown_at = Some(now);
                    self.limit = grown;
                }
            }
        }
        self.report = Report {
            limit: self.limit,
            reserve,
            available: reading.available,
            reason: if self.limit < self.size { reason(reading, reserve, stalled) } else { String::new() },
        };
        self.limit
    }
}

fn reason(reading: &Reading, reserve: Bytes, stalled: bool) -> String {
    let place = match &reading.place {
        Place::Machine => "this machine".to_owned(),
        Place::Group(path) => format!("the control group {path} (limit {})", reading.total),
    };
    let waits = if stalled { ", and programs wait for memory" } else { "" };
    format!("{place} has {} available and keeps {reserve} free{waits}", reading.available)
}

#[cfg(test)]
mod tests;
