//! Why lending could not begin.

use loam_core::units::Bytes;
use loam_wire::tls::CredentialsError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// More than the machine has.
    #[error("cannot lend {asked}: this machine has {available} of memory available; lend less than that")]
    TooLarge {
        /// What was asked for.
        asked: Bytes,
        /// MemAvailable.
        available: Bytes,
    },
    /// Less than a page, or more than a slab can be.
    #[error("cannot lend {asked}: the size must be between {min} and {max}")]
    Size {
        /// What was asked for.
        asked: Bytes,
        /// The least.
        min: Bytes,
        /// The most.
        max: Bytes,
    },
    /// More than is lent.
    #[error("cannot let {asked} be reserved: {size} are lent; give --reservable at most that")]
    Reservable {
        /// What was asked for.
        asked: Bytes,
        /// What is lent.
        size: Bytes,
    },
    /// Anybody who reaches the address could read what borrowers store.
    #[error(
        "refusing to listen on {addr}: it is reachable from other machines, and without credentials nothing is encrypted; \
         give --tls DIR (`loam ca issue` makes one), use a loopback address, or say --insecure on a network that you trust"
    )]
    NotLoopback {
        /// What was asked for.
        addr: SocketAddr,
    },
    /// Anybody who reaches the address could read what this node tells of itself.
    #[error(
        "refusing to answer HTTP on {addr}: it is reachable from other machines, unencrypted; use a loopback address, or \
         say --insecure on a network that you trust"
    )]
    HttpNotLoopback {
        /// What was asked for.
        addr: SocketAddr,
    },
    /// Anybody on the way could change who the members are.
    #[error(
        "refusing to ask etcd at {server}: it is on another machine, and nothing is encrypted on the way; use a tunnel that \
         listens on loopback, or say --insecure on a network that you trust"
    )]
    EtcdNotLoopback {
        /// HOST:PORT.
        server: String,
    },
    /// Other nodes cannot connect to "all addresses".
    #[error(
        "listening on all addresses ({addr}): say which one other nodes shall use, with --advertise ADDR:PORT"
    )]
    NoAddress {
        /// What was asked for.
        addr: SocketAddr,
    },
    /// The address for HTTP is taken, or not this machine's.
    #[error("cannot answer HTTP on {addr}: {why}; choose another with --http ADDR:PORT")]
    Http {
        /// What was asked for.
        addr: SocketAddr,
        /// The system's answer.
        why: io::Error,
    },
    /// Regions cannot be cut from it.
    #[error("cannot cut regions from {}: {why}", path.display())]
    RegionDevice {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        why: crate::DeviceError,
    },
    /// Nobody could ask for a region.
    #[error(
        "--region-device is for programs of this machine, and there is no socket for them: name one with --socket PATH"
    )]
    RegionDeviceWithoutSocket,
    /// The UNIX socket cannot be made, or somebody listens on it.
    #[error("cannot listen on {}: {why}; choose another with --socket PATH", path.display())]
    Socket {
        /// What was asked for.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// There can be no disk store.
    #[error("cannot lend with a disk store: {0}")]
    Store(#[from] crate::disk_store::DiskStoreError),
    /// The zone's name would not be told as it is.
    #[error("zone \"{zone}\" is no name: give --zone at most 64 bytes, without control characters")]
    Zone {
        /// What was asked for.
        zone: String,
    },
    /// There are credentials, and they cannot be used.
    #[error("cannot lend with TLS: {0}")]
    Credentials(#[from] CredentialsError),
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {addr}: {why}; choose another with --listen ADDR:PORT")]
    Listen {
        /// What was asked for.
        addr: SocketAddr,
        /// The system's answer.
        why: io::Error,
    },
    /// The system refused something that lending needs.
    #[error("cannot lend: {what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        why: io::Error,
    },
}

impl NodeError {
    /// For `map_err`: the system refused `what`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::System { what, why: why.into() }
    }
}
