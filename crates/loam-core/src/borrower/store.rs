//! Where copies are kept, and when a buffer may be reused: "a page leaves local memory only when a copy of that
//! version is safe" (DESIGN.md, section 2, rule 2).

use super::copies::{BufferIndex, CopyIndex, LenderIndex, Safety, Stored};
use super::faults::{Answer, Fetch};
use super::table::{BaseState, Entry, SpaceKey};
use super::{Borrower, Effect, config::BUFFERS_FOR_READS_MAX};
use crate::ids::{Urgency, Version};
use crate::page_size::PageSize;
use crate::units::{Duration, Instant};
use alloc::vec::Vec;

/// Where a copy can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A lender's memory.
    Lender(LenderIndex),
    /// The slot file.
    Disk,
}

/// Times of swap-outs that are kept until they are asked for.
const SWAP_OUTS_MAX: usize = 1024;
/// Pause before copies that nobody could take are offered again.
const STUCK_RETRY: Duration = Duration::from_millis(1_000);

impl Borrower {
    /// A buffer has been written to its copy's slot, or could not be.
    pub fn handle_written(&mut self, now: Instant, copy: CopyIndex, written: bool) {
        self.waits_clock(now);
        self.stores_in_flight -= 1;
        let c = self.copies.get_mut(copy);
        assert_eq!(c.disk, Stored::Sending, "a write that was not asked for");
        c.disk = Stored::No;
        if written {
            self.copies.set_on_disk(copy);
        }
        self.written_home(copy, written);
        if !written {
            self.resign(copy);
        }
        if !written && !self.is_safe(copy) {
            self.remember_stuck(copy);
        }
        self.settle(copy);
        self.advance(now);
    }

    /// Copies that neither the disk nor a lender could take so far: the budget cannot be held while there are any.
    pub fn stuck(&self) -> usize {
        self.unsafe_stuck.len()
    }

    /// Nobody could take this copy so far, and it is offered again.
    pub fn is_stuck(&self, copy: CopyIndex, version: Version) -> bool {
        self.unsafe_stuck.contains(&(copy, version))
    }

    /// Sends a copy, which is in a buffer, wherever it is not yet and should be.
    pub(super) fn store(&mut self, i: CopyIndex) {
        self.store_at(i, true);
    }

    /// The same; without `lenders` to the disk alone.
    pub(super) fn store_at(&mut self, i: CopyIndex, lenders: bool) {
        let c = self.copies.get(i);
        let buffer = c.buffer().expect("only what is in a buffer can be stored");
        if self.config.disk && c.disk == Stored::No {
            self.copies.get_mut(i).disk = Stored::Sending;
            self.stores_in_flight += 1;
            self.effects.push_back(Effect::WriteDisk { copy: i, buffer });
        }
        if lenders && self.copies.get(i).at_lender == Stored::No {
            self.copies.get_mut(i).offers = self.choice.offers(!self.config.disk);
            self.offer(i, None);
        }
        if lenders {
            self.replicate(i);
        }
        self.notice_stuck(i);
    }

    /// A fetch has been answered. What was in a buffer meanwhile, and needed to be stored, was left alone as long as that was under way.
    pub(super) fn store_after_fetch(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if c.refs > 0 && c.buffer().is_some() && !c.busy() && !self.is_safe(i) {
            self.store(i);
        }
    }

    /// Nobody has taken a copy that is in a buffer.
    pub(super) fn notice_stuck(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if c.refs == 0 || c.busy() || self.is_safe(i) {
            return;
        }
        if self.writes_late && !self.config.disk {
            self.write_late(i);
        } else {
            self.remember_stuck(i);
        }
    }

    /// A copy may leave its buffer.
    pub(super) fn is_safe(&self, i: CopyIndex) -> bool {
        let c = self.copies.get(i);
        // Without a slot file to begin with, one has what lenders wanted back and no other took.
        c.disk == Stored::Yes || (!self.config.disk && (self.is_resigned(c) || self.is_replicated(c)))
    }

    /// A copy can be had somewhere, now or when what is under way is done.
    pub(super) fn has_place(&self, i: CopyIndex) -> bool {
        let c = self.copies.get(i);
        c.buffer().is_some() || c.disk == Stored::Yes || c.at_lender.has()
    }

