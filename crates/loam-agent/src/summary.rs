//! What a run reports about itself: `--summary`, `loam status` and the closing lines all print this one object.
//! Keys and units are documented in `docs/summary.md`.

use crate::recording::SizeChange;
use hdrhistogram::Histogram;
use loam_core::borrower::Stats;
use loam_core::units::Duration;
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

/// Times, in microseconds; all 0 if none was taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Percentiles {
    pub(crate) fn of(times_ns: &Histogram<u64>) -> Self {
        let us = |q: f64| if times_ns.is_empty() { 0.0 } else { times_ns.value_at_quantile(q) as f64 / 1e3 };
        Self { p50: us(0.5), p90: us(0.9), p99: us(0.99), max: times_ns.max() as f64 / 1e3 }
    }
}

/// What became of base pages at lenders: where several of them have each, and write it to their disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Staging {
    /// Sent to a lender, counted once for each.
    pub sent: u64,
    /// A lender has them on its disk.
    pub stored: u64,
    /// A lender that had them was lost, and another has them since, or the slot file.
    pub mended: u64,
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
    /// Told to leave because the program had said that it will not need them.
    #[serde(default)]
    pub advised: u64,
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

/// Where the run's wall time went (subpages-1996, figure 4's split, and the waiting for room), in seconds. Each moment is in one part, so
/// they sum to the wall time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplit {
    /// No thread waited for memory.
    pub exec: f64,
    /// At least one thread waited for the page that it touched.
    pub sp_latency: f64,
    /// Threads waited for a frame or a buffer, or to allocate, because nothing had left yet, and none as above.
    #[serde(default)]
    pub put_wait: f64,
    /// Threads waited only for pages that another fault had already asked for.
    pub page_wait: f64,
}

impl TimeSplit {
    /// The split of a run that took `wall_s` so far, in which threads waited for so long where they allocate.
    pub(crate) fn of(wall_s: f64, stats: &Stats, throttled: Duration) -> Self {
        let put_wait = Duration(stats.queued_wait.0 + throttled.0);
        let [sp_latency, put_wait, page_wait] =
            [stats.first_wait, put_wait, stats.joined_wait].map(|wait| wait.0 as f64 / 1e9);
        let exec = (wall_s - sp_latency - put_wait - page_wait).max(0.0);
        Self { exec, sp_latency, put_wait, page_wait }
    }

    /// All of it.
    pub fn whole(&self) -> f64 {
        self.exec + self.sp_latency + self.put_wait + self.page_wait
    }
}

/// The pages of a part of the program got another size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageSizeChange {
    /// Since the program's start.
    pub at_s: f64,
    /// Of which part.
    pub part: u32,
    /// The size until then.
    pub from_bytes: u64,
    /// The size from then on.
    pub to_bytes: u64,
    /// In how many extents; 0: everywhere where no place has a size of its own.
    pub extents: u32,
    /// Why.
    pub reason: String,
}

impl PageSizeChange {
    pub(crate) fn of(change: &SizeChange) -> Self {
        Self {
            at_s: change.at.0 as f64 / 1e9,
            part: change.part,
            from_bytes: change.from.bytes().0,
            to_bytes: change.to.bytes().0,
            extents: change.extents,
            reason: change.reason.clone(),
        }
    }
}

/// What the processes of a run had from their regions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionSummary {
    /// `--region`, for each process.
    pub size_bytes: u64,
    /// `--min-alloc`.
    pub min_alloc_bytes: u64,
    /// Allocations that were served from a region.
    pub allocations: u64,
    /// Their bytes, in all.
    pub allocated_bytes: u64,
    /// Most that was allocated at once in the region of one process.
    pub peak_bytes: u64,
    /// Allocations for which a region had no room: the C library served them.
    pub full: u64,
    /// Their bytes, in all.
    pub full_bytes: u64,
    /// Processes that were served and have never called the functions that Loam stands in for: with an allocator of their own, or none.
    pub processes_not_calling: u64,
    /// Where the region is direct.
    #[serde(default)]
    pub direct: Option<DirectSummary>,
}

/// What a run had from its direct region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectSummary {
    /// Most that was in use at a time, by all processes together, in whole chunks.
    pub peak_bytes: u64,
    /// Copied for forked children.
    pub copied_bytes: u64,
    /// Of those, what has become ordinary memory of the child's, because the region had no chunk left.
    pub private_bytes: u64,
}

