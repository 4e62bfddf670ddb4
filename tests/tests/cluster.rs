//! Clusters of real nodes: they find each other, notice who is gone, and agree again within ten seconds after every fault.

use loam_tests::cluster::{Cluster, SETTLED};
use loam_tests::place;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Nodes join, one leaves, one is killed, one is started again under its name, one comes late by another seed. On loopback.
#[test]
fn nodes_come_and_go() {
    let _beside = place::beside();
    let mut cluster = Cluster::on_loopback(4);
    cluster.agrees(&[0, 1, 2, 3], SETTLED);
    let late = cluster.add(&["--http", "127.0.0.1:0"]);
    cluster.agrees(&[0, 1, 2, 3, late], SETTLED);
    cluster.nodes[3].end();
    cluster.agrees(&[0, 1, 2, late], SETTLED);
    assert!(!cluster.nodes[3].view()["error"].is_null(), "its socket has gone with it");
    let former = cluster.nodes[2].id();
    cluster.restart(2);
    cluster.agrees(&[0, 1, 2, late], SETTLED);
    assert_ne!(cluster.nodes[2].id(), former, "a restart is another life");
    // The seed itself.
    cluster.nodes[0].kill();
    cluster.agrees(&[1, 2, late], SETTLED);
    metrics_are_answered(&cluster.nodes[late].log());
}

/// `--http` says where it listens, and answers there.
fn metrics_are_answered(log: &str) {
    let place = log.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("it says where");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(place).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: loam\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    assert!(get("/health").starts_with("HTTP/1.1 200") && get("/health").ends_with("ok\n"));
    let metrics = get("/metrics");
    assert!(metrics.contains("\nloam_cluster_members 3"), "{metrics}");
    assert!(metrics.contains("\nloam_lender_capacity_bytes 16777216"), "{metrics}");
    assert!(
        metrics.contains("# TYPE loam_epochs counter") && metrics.trim_end().ends_with("# EOF"),
        "{metrics}"
    );
    assert!(get("/").starts_with("HTTP/1.1 404"));
}

/// The master is killed; another one is stopped and goes on as the life that it was. Five machines.
#[test]
fn a_master_dies_and_a_node_stands_still() {
    let _beside = place::beside();
    let Some(mut cluster) = Cluster::in_namespaces(5) else { return };
    cluster.agrees(&[0, 1, 2, 3, 4], SETTLED);
    let master = cluster.nodes[0].view()["master"].clone();
    let killed = (0..5).find(|&number| cluster.nodes[number].id() == master).expect("it is one of them");
    cluster.nodes[killed].kill();
    let mut living: Vec<usize> = (0..5).filter(|&number| number != killed).collect();
    cluster.agrees(&living, SETTLED);
    assert_ne!(cluster.nodes[living[0]].view()["master"], master);

    let stopped = living.pop().expect("four are left");
    let life = cluster.nodes[stopped].id();
    cluster.nodes[stopped].stop();
    cluster.agrees(&living, SETTLED);
    cluster.nodes[stopped].resume();
    living.push(stopped);
    cluster.agrees(&living, SETTLED);
    assert_eq!(cluster.nodes[stopped].id(), life);
}

/// Nine machines in two halves, each a cluster of its own until the network heals; then all nine, and one whose cable was out.
#[test]
fn halves_become_one_again() {
    let _beside = place::beside();
    let Some(cluster) = Cluster::in_namespaces(9) else { return };
    let all: Vec<usize> = (0..9).collect();
    cluster.agrees(&all, SETTLED);
    cluster.net().part(&[5, 6, 7, 8]);
    cluster.agrees(&[0, 1, 2, 3, 4], SETTLED);
    cluster.agrees(&[5, 6, 7, 8], SETTLED);
    cluster.net().heal();
    cluster.agrees(&all, SETTLED);
    cluster.net().cable(4, false);
    cluster.agrees(&[0, 1, 2, 3, 5, 6, 7, 8], SETTLED);
    cluster.agrees(&[4], SETTLED);
    cluster.net().cable(4, true);
    cluster.agrees(&all, SETTLED);
}
