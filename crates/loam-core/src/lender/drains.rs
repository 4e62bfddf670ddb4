//! The write cache at a lender (nwcache-1999, section 3; DESIGN.md, section 5): pages that were put as *staged* wait in the lender's [`Ring`],
//! which is its memory, until its disk has them.
//!
//! ```text
//! put staged ─► Staged ─► Drain ─► handle_drained ─► OnDisk ─► gives way when room is wanted: read from the disk then
//!    │ channel full │                     └ failed ─► Recallable, as a mirror; draining rests for a while
//!    ▼              └ read: held · put anew, dropped: never written, or forgotten when it was
//! refused, later Room
//! ```
//!
//! Two drivers may share the work: one polls for what is to be said, the other, who has the disk store, for what the disk shall do.
//! The channel of a borrower is its tenancy. What the disk has is told with [`super::Stored`] when the driver has synced it, never before; when a
//! borrower comes back (to a lender that was started anew on the same store, perhaps) it is told all of it again.

use super::cache::{Cache, Drain, DrainPage, Put, Retell, STORED_PAGES_MAX, StoreConfig};
use super::order::Page;
use super::types::{DiskEffect, Drained, Effect, Standing, Terms};
use super::{Lender, Tenancy, split};
use crate::ids::{PageId, PutClass, SpaceId, Version};
use crate::lender::{Slot, SlotRun};
use crate::staging::{Channel, RingSlot, SwapOut, Victim};
use crate::units::{Duration, Instant};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// After a write has failed the disk is left alone for so long.
const DRAIN_PAUSE: Duration = Duration::from_millis(5_000);

impl Lender {
    /// Gives the lender a disk store. `recovered`: what is on it from a former life; its borrowers have the grace to come back. What there is no
    /// room for, or is there in two versions, is forgotten.
    ///
    /// # Panics
    /// If it has one, if its channels have no room, or if nothing may be written at a time.
    pub fn with_store(
        mut self,
        now: Instant,
        config: StoreConfig,
        recovered: impl IntoIterator<Item = (SpaceId, u64, Version)>,
    ) -> Self {
        assert!(self.cache.is_none(), "one store");
        let (mut cache, mut forgotten) = (Cache::new(config), BTreeSet::new());
        for (space, index, version) in recovered {
            let known = self.borrowers.contains_key(&space);
            let full = cache.disk_room() == 0;
            if !known && (full || self.borrowers.len() >= self.borrowers_max) {
                // There is never room for it later on: nothing of it is kept.
                if forgotten.insert(space) {
                    cache.forgets.push_back(DiskEffect::ForgetSpace(space));
                }
                continue;
            }
            if full {
                cache.forget(space, index, version);
                continue;
            }
            let tenancy = self.tenancy_of_absent(now, space);
            cache.known.insert(tenancy);
            let borrower = self.borrowers.get_mut(&space).expect("it is known now");
            let other = cache.on_disk.remove(tenancy, index);
            if let Some(other) = other.filter(|other| *other != version) {
                cache.forget(space, index, other.min(version));
            }
            borrower.on_disk += u64::from(other.is_none());
            cache.on_disk.insert(tenancy, index, other.map_or(version, |other| other.max(version)));
        }
        self.cache = Some(cache);
        self
    }

    /// As [`Self::reserve`], for pages of this class. `None` also if the space's channel is full; [`Effect::Room`] tells when it is not.
    pub fn reserve_as(
        &mut self,
        now: Instant,
        space: SpaceId,
        indexes: &[u64],
        class: PutClass,
    ) -> Option<SlotRun> {
        assert!(!indexes.is_empty());
        for &index in indexes {
            self.remove(space, index);
        }
        let mut pages = indexes.len();
        let standing = self.standing_of(space, class);
        let channel = Channel(self.borrowers[&space].tenancy.0);
        if let Some(cache) = self.cache.as_mut().filter(|_| standing == Standing::Staged) {
            let room = cache.ring.room(channel);
            if room == 0 {
                cache.ring.refuse(channel, pages as u64);
                return None;
            }
            pages = pages.min(usize::try_from(room).unwrap_or(usize::MAX));
        }
        self.make_room(now, space, pages as u64);
        let own = self.own_room(space);
        let run = self.slots.reserve(u32::try_from(pages).expect("a frame has few pages"), own);
        self.placing(space, run.map_or(0, |run| run.pages.into()));
        if run.is_none() {
            let staged = standing == Standing::Staged;
            if let Some(cache) = &mut self.cache {
                if staged {
                    cache.ring.refuse(channel, pages as u64);
                }
                // What is written makes room, for pages of any kind.
                cache.ring.press(pages as u64);
            }
            // Reads keep its slots back, or their memory is being given back.
            if own > 0 && !staged {
                self.refused.insert(space);
            }
        }
        run
    }

    /// What a page of this class is here.
    fn standing_of(&self, space: SpaceId, class: PutClass) -> Standing {
        let terms = self.borrowers[&space].terms;
        let staged = class == PutClass::Staged && terms == Terms::Staging && self.cache.is_some();
        if staged { Standing::Staged } else { terms.standing() }
    }

