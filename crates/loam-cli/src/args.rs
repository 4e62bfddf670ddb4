//! The command line. Every flag is documented here once; help, man pages and completions come from it.

use crate::advise::args::AdviseArgs;
use crate::ca::args::CaArgs;
use crate::region::RegionArgs;
use crate::sim::SimArgs;
use crate::size::{Embedded, Region, Reserve, Size, or_nothing};
use crate::target::LenderArg;
use crate::trace::args::TraceArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use loam::region::MemoryPolicy;
use loam_agent::Durability;
use loam_core::borrower::FETCH_PLANS;
use loam_core::units::Bytes;
use loam_node::EtcdSite;
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
    /// Memory that this machine keeps free for itself: less is lent when it has less [default: 5%, and 256M at least]
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep: Option<Size>,
    /// Memory that borrowers together may reserve (`loam run --reserve`): it stays theirs until their runs end, whatever this machine needs
    /// [default: half of what is lent]
    #[arg(long, value_name = "SIZE", value_parser = or_nothing)]
    pub(crate) reservable: Option<Size>,
    /// Read what the machine has from DIR/proc and DIR/sys (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    pub(crate) machine_root: PathBuf,
    /// Answer /metrics (Prometheus, see docs/metrics.md) and /health here
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// Listen here for programs of this user, too: for direct regions (`loam region`)
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Let programs of this user have regions of this device (see `loam node --help`); may be given several times
    #[arg(long, value_name = "PATH", requires = "socket")]
    pub(crate) region_device: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the address on stdout and end with process PID (set by `loam run --embedded`)
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) embedded_by: Option<u32>,
}

/// The disk behind what is lent.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Write pages that wait here for a disk to a store in DIR (made if missing), and read them from there: needs --store-size
    ///
    /// What is in it survives a crash of this machine. One lender may use a directory at a time.
    #[arg(long = "store", value_name = "DIR", requires = "store_size")]
    pub(crate) dir: Option<PathBuf>,
    /// What the store may take of the disk, reserved at once: 64G, 1T
    #[arg(long, value_name = "SIZE", requires = "dir")]
    pub(crate) store_size: Option<Size>,
    /// What may fail together with this machine, a rack or a host: borrowers put the two copies of a page into different zones
    #[arg(long, value_name = "NAME")]
    pub(crate) zone: Option<String>,
}

impl StoreArgs {
    /// Puts what was asked for into the configuration of a lender on a machine with `memory` in all.
    pub(crate) fn apply(&self, memory: Bytes, config: &mut loam_node::LendConfig) {
        config.zone.clone_from(&self.zone);
        // Each needs the other.
        config.store = self.dir.clone().zip(self.store_size).map(|(dir, size)| loam_node::StoreAt {
            dir,
            size: size.on(memory),
            channel: None,
        });
        if config.store.is_some() {
            config.grace = loam_node::limits::STORE_GRACE;
        }
    }
}

const LEND_EXAMPLES: &str = "\
Examples:
  loam lend 4G
  loam lend 25% --listen 127.0.0.1:7071
  loam lend 48G --keep 8G                              gives back what its machine needs
  loam lend 48G --reservable 32G                       but for what runs may reserve (loam run --reserve)
  loam lend 16G --store /var/lib/loam --store-size 200G --zone rack-7
                                                       pages that wait for a disk get one
  loam lend 16G --listen 10.0.0.7:7070 --tls node-7    see `loam ca --help`
  loam lend 16G --listen 10.0.0.7:7070 --insecure      only on a network that you trust";

