//! The runs that this mount holds in memory, least recently used out first.
//!
//! Who needs a run *claims* it: it is there, or it is the claimer's to get, or another thread is getting it already and can be
//! waited for, so a run is read once however many ask.
//!
//! A run of which another mount is known to hold a copy is a *duplicate*, else a *singlet* (gms-1995, sections 3.1 and 4.5). When room
//! is needed, a singlet whose turn it is stays once more, so that duplicates leave before the last copy in the cluster does.

use crate::figures::Figures;
use crate::run::{RUN_BYTES, RUN_OVERHEAD_BYTES, Run, RunKey};
use loam_core::replacement::{Lru, Numbering, Order};
use loam_disk::Pieces;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Singlets that are passed over for one victim at most.
const SPARED_MAX: usize = 32;
/// The least that a cache may hold: two of the kernel's largest reads.
pub(crate) const CACHE_BYTES_MIN: u64 = 16 * (RUN_BYTES as u64 + RUN_OVERHEAD_BYTES);

/// Runs whose memory is taken from the system at a time: two of the kernel's largest reads.
const BLOCK_RUNS: u32 = 16;

#[derive(Debug)]
struct Slot {
    run: Arc<Run>,
    /// Another mount is known to have it too.
    duplicate: bool,
    /// It was its turn to leave, and it stayed.
    spared: bool,
}

#[derive(Debug, Default)]
struct State {
    numbers: Numbering<RunKey>,
    order: Lru,
    slots: Vec<Option<Slot>>,
    held_bytes: u64,
    /// Runs that somebody is getting.
    pending: HashSet<RunKey>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    room_bytes: u64,
    /// Are there others who could have copies? If not, every run is a singlet, and none is spared.
    shared: bool,
    state: Mutex<State>,
    arrived: Condvar,
    /// Memory for runs, also of those that are on their way. Large pages are not asked for: several threads would each have one cleared, and a virtual machine
    /// may have to get them from its host; measured, that was slower.
    pub(crate) buffers: Arc<Pieces>,
    figures: Arc<Figures>,
}

/// Whether a run is there.
#[derive(Debug)]
pub(crate) enum Claim {
    /// It is.
    Hit(Arc<Run>),
    /// It is to be got by whoever claimed it.
    Mine,
    /// Another thread is getting it.
    Others,
}

/// Runs that a thread has to get. What it has not brought when this is dropped, others may claim.
#[derive(Debug)]
pub(crate) struct Claimed<'a> {
    cache: &'a Cache,
    keys: Vec<RunKey>,
}

impl Claimed<'_> {
    /// Which are still to be got, in the order of the claim.
    pub(crate) fn keys(&self) -> &[RunKey] {
        &self.keys
    }

    /// Brings some; the answer is what had to leave for them.
    pub(crate) fn bring(&mut self, runs: &[(RunKey, Arc<Run>)], duplicate: bool) -> Vec<RunKey> {
        for (key, _) in runs {
            let at = self.keys.iter().position(|claimed| claimed == key);
            self.keys.remove(at.expect("only what was claimed is brought"));
        }
        self.cache.insert(runs, duplicate)
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut state = self.cache.state();
            for key in &self.keys {
                assert!(state.pending.remove(key), "what is claimed is pending");
            }
            drop(state);
            self.cache.arrived.notify_all();
        }
    }
}