    /// Frees what a copy no longer needs: all of it without references, its buffer once it is safe.
    pub(super) fn settle(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if c.busy() {
            return;
        }
        self.take_late_stored(i);
        self.swapped_out(i);
        let c = self.copies.get(i);
        if c.refs > 0 {
            if c.buffer().is_none() || !self.is_safe(i) {
                return;
            }
            if self.is_replicated(c) || c.disk == Stored::Yes {
                self.copies.get_mut(i).safety = Safety::Reached;
            }
            if !self.config.rescue {
                self.unmark_reusable(i);
                let c = self.copies.get_mut(i);
                let buffer = c.buffer();
                c.set_buffer(None);
                self.free_buffers.extend(buffer);
            } else if !self.copies.get(i).reusable {
                if self.reusable.len() >= 2 * self.config.buffers as usize {
                    self.tidy_reusable();
                }
                let c = self.copies.get_mut(i);
                c.reusable = true;
                let version = c.version;
                self.reusable_count += 1;
                self.reusable.push_back((i, version));
            }
            return;
        }
        self.unmark_reusable(i);
        let c = self.copies.get_mut(i);
        let (buffer, version) = (c.buffer(), c.version);
        c.set_buffer(None);
        self.drop_mirrors(i, version);
        if self.copies.get(i).at_lender.has() {
            self.drop_at_lender(i, version);
        }
        self.free_buffers.extend(buffer);
        self.copies.release(i);
    }

    /// Nothing is under way for a copy: if it is one whose time is taken, that ends here.
    fn swapped_out(&mut self, i: CopyIndex) {
        if let Some((version, since)) = self.swapping.remove(&i)
            && self.copies.get(i).version == version
            && self.is_safe(i)
        {
            if self.swap_outs.len() >= SWAP_OUTS_MAX {
                self.swap_outs.pop_front();
            }
            self.swap_outs.push_back(self.waits_changed_at - since);
        }
    }

    pub(super) fn drop_at_lender(&mut self, i: CopyIndex, version: Version) {
        let makes_room = !self.unmark_recalled(i);
        let c = self.copies.get_mut(i);
        let lender = c.lender;
        c.at_lender = Stored::No;
        c.drained = false;
        self.makes_room(lender, makes_room);
        self.forget_at(lender, i, version);
        self.promote(i);
    }

    /// A lender has a page less, and room for another.
    pub(super) fn makes_room(&mut self, lender: LenderIndex, makes_room: bool) {
        let state = &mut self.lenders[usize::from(lender.0)];
        if makes_room && state.up {
            state.room += 1;
            state.refused = false;
        }
    }

    /// A lender may forget a copy, which the record does not say of it any more.
    pub(super) fn forget_at(&mut self, lender: LenderIndex, i: CopyIndex, version: Version) {
        self.lenders[usize::from(lender.0)].held -= 1;
        self.lent -= 1;
        self.forget_late_stored(lender, i, version);
        self.effects.push_back(Effect::Drop { lender, copy: i, version });
    }

    /// One table entry less refers to the copy.
    pub(super) fn release_ref(&mut self, i: CopyIndex) {
        let c = self.copies.get_mut(i);
        assert!(c.refs > 0, "a copy lost more references than it had");
        c.refs -= 1;
        if c.refs == 0 {
            self.settle(i);
        }
    }

    pub(super) fn unmark_reusable(&mut self, i: CopyIndex) {
        let c = self.copies.get_mut(i);
        if c.reusable {
            c.reusable = false;
            self.reusable_count -= 1;
        }
    }

    /// Drops what is out of date or listed twice. (Pages that are rescued, written and taken again leave such entries behind, and where
    /// free buffers suffice nobody takes them from the front.)
    fn tidy_reusable(&mut self) {
        let copies = &mut self.copies;
        self.reusable.retain(|&(i, version)| {
            let listed = copies.find_mut(i).filter(|c| c.version == version && c.reusable);
            // Taken for listed once, until all have been looked at.
            listed.is_some_and(|c| core::mem::take(&mut c.reusable))
        });
        for &(i, _) in &self.reusable {
            copies.get_mut(i).reusable = true;
        }
    }

