//! Lenders: they come and go while the program runs, have room or refuse, and pages are sent to them as the placement says.

use super::copies::{CopyIndex, LenderIndex, NOBODY, Stored};
use super::placement::LenderState;
use super::store::Source;
use super::{Borrower, Effect};
use crate::ids::{PutClass, Version};
use crate::units::{BasePages, Duration, Instant};
use alloc::vec::Vec;

/// A lender's answer to a putpage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    /// It has the copy.
    Stored,
    /// It has no room, or did not accept the contents.
    Refused,
}

impl Borrower {
    /// A lender with room for `room` base pages joins, now or at any time later. It has the least index that no lender has: one that was
    /// lost left nothing that refers to its own. Its weight is 0 until the next [`Self::handle_weights`].
    ///
    /// # Panics
    /// With more than 255 lenders at a time.
    pub fn handle_lender_joined(&mut self, room: BasePages) -> LenderIndex {
        let state = LenderState { up: true, room: room.0, ..LenderState::default() };
        let free = self.lenders.iter().position(|lender| !lender.up && !lender.away);
        let index = free.unwrap_or(self.lenders.len());
        let name =
            LenderIndex(u8::try_from(index).ok().filter(|&n| n < u8::MAX).expect("at most 255 lenders"));
        match free {
            Some(index) => {
                assert_eq!(self.lenders[index].held, 0, "a lender that is lost holds nothing");
                self.lenders[index] = state;
            }
            None => self.lenders.push(state),
        }
        self.try_resigned_again();
        name
    }

    /// A lender says how much room it has left. If it had none, as many as it has room for are offered of what nobody took: what is stuck
    /// holds the program up, and need not wait for the next turn.
    pub fn handle_lender_room(&mut self, lender: LenderIndex, room: BasePages) {
        let state = &mut self.lenders[usize::from(lender.0)];
        let had_room = state.has_room();
        state.room = room.0;
        state.refused &= room.0 == 0;
        if !had_room && state.has_room() {
            self.try_resigned_again();
            self.retry_some_stuck(usize::try_from(room.0).unwrap_or(usize::MAX));
        }
    }

    /// A lender has a copy no longer: another page has taken its place. When
    /// the page leaves again it is sent again. What is not so (any more) is passed over: the answer to a getpage that is under way says more.
    pub fn handle_gone(&mut self, lender: LenderIndex, copy: CopyIndex, version: Version) {
        self.forget_late_stored(lender, copy, version);
        let Some(c) = self.copies.find_mut(copy) else { return };
        let asked = self.fetches.get(&copy).is_some_and(|fetch| fetch.at_lender == Some(lender));
        if !self.config.disk {
            // What is spare there or not on its disk alone is what may be given up.
            if c.version == version && !asked {
                self.spare_gone(copy, lender);
            }
            return;
        }
        if c.version == version && c.lender == lender && !asked {
            self.source_failed(copy, Source::Lender(lender));
            self.settle(copy);
        }
    }

    /// An epoch has begun (gms-1995, section 3.2): the weights of those lenders that have one, and MinAge. With MinAge 0, or without any
    /// weight, nothing is sent to lenders where there is a disk.
    ///
    /// Another MinAge is not compared with the age of what leaves: there are no access bits to read, so the time since a page came
    /// home is all that is known, and it is no age (the oldest in the queue may be the one that is used most).
    pub fn handle_weights(&mut self, now: Instant, weights: &[(LenderIndex, u32)], min_age: Duration) {
        for lender in &mut self.lenders {
            (lender.weight, lender.refused) = (0, false);
        }
        for &(LenderIndex(index), weight) in weights {
            let lender = &mut self.lenders[usize::from(index)];
            lender.weight = if lender.up { weight } else { 0 };
        }
        self.epoch_began(now, Some(min_age));
    }

    /// Nobody tells weights any more: placement goes by free room again.
    pub fn handle_weights_unknown(&mut self, now: Instant) {
        self.lenders.iter_mut().for_each(|lender| lender.weight = 0);
        self.epoch_began(now, None);
    }

    fn epoch_began(&mut self, now: Instant, min_age: Option<Duration>) {
        self.waits_clock(now);
        self.choice.epoch_began(min_age);
        self.target = None;
        self.retry_stuck();
        self.advance(now);
    }

    /// A lender as it is known.
    pub fn lender(&self, lender: LenderIndex) -> LenderState {
        self.lenders[usize::from(lender.0)]
    }

    /// Base pages that a lender holds for this borrower.
    pub fn held_by(&self, lender: LenderIndex) -> BasePages {
        BasePages(self.lenders[usize::from(lender.0)].held)
    }

