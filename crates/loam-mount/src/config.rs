//! What a mount asks for, and whether it can be had.

use crate::cache::CACHE_BYTES_MIN;
use crate::error::MountError;
use crate::mountinfo;
use loam_core::units::Bytes;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything that [`crate::mount`] needs to know.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The directory to show.
    pub source: PathBuf,
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// What the source is called: the same on all nodes that share it. `None`: `SERVER:EXPORT` and the path in it for NFS, else the path.
    pub name: Option<String>,
    /// Room for contents.
    pub cache: Bytes,
    /// Where to listen for other mounts; port 0 takes any that is free. `None` with no peers: alone.
    pub listen: Option<SocketAddr>,
    /// Other mounts of the same source.
    pub peers: Vec<SocketAddr>,
    /// Where this machine's node listens for local programs: mounts of the cluster are found through it. `None`: only `peers` are known.
    pub node: Option<PathBuf>,
    /// Folder with credentials for TLS (`loam ca issue`), read again whenever it changes.
    pub tls: Option<PathBuf>,
    /// Listen on an address that other machines can reach, without encryption.
    pub insecure: bool,
}

/// What has been looked at and can be had.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) name: String,
}

impl MountConfig {
    /// Whether it can be had, as far as can be told before it is tried.
    pub(crate) fn check(&self) -> Result<Checked, MountError> {
        if self.cache.0 < CACHE_BYTES_MIN {
            return Err(MountError::CacheTooSmall { asked: self.cache.0, min: CACHE_BYTES_MIN });
        }
        if let Some(addr) =
            self.listen.filter(|addr| !addr.ip().is_loopback() && self.tls.is_none() && !self.insecure)
        {
            return Err(MountError::NotLoopback { addr });
        }
        let source = self.source.canonicalize().and_then(|path| directory(&path).map(|()| path));
        let source = source.map_err(|why| MountError::Source { path: self.source.clone(), why })?;
        let mountpoint = check_mountpoint(&self.mountpoint)?;
        if mountpoint.starts_with(&source) || source.starts_with(&mountpoint) {
            return Err(MountError::Nested { source_path: source, mountpoint });
        }
        std::fs::metadata("/dev/fuse").map_err(|why| MountError::NoFuse { why })?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => mountinfo::name_of(&source)?,
        };
        Ok(Checked { source, mountpoint, name })
    }
}

fn directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

fn check_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let unusable = |why| MountError::Mountpoint { path: path.to_owned(), why };
    let absolute = match path.canonicalize() {
        Ok(path) => path,
        // A mount whose process has died answers nothing else.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
            return Err(MountError::AlreadyMounted { path: path.to_owned() });
        }
        Err(why) => return Err(unusable(why)),
    };
    if mountinfo::is_loams(&absolute)? {
        return Err(MountError::AlreadyMounted { path: absolute });
    }
    directory(&absolute).map_err(unusable)?;
    if std::fs::read_dir(&absolute).map_err(unusable)?.next().is_some() {
        return Err(MountError::NotEmpty { path: absolute });
    }
    Ok(absolute)
}