    /// A buffer that is free or holds only what is safe elsewhere.
    pub(super) fn take_buffer(&mut self) -> Option<BufferIndex> {
        if let Some(buffer) = self.free_buffers.pop() {
            return Some(buffer);
        }
        while let Some((i, version)) = self.reusable.pop_front() {
            let Some(c) = self.copies.find_mut(i) else { continue };
            if c.version != version || !c.reusable {
                continue; // freed, or used again since
            }
            assert!(self.is_safe(i), "a reusable copy is safe");
            self.unmark_reusable(i);
            let c = self.copies.get_mut(i);
            let buffer = c.buffer().expect("a reusable copy has a buffer");
            c.set_buffer(None);
            c.prefetched = false;
            return Some(buffer);
        }
        None
    }

    /// Buffers that evictions may take now.
    pub(super) fn buffers_for_eviction(&self) -> u64 {
        let for_reads = BUFFERS_FOR_READS_MAX.min(self.config.buffers / 2);
        (self.free_buffers.len() as u64 + self.reusable_count).saturating_sub(u64::from(for_reads))
    }

    pub(super) fn free_read_buffer(&mut self, buffer: Option<BufferIndex>) {
        self.free_buffers.extend(buffer);
    }

    /// Asks for a copy on behalf of `base`. False: there is no buffer for the read, or the copy is lost (the entry then says so).
    pub(super) fn start_fetch(
        &mut self,
        key: SpaceKey,
        base: u64,
        i: CopyIndex,
        size: PageSize,
        marker: bool,
    ) -> bool {
        if let Some(fetch) = self.fetches.get_mut(&i) {
            fetch.size = fetch.size.max(size);
            fetch.marker &= marker;
            fetch.targets.push((key, base));
            if self.urgency == Urgency::Waited {
                self.hasten(i);
            }
            return true;
        }
        let mut fetch = Fetch {
            version: self.copies.get(i).version,
            targets: Vec::new(),
            size,
            at_lender: None,
            at_disk: None,
            marker,
            recall: false,
            urgency: self.urgency,
            number: 0,
        };
        match self.ask(i, &mut fetch) {
            Asked::Yes => {}
            Asked::NoBuffer => return false,
            Asked::Nobody => {
                self.lose(key, base);
                return false;
            }
        }
        fetch.targets.push((key, base));
        self.copies.get_mut(i).fetching = true;
        self.fetches.insert(i, fetch);
        true
    }

    /// Sends one request for a copy to the best source that is left.
    fn ask(&mut self, i: CopyIndex, fetch: &mut Fetch) -> Asked {
        let c = self.copies.get(i);
        let (version, on_disk) = (c.version, c.disk == Stored::Yes);
        // One that is away answers when it is back: the disk here does not wait for it.
        let answers = |lender: &LenderIndex| !on_disk || self.lenders[usize::from(lender.0)].up;
        if let Some(lender) = self.whom_to_ask(c).filter(answers) {
            fetch.at_lender = Some(lender);
            let (message, urgency) = (self.message, fetch.urgency);
            if urgency == Urgency::Behind {
                fetch.number = self.number_behind(lender);
            }
            self.effects.push_back(Effect::Get { lender, copy: i, version, message, urgency });
            if on_disk {
                self.hedge_due(i, version);
            }
            return Asked::Yes;
        }
        if !on_disk {
            return Asked::Nobody;
        }
        let Some(buffer) = self.take_buffer() else { return Asked::NoBuffer };
        fetch.at_disk = Some(buffer);
        self.effects.push_back(Effect::ReadDisk { copy: i, version, buffer });
        Asked::Yes
    }

    fn hedge_due(&mut self, i: CopyIndex, version: Version) {
        // The clock of the last wait is now: a fetch begins only in a call that has just read it.
        let due = self.waits_changed_at + self.config.hedge_after;
        self.hedges.push_back((due, i, version));
    }

