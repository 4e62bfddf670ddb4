//! The lender's side, live: `loam lend`, and with others as a cluster `loam node`.
//!
//! [`lend`] holds base pages for borrowers in one memory file and serves them over TCP with one event loop per core. The
//! rules (who has which page, what is freed when) are `loam_core::lender`'s; this crate moves the bytes.
//!
//! ```text
//! keeper: accept ─► event loop: recv ─► decode ─► service: Lender ⇄ slab ─► send
//!            ├── gives memory back, lets graces run out, watches the machine's memory, waits for the end
//!            ├── drainer: staged pages to the disk store, and back
//!            └── control plane (`cluster`): who lives, epochs, views; metrics over HTTP
//! ```
#![forbid(unsafe_code)]

mod behind;
mod buffers;
mod cluster;
mod config;
mod connection;
mod disk_reads;
pub mod disk_store;
mod doors;
mod drainer;
mod error;
mod event_loop;
mod gather;
mod http;
mod latency;
pub mod limits;
mod local;
mod metrics;
mod places;
mod posts;
mod regions;
mod reserving;
mod seats;
mod server;
mod service;
mod shared;
mod slab;
mod sock_diag;
mod spinning;
mod watch;

pub use cluster::{ClusterConfig, EtcdSite, EtcdSiteError};
pub use config::{LendConfig, Lending, LocalSocket, StoreAt, Turns};
pub use error::NodeError;
pub use regions::DeviceError;
pub use server::{LendHandle, lend, spawn};
pub use watch::{UsableMemory, usable_memory};
