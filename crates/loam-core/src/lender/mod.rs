//! The lender: a bounded store of other nodes' base pages. Metadata only; the driver owns the slab.
//!
//! ```text
//! put:   reserve ──► the driver writes the slots ──► commit (or abort)
//! get:   read_begin, get ──► the driver copies the slots out ──► read_end
//! full:  reserve ──► the oldest spare pages give way (see `replace`) ──► take_gone, or poll_effect: Gone
//! free:  drop_page, drop_all, replaced, or gone longer than the grace ──► poll_effect: Release ──► released
//! set aside: reserve_memory ──► room that is one borrower's alone (see `reservation`)
//! limit: handle_limit ──► the oldest pages go, or are recalled (see `shrink`)
//! stage: reserve_as, commit_as ──► poll_disk_effect: Drain ──► handle_drained ──► poll_effect: Stored (see `drains`)
//! ```
//!
//! The driver may run several threads over one `Lender` behind a lock that it does not hold while it copies:
//! a reserved slot is not found before `commit`, and a slot that was freed is not reused while a read
//! that began before is under way (tickets instead of a pin on each page: one step a request, however long).
//!
//! A borrower is a [`SpaceId`] with connections. When its last connection closes its pages wait for the grace; it may
//! come back. `drop_all` ends it at once. Pages of a borrower that has gone are freed in small steps
//! (`handle_timeout`), so that nobody waits for it.

mod ages;
mod cache;
mod drains;
#[cfg(test)]
mod drains_tests;
mod extent;
mod on_disk;
mod order;
mod replace;
#[cfg(test)]
mod replace_tests;
mod reservation;
#[cfg(test)]
mod reservation_tests;
mod runs;
mod shrink;
#[cfg(test)]
mod shrink_tests;
mod slots;
#[cfg(test)]
mod tests;
mod types;
mod untold;

use crate::draw::Draw;
use crate::ids::{ContentHash, PutClass, SpaceId, Version};
use crate::staging::{RingFigures, RingSlot};
use crate::units::{BasePages, Bytes, Duration, EXTENT_BASE_PAGES, Instant};
pub use ages::{AGE_BUCKETS, AGE_UNIT, AgeHistogram};
use ages::{Ages, Moment};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use cache::Cache;
pub use cache::{Drain, DrainPage, Forget, Put, STORED_PAGES_MAX, StoreConfig, Stored};
use extent::Extent;
use order::{Order, Page};
pub use replace::{GONE_PAGES_MAX, Gone};
use reservation::Share;
pub use reservation::TooMuch;
pub use runs::{Slot, SlotRun};
use shrink::Shrink;
pub use shrink::{RECALL_PAGES_MAX, RECALL_TIME, Recall};
pub use slots::ReadTicket;
use slots::SlotTable;
pub use types::{BorrowerStats, DiskEffect, Drained, Effect, Found, LenderStats, Terms, Unwelcome};
use types::{STANDINGS, Standing};

/// Extents freed by one [`Lender::handle_timeout`] (at most 4096 pages): bounds how long the driver's lock is held.
const REAP_EXTENTS: usize = 16;

/// Where the ages of pinned pages are.
const PINNED: usize = STANDINGS;

/// The life of one borrower's pages in this lender. A space that says `drop_all` goes on under a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tenancy(u64);

#[derive(Debug)]
struct Borrower {
    tenancy: Tenancy,
    terms: Terms,
    name: String,
    connections: u32,
    /// In memory.
    pages: u64,
    /// On the disk.
    on_disk: u64,
    /// When its pages are freed; set while it has no connection.
    expires: Option<Instant>,
    /// Pages that were replaced and that it has not been told of.
    gone: Vec<(u64, Version)>,
    /// What it has reserved.
    share: Share,
}

impl Borrower {
    fn new(tenancy: Tenancy, terms: Terms, name: &str, connections: u32) -> Self {
        Self {
            tenancy,
            terms,
            name: name.into(),
            connections,
            pages: 0,
            on_disk: 0,
            expires: None,
            gone: Vec::new(),
            share: Share::default(),
        }
    }

    fn can_be_asked(&self) -> bool {
        let can_hear = matches!(self.terms, Terms::Recallable | Terms::Staging) && self.connections > 0;
        can_hear && self.has_unpinned()
    }

