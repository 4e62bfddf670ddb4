//! `loam sim`: the simulator.

mod fuzz;

use crate::args::{SimArgs, SimCommand};
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs a simulation.
pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SimCommand::Fuzz(fuzz) => fuzz::fuzz(fuzz),
    }
}
