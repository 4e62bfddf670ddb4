//! Helpers of the end-to-end tests: they run the built `loam` on real programs, do harm to its parts, and look at the
//! program's process tree from outside, as a user would.
//!
//! The tests know `loam` by its command line and its summary alone. Only [`fake`] and [`daemon`] speak the wire protocol,
//! to be a lender that lies and a node whose cluster is made up; [`lender`] asks for a lender's figures.
//! Where things are: `LOAM_BIN` names the executable to test (default: beside the tests, in the target folder),
//! `LOAM_TEST_DIR` a folder on a real disk for scratch files (default `/var/tmp`), `LOAM_TEST_REPORT` a file to which each
//! program test appends its figures.
#![forbid(unsafe_code)]

pub mod borrow;
pub mod cluster;
pub mod daemon;
pub mod etcd;
pub mod fake;
pub mod lender;
pub mod mounted;
pub mod net;
pub mod place;
pub mod plain;
pub mod procfs;
pub mod proxy;
pub mod redis;
pub mod region_node;
pub mod sampler;
pub mod shell;
pub mod site;
pub mod workloads;
