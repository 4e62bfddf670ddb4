//! Evictions in the middle of which a hand has ended, of memory that somebody still has: a child that was made by `vfork` and outlives its parent.
//!
//! A page may be in the staging window then and nowhere else: the hand has not said that it moved it, or has not copied it yet. The window is the child's, too, so what is in it is
//! taken from there, by way of `/proc`. The hand has ended, the program knows nothing of the window, and whoever touches a page that has gone waits for us. What others do to
//! their mappings meanwhile (the kernel does it at once, and they wait until we have read of it) is dealt with after this.

use super::Agent;
use super::evictions::is_zero;
use crate::procfs::{self, Memory, Pagemap, ProcError};
use loam_core::borrower::{BatchId, SpaceKey};
use loam_core::units::BASE_PAGE_BYTES;
use loam_hand::result;
use rustix::process::Pid;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

/// The memory of a process that has ended, in the hands of another.
struct Heir {
    pagemap: Pagemap,
    memory: Memory,
}

impl Heir {
    fn has(&self, base: u64) -> Result<bool, ProcError> {
        let mut found = Vec::new();
        self.pagemap.present(base << 12, (base + 1) << 12, &mut found)?;
        Ok(!found.is_empty())
    }
}

impl Agent<'_> {
    /// Finds out what became of the pages that a hand was at when it ended, and says it in its place. False: nobody can say it, now at least.
    pub(super) fn settle_halfway(&self, key: SpaceKey) -> bool {
        let Some(process) = self.processes.get(&key) else { return true };
        let Some(hand) = &process.hand else { return true };
        let Some((slot, batch)) = hand.running() else { return true };
        let (control, command) = (hand.shared.control(), hand.command(slot));
        let is_void = command.epoch.load(Relaxed) != control.epoch.load(Relaxed);
        if is_void || process.uffd.is_dead(process.probe << 12) {
            return true;
        }
        // What has been moved is said, and copied, before the gate is given back.
        if control.gate.try_lock() {
            return control.gate.give_back();
        }
        let settled = match self.heir(key) {
            Some(heir) => self.take_from_window(&heir, key, slot, batch),
            None => Ok(false),
        };
        tracing::debug!(?key, ?settled, "its hand ended in the middle of an eviction");
        // If nobody has it any more there is nothing that could be wrong.
        settled.unwrap_or_else(|_| process.uffd.is_dead(process.probe << 12))
    }

    fn take_from_window(
        &self,
        heir: &Heir,
        key: SpaceKey,
        slot: usize,
        batch: BatchId,
    ) -> Result<bool, ProcError> {
        let process = &self.processes[&key];
        let hand = process.hand.as_ref().expect("the caller has it");
        let mut is_known = true;
        for (index, &base) in self.borrower.batch_pages(batch).1.iter().enumerate() {
            let said = &hand.command(slot).results[index];
            let before = said.load(Relaxed);
            if before != result::NONE && before != result::MOVED {
                continue;
            }
            let (at, stays) = (process.window.start + index as u64, heir.has(base)?);
            let moved = if heir.has(at)? { Some(heir.memory.page(at << 12)?) } else { None };
            // Zeros may be the kernel's (see the hand, `move_pages`). With other contents it has been moved, and what is in its place has come there since.
            let moved = moved.filter(|page| !stays || !is_zero(page));
            if let Some(page) = moved {
                is_known &= hand.shared.copy_in(slot, index, &page).is_ok();
                said.store(result::MOVED, Relaxed);
            } else if stays {
                said.store(result::CANCELLED, Relaxed);
            } else {
                // Of what was not moved nothing was there. What was moved should be in the window.
                is_known &= before == result::NONE;
            }
        }
        Ok(is_known)
    }

    /// The memory of this process, if a process has it by which we may look at it.
    fn heir(&self, key: SpaceKey) -> Option<Heir> {
        let process = &self.processes[&key];
        let inode = rustix::fs::fstat(process.hand.as_ref()?.shared.memfd()).ok()?.st_ino;
        let tree = if self.program.is_attached() { procfs::everybody() } else { self.tree() };
        // Itself as well: it may be on the way to another program, and its memory there until it is.
        let others = self.processes.values().filter(|p| p.hand.is_some() && p.key != key);
        let others: HashSet<Pid> = others.filter_map(|p| p.pid).collect();
        tree.into_iter().filter(|pid| !others.contains(pid)).find_map(|pid| {
            let heir = Heir { pagemap: Pagemap::open(pid).ok()?, memory: Memory::open(pid).ok()? };
            // Looked at last: if it has executed another program before, what it has mapped now says so. Each hand's memory is a file of its own.
            let mappings = procfs::mappings(pid).ok()?;
            let is_it = |m: &procfs::Mapping| {
                m.shared && m.inode == inode && m.bytes() == loam_hand::SHARED_BYTES as u64
            };
            mappings.iter().any(is_it).then_some(heir)
        })
    }
}

const _: () = assert!(BASE_PAGE_BYTES == 1 << 12);
