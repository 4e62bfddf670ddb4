//! Work that no thread of the program waits for: taking in what hands have finished, writing and sending it.
//!
//! It is done in pieces of some forty microseconds of each kind, and between two of them the loop looks for faults. As one piece, 256
//! pages on their way out would hold up every fault for a millisecond. (Pieces of a quarter the size cost more in frames, answers and
//! wake-ups than they gave.)

use super::Agent;
use loam_core::units::BasePages;

/// Pieces between two turns of the loop, at most: other processes, lenders and the disk are waiting too.
const PIECES_MAX: u32 = 8;
/// Base pages that are asked for between two looks for answers: some ten microseconds.
const PLAN_PAGES: u64 = 32;

impl Agent<'_> {
    /// Does what waits, looking for faults and their answers in between. True: there is more.
    pub(super) fn work(&mut self) -> bool {
        for _ in 0..PIECES_MAX {
            if !self.work_piece() {
                return false;
            }
            // Whoever faulted last is the likeliest to fault again; the others wait for the turn's end.
            if let Some(key) = self.faulted {
                self.read_events(key);
            }
            if self.borrower.waiting() > BasePages(0) {
                self.look_for_answers();
            }
        }
        true
    }

    /// Does a piece of each kind of work that waits. True: there is more.
    pub(super) fn work_piece(&mut self) -> bool {
        let plans = self.plan_piece();
        self.store_piece() || plans
    }

    /// The same without fetch plans.
    pub(super) fn store_piece(&mut self) -> bool {
        // What goes out gives buffers back, which what comes in needs.
        self.submit_piece();
        if self.can_send() {
            self.flush();
        }
        let pages = self.take_finished_piece();
        pages || self.has_more_to_do()
    }

    /// Asks for a piece of what is behind the pages that threads wait for. False: there is nothing.
    pub(super) fn plan_piece(&mut self) -> bool {
        if !self.borrower.has_plans() {
            return false;
        }
        // A thread that was just woken may wait for this very core. One that waits for an answer must not wait for others' slices.
        if self.borrower.waiting() == BasePages(0) {
            rustix::thread::sched_yield();
        }
        let now = self.now();
        self.borrower.handle_plans(now, PLAN_PAGES);
        self.drain();
        self.flush();
        true
    }

    /// There is something to ask for, to write or to send that can be begun now. (What hands have finished is looked for by
    /// `prepare_to_wait`.)
    pub(super) fn has_more_to_do(&self) -> bool {
        self.borrower.has_plans()
            || self.can_send()
            || self.disk.as_ref().is_some_and(|disk| disk.file.can_submit())
    }
}
