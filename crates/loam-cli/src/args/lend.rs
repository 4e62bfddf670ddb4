//! Flags of `loam lend` and `loam node`.

use super::PORT;
use crate::size::{Size, or_nothing};
use clap::Args;
use loam_core::units::{Bytes, Duration};
use loam_node::limits::STORE_GRACE;
use loam_node::{EtcdSite, LendConfig, StoreAt};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `loam lend`.
#[derive(Args, Debug)]
#[command(after_help = LEND_EXAMPLES)]
pub(crate) struct LendArgs {
    /// How much to lend at most: 512M, 4G, 25% (of this machine's memory)
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) sharing: SharingArgs,
    /// Listen here for programs of this user, too: for direct regions (`loam region`)
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Let programs of this user have regions of this device (see `loam node --help`); may be given several times
    #[arg(long, value_name = "PATH", requires = "socket")]
    pub(crate) region_device: Vec<PathBuf>,
    /// Print the address on stdout and end with process PID (set by `loam run --embedded`)
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) embedded_by: Option<u32>,
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
    #[command(flatten)]
    pub(crate) sharing: SharingArgs,
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

/// What both have: where memory is lent, to whom, and what of this machine stays its own.
#[derive(Args, Debug)]
pub(crate) struct SharingArgs {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    pub(crate) listen: SocketAddr,
    /// Encrypt, and talk only to nodes and borrowers with a certificate of the same authority: folder with ca.pem, node.pem, node.key
    /// (`loam ca issue NAME --role node`); read again when it changes
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,
    /// Allow addresses that other machines can reach, unencrypted and unauthenticated
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
    #[command(flatten)]
    store: StoreArgs,
}

impl SharingArgs {
    /// What to lend `size` of a machine with `memory` in all.
    pub(crate) fn config(&self, size: Size, memory: Bytes) -> LendConfig {
        let mut config = LendConfig::new(size.on(memory));
        config.listen = self.listen;
        config.tls.clone_from(&self.tls);
        config.insecure = self.insecure;
        config.keep = self.keep.map(|keep| keep.on(memory));
        config.reservable = self.reservable.map(|size| size.on(memory));
        config.machine_root.clone_from(&self.machine_root);
        config.http = self.http;
        self.store.apply(memory, &mut config);
        config
    }
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
    /// A page waits between once and twice as long in memory before it is written, while there is room; 0: it is written at once
    ///
    /// What a program reads or changes meanwhile costs no write.
    #[arg(long, value_name = "MS", requires = "dir", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) store_linger_ms: Option<u64>,
    /// What may fail together with this machine, a rack or a host: borrowers put the two copies of a page into different zones
    #[arg(long, value_name = "NAME")]
    pub(crate) zone: Option<String>,
}

impl StoreArgs {
    /// Puts the store into the configuration of a lender on a machine with `memory` in all.
    fn apply(&self, memory: Bytes, config: &mut LendConfig) {
        config.zone.clone_from(&self.zone);
        // Each needs the other.
        config.store = self.dir.clone().zip(self.store_size).map(|(dir, size)| StoreAt {
            dir,
            size: size.on(memory),
            channel: None,
            linger: self.store_linger_ms.map(Duration::from_millis),
        });
        if config.store.is_some() {
            config.grace = STORE_GRACE;
        }
    }
}
