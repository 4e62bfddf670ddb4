//! A cluster of real `loam node`s, on loopback or each in a network namespace of its own, and what they say of it.

use crate::net::Net;
use crate::{place, procfs, shell};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So long after the end of a fault all views are equal.
pub const SETTLED: Duration = Duration::from_secs(10);

/// One node of a test. Dropping it kills it.
#[derive(Debug)]
pub struct Node {
    child: Option<Child>,
    /// What it is called.
    pub name: String,
    /// Where it listens.
    pub addr: SocketAddr,
    namespace: Option<String>,
    socket: PathBuf,
    log: PathBuf,
    join: Vec<SocketAddr>,
    lend: &'static str,
    flags: Vec<String>,
}

/// What nodes are started with.
pub struct Setup<'a> {
    /// How many are started at once; the others by [`Node::start`].
    pub started: usize,
    /// How much each lends.
    pub lend: &'static str,
    /// Flags of each; without `--tls` among them it gets `--insecure`, without `--membership` the first node as its seed.
    pub flags: &'a dyn Fn(usize) -> Vec<String>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { started: usize::MAX, lend: "16M", flags: &|_| Vec::new() }
    }
}

/// Nodes, and the folder with their sockets and logs.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes, by their number.
    pub nodes: Vec<Node>,
    scratch: place::Scratch,
    net: Option<Net>,
}

impl Cluster {
    /// `count` nodes on loopback, each with the first as its seed, started at once.
    ///
    /// # Panics
    /// If one cannot be started.
    pub fn on_loopback(count: usize) -> Self {
        Self::on_loopback_with(count, &Setup::default())
    }

    /// The same with a setup of its own.
    ///
    /// # Panics
    /// If one cannot be started.
    pub fn on_loopback_with(count: usize, setup: &Setup<'_>) -> Self {
        let addrs = (0..count).map(|_| crate::lender::free_addr()).collect();
        Self::start(addrs, None, setup)
    }

    /// `count` nodes, each on a machine of its own as far as the network is concerned. `None`, with a line that says so, where that is not permitted.
    ///
    /// # Panics
    /// If one cannot be started.
    pub fn in_namespaces(count: usize) -> Option<Self> {
        Self::in_namespaces_with(count, &Setup::default())
    }

    /// The same with a setup of its own.
    ///
    /// # Panics
    /// If one cannot be started.
    pub fn in_namespaces_with(count: usize, setup: &Setup<'_>) -> Option<Self> {
        if !place::is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let net = Net::new(count);
        let addrs = (0..count).map(|number| net.addr(number)).collect();
        Some(Self::start(addrs, Some(net), setup))
    }

    fn start(addrs: Vec<SocketAddr>, net: Option<Net>, setup: &Setup<'_>) -> Self {
        let scratch = place::Scratch::new("cluster");
        let seed = addrs[0];
        let node = |(number, addr): (usize, SocketAddr)| Node {
            child: None,
            name: format!("n{number}"),
            addr,
            namespace: net.as_ref().map(|net| net.namespace(number)),
            socket: scratch.join(&format!("n{number}.sock")),
            log: scratch.join(&format!("n{number}.log")),
            join: vec![seed],
            lend: setup.lend,
            flags: (setup.flags)(number),
        };
        let nodes = addrs.into_iter().enumerate().map(node).collect();
        let mut cluster = Self { nodes, scratch, net };
        cluster.nodes.iter_mut().take(setup.started).for_each(Node::start);
        cluster
    }

    /// Kills a node without a word and starts it again, with the same name and address, at once.
    pub fn restart(&mut self, number: usize) {
        self.nodes[number].kill();
        self.nodes[number].start();
    }

    /// Adds a node on loopback.
    pub fn add(&mut self, flags: &[&str]) -> usize {
        let number = self.nodes.len();
        let mut node = Node {
            child: None,
            name: format!("n{number}"),
            addr: crate::lender::free_addr(),
            namespace: None,
            socket: self.scratch.join(&format!("n{number}.sock")),
            log: self.scratch.join(&format!("n{number}.log")),
            join: vec![self.nodes[1].addr],
            lend: "16M",
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        };
        node.start();
        self.nodes.push(node);
        number
    }

    /// The network of the namespaces.
    ///
    /// # Panics
    /// On loopback.
    pub fn net(&self) -> &Net {
        self.net.as_ref().expect("this cluster is in namespaces")
    }

