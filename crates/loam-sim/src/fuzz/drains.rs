//! A lender's disk store and what its thread does, as the live drainer: writes, forgets, reads, and nothing told before it is durable.

use super::node::Node;
use super::script::StoreFault;
use super::sim::{Event, Sabotage, Sim, StoreEvent, ToBorrower};
use super::store::{Read, Store, Stored};
use loam_core::borrower::CopyIndex;
use loam_core::ids::{SpaceId, Version};
use loam_core::lender::{DiskEffect, Drain, Drained};
use loam_core::units::Duration;

/// How many times as long a slow disk takes,
const SLOW: u64 = 200;
/// and how long at most: it is looked for what is left when all is over.
const SLOWEST: Duration = Duration::from_millis(30_000);

impl Node {
    fn store_fault(&self, sim: &Sim) -> Option<StoreFault> {
        let fault = self.store.as_ref()?.fault;
        fault.filter(|(_, until)| !sim.quiet && *until > sim.now).map(|(fault, _)| fault)
    }

    fn store_after(&self, us: impl Fn(&super::script::Cache) -> u64, event: StoreEvent, sim: &mut Sim) {
        let slow = if self.store_fault(sim) == Some(StoreFault::Slow) { SLOW } else { 1 };
        let typical = us(sim.settings.cache.as_ref().expect("there is a store")) * slow;
        let delay = sim.store_dice.delay(Duration::from_micros(typical)).min(SLOWEST);
        sim.after(delay, Event::Store { lender: self.index, life: self.life, event });
    }

    fn the_store(&mut self) -> &mut Store {
        self.store.as_mut().expect("only a lender with a store has such events")
    }

    /// What the lender wants of its disk.
    pub(super) fn work_store(&mut self, sim: &mut Sim) {
        while let Some(effect) = self.core.poll_disk_effect() {
            match effect {
                DiskEffect::Forget(forget) => {
                    for (index, version) in forget.pages {
                        self.the_store().forget((forget.space, index, version));
                    }
                }
                DiskEffect::ForgetSpace(space) => {
                    self.the_store().forget_space(space);
                    self.sync(sim);
                }
                DiskEffect::Drain(drain) => self.drain(drain, sim),
            }
        }
    }

    fn drain(&mut self, drain: Drain, sim: &mut Sim) {
        let ticket = self.core.read_begin();
        let values: Vec<u64> = drain.pages.iter().map(|page| self.slab[&page.slot]).collect();
        self.core.read_end(ticket);
        let full = self.store_fault(sim) == Some(StoreFault::Full) && sim.store_dice.once_in(2);
        match self.the_store().write(drain, &values, full, &mut sim.store_dice) {
            Ok(token) => self.store_after(|cache| cache.write_us, StoreEvent::Written(token), sim),
            Err((drain, drained)) => {
                sim.log(|| {
                    format!("lender {}: {} pages are not written: {drained:?}", self.index, drain.pages.len())
                });
                self.core.handle_drained(sim.now, drain, drained);
            }
        }
    }

    fn sync(&mut self, sim: &mut Sim) {
        if self.the_store().begins_sync() {
            self.store_after(|cache| cache.sync_us, StoreEvent::Synced, sim);
        }
    }

    /// The disk has done something.
    pub(crate) fn store_event(&mut self, event: StoreEvent, sim: &mut Sim) {
        let fault = self.store_fault(sim);
        match event {
            StoreEvent::Written(token) => {
                let broken = self.the_store().is_broken();
                if Self::tells_early(sim)
                    && let Some(drain) = self.the_store().take(token)
                {
                    self.drained(drain, Drained::Stored, sim);
                }
                let failed = broken || (fault == Some(StoreFault::Writes) && sim.store_dice.once_in(2));
                if let Some(drain) = self.the_store().written(token, failed) {
                    self.drained(drain, Drained::Failed, sim);
                }
                self.sync(sim);
            }
            StoreEvent::Synced => {
                let failed = fault == Some(StoreFault::Broken);
                let drained = if failed { Drained::Failed } else { Drained::Stored };
                for drain in self.the_store().synced(failed) {
                    self.drained(drain, drained, sim);
                }
                self.sync(sim);
            }
            StoreEvent::Read(token) => self.was_read(token, sim),
        }
        self.after(sim);
    }

    fn drained(&mut self, drain: Drain, drained: Drained, sim: &mut Sim) {
        sim.log(|| {
            let pages = drain.pages.iter().map(|page| page.index).collect::<Vec<_>>();
            format!("lender {}: copies {pages:?} written: {drained:?}", self.index)
        });
        self.core.handle_drained(sim.now, drain, drained);
    }

    /// Pages that only the disk has are asked for.
    pub(super) fn read_store(
        &mut self,
        wire: usize,
        request: u64,
        pages: &[(CopyIndex, Version)],
        space: SpaceId,
        sim: &mut Sim,
    ) {
        for &(copy, version) in pages {
            let page = (space, u64::from(copy.0), version);
            let token = self.the_store().begin_read(Read { wire, request, page });
            self.store_after(|cache| cache.read_us, StoreEvent::Read(token), sim);
        }
    }

    fn was_read(&mut self, token: u64, sim: &mut Sim) {
        let read = self.the_store().reads.remove(&token).expect("it was begun");
        let (space, index, version) = read.page;
        let (request, copy) = (read.request, CopyIndex(index as u32));
        let fails = self.store_fault(sim) == Some(StoreFault::Reads) && sim.store_dice.once_in(2);
        if fails {
            sim.rot(self.index, read.page);
        }
        let value = self.the_store().read(read.page).filter(|_| !fails);
        let message = match value {
            Some(value) => ToBorrower::Page { request, pages: vec![(copy, version, value)] },
            None => {
                self.core.handle_disk_lost(space, index, version);
                ToBorrower::Miss { request, pages: vec![(copy, version)] }
            }
        };
        sim.log(|| format!("lender {}: reads copy {index} from its disk: {value:?}", self.index));
        sim.send_to_borrower(read.wire, message);
    }

    /// A bit flips in some slots.
    pub(crate) fn rot(&mut self, pages: u64, sim: &mut Sim) {
        let Some(store) = &mut self.store else { return };
        let rotten: Vec<Stored> = store.rot(pages, &mut sim.store_dice);
        sim.log(|| format!("lender {}: slots of {rotten:?} rot", self.index));
        rotten.into_iter().for_each(|page| sim.rot(self.index, page));
    }

    /// A lender that says too early what its disk has, on purpose.
    pub(super) fn tells_early(sim: &Sim) -> bool {
        sim.sabotage == Sabotage::TellsTooEarly
    }
}
