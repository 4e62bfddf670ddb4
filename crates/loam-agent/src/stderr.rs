//! What Loam tells a person on stderr.
//!
//! A terminal that takes nothing (Ctrl-S, a connection that stalls) and a pipe that nobody reads keep a writer waiting. A command may wait: for the
//! closing lines in `loam run ... 2>&1 | less`, say. A loop that faults or borrowers wait for may not: it writes by [`tell`], [`show`] and [`Log`], which
//! leave out what cannot be written at once.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A pipe takes so much in one piece (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// Lines that [`tell`] and [`Log`] have left out and that nobody has heard of yet.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes `loam: LINE` in one piece, so that no other process's line comes between. Waits until it is written.
///
/// A stderr that cannot be written (its disk is full, its reader is gone) changes nothing: `eprintln!` would panic, and a program would die for a line of its agent.
pub fn say(line: impl Display) {
    put(&format!("loam: {line}\n"));
}

/// The same for what is no line of its own: a figure that is written over.
pub fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// As [`say`], but never waits: what is left out is counted, and the number told when there is room again.
pub fn tell(line: impl Display) {
    tell_text(format!("loam: {line}\n").as_bytes());
}

/// As [`put`], but never waits: what cannot be shown now is not shown.
pub fn show(text: &str) {
    let _ = write_to_stderr(text.as_bytes());
}

/// A log on stderr that never waits, as [`tell`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        tell_text(text);
        Ok(text.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn tell_text(text: &[u8]) {
    let left_out = LEFT_OUT.load(Relaxed);
    let told =
        left_out == 0 || write_to_stderr(format!("loam: {left_out} lines were left out here\n").as_bytes());
    if told && left_out > 0 {
        LEFT_OUT.fetch_sub(left_out, Relaxed);
    }
    if !told || !write_to_stderr(text) {
        LEFT_OUT.fetch_add(1, Relaxed);
    }
}

fn write_to_stderr(text: &[u8]) -> bool {
    static WAY: OnceLock<Way> = OnceLock::new();
    let stderr = std::io::stderr();
    // Without its lock: another thread may hold that and wait.
    WAY.get_or_init(|| Way::to(stderr.as_fd())).write(stderr.as_fd(), text)
}

/// How a descriptor is written without waiting. It may not be made nonblocking: that would hold for everybody who has it, the program above all.
#[derive(Debug)]
enum Way {
    /// A file: it never keeps anybody waiting for long.
    File,
    /// A terminal or a pipe, opened once more for ourselves alone.
    Own(OwnedFd),
    Socket,
    /// A terminal or a pipe that cannot be opened again (it is another user's): then it is asked before each piece.
    Asked,
}

impl Way {
    fn to(fd: BorrowedFd<'_>) -> Self {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, Mode::empty()).map_or(Self::Asked, Self::Own)
            }
            Ok(FileType::Socket) => Self::Socket,
            _ => Self::File,
        }
    }

    /// False: not all of it.
    fn write(&self, fd: BorrowedFd<'_>, text: &[u8]) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(PIECE_BYTES)];
            let written = match self {
                Self::File => rustix::io::write(fd, piece),
                Self::Own(own) => rustix::io::write(own, piece),
                Self::Socket => rustix::net::send(fd, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
                Self::Asked if has_room(fd) => rustix::io::write(fd, piece),
                Self::Asked => Err(Errno::AGAIN),
            };
            match written {
                Ok(bytes) if bytes > 0 => rest = &rest[bytes..],
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }
}

/// A pipe with room has it for a piece; a terminal for some of it.
fn has_room(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)) == Ok(1) && polled[0].revents().contains(PollFlags::OUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const LINE: &[u8] = b"loam: a line of some length, as they are\n";

    /// Writes until there is no room. Whoever waits instead is ended by the test runner's user.
    fn fill(way: &Way, fd: BorrowedFd<'_>) -> usize {
        (0..1 << 20).find(|_| !way.write(fd, LINE)).expect("nobody reads: there is an end of room")
    }

    #[test]
    fn a_pipe_that_nobody_reads_keeps_nobody_waiting() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let own = Way::to(write.as_fd());
        assert!(matches!(own, Way::Own(_)), "{own:?}");
        let lines = fill(&own, write.as_fd());
        assert!(lines > 1);
        for way in [own, Way::Asked] {
            assert!(!way.write(write.as_fd(), LINE));
            assert!(
                !rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK),
                "it is the program's too"
            );
            // Whole lines alone have come, and there is room again.
            let mut read = std::fs::File::from(read.try_clone().unwrap());
            let mut text = vec![0; LINE.len() * 200];
            read.read_exact(&mut text).unwrap();
            assert!(text.chunks(LINE.len()).all(|line| line == LINE));
            fill(&way, write.as_fd());
        }
    }

    #[test]
    fn a_terminal_that_takes_nothing_keeps_nobody_waiting() {
        // SAFETY: plain calls on a descriptor that was just made; the name is copied before the next call.
        let (master, name) = unsafe {
            let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
            if master < 0 || libc::grantpt(master) != 0 || libc::unlockpt(master) != 0 {
                println!("skipped: there are no terminals here");
                return;
            }
            (master, std::ffi::CStr::from_ptr(libc::ptsname(master)).to_owned())
        };
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let way = Way::to(terminal.as_fd());
        assert!(matches!(way, Way::Own(_)), "{way:?}");
        assert!(fill(&way, terminal.as_fd()) > 1);
        assert!(!way.write(terminal.as_fd(), LINE));
        // SAFETY: nobody else has it.
        unsafe { libc::close(master) };
    }

    #[test]
    fn a_socket_that_nobody_reads_keeps_nobody_waiting() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let way = Way::to(ours.as_fd());
        assert!(matches!(way, Way::Socket));
        assert!(fill(&way, ours.as_fd()) > 1);
    }

    #[test]
    fn a_file_gets_everything_behind_what_it_has() {
        let path = std::env::temp_dir().join(format!("loam-stderr-{}", std::process::id()));
        std::fs::write(&path, "before\n").unwrap();
        let file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let text = "x".repeat(3 * PIECE_BYTES + 1);
        assert!(Way::to(file.as_fd()).write(file.as_fd(), text.as_bytes()));
        let got = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(got, format!("before\n{text}"));
    }
}
