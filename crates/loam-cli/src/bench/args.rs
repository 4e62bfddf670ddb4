//! Flags of `loam bench`, and of the processes that it starts.

use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// Measure what TLS costs instead: plain and with credentials that are made for it, in turns
    #[arg(long, conflicts_with = "floor_only")]
    pub(crate) tls: bool,
    /// Measure how soon the first touched byte comes instead: pages of 4K, 64K and 1M with the fetch plans eager, pipelined and full, in turns
    #[arg(long, conflicts_with_all = ["floor_only", "tls"])]
    pub(crate) plans: bool,
    /// Measure this machine without Loam only
    #[arg(long)]
    pub(crate) floor_only: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  loam bench fault
  loam bench fault --tls
  loam bench fault --plans --json plans.json
  loam bench fault --mib 2048 --seconds 20 --json fault.json";

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
    /// Sleep between two reads of random reading.
    #[arg(long, default_value_t = 0)]
    pub(crate) pause_us: u64,
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
