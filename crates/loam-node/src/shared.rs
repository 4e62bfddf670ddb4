//! What the event loops and the keeper share.
//!
//! The lender's state is behind one lock. It is held for lookups and bookkeeping only (well under a microsecond for a small
//! request, some tens for a full one), never while contents are hashed, copied, sent or received.

use crate::cluster::{Front, Published};
use crate::drainer::StoreLink;
use crate::limits::{COMPLAINT_AGAIN, COMPLAINTS_MAX};
use crate::places::Places;
use crate::posts::{News, Posts};
use crate::regions::{Desk, Shares};
use crate::seats::Stays;
use crate::slab::Slab;
use crate::watch;
use loam_core::ids::SpaceId;
use loam_core::lender::Lender;
use loam_core::units::{BASE_PAGE_BYTES, Instant};
use loam_wire::limits::MOUNTS_MAX;
use loam_wire::{MountAt, NodeFigures};
use rustix::fd::OwnedFd;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Shared {
    lender: Mutex<Lender>,
    pub(crate) slab: Slab,
    /// If there is a disk store.
    pub(crate) store: Option<StoreLink>,
    /// What may fail together with this machine; empty if nobody has said.
    pub(crate) zone: String,
    /// Random: tells a borrower whether this is still the lender that has its pages.
    pub(crate) instance: u64,
    /// The cluster, as event loops see it.
    pub(crate) front: Front,
    pub(crate) places: Places,
    /// Base pages, as the programs of this machine that borrow tell.
    local_pages_told: AtomicU64,
    /// Mounts of this machine, by the number that each got here.
    mounts: Mutex<BTreeMap<u64, MountAt>>,
    pub(crate) stop: AtomicBool,
    started: std::time::Instant,
    keeper: OwnedFd,
    keeper_told: AtomicBool,
    pub(crate) posts: Posts,
    memory: Mutex<watch::Report>,
    /// Where calls about regions go.
    pub(crate) regions: Desk,
    /// Which connections of borrowers count.
    pub(crate) stays: Stays,
    /// What runs and regions may have. Locked after the lender.
    shares: Mutex<Shares>,
    /// What was complained of lately, and when.
    complaints: Mutex<BTreeMap<(IpAddr, String), std::time::Instant>>,
}

thread_local! {
    /// This thread has the lock of the shares.
    static HAS_SHARES: Cell<bool> = const { Cell::new(false) };
}

/// The shares, locked. (A guard in the middle of an expression lives until its end: that the order of locks is kept is not to be seen, so it
/// is checked.)
#[derive(Debug)]
pub(crate) struct SharesGuard<'a>(MutexGuard<'a, Shares>);

impl Deref for SharesGuard<'_> {
    type Target = Shares;

    fn deref(&self) -> &Shares {
        &self.0
    }
}

impl DerefMut for SharesGuard<'_> {
    fn deref_mut(&mut self) -> &mut Shares {
        &mut self.0
    }
}

impl Drop for SharesGuard<'_> {
    fn drop(&mut self) {
        HAS_SHARES.set(false);
    }
}

impl Shared {
    pub(crate) fn new(
        lender: Lender,
        slab: Slab,
        store: Option<StoreLink>,
        zone: String,
        front: Front,
        keeper: OwnedFd,
        regions: Desk,
    ) -> Self {
        let capacity = lender.stats().capacity.base_pages();
        Self {
            regions,
            shares: Mutex::new(Shares::new(capacity)),
            stays: Stays::default(),
            lender: Mutex::new(lender),
            slab,
            store,
            zone,
            instance: front.id.0,
            front,
            places: Places::default(),
            local_pages_told: AtomicU64::new(0),
            mounts: Mutex::default(),
            stop: AtomicBool::new(false),
            started: std::time::Instant::now(),
            keeper,
            keeper_told: AtomicBool::new(false),
            posts: Posts::default(),
            memory: Mutex::default(),
            complaints: Mutex::default(),
        }
    }

