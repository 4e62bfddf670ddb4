//! `loam sim`: what a program would do elsewhere. One file for each command, with its own arguments.

mod merge;
mod output;
mod run;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Arguments of `loam sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

/// Which simulation.
#[derive(Subcommand, Debug)]
enum SimCommand {
    /// Run what a plan describes, for all combinations of its values
    ///
    /// Replays recorded programs on the hardware of a plan, for all combinations of the values in it.
    ///
    /// Writes results.csv, results.parquet, report.html and the figures as SVG. The same plan gives the same bytes, whatever the number of
    /// threads or shards.
    Run(run::RunArgs),
    /// Join the shards of a sweep
    ///
    /// Joins what `loam sim run --shard` wrote, and writes the files that one run would have written.
    Merge(merge::MergeArgs),
}

/// Simulates.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Merge(args) => merge::merge(args),
    }
}
