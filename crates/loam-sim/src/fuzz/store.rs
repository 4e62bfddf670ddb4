//! A lender's disk store, as docs/disk-store.md promises it: what is durable is found after any crash, what is not may be found or not, whole.
//!
//! Forgotten pages stay on the disk until something takes their slots, so a crash may bring them back.

use super::dice::Dice;
use super::script::{Settings, StoreFault};
use loam_core::ids::{SpaceId, Version};
use loam_core::lender::{Drain, Drained, StoreConfig};
use loam_core::units::{BasePages, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

/// A page of a space, in one version.
pub(crate) type Stored = (SpaceId, u64, Version);

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: Stored,
    value: u64,
    /// Grows with each page that is written: the newest whole one counts after a crash.
    sequence: u64,
    /// Which write has brought it.
    write: u64,
    ended: bool,
    durable: bool,
    /// Its slot may be used again.
    free: bool,
    /// Its space is gone from the table of spaces; with the sync that is under way that is durable.
    space_gone: bool,
    space_going: bool,
    /// Its checksum tells that it is not what was written.
    rotten: bool,
}

/// A page that is read for a borrower.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub wire: usize,
    pub request: u64,
    pub page: Stored,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Vec<Slot>,
    pages: u64,
    sequence: u64,
    token: u64,
    writes: BTreeMap<u64, Drain>,
    /// Ended, and not synced.
    ended: BTreeSet<u64>,
    /// Which writes the sync that is under way makes durable.
    syncing: Option<BTreeSet<u64>>,
    pub reads: BTreeMap<u64, Read>,
    pub fault: Option<(StoreFault, Instant)>,
    broken: bool,
}

impl Store {
    pub(crate) fn new(pages: u64) -> Self {
        Self {
            slots: Vec::new(),
            pages,
            sequence: 0,
            token: 0,
            writes: BTreeMap::new(),
            ended: BTreeSet::new(),
            syncing: None,
            reads: BTreeMap::new(),
            fault: None,
            broken: false,
        }
    }

    /// As the live lender sets it up.
    pub(crate) fn config(settings: &Settings) -> Option<StoreConfig> {
        let cache = settings.cache.as_ref()?;
        Some(StoreConfig {
            capacity: BasePages(cache.store_pages),
            channel: BasePages(cache.channel_pages),
            write_pages_max: 32,
            under_way_max: BasePages(cache.under_way_pages),
            linger: Duration::from_millis(cache.linger_ms),
        })
    }

    /// Pages that nobody has forgotten.
    pub(crate) fn live(&self) -> u64 {
        self.slots.iter().filter(|slot| !slot.free).count() as u64
    }

    /// Begins a write; its token, or why not.
    pub(crate) fn write(
        &mut self,
        drain: Drain,
        values: &[u64],
        full: bool,
        dice: &mut Dice,
    ) -> Result<u64, (Drain, Drained)> {
        if self.broken {
            return Err((drain, Drained::Failed));
        }
        let wanted = values.len() as u64;
        if full || self.live() + wanted > self.pages {
            return Err((drain, Drained::NoRoom));
        }
        // Where it goes something that was forgotten may have been: always so if there is no other place.
        let chance = dice.below(wanted + 1);
        let must = (self.slots.len() as u64 + wanted).saturating_sub(self.pages);
        for _ in 0..must.max(chance) {
            let free: Vec<usize> = (0..self.slots.len()).filter(|&n| self.slots[n].free).collect();
            if !free.is_empty() {
                self.slots.remove(dice.pick(&free));
            }
        }
        self.token += 1;
        for (page, &value) in drain.pages.iter().zip(values) {
            self.sequence += 1;
            self.slots.push(Slot {
                page: (drain.space, page.index, page.version),
                value,
                sequence: self.sequence,
                write: self.token,
                ended: false,
                durable: false,
                free: false,
                space_gone: false,
                space_going: false,
                rotten: false,
            });
        }
        self.writes.insert(self.token, drain);
        Ok(self.token)
    }

    /// A write has ended. If it failed, its drain: nothing was promised, and what is on the disk may be found all the same.
    pub(crate) fn written(&mut self, token: u64, failed: bool) -> Option<Drain> {
        self.slots.iter_mut().filter(|slot| slot.write == token).for_each(|slot| slot.ended = true);
        if !failed {
            self.ended.insert(token);
            return None;
        }
        self.slots.iter_mut().filter(|slot| slot.write == token).for_each(|slot| slot.free = true);
        self.writes.remove(&token)
    }

