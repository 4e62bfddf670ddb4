//! What the two sides of a reservation say to each other.

use super::address::{Address, RegionNode};
use super::spans::{BorrowerId, LeaseNumber};
use alloc::vec::Vec;

/// A lease by name: unique over all lives of its lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Which life of the lender; random.
    pub life: u64,
    /// Which lease of that life.
    pub number: LeaseNumber,
}

/// Reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// Its name.
    pub lease: Lease,
    /// Where it begins, with the lender's number in front.
    pub address: Address,
    /// Base pages, contiguous.
    pub pages: u64,
}

/// The time between two presentations of one borrower. Chosen by the lender, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Which life of the lender.
    pub life: u64,
    /// Which session of that life.
    pub number: u64,
}

/// From borrower to lender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToLender {
    /// Here I am, and this is all that I know to be mine. Answered by `Presented` or `TurnedAway`.
    Present {
        /// Who.
        borrower: BorrowerId,
        /// On which node.
        node: RegionNode,
        /// Grows with each presentation: an older one is ignored.
        incarnation: u64,
        /// Leases, and how many base pages of each it still wants.
        leases: Vec<(Lease, u64)>,
    },
    /// Reserve so many base pages. Answered by `Granted` or `Refused`.
    Ask {
        /// Who.
        borrower: BorrowerId,
        /// In which session.
        session: SessionId,
        /// Number within the session, from 1 on without gaps.
        request: u64,
        /// How many.
        pages: u64,
    },
    /// Take a lease back but for its first pages. Answered by `Released`.
    Release {
        /// Who.
        borrower: BorrowerId,
        /// In which session.
        session: SessionId,
        /// Number within the session.
        request: u64,
        /// Which lease.
        lease: Lease,
        /// Base pages that stay; 0 ends it.
        keep: u64,
    },
}

/// From lender to borrower.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToBorrower {
    /// This is all that is yours.
    Presented {
        /// The presentation's.
        incarnation: u64,
        /// What to name in requests from now on.
        session: SessionId,
        /// Those of the leases presented that the lender has, as the lender has them.
        held: Vec<Grant>,
    },
    /// You get no session.
    TurnedAway {
        /// The presentation's.
        incarnation: u64,
        /// Why.
        why: TurnedAway,
    },
    /// Yours from now on.
    Granted {
        /// The request's session.
        session: SessionId,
        /// The request's number.
        request: u64,
        /// What.
        grant: Grant,
    },
    /// Nothing was reserved.
    Refused {
        /// The request's session.
        session: SessionId,
        /// The request's number.
        request: u64,
        /// Why.
        why: Why,
    },
    /// It is not yours any more.
    Released {
        /// The request's session.
        session: SessionId,
        /// The request's number.
        request: u64,
    },
    /// There is no such session: what was yours in it is yours no longer. Present yourself again.
    Unknown {
        /// As the request had it.
        session: SessionId,
    },
}

/// Why nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// No contiguous room of that size, within what is lent.
    NoRoom,
    /// Nothing was asked for.
    Empty,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnedAway {
    /// A node does not borrow from itself: its own memory has prefix 0.
    Loopback,
    /// The lender has too many borrowers.
    TooMany,
}
