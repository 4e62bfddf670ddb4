//! Counters. Read through the extended attribute `user.loam.figures` of the mountpoint, as JSON.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

impl Serialize for Counter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.load(Ordering::Relaxed))
    }
}

macro_rules! counters {
    ($($(#[$meta:meta])* $field:ident,)*) => {
        /// What has happened since the mount was made. A run is 128 KiB of a file, or its last part.
        #[derive(Debug, Default, Serialize)]
        pub(crate) struct Figures {
            $($(#[$meta])* pub(crate) $field: Counter,)*
        }
    };
}

counters! {
    /// Requests of the kernel's to read.
    reads,
    /// Runs that were in this mount's memory.
    runs_hit,
    /// Runs that came from another mount's memory.
    runs_from_peers,
    /// Runs that were read from the source.
    runs_from_source,
    /// Bytes that were read from the source, cached or not.
    source_bytes,
    /// Reads that were not cached, as the file had just changed.
    reads_uncached,
    /// Versions of files that were seen to have been replaced.
    versions_changed,
    /// Runs that this mount sent to others.
    runs_served,
    /// Runs that others asked for in vain.
    runs_missed,
    /// Runs that left this mount's memory.
    runs_evicted,
    /// Runs that stayed once more, being the last copy known.
    runs_spared,
    /// Pages from others that were not what their hash says.
    pages_refused,
    /// Questions to other mounts that failed or took too long.
    peer_failures,
}
