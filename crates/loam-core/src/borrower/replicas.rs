//! Copies at several lenders: what makes a dirty page safe without a disk of one's own (nwcache-1999, made of lenders' memory; DESIGN.md, section 5).
//!
//! ```text
//! Put at the first lender, Put at mirrors ─► all have it: the buffer is reusable
//!                                             └─► stored: one of them has it on its disk and is the first from now on; the others may give it up (Spare)
//! a lender is lost ─► mend: in a buffer already, or: Get into one ─► Put at another lender
//!                                                                   └── nobody has room: WriteDisk
//! ```
//!
//! A copy has a *first* lender, which is asked for it, and *mirrors*. The rest of the policy knows the first only: a mirror takes its place when
//! it fails. Mirrors are kept apart from each other as far as there are lenders for it: other racks, else other machines, else other processes.

use super::copies::{Copy, CopyIndex, LenderIndex, Mirror, NOBODY, Safety, Stored};
use super::placement::{LenderState, Site};
use super::{Borrower, Effect};
use crate::ids::{PutClass, Version};
use crate::units::{BasePages, Duration, Instant};
use alloc::vec::Vec;

/// Pages that are fetched at a time to be sent to other lenders: a fault's page waits behind them.
const MENDING_MAX: u64 = 64;
/// So often as many of those that nobody took are tried again.
const RESIGNED_RETRY: Duration = Duration::from_millis(5_000);
const RESIGNED_AT_ONCE: usize = 16;

impl Borrower {
    /// Where a lender is. To be called before anything is sent there.
    pub fn handle_lender_site(&mut self, lender: LenderIndex, site: Site) {
        self.lenders[usize::from(lender.0)].site = site;
    }

    /// A lender has these on its disk by now. What the record does not know of there, it may forget.
    pub fn handle_stored(
        &mut self,
        now: Instant,
        lender: LenderIndex,
        pages: impl Iterator<Item = (CopyIndex, Version)>,
    ) {
        self.waits_clock(now);
        self.lenders[usize::from(lender.0)].ring_full = false;
        for (copy, version) in pages {
            if self.knows_of(lender, copy, version) {
                self.stored_one(lender, copy);
            } else {
                self.effects.push_back(Effect::Drop { lender, copy, version });
            }
        }
        self.advance(now);
    }

    fn stored_one(&mut self, lender: LenderIndex, copy: CopyIndex) {
        if !self.config.staged || !self.lenders[usize::from(lender.0)].site.drains {
            return;
        }
        let c = self.copies.get(copy);
        if c.old == Some(lender) {
            // It is not said again: it counts if the copy has to stay there.
            self.stored_late.insert(copy, (c.version, lender));
            return;
        }
        if c.recalled && c.places().any(|m| m.lender == lender && m.stored == Stored::Yes) {
            self.end_recall(copy, lender);
        }
        self.lead(copy, lender);
        let c = self.copies.get_mut(copy);
        if c.lender != lender || c.at_lender != Stored::Yes || c.recalled {
            return;
        }
        self.stats.drained += u64::from(!core::mem::replace(&mut c.drained, true));
        for n in 0..c.mirrors.len() {
            self.spare_mirror(copy, n);
        }
        self.settle(copy);
    }

    /// A lender has on its disk what one wants back, itself or another: that one's memory is free without anybody taking the page home. (At once, wherever
    /// the page is on its way: who has it on its disk may be away the next moment, and what is on the disk is there when it is back.)
    fn end_recall(&mut self, i: CopyIndex, stored_at: LenderIndex) {
        let c = self.copies.get(i);
        let version = c.version;
        let asked = self.fetches.get(&i).is_some_and(|fetch| fetch.at_lender == Some(c.lender));
        if let Some(old) = c.old {
            // Whom it is on its way to is one mirror more.
            self.unmark_recalled(i);
            let c = self.copies.get_mut(i);
            (c.old, c.drained) = (None, false);
            self.forget_at(old, i, version);
        } else if c.lender == stored_at || asked {
            // Who is asked for it becomes a mirror that may give it up when it has answered.
            self.unmark_recalled(i);
        } else {
            self.drop_at_lender(i, version);
        }
    }

