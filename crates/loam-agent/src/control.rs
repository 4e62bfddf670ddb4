//! The folder of the control sockets. A shim gives its program's userfaultfd to whoever listens there, so it is this user's alone, or it is not used.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::{Gid, Pid, Uid, geteuid, getuid};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Everybody may go through it to a socket whose name he knows: a program may run as another user than its agent.
const MODE: u32 = 0o711;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Why there are no control sockets.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Whoever else can write there could put his own sockets in place of ours.
    #[error("{} {why}, and its sockets cannot be trusted: have it removed, or set TMPDIR to a folder of your own", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Process ids are unique in one namespace only.
    #[error("{} is in use by a run in another container: set TMPDIR to another folder", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// A call that was refused.
    #[error("{what} {} failed ({errno}): check its owner and free space", path.display())]
    Refused {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        errno: Errno,
    },
}

/// Folder of the control sockets of this user's runs (`run-PID.sock`): a connection is answered with one line
/// of JSON, a [`Summary`](crate::summary::Summary), and closed. Nobody has looked yet whether it can be trusted.
pub(crate) fn path() -> PathBuf {
    std::env::temp_dir().join(format!("loam-{}", getuid().as_raw()))
}

/// Opens the folder if it is ours and nobody else may change what is in it.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, ControlError> {
    let not_ours = |why| ControlError::NotOurs { path: path.to_owned(), why };
    let refused = |errno| match errno {
        Errno::LOOP | Errno::NOTDIR => not_ours("is no folder"),
        errno => ControlError::Refused { what: "opening", path: path.to_owned(), errno },
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(refused)?;
    let stat = rustix::fs::fstat(&folder).map_err(refused)?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(not_ours("belongs to another user"));
    }
    if stat.st_mode & (libc::S_IWGRP | libc::S_IWOTH) != 0 {
        return Err(not_ours("can be written by other users"));
    }
    Ok(folder)
}

/// The folder, made and looked at.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

impl Folder {
    /// Makes it if there is none.
    pub(crate) fn make(path: PathBuf) -> Result<Self, ControlError> {
        let refused = |what, errno| ControlError::Refused { what, path: path.clone(), errno };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(MODE)
            .create(&path)
            .map_err(|error| refused("creating", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let fd = open(&path)?;
        // The umask has cut it.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(MODE)).map_err(|errno| refused("chmod of", errno))?;
        Ok(Self { path, fd })
    }

    /// A socket that listens as `name`, and that those may connect to whom `mode` lets write.
    pub(crate) fn listen(
        &self,
        name: &str,
        kind: SocketType,
        mode: u32,
    ) -> Result<(OwnedFd, PathBuf), ControlError> {
        let path = self.path.join(name);
        let refused = |errno| ControlError::Refused { what: "the socket", path: path.clone(), errno };
        if answers(&path, kind) {
            return Err(ControlError::Taken { path });
        }
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(refused)?;
        // What it is bound with, so that nobody gets in before: the kernel cuts it by the umask.
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::fchmod(&socket, mode).map_err(refused)?;
        let address = SocketAddrUnix::new(&path).map_err(refused)?;
        rustix::net::bind(&socket, &address).map_err(refused)?;
        // What the umask has cut, by descriptors: in the folder that was looked at, and through no link.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let bound = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(refused)?;
        let stat = rustix::fs::fstat(&bound).map_err(refused)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(refused(Errno::NOTSOCK));
        }
        rustix::fs::chmod(format!("/proc/self/fd/{}", bound.as_raw_fd()), mode).map_err(refused)?;
        rustix::net::listen(&socket, BACKLOG).map_err(refused)?;
        Ok((socket, path))
    }

    /// Removes the sockets of runs that were killed: of a process that is not there, and that nobody listens to. The one does without the
    /// other where another container shares the folder, and where a run is just beginning.
    pub(crate) fn remove_stale(&self) {
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else { continue };
            let (kind, number) = match (stem.strip_prefix("agent-"), stem.strip_prefix("run-")) {
                (Some(number), _) => (SocketType::SEQPACKET, number),
                (_, Some(number)) => (SocketType::STREAM, number),
                _ => continue,
            };
            let Some(pid) = number.parse().ok().and_then(Pid::from_raw) else { continue };
            if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) && !answers(&entry.path(), kind) {
                let _ = rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty());
            }
        }
    }
}