    /// As [`Self::commit`], for a page of any class. False: its channel has filled since its slot was reserved; the slot is free again.
    #[must_use]
    pub fn commit_as(&mut self, now: Instant, space: SpaceId, put: Put, slot: Slot) -> bool {
        let standing = self.standing_of(space, put.class);
        // Another connection of the same borrower may have put the same index meanwhile: the last one stays.
        self.remove(space, put.index);
        let tenancy = self.borrowers[&space].tenancy;
        if let Some(cache) = self.cache.as_mut().filter(|_| standing == Standing::Staged) {
            let page = PageId { space, index: put.index };
            if cache.ring.swap_out(Channel(tenancy.0), RingSlot(slot.0), page) == SwapOut::Nack {
                self.abort(space, slot);
                return false;
            }
            cache.waits(now);
        }
        self.place(now, Page { space, tenancy, index: put.index }, put, slot, standing);
        true
    }

    /// The borrower says that a page may give way to others; whether it is here in that version.
    pub fn spare_page(&mut self, space: SpaceId, index: u64, version: Version) -> bool {
        let tenancy = self.borrowers.get(&space).expect("its connection is open").tenancy;
        let (at, offset) = split(index);
        let slot = self.extents.get(&(tenancy, at)).and_then(|extent| extent.get(offset));
        let Some(slot) = slot.filter(|&slot| self.slots.stored(slot).0 == version) else { return false };
        if self.slots.standing(slot).list().is_none() {
            self.change_standing(slot, Standing::Spare, Page { space, tenancy, index });
        }
        true
    }

    /// A [`Drain`] has ended.
    pub fn handle_drained(&mut self, now: Instant, drain: Drain, drained: Drained) {
        let Drain { write, space, pages } = drain;
        let tenancy = Tenancy(write.channel.0);
        let cache = self.cache.as_mut().expect("a lender without a store drains nothing");
        let (ok, mut wanted) = (drained == Drained::Stored, Vec::with_capacity(pages.len()));
        cache.ring.finish(write, ok, |page| wanted.push(page.slot));
        if drained == Drained::Failed {
            cache.paused_until = Some(now + DRAIN_PAUSE);
        }
        let mut wanted = wanted.into_iter().peekable();
        let lives = self.borrowers.get(&space).is_some_and(|b| b.tenancy == tenancy);
        for DrainPage { index, version, slot, .. } in pages {
            let is_wanted = wanted.next_if_eq(&RingSlot(slot.0)).is_some();
            let stored = is_wanted && lives && ok;
            if is_wanted {
                let standing = if stored { Standing::OnDisk } else { Standing::Recallable };
                self.change_standing(slot, standing, Page { space, tenancy, index });
            }
            let cache = self.cache.as_mut().expect("it was just there");
            if !stored {
                cache.forget(space, index, version);
                continue;
            }
            cache.on_disk.insert(tenancy, index, version);
            let borrower = self.borrowers.get_mut(&space).expect("it lives");
            borrower.on_disk += 1;
            if borrower.connections > 0 {
                cache.untold.push(space, index, version);
            }
        }
        assert!(wanted.next().is_none(), "the ring names pages that were not written");
    }

    /// A stored page becomes something else.
    fn change_standing(&mut self, slot: Slot, to: Standing, page: Page) {
        let (from, used) = (self.slots.standing(slot), self.slots.used(slot));
        assert_ne!(from, to, "slot {} becomes what it is", slot.0);
        // A pinned page stays whatever it is.
        if !self.slots.is_pinned(slot) {
            self.ages[from as usize].remove(used);
            self.ages[to as usize].add(used);
            self.order.remove(from, slot);
            self.order.add(to, slot, page);
        }
        if let (Standing::Staged, Some(cache)) = (from, &mut self.cache) {
            cache.ring.cancel(RingSlot(slot.0));
        }
        self.slots.set_standing(slot, to);
    }

    /// A page in the ring is read.
    pub(super) fn victim_read(cache: &mut Option<Cache>, slot: Slot) {
        let cache = cache.as_mut().expect("staged pages need a store");
        assert!(cache.ring.read(RingSlot(slot.0), Victim::Hold), "a staged page is in the ring");
    }

    /// Forgets what the disk has of a page; whether it had any.
    pub(super) fn remove_on_disk(&mut self, space: SpaceId, index: u64) -> bool {
        let Some(cache) = &mut self.cache else { return false };
        let borrower = self.borrowers.get_mut(&space).expect("its connection is open");
        let Some(version) = cache.on_disk.remove(borrower.tenancy, index) else { return false };
        borrower.on_disk -= 1;
        cache.untold.remove(space, index);
        cache.forget(space, index, version);
        true
    }

    /// The borrower has come back: it is told what the disk has.
    pub(super) fn retell(&mut self, space: SpaceId) {
        let borrower = &self.borrowers[&space];
        if let Some(cache) = self.cache.as_mut().filter(|_| borrower.on_disk > 0) {
            cache.retell.push_back(Retell { space, tenancy: borrower.tenancy, from: 0, waits: false });
        }
    }

