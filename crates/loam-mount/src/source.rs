//! The source: a directory, held by a descriptor, below which everything is opened by relative path.
//!
//! No symbolic link is ever followed here and nothing above the source can be reached, whatever is moved about in it meanwhile
//! (`openat2` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS). Twice a second, if anything is asked, the directory's path is looked at
//! again: when another directory has taken its place (a server that was mounted again), that one is the source from then on;
//! while there is none, the source is *away*, and comes back by itself.

use crate::stat::Stat;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long what was seen at the source's path is taken to be still so.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest path that is resolved by one call; longer ones are walked in pieces. The kernel's limit is 4096 with the end.
const PIECE_BYTES_MAX: usize = 4000;

/// The kernel gives whoever has a lease of a file 45 s to give it up, unless told otherwise; meanwhile it is looked whether it was so often.
const LEASE_LIMIT: Duration = Duration::from_secs(50);
const LEASE_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Threads that may wait for leases at once: half of those that answer the kernel.
const LEASE_WAITERS_MAX: usize = crate::session::THREADS / 2;

/// Where a file was found: a name in a directory that was found somewhere.
#[derive(Debug)]
pub(crate) struct Place {
    parent: Option<Arc<Place>>,
    name: OsString,
}

impl Place {
    /// The source itself.
    pub(crate) fn root() -> Arc<Self> {
        Arc::new(Self { parent: None, name: OsString::new() })
    }

    /// `name` in this directory.
    pub(crate) fn child(self: &Arc<Self>, name: &OsStr) -> Arc<Self> {
        Arc::new(Self { parent: Some(Arc::clone(self)), name: name.to_owned() })
    }

    /// Is it `name` in the directory `parent`?
    pub(crate) fn is(&self, parent: &Arc<Self>, name: &OsStr) -> bool {
        self.name == name && self.parent.as_ref().is_some_and(|own| Arc::ptr_eq(own, parent))
    }

    /// The path from the source on; empty for the source itself.
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(parent) = &at.parent {
            names.push(at.name.as_bytes());
            at = parent;
        }
        names.reverse();
        PathBuf::from(OsString::from_vec(names.join(&b'/')))
    }
}

/// The same name in the same directory.
impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.parent.as_ref().map(Arc::as_ptr) == other.parent.as_ref().map(Arc::as_ptr)
            && self.name == other.name
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parent.as_ref().map(Arc::as_ptr).hash(state);
        self.name.hash(state);
    }
}

impl Drop for Place {
    /// Without recursion: a directory may be deeper than the stack is.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(place) = next {
            next = Arc::into_inner(place).and_then(|mut place| place.parent.take());
        }
    }
}

/// The directory that is the source now.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    /// Its device and inode.
    dev: u64,
    ino: u64,
}

impl Root {
    fn open(path: &Path) -> Result<Self, Errno> {
        let fd =
            rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = stat_of(&fd)?;
        Ok(Self { fd, dev: stat.dev, ino: stat.ino })
    }
}

#[derive(Debug)]
struct Seen {
    root: Option<Arc<Root>>,
    looked: Instant,
    /// A thread is looking: others go by what was seen before, as a look at a server that hangs may take for ever.
    looking: bool,
}

/// The source.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    seen: Mutex<Seen>,
    lease_waiters: AtomicUsize,
}

