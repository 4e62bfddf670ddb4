//! The figures of `bench fault`: one JSON object, one table.

use super::floor::{Floor, Latency, Variant};
use super::real::{RandomRun, SequentialRun};
use crate::failure::Failure;
use crate::text::{count, micros, percent, table};
use serde::Serialize;
use std::io::Write;

/// Everything that was measured. Keys are documented in `docs/summary.md`.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    kernel: String,
    cores: usize,
    notes: Vec<String>,
    floor: &'a Floor,
    floor_userfault_us: f64,
    floor_tcp_round_trip_us: f64,
    floor_us: f64,
    remote: &'a RandomRun,
    remote_p50_us: f64,
    remote_p90_us: f64,
    remote_p99_us: f64,
    remote_over_floor: f64,
    one_core: Option<&'a RandomRun>,
    one_core_over_floor: Option<f64>,
    sequential: &'a [SequentialRun],
    sequential_gb_per_s: f64,
    tcp_stream_gb_per_s: f64,
    sequential_over_tcp: f64,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        floor: &'a Floor,
        remote: &'a RandomRun,
        one_core: Option<&'a RandomRun>,
        sequential: &'a [SequentialRun],
        cores: usize,
        notes: Vec<String>,
    ) -> Self {
        let quantiles = remote.figures.remote;
        let sequential_gb_per_s = sequential.iter().map(|run| run.remote_gb_per_s).fold(0.0, f64::max);
        assert!(floor.fault_us().is_finite() && floor.fault_us() > 0.0, "a floor was measured");
        assert!(floor.stream_gb_per_s() > 0.0, "a stream was measured");
        Self {
            kernel: crate::machine::kernel(),
            cores,
            notes,
            floor,
            floor_userfault_us: floor.userfault_us(),
            floor_tcp_round_trip_us: floor.round_trip_us(),
            floor_us: floor.fault_us(),
            remote,
            remote_p50_us: quantiles.p50_us,
            remote_p90_us: quantiles.p90_us,
            remote_p99_us: quantiles.p99_us,
            remote_over_floor: quantiles.p50_us / floor.fault_us(),
            one_core,
            one_core_over_floor: one_core.map(|run| run.figures.remote.p50_us / floor.fault_us()),
            sequential,
            sequential_gb_per_s,
            tcp_stream_gb_per_s: floor.stream_gb_per_s(),
            sequential_over_tcp: sequential_gb_per_s / floor.stream_gb_per_s(),
        }
    }

    /// What a person reads.
    pub(super) fn table(&self) -> String {
        let mut out = floor_table(self.floor);
        out.push_str("\nthrough Loam, random 4 KiB, one at a time\n");
        out.push_str(&random_line("as the system places it", self.remote, self.remote_over_floor));
        if let (Some(run), Some(ratio)) = (self.one_core, self.one_core_over_floor) {
            out.push_str(&random_line("everything on one core", run, ratio));
        }
        out.push_str(&format!(
            "  floor {} = {} fault + {} round trip\n\n",
            micros(self.floor_us),
            micros(self.floor_userfault_us),
            micros(self.floor_tcp_round_trip_us),
        ));
        for run in self.sequential {
            out.push_str(&format!(
                "through Loam, in order, page {}: {:.2} GB/s ({} of it from the lender)\n",
                run.page,
                run.remote_gb_per_s,
                percent(run.remote_part, 1.0)
            ));
        }
        out.push_str(&format!(
            "  one plain TCP stream {:.2} GB/s; sequential_over_tcp {:.2}\n",
            self.tcp_stream_gb_per_s, self.sequential_over_tcp
        ));
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out
    }
}

/// Writes one JSON object.
pub(super) fn write(mut file: std::fs::File, figures: &impl Serialize) -> Result<(), Failure> {
    let mut json = serde_json::to_vec_pretty(figures).expect("figures have only keys that JSON has");
    json.push(b'\n');
    file.write_all(&json).map_err(|error| Failure::new(format!("cannot write the figures ({error})")))
}

/// What this machine does without Loam.
pub(super) fn floor_table(floor: &Floor) -> String {
    let mut rows = vec![["without Loam", "p50", "p90", "p99"].map(String::from).to_vec()];
    rows.extend(floor.userfault.iter().map(|one| latency_row("bare fault", one)));
    rows.extend(floor.tcp_round_trip.iter().map(|one| latency_row("TCP 64 B for 4 KiB", one)));
    let mut out = table(&rows);
    out.push('\n');
    let mut rows = vec![["TCP stream", "GB/s"].map(String::from).to_vec()];
    for one in &floor.tcp_stream {
        rows.push(vec![way(one.variant), format!("{:.2}", one.gb_per_s)]);
    }
    out.push_str(&table(&rows));
    out
}

fn random_line(placed: &str, run: &RandomRun, over_floor: f64) -> String {
    let quantiles = &run.figures.remote;
    format!(
        "  {placed}: p50 {}, p90 {}, p99 {}; {over_floor:.2} times the floor; {} reads, and {} that found their page here\n",
        micros(quantiles.p50_us),
        micros(quantiles.p90_us),
        micros(quantiles.p99_us),
        count(quantiles.samples as u64),
        count(run.figures.local_reads as u64),
    )
}

fn way(variant: Variant) -> String {
    let waiting = if variant.spinning { "spinning" } else { "sleeping" };
    format!("{waiting}, {}", if variant.cores == 1 { "one core" } else { "two cores" })
}

fn latency_row(what: &str, one: &Latency) -> Vec<String> {
    let quantiles = &one.quantiles;
    let name = format!("{what}, {}", way(one.variant));
    vec![name, micros(quantiles.p50_us), micros(quantiles.p90_us), micros(quantiles.p99_us)]
}
