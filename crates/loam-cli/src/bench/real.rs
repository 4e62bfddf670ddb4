//! The real thing: a lender process, `loam run`, and a program that knows nothing of either.

use super::program::{PASSES, Random, Sequential};
use crate::embedded::Lenders;
use crate::failure::Failure;
use crate::scratch::Scratch;
use crate::size::{Embedded, Size};
use loam_agent::summary::Summary;
use loam_core::units::Bytes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Least memory that the measured program keeps.
const LOCAL_MIB_MIN: u64 = 64;
/// What the lender has beyond the program's memory.
const LENDER_SPARE_MIB: u64 = 128;
/// Time for filling, leaving and ending, beyond the reading itself.
const TIME_SPARE: Duration = Duration::from_secs(120);
/// Pages that sequential reading is tried with; the best counts, as a user would choose it.
const SEQUENTIAL_PAGES: [&str; 2] = ["256K", "1M"];

/// Random reading, and what the run said about itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RandomRun {
    #[serde(flatten)]
    pub(super) figures: Random,
    pub(super) summary: Summary,
}

impl RandomRun {
    /// Of two runs the one with the lower median, as it is with the floor.
    pub(super) fn or_better(self, again: Self) -> Self {
        let median_us = |run: &Self| run.figures.remote.p50_us;
        if median_us(&again) < median_us(&self) { again } else { self }
    }
}

/// Sequential reading with one page size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SequentialRun {
    pub(super) page: &'static str,
    #[serde(flatten)]
    pub(super) figures: Sequential,
    /// Part of what was read that came from the lender.
    pub(super) remote_part: f64,
    /// Median pass, counting only what came from the lender.
    pub(super) remote_gb_per_s: f64,
    pub(super) summary: Summary,
}

/// Random single reads with 4 KiB pages and no prefetch; with `core`, program, agent and lender all stay on that one.
pub(super) fn random(
    executable: &Path,
    mib: u64,
    seconds: u64,
    core: Option<usize>,
    tls: bool,
) -> Result<RandomRun, Failure> {
    let _placed = core.map(OnOneCore::new).transpose()?;
    let options = Options { seconds, tls, ..Options::new(executable, mib, "random") };
    let (figures, summary) = options.run()?;
    Ok(RandomRun { figures, summary })
}

/// Random single reads without prefetch, a pause after each in which the rest of its page comes.
pub(super) fn paused(
    executable: &Path,
    mib: u64,
    seconds: u64,
    page: &'static str,
    fetch_plan: &'static str,
    pause_us: u64,
) -> Result<RandomRun, Failure> {
    let options = Options { page, fetch_plan, seconds, pause_us, ..Options::new(executable, mib, "random") };
    let (figures, summary) = options.run()?;
    Ok(RandomRun { figures, summary })
}

/// Sequential reading with prefetch, for each page size.
pub(super) fn sequential(executable: &Path, mib: u64, tls: bool) -> Result<Vec<SequentialRun>, Failure> {
    let one = |page| {
        let options = Options { page, prefetch: "on", tls, ..Options::new(executable, mib, "sequential") };
        let (figures, summary): (Sequential, Summary) = options.run()?;
        let read_bytes = (PASSES as u64 * mib) << 20;
        let remote_part = (summary.bytes.received as f64 / read_bytes as f64).min(1.0);
        let mut passes = figures.pass_gb_per_s.clone();
        passes.sort_by(f64::total_cmp);
        let median = passes.get(passes.len() / 2).copied().unwrap_or(0.0);
        Ok(SequentialRun { page, figures, remote_part, remote_gb_per_s: median * remote_part, summary })
    };
    SEQUENTIAL_PAGES.into_iter().map(one).collect()
}

struct Options<'a> {
    executable: &'a Path,
    mib: u64,
    page: &'static str,
    fetch_plan: &'static str,
    prefetch: &'static str,
    way: &'static str,
    seconds: u64,
    pause_us: u64,
    tls: bool,
}

impl<'a> Options<'a> {
    fn new(executable: &'a Path, mib: u64, way: &'static str) -> Self {
        let fetch_plan = crate::args::FETCH_PLAN_DEFAULT;
        Self {
            executable,
            mib,
            page: "4K",
            fetch_plan,
            prefetch: "off",
            way,
            seconds: 1,
            pause_us: 0,
            tls: false,
        }
    }

    fn run<T: serde::de::DeserializeOwned>(&self) -> Result<(T, Summary), Failure> {
        let lent = Size::Absolute(Bytes::from_mib(self.mib + LENDER_SPARE_MIB));
        let scratch = Scratch::new("bench")?;
        let credentials = self.tls.then(|| scratch.0.join("tls"));
        credentials.as_deref().map(crate::ca::throwaway).transpose()?;
        let lenders =
            Lenders::start(self.executable, Embedded { count: 1, size: lent }, credentials.as_deref())?;
        let (out, summary) = (scratch.0.join("out.json"), scratch.0.join("summary.json"));
        let local_mib = (self.mib / 8).max(LOCAL_MIB_MIN);
        let addr = lenders.addrs.first().expect("one lender was started").to_string();
        let mut command = Command::new(self.executable);
        command.args(["run", "--quiet", "--durability", "none", "--lender", &addr]);
        if let Some(dir) = &credentials {
            command.arg("--tls").arg(dir);
        }
        command.args(["--local", &format!("{local_mib}M"), "--page", self.page, "--prefetch", self.prefetch]);
        command.args(["--fetch-plan", self.fetch_plan]);
        command
            .arg("--summary")
            .arg(&summary)
            .arg("--")
            .arg(self.executable)
            .args(["bench-program", self.way]);
        command.args(["--mib", &self.mib.to_string(), "--local-mib", &local_mib.to_string()]);
        command.args(["--pause-us", &self.pause_us.to_string()]);
        command.args(["--seconds", &self.seconds.to_string(), "--out"]).arg(&out);
        let mut child =
            command.spawn().map_err(|error| Failure::new(format!("cannot start loam run ({error})")))?;
        let status = end_within(&mut child, TIME_SPARE + Duration::from_secs(self.seconds))?;
        if !status.success() {
            return Err(Failure::new(format!(
                "the measured run ({}, page {}) failed: {status}",
                self.way, self.page
            )));
        }
        Ok((read_json(&out)?, read_json(&summary)?))
    }
}

fn end_within(child: &mut Child, limit: Duration) -> Result<ExitStatus, Failure> {
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if since.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                let why = other.err().map_or_else(|| "took too long".into(), |error| error.to_string());
                return Err(Failure::new(format!(
                    "the measured run was ended after {} s: {why}",
                    limit.as_secs()
                )));
            }
        }
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let failed = |error: String| {
        Failure::new(format!("the measured run left no figures in {} ({error})", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
}

/// Keeps this process, and with it what it starts, on one core for as long as it lives.
struct OnOneCore(CpuSet);

impl OnOneCore {
    fn new(core: usize) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot stay on core {core} ({error})"));
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one).map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for OnOneCore {
    fn drop(&mut self) {
        // Back to what was allowed before; nothing is lost but speed if that is refused.
        let _ = sched_setaffinity(None, &self.0);
    }
}
