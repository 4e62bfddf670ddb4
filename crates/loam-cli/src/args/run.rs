//! Flags of `loam run` and `loam attach`.

use super::Switch;
use crate::size::{Embedded, Region, Reserve, Size};
use crate::target::LenderArg;
use clap::{Args, ValueEnum};
use loam::region::MemoryPolicy;
use loam_agent::Durability;
use loam_core::borrower::FETCH_PLANS;
use loam_core::units::Bytes;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which lender gets the pages that leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementArg {
    /// In proportion to the weights of the cluster's epoch, to free room where there are none
    Gms,
    /// Any at random; one that refuses a page passes it on once
    NChance,
    /// Any that has room
    Random,
    /// One with room after the other
    RoundRobin,
    /// None: the disk alone
    None,
}

impl PlacementArg {
    /// The name that the policy has.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gms => "gms",
            Self::NChance => "n-chance",
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::None => "none",
        }
    }
}

/// The fetch plan where none is given.
pub(crate) const FETCH_PLAN_DEFAULT: &str = "eager";

/// Arguments of `loam run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) borrow: BorrowArgs,
    /// The program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,
    /// Its arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// How to borrow.
#[derive(Args, Debug)]
pub(crate) struct BorrowArgs {
    /// Memory that the program and its children may keep on this machine [default: 75% of what is available now]
    #[arg(long, value_name = "SIZE")]
    pub(crate) local: Option<Size>,
    /// Borrow from this lender and no cluster; may be given several times. With a name, its certificate must have it
    #[arg(long, value_name = "[NAME@]ADDR:PORT")]
    pub(crate) lender: Vec<LenderArg>,
    /// Encrypt, and use only lenders with a certificate of the same authority: folder with ca.pem, node.pem, node.key (`loam ca issue`)
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Borrow from the cluster of the `loam node` behind this socket [default: /run/loam/node.sock, $XDG_RUNTIME_DIR/loam/node.sock]
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["lender", "embedded"])]
    pub(crate) node: Option<PathBuf>,
    /// Which lender gets what leaves [default: gms in a cluster, else round-robin]
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) placement: Option<PlacementArg>,
    /// Most that may be with lenders at a time: a share that leaves room for others; the rest is on the disk alone
    #[arg(long, value_name = "SIZE")]
    pub(crate) lend_max: Option<Size>,
    /// Keep what a long sequential stream passes over from lenders, until it is wanted again
    #[arg(long, value_name = "on|off", value_enum, default_value = "off", hide_possible_values = true)]
    pub(crate) guard_scans: Switch,
    /// Start N lenders on this machine for the time of the run, each with SIZE (to try Loam out)
    #[arg(long, value_name = "NxSIZE")]
    pub(crate) embedded: Option<Embedded>,
    /// When a page's local memory may be reused: when two lenders have it, who write it to their disks if they have any (staged); N lenders, 2 to 4
    /// (replicas=N); the disk here (disk: any lender may die at any time); one lender, whose death ends the program (none)
    /// [default: staged in a cluster and with two lenders or more; else, and with --lend-max, --guard-scans on or --placement none, disk]
    #[arg(long, value_name = "staged|replicas=N|disk|none", value_parser = durability)]
    pub(crate) durability: Option<Durability>,
    /// Folder of the slot file, which is removed at the end [default: /var/tmp/loam-UID]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Unit of eviction and fetch: a power of two from 4K to 1M; or `auto`: found for each place while the program runs; or `aapc`: one for all
    /// memory by the paper's criterion
    #[arg(long, value_name = "SIZE|auto|aapc", value_parser = page_arg, default_value = "auto")]
    pub(crate) page: PageArg,
    /// In which order the subpages of a page come: the touched one first and the rest behind it (eager), some neighbours before the rest
    /// (pipelined, -doubled, -beside, learned), all before the program goes on (full), the touched one alone (lazy)
    #[arg(long, value_name = "PLAN", value_parser = clap::builder::PossibleValuesParser::new(FETCH_PLANS), default_value = FETCH_PLAN_DEFAULT, hide_possible_values = true)]
    pub(crate) fetch_plan: String,
    /// Unit of transfer inside a page: a power of two from 4K; no larger than a page
    #[arg(long, value_name = "SIZE", value_parser = page_size, default_value = "4K")]
    pub(crate) subpage: Size,
    /// Fetch ahead of sequential and strided access
    #[arg(long, value_name = "on|off", value_enum, default_value = "on", hide_possible_values = true)]
    pub(crate) prefetch: Switch,
    /// Borrow for large allocations only: reserve SIZE in each process, serve its large allocations from there, and keep everything else of
    /// the program on this machine
    ///
    /// SIZE is address space, and may be many times `--local`, which holds for the region and the rest together. What a region has no room for
    /// the C library serves (docs/regions.md).
    ///
    /// With `:direct` SIZE is memory of this machine's node (`loam node`, `loam lend --socket`), reserved before the program starts, for all processes
    /// together: plain loads and stores, nothing is paged, and a forked child gets a copy of what its parent has there.
    #[arg(long, value_name = "SIZE[:paged|:direct]")]
    pub(crate) region: Option<Region>,
    /// The socket of the node that a direct region is reserved at [default: /run/loam/node.sock, $XDG_RUNTIME_DIR/loam/node.sock]
    #[arg(long, value_name = "PATH", requires = "region")]
    pub(crate) region_socket: Option<PathBuf>,
    /// Cut a direct region from this device, one that the node was started with (`loam node --region-device PATH`), by the same path
    #[arg(long, value_name = "PATH", requires = "region", conflicts_with = "region_numa")]
    pub(crate) region_device: Option<PathBuf>,
    /// From which memory nodes of this machine a direct region is: as `loam region create --numa`
    #[arg(long, value_name = "POLICY", requires = "region")]
    pub(crate) region_numa: Option<MemoryPolicy>,
    /// Allocations from this size on go to the region [default: 256K]
    #[arg(long, value_name = "SIZE", requires = "region")]
    pub(crate) min_alloc: Option<Size>,
    /// Have lenders set room aside before the program starts: for SIZE of its pages [default: all of the region], as many copies of each as
    /// --durability needs. If they have less, the run ends with a line, and the program is not started
    ///
    /// What is set aside is this run's alone until it ends, whatever other runs or the lenders' own machines need (docs/lending.md).
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "region")]
    pub(crate) reserve: Option<Reserve>,
    /// Write the figures of the run to this file as JSON (keys: docs/summary.md)
    #[arg(long, value_name = "FILE.json")]
    pub(crate) summary: Option<PathBuf>,
    /// Record where the time went, and draw it in this file for a browser (docs/report.md)
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Arguments of `loam attach`. It returns at once; what serves the program goes on in the background, tells on stdout how to join (`ready`, the
/// socket and the shim, a line each; or `failed: ` and why) and ends with the program.
#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) borrow: BorrowArgs,
    /// The process that wants to borrow
    #[arg(long)]
    pub(crate) pid: i32,
    /// This is the process in the background (set by `loam attach`)
    #[arg(long, hide = true)]
    pub(crate) background_child: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  loam run --local 512M --lender 10.0.0.7:7070 --lender 10.0.0.8:7070 -- ./assembler reads.fq
  loam run --local 25% --embedded 3x1G -- sort --parallel=2 -S 4G big.txt -o sorted.txt
  loam run --local 1G --region 64G -- ./solver grid.dat          large arrays alone go to lenders (docs/regions.md)
  loam run --local 1G --region 16G:direct -- ./solver grid.dat   of memory that this machine's `loam node` lends
  loam run --local 1G --region 64G --reserve -- ./solver grid.dat
                                                                 only if lenders keep 64G (and the copies) for it
  loam run --local 1G --report run.html -- python3 job.py        the cluster of this machine's `loam node`, if it runs

Exit status: the program's own; 125 if Loam fails, 126 if PROGRAM cannot be executed, 127 if it is not found.
Files: libloam_shim.so is taken from $LOAM_SHIM, else beside the loam executable, else ../lib/loam/.";

/// What `--page` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageArg {
    Auto,
    Aapc,
    Fixed(Bytes),
}

fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once('=') {
        None if text == "disk" => Ok(Durability::Disk),
        None if text == "none" => Ok(Durability::None),
        None if text == "staged" => Ok(Durability::Staged),
        Some(("replicas", lenders)) => match lenders.parse() {
            Ok(lenders @ 2..=4) => Ok(Durability::Replicas(lenders)),
            _ => Err("a page has 2 to 4 replicas".into()),
        },
        _ => Err("it is staged, replicas=2 to replicas=4, disk or none".into()),
    }
}

fn page_arg(text: &str) -> Result<PageArg, String> {
    match text {
        "auto" => Ok(PageArg::Auto),
        "aapc" => Ok(PageArg::Aapc),
        _ => match page_size(text)? {
            Size::Absolute(bytes) => Ok(PageArg::Fixed(bytes)),
            _ => unreachable!("a page has a size in bytes"),
        },
    }
}

pub(crate) fn page_size(text: &str) -> Result<Size, String> {
    match text.parse::<Size>() {
        Ok(Size::Absolute(bytes)) if bytes.0.is_power_of_two() && (4096..=1 << 20).contains(&bytes.0) => {
            Ok(Size::Absolute(bytes))
        }
        Ok(_) => Err("a page is a power of two from 4K to 1M".into()),
        Err(error) => Err(error.to_string()),
    }
}
