//! `loam sim`: what a program would do elsewhere. One file for each command, with its own arguments.

mod input;
mod mrc;
mod replay;

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
    /// Tell how much local memory a recorded program needs
    ///
    /// Counts the misses of a trace under LRU for every size of local memory at once: a miss-ratio curve.
    Mrc(mrc::MrcArgs),
}

/// Simulates.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Mrc(args) => mrc::mrc(args),
    }
}
