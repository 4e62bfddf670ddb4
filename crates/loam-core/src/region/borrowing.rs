//! The borrower's side of a reservation, towards one lender.

use super::address::{Layout, RegionNode, Route};
use super::messages::{Grant, Lease, SessionId, ToBorrower, ToLender, TurnedAway, Why};
use super::spans::BorrowerId;
use alloc::collections::{BTreeMap, VecDeque};

/// Requests that wait for those before them.
pub const WISHES_MAX: usize = 64;

/// What the driver shall do, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Send this. It may be lost: [`Borrowing::resend`] after a while.
    Send(ToLender),
    /// This was reserved: write it down where a restart finds it, then use it.
    Granted(Grant),
    /// The request for so many base pages was refused.
    Refused {
        /// What was asked for.
        pages: u64,
        /// Why.
        why: Why,
    },
    /// The lender has this no longer (it has restarted, or took this borrower for gone): unmap it, its contents are lost.
    Lost(Grant),
    /// The lender does not want this borrower at all.
    TurnedAway(TurnedAway),
}

/// There are [`WISHES_MAX`] requests waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wish {
    Ask(u64),
    Release(Lease, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum State {
    Presenting,
    Open { session: SessionId, request_last: u64, waits: bool },
    TurnedAway,
}

/// One borrower and one lender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Borrowing {
    layout: Layout,
    id: BorrowerId,
    node: RegionNode,
    lender: RegionNode,
    incarnation: u64,
    state: State,
    held: BTreeMap<Lease, Grant>,
    /// The first is on its way if the state says that one is waited for.
    wishes: VecDeque<Wish>,
    effects: VecDeque<Effect>,
}

impl Borrowing {
    /// A borrower `id` on `node` that begins, or begins again with what it has written down. `incarnation` must be larger than in any life
    /// before, and by more than it was presented then: the time of the start in nanoseconds does.
    pub fn new(
        layout: Layout,
        id: BorrowerId,
        node: RegionNode,
        lender: RegionNode,
        incarnation: u64,
        held: impl IntoIterator<Item = Grant>,
    ) -> Self {
        let mut this = Self {
            layout,
            id,
            node,
            lender,
            incarnation,
            state: State::Presenting,
            held: held.into_iter().map(|grant| (grant.lease, grant)).collect(),
            wishes: VecDeque::new(),
            effects: VecDeque::new(),
        };
        this.send();
        this
    }

    /// What it has, as far as it knows.
    pub fn held(&self) -> impl Iterator<Item = &Grant> {
        self.held.values()
    }

    /// Nothing is waited for.
    pub fn is_idle(&self) -> bool {
        self.wishes.is_empty() && self.state != State::Presenting
    }

