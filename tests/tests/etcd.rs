//! Clusters whose membership is a real etcd: nodes come and go, the etcd too, and two masters at once cost no byte.

use loam_tests::borrow::Borrow;
use loam_tests::cluster::{Cluster, SETTLED, Setup};
use loam_tests::etcd::{Cable, Etcd};
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell, workloads};
use std::time::Duration;

/// Longer than a lease and all that follows from its end.
const LEASE_OVER: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(240);

/// A cluster of `count` by this etcd.
fn cluster(count: usize, url: &str, lend: &'static str) -> Cluster {
    let flags = |_| vec!["--membership".to_owned(), url.to_owned()];
    Cluster::on_loopback_with(count, &Setup { lend, flags: &flags, ..Setup::default() })
}

fn is_stale(cluster: &Cluster, number: usize) -> bool {
    cluster.nodes[number].view()["stale"] == true
}

/// Nodes find each other, one ends, one is killed, one is started again at once under its name, one stands still for longer than its lease.
#[test]
fn nodes_come_and_go() {
    let _beside = place::beside();
    let Some(etcd) = Etcd::start() else { return };
    let mut cluster = cluster(5, &etcd.url("blue"), "16M");
    println!("found each other in {:?}", cluster.agrees(&[0, 1, 2, 3, 4], SETTLED));
    // Of another cluster in the same etcd nothing is seen.
    let other = cluster_of_one(&etcd);
    other.agrees(&[0], SETTLED);

    cluster.nodes[4].end();
    println!("one that ended: gone in {:?}", cluster.agrees(&[0, 1, 2, 3], Duration::from_secs(3)));
    cluster.nodes[3].kill();
    println!("one that was killed: gone in {:?}", cluster.agrees(&[0, 1, 2], SETTLED));
    let former = cluster.nodes[2].id();
    cluster.restart(2);
    println!("started again: {:?}", cluster.agrees(&[0, 1, 2], Duration::from_secs(4)));
    assert_ne!(cluster.nodes[2].id(), former, "a restart is another life");

    let life = cluster.nodes[1].id();
    cluster.nodes[1].stop();
    std::thread::sleep(LEASE_OVER);
    cluster.agrees(&[0, 2], SETTLED);
    cluster.nodes[1].resume();
    println!("stood still, and came back in {:?}", cluster.agrees(&[0, 1, 2], SETTLED));
    assert_eq!(cluster.nodes[1].id(), life, "the same life, with its pages");
    assert!(!cluster.logs().contains("WARN"), "{}", cluster.logs());
}

fn cluster_of_one(etcd: &Etcd) -> Cluster {
    cluster(1, &etcd.url("green"), "16M")
}

/// The etcd comes when the nodes are there already, hangs, is killed, and comes back with its data and without. Nobody is missed, and whoever died
/// meanwhile is found out then.
#[test]
fn the_etcd_comes_and_goes() {
    let _beside = place::beside();
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.kill();
    let mut cluster = cluster(4, &etcd.url("default"), "16M");
    let all = [0, 1, 2, 3];
    let stale = |cluster: &Cluster, is: bool| {
        let told = procfs::wait_until(SETTLED, || all.iter().all(|&number| is_stale(cluster, number) == is));
        assert!(told.is_ok(), "the status does not say it ({is}): {}", cluster.logs());
    };
    stale(&cluster, true);
    for number in all {
        cluster.agrees(&[number], SETTLED);
    }
    etcd.start_again(true);
    println!("found each other in {:?}", cluster.agrees(&all, SETTLED));
    stale(&cluster, false);
    let lives = |cluster: &Cluster| all.map(|number| cluster.nodes[number].id());
    let before = lives(&cluster);
    for how in ["hangs", "keeps its data", "loses its data"] {
        if how == "hangs" {
            etcd.stop()
        } else {
            etcd.kill()
        }
        stale(&cluster, true);
        std::thread::sleep(LEASE_OVER);
        cluster.agrees(&all, Duration::from_secs(2));
        match how {
            "hangs" => etcd.go_on(),
            _ => etcd.start_again(how == "keeps its data"),
        }
        stale(&cluster, false);
        println!("an etcd that {how}: {:?}", cluster.agrees(&all, SETTLED));
    }
    // Whoever is held for a while might still go.
    std::thread::sleep(LEASE_OVER);
    cluster.agrees(&all, SETTLED);
    assert_eq!(lives(&cluster), before);
    for node in &cluster.nodes {
        let log = node.log();
        assert_eq!(log.matches("this node goes on trying").count(), 4, "once for each time: {log}");
        assert_eq!(log.matches("etcd answers again").count(), 4, "{log}");
        assert!(!log.contains(" gone"), "nobody was missed: {log}");
    }

    etcd.kill();
    cluster.nodes[3].kill();
    std::thread::sleep(Duration::from_secs(2));
    etcd.start_again(true);
    println!("killed while the etcd was away: gone in {:?}", cluster.agrees(&[0, 1, 2], SETTLED));
}

