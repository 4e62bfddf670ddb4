//! What can go wrong with regions.

pub use loam_wire::RegionRefusal as Refusal;
use std::io;
use std::path::PathBuf;

/// Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// No node answers at the usual places.
    #[error("no node at {places}: start `loam node`, or name its socket")]
    NoNode {
        /// Where it was looked for.
        places: String,
    },
    /// No node answers at the place that was named.
    #[error("cannot reach a node at {}: {why}; is `loam node` running there, and may you write to its socket?", path.display())]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// The node said no; nothing was changed. In its own words.
    #[error("{text}")]
    Refused {
        /// Why.
        why: Refusal,
        /// For people.
        text: String,
    },
    /// A device's path has to be said to the node.
    #[error("no path of a device: {} has more than {} bytes, or is no plain text; start the node with a link to it", path.display(), loam_wire::limits::REGION_DEVICE_BYTES_MAX)]
    DevicePath {
        /// As it was said.
        path: PathBuf,
    },
    /// The node has ended, or does not answer. What is mapped stays.
    #[error("lost the node: {0}; what is mapped stays as it is")]
    Lost(io::Error),
    /// The node speaks otherwise than this library.
    #[error("the node answered something else than was asked ({0}): use the same version of Loam on both")]
    Protocol(String),
    /// The memory that came could not be mapped; what was made for it is given back.
    #[error("cannot map the region: {0}; is there a limit on address space (ulimit -v)?")]
    Map(io::Error),
    /// The kernel does not take an advice: it may be too old, or memory is short. The memory is as it was.
    #[error("the kernel refuses this advice: {0}; the region is as it was (Linux 5.18 knows all of them)")]
    Advice(io::Error),
    /// Advice for bytes that the region does not have.
    #[error("advice for bytes {start} to {end} of a region that has {bytes}: name bytes that it has")]
    Range {
        /// The first.
        start: usize,
        /// Behind the last.
        end: usize,
        /// What it has.
        bytes: usize,
    },
    /// The memory's descriptors came, but this process may have no more.
    #[error(
        "no descriptors left for the region's {stretches} stretches: raise the limit of this process (ulimit -n), or close files"
    )]
    Descriptors {
        /// One descriptor for each.
        stretches: usize,
    },
    /// This process has forked off from the one that has the connection.
    #[error("this region was opened by the process that this one forked off from: open it here anew")]
    OtherProcess,
    /// The region holds no vector of that type.
    #[error("region \"{name}\" holds no vector of these elements: {what}")]
    NoVec {
        /// Its name.
        name: String,
        /// What is there instead.
        what: &'static str,
    },
}