    /// Asks the disk for what a lender has not sent in time; whoever answers first wins.
    pub(super) fn hedge(&mut self, now: Instant) {
        self.hedges_starve = false;
        while let Some(&(due, i, version)) = self.hedges.front() {
            if due > now {
                break;
            }
            let overdue = self.fetches.get(&i).is_some_and(|f| f.waits_for_lender_alone(version));
            let wanted = overdue && self.copies.get(i).disk == Stored::Yes;
            if wanted {
                let Some(buffer) = self.take_buffer() else {
                    self.hedges_starve = true;
                    break;
                };
                self.fetches.get_mut(&i).expect("looked at above").at_disk = Some(buffer);
                self.effects.push_back(Effect::ReadDisk { copy: i, version, buffer });
            }
            self.hedges.pop_front();
        }
    }

    /// Drops what was answered in time from the front of the hedges, so that nobody is woken for it 200 ms later.
    fn forget_hedges(&mut self) {
        while let Some((_, i, version)) = self.hedges.front() {
            if self.fetches.get(i).is_some_and(|f| f.waits_for_lender_alone(*version)) {
                break;
            }
            self.hedges.pop_front();
        }
    }

    /// Takes what an answer was for; `None` if nothing waits for it from that source.
    pub(super) fn take_answer(&mut self, i: CopyIndex, version: Version, source: Source) -> Option<Answer> {
        let fetch = self.fetches.get_mut(&i)?;
        if fetch.version != version {
            return None;
        }
        let mut read_into = None;
        match source {
            Source::Lender(lender) => {
                // Only the one that was asked may answer.
                fetch.at_lender.take_if(|asked| *asked == lender)?;
                if fetch.urgency == Urgency::Behind {
                    let state = &mut self.lenders[usize::from(lender.0)];
                    state.answered_behind = state.answered_behind.max(fetch.number);
                }
            }
            Source::Disk => read_into = Some(fetch.at_disk.take()?),
        }
        let recall = core::mem::take(&mut fetch.recall);
        self.homing -= u64::from(recall);
        let targets = core::mem::take(&mut fetch.targets);
        let answer = Answer { targets, size: fetch.size, marker: fetch.marker, recall, read_into };
        if fetch.at_lender.is_none() && fetch.at_disk.is_none() {
            self.fetches.remove(&i);
            self.copies.get_mut(i).fetching = false;
        }
        self.forget_hedges();
        Some(answer)
    }

    /// A source turned out not to have a copy.
    pub(super) fn source_failed(&mut self, i: CopyIndex, source: Source) {
        self.unmark_reusable(i);
        let c = self.copies.get_mut(i);
        match source {
            Source::Disk => {
                self.copies.clear_on_disk(i);
                self.needs_mending(i);
            }
            Source::Lender(lender) if c.at_lender.has() && c.lender == lender => {
                (c.at_lender, c.drained, c.safety) = (Stored::No, false, c.safety.again());
                self.unmark_recalled(i);
                self.lenders[usize::from(lender.0)].held -= 1;
                self.lent -= 1;
                self.promote(i);
                self.needs_mending(i);
            }
            Source::Lender(lender) => self.mirror_failed(i, lender),
        }
    }

    /// Asks the next source on behalf of those whom the last one failed.
    pub(super) fn refetch(&mut self, now: Instant, i: CopyIndex, answer: Answer) {
        self.waits_clock(now);
        // A relative that had the same contents may have left meanwhile: then they are in a buffer, and perhaps nowhere else any more.
        if self.copies.get(i).buffer().is_some() {
            if self.copies.get(i).refs > 0 && !self.is_safe(i) {
                self.store(i);
            }
            self.bring_from_buffer(i, &answer);
            self.settle(i);
            return;
        }
        if answer.targets.is_empty() {
            self.settle(i);
            return;
        }
        if let Some(fetch) = self.fetches.get_mut(&i) {
            fetch.targets.extend(answer.targets); // the other source is still at it
            return;
        }
        let version = self.copies.get(i).version;
        let waited = answer.targets.iter().any(|target| self.waits.contains_key(target));
        let mut fetch = Fetch {
            version,
            targets: Vec::new(),
            size: answer.size,
            at_lender: None,
            at_disk: None,
            marker: answer.marker,
            recall: false,
            urgency: if waited { Urgency::Waited } else { Urgency::Behind },
            number: 0,
        };
        match self.ask(i, &mut fetch) {
            Asked::Yes => {
                fetch.targets = answer.targets;
                self.copies.get_mut(i).fetching = true;
                self.fetches.insert(i, fetch);
            }
            asked => {
                for (key, base) in answer.targets {
                    let entry = self.entry(key, base);
                    if entry.state != BaseState::Fetching || entry.copy != Some(i) {
                        continue;
                    }
                    self.set_entry(key, base, Entry { state: BaseState::Away, ..entry });
                    if matches!(asked, Asked::Nobody) {
                        self.lose(key, base);
                    } else {
                        self.enqueue_fault(key, base);
                    }
                }
                // Whoever wanted it may have discarded it meanwhile: then nobody else gives it back.
                if self.copies.find_mut(i).is_some() {
                    self.settle(i);
                }
            }
        }
    }

