//! What stays with lenders of pages that are home.
//!
//! Where there is room a copy stays, so that a page which leaves unchanged need not travel again. Where a lender hardly has room nothing stays behind: the two nodes swap
//! pages, as in gms-1995, section 3.1. Else lenders would fill with what nobody needs from them, and what is to leave would find no room though there is
//! enough for all that is away.

use super::Borrower;
use super::copies::{CopyIndex, Stored};
use super::evict::BATCH_PAGES;
use super::placement::LenderState;
use super::table::{BaseRange, BaseState, Entry, SpaceKey};
use alloc::vec::Vec;

/// As many copies are given up at a time, if there are as many: room for some batches.
const GIVEN_UP_AT_ONCE: u64 = 1024;

/// Copies of pages that are home, as far as they have not been looked through.
#[derive(Debug, Default)]
pub(super) struct Home {
    /// Since they were looked through, a page has come home and left one.
    has_some: bool,
    /// Where that goes on.
    next: Option<(SpaceKey, u64)>,
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
            self.home.has_some = true;
        }
    }

    /// Pages are to leave, and lenders have hardly room for a batch: copies of what is home are given up. What nobody could take so far is offered again.
    pub(super) fn make_room_at_lenders(&mut self) {
        let is_full = |lender: &LenderState| !lender.has_room() || lender.room < BATCH_PAGES as u64;
        let replicas = usize::from(self.config.replicas);
        let suffice = |lenders: &[LenderState]| {
            let others = lenders.iter().filter(|lender| lender.up && !is_full(lender)).count();
            others >= replicas
        };
        if !suffice(&self.lenders) && self.lenders.iter().any(|lender| lender.up && is_full(lender)) {
            self.give_back_all();
        }
        // What is not installed yet is home by the record alone.
        if self.config.disk || suffice(&self.lenders) || !self.home.has_some || self.installs_pending > 0 {
            return;
        }
        let (from, mut given_up) = (self.home.next.unwrap_or((SpaceKey(0), 0)), 0);
        let keys: Vec<SpaceKey> = self.spaces.keys().copied().collect();
        let after = keys.iter().position(|&key| key >= from.0).unwrap_or(0);
        // From where it ended the last time around to there; the first one twice, for its beginning.
        let turn = keys[after..].iter().chain(&keys[..after]).chain(keys.get(after));
        let mut bases = Vec::new();
        for (n, &key) in turn.enumerate() {
            let start = if n == 0 && key == from.0 { from.1 } else { 0 };
            let end = if n == keys.len() && key == from.0 { from.1 } else { u64::MAX };
            let mut rest = BaseRange::new(start.min(end), end);
            while !rest.is_empty()
                && let Some(part) = self.spaces.get(&key).and_then(|space| space.table.next_used(rest))
            {
                rest.start = part.end;
                bases.clear();
                self.spaces[&key].table.used_in(part, &mut bases);
                for &base in &bases {
                    let entry = self.entry(key, base);
                    let here = entry.copy.filter(|_| entry.state == BaseState::Local);
                    if here.is_some_and(|copy| self.is_at(copy, is_full)) {
                        given_up += u64::from(self.give_up(key, base));
                    }
                }
                if given_up >= GIVEN_UP_AT_ONCE {
                    self.home.next = Some((key, rest.start));
                    self.retry_some_stuck(given_up as usize);
                    return;
                }
            }
        }
        self.home = Home::default();
        if given_up > 0 {
            self.retry_some_stuck(given_up as usize);
        }
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
