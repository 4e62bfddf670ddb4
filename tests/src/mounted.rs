//! A `loam mount` of one test, and trees to show with it.

use crate::{place, procfs, shell};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may take to be made or to end.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether mounts can be made here. If not, says so loudly: the test then passes over.
pub fn possible(test: &str) -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there || !place::is_root() {
        eprintln!("SKIPPED {test}: it needs /dev/fuse and root");
    }
    there && place::is_root()
}

/// A mount in the foreground. Dropping it ends it.
#[derive(Debug)]
pub struct Mount {
    /// Where it is.
    pub at: PathBuf,
    started: Option<shell::Started>,
}

impl Mount {
    /// Mounts `source` at `DIR/NAME`, which is made, and waits until it is there.
    ///
    /// # Panics
    /// If it is not in time.
    pub fn new(dir: &Path, name: &str, source: &Path, args: &[&str]) -> Self {
        let at = dir.join(name);
        fs::create_dir_all(&at).expect("scratch folders are writable");
        let mut command = shell::that_dies_with_us(&place::loam());
        command.arg("mount").arg(source).arg(&at).arg("--foreground");
        if !args.contains(&"--cache") {
            command.args(["--cache", "256M"]);
        }
        command.args(args);
        let mut started = shell::start(&mut command, dir, &format!("{name}-log"));
        let shown = procfs::wait_until(LIMIT, || {
            assert!(started.runs(), "loam mount ended: {}", started.stderr_so_far());
            started.stderr_so_far().contains("Ctrl-C ends it")
        });
        assert!(shown.is_ok(), "loam mount takes too long: {}", started.stderr_so_far());
        Self { at, started: Some(started) }
    }

    /// Its process.
    ///
    /// # Panics
    /// If it was ended.
    pub fn pid(&self) -> u32 {
        // `env` and `setpriv` are replaced by what they run.
        self.started.as_ref().expect("not ended").pid()
    }

    /// Where other mounts reach it.
    ///
    /// # Panics
    /// If it is alone.
    pub fn addr(&self) -> SocketAddr {
        let said = self.started.as_ref().expect("not ended").stderr_so_far();
        let addr = said.split(" on ").last().and_then(|rest| rest.split(';').next());
        addr.and_then(|addr| addr.parse().ok()).unwrap_or_else(|| panic!("no address in: {said}"))
    }

    /// One of its counters.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn figure(&self, name: &str) -> u64 {
        let mut json = vec![0; 8192];
        let bytes = rustix::fs::getxattr(&self.at, "user.loam.figures", &mut json[..])
            .expect("it is a mount of Loam's");
        let figures: serde_json::Value = serde_json::from_slice(&json[..bytes]).expect("it is JSON");
        figures[name].as_u64().unwrap_or_else(|| panic!("no {name} in {figures}"))
    }

    /// Sends a signal to its process.
    pub fn send(&self, signal: Signal) {
        procfs::send(self.pid(), signal);
    }

    /// Ends it as Ctrl-C does.
    ///
    /// # Panics
    /// If it does not end in time, or not well.
    pub fn end(mut self) {
        self.send(Signal::INT);
        let ended = self.started.take().expect("not ended").finish(LIMIT);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        assert!(!is_mounted(&self.at), "it unmounts itself");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mut started) = self.started.take() {
            procfs::send(started.pid(), Signal::CONT);
            procfs::send(started.pid(), Signal::TERM);
            let _ = procfs::wait_until(Duration::from_secs(5), || !started.runs());
        }
        while is_mounted(&self.at) {
            if rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH).is_err() {
                return;
            }
        }
    }
}

/// Whether anything is mounted exactly there.
pub fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    mounts.lines().any(|line| line.split(' ').nth(4) == at.to_str())
}

/// Bytes that are not the same anywhere near, from a seed.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Writes a file, and waits until its change is long enough ago to be told from a further one.
///
/// # Panics
/// If it cannot be written.
pub fn write_settled(path: &Path, contents: &[u8]) {
    fs::write(path, contents).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    settle();
}

/// Waits until all that has been changed is settled.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

/// Compares two trees name by name, attribute by attribute and byte by byte. The answer is how many files there are.
///
/// # Panics
/// At the first difference.
pub fn assert_same_tree(source: &Path, view: &Path) -> usize {
    assert_same_attributes(source, view);
    let kind = fs::symlink_metadata(source).expect("looked at above").file_type();
    if kind.is_dir() {
        let names = |dir: &Path| {
            let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
            let mut names: Vec<_> = entries
                .map(|entry| {
                    let entry = entry.expect("readable");
                    (entry.file_name(), entry.file_type().expect("of the listing"))
                })
                .collect();
            names.sort_by(|one, other| one.0.cmp(&other.0));
            names
        };
        let (ours, theirs) = (names(view), names(source));
        assert_eq!(ours, theirs, "{}", source.display());
        return 1 + ours
            .iter()
            .map(|(name, _)| assert_same_tree(&source.join(name), &view.join(name)))
            .sum::<usize>();
    }
    if kind.is_symlink() {
        assert_eq!(fs::read_link(view).expect("a link"), fs::read_link(source).expect("a link"));
    } else if kind.is_file() {
        let ours = fs::read(view).unwrap_or_else(|error| panic!("{}: {error}", view.display()));
        assert!(ours == fs::read(source).expect("readable"), "contents of {}", source.display());
    } else {
        assert!(kind.is_fifo() || kind.is_socket() || kind.is_char_device());
    }
    1
}

fn assert_same_attributes(source: &Path, view: &Path) {
    let look = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let times = [(stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec())];
        let numbers = [stat.ino(), stat.nlink(), stat.size(), stat.blocks(), stat.rdev(), stat.blksize()];
        (stat.mode(), stat.uid(), stat.gid(), numbers, times)
    };
    assert_eq!(look(view), look(source), "{}", source.display());
}

/// A name of any bytes.
pub fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
