//! `loam sim fuzz`: many seeds, and the shortest log of the first that fails.
//!
//! The seeds run in a child process: an assertion that fails ends a process (the release profile aborts), and whoever makes the
//! failure small must live on. One attempt at a smaller script is one more child.

use crate::failure::Failure;
use clap::Args;
use loam_agent::stderr;
use loam_sim::fuzz::campaign::{Totals, outcome_of, outcome_of_cluster, run_cluster_seeds, run_seeds};
use loam_sim::fuzz::shrink::shrink;
use loam_sim::fuzz::{FailureKind, Sabotage, Script, cluster};
use std::io::Write;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

/// Children that make a failure small at most: each takes some milliseconds.
const ATTEMPTS_MAX: usize = 1_500;
/// Seeds between two looks of the progress line.
const PROGRESS_SEEDS: u64 = 100;

/// Arguments of `loam sim fuzz`.
#[derive(Args, Debug)]
#[command(after_help = SIM_FUZZ_EXAMPLES)]
pub(crate) struct SimFuzzArgs {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub(super) seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(super) first: u64,
    /// Whole clusters: 2 to 9 nodes that share their memory
    #[arg(long)]
    pub(super) cluster: bool,
    /// This seed alone
    #[arg(long, value_name = "SEED")]
    pub(super) seed: Option<u64>,
    /// Print what happens, event by event
    #[arg(long, requires = "seed")]
    pub(super) log: bool,
    /// Only these actions of the seed's script: 3,17,40
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "seed", hide = true, num_args = 0..=1)]
    pub(super) keep: Option<Vec<usize>>,
    /// Here, and not in a child process
    #[arg(long, hide = true)]
    pub(super) in_process: bool,
}

const SIM_FUZZ_EXAMPLES: &str = "\
Examples:
  loam sim fuzz --seeds 10000
  loam sim fuzz --seed 107 --log
  loam sim fuzz --cluster --seeds 10000

Exit status: 0 nothing found, 10 wrong bytes, 11 a page without a safe copy, 12 a thread that is not answered, 13 something that
does not come back or is counted twice, 14 an assertion, 15 nodes that do not agree about their cluster.";

pub(crate) fn fuzz(args: &SimFuzzArgs) -> Result<ExitCode, Failure> {
    match (args.in_process, args.seed) {
        (true, Some(seed)) => Ok(one(seed, args)),
        (true, None) => Ok(many(args)),
        (false, _) => supervise(args),
    }
}

/// One seed, or a part of its script, here.
fn one(seed: u64, args: &SimFuzzArgs) -> ExitCode {
    let (failure, log) = if args.cluster {
        let script = cluster::Script::of(seed);
        let script = args.keep.as_ref().map_or_else(|| script.clone(), |keep| script.with(keep));
        let outcome = outcome_of_cluster(&script, args.log, cluster::Sabotage::None);
        (outcome.failure, outcome.log)
    } else {
        let script = Script::of(seed);
        let script = args.keep.as_ref().map_or_else(|| script.clone(), |keep| script.with(keep));
        let outcome = outcome_of(&script, args.log, Sabotage::None);
        (outcome.failure, outcome.log)
    };
    print!("{log}");
    match failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("seed {seed} failed: {:?}: {}", failure.kind, failure.what);
            ExitCode::from(failure.kind.exit_status())
        }
    }
}

/// Many seeds, over all cores.
fn many(args: &SimFuzzArgs) -> ExitCode {
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = |done: u64| {
        if done.is_multiple_of(PROGRESS_SEEDS) {
            let rate = done as f64 / began.elapsed().as_secs_f64();
            stderr::put(&format!("\rloam: {done} of {} seeds, {rate:.0} a second ", args.seeds));
        }
    };
    let (first, seeds) = (args.first, args.seeds);
    let result = if args.cluster {
        run_cluster_seeds(first, seeds, threads, &progress).map(|totals| cluster_words(&totals.sum))
    } else {
        run_seeds(first, seeds, threads, &progress).map(|totals| words(&totals))
    };
    stderr::put("\n");
    match result {
        Ok(words) => {
            let rate = seeds as f64 / began.elapsed().as_secs_f64();
            println!("{seeds} seeds from {first} on: nothing found. {words}; {rate:.0} seeds a second");
            ExitCode::SUCCESS
        }
        Err((seed, failure)) => {
            println!("seed {seed} failed: {:?}: {}", failure.kind, failure.what);
            ExitCode::from(failure.kind.exit_status())
        }
    }
}