    /// A copy has come to rest: what was said of it meanwhile counts now.
    pub(super) fn take_late_stored(&mut self, i: CopyIndex) {
        let Some((version, lender)) = self.stored_late.remove(&i) else { return };
        let c = self.copies.get(i);
        if c.version == version && c.refs > 0 {
            self.stored_one(lender, i);
        }
    }

    /// It has given the copy up since: if it gets it again, that is not on its disk yet.
    pub(super) fn forget_late_stored(&mut self, lender: LenderIndex, i: CopyIndex, version: Version) {
        if self.stored_late.get(&i) == Some(&(version, lender)) {
            self.stored_late.remove(&i);
        }
    }

    /// The record says that a lender has these contents, or gets them, or has them until another does.
    pub(super) fn knows_of(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version) -> bool {
        self.copies.find_mut(copy).is_some_and(|c| c.version == version && c.is_at(lender))
    }

    /// A lender with a disk is gone, and expected back: what it had in memory is lost, what is on its disk is not. What is asked of it meanwhile
    /// is asked again when it is back ([`Self::handle_lender_back`]), or lost when it is given up ([`Self::handle_lender_lost`]).
    /// Returns how many base pages are lost by it.
    pub fn handle_lender_away(&mut self, now: Instant, lender: LenderIndex) -> BasePages {
        self.lose_places(now, lender, true)
    }

    /// It is back, with what its disk has.
    pub fn handle_lender_back(&mut self, now: Instant, lender: LenderIndex, room: BasePages) {
        self.waits_clock(now);
        let state = &mut self.lenders[usize::from(lender.0)];
        assert!(state.away, "a lender is back that was not away");
        (state.up, state.away, state.room, state.refused) = (true, false, room.0, false);
        let asked = self.fetches.iter().filter(|(_, fetch)| fetch.at_lender == Some(lender));
        self.effects.extend(asked.map(|(&copy, fetch)| Effect::Get {
            lender,
            copy,
            version: fetch.version,
            message: 0,
            urgency: fetch.urgency,
        }));
        self.try_resigned_again();
        self.advance(now);
    }

    /// Nobody else takes a copy that somebody still has.
    pub(super) fn is_resigned(&self, c: &Copy) -> bool {
        c.safety == Safety::Resigned && self.has_firmly(c)
    }

    /// A lender has it that may not give it up.
    fn has_firmly(&self, c: &Copy) -> bool {
        c.old.is_some() || c.count(|stored| stored == Stored::Yes) > 0
    }

    /// So many have a copy as are to.
    pub(super) fn is_replicated(&self, c: &Copy) -> bool {
        let firm = c.count(|stored| stored == Stored::Yes) + u64::from(c.old.is_some());
        let drained = c.drained && (c.at_lender == Stored::Yes || c.old.is_some());
        drained || firm >= u64::from(self.config.replicas)
    }

    /// Fewer lenders than are to have a copy or get it, and nothing else makes it safe.
    pub(super) fn is_thin(&self, i: CopyIndex) -> bool {
        let c = self.copies.get(i);
        let coming = c.count(|stored| stored != Stored::Spare) + u64::from(c.old.is_some());
        let few = coming < u64::from(self.config.replicas) && c.disk == Stored::No;
        self.config.replicas > 1 && c.refs > 0 && few && !self.is_safe(i) && c.places().next().is_some()
    }

    /// The lender that a copy is asked of; none if no lender has it. One that is away is asked if nobody else can be.
    pub(super) fn whom_to_ask(&self, c: &Copy) -> Option<LenderIndex> {
        let is_up = |lender: LenderIndex| self.lenders[usize::from(lender.0)].up;
        let mut having = c.places().filter(|place| place.stored.has()).map(|place| place.lender);
        let first = having.clone().next();
        having.find(|&lender| is_up(lender)).or(first)
    }

    /// Sends a copy that is in a buffer to as many lenders as are missing.
    pub(super) fn replicate(&mut self, i: CopyIndex) {
        if self.config.replicas == 1 || self.config.disk {
            return;
        }
        loop {
            let c = self.copies.get(i);
            let coming = c.count(|stored| stored != Stored::Spare) + u64::from(c.old.is_some());
            let enough = coming >= u64::from(self.config.replicas) || c.drained || c.disk == Stored::Yes;
            if c.refs == 0 || enough || c.at_lender == Stored::No {
                return;
            }
            let Some(lender) = self.mirror_for(i) else { return };
            self.put_mirror(i, lender);
        }
    }

