//! What a run reports about itself: `--summary`, `loam status` and the closing lines all print this one object.
//! Keys and units are documented in `docs/summary.md`.

use serde::{Deserialize, Serialize};

/// Counts of faults by how they were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// All faults that were read. Those that had to be answered are each counted in one of the next five.
    pub total: u64,
    /// First touches of adopted memory, answered with zeros.
    pub zero: u64,
    /// Answered from the victim buffer: the page had not left yet.
    pub rescued: u64,
    /// Waited for a lender.
    pub remote: u64,
    /// Waited for the disk.
    pub disk: u64,
    /// Answered from a page that the prefetcher had fetched and kept ready.
    pub prefetched_hit: u64,
}

/// Latency of faults, from reading the event to waking the thread, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultLatency {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Base pages taken from the program, by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evictions {
    /// Taken away in all.
    pub moved: u64,
    /// Of those: unchanged since the copy that already exists.
    pub clean: u64,
    /// Of those: all zeros, dropped.
    pub zero: u64,
    /// Not taken: pinned, shared with a forked child, locked, or not writable.
    pub busy: u64,
}

/// Bytes of page contents that went each way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// From lenders.
    #[serde(rename = "in")]
    pub received: u64,
    /// To lenders.
    #[serde(rename = "out")]
    pub sent: u64,
    /// From the slot file.
    pub disk_read: u64,
    /// To the slot file.
    pub disk_written: u64,
}

/// Where the run's wall time went (subpages-1996, figure 4's split), in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// No thread waited for memory.
    pub exec: f64,
    /// At least one thread waited for the page that it touched.
    pub sp_latency: f64,
    /// Threads waited only for pages that another fault had already asked for.
    pub page_wait: f64,
}

/// One lender as the run saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LenderSummary {
    /// `ADDR:PORT`.
    pub addr: String,
    /// Base pages that it holds for this run now.
    pub pages: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Page contents that were sent to it.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Page contents that came from it.
    #[serde(default)]
    pub received_bytes: u64,
    /// It died, hung or sent wrong bytes, and is no longer used.
    pub lost: bool,
    /// Why it was lost; empty if it was not.
    pub why: String,
}

/// Everything that a run says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Process id of `loam run`.
    pub pid: u32,
    /// The program and its arguments, as one line.
    pub command: String,
    /// The program's exit code; 128 + signal if one ended it; null while it runs.
    pub exit_code: Option<i32>,
    /// Wall time so far.
    pub wall_s: f64,
    /// `--local`.
    pub local_limit_bytes: u64,
    /// Largest resident size of the process tree that was seen.
    pub local_peak_bytes: u64,
    /// Resident size of the process tree at the last look.
    pub local_bytes: u64,
    /// Contents that are kept elsewhere now (lenders, disk, victim buffer), with those of pages that have come home and may not
    /// have changed since.
    pub remote_bytes: u64,
    /// Most memory that was ever adopted at once.
    pub adopted_bytes: u64,
    /// Shared anonymous memory and shm of the tree, which is left local (largest seen).
    pub shared_local_bytes: u64,
    /// See [`Faults`].
    pub faults: Faults,
    /// See [`FaultLatency`].
    pub fault_latency_us: FaultLatency,
    /// See [`Evictions`].
    pub evictions: Evictions,
    /// See [`Traffic`].
    pub bytes: Traffic,
    /// See [`TimeSplit`].
    pub time_s: TimeSplit,
    /// One for each `--lender`, or for each lender of the cluster that has joined; of those that are lost the first few hundred.
    pub lenders: Vec<LenderSummary>,
    /// Lenders that have joined in all.
    #[serde(default)]
    pub lenders_joined: u64,
    /// Lenders that were lost, or never reached, in all.
    #[serde(default)]
    pub lenders_lost: u64,
    /// `--placement`.
    #[serde(default)]
    pub placement: String,
    /// `disk` or `none`.
    pub durability: String,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Processes of the tree that were served, in all; one that executes another program counts again.
    pub processes: u64,
    /// Processes of the tree that ran without Loam (static or set-user-id programs, cleaned environments).
    pub processes_without_loam: u64,
    /// The agent's own memory beyond page contents, now.
    pub agent_bytes: u64,
    /// Lines that a person should read: a lender lost, a disk full, a budget that could not be held.
    pub warnings: Vec<String>,
}
