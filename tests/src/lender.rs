//! A `loam lend` of one test, to be stopped and killed.

use crate::{place, procfs, shell};
use loam_wire::client::Client;
use loam_wire::{StatusFigures, feature};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// A lender process. Dropping it kills it.
#[derive(Debug)]
pub struct Lender {
    child: Child,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Lender {
    /// Starts one and waits until it takes connections.
    ///
    /// # Panics
    /// If it does not within ten seconds.
    pub fn start(size: &str) -> Self {
        Self::start_as(size, free_addr(), &[])
    }

    /// The same with more flags.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_with(size: &str, flags: &[&str]) -> Self {
        Self::start_as(size, free_addr(), flags)
    }

    /// The same at this address.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_at(size: &str, addr: SocketAddr) -> Self {
        Self::start_as(size, addr, &[])
    }

    /// The same at this address with more flags.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_at_with(size: &str, addr: SocketAddr, flags: &[&str]) -> Self {
        Self::start_as(size, addr, flags)
    }

    fn start_as(size: &str, addr: SocketAddr, flags: &[&str]) -> Self {
        let child = shell::that_dies_with_us(&place::loam())
            .args(["lend", size, "--listen", &addr.to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("loam can be started");
        let mut lender = Self { child, addr };
        procfs::wait_until(Duration::from_secs(10), || {
            let ended = lender.child.try_wait().expect("our child");
            assert!(ended.is_none(), "loam lend ended: {ended:?}");
            TcpStream::connect(addr).is_ok()
        })
        .expect("loam lend listens within ten seconds");
        lender
    }

    /// Ends it without a word.
    pub fn kill(&self) {
        procfs::send(self.child.id(), Signal::KILL);
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        procfs::send(self.child.id(), Signal::TERM);
    }

    /// What it says of itself.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn figures(&self) -> StatusFigures {
        let mut client = Client::connect(self.addr, 0, "tests", Duration::from_secs(10)).expect("it listens");
        client.status().expect("it answers").figures
    }

    /// What runs have reserved there, in bytes.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn reserved_bytes(&self) -> u64 {
        let mut client =
            Client::connect_with(self.addr, feature::RESERVE, 0, "tests", Duration::from_secs(10))
                .expect("it listens");
        client.reserve(0).expect("it answers").all_bytes()
    }

    /// Lets one that hangs go on.
    pub fn go_on(&self) {
        procfs::send(self.child.id(), Signal::CONT);
    }

    /// Makes it hang: connections stay open, nothing is answered.
    pub fn stop(&self) {
        procfs::send(self.child.id(), Signal::STOP);
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Below what the kernel gives to whoever asks for any port: what it gives may be given again before the process that it is for listens there, or while a server
/// that will be started again is down, and then a test's nodes ask the etcd of another test.
const PORTS: Range<u16> = 10_000..32_000;

/// A loopback address that nobody listens on now. No test of this process is given it again.
///
/// # Panics
/// If the machine has no loopback or no free port.
pub fn free_addr() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Another process that runs tests now most likely begins elsewhere.
    let first = u64::from(std::process::id()) * 379;
    let free = |number: u16| {
        let port = PORTS.start + ((first + u64::from(number)) % PORTS.len() as u64) as u16;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(addr).is_ok().then_some(addr)
    };
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(usize::from(number) < PORTS.len(), "loopback has no free port");
        if let Some(addr) = free(number) {
            return addr;
        }
    }
}
