//! Clusters of nine, eight and five machines while programs borrow from them (gms-1995, sections 5.4 and 5.7: figures 8 and 12): machines join, leave, hang and
//! die, idle memory moves from one half to the other, seven borrow from one. Programs print what they print without Loam, the
//! nodes agree within ten seconds, and nothing stays at lenders.

use loam_tests::cluster::{Cluster, Node, SETTLED, Setup};
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell, workloads};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// What each node's machine says that it has.
struct Machines {
    roots: Vec<PathBuf>,
}

impl Machines {
    /// All of them have plenty.
    fn new(scratch: &Scratch, count: usize) -> Self {
        let roots: Vec<PathBuf> =
            (0..count).map(|number| scratch.join(&format!("machine{number}"))).collect();
        for root in &roots {
            std::fs::create_dir_all(root.join("proc")).expect("the scratch folder is writable");
        }
        let machines = Self { roots };
        (0..count).for_each(|number| machines.have(number, true));
        machines
    }

    /// A machine has 4 GiB available, or its own programs take all that there is.
    fn have(&self, number: usize, plenty: bool) {
        let root = &self.roots[number];
        let available_kib = if plenty { 4 << 20 } else { 0 };
        let text = format!("MemTotal: {} kB\nMemAvailable: {available_kib} kB\n", 8 << 20);
        std::fs::write(root.join("new"), text).expect("writable");
        std::fs::rename(root.join("new"), root.join("proc/meminfo")).expect("writable");
    }

    fn flags(&self, number: usize) -> Vec<String> {
        let root = self.roots[number].to_str().expect("UTF-8").to_owned();
        vec!["--keep".into(), "64M".into(), "--machine-root".into(), root]
    }
}

/// A cluster whose machines have what a test says.
fn cluster(scratch: &Scratch, count: usize) -> Option<(Cluster, Machines)> {
    let machines = Machines::new(scratch, count);
    let flags = |number| machines.flags(number);
    let cluster =
        Cluster::in_namespaces_with(count, &Setup { lend: "512M", flags: &flags, ..Setup::default() })?;
    let all: Vec<usize> = (0..count).collect();
    cluster.agrees(&all, SETTLED);
    Some((cluster, machines))
}

/// A program of `mib` that takes a while.
fn walk(mib: u64, passes: u64) -> Command {
    workloads::memwalk(mib, passes, "blocks")
}

fn expected(walk: &mut Command, dir: &Path) -> Vec<u8> {
    let plain = shell::run(walk, dir, "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    plain.stdout
}

/// A `loam run` on a node's machine.
struct Run {
    started: shell::Started,
    summary: PathBuf,
}

impl Run {
    fn start(node: &Node, walk: &Command, dir: &Path) -> Self {
        let (name, summary) = (node.name.clone(), dir.join(format!("{}.json", node.name)));
        let mut run = node.loam();
        run.args(["run", "--local", "32M", "--disk"]).arg(dir.join(format!("{name}-slots")));
        // More machines end within a moment, or have nothing, than two copies of a page outlive.
        run.args(["--durability", "disk"])
            .arg("--node")
            .arg(node.socket())
            .arg("--summary")
            .arg(&summary)
            .arg("--quiet");
        run.arg("--").arg(walk.get_program()).args(walk.get_args());
        Self { started: shell::start(&mut run, dir, &name), summary }
    }

    /// Its end, as it should be; its summary.
    fn finish(self, expected: &[u8], cluster: &Cluster) -> Value {
        self.end(cluster, |printed| printed == expected)
    }

    /// The same of a walk of [`workloads::ENDLESS`] passes, which is ended after the pass that it is in.
    fn finish_endless(self, expected: &[u8], cluster: &Cluster) -> Value {
        workloads::end_walks(self.started.pid());
        self.end(cluster, |printed| {
            !printed.is_empty() && (printed.starts_with(expected) || expected.starts_with(printed))
        })
    }

    fn end(self, cluster: &Cluster, is_right: impl FnOnce(&[u8]) -> bool) -> Value {
        let ended = self.started.finish(LIMIT);
        assert_eq!(ended.code(), 0, "{}\n{}", ended.stderr, cluster.logs());
        assert!(is_right(&ended.stdout), "another output than without Loam");
        let summary = std::fs::read(self.summary).expect("a summary was written");
        serde_json::from_slice(&summary).expect("JSON")
    }
}

/// Lenders hold nothing for anybody any more.
fn nothing_is_left(cluster: &Cluster, nodes: &[usize]) {
    let held = || -> u64 {
        let view = cluster.nodes[nodes[0]].view();
        let list = view["nodes"].as_array().expect("a list").clone();
        list.iter().map(|node| node["used_bytes"].as_u64().expect("a number")).sum()
    };
    procfs::wait_until(Duration::from_secs(20), || held() == 0)
        .unwrap_or_else(|_| panic!("{} bytes are still held\n{}", held(), cluster.logs()));
}

/// Base pages of programs on the machine of that name, as a node sees it.
fn local_pages(node: &Node, name: &str) -> u64 {
    let view = node.view();
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().filter(|node| node["name"] == name).filter_map(|node| node["local_pages"].as_u64()).sum()
}

/// Figure 12: one idle machine, seven that borrow from it at once.
#[test]
fn seven_borrow_from_one() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("seven");
    let Some((cluster, machines)) = cluster(&scratch, 8) else { return };
    (1..8).for_each(|number| machines.have(number, false));
    let known = || {
        let view = cluster.nodes[1].view();
        let nodes = view["nodes"].as_array().expect("a list").clone();
        nodes.iter().filter(|node| node["free_bytes"].as_u64() > Some(0)).count() == 1
    };
    procfs::wait_until(SETTLED, known).expect("only one has memory, and the others know it");
    let mut walk = walk(72, 3);
    let expected = expected(&mut walk, scratch.path());
    let runs: Vec<Run> =
        (1..8).map(|number| Run::start(&cluster.nodes[number], &walk, scratch.path())).collect();
    for run in runs {
        let summary = run.finish(&expected, &cluster);
        let from_idle = format!("{}", cluster.nodes[0].addr);
        let lenders = summary["lenders"].as_array().expect("a list");
        let sent = |addr: &str| -> u64 {
            lenders.iter().filter(|l| l["addr"] == addr).filter_map(|l| l["sent_bytes"].as_u64()).sum()
        };
        assert!(sent(&from_idle) > 16 << 20, "{summary}");
        assert_eq!(
            summary["bytes"]["out"].as_u64(),
            Some(sent(&from_idle)),
            "others have nothing: {summary}"
        );
    }
    let all: Vec<usize> = (0..8).collect();
    nothing_is_left(&cluster, &all);
    cluster.agrees(&all, SETTLED);
}