/// Arguments of `loam node`.
#[derive(Args, Debug)]
#[command(after_help = NODE_EXAMPLES)]
pub(crate) struct NodeArgs {
    /// How much to lend at most: 512M, 4G, 25% (of this machine's memory)
    #[arg(long, value_name = "SIZE")]
    pub(crate) lend: Size,
    /// Memory that this machine keeps free for itself: less is lent when it has less [default: 5%, and 256M at least]
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep: Option<Size>,
    /// Memory that borrowers together may reserve (`loam run --reserve`): it stays theirs until their runs end, whatever this machine needs
    /// [default: half of what is lent]
    #[arg(long, value_name = "SIZE", value_parser = or_nothing)]
    pub(crate) reservable: Option<Size>,
    /// Read what the machine has from DIR/proc and DIR/sys (for tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    pub(crate) machine_root: PathBuf,
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    pub(crate) listen: SocketAddr,
    /// A node of the cluster, any that lives; may be given several times, and may name this node itself
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) join: Vec<SocketAddr>,
    /// Find the other nodes by the site's own etcd (3.4 or newer), etcd://HOST:PORT[,HOST:PORT...][/CLUSTER], in place of --join
    ///
    /// Nodes with the same CLUSTER [default: default] are one cluster. Not encrypted: an etcd of another machine needs a tunnel that listens on loopback, or
    /// --insecure.
    #[arg(long, value_name = "URL", conflicts_with = "join")]
    pub(crate) membership: Option<EtcdSite>,
    /// Where other nodes and borrowers reach this one, if not at --listen
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) advertise: Option<SocketAddr>,
    /// What to call this node [default: the machine's name]
    ///
    /// A node that starts with the name of a member takes its place if that one is dead.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Encrypt, and talk only to nodes and borrowers with a certificate of the same authority: folder with ca.pem, node.pem, node.key
    /// (`loam ca issue NAME --role node`); read again when it changes
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Allow addresses that other machines can reach, unencrypted and unauthenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Answer /metrics (Prometheus, see docs/metrics.md) and /health here
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Socket for programs of this machine [default: /run/loam/node.sock for root, else $XDG_RUNTIME_DIR/loam/node.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Let programs have direct regions of this device (`loam region create --device PATH`); may be given several times
    ///
    /// A DAX device (/dev/daxX.Y; CXL memory in that mode, too), or a file of a file system mounted with DAX, of hugetlbfs or of tmpfs. What is in it is lost. One node has
    /// it at a time.
    #[arg(long, value_name = "PATH")]
    pub(crate) region_device: Vec<PathBuf>,
    /// Who may connect to the socket, and so borrow: file permissions in octal
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = file_mode)]
    pub(crate) socket_mode: u32,
    /// How often another node is probed: scales all times of the membership
    #[arg(long, hide = true, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub(crate) probe_ms: u64,
}

const NODE_EXAMPLES: &str = "\
Examples:
  loam node --lend 16G --listen 10.0.0.7:7070 --tls node-7                        the first one
  loam node --lend 16G --listen 10.0.0.8:7070 --join 10.0.0.7:7070 --tls node-8   any other; see `loam ca --help`
  loam node --lend 25% --join 10.0.0.7:7070 --http 127.0.0.1:9090
  loam node --lend 16G --region-device /dev/dax0.0                                `loam region create graph 64G --device /dev/dax0.0`
  loam node --lend 25% --membership etcd://127.0.0.1:2379/blue
  loam status                                                                   what it sees

LOAM_LOG=debug shows more, LOAM_LOG_FORMAT=json makes each line an object.";

fn file_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("write permissions in octal, such as 660".into()),
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

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
    /// [default: staged with two lenders or more, else disk]
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

/// Arguments of `loam mount`.
#[derive(Args, Debug)]
#[command(after_help = MOUNT_EXAMPLES)]
pub(crate) struct MountArgs {
    /// The directory to show, on a local disk or a file server
    pub(crate) source: PathBuf,
    /// An empty directory
    pub(crate) mountpoint: PathBuf,
    /// Memory for contents: 512M, 4G, 25% (of this machine's memory)
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    pub(crate) cache: Size,
    /// Listen for other mounts of the same source; port 0 lets the system choose [default: a free port, of the node's address with --tls
    /// or --insecure, else of loopback; none without a node or --peer]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Another mount of the same source, where there is no cluster; may be given several times. Of two mounts one must be told of the other
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) peer: Vec<SocketAddr>,
    /// Find mounts of the same source through the cluster of the `loam node` behind this socket [default: /run/loam/node.sock,
    /// $XDG_RUNTIME_DIR/loam/node.sock, if one is there]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) node: Option<PathBuf>,
    /// What the source is called, the same at all its mounts [default: SERVER:EXPORT/PATH for NFS, else SOURCE's path]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Encrypt, and talk only to mounts with a node's certificate of the same authority: folder with ca.pem, node.pem, node.key (`loam ca
    /// issue NAME --role node`); read again when it changes
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Stay in the foreground until Ctrl-C
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Allow an address that other machines can reach, unencrypted and unauthenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Print a line on stdout once mounted, then nothing any more (set by `loam mount` without `--foreground`)
    #[arg(long, hide = true)]
    pub(crate) background_child: bool,
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  loam mount /srv/data /mnt/data                              alone: a cache in this machine's memory
  loam mount /nfs/data /mnt/data --cache 8G --listen 127.0.0.1:7080
  loam mount /nfs/data /mnt/data2 --peer 127.0.0.1:7080       the second reader takes it from the first one's memory
  getfattr -n user.loam.figures --only-values /mnt/data       counters, as JSON (docs/mount.md)";

/// Arguments of `loam unmount`.
#[derive(Args, Debug)]
pub(crate) struct UnmountArgs {
    /// Where it is mounted
    pub(crate) mountpoint: PathBuf,
    /// Take it out of sight now although programs use it; it ends with the last of them
    #[arg(long)]
    pub(crate) lazy: bool,
}

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

pub(crate) fn page_arg(text: &str) -> Result<PageArg, String> {
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
