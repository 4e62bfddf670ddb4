//! `loam sim merge SHARD...`.

use super::output;
use crate::failure::Failure;
use clap::Args;
use loam_sim::plan::{self, MachineRunner, Results, Shard};
use std::path::PathBuf;
use std::process::ExitCode;

/// Largest shard: 100,000 points have some 30 MB.
const SHARD_BYTES_MAX: u64 = 256 << 20;

/// Arguments of `loam sim merge`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct MergeArgs {
    /// All shards of one plan, in any order
    #[arg(value_name = "SHARD", required = true)]
    shards: Vec<PathBuf>,
    /// Folder for the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  loam sim merge shards/*.json --out results";

/// Joins shards.
pub(super) fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let columns = MachineRunner::COLUMNS;
    let mut shards = Vec::new();
    for path in &args.shards {
        let name = path.display().to_string();
        let text = output::read(path, SHARD_BYTES_MAX)?;
        let shard = Shard::from_json(&name, &text, columns.len()).map_err(Failure::new)?;
        shards.push((name, shard));
    }
    let (plan, rows) = plan::merge(shards).map_err(Failure::new)?;
    output::make_folder(&args.out)?;
    output::results(&Results::new(&plan, columns, &rows), &args.out)?;
    Ok(ExitCode::SUCCESS)
}
