//! `loam bench fault`: a remote fault and sequential reading through the real system, beside the floor that this machine
//! sets in the same run.
//!
//! The floor of a 4 KiB fault is a bare userfaultfd fault answered by another process plus a bare TCP round trip,
//! each at its best over sleeping and spinning, one core and two. The floor of sequential reading is one plain TCP stream.

pub(crate) mod args;
mod cost;
mod floor;
mod peer;
mod plans;
mod program;
mod real;
mod report;

use crate::doctor::DMA_LATENCY;
use crate::failure::Failure;
use crate::machine;
use args::{BenchArgs, BenchCommand, BenchFaultArgs};
use std::process::ExitCode;

pub(crate) use peer::peer;
pub(crate) use program::program;

/// Dispatches to the measurement that was asked for.
pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        BenchCommand::Fault(args) => fault(args),
    }
}

fn fault(args: &BenchFaultArgs) -> Result<ExitCode, Failure> {
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find its own executable ({error}): mount /proc")))?;
    // Told before a minute of measuring, not after it.
    let json = args.json.as_deref().map(|path| {
        let failed =
            |error| Failure::new(format!("cannot write {} ({error}): give another --json", path.display()));
        std::fs::File::create(path).map_err(failed)
    });
    let json = json.transpose()?;
    let mut notes = Vec::new();
    let awake = hold_cores_awake();
    notes.push(match &awake {
        Ok(_) => format!("{DMA_LATENCY} was held at 0 during every measurement"),
        Err(error) => {
            format!("{DMA_LATENCY} could not be held ({error}): cores may sleep, which slows both sides")
        }
    });
    let cores = machine::cores();
    if args.tls {
        let cost = cost::measure(&executable, args.mib, args.seconds, cores.len(), notes)?;
        if let Some(file) = json {
            report::write(file, &cost)?;
        }
        print!("{}", cost.table());
        return Ok(ExitCode::SUCCESS);
    }
    if args.plans {
        let plans = plans::measure(&executable, args.mib, args.seconds, cores.len(), notes)?;
        if let Some(file) = json {
            report::write(file, &plans)?;
        }
        print!("{}", plans.table());
        return Ok(ExitCode::SUCCESS);
    }
    let mut floor = floor::measure(&executable, &cores)?;
    if args.floor_only {
        if let Some(file) = json {
            report::write(
                file,
                &serde_json::json!({ "floor": floor, "floor_us": floor.fault_us(), "notes": notes }),
            )?;
        }
        print!("{}", report::floor_table(&floor));
        println!("\nfloor of a remote fault of 4 KiB: {:.1} us", floor.fault_us());
        return Ok(ExitCode::SUCCESS);
    }
    let mut random = real::random(&executable, args.mib, args.seconds, None, false)?;
    // The floor may be lowest with both sides on one core: show what the real thing does there too.
    let one_core =
        cores.first().map(|&core| real::random(&executable, args.mib, args.seconds, Some(core), false));
    let one_core = one_core.transpose()?;
    let sequential = real::sequential(&executable, args.mib, false)?;
    // Both once more: a machine that got quieter or busier meanwhile, or whose host has moved its cores, would favour one side.
    random = random.or_better(real::random(&executable, args.mib, args.seconds, None, false)?);
    floor.keep_best(floor::measure(&executable, &cores)?);
    let report = report::Report::new(&floor, &random, one_core.as_ref(), &sequential, cores.len(), notes);
    if let Some(file) = json {
        report::write(file, &report)?;
    }
    print!("{}", report.table());
    drop(awake);
    Ok(ExitCode::SUCCESS)
}

/// Keeps cores out of deep sleep for as long as the file lives.
fn hold_cores_awake() -> std::io::Result<std::fs::File> {
    let mut file = std::fs::OpenOptions::new().write(true).open(DMA_LATENCY)?;
    std::io::Write::write_all(&mut file, &0_i32.to_ne_bytes())?;
    Ok(file)
}

/// Median and tail of a measurement, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) samples: usize,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
}

impl Quantiles {
    /// Of nanoseconds in any order; `None` of nothing.
    pub(crate) fn of(samples_ns: &mut [u32]) -> Option<Self> {
        samples_ns.sort_unstable();
        let at = |thousandths: usize| {
            let rank = (samples_ns.len().checked_sub(1)?) * thousandths / 1000;
            samples_ns.get(rank).map(|&ns| f64::from(ns) / 1000.0)
        };
        Some(Self { samples: samples_ns.len(), p50_us: at(500)?, p90_us: at(900)?, p99_us: at(990)? })
    }
}

/// The figure in the middle.
///
/// # Panics
/// If there is none.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Nanoseconds since `since`, at most four seconds: what is longer than that is no latency.
pub(crate) fn elapsed_ns(since: std::time::Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks_of_the_sorted_samples() {
        let mut samples: Vec<u32> = (1..=1001).rev().map(|us| us * 1000).collect();
        let found = Quantiles::of(&mut samples).expect("there are samples");
        assert_eq!(found, Quantiles { samples: 1001, p50_us: 501.0, p90_us: 901.0, p99_us: 991.0 });
        assert_eq!(Quantiles::of(&mut []), None);
        assert_eq!(Quantiles::of(&mut [7000]).map(|one| one.p99_us), Some(7.0));
    }
}
