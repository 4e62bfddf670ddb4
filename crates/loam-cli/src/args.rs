//! The command line. Every flag is documented here once; help, man pages and completions come from it.

use crate::ca::args::CaArgs;
use crate::sim::SimArgs;
use crate::size::{Embedded, Size};
use crate::target::LenderArg;
use crate::trace::args::TraceArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
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
  loam status                                      the runs of this user, live";

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
    /// Run an unmodified program on borrowed memory
    ///
    /// Runs an unmodified program and keeps at most `--local` of its memory here; the rest goes to lenders.
    ///
    /// stdin, stdout, signals and the exit status pass through. The program keeps its own allocator and runs untouched until its memory
    /// nears `--local`. It must be dynamically linked and not set-user-id.
    Run(RunArgs),
    /// Show this user's runs and, if asked, lenders
    ///
    /// Shows the runs of this user while they run, and lenders if their addresses are given.
    Status(StatusArgs),
    /// Make certificates, so that lenders and borrowers know each other
    Ca(CaArgs),
    /// Measure this machine
    Bench(BenchArgs),
    /// Simulate: what a recorded program would do with other memory and other policies
    Sim(SimArgs),
    /// Record, convert and look at reference traces, the simulator's input
    Trace(TraceArgs),
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

/// Arguments of `loam lend`.
#[derive(Args, Debug)]
#[command(after_help = LEND_EXAMPLES)]
pub(crate) struct LendArgs {
    /// How much to lend at most: 512M, 4G, 25% (of this machine's memory)
    pub(crate) size: Size,
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    pub(crate) listen: SocketAddr,
    /// Encrypt, and serve only borrowers with a certificate of the same authority: folder with ca.pem, node.pem, node.key (`loam ca
    /// issue`); read again when it changes
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Allow an address that other machines can reach, unencrypted and unauthenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Print the address on stdout and end with process PID (set by `loam run --embedded`)
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) embedded_by: Option<u32>,
}

const LEND_EXAMPLES: &str = "\
Examples:
  loam lend 4G
  loam lend 25% --listen 127.0.0.1:7071
  loam lend 16G --listen 10.0.0.7:7070 --tls node-7    see `loam ca --help`
  loam lend 16G --listen 10.0.0.7:7070 --insecure      only on a network that you trust";

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// When a page's local frame may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// When the disk has the page: any lender may die at any time
    Disk,
    /// When one lender has it: that lender's death ends the program
    None,
}

/// Arguments of `loam run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Memory that the program and its children may keep on this machine [default: 75% of what is available now]
    #[arg(long, value_name = "SIZE")]
    pub(crate) local: Option<Size>,
    /// Borrow from this lender; may be given several times. With a name, its certificate must have it
    #[arg(long, value_name = "[NAME@]ADDR:PORT")]
    pub(crate) lender: Vec<LenderArg>,
    /// Encrypt, and use only lenders with a certificate of the same authority: folder with ca.pem, node.pem, node.key (`loam ca issue`)
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Start N lenders on this machine for the time of the run, each with SIZE (to try Loam out)
    #[arg(long, value_name = "NxSIZE")]
    pub(crate) embedded: Option<Embedded>,
    /// When a page's local memory may be reused
    #[arg(long, value_name = "KIND", value_enum, default_value = "disk")]
    pub(crate) durability: DurabilityArg,
    /// Folder of the slot file, which is removed at the end [default: /var/tmp/loam-UID]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Unit of eviction and fetch: a power of two from 4K to 1M [default: 8192 of them are --local, but 8K to 32K]
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    pub(crate) page: Option<Size>,
    /// Fetch ahead of sequential and strided access
    #[arg(long, value_name = "on|off", value_enum, default_value = "on", hide_possible_values = true)]
    pub(crate) prefetch: Switch,
    /// Write the figures of the run to this file as JSON (keys: docs/summary.md)
    #[arg(long, value_name = "FILE.json")]
    pub(crate) summary: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,
    /// Its arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  loam run --local 512M --lender 10.0.0.7:7070 --lender 10.0.0.8:7070 -- ./assembler reads.fq
  loam run --local 25% --embedded 3x1G -- sort --parallel=2 -S 4G big.txt -o sorted.txt
  loam run --local 1G --summary run.json -- python3 job.py       no lender: the disk alone

