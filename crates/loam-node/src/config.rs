//! What `loam lend` asks for, and whether it can be had.

use crate::cluster::{ClusterConfig, EtcdSite};
use crate::error::NodeError;
use loam_core::units::{BasePages, Bytes, Duration};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::{fmt, fs};

/// Everything that [`crate::lend`] needs to know.
#[derive(Clone, Debug)]
pub struct LendConfig {
    /// How much to lend; rounded down to whole base pages.
    pub size: Bytes,
    /// Where to listen; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Folder with credentials for TLS (`loam ca issue`), read again whenever it changes.
    pub tls: Option<PathBuf>,
    /// Listen on an address that other machines can reach, without encryption.
    pub insecure: bool,
    /// How long a loop goes on polling after a request before it sleeps, in microseconds. 0: it sleeps at once.
    pub spin_us: u64,
    /// How its threads ask the kernel for their turns.
    pub turns: Turns,
    /// Be a node of a cluster. `None`: lend to whoever comes, and know of nobody.
    pub cluster: Option<ClusterConfig>,
    /// A UNIX socket for programs of this machine.
    pub socket: Option<LocalSocket>,
    /// Where to answer HTTP: metrics and health. Port 0 takes any that is free.
    pub http: Option<SocketAddr>,
    /// Event loops; `None` is one a core.
    pub loops: Option<usize>,
    /// How long the pages of a borrower without connections wait for it.
    pub grace: loam_core::units::Duration,
    /// What this machine keeps free for itself; `None` is a twentieth of its memory and 256 MiB at least.
    pub keep: Option<Bytes>,
    /// What borrowers together may reserve of it; `None` is half.
    pub reservable: Option<Bytes>,
    /// Where `proc` and `sys` are: `/`, but for tests, which put files there that say what they like.
    pub machine_root: PathBuf,
    /// Keep the processor from deep sleep while requests come, where that is permitted.
    pub hold_latency: bool,
    /// A disk store for staged pages. `None`: they are kept in memory only.
    pub store: Option<StoreAt>,
    /// DAX devices and files that are memory, from which direct regions may be cut, by path. Only these: a program of this machine names one of them, and
    /// cannot make the node open anything else.
    pub region_devices: Vec<PathBuf>,
    /// What may fail together with this machine (a rack, a host), told to borrowers.
    pub zone: Option<String>,
}

/// How a thread asks the kernel for its turns on the processor: by whoever may make such calls (there is no unsafe code here).
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Short ones, and soon: it sleeps between requests, and is not to wait behind who works.
    pub short: fn(),
    /// Those that everybody has: it polls, and gives its turn away to whoever wants it.
    pub usual: fn(),
}

impl Default for Turns {
    /// As the kernel likes.
    fn default() -> Self {
        Self { short: || {}, usual: || {} }
    }
}

/// A disk store.
#[derive(Clone, Debug)]
pub struct StoreAt {
    /// Its directory; made if it is not there.
    pub dir: PathBuf,
    /// What it may take of the disk.
    pub size: Bytes,
    /// What the pages of one borrower may take of memory while they wait for the disk; `None` is a quarter of what is lent.
    pub channel: Option<Bytes>,
    /// A page waits between once and twice as long before it is written, while there is room; `None` is a second, nothing is the paper's: at once.
    pub linger: Option<Duration>,
}

/// A UNIX socket to listen on.
#[derive(Clone, Debug)]
pub struct LocalSocket {
    /// Its file.
    pub path: PathBuf,
    /// Who may connect, as file permissions: whoever may write to it may borrow.
    pub mode: u32,
    /// Lending cannot begin without it; else it is a warning.
    pub required: bool,
}

impl LendConfig {
    /// Lends `size` on loopback at the default port.
    pub fn new(size: Bytes) -> Self {
        Self {
            size,
            listen: (Ipv4Addr::LOCALHOST, loam_wire::DEFAULT_PORT).into(),
            tls: None,
            insecure: false,
            spin_us: 100,
            turns: Turns::default(),
            cluster: None,
            socket: None,
            http: None,
            loops: None,
            grace: crate::limits::GRACE,
            keep: None,
            reservable: None,
            machine_root: PathBuf::from("/"),
            hold_latency: true,
            store: None,
            region_devices: Vec::new(),
            zone: None,
        }
    }