impl Source {
    /// Opens the directory `path`, which should be absolute.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let root = Root::open(path)?;
        let seen = Mutex::new(Seen { root: Some(Arc::new(root)), looked: Instant::now(), looking: false });
        Ok(Self { path: path.to_owned(), seen, lease_waiters: AtomicUsize::new(0) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that it is now; EIO while there is none.
    fn root(&self) -> Result<Arc<Root>, Errno> {
        let mut seen = self.seen();
        if !seen.looking && seen.looked.elapsed() >= LOOK_EVERY {
            seen.looking = true;
            let before = seen.root.clone();
            drop(seen);
            let root = self.look(before);
            seen = self.seen();
            *seen = Seen { root, looked: Instant::now(), looking: false };
        }
        seen.root.clone().ok_or(Errno::IO)
    }

    /// The directory that lies there, which may be the one of before.
    fn look(&self, before: Option<Arc<Root>>) -> Option<Arc<Root>> {
        let there = rustix::fs::statx(CWD, &self.path, AtFlags::empty(), StatxFlags::BASIC_STATS);
        let there = there.ok().map(|stat| Stat::from(&stat));
        let same =
            |root: &Root| there.as_ref().is_some_and(|there| (there.dev, there.ino) == (root.dev, root.ino));
        if before.as_deref().is_some_and(same) {
            return before;
        }
        let found = Root::open(&self.path).ok().map(Arc::new);
        match (&before, &found) {
            (Some(_), None) => tracing::warn!("the source {:?} is away", self.path),
            (_, Some(_)) => tracing::warn!("the source {:?} is there again", self.path),
            (None, None) => {}
        }
        found
    }

    /// The device that the source itself lies on.
    pub(crate) fn device(&self) -> Result<u64, Errno> {
        Ok(self.root()?.dev)
    }

    /// A descriptor that stands for a file without opening it; a symbolic link stands for itself.
    pub(crate) fn hold(&self, place: &Place) -> Result<OwnedFd, Errno> {
        self.open_at(place, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// Opens a regular file to read. EAGAIN: whoever has a lease of it keeps it, or too many threads wait for leases already.
    pub(crate) fn open_file(&self, place: &Place) -> Result<OwnedFd, Errno> {
        let mut opened = self.try_open_file(place);
        if !matches!(opened, Err(Errno::AGAIN)) {
            return opened;
        }
        // The kernel has told whoever has a lease or a delegation of it to give it up, and does not wait for that with O_NONBLOCK.
        let others = self.lease_waiters.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while matches!(opened, Err(Errno::AGAIN))
            && others < LEASE_WAITERS_MAX
            && since.elapsed() < LEASE_LIMIT
        {
            std::thread::sleep(LEASE_LOOK_EVERY);
            opened = self.try_open_file(place);
        }
        self.lease_waiters.fetch_sub(1, Ordering::Relaxed);
        opened
    }

    fn try_open_file(&self, place: &Place) -> Result<OwnedFd, Errno> {
        // NONBLOCK: what was a file may have become a FIFO that nobody writes to.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.open_at(place, flags | OFlags::NOATIME) {
            // Only the owner and root may leave the time of the last access alone.
            Err(Errno::PERM) => self.open_at(place, flags),
            answer => answer,
        }
    }

    /// Opens a directory to list it.
    pub(crate) fn open_dir(&self, place: &Place) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match self.open_at(place, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_at(place, flags),
            answer => answer,
        }
    }

    /// What a file is like now.
    pub(crate) fn stat(&self, place: &Place) -> Result<Stat, Errno> {
        stat_of(&self.hold(place)?)
    }

    /// Capacity and use of the file system.
    pub(crate) fn space_left(&self) -> Result<rustix::fs::StatVfs, Errno> {
        rustix::fs::fstatvfs(&self.root()?.fd)
    }

    fn open_at(&self, place: &Place, flags: OFlags) -> Result<OwnedFd, Errno> {
        let root = self.root()?;
        let path = place.path();
        let mut rest = path.as_os_str().as_bytes();
        let mut from: Option<OwnedFd> = None;
        while rest.len() > PIECE_BYTES_MAX {
            let cut =
                rest[..PIECE_BYTES_MAX].iter().rposition(|&byte| byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let at = from.as_ref().unwrap_or(&root.fd);
            from = Some(resolve(at, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?);
            rest = &rest[cut + 1..];
        }
        resolve(from.as_ref().unwrap_or(&root.fd), if rest.is_empty() { b"." } else { rest }, flags)
    }
}

fn resolve(from: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(from.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::INTR) => {}
            // What was a directory is now a link: whoever asks has to look the names up again.
            Err(Errno::LOOP | Errno::XDEV) => return Err(Errno::STALE),
            answer => return answer,
        }
    }
}

/// What an open file is like now.
pub(crate) fn stat_of(fd: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
        .map(|stat| Stat::from(&stat))
}

/// What an entry of an open directory is like now.
pub(crate) fn stat_in(dir: impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, flags).map(|stat| Stat::from(&stat))
}

/// Does the error say that the source, not the file, cannot be had?
pub(crate) fn is_away(error: Errno) -> bool {
    matches!(
        error,
        Errno::IO
            | Errno::NOTCONN
            | Errno::TIMEDOUT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NODEV
            | Errno::NXIO
            | Errno::SHUTDOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    /// Has a lease of a file until it is told to give it up.
    const HOLDER: &str = "import fcntl, signal, sys
file = open(sys.argv[1], 'r+')
signal.signal(signal.SIGIO, lambda *_: None)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('has it', flush=True)
sys.stdin.readline()
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)";

    #[test]
    fn a_lease_is_waited_for_by_so_many_threads() {
        let dir = std::env::temp_dir().join(format!("loam-mount-source-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("writable");
        std::fs::write(dir.join("file"), "text").expect("writable");
        let mut python = Command::new("python3");
        python.args(["-c", HOLDER]).arg(dir.join("file")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut holder) = python.spawn() else {
            println!("skipped: it needs python3");
            return std::fs::remove_dir_all(&dir).expect("ours");
        };
        let mut says = String::new();
        BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut says).expect("readable");
        assert_eq!(says, "has it\n");
        let source = Source::open(&dir).expect("there");
        let place = Place::root().child(OsStr::new("file"));
        source.lease_waiters.store(LEASE_WAITERS_MAX, Ordering::Relaxed);
        assert_eq!(source.open_file(&place).map(drop), Err(Errno::AGAIN), "others have to be answered, too");
        source.lease_waiters.store(0, Ordering::Relaxed);
        let waits = std::thread::scope(|scope| {
            let opens = scope.spawn(|| source.open_file(&place).map(drop));
            while source.lease_waiters.load(Ordering::Relaxed) == 0 && !opens.is_finished() {
                std::thread::yield_now();
            }
            holder.stdin.take().expect("piped").write_all(b"\n").expect("it listens");
            opens.join().expect("no panic")
        });
        assert_eq!(waits, Ok(()));
        assert_eq!(source.lease_waiters.load(Ordering::Relaxed), 0);
        holder.wait().expect("ours");
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