    /// The machine's limit reaches some of its pages.
    fn has_unpinned(&self) -> bool {
        self.pages > self.share.pinned
    }

    /// It has nothing here to come back for.
    fn has_nothing(&self) -> bool {
        self.pages == 0 && self.on_disk == 0 && self.share.reserved == 0
    }
}

/// See the module.
#[derive(Debug)]
pub struct Lender {
    slots: SlotTable,
    capacity: BasePages,
    grace: Duration,
    borrowers_max: usize,
    borrowers: BTreeMap<SpaceId, Borrower>,
    extents: BTreeMap<(Tenancy, u64), Extent>,
    /// Tenancies that ended and whose pages are not all freed yet.
    leaving: VecDeque<Tenancy>,
    /// Of the pages of each [`Standing`] that are not pinned, and of those that are ([`PINNED`]).
    ages: [Ages; STANDINGS + 1],
    /// What may be reserved by all borrowers together.
    reservable: BasePages,
    /// Borrowers that were refused what was pledged to them.
    refused: BTreeSet<SpaceId>,
    shrink: Shrink,
    /// To be sent.
    recalls: VecDeque<Recall>,
    /// Of pages that give way.
    order: Order,
    draw: Draw,
    /// When those whose pages were replaced must be told.
    tell_at: Option<Instant>,
    tell: VecDeque<Gone>,
    /// If there is a disk store.
    cache: Option<Cache>,
    replaced: u64,
    tenancy_last: u64,
    gets: u64,
    puts: u64,
    misses: u64,
    disk_gets: u64,
}

const fn split(index: u64) -> (u64, u8) {
    let per = EXTENT_BASE_PAGES as u64;
    (index / per, (index % per) as u8)
}
const fn join(extent: u64, offset: u8) -> u64 {
    extent * EXTENT_BASE_PAGES as u64 + offset as u64
}
const _: () = assert!(EXTENT_BASE_PAGES == 256, "an offset inside an extent is a byte");

impl Lender {
    /// A lender with room for `capacity`, for at most `borrowers_max` borrowers, that keeps the pages of a
    /// borrower without connections for `grace`.
    ///
    /// # Panics
    /// If `capacity` is nothing or above 2^32 - 1 base pages (16 TiB).
    pub fn new(capacity: BasePages, grace: Duration, borrowers_max: usize) -> Self {
        let pages = u32::try_from(capacity.0).expect("a lender has at most 2^32 - 1 base pages");
        Self {
            slots: SlotTable::new(pages),
            capacity,
            grace,
            borrowers_max,
            borrowers: BTreeMap::new(),
            extents: BTreeMap::new(),
            leaving: VecDeque::new(),
            ages: Default::default(),
            reservable: BasePages(0),
            refused: BTreeSet::new(),
            shrink: Shrink::default(),
            recalls: VecDeque::new(),
            order: Order::default(),
            draw: Draw::new(0),
            tell_at: None,
            tell: VecDeque::new(),
            cache: None,
            replaced: 0,
            tenancy_last: 0,
            gets: 0,
            puts: 0,
            misses: 0,
            disk_gets: 0,
        }
    }

    fn next_tenancy(&mut self) -> Tenancy {
        self.tenancy_last += 1;
        Tenancy(self.tenancy_last)
    }

    /// A connection of `space` said hello. One that comes back inside its grace finds its pages.
    ///
    /// # Errors
    /// [`Unwelcome`]; nothing has changed then.
    pub fn connection_opened(&mut self, space: SpaceId, name: &str, terms: Terms) -> Result<(), Unwelcome> {
        self.welcomes(space, terms)?;
        if let Some(borrower) = self.borrowers.get_mut(&space) {
            assert_eq!(borrower.expires.is_some(), borrower.connections == 0);
            borrower.connections += 1;
            borrower.expires = None;
            if borrower.connections == 1 {
                borrower.name = name.into();
                self.retell(space);
            }
            return Ok(());
        }
        let tenancy = self.next_tenancy();
        self.borrowers.insert(space, Borrower::new(tenancy, terms, name, 1));
        Ok(())
    }

