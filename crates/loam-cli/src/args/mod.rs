//! The command line. Every flag is documented here once; help, man pages and completions come from it.

mod lend;
mod mount;
mod run;

pub(crate) use lend::{LendArgs, NodeArgs};
pub(crate) use mount::{MountArgs, UnmountArgs};
pub(crate) use run::{AttachArgs, BorrowArgs, FETCH_PLAN_DEFAULT, PageArg, PlacementArg, RunArgs, page_size};

use crate::advise::args::AdviseArgs;
use crate::bench::args::{BenchArgs, PeerArgs, ProgramArgs};
use crate::ca::args::CaArgs;
use crate::region::RegionArgs;
use crate::sim::SimArgs;
use crate::target::LenderArg;
use crate::trace::args::TraceArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Port that `loam lend` listens on unless told otherwise.
pub(crate) const PORT: u16 = 7070;

/// Lets a program use the idle memory of other machines, unchanged.
///
/// Idle machines lend: `loam lend 16G`. The busy one borrows: `loam run --local 4G -- PROGRAM`. Loam's own messages go to
/// stderr and its own errors end with status 125.
#[derive(Parser, Debug)]
#[command(name = "loam", version, max_term_width = 100, after_help = TOP_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const TOP_EXAMPLES: &str = "\
Examples:
  loam doctor                                      check this machine, and what to do about it
  loam lend 4G                                     lend 4 GiB on 127.0.0.1:7070
  loam run --local 512M --lender 127.0.0.1:7070 -- sort -S 4G big.txt
  loam run --local 25% --embedded 3x1G -- python3 job.py
  loam node --lend 4G --join 10.0.0.7:7070         be one of a cluster that shares its memory
  loam status                                      the runs of this user, and the cluster, live";

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Lend memory of this machine until interrupted
    ///
    /// Lends memory of this machine to programs on other machines until it gets SIGINT or SIGTERM.
    ///
    /// Memory is taken as it is used and given back when its borrower is gone. More than the machine has free is refused.
    /// An address that other machines can reach needs `--tls`, or `--insecure` on a network that is trusted: whoever reaches
    /// the port can then read and write what is lent.
    Lend(LendArgs),
    /// Be a node of a cluster: lend memory, and know of the others
    ///
    /// Lends memory of this machine as `loam lend` does, and finds the other nodes: they learn of each other from any one that lives, agree on
    /// how much of what each should get, and notice within seconds who is gone. Programs of this machine borrow through it.
    ///
    /// Nobody configures who lends to whom. What nodes tell each other and what happens when machines fail is in docs/cluster.md.
    Node(NodeArgs),
    /// Run an unmodified program on borrowed memory
    ///
    /// Runs an unmodified program and keeps at most `--local` of its memory here; the rest goes to lenders.
    ///
    /// stdin, stdout, signals and the exit status pass through. The program keeps its own allocator and runs untouched until its memory
    /// nears `--local`. It must be dynamically linked and not set-user-id.
    Run(RunArgs),
    /// Serve a program that runs already and loads the shim by itself (what the library starts)
    #[command(hide = true)]
    Attach(AttachArgs),
    /// Show a directory read-only, its contents cached by all machines that do so
    ///
    /// Shows the directory SOURCE at MOUNTPOINT, read-only. What is read is kept in memory here and offered to the other mounts of the
    /// same source.
    ///
    /// Returns when programs can use it; the mount stays until `loam unmount`. Files that change at the source are seen changed at the
    /// next open. An address that other machines can reach needs `--tls`, or `--insecure` on a network that is trusted: whoever reaches
    /// the port can then read what is mounted.
    Mount(MountArgs),
    /// End a `loam mount`
    Unmount(UnmountArgs),
    /// Reserve memory of this machine's node for programs that map it
    ///
    /// Reserves memory of this machine's node for programs that map it and use it by plain loads and stores, or shows, resizes and removes such regions.
    Region(RegionArgs),
    /// Show this user's runs, the cluster, and if asked other nodes and lenders
    ///
    /// Shows the runs of this user while they run, and the cluster as this machine's node sees it, or the nodes whose addresses are given.
    Status(StatusArgs),
    /// Make certificates, so that lenders and borrowers know each other
    Ca(CaArgs),
    /// Measure this machine
    Bench(BenchArgs),
    /// Simulate: what a recorded program would do with other memory and other policies
    Sim(SimArgs),
    /// Record, convert and look at reference traces, the simulator's input
    Trace(TraceArgs),
    /// Tell for each data structure of a recorded program whether to keep, page or load it from elsewhere
    ///
    /// Replays a trace and tells for each data structure which way to memory is best on a described cluster: here, paged (and in pages of which size), or
    /// loaded and stored on another node directly, with the expected time of each.
    ///
    /// Structures are address ranges: those that --structures names, and what gaps tell apart. They share --local. Paged memory is replayed
    /// through the policy of the live system.
    Advise(AdviseArgs),
    /// Check kernel features, permissions and limits, and say what to do about each
    ///
    /// Checks whether this machine and this user can borrow and lend, and says what to do about each finding.
    ///
    /// Ends with status 1 if something must be mended before `loam run` can work.
    Doctor(DoctorArgs),
    /// Write man pages into a folder
    #[command(hide = true)]
    Man {
        /// Folder; made if it does not exist
        dir: PathBuf,
    },
    /// Print a completion script
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// One of the two processes of a measurement
    #[command(hide = true)]
    BenchPeer(PeerArgs),
    /// The borrowing program of a measurement
    #[command(hide = true)]
    BenchProgram(ProgramArgs),
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// Arguments of `loam status`.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Ask this node or lender about its cluster, instead of this machine's node; may be several
    #[arg(value_name = "[NAME@]ADDR:PORT")]
    pub(crate) nodes: Vec<LenderArg>,
    /// The socket of this machine's node [default: as `loam node` has it]
    #[arg(long, value_name = "PATH", conflicts_with = "nodes")]
    pub(crate) socket: Option<PathBuf>,
    /// Ask this lender too; may be given several times
    #[arg(long, value_name = "[NAME@]ADDR:PORT")]
    pub(crate) lender: Vec<LenderArg>,
    /// Credentials to ask nodes and lenders with: folder with ca.pem, node.pem, node.key (`loam ca issue`)
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Print one JSON object (keys: docs/summary.md, docs/cluster.md)
    #[arg(long)]
    pub(crate) json: bool,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  loam status
  loam status 10.0.0.7:7070                       the cluster as that node sees it
  loam status --lender 10.0.0.7:7070              its borrowers
  loam status --json | jq '.runs[].faults'";

