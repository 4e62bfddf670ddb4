//! The `loam` command: lend memory, run a program on borrowed memory, look at both, measure, check a machine.
#![forbid(unsafe_code)]
// It panics where stderr cannot be written: `stderr::say`.
#![deny(clippy::print_stderr)]

mod advise;
mod args;
mod attach;
mod bench;
mod borrow;
mod ca;
mod closing;
mod cluster;
mod daemon;
mod direct;
mod doctor;
mod embedded;
mod failure;
mod generate;
mod lend;
mod machine;
mod mount;
mod node;
mod pipes;
mod region;
mod run;
mod run_report;
mod scratch;
mod sim;
mod size;
mod status;
mod target;
mod text;
mod trace;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    pipes::end_quietly();
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if attach::is_meant() => return attach::refuse(&failure::usage_failure(&error)),
        Err(error) => return failure::usage(&error),
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: args::Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        args::Command::Lend(lend) => lend::lend(&lend),
        args::Command::Node(node) => daemon::node(&node),
        args::Command::Run(run) => run::run(run),
        args::Command::Attach(attach) => attach::attach(attach),
        args::Command::Mount(mount) => mount::mount(&mount),
        args::Command::Unmount(unmount) => mount::unmount(&unmount),
        args::Command::Region(region) => region::region(&region),
        args::Command::Status(status) => status::status(&status),
        args::Command::Ca(ca) => ca::ca(&ca),
        args::Command::Bench(bench) => bench::bench(&bench),
        args::Command::Sim(sim) => sim::sim(&sim),
        args::Command::Doctor(doctor) => doctor::doctor(&doctor),
        args::Command::Trace(trace) => trace::trace(trace),
        args::Command::Advise(advise) => advise::advise(&advise),
        args::Command::Man { dir } => generate::man(&dir),
        args::Command::Completions { shell } => generate::completions(shell),
        args::Command::BenchPeer(peer) => bench::peer(&peer),
        args::Command::BenchProgram(program) => bench::program(&program),
    }
}
