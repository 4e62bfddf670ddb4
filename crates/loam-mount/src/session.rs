//! Making a mount, keeping it until it ends, and ending it.

use crate::cache::Cache;
use crate::config::MountConfig;
use crate::error::MountError;
use crate::figures::Figures;
use crate::fs::View;
use crate::inodes::Inodes;
use crate::mountinfo;
use crate::peers::{Alone, Group, GroupConfig, Peers, address_here};
use crate::reader::Reader;
use crate::source::{Place, Source};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that answer the kernel. Each answers one question at a time, so this many may wait for a slow source.
pub(crate) const THREADS: usize = 16;
/// What the kernel reads ahead, in KiB: several of its largest reads, so that several threads have something to do, also while the directory is asked for the next.
const READ_AHEAD_KIB: u32 = 8192;
/// How long an end waits for the kernel to let go of a mount that nobody uses any more.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A mount that has been made.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// What is shown.
    pub source: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// What the source is called among mounts.
    pub name: String,
    /// Where other mounts can reach this one.
    pub addr: Option<SocketAddr>,
}

impl fmt::Display for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is shown at {}", self.source.display(), self.mountpoint.display())?;
        match self.addr {
            Some(addr) => write!(f, ", shared as {:?} on {addr}", self.name),
            None => Ok(()),
        }
    }
}

/// Mounts and stays until SIGTERM or SIGINT, or until somebody unmounts. `ready` is called once programs can use it.
///
/// # Errors
/// [`MountError`], before `ready` is called.
pub fn mount(config: &MountConfig, ready: impl FnOnce(&Mounted)) -> Result<(), MountError> {
    let checked = config.check()?;
    // Before the mount is made: from then on a path may lead through it.
    let (told, end) = UnixStream::pair().map_err(MountError::system("making a socket pair"))?;
    for signal in [SIGTERM, SIGINT] {
        let end = end.try_clone().map_err(MountError::system("copying a socket"))?;
        signal_hook::low_level::pipe::register(signal, end)
            .map_err(MountError::system("waiting for signals"))?;
    }
    let source_error = |error: Errno| MountError::Source { path: checked.source.clone(), why: error.into() };
    let source = Arc::new(Source::open(&checked.source).map_err(source_error)?);
    let root = source.stat(&Place::root()).map_err(source_error)?;
    // One file here is one at the source, and each peer is a connection.
    loam_wire::allow_many_files();

    let figures = Arc::new(Figures::default());
    let group = group_config(config, &checked.name);
    let cache = Arc::new(Cache::new(config.cache.0, group.is_some(), Arc::clone(&figures)));
    let mut addr = None;
    let peers: Arc<dyn Peers> = match group {
        Some(group) => {
            let group = Group::start(&group, &cache, &figures)?;
            addr = Some(group.addr);
            Arc::new(group)
        }
        None => Arc::new(Alone),
    };
    let inodes = Arc::new(Inodes::new(&checked.name, &root));
    let reader = Reader { source, inodes, cache, peers, figures };
    let notifier = Arc::new(OnceLock::new());
    let view = View::new(reader, Arc::clone(&notifier));

    let session = Session::new(view, &checked.mountpoint, &options(&checked.name))
        .map_err(|error| refused(&checked.mountpoint, &error))?;
    // Set before the first question is answered.
    notifier.set(session.notifier()).expect("set once");
    let running = session.spawn().map_err(MountError::system("starting a thread"))?;
    read_far_ahead(&checked.mountpoint);
    ready(&Mounted {
        source: checked.source,
        mountpoint: checked.mountpoint.clone(),
        name: checked.name,
        addr,
    });

    // Either somebody unmounts, which ends the session's threads, or a signal comes.
    let watched = end.try_clone().map_err(MountError::system("copying a socket"))?;
    let guard = running.guard;
    let session_ended = thread::spawn(move || {
        let answer = guard.join();
        let _ = std::io::Write::write_all(&mut &watched, b"x");
        answer
    });
    // An error ends it as a byte does.
    let _ = (&told).read(&mut [0]);
    if !session_ended.is_finished() {
        detach(&checked.mountpoint);
        let deadline = Instant::now() + END_WITHIN;
        while !session_ended.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        // Whoever still has a file open gets ENOTCONN once this process is gone.
    }
    Ok(())
}

/// Alone if nobody is to be known and nobody is to find us.
fn group_config(config: &MountConfig, name: &str) -> Option<GroupConfig> {
    // A node that does not answer now may do later.
    let here = config.node.as_deref().and_then(address_here);
    let listen = match config.listen {
        Some(listen) => listen,
        None if config.peers.is_empty() && config.node.is_none() => return None,
        // Other machines may come in only where that was asked for.
        None => {
            let ip = here.filter(|_| config.tls.is_some() || config.insecure);
            SocketAddr::new(ip.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0)
        }
    };
    Some(GroupConfig {
        name: name.to_owned(),
        listen,
        peers: config.peers.clone(),
        node: config.node.clone(),
        tls: config.tls.clone(),
    })
}

fn options(name: &str) -> Config {
    let mut options = Config::default();
    // A comma would begin another option, and the kernel would show the rest as one.
    let shown: String = name.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }).collect();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
        MountOption::FSName(shown),
        MountOption::CUSTOM("subtype=loam".into()),
    ];
    // The kernel checks permissions as the source has them, so others may come in. Only root may say so without more ado.
    options.acl = if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    options.n_threads = Some(THREADS);
    options.clone_fd = true;
    options
}

fn refused(mountpoint: &Path, error: &std::io::Error) -> MountError {
    MountError::Refused { path: mountpoint.to_owned(), why: error.to_string() }
}

/// Lets the kernel read far ahead. Only root may; without it reads are smaller and fewer at a time.
fn read_far_ahead(mountpoint: &Path) {
    let Ok(stat) = rustix::fs::stat(mountpoint) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, READ_AHEAD_KIB.to_string()) {
        tracing::debug!("{setting}: {error}: the kernel reads 128 KiB ahead");
    }
}

/// Takes the mount away, from its users too if it must be.
fn detach(mountpoint: &Path) {
    let gone = rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW)
        .or_else(|_| rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH));
    if gone == Err(Errno::PERM) {
        let _ = fusermount(mountpoint, true);
    }
}

fn fusermount(mountpoint: &Path, lazy: bool) -> std::io::Result<bool> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(mountpoint);
    Ok(command.stderr(std::process::Stdio::null()).status()?.success())
}

/// Ends the mount at `mountpoint`; its process ends by itself. `lazy`: takes it out of sight now, and ends it when nobody uses it any
/// more.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::Busy`], [`MountError::System`].
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    // A mount whose process has died cannot be looked at, only what it lies in.
    let path = mountpoint.canonicalize().or_else(|_| {
        let (parent, name) = (mountpoint.parent(), mountpoint.file_name());
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        parent.canonicalize().map(|parent| parent.join(name.unwrap_or_default()))
    });
    let path = path.map_err(|_| MountError::NotMounted { path: mountpoint.to_owned() })?;
    if !mountinfo::is_loams(&path)? {
        return Err(MountError::NotMounted { path });
    }
    let flags = if lazy { UnmountFlags::NOFOLLOW | UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match rustix::mount::unmount(&path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy { path }),
        Err(Errno::PERM) if fusermount(&path, lazy).unwrap_or(false) => Ok(()),
        Err(error) => Err(MountError::system("unmounting")(error)),
    }
}