    /// The lender for one more copy: as far from the others as there is, and if none of them has a disk one that has.
    fn mirror_for(&mut self, i: CopyIndex) -> Option<LenderIndex> {
        let c = self.copies.get(i);
        let sites = || c.places().map(|place| self.lenders[usize::from(place.lender.0)].site);
        let undrained = self.config.staged && !sites().any(|site| site.drains);
        let rank = |n: usize, lender: &LenderState| {
            let usable = lender.has_room() && !c.is_at(LenderIndex(n as u8));
            let nearest = sites().map(|site| nearness(site, lender.site)).max().unwrap_or(0);
            usable.then_some((nearest, undrained && !lender.site.drains))
        };
        let ranks = || self.lenders.iter().enumerate().map(|(n, lender)| rank(n, lender));
        let best = ranks().flatten().min()?;
        let is_best = |n: usize| rank(n, &self.lenders[n]) == Some(best);
        if let Some(last) = self.mirror_last.filter(|last| is_best(usize::from(last.0))) {
            return Some(last);
        }
        let best: Vec<bool> = ranks().map(|rank| rank == Some(best)).collect();
        self.mirror_last = self.next_lender_with_room(|lender| best[usize::from(lender.0)]);
        self.mirror_last
    }

    fn put_mirror(&mut self, i: CopyIndex, lender: LenderIndex) {
        let mirrors = &self.copies.get(i).mirrors;
        let place = |is: Stored| mirrors.iter().position(|mirror| mirror.stored == is);
        let n = place(Stored::No).or_else(|| place(Stored::Spare)).expect("there is room for each replica");
        if mirrors[n].stored == Stored::Spare {
            self.drop_mirror(i, n);
        }
        self.copies.get_mut(i).mirrors[n] = Mirror { lender, stored: Stored::Sending };
        self.send(i, lender);
    }

    /// What a lender does with a copy: the first that has a disk writes it there.
    pub(super) fn put_class(&self, i: CopyIndex, lender: LenderIndex) -> PutClass {
        if !self.config.staged || self.config.replicas == 1 || self.config.disk {
            return PutClass::Ordinary;
        }
        let state = &self.lenders[usize::from(lender.0)];
        let c = self.copies.get(i);
        let another = c.places().any(|place| place.lender == c.staged_at && place.lender != lender);
        if state.site.drains && !state.ring_full && !another { PutClass::Staged } else { PutClass::Mirror }
    }

    /// A lender has not taken a copy. If it was to write it to its disk, it may be that it has as much to write as it will: as a mirror it is
    /// taken all the same (section 3.1: NACK, and OK when there is room).
    pub(super) fn refused_by(&mut self, i: CopyIndex, lender: LenderIndex) {
        let was_staged = self.copies.get(i).staged_at == lender;
        let state = &mut self.lenders[usize::from(lender.0)];
        if was_staged {
            state.ring_full = true;
            self.copies.get_mut(i).staged_at = NOBODY;
        } else {
            (state.room, state.refused) = (0, true);
        }
    }

    /// A mirror has answered. False: it was not one.
    pub(super) fn mirror_answered(&mut self, i: CopyIndex, lender: LenderIndex, stored: bool) -> bool {
        let c = self.copies.get_mut(i);
        let is_it = |m: &Mirror| m.lender == lender && m.stored == Stored::Sending;
        let Some(n) = c.mirrors.iter().position(is_it) else { return false };
        self.stores_in_flight -= 1;
        c.mirrors[n].stored = if stored { Stored::Yes } else { Stored::No };
        let state = &mut self.lenders[usize::from(lender.0)];
        if stored {
            state.held += 1;
            if c.at_lender == Stored::Spare {
                self.swap(i, n);
            } else if c.drained {
                self.spare_mirror(i, n);
            }
        } else {
            self.lent -= 1;
            self.refused_by(i, lender);
        }
        let c = self.copies.get(i);
        if c.recalled && c.old.is_none() {
            self.recalls.push_front((i, c.version));
        }
        true
    }

