//! Nodes in one process: what borrowers are told of the cluster, and who may say what.

use crate::support::{Borrower, TIMEOUT, config, eventually, lender};
use loam_core::units::Bytes;
use loam_node::{ClusterConfig, LendHandle, LocalSocket, NodeError, spawn};
use loam_wire::client::{Client, ClientError};
use loam_wire::{Frame, ViewEntry, cluster_class, encode};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

fn node(name: &str, join: &[SocketAddr]) -> LendHandle {
    let mut config = config(Bytes::from_mib(1));
    config.cluster = Some(ClusterConfig {
        name: Some(name.into()),
        join: join.to_vec(),
        probe_period: Duration::from_millis(200),
        ..ClusterConfig::default()
    });
    spawn(&config).unwrap()
}

fn client(node: &LendHandle) -> Client {
    Client::connect(node.addr(), 0, "test", TIMEOUT).unwrap()
}

/// The ids and addresses of the next view that comes.
fn next_view(client: &mut Client) -> (u64, Vec<ViewEntry>) {
    match client.receive().unwrap() {
        Frame::View { request: 77, figures, nodes } => (figures.version(), nodes.to_vec()),
        other => panic!("no view: {other:?}"),
    }
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("loam-node-{name}-{}", std::process::id())).join("node.sock")
}

#[test]
fn a_lender_without_a_cluster_is_a_cluster_of_one() {
    let lender = lender(1);
    let mut client = client(&lender);
    client.send(&[], |out| encode::view_request(out, 77)).unwrap();
    let (_, nodes) = next_view(&mut client);
    assert_eq!(nodes.len(), 1);
    assert_eq!((nodes[0].id(), nodes[0].addr()), (client.welcome().instance(), lender.addr()));
    assert_eq!((nodes[0].flags(), nodes[0].capacity_bytes()), (ViewEntry::FLAG_SELF, 1 << 20));
    assert!(nodes[0].weight() > 0);
    client.send(&[], |out| encode::cluster(out, 5, cluster_class::GOSSIP, b"hello")).unwrap();
    let Err(ClientError::Refused { text, .. }) = client.receive() else { panic!("it must refuse") };
    assert!(text.contains("loam node"), "{text}");
}

#[test]
fn views_are_pushed_when_nodes_come_and_go() {
    let first = node("first", &[]);
    let mut borrower = Client::connect(first.addr(), 9, "borrower", TIMEOUT).unwrap();
    borrower.send(&[], |out| encode::view_request(out, 77)).unwrap();
    let (mut version, nodes) = next_view(&mut borrower);
    assert_eq!(nodes.len(), 1);
    let mut wait_for = |addrs: &[SocketAddr]| loop {
        let (newer, nodes) = next_view(&mut borrower);
        assert!(newer > version, "version {newer} after {version}");
        version = newer;
        let mut seen: Vec<SocketAddr> = nodes.iter().map(ViewEntry::addr).collect();
        seen.sort();
        let whole = nodes.iter().all(|node| node.capacity_bytes() == 1 << 20 && node.weight() > 0);
        if seen == addrs && whole {
            assert!(nodes.is_sorted_by_key(ViewEntry::id));
            return;
        }
    };
    // Its own address among the seeds does no harm.
    let second = node("second", &[first.addr()]);
    let mut both = [first.addr(), second.addr()];
    both.sort();
    wait_for(&both);
    let (figures, nodes) = client(&second).nodes().unwrap();
    let mut names: Vec<String> = nodes.iter().map(|node| node.facts().name.to_owned()).collect();
    names.sort();
    assert_eq!(names, ["first", "second"]);
    assert!(figures.epoch.get() > 0);
    assert_eq!(figures.master.get(), nodes.iter().map(|node| node.facts().id).min().unwrap());
    drop(second);
    wait_for(&[first.addr()]);
}

/// Whatever is sent as a cluster frame, the node goes on, and counts it.
#[test]
fn messages_without_meaning_change_nothing() {
    let first = node("first", &[]);
    let mut client = client(&first);
    for class in 0..6 {
        for bytes in [&b"x"[..], &[0; 500], &[255; 60_000]] {
            client.send(&[], |out| encode::cluster(out, 5, class, bytes)).unwrap();
        }
    }
    client.ping().unwrap();
    let second = node("second", &[first.addr()]);
    eventually("both see both", || {
        [&first, &second].iter().all(|node| self::client(node).nodes().unwrap().1.len() == 2)
    });
}

