//! Direct memory regions: memory of another node that programs reach with plain loads and stores (regions-2010, sections III and IV).
//!
//! Software is needed to *reserve* memory, none to use it. A borrower asks, the lender reserves contiguous base pages that stay reserved,
//! and answers with their address, its own number in the high 14 bits ([`Layout`]); from then on the hardware does the rest. Here are the
//! parts that decide:
//!
//! - [`Layout`]: node-prefixed addresses; who is asked for one, and what the receiver makes of it;
//! - [`Spans`]: the lender's ledger, in which no base page is reserved twice;
//! - [`Lending`] and [`Borrowing`]: the two sides of the reservation, over messages that may be lost, repeated, late or out of order.
//!
//! ```text
//! borrower                                    lender
//!    | present (incarnation, leases) ---------> |   what it has and I have not: freed
//!    | <-------- presented (session, leases) -- |   its record decides
//!    | ask 1 (session, pages) ----------------> |   reserves a span
//!    | <------------- granted 1 (address) ----- |   address = own number | start of the span
//!    | release 2 (session, lease, keep) ------> |   all of it, or its tail
//!    | <--------------------- released 2 ------ |
//! ```
//!
//! A region is a list of such leases, one after the other in the borrower's address space: it grows by another lease and shrinks by
//! releasing from its end.
//!
//! What makes it safe: a lease's number is never used again. A request has a number within its session, at most one is unanswered, and one
//! that the lender has answered changes nothing when it comes again. A session ends with the next [`ToLender::Present`] or with its
//! borrower, and never comes back, so nothing that is late can reserve anything for somebody who has gone. A borrower that releases
//! forgets at once, the lender when it hears of it: what the borrower believes is at every moment part of what the lender has written.
//! The tests walk through every order of events of small clusters.

mod address;
mod borrowing;
mod lending;
mod messages;
mod spans;
#[cfg(test)]
mod tests;

pub use address::{Address, Layout, NODE_BITS, NODES_MAX, Refusal, RegionNode, Route};
pub use borrowing::{Borrowing, Busy, Effect, WISHES_MAX};
pub use lending::{BORROWERS_MAX, Lending};
pub use messages::{Grant, Lease, SessionId, ToBorrower, ToLender, TurnedAway, Why};
pub use spans::{BorrowerId, LeaseNumber, NoRoom, Span, Spans};