    /// Whether a connection of `space` can be taken.
    ///
    /// # Errors
    /// Why not.
    pub fn welcomes(&self, space: SpaceId, terms: Terms) -> Result<(), Unwelcome> {
        match self.borrowers.get(&space) {
            Some(borrower) if borrower.terms != terms => Err(Unwelcome::OtherTerms),
            None if self.borrowers.len() >= self.borrowers_max => Err(Unwelcome::TooManyBorrowers),
            _ => Ok(()),
        }
    }

    /// A borrower has come back over a new connection, its only one: those that it had are over, whether their ends have come here or not.
    ///
    /// # Errors
    /// [`Unwelcome`]; nothing has changed then.
    pub fn connection_returned(
        &mut self,
        now: Instant,
        space: SpaceId,
        name: &str,
        terms: Terms,
    ) -> Result<(), Unwelcome> {
        self.welcomes(space, terms)?;
        for _ in 0..self.borrowers.get(&space).map_or(0, |borrower| borrower.connections) {
            self.connection_closed(now, space);
        }
        self.connection_opened(space, name, terms)
    }

    /// A borrower of a former life, of whom the disk store still has pages.
    fn tenancy_of_absent(&mut self, now: Instant, space: SpaceId) -> Tenancy {
        if let Some(borrower) = self.borrowers.get(&space) {
            return borrower.tenancy;
        }
        let tenancy = self.next_tenancy();
        let mut borrower = Borrower::new(tenancy, Terms::Staging, "", 0);
        borrower.expires = Some(now + self.grace);
        self.borrowers.insert(space, borrower);
        tenancy
    }

    /// A connection of `space` closed. With the last one the grace begins; without pages there is nothing to wait for.
    pub fn connection_closed(&mut self, now: Instant, space: SpaceId) {
        let borrower = self.borrowers.get_mut(&space).expect("it was opened");
        assert!(borrower.connections > 0, "more connections closed than opened");
        borrower.connections -= 1;
        if borrower.connections > 0 {
            return;
        }
        borrower.gone.clear();
        self.tell.retain(|gone| gone.space != space);
        borrower.expires = Some(now + self.grace);
        if let Some(cache) = &mut self.cache {
            cache.is_away(space);
        }
        self.gone_if_done(space);
    }

    /// Makes room for new contents of `indexes`: slots for the first few of them (as many as the answer has; ask again
    /// for the rest), or none if the store is full of what may not be replaced. Whatever the answer, older contents of `indexes` are gone: an
    /// old version must never be found once a new one is on its way.
    pub fn reserve(&mut self, now: Instant, space: SpaceId, indexes: &[u64]) -> Option<SlotRun> {
        self.reserve_as(now, space, indexes, PutClass::Ordinary)
    }

    /// The contents of a reserved slot are written and their hash was checked. From now on it is found.
    pub fn commit(
        &mut self,
        now: Instant,
        space: SpaceId,
        index: u64,
        version: Version,
        hash: ContentHash,
        slot: Slot,
    ) {
        let put = Put { index, version, hash, class: PutClass::Ordinary };
        assert!(self.commit_as(now, space, put, slot), "only staged pages are refused");
    }

    fn place(&mut self, now: Instant, page: Page, put: Put, slot: Slot, standing: Standing) {
        let used = Moment::of(now);
        let pinned = self.placed(page.space);
        self.slots.store(slot, put.version, put.hash, used, standing, pinned);
        self.ages[self.kind(slot)].add(used);
        if !pinned {
            self.order.add(standing, slot, page);
        }
        self.borrowers.get_mut(&page.space).expect("its connection is open").pages += 1;
        let (extent, offset) = split(page.index);
        self.extents.entry((page.tenancy, extent)).or_default().insert(offset, slot);
        self.puts += 1;
    }

    /// Among which ages the page in a slot is counted.
    fn kind(&self, slot: Slot) -> usize {
        if self.slots.is_pinned(slot) { PINNED } else { self.slots.standing(slot) as usize }
    }

    /// A slot that was reserved for a page of `space` could not be written.
    pub fn abort(&mut self, space: SpaceId, slot: Slot) {
        self.slots.abort(slot);
        self.not_placed(space);
    }

    /// A read of slots begins; see the module.
    pub fn read_begin(&mut self) -> ReadTicket {
        self.slots.read_begin()
    }

    /// The read has ended.
    pub fn read_end(&mut self, ticket: ReadTicket) {
        self.slots.read_end(ticket);
    }

