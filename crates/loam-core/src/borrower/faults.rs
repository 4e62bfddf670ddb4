//! Faults: from the event to the installed page.

use super::copies::{BufferIndex, CopyIndex, LenderIndex};
use super::marks::Pattern;
use super::store::Source;
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use super::{Borrower, Effect, FaultKind, InstallSource};
use crate::ids::{ContentHash, Urgency, Version};
use crate::page_size::PageSize;
use crate::units::{BasePages, Duration, EXTENT_BASE_PAGES, Instant};
use alloc::vec::Vec;

/// A thread waits at a base page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    since: Instant,
    /// How it will be answered, once that is known.
    kind: Option<FaultKind>,
    /// It waits for what another fault, or the prefetcher, asked for.
    pub(super) joined: bool,
    /// It stands in the queue for frames.
    pub queued: bool,
    /// It has stood there.
    stood: bool,
    /// It waits to write to a page that is here, and protected.
    pub(super) writes: bool,
    /// Frames come only once it has been answered (the hand waits itself): it waits for none, not even when it is asked for again.
    pub urgent: bool,
    /// It has been decided that its page comes as a whole (see [`super::alone`]).
    pub(super) whole: bool,
}

/// A getpage or disk read that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub version: Version,
    /// Entries that want it; none once another source has answered.
    pub targets: Vec<(SpaceKey, u64)>,
    /// Of the page with which it comes.
    pub size: PageSize,
    /// Who was asked.
    pub at_lender: Option<LenderIndex>,
    pub at_disk: Option<BufferIndex>,
    /// Keep it in a buffer instead of installing it, unless a thread waits by then.
    pub marker: bool,
    /// Its lender wants it back, or too few have it: it goes on elsewhere.
    pub recall: bool,
    /// As it was asked for, or has been hastened to since.
    pub urgency: Urgency,
    /// Of those that its lender was asked for behind, its number.
    pub number: u64,
}

impl Wait {
    /// For a page that is protected.
    pub(super) fn to_write(now: Instant) -> Self {
        Self {
            since: now,
            kind: None,
            joined: false,
            queued: false,
            stood: false,
            writes: true,
            urgent: false,
            whole: false,
        }
    }

    /// It waits for room from now on. Nobody else brings it: what it waits for is its own.
    pub(super) fn stand(&mut self) {
        (self.queued, self.stood, self.joined) = (true, true, false);
    }
}

impl Fetch {
    /// The getpage for this version is unanswered and wanted, and the disk has not been asked.
    pub(super) fn waits_for_lender_alone(&self, version: Version) -> bool {
        self.version == version
            && self.at_lender.is_some()
            && self.at_disk.is_none()
            && !self.targets.is_empty()
    }
}

/// What an answered [`Fetch`] was for.
#[derive(Debug)]
pub(super) struct Answer {
    pub targets: Vec<(SpaceKey, u64)>,
    pub size: PageSize,
    pub marker: bool,
    pub recall: bool,
    /// The disk read's buffer.
    pub read_into: Option<BufferIndex>,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was wanted and is right.
    Taken,
    /// Nobody wants it any more, or its contents are out of date.
    Stale,
    /// It does not hash to what left: the source must not be trusted.
    Corrupt,
}

/// What became of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallOutcome {
    /// In place; who waited is awake.
    Done,
    /// A page was there already (EEXIST, which wakes nobody).
    Exists,
    /// A change of mappings is under way (EAGAIN): read the events, then call [`Borrower::handle_retry`].
    Again,
    /// The mapping is gone (ENOENT).
    Gone,
}

/// A surprising fault more often than this is not a race any more: the page is really gone.
const SURPRISES_MAX: u32 = 4096;
/// Counted for so long: a page that is gone comes 4,096 times well within it, one that two threads race for does not.
const SURPRISES_LAST: Duration = Duration::from_millis(1000);

