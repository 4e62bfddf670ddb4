//! Flags of `loam mount` and `loam unmount`.

use crate::size::Size;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

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