    /// Looks pages up, in order: `found` hears where each is. A run inside an extent costs one lookup of the extent. What is in memory counts
    /// as used now, and if it waits for the disk it is held.
    pub fn get(
        &mut self,
        now: Instant,
        space: SpaceId,
        pages: impl Iterator<Item = (u64, Version)>,
        mut found: impl FnMut(u64, Version, Found),
    ) {
        let borrower = self.borrowers.get(&space).expect("its connection is open");
        let tenancy = borrower.tenancy;
        let now = Moment::of(now);
        let mut near: Option<(u64, Option<&Extent>)> = None;
        for (index, version) in pages {
            let (at, offset) = split(index);
            let extent = match near {
                Some((near_at, extent)) if near_at == at => extent,
                _ => self.extents.get(&(tenancy, at)),
            };
            near = Some((at, extent));
            let hit = extent.and_then(|extent| extent.get(offset)).and_then(|slot| {
                let (stored, hash) = self.slots.stored(slot);
                (stored == version).then_some((slot, hash))
            });
            let on_disk =
                || self.cache.as_ref().is_some_and(|c| c.on_disk.get(tenancy, index) == Some(version));
            let hit = match hit {
                Some((slot, hash)) => Found::Here(slot, hash),
                None if on_disk() => Found::OnDisk,
                None => Found::Missing,
            };
            if let Found::Here(slot, _) = hit {
                let standing = self.slots.standing(slot);
                let pinned = self.slots.is_pinned(slot);
                if let Some(before) = self.slots.touch(slot, now) {
                    let ages = &mut self.ages[if pinned { PINNED } else { standing as usize }];
                    ages.remove(before);
                    ages.add(now);
                }
                if !pinned {
                    self.order.touch(standing, slot);
                }
                if standing == Standing::Staged {
                    Self::victim_read(&mut self.cache, slot);
                }
            }
            self.gets += 1;
            self.misses += u64::from(hit == Found::Missing);
            self.disk_gets += u64::from(hit == Found::OnDisk);
            found(index, version, hit);
        }
    }

    /// Forgets one page if it still has this version; says whether.
    pub fn drop_page(&mut self, space: SpaceId, index: u64, version: Version) -> bool {
        let tenancy = self.borrowers.get(&space).expect("its connection is open").tenancy;
        let (at, offset) = split(index);
        let slot = self.extents.get(&(tenancy, at)).and_then(|extent| extent.get(offset));
        let on_disk = self.cache.as_ref().and_then(|cache| cache.on_disk.get(tenancy, index));
        let here = slot.map(|slot| self.slots.stored(slot).0).or(on_disk);
        here == Some(version) && self.remove(space, index)
    }

    /// The borrower is done: all its pages go, and its reservation. It may go on with new ones.
    pub fn drop_all(&mut self, space: SpaceId) {
        let tenancy = self.next_tenancy();
        let borrower = self.borrowers.get_mut(&space).expect("its connection is open");
        borrower.gone.clear();
        self.tell.retain(|gone| gone.space != space);
        let old = core::mem::replace(&mut borrower.tenancy, tenancy);
        borrower.on_disk = 0;
        if core::mem::take(&mut borrower.pages) > 0 {
            self.leaving.push_back(old);
        }
        self.share_ends(space);
        if let Some(cache) = &mut self.cache {
            cache.end(space, old);
        }
    }

    /// Forgets a page, here and on the disk; whether there was one.
    fn remove(&mut self, space: SpaceId, index: u64) -> bool {
        let on_disk = self.remove_on_disk(space, index);
        self.remove_here(space, index) || on_disk
    }

    fn remove_here(&mut self, space: SpaceId, index: u64) -> bool {
        let borrower = self.borrowers.get_mut(&space).expect("its connection is open");
        let (at, offset) = split(index);
        let key = (borrower.tenancy, at);
        let Some(extent) = self.extents.get_mut(&key) else { return false };
        let Some(slot) = extent.remove(offset) else { return false };
        if extent.is_empty() {
            self.extents.remove(&key);
        }
        assert!(borrower.pages > 0, "a page that nobody counted");
        borrower.pages -= 1;
        if self.slots.is_pinned(slot) {
            self.unpinned(space);
        }
        self.free_slot(slot);
        true
    }

