//! The lender's side of a reservation.

use super::address::{Layout, RegionNode};
use super::messages::{Grant, Lease, SessionId, ToBorrower, ToLender, TurnedAway, Why};
use super::spans::{BorrowerId, Span, Spans};
use crate::units::BASE_PAGE_BYTES;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Borrowers of one lender at once.
pub const BORROWERS_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Session {
    number: u64,
    incarnation: u64,
    /// The last request that was answered, and how. (One is unanswered at a time, so an older one is a late copy.)
    request_last: u64,
    answer: Option<ToBorrower>,
}

/// One life of a lender. Its record decides who has what.
///
/// Whoever drives it tells it of borrowers that are gone for good ([`Self::handle_gone`]); that must be true, since their memory is lent to
/// others from then on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lending {
    layout: Layout,
    node: RegionNode,
    life: u64,
    spans: Spans,
    sessions: BTreeMap<BorrowerId, Session>,
    session_last: u64,
}

impl Lending {
    /// A lender with number `node` that lends `pages` base pages. `life` is random.
    ///
    /// # Panics
    /// If a node cannot have so many.
    pub fn new(layout: Layout, node: RegionNode, life: u64, pages: u64) -> Self {
        assert!(pages <= layout.node_bytes() / BASE_PAGE_BYTES as u64);
        Self {
            layout,
            node,
            life,
            spans: Spans::new(pages, pages),
            sessions: BTreeMap::new(),
            session_last: 0,
        }
    }

    /// The ledger.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Which life it is.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// What a message comes to, and the answer. `None`: it is a late copy, and nobody waits for an answer.
    pub fn handle(&mut self, message: ToLender) -> Option<ToBorrower> {
        match message {
            ToLender::Present { borrower, node, incarnation, leases } => {
                self.present(borrower, node, incarnation, &leases)
            }
            ToLender::Ask { borrower, session, request, pages } => {
                self.once(borrower, session, request, |this| this.ask(borrower, session, request, pages))
            }
            ToLender::Release { borrower, session, request, lease, keep } => {
                self.once(borrower, session, request, |this| {
                    if lease.life == this.life {
                        this.spans.keep(borrower, lease.number, keep);
                    }
                    ToBorrower::Released { session, request }
                })
            }
        }
    }

    /// A borrower has gone for good: all that it had is free.
    pub fn handle_gone(&mut self, borrower: BorrowerId) -> Vec<Span> {
        self.sessions.remove(&borrower);
        self.spans.end(borrower)
    }

    fn grant(&self, lease: Lease, span: Span) -> Grant {
        let address = self.layout.prefixed(self.node, span.first * BASE_PAGE_BYTES as u64);
        Grant { lease, address: address.expect("the ledger ends where the node does"), pages: span.pages }
    }

    fn present(
        &mut self,
        borrower: BorrowerId,
        node: RegionNode,
        incarnation: u64,
        leases: &[(Lease, u64)],
    ) -> Option<ToBorrower> {
        if node == self.node {
            return Some(ToBorrower::TurnedAway { incarnation, why: TurnedAway::Loopback });
        }
        match self.sessions.get(&borrower) {
            Some(known) if incarnation < known.incarnation => return None,
            // The same again: what was reserved since is not in it, and stays.
            Some(known) if incarnation == known.incarnation => {}
            None if self.sessions.len() >= BORROWERS_MAX => {
                return Some(ToBorrower::TurnedAway { incarnation, why: TurnedAway::TooMany });
            }
            _ => {
                let mine = self.spans.leases().filter(|(_, of, _)| *of == borrower);
                let kept: Vec<_> = mine
                    .map(|(number, ..)| {
                        let named =
                            leases.iter().find(|(lease, _)| *lease == Lease { life: self.life, number });
                        (number, named.map_or(0, |(_, pages)| *pages))
                    })
                    .collect();
                for (number, pages) in kept {
                    self.spans.keep(borrower, number, pages);
                }
                self.session_last += 1;
                let session =
                    Session { number: self.session_last, incarnation, request_last: 0, answer: None };
                self.sessions.insert(borrower, session);
            }
        }
        let session = &self.sessions[&borrower];
        let here = leases.iter().filter(|(lease, _)| lease.life == self.life);
        let held = here.filter_map(|(lease, _)| {
            self.spans.span(borrower, lease.number).map(|span| self.grant(*lease, span))
        });
        let id = SessionId { life: self.life, number: session.number };
        Some(ToBorrower::Presented { incarnation, session: id, held: held.collect() })
    }

    /// Does what a request wants the first time that it comes, and gives the same answer when it comes again.
    fn once(
        &mut self,
        borrower: BorrowerId,
        session: SessionId,
        request: u64,
        act: impl FnOnce(&mut Self) -> ToBorrower,
    ) -> Option<ToBorrower> {
        let known = self.sessions.get(&borrower);
        let Some(known) =
            known.filter(|known| session == SessionId { life: self.life, number: known.number })
        else {
            return Some(ToBorrower::Unknown { session });
        };
        if request <= known.request_last {
            return known.answer.clone().filter(|_| request == known.request_last);
        }
        let answer = act(self);
        let known = self.sessions.get_mut(&borrower).expect("it was just there");
        (known.request_last, known.answer) = (request, Some(answer.clone()));
        Some(answer)
    }

    fn ask(&mut self, borrower: BorrowerId, session: SessionId, request: u64, pages: u64) -> ToBorrower {
        if pages == 0 {
            return ToBorrower::Refused { session, request, why: Why::Empty };
        }
        match self.spans.reserve(borrower, pages, 1) {
            Ok((number, span)) => {
                let grant = self.grant(Lease { life: self.life, number }, span);
                ToBorrower::Granted { session, request, grant }
            }
            Err(_) => ToBorrower::Refused { session, request, why: Why::NoRoom },
        }
    }
}