fn words(t: &Totals) -> String {
    format!(
        "{} events, {} pages left, {} faults answered, {} programs ended for a page that a fault had taken",
        t.events,
        t.moved,
        t.answered.iter().sum::<u64>(),
        t.lost_runs
    )
}

fn cluster_words(t: &cluster::Outcome) -> String {
    let [own, global, duplicate, disk] = t.answered;
    format!(
        "{} events, {} nodes joined, {} were killed, {} left, {} epochs, {} accesses checked, faults answered by own memory {own}, \
         global memory {global}, others' local memory {duplicate}, disks {disk}, {} putpages, {} copies checked against their directory",
        t.events, t.joined, t.died, t.left, t.epochs, t.accesses, t.puts, t.exact
    )
}

fn child(args: &[String], progress: bool) -> Result<Output, Failure> {
    let program =
        std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program ({e})")))?;
    let stderr = if progress { Stdio::inherit() } else { Stdio::null() };
    let mut command = Command::new(program);
    command.args(["sim", "fuzz", "--in-process"]).args(args).stderr(stderr);
    command.output().map_err(|e| Failure::new(format!("cannot start a simulation ({e})")))
}

/// These actions alone, as an argument.
fn keeping(keep: &[usize]) -> String {
    let keep: Vec<String> = keep.iter().map(ToString::to_string).collect();
    format!("--keep={}", keep.join(","))
}

/// What the child is asked for: all that was asked of us.
fn wanted(args: &SimFuzzArgs) -> Vec<String> {
    let mut wanted = vec![format!("--seeds={}", args.seeds), format!("--first={}", args.first)];
    wanted.extend(args.seed.map(|seed| format!("--seed={seed}")));
    wanted.extend(args.log.then(|| "--log".to_owned()));
    wanted.extend(args.keep.as_deref().map(keeping));
    wanted.extend(args.cluster.then(|| "--cluster".to_owned()));
    wanted
}

/// Runs the seeds in a child; what fails is made small.
fn supervise(args: &SimFuzzArgs) -> Result<ExitCode, Failure> {
    let output = child(&wanted(args), true)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let _ = std::io::stdout().write_all(&output.stdout);
    if output.status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    let seed = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("seed ")?.split_once(" failed: ")?.0.parse::<u64>().ok());
    let kind = output.status.code().and_then(FailureKind::of_exit_status);
    let (Some(seed), Some(kind)) = (seed, kind) else {
        return Err(Failure::new(format!("the simulation ended without a verdict ({})", output.status)));
    };
    // Who names the actions has had them made few already.
    if args.keep.is_some() {
        return Ok(ExitCode::from(kind.exit_status()));
    }
    let actions =
        if args.cluster { cluster::Script::of(seed).actions.len() } else { Script::of(seed).actions.len() };
    stderr::say(format_args!("making it small, of {actions} actions"));
    let which = args.cluster.then(|| "--cluster".to_owned());
    let part = |more: &[String]| -> Vec<String> {
        [format!("--seed={seed}")].into_iter().chain(which.clone()).chain(more.iter().cloned()).collect()
    };
    let keep = shrink(actions, kind, ATTEMPTS_MAX, |keep| {
        let output = child(&part(&[keeping(keep)]), false).ok()?;
        output.status.code().and_then(FailureKind::of_exit_status)
    });
    let output = child(&part(&[keeping(&keep), "--log".to_owned()]), false)?;
    let _ = std::io::stdout().write_all(&output.stdout);
    let fuzz = if args.cluster { "fuzz --cluster" } else { "fuzz" };
    println!("replay all of it:    loam sim {fuzz} --seed {seed} --log");
    println!("these {} actions:    loam sim {fuzz} --seed {seed} --log {}", keep.len(), keeping(&keep));
    Ok(ExitCode::from(kind.exit_status()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        args: SimFuzzArgs,
    }

    fn asked(args: impl IntoIterator<Item = String>) -> SimFuzzArgs {
        Asked::parse_from(["fuzz".to_owned()].into_iter().chain(args)).args
    }

    /// The line that is printed for a failure that was made small asks its child for that failure.
    #[test]
    fn the_actions_of_a_small_failure_reach_the_child() {
        let printed = ["--cluster", "--seed", "107", "--log", &keeping(&[3, 17, 40])].map(str::to_owned);
        let child = asked(wanted(&asked(printed)));
        assert_eq!((child.seed, child.keep), (Some(107), Some(vec![3, 17, 40])));
        assert!(child.cluster && child.log);
        assert_eq!(asked(wanted(&asked(["--seeds=7".to_owned()]))).keep, None, "all of them");
    }
}