impl Borrower {
    /// A thread waits at `base`. A fault in memory that was not known to be adopted adopts its base page: a
    /// mapping grows in place with its registration (mremap).
    pub fn handle_fault(&mut self, now: Instant, key: SpaceKey, base: u64) {
        if !self.spaces.contains_key(&key) {
            return;
        }
        self.stats.faults += 1;
        if !self.is_adopted(key, base) {
            self.adopt_range(key, base, base + 1);
        }
        let entry = self.entry(key, base);
        let state = entry.state;
        let touch = self.touch(entry);
        self.note_next(key, base);
        self.waits_clock(now);
        if state != BaseState::Local {
            if self.waits.contains_key(&(key, base)) {
                return; // another thread waits here already
            }
            self.wait_from(now, key, base);
            self.holes.touch(key, base, self.sizer.turned_over());
            self.touch_watched(key, base);
            self.touch_alone(key, base);
        }
        match state {
            BaseState::Local => self.surprise(key, base, entry),
            _ => self.serve(key, base),
        }
        let mark = self.mark(key, base);
        let pattern = mark.pattern;
        if let Some(touch) = touch.filter(|_| pattern != Pattern::Random) {
            self.follow(key, base, touch, mark);
        }
        if pattern == Pattern::Sequential {
            self.read_on(key, base);
        }
        self.advance(now);
    }

    /// A thread waits at `base` from now on.
    pub(super) fn wait_from(&mut self, now: Instant, key: SpaceKey, base: u64) {
        let joined = self.entry(key, base).state == BaseState::Fetching;
        let wait = Wait {
            since: now,
            kind: None,
            joined,
            queued: false,
            stood: false,
            writes: false,
            urgent: false,
            whole: false,
        };
        self.waiters.begin(wait);
        assert!(self.waits.insert((key, base), wait).is_none(), "one wait a base page");
    }

    /// Asks again for every base page that a thread waits for and nothing is under way for.
    pub fn handle_retry(&mut self, now: Instant) {
        self.waits_clock(now);
        let stalled: Vec<(SpaceKey, u64)> = self
            .waits
            .iter()
            .filter(|&(&(key, base), wait)| {
                let state = self.entry(key, base).state;
                !wait.queued && matches!(state, BaseState::Empty | BaseState::Away | BaseState::Local)
            })
            .map(|(&at, _)| at)
            .collect();
        for (key, base) in stalled {
            self.serve(key, base);
        }
        self.advance(now);
    }

    /// Installed, or not: `pages` base pages from `base` on.
    pub fn handle_installed(
        &mut self,
        now: Instant,
        key: SpaceKey,
        base: u64,
        pages: u32,
        outcome: InstallOutcome,
    ) {
        let pending = self.installs_pending.checked_sub(u64::from(pages));
        self.installs_pending = pending.expect("only what was asked for is installed");
        if outcome == InstallOutcome::Done {
            self.note_unsure(now, key, BaseRange::new(base, base + u64::from(pages)));
        }
        for b in base..base + u64::from(pages) {
            match outcome {
                InstallOutcome::Done => {
                    self.end_wait(now, key, b);
                    self.is_home(key, b);
                }
                InstallOutcome::Exists => {
                    // A page that we did not bring: one that is being discarded, or was freed lazily and used again. The kernel
                    // may still take it, so it must not be called local (see `handle_removed`).
                    let entry = self.entry(key, b);
                    if entry.state == BaseState::Local && entry.copy.is_none() {
                        self.set_entry(key, b, Entry::default());
                    }
                    self.end_wait(now, key, b);
                }
                InstallOutcome::Again | InstallOutcome::Gone => {
                    let entry = self.entry(key, b);
                    if entry.state == BaseState::Local {
                        let state = if entry.copy.is_some() { BaseState::Away } else { BaseState::Empty };
                        // What could not be installed has no frame that a relative could share.
                        self.set_entry(key, b, Entry { state, shared: false, ..entry });
                    }
                    if outcome == InstallOutcome::Gone {
                        self.drop_wait(now, key, b);
                        self.forget_guess(key, b);
                    }
                }
            }
        }
        if matches!(outcome, InstallOutcome::Exists | InstallOutcome::Gone) {
            self.effects.push_back(Effect::Wake { space: key, base, pages });
        }
        if self.installs_pending == 0 {
            self.advance(now); // evictions were held back meanwhile
        }
    }