    /// A sync begins, if there is something to sync and none is under way.
    pub(crate) fn begins_sync(&mut self) -> bool {
        let wanted = !self.ended.is_empty() || self.slots.iter().any(|slot| slot.space_gone);
        if self.broken || self.syncing.is_some() || !wanted {
            return false;
        }
        self.slots.iter_mut().for_each(|slot| slot.space_going = slot.space_gone);
        self.syncing = Some(std::mem::take(&mut self.ended));
        true
    }

    /// The sync has ended: what was ended when it began is durable. A sync that fails breaks the store.
    pub(crate) fn synced(&mut self, failed: bool) -> Vec<Drain> {
        let mut tokens = self.syncing.take().expect("one was begun");
        if failed {
            self.broken = true;
            tokens.append(&mut self.ended);
            self.slots
                .iter_mut()
                .filter(|slot| tokens.contains(&slot.write))
                .for_each(|slot| slot.free = true);
        } else {
            self.slots
                .iter_mut()
                .filter(|slot| tokens.contains(&slot.write))
                .for_each(|slot| slot.durable = true);
            self.slots.retain(|slot| !slot.space_going);
        }
        tokens.iter().filter_map(|token| self.writes.remove(token)).collect()
    }

    /// What a write was for, before its time.
    pub(crate) fn take(&mut self, token: u64) -> Option<Drain> {
        self.writes.remove(&token)
    }

    /// It reports what it has under way as failed from now on.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn forget(&mut self, page: Stored) {
        self.slots
            .iter_mut()
            .filter(|slot| slot.durable && slot.page == page)
            .for_each(|slot| slot.free = true);
    }

    pub(crate) fn forget_space(&mut self, space: SpaceId) {
        for slot in self.slots.iter_mut().filter(|slot| slot.durable && slot.page.0 == space) {
            (slot.free, slot.space_gone) = (true, true);
        }
    }

    pub(crate) fn begin_read(&mut self, read: Read) -> u64 {
        self.token += 1;
        self.reads.insert(self.token, read);
        self.token
    }

    /// What a read brings; `None`: nothing whole.
    pub(crate) fn read(&self, page: Stored) -> Option<u64> {
        let is_it = |slot: &&Slot| slot.page == page && slot.durable && !slot.free;
        self.slots.iter().find(is_it).filter(|slot| !slot.rotten).map(|slot| slot.value)
    }

    /// A bit flips in so many slots; of which pages.
    pub(crate) fn rot(&mut self, pages: u64, dice: &mut Dice) -> Vec<Stored> {
        let mut rotten = Vec::new();
        for _ in 0..pages {
            let good = |n: &usize| self.slots[*n].durable && !self.slots[*n].free && !self.slots[*n].rotten;
            let good: Vec<usize> = (0..self.slots.len()).filter(good).collect();
            if !good.is_empty() {
                let slot = &mut self.slots[dice.pick(&good)];
                slot.rotten = true;
                rotten.push(slot.page);
            }
        }
        rotten
    }

    /// The lender has died, with its machine if `power` was lost: what the next one finds.
    pub(crate) fn crashed(mut self, power: bool, dice: &mut Dice) -> Self {
        let mut found = |slot: &Slot| {
            let whole = slot.durable || (slot.ended && !power) || dice.once_in(2);
            whole && !slot.rotten && (!slot.space_gone || dice.once_in(2))
        };
        self.slots.retain(|slot| found(slot));
        let mut newest: BTreeMap<(SpaceId, u64), u64> = BTreeMap::new();
        for slot in &self.slots {
            let sequence = newest.entry((slot.page.0, slot.page.1)).or_default();
            *sequence = slot.sequence.max(*sequence);
        }
        self.slots.retain(|slot| newest[&(slot.page.0, slot.page.1)] == slot.sequence);
        for slot in &mut self.slots {
            (slot.ended, slot.durable, slot.free) = (true, true, false);
            (slot.space_gone, slot.space_going) = (false, false);
        }
        // Tokens go on: slots are found by those of their writes.
        Self { slots: self.slots, sequence: self.sequence, token: self.token, ..Self::new(self.pages) }
    }

    /// What there is, for the lender's policy.
    pub(crate) fn found(&self) -> Vec<Stored> {
        self.slots.iter().map(|slot| slot.page).collect()
    }
}