/// Figure 8: each second the idle machines and the busy ones change places.
#[test]
fn idle_memory_moves_every_second() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("swap");
    let Some((cluster, machines)) = cluster(&scratch, 5) else { return };
    [0, 3, 4].into_iter().for_each(|number| machines.have(number, false));
    let expected = expected(&mut walk(96, 8), scratch.path());
    let mut run = Run::start(&cluster.nodes[0], &walk(96, workloads::ENDLESS), scratch.path());
    for swaps in 1..=5 {
        std::thread::sleep(Duration::from_secs(1));
        assert!(run.started.runs(), "it ended by itself");
        (1..5).for_each(|number| machines.have(number, (number <= 2) == (swaps % 2 == 0)));
    }
    let summary = run.finish_endless(&expected, &cluster);
    assert_eq!(summary["lenders_lost"], 0, "{summary}");
    let lent_to = |number: usize| -> u64 {
        let addr = cluster.nodes[number].addr.to_string();
        let lenders = summary["lenders"].as_array().expect("a list").iter();
        lenders.filter(|l| l["addr"] == addr.as_str()).filter_map(|l| l["sent_bytes"].as_u64()).sum::<u64>()
    };
    // Of the others how much depends on the moment: a lender looks once a second while it lends nothing, and one that had to give back waits some
    // seconds before it lends again.
    assert!(lent_to(1) + lent_to(2) > 0, "{summary}");
    nothing_is_left(&cluster, &[0, 1, 2, 3, 4]);
    cluster.agrees(&[0, 1, 2, 3, 4], SETTLED);
}

/// Nodes are killed, among them whoever begins the next epoch and the master; one comes back at once under its name, one leaves, one hangs. The
/// borrower's own daemon lives.
#[test]
fn machines_come_and_go_under_load() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("load");
    let Some((mut cluster, _machines)) = cluster(&scratch, 9) else { return };
    let expected = expected(&mut walk(96, 14), scratch.path());
    let mut run = Run::start(&cluster.nodes[0], &walk(96, workloads::ENDLESS), scratch.path());
    run.started.wait_for_line("filled", LIMIT);
    procfs::wait_until(SETTLED, || local_pages(&cluster.nodes[1], "n0") > 4096)
        .expect("all nodes know how much of the program is local");
    let mut living: Vec<usize> = (1..9).collect();
    // The initiator and the master, each in the middle of an epoch: it has just begun. Ours must live.
    for role in ["initiator", "master"] {
        let view = cluster.nodes[0].view();
        let id = if role == "master" { view["master"].clone() } else { view["epoch"]["initiator"].clone() };
        let found = living.iter().position(|&number| cluster.nodes[number].id() == id);
        let victim = living.remove(found.unwrap_or(0));
        cluster.nodes[victim].kill();
    }
    let (again, leaves, hangs) = (living[0], living[1], living[2]);
    cluster.restart(again);
    cluster.nodes[leaves].end();
    cluster.nodes[hangs].stop();
    // No longer: who stands still while others die hears of their deaths only as long as these are news, and then has to find them out one by one.
    std::thread::sleep(Duration::from_secs(3));
    assert!(run.started.runs(), "it ended by itself");
    cluster.nodes[hangs].resume();
    living.remove(1);
    let summary = run.finish_endless(&expected, &cluster);
    assert!(summary["lenders_lost"].as_u64() >= Some(2), "{summary}");
    living.insert(0, 0);
    living.sort_unstable();
    cluster.agrees(&living, SETTLED);
    nothing_is_left(&cluster, &living);
}

/// Nodes whose clocks are weeks apart: nobody compares his clock with another's.
#[test]
fn clocks_may_differ_by_weeks() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("clocks");
    let ahead = |number: usize| i64::try_from(number).expect("few") * 1_000_000;
    let setup = Setup { started: 0, lend: "128M", ..Setup::default() };
    let Some(mut cluster) = Cluster::in_namespaces_with(3, &setup) else { return };
    for number in 0..3 {
        cluster.nodes[number].start_with_clock(ahead(number));
    }
    cluster.agrees(&[0, 1, 2], SETTLED);
    let mut walk = walk(96, 3);
    let expected = expected(&mut walk, scratch.path());
    let summary = Run::start(&cluster.nodes[0], &walk, scratch.path()).finish(&expected, &cluster);
    assert!(summary["faults"]["remote"].as_u64() > Some(0), "{summary}");
    nothing_is_left(&cluster, &[0, 1, 2]);
    cluster.agrees(&[0, 1, 2], SETTLED);
}