    /// Another lender is tried for a copy that is in a buffer, and the slot file if there is none.
    pub(super) fn replicate_on(&mut self, i: CopyIndex) {
        if self.copies.get(i).buffer().is_some() {
            self.replicate(i);
            self.notice_stuck(i);
        }
    }

    /// A mirror becomes the first, if the first has gone: one that has the copy, firmly if there is one, else one that gets it.
    pub(super) fn promote(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if c.at_lender != Stored::No {
            return;
        }
        let place = |is: Stored| c.mirrors.iter().position(|mirror| mirror.stored == is);
        let next = place(Stored::Yes).or_else(|| place(Stored::Spare)).or_else(|| place(Stored::Sending));
        if let Some(n) = next {
            self.swap(i, n);
        }
    }

    /// This lender becomes the first, if it may.
    pub(super) fn lead(&mut self, i: CopyIndex, lender: LenderIndex) {
        let c = self.copies.get(i);
        let Some(n) = c.mirrors.iter().position(|m| m.lender == lender && m.stored.has()) else { return };
        let moves = c.recalled || c.old.is_some();
        if c.mirrors[n].stored == Stored::Yes && !moves && !c.drained {
            self.swap(i, n);
        }
    }

    fn swap(&mut self, i: CopyIndex, n: usize) {
        let c = self.copies.get_mut(i);
        assert!(!c.recalled && c.old.is_none() && !c.drained, "copy {} cannot change its first lender", i.0);
        let first = Mirror { lender: c.lender, stored: c.at_lender };
        let mirror = core::mem::replace(&mut c.mirrors[n], first);
        (c.lender, c.at_lender) = (mirror.lender, mirror.stored);
    }

    /// A mirror may give a copy up from now on.
    fn spare_mirror(&mut self, i: CopyIndex, n: usize) {
        let c = self.copies.get_mut(i);
        let version = c.version;
        let mirror = &mut c.mirrors[n];
        if mirror.stored == Stored::Yes {
            mirror.stored = Stored::Spare;
            self.effects.push_back(Effect::Spare { lender: mirror.lender, copy: i, version });
        }
    }

    /// All mirrors forget a copy that nobody refers to.
    pub(super) fn drop_mirrors(&mut self, i: CopyIndex, version: Version) {
        for n in 0..self.copies.get(i).mirrors.len() {
            if self.copies.get(i).mirrors[n].stored.has() {
                assert_eq!(self.copies.get(i).version, version, "a copy's version never changes");
                self.drop_mirror(i, n);
            }
        }
    }

    fn drop_mirror(&mut self, i: CopyIndex, n: usize) {
        let c = self.copies.get_mut(i);
        let Mirror { lender, stored } = core::mem::replace(&mut c.mirrors[n], Mirror::NONE);
        let version = c.version;
        assert!(stored.has(), "a mirror cannot forget what it does not have");
        self.makes_room(lender, true);
        self.forget_at(lender, i, version);
    }

    /// A mirror turned out not to have a copy.
    pub(super) fn mirror_failed(&mut self, i: CopyIndex, lender: LenderIndex) {
        let c = self.copies.get_mut(i);
        let is_it = |m: &Mirror| m.lender == lender && m.stored.has();
        let Some(n) = c.mirrors.iter().position(is_it) else { return };
        c.mirrors[n] = Mirror::NONE;
        c.safety = c.safety.again();
        self.lenders[usize::from(lender.0)].held -= 1;
        self.lent -= 1;
        self.needs_mending(i);
    }

    /// A lender wants memory back that it was told is spare.
    pub(super) fn drop_spare(&mut self, i: CopyIndex, lender: LenderIndex) {
        let is_it = |m: &Mirror| m.lender == lender && m.stored == Stored::Spare;
        if let Some(n) = self.copies.get(i).mirrors.iter().position(is_it)
            && self.fetches.get(&i).is_none_or(|fetch| fetch.at_lender != Some(lender))
        {
            self.drop_mirror(i, n);
        }
    }

