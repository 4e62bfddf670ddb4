//! The best that this machine can do without any of Loam in the way.

use super::Quantiles;
use crate::bench::args::PeerRole;
use crate::embedded::first_line;
use crate::failure::Failure;
use clap::ValueEnum;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Faults or round trips of one measurement.
const SAMPLES: usize = 10_000;
/// Writes of 256 KiB of one stream: 1 GiB.
const STREAM_WRITES: usize = 4096;
/// How long one measurement may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// One way to place and to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variant {
    /// Sleeps when there is nothing to do, or spins.
    pub(super) spinning: bool,
    /// Both processes on one core, or one each.
    pub(super) cores: usize,
}

/// A measurement in one variant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    #[serde(flatten)]
    pub(super) variant: Variant,
    #[serde(flatten)]
    pub(super) quantiles: Quantiles,
}

/// A stream in one variant.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Throughput {
    #[serde(flatten)]
    pub(super) variant: Variant,
    pub(super) gb_per_s: f64,
}

/// Everything that was measured without Loam.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Floor {
    pub(super) userfault: Vec<Latency>,
    pub(super) tcp_round_trip: Vec<Latency>,
    pub(super) tcp_stream: Vec<Throughput>,
}

impl Floor {
    /// Best median of a bare fault.
    pub(super) fn userfault_us(&self) -> f64 {
        best_latency(&self.userfault)
    }
    /// Best median of a bare round trip.
    pub(super) fn round_trip_us(&self) -> f64 {
        best_latency(&self.tcp_round_trip)
    }
    /// Best bare stream.
    pub(super) fn stream_gb_per_s(&self) -> f64 {
        self.tcp_stream.iter().map(|one| one.gb_per_s).fold(0.0, f64::max)
    }
    /// The floor of a remote fault of 4 KiB.
    pub(super) fn fault_us(&self) -> f64 {
        self.userfault_us() + self.round_trip_us()
    }

    /// Takes from a second measurement what is better there.
    pub(super) fn keep_best(&mut self, again: Self) {
        let pairs = self.userfault.iter_mut().zip(again.userfault);
        for (kept, new) in pairs.chain(self.tcp_round_trip.iter_mut().zip(again.tcp_round_trip)) {
            assert_eq!(kept.variant, new.variant);
            if new.quantiles.p50_us < kept.quantiles.p50_us {
                *kept = new;
            }
        }
        for (kept, new) in self.tcp_stream.iter_mut().zip(again.tcp_stream) {
            assert_eq!(kept.variant, new.variant);
            kept.gb_per_s = kept.gb_per_s.max(new.gb_per_s);
        }
    }
}

fn best_latency(all: &[Latency]) -> f64 {
    all.iter().map(|one| one.quantiles.p50_us).fold(f64::INFINITY, f64::min)
}

/// Measures every part in every variant that this machine has the cores for.
pub(super) fn measure(executable: &Path, cores: &[usize]) -> Result<Floor, Failure> {
    let first = *cores
        .first()
        .ok_or_else(|| Failure::new("no core to run on: check taskset or the cgroup's cpuset"))?;
    let placements: Vec<[usize; 2]> =
        std::iter::once([first, first]).chain(cores.get(1).map(|&second| [first, second])).collect();
    let mut floor = Floor { userfault: Vec::new(), tcp_round_trip: Vec::new(), tcp_stream: Vec::new() };
    for on in placements {
        for spinning in [false, true] {
            let variant = Variant { spinning, cores: if on[0] == on[1] { 1 } else { 2 } };
            let pair = Pair { executable, on, spinning };
            let quantiles = pair.over_socket()?;
            floor.userfault.push(Latency { variant, quantiles });
            let quantiles = pair.over_tcp(PeerRole::Serve, PeerRole::Ask, SAMPLES)?;
            floor.tcp_round_trip.push(Latency { variant, quantiles });
            let gb_per_s = pair.over_tcp(PeerRole::Source, PeerRole::Drain, STREAM_WRITES)?;
            floor.tcp_stream.push(Throughput { variant, gb_per_s });
        }
    }
    Ok(floor)
}

