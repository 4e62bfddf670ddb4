//! Fault-injecting simulation: borrowers, lenders, a hostile network, and checkers after every event.
//!
//! A seed makes a [`Script`]: settings and a list of actions. [`run`] interprets it with the policy of `loam_core`, driven as the live
//! agent and the live lender drive it, on a model of what the kernel, the disk and the network do. Contents are version
//! numbers. After every event the checkers ask for the two rules of DESIGN.md, section 2:
//!
//! 1. whatever is installed or read is what that process wrote last; a program may instead be ended, but only for a page that an
//!    injected fault has really taken, and that the durability does not cover;
//! 2. a page that is not in local memory has a safe copy.
//!
//! The last part of each run is quiet. Then every thread is answered, everything is read once more, and when the programs have ended every
//! buffer, copy and page of a lender has come back.
//!
//! Whole clusters of nodes have a simulation of their own: [`cluster`].
//!
//! # An assertion that fails
//! is a failure of its own kind. Where panics unwind (tests) it is caught. The release profile aborts: there the panic hook
//! of [`campaign`] says the seed and ends the process with its own status, and a failure is made small by runs in child processes.

mod answers;
mod away;
pub mod campaign;
mod check;
pub mod cluster;
pub(crate) mod dice;
mod disk;
mod drains;
mod effects;
mod events;
mod evictions;
mod hand;
mod kernel;
mod lenders;
mod node;
mod places;
mod requests;
mod script;
mod script_cache;
mod seat;
pub mod shrink;
mod sim;
mod sizes;
mod store;
#[cfg(test)]
mod tests;
mod threads;
mod token;
mod world;

pub use script::{Act, Action, Cache, DiskFault, Lie, Script, Settings, StoreFault, Work};
pub use sim::{Failure, FailureKind, Sabotage};
pub use world::{Outcome, run};
