//! The keeper's part of the watch: sets the lender's limit, tells borrowers, tells the log.

use super::{Governor, Sources, default_reserve};
use crate::config::LendConfig;
use crate::drainer::StoreLink;
use crate::posts::News;
use crate::shared::Shared;
use loam_core::ids::SpaceId;
use loam_core::lender::{Gone, RECALL_TIME, Recall, Stored, Terms};
use loam_core::units::{BasePages, Bytes};
use loam_wire::{PageRef, encode};
use rustix::fd::OwnedFd;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    sources: Sources,
    governor: Governor,
    due: Instant,
    /// What the machine keeps for itself.
    reserve: Bytes,
    /// The log knows that less is lent than was offered.
    told_short: bool,
    /// The log knows that pages stay above the limit.
    told_kept: bool,
}

impl Watch {
    pub(crate) fn new(config: &LendConfig, size: Bytes) -> Self {
        let sources = Sources::new(&config.machine_root);
        let reserve = config.keep.unwrap_or_else(|| default_reserve(sources.total().unwrap_or_default()));
        let governor = Governor::new(size, reserve);
        Self { sources, governor, due: Instant::now(), reserve, told_short: false, told_kept: false }
    }

    /// What the machine keeps for itself.
    pub(crate) fn reserve(&self) -> Bytes {
        self.reserve
    }

    /// Ready (POLLPRI) when programs have begun to wait for memory.
    pub(crate) fn trigger(&self) -> Option<&OwnedFd> {
        self.sources.trigger()
    }

    /// Programs wait for memory: looks at once.
    pub(crate) fn hurry(&mut self) {
        self.due = Instant::now();
    }

    /// Looks if it is time to. Answers whether borrowers have been left something, and how long until the next look.
    pub(crate) fn tick(&mut self, shared: &Shared) -> (bool, Duration) {
        let now = Instant::now();
        let given = tell_of_given_room(shared);
        if now < self.due {
            return (given, self.due - now);
        }
        // What is taken first: what is given back in between counts as neither.
        let slab = shared.slab.memory().unwrap_or_default();
        let (_, pinned) = shared.shares().of_regions();
        let taken = Bytes(slab.0 + pinned.bytes().0);
        let governed = self.governor.look(now, taken, &self.sources.read()).base_pages();
        let interval = self.governor.interval(slab);
        self.due = now + interval;
        let mut report = self.governor.report().clone();
        let (limit, before, room, kept, pinned) = {
            let mut lender = shared.lender();
            let (limit, regions) = {
                let mut shares = shared.shares();
                (shares.govern(governed), shares.of_regions().0)
            };
            let before = lender.limit();
            if before != limit {
                lender.handle_limit(limit);
            }
            let pinned = Pinned { regions: regions.bytes(), reserved: lender.reserved().bytes() };
            (limit, before, lender.free(), lender.stats().kept, pinned)
        };
        self.tell_log(&report, kept, pinned);
        report.reason = pinned.before(report.reason);
        *shared.memory() = report;
        let grown = limit > before && room > Bytes(0);
        if grown {
            tell_room(shared);
        }
        (grown || given, interval)
    }

    fn tell_log(&mut self, report: &super::Report, kept: u64, pinned: Pinned) {
        let short = !report.reason.is_empty();
        if short != self.told_short {
            if short {
                let reason = pinned.before(report.reason.clone());
                tracing::info!("lending {} at most now: {reason}", report.limit);
            } else {
                tracing::info!("lending up to {} again", report.limit);
            }
        }
        self.told_short = short;
        if kept > 0 && !self.told_kept {
            tracing::warn!(
                "{} of the memory that this machine wants back stay lent: they are the only copies, and their borrowers \
                 have not taken them home; {}; end those runs, or start another lender for them",
                BasePages(kept).bytes(),
                report.reason
            );
        }
        self.told_kept = kept > 0;
    }
}

/// Leaves a recall for the loops.
pub(crate) fn post_recall(shared: &Shared, recall: &Recall) {
    let pages: Vec<PageRef> =
        recall.pages.iter().map(|(index, version)| PageRef::new(*index, *version)).collect();
    let mut frame = Vec::new();
    let within_ms = u32::try_from(RECALL_TIME.0 / 1_000_000).expect("a second or so");
    let room = room_for(shared, recall.space);
    encode::recall(&mut frame, room.0, within_ms, &pages);
    shared.post(recall.space, News::Hint, frame);
}

/// Leaves word for the loops that others have taken the place of pages.
pub(crate) fn post_gone(shared: &Shared, gone: &Gone) {
    let pages: Vec<PageRef> =
        gone.pages.iter().map(|(index, version)| PageRef::new(*index, *version)).collect();
    let mut frame = Vec::new();
    let room = room_for(shared, gone.space);
    encode::gone(&mut frame, room.0, &pages);
    shared.post(gone.space, News::Hint, frame);
}

/// Leaves word for the loops that pages are safe on the disk.
pub(crate) fn post_stored(shared: &Shared, stored: &Stored) {
    let pages: Vec<PageRef> =
        stored.pages.iter().map(|(index, version)| PageRef::new(*index, *version)).collect();
    let free = shared.store.as_ref().map_or(Bytes(0), StoreLink::free_bytes);
    let mut frame = Vec::new();
    encode::stored(&mut frame, free.0, &pages);
    shared.post(stored.space, News::Stored, frame);
}

/// Leaves word for the loops that one who was refused has room again.
pub(crate) fn post_room(shared: &Shared, space: SpaceId) {
    let room = room_for(shared, space);
    let mut frame = Vec::new();
    encode::recall(&mut frame, room.0, 0, &[]);
    shared.post(space, News::Room, frame);
}

/// What is free for anybody, and what is pledged to this one.
fn room_for(shared: &Shared, space: SpaceId) -> Bytes {
    let lender = shared.lender();
    Bytes(lender.free().0 + lender.pledged_to(space).0)
}

/// Memory that is not asked back, whatever the machine needs.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    regions: Bytes,
    /// For borrowers.
    reserved: Bytes,
}

impl Pinned {
    /// It is said before anything else is.
    fn before(self, reason: String) -> String {
        let mut reasons = Vec::new();
        if self.regions > Bytes(0) {
            reasons.push(format!("direct regions have {}, until they are removed", self.regions));
        }
        // (Of what may be lent nothing is missing by it; only when that is less than was offered is it part of the reason.)
        if self.reserved > Bytes(0) && !reason.is_empty() {
            reasons.push(format!("{} are reserved, until those runs end", self.reserved));
        }
        if !reason.is_empty() {
            reasons.push(reason);
        }
        reasons.join("; ")
    }
}

/// Room that regions have given back, or that is not reserved any more, is told to who was refused. Answers whether there was something to tell.
fn tell_of_given_room(shared: &Shared) -> bool {
    // At once: what regions give back after the look is not told of as what there was before.
    let (given, room) = {
        let mut lender = shared.lender();
        let by_runs = lender.gave_room();
        if by_runs {
            lender.told_room();
        }
        (shared.shares().take_given() | by_runs, lender.free())
    };
    let told = given && room > Bytes(0);
    if told {
        tell_room(shared);
    }
    told
}

/// There is room again: who was refused would not know.
fn tell_room(shared: &Shared) {
    let spaces: Vec<SpaceId> = {
        let lender = shared.lender();
        lender.borrowers().filter(|b| b.terms != Terms::Kept && b.connections > 0).map(|b| b.space).collect()
    };
    for space in spaces {
        post_room(shared, space);
    }
}