    /// Base pages to lend, if all of the configuration can be had.
    pub(crate) fn check(&self) -> Result<BasePages, NodeError> {
        let pages = self.size.base_pages();
        let (min, max) = (BasePages(1), BasePages(u64::from(u32::MAX)));
        if pages < min || pages > max {
            return Err(NodeError::Size { asked: self.size, min: min.bytes(), max: max.bytes() });
        }
        if let Some(reservable) = self.reservable.filter(|reservable| *reservable > self.size) {
            return Err(NodeError::Reservable { asked: reservable, size: self.size });
        }
        let available = available()?;
        if self.size > available {
            return Err(NodeError::TooLarge { asked: self.size, available });
        }
        if !self.listen.ip().is_loopback() && self.tls.is_none() && !self.insecure {
            return Err(NodeError::NotLoopback { addr: self.listen });
        }
        if let Some(zone) = self.zone.as_ref().filter(|zone| **zone != loam_wire::printable_name(zone)) {
            return Err(NodeError::Zone { zone: zone.escape_debug().to_string() });
        }
        match self.http {
            Some(addr) if !addr.ip().is_loopback() && !self.insecure => {
                return Err(NodeError::HttpNotLoopback { addr });
            }
            _ => {}
        }
        if let Some(cluster) = &self.cluster {
            if let Some(server) =
                cluster.etcd.as_ref().and_then(EtcdSite::elsewhere).filter(|_| !self.insecure)
            {
                return Err(NodeError::EtcdNotLoopback { server: server.to_owned() });
            }
            let addr = cluster.advertise.unwrap_or(self.listen);
            if addr.ip().is_unspecified() {
                return Err(NodeError::NoAddress { addr });
            }
        }
        Ok(pages)
    }
}

/// What the kernel says can be used without swapping.
fn available() -> Result<Bytes, NodeError> {
    let text = fs::read_to_string("/proc/meminfo").map_err(NodeError::system("reading /proc/meminfo"))?;
    parse_available(&text).ok_or_else(|| {
        NodeError::system("finding MemAvailable in /proc/meminfo")(std::io::Error::from(
            std::io::ErrorKind::InvalidData,
        ))
    })
}

fn parse_available(meminfo: &str) -> Option<Bytes> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

/// What is being lent, and where: ready for borrowers. Prints as `lending 4.0 GiB on 127.0.0.1:7070`.
#[derive(Clone, Debug)]
pub struct Lending {
    /// How much.
    pub size: Bytes,
    /// Where, with the real port.
    pub addr: SocketAddr,
    /// The node's name, if it is one.
    pub node: Option<String>,
    /// Where it answers HTTP, with the real port.
    pub http: Option<SocketAddr>,
    /// The UNIX socket's file.
    pub socket: Option<PathBuf>,
    /// The disk store's directory, what it can have, and what was found in it.
    pub store: Option<(PathBuf, Bytes, Bytes)>,
    /// Lines that the person who started it should see.
    pub warnings: Vec<String>,
}

impl fmt::Display for Lending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.node {
            write!(f, "node {name}: ")?;
        }
        write!(f, "lending {} on {}", self.size, self.addr)?;
        if let Some(socket) = &self.socket {
            write!(f, " and {}", socket.display())?;
        }
        if let Some((dir, size, found)) = &self.store {
            write!(f, ", disk store of {size} in {}", dir.display())?;
            if *found > Bytes(0) {
                write!(f, " with {found} of borrowers who may come back")?;
            }
        }
        if let Some(http) = &self.http {
            write!(f, ", metrics on http://{http}/metrics")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       24601528 kB\nMemFree:  1 kB\nMemAvailable:   23861332 kB\n";
        assert_eq!(parse_available(text), Some(Bytes(23_861_332 * 1024)));
        assert_eq!(parse_available("MemTotal: 5 kB\n"), None);
        assert!(available().unwrap() > Bytes::from_mib(1));
    }
}