    /// A lender has given a copy up that it was told is spare.
    pub(super) fn spare_gone(&mut self, i: CopyIndex, lender: LenderIndex) {
        let c = self.copies.get(i);
        if c.places().any(|place| place.lender == lender && place.stored == Stored::Spare) {
            self.source_failed(i, super::Source::Lender(lender));
            self.settle(i);
        }
    }

    /// A copy has lost a lender: others are to have it, if it was for its safety.
    pub(super) fn needs_mending(&mut self, i: CopyIndex) {
        if self.is_thin(i) {
            let version = self.copies.get(i).version;
            self.mends.push_back((i, version));
        }
    }

    /// Brings a few more copies to as many lenders as are to have them.
    pub(super) fn mend(&mut self) {
        while let Some(&(i, version)) = self.mends.front() {
            let wanted = self.copies.find_mut(i).is_some_and(|c| c.version == version) && self.is_thin(i);
            let limit = MENDING_MAX.min(self.buffers_for_eviction());
            if wanted && self.needs_fetch(i) && self.homing >= limit {
                return;
            }
            self.mends.pop_front();
            if wanted {
                self.mend_one(i);
            }
        }
    }

    fn mend_one(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if c.buffer().is_some() {
            self.stats.mended += 1;
            self.store(i);
            self.note_home(i);
            if self.copies.get(i).busy() {
                self.unmark_reusable(i);
            }
        } else if c.fetching {
            let fetch = self.fetches.get_mut(&i).expect("it is being fetched");
            self.homing += u64::from(!core::mem::replace(&mut fetch.recall, true));
        } else if let Some(lender) = self.whom_to_ask(c) {
            self.fetch_home(i, c.version, lender);
        }
        // Else it is on its way somewhere, and in a buffer.
    }

    /// What was fetched to be mended has come, or has not.
    pub(super) fn goes_on_mending(&mut self, i: CopyIndex) {
        if !self.is_thin(i) {
            return;
        }
        if self.needs_fetch(i) {
            self.needs_mending(i);
        } else {
            self.mend_one(i);
        }
    }

    /// No lender and no disk takes what was safe before: its lenders keep it, and the buffer is free for what is not safe anywhere yet.
    pub(super) fn resign(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        if self.is_thin(i) && self.has_firmly(c) && c.safety == Safety::Reached {
            self.copies.get_mut(i).safety = Safety::Resigned;
            self.has_resigned = true;
            self.resigned_retry_at.get_or_insert(self.waits_changed_at + RESIGNED_RETRY);
        }
    }

    /// There may be a lender now for what none took.
    pub(super) fn try_resigned_again(&mut self) {
        if !core::mem::take(&mut self.has_resigned) {
            return;
        }
        let resigned = self.copies.iter_live().filter(|(_, c)| c.safety == Safety::Resigned);
        self.mend_resigned(resigned.map(|(i, _)| i).collect());
    }

    /// A few of them, for whose sake lenders that refused are asked again: one that takes these says how much more it has room for.
    pub(super) fn retry_some_resigned(&mut self) {
        self.resigned_retry_at = None;
        if !self.has_resigned {
            return;
        }
        let resigned =
            || self.copies.iter_live().filter(|(_, c)| c.safety == Safety::Resigned).map(|(i, _)| i);
        let from = self.resigned_next.0;
        let mut some: Vec<CopyIndex> = resigned().filter(|i| i.0 >= from).take(RESIGNED_AT_ONCE).collect();
        if some.is_empty() {
            some = resigned().take(RESIGNED_AT_ONCE).collect();
        }
        let Some(last) = some.last() else {
            self.has_resigned = false;
            return;
        };
        self.resigned_next = CopyIndex(last.0 + 1);
        self.resigned_retry_at = Some(self.waits_changed_at + RESIGNED_RETRY);
        self.forget_refusals();
        self.mend_resigned(some);
    }

    fn mend_resigned(&mut self, resigned: Vec<CopyIndex>) {
        for i in resigned {
            let c = self.copies.get_mut(i);
            c.safety = Safety::Reached;
            let version = c.version;
            if !self.is_safe(i) {
                self.unmark_reusable(i);
            }
            // What is in a buffer goes first: what must be fetched may wait for that buffer.
            if self.needs_fetch(i) {
                self.mends.push_back((i, version));
            } else {
                self.mends.push_front((i, version));
            }
        }
    }