    /// Who was waiting for a source finds the contents in a buffer; what was only fetched ahead stays there.
    fn bring_from_buffer(&mut self, i: CopyIndex, answer: &Answer) {
        for &(key, base) in &answer.targets {
            let entry = self.entry(key, base);
            if entry.state != BaseState::Fetching || entry.copy != Some(i) {
                continue;
            }
            self.set_entry(key, base, Entry { state: BaseState::Away, ..entry });
            if self.waits.contains_key(&(key, base)) {
                self.bring(key, base, answer.size);
            }
        }
    }

    /// No copy of this page is left anywhere.
    fn lose(&mut self, key: SpaceKey, base: u64) {
        let entry = self.entry(key, base);
        assert_eq!(entry.state, BaseState::Away, "only a page that is away can be lost");
        let copy = entry.copy.expect("a page that is away has a copy");
        self.set_entry(key, base, Entry { state: BaseState::Lost, ..Entry::default() });
        self.release_ref(copy);
        if self.waits.contains_key(&(key, base)) {
            self.effects.push_back(Effect::Lost { space: key, base });
        }
    }

    /// Finds pages that are lost, and local pages whose old copy is.
    pub(super) fn mark_lost(&mut self, now: Instant) -> u64 {
        self.waits_clock(now);
        let mut lost = 0;
        let keys: Vec<SpaceKey> = self.spaces.keys().copied().collect();
        for key in keys {
            for base in self.used(key, super::BaseRange::new(0, u64::MAX)) {
                let entry = self.entry(key, base);
                let Some(copy) = entry.copy else { continue };
                if self.has_place(copy) || self.copies.get(copy).busy() {
                    continue;
                }
                match entry.state {
                    BaseState::Away => {
                        lost += 1;
                        self.lose(key, base);
                    }
                    BaseState::Local | BaseState::Leaving => {
                        self.set_entry(key, base, Entry { copy: None, ..entry });
                        self.release_ref(copy);
                    }
                    _ => {}
                }
            }
        }
        lost
    }

    fn remember_stuck(&mut self, i: CopyIndex) {
        let version = self.copies.get(i).version;
        self.unsafe_stuck.push((i, version));
        self.stuck_retry_at.get_or_insert(self.waits_changed_at + STUCK_RETRY);
    }

    /// A refusal may be old by now: each lender is asked again.
    pub(super) fn forget_refusals(&mut self) {
        for lender in &mut self.lenders {
            if lender.up && !self.config.disk {
                (lender.room, lender.refused) = (lender.room.max(1), false);
            }
        }
    }

    /// Offers stuck copies again.
    pub(super) fn retry_stuck(&mut self) {
        self.forget_refusals();
        self.retry_some_stuck(usize::MAX);
    }

    /// Offers them again to whom has room as far as it is known, until so many are on their way.
    pub(super) fn retry_some_stuck(&mut self, count: usize) {
        let mut left = count;
        let all = core::mem::take(&mut self.unsafe_stuck);
        for (at, &(i, version)) in all.iter().enumerate() {
            if left == 0 {
                self.unsafe_stuck.extend_from_slice(&all[at..]);
                break;
            }
            let again = self
                .copies
                .find_mut(i)
                .is_some_and(|c| c.version == version && c.refs > 0 && c.buffer().is_some() && !c.busy());
            if again && !self.is_safe(i) {
                self.store(i);
                left -= usize::from(self.copies.get(i).busy());
            }
        }
    }
}

enum Asked {
    Yes,
    NoBuffer,
    Nobody,
}
