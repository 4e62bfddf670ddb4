//! Between the policy's batches and the hands.

use super::Agent;
use super::process::{Hand, Order};
use super::protect::Guard;
use loam_core::borrower::{BatchId, PageFate, SpaceKey};
use loam_hand::{kind, result};
use loam_wire::page_hash;
use rustix::fd::AsFd;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

/// `MADV_POPULATE_WRITE`: as a write would, it makes a page the process's own, and changes nothing in it. It
/// reports where a write is not allowed, so a mapping whose protection has just changed costs no SIGSEGV.
pub(super) const MADV_POPULATE_WRITE: u32 = 23;
/// Pages of a finished batch that are taken in between two looks for faults: some forty microseconds.
const PIECE_PAGES: usize = 32;

impl Agent<'_> {
    /// Has a batch taken away.
    pub(super) fn order_eviction(&mut self, batch: BatchId) {
        let (key, pages) = self.borrower.batch_pages(batch);
        let mut spans: Vec<(u64, u32, u32)> = Vec::new();
        for &base in pages {
            match spans.last_mut() {
                Some((address, count, _)) if (*address >> 12) + u64::from(*count) == base => *count += 1,
                _ => spans.push((base << 12, 1, 0)),
            }
        }
        match self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) {
            Some(hand) => hand.order(Order { kind: kind::EVICT, spans, batch: Some(batch) }),
            None => self.cancel_batch(batch),
        }
    }

    /// Has shared pages made the process's own.
    pub(super) fn order_populate(&mut self, key: SpaceKey, base: u64, pages: u32) {
        self.guard(key, base, pages, Guard::Release); // the hand would wait for us, with all that it has to do
        if let Some(hand) = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) {
            let spans = vec![(base << 12, pages, MADV_POPULATE_WRITE)];
            hand.order(Order { kind: kind::ADVISE, spans, batch: None });
        }
    }

    /// A batch that no hand will take, or go on with: every page that is left stays.
    pub(super) fn cancel_batch(&mut self, batch: BatchId) {
        let count = self.borrower.batch_pages(batch).1.len();
        for index in self.borrower.batch_reported(batch)..count {
            self.borrower.handle_fate(batch, index, PageFate::Cancelled);
        }
        let now = self.now();
        self.borrower.handle_batch_done(now, batch);
    }

    /// Takes in a piece of what hands have finished. True: there may be more.
    pub(super) fn take_finished_piece(&mut self) -> bool {
        let mut left = PIECE_PAGES;
        // In turn, so that one whose hand is busy does not hold the others up.
        for _ in 0..self.processes.len() {
            let after = (Bound::Excluded(self.pieces_turn), Bound::Unbounded);
            let next = self.processes.range(after).next().or_else(|| self.processes.first_key_value());
            let Some((&key, process)) = next else { break };
            self.pieces_turn = key;
            let changes = !process.events.is_empty();
            left = self.take_finished(key, left);
            if changes {
                self.deal_with_events(key); // they wait for nothing but the hand
            }
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Takes in what one hand has finished, `most` pages of it at most. Answers how many more it might have been.
    pub(super) fn take_finished(&mut self, key: SpaceKey, most: usize) -> usize {
        let mut left = most;
        while left > 0
            && let Some((slot, batch)) =
                self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()).and_then(Hand::done)
        {
            left = self.take_batch(key, slot, batch, left);
        }
        if let Some(hand) = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) {
            hand.pump();
        }
        if left < most {
            self.drain();
        }
        left
    }

    /// Takes in what the hand of a process that has ended had done, however far it was: what was taken away before a fork is
    /// the child's, too.
    pub(super) fn take_last(&mut self, key: SpaceKey) {
        let hand = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut());
        for (slot, batch) in hand.map_or_else(Vec::new, Hand::take_batches) {
            if let Some(slot) = slot {
                let count = self.borrower.batch_pages(batch).1.len();
                let process = &self.processes[&key];
                let in_doubt = process.in_doubt_since.is_some()
                    && process.hand.as_ref().is_some_and(|hand| hand.was_at(slot))
                    && !process.uffd.is_dead(process.probe << 12);
                self.take_fates(key, slot, batch, count, in_doubt);
            }
            self.cancel_batch(batch); // what waited, and has no slot
        }
        self.drain();
    }

    /// Goes on with a finished batch, `most` pages at most; answers how many more it might have been.
    fn take_batch(&mut self, key: SpaceKey, slot: usize, batch: BatchId, most: usize) -> usize {
        let count = self.borrower.batch_pages(batch).1.len();
        let first = self.borrower.batch_reported(batch);
        let end = count.min(first.saturating_add(most));
        let is_whole = self.take_fates(key, slot, batch, end, false);
        let process = self.processes.get_mut(&key).expect("the caller has it");
        let pid = process.pid.map_or(0, |p| p.as_raw_nonzero().get());
        if end == count {
            process.hand.as_mut().expect("the caller has it").free(slot);
            let now = self.now();
            self.borrower.handle_batch_done(now, batch);
        }
        if !is_whole {
            self.end(format!(
                "the hand of process {pid} did not say what became of a page: the program is ended, as its memory could be wrong"
            ));
        }
        most - (end - first)
    }

    /// Tells the policy what became of a batch's pages, as far as `end`. False: the hand has not said it of each; of the others it counts
    /// as not taken, unless it is in doubt whether they were, and whether those were copied that were.
    fn take_fates(&mut self, key: SpaceKey, slot: usize, batch: BatchId, end: usize, in_doubt: bool) -> bool {
        let hand = self.processes[&key].hand.as_ref().expect("the caller has it");
        let mut is_whole = true;
        for index in self.borrower.batch_reported(batch)..end {
            let fate = match hand.command(slot).results[index].load(Relaxed) {
                result::NONE | result::MOVED if in_doubt => PageFate::Unknown,
                result::MOVED => {
                    // Judged in our copy: the program could write to the shared one.
                    let buffer = self.borrower.batch_buffer(batch);
                    let page = self.pool.page_mut(buffer.0 as usize);
                    hand.shared.copy_out(slot, index, page);
                    PageFate::Moved((!is_zero(page)).then(|| page_hash(page)))
                }
                result::HOLE => PageFate::Hole,
                result::BUSY => PageFate::Busy,
                result::DENIED => PageFate::Denied,
                result::CANCELLED => PageFate::Cancelled,
                _ => {
                    is_whole = false;
                    PageFate::Cancelled
                }
            };
            self.borrower.handle_fate(batch, index, fate);
        }
        is_whole
    }

    /// The hand has rung, or its process has ended.
    pub(super) fn take_hand(&mut self, key: SpaceKey) {
        let Some(hand) = self.processes.get(&key).and_then(|p| p.hand.as_ref()) else { return };
        if !crate::packets::take_bells(hand.socket.as_fd()) {
            self.hand_gone(key);
        }
    }
}

/// All 4,096 bytes are zero.
pub(super) fn is_zero(page: &[u8; 4096]) -> bool {
    // Most pages that are not zero show it at once.
    page[..64].iter().all(|&b| b == 0) && page.chunks_exact(128).all(|c| c.iter().fold(0, |a, &b| a | b) == 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_byte_makes_a_page_not_zero() {
        let mut page = [0_u8; 4096];
        assert!(super::is_zero(&page));
        for at in [0, 63, 64, 127, 128, 2000, 4095] {
            page[at] = 1;
            assert!(!super::is_zero(&page), "byte {at}");
            page[at] = 0;
        }
    }
}
