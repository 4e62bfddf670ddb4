//! The UNIX socket for programs of the same machine: the same protocol as over TCP, without an address to know.

use crate::config::LocalSocket;
use crate::error::NodeError;
use rustix::fd::OwnedFd;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub(crate) struct Local {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Local {
    /// Makes the socket, and its folder. A file that a node left behind that was killed is replaced, one that somebody listens on is not.
    pub(crate) fn bind(socket: &LocalSocket) -> Result<Self, NodeError> {
        let path = &socket.path;
        let refused = |why: io::Error| NodeError::Socket { path: path.clone(), why };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        match UnixStream::connect(path) {
            Ok(_) => return Err(refused(io::Error::from(io::ErrorKind::AddrInUse))),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(refused)?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        fs::set_permissions(path, Permissions::from_mode(socket.mode)).map_err(refused)?;
        let inode = fs::metadata(path).map_err(refused)?.ino();
        Ok(Self { listener, path: path.clone(), inode })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        self.listener.accept().map(|(stream, _)| stream.into())
    }
}

impl rustix::fd::AsFd for Local {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Another node may have taken the path over.
        if fs::metadata(&self.path).is_ok_and(|meta| meta.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
