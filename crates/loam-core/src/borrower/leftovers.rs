//! Copies of what a program has discarded or unmapped, or a process has left behind at its end.
//!
//! Nothing refers to them any more, and nobody waits for them to go: they are given back a piece at a time. All at once, some gigabytes of them would hold up every
//! fault for half a second, and what is to be told to their lenders would take more memory than the record of them.

use super::Borrower;
use super::copies::CopyIndex;
use alloc::vec::Vec;

/// So many are given back at a time: some five microseconds.
const PIECE: usize = 128;

/// References to copies that are to be given back.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Vec<CopyIndex>);

impl Leftovers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, copy: CopyIndex) {
        self.0.push(copy);
    }

    /// Each reference that is still to be given back.
    pub(super) fn iter(&self) -> impl Iterator<Item = CopyIndex> {
        self.0.iter().copied()
    }
}

impl Borrower {
    /// Gives some of them back.
    pub(super) fn give_back_some(&mut self) {
        self.give_back(PIECE);
    }

    /// Gives all of them back: what they take is wanted, or there is nobody left who could wait.
    pub(super) fn give_back_all(&mut self) {
        self.give_back(usize::MAX);
    }

    fn give_back(&mut self, most: usize) {
        if self.leftovers.is_empty() {
            return;
        }
        for _ in 0..most {
            let Some(copy) = self.leftovers.0.pop() else {
                self.leftovers = Leftovers::default(); // and with them the list, which may be large
                break;
            };
            self.release_ref(copy);
        }
    }
}
