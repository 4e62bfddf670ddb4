//! Global memory (gms-1995): a cluster whose nodes hold pages for each other, and no one configures who.
//!
//! | paper | here |
//! | --- | --- |
//! | summary of ages (section 3.2) | [`AgeSummary`] |
//! | epoch, T, M, MinAge, weights (3.2) | [`Epoch`], chosen by [`EpochLimits`] |
//! | initiator, master, joining and leaving (3.2, 4.4) | [`Coordinator`] |
//! | page-ownership directory (4.1) | [`Pod`] |
//!
//! All of it is hints: DESIGN.md, section 2, rule 1.

mod ages;
mod coordinator;
mod epoch;
mod pod;
#[cfg(test)]
mod tests;

pub use ages::{AGE_BUCKETS, AgeSummary};
pub use coordinator::{Coordinator, CoordinatorConfig, Effect, EndReason, Message};
pub use epoch::{Epoch, EpochId, EpochLimits, Rates};
pub use pod::{Pod, PodVersion};
