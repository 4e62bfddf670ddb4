//! The ring and the disk behind it, as a lender's state: what waits, what the disk has, what is still to be said and to be let go. [`super::drains`] has the
//! steps.

use super::Tenancy;
use super::on_disk::OnDisk;
use super::types::DiskEffect;
use super::untold::Untold;
use crate::ids::{ContentHash, PutClass, SpaceId, Version};
use crate::lender::Slot;
use crate::staging::{Channel, GROUP_PAGES, Ring, RingConfig, RingWrite};
use crate::units::{BasePages, Duration, Instant};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Pages of one [`Stored`].
pub const STORED_PAGES_MAX: usize = if cfg!(test) { 4 } else { 1024 };
/// A channel that has refused has room again when this part of it is free.
const OK_ROOM_PART: u64 = 8;
/// A page that comes just before a tick lingers for one whole interval, one that comes just behind it for two.
const LINGER_TICKS: u64 = 2;

/// The disk store, as the policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Room on the disk.
    pub capacity: BasePages,
    /// Pages of one borrower that may wait for the disk.
    pub channel: BasePages,
    /// Pages that one write may combine.
    pub write_pages_max: usize,
    /// Pages that may be under way to the disk, synced or not.
    pub under_way_max: BasePages,
    /// A page waits at least so long, and at most twice, before it is written while there is room: what a program puts anew or reads meanwhile costs no
    /// write. Nothing: it is written as soon as the disk has time.
    pub linger: Duration,
}

/// One page of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Which page of the space.
    pub index: u64,
    /// Which contents.
    pub version: Version,
    /// Their hash.
    pub hash: ContentHash,
    /// What becomes of it.
    pub class: PutClass,
}

/// One page on its way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainPage {
    /// Which page of the space.
    pub index: u64,
    /// Which contents.
    pub version: Version,
    /// Their hash.
    pub hash: ContentHash,
    /// Where they are in memory.
    pub slot: Slot,
}

/// Consecutive pages to be written to the disk store as one write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "give it back with `handle_drained`, or its pages wait for ever"]
pub struct Drain {
    pub(super) write: RingWrite,
    /// Whose.
    pub space: SpaceId,
    /// Which, ascending without a gap.
    pub pages: Vec<DrainPage>,
}

/// Pages that the disk store need not have any more; it may not know all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Whose.
    pub space: SpaceId,
    /// Which.
    pub pages: Vec<(u64, Version)>,
}

/// Pages that are safe on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whose.
    pub space: SpaceId,
    /// Which; at most [`STORED_PAGES_MAX`].
    pub pages: Vec<(u64, Version)>,
}

/// A borrower that has come back is told what the disk has: a little at a time, and no more before it is with its connection. All of it may be many times what
/// a borrower that does not read should have in this machine's memory.
#[derive(Debug)]
pub(super) struct Retell {
    pub(super) space: SpaceId,
    pub(super) tenancy: Tenancy,
    /// The extent to go on with.
    pub(super) from: u64,
    /// What was told last is not with its connection yet.
    pub(super) waits: bool,
}

/// The ring and the disk behind it.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) config: StoreConfig,
    pub(super) ring: Ring,
    pub(super) on_disk: OnDisk,
    /// Of whom the disk store may know: something of theirs was there, or on its way there. What was dropped page by page leaves a place in its table
    /// of spaces, and what is under way when they end has to go, too.
    pub(super) known: BTreeSet<Tenancy>,
    /// What the disk shall let go, before anything is written.
    pub(super) forgets: VecDeque<DiskEffect>,
    pub(super) untold: Untold,
    /// Borrowers that have come back and are told what the disk has.
    pub(super) retell: VecDeque<Retell>,
    /// Until then nothing is written.
    pub(super) paused_until: Option<Instant>,
    /// When pages that wait have lingered for another tick.
    pub(super) ticks_at: Option<Instant>,
}

impl Cache {
    pub(super) fn new(config: StoreConfig) -> Self {
        assert!(config.write_pages_max > 0 && config.under_way_max.0 > 0, "a disk that is never written");
        let ring = Ring::new(RingConfig {
            channel_pages: config.channel.0,
            disks: 1,
            group_pages: GROUP_PAGES,
            ok_room_pages: config.channel.0.div_ceil(OK_ROOM_PART),
            linger_ticks: if config.linger > Duration::ZERO { LINGER_TICKS } else { 0 },
        });
        Self {
            config,
            ring,
            on_disk: OnDisk::default(),
            known: BTreeSet::new(),
            forgets: VecDeque::new(),
            untold: Untold::default(),
            retell: VecDeque::new(),
            paused_until: None,
            ticks_at: None,
        }
    }

    pub(super) fn capacity(&self) -> BasePages {
        self.config.capacity
    }

    /// Pages that the disk has room for beside those under way.
    pub(super) fn disk_room(&self) -> u64 {
        let taken = self.on_disk.pages() + self.ring.pages_under_way() as u64;
        self.config.capacity.0.saturating_sub(taken)
    }

    /// What waits will not be written soon.
    pub(super) fn is_stuck(&self) -> bool {
        self.paused_until.is_some() || self.disk_room() == 0
    }

    pub(super) fn may_drain(&self) -> bool {
        let under_way = self.ring.pages_under_way() as u64;
        !self.is_stuck() && under_way < self.config.under_way_max.0
    }

    /// A page has come to wait.
    pub(super) fn waits(&mut self, now: Instant) {
        if self.ticks_at.is_none() && self.ring.lingers() {
            self.ticks_at = Some(now + self.config.linger);
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.ticks_at.is_some_and(|at| at <= now) {
            self.ring.tick();
            self.ticks_at = self.ring.lingers().then(|| now + self.config.linger);
        }
    }

    pub(super) fn has_disk_effect(&self) -> bool {
        !self.forgets.is_empty() || (self.may_drain() && self.ring.has_write(0))
    }

    pub(super) fn forget(&mut self, space: SpaceId, index: u64, version: Version) {
        match self.forgets.back_mut() {
            Some(DiskEffect::Forget(last)) if last.space == space && last.pages.len() < STORED_PAGES_MAX => {
                last.pages.push((index, version));
            }
            _ => {
                let pages = Vec::from([(index, version)]);
                self.forgets.push_back(DiskEffect::Forget(Forget { space, pages }));
            }
        }
    }

    /// A borrower has gone, or goes on with nothing.
    pub(super) fn end(&mut self, space: SpaceId, tenancy: Tenancy) {
        self.ring.close(Channel(tenancy.0));
        self.untold.remove_space(space);
        self.retell.retain(|told| told.tenancy != tenancy);
        self.on_disk.take(tenancy);
        if self.known.remove(&tenancy) {
            self.forgets.push_back(DiskEffect::ForgetSpace(space));
        }
    }

    /// The last connection of a borrower closed: nobody hears what the disk has.
    pub(super) fn is_away(&mut self, space: SpaceId) {
        self.untold.remove_space(space);
        self.retell.retain(|told| told.space != space);
    }
}