/// Three servers; the nodes know them all, and the one that they ask dies. What others write under the prefix is ignored, and said once.
#[test]
fn a_server_dies_and_garbage_is_written() {
    let _beside = place::beside();
    let Some(mut servers) = Etcd::start_many(3) else { return };
    let addrs: Vec<String> = servers.iter().map(|etcd| etcd.addr.to_string()).collect();
    let cluster = cluster(3, &format!("etcd://{}", addrs.join(",")), "16M");
    cluster.agrees(&[0, 1, 2], SETTLED);
    servers[0].kill();
    // It may have been the leader.
    std::thread::sleep(LEASE_OVER);
    cluster.agrees(&[0, 1, 2], SETTLED);
    assert!(!cluster.logs().contains(" gone"), "{}", cluster.logs());
    // /loam/default/nodes/x and /loam/default/nodes/00000000000000ff, with values without meaning, twice each.
    for key in ["L2xvYW0vZGVmYXVsdC9ub2Rlcy94", "L2xvYW0vZGVmYXVsdC9ub2Rlcy8wMDAwMDAwMDAwMDAwMGZm"] {
        for value in ["", "e30="] {
            servers[1]
                .call("kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#))
                .expect("it answers");
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    cluster.agrees(&[0, 1, 2], SETTLED);
    for node in &cluster.nodes {
        assert_eq!(node.log().matches("in etcd is not a node's").count(), 2, "{}", node.log());
    }
}

/// The master's way to the etcd is cut: it goes on with all members as it last saw them, the others have a master of their own. Runs on both sides borrow from all lenders
/// of their view all the time, one of which dies, and print what they print without Loam.
#[test]
fn two_masters_at_once_cost_no_byte() {
    let _beside = place::beside();
    let Some(etcd) = Etcd::start() else { return };
    let scratch = Scratch::new("masters");
    let walk = || workloads::memwalk(96, 20, "blocks");
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);

    let cables: Vec<Cable> = (0..4).map(|_| Cable::to(etcd.addr)).collect();
    let flags = |number: usize| vec!["--membership".to_owned(), format!("etcd://{}", cables[number].addr)];
    let mut cluster =
        Cluster::on_loopback_with(4, &Setup { lend: "256M", flags: &flags, ..Setup::default() });
    cluster.agrees(&[0, 1, 2, 3], SETTLED);
    let master_of = |cluster: &Cluster, number: usize| cluster.nodes[number].view()["master"].clone();
    let master = master_of(&cluster, 0);
    let cut_off = (0..4).find(|&number| cluster.nodes[number].id() == master).expect("it is one of them");
    let others: Vec<usize> = (0..4).filter(|&number| number != cut_off).collect();

    let run_at = |number: usize, name: &str| {
        let dir = scratch.join(name);
        std::fs::create_dir(&dir).expect("ours");
        let socket = cluster.nodes[number].socket().to_string_lossy().into_owned();
        Borrow::new(&dir)
            .flags(&["--node", &socket])
            .start(&workloads::memwalk(96, workloads::ENDLESS, "blocks"), None)
    };
    let mut runs = [run_at(cut_off, "cut-off"), run_at(others[0], "others")];
    runs.iter_mut().for_each(|run| run.run.wait_for_line("filled", LIMIT));
    cables[cut_off].cut(true);
    cluster.agrees(&others, SETTLED);
    assert!(is_stale(&cluster, cut_off) && !is_stale(&cluster, others[0]));
    assert_eq!(master_of(&cluster, cut_off), master, "it has not heard of another");
    assert_ne!(master_of(&cluster, others[0]), master);
    let both = runs.iter_mut().filter_map(|run| run.run.runs().then_some(())).count();
    println!("two masters while {both} runs go on");
    // One more dies. The node that is cut off cannot know; its borrower finds out by itself.
    let dies = others[2];
    cluster.nodes[dies].kill();
    let living: Vec<usize> = (0..4).filter(|&number| number != dies).collect();
    cluster.agrees(&others[..2], SETTLED);
    assert_eq!(
        cluster.nodes[cut_off].view()["nodes"].as_array().map(Vec::len),
        Some(4),
        "as it last saw them"
    );
    cables[cut_off].cut(false);
    cluster.agrees(&living, SETTLED);
    assert_eq!(master_of(&cluster, others[0]), master, "one master again");
    for (run, what) in runs.into_iter().zip(["cut off", "others"]) {
        let borrowed = run.finish_endless(&String::from_utf8_lossy(&plain.stdout), LIMIT, what);
        let lenders = borrowed.summary["lenders"].as_array().expect("a list");
        assert!(lenders.len() >= 4, "{what}: it borrowed from both sides: {lenders:?}");
        let (wall, lost, disk) = (borrowed.ended.wall, borrowed.lost(), borrowed.number("/faults/disk"));
        assert!(lost >= 1 && disk > 0.0, "{what}: {lost} lenders lost, {disk} faults from disk");
        println!("{what}: {wall:?}, {lost} lenders lost, {disk} faults from disk");
    }
    assert_eq!(both, 2, "the runs were too short");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let scratch = Scratch::new("etcd-refused");
    let url = "etcd://127.0.0.1:2379";
    for (flags, due) in [
        (vec!["--membership", url, "--join", "127.0.0.1:1"], "--join"),
        (vec!["--membership", "etcds://127.0.0.1:2379"], "without TLS"),
        (vec!["--membership", "zookeeper://127.0.0.1:1"], "etcd://HOST:PORT"),
        (vec!["--membership", "etcd://127.0.0.1"], "HOST:PORT"),
        (vec!["--membership", "etcd://10.0.0.1:2379"], "--insecure"),
    ] {
        let mut command = shell::that_dies_with_us(&place::loam());
        command.args(["node", "--lend", "16M", "--listen", "127.0.0.1:0"]).args(&flags);
        let ended = shell::run(&mut command, scratch.path(), "refused", Duration::from_secs(20));
        let lines = ended.error_lines();
        assert!(
            ended.code() != 0 && lines.len() == 1 && lines[0].contains(due),
            "{flags:?}: {}",
            ended.stderr
        );
    }
}