    /// What to do next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Asks for a lease of `pages` base pages.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn ask(&mut self, pages: u64) -> Result<(), Busy> {
        self.wish(Wish::Ask(pages))
    }

    /// Gives back all but the first `keep` base pages of a lease, which must be out of use by now. Nothing happens if it has no more.
    ///
    /// # Errors
    /// [`Busy`]; nothing has changed.
    pub fn release(&mut self, lease: Lease, keep: u64) -> Result<(), Busy> {
        let Some(grant) = self.held.get(&lease).filter(|grant| keep < grant.pages) else { return Ok(()) };
        let mut kept = *grant;
        kept.pages = keep;
        self.wish(Wish::Release(lease, keep))?;
        // At once: between this moment and the lender's it is nobody's.
        if keep == 0 {
            self.held.remove(&lease);
        } else {
            self.held.insert(lease, kept);
        }
        Ok(())
    }

    /// No answer has come for a while: says it again.
    pub fn resend(&mut self) {
        self.send();
    }

    /// An answer has come, perhaps late or again.
    pub fn handle(&mut self, answer: ToBorrower) {
        match answer {
            ToBorrower::Presented { incarnation, session, held } => {
                if self.state == State::Presenting && incarnation == self.incarnation {
                    self.presented(session, &held);
                }
            }
            ToBorrower::TurnedAway { incarnation, why } => {
                if self.state == State::Presenting && incarnation == self.incarnation {
                    self.state = State::TurnedAway;
                    self.wishes.clear();
                    self.lose_all();
                    self.effects.push_back(Effect::TurnedAway(why));
                }
            }
            ToBorrower::Granted { session, request, grant } => {
                if let Some(Wish::Ask(pages)) = self.answered(session, request) {
                    let there = self.layout.route(self.node, grant.address) == Ok(Route::There(self.lender));
                    // Another address than one of that lender would be somebody else's memory: as if refused.
                    if there && grant.pages == pages && !self.held.contains_key(&grant.lease) {
                        self.held.insert(grant.lease, grant);
                        self.effects.push_back(Effect::Granted(grant));
                    } else {
                        self.effects.push_back(Effect::Refused { pages, why: Why::NoRoom });
                    }
                    self.send();
                }
            }
            ToBorrower::Refused { session, request, why } => {
                if let Some(Wish::Ask(pages)) = self.answered(session, request) {
                    self.effects.push_back(Effect::Refused { pages, why });
                    self.send();
                }
            }
            ToBorrower::Released { session, request } => {
                if self.answered(session, request).is_some() {
                    self.send();
                }
            }
            ToBorrower::Unknown { session: named } => {
                if matches!(self.state, State::Open { session, .. } if session == named) {
                    self.lose_all();
                    self.wishes.retain(|wish| matches!(wish, Wish::Ask(_)));
                    self.state = State::Presenting;
                    self.incarnation += 1;
                    self.send();
                }
            }
        }
    }

    fn wish(&mut self, wish: Wish) -> Result<(), Busy> {
        if self.wishes.len() >= WISHES_MAX || self.state == State::TurnedAway {
            return Err(Busy);
        }
        self.wishes.push_back(wish);
        if matches!(self.state, State::Open { waits: false, .. }) {
            self.send();
        }
        Ok(())
    }

    /// The lender's record decides.
    fn presented(&mut self, session: SessionId, theirs: &[Grant]) {
        let mine = core::mem::take(&mut self.held);
        for (lease, grant) in mine {
            match theirs.iter().find(|their| their.lease == lease) {
                // It has at least what is known here: what it has more of was released, and that was lost.
                Some(their) if their.address == grant.address && their.pages >= grant.pages => {
                    self.held.insert(lease, grant);
                }
                _ => self.effects.push_back(Effect::Lost(grant)),
            }
        }
        self.state = State::Open { session, request_last: 0, waits: false };
        self.send();
    }

    fn lose_all(&mut self) {
        let lost = core::mem::take(&mut self.held);
        self.effects.extend(lost.into_values().map(Effect::Lost));
    }

    /// Takes the wish off whose answer this is.
    fn answered(&mut self, named: SessionId, request: u64) -> Option<Wish> {
        match &mut self.state {
            State::Open { session, request_last, waits }
                if *waits && *session == named && *request_last == request =>
            {
                *waits = false;
                self.wishes.pop_front()
            }
            _ => None,
        }
    }

    /// Sends what is to be answered next, for the first time or again.
    fn send(&mut self) {
        let borrower = self.id;
        let message = match &mut self.state {
            State::Presenting => ToLender::Present {
                borrower,
                node: self.node,
                incarnation: self.incarnation,
                leases: self.held.values().map(|grant| (grant.lease, grant.pages)).collect(),
            },
            State::TurnedAway => return,
            State::Open { session, request_last, waits } => {
                let Some(wish) = self.wishes.front() else { return };
                if !core::mem::replace(waits, true) {
                    *request_last += 1;
                }
                let (session, request) = (*session, *request_last);
                match *wish {
                    Wish::Ask(pages) => ToLender::Ask { borrower, session, request, pages },
                    Wish::Release(lease, keep) => {
                        ToLender::Release { borrower, session, request, lease, keep }
                    }
                }
            }
        };
        self.effects.push_back(Effect::Send(message));
    }
}