    /// What [`Effect::Stored`] had for a borrower is with one of its connections: it can be told more.
    pub fn told_stored(&mut self, space: SpaceId) {
        let Some(cache) = &mut self.cache else { return };
        cache.retell.iter_mut().filter(|told| told.space == space).for_each(|told| told.waits = false);
    }

    /// When draining goes on, or pages have lingered for another while.
    pub(super) fn drains_again_at(&self) -> Option<Instant> {
        let cache = self.cache.as_ref()?;
        [cache.paused_until, cache.ticks_at].into_iter().flatten().min()
    }

    pub(super) fn drain_again(&mut self, now: Instant) {
        let Some(cache) = &mut self.cache else { return };
        if cache.paused_until.is_some_and(|at| at <= now) {
            cache.paused_until = None;
        }
        cache.tick(now);
    }

    /// There is room in memory for a page that was refused: for anybody's, or for those of this channel.
    fn can_tell_room(&self, channel: Channel) -> bool {
        let for_all = self.slots.excess_pages() == 0 && self.slots.free_pages() + self.order.pages() > 0;
        // (One whose pages are all pinned has none that give way, though the disk has them: it hears when it may put more.)
        let pledged = |b: &super::Borrower| b.tenancy.0 == channel.0 && self.may_use_pledge(b);
        for_all || self.borrowers.values().any(pledged)
    }

    pub(super) fn has_cache_effect(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| {
            !cache.untold.is_empty()
                || cache.retell.iter().any(|told| !told.waits)
                || cache.ring.has_ok_of(|channel| self.can_tell_room(channel))
        })
    }

    /// Whether [`Self::poll_disk_effect`] has something.
    pub fn has_disk_effect(&self) -> bool {
        self.cache.as_ref().is_some_and(Cache::has_disk_effect)
    }

    /// What the driver of the disk store shall do next. What is forgotten comes before anything is written.
    pub fn poll_disk_effect(&mut self) -> Option<DiskEffect> {
        if let Some(forget) = self.cache.as_mut()?.forgets.pop_front() {
            return Some(forget);
        }
        self.next_drain().map(DiskEffect::Drain)
    }

    /// The disk store could not read this version of a page: it is on the disk no longer.
    pub fn handle_disk_lost(&mut self, space: SpaceId, index: u64, version: Version) {
        let (Some(cache), Some(borrower)) = (&mut self.cache, self.borrowers.get_mut(&space)) else { return };
        if cache.on_disk.get(borrower.tenancy, index) != Some(version) {
            return;
        }
        cache.on_disk.remove(borrower.tenancy, index);
        borrower.on_disk -= 1;
        cache.untold.remove(space, index);
        cache.forget(space, index, version);
        let tenancy = borrower.tenancy;
        let (at, offset) = split(index);
        // What is in memory has become the only copy here.
        if let Some(slot) = self.extents.get(&(tenancy, at)).and_then(|extent| extent.get(offset))
            && self.slots.standing(slot) == Standing::OnDisk
        {
            self.change_standing(slot, Standing::Recallable, Page { space, tenancy, index });
        }
        self.gone_if_done(space);
    }

    /// The next thing to say of the write cache.
    pub(super) fn poll_cache_effect(&mut self) -> Option<Effect> {
        let cache = self.cache.as_mut()?;
        if let Some(stored) = cache.untold.pop() {
            return Some(Effect::Stored(stored));
        }
        while let Some(at) = cache.retell.iter().position(|told| !told.waits) {
            let told = &mut cache.retell[at];
            told.waits = true;
            while cache.untold.pages() < STORED_PAGES_MAX
                && let Some((extent, pages)) = cache.on_disk.extent(told.tenancy, told.from)
            {
                told.from = extent + 1;
                pages.into_iter().for_each(|(index, version)| cache.untold.push(told.space, index, version));
            }
            if let Some(stored) = cache.untold.pop() {
                return Some(Effect::Stored(stored));
            }
            cache.retell.remove(at);
        }
        loop {
            // (The ring is asked without what it would be asked about.)
            let mut cache = self.cache.take()?;
            let channel = cache.ring.poll_ok_of(|channel| self.can_tell_room(channel));
            self.cache = Some(cache);
            let Some(channel) = channel else { break };
            let of = self.borrowers.iter().find(|(_, b)| b.tenancy.0 == channel.0 && b.connections > 0);
            if let Some((&space, _)) = of {
                return Some(Effect::Room(space));
            }
        }
        None
    }

    fn next_drain(&mut self) -> Option<Drain> {
        let cache = self.cache.as_mut().filter(|cache| cache.may_drain())?;
        let room = usize::try_from(cache.disk_room()).unwrap_or(usize::MAX);
        let write = cache.ring.drain(0, cache.config.write_pages_max.min(room))?;
        cache.known.insert(Tenancy(write.channel.0));
        let space = write.pages[0].page.space;
        let slots = &self.slots;
        let of = |page: &crate::staging::RingPage| {
            let slot = Slot(page.slot.0);
            let (version, hash) = slots.stored(slot);
            DrainPage { index: page.page.index, version, hash, slot }
        };
        let pages = write.pages.iter().map(of).collect();
        Some(Drain { write, space, pages })
    }
}
