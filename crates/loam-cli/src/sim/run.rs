//! `loam sim run PLAN.toml`.

use super::output;
use crate::failure::Failure;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use loam_agent::stderr;
use loam_sim::plan::{MachineRunner, Part, Plan, Results, Row, Runner, Shard, sweep};
use loam_sim::trace::{self, Source};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Largest plan.
const PLAN_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `loam sim run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    /// What to simulate (docs/simulator-sweeps.md); paths in it begin where it is
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Folder for the results [default: PLAN-results, beside the plan]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run part I of N and write shard-I-of-N.json only, for `loam sim merge`
    #[arg(long, value_name = "I/N")]
    shard: Option<Part>,
    /// Simulations at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

const EXAMPLES: &str = "\
Examples:
  loam sim run memory.toml                            results go to memory-results/
  loam sim run memory.toml --out here --threads 2
  loam sim run memory.toml --out shards --shard 3/16  on each of 16 machines, then:
  loam sim merge shards/*.json --out results

A plan:
  trace = \"linker.loamtrace\"
  model = [\"tcp-10g\", \"rdma-100g\"]
  page_bytes = \"16K\"
  subpage_bytes = \"4K\"
  local_share = { from = 0.25, to = 1, step = 0.25 }";

/// Runs a plan, or a part of it.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let text = output::read(&args.plan, PLAN_BYTES_MAX)?;
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", args.plan.display()));
    let plan = Plan::parse(&text).map_err(|error| failed(&error))?;
    let folder = args.plan.parent().unwrap_or(Path::new(""));
    let points = match args.shard {
        Some(part) => part.points(&plan),
        None => plan.points(),
    };
    let open = |path: &Path| match trace::open(path) {
        Ok(source) => Ok(source as Box<dyn Source>),
        Err(error) => Err(error.to_string()),
    };
    let runner = MachineRunner::new(&points, folder, &open).map_err(|error| failed(&error))?;
    let out = args.out.clone().unwrap_or_else(|| beside(&args.plan));
    output::make_folder(&out)?;

    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(cores, usize::from);
    let bar = bar(points.len());
    let rows = sweep(&points, &runner, threads, &|| bar.inc(1));
    bar.finish_and_clear();
    if let Some(part) = args.shard {
        let path = out.join(format!("shard-{}-of-{}.json", part.number, part.of));
        output::write(&path, Shard::new(&plan, part, rows).to_json().as_bytes())?;
        stderr::say(format_args!("the shard is {}", path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = none_worked(&rows) {
        return Err(failed(&format!("no point can be simulated: {why}")));
    }
    output::results(&Results::new(&plan, runner.columns(), &rows), &out)?;
    Ok(ExitCode::SUCCESS)
}

/// Why the first point could not be simulated, if none could.
fn none_worked(rows: &[Row]) -> Option<&str> {
    let errors: Option<Vec<&String>> = rows.iter().map(|row| row.outcome.as_ref().err()).collect();
    errors?.first().map(|error| error.as_str())
}

fn beside(plan: &Path) -> PathBuf {
    let stem = plan.file_stem().unwrap_or_default().to_string_lossy();
    plan.with_file_name(format!("{stem}-results"))
}

/// A progress bar on stderr; it draws nothing where that is not a terminal.
fn bar(points: usize) -> ProgressBar {
    let bar = ProgressBar::new(points as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} points, {elapsed} gone, {eta} to go");
    bar.set_style(style.expect("the template is right").progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
