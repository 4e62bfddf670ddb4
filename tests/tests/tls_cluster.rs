//! A cluster with credentials: three machines that agree, a program that borrows from them, and everybody who must stay outside.

use loam_tests::cluster::{Cluster, Node, SETTLED, Setup};
use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use loam_tests::site::Site;
use loam_tests::{plain, procfs, workloads};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// `loam run` on a node's machine, which learns lenders from the node.
fn run(node: &Node, durability: &str, tls: Option<&Path>, walk: &Command, dir: &Path) -> (Ended, Value) {
    run_with(node, &["--durability", durability], tls, walk, dir)
}

/// The same with these flags.
fn run_with(node: &Node, flags: &[&str], tls: Option<&Path>, walk: &Command, dir: &Path) -> (Ended, Value) {
    let summary = dir.join("summary.json");
    let mut run = node.loam();
    run.args(["run", "--local", "32M"]).args(flags).arg("--disk").arg(dir.join("slots"));
    run.arg("--node").arg(node.socket()).arg("--summary").arg(&summary);
    if let Some(tls) = tls {
        run.arg("--tls").arg(tls);
    }
    run.arg("--").arg(walk.get_program()).args(walk.get_args());
    let ended = shell::run(&mut run, dir, "run", LIMIT);
    let written = std::fs::read(summary).ok().and_then(|json| serde_json::from_slice(&json).ok());
    (ended, written.unwrap_or(Value::Null))
}

/// Lines of a node's log with these words.
fn told(node: &Node, words: &[&str]) -> Vec<String> {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    node.log().lines().filter(has).map(str::to_owned).collect()
}

/// A node that others do not want, and why, as each side says it: once.
fn assert_stays_outside(cluster: &mut Cluster, number: usize, here: &str, there: &str) {
    cluster.nodes[number].start();
    let (said, heard) = (["cannot join", here], ["refused 10.99.0."]);
    let both = |cluster: &Cluster| {
        !told(&cluster.nodes[number], &said).is_empty()
            && told(&cluster.nodes[0], &heard).iter().any(|line| line.contains(there))
    };
    procfs::wait_until(SETTLED, || both(cluster)).unwrap_or_else(|_| panic!("{}", cluster.logs()));
    // It goes on trying, and goes on being refused.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(told(&cluster.nodes[number], &["cannot join"]).len(), 1, "{}", cluster.logs());
    let addr = format!("refused {}:", cluster.nodes[number].addr.ip());
    let lines = told(&cluster.nodes[0], &[&addr]);
    assert!(lines.len() == 1 && lines[0].contains(there), "{lines:?}");
    cluster.agrees(&[0, 1, 2], SETTLED);
    cluster.nodes[number].kill();
}

