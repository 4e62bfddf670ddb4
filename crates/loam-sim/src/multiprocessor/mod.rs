//! The scalable multiprocessor of nwcache-1999 (sections 3 and 4), which runs out-of-core parallel programs: with a standard virtual memory, and with
//! a ring in which dirty pages wait for their disk.
//!
//! Each node has a processor with its TLB and cache, memory, a memory bus and an I/O bus; a wormhole-routed mesh connects them; every other node has
//! a disk behind a controller with a small cache. One page table for the whole machine; a page is at one place only, and other nodes read and write
//! it there through their caches.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | sizes and speeds: the paper's, today's |
//! | [`mesh`], [`board`] | network links and buses, each a queue; how pages and cache lines travel over them |
//! | [`tlb`], [`caches`] | what a processor remembers, and what it has to ask for again |
//! | [`disk`], [`controller`] | arm, rotation, transfer; the controller's cache with ACK, NACK and OK |
//! | [`ring`] | when a page passes which node |
//! | [`pages`], [`account`] | the page table; where each processor's time went |
//! | `machine` | the event loop, and what happens at faults, swap-outs, disks and ring |
//!
//! Nothing is fitted: what the paper does not say is assumed, and `docs/simulator-write-cache.md` has a list of it.

pub mod account;
pub mod board;
pub mod caches;
pub mod config;
pub mod controller;
pub mod disk;
pub mod machine;
pub mod mesh;
pub mod pages;
pub mod ring;
#[cfg(test)]
mod tests;
pub mod tlb;

pub use account::{Outcome, Part};
pub use config::{Config, Prefetch, Staging};
pub use machine::run;
