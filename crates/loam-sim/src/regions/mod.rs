//! Memory that is loaded from and stored to where it is, on another node, as regions-2010 built it; and remote swap beside it.
//!
//! | module | what |
//! | --- | --- |
//! | [`config`] | the prototype's times: what is printed, and what is assumed about the rest |
//! | [`machine`] | threads, remote-memory controllers and the mesh between them, load by load (figures 6 to 8) |
//! | [`memory`] | what a program's touches cost in local memory, in remote memory and over remote swap (figures 9 to 11) |
//! | [`btree`] | the b-tree that is searched |
//! | [`programs`] | the programs of figure 11 |
//! | [`today`] | today's ways to another machine's memory, and when paging beats load and store |
//!
//! Caches and their coherence stay in the client's node, however much memory it reserved elsewhere: that is the paper's point, and why a controller has neither
//! directory nor probes here. `docs/simulator-regions.md` has what is assumed.

pub mod btree;
pub mod config;
pub mod machine;
pub mod memory;
pub mod programs;
#[cfg(test)]
mod tests;
pub mod today;
