//! Threads that load from other nodes' memory, load by load.
//!
//! A core has one such load under way (section IV). Its way: the client's controller, the mesh, the server's controller and memory, and all the way back. A
//! controller in client role does one thing at a time: a request, an answer, or a refusal. In server role a request and an answer can pass each other.

use super::config::{Config, REQUEST_BYTES, RESPONSE_BYTES};
use crate::engine::{Queue, Resource};
use crate::multiprocessor::mesh::Mesh;
use loam_core::units::{Duration, Instant};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// One thread of the benchmark, on a core of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its node.
    pub node: usize,
    /// The nodes whose memory it loads from, at random.
    pub servers: Vec<usize>,
    /// Loads, after which it ends; none: it goes on until the others have ended.
    pub loads: Option<u64>,
    /// It draws a random place before each load.
    pub random: bool,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When the last thread of those that end had ended.
    pub end: Instant,
    /// Loads that were answered: by thread.
    pub loads: Vec<u64>,
    /// What they took, in all: by thread.
    pub waited: Vec<Duration>,
    /// Requests that clients' controllers refused.
    pub refusals: u64,
    /// How long each node's controller was at work as a client.
    pub client_busy: Vec<Duration>,
    /// And as a server, in the direction that was busier.
    pub server_busy: Vec<Duration>,
}

impl Run {
    /// What a load of a thread took, in ns: the mean.
    pub fn latency_ns(&self, thread: usize) -> f64 {
        self.waited[thread].0 as f64 / self.loads[thread] as f64
    }

    /// What the end is for each load of all threads that end, in ns.
    pub fn ns_per_load(&self, loads: u64) -> f64 {
        self.end.0 as f64 / loads as f64
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The core asks its controller.
    Ask,
    /// The controller has dealt with the request.
    Sent,
    /// It is at the server.
    AtServer,
    /// It is at the server's memory.
    AtMemory,
    /// The memory has answered.
    Answered,
    /// The answer leaves the server.
    Leaves,
    /// It is at the client.
    Back,
    /// It is at the core.
    Done,
}

/// A node's controller, in both roles.
#[derive(Clone, Debug, Default)]
struct Controller {
    client: Resource,
    requests: usize,
    server: [Resource; 2],
}

struct Machine<'a> {
    config: &'a Config,
    threads: &'a [Thread],
    mesh: Mesh,
    controllers: Vec<Controller>,
    queue: Queue<(usize, Step)>,
    random: Pcg64Mcg,
    /// By thread: where its load goes, and when it was begun.
    under_way: Vec<(usize, Instant)>,
    left: usize,
    run: Run,
}

/// Runs threads until all of them that end have.
///
/// # Panics
/// If no thread ends, or one has no server, or loads from its own node.
pub fn run(config: &Config, threads: &[Thread], seed: u64) -> Run {
    let left = threads.iter().filter(|thread| thread.loads.is_some_and(|loads| loads > 0)).count();
    assert!(left > 0, "a run ends with a thread");
    for thread in threads {
        assert!(
            !thread.servers.is_empty() && !thread.servers.contains(&thread.node),
            "servers are other nodes"
        );
    }
    let mut machine = Machine {
        config,
        threads,
        mesh: config.mesh(),
        controllers: vec![Controller::default(); config.nodes],
        queue: Queue::new(),
        random: Pcg64Mcg::seed_from_u64(seed),
        under_way: vec![(0, Instant(0)); threads.len()],
        left,
        run: Run {
            loads: vec![0; threads.len()],
            waited: vec![Duration(0); threads.len()],
            ..Run::default()
        },
    };
    for thread in 0..threads.len() {
        // Threads do not begin at one moment: somewhere within a load.
        let offset = machine.random.next_u64() % config.unloaded(1).0;
        machine.begin(thread, Instant(offset));
    }
    while machine.left > 0 {
        let (now, (thread, step)) = machine.queue.pop().expect("threads go on until they end");
        machine.step(now, thread, step);
    }
    machine.finish()
}

impl Machine<'_> {
    /// A thread's next load, after what it does before it.
    fn begin(&mut self, thread: usize, at: Instant) {
        let of = &self.threads[thread];
        let server = of.servers[(self.random.next_u64() % of.servers.len() as u64) as usize];
        let draw = self.config.draw.0;
        let at = if of.random { at + Duration(draw / 2 + self.random.next_u64() % (draw + 1)) } else { at };
        self.under_way[thread] = (server, at);
        self.queue.push(at, (thread, Step::Ask));
    }

    fn step(&mut self, now: Instant, thread: usize, step: Step) {
        let (node, (server, began)) = (self.threads[thread].node, self.under_way[thread]);
        let config = self.config;
        let (at, next) = match step {
            Step::Ask => self.ask(now, node),
            Step::Sent => {
                self.controllers[node].requests -= 1;
                (self.mesh.send(now, node, server, REQUEST_BYTES).head, Step::AtServer)
            }
            Step::AtServer => (self.serve(now, server, 0), Step::AtMemory),
            Step::AtMemory => (now + config.memory, Step::Answered),
            Step::Answered => (self.serve(now, server, 1), Step::Leaves),
            Step::Leaves => (self.mesh.send(now, server, node, RESPONSE_BYTES).head, Step::Back),
            Step::Back => (self.controllers[node].client.serve(now, config.client_pass), Step::Done),
            Step::Done => {
                self.run.loads[thread] += 1;
                self.run.waited[thread].0 += (now - began).0;
                assert!(now - began >= config.unloaded(1), "no load is faster than one alone");
                return self.next(now, thread);
            }
        };
        self.queue.push(at, (thread, next));
    }

    fn ask(&mut self, now: Instant, node: usize) -> (Instant, Step) {
        let controller = &mut self.controllers[node];
        if controller.requests >= self.config.room {
            self.run.refusals += 1;
            // It asks again when it has been told, so there is no more than one refusal of a core under way, and what was taken is done some time.
            return (controller.client.serve(now, self.config.refusal) + self.config.again, Step::Ask);
        }
        controller.requests += 1;
        (controller.client.serve(now, self.config.client_pass), Step::Sent)
    }

    fn serve(&mut self, now: Instant, server: usize, direction: usize) -> Instant {
        let engine = if self.config.server_duplex { direction } else { 0 };
        self.controllers[server].server[engine].serve(now, self.config.server_pass)
    }

    fn next(&mut self, now: Instant, thread: usize) {
        if self.threads[thread].loads == Some(self.run.loads[thread]) {
            self.left -= 1;
            self.run.end = now;
            return;
        }
        self.begin(thread, now);
    }

    fn finish(mut self) -> Run {
        let busier = |of: &Controller| of.server[0].busy().max(of.server[1].busy());
        self.run.client_busy = self.controllers.iter().map(|of| of.client.busy()).collect();
        self.run.server_busy = self.controllers.iter().map(busier).collect();
        self.run
    }
}