    /// Zeros have come: a discard that is still under way takes them with it.
    fn note_unsure(&mut self, now: Instant, key: SpaceKey, range: BaseRange) {
        if !self.discards.touch(now, key, range) {
            return;
        }
        for base in range.start..range.end {
            let entry = self.entry(key, base);
            if entry.state == BaseState::Local && entry.copy.is_none() {
                let unsure = self.discards.touch(now, key, BaseRange::new(base, base + 1));
                self.set_entry(key, base, Entry { unsure, ..entry });
            }
        }
    }

    /// What a fault made us think adopted was gone by the time: a later look at the mappings decides.
    fn forget_guess(&mut self, key: SpaceKey, base: u64) {
        if self.entry(key, base).state == BaseState::Empty
            && let Some(space) = self.spaces.get_mut(&key)
        {
            space.table.remove_range(super::BaseRange::new(base, base + 1));
        }
    }

    /// A copy's contents are here, in the driver's hands under `tag` (from a lender) or in the buffer that the
    /// effect named (from the disk), and hash to `hash`.
    pub fn handle_arrival(
        &mut self,
        now: Instant,
        copy: CopyIndex,
        version: Version,
        hash: ContentHash,
        source: Source,
        tag: u32,
    ) -> Arrival {
        self.waits_clock(now);
        let Some(answer) = self.take_answer(copy, version, source) else { return Arrival::Stale };
        if self.copies.get(copy).hash != hash {
            self.free_read_buffer(answer.read_into);
            self.source_failed(copy, source);
            let recall = answer.recall;
            self.refetch(now, copy, answer);
            if recall {
                self.goes_on_home(copy, version);
            }
            self.advance(now);
            return Arrival::Corrupt;
        }
        let mut read_into = answer.read_into;
        if let Some(buffer) = read_into {
            if self.copies.get(copy).buffer().is_none() {
                self.copies.get_mut(copy).set_buffer(Some(buffer));
            } else {
                self.free_read_buffer(read_into.take());
            }
        }
        let kind = if source == Source::Disk { FaultKind::Disk } else { FaultKind::Remote };
        let waited = answer.targets.iter().any(|t| self.waits.contains_key(t));
        let held = answer.marker && !waited && self.hold(copy, tag);
        if answer.recall && !held {
            self.keep(copy, tag);
        }
        for (key, base) in answer.targets {
            let entry = self.entry(key, base);
            if entry.state != BaseState::Fetching || entry.copy != Some(copy) {
                continue;
            }
            if held {
                self.set_entry(key, base, Entry { state: BaseState::Away, ..entry });
                continue;
            }
            self.note_stream(now, key, base, answer.size);
            self.set_entry(key, base, Entry { state: BaseState::Local, ..entry });
            self.enqueue(key, base, answer.size);
            self.note_kind(key, base, kind);
            let buffer = self.copies.get(copy).buffer();
            let source = buffer.map_or(InstallSource::Arrived(tag), InstallSource::Buffer);
            self.install(key, base, source);
        }
        if answer.recall {
            self.goes_on_home(copy, version);
        } else if held {
            self.goes_on_mending(copy); // what is to be mended keeps its buffer until it is, and others may wait for one
        } else {
            self.came_home(copy);
        }
        self.store_after_fetch(copy);
        self.settle(copy);
        self.advance(now);
        Arrival::Taken
    }

    /// The source does not have the copy, or could not read it. False: it had not been asked for it.
    pub fn handle_missed(&mut self, now: Instant, copy: CopyIndex, version: Version, source: Source) -> bool {
        self.waits_clock(now);
        let Some(answer) = self.take_answer(copy, version, source) else { return false };
        self.free_read_buffer(answer.read_into);
        self.source_failed(copy, source);
        let recall = answer.recall;
        self.refetch(now, copy, answer);
        if recall {
            self.goes_on_home(copy, version);
        }
        self.advance(now);
        true
    }

    /// Answers the fault at `base` with what the table says, or queues it.
    pub(super) fn serve(&mut self, key: SpaceKey, base: u64) {
        let entry = self.entry(key, base);
        match entry.state {
            BaseState::Local if self.waits.get(&(key, base)).is_some_and(|wait| wait.writes) => {
                self.serve_write(key, base);
            }
            BaseState::Local => self.surprise(key, base, entry),
            BaseState::Lost => self.effects.push_back(Effect::Lost { space: key, base }),
            // The batch's end, or the arrival, answers it.
            BaseState::Leaving => {}
            BaseState::Fetching => self.hasten(entry.copy.expect("a page that is fetched has a copy")),
            BaseState::Empty | BaseState::Away => self.serve_missing(key, base),
        }
    }

