//! The halves of the two-process measurements. Each runs as a process of its own (`loam bench-peer`), pinned to one core,
//! and prints its figures as one line of JSON.

use super::{Quantiles, elapsed_ns};
use crate::bench::args::{PeerArgs, PeerRole};
use crate::embedded;
use crate::failure::Failure;
use loam_agent::floor::{Faulter, Waiting};
use loam_core::units::BASE_PAGE_BYTES;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage};
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of a request in the round trip.
const REQUEST_BYTES: usize = 64;
/// Bytes of one write of the stream.
pub(super) const STREAM_WRITE_BYTES: usize = 256 * 1024;
/// Pages that are missing at a time.
const FAULT_PAGES: usize = 512;
/// What an answered page contains.
const FAULT_WORD: u64 = 0x0f10_0a0d_0f10_0a0d;
/// How long one half waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// One part in so many is left out at the start: caches and clocks are cold.
const WARM_UP: usize = 10;

/// Runs one half.
pub(crate) fn peer(args: &PeerArgs) -> Result<ExitCode, Failure> {
    embedded::end_with_parent(args.parent)?;
    stay_on(args.core)?;
    let wait = Wait { spin: args.spin, yields: args.yields };
    let done = match args.role {
        PeerRole::Fault => fault(args.count),
        PeerRole::Answer => answer(args.count, wait),
        PeerRole::Serve => listen().and_then(|stream| serve(stream, args.count, wait)),
        PeerRole::Source => listen().and_then(|stream| source(stream, args.count, wait)),
        PeerRole::Ask => connect(args.connect).and_then(|stream| ask(stream, args.count, wait)),
        PeerRole::Drain => connect(args.connect).and_then(|stream| drain(stream, args.count, wait)),
    };
    done.map_err(|error| Failure::new(format!("bench-peer {:?}: {error}", args.role)))?;
    Ok(ExitCode::SUCCESS)
}

fn stay_on(core: usize) -> Result<(), Failure> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| Failure::new(format!("cannot stay on core {core} ({error})")))
}

/// How this half waits.
#[derive(Clone, Copy)]
struct Wait {
    spin: bool,
    yields: bool,
}

impl Wait {
    fn once(self) {
        if self.yields {
            rustix::thread::sched_yield();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Tries again for as long as the other side is not ready.
    fn retry(self, mut attempt: impl FnMut() -> std::io::Result<usize>) -> std::io::Result<usize> {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.once(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                other => return other,
            }
        }
    }

    fn read_exact(self, stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.retry(|| stream.read(&mut buffer[filled..]))?;
        }
        Ok(())
    }

    fn write_all(self, stream: &mut TcpStream, buffer: &[u8]) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < buffer.len() {
            sent += self.retry(|| stream.write(&buffer[sent..]))?;
        }
        Ok(())
    }
}

fn say(line: impl std::fmt::Display) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn say_quantiles(mut samples_ns: Vec<u32>) -> std::io::Result<()> {
    let warm = samples_ns.len() / WARM_UP;
    samples_ns.drain(..warm);
    let found = Quantiles::of(&mut samples_ns).ok_or(ErrorKind::InvalidInput)?;
    say(serde_json::to_string(&found)?)
}

fn fault(count: usize) -> std::io::Result<()> {
    let faulter = Faulter::new(FAULT_PAGES)?;
    send_fd(&faulter)?;
    let mut samples_ns = Vec::with_capacity(count);
    for at in 0..count {
        let page = at % FAULT_PAGES;
        if page == 0 && at > 0 {
            faulter.discard()?;
        }
        let since = Instant::now();
        let word = faulter.touch(page);
        samples_ns.push(elapsed_ns(since));
        assert_eq!(word, FAULT_WORD, "the other half answers with this word");
    }
    say_quantiles(samples_ns)
}

fn answer(count: usize, wait: Wait) -> std::io::Result<()> {
    let uffd = receive_fd()?;
    let waiting = if wait.spin { Waiting::Spinning { yields: wait.yields } } else { Waiting::Blocking };
    Ok(loam_agent::floor::answer(&uffd, count, FAULT_WORD, waiting, PATIENCE)?)
}

/// Sends the userfaultfd through stdin, which is a socket to the other half.
fn send_fd(faulter: &Faulter) -> std::io::Result<()> {
    let fds = [faulter.uffd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is space for one descriptor");
    let stdin = std::io::stdin();
    rustix::net::sendmsg(
        stdin.as_fd(),
        &[std::io::IoSlice::new(b"u")],
        &mut control,
        rustix::net::SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

fn receive_fd() -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    let stdin = std::io::stdin();
    rustix::net::recvmsg(
        stdin.as_fd(),
        &mut [std::io::IoSliceMut::new(&mut byte)],
        &mut control,
        rustix::net::RecvFlags::CMSG_CLOEXEC,
    )?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds.flatten().next().ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

/// Says where it listens, and takes one connection.
fn listen() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    say(listener.local_addr()?)?;
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connect(addr: Option<SocketAddr>) -> std::io::Result<TcpStream> {
    let addr = addr.ok_or(ErrorKind::AddrNotAvailable)?;
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn serve(mut stream: TcpStream, count: usize, wait: Wait) -> std::io::Result<()> {
    stream.set_nonblocking(wait.spin)?;
    let (mut request, page) = ([0; REQUEST_BYTES], [0x5A; BASE_PAGE_BYTES]);
    for _ in 0..count {
        wait.read_exact(&mut stream, &mut request)?;
        wait.write_all(&mut stream, &page)?;
    }
    Ok(())
}

fn ask(mut stream: TcpStream, count: usize, wait: Wait) -> std::io::Result<()> {
    stream.set_nonblocking(wait.spin)?;
    let (request, mut page) = ([0xA5; REQUEST_BYTES], [0; BASE_PAGE_BYTES]);
    let mut samples_ns = Vec::with_capacity(count);
    for _ in 0..count {
        let since = Instant::now();
        wait.write_all(&mut stream, &request)?;
        wait.read_exact(&mut stream, &mut page)?;
        samples_ns.push(elapsed_ns(since));
    }
    say_quantiles(samples_ns)
}

fn source(mut stream: TcpStream, count: usize, wait: Wait) -> std::io::Result<()> {
    stream.set_nonblocking(wait.spin)?;
    let block = vec![0x5A; STREAM_WRITE_BYTES];
    for _ in 0..count {
        wait.write_all(&mut stream, &block)?;
    }
    // The other half has everything when it closes.
    stream.set_nonblocking(false)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read(&mut [0; 1]).map(drop)
}

fn drain(mut stream: TcpStream, count: usize, wait: Wait) -> std::io::Result<()> {
    stream.set_nonblocking(wait.spin)?;
    let mut block = vec![0; STREAM_WRITE_BYTES];
    let warm = count / WARM_UP;
    let mut since = Instant::now();
    for at in 0..count {
        if at == warm {
            since = Instant::now();
        }
        wait.read_exact(&mut stream, &mut block)?;
    }
    let bytes = (count - warm) * STREAM_WRITE_BYTES;
    say(bytes as f64 / since.elapsed().as_secs_f64() / 1e9)
}