    /// A lender is gone for good, with all that it held. The driver has no more answers of it: its index may be another's soon. Returns how many base pages are lost by it: away, and
    /// without another copy.
    pub fn handle_lender_lost(&mut self, now: Instant, lender: LenderIndex) -> BasePages {
        self.lose_places(now, lender, false)
    }

    /// A lender has answered a putpage.
    pub fn handle_put_answer(
        &mut self,
        now: Instant,
        lender: LenderIndex,
        copy: CopyIndex,
        version: Version,
        answer: PutAnswer,
    ) {
        self.waits_clock(now);
        let Some(c) = self.copies.find_mut(copy) else { return };
        if c.version != version {
            return;
        }
        if c.lender != lender || c.at_lender != Stored::Sending {
            if self.mirror_answered(copy, lender, answer == PutAnswer::Stored) {
                self.replicate_on(copy);
                self.settle(copy);
                self.advance(now);
            }
            return;
        }
        self.stores_in_flight -= 1;
        match answer {
            PutAnswer::Stored => {
                c.at_lender = Stored::Yes;
                self.lenders[usize::from(lender.0)].held += 1;
                self.moved(copy);
                self.replicate_on(copy);
            }
            PutAnswer::Refused if c.old.is_some() => {
                self.refused_by(copy, lender);
                assert!(self.stays(copy), "it was on its way from one to another");
            }
            PutAnswer::Refused => {
                c.at_lender = Stored::No;
                c.offers = c.offers.saturating_sub(1);
                let again = c.refs > 0 && c.offers > 0;
                let alone = c.places().next().is_none();
                self.lent -= 1;
                self.refused_by(copy, lender);
                self.promote(copy);
                if again && alone {
                    self.offer(copy, Some(lender));
                }
                self.replicate_on(copy);
                self.notice_stuck(copy);
            }
        }
        self.settle(copy);
        self.advance(now);
    }

    /// Chooses the lender of the next pages: those of one batch go together.
    pub(super) fn next_lender(&mut self, except: Option<LenderIndex>) -> Option<LenderIndex> {
        let except = except.map(|lender| usize::from(lender.0));
        let chosen = self.choice.choose(&self.lenders, except, !self.config.disk)?;
        assert!(self.lenders[chosen].up, "a lender that is lost was chosen");
        Some(LenderIndex(chosen as u8))
    }

    /// The same, for copies that may not go where they would be refused.
    pub(super) fn next_lender_with_room(
        &mut self,
        may_be: impl Fn(LenderIndex) -> bool,
    ) -> Option<LenderIndex> {
        let visible = |(n, l): (usize, &LenderState)| {
            if l.has_room() && may_be(LenderIndex(n as u8)) { *l } else { LenderState::default() }
        };
        let lenders: Vec<LenderState> = self.lenders.iter().enumerate().map(visible).collect();
        let chosen = self.choice.choose(&lenders, None, true)?;
        lenders[chosen].has_room().then_some(LenderIndex(chosen as u8))
    }

    /// Sends a copy to the lender whose turn it is, or to another if that one cannot have it.
    pub(super) fn offer(&mut self, i: CopyIndex, except: Option<LenderIndex>) {
        if self.config.disk && self.lent >= self.lent_max {
            return;
        }
        let goes_on = |lender: LenderIndex| self.choice.goes_on(&self.lenders[usize::from(lender.0)]);
        if !self.target.is_some_and(|lender| Some(lender) != except && goes_on(lender)) {
            self.target = self.next_lender(except);
        }
        if let Some(lender) = self.target {
            self.put(i, lender);
        }
    }

    /// Sends a copy to a lender.
    pub(super) fn put(&mut self, i: CopyIndex, lender: LenderIndex) {
        let c = self.copies.get_mut(i);
        c.at_lender = Stored::Sending;
        c.lender = lender;
        self.send(i, lender);
    }

    /// The record says that a copy is on its way there.
    pub(super) fn send(&mut self, i: CopyIndex, lender: LenderIndex) {
        let state = &mut self.lenders[usize::from(lender.0)];
        state.room = state.room.saturating_sub(1);
        let class = self.put_class(i, lender);
        let c = self.copies.get_mut(i);
        if class == PutClass::Staged {
            c.staged_at = lender;
        } else if c.staged_at == lender {
            c.staged_at = NOBODY; // it was told to before it lost the copy, or another was that had its index
        }
        let (version, hash) = (c.version, c.hash);
        let buffer = c.buffer().expect("only what is in a buffer can be sent");
        self.lent += 1;
        self.stats.sent += 1;
        self.stores_in_flight += 1;
        self.effects.push_back(Effect::Put { lender, copy: i, version, hash, buffer, class });
    }
}