    /// A lender is gone with what it held; without `memory_only` for good, else what is on its disk is kept.
    pub(super) fn lose_places(&mut self, now: Instant, lender: LenderIndex, memory_only: bool) -> BasePages {
        self.waits_clock(now);
        self.forget_old(lender);
        self.stored_late.retain(|_, &mut (_, of)| of != lender);
        let LenderState { held, wanted_back, site, .. } = self.lenders[usize::from(lender.0)];
        let site = if memory_only { site } else { Site::default() };
        let state = LenderState { held, wanted_back, site, away: memory_only, ..LenderState::default() };
        self.lenders[usize::from(lender.0)] = state;
        let is_there = |c: &Copy| c.places().any(|place| place.lender == lender);
        let theirs: Vec<CopyIndex> =
            self.copies.iter_live().filter(|(_, c)| is_there(c)).map(|(i, _)| i).collect();
        let mut kept = 0;
        for &i in &theirs {
            kept += u64::from(!self.lose_place(i, lender, memory_only));
        }
        // Before anything asks for a buffer.
        for &i in &theirs {
            if !self.is_safe(i) {
                self.unmark_reusable(i);
            }
        }
        let state = self.lenders[usize::from(lender.0)];
        assert_eq!((state.held, state.wanted_back), (kept, 0), "a lender that is lost holds nothing");
        let asked = self.fetches.iter().filter(|(_, fetch)| fetch.at_lender == Some(lender));
        for (i, version) in asked.map(|(&i, fetch)| (i, fetch.version)).collect::<Vec<_>>() {
            // One of those before may have freed it.
            let Some(answer) = self.take_answer(i, version, super::Source::Lender(lender)) else { continue };
            let recall = answer.recall;
            self.refetch(now, i, answer);
            if recall {
                self.goes_on_home(i, version);
            }
        }
        for &i in &theirs {
            if self.copies.find_mut(i).is_none() {
                continue;
            }
            if !self.is_safe(i) {
                if self.copies.get(i).buffer().is_some() && !self.copies.get(i).busy() {
                    self.store(i);
                }
                self.needs_mending(i);
            }
            self.settle(i);
        }
        let lost = self.mark_lost(now);
        self.advance(now);
        BasePages(lost)
    }

    /// One copy's part of that. False: it is on the lender's disk, and stays.
    fn lose_place(&mut self, i: CopyIndex, lender: LenderIndex, memory_only: bool) -> bool {
        let c = self.copies.get_mut(i);
        if let Some(n) = c.mirrors.iter().position(|m| m.lender == lender && m.stored != Stored::No) {
            let mirror = core::mem::replace(&mut c.mirrors[n], Mirror::NONE);
            c.safety = c.safety.again();
            if mirror.stored == Stored::Sending && c.recalled && c.old.is_none() {
                // It waited for this answer.
                self.recalls.push_front((i, c.version));
            }
            self.count_lost(mirror);
            return true;
        }
        if memory_only && c.drained && c.at_lender == Stored::Yes {
            self.unmark_recalled(i);
            return false;
        }
        if c.at_lender == Stored::Sending && c.old.is_some() {
            self.stores_in_flight -= 1;
            assert!(self.stays(i), "it was on its way from one to another");
            return true;
        }
        let first = Mirror { lender, stored: c.at_lender };
        self.unmark_recalled(i);
        let c = self.copies.get_mut(i);
        (c.at_lender, c.drained, c.safety) = (Stored::No, false, c.safety.again());
        self.count_lost(first);
        self.promote(i);
        true
    }

    fn count_lost(&mut self, place: Mirror) {
        if place.stored == Stored::Sending {
            self.stores_in_flight -= 1;
        } else {
            self.lenders[usize::from(place.lender.0)].held -= 1;
        }
        self.lent -= 1;
    }
}

/// How much two lenders fail together: not, as a rack, as a machine.
fn nearness(a: Site, b: Site) -> u8 {
    if a.machine == b.machine { 2 } else { u8::from(a.zone != 0 && a.zone == b.zone) }
}