    /// A page has gone from its extent.
    fn free_slot(&mut self, slot: Slot) {
        let standing = self.slots.standing(slot);
        let kind = self.kind(slot);
        self.ages[kind].remove(self.slots.used(slot));
        self.shrink.page_gone(self.slots.asked(slot));
        if kind != PINNED {
            self.order.remove(standing, slot);
        }
        if let (Standing::Staged, Some(cache)) = (standing, &mut self.cache) {
            cache.ring.cancel(RingSlot(slot.0));
        }
        self.slots.free(slot);
    }

    /// Inside its grace a borrower without pages has nothing to come back for.
    fn gone_if_done(&mut self, space: SpaceId) {
        let done = |b: &Borrower| b.connections == 0 && b.has_nothing();
        if !self.borrowers.get(&space).is_some_and(done) {
            return;
        }
        let borrower = self.borrowers.remove(&space).expect("it was just seen");
        if let Some(cache) = &mut self.cache {
            cache.end(space, borrower.tenancy);
        }
    }

    /// At most `limit` may be stored from now on (the capacity, if it is less). What is above it goes, oldest first,
    /// in steps of [`Self::handle_timeout`]; until then no put is accepted.
    pub fn handle_limit(&mut self, limit: BasePages) {
        if self.slots.excess_pages() == 0 {
            self.shrink.rest();
        }
        self.slots.set_limit(limit.0.min(self.capacity.0));
    }

    /// The limit as it is.
    pub fn limit(&self) -> BasePages {
        BasePages(self.slots.limit_pages())
    }

    /// Ages to the unit of the pages that are as those under some terms are, and how many have each: for a summary of another shape. What the disk
    /// has is spare; what waits for it is recallable.
    pub fn ages(&self, terms: Terms, now: Instant) -> impl Iterator<Item = (Duration, u64)> {
        let standings: &[Standing] = match terms {
            Terms::Spare => &[Standing::OnDisk, Standing::Spare],
            Terms::Recallable => &[Standing::Recallable, Standing::Staged],
            Terms::Kept => &[Standing::Kept],
            Terms::Staging => &[],
        };
        standings.iter().flat_map(move |standing| self.ages[*standing as usize].iter(now))
    }

    /// How old the pages are: time since they were last put or fetched. Costs no look at the pages.
    pub fn age_histogram(&self, now: Instant) -> AgeHistogram {
        let mut histogram = [0; AGE_BUCKETS];
        self.ages.iter().for_each(|ages| ages.add_to(now, &mut histogram));
        histogram
    }