impl Cache {
    /// Holds `room_bytes`, at least [`CACHE_BYTES_MIN`].
    pub(crate) fn new(room_bytes: u64, shared: bool, figures: Arc<Figures>) -> Self {
        assert!(room_bytes >= CACHE_BYTES_MIN);
        Self {
            room_bytes,
            shared,
            state: Mutex::default(),
            arrived: Condvar::new(),
            buffers: Pieces::new(RUN_BYTES, BLOCK_RUNS),
            figures,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims each of these runs.
    pub(crate) fn claim(&self, keys: impl Iterator<Item = RunKey>) -> (Vec<Claim>, Claimed<'_>) {
        let mut state = self.state();
        let mut mine = Vec::new();
        let claims = keys
            .map(|key| match state.touch(key) {
                Some(run) => Claim::Hit(run),
                None if state.pending.insert(key) => {
                    mine.push(key);
                    Claim::Mine
                }
                None => Claim::Others,
            })
            .collect();
        (claims, Claimed { cache: self, keys: mine })
    }

    /// Waits until a run that another thread is getting is there, or not got.
    pub(crate) fn wait(&self, key: RunKey, limit: Duration) -> Option<Arc<Run>> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        while state.pending.contains(&key) {
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.touch(key)
    }

    fn insert(&self, runs: &[(RunKey, Arc<Run>)], duplicate: bool) -> Vec<RunKey> {
        let mut evicted = Vec::new();
        let mut state = self.state();
        for (key, run) in runs {
            assert!(state.pending.remove(key), "what is brought was pending");
            let number = state.numbers.number(*key);
            if state.slots.len() <= number as usize {
                state.slots.resize_with(number as usize + 1, || None);
            }
            state.held_bytes += run.cost_bytes();
            let slot = Slot { run: Arc::clone(run), duplicate, spared: false };
            assert!(state.slots[number as usize].replace(slot).is_none(), "a pending run is not there");
            state.order.inserted(number);
            self.make_room(&mut state, &mut evicted);
        }
        drop(state);
        self.arrived.notify_all();
        evicted
    }

    fn make_room(&self, state: &mut State, evicted: &mut Vec<RunKey>) {
        let (mut spared, evicted_before) = (0, evicted.len());
        while state.held_bytes > self.room_bytes {
            let number = state.order.victim().expect("what holds bytes is in the order");
            let slot = state.slots[number as usize].as_mut().expect("what is in the order is there");
            if self.shared && !slot.duplicate && !slot.spared && spared < SPARED_MAX {
                slot.spared = true;
                spared += 1;
                state.order.inserted(number);
                continue;
            }
            let key = state.numbers.key(number);
            let slot = state.slots[number as usize].take().expect("looked at above");
            state.held_bytes -= slot.run.cost_bytes();
            state.numbers.remove(key);
            evicted.push(key);
        }
        self.figures.runs_evicted.add((evicted.len() - evicted_before) as u64);
        self.figures.runs_spared.add(spared as u64);
    }

    /// A run for another mount, which has a copy from then on. That is no use of this mount's own.
    pub(crate) fn lend(&self, key: RunKey) -> Option<Arc<Run>> {
        let mut state = self.state();
        let number = state.numbers.get(key)?;
        let slot = state.slots[number as usize].as_mut().expect("what has a number is there");
        slot.duplicate = true;
        Some(Arc::clone(&slot.run))
    }

    /// The directory says that no other mount has it any more.
    pub(crate) fn is_last_copy(&self, key: RunKey) {
        let mut state = self.state();
        if let Some(number) = state.numbers.get(key) {
            state.slots[number as usize].as_mut().expect("what has a number is there").duplicate = false;
        }
    }

    /// All that is held.
    pub(crate) fn keys(&self) -> Vec<RunKey> {
        let state = self.state();
        let held = state.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        held.map(|(number, _)| state.numbers.key(number as u32)).collect()
    }

    /// Bytes held, and room.
    pub(crate) fn held_bytes(&self) -> (u64, u64) {
        (self.state().held_bytes, self.room_bytes)
    }
}

impl State {
    /// Uses a run, if it is there.
    fn touch(&mut self, key: RunKey) -> Option<Arc<Run>> {
        let number = self.numbers.get(key)?;
        self.order.touched(number);
        let slot = self.slots[number as usize].as_mut().expect("what has a number is there");
        slot.spared = false;
        Some(Arc::clone(&slot.run))
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
