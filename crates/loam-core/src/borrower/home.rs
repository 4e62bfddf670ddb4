//! What stays with lenders of pages that are home.
//!
//! Where there is room a copy stays, so that a page which leaves unchanged need not travel again. Where a lender hardly has room nothing stays behind: the two nodes swap
//! pages, as in gms-1995, section 3.1. Else lenders would fill with what nobody needs from them, and what is to leave would find no room though there is
//! enough for all that is away.

use super::Borrower;
use super::copies::{CopyIndex, LenderIndex, Stored};
use super::evict::BATCH_PAGES;
use super::placement::LenderState;
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use alloc::vec::Vec;

/// As many copies are given up at a time, if there are as many: room for some batches.
const GIVEN_UP_AT_ONCE: u64 = 1024;
/// So many base pages are looked at for that before faults are looked at again.
const LOOKED_AT_ONCE: u64 = 4096;

/// Copies of pages that are home, as far as they have not been looked through.
#[derive(Debug, Default)]
pub(super) struct Home {
    /// Lenders at which pages that have come home left copies since all was begun to be looked through, or that could spare the room then. One bit each.
    left_at: [u64; 4],
    /// Where that goes on; `None`: it is not under way.
    next: Option<(SpaceKey, u64)>,
    /// It was stopped for the faults alone.
    pub(super) goes_on: bool,
}

impl Home {
    fn note(&mut self, LenderIndex(n): LenderIndex) {
        self.left_at[usize::from(n) / 64] |= 1 << (n % 64);
    }

    fn has_at(&self, n: usize) -> bool {
        self.left_at[n / 64] >> (n % 64) & 1 == 1
    }
}

/// It has hardly room for a batch, and might have more.
fn is_crowded(lender: &LenderState) -> bool {
    lender.up && (!lender.has_room() || lender.room < BATCH_PAGES as u64)
}

impl Borrower {
    /// A copy's page has come home. Where its lender hardly has room nothing stays behind: the two nodes swap pages, as in gms-1995, section 3.1.
    /// Where there is room a copy stays, so that a page which leaves unchanged need not travel again.
    pub(super) fn came_home(&mut self, i: CopyIndex) {
        let c = self.copies.get(i);
        let swaps = self.config.disk && c.disk == Stored::Yes && c.at_lender == Stored::Yes;
        let asked = || self.fetches.get(&i).is_some_and(|fetch| fetch.at_lender.is_some());
        if swaps && self.lenders[usize::from(c.lender.0)].is_tight() && !asked() {
            self.drop_at_lender(i, c.version);
        }
    }

    /// A page has been installed. Without a disk its contents may not be given up before; with one [`Self::came_home`] has seen to it.
    pub(super) fn is_home(&mut self, key: SpaceKey, base: u64) {
        if self.config.disk {
            return;
        }
        let entry = self.entry(key, base);
        let (BaseState::Local, Some(copy)) = (entry.state, entry.copy) else { return };
        if self.is_at(copy, LenderState::is_tight) {
            self.give_up(key, base);
        } else {
            self.note_home(copy);
        }
    }

    /// A page that is home has, or may have, left this.
    pub(super) fn note_home(&mut self, copy: CopyIndex) {
        for place in self.copies.get(copy).places() {
            self.home.note(place.lender);
        }
    }

    /// Pages are to leave, and lenders have hardly room for a batch: copies of what is home are given up. What nobody could take so far is offered again.
    /// Returns how many base pages were looked at.
    pub(super) fn make_room_at_lenders(&mut self) -> u64 {
        if self.lenders_suffice() {
            return 0;
        }
        if self.lenders.iter().any(is_crowded) {
            self.give_back_all();
        }
        // What is not installed yet is home by the record alone.
        if self.config.disk || self.installs_pending > 0 || self.lenders_suffice() {
            return 0;
        }
        let (mut looked_at, mut given_up) = (0, 0);
        // What is left of the last time around, and once around.
        for _ in 0..2 {
            self.look_through_home(&mut looked_at, &mut given_up);
            if self.home.next.is_some() {
                break;
            }
        }
        if given_up > 0 {
            self.retry_some_stuck(given_up as usize);
        }
        looked_at
    }

    /// What leaves finds room at as many lenders as are to have it.
    fn lenders_suffice(&self) -> bool {
        let others = self.lenders.iter().filter(|lender| lender.up && !is_crowded(lender)).count();
        others >= usize::from(self.config.replicas)
    }

    /// Goes on to give up copies of what is home, or begins again, until enough of them are or all has been looked through.
    fn look_through_home(&mut self, looked_at: &mut u64, given_up: &mut u64) {
        let mut bases = Vec::new();
        while self.can_give_up() {
            if *given_up >= GIVEN_UP_AT_ONCE {
                return;
            }
            self.home.goes_on = *looked_at >= LOOKED_AT_ONCE;
            if self.home.goes_on {
                return;
            }
            let (key, start) = self.home.next.unwrap_or_else(|| {
                self.home.left_at = [0; 4];
                (SpaceKey(0), 0)
            });
            let Some((key, part)) = self.next_part(key, start) else {
                self.home.next = None;
                return;
            };
            self.home.next = Some((key, part.end));
            bases.clear();
            self.spaces[&key].table.used_in(part, &mut bases);
            *looked_at += bases.len() as u64;
            for &base in &bases {
                let entry = self.entry(key, base);
                let Some(copy) = entry.copy.filter(|_| entry.state == BaseState::Local) else { continue };
                if self.is_at(copy, is_crowded) {
                    *given_up += u64::from(self.give_up(key, base));
                } else {
                    self.note_home(copy);
                }
            }
        }
    }

    /// A lender is crowded by what it has of this program, and some of that may be of what is home.
    fn can_give_up(&self) -> bool {
        let mut crowded =
            self.lenders.iter().enumerate().filter(|(_, lender)| is_crowded(lender) && lender.held > 0);
        crowded.any(|(n, _)| self.home.next.is_some() || self.home.has_at(n))
    }

    /// What is used in the next extent from there on, of this space or the next.
    fn next_part(&self, key: SpaceKey, start: u64) -> Option<(SpaceKey, BaseRange)> {
        self.spaces.range(key..).find_map(|(&other, space)| {
            let start = if other == key { start } else { 0 };
            space.table.next_used(BaseRange::new(start, u64::MAX)).map(|part| (other, part))
        })
    }

    /// One of those that have it is such a lender.
    fn is_at(&self, copy: CopyIndex, is: impl Fn(&LenderState) -> bool) -> bool {
        self.copies.get(copy).places().any(|place| is(&self.lenders[usize::from(place.lender.0)]))
    }

    /// What is here is all that there is of a page's contents from now on. False: a relative needs them, too, or something is under way.
    fn give_up(&mut self, key: SpaceKey, base: u64) -> bool {
        let entry = self.entry(key, base);
        assert_eq!(entry.state, BaseState::Local, "only what is home is nowhere else");
        let copy = entry.copy.expect("the caller looked");
        let c = self.copies.get(copy);
        if c.refs > 1 || c.busy() {
            return false;
        }
        self.set_entry(key, base, Entry { copy: None, had_copy: true, ..entry });
        self.release_ref(copy);
        true
    }
}