/// A child that does not outlive the measurement.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended by itself, or it must now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes, where they run and how they wait.
struct Pair<'a> {
    executable: &'a Path,
    on: [usize; 2],
    spinning: bool,
}

impl Pair<'_> {
    fn command(&self, role: PeerRole, core: usize, count: usize) -> Command {
        let mut command = Command::new(self.executable);
        let name = role.to_possible_value().expect("no role is skipped");
        command.args(["bench-peer", name.get_name()]);
        command.args(["--core", &core.to_string(), "--count", &count.to_string()]);
        command.args(["--parent", &std::process::id().to_string()]);
        if self.spinning {
            command.arg("--spin");
            if self.on[0] == self.on[1] {
                command.arg("--yields");
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn start(&self, mut command: Command) -> Result<Peer, Failure> {
        let shown = self.executable.display();
        command.spawn().map(Peer).map_err(|error| Failure::new(format!("cannot start {shown} ({error})")))
    }

    /// The bare fault: one half faults, the other answers.
    fn over_socket(&self) -> Result<Quantiles, Failure> {
        let (here, there) = UnixStream::pair()
            .map_err(|error| Failure::new(format!("cannot make a pair of sockets ({error})")))?;
        let mut answer = self.command(PeerRole::Answer, self.on[0], SAMPLES);
        answer.stdin(Stdio::from(OwnedFd::from(here)));
        let mut fault = self.command(PeerRole::Fault, self.on[1], SAMPLES);
        fault.stdin(Stdio::from(OwnedFd::from(there)));
        let _answering = self.start(answer)?;
        result(&mut self.start(fault)?)
    }

    /// A bare TCP exchange: `listens` says where, `asks` measures.
    fn over_tcp<T: serde::de::DeserializeOwned>(
        &self,
        listens: PeerRole,
        asks: PeerRole,
        count: usize,
    ) -> Result<T, Failure> {
        let mut serving = self.start(self.command(listens, self.on[0], count))?;
        let addr = line(&mut serving)?;
        let mut ask = self.command(asks, self.on[1], count);
        ask.args(["--connect", addr.trim()]);
        result(&mut self.start(ask)?)
    }
}

fn line(peer: &mut Peer) -> Result<String, Failure> {
    let stdout = peer.0.stdout.take().expect("stdout was asked for as a pipe, and is read once");
    first_line(stdout).recv_timeout(TIME_MAX).ok().filter(|line| !line.is_empty()).ok_or_else(|| {
        Failure::new("a half of the measurement gave no answer: see its line above; `loam doctor` may help")
    })
}

fn result<T: serde::de::DeserializeOwned>(peer: &mut Peer) -> Result<T, Failure> {
    serde_json::from_str(&line(peer)?)
        .map_err(|error| Failure::new(format!("a half of the measurement gave a strange answer ({error})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor(p50_us: f64, gb_per_s: f64) -> Floor {
        let variant = Variant { spinning: false, cores: 1 };
        let quantiles = Quantiles { samples: 1, p50_us, p90_us: 0.0, p99_us: 0.0 };
        let latency = vec![Latency { variant, quantiles }];
        Floor {
            userfault: latency.clone(),
            tcp_round_trip: latency,
            tcp_stream: vec![Throughput { variant, gb_per_s }],
        }
    }

    #[test]
    fn the_floor_is_the_best_of_both_measurements() {
        let mut kept = floor(10.0, 2.0);
        kept.keep_best(floor(8.0, 1.0));
        assert_eq!((kept.fault_us(), kept.stream_gb_per_s()), (16.0, 2.0));
        kept.keep_best(floor(9.0, 3.0));
        assert_eq!((kept.fault_us(), kept.stream_gb_per_s()), (16.0, 3.0));
    }
}
