//! `loam sim`: what a program would do elsewhere. One file for each command, with its own arguments.

mod fuzz;
mod input;
mod merge;
mod mrc;
mod output;
mod replay;
mod reproduce;
mod run;
mod scale;
mod workload;

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
    /// Count the misses of a trace under replacement policies
    ///
    /// Counts the misses of a stream of page references under replacement policies alone: no time, no network.
    Replay(replay::ReplayArgs),
    /// Run a paper's experiments again and compare
    ///
    /// Runs a paper's experiments again, on recorded programs of the kinds that it used, and prints each published figure beside ours and whether
    /// its claims hold. Parameters come from the paper's own tables; what was chosen beside them its first lines say.
    Reproduce(reproduce::ReproduceArgs),
    /// Tell how much local memory a recorded program needs
    ///
    /// Counts the misses of a trace under LRU for every size of local memory at once: a miss-ratio curve.
    Mrc(mrc::MrcArgs),
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
    /// Borrowers, lenders, disks and a network that fail in every way, checked after every event
    ///
    /// Runs the policy of the live system under faults that a seed chooses: lost, late, doubled and reordered messages, partitions, crashes
    /// and restarts, disk errors, lenders that lie. Checks after every event that nobody reads wrong bytes and that no page is
    /// without a safe copy, and at the end that everybody was answered and everything came back. With --cluster, the same with whole clusters
    /// of nodes that come, go, hang and disagree.
    Fuzz(fuzz::SimFuzzArgs),
    /// Run gms-1995's cluster with up to thousands of nodes, on its network and on today's
    ///
    /// Runs clusters of live nodes that share their memory, of the sizes and with the networks that are given, and tells what epochs, the directory and a node that joins
    /// cost, and how much faster programs are.
    Scale(scale::ScaleArgs),
    /// Tell what one of the built-in programs is like
    ///
    /// Runs one of the programs that the simulator has built in, of the kinds that gms-1995 measured: checks what it computes, and tells how much memory
    /// and time it takes and how many of its page references miss under LRU.
    Workload(workload::WorkloadArgs),
}

/// Simulates.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Reproduce(args) => reproduce::reproduce(args),
        SimCommand::Mrc(args) => mrc::mrc(args),
        SimCommand::Run(args) => run::run(args),
        SimCommand::Merge(args) => merge::merge(args),
        SimCommand::Fuzz(args) => fuzz::fuzz(args),
        SimCommand::Scale(args) => scale::scale(args),
        SimCommand::Workload(args) => workload::workload(args),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::Parser;

    /// A trace has no seed, and is not exported.
    #[test]
    fn what_is_for_zipf_streams_is_refused_for_traces() {
        let is_valid = |command: &str| {
            let words = ["loam", "sim"].into_iter().chain(command.split(' '));
            Cli::try_parse_from(words).is_ok()
        };
        for of in ["mrc", "replay"] {
            assert!(is_valid(&format!("{of} job.trace")) && is_valid(&format!("{of} --zipf 9:0.8:99")));
            assert!(is_valid(&format!("{of} --zipf 9:0.8:99 --seed 2")));
            assert!(!is_valid(&format!("{of} job.trace --seed 2")), "{of}");
            assert!(!is_valid(&format!("{of} --seed 2")), "{of}");
        }
        assert!(is_valid("replay --zipf 9:0.8:99 --export to"));
        assert!(!is_valid("replay job.trace --export to"));
    }
}
