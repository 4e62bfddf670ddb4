//! Machines as far as the network is concerned: namespaces, a bridge, and cables that can be pulled.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Network namespaces, a bridge, and a cable from each to it. Dropping it removes all.
#[derive(Debug)]
pub struct Net {
    tag: String,
    count: usize,
}

impl Net {
    pub(crate) fn new(count: usize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Names of interfaces have at most fifteen letters. (tests/e2e.sh reads the process id out of it.)
        let tag = format!("lt{:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let net = Self { tag, count };
        // In a namespace of its own: nothing of it can meet this machine's network.
        let hub = net.hub();
        ip(&["netns", "add", &hub]);
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"]);
        ip(&["-n", &hub, "link", "set", "bridge", "up"]);
        for number in 0..count {
            let (namespace, port) = (net.namespace(number), format!("port{number}"));
            ip(&["netns", "add", &namespace]);
            ip(&["-n", &namespace, "link", "set", "lo", "up"]);
            ip(&[
                "-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "cable", "netns",
                &namespace,
            ]);
            ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"]);
            let addr = format!("{}/24", net.addr(number).ip());
            ip(&["-n", &namespace, "addr", "add", &addr, "dev", "cable"]);
            ip(&["-n", &namespace, "link", "set", "cable", "up"]);
        }
        net
    }

    fn hub(&self) -> String {
        format!("{}hub", self.tag)
    }

    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    pub(crate) fn addr(&self, number: usize) -> SocketAddr {
        SocketAddr::from(([10, 99, 0, number as u8 + 1], 7070))
    }

    /// Pulls a machine's cable out of the bridge, or plugs it in again.
    pub fn cable(&self, number: usize, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        ip(&["-n", &self.hub(), "link", "set", &format!("port{number}"), state]);
    }

    /// Moves the cables of these machines to a second bridge: they reach each other, and nobody else.
    pub fn part(&self, numbers: &[usize]) {
        ip(&["-n", &self.hub(), "link", "add", "apart", "type", "bridge"]);
        ip(&["-n", &self.hub(), "link", "set", "apart", "up"]);
        for number in numbers {
            ip(&["-n", &self.hub(), "link", "set", &format!("port{number}"), "master", "apart"]);
        }
    }

    /// And back to the first.
    pub fn heal(&self) {
        for number in 0..self.count {
            ip(&["-n", &self.hub(), "link", "set", &format!("port{number}"), "master", "bridge"]);
        }
        ip(&["-n", &self.hub(), "link", "del", "apart"]);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Cables and bridges go with their namespaces. What cannot be removed was never made.
        let names = (0..self.count).map(|number| self.namespace(number)).chain([self.hub()]);
        for name in names {
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip is installed: run tests/setup.sh");
    assert!(output.status.success(), "ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
}
