//! The UNIX socket for programs of the same machine: the same protocol as over TCP, without an address to know.

use crate::config::LocalSocket;
use crate::error::NodeError;
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub(crate) struct Local {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Local {
    /// Makes the socket, and its folder. A socket that a node left behind that was killed is replaced; one that somebody listens on is not, nor is any other file.
    pub(crate) fn bind(socket: &LocalSocket) -> Result<Self, NodeError> {
        let path = &socket.path;
        let refused = |why: io::Error| NodeError::Socket { path: path.clone(), why };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        remove_stale(path).map_err(refused)?;
        let listener = listen(path, socket.mode).map_err(refused)?;
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

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what is there is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Then it cannot be bound, either, and that says why.
        Err(_) => Ok(()),
    }
}

/// A socket that listens there, and that those may connect to whom `mode` lets write.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // What it is bound with, so that nobody gets in before: the kernel cuts it by the umask.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // What the umask has cut.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path, mode: u32) -> Result<Local, String> {
        let socket = LocalSocket { path: path.to_owned(), mode, required: true };
        Local::bind(&socket).map_err(|error| error.to_string())
    }

    /// Connecting to a file is refused as connecting to a socket is that nobody listens on: it was taken for one, and was gone.
    #[test]
    fn a_file_in_the_sockets_place_stays() {
        let folder = std::env::temp_dir().join(format!("loam-local-{}", std::process::id()));
        let path = folder.join("node.sock");
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, "somebody's").unwrap();
        let line = bind(&path, 0o666).unwrap_err();
        assert!(line.contains("no socket") && !line.contains('\n'), "{line}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
        fs::remove_file(&path).unwrap();
        // What a node that was killed has left.
        drop(UnixListener::bind(&path).unwrap());
        let local = bind(&path, 0o666).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(bind(&path, 0o600).is_err(), "somebody listens there");
        drop(local);
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
