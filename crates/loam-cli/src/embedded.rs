//! Lenders that live and die with one run: child processes of our own executable, on loopback, on ports of the system's choice.

use crate::failure::Failure;
use crate::size::Embedded;
use loam_core::units::Bytes;
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a lender may take to say where it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long a lender may take to end by itself before it is killed.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Longest first line that is read from a lender.
const LINE_BYTES_MAX: u64 = 256;

/// The lenders of one run. Dropping it ends them.
#[derive(Default)]
pub(crate) struct Lenders {
    children: Vec<Child>,
    /// Where they listen.
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Lenders {
    /// Starts them, with these credentials if any, and waits until each one listens.
    pub(crate) fn start(executable: &Path, embedded: Embedded, tls: Option<&Path>) -> Result<Self, Failure> {
        let memory = crate::machine::memory()?;
        let size = embedded.size.on(memory.total);
        let asked = Bytes(size.0.saturating_mul(u64::from(embedded.count)));
        if asked > memory.available {
            let available = memory.available;
            return Err(Failure::new(format!(
                "--embedded: {} lenders of {size} need {asked}, and {available} are available: give less",
                embedded.count
            )));
        }
        let mut lenders = Self::default();
        // All are started before the first is waited for.
        let mut ready = Vec::new();
        for _ in 0..embedded.count {
            let mut child = Command::new(executable)
                .arg("lend")
                .arg(size.0.to_string())
                .args(["--listen", "127.0.0.1:0", "--embedded-by", &std::process::id().to_string()])
                .args(tls.map(|dir| [OsStr::new("--tls"), dir.as_os_str()]).into_iter().flatten())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                // A group of their own: Ctrl-C is for the program, and its memory must outlive it.
                .process_group(0)
                .spawn()
                .map_err(|error| {
                    Failure::new(format!("cannot start a lender from {} ({error})", executable.display()))
                })?;
            let stdout = child.stdout.take().expect("stdout was asked for as a pipe");
            lenders.children.push(child);
            ready.push(first_line(stdout));
        }
        let deadline = Instant::now() + READY_WITHIN;
        for line in ready {
            let line =
                line.recv_timeout(deadline.saturating_duration_since(Instant::now())).unwrap_or_default();
            let addr = line.trim().parse().map_err(|_| {
                let lent = size;
                Failure::new(format!(
                    "an embedded lender of {lent} did not start: see its line above, or lend less"
                ))
            })?;
            lenders.addrs.push(addr);
        }
        assert_eq!(lenders.addrs.len(), lenders.children.len());
        Ok(lenders)
    }

    /// Asks every lender to end, kills those that do not.
    fn end(&mut self) {
        for child in &self.children {
            // A lender that has gone already is fine.
            let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
        }
        let deadline = Instant::now() + END_WITHIN;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() >= deadline {
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.children.clear();
    }
}

impl Drop for Lenders {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads the first line of a child's output on a thread, so that waiting for it can end.
pub(crate) fn first_line(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut line = String::new();
        // An error leaves the line empty, which the receiver refuses; a receiver that gave up needs no line.
        let _ = BufReader::new(output.take(LINE_BYTES_MAX)).read_line(&mut line);
        let _ = send.send(line);
    });
    receive
}

/// Makes this process end when process `parent`, which started it, ends, however that comes.
pub(crate) fn end_with_parent(parent: u32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::new(format!("cannot ask to end with process {parent} ({error})")))?;
    // It may have ended before the line above.
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if u32::try_from(now) == Ok(parent) {
        Ok(())
    } else {
        Err(Failure::new(format!("process {parent}, for which this one was started, has ended")))
    }
}