#[test]
fn three_machines_agree_and_lend_and_strangers_stay_outside() {
    let _beside = place::beside();
    let scratch = Scratch::new("tls-cluster");
    let dir = scratch.path();
    let (site, other) = (Site::new(&scratch, "site"), Site::new(&scratch, "other"));
    let folders: Vec<_> = (0..3).map(|n| site.issue(&format!("m{n}"), "node", &[])).collect();
    let (busy, stranger) = (site.issue("busy", "borrower", &[]), other.issue("m4", "both", &[]));
    let flags = |number: usize| match number {
        0..=2 => vec!["--tls".to_owned(), text(&folders[number])],
        4 => vec!["--tls".to_owned(), text(&stranger)],
        _ => Vec::new(),
    };
    let setup = Setup { started: 3, lend: "128M", flags: &flags };
    let Some(mut cluster) = Cluster::in_namespaces_with(5, &setup) else { return };
    cluster.agrees(&[0, 1, 2], SETTLED);
    assert!(!cluster.logs().contains("without encryption"), "{}", cluster.logs());

    let walk = workloads::memwalk(96, 2, "random");
    let alone = plain::run(&walk, None, dir, LIMIT);
    for durability in ["none", "disk"] {
        let (ended, summary) = run(&cluster.nodes[0], durability, Some(&busy), &walk, dir);
        assert_eq!(ended.code(), 0, "{}\n{}", ended.stderr, cluster.logs());
        assert!(ended.stdout == alone.ended.stdout, "the output is another one");
        assert_eq!(
            (&summary["lenders_joined"], &summary["lenders_lost"]),
            (&3.into(), &0.into()),
            "{summary}"
        );
        assert!(summary["bytes"]["in"].as_u64() > Some(0), "{summary}");
    }
    // Memory that is set aside: each node's half may be.
    let flags = |reserve| ["--durability", "staged", reserve];
    let (ended, summary) = run_with(&cluster.nodes[0], &flags("--reserve=80M"), Some(&busy), &walk, dir);
    assert_eq!(ended.code(), 0, "{}\n{}", ended.stderr, cluster.logs());
    assert!(ended.stdout == alone.ended.stdout, "the output is another one");
    assert_eq!(summary["reservation"]["reserved_bytes"].as_u64(), Some(160 << 20), "{summary}");
    let (ended, _) = run_with(&cluster.nodes[0], &flags("--reserve=120M"), Some(&busy), &walk, dir);
    assert_eq!(ended.error_lines().len(), 1, "{}", ended.stderr);
    assert!(ended.code() == 125 && ended.stderr.contains("48.0 MiB are missing"), "{}", ended.stderr);
    // Without credentials, with those of another authority, and without the role.
    let (ended, summary) = run(&cluster.nodes[0], "disk", None, &walk, dir);
    assert_eq!((ended.code(), &summary["lenders_joined"]), (0, &0.into()), "{}", ended.stderr);
    assert!(ended.stdout == alone.ended.stdout, "the output is another one");
    assert!(
        ended.stderr.contains("cannot be used") && ended.stderr.contains("--tls DIR"),
        "{}",
        ended.stderr
    );
    let (ended, _) = run(&cluster.nodes[0], "none", Some(&stranger), &walk, dir);
    assert_eq!(ended.error_lines().len(), 1, "{}", ended.stderr);
    assert!(ended.code() == 125 && ended.stderr.contains("not in our ca.pem"), "{}", ended.stderr);
    let (ended, _) = run(&cluster.nodes[0], "none", Some(&folders[0]), &walk, dir);
    assert_eq!(ended.error_lines().len(), 1, "{}", ended.stderr);
    assert!(ended.code() == 125 && ended.stderr.contains("--role borrower"), "{}", ended.stderr);

    let status = |tls: Option<&Path>| {
        let mut command = cluster.nodes[1].loam();
        command.arg("status").arg(cluster.nodes[0].addr.to_string());
        tls.map(|tls| command.arg("--tls").arg(tls));
        shell::run(&mut command, dir, "status", LIMIT)
    };
    let ended = status(Some(&busy));
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("cluster of 3"));
    assert!(String::from_utf8_lossy(&status(None).stdout).contains("--tls DIR"));

    assert_stays_outside(&mut cluster, 3, "it wants TLS: give --tls DIR", "it speaks plain TCP");
    assert_stays_outside(
        &mut cluster,
        4,
        "not in our ca.pem",
        "does not know the authority of our certificate",
    );
    // A borrower is no node, and without credentials nobody listens for other machines.
    let refused = |more: &[&str], words: &str| {
        let mut command = cluster.nodes[3].loam();
        command.args(["node", "--lend", "16M", "--listen", "10.99.0.4:7070"]).args(more);
        let ended = shell::run(&mut command, dir, "node", LIMIT);
        assert!(ended.code() > 0 && ended.error_lines().len() == 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    };
    refused(&["--tls", &text(&busy)], "--role node");
    refused(&[], "--tls DIR");
}

#[test]
fn credentials_change_under_a_living_cluster() {
    let _beside = place::beside();
    let scratch = Scratch::new("tls-cluster-change");
    let (old, new) = (Site::new(&scratch, "old"), Site::new(&scratch, "new"));
    let folders: Vec<_> = (0..3).map(|n| old.issue(&format!("m{n}"), "node", &[])).collect();
    let flags = |number: usize| vec!["--tls".to_owned(), text(&folders[number])];
    let setup = Setup { lend: "16M", started: usize::MAX, flags: &flags };
    let Some(mut cluster) = Cluster::in_namespaces_with(3, &setup) else { return };
    cluster.agrees(&[0, 1, 2], SETTLED);
    let lives: Vec<String> = cluster.nodes.iter().map(Node::id).collect();
    let (old_ca, new_ca) = (old.authority().join("ca.pem"), new.authority().join("ca.pem"));
    let both = [&old_ca, &new_ca].map(|pem| std::fs::read_to_string(pem).expect("made")).concat();
    let wait_for_news = |cluster: &Cluster, times: usize| {
        let all = || cluster.nodes.iter().all(|node| told(node, &["new credentials"]).len() == times);
        procfs::wait_until(SETTLED, all).unwrap_or_else(|_| panic!("{}", cluster.logs()));
    };
    // As docs/security.md says: first everybody believes both, then come certificates of the new one.
    folders.iter().for_each(|folder| std::fs::write(folder.join("ca.pem"), &both).expect("ours"));
    wait_for_news(&cluster, 1);
    for (n, folder) in folders.iter().enumerate() {
        new.issue(&format!("m{n}"), "node", &["--force", "--out", &text(folder), "--trust", &text(&old_ca)]);
    }
    wait_for_news(&cluster, 2);
    // The last step: the new one alone.
    for folder in &folders {
        std::fs::copy(&new_ca, folder.join("ca.pem")).expect("ours");
    }
    wait_for_news(&cluster, 3);
    cluster.agrees(&[0, 1, 2], SETTLED);
    assert_eq!(lives, cluster.nodes.iter().map(Node::id).collect::<Vec<_>>(), "nobody was away");
    for node in &cluster.nodes {
        assert!(told(node, &["gone"]).is_empty(), "nobody was ever missed: {}", node.log());
    }
    // New connections, to and from everybody.
    cluster.restart(1);
    cluster.agrees(&[0, 1, 2], SETTLED);
}