Exit status: the program's own; 125 if Loam fails, 126 if PROGRAM cannot be executed, 127 if it is not found.
Files: libloam_shim.so is taken from $LOAM_SHIM, else beside the loam executable, else ../lib/loam/.";

pub(crate) fn page_size(text: &str) -> Result<Size, String> {
    match text.parse::<Size>() {
        Ok(Size::Absolute(bytes)) if bytes.0.is_power_of_two() && (4096..=1 << 20).contains(&bytes.0) => {
            Ok(Size::Absolute(bytes))
        }
        Ok(_) => Err("a page is a power of two from 4K to 1M".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Arguments of `loam status`.
#[derive(Args, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Ask this lender too; may be given several times
    #[arg(long, value_name = "[NAME@]ADDR:PORT")]
    pub(crate) lender: Vec<LenderArg>,
    /// Credentials to ask lenders with: folder with ca.pem, node.pem, node.key (`loam ca issue`)
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Print one JSON object (keys: docs/summary.md)
    #[arg(long)]
    pub(crate) json: bool,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  loam status
  loam status --lender 10.0.0.7:7070
  loam status --json | jq '.runs[].faults'";

/// Measurements.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// Which measurement.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Remote faults and sequential reading, against the floor that this machine sets
    ///
    /// Measures the cost of a remote 4 KiB fault and the speed of sequential reading through Loam, beside what the
    /// same machine can do at best in the same run: a bare userfaultfd answer, a bare TCP round trip, a bare TCP stream.
    Fault(BenchFaultArgs),
}

/// Arguments of `loam bench fault`.
#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchFaultArgs {
    /// Write all figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Memory of the measured program
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(192..=65_536))]
    pub(crate) mib: u64,
    /// Seconds of random reading
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// With TLS between the measured program's agent and its lender, by credentials that are made for it
    #[arg(long)]
    pub(crate) tls: bool,
    /// Measure this machine without Loam only
    #[arg(long)]
    pub(crate) floor_only: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  loam bench fault
  loam bench fault --mib 2048 --seconds 20 --json fault.json";

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

/// One process of a two-process measurement.
#[derive(Args, Debug)]
pub(crate) struct PeerArgs {
    /// Which half
    #[arg(value_enum)]
    pub(crate) role: PeerRole,
    /// Core to stay on
    #[arg(long)]
    pub(crate) core: usize,
    /// Spin instead of sleeping
    #[arg(long)]
    pub(crate) spin: bool,
    /// Give the core away while spinning: the other half lives on the same one
    #[arg(long)]
    pub(crate) yields: bool,
    /// How many faults, round trips or writes
    #[arg(long)]
    pub(crate) count: usize,
    /// Where the other half listens (asking roles)
    #[arg(long)]
    pub(crate) connect: Option<SocketAddr>,
    /// Ends with this process
    #[arg(long)]
    pub(crate) parent: u32,
}

/// Halves of the two-process measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerRole {
    /// Faults; its userfaultfd goes out through stdin, a socket.
    Fault,
    /// Answers the faults of the other half.
    Answer,
    /// Answers each 64 bytes with 4 KiB.
    Serve,
    /// Asks with 64 bytes, waits for 4 KiB.
    Ask,
    /// Sends a stream.
    Source,
    /// Receives it.
    Drain,
}

/// The borrowing program of `bench fault`.
#[derive(Args, Debug)]
pub(crate) struct ProgramArgs {
    /// Which way to read
    #[arg(value_enum)]
    pub(crate) way: ProgramWay,
    /// Memory to fill
    #[arg(long)]
    pub(crate) mib: u64,
    /// Seconds of random reading
    #[arg(long, default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Most memory that stays local, to know when enough is away
    #[arg(long)]
    pub(crate) local_mib: u64,
    /// Where the figures go
    #[arg(long)]
    pub(crate) out: PathBuf,
}

/// Ways to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramWay {
    /// One word of a random page at a time.
    Random,
    /// Everything, in order, several times.
    Sequential,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
        assert!(!run.quiet && run.prefetch == Switch::On && run.durability == DurabilityArg::Disk);
        assert_eq!(run.page, None);
    }

    #[test]
    fn the_double_dash_may_be_left_out() {
        let cli = Cli::try_parse_from(["loam", "run", "sort", "-n", "--local", "1"]).expect("valid");
        let Command::Run(run) = cli.command else { panic!("not a run") };
        assert_eq!(run.args, ["-n", "--local", "1"]);
        assert!(run.local.is_none());
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