    /// Panics if this thread has the shares: another one that has the lender may be waiting for them.
    pub(crate) fn lender(&self) -> MutexGuard<'_, Lender> {
        assert!(!HAS_SHARES.get(), "the lender is locked before the shares");
        self.lender.lock().expect("a thread that breaks an invariant ends the lender")
    }

    /// What runs and regions may have; the lender is locked before it, if at all.
    pub(crate) fn shares(&self) -> SharesGuard<'_> {
        assert!(!HAS_SHARES.replace(true), "the shares are locked once");
        SharesGuard(self.shares.lock().expect("nothing panics under it"))
    }

    /// Whether this was not complained of for a while; from now on it was.
    pub(crate) fn is_news(&self, of: IpAddr, text: &str) -> bool {
        let now = std::time::Instant::now();
        let mut complaints = self.complaints.lock().expect("nothing panics under it");
        complaints.retain(|_, at| now < *at + COMPLAINT_AGAIN);
        let key = (of, text.to_owned());
        let known = complaints.contains_key(&key);
        if !known && complaints.len() < COMPLAINTS_MAX {
            complaints.insert(key, now);
        }
        !known
    }

    /// The core's time: nanoseconds since the start.
    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).expect("it does not run for 500 years"))
    }

    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// What this node says of its own memory.
    pub(crate) fn own_figures(&self, number: u64) -> NodeFigures {
        let stats = self.lender().stats();
        NodeFigures {
            id: self.instance.into(),
            number: number.into(),
            capacity_bytes: stats.capacity.0.into(),
            used_bytes: (stats.pages * BASE_PAGE_BYTES as u64).into(),
            free_bytes: stats.free.0.into(),
            local_pages: self.local_pages().into(),
            uptime_s: self.uptime_s().into(),
        }
    }

    /// The cluster, or this node alone.
    pub(crate) fn published(&self) -> Arc<Published> {
        self.front.published(|| self.own_figures(0))
    }

    /// There is memory to give back, pages to free, or the end to see: wakes the keeper once.
    pub(crate) fn tell_keeper(&self) {
        if !self.keeper_told.swap(true, Ordering::AcqRel) {
            ring(&self.keeper);
        }
    }

    /// Wakes whoever has something to do for the lender by now.
    pub(crate) fn tell_of(&self, lender: &Lender) {
        if lender.has_work() {
            self.tell_keeper();
        }
        if let Some(store) = self.store.as_ref().filter(|_| lender.has_disk_effect()) {
            store.tell();
        }
    }

    /// The keeper is about to look at everything.
    pub(crate) fn keeper_looks(&self) {
        silence(&self.keeper);
        self.keeper_told.store(false, Ordering::Release);
    }

    pub(crate) fn keeper_bell(&self) -> &OwnedFd {
        &self.keeper
    }

    /// Leaves a frame for the loops; they have to be woken.
    pub(crate) fn post(&self, to: SpaceId, news: News, frame: Vec<u8>) {
        self.posts.leave(self.now(), to, news, frame);
    }

    /// A program of this machine has told of so many local pages, or has gone with them.
    pub(crate) fn local_pages_are(&self, more: u64, less: u64) {
        self.local_pages_told.fetch_add(more, Ordering::Relaxed);
        self.local_pages_told.fetch_sub(less, Ordering::Relaxed);
    }

    /// Base pages of the programs of this machine that borrow. Whoever tells may be wrong: no more than the machine has.
    pub(crate) fn local_pages(&self) -> u64 {
        let machine = rustix::system::sysinfo();
        let machine_bytes = u128::from(machine.totalram) * u128::from(machine.mem_unit);
        let machine_pages = machine_bytes / BASE_PAGE_BYTES as u128;
        let told = self.local_pages_told.load(Ordering::Relaxed);
        u64::try_from(machine_pages).map_or(told, |most| told.min(most))
    }

    /// A mount of this machine has said where it is. Answers the number by which it is forgotten again; `None`: there are too many.
    pub(crate) fn mount_is_here(&self, at: MountAt) -> Option<u64> {
        let mut mounts = self.mounts.lock().expect("nothing panics under it");
        let number = mounts.keys().last().map_or(0, |last| last + 1);
        (mounts.len() < MOUNTS_MAX).then(|| mounts.insert(number, at))?;
        Some(number)
    }

    pub(crate) fn mount_is_gone(&self, number: u64) {
        self.mounts.lock().expect("nothing panics under it").remove(&number);
    }

    /// Mounts of this machine that show this source.
    pub(crate) fn mounts_of(&self, group: u64) -> Vec<MountAt> {
        let mounts = self.mounts.lock().expect("nothing panics under it");
        mounts.values().filter(|at| at.group() == group).copied().collect()
    }

    /// What the watch has found last.
    pub(crate) fn memory(&self) -> MutexGuard<'_, watch::Report> {
        self.memory.lock().expect("nothing panics under it")
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Wakes who waits for an eventfd.
pub(crate) fn ring(bell: &OwnedFd) {
    // It only fails when its counter is full, and then it is ringing already.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Makes an eventfd wait for the next ring.
pub(crate) fn silence(bell: &OwnedFd) {
    // It only fails when it was not ringing.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}