    /// Serves queued faults while there are frames.
    pub(super) fn serve_queue(&mut self, now: Instant) {
        let mut turns = self.queue.len();
        let urgent = |s: &Self| s.queue.front().is_some_and(|&(key, base)| s.is_urgent(key, base));
        while turns > 0 && (self.frames < self.limit || urgent(self) || !self.frames_will_come()) {
            turns -= 1;
            let Some((key, base)) = self.queue.pop_front() else { break };
            let Some(wait) = self.waits.get_mut(&(key, base)) else { continue };
            self.waiters.end(*wait);
            wait.queued = false;
            self.waiters.begin(*wait);
            self.serve(key, base);
            self.evict(now);
        }
    }

    /// Starts to bring one base page home, as a part of a page of this size.
    pub(super) fn bring(&mut self, key: SpaceKey, base: u64, size: PageSize) {
        let entry = self.entry(key, base);
        match entry.state {
            BaseState::Empty => {
                self.set_entry(key, base, Entry { state: BaseState::Local, ..entry });
                self.enqueue(key, base, size);
                self.note_kind(key, base, FaultKind::Zero);
                self.push_zero(key, base);
            }
            BaseState::Away => {
                let copy = entry.copy.expect("a page that is away has a copy");
                if let Some(buffer) = self.copies.get(copy).buffer() {
                    let c = self.copies.get_mut(copy);
                    let kind = if c.prefetched { FaultKind::PrefetchedHit } else { FaultKind::Rescued };
                    c.prefetched = false;
                    self.set_entry(key, base, Entry { state: BaseState::Local, ..entry });
                    self.enqueue(key, base, size);
                    self.note_kind(key, base, kind);
                    self.install(key, base, InstallSource::Buffer(buffer));
                    if kind == FaultKind::PrefetchedHit {
                        self.came_home(copy);
                    }
                } else if self.start_fetch(key, base, copy, size, false) {
                    self.set_entry(key, base, Entry { state: BaseState::Fetching, ..entry });
                } else if self.entry(key, base).state == BaseState::Away {
                    self.enqueue_fault(key, base); // no buffer for the disk read
                }
            }
            _ => unreachable!("only missing pages are brought"),
        }
    }

    /// Has contents put in place. Until the driver has answered, nothing leaves: a page that counts as local and is not there yet
    /// would be found missing, and its contents given up as the program's own discard.
    fn install(&mut self, key: SpaceKey, base: u64, source: InstallSource) {
        self.installs_pending += 1;
        self.effects.push_back(Effect::Install { space: key, base, pages: 1, source });
    }

    /// Zeros are installed in runs.
    fn push_zero(&mut self, key: SpaceKey, base: u64) {
        if let Some(Effect::Install { space, base: first, pages, source: InstallSource::Zero }) =
            self.effects.back_mut()
            && *space == key
            && *first + u64::from(*pages) == base
            && (*pages as usize) < EXTENT_BASE_PAGES
        {
            *pages += 1;
            self.installs_pending += 1;
            return;
        }
        self.install(key, base, InstallSource::Zero);
    }

    /// Keeps an arrival in a buffer, if there is one.
    fn keep(&mut self, copy: CopyIndex, tag: u32) -> bool {
        if self.copies.get(copy).buffer().is_none() {
            let Some(buffer) = self.take_buffer() else { return false };
            self.copies.get_mut(copy).set_buffer(Some(buffer));
            self.effects.push_back(Effect::Hold { tag, buffer });
        }
        true
    }

    /// As [`Self::keep`], for what was fetched ahead.
    fn hold(&mut self, copy: CopyIndex, tag: u32) -> bool {
        let held = self.keep(copy, tag);
        if held {
            self.copies.get_mut(copy).prefetched = true;
        }
        held
    }