/// Nodes had no places of their own: who had a connection to spare for each of a node's kept all others out.
#[test]
fn a_crowd_keeps_no_node_out() {
    let first = node("first", &[]);
    let mut crowd: Vec<_> = (0..loam_node::limits::CONNECTIONS_MAX).map(|_| client(&first)).collect();
    crowd.iter_mut().for_each(|client| client.ping().unwrap());
    let late = Client::connect(first.addr(), 0, "late", TIMEOUT).and_then(|mut client| client.ping());
    assert!(late.is_err(), "the crowd has all places");
    let second = node("second", &[first.addr()]);
    eventually("both see both", || {
        let seen = [crowd[0].nodes(), client(&second).nodes()];
        seen.into_iter().all(|nodes| nodes.unwrap().1.len() == 2)
    });
}

/// All nodes of a cluster tell one of them what they have. It had places for 512.
#[test]
fn as_many_nodes_are_heard_as_a_view_lists() {
    let files = loam_wire::allow_many_files();
    let nodes = loam_wire::limits::VIEW_NODES_MAX;
    if files < 3 * nodes as u64 {
        println!("skipped: only {files} files may be open");
        return;
    }
    let first = node("first", &[]);
    let mut others = Vec::new();
    for _ in 0..nodes {
        let mut other = client(&first);
        other.send(&[], |out| encode::cluster(out, 5, cluster_class::GOSSIP, b"hello")).unwrap();
        other.ping().unwrap();
        others.push(other);
    }
    // And they are heard on.
    others.iter_mut().for_each(|other| other.ping().unwrap());
    let mut borrower = Borrower::new(&first, 7);
    assert!(borrower.get(0..1, 1).is_empty());
}

#[test]
fn local_programs_borrow_and_have_no_part_in_the_cluster() {
    let path = socket("local");
    let mut config = config(Bytes::from_mib(1));
    config.cluster = Some(ClusterConfig { name: Some("here".into()), ..ClusterConfig::default() });
    config.socket = Some(LocalSocket { path: path.clone(), mode: 0o640, required: true });
    let node = spawn(&config).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let mut client = Client::connect_local(&path, 0, "test", TIMEOUT).unwrap();
    assert_eq!(client.nodes().unwrap().1[0].facts().name, "here");
    let local = |expected: u64| {
        eventually("local pages are known", || {
            Client::connect_local(&path, 0, "test", TIMEOUT).unwrap().nodes().unwrap().1[0]
                .facts()
                .local_pages
                == expected
        });
    };
    let mut run = Client::connect_local(&path, 0, "run", TIMEOUT).unwrap();
    run.send(&[], |out| encode::local(out, 1000)).unwrap();
    client.send(&[], |out| encode::local(out, u64::MAX)).unwrap();
    client.send(&[], |out| encode::local(out, 5)).unwrap();
    local(1005);
    drop(run);
    local(5);
    client.send(&[], |out| encode::cluster(out, 5, cluster_class::GOSSIP, b"hello")).unwrap();
    assert!(matches!(client.receive(), Err(ClientError::Refused { .. })));
    // Somebody listens there: it is not taken away.
    let error = spawn(&config).expect_err("the socket is taken");
    assert!(matches!(error, NodeError::Socket { .. }) && error.to_string().contains("--socket"), "{error}");
    config.socket = config.socket.map(|socket| LocalSocket { required: false, ..socket });
    let beside = spawn(&config).unwrap();
    assert!(beside.lending().warnings.iter().any(|warning| warning.contains("socket")));
    drop(beside);
    assert!(path.exists());
    drop(node);
    assert!(!path.exists(), "its file goes with it");
    // What a killed node left behind is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(spawn(&config).unwrap());
    assert!(!path.exists());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn others_must_know_where_to_connect() {
    let mut config = config(Bytes::from_mib(1));
    config.insecure = true;
    config.listen = "0.0.0.0:0".parse().unwrap();
    config.cluster = Some(ClusterConfig::default());
    let error = spawn(&config).expect_err("others cannot connect to all addresses");
    assert!(
        matches!(error, NodeError::NoAddress { .. }) && error.to_string().contains("--advertise"),
        "{error}"
    );
    config.insecure = false;
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.http = Some("0.0.0.0:0".parse().unwrap());
    assert!(matches!(spawn(&config), Err(NodeError::HttpNotLoopback { .. })));
}

/// A lender of no cluster has metrics too.
#[test]
fn one_that_only_lends_is_measured() {
    let mut config = config(Bytes::from_mib(8));
    config.http = Some("127.0.0.1:0".parse().unwrap());
    let lender = spawn(&config).unwrap();
    let mut borrower = Borrower::new(&lender, 1);
    borrower.put(0..256, 1);
    let mut stream = std::net::TcpStream::connect(lender.lending().http.unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loam\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\nloam_lender_capacity_bytes 8388608.0\n"), "{answer}");
    assert!(answer.contains("\nloam_lender_pages 256.0\n"), "{answer}");
    assert_eq!(borrower.get(0..256, 1).len(), 256, "and goes on");
}