/// Arguments of `loam doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Folder to check for the slot file [default: /var/tmp/loam-UID]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Credentials to check: folder with ca.pem, node.pem, node.key
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use loam_core::borrower::FETCH_PLANS;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_programs_flags_are_not_ours() {
        let cli = Cli::try_parse_from([
            "loam",
            "run",
            "--local",
            "64M",
            "--",
            "sort",
            "--parallel=2",
            "--quiet",
            "-x",
        ]);
        let Command::Run(run) = cli.expect("valid").command else { panic!("not a run") };
        assert_eq!(run.program, "sort");
        assert_eq!(run.args, ["--parallel=2", "--quiet", "-x"]);
        assert!(!run.borrow.quiet && run.borrow.prefetch == Switch::On && run.borrow.durability.is_none());
        assert_eq!(run.borrow.page, PageArg::Auto);
    }

    #[test]
    fn every_placement_is_one_of_the_policys() {
        let names: Vec<&str> = PlacementArg::value_variants().iter().map(|p| p.name()).collect();
        assert_eq!(names, loam_core::borrower::PLACEMENTS);
        for variant in PlacementArg::value_variants() {
            let said = variant.to_possible_value().expect("none is hidden");
            assert_eq!(said.get_name(), variant.name());
        }
    }

    #[test]
    fn the_double_dash_may_be_left_out() {
        let cli = Cli::try_parse_from(["loam", "run", "sort", "-n", "--local", "1"]).expect("valid");
        let Command::Run(run) = cli.command else { panic!("not a run") };
        assert_eq!(run.args, ["-n", "--local", "1"]);
        assert!(run.borrow.local.is_none());
    }

    #[test]
    fn fetch_plans_are_known_and_subpages_are_powers_of_two() {
        for (flag, value) in [("--fetch-plan", "quick"), ("--subpage", "3K"), ("--subpage", "2M")] {
            assert!(
                Cli::try_parse_from(["loam", "run", flag, value, "--", "true"]).is_err(),
                "{value} passed"
            );
        }
        for plan in FETCH_PLANS {
            assert!(Cli::try_parse_from(["loam", "run", "--fetch-plan", plan, "--", "true"]).is_ok());
        }
        assert!(FETCH_PLANS.contains(&FETCH_PLAN_DEFAULT));
    }

    #[test]
    fn pages_are_powers_of_two_within_the_extent() {
        for page in ["3K", "2K", "2M", "48K", "10%", "0"] {
            assert!(
                Cli::try_parse_from(["loam", "run", "--page", page, "--", "true"]).is_err(),
                "{page} passed"
            );
        }
        assert!(Cli::try_parse_from(["loam", "run", "--page", "1M", "--", "true"]).is_ok());
    }
}