    /// When [`Self::handle_timeout`] wants to be called; `Instant(0)` means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.leaving.is_empty() {
            return Some(Instant(0));
        }
        let expires = self.borrowers.values().filter_map(|borrower| borrower.expires).min();
        [expires, self.shrink_due(), self.tell_at, self.drains_again_at()].into_iter().flatten().min()
    }

    /// Ends the borrowers whose grace ran out, frees a bounded number of pages of those who have gone, and goes a bounded
    /// number of steps towards the limit.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (leaving, cache, slots) = (&mut self.leaving, &mut self.cache, &mut self.slots);
        self.borrowers.retain(|&space, borrower| {
            let gone = borrower.expires.is_some_and(|expires| expires <= now);
            if gone {
                assert!(borrower.connections == 0 && !borrower.has_nothing());
                borrower.share.change(slots, |share| *share = Share::default());
                leaving.push_back(borrower.tenancy);
                if let Some(cache) = cache {
                    cache.end(space, borrower.tenancy);
                }
            }
            !gone
        });
        self.drain_again(now);
        for _ in 0..REAP_EXTENTS {
            let Some(&tenancy) = self.leaving.front() else { break };
            let next = self.extents.range((tenancy, 0)..=(tenancy, u64::MAX)).next().map(|(key, _)| *key);
            let Some(key) = next else {
                self.leaving.pop_front();
                continue;
            };
            let extent = self.extents.remove(&key).expect("it was just seen");
            for slot in extent.slots() {
                self.free_slot(slot);
            }
        }
        self.tell_gone(now);
        // What leaves anyway may be enough.
        if self.leaving.is_empty() {
            self.shrink(now);
        }
    }

    /// Whether [`Self::poll_effect`] has something.
    pub fn has_effect(&self) -> bool {
        !self.recalls.is_empty()
            || !self.tell.is_empty()
            || self.has_refused_to_tell()
            || self.has_cache_effect()
            || (!self.drops() && self.slots.release_wanted())
    }

    /// Whether there is something to do at once: effects, or steps of [`Self::handle_timeout`].
    pub fn has_work(&self) -> bool {
        self.has_effect()
            || self.gave_room()
            || !self.leaving.is_empty()
            || self.shrink_due() == Some(Instant(0))
    }

    /// What the driver shall do next, outside its lock.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(recall) = self.recalls.pop_front() {
            return Some(Effect::Recall(recall));
        }
        if let Some(gone) = self.tell.pop_front() {
            return Some(Effect::Gone(gone));
        }
        if let Some(space) = self.poll_refused() {
            return Some(Effect::Room(space));
        }
        if let Some(effect) = self.poll_cache_effect() {
            return Some(effect);
        }
        if self.drops() {
            return None;
        }
        self.slots.release().map(Effect::Release)
    }

    /// The memory of a run from [`Effect::Release`] was given back.
    pub fn released(&mut self, run: SlotRun) {
        self.slots.released(run);
    }

    /// Room that can be used at once, without replacing anything.
    pub fn free(&self) -> Bytes {
        let pages = self.slots.free_pages();
        if pages <= self.stock() { Bytes(0) } else { BasePages(pages).bytes() }
    }

    /// Room as a borrower on these terms is told it. One whose pages go to the disk is told of those that are there already, too: they give way to
    /// new ones, and nobody loses anything but time.
    pub fn room(&self, terms: Terms) -> Bytes {
        let on_disk = if terms == Terms::Staging { self.order.pages_of(Standing::OnDisk) } else { 0 };
        Bytes(self.free().0 + BasePages(on_disk).bytes().0)
    }

    /// Room as a borrower is told it: what is free for anybody on its terms, and what is pledged to it.
    ///
    /// # Panics
    /// Without a connection.
    pub fn room_of(&self, space: SpaceId) -> Bytes {
        Bytes(self.room(self.terms(space)).0 + self.pledged_to(space).0)
    }

    /// Room that nobody but this borrower can have; none if it is not known.
    pub fn pledged_to(&self, space: SpaceId) -> Bytes {
        BasePages(self.borrowers.get(&space).map_or(0, |borrower| borrower.share.unused())).bytes()
    }

    /// Base pages that are stored or on their way, or that are reserved and not used: nobody else can have them now.
    pub fn committed_pages(&self) -> u64 {
        self.slots.committed_pages()
    }

    /// The same without the copies that could leave at once.
    pub fn firm_pages(&self) -> u64 {
        self.committed_pages() - self.order.pages()
    }

    /// The figures.
    pub fn stats(&self) -> LenderStats {
        LenderStats {
            capacity: self.capacity.bytes(),
            limit: BasePages(self.slots.limit_in_force()).bytes(),
            reserved: self.reserved().bytes(),
            reservable: self.reservable.bytes(),
            free: self.free(),
            pages: self.slots.stored_pages(),
            gets: self.gets,
            puts: self.puts,
            misses: self.misses,
            replaced: self.replaced,
            dropped: self.shrink.dropped_pages,
            recalled: self.shrink.recalled_pages,
            kept: self.kept_pages(),
            borrowers: self.borrowers.len() as u64,
            on_disk: self.cache.as_ref().map_or(0, |cache| cache.on_disk.pages()),
            disk_gets: self.disk_gets,
            disk_capacity: self.cache.as_ref().map_or(0, |cache| cache.capacity().0),
            ring: self.cache.as_ref().map_or_else(RingFigures::default, |cache| cache.ring.figures()),
        }
    }

    /// What a borrower has said of its pages.
    ///
    /// # Panics
    /// Without a connection.
    pub fn terms(&self, space: SpaceId) -> Terms {
        self.borrowers.get(&space).expect("its connection is open").terms
    }

    /// The borrowers, by space.
    pub fn borrowers(&self) -> impl Iterator<Item = BorrowerStats<'_>> {
        self.borrowers.iter().map(|(&space, borrower)| BorrowerStats {
            space,
            name: &borrower.name,
            pages: borrower.pages,
            on_disk: borrower.on_disk,
            connections: borrower.connections,
            terms: borrower.terms,
            reserved: borrower.share.reserved,
        })
    }
}
