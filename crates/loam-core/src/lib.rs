//! Loam's policy: who holds which page, what leaves and what comes, as pure state machines.
//!
//! Inputs go in through `handle_*`, effects come out through `poll_effect`; time is an argument. There is no
//! I/O, no clock, no thread and no unsafe code here, so the live agent and the simulator run the same lines.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod borrower;
mod draw;
pub mod global;
pub mod ids;
pub mod lender;
pub mod page_size;
pub mod polling;
pub mod region;
pub mod replacement;
pub mod staging;
pub mod units;