/// Another socket that listens, by the abstract name that is `path` after its zero: a program in a sandbox may not see the folder. Abstract names belong to the network namespace, and have no
/// mode: who connects is asked who he is, on either side.
pub(crate) fn listen_abstract(path: &Path, kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(path.as_os_str().as_bytes())?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Who has connected. None: nobody that has an id here, as he is of another pid namespace. (rustix has no place for an id of 0.)
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Option<UCred> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of_val(&who) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the structure, and how many to `bytes`; both live.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut bytes,
        )
    };
    let pid = Pid::from_raw(who.pid).filter(|_| answer == 0)?;
    Some(UCred { pid, uid: Uid::from_raw(who.uid), gid: Gid::from_raw(who.gid) })
}

/// Somebody listens there. Does not wait.
fn answers(path: &Path, kind: SocketType) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else { return false };
    !matches!(rustix::net::connect(&socket, &address), Err(Errno::CONNREFUSED | Errno::NOENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("loam-control-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn why_not(path: &Path) -> String {
        let line = Folder::make(path.to_owned()).unwrap_err().to_string();
        assert!(line.starts_with(path.to_str().unwrap()) && line.contains("TMPDIR"), "{line}");
        line
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let scratch = Scratch::new("refused");
        let dir = scratch.0.join("dir");
        Folder::make(dir.clone()).unwrap();
        for open in [0o777, 0o1777, 0o770] {
            set_mode(&dir, open);
            assert!(why_not(&dir).contains("written by other users"), "{open:o}");
            assert_eq!(mode_of(&dir), open, "what is not ours is left as it is");
        }
        set_mode(&dir, 0o700);
        let link = scratch.0.join("link");
        symlink(&dir, &link).unwrap();
        assert!(why_not(&link).contains("no folder"));
        if std::os::unix::fs::chown(&dir, Some(12345), None).is_err() {
            println!("skipped: only root can give folders away");
            return;
        }
        assert!(why_not(&dir).contains("another user"));
    }

    #[test]
    fn a_umask_closes_neither_folder_nor_socket() {
        let scratch = Scratch::new("mode");
        let dir = scratch.0.join("dir");
        std::fs::create_dir(&dir).unwrap();
        // As under umask 077, which this test cannot set: it is the whole process's.
        set_mode(&dir, 0o700);
        let folder = Folder::make(dir.clone()).unwrap();
        assert_eq!(mode_of(&dir), MODE);
        let (_open, path) = folder.listen("agent-1.sock", SocketType::SEQPACKET, 0o666).unwrap();
        assert_eq!(mode_of(&path), 0o666, "the umask of whoever runs the tests is hardly 000");
        let (_own, path) = folder.listen("run-1.sock", SocketType::STREAM, 0o600).unwrap();
        assert_eq!(mode_of(&path), 0o600);
    }

    #[test]
    fn a_link_in_the_sockets_place_is_replaced_and_not_followed() {
        let scratch = Scratch::new("link");
        let folder = Folder::make(scratch.0.join("dir")).unwrap();
        let other = scratch.0.join("other");
        std::fs::write(&other, "").unwrap();
        set_mode(&other, 0o600);
        symlink(&other, scratch.0.join("dir/agent-1.sock")).unwrap();
        folder.listen("agent-1.sock", SocketType::SEQPACKET, 0o666).unwrap();
        assert_eq!(mode_of(&other), 0o600);
    }

    #[test]
    fn an_abstract_name_is_there_once() {
        let name = PathBuf::from(format!("/nowhere/agent-{}.sock", std::process::id()));
        let held = listen_abstract(&name, SocketType::SEQPACKET).unwrap();
        assert_eq!(listen_abstract(&name, SocketType::SEQPACKET).unwrap_err(), Errno::ADDRINUSE);
        drop(held);
        listen_abstract(&name, SocketType::SEQPACKET).unwrap();
    }

    #[test]
    fn only_a_socket_without_a_listener_is_stale() {
        let scratch = Scratch::new("stale");
        let folder = Folder::make(scratch.0.join("dir")).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        // The ids of processes that are no more here: one of another container's, and two that were killed.
        let name = |what: &str, of: u32| format!("{what}-{of}.sock");
        let (living, path) = folder.listen(&name("agent", child.id()), SocketType::SEQPACKET, 0o600).unwrap();
        let (stale, stale_path) = folder.listen(&name("run", child.id()), SocketType::STREAM, 0o600).unwrap();
        drop(stale);
        let (beginning, own_path) =
            folder.listen(&name("agent", std::process::id()), SocketType::SEQPACKET, 0o600).unwrap();
        drop(beginning);
        folder.remove_stale();
        assert!(path.exists() && !stale_path.exists() && own_path.exists());
        let taken = folder.listen(&name("agent", child.id()), SocketType::SEQPACKET, 0o600);
        assert!(matches!(taken, Err(ControlError::Taken { .. })), "{taken:?}");
        drop(living);
        folder.remove_stale();
        assert!(!path.exists());
    }
}
