//! Programs whose results are checked and that mark their parts, to try page sizes with (aapc-2012): nine kernels of the kinds that the paper
//! measured and of others that ask more of memory.
//!
//! Each is written once. In [`Plain`] memory it computes at full speed (`loam-kernel`); in the simulator's it yields the pages that it
//! touches. What each computes, and how it is checked, is in `docs/kernels.md`.
#![forbid(unsafe_code)]

mod bfs;
mod catalogue;
mod cg;
mod check;
mod flow;
mod ft;
mod himeno;
mod is;
mod join;
mod kernel;
mod memory;
mod mg;
mod random;
mod run;
#[cfg(test)]
mod tests;

pub use catalogue::{INFOS, Info, Size, SizeError, info};
pub use check::Check;
pub use kernel::Kernel;
pub use memory::{Array, Element, Memory, Plain};
pub use run::{Report, Run};
