//! TLS end to end: certificates by `loam ca`, programs under `loam run --tls`, and everybody who must be refused.

use loam_tests::borrow::Borrow;
use loam_tests::mounted::{self, Mount};
use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use loam_tests::site::{Site, TlsLender, loam};
use loam_tests::{plain, workloads};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// One line on stderr with all of these words, and a status that says so.
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert!(ended.code() > 0 && ended.code() < 128, "{}: {}", ended.code(), ended.stderr);
    let lines = ended.error_lines();
    assert_eq!(lines.len(), 1, "one line is due: {}", ended.stderr);
    for word in words {
        assert!(lines[0].contains(word), "no '{word}' in: {}", lines[0]);
    }
}

/// What `loam run` says of a lender that it cannot use.
fn run_with(lender: &str, tls: Option<&Path>, dir: &Path) -> String {
    let mut command = Command::new(place::loam());
    command.args(["run", "--local", "64M", "--lender", lender, "--disk"]).arg(dir.join("slots"));
    if let Some(tls) = tls {
        command.arg("--tls").arg(tls);
    }
    let ended = shell::run(command.args(["--", "true"]), dir, "run", LIMIT);
    ended.stderr
}

fn assert_status_works(addr: SocketAddr, tls: &Path, dir: &Path) {
    let ended = loam(dir, &["status", "--lender", &addr.to_string(), "--tls", text(tls), "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let lender = &status["lenders"][0];
    assert!(lender["error"].is_null() && lender["capacity_bytes"].as_u64() > Some(0), "{status}");
}

#[test]
fn a_program_runs_as_it_would_alone() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tls-run");
    let site = Site::new(&scratch, "site");
    let (node, busy) = (site.issue("node-1", "node", &[]), site.issue("busy-1", "borrower", &[]));
    let lender = TlsLender::start("512M", Some(&node), scratch.path(), "lender");
    let named = format!("node-1@{}", lender.addr);
    let walk = workloads::memwalk(160, 3, "random");
    let alone = plain::run(&walk, None, scratch.path(), LIMIT);
    for prefetch in ["on", "off"] {
        let flags = ["--lender", &named, "--tls", text(&busy), "--prefetch", prefetch];
        let borrowed = Borrow::new(scratch.path()).flags(&flags).not_durable().run(&walk, None, LIMIT);
        borrowed.assert_ended_well("memwalk over TLS");
        borrowed.assert_memory_left("memwalk over TLS");
        assert!(borrowed.number("/bytes/in") > 0.0, "the lender was read from");
        assert_eq!(borrowed.lost(), 0);
        assert!(borrowed.ended.stdout == alone.ended.stdout, "the output is another one");
    }
    let sort = workloads::sort(scratch.path());
    let alone = plain::run(&sort.command, None, scratch.path(), LIMIT);
    let sorted = fs::read(scratch.join("sorted")).expect("it was written");
    fs::remove_file(scratch.join("sorted")).expect("ours");
    let flags = ["--lender", &named, "--tls", text(&busy)];
    let borrowed = Borrow::new(scratch.path()).local_mib(alone.quarter_mib()).flags(&flags);
    let borrowed = borrowed.run(&sort.command, None, LIMIT);
    borrowed.assert_ended_well("sort over TLS");
    borrowed.assert_memory_left("sort over TLS");
    assert!(fs::read(scratch.join("sorted")).expect("it was written") == sorted, "sorted otherwise");
    assert_status_works(lender.addr, &busy, scratch.path());
}

#[test]
fn who_must_be_refused_is_told_why_and_others_are_served() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tls-refused");
    let dir = scratch.path();
    let (site, other) = (Site::new(&scratch, "site"), Site::new(&scratch, "other"));
    let (node, busy) = (site.issue("node-1", "node", &[]), site.issue("busy-1", "borrower", &[]));
    let mut lender = TlsLender::start("64M", Some(&node), dir, "lender");
    let addr = lender.addr.to_string();

    let said = run_with(&addr, None, dir);
    assert!(said.contains("it wants TLS: give --tls DIR"), "plain TCP: {said}");
    lender.wait_for("it speaks plain TCP");

    // One that believes the lender's authority, and is not believed.
    let trust = site.authority().join("ca.pem");
    let stranger = other.issue("stranger", "both", &["--trust", text(&trust)]);
    let said = run_with(&addr, Some(&stranger), dir);
    assert!(said.contains("does not know the authority of our certificate"), "stranger: {said}");
    lender.wait_for("not in our ca.pem");
    // One that does not believe it.
    let misled = other.issue("misled", "both", &[]);
    let said = run_with(&addr, Some(&misled), dir);
    assert!(said.contains("not in our ca.pem"), "misled: {said}");
    lender.wait_for("does not know the authority of our certificate");

    let said = run_with(&format!("node-2@{addr}"), Some(&busy), dir);
    assert!(said.contains("node-1, not of node-2"), "another name: {said}");
    lender.wait_for("has not the name or the role");
    // Wrong roles are seen at home already.
    assert_refused(&loam(dir, &["lend", "64M", "--tls", text(&busy)]), &["busy-1", "--role node"]);
    let run = ["run", "--local", "64M", "--lender", &addr, "--tls", text(&node), "--", "true"];
    assert_refused(&loam(dir, &run), &["node-1 (node)", "--role borrower"]);

    let mut plain_lender = TlsLender::start("64M", None, dir, "plain-lender");
    let said = run_with(&plain_lender.addr.to_string(), Some(&busy), dir);
    assert!(said.contains("it does not speak TLS"), "TLS to a plain lender: {said}");
    plain_lender.wait_for("you speak TLS");

    assert_status_works(lender.addr, &busy, dir);
    let walk = workloads::memwalk(96, 1, "random");
    let flags = ["--lender", &addr, "--tls", text(&busy)];
    let borrowed = Borrow::new(dir).flags(&flags).run(&walk, None, LIMIT);
    borrowed.assert_ended_well("after everybody was refused");
    assert_eq!(borrowed.lost(), 0);
}