    /// A fault on a page that should be there. Usually the event was read after another thread's fault had
    /// been answered, and waking is all it needs; if it comes again and again the page is really missing.
    fn surprise(&mut self, key: SpaceKey, base: u64, entry: Entry) {
        let discarded = || self.discards.touch(self.waits_changed_at, key, BaseRange::new(base, base + 1));
        // What is here by the record alone, as its install is still to be done, may have contents.
        let went = (entry.shared || entry.protected || discarded()) && self.installs_pending == 0;
        if self.waits_changed_at - self.surprises_since > SURPRISES_LAST {
            self.surprises.clear();
            self.surprises_since = self.waits_changed_at;
        }
        let count = self.surprises.entry((key, base)).or_insert(0);
        *count += 1;
        if (entry.unsure || went) && *count > 1 {
            // A forked child's page that the child's mapping never had (wipe-on-fork), zeros that were brought between the event
            // of a discard and the discard itself, or what another thread has moved there in between: zeros, as the kernel gives. If it is there
            // after all the install says so and changes nothing. If it is refused for now, the thread still waits, and is to be served again.
            if !self.waits.contains_key(&(key, base)) {
                self.wait_from(self.waits_changed_at, key, base);
            }
            self.push_zero(key, base);
        } else if *count > SURPRISES_MAX {
            self.effects.push_back(Effect::Lost { space: key, base });
        } else {
            self.effects.push_back(Effect::Wake { space: key, base, pages: 1 });
        }
    }

    pub(super) fn enqueue_fault(&mut self, key: SpaceKey, base: u64) {
        if let Some(wait) = self.waits.get_mut(&(key, base))
            && !wait.queued
        {
            // Once for each fault: it may come here again and again until there is a frame.
            if self.frames >= self.limit && !wait.stood {
                self.reserve.handle_no_frame(self.waits_changed_at);
            }
            self.waiters.end(*wait);
            wait.stand();
            self.waiters.begin(*wait);
            if wait.urgent {
                self.queue.push_front((key, base));
            } else {
                self.queue.push_back((key, base));
            }
        }
    }

    /// Who waits at `base` must not wait for frames.
    pub(super) fn is_urgent(&self, key: SpaceKey, base: u64) -> bool {
        self.waits.get(&(key, base)).is_some_and(|wait| wait.urgent)
    }

    /// Who waits at `base`, if anybody does, is not to wait for frames any more.
    pub(super) fn hurry(&mut self, key: SpaceKey, base: u64) {
        if let Some(wait) = self.waits.get_mut(&(key, base))
            && !core::mem::replace(&mut wait.urgent, true)
            && wait.queued
        {
            // It stands behind those who wait for it; its old place is passed over once it has been answered.
            self.queue.push_front((key, base));
        }
    }

    fn note_kind(&mut self, key: SpaceKey, base: u64, kind: FaultKind) {
        if matches!(kind, FaultKind::Remote | FaultKind::Disk | FaultKind::PrefetchedHit) {
            self.spaces.get_mut(&key).expect("the space lives").fetched += 1;
        }
        if let Some(wait) = self.waits.get_mut(&(key, base)) {
            wait.kind = Some(kind);
        }
    }

    fn end_wait(&mut self, now: Instant, key: SpaceKey, base: u64) {
        self.waits_clock(now);
        if let Some(wait) = self.waits.remove(&(key, base)) {
            self.waiters.end(wait);
            let kind = wait.kind.unwrap_or(FaultKind::Rescued);
            self.stats.answered[kind as usize] += 1;
            // What a fetch costs, not what a lack of frames does.
            let is_fetch = matches!(kind, FaultKind::Remote | FaultKind::Disk);
            // Nor of a plan that is not that of the rest.
            if is_fetch && !wait.joined && !wait.stood && self.mark(key, base).plan.is_none() {
                self.sizer.waited(now - wait.since);
            }
            self.latencies.push_back((kind, now - wait.since));
        }
    }

    /// Nobody is answered: the address is gone.
    pub(super) fn drop_wait(&mut self, now: Instant, key: SpaceKey, base: u64) -> bool {
        self.waits_clock(now);
        match self.waits.remove(&(key, base)) {
            Some(wait) => {
                self.waiters.end(wait);
                true
            }
            None => false,
        }
    }

    /// Threads that wait now.
    pub fn waiting(&self) -> BasePages {
        BasePages(self.waits.len() as u64)
    }
}
