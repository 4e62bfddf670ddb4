//! Global memory (gms-1995): a cluster whose nodes hold pages for each other, and no one configures who.
//!
//! | paper | here |
//! | --- | --- |
//! | summary of ages (section 3.2) | [`AgeSummary`] |
//! | epoch, T, M, MinAge, weights (3.2) | [`Epoch`], chosen by [`EpochLimits`] |
//! | initiator, master, joining and leaving (3.2, 4.4) | [`Coordinator`] |
//! | page-ownership directory (4.1) | [`Pod`] |
//! | page-frame directory (4.1) | [`Frames`] |
//! | global-cache directory (4.1) | [`Directory`] |
//! | the four cases, getpage and putpage (3.1, 4.5) | [`GlobalNode`] |
//! | where an evicted page goes (3.2), N-chance (5.5) | [`placement::Placement`] |
//!
//! All of it is hints: DESIGN.md, section 2, rule 1.

mod ages;
mod coordinator;
mod directory;
mod epoch;
mod frames;
mod message;
mod node;
pub mod placement;
mod pod;
#[cfg(test)]
mod tests;

pub use ages::{AGE_BUCKETS, AgeSummary};
pub use coordinator::Coordinator;
pub use directory::{Directory, Entry};
pub use epoch::{Epoch, EpochId, EpochLimits, Rates};
pub use frames::{Ages, Frame, Frames, Kind};
pub use message::{CoordinatorConfig, Effect, EndReason, Message};
pub use node::{
    Access, Effect as NodeEffect, GlobalNode, NodeConfig, NodeMessage, NodeStats, Origin, PageMessage,
};
pub use pod::{Pod, PodVersion};
