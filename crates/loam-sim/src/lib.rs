//! The simulator: replays programs through the live policy (`loam-core`) on the hardware that a plan describes.
//!
//! A run is a function of its plan and seed: integer nanoseconds, events in one total order, one seeded generator, no hash order, clock
//! or thread that it could depend on. See `docs/simulator.md`.
#![forbid(unsafe_code)]

pub mod advise;
pub mod cluster;
pub mod engine;
pub mod fuzz;
mod jobs;
pub mod machine;
pub mod model;
pub mod mrc;
pub mod multiprocessor;
pub mod paging;
pub mod plan;
pub mod regions;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod scale;
pub mod trace;
pub mod workload;