    /// Waits until every one of `living` sees exactly these, the same master among them and the same epoch, and answers how long that took.
    ///
    /// # Panics
    /// If it is not so within `limit`.
    pub fn agrees(&self, living: &[usize], limit: Duration) -> Duration {
        let names: BTreeSet<&str> = living.iter().map(|&number| self.nodes[number].name.as_str()).collect();
        let begun = Instant::now();
        loop {
            let views: Vec<Value> = living.iter().map(|&number| self.nodes[number].view()).collect();
            let first = &views[0];
            let all_there = names_of(first) == names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            let same = |key: &str| views.iter().all(|view| view[key] == first[key]);
            let same_nodes = views.iter().all(|view| lives(view) == lives(first));
            let told = views.iter().all(figures_are_known);
            if all_there && same_nodes && told && same("master") && first["epoch"]["number"] != 0 {
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < limit,
                "no agreement of {names:?} within {limit:?}: {:#?}\n{}",
                views
                    .iter()
                    .map(|view| (&view["asked"], names_of(view), &view["master"]))
                    .collect::<Vec<_>>(),
                self.logs(),
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// All that the nodes wrote to stderr.
    pub fn logs(&self) -> String {
        let log = |node: &Node| {
            format!("--- {}\n{}", node.name, std::fs::read_to_string(&node.log).unwrap_or_default())
        };
        self.nodes.iter().map(log).collect()
    }
}

fn nodes_of(view: &Value) -> &[Value] {
    view["nodes"].as_array().map_or(&[], Vec::as_slice)
}

/// Names, ascending.
fn names_of(view: &Value) -> Vec<String> {
    let mut names: Vec<String> =
        nodes_of(view).iter().map(|node| node["name"].as_str().unwrap_or_default().to_owned()).collect();
    names.sort();
    names
}

/// Which lives, with what that does not change by itself.
fn lives(view: &Value) -> Vec<(&Value, &Value, &Value, &Value)> {
    nodes_of(view)
        .iter()
        .map(|node| (&node["id"], &node["name"], &node["addr"], &node["lent_bytes"]))
        .collect()
}

fn figures_are_known(view: &Value) -> bool {
    nodes_of(view).iter().all(|node| node["lent_bytes"].as_u64().is_some_and(|bytes| bytes > 0))
}

impl Node {
    /// A `loam` on the node's machine, as far as the network is concerned.
    pub fn loam(&self) -> Command {
        let loam = place::loam();
        match &self.namespace {
            None => shell::that_dies_with_us(&loam),
            Some(namespace) => {
                let mut command = shell::that_dies_with_us("ip".as_ref());
                command.args(["netns", "exec", namespace]).arg(&loam);
                command
            }
        }
    }

    /// Its socket for local programs.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&mut self) {
        let command = self.loam();
        self.start_by(command);
    }

    /// Starts it on a machine in a namespace whose clocks (monotonic, since boot) are `ahead_s` seconds ahead of ours.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_with_clock(&mut self, ahead_s: i64) {
        let namespace = self.namespace.as_ref().expect("it is in a namespace");
        let mut command = shell::that_dies_with_us("ip".as_ref());
        command.args(["netns", "exec", namespace, "unshare", "--time"]);
        // A time namespace is for children only: who unshares it stays, and must take the other with it.
        command.args(["--monotonic", &ahead_s.to_string(), "--boottime", &ahead_s.to_string()]);
        command.args(["--fork", "--kill-child=KILL"]).arg(place::loam());
        self.start_by(command);
    }

    fn start_by(&mut self, mut command: Command) {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(&self.log).expect("a log can be made");
        command.args(["node", "--lend", self.lend, "--name", &self.name]);
        if !self.flags.iter().any(|flag| flag == "--tls") {
            command.arg("--insecure");
        }
        command.args(["--listen", &self.addr.to_string(), "--socket"]).arg(&self.socket);
        let by_seeds = !self.flags.iter().any(|flag| flag == "--membership");
        for seed in self.join.iter().filter(|_| by_seeds) {
            command.args(["--join", &seed.to_string()]);
        }
        let started = command
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("loam can be started");
        self.child = Some(started);
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    /// Ends it without a word.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        procfs::send(self.pid(), Signal::KILL);
        let _ = self.child.take().expect("it was started").wait();
    }

    /// Asks it to end, and waits.
    ///
    /// # Panics
    /// If it does not run, or does not end well.
    pub fn end(&mut self) {
        procfs::send(self.pid(), Signal::TERM);
        let ended = self.child.take().expect("it was started").wait().expect("our child");
        assert!(ended.success(), "{}: {ended}", self.name);
    }

    /// Stops its process, connections and all.
    pub fn stop(&self) {
        procfs::send(self.pid(), Signal::STOP);
    }

    /// And lets it go on.
    pub fn resume(&self) {
        procfs::send(self.pid(), Signal::CONT);
    }

    /// What `loam status` says that it sees; null while it does not answer.
    ///
    /// # Panics
    /// If `loam status` does not print JSON.
    pub fn view(&self) -> Value {
        let output = Command::new(place::loam())
            .args(["status", "--json", "--socket"])
            .arg(&self.socket)
            .output()
            .expect("loam can be started");
        let status: Value = serde_json::from_slice(&output.stdout).expect("loam status --json prints JSON");
        status["clusters"][0].clone()
    }

    /// The life that it is.
    pub fn id(&self) -> String {
        self.view()["id"].as_str().unwrap_or_default().to_owned()
    }

    /// What it wrote to stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