#[test]
fn credentials_change_while_a_program_runs() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tls-rotation");
    let dir = scratch.path();
    let (old, new) = (Site::new(&scratch, "old"), Site::new(&scratch, "new"));
    let (node, busy) = (old.issue("node-1", "node", &[]), old.issue("busy-1", "borrower", &[]));
    let late = new.issue("busy-2", "borrower", &[]);
    let mut lender = TlsLender::start("256M", Some(&node), dir, "lender");
    let addr = lender.addr.to_string();
    let walk = workloads::memwalk(96, 100_000, "random");
    let flags = ["--lender", &addr, "--tls", text(&busy)];
    let mut running = Borrow::new(dir).flags(&flags).not_durable().start(&walk, None);
    let borrows = || {
        let ended = loam(dir, &["status", "--lender", &addr, "--tls", text(&busy), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
        status["lenders"][0]["gets"].as_u64().unwrap_or(0)
    };
    loam_tests::procfs::wait_until(LIMIT, || borrows() > 100).expect("it borrows");

    // A broken file is reported, and nothing changes.
    fs::write(node.join("node.pem"), "broken").expect("writable");
    lender.wait_for("the old ones stay");
    assert_status_works(lender.addr, &busy, dir);
    assert!(run_with(&addr, Some(&late), dir).contains("not in our ca.pem"), "not believed yet");

    // The new authority's certificate for the lender, which believes both.
    let trust = text(&old.authority().join("ca.pem")).to_owned();
    new.issue("node-1", "node", &["--force", "--out", text(&node), "--trust", &trust]);
    lender.wait_for("new credentials of node-1 (node) are in use");
    assert_status_works(lender.addr, &late, dir);
    // The old borrower does not know the new authority, but is served as before on the connection that it has.
    assert!(run_with(&addr, Some(&busy), dir).contains("not in our ca.pem"));
    let figures = loam(dir, &["status", "--lender", &addr, "--tls", text(&late), "--json"]);
    let gets = |ended: &Ended| {
        let status: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
        status["lenders"][0]["gets"].as_u64().unwrap_or(0)
    };
    let before = gets(&figures);
    loam_tests::procfs::wait_until(LIMIT, || {
        gets(&loam(dir, &["status", "--lender", &addr, "--tls", text(&late), "--json"])) > before + 100
    })
    .expect("the run goes on");
    assert!(running.run.runs(), "the run goes on: {}", running.run.stderr_so_far());
}

#[test]
fn keys_that_others_can_read_are_refused_and_doctor_says_so() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tls-key");
    let dir = scratch.path();
    let site = Site::new(&scratch, "site");
    let both = site.issue("node-1", "both", &[]);
    let mode = |path: &Path| fs::metadata(path).expect("made").permissions().mode() & 0o7777;
    assert_eq!((mode(&both), mode(&both.join("node.key"))), (0o700, 0o600));
    assert_eq!((mode(&site.authority()), mode(&site.authority().join("ca.key"))), (0o700, 0o600));
    let doctor = || {
        let ended = loam(dir, &["doctor", "--tls", text(&both), "--disk", text(&scratch.join("slots"))]);
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    assert!(doctor().contains("node-1 (node and borrower)"), "{}", doctor());
    fs::set_permissions(both.join("node.key"), fs::Permissions::from_mode(0o644)).expect("ours");
    let words = ["node.key", "0644", "chmod 600"];
    assert_refused(&loam(dir, &["lend", "64M", "--listen", "127.0.0.1:0", "--tls", text(&both)]), &words);
    let run = ["run", "--local", "64M", "--lender", "127.0.0.1:9", "--tls", text(&both), "--", "true"];
    assert_refused(&loam(dir, &run), &words);
    let told = doctor();
    assert!(told.lines().any(|line| line.starts_with("FAIL") && line.contains("node.key")), "{told}");
    assert!(told.contains("chmod 600"), "{told}");
}

#[test]
fn the_authority_replaces_nothing_by_itself_and_shows_what_it_issued() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("tls-ca");
    let dir = scratch.path();
    let site = Site::new(&scratch, "site");
    let node = site.issue("node-1.rack-2", "both", &["--days", "30"]);
    let home = node.parent().expect("it is in the site's folder");
    assert_refused(&loam(home, &["ca", "init"]), &["--force"]);
    assert_refused(&loam(home, &["ca", "issue", "node-1.rack-2"]), &["--force"]);
    for bad in ["../up", "Upper", "a b", ""] {
        assert_refused(&loam(home, &["ca", "issue", bad]), &["cannot be a name"]);
    }
    assert_refused(&loam(dir, &["ca", "issue", "node-2"]), &["loam ca init"]);
    let shown = |file: &Path| {
        let ended = loam(dir, &["ca", "show", text(file)]);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    let line = shown(&node.join("node.pem"));
    assert!(line.lines().count() == 1 && line.starts_with("node-1.rack-2  role node and borrower"), "{line}");
    assert!(line.contains("29 days left"), "{line}");
    assert!(shown(&node.join("ca.pem")).contains("role authority"));
    assert_refused(&loam(dir, &["ca", "show", text(&node.join("node.key"))]), &["no certificate"]);
    assert_refused(&loam(dir, &["ca", "show", "none.pem"]), &["none.pem"]);
}

/// Two machines that are none: network namespaces with a cable between them.
struct Wire {
    names: [String; 2],
}

impl Wire {
    fn new() -> Self {
        let id = std::process::id();
        let names = [format!("loam-tls-a-{id}"), format!("loam-tls-b-{id}")];
        let wire = Self { names };
        let [a, b] = &wire.names;
        let ip = |line: String| {
            let ended = Command::new("ip").args(line.split(' ')).output().expect("ip can be started");
            assert!(ended.status.success(), "ip {line}: {}", String::from_utf8_lossy(&ended.stderr));
        };
        for name in &wire.names {
            ip(format!("netns add {name}"));
        }
        ip(format!("-n {a} link add wire type veth peer name wire netns {b}"));
        for (name, host) in [(a, 1), (b, 2)] {
            ip(format!("-n {name} addr add 10.77.0.{host}/24 dev wire"));
            ip(format!("-n {name} link set wire up"));
            ip(format!("-n {name} link set lo up"));
        }
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn two_nodes_on_a_network() {
    let _alone = place::alone_here();
    if !place::is_root() {
        println!("passed over: only root can make network namespaces");
        return;
    }
    let scratch = Scratch::new("tls-net");
    let dir = scratch.path();
    let site = Site::new(&scratch, "site");
    let (node, busy) = (site.issue("node-1", "node", &[]), site.issue("busy-1", "borrower", &[]));
    let wire = Wire::new();
    let loam = place::loam();
    let netns = Path::new("ip");
    let mut lend = shell::that_dies_with_us(netns);
    lend.args(["netns", "exec", &wire.names[0]]).arg(&loam);
    lend.args(["lend", "256M", "--listen", "0.0.0.0:7070", "--tls"]).arg(&node);
    let mut lender = shell::start(lend.stdin(std::process::Stdio::null()), dir, "lender");
    loam_tests::procfs::wait_until(Duration::from_secs(20), || lender.stderr_so_far().contains("lending"))
        .expect("it lends");
    assert!(!lender.stderr_so_far().contains("without encryption"), "{}", lender.stderr_so_far());
    let walk = workloads::memwalk(96, 2, "random");
    let mut run = shell::that_dies_with_us(netns);
    run.args(["netns", "exec", &wire.names[1]]).arg(&loam);
    run.args(["run", "--local", "32M", "--durability", "none", "--lender", "node-1@10.77.0.1:7070", "--tls"]);
    run.arg(&busy).args(["--quiet", "--summary"]).arg(dir.join("net.json")).arg("--");
    run.arg(walk.get_program()).args(walk.get_args());
    let ended = shell::run(&mut run, dir, "run", LIMIT);
    let alone = plain::run(&walk, None, dir, LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert!(ended.stdout == alone.ended.stdout, "the output is another one");
    let summary = fs::read(dir.join("net.json")).expect("written");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    assert!(summary["bytes"]["in"].as_u64() > Some(0), "{summary}");
    assert!(lender.runs());
}

#[test]
fn mounts_of_one_authority_share_and_a_stranger_reads_the_source() {
    let _alone = place::alone_here();
    if !mounted::possible("mounts_of_one_authority_share_and_a_stranger_reads_the_source") {
        return;
    }
    let scratch = Scratch::new("tls-mount");
    let dir = scratch.path();
    let (site, other) = (Site::new(&scratch, "site"), Site::new(&scratch, "other"));
    let (one, two) = (site.issue("m1", "node", &[]), site.issue("m2", "node", &[]));
    let stranger = other.issue("m3", "node", &[]);
    let source = scratch.join("source");
    fs::create_dir_all(&source).expect("writable");
    let contents: Vec<u8> = (0..5_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    fs::write(source.join("file"), &contents).expect("writable");
    let reads = |mount: &Mount| fs::read(mount.at.join("file")).expect("it is there") == contents;
    let a = Mount::new(dir, "a", &source, &["--listen", "127.0.0.1:0", "--tls", text(&one)]);
    assert!(reads(&a));
    let peer = a.addr().to_string();
    for (name, tls) in [("plain", None), ("strange", Some(&stranger))] {
        let flags = tls.map_or(Vec::new(), |tls| vec!["--tls", text(tls)]);
        let c = Mount::new(dir, name, &source, &[&["--peer", &peer][..], &flags].concat());
        assert!(reads(&c), "{name}");
        assert_eq!((c.figure("peers"), c.figure("runs_from_peers"), a.figure("peers")), (0, 0, 0), "{name}");
    }
    let b = Mount::new(dir, "b", &source, &["--peer", &peer, "--tls", text(&two)]);
    loam_tests::procfs::wait_until(LIMIT, || a.figure("peers") == 1 && b.figure("peers") == 1)
        .expect("they know each other");
    // News of what a has take a moment, and on a busy machine an answer may be later than a reader waits: there are several rounds.
    let shared = (0..10).any(|round| {
        let name = format!("file-{round}");
        mounted::write_settled(&source.join(&name), &contents);
        assert!(fs::read(a.at.join(&name)).expect("there") == contents);
        std::thread::sleep(Duration::from_millis(500));
        assert!(fs::read(b.at.join(&name)).expect("there") == contents);
        b.figure("runs_from_peers") > 0
    });
    assert!(shared, "nothing came from the first one's memory");
    let busy = site.issue("busy", "borrower", &[]);
    let mountpoint = scratch.join("none");
    fs::create_dir_all(&mountpoint).expect("writable");
    let args = ["mount", text(&source), text(&mountpoint), "--listen", "0.0.0.0:0", "--tls", text(&busy)];
    assert_refused(&loam(dir, &args), &["busy", "--role node"]);
}
