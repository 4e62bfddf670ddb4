//! Why a mount could not be made, or not be ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Each prints as one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The source cannot be opened.
    #[error("cannot open the source {path:?} ({why}): give a directory that this user can read")]
    Source {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// The mountpoint cannot be used.
    #[error("cannot mount on {path:?} ({why}): give an empty directory")]
    Mountpoint {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// What is in it would be hidden.
    #[error("cannot mount on {path:?}: it is not empty; give an empty directory")]
    NotEmpty {
        /// Which.
        path: PathBuf,
    },
    /// A mount is there.
    #[error("{path:?} is already mounted: end that first with `loam unmount {path:?}`")]
    AlreadyMounted {
        /// Where.
        path: PathBuf,
    },
    /// One contains the other.
    #[error("{source_path:?} and {mountpoint:?} lie in each other: mount outside of the source")]
    Nested {
        /// The source.
        source_path: PathBuf,
        /// The mountpoint.
        mountpoint: PathBuf,
    },
    /// The kernel has no FUSE, or not for us.
    #[error("there is no /dev/fuse here ({why}): `modprobe fuse`, or pass the device into the container")]
    NoFuse {
        /// The system's answer.
        why: io::Error,
    },
    /// The mount call failed.
    #[error("cannot mount on {path:?} ({why}): run as root, or install fusermount3")]
    Refused {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// Too little to hold a few runs.
    #[error("a cache of {asked} bytes is too small: give --cache at least {min} bytes")]
    CacheTooSmall {
        /// What was asked for.
        asked: u64,
        /// The least.
        min: u64,
    },
    /// Anybody who reaches the address could read what is mounted.
    #[error(
        "refusing to listen on {addr}: it is reachable from other machines, and without credentials nothing is encrypted; \
         give --tls DIR (`loam ca issue` makes one), use a loopback address, or say --insecure on a network that you trust"
    )]
    NotLoopback {
        /// What was asked for.
        addr: SocketAddr,
    },
    /// There are credentials, and they cannot be used.
    #[error("cannot talk TLS to other mounts: {0}")]
    Credentials(#[from] loam_wire::tls::CredentialsError),
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {addr}: {why}; choose another with --listen ADDR:PORT")]
    Listen {
        /// What was asked for.
        addr: SocketAddr,
        /// The system's answer.
        why: io::Error,
    },
    /// Nothing of ours is mounted there.
    #[error("nothing of Loam's is mounted on {path:?}: `grep loam /proc/self/mountinfo` shows what is")]
    NotMounted {
        /// Where.
        path: PathBuf,
    },
    /// Programs use it.
    #[error("{path:?} is in use: end what uses it (`fuser -vm {path:?}` shows that), or say --lazy")]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// The system refused something else.
    #[error("{what} failed: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        why: io::Error,
    },
}

impl MountError {
    /// For `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::System { what, why: why.into() }
    }
}