/// What lenders had set aside for a run before its program started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReservationSummary {
    /// `--reserve`: room for so many bytes of the program's pages.
    pub bytes: u64,
    /// Copies of each.
    pub copies: u64,
    /// What lenders promised in all.
    pub promised_bytes: u64,
    /// What of that they still do: less, if one was lost or started anew.
    pub reserved_bytes: u64,
}

/// What parent and child had in common after a fork, and one of them wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forks {
    /// Times that a thread waited for that.
    pub writes: u64,
    /// Base pages that got memory of their own for it.
    pub copied: u64,
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
    /// What it has set aside for this run now.
    #[serde(default)]
    pub reserved_bytes: u64,
}

/// Everything that a run says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Process id of `loam run`.
    pub pid: u32,
    /// The program and its arguments, as one line.
    pub command: String,
    /// The program's exit code; 128 + signal if one ended it; null while it runs, or if it was not ours to wait for.
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
    /// Mapped files of the tree beyond what counts against `--local` (largest seen): the kernel takes them back when it needs the room.
    #[serde(default)]
    pub mapped_files_bytes: u64,
    /// See [`Faults`].
    pub faults: Faults,
    /// Of faults, from reading the event to waking the thread.
    pub fault_latency_us: Percentiles,
    /// Of swap-outs: from taking pages away until they are safe and their memory may be used again, one for each batch that holds new contents.
    #[serde(default)]
    pub swap_out_us: Percentiles,
    /// See [`Staging`].
    #[serde(default)]
    pub staging: Staging,
    /// See [`Evictions`].
    pub evictions: Evictions,
    /// See [`Forks`].
    #[serde(default)]
    pub forks: Forks,
    /// Times that a process was given the token, with which its pages leave last, as several took memory from one another.
    #[serde(default)]
    pub token_given: u64,
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
    /// `--durability`.
    pub durability: String,
    /// Page size in bytes, at first.
    pub page_bytes: u64,
    /// The fetch plan.
    #[serde(default)]
    pub fetch_plan: String,
    /// The unit in which pages are fetched.
    #[serde(default)]
    pub subpage_bytes: u64,
    /// Which page sizes were used when; nothing where the size is fixed. At most [`crate::recording::CHANGES_MAX`].
    #[serde(default)]
    pub page_size_changes: Vec<PageSizeChange>,
    /// Changes that are not in the list.
    #[serde(default)]
    pub page_size_changes_left_out: u64,
    /// With `--region`: what was allocated there.
    #[serde(default)]
    pub region: Option<RegionSummary>,
    /// With `--reserve`: what was set aside.
    #[serde(default)]
    pub reservation: Option<ReservationSummary>,
    /// Processes of the tree that were served, in all; one that executes another program counts again.
    pub processes: u64,
    /// Processes of the tree that ran without Loam (static or set-user-id programs, cleaned environments, under valgrind, in a sandbox that hides the agent and its
    /// network, children made past libc).
    pub processes_without_loam: u64,
    /// The programs of these by name, up to eight.
    pub programs_without_loam: Vec<String>,
    /// The agent's own memory beyond page contents, now.
    pub agent_bytes: u64,
    /// Lines that a person should read: a lender lost, a disk full, a budget that could not be held.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_time_sum_to_the_wall_time() {
        let stats = Stats {
            first_wait: Duration(1_500_000_000),
            queued_wait: Duration(200_000_000),
            joined_wait: Duration(125_000_000),
            ..Stats::default()
        };
        let split = TimeSplit::of(4.0, &stats, Duration(50_000_000));
        let TimeSplit { exec, sp_latency, put_wait, page_wait } = split;
        assert_eq!((exec, sp_latency, put_wait, page_wait), (2.125, 1.5, 0.25, 0.125));
        assert_eq!(split.whole(), 4.0);
    }

    #[test]
    fn a_summary_of_an_older_run_is_read() {
        let json = r#"{"exec":1.0,"sp_latency":0.5,"page_wait":0.25}"#;
        let split: TimeSplit = serde_json::from_str(json).expect("keys that are new have defaults");
        assert_eq!((split.put_wait, split.whole()), (0.0, 1.75));
    }
}
